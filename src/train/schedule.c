/* Learning-rate schedules in closed form: one function per kind and a table of them. */
#include "train/schedule.h"

#include <inttypes.h>
#include <math.h>

#include "base/text.h"

static const double pi = 3.14159265358979323846;

static double scale_of(const struct dt_config_schedule *config, int global_batch_size)
{
    if (config->lr_scaling == DT_LR_SCALING_NONE)
        return 1;
    double ratio = (double)global_batch_size / config->lr_base_size;
    return config->lr_scaling == DT_LR_SCALING_SQRT ? sqrt(ratio) : ratio;
}

void dt_schedule_init(struct dt_schedule *schedule, const struct dt_config *config,
                      int global_batch_size, int64_t n_images)
{
    const struct dt_config_schedule *c = &config->schedule;
    const int64_t steps_per_epoch = n_images / global_batch_size;
    *schedule = (struct dt_schedule){
        .config = c,
        .scale = scale_of(c, global_batch_size),
        .steps_per_epoch = steps_per_epoch,
        .total_steps = config->train.epochs * steps_per_epoch,
        .plateau = 1,
    };
    schedule->warmup_steps =
        c->warmup_steps > 0 ? c->warmup_steps : llround(c->warmup_epochs * (double)steps_per_epoch);
    for (int i = 0; i < c->n_milestones; i++)
        schedule->milestones[i] = llround(c->milestones[i] * (double)steps_per_epoch);
}

/* --- The kinds --- */

double dt_schedule_peak(const struct dt_schedule *s)
{
    return s->config->lr * s->scale;
}

/* min_lr for a share of 0, the peak for 1. */
static double above_end(const struct dt_schedule *s, double share)
{
    double end = s->config->min_lr * s->scale;
    return end + (dt_schedule_peak(s) - end) * share;
}

/* Of the steps from `first` to the end of training, the fraction before `step`, 0..1. */
static double fraction(const struct dt_schedule *s, int64_t first, int64_t step)
{
    int64_t length = s->total_steps - first;
    return length > 0 ? fmin(1, (double)(step - first) / (double)length) : 1;
}

static double half_cosine(double t)
{
    return 0.5 * (1 + cos(pi * t));
}

static int n_passed(const struct dt_schedule *s, int64_t step)
{
    int n = 0;
    for (int i = 0; i < s->config->n_milestones; i++)
        n += step >= s->milestones[i];
    return n;
}

static double constant_lr(const struct dt_schedule *s, int64_t step)
{
    (void)step;
    return dt_schedule_peak(s);
}

static double step_lr(const struct dt_schedule *s, int64_t step)
{
    return dt_schedule_peak(s) * pow(s->config->gamma, n_passed(s, step));
}

static double piecewise_lr(const struct dt_schedule *s, int64_t step)
{
    int n = n_passed(s, step);
    return n > 0 ? dt_schedule_peak(s) * s->config->factors[n - 1] : dt_schedule_peak(s);
}

static double exponential_lr(const struct dt_schedule *s, int64_t step)
{
    int64_t n_ends = step / s->steps_per_epoch - s->warmup_steps / s->steps_per_epoch;
    return dt_schedule_peak(s) * pow(s->config->gamma, (double)n_ends);
}

static double plateau_lr(const struct dt_schedule *s, int64_t step)
{
    (void)step;
    return fmax(dt_schedule_peak(s) * s->plateau, above_end(s, 0));
}

static double linear_lr(const struct dt_schedule *s, int64_t step)
{
    return above_end(s, 1 - fraction(s, s->warmup_steps, step));
}

static double cosine_lr(const struct dt_schedule *s, int64_t step)
{
    return above_end(s, half_cosine(fraction(s, s->warmup_steps, step)));
}

static double poly_lr(const struct dt_schedule *s, int64_t step)
{
    return above_end(s, pow(1 - fraction(s, s->warmup_steps, step), s->config->power));
}

/* The first step of the decay. */
static int64_t wsd_first(const struct dt_schedule *s)
{
    int64_t n_stable = llround((1 - s->config->decay_fraction) * (double)s->total_steps);
    return n_stable > s->warmup_steps ? n_stable : s->warmup_steps;
}

static double wsd_lr(const struct dt_schedule *s, int64_t step)
{
    const int64_t first = wsd_first(s);
    return step < first ? dt_schedule_peak(s) : above_end(s, 1 - sqrt(fraction(s, first, step)));
}

static double one_cycle_lr(const struct dt_schedule *s, int64_t step)
{
    return above_end(s, half_cosine(fraction(s, s->warmup_steps, step + 1)));
}

/* --- Together --- */

static double start_lr(const struct dt_schedule *s)
{
    return s->config->warmup_start * s->config->lr * s->scale;
}

static double warmup_lr(const struct dt_schedule *s, int64_t step)
{
    double start = start_lr(s), rise = dt_schedule_peak(s) - start,
           n_steps = (double)s->warmup_steps;
    if (s->config->kind == DT_SCHEDULE_ONE_CYCLE && n_steps > 1)
        return start + rise * (1 - half_cosine((double)step / (n_steps - 1)));
    return start + rise * (double)(step + 1) / n_steps;
}

double dt_schedule_lr(const struct dt_schedule *schedule, int64_t step)
{
#define KIND(NAME, name, ...) name##_lr,
    static double (*const kinds[])(const struct dt_schedule *, int64_t) = {DT_SCHEDULE_LIST(KIND)};
    if (step < schedule->warmup_steps)
        return warmup_lr(schedule, step);
    return kinds[schedule->config->kind](schedule, step);
}

bool dt_plateau_count(struct dt_plateau *plateau, const struct dt_config_schedule *config,
                      double value)
{
    bool better = dt_metric_gain(config->metric, plateau->best, value) >
                  config->threshold * fabs(plateau->best);
    if (better)
        plateau->best = value;
    plateau->waits = better ? 0 : plateau->waits + 1;
    if (plateau->waits <= config->patience)
        return false;
    plateau->waits = 0;
    plateau->factor *= config->gamma;
    return true;
}

/* --- As text --- */

static void describe_end(struct dt_text *text, const struct dt_schedule *s)
{
    const struct dt_config_schedule *c = s->config;
    bool in_steps = c->kind == DT_SCHEDULE_STEP || c->kind == DT_SCHEDULE_PIECEWISE;
    for (int i = 0; in_steps && i < c->n_milestones; i++)
        dt_text_add(text, "%s%.6g from step %" PRId64, i == 0 ? ", then " : ", ",
                    dt_schedule_lr(s, s->milestones[i]), s->milestones[i]);
    if (c->kind == DT_SCHEDULE_EXPONENTIAL)
        dt_text_add(text, ", times %.6g per epoch", c->gamma);
    if (c->kind == DT_SCHEDULE_PLATEAU)
        dt_text_add(text, ", times %.6g after %d evaluations without a better %s, at least %.6g",
                    c->gamma, c->patience + 1, dt_metric_name(c->metric), above_end(s, 0));
    if (c->kind == DT_SCHEDULE_WSD)
        dt_text_add(text, ", decay from step %" PRId64, wsd_first(s));
    if (dt_schedule_has_end(c->kind))
        dt_text_add(text, ", down to %.6g at step %" PRId64, above_end(s, 0), s->total_steps);
}

void dt_schedule_describe(char *out, size_t bytes, const struct dt_schedule *s)
{
#define NAME(upper, name, ...) #name,
    static const char *const names[] = {DT_SCHEDULE_LIST(NAME)};
    struct dt_text text = dt_text_in(out, bytes);
    dt_text_add(&text, "%.6g", dt_schedule_peak(s));
    if (s->config->kind != DT_SCHEDULE_CONSTANT)
        dt_text_add(&text, ", %s", names[s->config->kind]);
    if (s->warmup_steps > 0)
        dt_text_add(&text, ", warm-up over %" PRId64 " steps from %.6g", s->warmup_steps,
                    start_lr(s));
    describe_end(&text, s);
}
