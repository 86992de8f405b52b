/* Compares the widest instruction sets that the compiler was allowed to use with those of this CPU.
 */
#include "base/isa.h"

dt_status dt_isa_check(void)
{
    const char *missing = 0;
#if defined(__x86_64__) && defined(__AVX2__)
    if (!__builtin_cpu_supports("avx2"))
        missing = "AVX2";
#endif
#if defined(__x86_64__) && defined(__AVX512F__)
    if (!__builtin_cpu_supports("avx512f"))
        missing = "AVX-512";
#endif
    if (missing)
        DT_FAIL(DT_ERR_DEVICE,
                "this dtrain was built for CPUs with %s, which this one lacks: build it on this "
                "machine, or with -DDTRAIN_NATIVE=OFF for all",
                missing);
    return DT_OK;
}
