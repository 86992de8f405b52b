/* Makes the training rows of a detector from annotations of COCO, for
 * detect_input_vs_torchvision.py: on canvases of 1344 x 800 and 800 x 1344, at 800/1333, flipped.
 * One JSON line on standard output: images, seconds of CPU time and by the clock.
 *
 *     canvas_tool ANNOTATIONS EPOCH LAPS [warp] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "data/row.h"

enum { SEED = 1 };

static double cpu_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Images that cannot be read are left out; there are none in a complete set. */
static dt_status make_rows(struct dt_row_reader *reader, uint8_t *pixels, uint32_t n,
                           uint32_t epoch, uint32_t laps)
{
    struct dt_crop crop;
    const double begin_cpu_s = cpu_s(), begin_s = dt_clock_s();
    for (uint32_t lap = 0; lap < laps; lap++)
        for (uint32_t id = 0; id < n; id++)
            DT_TRY(dt_row_read(reader, pixels, &crop, epoch + lap, id));
    printf("{\"images\": %u, \"cpu_s\": %.6f, \"clock_s\": %.6f}\n", n * laps,
           cpu_s() - begin_cpu_s, dt_clock_s() - begin_s);
    return DT_OK;
}

static dt_status measure(const char *path, uint32_t epoch, uint32_t laps, double warp)
{
    const struct dt_config_data data = {.source = DT_SOURCE_AUTO,
                                        .augment = DT_AUGMENT_IMAGENET,
                                        .min_side = 800,
                                        .max_side = 1333,
                                        .rotate = warp,
                                        .scale = warp};
    const struct dt_dataset_options set = {.data = &data, .path = path, .detects = true};
    const struct dt_loader_options options = {.train = true,
                                              .data = &data,
                                              .canvases = {{1344, 800}, {800, 1344}},
                                              .n_canvases = 2,
                                              .seed = SEED};
    struct dt_dataset *dataset = NULL;
    struct dt_row_reader *reader = NULL;
    uint8_t *pixels = NULL;
    dt_status status = DT_OK;
    DT_TRY_OUT(dt_dataset_open(&dataset, &set));
    DT_TRY_OUT(DT_NEW(pixels, dt_row_bytes(&options)));
    DT_TRY_OUT(dt_row_reader_create(&reader, dataset, &options));
    DT_TRY_OUT(make_rows(reader, pixels, dt_dataset_size(dataset), epoch, laps));
out:
    dt_row_reader_destroy(reader);
    free(pixels);
    dt_dataset_close(dataset);
    return status;
}

int main(int n_args, char **args)
{
    const bool warps = n_args > 4 && strcmp(args[4], "warp") == 0;
    if (n_args < 4 ||
        measure(args[1], (uint32_t)atoi(args[2]), (uint32_t)atoi(args[3]), warps ? 0.1 : 0)) {
        fprintf(stderr, "canvas_tool ANNOTATIONS EPOCH LAPS [warp]: %s\n", dt_error_text());
        return 1;
    }
    return 0;
}
