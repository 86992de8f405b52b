/* The worker threads of the loader.
 *
 * The content of a row is a pure function of (seed, epoch, position): a bad sample is detected
 * again each time it is read, and the set of known bad ones only avoids repeats in the log and the
 * count. If it were used to skip work, a sample that decodes for one crop but not for another would
 * make the data depend on which thread read it first. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/trace.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "data/mix.h"

enum { NAME_MAX_BYTES = 512, GREY = 128 };

/* Rows row .. row + unit - 1 of a slot. */
struct task {
    struct dt_slot *slot;
    int row;
};

/* The n rows of a micro-batch: positions first .. first+n_valid-1 in the order of the epoch. */
struct rows {
    uint64_t first;
    int n, n_valid, canvas;
};

static struct rows rows_of(const struct dt_loader *loader, uint32_t epoch, uint64_t m)
{
    const struct dt_split *split = &loader->options.split;
    const uint64_t n_passes = (uint64_t)split->n_passes;
    const struct dt_sampler_batch *batch = &loader->order[epoch % 2].batches[m / n_passes];
    const int part = split->first + (int)(m % n_passes);
    const int first = dt_split_first(split, part), n = dt_split_first(split, part + 1) - first;
    const int left = (int)batch->n - first;
    return (struct rows){
        .first = batch->first + (uint64_t)first,
        .n = n,
        .n_valid = left < 0   ? 0
                   : left < n ? left
                              : n,
        .canvas = batch->canvas,
    };
}

void dt_loader_wrap(struct dt_position *position, const struct dt_loader *loader)
{
    if (position->m < loader->end)
        return;
    position->m = 0;
    position->lap++;
    position->epoch += loader->options.train;
}

/* --- Bad samples --- */

dt_status dt_loader_check_bad(const struct dt_loader *loader, uint64_t n_bad)
{
    return dt_bad_fraction_check(n_bad, loader->n_samples, loader->options.data->max_bad_fraction,
                                 loader->options.train);
}

/* Counts a bad sample, and logs it the first time; fails if that makes too many. The reason is this
 * thread's error text. `is_own`: this rank's order has it here; it replaces no other bad sample. */
static dt_status note_bad(struct dt_loader *loader, uint32_t id, uint64_t lap, bool is_own)
{
    uint8_t mask = (uint8_t)(1u << (id % 8));
    pthread_mutex_lock(&loader->mutex);
    bool is_new = !(loader->bad[id / 8] & mask);
    loader->bad[id / 8] |= mask;
    loader->n_bad += is_new;
    *(lap == loader->next.lap ? &loader->n_bad_now : &loader->n_bad_ahead) += is_own;
    uint64_t n_bad = loader->n_bad;
    pthread_mutex_unlock(&loader->mutex);
    if (!is_new)
        return DT_OK;
    char name[NAME_MAX_BYTES], reason[DT_LOADER_TEXT_MAX];
    snprintf(reason, sizeof reason, "%s", dt_error_text());
    dt_dataset_name(loader->dataset, id, name, sizeof name);
    dt_log(DT_LOG_WARNING, "bad sample %s: %s; %s", name, reason,
           loader->options.train           ? "replaced by the next sample in the order"
           : loader->max_boxes > 0         ? "it has no detections"
           : !loader->dataset->kind->label ? "it has no prediction"
                                           : "evaluated as a grey image");
    if (dt_loader_check_bad(loader, n_bad) != DT_OK)
        DT_FAIL(DT_ERR_DATA, "%s; the last one is %s: %s", dt_error_text(), name, reason);
    return DT_OK;
}

/* --- One task --- */

/* `id`: the image of the row; NULL = none. */
static void fill_boxes(struct dt_worker *worker, const struct dt_batch *batch, int row,
                       const uint32_t *id)
{
    const struct dt_on_canvas *placement = dt_row_on_canvas(worker->reader);
    const int max = worker->loader->max_boxes;
    float *boxes = batch->boxes + 4 * (size_t)row * (size_t)max;
    int32_t *labels = batch->box_labels + (size_t)row * (size_t)max;
    const int n_truths = id ? dt_dataset_truths(worker->loader->dataset, *id, worker->truths) : 0;
    int n = 0;
    for (int i = 0; i < n_truths; i++) {
        const struct dt_truth *truth = &worker->truths[i];
        if (truth->is_crowd || !dt_on_canvas_box(boxes + 4 * n, placement, truth))
            continue;
        labels[n++] = truth->label;
    }
    memset(boxes + 4 * n, 0, 4 * (size_t)(max - n) * sizeof *boxes);
    for (int i = n; i < max; i++)
        labels[i] = -1;
}

/* All columns but the pixels. */
static void fill_columns(struct dt_worker *worker, const struct dt_batch *batch, int row,
                         const uint32_t *id)
{
    const struct dt_loader *loader = worker->loader;
    const struct dt_dataset *set = loader->dataset;
    const struct dt_on_canvas *placement = dt_row_on_canvas(worker->reader);
    batch->labels[row] = id ? dt_dataset_label(set, *id) : -1;
    batch->labels2[row] = batch->labels[row];
    batch->mix_share[row] = 1;
    batch->sizes[2 * row] = id ? placement->height : batch->height;
    batch->sizes[2 * row + 1] = id ? placement->width : batch->width;
    if (batch->boxes)
        fill_boxes(worker, batch, row, id);
    for (int c = 0; c < DT_N_COLUMNS && id; c++)
        if (set->kind->column[c])
            set->kind->column[c](set, set->ids ? set->ids[*id] : *id,
                                 (char *)batch->column[c] + (size_t)row * loader->column_bytes[c]);
}

/* Reads the sample at `position`, or in training the next usable one of its canvas in the order. */
static dt_status fill_sample(struct dt_worker *worker, struct dt_slot *slot, int row,
                             uint64_t position)
{
    struct dt_loader *loader = worker->loader;
    struct dt_batch *batch = &slot->batch;
    const uint32_t *order = loader->order[batch->epoch % 2].ids;
    uint8_t *pixels = batch->pixels + (size_t)row * slot->row_bytes;
    /* A sample that comes several times is augmented in another way each time. */
    const uint32_t turn = loader->labels ? 1000003u * (uint32_t)(position + 1) : 0;
    batch->ids[row] = order[position];
    for (uint32_t i = 0; i < loader->n_samples; i++) {
        uint32_t id = order[(position + i) % loader->n_samples];
        if (loader->canvas_of && loader->canvas_of[id] != batch->canvas)
            continue;
        dt_status status =
            dt_row_read(worker->reader, pixels, &batch->crops[row], batch->epoch + turn, id);
        fill_columns(worker, batch, row, &id);
        if (status != DT_ERR_DATA)
            return status;
        DT_TRY(note_bad(loader, id, slot->lap, i == 0));
        if (!loader->options.train) {
            memset(pixels, GREY, slot->row_bytes);
            batch->crops[row] = (struct dt_crop){0};
            return DT_OK;
        }
    }
    DT_FAIL(DT_ERR_DATA, "none of the %" PRIu32 " samples of the data set%s is usable",
            loader->n_samples, loader->canvas_of ? " that have this canvas" : "");
}

/* Rows behind the end of an evaluation's set are blank. */
static dt_status fill_row(struct dt_worker *worker, struct dt_slot *slot, int row)
{
    const struct dt_loader *loader = worker->loader;
    const struct dt_batch *batch = &slot->batch;
    const uint32_t epoch = batch->epoch;
    const uint64_t n_passes = (uint64_t)loader->options.split.n_passes;
    const uint64_t m = batch->index * n_passes + (uint64_t)batch->pass;
    if (row >= batch->n) {
        memset(batch->pixels + (size_t)row * slot->row_bytes, 0, slot->row_bytes);
        batch->ids[row] = 0;
        batch->crops[row] = (struct dt_crop){0};
        fill_columns(worker, batch, row, NULL);
        return DT_OK;
    }
    if (m + 1 < loader->end) { /* prefetches the file that is needed one micro-batch later */
        const struct rows next = rows_of(loader, epoch, m + 1);
        if (row < next.n_valid)
            dt_dataset_will_need(loader->dataset,
                                 loader->order[epoch % 2].ids[next.first + (uint64_t)row]);
    }
    return fill_sample(worker, slot, row, rows_of(loader, epoch, m).first + (uint64_t)row);
}

static dt_status run_task(struct dt_worker *worker, const struct task *task)
{
    const struct dt_loader *loader = worker->loader;
    const struct dt_loader_options *o = &loader->options;
    struct dt_slot *slot = task->slot;
    const int row = task->row;
    worker->mix_s = 0;
    for (int i = 0; i < o->split.unit; i++)
        DT_TRY(fill_row(worker, slot, row + i));
    if (o->split.unit == 1)
        return DT_OK;
    const struct dt_batch *batch = &slot->batch;
    double begin_s = dt_clock_s();
    uint8_t *a = batch->pixels + (size_t)row * slot->row_bytes;
    float share = dt_mix_pair(a, a + slot->row_bytes, o->data, o->seed, batch->epoch,
                              batch->ids[row], batch->width);
    batch->labels2[row] = batch->labels[row + 1];
    batch->labels2[row + 1] = batch->labels[row];
    batch->mix_share[row] = batch->mix_share[row + 1] = share;
    worker->mix_s = dt_clock_s() - begin_s;
    dt_trace_span("mix", NULL, NULL, begin_s, begin_s + worker->mix_s);
    return DT_OK;
}

/* --- Worker threads; the mutex is held unless stated otherwise --- */

static void leave_task(struct dt_loader *loader)
{
    if (--loader->n_busy == 0 && (!loader->is_running || loader->failure != DT_OK))
        pthread_cond_broadcast(&loader->done);
}

/* Whether a new micro-batch may be begun: in the lap that the caller has started, or in the next
 * one if the run has one. */
static bool may_begin(const struct dt_loader *loader)
{
    uint32_t n_epochs = loader->options.epochs;
    uint64_t ahead = loader->fill.lap - loader->next.lap;
    return ahead == 0 || (ahead == 1 && (n_epochs == 0 || loader->fill.epoch < n_epochs));
}

static bool has_order(const struct dt_loader *loader)
{
    const struct dt_order *order = &loader->order[loader->fill.epoch % 2];
    return order->is_known && order->epoch == loader->fill.epoch;
}

/* Whether this worker must compute the order of the next epoch. */
static bool lacks_order(const struct dt_loader *loader)
{
    return loader->is_running && loader->fill_row == 0 && may_begin(loader) && !has_order(loader) &&
           !loader->is_ordering && loader->order[loader->fill.epoch % 2].n_users == 0;
}

static void make_order(struct dt_loader *loader)
{
    uint32_t epoch = loader->fill.epoch;
    struct dt_order *order = &loader->order[epoch % 2];
    loader->is_ordering = true;
    loader->n_busy++;
    pthread_mutex_unlock(&loader->mutex);
    const struct dt_loader_options *o = &loader->options;
    dt_sampler_order(order->ids, loader->n_samples, o->seed, epoch, o->train);
    if (loader->labels)
        dt_sampler_balance(order->ids, loader->n_samples, loader->labels,
                           dt_dataset_n_classes(loader->dataset), o->seed, epoch,
                           loader->balancing);
    dt_sampler_batches(order->batches, order->ids, loader->n_samples, (uint32_t)o->split.images,
                       loader->canvas_of, o->canvases.n, !o->train, loader->waiting);
    pthread_mutex_lock(&loader->mutex);
    order->is_known = true;
    order->epoch = epoch;
    loader->is_ordering = false;
    pthread_cond_broadcast(&loader->work);
    leave_task(loader);
}

static void begin_slot(struct dt_loader *loader, struct dt_slot *slot)
{
    const struct dt_loader_options *o = &loader->options;
    const uint64_t m = loader->fill.m;
    const struct rows rows = rows_of(loader, loader->fill.epoch, m);
    const struct dt_canvas canvas = o->canvases.size[rows.canvas];
    slot->state = DT_SLOT_FILLING;
    slot->lap = loader->fill.lap;
    slot->n_rows = slot->n_pending = rows.n;
    slot->row_bytes = 3 * (size_t)canvas.width * (size_t)canvas.height;
    slot->batch.n = rows.n_valid;
    slot->batch.canvas = rows.canvas;
    slot->batch.width = canvas.width;
    slot->batch.height = canvas.height;
    slot->batch.epoch = loader->fill.epoch;
    slot->batch.index = m / (uint64_t)o->split.n_passes;
    slot->batch.pass = (int)(m % (uint64_t)o->split.n_passes);
}

/* Takes the next row for a worker, with mixing a pair of rows. False if there is none now: the
 * loader is not running or has failed, the next slot of the ring is not free, or the next epoch has
 * no order yet or must not be begun (may_begin). Once the last row of a slot is taken, the next
 * slot can be begun, while other workers still fill the first: several slots may be FILLING, and a
 * later one may be READY first, but dt_loader_next gives them to the caller in turn. finish_task
 * makes a slot READY after its last row. n_users keeps the memory of the order until the row is
 * finished, because its worker reads it without the mutex. */
static bool take_task(struct dt_loader *loader, struct task *task)
{
    struct dt_slot *slot = &loader->slots[loader->n_filled % (uint64_t)loader->n_slots];
    if (!loader->is_running || loader->failure != DT_OK)
        return false;
    if (loader->fill_row == 0) {
        if (!may_begin(loader) || !has_order(loader) || slot->state != DT_SLOT_FREE)
            return false;
        begin_slot(loader, slot);
    }
    *task = (struct task){slot, loader->fill_row};
    loader->order[slot->batch.epoch % 2].n_users++;
    loader->fill_row += loader->options.split.unit;
    if (loader->fill_row == slot->n_rows) {
        loader->fill_row = 0;
        loader->n_filled++;
        loader->fill.m++;
        dt_loader_wrap(&loader->fill, loader);
    }
    return true;
}

static void finish_task(struct dt_loader *loader, const struct task *task, dt_status status)
{
    if (status != DT_OK && loader->failure == DT_OK) {
        loader->failure = status;
        snprintf(loader->failure_text, sizeof loader->failure_text, "%s", dt_error_text());
        pthread_cond_broadcast(&loader->done);
    }
    struct dt_order *order = &loader->order[task->slot->batch.epoch % 2];
    if (--order->n_users == 0 && order->epoch != loader->fill.epoch)
        pthread_cond_broadcast(&loader->work); /* a worker may be waiting for its memory */
    task->slot->n_pending -= loader->options.split.unit;
    if (task->slot->n_pending == 0) {
        task->slot->state = DT_SLOT_READY;
        pthread_cond_broadcast(&loader->done);
    }
    leave_task(loader);
}

/* A worker holds the mutex except while it waits, makes an order or fills rows. An order is shared:
 * one worker makes it and the others wait, and no row may still be made with its memory (n_users).
 * A task is taken under the mutex and counted in n_busy, so that dt_loader_start knows when no
 * worker touches a slot any more. */
void *dt_loader_work(void *argument)
{
    struct dt_worker *worker = argument;
    struct dt_loader *loader = worker->loader;
    struct dt_loader_times *times = &loader->times;
    struct task task;
    dt_trace_set_row(loader->options.train ? DT_TRACE_LOADER : DT_TRACE_VAL_LOADER,
                     (int)(worker - loader->workers));
    pthread_mutex_lock(&loader->mutex);
    while (!loader->is_stopping) {
        if (lacks_order(loader)) {
            make_order(loader);
            continue;
        }
        if (!take_task(loader, &task)) {
            const double begin_s = dt_clock_s();
            const bool is_idle = loader->is_running;
            pthread_cond_wait(&loader->work, &loader->mutex);
            times->idle_s += is_idle ? dt_clock_s() - begin_s : 0;
            continue;
        }
        loader->n_busy++;
        pthread_mutex_unlock(&loader->mutex);
        dt_status status = run_task(worker, &task);
        pthread_mutex_lock(&loader->mutex);
        const struct dt_row_times row = dt_row_take_times(worker->reader);
        times->read_s += row.read_s;
        times->decode_s += row.decode_s + row.resize_s + worker->mix_s;
        times->bytes += row.bytes;
        times->images += (uint64_t)loader->options.split.unit;
        finish_task(loader, &task, status);
    }
    pthread_mutex_unlock(&loader->mutex);
    return NULL;
}
