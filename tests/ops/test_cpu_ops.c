/* The CPU backend against the fp64 reference: every op, plain arenas, small networks.
 * Label: numeric. */
#include "run_ops.h"

int main(void)
{
    return run_ops(&dt_backend_cpu, DT_PRECISION_FP32, DT_LAYOUT_BLOCKED, HAS_SANITIZERS);
}
