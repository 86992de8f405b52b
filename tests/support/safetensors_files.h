/* Hand-made safetensors files in a temporary folder. */
#ifndef DTRAIN_TEST_SAFETENSORS_FILES_H
#define DTRAIN_TEST_SAFETENSORS_FILES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "test.h"

/* A header entry, and a header for 8 bytes of data. */
#define T(name, dtype, shape, offsets) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" offsets "]}"
#define GOOD "{" T("a", "F32", "2", "0,8") "}"

static char folder[] = "/tmp/dtrain-st-XXXXXX";
static char path[DT_PATH_MAX];

static inline void assert_ok(dt_status status)
{
    if (status != DT_OK)
        fail_msg("%s\n%s", dt_error_text(), dt_error_trail());
}

static inline int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    return dt_file_path(path, "%s/x.safetensors", folder) == DT_OK ? 0 : -1;
}

static inline int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder); /* fails if a test left files in it */
}

/* Without fsync, as thousands of files are written. */
static inline void save_bytes(const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

/* length | header | data */
static inline void save_raw(const char *header, size_t data_bytes)
{
    static unsigned char block[1 << 16];
    size_t n = strlen(header);
    const uint64_t length = n;
    assert_true(8 + n + data_bytes <= sizeof block);
    memcpy(block, &length, 8);
    memcpy(block + 8, header, n);
    for (size_t i = 0; i < data_bytes; i++)
        block[8 + n + i] = (unsigned char)(i * 37);
    save_bytes(block, 8 + n + data_bytes);
}

#endif
