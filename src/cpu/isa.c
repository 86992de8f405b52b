#include "cpu/isa.h"

#include "base/mem.h"
#include "cpu/dnnl_shim.h"

extern const struct dt_cpu_isa dt_cpu_isa_plain, dt_cpu_isa_avx2, dt_cpu_isa_avx512,
    dt_cpu_isa_plain_bf16, dt_cpu_isa_avx2_bf16, dt_cpu_isa_avx512_bf16;

const struct dt_cpu_isa *dt_cpu_isa(int i, enum dt_dtype type)
{
    static const struct {
        const struct dt_cpu_isa *table, *bf16;
        dnnl_cpu_isa_t needs;
    } sets[] = {
#ifdef DT_HAVE_avx512
        {&dt_cpu_isa_avx512, &dt_cpu_isa_avx512_bf16, dnnl_cpu_isa_avx512_core},
#endif
#ifdef DT_HAVE_avx2
        {&dt_cpu_isa_avx2, &dt_cpu_isa_avx2_bf16, dnnl_cpu_isa_avx2},
#endif
        {&dt_cpu_isa_plain, &dt_cpu_isa_plain_bf16, 0},
    };
    for (size_t s = 0; s < DT_COUNT(sets); s++) {
        if (dt_cpu_has(sets[s].needs) && i-- == 0)
            return type == DT_BF16 ? sets[s].bf16 : sets[s].table;
    }
    return NULL;
}
