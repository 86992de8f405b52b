/* The CPU backend in bf16 against the fp64 reference, with what this CPU has. Label: numeric. */
#include "run_ops.h"

int main(void)
{
    return run_ops(&dt_backend_cpu, DT_PRECISION_BF16, DT_LAYOUT_BLOCKED, HAS_SANITIZERS);
}
