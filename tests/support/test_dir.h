/* A temporary folder of a test program, and small files in it. */
#ifndef DTRAIN_TESTS_TEST_DIR_H
#define DTRAIN_TESTS_TEST_DIR_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "test.h"

/* Group setup and teardown: creates the folder, and removes it with its contents. */
static char test_dir[64];

static inline int make_test_dir(void **state)
{
    (void)state;
    snprintf(test_dir, sizeof test_dir, "/tmp/dtrain-test-XXXXXX");
    return mkdtemp(test_dir) ? 0 : -1;
}

static inline int remove_entry(const char *path, const struct stat *info, int type, struct FTW *ftw)
{
    (void)info, (void)type, (void)ftw;
    return remove(path);
}

/* Removes a folder and its contents; 0 or -1. */
static inline int remove_tree(const char *path)
{
    return nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static inline int remove_test_dir(void **state)
{
    (void)state;
    return remove_tree(test_dir);
}

/* Path in the test folder; valid for the next 63 calls. */
static inline const char *at(const char *name)
{
    static char paths[64][512];
    static int next;
    char *path = paths[next++ % 64];
    snprintf(path, sizeof paths[0], "%s/%s", test_dir, name);
    return path;
}

/* With those above it. */
static inline void make_folder(const char *name)
{
    assert_int_equal(dt_file_make_folder(at(name)), DT_OK);
}

static inline void write_bytes(const char *name, const void *data, size_t bytes)
{
    FILE *file = fopen(at(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static inline void write_text(const char *name, const char *text)
{
    write_bytes(name, text, strlen(text));
}

/* Contents of the whole file, to be freed with free(). */
static inline char *read_bytes(const char *name, size_t *bytes)
{
    struct stat info;
    FILE *file = fopen(at(name), "rb");
    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &info), 0);
    *bytes = (size_t)info.st_size;
    char *data = malloc(*bytes + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *bytes, file), *bytes);
    fclose(file);
    return data;
}

#endif
