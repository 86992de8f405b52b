#include "data/sample.h"

#include <strings.h>

#include "base/file.h"
#include "base/mem.h"

dt_status dt_sample_reserve(struct dt_sample *sample, size_t bytes)
{
    if (bytes > sample->capacity)
        DT_TRY(DT_GROW(sample->data, sample->capacity, bytes - 1, "sample"));
    sample->bytes = bytes;
    return DT_OK;
}

dt_status dt_sample_read(struct dt_sample *sample, int fd, uint64_t offset, uint64_t bytes,
                         const char *path)
{
    if (bytes < 1 || bytes > DT_MAX_ENCODED_BYTES)
        DT_FAIL(DT_ERR_DATA, "image at byte %llu of %s has %llu bytes; 1 to %d are allowed",
                (unsigned long long)offset, path, (unsigned long long)bytes, DT_MAX_ENCODED_BYTES);
    DT_TRY(dt_sample_reserve(sample, (size_t)bytes));
    DT_TRY(dt_file_pread(fd, sample->data, (size_t)bytes, offset, path));
    return DT_OK;
}

bool dt_is_jpeg_suffix(const char *suffix)
{
    return !strcasecmp(suffix, "jpg") || !strcasecmp(suffix, "jpeg");
}
