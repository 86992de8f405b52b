/* The op tests on the GPU, or exit code 77 (skipped) where there is none. */
#ifndef DTRAIN_TESTS_RUN_GPU_OPS_H
#define DTRAIN_TESTS_RUN_GPU_OPS_H

#include "../ops/run_ops.h"
#include "dtrain/gpu.h"

static int run_gpu_ops(enum dt_precision precision)
{
    struct dt_gpu_report report;
    dt_gpu_probe(&report);
    if (report.n_devices == 0) {
        printf("skipped: %s\n", report.problem);
        return 77;
    }
    return run_ops(&dt_backend_cuda, precision);
}

#endif
