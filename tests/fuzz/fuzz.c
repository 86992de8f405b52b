#include "fuzz.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

struct fuzz_outcome fuzz_outcome;

void fuzz_accept(size_t n)
{
    if (!fuzz_outcome.is_settled)
        fuzz_outcome.n = n;
    fuzz_outcome.is_settled = 1;
}

void fuzz_check_refusal(dt_status status, dt_status expected)
{
    const char *text = dt_error_text();
    FUZZ_CHECK(status == expected && text[0]);
    for (const char *c = text; *c; c++)
        FUZZ_CHECK(((unsigned char)*c >= ' ' && *c != 0x7f) || *c == '\n');
    if (!fuzz_outcome.is_settled)
        snprintf(fuzz_outcome.refusal, sizeof fuzz_outcome.refusal, "%s", text);
    fuzz_outcome.is_settled = 1;
}

static void write_all(int fd, const uint8_t *data, size_t bytes)
{
    FUZZ_CHECK(fd >= 0 && ftruncate(fd, 0) == 0);
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pwrite(fd, data + done, bytes - done, (off_t)done);
        FUZZ_CHECK(n > 0);
        done += (size_t)n;
    }
}

const char *fuzz_file(const uint8_t *data, size_t bytes)
{
    static int fd = -1;
    static char path[64];
    if (fd < 0)
        fd = memfd_create("fuzz", MFD_CLOEXEC);
    write_all(fd, data, bytes);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    fuzz_outcome.path = path;
    return path;
}

static char folder[64], entry[DT_PATH_MAX];

static void remove_folder(void)
{
    unlink(entry);
    rmdir(folder);
}

const char *fuzz_folder_file(const char *name, const void *data, size_t bytes)
{
    static int fd = -1;
    if (fd < 0) {
        snprintf(folder, sizeof folder, "%s/dtrain-fuzz-XXXXXX",
                 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        FUZZ_CHECK(mkdtemp(folder) && atexit(remove_folder) == 0);
        snprintf(entry, sizeof entry, "%s/%s", folder, name);
        fd = open(entry, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    }
    write_all(fd, data, bytes);
    fuzz_outcome.path = entry;
    return folder;
}
