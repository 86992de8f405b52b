#include "data/wds_pair.h"

#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "data/sample.h"

/* Names like __meta__ and __meta__/x do not belong to samples. */
static bool is_meta(const char *name)
{
    const size_t bytes = strcspn(name, "/");
    return bytes >= 4 && !strncmp(name, "__", 2) && !strncmp(name + bytes - 2, "__", 2);
}

size_t dt_wds_key(const char *name)
{
    const char *base = dt_file_base(name), *dot = strchr(base, '.');
    return dot && dot != base && !is_meta(name) ? (size_t)(dot - name) : 0;
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

    if (dt_wds_begins(pair, name)) {
        *pair = (struct dt_wds_pair){.has_boxes = pair->has_boxes};
        memcpy(pair->key, name, bytes);
    }
    const bool is_image = dt_is_jpeg_suffix(suffix);
    const bool is_label = !strcasecmp(suffix, pair->has_boxes ? "json" : "cls");
    pair->has_other |= !strcasecmp(suffix, pair->has_boxes ? "cls" : "json");
    bool *has = is_image ? &pair->has_image : &pair->has_label;
    if (!is_image && !is_label)
        return DT_WDS_OTHER;
    if (*has)
        return is_image ? DT_WDS_SECOND_IMAGE : DT_WDS_SECOND_LABEL;
    *has = true;
    return is_image ? DT_WDS_IMAGE : DT_WDS_LABEL;
}

const char *dt_wds_lacks(const struct dt_wds_pair *pair)
{
    if (pair->has_image == pair->has_label)
        return NULL;
    if (!pair->has_image)
        return ".jpg or .jpeg member";
    if (pair->has_boxes)
        return pair->has_other ? ".json member with boxes, but a label: a shard for a classifier"
                               : ".json member";
    return pair->has_other ? ".cls member, but boxes: a shard for a detector" : ".cls member";
}
