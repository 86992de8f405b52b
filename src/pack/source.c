/* Sources of `dtrain shard`: the kind is detected from the path and its contents. */
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/names.h"
#include "boxes/wds_boxes.h"
#include "data/shard_pattern.h"
#include "pack/images.h"
#include "pack/pack.h"

typedef dt_status (*opener)(struct dt_dataset *dataset, const struct dt_shard_options *options);

static const struct dt_dataset_kind ilsvrc = {.read = dt_images_read, DT_IMAGES_FUNCTIONS};
static const struct dt_dataset_kind tfrecord = {.read = dt_tfrecord_read, DT_IMAGES_FUNCTIONS};

/* A kind of training data: class folders, a table, or shards, to repack them with smaller images or
 * another shard size. */
static dt_status open_data(struct dt_dataset *dataset, const struct dt_shard_options *options)
{
    const struct dt_config_data data = {0};
    const struct dt_dataset_options of_data = {.data = &data, .path = options->src};
    return dataset->kind->open(dataset, &of_data);
}

/* Shards with boxes have categories.json next to them. */
static dt_status refuse_boxes(const char *src)
{
    char path[DT_PATH_MAX];
    struct stat info;
    const bool is_folder = stat(src, &info) == 0 && S_ISDIR(info.st_mode);
    const int bytes = is_folder ? (int)strlen(src) : (int)(dt_file_base(src) - src);

    DT_TRY(dt_file_path(path, "%.*s%s" DT_CATEGORIES_NAME, bytes, src, is_folder ? "/" : ""));
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
    struct stat info;
    const bool exists = stat(options->src, &info) == 0;
    const bool is_folder = exists && S_ISDIR(info.st_mode);
    const bool is_pattern = !exists && !options->labels;

    *kind = &ilsvrc;
    *open = options->labels ? dt_ilsvrc_open_val : dt_ilsvrc_open_train;
    if ((is_folder && dt_shards_found(options->src)) ||
        (is_pattern && dt_is_tar_name(options->src))) {
        *kind = &dt_dataset_shards;
        *open = open_data;
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
