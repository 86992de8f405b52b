/* Measures where a loader's worker spends its time. The loader's code makes the rows, and its
 * clocks are read after each; the time of entropy decoding is that of a second pass over the same
 * bytes without making pixels. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "data/row.h"
#include "dtrain/data.h"

struct measurement {
    struct dt_row_reader *reader;
    uint32_t *order;
    uint8_t *pixels;
};

/* Bad samples are skipped. */
static dt_status measure_row(struct dt_input_stages *stages, struct measurement *m, uint32_t id)
{
    struct dt_crop crop;
    dt_status status = dt_row_read(m->reader, m->pixels, &crop, 0, id);
    struct dt_row_times times = dt_row_take_times(m->reader);
    double begin_s = dt_clock_s();
    if (status == DT_OK)
        status = dt_row_skim(m->reader);
    double entropy_s = dt_clock_s() - begin_s;
    if (status == DT_ERR_DATA)
        return DT_OK;
    DT_TRY(status);
    /* For finished pixels, or by noise if the transform is short. */
    if (entropy_s > times.decode_s)
        entropy_s = times.decode_s;
    stages->images++;
    stages->bytes += times.bytes;
    stages->read_s += times.read_s;
    stages->entropy_s += entropy_s;
    stages->transform_s += times.decode_s - entropy_s;
    stages->resize_s += times.resize_s;
    return DT_OK;
}

dt_status dt_input_measure(struct dt_input_stages *out, const struct dt_dataset *dataset,
                           const struct dt_loader_options *options, uint32_t first, uint32_t n)
{
    dt_status status = DT_OK;
    struct measurement m = {0};
    uint32_t n_samples = dt_dataset_size(dataset);
    *out = (struct dt_input_stages){0};
    if (n > n_samples || first > n_samples - n)
        DT_FAIL(DT_ERR_INTERNAL, "cannot measure positions %u to %u of a data set of %u",
                (unsigned)first, (unsigned)(first + n), (unsigned)n_samples);
    DT_TRY_OUT(DT_NEW(m.pixels, dt_row_bytes(options)));
    DT_TRY_OUT(DT_NEW(m.order, n_samples));
    DT_TRY_OUT(dt_row_reader_create(&m.reader, dataset, options));
    dt_sampler_order(m.order, n_samples, options->seed, 0, options->train);
    for (uint32_t i = 0; i < n; i++)
        DT_TRY_OUT(measure_row(out, &m, m.order[first + i]));
out:
    dt_row_reader_destroy(m.reader);
    free(m.order);
    free(m.pixels);
    return status;
}

dt_status dt_dataset_try(const struct dt_dataset *dataset, uint32_t id, int image_size)
{
    const struct dt_config_data data = {.val_resize = image_size};
    struct dt_loader_options options = {
        .data = &data,
        .image_size = image_size,
        .canvases = {{{image_size, image_size}}, dt_dataset_max_boxes(dataset) > 0},
    };
    struct dt_row_reader *reader = NULL;
    struct dt_crop crop;
    uint8_t *pixels = NULL;
    dt_status status = DT_OK;
    DT_TRY_OUT(DT_NEW(pixels, (size_t)image_size * (size_t)image_size * 3));
    DT_TRY_OUT(dt_row_reader_create(&reader, dataset, &options));
    DT_TRY_OUT(dt_row_read(reader, pixels, &crop, 0, id));
out:
    dt_row_reader_destroy(reader);
    free(pixels);
    return status;
}
