/* The build id is the one that readelf finds in this program's file. */
#include <string.h>

#include <stdio.h>
#include <unistd.h>

#include "base/build.h"
#include "test.h"

TEST(same_as_readelf)
{
    char program[4096] = "", command[4200], line[512], expected[128] = "";
    /* Not /proc/PID/exe, which under an emulator of the CPU is that emulator. */
    assert_true(readlink("/proc/self/exe", program, sizeof program - 1) > 0);
    snprintf(command, sizeof command, "readelf -n '%s'", program);
    FILE *output = popen(command, "r");
    assert_non_null(output);
    while (fgets(line, sizeof line, output))
        sscanf(line, " Build ID: %127s", expected);
    assert_int_equal(pclose(output), 0);
    assert_true(strlen(expected) >= 16 && strlen(expected) <= 40);
    assert_string_equal(dt_build_id(), expected);
    assert_ptr_equal(dt_build_id(), dt_build_id());
}

TEST_MAIN(NULL, NULL)
