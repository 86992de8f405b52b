/* The CPU backend with channels innermost against the fp64 reference, in fp32 and in bf16.
 * Label: numeric. */
#include "run_ops.h"

int main(void)
{
    return run_ops(&dt_backend_cpu, DT_PRECISION_FP32, DT_LAYOUT_NHWC, true) +
           run_ops(&dt_backend_cpu, DT_PRECISION_BF16, DT_LAYOUT_NHWC, false);
}
