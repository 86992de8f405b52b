/* The same in fp32. Label: numeric. */
#include "run_ops.h"

int main(void)
{
    return run_ops(&dt_backend_cpu, DT_PRECISION_FP32, DT_LAYOUT_NHWC, true);
}
