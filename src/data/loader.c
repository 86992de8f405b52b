/* The ring of batches. Worker threads take single images (micro-batch, row) in order under one
 * mutex, fill the row without it, and the last row of a micro-batch makes its slot ready. A slot
 * goes FREE -> FILLING -> READY -> HELD (by the caller) -> FREE, and slots are used in turn. Where
 * pairs are mixed a task is two neighbouring rows: positions 2k and 2k+1 of the order belong
 * together for any number of ranks.
 *
 * Behind the last micro-batch of an epoch the workers go on with the first of the next one, whose
 * order one of them computes first; the caller gets those once it has started that epoch.
 *
 * What a row holds is a pure function of (seed, epoch, position): a bad sample is found bad anew
 * each time it is met, and the set of known bad ones only keeps the log and the count free of
 * repeats. If it were used to skip work, a sample that decodes for one crop and not for another
 * would make the data depend on which thread met it first. */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "data/mix.h"
#include "data/row.h"
#include "dtrain/clock.h"
#include "dtrain/data.h"
#include "dtrain/log.h"
#include "dtrain/mem.h"
#include "dtrain/thread.h"

enum { NAME_MAX_BYTES = 512, TEXT_MAX = 2048, GREY = 128, PAGE_BYTES = 4096 };

enum slot_state { SLOT_FREE, SLOT_FILLING, SLOT_READY, SLOT_HELD };

struct slot {
    enum slot_state state;
    uint64_t lap;
    int n_pending; /* rows not yet finished */
    struct dt_batch batch;
    void *memory; /* pixels, labels, labels2 and weights in whole pages, for a device to pin */
    uint8_t *pixels;
    int32_t *labels, *labels2;
    float *weights;
    uint32_t *ids;
    struct dt_crop *crops;
};

struct worker {
    struct dt_loader *loader;
    struct dt_row_reader *reader;
    pthread_t thread;
};

/* Rows row .. row + rows_per_task - 1. */
struct task {
    struct slot *slot;
    int row;
};

/* Micro-batch m of an epoch. Laps count the epochs passed one after the other, which in an
 * evaluation all have the same number. */
struct position {
    uint32_t epoch;
    uint64_t lap, m;
};

/* The order of one epoch. */
struct order {
    uint32_t *ids;
    bool is_known;
    uint32_t epoch;
    int n_users; /* rows being made from it */
};

struct dt_loader {
    struct dt_dataset *dataset;
    struct dt_loader_options options;
    uint32_t n_samples;
    uint64_t n_batches, end; /* global batches and micro-batches of an epoch */
    int n_passes, rows_per_task;
    size_t row_bytes, slot_bytes;
    int n_slots, n_workers, n_started;
    struct slot *slots;
    struct worker *workers;

    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t work;   /* workers: a row may be there to take, or stop */
    pthread_cond_t done;   /* caller: a slot is ready, all workers are idle, or failure */
    bool is_running, is_stopping;
    bool is_ordering;      /* a worker computes an order */
    struct order order[2]; /* of epochs with even and odd numbers; ids change without users only */
    int n_busy;
    struct position fill, next; /* being handed out; to be given to the caller next */
    uint64_t n_filled, n_given; /* micro-batches, ever: they use the slots in turn */
    int fill_row;
    uint8_t *bad; /* one bit per sample */
    uint64_t n_bad;
    uint64_t n_bad_ahead, n_bad_now, n_bad_before; /* own positions: of the lap after that of
                                                      `next`, that one, and the one before */
    bool is_fresh;                                 /* nothing could be made ahead of this wait */
    struct dt_loader_times times;
    dt_status failure; /* the first one; final */
    char failure_text[TEXT_MAX];
};

/* --- The arithmetic of who gets which position --- */

static dt_status check_options(const struct dt_loader_options *o, uint32_t n_samples)
{
    if (o->image_size < 1 || o->micro_batch < 1 || o->global_batch < 1)
        DT_FAIL(DT_ERR_CONFIG, "image size %d, micro batch %d and global batch %d must be positive",
                o->image_size, o->micro_batch, o->global_batch);
    if (o->n_ranks < 1 || o->rank < 0 || o->rank >= o->n_ranks)
        DT_FAIL(DT_ERR_INTERNAL, "the loader was made for rank %d of %d", o->rank, o->n_ranks);
    if ((!o->train || o->augment == DT_AUGMENT_NONE) && o->resize < 1)
        DT_FAIL(DT_ERR_CONFIG, "the shorter side cannot be resized to %d pixels", o->resize);
    if (o->train && dt_mix_is_on(&o->also) && o->micro_batch % 2 != 0)
        DT_FAIL(DT_ERR_CONFIG, "pairs of images cannot be mixed in micro batches of %d",
                o->micro_batch);
    int64_t pass = (int64_t)o->n_ranks * o->micro_batch;
    if (o->global_batch % pass != 0 || (!o->train && o->global_batch != pass))
        DT_FAIL(DT_ERR_CONFIG, "a global batch of %d is not %s %d ranks times micro batches of %d",
                o->global_batch, o->train ? "a multiple of" : "equal to", o->n_ranks,
                o->micro_batch);
    if (o->train && n_samples < (uint32_t)o->global_batch)
        DT_FAIL(DT_ERR_CONFIG,
                "the training set has %" PRIu32 " samples, less than one global batch of %d",
                n_samples, o->global_batch);
    return DT_OK;
}

/* Position in the epoch's order of row 0 of micro-batch m. */
static uint64_t first_position(const struct dt_loader *loader, uint64_t m)
{
    const struct dt_loader_options *o = &loader->options;
    uint64_t batch = m / (uint64_t)loader->n_passes, pass = m % (uint64_t)loader->n_passes;
    uint64_t per_rank = (uint64_t)loader->n_passes * (uint64_t)o->micro_batch;
    return batch * (uint64_t)o->global_batch + (uint64_t)o->rank * per_rank +
           pass * (uint64_t)o->micro_batch;
}

/* From the end of an epoch to the next one; an evaluation is followed by the same one. */
static void wrap(struct position *position, const struct dt_loader *loader)
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
    double fraction = loader->options.max_bad_fraction, limit = fraction * loader->n_samples;
    if ((double)n_bad > limit)
        DT_FAIL(DT_ERR_DATA,
                "%" PRIu64 " of %" PRIu32 " %s images are bad, but data.max_bad_fraction allows "
                "at most %g %% of %" PRIu32 " images (%.0f); repair the data or raise it",
                n_bad, loader->n_samples, loader->options.train ? "training" : "validation",
                100 * fraction, loader->n_samples, floor(limit));
    return DT_OK;
}

/* Logs and counts sample `id` when it is met for the first time; fails above the limit. The reason
 * is this thread's error text. Own: drawn at a position of this rank, not as a replacement. */
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
    char name[NAME_MAX_BYTES], reason[TEXT_MAX];
    snprintf(reason, sizeof reason, "%s", dt_error_text());
    dt_dataset_name(loader->dataset, id, name, sizeof name);
    dt_log(DT_LOG_WARNING, "bad sample %s: %s; %s", name, reason,
           loader->options.train ? "the next one in the order takes its place"
                                 : "a grey image takes its place");
    if (dt_loader_check_bad(loader, n_bad) != DT_OK)
        DT_FAIL(DT_ERR_DATA, "%s; the last one is %s: %s", dt_error_text(), name, reason);
    return DT_OK;
}

/* --- One task --- */

static void fill_blank(struct slot *slot, int row, size_t row_bytes)
{
    memset(slot->pixels + (size_t)row * row_bytes, 0, row_bytes);
    slot->labels[row] = slot->labels2[row] = -1;
    slot->weights[row] = 1;
    slot->ids[row] = 0;
    slot->crops[row] = (struct dt_crop){0};
}

/* The sample at `position`, or in training the next one of the order that can be used. */
static dt_status fill_sample(struct worker *worker, struct slot *slot, int row, uint64_t position)
{
    struct dt_loader *loader = worker->loader;
    const uint32_t *order = loader->order[slot->batch.epoch % 2].ids;
    uint8_t *pixels = slot->pixels + (size_t)row * loader->row_bytes;
    slot->ids[row] = order[position];
    slot->weights[row] = 1;
    for (uint32_t i = 0; i < loader->n_samples; i++) {
        uint32_t id = order[(position + i) % loader->n_samples];
        dt_status status =
            dt_row_read(worker->reader, pixels, &slot->crops[row], slot->batch.epoch, id);
        slot->labels[row] = slot->labels2[row] = dt_dataset_label(loader->dataset, id);
        if (status != DT_ERR_DATA)
            return status;
        DT_TRY(note_bad(loader, id, slot->lap, i == 0));
        if (!loader->options.train) {
            memset(pixels, GREY, loader->row_bytes);
            slot->crops[row] = (struct dt_crop){0};
            return DT_OK;
        }
    }
    DT_FAIL(DT_ERR_DATA, "none of the %" PRIu32 " samples of the data set can be used",
            loader->n_samples);
}

/* Starts reading what will be asked for one micro-batch later. */
static void announce(const struct dt_loader *loader, const struct slot *slot, uint64_t m, int row)
{
    uint64_t position = first_position(loader, m + 1) + (uint64_t)row;
    if (m + 1 < loader->end && position < loader->n_samples)
        dt_dataset_will_need(loader->dataset, loader->order[slot->batch.epoch % 2].ids[position]);
}

static dt_status fill_row(struct worker *worker, struct slot *slot, int row)
{
    const struct dt_loader *loader = worker->loader;
    uint64_t m = slot->batch.index * (uint64_t)loader->n_passes + (uint64_t)slot->batch.pass;
    if (row >= slot->batch.n) {
        fill_blank(slot, row, loader->row_bytes);
        return DT_OK;
    }
    announce(loader, slot, m, row);
    return fill_sample(worker, slot, row, first_position(loader, m) + (uint64_t)row);
}

static void mix_pair(const struct dt_loader *loader, struct slot *slot, int row)
{
    const struct dt_loader_options *o = &loader->options;
    uint8_t *a = slot->pixels + (size_t)row * loader->row_bytes;
    float weight = dt_mix_pair(a, a + loader->row_bytes, &o->also, o->seed, slot->batch.epoch,
                               slot->ids[row], o->image_size);
    slot->labels2[row] = slot->labels[row + 1];
    slot->labels2[row + 1] = slot->labels[row];
    slot->weights[row] = slot->weights[row + 1] = weight;
}

static dt_status run_task(struct worker *worker, const struct task *task)
{
    const struct dt_loader *loader = worker->loader;
    for (int i = 0; i < loader->rows_per_task; i++)
        DT_TRY(fill_row(worker, task->slot, task->row + i));
    if (loader->rows_per_task == 2)
        mix_pair(loader, task->slot, task->row);
    return DT_OK;
}

/* --- Worker threads; the mutex is held where nothing else is said --- */

static void leave(struct dt_loader *loader)
{
    if (--loader->n_busy == 0 && !loader->is_running)
        pthread_cond_broadcast(&loader->done);
}

/* Whether a new micro-batch may be begun; at most one lap ahead of the caller. */
static bool may_begin(const struct dt_loader *loader)
{
    uint32_t n_epochs = loader->options.epochs;
    return loader->fill.lap <= loader->next.lap + 1 &&
           (n_epochs == 0 || loader->fill.epoch < n_epochs);
}

static bool has_order(const struct dt_loader *loader)
{
    const struct order *order = &loader->order[loader->fill.epoch % 2];
    return order->is_known && order->epoch == loader->fill.epoch;
}

/* Whether this worker is to compute the order of the epoch that comes next. */
static bool lacks_order(const struct dt_loader *loader)
{
    return loader->is_running && loader->fill_row == 0 && may_begin(loader) && !has_order(loader) &&
           !loader->is_ordering && loader->order[loader->fill.epoch % 2].n_users == 0;
}

static void make_order(struct dt_loader *loader)
{
    uint32_t epoch = loader->fill.epoch;
    struct order *order = &loader->order[epoch % 2];
    loader->is_ordering = true;
    loader->n_busy++;
    pthread_mutex_unlock(&loader->mutex);
    dt_sampler_order(order->ids, loader->n_samples, loader->options.seed, epoch,
                     loader->options.train);
    pthread_mutex_lock(&loader->mutex);
    order->is_known = true;
    order->epoch = epoch;
    loader->is_ordering = false;
    pthread_cond_broadcast(&loader->work);
    leave(loader);
}

static void begin_slot(struct dt_loader *loader, struct slot *slot)
{
    uint64_t m = loader->fill.m, position = first_position(loader, m);
    uint64_t left = position < loader->n_samples ? loader->n_samples - position : 0;
    int micro_batch = loader->options.micro_batch;
    slot->state = SLOT_FILLING;
    slot->lap = loader->fill.lap;
    slot->n_pending = micro_batch;
    slot->batch.n = left < (uint64_t)micro_batch ? (int)left : micro_batch;
    slot->batch.epoch = loader->fill.epoch;
    slot->batch.index = m / (uint64_t)loader->n_passes;
    slot->batch.pass = (int)(m % (uint64_t)loader->n_passes);
}

static bool take_task(struct dt_loader *loader, struct task *task)
{
    struct slot *slot = &loader->slots[loader->n_filled % (uint64_t)loader->n_slots];
    if (!loader->is_running || loader->failure != DT_OK)
        return false;
    if (loader->fill_row == 0) {
        if (!may_begin(loader) || !has_order(loader) || slot->state != SLOT_FREE)
            return false;
        begin_slot(loader, slot);
    }
    *task = (struct task){slot, loader->fill_row};
    loader->order[slot->batch.epoch % 2].n_users++;
    loader->fill_row += loader->rows_per_task;
    if (loader->fill_row == loader->options.micro_batch) {
        loader->fill_row = 0;
        loader->n_filled++;
        loader->fill.m++;
        wrap(&loader->fill, loader);
    }
    return true;
}

static void count_times(struct dt_loader *loader, struct worker *worker)
{
    struct dt_row_times times = dt_row_take_times(worker->reader);
    loader->times.read_s += times.read_s;
    loader->times.decode_s += times.decode_s;
    loader->times.bytes += times.bytes;
    loader->times.images += (uint64_t)loader->rows_per_task;
}

static void finish_task(struct dt_loader *loader, const struct task *task, dt_status status)
{
    if (status != DT_OK && loader->failure == DT_OK) {
        loader->failure = status;
        snprintf(loader->failure_text, sizeof loader->failure_text, "%s", dt_error_text());
        pthread_cond_broadcast(&loader->done);
    }
    struct order *order = &loader->order[task->slot->batch.epoch % 2];
    if (--order->n_users == 0 && order->epoch != loader->fill.epoch)
        pthread_cond_broadcast(&loader->work); /* its memory may be waited for */
    task->slot->n_pending -= loader->rows_per_task;
    if (task->slot->n_pending == 0) {
        task->slot->state = SLOT_READY;
        pthread_cond_broadcast(&loader->done);
    }
    leave(loader);
}

static void wait_for_work(struct dt_loader *loader)
{
    bool is_idle = loader->is_running;
    double begin_s = dt_clock_s();
    pthread_cond_wait(&loader->work, &loader->mutex);
    if (is_idle)
        loader->times.idle_s += dt_clock_s() - begin_s;
}

/* Takes the mutex itself. */
static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    struct dt_loader *loader = worker->loader;
    struct task task;
    pthread_mutex_lock(&loader->mutex);
    while (!loader->is_stopping) {
        if (lacks_order(loader)) {
            make_order(loader);
            continue;
        }
        if (!take_task(loader, &task)) {
            wait_for_work(loader);
            continue;
        }
        loader->n_busy++;
        pthread_mutex_unlock(&loader->mutex);
        dt_status status = run_task(worker, &task);
        pthread_mutex_lock(&loader->mutex);
        count_times(loader, worker);
        finish_task(loader, &task, status);
    }
    pthread_mutex_unlock(&loader->mutex);
    return NULL;
}

/* --- Life --- */

static size_t aligned(size_t bytes)
{
    enum { ALIGN = 64 };
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static dt_status create_slot(struct slot *slot, const struct dt_loader *loader)
{
    size_t n = (size_t)loader->options.micro_batch, labels = aligned(n * sizeof *slot->labels);
    if (posix_memalign(&slot->memory, PAGE_BYTES, loader->slot_bytes) != 0)
        DT_FAIL(DT_ERR_MEMORY, "out of memory: asked %zu bytes for a batch", loader->slot_bytes);
    memset(slot->memory, 0, loader->slot_bytes);
    char *memory = slot->memory, *after = memory + aligned(n * loader->row_bytes);
    slot->pixels = (void *)memory;
    slot->labels = (void *)after;
    slot->labels2 = (void *)(after + labels);
    slot->weights = (void *)(after + 2 * labels);
    DT_TRY(DT_NEW(slot->ids, n));
    DT_TRY(DT_NEW(slot->crops, n));
    slot->batch = (struct dt_batch){
        .pixels = slot->pixels,
        .labels = slot->labels,
        .labels2 = slot->labels2,
        .weights = slot->weights,
        .ids = slot->ids,
        .crops = slot->crops,
        .slot = (int)(slot - loader->slots),
    };
    return DT_OK;
}

static dt_status create_slots(struct dt_loader *loader)
{
    size_t n = (size_t)loader->options.micro_batch;
    loader->slot_bytes = aligned(n * loader->row_bytes) + 2 * aligned(n * sizeof(int32_t)) +
                         aligned(n * sizeof(float));
    DT_TRY(DT_NEW(loader->slots, (size_t)loader->n_slots));
    for (int i = 0; i < loader->n_slots; i++)
        DT_TRY(create_slot(&loader->slots[i], loader));
    return DT_OK;
}

static dt_status start_workers(struct dt_loader *loader)
{
    int error = 0;
    DT_TRY(DT_NEW(loader->workers, (size_t)loader->n_workers));
    for (int i = 0; i < loader->n_workers; i++) {
        struct worker *worker = &loader->workers[i];
        worker->loader = loader;
        DT_TRY(dt_row_reader_create(&worker->reader, loader->dataset, &loader->options));
    }
    for (; loader->n_started < loader->n_workers; loader->n_started++) {
        struct worker *worker = &loader->workers[loader->n_started];
        error = dt_thread_start(&worker->thread, "dt-loader", worker_main, worker);
        if (error)
            break;
    }
    if (error)
        DT_FAIL(DT_ERR_MEMORY,
                "cannot start loader thread %d of %d: %s; lower data.workers or the limit on "
                "processes is too small",
                loader->n_started + 1, loader->n_workers, strerror(error));
    return DT_OK;
}

dt_status dt_loader_create(struct dt_loader **loader, struct dt_dataset *dataset,
                           const struct dt_loader_options *options)
{
    dt_status status = DT_OK;
    struct dt_loader *new = NULL;
    uint32_t n = dt_dataset_size(dataset);
    *loader = NULL;
    DT_TRY(check_options(options, n));
    DT_TRY(DT_NEW(new, 1));
    pthread_mutex_init(&new->mutex, NULL);
    pthread_cond_init(&new->work, NULL);
    pthread_cond_init(&new->done, NULL);
    new->dataset = dataset;
    new->options = *options;
    new->n_samples = n;
    new->n_passes = options->global_batch / (options->n_ranks * options->micro_batch);
    new->n_batches = n / (uint64_t)options->global_batch;
    if (!options->train && n % (uint64_t)options->global_batch)
        new->n_batches++;
    new->end = new->n_batches *(uint64_t) new->n_passes;
    new->next.m = new->end; /* nothing is started */
    new->rows_per_task = options->train &&dt_mix_is_on(&options->also) ? 2 : 1;
    new->row_bytes = (size_t)options->image_size *(size_t)options->image_size * 3;
    new->n_slots = options->prefetch > 2 ? options->prefetch : 2;
    new->n_workers = options->workers > 1 ? options->workers : 1;
    DT_TRY_OUT(DT_NEW(new->order[0].ids, n));
    DT_TRY_OUT(DT_NEW(new->order[1].ids, n));
    DT_TRY_OUT(DT_NEW(new->bad, (size_t)n / 8 + 1));
    DT_TRY_OUT(create_slots(new));
    DT_TRY_OUT(start_workers(new));
    *loader = new;
    return DT_OK;
out:
    dt_loader_destroy(new);
    return status;
}

void dt_loader_destroy(struct dt_loader *loader)
{
    if (!loader)
        return;
    pthread_mutex_lock(&loader->mutex);
    loader->is_stopping = true;
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->mutex);
    for (int i = 0; i < loader->n_started; i++)
        pthread_join(loader->workers[i].thread, NULL);
    for (int i = 0; loader->workers && i < loader->n_workers; i++)
        dt_row_reader_destroy(loader->workers[i].reader);
    for (int i = 0; loader->slots && i < loader->n_slots; i++) {
        free(loader->slots[i].memory);
        free(loader->slots[i].ids);
        free(loader->slots[i].crops);
    }
    free(loader->workers);
    free(loader->slots);
    free(loader->order[0].ids);
    free(loader->order[1].ids);
    free(loader->bad);
    pthread_cond_destroy(&loader->done);
    pthread_cond_destroy(&loader->work);
    pthread_mutex_destroy(&loader->mutex);
    free(loader);
}

void *dt_loader_memory(const struct dt_loader *loader, int i, size_t *bytes)
{
    *bytes = loader->slot_bytes;
    return i < loader->n_slots ? loader->slots[i].memory : NULL;
}

uint64_t dt_loader_batches(const struct dt_loader *loader)
{
    return loader->n_batches;
}

int dt_loader_passes(const struct dt_loader *loader)
{
    return loader->n_passes;
}

/* The workers have gone on behind the end of the epoch before this one: what they have made stays.
 */
static bool continues(const struct dt_loader *loader, uint32_t epoch, uint64_t first)
{
    return loader->is_running && first == 0 && loader->next.m == loader->end && loader->end > 0 &&
           epoch == loader->next.epoch + loader->options.train;
}

/* Rows in flight are let finish: an image takes milliseconds, and nothing else may touch the slots
 * while a worker does. The mutex is held. */
static void drop_all(struct dt_loader *loader)
{
    loader->is_running = false;
    while (loader->n_busy > 0)
        pthread_cond_wait(&loader->done, &loader->mutex);
    for (int i = 0; i < loader->n_slots; i++)
        loader->slots[i].state = SLOT_FREE;
    loader->n_filled = loader->n_given = 0;
    loader->fill_row = 0;
    loader->n_bad_ahead = 0;
}

dt_status dt_loader_start(struct dt_loader *loader, uint32_t epoch, uint64_t first)
{
    if (first > loader->n_batches)
        DT_FAIL(DT_ERR_INTERNAL, "cannot begin epoch %" PRIu32 " at batch %" PRIu64 " of %" PRIu64,
                epoch, first, loader->n_batches);
    pthread_mutex_lock(&loader->mutex);
    bool goes_on = continues(loader, epoch, first);
    if (!goes_on)
        drop_all(loader);
    loader->next = (struct position){
        .epoch = epoch, .lap = loader->next.lap + 1, .m = first * (uint64_t)loader->n_passes};
    if (!goes_on) {
        loader->fill = loader->next;
        wrap(&loader->fill, loader);
    }
    loader->is_fresh = !goes_on;
    loader->n_bad_before = loader->n_bad_now;
    loader->n_bad_now = loader->n_bad_ahead;
    loader->n_bad_ahead = 0;
    loader->is_running = loader->end > 0;
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->mutex);
    return DT_OK;
}

/* --- The caller's side --- */

/* Waits until `slot` is ready or the loader has failed; the mutex is held. */
static void wait_for(struct dt_loader *loader, const struct slot *slot)
{
    if (slot->state == SLOT_READY || loader->failure != DT_OK)
        return;
    double begin_s = dt_clock_s();
    while (slot->state != SLOT_READY && loader->failure == DT_OK)
        pthread_cond_wait(&loader->done, &loader->mutex);
    double wait_s = dt_clock_s() - begin_s;
    loader->times.wait_s += wait_s;
    if (!loader->is_fresh && wait_s > loader->times.longest_wait_s)
        loader->times.longest_wait_s = wait_s;
}

dt_status dt_loader_next(struct dt_loader *loader, const struct dt_batch **batch)
{
    dt_status status = DT_OK;
    *batch = NULL;
    pthread_mutex_lock(&loader->mutex);
    if (loader->next.m < loader->end) {
        struct slot *slot = &loader->slots[loader->n_given % (uint64_t)loader->n_slots];
        if (slot->state == SLOT_HELD) {
            status =
                DT_ERROR(DT_ERR_INTERNAL, "all %d batches of the loader are held by the caller",
                         loader->n_slots);
        } else {
            wait_for(loader, slot);
            loader->is_fresh = false;
            status = loader->failure;
        }
        if (status == DT_OK) {
            slot->state = SLOT_HELD;
            loader->next.m++;
            loader->n_given++;
            *batch = &slot->batch;
        } else if (loader->failure != DT_OK) {
            DT_ERROR(status, "%s", loader->failure_text);
        }
    }
    pthread_mutex_unlock(&loader->mutex);
    return status;
}

void dt_loader_release(struct dt_loader *loader, const struct dt_batch *batch)
{
    struct slot *slot = &loader->slots[batch->slot];
    pthread_mutex_lock(&loader->mutex);
    if (slot->state == SLOT_HELD) { /* else the epoch it came from was dropped by dt_loader_start */
        slot->state = SLOT_FREE;
        pthread_cond_broadcast(&loader->work);
    }
    pthread_mutex_unlock(&loader->mutex);
}

double dt_loader_wait_s(const struct dt_loader *loader)
{
    return loader->times.wait_s; /* written by the caller's own thread only */
}

void dt_loader_times(const struct dt_loader *loader, struct dt_loader_times *out)
{
    pthread_mutex_lock((pthread_mutex_t *)&loader->mutex);
    *out = loader->times;
    pthread_mutex_unlock((pthread_mutex_t *)&loader->mutex);
    out->workers = loader->n_workers;
}

uint64_t dt_loader_bad(const struct dt_loader *loader)
{
    pthread_mutex_lock((pthread_mutex_t *)&loader->mutex);
    uint64_t n_bad = loader->n_bad;
    pthread_mutex_unlock((pthread_mutex_t *)&loader->mutex);
    return n_bad;
}

void dt_loader_bad_positions(const struct dt_loader *loader, uint64_t *now, uint64_t *before)
{
    pthread_mutex_lock((pthread_mutex_t *)&loader->mutex);
    *now = loader->n_bad_now;
    *before = loader->n_bad_before;
    pthread_mutex_unlock((pthread_mutex_t *)&loader->mutex);
}
