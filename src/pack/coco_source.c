/* A COCO file and the folder of its images as a source of `dtrain shard`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sort.h"
#include "data/coco_set.h"
#include "data/wds_pair.h"
#include "pack/source.h"

enum { MAX_KEY = 95 }; /* a ustar header has room for a name of 100 bytes */

struct coco_source {
    struct dt_coco coco;
    char folder[DT_PATH_MAX]; /* of the images */
    struct dt_names keys;
};

static const char *file_of(const struct coco_source *source, uint32_t id)
{
    return dt_names_get(&source->coco.files, source->coco.images[id].name);
}

/* --- Keys --- */

static dt_status add_key(struct coco_source *source, uint32_t id)
{
    char key[MAX_KEY + 1];
    const char *file = file_of(source, id), *base = dt_file_base(file), *dot = strrchr(base, '.');
    const size_t bytes = dot && dot != base ? (size_t)(dot - base) : strlen(base);
    if (bytes == 0 || bytes > MAX_KEY)
        DT_FAIL(DT_ERR_DATA,
                "the name of image %s without its ending must have 1 to %d bytes, as it becomes "
                "the name of members of a shard: rename it",
                file, MAX_KEY);
    memcpy(key, base, bytes);
    key[bytes] = 0;
    for (char *c = key; (c = strpbrk(c, ". "));) /* a dot ends the key, blanks part an index */
        *c = '_';
    return dt_names_add(&source->keys, key, bytes);
}

static dt_status check_keys(const struct coco_source *source)
{
    const uint32_t n = source->coco.n_images;
    dt_status status = DT_OK;
    uint64_t *hashes;
    uint32_t *first = NULL;
    DT_TRY(DT_NEW(hashes, n));
    for (uint32_t i = 0; i < n; i++)
        hashes[i] = dt_wds_hash("", dt_names_get(&source->keys, i));
    DT_TRY_OUT(dt_find_repeated(&first, hashes, n));
    for (uint32_t i = 0; first && i < n; i++)
        if (first[i] < i)
            DT_TRY_OUT(DT_ERROR(DT_ERR_DATA,
                                "the images %s and %s would have the same key %s in a shard, which "
                                "has no folders: rename one of them",
                                file_of(source, first[i]), file_of(source, i),
                                dt_names_get(&source->keys, i)));
out:
    free(first);
    free(hashes);
    return status;
}

/* --- The source --- */

dt_status dt_coco_source_open(struct dt_dataset *dataset, const struct dt_shard_options *options)
{
    struct coco_source *source;
    if (options->resize_short > 0)
        DT_FAIL(DT_ERR_USAGE,
                "--resize-short does not go with boxes, which it would have to scale: leave it "
                "out for %s, images are resized in training",
                options->src);
    DT_TRY(DT_NEW(source, 1));
    dataset->state = source;
    DT_TRY(dt_coco_open(&source->coco, options->src,
                        &(struct dt_coco_rules){.max_bad = options->data->max_bad_fraction}));
    if (source->coco.text_ids.n > 0)
        dt_log(DT_LOG_NOTICE,
               "%s: ids of images are texts; in the shards they are numbers, from 0 in the order "
               "of the texts",
               options->src);
    DT_TRY(options->image_folder ? dt_file_path(source->folder, "%s", options->image_folder)
                                 : dt_coco_images_folder(source->folder, options->src));
    if (!dt_file_is_folder(source->folder))
        DT_FAIL(DT_ERR_NO_INPUT,
                "the images of %s are not in %s, which is no folder: say where they are with "
                "--image-folder",
                options->src, source->folder);
    for (uint32_t id = 0; id < source->coco.n_images; id++)
        DT_TRY(add_key(source, id));
    DT_TRY(check_keys(source));
    dataset->n = source->coco.n_images;
    dataset->n_classes = source->coco.n_categories;
    dataset->classes = &source->coco.categories;
    return DT_OK;
}

static int label_of(const struct dt_dataset *dataset, uint32_t id)
{
    (void)dataset, (void)id;
    return 0;
}

static void name_of(const struct dt_dataset *dataset, uint32_t id, char *out, size_t bytes)
{
    const struct coco_source *source = dataset->state;
    snprintf(out, bytes, "%s/%s", source->folder, file_of(source, id));
}

static void close_source(struct dt_dataset *dataset)
{
    struct coco_source *source = dataset->state;
    dt_coco_reset(&source->coco);
    dt_names_reset(&source->keys);
    free(source);
}

const struct dt_dataset_kind dt_coco_source = {
    .read = dt_files_read, .label = label_of, .name = name_of, .close = close_source};

const struct dt_coco *dt_coco_source_annotations(const struct dt_dataset *dataset)
{
    const struct coco_source *source = dataset->state;
    return dataset->kind == &dt_coco_source ? &source->coco : NULL;
}

const char *dt_coco_source_key(const struct dt_dataset *dataset, uint32_t id)
{
    return dt_names_get(&((const struct coco_source *)dataset->state)->keys, id);
}
