#include "data/files.h"

#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/file.h"
#include "image/png.h"

enum { PATH_BYTES = 2 * DT_PATH_MAX };

bool dt_files_is_image(const char *name)
{
    const char *suffix = strrchr(name, '.');
    return suffix && (dt_is_jpeg_suffix(suffix + 1) ||
                      (dt_png_is_known() && strcasecmp(suffix, ".png") == 0));
}

dt_status dt_files_read(const struct dt_dataset *dataset, uint32_t id, struct dt_sample *sample)
{
    char path[PATH_BYTES];
    uint64_t bytes = 0;
    int fd = -1;

    dataset->kind->name(dataset, id, path, sizeof path);
    DT_TRY(dt_file_open(&fd, &bytes, path));
    dt_status status = dt_sample_read(sample, fd, 0, bytes, path);
    close(fd);
    DT_TRY(status);
    return DT_OK;
}

void dt_files_forget(const struct dt_dataset *dataset)
{
    char path[PATH_BYTES];
    for (uint32_t id = 0; id < dataset->n; id++) {
        dataset->kind->name(dataset, id, path, sizeof path);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue;
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
}
