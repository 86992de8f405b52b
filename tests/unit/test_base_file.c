/* Files, memory, durations and the error trail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dtrain/clock.h"
#include "dtrain/file.h"
#include "dtrain/mem.h"

static char folder[] = "/tmp/dtrain-file-XXXXXX";

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static void make_path(char *out, const char *name)
{
    assert_int_equal(dt_file_path(out, "%s/%s", folder, name), DT_OK);
}

static void test_save_and_load(void **state)
{
    (void)state;
    char path[DT_PATH_MAX], temporary[DT_PATH_MAX + 4], *text = NULL;
    size_t bytes = 0;
    make_path(path, "a.txt");
    assert_int_equal(dt_file_save(path, "hello", 5), DT_OK);
    assert_int_equal(dt_file_save(path, "hello again", 11), DT_OK);
    assert_int_equal(dt_file_load(&text, &bytes, path, 11), DT_OK);
    assert_int_equal(bytes, 11);
    assert_string_equal(text, "hello again");
    free(text);
    snprintf(temporary, sizeof(temporary), "%s.tmp", path);
    assert_false(dt_file_exists(temporary));
    assert_int_equal(dt_file_load(&text, &bytes, path, 10), DT_ERR_DATA);
}

static void test_refused_inputs(void **state)
{
    (void)state;
    char path[DT_PATH_MAX];
    int fd;
    uint64_t bytes;
    make_path(path, "absent");
    assert_int_equal(dt_file_open(&fd, &bytes, path), DT_ERR_NO_INPUT);
    assert_non_null(strstr(dt_error_text(), path));
    assert_int_equal(dt_file_open(&fd, &bytes, folder), DT_ERR_NO_INPUT);
    make_path(path, "fifo");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(dt_file_open(&fd, &bytes, path), DT_ERR_NO_INPUT);
    assert_non_null(strstr(dt_error_text(), "not a regular file"));
}

static void test_early_end_is_damage(void **state)
{
    (void)state;
    char path[DT_PATH_MAX], buffer[16];
    int fd;
    uint64_t bytes;
    make_path(path, "short");
    assert_int_equal(dt_file_save(path, "12345", 5), DT_OK);
    assert_int_equal(dt_file_open(&fd, &bytes, path), DT_OK);
    assert_int_equal(bytes, 5);
    assert_int_equal(dt_file_pread(fd, buffer, 3, 2, path), DT_OK);
    assert_memory_equal(buffer, "345", 3);
    assert_int_equal(dt_file_pread(fd, buffer, 4, 2, path), DT_ERR_DATA);
    close(fd);
}

static void test_outputs_that_cannot_be(void **state)
{
    (void)state;
    char path[DT_PATH_MAX];
    make_path(path, "a.txt/b");
    assert_int_equal(dt_file_make_folder(path), DT_ERR_CREATE);
    assert_int_equal(dt_file_save(path, "x", 1), DT_ERR_CREATE);
    make_path(path, "x/y/z");
    assert_int_equal(dt_file_make_folder(path), DT_OK);
    assert_int_equal(dt_file_make_folder(path), DT_OK);
    assert_int_equal(dt_file_path(path, "%s/%2000s", folder, "long"), DT_ERR_USAGE);
}

static dt_status raise_error(void)
{
    DT_FAIL(DT_ERR_IO, "disk %d is gone", 7);
}

static dt_status pass_error(void)
{
    DT_TRY(raise_error());
    return DT_OK;
}

static void test_error_trail(void **state)
{
    (void)state;
    assert_int_equal(pass_error(), DT_ERR_IO);
    assert_string_equal(dt_error_text(), "disk 7 is gone");
    assert_non_null(strstr(dt_error_trail(), "pass_error"));
    DT_ERROR(DT_ERR_DATA, "again: %s", dt_error_text()); /* an argument may be the old text */
    assert_string_equal(dt_error_text(), "again: disk 7 is gone");
    dt_error_clear();
    assert_string_equal(dt_error_text(), "");
    assert_string_equal(dt_status_name(DT_ERR_CONFIG), "CONFIG");
}

static void test_memory(void **state)
{
    (void)state;
    int *numbers = NULL;
    size_t capacity = 0;
    for (size_t i = 0; i < 1000; i++) {
        assert_int_equal(dt_mem_grow((void **)&numbers, &capacity, i, sizeof(int), "numbers"),
                         DT_OK);
        assert_int_equal(numbers[i], 0);
        numbers[i] = (int)i;
    }
    for (int i = 0; i < 1000; i++)
        assert_int_equal(numbers[i], i);
    free(numbers);
    volatile size_t huge = SIZE_MAX / 2;
    assert_null(dt_mem_alloc(huge, 16, "too much"));
    assert_non_null(strstr(dt_error_text(), "too much"));
}

static void test_durations(void **state)
{
    (void)state;
    char text[32];
    assert_string_equal(dt_clock_format(text, sizeof(text), 4.2), "4 s");
    assert_string_equal(dt_clock_format(text, sizeof(text), 185), "3 min 05 s");
    assert_string_equal(dt_clock_format(text, sizeof(text), 7620), "2 h 07 min");
    assert_string_equal(dt_clock_format(text, sizeof(text), 97300), "1 d 3 h");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_save_and_load),       cmocka_unit_test(test_refused_inputs),
        cmocka_unit_test(test_early_end_is_damage), cmocka_unit_test(test_outputs_that_cannot_be),
        cmocka_unit_test(test_error_trail),         cmocka_unit_test(test_memory),
        cmocka_unit_test(test_durations),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
