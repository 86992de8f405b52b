/* Shards as a source of `dtrain shard`, to repack them with smaller images or another shard size.
 * Reading is delegated to the data set of shards; class names come from classes.txt. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/names.h"
#include "pack/images.h"
#include "pack/pack.h"

enum { MAX_CLASSES_BYTES = 64 << 20 };

struct reshard {
    struct dt_dataset *shards;
    struct dt_names classes;
};

/* Path of classes.txt in the folder of the first shard, into out[DT_PATH_MAX]. */
static dt_status find_classes(char *out, const char *pattern)
{
    dt_status status = DT_OK;
    struct dt_names paths = {0};
    DT_TRY_OUT(dt_brace_expand(&paths, pattern));
    const char *path = dt_names_get(&paths, 0);
    DT_TRY_OUT(dt_file_path(out, "%.*sclasses.txt", (int)(dt_file_base(path) - path), path));
out:
    dt_names_reset(&paths);
    return status;
}

/* One class per line; a missing file is not an error. */
static dt_status load_classes(struct dt_names *classes, const char *pattern)
{
    char path[DT_PATH_MAX], *text = NULL;
    size_t bytes = 0;
    dt_status status = DT_OK;
    DT_TRY(find_classes(path, pattern));
    if (!dt_file_exists(path))
        return DT_OK;
    DT_TRY(dt_file_load(&text, &bytes, path, MAX_CLASSES_BYTES));
    for (const char *line = text, *end = text + bytes; line < end;) {
        size_t n = strcspn(line, "\n");
        DT_TRY_OUT(dt_names_add(classes, line, n));
        line += n + 1;
    }
out:
    free(text);
    return status;
}

dt_status dt_reshard_open(struct dt_dataset *dataset, const struct dt_shard_options *options)
{
    const struct dt_config_data data = {.source = DT_SOURCE_SHARDS};
    const struct dt_dataset_options of_shards = {
        .data = &data, .path = options->src, .num_classes = INT_MAX};
    struct reshard *reshard;
    DT_TRY(DT_NEW(reshard, 1));
    dataset->state = reshard;
    DT_TRY(load_classes(&reshard->classes, options->src));
    DT_TRY(dt_dataset_open(&reshard->shards, &of_shards));
    dataset->n = dt_dataset_size(reshard->shards);
    return DT_OK;
}

static const struct reshard *state_of(const struct dt_dataset *dataset)
{
    return dataset->state;
}

static dt_status read_reshard(const struct dt_dataset *dataset, uint32_t id,
                              struct dt_sample *sample)
{
    return dt_dataset_read(state_of(dataset)->shards, id, sample);
}

static int label(const struct dt_dataset *dataset, uint32_t id)
{
    return dt_dataset_label(state_of(dataset)->shards, id);
}

static void name_sample(const struct dt_dataset *dataset, uint32_t id, char *out, size_t bytes)
{
    dt_dataset_name(state_of(dataset)->shards, id, out, bytes);
}

static const char *class_name(const struct dt_dataset *dataset, int label)
{
    const struct dt_names *classes = &state_of(dataset)->classes;
    return (size_t)label < classes->n ? dt_names_get(classes, (size_t)label) : NULL;
}

static void close_reshard(struct dt_dataset *dataset)
{
    struct reshard *reshard = dataset->state;
    dt_dataset_close(reshard->shards);
    dt_names_reset(&reshard->classes);
    free(reshard);
}

const struct dt_dataset_kind dt_dataset_reshard = {.read = read_reshard,
                                                   .label = label,
                                                   .name = name_sample,
                                                   .class_name = class_name,
                                                   .close = close_reshard};
