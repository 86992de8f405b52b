/* Samples that are single files, and the kind of data set that is a list of them without labels,
 * for dtrain predict. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/names.h"
#include "data/dataset.h"
#include "image/decode.h"

enum { PATH_BYTES = 2 * DT_PATH_MAX };

bool dt_files_is_image(const char *name)
{
    const char *suffix = strrchr(name, '.');
    return suffix && dt_is_image_suffix(suffix + 1);
}

dt_status dt_files_read(const struct dt_dataset *dataset, uint32_t id, struct dt_sample *sample)
{
    char path[PATH_BYTES];
    uint64_t bytes = 0;
    int fd = -1;
    dataset->kind->name(dataset, id, path, sizeof path);
    DT_TRY(dt_file_open(&fd, &bytes, path));
    dt_status status = dt_sample_read(sample, fd, 0, bytes, path);
    close(fd);
    return status;
}

void dt_files_forget(const struct dt_dataset *dataset)
{
    char path[PATH_BYTES];
    for (uint32_t id = 0; id < dataset->n; id++) {
        dataset->kind->name(dataset, id, path, sizeof path);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue;
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
}

/* --- The list --- */

struct list {
    const struct dt_names *images;
    struct dt_image_info *info; /* for a detector: of each image; NULL = unknown */
};

/* Width and height from the headers; 1 x 1 if there is none, as the loader finds the image bad
 * then.
 */
static dt_status read_sizes(struct dt_dataset *dataset)
{
    struct list *list = dataset->state;
    struct dt_sample sample = {0};
    struct dt_decoder *decoder = NULL;
    const double start_s = dt_clock_s();
    dt_status status = DT_OK;
    DT_TRY_OUT(DT_NEW(list->info, dataset->n));
    DT_TRY_OUT(dt_dataset_decoder(&decoder, dataset));
    for (uint32_t id = 0; id < dataset->n; id++) {
        struct dt_image_info *info = &list->info[id];
        status = dt_files_read(dataset, id, &sample);
        if (status == DT_OK)
            status =
                dt_decoder_open(decoder, &info->width, &info->height, sample.data, sample.bytes);
        if (status == DT_ERR_MEMORY)
            goto out;
        if (status != DT_OK)
            info->width = info->height = 1;
        info->id = id;
        dt_error_clear();
        dt_log_progress_of("reading sizes", id + 1, dataset->n, "images", start_s);
    }
    dt_log_progress("");
    status = DT_OK;
out:
    dt_decoder_destroy(decoder);
    free(sample.data);
    return status;
}

static dt_status open_list(struct dt_dataset *dataset, const struct dt_dataset_options *options)
{
    struct list *list;
    if (options->num_classes == 0 && (!options->classes || options->classes->n == 0))
        DT_FAIL(DT_ERR_CONFIG,
                "the weights hold no names of classes: set model.num_classes to their number");
    DT_TRY(DT_NEW(list, 1));
    list->images = options->images;
    dataset->state = list;
    dataset->n = (uint32_t)options->images->n;
    dataset->n_classes = 1;
    dataset->max_boxes = options->targets == DT_COLUMN_BOXES; /* although none is there */
    return dataset->max_boxes > 0 ? read_sizes(dataset) : DT_OK;
}

static void close_list(struct dt_dataset *dataset)
{
    struct list *list = dataset->state;
    free(list->info);
    free(list);
}

static void image_list(const struct dt_dataset *dataset, uint32_t id, struct dt_image_info *out)
{
    *out = ((const struct list *)dataset->state)->info[id];
}

static void name_list(const struct dt_dataset *dataset, uint32_t id, char *out, size_t bytes)
{
    snprintf(out, bytes, "%s", dt_names_get(((const struct list *)dataset->state)->images, id));
}

const struct dt_dataset_kind dt_dataset_list = {.open = open_list,
                                                .read = dt_files_read,
                                                .image = image_list,
                                                .name = name_list,
                                                .close = close_list};
