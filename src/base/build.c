/* The build id is a note that the linker writes into the program; it is read from where the loader
 * has mapped it. */
#include "base/build.h"

#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MAX_BYTES = 20 };

const char dt_version[] = DTRAIN_VERSION, dt_version_date[] = DTRAIN_DATE;

static char text[2 * MAX_BYTES + 1] = "unknown";

/* True if the build id is among the notes of a segment. */
static int read_notes(const char *notes, size_t bytes, size_t align)
{
    for (size_t at = 0; at + sizeof(ElfW(Nhdr)) <= bytes;) {
        ElfW(Nhdr) head;
        memcpy(&head, notes + at, sizeof head);
        const size_t name = at + sizeof head;
        const size_t data = name + ((head.n_namesz + align - 1) & ~(align - 1));
        if (data + head.n_descsz > bytes)
            return 0;
        if (head.n_type == NT_GNU_BUILD_ID && head.n_namesz == 4 && head.n_descsz > 0 &&
            memcmp(notes + name, "GNU", 4) == 0) {
            for (size_t i = 0; i < head.n_descsz && i < MAX_BYTES; i++)
                snprintf(text + 2 * i, 3, "%02x", (unsigned char)notes[data + i]);
            return 1;
        }
        at = data + ((head.n_descsz + align - 1) & ~(align - 1));
    }
    return 0;
}

/* The program itself comes first; the libraries are skipped. */
static int read_program(struct dl_phdr_info *info, size_t bytes, void *unused)
{
    (void)bytes;
    (void)unused;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_NOTE && read_notes((const char *)(info->dlpi_addr + part->p_vaddr),
                                                  part->p_memsz, part->p_align == 8 ? 8 : 4))
            break;
    }
    return 1;
}

static void read_id(void)
{
    dl_iterate_phdr(read_program, NULL);
}

const char *dt_build_id(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_id);
    return text;
}
