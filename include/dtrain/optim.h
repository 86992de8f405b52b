/* Optimizers: their list, and their arithmetic for one element, which the CPU backend and the CUDA
 * kernels share. Plain C that nvcc compiles too.
 *
 * To add one, add a row and its two functions here, and its reference in tests/ops/optim.h. */
#ifndef DTRAIN_OPTIM_H
#define DTRAIN_OPTIM_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define DT_OPTIM_FUNCTION static __host__ __device__ inline
#else
#define DT_OPTIM_FUNCTION static inline
#endif

/* The factor on a tensor's learning rate: 1; its norm / the norm of its gradient; its norm /
 * the norm of the direction. Only tensors that weight decay applies to by default (not batch norm
 * and bias) are scaled. */
enum dt_trust { DT_TRUST_NONE, DT_TRUST_GRADIENT, DT_TRUST_DIRECTION };

/* The states that an optimizer keeps per parameter: the momentum; also the mean square of the
 * gradient. */
enum dt_optim_state { DT_KEEPS_MOMENTUM, DT_KEEPS_SQUARE };

/* X(NAME, name, enum dt_optim_state, enum dt_trust, defaults of beta2, of epsilon and of
 * the learning rate). With w the
 * parameter, g its gradient, clipped, d weight decay (0 for batch norm and bias unless they are to
 * decay), t the number of updates, and m and v from 0:
 *
 * - sgd: m = momentum m + (g + d w); w -= lr m, Nesterov: w -= lr (g + d w + momentum m).
 *   PyTorch's SGD.
 * - lars: m = momentum m + lr r (g + d w); w -= m; r = trust |w| / (|g| + d |w| + eps).
 *   You, Gitman, Ginsburg 2017 as in MLPerf (mlcommons/training: lars_optimizer.py) and NVIDIA's
 *   submissions (MXNet: multi_lars-inl.h): the learning rate is inside the momentum. timm has it
 *   outside, which differs while the learning rate changes.
 * - lamb: m and v as adamw; u = m / (1 - momentum^t) / (sqrt(v / (1 - beta2^t)) + eps) + d w;
 *   w -= lr r u; r = |w| / |u|. You et al. 2019 as in Apex (FusedLAMB) and timm (lamb.py): both
 *   also have optim.clip_norm 1, and no limit on r. Theirs apply r to tensors with weight
 *   decay; here r never applies to batch norm and bias.
 * - adamw: m = momentum m + (1 - momentum) g; v = beta2 v + (1 - beta2) g^2; w -= lr u.
 *   Loshchilov, Hutter 2017; PyTorch's AdamW.
 * - adam: the same with g + d w for g, and without d w in u. PyTorch's Adam.
 * - rmsprop: h = g + d w; v = beta2 v + (1 - beta2) h^2; m = momentum m + h / (sqrt(v) + eps);
 *   w -= lr m. PyTorch's RMSprop.
 *
 * r is 1 where a norm is 0. */
#define DT_OPTIM_LIST(X)                                                   \
    X(SGD, sgd, DT_KEEPS_MOMENTUM, DT_TRUST_NONE, 0, 0, 0.1)               \
    X(LARS, lars, DT_KEEPS_MOMENTUM, DT_TRUST_GRADIENT, 0, 0, 0.1)         \
    X(LAMB, lamb, DT_KEEPS_SQUARE, DT_TRUST_DIRECTION, 0.999, 1e-6, 0.005) \
    X(ADAMW, adamw, DT_KEEPS_SQUARE, DT_TRUST_NONE, 0.999, 1e-8, 0.001)    \
    X(ADAM, adam, DT_KEEPS_SQUARE, DT_TRUST_NONE, 0.999, 1e-8, 0.001)      \
    X(RMSPROP, rmsprop, DT_KEEPS_SQUARE, DT_TRUST_NONE, 0.99, 1e-8, 0.001)

enum dt_optim {
#define DT_OPTIM_VALUE(NAME, ...) DT_OPTIM_##NAME,
    DT_OPTIM_LIST(DT_OPTIM_VALUE)
#undef DT_OPTIM_VALUE
};
#define DT_OPTIM_ONE(...) +1
enum { DT_N_OPTIMS = DT_OPTIM_LIST(DT_OPTIM_ONE) };
#undef DT_OPTIM_ONE

/* Constant during a run. */
struct dt_optim_options {
    double momentum, beta2;
    float eps, weight_decay;
    float trust;      /* lars: factor on the ratio of the norms */
    float clip_norm;  /* longest gradient of all parameters together, 0 = no limit */
    float clip_value; /* largest gradient of an element, 0 = no limit */
    bool nesterov;    /* sgd */
};

/* The factors of one tensor's update. */
struct dt_optim_step {
    float inner, outer; /* on the gradient that enters the momentum (lars), on the direction */
    float decay, momentum, beta2, eps;
    float rest1, rest2;     /* 1 - momentum, 1 - beta2 */
    float unbias1, unbias2; /* 1 / (1 - momentum^t), 1 / sqrt(1 - beta2^t) */
    bool nesterov;
};

/* --- advance: the states after a gradient. direction: what is subtracted from w, without `outer`;
 * of the states after it, so it may be computed again. --- */

DT_OPTIM_FUNCTION void dt_advance_sgd(float w, float g, float *m, float *v,
                                      const struct dt_optim_step *s)
{
    (void)v;
    *m = s->momentum * *m + (g + s->decay * w);
}

DT_OPTIM_FUNCTION float dt_direction_sgd(float w, float g, float m, float v,
                                         const struct dt_optim_step *s)
{
    (void)v;
    return s->nesterov ? g + s->decay * w + s->momentum * m : m;
}

DT_OPTIM_FUNCTION void dt_advance_lars(float w, float g, float *m, float *v,
                                       const struct dt_optim_step *s)
{
    (void)v;
    *m = s->momentum * *m + s->inner * (g + s->decay * w);
}

DT_OPTIM_FUNCTION float dt_direction_lars(float w, float g, float m, float v,
                                          const struct dt_optim_step *s)
{
    (void)w, (void)g, (void)v, (void)s;
    return m;
}

DT_OPTIM_FUNCTION void dt_advance_adamw(float w, float g, float *m, float *v,
                                        const struct dt_optim_step *s)
{
    (void)w;
    *m = s->momentum * *m + s->rest1 * g;
    *v = s->beta2 * *v + s->rest2 * g * g;
}

DT_OPTIM_FUNCTION float dt_direction_adam(float w, float g, float m, float v,
                                          const struct dt_optim_step *s)
{
    (void)w, (void)g;
    return m * s->unbias1 / (sqrtf(v) * s->unbias2 + s->eps);
}

DT_OPTIM_FUNCTION float dt_direction_adamw(float w, float g, float m, float v,
                                           const struct dt_optim_step *s)
{
    return dt_direction_adam(w, g, m, v, s) + s->decay * w;
}

DT_OPTIM_FUNCTION void dt_advance_adam(float w, float g, float *m, float *v,
                                       const struct dt_optim_step *s)
{
    dt_advance_adamw(w, g + s->decay * w, m, v, s);
}

/* lamb differs in the trust ratio only. */
#define dt_advance_lamb   dt_advance_adamw
#define dt_direction_lamb dt_direction_adamw

DT_OPTIM_FUNCTION void dt_advance_rmsprop(float w, float g, float *m, float *v,
                                          const struct dt_optim_step *s)
{
    const float h = g + s->decay * w;
    *v = s->beta2 * *v + s->rest2 * h * h;
    *m = s->momentum * *m + h / (sqrtf(*v) + s->eps);
}

DT_OPTIM_FUNCTION float dt_direction_rmsprop(float w, float g, float m, float v,
                                             const struct dt_optim_step *s)
{
    (void)w, (void)g, (void)v, (void)s;
    return m;
}

/* --- The table --- */

DT_OPTIM_FUNCTION void dt_optim_advance(enum dt_optim optim, float w, float g, float *m, float *v,
                                        const struct dt_optim_step *s)
{
    switch (optim) {
#define DT_OPTIM_CASE(NAME, name, ...)    \
    case DT_OPTIM_##NAME:                 \
        dt_advance_##name(w, g, m, v, s); \
        break;
        DT_OPTIM_LIST(DT_OPTIM_CASE)
#undef DT_OPTIM_CASE
    }
}

DT_OPTIM_FUNCTION float dt_optim_direction(enum dt_optim optim, float w, float g, float m, float v,
                                           const struct dt_optim_step *s)
{
    switch (optim) {
#define DT_OPTIM_CASE(NAME, name, ...) \
    case DT_OPTIM_##NAME:              \
        return dt_direction_##name(w, g, m, v, s);
        DT_OPTIM_LIST(DT_OPTIM_CASE)
#undef DT_OPTIM_CASE
    }
    return 0;
}

static inline const char *dt_optim_name(enum dt_optim optim)
{
    switch (optim) {
#define DT_OPTIM_CASE(NAME, name, ...) \
    case DT_OPTIM_##NAME:              \
        return #name;
        DT_OPTIM_LIST(DT_OPTIM_CASE)
#undef DT_OPTIM_CASE
    }
    return "";
}

DT_OPTIM_FUNCTION bool dt_optim_has_square(enum dt_optim optim)
{
    switch (optim) {
#define DT_OPTIM_CASE(NAME, name, keeps, ...) \
    case DT_OPTIM_##NAME:                     \
        return keeps == DT_KEEPS_SQUARE;
        DT_OPTIM_LIST(DT_OPTIM_CASE)
#undef DT_OPTIM_CASE
    }
    return false;
}

DT_OPTIM_FUNCTION enum dt_trust dt_optim_trust(enum dt_optim optim)
{
    switch (optim) {
#define DT_OPTIM_CASE(NAME, name, square, trust, ...) \
    case DT_OPTIM_##NAME:                             \
        return trust;
        DT_OPTIM_LIST(DT_OPTIM_CASE)
#undef DT_OPTIM_CASE
    }
    return DT_TRUST_NONE;
}

/* --- Shared rules --- */

/* Norms are summed in pieces of a segment or bucket, which do not depend on the device. */
enum { DT_TILE = 8192 };
DT_OPTIM_FUNCTION int dt_tiles(size_t count)
{
    return (int)((count + DT_TILE - 1) / DT_TILE);
}

/* A gradient as it enters the update: without the loss scale, clipped. */
DT_OPTIM_FUNCTION float dt_optim_gradient(float g, float scale, float clip_value)
{
    g *= scale;
    if (clip_value > 0)
        g = g > clip_value ? clip_value : g < -clip_value ? -clip_value : g;
    return g;
}

/* The factor on all gradients whose norm is `norm` (PyTorch's clip_grad_norm_). */
DT_OPTIM_FUNCTION float dt_optim_clip(double norm, float clip_norm)
{
    const double factor = (double)clip_norm / (norm + 1e-6);
    return factor < 1 ? (float)factor : 1.0f;
}

/* The learning-rate factor of a tensor, from the squared norms of the tensor and of its gradient or
 * direction. */
DT_OPTIM_FUNCTION float dt_optim_ratio(enum dt_optim optim, double w2, double x2, float decay,
                                       const struct dt_optim_options *o)
{
    const double w = sqrt(w2), x = sqrt(x2);
    if (!(w > 0) || !(x > 0))
        return 1;
    if (dt_optim_trust(optim) == DT_TRUST_GRADIENT)
        return (float)((double)o->trust * w / (x + (double)decay * w + (double)o->eps));
    return (float)(w / x);
}

/* 1 / (1 - momentum^t) and 1 / sqrt(1 - beta2^t) of update number `t`, from 1. */
DT_OPTIM_FUNCTION void dt_optim_unbias(double *unbias1, double *unbias2, int64_t t,
                                       const struct dt_optim_options *o)
{
    *unbias1 = 1 / (1 - pow(o->momentum, (double)t));
    *unbias2 = 1 / sqrt(1 - pow(o->beta2, (double)t));
}

/* PyTorch's lerp, which is exact for weights 0 and 1. */
DT_OPTIM_FUNCTION float dt_optim_lerp(float from, float to, float weight)
{
    return weight < 0.5f ? from + weight * (to - from) : to - (to - from) * (1 - weight);
}

/* The factors of a tensor's update, without its trust ratio. */
DT_OPTIM_FUNCTION struct dt_optim_step dt_optim_step_of(enum dt_optim optim, float lr, float decay,
                                                        double unbias1, double unbias2,
                                                        const struct dt_optim_options *o)
{
    struct dt_optim_step s;
    s.inner = lr;
    s.outer = dt_optim_trust(optim) == DT_TRUST_GRADIENT ? 1 : lr;
    s.decay = decay;
    s.momentum = (float)o->momentum;
    s.beta2 = (float)o->beta2;
    s.rest1 = (float)(1 - o->momentum);
    s.rest2 = (float)(1 - o->beta2);
    s.eps = o->eps;
    s.unbias1 = (float)unbias1;
    s.unbias2 = (float)unbias2;
    s.nesterov = o->nesterov;
    return s;
}

#endif
