/* The build id is the one that readelf finds in this program's file. */
#include <string.h>

#include <stdio.h>
#include <unistd.h>

#include "base/build.h"
#include "test.h"

TEST(same_as_readelf)
{
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

TEST_MAIN(NULL, NULL)
