/* The CUDA backend against the fp64 reference in fp16: every op, plain arenas, small networks. */
#include "run_gpu_ops.h"

int main(void)
{
    return run_gpu_ops(DT_PRECISION_FP16);
}
