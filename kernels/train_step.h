/* State that kernels keep in device memory between launches, and its rules, which run on the device
 * and (in tests) on the host. */
#ifndef DTRAIN_KERNELS_TRAIN_STEP_H
#define DTRAIN_KERNELS_TRAIN_STEP_H

#include <stddef.h>
#include <stdint.h>

#include "dtrain/optim.h"
#include "kernels/geometry.h"

/* dt_scalars of backend.h, and what follows from the number of updates. */
struct dt_step_values {
    float lr, diff_scale;
    struct dt_optim_options optim;
    float ema_weight;
    double unbias1, unbias2; /* dt_optim_unbias of the next update */
    uint32_t step, first_row;
};

/* dt_loss_scale of backend.h, and the findings of the current step. Without loss scaling the scale
 * is 1 and not dynamic. */
struct dt_scale_state {
    float scale;
    int32_t n_clean;
    int32_t dynamic;    /* 0: the scale never changes */
    int32_t found;      /* 1: a gradient was not finite, so the step is skipped */
    int32_t n_in_a_row; /* consecutive steps skipped so far */
    int64_t n_updates;  /* steps that were not skipped */
    float clip;         /* factor on the gradients of the current step */
};

/* dt_counters of backend.h. */
struct dt_step_counters {
    double loss, box_loss, weight;
    int64_t n, n_finite, top1, top5;
    int64_t n_skipped, n_in_a_row;
    int32_t bad_label; /* if classes > 0: the first label that is not a class */
    int32_t classes;   /* 0 = no bad label, else the number of classes */
};

enum { DT_SCALE_GROWTH_STEPS = 2000 };
#define DT_SCALE_START 65536.0f
#define DT_SCALE_MAX   16777216.0f
#define DT_SCALE_MIN   0x1p-24f /* 1 / scale stays finite even if the training has diverged */

/* The end of a step: halve after an overflow, double after DT_SCALE_GROWTH_STEPS clean steps. */
static inline DT_HOST_DEVICE void dt_scale_state_advance(struct dt_scale_state *s,
                                                         struct dt_step_counters *counters)
{
    s->n_in_a_row = s->found ? s->n_in_a_row + 1 : 0;
    counters->n_skipped += s->found;
    if (s->n_in_a_row > counters->n_in_a_row)
        counters->n_in_a_row = s->n_in_a_row;
    if (s->found) {
        s->n_clean = 0;
        if (s->dynamic && s->scale > DT_SCALE_MIN)
            s->scale *= 0.5f;
    } else if (++s->n_clean >= DT_SCALE_GROWTH_STEPS) {
        s->n_clean = 0;
        if (s->dynamic && s->scale < DT_SCALE_MAX)
            s->scale *= 2.0f;
    }
    s->n_updates += !s->found;
    s->found = 0;
    s->clip = 1;
}

/* A dt_segment as kernels get it: elements [first, first + count) of the arenas, multiples of 8. */
struct dt_range {
    uint64_t first, count;
    float decay, rate;
    uint32_t first_tile;
    bool has_trust;
};

struct dt_loss_row {
    double loss;
    int32_t rank;    /* number of classes that beat the label's */
    int32_t counted; /* 0: ignored */
};

#endif
