/* The one place where the position of a run becomes epochs, steps and learning rates. All follow
 * from the step: there is no state to save, except that the schedule plateau follows the
 * evaluations. */
#ifndef DTRAIN_ENGINE_SCHEDULE_H
#define DTRAIN_ENGINE_SCHEDULE_H

#include "checkpoint/checkpoint.h"
#include "dtrain/config.h"

/* Epochs of the same stage. */
struct dt_schedule_part {
    int64_t epoch, step; /* the first ones; a step may be negative, see dt_schedule_resume */
    int64_t steps_per_epoch;
    double scale; /* of lr and min_lr, see lr_scaling */
    struct dt_train_stage stage;
};

struct dt_schedule {
    const struct dt_config_schedule *config;
    enum dt_metric metric;                            /* that plateau follows */
    struct dt_schedule_part parts[DT_MAX_STAGES + 1]; /* at least one */
    int n_parts;
    int64_t resumed;                       /* earlier steps had other lengths; 0 = none */
    int64_t warmup_steps, total_steps;     /* the first step after them */
    int64_t milestones[DT_MAX_MILESTONES]; /* steps */
    double plateau;                        /* product of the reductions so far */
};

/* plain_batch: images per update where no stage says otherwise; n_images: of an epoch, by
 * canvas, at least one batch. Epochs in the configuration become steps by rounding to the nearest.
 * `config` is used from then on. */
void dt_schedule_init(struct dt_schedule *schedule, const struct dt_config *config, int plain_batch,
                      const uint32_t n_images[DT_MAX_CANVASES]);
/* Goes on where a run was saved. Its epochs and images tell where, as its steps may have been made
 * with another batch, other data or other stages: all steps are moved so that at->step lies there,
 * and at->batch counts batches of this schedule from then on. Images that make no whole batch are
 * repeated; if all images of the epoch are done, it is over and its evaluation is due. */
void dt_schedule_resume(struct dt_schedule *schedule, struct dt_checkpoint *at);
/* Global batches of an epoch: of each canvas the whole ones. */
int64_t dt_schedule_steps(const uint32_t n_images[DT_MAX_CANVASES], int batch);

/* The learning rate of update number `step` (from 0). With x = global batch / lr_base_size, or its
 * square root, or 1, in the stage of the step: peak = lr * x, start = warmup_start * peak, end =
 * min_lr * x. With W warm-up steps, T steps in all and t = (step - W) / (T - W), all counted as if
 * every step had been made by this schedule:
 *
 *   step < W      start + (peak - start) * (step + 1) / W
 *   constant      peak
 *   step          peak * gamma^(number of milestones passed)
 *   piecewise     peak * the factor of the last milestone passed
 *   exponential   peak * gamma^(ends of epochs since the warm-up)
 *   plateau       peak * gamma^(number of reductions), at least `end`
 *   linear        end + (peak - end) * (1 - t)
 *   cosine        end + (peak - end) * (1 + cos(pi * t)) / 2
 *   poly          end + (peak - end) * (1 - t)^power
 *   wsd           peak, and in the last decay_fraction * T steps, u being the fraction of them that
 *                 is done, end + (peak - end) * (1 - sqrt(u)); warm-up, stable, decay, in the form
 *                 of Haegele et al., "Scaling Laws and Compute-Optimal Training Beyond Fixed
 *                 Training Durations", arXiv 2405.18392
 *   one_cycle     step < W: start + (peak - start) * (1 - cos(pi * step / (W - 1))) / 2, then
 *                 end + (peak - end) * (1 + cos(pi * (step - W + 1) / (T - W))) / 2
 *
 * As PyTorch's MultiStepLR, ExponentialLR (stepped at the end of every epoch), ReduceLROnPlateau,
 * LinearLR, CosineAnnealingLR and PolynomialLR with T_max = T - W: min_lr would be the rate of the
 * step after the last one. one_cycle is its OneCycleLR with W = pct_start * T, warmup_start = 1 /
 * div_factor and min_lr = lr / (div_factor * final_div_factor): the last step has min_lr. Momentum
 * does not cycle. */
double dt_schedule_lr(const struct dt_schedule *schedule, int64_t step);

/* Counts an evaluation's value of the metric; true if the learning rate is reduced from now
 * on. As PyTorch's ReduceLROnPlateau with threshold_mode "rel", cooldown 0 and eps 0. */
bool dt_plateau_count(struct dt_plateau *plateau, const struct dt_schedule *schedule, double value);

/* The rate between warm-up and decay, for the batch of that step. */
double dt_schedule_peak(const struct dt_schedule *schedule, int64_t step);
/* The stage of update number `step`, and epochs done before it. */
const struct dt_schedule_part *dt_schedule_part(const struct dt_schedule *schedule, int64_t step);
double dt_schedule_epochs(const struct dt_schedule *schedule, int64_t step);
/* The first step of an epoch, counted from 0. */
int64_t dt_schedule_step_at(const struct dt_schedule *schedule, double epoch);
/* Images, or pixels, that the updates from `from` until before `to` train on. */
double dt_schedule_images(const struct dt_schedule *schedule, int64_t from, int64_t to);
double dt_schedule_pixels(const struct dt_schedule *schedule, int64_t from, int64_t to);

/* Part of a line: peak, kind, warm-up, milestones, end. */
enum { DT_SCHEDULE_TEXT = 1024 };
void dt_schedule_describe(char *out, size_t bytes, const struct dt_schedule *schedule);

#endif
