/* Measures where a loader's worker spends its time. The loader's code makes the rows, and its
 * clocks are read after each; the time of entropy decoding is that of a second pass over the same
 * bytes without making pixels. */
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "data/row.h"
#include "dtrain/data.h"

dt_status dt_input_measure(struct dt_input_stages *out, const struct dt_dataset *dataset,
                           const struct dt_loader_options *options, uint32_t first, uint32_t n)
{
    dt_status status = DT_OK;
    struct dt_row_reader *reader = NULL;
    uint32_t *order = NULL;
    uint8_t *pixels = NULL;
    struct dt_crop crop;
    uint32_t n_samples = dt_dataset_size(dataset);
    *out = (struct dt_input_stages){0};
    if (n > n_samples || first > n_samples - n)
        DT_FAIL(DT_ERR_INTERNAL, "cannot measure positions %u to %u of a data set of %u",
                (unsigned)first, (unsigned)(first + n), (unsigned)n_samples);
    DT_TRY_OUT(DT_NEW(pixels, dt_row_bytes(options)));
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
