/* The optimizers in fp64, one tensor at a time, as their papers and PyTorch define them; nothing of
 * dtrain/optim.h but the list is used. */
#ifndef DTRAIN_TESTS_OPTIM_H
#define DTRAIN_TESTS_OPTIM_H

#include <math.h>
#include <stddef.h>

#include "dtrain/optim.h"

/* A tensor and its update: number t, from 1. */
struct optim_case {
    double *w, *m, *v;
    const double *g;
    size_t n;
    double lr, decay, momentum, beta2, eps, trust;
    bool nesterov, has_trust;
    int t;
};

static double norm(const double *values, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += values[i] * values[i];
    return sqrt(sum);
}

static void reference_sgd(const struct optim_case *c)
{
    for (size_t i = 0; i < c->n; i++) {
        double g = c->g[i] + c->decay * c->w[i];
        c->m[i] = c->momentum * c->m[i] + g;
        c->w[i] -= c->lr * (c->nesterov ? g + c->momentum * c->m[i] : c->m[i]);
    }
}

static void reference_lars(const struct optim_case *c)
{
    double w = norm(c->w, c->n), g = norm(c->g, c->n), ratio = 1;
    if (c->has_trust && w > 0 && g > 0)
        ratio = c->trust * w / (g + c->decay * w + c->eps);
    for (size_t i = 0; i < c->n; i++) {
        c->m[i] = c->momentum * c->m[i] + c->lr * ratio * (c->g[i] + c->decay * c->w[i]);
        c->w[i] -= c->m[i];
    }
}

/* Advances the moments by g; the corrected quotient of element i. */
static double adam_quotient(const struct optim_case *c, size_t i, double g)
{
    c->m[i] = c->momentum * c->m[i] + (1 - c->momentum) * g;
    c->v[i] = c->beta2 * c->v[i] + (1 - c->beta2) * g * g;
    double m = c->m[i] / (1 - pow(c->momentum, c->t));
    double v = c->v[i] / (1 - pow(c->beta2, c->t));
    return m / (sqrt(v) + c->eps);
}

static void reference_adam(const struct optim_case *c)
{
    for (size_t i = 0; i < c->n; i++)
        c->w[i] -= c->lr * adam_quotient(c, i, c->g[i] + c->decay * c->w[i]);
}

static void reference_adamw(const struct optim_case *c)
{
    for (size_t i = 0; i < c->n; i++) {
        double quotient = adam_quotient(c, i, c->g[i]);
        c->w[i] -= c->lr * c->decay * c->w[i];
        c->w[i] -= c->lr * quotient;
    }
}

static void reference_lamb(const struct optim_case *c)
{
    double w2 = 0, u2 = 0, ratio = 1;
    for (size_t i = 0; i < c->n; i++) {
        struct optim_case once = *c;
        double m = c->m[i], v = c->v[i];
        once.m = &m, once.v = &v;
        double u = adam_quotient(&once, 0, c->g[i]) + c->decay * c->w[i];
        w2 += c->w[i] * c->w[i];
        u2 += u * u;
    }
    if (c->has_trust && w2 > 0 && u2 > 0)
        ratio = sqrt(w2) / sqrt(u2);
    for (size_t i = 0; i < c->n; i++)
        c->w[i] -= c->lr * ratio * (adam_quotient(c, i, c->g[i]) + c->decay * c->w[i]);
}

static void reference_rmsprop(const struct optim_case *c)
{
    for (size_t i = 0; i < c->n; i++) {
        double g = c->g[i] + c->decay * c->w[i];
        c->v[i] = c->beta2 * c->v[i] + (1 - c->beta2) * g * g;
        c->m[i] = c->momentum * c->m[i] + g / (sqrt(c->v[i]) + c->eps);
        c->w[i] -= c->lr * c->m[i];
    }
}

static const struct {
    const char *name;
    void (*update)(const struct optim_case *c);
    double beta2, eps;
} references[] = {
#define REFERENCE(NAME, name, square, trust, beta2, eps, lr) {#name, reference_##name, beta2, eps},
    DT_OPTIM_LIST(REFERENCE)
#undef REFERENCE
};

#endif
