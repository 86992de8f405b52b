/* For tests that are skipped where there is no GPU: return SKIPPED unless has_gpu(). */
#ifndef DTRAIN_TESTS_NEED_GPU_H
#define DTRAIN_TESTS_NEED_GPU_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "dtrain/gpu.h"
#include "test.h"

enum { SKIPPED = 77 }; /* the exit code that ctest takes so */

/* Says why, if not. */
static inline bool has_gpu(void)
{
    struct dt_gpu_report report;
    dt_gpu_probe(&report);
    if (report.n_devices == 0)
        printf("skipped: %s\n", report.problem);
    return report.n_devices > 0;
}

/* Of a GPU that is there. */
static inline bool is_emulated(void)
{
    struct dt_gpu_report report;
    dt_gpu_probe(&report);
    return strstr(report.device[0].name, "emulated") != NULL;
}

/* In place of TEST_MAIN. */
#define GPU_TEST_MAIN(BEFORE, AFTER)                               \
    int main(void)                                                 \
    {                                                              \
        return has_gpu() ? run_all_tests(BEFORE, AFTER) : SKIPPED; \
    }

#endif
