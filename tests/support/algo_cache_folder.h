/* The folder in which algorithms are kept: each test has one of its own, which does not exist yet.
 */
#ifndef DTRAIN_TESTS_ALGO_CACHE_FOLDER_H
#define DTRAIN_TESTS_ALGO_CACHE_FOLDER_H

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"

static char base[] = "/tmp/dtrain-plans-XXXXXX";
static char folder[DT_PATH_MAX], path[DT_PATH_MAX]; /* path: of the file */

static int make_base(void **state)
{
    (void)state;
    return mkdtemp(base) ? 0 : -1;
}

static int set_up(void **state)
{
    static int n;
    (void)state;
    n++;
    return dt_file_path(folder, "%s/%d/cache", base, n) == DT_OK &&
                   dt_file_path(path, "%s/cudnn-plans.json", folder) == DT_OK
               ? 0
               : -1;
}

static int remove_base(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", base);
    return system(command);
}

#endif
