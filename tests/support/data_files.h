/* Files for tests of the data module: a temporary folder, small files, and tar archives built block
 * by block, so that invalid ones can be built too. */
#ifndef DTRAIN_TESTS_DATA_FILES_H
#define DTRAIN_TESTS_DATA_FILES_H

#include <fcntl.h>

#include "base/names.h"
#include "test_dir.h"
#include "test_status.h"

/* Sets when the file was last written. */
static inline void set_time(const char *name, time_t seconds)
{
    const struct timespec times[2] = {{.tv_sec = seconds}, {.tv_sec = seconds}};
    assert_int_equal(utimensat(AT_FDCWD, at(name), times, 0), 0);
}

/* The only file in a folder, by its path in the test folder. */
static inline void find_only_file(char *out, size_t bytes, const char *folder)
{
    struct dt_names names = {0};
    assert_int_equal(dt_names_list(&names, at(folder)), DT_OK);
    assert_int_equal(names.n, 1);
    snprintf(out, bytes, "%s/%s", folder, dt_names_get(&names, 0));
    dt_names_reset(&names);
}

struct tar {
    char *data;
    size_t bytes;
};

static inline void tar_blocks(struct tar *tar, const void *data, size_t bytes)
{
    const size_t padded = (bytes + 511) / 512 * 512;
    tar->data = realloc(tar->data, tar->bytes + padded + 1);
    assert_non_null(tar->data);
    memset(tar->data + tar->bytes, 0, padded);
    if (bytes)
        memcpy(tar->data + tar->bytes, data, bytes);
    tar->bytes += padded;
}

/* Sets the checksum of a header. */
static inline void tar_sum(char *header)
{
    unsigned sum = 0;
    memset(header + 148, ' ', 8);
    for (size_t i = 0; i < 512; i++)
        sum += (unsigned char)header[i];
    snprintf(header + 148, 8, "%06o", sum);
}

/* Adds a ustar header of the given type ('0' = regular) with a valid checksum, then the data. */
static inline void tar_add(struct tar *tar, const char *name, char type, const void *data,
                           size_t bytes)
{
    char header[512] = {0};

    memcpy(header, name, strlen(name) < 100 ? strlen(name) : 100);
    memcpy(header + 100,
           "0000444\0"
           "0000000\0"
           "0000000\0",
           24);
    snprintf(header + 124, 12, "%011o", (unsigned)bytes);
    memcpy(header + 136, "00000000000", 12);
    header[156] = type;
    if (type == '2' || type == '1')
        memcpy(header + 157, "a.jpg", 5);
    memcpy(header + 257,
           "ustar\0"
           "00",
           8);
    tar_sum(header);
    tar_blocks(tar, header, sizeof header);
    tar_blocks(tar, data, bytes);
}

static inline void tar_text(struct tar *tar, const char *name, const char *text)
{
    tar_add(tar, name, '0', text, strlen(text));
}

/* Adds a pax record for the next member: "<length> key=value\n". */
static inline void tar_pax(struct tar *tar, const char *key, const char *value)
{
    char record[2200];
    const int rest = (int)(strlen(key) + strlen(value) + 3);
    int length = rest + 1;
    while (snprintf(NULL, 0, "%d", length) + rest != length)
        length++;
    snprintf(record, sizeof record, "%d %s=%s\n", length, key, value);
    tar_add(tar, "PaxHeaders/x", 'x', record, (size_t)length);
}

static inline void tar_end(struct tar *tar)
{
    static const char zeros[1024];
    tar_blocks(tar, zeros, sizeof zeros);
}

static inline void tar_save(struct tar *tar, const char *name)
{
    write_bytes(name, tar->data, tar->bytes);
    free(tar->data);
    *tar = (struct tar){0};
}

/* Makes a shard of samples first .. first + n - 1: label = number % 10, image "image <number>". */
static inline void make_shard(const char *name, int first, int n)
{
    struct tar tar = {0};
    char member[32], text[32];

    for (int i = first; i < first + n; i++) {
        snprintf(member, sizeof member, "%06d.cls", i);
        snprintf(text, sizeof text, "%d", i % 10);
        tar_text(&tar, member, text);
        snprintf(member, sizeof member, "%06d.jpg", i);
        snprintf(text, sizeof text, "image %d", i);
        tar_text(&tar, member, text);
    }
    tar_end(&tar);
    tar_save(&tar, name);
}

#endif
