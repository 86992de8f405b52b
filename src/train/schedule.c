/* Learning-rate schedules in closed form: one function per kind and a table of them. */
#include "train/schedule.h"

#include <math.h>

void dt_schedule_init(struct dt_schedule *schedule, const struct dt_config *config,
                      int global_batch_size, int64_t steps_per_epoch)
{
    double per_epoch = (double)steps_per_epoch;
    int base_size = config->schedule.lr_base_size;
    double factor = base_size > 0 ? (double)global_batch_size / base_size : 1.0;
    *schedule = (struct dt_schedule){
        .kind = config->schedule.kind,
        .lr = config->schedule.lr * factor,
        .start_lr = config->schedule.warmup_start * config->schedule.lr * factor,
        .min_lr = config->schedule.min_lr * factor,
        .gamma = config->schedule.gamma,
        .power = config->schedule.power,
        .warmup_steps = llround(config->schedule.warmup_epochs * per_epoch),
        .total_steps = config->train.epochs * steps_per_epoch,
        .n_milestones = config->schedule.n_milestones,
    };
    for (int i = 0; i < schedule->n_milestones; i++)
        schedule->milestones[i] = llround(config->schedule.milestones[i] * per_epoch);
}

/* Fraction of the way from the end of the warm-up to the end of training, 0..1. */
static double fraction(const struct dt_schedule *s, int64_t step)
{
    int64_t length = s->total_steps - s->warmup_steps;
    if (length <= 0)
        return 1;
    return fmin(1, (double)(step - s->warmup_steps) / (double)length);
}

static double constant_lr(const struct dt_schedule *s, int64_t step)
{
    (void)step;
    return s->lr;
}

static double step_lr(const struct dt_schedule *s, int64_t step)
{
    int n_passed = 0;
    for (int i = 0; i < s->n_milestones; i++)
        n_passed += step >= s->milestones[i];
    return s->lr * pow(s->gamma, n_passed);
}

static double cosine_lr(const struct dt_schedule *s, int64_t step)
{
    const double pi = 3.14159265358979323846;
    return s->min_lr + (s->lr - s->min_lr) * 0.5 * (1 + cos(pi * fraction(s, step)));
}

static double poly_lr(const struct dt_schedule *s, int64_t step)
{
    return s->min_lr + (s->lr - s->min_lr) * pow(1 - fraction(s, step), s->power);
}

double dt_schedule_lr(const struct dt_schedule *schedule, int64_t step)
{
    static double (*const kinds[])(const struct dt_schedule *, int64_t) = {
        [DT_SCHEDULE_CONSTANT] = constant_lr,
        [DT_SCHEDULE_STEP] = step_lr,
        [DT_SCHEDULE_COSINE] = cosine_lr,
        [DT_SCHEDULE_POLY] = poly_lr,
    };
    if (step < schedule->warmup_steps)
        return schedule->start_lr + (schedule->lr - schedule->start_lr) * (double)(step + 1) /
                                        (double)schedule->warmup_steps;
    return kinds[schedule->kind](schedule, step);
}
