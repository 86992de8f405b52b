/* Sources of `dtrain shard`: a table of images stored in larger files, and the kind of a source,
 * which is detected from the path and its contents. */
#include "pack/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/names.h"
#include "boxes/wds_boxes.h"
#include "data/shard_list.h"

/* --- Images in larger files. Each read opens its file, as there may be more files than a process
 * may have open; the cost is small compared with reading an image. --- */

dt_status dt_images_add(struct dt_images *images, const char *name, uint64_t offset, uint64_t bytes,
                        uint32_t file, int32_t label)
{
    if (images->n >= DT_MAX_SAMPLES)
        DT_FAIL(DT_ERR_DATA, "%s holds more than %d images", dt_names_get(&images->files, file),
                DT_MAX_SAMPLES);
    DT_TRY(DT_GROW(images->image, images->capacity, images->n, "images"));
    DT_TRY(dt_names_add(&images->names, name, strlen(name)));
    images->image[images->n++] = (struct dt_image){
        .offset = offset,
        .bytes = bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX,
        .file = file,
        .name = (uint32_t)(images->names.n - 1),
        .label = label,
    };
    return DT_OK;
}

static int compare_images(const void *a, const void *b, void *names)
{
    return strcmp(dt_names_get(names, ((const struct dt_image *)a)->name),
                  dt_names_get(names, ((const struct dt_image *)b)->name));
}

dt_status dt_images_sort(struct dt_images *images, size_t first)
{
    const size_t n = images->n - first;
    if (n < 2)
        return DT_OK;
    qsort_r(images->image + first, n, sizeof *images->image, compare_images, &images->names);
    for (size_t i = first + 1; i < images->n; i++)
        if (compare_images(&images->image[i - 1], &images->image[i], &images->names) == 0)
            DT_FAIL(DT_ERR_DATA, "%s holds two members named %s",
                    dt_names_get(&images->files, images->image[i].file),
                    dt_names_get(&images->names, images->image[i].name));
    return DT_OK;
}

dt_status dt_images_read(const struct dt_dataset *dataset, uint32_t id, struct dt_sample *sample)
{
    const struct dt_images *images = dataset->state;
    const struct dt_image *image = &images->image[id];
    const char *path = dt_names_get(&images->files, image->file);
    uint64_t file_bytes;
    int fd = -1;
    DT_TRY(dt_file_open(&fd, &file_bytes, path));
    const dt_status status =
        dt_sample_read(sample, fd, image->offset - image->before,
                       (uint64_t)image->before + image->bytes + image->after, path);
    close(fd);
    return status;
}

int dt_images_label(const struct dt_dataset *dataset, uint32_t id)
{
    return ((const struct dt_images *)dataset->state)->image[id].label;
}

void dt_images_name(const struct dt_dataset *dataset, uint32_t id, char *out, size_t bytes)
{
    const struct dt_images *images = dataset->state;
    const struct dt_image *image = &images->image[id];
    snprintf(out, bytes, "%s: %s", dt_names_get(&images->files, image->file),
             dt_names_get(&images->names, image->name));
}

void dt_images_close(struct dt_dataset *dataset)
{
    struct dt_images *images = dataset->state;
    dt_names_reset(&images->files);
    dt_names_reset(&images->names);
    dt_names_reset(&images->classes);
    free(images->image);
    free(images);
}

/* --- The kind of a source --- */

typedef dt_status (*opener)(struct dt_dataset *dataset, const struct dt_shard_options *options);

static const struct dt_dataset_kind ilsvrc = {.read = dt_images_read, DT_IMAGES_FUNCTIONS};
static const struct dt_dataset_kind tfrecord = {.read = dt_tfrecord_read, DT_IMAGES_FUNCTIONS};

/* A kind of training data: class folders, a table, or shards, to repack them with smaller images or
 * another shard size. */
static dt_status open_data(struct dt_dataset *dataset, const struct dt_shard_options *options)
{
    return dataset->kind->open(
        dataset, &(struct dt_dataset_options){.data = options->data, .path = options->src});
}

/* Shards with boxes have categories.json next to them. */
static dt_status refuse_boxes(const char *src)
{
    char path[DT_PATH_MAX], folder[DT_PATH_MAX];
    DT_TRY(dt_file_folder(folder, src));
    DT_TRY(dt_file_path(path, "%s/" DT_CATEGORIES_NAME, folder));
    if (dt_file_exists(path))
        DT_FAIL(DT_ERR_DATA,
                "%s: shards with boxes are not packed again: pack the .json file of COCO that they "
                "were made of",
                src);
    return DT_OK;
}

/* A single tar is one of ILSVRC's; a path that does not exist is a pattern of shards or TFRecord
 * files. */
static dt_status choose_kind(const struct dt_dataset_kind **kind, opener *open,
                             const struct dt_shard_options *options)
{
    const bool is_folder = dt_file_is_folder(options->src);
    const bool is_pattern = !dt_file_exists(options->src) && !options->labels;
    *kind = &ilsvrc;
    *open = options->labels ? dt_ilsvrc_open_val : dt_ilsvrc_open_train;
    if ((is_folder && dt_shards_found(options->src)) ||
        (is_pattern && dt_is_tar_name(options->src))) {
        *kind = &dt_dataset_shards;
        *open = open_data;
    } else if (dt_arrays_found(options->src)) {
        *kind = &dt_arrays;
        *open = dt_arrays_open;
    } else if (is_folder) {
        *kind = &dt_dataset_folder;
        *open = open_data;
    } else if (dt_name_has_suffix(options->src, dt_dataset_coco.suffix)) {
        *kind = &dt_coco_source;
        *open = dt_coco_source_open;
    } else if (dt_name_has_suffix(options->src, dt_dataset_csv.suffix)) {
        *kind = &dt_dataset_csv;
        *open = open_data;
    } else if (is_pattern || dt_tfrecord_found(options->src)) {
        *kind = &tfrecord;
        *open = dt_tfrecord_open;
    }
    if (options->labels && *open != dt_ilsvrc_open_val)
        DT_FAIL(DT_ERR_USAGE, "--labels goes with ILSVRC2012_img_val.tar only, not with %s",
                options->src);
    if (*kind == &dt_dataset_shards)
        DT_TRY(refuse_boxes(options->src));
    if (*kind != &tfrecord &&
        (options->image_key || (options->label_key && *kind != &dt_dataset_shards)))
        DT_FAIL(DT_ERR_USAGE,
                "--image-key goes with TFRecord files only, and --label-key with these and with "
                "shards, not with %s",
                options->src);
    if (options->test && *kind != &dt_arrays)
        DT_FAIL(DT_ERR_USAGE, "--test goes with CIFAR and MNIST only, not with %s", options->src);
    if (options->image_folder && *open != dt_coco_source_open)
        DT_FAIL(DT_ERR_USAGE, "--image-folder goes with a .json file of COCO only, not with %s",
                options->src);
    return DT_OK;
}

dt_status dt_source_open(struct dt_dataset **dataset, const struct dt_shard_options *options)
{
    dt_status status = DT_OK;
    struct dt_dataset *made = NULL;
    opener open;
    *dataset = NULL;
    DT_TRY(DT_NEW(made, 1));
    DT_TRY_OUT(choose_kind(&made->kind, &open, options));
    DT_TRY_OUT(open(made, options));
    if (made->n == 0)
        DT_TRY_OUT(DT_ERROR(DT_ERR_DATA, "%s holds no images", options->src));
    *dataset = made;
    return DT_OK;
out:
    dt_dataset_close(made);
    return status;
}
