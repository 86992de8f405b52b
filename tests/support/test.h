/* What every test program includes: cmocka with the headers that it needs, and tests that register
 * themselves.
 *
 *     TEST(patience)
 *     {
 *         assert_int_equal(...);
 *     }
 *
 *     TEST_MAIN(make_folder, remove_folder)
 *
 * The tests of a program run in the order of its source. DTRAIN_TEST=test_patience runs one of
 * them; the name may contain '*'. */
#ifndef DTRAIN_TESTS_TEST_H
#define DTRAIN_TESTS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif
#include <cmocka.h>
#ifdef __cplusplus
}
#endif

enum { MAX_TESTS = 64 };

/* In the order of their lines; cmocka skips the empty entries at the end. */
static struct CMUnitTest registered_tests[MAX_TESTS];
static int registered_lines[MAX_TESTS];

static inline void register_test(int line, const char *name, CMUnitTestFunction function,
                                 CMFixtureFunction before, CMFixtureFunction after)
{
    int i = MAX_TESTS - 1;
    if (registered_lines[i])
        abort(); /* MAX_TESTS is too small */
    for (; i > 0 && (!registered_lines[i - 1] || registered_lines[i - 1] > line); i--) {
        registered_lines[i] = registered_lines[i - 1];
        registered_tests[i] = registered_tests[i - 1];
    }
    const struct CMUnitTest test = {name, function, before, after, NULL};
    registered_lines[i] = line;
    registered_tests[i] = test;
}

#define TEST(NAME) TEST_WITH(NAME, NULL, NULL)

/* The functions run before and after the test; each may be NULL. */
#define TEST_WITH(NAME, BEFORE, AFTER)                                      \
    static void test_##NAME(void **state);                                  \
    __attribute__((constructor)) static void register_##NAME(void)          \
    {                                                                       \
        register_test(__LINE__, "test_" #NAME, test_##NAME, BEFORE, AFTER); \
    }                                                                       \
    static void test_##NAME(void **state __attribute__((unused)))

/* Runs the tests of this source. The functions run before the first and after the last one; each
 * may be NULL. Returns the number of failures, which is the exit code of the program. */
static inline int run_all_tests(CMFixtureFunction before, CMFixtureFunction after)
{
    cmocka_set_test_filter(getenv("DTRAIN_TEST"));
    return cmocka_run_group_tests(registered_tests, before, after);
}

#define TEST_MAIN(BEFORE, AFTER)             \
    int main(void)                           \
    {                                        \
        return run_all_tests(BEFORE, AFTER); \
    }

#endif
