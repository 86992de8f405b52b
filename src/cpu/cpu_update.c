/* The parameter side of a step: the check for gradients that are not finite, the update, sums over
 * passes; and the table of the instruction set. */
#include <math.h>
#include <omp.h>

#include "base/half.h"
#include "cpu/cpu_internal.h"

/* Adding one to an exponent of all ones carries into the top bit. */
static bool is_any_infinite(const uint32_t *bits, size_t count)
{
    uint32_t carries = 0;
#pragma omp parallel for simd schedule(static) reduction(| : carries)
    for (size_t i = 0; i < count; i++)
        carries |= (bits[i] & 0x7f800000) + 0x00800000;
    return carries >> 31;
}

static double sum_of_squares(const float *values, size_t count)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < count; i++)
        sum += (double)values[i] * (double)values[i];
    return sum;
}

static dt_status check(struct dt_device *dev, const float *grads, size_t count, double *norms)
{
    bool found = false;
    if (!norms) {
        dev->found |= is_any_infinite((const uint32_t *)grads, count);
        return DT_OK;
    }
    /* Squares of finite floats do not overflow in double, so the sums show what is not finite. */
#pragma omp parallel for schedule(static) reduction(| : found)
    for (int t = 0; t < dt_tiles(count); t++) {
        const size_t first = (size_t)t * DT_TILE, left = count - first;
        norms[t] = sum_of_squares(grads + first, left < DT_TILE ? left : DT_TILE);
        found |= !isfinite(norms[t]);
    }
    dev->found |= found;
    return DT_OK;
}

/* --- The update --- */

/* One bucket's update, the same for all threads. */
struct pass {
    const struct dt_device *dev;
    const struct dt_update *update;
    double unbias1, unbias2;
};

/* A part of a segment. */
struct tile {
    const struct dt_segment *segment;
    int index; /* of the bucket */
    size_t first, count;
};

static struct dt_optim_step step_of(const struct pass *p, const struct dt_segment *segment)
{
    const struct dt_scalars *scalars = &p->dev->scalars;
    return dt_optim_step_of(p->update->optim, scalars->lr * segment->rate,
                            scalars->optim.weight_decay * segment->decay, p->unbias1, p->unbias2,
                            &scalars->optim);
}

/* Calls `run` for this thread's share of the tiles. */
static void walk_tiles(const struct pass *p, void (*run)(const struct pass *p, struct tile tile))
{
    const struct dt_update *u = p->update;
    const struct dt_segment *last = &u->segments[u->n_segments - 1];
    const int n = last->first_tile + dt_tiles(last->count);
    const struct dt_cpu_span own = dt_cpu_own_span(n);
    for (int i = 0; i < u->n_segments; i++) {
        const struct dt_segment *s = &u->segments[i];
        const int past = s->first_tile + dt_tiles(s->count);
        for (int t = s->first_tile > own.begin ? s->first_tile : own.begin; t < past && t < own.end;
             t++) {
            const size_t skipped = (size_t)(t - s->first_tile) * DT_TILE, left = s->count - skipped;
            run(p, (struct tile){s, t, s->first + skipped, left < DT_TILE ? left : DT_TILE});
        }
    }
}

/* --- One function per optimizer, so that its loop has no branches --- */

struct values {
    float *restrict w, *restrict m, *restrict v;
    const float *restrict g;
    float grad_scale, clip_value;
};

static struct values values_at(const struct pass *p, size_t at)
{
    const struct dt_update *u = p->update;
    return (struct values){.w = u->params + at,
                           .m = u->momentum + at,
                           .v = u->square ? u->square + at : NULL,
                           .g = (const float *)u->grads + at,
                           .grad_scale = p->dev->clip,
                           .clip_value = p->dev->scalars.optim.clip_value};
}

static inline __attribute__((always_inline)) void update_range(enum dt_optim optim, struct values a,
                                                               size_t n, struct dt_optim_step s)
{
    const bool has_square = dt_optim_has_square(optim);
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        float g = dt_optim_gradient(a.g[i], a.grad_scale, a.clip_value), m = a.m[i];
        float v = has_square ? a.v[i] : 0;
        dt_optim_advance(optim, a.w[i], g, &m, &v, &s);
        a.w[i] -= s.outer * dt_optim_direction(optim, a.w[i], g, m, v, &s);
        a.m[i] = m;
        if (has_square)
            a.v[i] = v;
    }
}

typedef void update_function(struct values a, size_t n, struct dt_optim_step s);
#define UPDATE(NAME, name, ...)                                                  \
    static void update_##name(struct values a, size_t n, struct dt_optim_step s) \
    {                                                                            \
        update_range(DT_OPTIM_##NAME, a, n, s);                                  \
    }
DT_OPTIM_LIST(UPDATE)
#define UPDATE_ROW(NAME, name, ...) [DT_OPTIM_##NAME] = update_##name,
static update_function *const updates[] = {DT_OPTIM_LIST(UPDATE_ROW)};

/* The copy that nodes read, if there is one. */
static void round_tile(const struct pass *p, struct tile tile)
{
    const float *w = p->update->params + tile.first;
    uint16_t *shadow = (uint16_t *)p->update->shadow + tile.first;
    if (!p->update->shadow)
        return;
#pragma omp simd
    for (size_t i = 0; i < tile.count; i++)
        shadow[i] = dt_float_to_bf16(w[i]);
}

static void update_tile(const struct pass *p, struct tile tile)
{
    updates[p->update->optim](values_at(p, tile.first), tile.count, step_of(p, tile.segment));
    round_tile(p, tile);
}

/* --- Optimizers that scale the learning rate of a tensor by its norms: two walks over the tiles.
 * A tile's two sums are stored, and added up in order, so that they do not depend on the threads;
 * then the first one of a segment is replaced by its factor. --- */

static void store_sums(const struct pass *p, struct tile tile, double w2, double x2)
{
    p->update->norms[2 * tile.index] = w2;
    p->update->norms[2 * tile.index + 1] = x2;
}

static void measure_gradient(const struct pass *p, struct tile tile)
{
    const struct values a = values_at(p, tile.first);
    double w2 = 0, x2 = 0;
    if (!tile.segment->has_trust)
        return;
#pragma omp simd reduction(+ : w2, x2)
    for (size_t i = 0; i < tile.count; i++) {
        const double w = (double)a.w[i];
        const double g = (double)dt_optim_gradient(a.g[i], a.grad_scale, a.clip_value);
        w2 += w * w;
        x2 += g * g;
    }
    store_sums(p, tile, w2, x2);
}

/* The first half of lamb's update: the states. */
static void measure_direction(const struct pass *p, struct tile tile)
{
    const struct values a = values_at(p, tile.first);
    const struct dt_optim_step s = step_of(p, tile.segment);
    double w2 = 0, x2 = 0;
#pragma omp simd reduction(+ : w2, x2)
    for (size_t i = 0; i < tile.count; i++) {
        const float g = dt_optim_gradient(a.g[i], a.grad_scale, a.clip_value);
        dt_advance_lamb(a.w[i], g, &a.m[i], &a.v[i], &s);
        const double w = (double)a.w[i];
        const double x = (double)dt_direction_lamb(a.w[i], g, a.m[i], a.v[i], &s);
        w2 += w * w;
        x2 += x * x;
    }
    store_sums(p, tile, w2, x2);
}

static float ratio_of(const struct pass *p, const struct dt_segment *segment)
{
    return segment->has_trust ? (float)p->update->norms[2 * segment->first_tile] : 1.0f;
}

static void apply_gradient(const struct pass *p, struct tile tile)
{
    struct dt_optim_step s = step_of(p, tile.segment);
    s.inner *= ratio_of(p, tile.segment);
    update_lars(values_at(p, tile.first), tile.count, s);
    round_tile(p, tile);
}

static void apply_direction(const struct pass *p, struct tile tile)
{
    const struct values a = values_at(p, tile.first);
    const struct dt_optim_step s = step_of(p, tile.segment);
    const float rate = s.outer * ratio_of(p, tile.segment);
#pragma omp simd
    for (size_t i = 0; i < tile.count; i++)
        a.w[i] -= rate * dt_direction_lamb(a.w[i], 0, a.m[i], a.v[i], &s);
    round_tile(p, tile);
}

/* Inside a parallel region. */
static void update_by_norms(const struct pass *p)
{
    const struct dt_update *u = p->update;
    const bool by_gradient = dt_optim_trust(u->optim) == DT_TRUST_GRADIENT;
    walk_tiles(p, by_gradient ? measure_gradient : measure_direction);
#pragma omp barrier
#pragma omp for schedule(static)
    for (int i = 0; i < u->n_segments; i++)
        if (u->segments[i].has_trust) {
            const struct dt_segment *segment = &u->segments[i];
            double *norms = p->update->norms + 2 * segment->first_tile;
            double w2 = 0, x2 = 0;
            for (int t = 0; t < dt_tiles(segment->count); t++) {
                w2 += norms[2 * t];
                x2 += norms[2 * t + 1];
            }
            const struct dt_optim_options *options = &p->dev->scalars.optim;
            norms[0] = (double)dt_optim_ratio(p->update->optim, w2, x2,
                                              options->weight_decay * segment->decay, options);
        }
    walk_tiles(p, by_gradient ? apply_gradient : apply_direction);
}

static dt_status update_bucket(struct dt_device *dev, const struct dt_update *update)
{
    struct pass p = {.dev = dev, .update = update};
    if (dev->found || update->n_segments == 0)
        return DT_OK;
    dt_optim_unbias(&p.unbias1, &p.unbias2, dev->n_updates + 1, &dev->scalars.optim);
    const bool by_norms = dt_optim_trust(update->optim) != DT_TRUST_NONE;
#pragma omp parallel
    if (by_norms)
        update_by_norms(&p);
    else
        walk_tiles(&p, update_tile);
    return DT_OK;
}

static dt_status lerp(struct dt_device *dev, float *dst, const float *src, size_t count)
{
    const float weight = dev->scalars.ema_weight;
    if (dev->found)
        return DT_OK;
#pragma omp parallel for simd schedule(static)
    for (size_t i = 0; i < count; i++)
        dst[i] = dt_optim_lerp(dst[i], src[i], weight);
    return DT_OK;
}

static dt_status to_bf16(uint16_t *dst, const float *src, size_t count)
{
#pragma omp parallel for simd schedule(static)
    for (size_t i = 0; i < count; i++)
        dst[i] = dt_float_to_bf16(src[i]);
    return DT_OK;
}

static dt_status to_f32(float *dst, const uint16_t *src, size_t count)
{
#pragma omp parallel for simd schedule(static)
    for (size_t i = 0; i < count; i++)
        dst[i] = dt_bf16_to_float(src[i]);
    return DT_OK;
}

static dt_status accumulate(float *dst, const float *src, size_t count, bool first)
{
    if (first) {
#pragma omp parallel for simd schedule(static)
        for (size_t i = 0; i < count; i++)
            dst[i] = src[i];
    } else {
#pragma omp parallel for simd schedule(static)
        for (size_t i = 0; i < count; i++)
            dst[i] += src[i];
    }
    return DT_OK;
}

const struct dt_cpu_isa DT_ISA_NAME(dt_cpu_isa) = {
#define ROW(NAME, name, ...) [DT_OP_##NAME] = &DT_ISA_NAME(dt_cpu_##name),
    .op = {DT_OP_LIST(ROW)},
#undef ROW
    .lanes = &dt_norm_rows,
    .run_second_half = dt_cpu_run_second_half,
    .check = check,
    .update = update_bucket,
    .lerp = lerp,
    .to_bf16 = to_bf16,
    .to_f32 = to_f32,
    .relayout = dt_cpu_relayout_weights,
    .accumulate = accumulate};
