/* The build id is the one that readelf finds in this program's file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <stdio.h>
#include <unistd.h>

#include "base/build.h"

static void test_same_as_readelf(void **state)
{
    (void)state;
    char command[128], line[512], expected[128] = "";
    snprintf(command, sizeof command, "readelf -n /proc/%ld/exe", (long)getpid());
    FILE *output = popen(command, "r");
    assert_non_null(output);
    while (fgets(line, sizeof line, output))
        sscanf(line, " Build ID: %127s", expected);
    assert_int_equal(pclose(output), 0);
    assert_true(strlen(expected) >= 16 && strlen(expected) <= 40);
    assert_string_equal(dt_build_id(), expected);
    assert_ptr_equal(dt_build_id(), dt_build_id());
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_as_readelf)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
