/* The same as on a CPU without AVX-512: oneDNN then picks blocks of 8 channels instead of 16, and
 * the backend's own loops are at most those for AVX2. */
#include <stdlib.h>

#include "cpu/isa.h"
#include "run_ops.h"

int main(void)
{
    /* Read once, by oneDNN's first call. */
    if (setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1) != 0)
        return 1;
    if (dt_cpu_isa(2, DT_F32)) /* more than AVX2 and the plain set */
        return 1;
    return run_ops(&dt_backend_cpu, DT_PRECISION_FP32, DT_LAYOUT_BLOCKED, HAS_SANITIZERS);
}
