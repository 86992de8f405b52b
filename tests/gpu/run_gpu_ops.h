/* The op tests on the GPU, or exit code 77 (skipped) where there is none. */
#ifndef DTRAIN_TESTS_RUN_GPU_OPS_H
#define DTRAIN_TESTS_RUN_GPU_OPS_H

#include "../ops/run_ops.h"
#include "need_gpu.h"

static int run_gpu_ops(enum dt_precision precision)
{
    if (!has_gpu())
        return SKIPPED;
    return run_ops(&dt_backend_cuda, precision, DT_LAYOUT_AUTO, is_emulated());
}

#endif
