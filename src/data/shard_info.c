/* Reads _info.json: {"splits": {"train": {"filenames": [...], "shard_lengths": [...]}, ...}}. */
#include "data/shard_info.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

static const struct dt_json_limits info_limits = {.bytes = 64 << 20, .n_values = 2100000};

static dt_status add_split(struct dt_shard_info *info, const struct dt_json *split)
{
    const struct dt_json *files = dt_json_get(split, "filenames");
    const struct dt_json *lengths = dt_json_get(split, "shard_lengths");

    if (!files || !lengths || files->type != DT_JSON_ARRAY || lengths->type != DT_JSON_ARRAY ||
        files->n_children != lengths->n_children)
        DT_FAIL(DT_ERR_DATA,
                "%s:%d: split %s needs the lists filenames and shard_lengths of equal length",
                info->path, split->line, split->key);
    size_t n_splits = (size_t)info->n_splits;
    DT_TRY(DT_GROW(info->num_samples, n_splits, n_splits, "splits"));
    int64_t *total = &info->num_samples[info->n_splits];
    if (!dt_json_integer(dt_json_get(split, "num_samples"), 0, INT64_MAX, total))
        *total = -1;
    DT_TRY(dt_names_add(&info->splits, split->key, strlen(split->key)));
    const size_t n = info->n_lengths + (size_t)files->n_children;
    size_t capacity = info->n_lengths;
    DT_TRY(DT_GROW(info->lengths, capacity, n, "shard lengths"));
    capacity = info->n_lengths;
    DT_TRY(DT_GROW(info->split, capacity, n, "shard splits"));

    const struct dt_json *length = lengths->child;
    for (const struct dt_json *file = files->child; file; file = file->next) {
        int64_t value;
        if (file->type != DT_JSON_STRING || !dt_json_integer(length, 0, UINT32_MAX, &value))
            DT_FAIL(DT_ERR_DATA, "%s:%d: a shard needs a name and a number of samples", info->path,
                    file->line);
        DT_TRY(dt_names_add(&info->filenames, file->string, strlen(file->string)));
        info->split[info->n_lengths] = (uint32_t)info->n_splits;
        info->lengths[info->n_lengths++] = (uint32_t)value;
        length = length->next;
    }
    info->n_splits++;
    return DT_OK;
}

dt_status dt_shard_info_load(struct dt_shard_info *info, const char *folder)
{
    dt_status status = DT_OK;
    struct dt_json_doc *doc = NULL;

    DT_TRY(dt_file_path(info->path, "%s/_info.json", folder));
    if (!dt_file_exists(info->path))
        return DT_OK;
    DT_TRY(dt_json_load(&doc, info->path, &info_limits));
    const struct dt_json *splits = dt_json_get(dt_json_root(doc), "splits");
    if (!splits || splits->type != DT_JSON_OBJECT)
        DT_TRY_OUT(DT_ERROR(DT_ERR_DATA, "%s has no object named splits", info->path));
    for (const struct dt_json *split = splits->child; split; split = split->next)
        DT_TRY_OUT(add_split(info, split));
out:
    dt_json_destroy(doc);
    return status;
}

bool dt_shard_info_find(struct dt_shard_info *info, const char *name, uint32_t *length)
{
    /* Shards are looked up in order, so the search continues where the last one ended. */
    for (size_t i = 0; i < info->filenames.n; i++) {
        const size_t at = (info->cursor + i) % info->filenames.n;
        if (strcmp(dt_names_get(&info->filenames, at), name) != 0)
            continue;
        info->cursor = at + 1;
        *length = info->lengths[at];
        return true;
    }
    return false;
}

void dt_shard_info_reset(struct dt_shard_info *info)
{
    dt_names_reset(&info->splits);
    dt_names_reset(&info->filenames);
    free(info->num_samples);
    free(info->lengths);
    free(info->split);
    *info = (struct dt_shard_info){0};
}
