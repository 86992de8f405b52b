/* The parameter side of a step: the check for gradients that are not finite, the update, sums over
 * passes. */
#include <omp.h>

#include "cpu/internal.h"

/* Adding one to an exponent of all ones carries into the top bit. */
dt_status dt_cpu_check(struct dt_device *dev, const void *grads, enum dt_dtype type, size_t count)
{
    const uint32_t *bits = grads;
    uint32_t carries = 0;
    (void)type; /* always fp32 */
    omp_set_num_threads(dev->options.threads);
#pragma omp parallel for simd schedule(static) reduction(| : carries)
    for (size_t i = 0; i < count; i++)
        carries |= (bits[i] & 0x7f800000) + 0x00800000;
    dev->found |= carries >> 31;
    return DT_OK;
}

dt_status dt_cpu_settle(struct dt_device *dev)
{
    struct dt_counters *counters = &dev->counters;
    dev->n_in_a_row = dev->found ? dev->n_in_a_row + 1 : 0;
    counters->n_skipped += dev->found;
    if (dev->n_in_a_row > counters->n_in_a_row)
        counters->n_in_a_row = dev->n_in_a_row;
    dev->found = false;
    return DT_OK;
}

struct sgd {
    float lr, momentum, decay;
    bool nesterov;
};

static void update_range(float *restrict w, float *restrict m, const float *restrict grads,
                         size_t n, struct sgd s)
{
    if (s.nesterov) {
#pragma omp simd
        for (size_t i = 0; i < n; i++) {
            float g = grads[i] + s.decay * w[i];
            m[i] = s.momentum * m[i] + g;
            w[i] -= s.lr * (g + s.momentum * m[i]);
        }
    } else {
#pragma omp simd
        for (size_t i = 0; i < n; i++) {
            m[i] = s.momentum * m[i] + (grads[i] + s.decay * w[i]);
            w[i] -= s.lr * m[i];
        }
    }
}

/* There are many short segments (batch norm), so one parallel region handles them all and each
 * thread takes its share of the elements. */
dt_status dt_cpu_update(struct dt_device *dev, const struct dt_update *update)
{
    const struct dt_scalars *scalars = &dev->scalars;
    const float *grads = update->grads;
    size_t total = 0;
    if (dev->found)
        return DT_OK;
    for (int i = 0; i < update->n_segments; i++)
        total += update->segments[i].count;
    omp_set_num_threads(dev->options.threads);

#pragma omp parallel
    {
        size_t thread = (size_t)omp_get_thread_num(), n_threads = (size_t)omp_get_num_threads();
        size_t begin = total / n_threads * thread / 16 * 16;
        size_t end = thread + 1 == n_threads ? total : total / n_threads * (thread + 1) / 16 * 16;
        size_t at = 0; /* elements in the segments before this one */
        for (int i = 0; i < update->n_segments && at < end; at += update->segments[i].count, i++) {
            const struct dt_segment *segment = &update->segments[i];
            size_t first = begin > at ? begin - at : 0;
            size_t last = end - at < segment->count ? end - at : segment->count;
            if (first >= last)
                continue;
            size_t offset = segment->first + first;
            const struct sgd s = {scalars->lr * segment->rate, scalars->momentum,
                                  scalars->weight_decay * segment->decay, scalars->nesterov};
            update_range(update->params + offset, update->momentum + offset, grads + offset,
                         last - first, s);
        }
    }
    return DT_OK;
}

dt_status dt_cpu_accumulate(struct dt_device *dev, float *dst, const void *src,
                            enum dt_dtype src_type, size_t count, bool first)
{
    const float *from = src;
    (void)src_type; /* always fp32 */
    omp_set_num_threads(dev->options.threads);
    if (first) {
#pragma omp parallel for simd schedule(static)
        for (size_t i = 0; i < count; i++)
            dst[i] = from[i];
    } else {
#pragma omp parallel for simd schedule(static)
        for (size_t i = 0; i < count; i++)
            dst[i] += from[i];
    }
    return DT_OK;
}
