/* The caller's side of the ring of batches: creation, starting epochs, taking and releasing. */
#include "data/loader.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/trace.h"
#include "data/mix.h"

enum { PAGE_BYTES = 4096 };

static dt_status check_options(const struct dt_loader_options *o)
{
    const struct dt_split *split = &o->split;
    const int side = o->canvases.size[0].width;
    if (split->n_passes < 1 || split->unit < 1 || split->first < 0 ||
        split->first + split->n_passes > split->n_parts)
        DT_FAIL(DT_ERR_INTERNAL, "the loader was made for %d of %d parts from %d on",
                split->n_passes, split->n_parts, split->first);
    if (side < 1 || dt_split_min(split) < 1)
        DT_FAIL(DT_ERR_CONFIG, "image size %d and a micro-batch of %d images must be positive",
                side, dt_split_min(split));
    if (o->train && dt_mix_is_on(o->data) && (split->unit != 2 || split->images % 2 != 0))
        DT_FAIL(DT_ERR_CONFIG, "mixing needs an even batch, not %d", split->images);
    if (!o->train && (split->n_passes != 1 || split->images % split->n_parts != 0))
        DT_FAIL(DT_ERR_CONFIG, "an evaluation in batches of %d images cannot use %d ranks alike",
                split->images, split->n_parts);
    return DT_OK;
}

/* --- Creation and destruction --- */

static size_t aligned(size_t bytes)
{
    enum { ALIGN = 64 };
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static dt_status create_slot(struct dt_slot *slot, struct dt_loader *loader)
{
    const size_t n = (size_t)loader->max_rows;
    const struct dt_canvas size = dt_row_canvas(&loader->options);
    const int extent[DT_N_EXTENTS] = {size.height, size.width, loader->max_boxes};
    int dim[4];
    loader->slot_bytes = 0;
    for (enum dt_sample_column c = 0; c < DT_N_COLUMNS; c++) {
        dt_column_shape(dim, c, 1, extent);
        loader->column_bytes[c] = (size_t)dim[1] * (size_t)dim[2] * (size_t)dim[3] *
                                  dt_dtype_bytes(dt_column_row(c)->dtype);
        loader->slot_bytes += aligned(n * loader->column_bytes[c]);
    }
    if (posix_memalign(&slot->memory, PAGE_BYTES, loader->slot_bytes) != 0)
        DT_FAIL(DT_ERR_MEMORY, "out of memory: asked %zu bytes for a batch", loader->slot_bytes);
    memset(slot->memory, 0, loader->slot_bytes);
    char *memory = slot->memory;
    for (int i = 0; i < DT_N_COLUMNS; memory += aligned(n * loader->column_bytes[i++]))
        slot->batch.column[i] = loader->column_bytes[i] > 0 ? memory : NULL;
    slot->batch.slot = (int)(slot - loader->slots);
    DT_TRY(DT_NEW(slot->batch.ids, n));
    return DT_NEW(slot->batch.crops, n);
}

static dt_status start_workers(struct dt_loader *loader)
{
    DT_TRY(DT_NEW(loader->workers, (size_t)loader->n_workers));
    for (; loader->n_started < loader->n_workers; loader->n_started++) {
        struct dt_worker *worker = &loader->workers[loader->n_started];
        worker->loader = loader;
        DT_TRY(dt_row_reader_create(&worker->reader, loader->dataset, &loader->options));
        DT_TRY(DT_NEW(worker->truths, (size_t)loader->max_boxes + 1));
        const int error = dt_thread_start(&worker->thread, "dt-loader", dt_loader_work, worker);
        if (error)
            DT_FAIL(DT_ERR_MEMORY,
                    "cannot start loader thread %d of %d: %s; lower data.workers or raise the "
                    "limit on processes",
                    loader->n_started + 1, loader->n_workers, strerror(error));
    }
    return DT_OK;
}

void dt_loader_count(uint32_t n[DT_MAX_CANVASES], uint8_t *canvas_of,
                     const struct dt_dataset *dataset, const struct dt_config_data *data,
                     const struct dt_canvases *canvases)
{
    const struct dt_layout layout = {data, *canvases};
    const uint32_t n_samples = dt_dataset_size(dataset);
    struct dt_image_info info;
    memset(n, 0, DT_MAX_CANVASES * sizeof *n);
    if (canvases->n < 2)
        n[0] = n_samples;
    for (uint32_t id = 0; id < n_samples && canvases->n > 1; id++) {
        dt_dataset_image(dataset, id, &info);
        const int canvas = dt_canvas_choose(&layout, info.width, info.height);
        n[canvas]++;
        if (canvas_of)
            canvas_of[id] = (uint8_t)canvas;
    }
}

/* Batches of an epoch, and which canvas each sample has. */
static dt_status count_batches(struct dt_loader *loader)
{
    const struct dt_loader_options *o = &loader->options;
    const uint32_t batch = (uint32_t)o->split.images;
    uint32_t n[DT_MAX_CANVASES];
    if (o->canvases.n > 1)
        DT_TRY(DT_NEW(loader->canvas_of, loader->n_samples));
    dt_loader_count(n, loader->canvas_of, loader->dataset, o->data, &o->canvases);
    for (int i = 0; i < DT_MAX_CANVASES; i++)
        loader->n_batches += n[i] / batch + (!o->train && n[i] % batch != 0);
    if (o->train && loader->n_batches == 0)
        DT_FAIL(DT_ERR_CONFIG,
                "the training set has %" PRIu32 " samples, less than one global batch of %d%s",
                loader->n_samples, o->split.images, o->canvases.n > 1 ? " on each canvas" : "");
    loader->end = (uint64_t)o->split.n_passes * loader->n_batches;
    loader->next.m = loader->end; /* no epoch is started */
    return DT_OK;
}

static dt_status note_labels(struct dt_loader *loader)
{
    const size_t n = loader->n_samples;
    DT_TRY(DT_NEW(loader->labels, n));
    DT_TRY(DT_NEW(loader->balancing, n + 3 * (size_t)dt_dataset_n_classes(loader->dataset)));
    for (uint32_t id = 0; id < n; id++)
        loader->labels[id] = dt_dataset_label(loader->dataset, id);
    return DT_OK;
}

dt_status dt_loader_create(struct dt_loader **loader, struct dt_dataset *dataset,
                           const struct dt_loader_options *options)
{
    dt_status status = DT_OK;
    struct dt_loader *made = NULL;
    *loader = NULL;
    DT_TRY(check_options(options));
    DT_TRY(DT_NEW(made, 1));
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->work, NULL);
    pthread_cond_init(&made->done, NULL);
    made->dataset = dataset;
    made->options = *options;
    made->n_samples = dt_dataset_size(dataset);
    made->max_rows = dt_split_max(&options->split);
    made->max_boxes = dt_dataset_max_boxes(dataset);
    made->n_slots = options->data->prefetch > 2 ? options->data->prefetch : 2;
    made->n_workers = options->workers > 1 ? options->workers : 1;
    DT_TRY_OUT(count_batches(made));
    for (int i = 0; i < 2; i++) {
        DT_TRY_OUT(DT_NEW(made->order[i].ids, made->n_samples));
        DT_TRY_OUT(DT_NEW(made->order[i].batches, (size_t)made->n_batches));
    }
    DT_TRY_OUT(DT_NEW(made->waiting, (size_t)(options->canvases.n * options->split.images)));
    if (options->train && options->data->sampler == DT_SAMPLING_BALANCED)
        DT_TRY_OUT(note_labels(made));
    DT_TRY_OUT(DT_NEW(made->bad, (size_t)made->n_samples / 8 + 1));
    DT_TRY_OUT(DT_NEW(made->slots, (size_t)made->n_slots));
    for (int i = 0; i < made->n_slots; i++)
        DT_TRY_OUT(create_slot(&made->slots[i], made));
    DT_TRY_OUT(start_workers(made));
    *loader = made;
    return DT_OK;
out:
    dt_loader_destroy(made);
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
    for (int i = 0; loader->workers && i < loader->n_workers; i++) {
        dt_row_reader_destroy(loader->workers[i].reader);
        free(loader->workers[i].truths);
    }
    for (int i = 0; loader->slots && i < loader->n_slots; i++) {
        free(loader->slots[i].memory);
        free(loader->slots[i].batch.ids);
        free(loader->slots[i].batch.crops);
    }
    free(loader->workers);
    free(loader->slots);
    for (int i = 0; i < 2; i++) {
        free(loader->order[i].ids);
        free(loader->order[i].batches);
    }
    free(loader->canvas_of);
    free(loader->waiting);
    free(loader->labels);
    free(loader->balancing);
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

/* Waits for rows in flight to finish, which takes milliseconds: nothing else may touch a slot while
 * a worker fills it. The mutex is held. */
static void drop_all(struct dt_loader *loader)
{
    loader->is_running = false;
    while (loader->n_busy > 0)
        pthread_cond_wait(&loader->done, &loader->mutex);
    for (int i = 0; i < loader->n_slots; i++)
        loader->slots[i].state = DT_SLOT_FREE;
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
    /* Whether the workers have prefetched from this start, so that their batches can be kept. */
    bool is_prefetched = loader->is_running && first == 0 && loader->next.m == loader->end &&
                         loader->end > 0 && epoch == loader->next.epoch + loader->options.train;
    if (!is_prefetched)
        drop_all(loader);
    loader->next = (struct dt_position){.epoch = epoch,
                                        .lap = loader->next.lap + 1,
                                        .m = first * (uint64_t)loader->options.split.n_passes};
    if (!is_prefetched) {
        loader->fill = loader->next;
        dt_loader_wrap(&loader->fill, loader);
    }
    loader->is_fresh = !is_prefetched;
    loader->n_bad_before = loader->n_bad_now;
    loader->n_bad_now = loader->n_bad_ahead;
    loader->n_bad_ahead = 0;
    loader->is_running = loader->end > 0;
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->mutex);
    return DT_OK;
}

/* --- The caller's side --- */

/* Waits until `slot` is ready, or the loader has failed and nothing is being filled any more; the
 * mutex is held. */
static void wait_for(struct dt_loader *loader, const struct dt_slot *slot)
{
    if (slot->state == DT_SLOT_READY)
        return;
    double begin_s = dt_clock_s();
    while (slot->state != DT_SLOT_READY && (loader->failure == DT_OK || loader->n_busy > 0))
        pthread_cond_wait(&loader->done, &loader->mutex);
    double wait_s = dt_clock_s() - begin_s;
    dt_trace_span("wait for data", NULL, NULL, begin_s, begin_s + wait_s);
    loader->times.wait_s += wait_s;
    if (!loader->is_fresh && wait_s > loader->times.longest_wait_s)
        loader->times.longest_wait_s = wait_s;
}

dt_status dt_loader_next(struct dt_loader *loader, const struct dt_batch **batch)
{
    dt_status status = DT_OK;
    *batch = NULL;
    pthread_mutex_lock(&loader->mutex);
    struct dt_slot *slot = &loader->slots[loader->n_given % (uint64_t)loader->n_slots];
    if (loader->next.m < loader->end && slot->state == DT_SLOT_HELD) {
        status = DT_ERROR(DT_ERR_INTERNAL, "all %d batches of the loader are held by the caller",
                          loader->n_slots);
    } else if (loader->next.m < loader->end) {
        wait_for(loader, slot);
        loader->is_fresh = false;
        if (loader->failure != DT_OK)
            status = DT_ERROR(loader->failure, "%s", loader->failure_text);
        slot->state = DT_SLOT_HELD;
        loader->next.m += status == DT_OK;
        loader->n_given += status == DT_OK;
        *batch = &slot->batch;
    }
    pthread_mutex_unlock(&loader->mutex);
    return status;
}

void dt_loader_release(struct dt_loader *loader, const struct dt_batch *batch)
{
    struct dt_slot *slot = &loader->slots[batch->slot];
    pthread_mutex_lock(&loader->mutex);
    /* Otherwise dt_loader_start has dropped the batch's epoch. */
    if (slot->state == DT_SLOT_HELD) {
        slot->state = DT_SLOT_FREE;
        pthread_cond_broadcast(&loader->work);
    }
    pthread_mutex_unlock(&loader->mutex);
}

/* The order of the caller's epoch does not change while it holds a batch of it. */
double dt_loader_weigh(const struct dt_loader *loader, const struct dt_batch *batch,
                       const float *class_weights)
{
    const uint32_t *ids = loader->order[batch->epoch % 2].ids;
    const uint64_t n = (uint64_t)loader->options.split.images, first = batch->index * n;
    double sum = 0;
    for (uint64_t i = first; i < first + n; i++)
        sum += (double)class_weights[dt_dataset_label(loader->dataset, ids[i])];
    return sum;
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

void dt_loader_bad_positions(const struct dt_loader *loader, uint64_t *now, uint64_t *before)
{
    pthread_mutex_lock((pthread_mutex_t *)&loader->mutex);
    *now = loader->n_bad_now;
    *before = loader->n_bad_before;
    pthread_mutex_unlock((pthread_mutex_t *)&loader->mutex);
}
