#include "data/wds_pair.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <xxhash.h>

#include "base/file.h"
#include "base/log.h"
#include "base/sort.h"
#include "data/dataset.h"

size_t dt_wds_key(const char *name)
{
    const char *base = dt_file_base(name), *dot = strchr(base, '.');
    /* Names like __meta__ and __meta__/x do not belong to samples. */
    const size_t top = strcspn(name, "/");
    const bool is_meta = top >= 4 && !strncmp(name, "__", 2) && !strncmp(name + top - 2, "__", 2);
    return dot && dot != base && !is_meta ? (size_t)(dot - name) : 0;
}

bool dt_wds_begins(const struct dt_wds_pair *pair, const char *name)
{
    const size_t bytes = dt_wds_key(name);
    return strncmp(pair->key, name, bytes) != 0 || pair->key[bytes];
}

enum dt_wds_kind dt_wds_add(struct dt_wds_pair *pair, const char *name)
{
    const size_t bytes = dt_wds_key(name);
    const char *suffix = name + bytes + 1;
    const bool begins = dt_wds_begins(pair, name);
    if (begins) {
        *pair = (struct dt_wds_pair){.label = pair->label};
        memcpy(pair->key, name, bytes);
    }
    const bool is_jpeg = dt_is_jpeg_suffix(suffix), of_boxes = pair->label == DT_WDS_BOXES;
    const bool is_image = dt_is_image_suffix(suffix);
    const bool is_label = !strcasecmp(suffix, of_boxes ? "json" : "cls");
    const bool is_json = !is_label && !strcasecmp(suffix, "json");
    pair->has_json |= is_json;
    pair->has_cls |= !is_label && !strcasecmp(suffix, "cls");
    pair->has_like |= dt_files_is_image(name) || (!begins && pair->has_json);
    if (is_image && pair->has_image && is_jpeg == pair->has_png) { /* the PNG is a mask */
        pair->has_png = false;
        return is_jpeg ? DT_WDS_IMAGE : DT_WDS_OTHER;
    }
    bool *has = is_image ? &pair->has_image : &pair->has_label;
    if (!is_image && !is_label)
        return is_json ? DT_WDS_JSON : DT_WDS_OTHER;
    if (*has)
        return is_image ? DT_WDS_SECOND_IMAGE : DT_WDS_SECOND_LABEL;
    *has = true;
    pair->has_png |= is_image && !is_jpeg;
    return is_image ? DT_WDS_IMAGE : of_boxes ? DT_WDS_BOXES : DT_WDS_LABEL;
}

bool dt_wds_needs_json(const struct dt_wds_pair *pair)
{
    return pair->has_image && !pair->has_label && pair->has_json;
}

const char *dt_wds_lacks(const struct dt_wds_pair *pair)
{
    if (pair->has_image == pair->has_label || dt_wds_needs_json(pair))
        return NULL;
    if (!pair->has_image)
        return ".jpg, .png or other image member";
    if (pair->has_cls)
        return ".json member: shards for a classifier do not train a detector";
    return pair->label == DT_WDS_BOXES ? ".json member" : ".cls member";
}

/* --- Keys that occur twice --- */

uint64_t dt_wds_hash(const char *shard, const char *key)
{
    const char *dash = strrchr(shard, '-');
    const uint64_t split = XXH64(shard, dash ? (size_t)(dash - shard) : 0, 0);
    return XXH64(key, strlen(key), split);
}

dt_status dt_wds_tell_repeated(const struct dt_dataset *dataset, const uint64_t *keys, size_t n,
                               const char *path)
{
    char name[2 * DT_PATH_MAX], before[2 * DT_PATH_MAX];
    size_t n_repeated = 0, at = 0;
    uint32_t *first;
    DT_TRY(dt_find_repeated(&first, keys, n));
    for (size_t i = n; first && i-- > 0;)
        if (first[i] < i) {
            n_repeated++;
            at = i;
        }
    if (n_repeated > 0) {
        dataset->kind->name(dataset, (uint32_t)at, name, sizeof name);
        dataset->kind->name(dataset, first[at], before, sizeof before);
        dt_log(DT_LOG_NOTICE,
               "%zu of %zu samples of %s have the key of an earlier one, such as %s, which is also "
               "in %s; they are used like all others, and dtrain verify lists them",
               n_repeated, n, path, name, before);
    }
    free(first);
    return DT_OK;
}
