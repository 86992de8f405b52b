/* The public interface of data sets: a table of kinds and thin calls into the selected one. */
#include "data/dataset.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/names.h"
#include "base/text.h"
#include "data/select.h"
#include "image/decode.h"

#define ROW(upper, lower, help) &dt_dataset_##lower,
static const struct dt_dataset_kind *const kinds[] = {DT_SOURCE_LIST(ROW)};

/* Finds the kind of the data at a path, for data.source auto. */
static dt_status detect_source(enum dt_source *source, const char *path)
{
    char suffixes[128];
    struct dt_text text = dt_text_in(suffixes, sizeof suffixes);
    for (size_t i = 0; i < DT_COUNT(kinds); i++) {
        const char *suffix = kinds[i]->suffix;
        *source = (enum dt_source)i;
        if (suffix ? dt_name_has_suffix(path, suffix) && dt_file_exists(path)
                   : kinds[i]->recognises(path))
            return DT_OK;
        if (suffix)
            dt_text_add(&text, "%s%s", text.used ? " or " : "", suffix);
    }
    if (!dt_file_exists(path))
        DT_FAIL(dt_file_input_status(errno), "no data at %s: %s", path, strerror(errno));
    DT_FAIL(DT_ERR_DATA,
            "%s is neither a folder, nor a tar, nor a %s file; set data.source if it is data", path,
            suffixes);
}

const char *dt_dataset_in_messages(const struct dt_dataset_options *options)
{
    return options->path && options->path[0] ? options->path : "the synthetic data set";
}

/* If the number of classes follows from labels without names, a wrong label would make a huge
 * classifier. */
static dt_status check_largest(const struct dt_dataset *dataset,
                               const struct dt_dataset_options *options)
{
    char name[DT_PATH_MAX + 64];
    uint32_t largest = 0;
    if (options->part != DT_PART_TRAIN || options->num_classes > 0 || dt_dataset_has_names(dataset))
        return DT_OK;
    for (uint32_t id = 1; id < dataset->n; id++)
        if (dt_dataset_label_of(dataset, id) > dt_dataset_label_of(dataset, largest))
            largest = id;
    const long long label = dt_dataset_label_of(dataset, largest);
    if (label < dataset->n)
        return DT_OK;
    dataset->kind->name(dataset, largest, name, sizeof name);
    DT_FAIL(DT_ERR_DATA,
            "%s has the label %lld, which makes more classes than the %u images of %s; correct it, "
            "or if it is right, set model.num_classes",
            name, label + options->data->label_offset, (unsigned)dataset->n, options->path);
}

/* --- Selection --- */

static bool has_usable_box(const struct dt_dataset *dataset, uint32_t id, struct dt_truth *truths)
{
    struct dt_image_info image;
    dataset->kind->image(dataset, id, &image);
    for (int i = dataset->kind->truths(dataset, id, truths) - 1; i >= 0; i--)
        if (dt_truth_is_usable(&truths[i], image.width, image.height))
            return true;
    return false;
}

/* Keeps the images with a box to train on. */
static dt_status keep_usable(struct dt_pick *picks, size_t *n, const struct dt_dataset *dataset,
                             const struct dt_dataset_options *options)
{
    const size_t n_all = *n;
    struct dt_truth *truths;
    DT_TRY(DT_NEW(truths, (size_t)dataset->max_boxes));
    *n = 0;
    for (size_t i = 0; i < n_all; i++)
        if (has_usable_box(dataset, picks[i].id, truths))
            picks[(*n)++] = picks[i];
    free(truths);
    if (*n == 0)
        DT_FAIL(DT_ERR_DATA, "no image of %s has a box to train on", options->path);
    if (*n < n_all)
        dt_log(DT_LOG_NOTICE,
               "%s: %zu of %zu training images are skipped, as they have no box to train on: "
               "none, crowds only, or none inside the image",
               options->path, n_all - *n, n_all);
    return DT_OK;
}

/* Keeps those of one side of data.val_fraction, for training at most data.max_train of them. */
static dt_status choose_picks(struct dt_pick *picks, size_t *n, const struct dt_dataset *dataset,
                              const struct dt_dataset_options *options)
{
    const bool train = options->part == DT_PART_TRAIN;
    const bool by_class = !options->data->group[0] || options->data->val_fraction == 0;
    double fraction = options->data->val_fraction;
    if (train && dataset->max_boxes > 0) {
        *n = dt_select_train(picks, *n, fraction, by_class, 0);
        DT_TRY(keep_usable(picks, n, dataset, options));
        fraction = 0;
    }
    *n = train ? dt_select_train(picks, *n, fraction, by_class, (size_t)options->data->max_train)
               : dt_select_val(picks, *n, fraction, by_class);
    if (*n == 0)
        DT_FAIL(DT_ERR_DATA, "data.val_fraction: %s has no %s, so none can be kept for validation",
                dt_dataset_in_messages(options), by_class ? "class with two images" : "two groups");
    return DT_OK;
}

static dt_status select_part(struct dt_dataset *dataset, const struct dt_dataset_options *options)
{
    const struct dt_dataset_kind *kind = dataset->kind;
    const bool train = options->part == DT_PART_TRAIN;
    const bool picks_some = options->data->val_fraction > 0 ||
                            (train && (options->data->max_train > 0 || dataset->max_boxes > 0));
    const uint64_t seed = options->seed;
    struct dt_pick *picks;
    size_t n = 0;
    dt_status status = DT_OK;
    if (options->part == DT_PART_ALL || !picks_some)
        return DT_OK;
    DT_TRY(DT_NEW(picks, dataset->n));
    for (uint32_t id = 0; id < dataset->n; id++) {
        const int label = dt_dataset_label_of(dataset, id);
        const uint64_t key = kind->key ? kind->key(dataset, id, seed) : XXH64(&id, sizeof id, seed);
        if (label >= 0)
            picks[n++] = (struct dt_pick){.key = key, .id = id, .label = label};
    }
    if (options->data->group[0] && options->data->val_fraction > 0)
        DT_TRY_OUT(dt_group_picks(picks, n, dataset, options->data, seed));
    DT_TRY_OUT(choose_picks(picks, &n, dataset, options));
    if (n == dt_dataset_size(dataset))
        goto out;
    free(dataset->ids);
    DT_TRY_OUT(DT_NEW(dataset->ids, n));
    dataset->n_ids = (uint32_t)n;
    for (size_t i = 0; i < n; i++)
        dataset->ids[i] = picks[i].id;
    dataset->fingerprint = XXH64(dataset->ids, n * sizeof *dataset->ids, dataset->fingerprint);
out:
    free(picks);
    return status;
}

/* Reads the files. */
static dt_status read_kind(struct dt_dataset *dataset, const struct dt_dataset_options *options)
{
    const char *path = options->path ? options->path : "";
    enum dt_source source = options->data->source;
    if (source == DT_SOURCE_AUTO && !options->images)
        DT_TRY(detect_source(&source, path));
    if (source != DT_SOURCE_SYNTHETIC && !path[0] && !options->images)
        DT_FAIL(DT_ERR_CONFIG, "the data set has no path: set data.train and data.val");
    dataset->kind = options->images ? &dt_dataset_list : kinds[source];
    if (options->targets == DT_COLUMN_LABELS && !dataset->kind->label && !options->images)
        DT_FAIL(DT_ERR_CONFIG,
                "%s holds boxes, which only a detector is trained on: set model.name to one, such "
                "as retinanet_resnet50_fpn; a classifier needs a folder, shards or a CSV file",
                path);
    if (options->targets == DT_COLUMN_BOXES && !dataset->kind->truths && !options->images)
        DT_FAIL(DT_ERR_CONFIG,
                "%s: a detector needs boxes: annotations of COCO, a .json file, shards made of "
                "them, or "
                "the generated images of data.source \"synthetic\"",
                path[0] ? path : "the data set");
    DT_TRY(dataset->kind->open(dataset, options));
    if (dataset->n == 0)
        DT_FAIL(DT_ERR_DATA, "%s holds no samples", dt_dataset_in_messages(options));
    DT_TRY(check_largest(dataset, options));
    if (dataset->set && dataset->max_boxes == 0) /* of no image, in evaluation */
        dataset->max_boxes = 1;
    return DT_OK;
}

/* --- Several ranks --- */

/* Passes the kind through the block, and the state if the kind can share it. */
static dt_status use_block(struct dt_block *block, struct dt_dataset *dataset)
{
    size_t kind = 0;
    while (kind < DT_COUNT(kinds) && kinds[kind] != dataset->kind)
        kind++;
    DT_BLOCK_VALUE(block, kind);
    dataset->kind = kind < DT_COUNT(kinds) ? kinds[kind] : &dt_dataset_list;
    if (!dataset->kind->share)
        return DT_OK;
    if (block->use == DT_BLOCK_READ)
        dataset->state = dt_mem_alloc(1, dataset->kind->state_bytes, "a data set");
    if (!dataset->state)
        return DT_ERR_MEMORY;
    DT_BLOCK_VALUE(block, dataset->n);
    DT_BLOCK_VALUE(block, dataset->n_files);
    DT_BLOCK_VALUE(block, dataset->n_classes);
    DT_BLOCK_VALUE(block, dataset->max_boxes);
    DT_BLOCK_VALUE(block, dataset->fingerprint);
    return dataset->kind->share(block, dataset);
}

static dt_status write_block(char **data, struct dt_block *block, struct dt_dataset *dataset)
{
    DT_TRY(use_block(block, dataset));
    *data = dt_mem_alloc(block->bytes, 1, "the index of the data");
    if (!*data)
        return DT_ERR_MEMORY;
    struct dt_block out = {.use = DT_BLOCK_WRITE, .at = *data};
    return use_block(&out, dataset);
}

static void close_state(struct dt_dataset *dataset)
{
    struct dt_block block = {.use = DT_BLOCK_LEAVE};
    if (dataset->state && dataset->shared.data)
        (void)use_block(&block, dataset);
    if (dataset->state)
        dataset->kind->close(dataset);
    dt_shared_free(&dataset->shared);
    dataset->state = NULL;
}

/* The rank that reads frees what it has read and uses the block, like all ranks of its node. */
static dt_status open_shared(struct dt_dataset *dataset, const struct dt_dataset_options *options)
{
    const struct dt_data_share *share = options->share;
    struct dt_block block = {.use = DT_BLOCK_COUNT};
    struct dt_shared shared;
    char *data = NULL;
    dt_status status = share->reads ? read_kind(dataset, options) : DT_OK;
    if (share->reads && status == DT_OK)
        status = write_block(&data, &block, dataset);
    status = share->give(share->context, status, &shared, data, block.bytes);
    free(data);
    DT_TRY(status);
    if (share->reads && dataset->kind->share)
        close_state(dataset);
    dataset->shared = shared;
    block = (struct dt_block){.use = DT_BLOCK_READ, .at = shared.data};
    DT_TRY(use_block(&block, dataset));
    if (dataset->kind->share)
        return DT_OK;
    dt_shared_free(&dataset->shared);
    return share->reads ? DT_OK : read_kind(dataset, options);
}

static dt_status open_kind(struct dt_dataset *dataset, const struct dt_dataset_options *options)
{
    DT_TRY(options->share ? open_shared(dataset, options) : read_kind(dataset, options));
    return dt_dataset_map_classes(dataset, options);
}

dt_status dt_dataset_open(struct dt_dataset **dataset, const struct dt_dataset_options *options)
{
    dt_status status = DT_OK;
    struct dt_dataset *made = NULL;
    *dataset = NULL;
    DT_TRY(DT_NEW(made, 1));
    if (options->rest_of) { /* the same files, of which other samples are used */
        *made = *options->rest_of;
        made->is_view = true;
        made->shared = (struct dt_shared){0};
        made->cache = NULL;
        made->ids = NULL;
        made->n_ids = 0;
    } else {
        made->exif = dt_exif_of(options->data, false);
        made->max_pixels = options->data->max_pixels;
        DT_TRY_OUT(open_kind(made, options));
        made->exif = dt_exif_of(options->data, made->max_boxes > 0 && !options->images);
    }
    DT_TRY_OUT(select_part(made, options));
    *dataset = made;
    return DT_OK;
out:
    dt_dataset_close(made);
    return status;
}

void dt_dataset_close(struct dt_dataset *dataset)
{
    if (!dataset)
        return;
    if (!dataset->is_view) {
        close_state(dataset);
        free(dataset->label_map);
    }
    dt_cache_destroy(dataset->cache);
    free(dataset->ids);
    free(dataset);
}

uint32_t dt_dataset_size(const struct dt_dataset *dataset)
{
    return dataset->ids ? dataset->n_ids : dataset->n;
}

uint64_t dt_dataset_fingerprint(const struct dt_dataset *dataset)
{
    return dataset->fingerprint;
}

/* The kind's id of sample `id`. */
static uint32_t kind_id(const struct dt_dataset *dataset, uint32_t id)
{
    return dataset->ids ? dataset->ids[id] : id;
}

int dt_dataset_label(const struct dt_dataset *dataset, uint32_t id)
{
    return dt_dataset_label_of(dataset, kind_id(dataset, id));
}

int dt_dataset_max_boxes(const struct dt_dataset *dataset)
{
    return dataset->max_boxes;
}

int dt_dataset_truths(const struct dt_dataset *dataset, uint32_t id, struct dt_truth *out)
{
    return dataset->kind->truths ? dataset->kind->truths(dataset, kind_id(dataset, id), out) : 0;
}

void dt_dataset_image(const struct dt_dataset *dataset, uint32_t id, struct dt_image_info *out)
{
    dataset->kind->image(dataset, kind_id(dataset, id), out);
}

int64_t dt_dataset_category(const struct dt_dataset *dataset, int label)
{
    return dataset->categories ? dataset->categories[label] : label + 1;
}

int dt_dataset_n_classes(const struct dt_dataset *dataset)
{
    return dataset->n_classes;
}

const char *dt_dataset_class(const struct dt_dataset *dataset, int label)
{
    bool named = dt_dataset_has_names(dataset) && (size_t)label < dataset->classes->n;
    return named ? dt_names_get(dataset->classes, (size_t)label) : NULL;
}

const char *dt_dataset_label_text(const struct dt_dataset *dataset, int label, char number[16])
{
    const char *name = dt_dataset_class(dataset, label);
    snprintf(number, 16, "%d", label);
    return name ? name : number;
}

const struct dt_names *dt_dataset_classes(const struct dt_dataset *dataset)
{
    return dt_dataset_has_names(dataset) ? dataset->classes : NULL;
}

const char *dt_dataset_name(const struct dt_dataset *dataset, uint32_t id, char *out, size_t bytes)
{
    uint32_t n = dt_dataset_size(dataset);
    if (id < n)
        dataset->kind->name(dataset, kind_id(dataset, id), out, bytes);
    else
        snprintf(out, bytes, "sample %u of %u", (unsigned)id, (unsigned)n);
    for (char *c = strchr(out, '\n'); c; c = strchr(c, '\n'))
        *c = '?'; /* a newline in a name could forge a line of the log */
    return out;
}

bool dt_dataset_is_raw(const struct dt_dataset *dataset)
{
    return dataset->kind->raw;
}

dt_status dt_dataset_decoder(struct dt_decoder **decoder, const struct dt_dataset *dataset)
{
    const struct dt_config_data data = {.exif = dataset->exif, .max_pixels = dataset->max_pixels};
    return dt_decoder_create(decoder, &data);
}

dt_status dt_dataset_expect(const struct dt_dataset *dataset, const struct dt_decoder *decoder,
                            int width, int height)
{
    DT_TRY(dt_decoder_expect(decoder, width, height));
    if (dataset->exif == DT_EXIF_AUTO && dt_decoder_orientation(decoder) > 1)
        DT_FAIL(DT_ERR_DATA, "its EXIF orientation %d turns it: " DT_EXIF_QUESTION,
                dt_decoder_orientation(decoder));
    return DT_OK;
}

dt_status dt_dataset_read(const struct dt_dataset *dataset, uint32_t id, struct dt_sample *sample)
{
    bool found = false;
    if (id >= dt_dataset_size(dataset))
        DT_FAIL(DT_ERR_INTERNAL, "sample %u of a data set of %u was requested", (unsigned)id,
                (unsigned)dt_dataset_size(dataset));
    if (dataset->cache)
        DT_TRY(dt_cache_get(dataset->cache, id, sample, &found));
    if (found)
        return DT_OK;
    dt_status status = dataset->kind->read(dataset, kind_id(dataset, id), sample);
    /* A file that has disappeared since the data set was opened is one bad sample. */
    if (status == DT_ERR_NO_INPUT || status == DT_ERR_PERMISSION)
        status = DT_ERR_DATA;
    DT_TRY(status);
    if (dataset->cache)
        dt_cache_put(dataset->cache, id, sample);
    return DT_OK;
}

dt_status dt_dataset_cache(struct dt_dataset *dataset, uint64_t bytes)
{
    if (bytes == 0 || dataset->kind->raw)
        return DT_OK;
    return dt_cache_create(&dataset->cache, dt_dataset_size(dataset), bytes);
}

void dt_dataset_will_need(const struct dt_dataset *dataset, uint32_t id)
{
    if (dataset->kind->will_need && !(dataset->cache && dt_cache_has(dataset->cache, id)))
        dataset->kind->will_need(dataset, kind_id(dataset, id));
}

void dt_dataset_forget(const struct dt_dataset *dataset)
{
    if (dataset->kind->forget)
        dataset->kind->forget(dataset);
}
