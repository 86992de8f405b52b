/* Storage types, and the precision and the steps in which a run computes. */
#ifndef DTRAIN_DTYPE_H
#define DTRAIN_DTYPE_H

#include <stddef.h>

enum dt_dtype { DT_U8, DT_I32, DT_F32, DT_F16, DT_BF16 };

/* fp32: everything in fp32. tf32: stored in fp32, multiplied with 10-bit mantissas. bf16, fp16:
 * activations and their gradients, a copy of the weights and on a GPU their gradients in 16 bits;
 * master weights, vectors (biases, batch norm) and their gradients, momentum, loss and sums in
 * fp32. A CPU has fp32 and bf16. auto is for configurations: the choice of the device
 * (engine/devices.h) replaces it. */
enum dt_precision {
    DT_PRECISION_FP32,
    DT_PRECISION_TF32,
    DT_PRECISION_BF16,
    DT_PRECISION_FP16,
    DT_PRECISION_AUTO
};

#define DT_PRECISION_NAMES "fp32", "tf32", "bf16", "fp16", "auto"

static inline const char *dt_precision_name(enum dt_precision precision)
{
    static const char *const names[] = {DT_PRECISION_NAMES};
    return names[precision];
}

/* Whether the nodes of a fusion (graph.h) run together: if that is faster, always or never. */
enum dt_fusion_mode { DT_FUSION_AUTO, DT_FUSION_ON, DT_FUSION_OFF };

/* How a CPU stores activations: channels innermost where that is faster, or always, or in blocks.
 */
enum dt_tensor_layout { DT_LAYOUT_AUTO, DT_LAYOUT_NHWC, DT_LAYOUT_BLOCKED };

#define DT_LAYOUT_NAMES "auto", "nhwc", "blocked"

static inline size_t dt_dtype_bytes(enum dt_dtype dtype)
{
    return dtype == DT_U8 ? 1 : dtype == DT_F16 || dtype == DT_BF16 ? 2 : 4;
}

#endif
