/* The learning rate as a pure function of the step: there is no state to save. */
#ifndef DTRAIN_TRAIN_SCHEDULE_H
#define DTRAIN_TRAIN_SCHEDULE_H

#include "dtrain/config.h"

struct dt_schedule {
    enum dt_schedule_kind kind;
    double lr, start_lr, min_lr; /* absolute: the factor of the batch size is applied */
    double gamma, power;
    int64_t warmup_steps, total_steps;
    int64_t milestones[DT_MAX_MILESTONES]; /* steps */
    int n_milestones;
};

/* steps_per_epoch >= 1. Epochs in the configuration become steps by rounding to the nearest. */
void dt_schedule_init(struct dt_schedule *schedule, const struct dt_config *config,
                      int global_batch_size, int64_t steps_per_epoch);

/* The learning rate of update number `step` (from 0). With W warm-up steps, T steps in all,
 * start = warmup_start * lr, end = min_lr and t = (step - W) / (T - W):
 *
 *   step < W    start + (lr - start) * (step + 1) / W
 *   constant    lr
 *   step        lr * gamma^(number of milestones passed)
 *   cosine      end + (lr - end) * (1 + cos(pi * t)) / 2
 *   poly        end + (lr - end) * (1 - t)^power
 *
 * As PyTorch's MultiStepLR, CosineAnnealingLR and PolynomialLR with T_max = T - W: min_lr would be
 * the rate of the step after the last one. */
double dt_schedule_lr(const struct dt_schedule *schedule, int64_t step);

#endif
