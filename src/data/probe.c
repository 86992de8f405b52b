/* Whether samples can be decoded. Measures where a loader's worker spends its time. The loader's
 * code makes the rows, and its clocks are read after each; the time of entropy decoding is that of
 * a second pass over the same bytes without making pixels. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/names.h"
#include "base/pulse.h"
#include "base/thread.h"
#include "data/dataset.h"
#include "data/row.h"
#include "image/decode.h"

dt_status dt_input_measure(struct dt_input_stages *out, const struct dt_dataset *dataset,
                           const struct dt_loader_options *options, uint32_t first, uint32_t n)
{
    dt_status status = DT_OK;
    struct dt_row_reader *reader = NULL;
    uint32_t *order = NULL;
    uint8_t *pixels = NULL;
    struct dt_crop crop;
    const struct dt_canvas size = dt_row_canvas(options);
    uint32_t n_samples = dt_dataset_size(dataset);
    *out = (struct dt_input_stages){0};
    if (n > n_samples || first > n_samples - n)
        DT_FAIL(DT_ERR_INTERNAL, "cannot measure positions %u to %u of a data set of %u",
                (unsigned)first, (unsigned)(first + n), (unsigned)n_samples);
    DT_TRY_OUT(DT_NEW(pixels, 3 * (size_t)size.width * (size_t)size.height));
    DT_TRY_OUT(DT_NEW(order, n_samples));
    DT_TRY_OUT(dt_row_reader_create(&reader, dataset, options));
    dt_sampler_order(order, n_samples, options->seed, 0, options->train);
    for (uint32_t i = 0; i < n; i++) {
        status = dt_row_read(reader, pixels, &crop, 0, order[first + i]);
        const struct dt_row_times times = dt_row_take_times(reader);
        const double begin_s = dt_clock_s();
        if (status == DT_OK)
            status = dt_row_skim(reader);
        /* Longer than decoding for finished pixels, or by noise if the transform is short. */
        const double entropy_s = fmin(dt_clock_s() - begin_s, times.decode_s);
        if (status == DT_ERR_DATA) {
            status = DT_OK; /* bad samples are skipped */
            continue;
        }
        DT_TRY_OUT(status);
        out->images++;
        out->bytes += times.bytes;
        out->read_s += times.read_s;
        out->entropy_s += entropy_s;
        out->transform_s += times.decode_s - entropy_s;
        out->resize_s += times.resize_s;
    }
out:
    dt_row_reader_destroy(reader);
    free(order);
    free(pixels);
    return status;
}

/* --- Checks --- */

struct checking {
    struct dt_image_check *check;
    const struct dt_dataset *dataset;
    struct tool {
        struct dt_decoder *decoder;
        struct dt_sample sample;
    } * tools;
    double begin_s;
    pthread_mutex_t lock; /* guards bad and notes of the check */
};

static dt_status decode_whole(struct checking *c, struct tool *tool, uint32_t id)
{
    struct dt_image_info info = {0};
    dt_status status = DT_OK;
    int width, height;
    DT_TRY(dt_dataset_read(c->dataset, id, &tool->sample));
    if (c->check->hashes)
        c->check->hashes[id] = XXH3_64bits(tool->sample.data, tool->sample.bytes);
    DT_TRY(dt_decoder_open(tool->decoder, &width, &height, tool->sample.data, tool->sample.bytes));
    if (dt_dataset_max_boxes(c->dataset) > 0)
        dt_dataset_image(c->dataset, id, &info);
    if (info.width > 0)
        status = dt_decoder_expect(tool->decoder, info.width, info.height);
    if (status == DT_OK)
        status = dt_decoder_skim(tool->decoder, 0, height);
    pthread_mutex_lock(&c->lock);
    dt_image_notes_add(&c->check->notes, tool->decoder, id);
    pthread_mutex_unlock(&c->lock);
    return status;
}

/* A dt_work. */
static dt_status check_sample(void *context, uint32_t index, int thread)
{
    struct checking *c = context;
    struct dt_image_check *check = c->check;
    const uint32_t id = check->ids ? check->ids[index] : check->first + index * check->step;
    char name[512], line[2048];
    dt_status status = decode_whole(c, &c->tools[thread], id);
    const bool is_bad =
        status == DT_ERR_DATA || (check->lists_all && status != DT_OK && status != DT_ERR_MEMORY);
    if (is_bad) {
        snprintf(line, sizeof line, "%s: %s", dt_dataset_name(c->dataset, id, name, sizeof name),
                 dt_error_text());
        dt_error_clear();
    }
    dt_pulse_beat(&dt_pulse_main);
    pthread_mutex_lock(&c->lock);
    dt_log_progress_of(check->what, (size_t)++check->notes.n, check->n, "images", c->begin_s);
    check->notes.n_bad += is_bad;
    if (is_bad)
        status = dt_names_add(&check->bad, line, strlen(line));
    pthread_mutex_unlock(&c->lock);
    return status;
}

dt_status dt_dataset_check(struct dt_image_check *check, const struct dt_dataset *dataset)
{
    const uint32_t size = dt_dataset_size(dataset);
    struct checking c = {.check = check, .dataset = dataset, .begin_s = dt_clock_s()};
    dt_status status = DT_OK;
    if (check->first >= size || dt_dataset_is_raw(dataset))
        return DT_OK;
    if (!check->ids)
        check->n = (size - check->first - 1) / check->step + 1;
    pthread_mutex_init(&c.lock, NULL); /* cannot fail without attributes */
    const int n_threads = dt_parallel_threads(check->n_threads, check->n);
    DT_TRY_OUT(DT_NEW(c.tools, (size_t)n_threads));
    for (int i = 0; i < n_threads; i++)
        DT_TRY_OUT(dt_dataset_decoder(&c.tools[i].decoder, dataset));
    DT_TRY_OUT(dt_parallel_run(check->n, n_threads, check_sample, &c));
    dt_names_sort(&check->bad);
out:
    dt_log_progress("");
    for (int i = 0; c.tools && i < n_threads; i++) {
        dt_decoder_destroy(c.tools[i].decoder);
        free(c.tools[i].sample.data);
    }
    free(c.tools);
    pthread_mutex_destroy(&c.lock);
    return status;
}

dt_status dt_bad_fraction_check(uint64_t n_bad, uint32_t n, double fraction, bool train)
{
    if ((double)n_bad > fraction * n)
        DT_FAIL(DT_ERR_DATA,
                "%" PRIu64 " of %" PRIu32 " %s images are bad, but data.max_bad_fraction allows "
                "at most %g %% of %" PRIu32 " images (%.0f); repair the data or raise the limit",
                n_bad, n, train ? "training" : "validation", 100 * fraction, n,
                floor(fraction * n));
    return DT_OK;
}
