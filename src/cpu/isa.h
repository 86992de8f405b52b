/* Instruction sets. The files of this folder with ops and loops are compiled once per set and type
 * of activations (CMakeLists.txt) with DT_ISA as its name; the device uses the widest one that
 * oneDNN uses too, so ONEDNN_MAX_CPU_ISA limits both. What such a file exports has a name of its
 * own in every set, DT_ISA_NAME(name), and the rest of the backend gets at it through the set's
 * table. */
#ifndef DTRAIN_CPU_ISA_H
#define DTRAIN_CPU_ISA_H

#include "cpu/norm_loops.h"
#include "dtrain/backend.h"

struct dt_cpu_relayout;

struct dt_cpu_isa {
    const struct dt_cpu_op *op[DT_N_OPS];
    const struct dt_norm_loops *lanes;
    /* As in struct dt_backend; the caller sets the number of threads. */
    dt_status (*run_second_half)(struct dt_exec *exec);
    dt_status (*check)(struct dt_device *dev, const float *grads, size_t count, double *norms);
    dt_status (*update)(struct dt_device *dev, const struct dt_update *update);
    dt_status (*lerp)(struct dt_device *dev, float *dst, const float *src, size_t count);
    /* To bf16, rounded, and from bf16. */
    dt_status (*to_bf16)(uint16_t *dst, const float *src, size_t count);
    dt_status (*to_f32)(float *dst, const uint16_t *src, size_t count);
    dt_status (*relayout)(void *dst, const uint16_t *src, const struct dt_cpu_relayout *r);
    dt_status (*accumulate)(float *dst, const float *src, size_t count, bool first);
};

/* Set i of those that this CPU has and oneDNN may use, from the widest to the plain one of the
 * architecture; then NULL. `type`: of activations, DT_F32 or DT_BF16. */
const struct dt_cpu_isa *dt_cpu_isa(int i, enum dt_dtype type);

#endif
