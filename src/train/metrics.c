/* Sums the device counters and the timers of all ranks once per interval and sends the step event.
 */
#include "train/metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/host.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/task.h"
#include "train/input_advice.h"

/* A loss scale below this means that gradients overflow at any scale: 2^-14, the smallest normal
 * number of fp16. */
static const float min_scale = 0x1p-14f;

enum { MAX_IN_A_ROW = 3 }; /* skipped steps; more abort the run */

static void begin_interval(struct dt_metrics *metrics, const struct dt_ranks *ranks, int64_t step)
{
    metrics->first_step = step;
    metrics->mark = metrics->laps;
    metrics->sent_bytes = dt_comm_sent_bytes(ranks->comm);
}

void dt_metrics_init(struct dt_metrics *metrics, const struct dt_engine *engine, int64_t step)
{
    *metrics = (struct dt_metrics){.start_s = dt_clock_s()};
    dt_laps_begin(&metrics->laps, engine);
    begin_interval(metrics, &engine->ranks, step);
}

double dt_metrics_due_s(const struct dt_metrics *metrics, const struct dt_config *config)
{
    double every_s = config->output.log_every_s;
    double passed_s = dt_laps_total(metrics->laps.s) - dt_laps_total(metrics->mark.s);
    return every_s > 0 ? metrics->laps.at_s + every_s - passed_s : INFINITY;
}

/* The end of a message: the checkpoint to return to. */
static const char *where_from(const char *checkpoint)
{
    return checkpoint[0] ? "the last checkpoint is " : "there is no checkpoint yet";
}

/* All ranks see the same sums and reach the same decision, so they leave together. A non-finite
 * loss may come from skipped steps, see check_skipped. */
static dt_status check_loss(struct dt_engine *engine, double n_finite,
                            const struct dt_counters *counters, int64_t first, int64_t last,
                            const char *checkpoint)
{
    bool all_skipped = counters->n_skipped == last - first;
    bool may_recover = !dt_engine_scales_loss(engine) || counters->n_in_a_row <= MAX_IN_A_ROW;
    if (n_finite > 0 || (all_skipped && may_recover))
        return DT_OK;
    DT_FAIL_ON_ALL_RANKS(
        DT_ERR_NUMERICAL,
        "the loss is not finite in steps %lld to %lld; %s%s; try a lower schedule.lr or more "
        "schedule.warmup_epochs",
        (long long)first + 1, (long long)last, where_from(checkpoint), checkpoint);
}

/* Finite gradients may be too large for the messages between ranks. */
static const char *not_finite(const struct dt_engine *engine)
{
    const bool is_sent =
        engine->config->comm.grad_dtype == DT_GRAD_FP16 && engine->ranks.n_ranks > 1;
    return is_sent ? "not finite, or larger than the 65504 that comm.grad_dtype=fp16 can send "
                     "(bf16 has "
                     "no such limit)"
                   : "not finite";
}

/* Does nothing with a dynamic loss scale, which is found by skipping. All ranks have the same
 * counts. */
static dt_status check_skipped(struct dt_engine *engine, const struct dt_counters *counters,
                               int64_t first, int64_t last, double lr, const char *checkpoint)
{
    char steps[64], text[240];
    const struct dt_field fields[] = {DT_TEXT("text", text)};
    bool scales = dt_engine_scales_loss(engine);
    if ((scales && engine->config->train.loss_scale == 0) || counters->n_skipped == 0)
        return DT_OK;
    if (last - first == 1)
        snprintf(steps, sizeof steps, "step %lld", (long long)last);
    else
        snprintf(steps, sizeof steps, "steps %lld to %lld", (long long)first + 1, (long long)last);
    if (counters->n_in_a_row <= MAX_IN_A_ROW) {
        snprintf(text, sizeof text, "%lld step%s skipped in %s: the gradients are %s",
                 (long long)counters->n_skipped, counters->n_skipped > 1 ? "s" : "", steps,
                 not_finite(engine));
        if (!scales) /* otherwise check_scale reports it */
            dt_events_emit(engine->events, "warning", fields, DT_COUNT(fields));
        return DT_OK;
    }
    DT_FAIL_ON_ALL_RANKS(
        DT_ERR_NUMERICAL,
        "%lld steps in a row were skipped, the last of them in %s, because their gradients are "
        "%s; the learning rate is %.6g there; those steps changed no weights; %s%s; try "
        "a lower schedule.lr or more schedule.warmup_epochs",
        (long long)counters->n_in_a_row, steps, not_finite(engine), lr, where_from(checkpoint),
        checkpoint);
}

/* Prints the message that fp16 users know from Apex; aborts a run whose gradients overflow at any
 * scale. Counts and scales are the same on all ranks. */
static dt_status check_scale(struct dt_loss_scale *scale, struct dt_engine *engine,
                             int64_t n_skipped, int64_t last, const char *checkpoint)
{
    char what[48] = "step";
    if (!dt_engine_scales_loss(engine))
        return DT_OK;
    DT_TRY(engine->backend->get_loss_scale(engine->device, scale));
    if (n_skipped > 1)
        snprintf(what, sizeof what, "%lld steps", (long long)n_skipped);
    if (n_skipped > 0 && engine->config->train.loss_scale > 0)
        dt_log(DT_LOG_INFO,
               "Gradient overflow. Skipping %s, train.loss_scale is %.9g; lower it, or set it to 0",
               what, (double)scale->scale);
    else if (n_skipped > 0)
        dt_log(DT_LOG_INFO, "Gradient overflow. Skipping %s, loss scale reduced to %.9g", what,
               (double)scale->scale);
    if (engine->config->train.loss_scale > 0 || scale->scale >= min_scale)
        return DT_OK;
    DT_FAIL_ON_ALL_RANKS(
        DT_ERR_NUMERICAL,
        "after step %lld gradients are not finite whatever the loss scale, which is down to "
        "%.3g; %s%s; try a lower schedule.lr, more schedule.warmup_epochs, or train.precision "
        "bf16",
        (long long)last, (double)scale->scale, where_from(checkpoint), checkpoint);
}

#define FIELD(NAME, field) #field,
static const char *const lap_fields[] = {DT_LAP_LIST(FIELD)};
#undef FIELD

/* Sums over the ranks. */
struct sums {
    double loss, box_loss, weight, images, finite, top1, top5, bad_now, bad_before, sent_bytes;
    double laps[DT_N_LAPS];
};

/* The losses are divided by this. */
static double weight_of(const struct dt_engine *engine, const struct sums *sums)
{
    return fmax(sums->weight, engine->task->min_weight);
}

/* Ranks other than 0 also log their own numbers, as rank 0 prints the mean of all ranks. */
static dt_status sum_up(const struct dt_metrics *metrics, struct dt_engine *engine,
                        struct dt_sets *sets, const struct dt_counters *counters, struct sums *sums,
                        int64_t step)
{
    uint64_t n_bad_now, n_bad_before;
    const double n_steps = (double)(step - metrics->first_step);
    dt_loader_bad_positions(sets->train, &n_bad_now, &n_bad_before);
    *sums = (struct sums){
        .loss = counters->loss,
        .box_loss = counters->box_loss,
        .weight = counters->weight,
        .images = (double)counters->n,
        .finite = (double)counters->n_finite,
        .top1 = (double)counters->top1,
        .top5 = (double)counters->top5,
        .bad_now = (double)n_bad_now,
        .bad_before = (double)n_bad_before,
        .sent_bytes = dt_comm_sent_bytes(engine->ranks.comm) - metrics->sent_bytes,
    };
    for (int i = 0; i < DT_N_LAPS; i++)
        sums->laps[i] = metrics->laps.s[i] - metrics->mark.s[i];
    if (engine->ranks.rank != 0)
        dt_log(DT_LOG_INFO,
               "step %" PRId64 ": this rank's loss %.4f, ms per step: %.3g, waiting for data %.3g",
               step, (sums->loss + sums->box_loss) / weight_of(engine, sums),
               1e3 * dt_laps_total(sums->laps) / n_steps, 1e3 * sums->laps[DT_LAP_DATA] / n_steps);
    return dt_comm_sum_f64(engine->ranks.comm, (double *)sums, sizeof *sums / sizeof(double));
}

/* Counted in steps like the last one: other stages have more or less pixels per step. */
static double steps_left(const struct dt_engine *engine, int64_t step)
{
    const struct dt_schedule *schedule = &engine->schedule;
    return dt_schedule_pixels(schedule, step, engine->last_step) /
           dt_schedule_pixels(schedule, step - 1, step);
}

/* If ranks update on their own, the counts of the rank with the most become those of all. */
static dt_status agree_on_skipped(const struct dt_ranks *ranks, struct dt_counters *counters)
{
    double max[] = {(double)counters->n_skipped, (double)counters->n_in_a_row};
    DT_TRY(dt_comm_max_f64(ranks->comm, max, DT_COUNT(max)));
    counters->n_skipped = (int64_t)max[0];
    counters->n_in_a_row = (int64_t)max[1];
    return DT_OK;
}

static void add_epoch_loss(struct dt_epoch_loss *total, int64_t epoch, const struct sums *sums)
{
    if (total->epoch != epoch)
        *total = (struct dt_epoch_loss){.epoch = epoch};
    total->loss += sums->loss + sums->box_loss;
    total->weight += sums->weight;
}

double dt_metrics_epoch_loss(const struct dt_epoch_loss *epoch_loss)
{
    if (!(epoch_loss->weight > 0))
        return NAN;
    return (double)(float)(epoch_loss->loss / epoch_loss->weight);
}

static struct dt_counters counters_of(const struct dt_engine *engine, const struct sums *sums)
{
    return (struct dt_counters){
        .loss = sums->loss,
        .box_loss = sums->box_loss,
        .weight = weight_of(engine, sums),
        .n = (int64_t)sums->images,
        .top1 = (int64_t)sums->top1,
        .top5 = (int64_t)sums->top5,
    };
}

enum { MAX_DETAILS = DT_N_LAPS + 4 };

/* Adds what not every step event has; returns how many fields. */
static int add_details(struct dt_field *fields, const struct dt_engine *engine,
                       const struct dt_sets *sets, const struct sums *sums,
                       const struct dt_counters *counted, double rank_steps,
                       const struct dt_loss_scale *scale, int64_t n_skipped)
{
    int n = 0;
    for (int i = 0; i < DT_N_LAPS; i++)
        if (i != DT_LAP_COMM || dt_engine_has_times(engine))
            fields[n++] = (struct dt_field)DT_NUM(lap_fields[i], sums->laps[i] / rank_steps);
    n += engine->task->add_details(fields + n, sets, counted);
    if (dt_engine_scales_loss(engine)) {
        fields[n++] = (struct dt_field)DT_NUM("loss_scale", (double)scale->scale);
        fields[n++] = (struct dt_field)DT_INT("skipped_steps", n_skipped);
    }
    if (sums->sent_bytes > 0)
        fields[n++] = (struct dt_field)DT_NUM("sent_bytes", sums->sent_bytes / rank_steps);
    return n;
}

dt_status dt_metrics_report(struct dt_metrics *metrics, struct dt_engine *engine,
                            struct dt_sets *sets, int64_t step, int64_t epoch, double lr,
                            const char *checkpoint, struct dt_epoch_loss *epoch_loss)
{
    struct dt_counters counters;
    struct dt_loss_scale scale = {0};
    struct sums sums;
    double n_steps = (double)(step - metrics->first_step);
    dt_lap(&metrics->laps, engine, DT_LAP_OTHER);
    DT_TRY(engine->backend->download(engine->device, &counters));
    dt_lap(&metrics->laps, engine, DT_LAP_COMPUTE); /* what a device with queues had left */
    DT_TRY(sum_up(metrics, engine, sets, &counters, &sums, step));
    DT_TRY(dt_sets_check_bad(sets->train, fmax(sums.bad_now, sums.bad_before)));
    if (engine->ranks.n_parts > 1 || engine->ranks.n_workers < engine->ranks.n_ranks)
        DT_TRY(agree_on_skipped(&engine->ranks, &counters));
    int64_t first = metrics->first_step;
    DT_TRY(check_skipped(engine, &counters, first, step, lr, checkpoint));
    DT_TRY(check_loss(engine, sums.finite, &counters, first, step, checkpoint));
    DT_TRY(check_scale(&scale, engine, counters.n_skipped, step, checkpoint));
    add_epoch_loss(epoch_loss, epoch, &sums);
    double n = sums.images, rank_steps = n_steps * engine->ranks.n_ranks;
    double step_s = dt_laps_total(sums.laps) / rank_steps;
    metrics->step_s = metrics->step_s > 0 ? 0.7 * metrics->step_s + 0.3 * step_s : step_s;
    const struct dt_counters counted = counters_of(engine, &sums);
    const struct dt_field all[] = {
        DT_INT("step", step),
        DT_INT("total_steps", engine->last_step),
        DT_INT("epoch", epoch),
        DT_NUM("loss", (counted.loss + counted.box_loss) / counted.weight),
        engine->task->headline(&counted),
        DT_NUM("lr", lr),
        DT_NUM("images_per_s", n / n_steps / step_s),
        DT_NUM("step_s", step_s),
        DT_NUM("elapsed_s", dt_clock_s() - metrics->start_s),
        DT_NUM("eta_s", metrics->step_s * steps_left(engine, step)),
    };
    struct dt_field fields[DT_COUNT(all) + MAX_DETAILS];
    int n_fields = DT_COUNT(all);
    memcpy(fields, all, sizeof all);
    n_fields += add_details(fields + n_fields, engine, sets, &sums, &counted, rank_steps, &scale,
                            counters.n_skipped);
    begin_interval(metrics, &engine->ranks, step); /* the report itself is part of the next one */
    dt_events_emit(engine->events, "step", fields, n_fields);
    return DT_OK;
}

/* --- The input of a stretch of training --- */

/* Sums over the ranks. */
struct input_sums {
    double wait_s, elapsed_s, read_s, work_s, images, bytes, storage_bytes, capacity, demand;
};

void dt_metrics_begin_input(struct dt_metrics *metrics, const struct dt_engine *engine,
                            const struct dt_sets *sets, int64_t step)
{
    dt_lap(&metrics->laps, engine, DT_LAP_OTHER);
    metrics->input =
        (struct dt_input_mark){.step = step, .total_s = dt_laps_total(metrics->laps.s)};
    dt_loader_times(sets->train, &metrics->input.times);
    metrics->input.storage_bytes = dt_storage_bytes_read("");
}

static dt_status sum_input(const struct dt_metrics *metrics, struct dt_engine *engine,
                           struct dt_sets *sets, int64_t step, struct input_sums *sums,
                           double *longest_wait_s)
{
    const struct dt_input_mark *mark = &metrics->input;
    struct dt_loader_times now;
    dt_loader_times(sets->train, &now);
    double n_taken =
        (double)(step - mark->step) * engine->stage.split.images / engine->ranks.n_ranks;
    *sums = (struct input_sums){
        .wait_s = now.wait_s - mark->times.wait_s,
        .elapsed_s = dt_laps_total(metrics->laps.s) - mark->total_s,
        .read_s = now.read_s - mark->times.read_s,
        .work_s = now.decode_s - mark->times.decode_s,
        .images = (double)(now.images - mark->times.images),
        .bytes = (double)(now.bytes - mark->times.bytes),
        .storage_bytes = (double)(dt_storage_bytes_read("") - mark->storage_bytes),
    };
    if (sums->images > 0)
        sums->capacity = sums->images / (sums->read_s + sums->work_s) * now.workers;
    sums->demand = n_taken / (sums->elapsed_s - sums->wait_s);
    *longest_wait_s = now.longest_wait_s;
    DT_TRY(dt_comm_max_f64(engine->ranks.comm, longest_wait_s, 1));
    return dt_comm_sum_f64(engine->ranks.comm, (double *)sums, sizeof *sums / sizeof(double));
}

/* Rank 0's settings represent all ranks. */
static struct dt_input_case input_case(const struct dt_engine *engine, const struct dt_sets *sets,
                                       const struct input_sums *sums)
{
    struct dt_loader_options options = dt_engine_loader_options(engine, true);
    const int side = dt_sets_crop(sets, engine->stage.image_size);
    bool on_cpu = engine->backend == &dt_backend_cpu;
    double mean_bytes = sums->images > 0 ? sums->bytes / sums->images : 0;
    return (struct dt_input_case){
        .wait_share = sums->wait_s / sums->elapsed_s,
        .read_s = sums->read_s / engine->ranks.n_ranks,
        .work_s = sums->work_s / engine->ranks.n_ranks,
        .capacity = sums->capacity / engine->ranks.n_ranks,
        .demand = sums->demand / engine->ranks.n_ranks,
        .workers = options.workers,
        .prefetch = engine->config->data.prefetch,
        .cpus = dt_comm_cpus(engine->ranks.comm),
        .threads = on_cpu ? engine->n_threads : 1,
        .on_cpu = on_cpu,
        .is_raw = dt_config_is_synthetic(engine->config),
        .mean_bytes = mean_bytes,
        .resize = side > 0 ? dt_crop_resize(&engine->config->data, side) : 0,
        .set_bytes = mean_bytes * dt_dataset_size(sets->train_set),
        .free_bytes = (double)dt_memory_available("") / dt_comm_local_size(engine->ranks.comm),
        .cache_bytes = engine->config->data.cache_mb * 1e6,
    };
}

dt_status dt_metrics_report_input(struct dt_metrics *metrics, struct dt_engine *engine,
                                  struct dt_sets *sets, int64_t step, int64_t epoch, int64_t min)
{
    char text[DT_INPUT_TEXT];
    struct input_sums sums;
    double longest_wait_s;
    int64_t n_steps = step - metrics->input.step;
    if (n_steps < min)
        return DT_OK;
    dt_lap(&metrics->laps, engine, DT_LAP_OTHER);
    DT_TRY(sum_input(metrics, engine, sets, step, &sums, &longest_wait_s));
    dt_metrics_begin_input(metrics, engine, sets, step);
    if (engine->ranks.rank != 0)
        return DT_OK;
    struct dt_input_case c = input_case(engine, sets, &sums);
    double busy_s = sums.read_s + sums.work_s;
    const double elapsed_s = sums.elapsed_s / engine->ranks.n_ranks;
    dt_input_diagnosis(text, &c);
    const struct dt_field fields[] = {
        DT_INT("epoch", epoch),
        DT_INT("step", step),
        DT_INT("steps", n_steps),
        DT_NUM("wait_share", c.wait_share),
        DT_NUM("busy_share", fmin(busy_s / sums.elapsed_s / c.workers, 1)),
        DT_NUM("read_share", busy_s > 0 ? sums.read_s / busy_s : 0),
        DT_NUM("longest_wait_s", longest_wait_s),
        DT_NUM("images_read_per_s", sums.images / elapsed_s),
        DT_NUM("bytes_read_per_s", sums.bytes / elapsed_s),
        DT_NUM("storage_bytes_per_s", sums.storage_bytes / elapsed_s),
        DT_NUM("capacity_images_per_s", sums.capacity),
        DT_NUM("demand_images_per_s", sums.demand),
        DT_INT("workers", c.workers),
        DT_TEXT("text", text),
    };
    dt_events_emit(engine->events, "input", fields, DT_COUNT(fields));
    return DT_OK;
}
