/* The same on a CPU without AVX-512, as far as oneDNN is concerned: it then picks blocks of 8
 * channels instead of 16, and the backend's own loops take their other path. Label: numeric. */
#include "run_ops.h"

int main(void)
{
    /* Read once, by oneDNN's first call. */
    if (setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1) != 0)
        return 1;
    return run_ops(&dt_backend_cpu, DT_PRECISION_FP32, false);
}
