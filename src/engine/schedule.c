/* Learning-rate schedules in closed form: one function per kind and a table of them. */
#include "engine/schedule.h"

#include <inttypes.h>
#include <math.h>

#include "base/text.h"

static const double pi = 3.14159265358979323846;

/* --- Epochs and steps --- */

int64_t dt_schedule_steps(const uint32_t n_images[DT_MAX_CANVASES], int batch)
{
    int64_t n = 0;
    for (int i = 0; i < DT_MAX_CANVASES; i++)
        n += n_images[i] / (uint32_t)batch;
    return n;
}

/* One part for the epochs before the first stage, and one per stage that the run reaches. */
static void add_part(struct dt_schedule *s, const struct dt_config *config, int plain_batch,
                     const uint32_t *n_images, int64_t epoch)
{
    struct dt_schedule_part *part = &s->parts[s->n_parts];
    const struct dt_train_stage stage = dt_config_stage(config, plain_batch, epoch, NULL);
    const enum dt_lr_scaling scaling = config->schedule.lr_scaling;
    const double ratio = (double)stage.batch / config->schedule.lr_base_size;
    const int64_t n_steps = dt_schedule_steps(n_images, stage.batch);
    *part = (struct dt_schedule_part){
        .epoch = epoch,
        .steps_per_epoch = n_steps > 0 ? n_steps : 1,
        .scale = scaling == DT_LR_SCALING_NONE   ? 1
                 : scaling == DT_LR_SCALING_SQRT ? sqrt(ratio)
                                                 : ratio,
        .stage = stage,
    };
    if (s->n_parts++ > 0)
        part->step = part[-1].step + (epoch - part[-1].epoch) * part[-1].steps_per_epoch;
}

int64_t dt_schedule_step_at(const struct dt_schedule *s, double epoch)
{
    const struct dt_schedule_part *part = s->parts + s->n_parts - 1;
    while (part > s->parts && (double)part->epoch > epoch)
        part--;
    return part->step + llround((epoch - (double)part->epoch) * (double)part->steps_per_epoch);
}

const struct dt_schedule_part *dt_schedule_part(const struct dt_schedule *s, int64_t step)
{
    const struct dt_schedule_part *part = s->parts + s->n_parts - 1;
    while (part > s->parts && part->step > step)
        part--;
    return part;
}

/* Whole epochs done before a step. */
static int64_t epoch_at(const struct dt_schedule *s, int64_t step)
{
    const struct dt_schedule_part *part = dt_schedule_part(s, step);
    return part->epoch + (step - part->step) / part->steps_per_epoch;
}

double dt_schedule_epochs(const struct dt_schedule *s, int64_t step)
{
    const struct dt_schedule_part *part = dt_schedule_part(s, step);
    return (double)part->epoch + (double)(step - part->step) / (double)part->steps_per_epoch;
}

static double sum(const struct dt_schedule *s, int64_t from, int64_t to, bool in_pixels)
{
    double images = 0;
    for (const struct dt_schedule_part *p = s->parts; p < s->parts + s->n_parts; p++) {
        int64_t end = p + 1 < s->parts + s->n_parts && p[1].step < to ? p[1].step : to;
        int64_t n_steps = end - (p->step > from ? p->step : from);
        double size = in_pixels ? p->stage.image_size : 1;
        if (n_steps > 0)
            images += (double)n_steps * p->stage.batch * size * size;
    }
    return images;
}

double dt_schedule_images(const struct dt_schedule *s, int64_t from, int64_t to)
{
    return sum(s, from, to, false);
}

double dt_schedule_pixels(const struct dt_schedule *s, int64_t from, int64_t to)
{
    return sum(s, from, to, true);
}

void dt_schedule_init(struct dt_schedule *s, const struct dt_config *config, int plain_batch,
                      const uint32_t n_images[DT_MAX_CANVASES])
{
    const struct dt_config_schedule *c = &config->schedule;
    const struct dt_config_train *train = &config->train;
    *s =
        (struct dt_schedule){.config = c, .metric = dt_config_plateau_metric(config), .plateau = 1};
    if (train->n_stages == 0 || train->stages[0].epoch > 0)
        add_part(s, config, plain_batch, n_images, 0);
    for (int i = 0; i < train->n_stages && train->stages[i].epoch < train->epochs; i++)
        add_part(s, config, plain_batch, n_images, train->stages[i].epoch);
    s->total_steps = dt_schedule_step_at(s, train->epochs);
    s->warmup_steps =
        c->warmup_steps > 0 ? c->warmup_steps : dt_schedule_step_at(s, c->warmup_epochs);
    for (int i = 0; i < c->n_milestones; i++)
        s->milestones[i] = dt_schedule_step_at(s, c->milestones[i]);
}

void dt_schedule_resume(struct dt_schedule *s, struct dt_checkpoint *at)
{
    const struct dt_schedule_part *part =
        dt_schedule_part(s, dt_schedule_step_at(s, (double)at->epoch));
    const int64_t batch = at->batch * at->global_batch_size / part->stage.batch;
    const bool is_over = batch >= part->steps_per_epoch;
    at->epoch += is_over;
    at->batch = is_over ? 0 : batch;
    at->eval_due |= is_over;
    at->global_batch_size = part->stage.batch;
    const int64_t moved = at->step - at->batch - dt_schedule_step_at(s, (double)at->epoch);
    s->resumed = moved != 0 ? at->step : 0;
    s->warmup_steps += moved;
    s->total_steps += moved;
    for (int i = 0; i < s->n_parts; i++)
        s->parts[i].step += moved;
    for (int i = 0; i < s->config->n_milestones; i++)
        s->milestones[i] += moved;
}

/* --- The kinds, for a scale of 1 --- */

/* min_lr for a share of 0, lr for 1. */
static double above_end(const struct dt_schedule *s, double share)
{
    return s->config->min_lr + (s->config->lr - s->config->min_lr) * share;
}

/* The fraction, 0..1, of the steps from `first` to the end of training that come before `step`. */
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
    return s->config->lr;
}

static double step_lr(const struct dt_schedule *s, int64_t step)
{
    return s->config->lr * pow(s->config->gamma, n_passed(s, step));
}

static double piecewise_lr(const struct dt_schedule *s, int64_t step)
{
    int n = n_passed(s, step);
    return n > 0 ? s->config->lr * s->config->factors[n - 1] : s->config->lr;
}

static double exponential_lr(const struct dt_schedule *s, int64_t step)
{
    int64_t n_ends = epoch_at(s, step) - epoch_at(s, s->warmup_steps);
    return s->config->lr * pow(s->config->gamma, (double)n_ends);
}

static double plateau_lr(const struct dt_schedule *s, int64_t step)
{
    (void)step;
    return fmax(s->config->lr * s->plateau, above_end(s, 0));
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
    const int64_t begin = s->parts[0].step, n_steps = s->total_steps - begin;
    int64_t first = begin + llround((1 - s->config->decay_fraction) * (double)n_steps);
    return first > s->warmup_steps ? first : s->warmup_steps;
}

static double wsd_lr(const struct dt_schedule *s, int64_t step)
{
    const int64_t first = wsd_first(s);
    return step < first ? s->config->lr : above_end(s, 1 - sqrt(fraction(s, first, step)));
}

static double one_cycle_lr(const struct dt_schedule *s, int64_t step)
{
    return above_end(s, half_cosine(fraction(s, s->warmup_steps, step + 1)));
}

/* --- Together --- */

static double warmup_lr(const struct dt_schedule *s, int64_t step)
{
    double start = s->config->warmup_start * s->config->lr, rise = s->config->lr - start,
           n_steps = (double)(s->warmup_steps - s->parts[0].step);
    step -= s->parts[0].step;
    if (s->config->kind == DT_SCHEDULE_ONE_CYCLE && n_steps > 1)
        return start + rise * (1 - half_cosine((double)step / (n_steps - 1)));
    return start + rise * (double)(step + 1) / n_steps;
}

double dt_schedule_lr(const struct dt_schedule *schedule, int64_t step)
{
#define KIND(NAME, name, ...) name##_lr,
    static double (*const kinds[])(const struct dt_schedule *, int64_t) = {DT_SCHEDULE_LIST(KIND)};
    double lr = step < schedule->warmup_steps ? warmup_lr(schedule, step)
                                              : kinds[schedule->config->kind](schedule, step);
    return lr * dt_schedule_part(schedule, step)->scale;
}

double dt_schedule_peak(const struct dt_schedule *schedule, int64_t step)
{
    return schedule->config->lr * dt_schedule_part(schedule, step)->scale;
}

bool dt_plateau_count(struct dt_plateau *plateau, const struct dt_schedule *schedule, double value)
{
    const struct dt_config_schedule *config = schedule->config;
    bool better = dt_metric_gain(schedule->metric, plateau->best, value) >
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

void dt_schedule_describe(char *out, size_t bytes, const struct dt_schedule *s)
{
#define NAME(upper, name, ...) #name,
    static const char *const names[] = {DT_SCHEDULE_LIST(NAME)};
    const struct dt_config_schedule *c = s->config;
    const double peak = dt_schedule_peak(s, s->parts[0].step);
    const double end_lr = c->min_lr * dt_schedule_part(s, s->total_steps)->scale;
    const bool in_steps = c->kind == DT_SCHEDULE_STEP || c->kind == DT_SCHEDULE_PIECEWISE;
    struct dt_text text = dt_text_in(out, bytes);
    int n_told = 0;
    dt_text_add(&text, "%.6g", peak);
    if (c->kind != DT_SCHEDULE_CONSTANT)
        dt_text_add(&text, ", %s", names[c->kind]);
    if (s->warmup_steps > s->resumed)
        dt_text_add(&text, ", warm-up over %" PRId64 " steps from %.6g",
                    s->warmup_steps - s->parts[0].step, c->warmup_start * peak);
    for (int i = 0; in_steps && i < c->n_milestones; i++)
        if (s->milestones[i] >= s->resumed)
            dt_text_add(&text, "%s%.6g from step %" PRId64, n_told++ == 0 ? ", then " : ", ",
                        dt_schedule_lr(s, s->milestones[i]), s->milestones[i]);
    if (c->kind == DT_SCHEDULE_EXPONENTIAL)
        dt_text_add(&text, ", times %.6g per epoch", c->gamma);
    if (c->kind == DT_SCHEDULE_PLATEAU)
        dt_text_add(&text, ", times %.6g after %d evaluation%s without a better %s, at least %.6g",
                    c->gamma, c->patience + 1, c->patience == 0 ? "" : "s",
                    dt_metric_name(s->metric), end_lr);
    if (c->kind == DT_SCHEDULE_WSD)
        dt_text_add(&text, ", decay from step %" PRId64, wsd_first(s));
    if (dt_schedule_has_end(c->kind))
        dt_text_add(&text, ", down to %.6g at step %" PRId64, end_lr, s->total_steps);
}
