/* The index of one shard: pairs of image and label. */
#include "data/tar_index.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "boxes/wds_boxes.h"
#include "data/dataset.h"
#include "data/wds_pair.h"

enum { MAX_LABEL_BYTES = 32 };

/* The sample being assembled. */
struct pairing {
    struct dt_tar_index *index;
    const char *path;
    struct dt_wds_pair pair;
    struct dt_tar_entry entry;
};

static dt_status end_sample(struct pairing *pairing)
{
    const struct dt_wds_pair *pair = &pairing->pair;
    struct dt_tar_index *index = pairing->index;
    const char *label = pair->has_boxes ? ".json" : ".cls";

    /* The label of the other kind next to the image is a sign of shards for another network. */
    if (dt_wds_lacks(pair) && pair->has_image && pair->has_other)
        DT_FAIL(DT_ERR_DATA,
                pair->has_boxes ? "sample %s of shard %s has a label (.cls) but no boxes (.json): "
                                  "shards for a classifier do not train a detector"
                                : "sample %s of shard %s has boxes (.json) but no label (.cls): "
                                  "shards for a detector do not train a classifier",
                pair->key, pairing->path);
    if (dt_wds_lacks(pair))
        DT_FAIL(DT_ERR_DATA,
                "sample %s of shard %s has %s%s%s; the .jpg or .jpeg and the %s of a sample must "
                "be adjacent in the archive",
                pair->key, pairing->path, pair->has_image ? "an image but no " : "a ", label,
                pair->has_image ? " member" : " member but no .jpg or .jpeg", label);
    if (!pair->has_image)
        return DT_OK;
    if (index->n >= DT_MAX_SAMPLES)
        DT_FAIL(DT_ERR_DATA, "shard %s holds more than %d samples", pairing->path, DT_MAX_SAMPLES);
    DT_TRY(DT_GROW(index->entries, index->capacity, index->n, "shard index"));
    pairing->entry.key = dt_wds_hash(dt_file_base(pairing->path), pair->key);
    index->entries[index->n++] = pairing->entry;
    index->hash = XXH64(pair->key, strlen(pair->key), index->hash);
    index->hash = XXH64(&pairing->entry.bytes, sizeof pairing->entry.bytes, index->hash);
    index->hash = pair->has_boxes
                      ? dt_wds_boxes_hash(&index->boxes, index->hash)
                      : XXH64(&pairing->entry.label, sizeof pairing->entry.label, index->hash);
    return DT_OK;
}

dt_status dt_tar_label(int32_t *label, const struct dt_tar_member *member, const char *path)
{
    char text[MAX_LABEL_BYTES + 1] = {0}, *end = text;
    long value = 0;

    if (member->bytes <= MAX_LABEL_BYTES) {
        DT_TRY(dt_file_pread(member->fd, text, (size_t)member->bytes, member->offset, path));
        errno = 0;
        value = strtol(text, &end, 10);
    }
    const bool is_empty = end == text;
    end += strspn(end, " \t\r\n");
    if (is_empty || end != text + member->bytes || errno == ERANGE || value < INT32_MIN ||
        value > INT32_MAX)
        DT_FAIL(DT_ERR_DATA, "label member %s of shard %s at byte %llu is not an integer: '%s'",
                member->name, path, (unsigned long long)member->offset, text);
    *label = (int32_t)value;
    return DT_OK;
}

dt_status dt_tar_boxes(struct dt_wds_boxes *boxes, const struct dt_tar_member *member,
                       const char *path)
{
    dt_status status = DT_OK;
    char what[2 * DT_PATH_MAX], *text = NULL;

    snprintf(what, sizeof what, "member %s of shard %s", member->name, path);
    if (member->bytes > DT_WDS_BOXES_BYTES)
        DT_FAIL(DT_ERR_DATA, "%s has %llu bytes; at most %d are accepted", what,
                (unsigned long long)member->bytes, DT_WDS_BOXES_BYTES);
    DT_TRY(DT_NEW(text, (size_t)member->bytes + 1));
    DT_TRY_OUT(dt_file_pread(member->fd, text, (size_t)member->bytes, member->offset, path));
    DT_TRY_OUT(dt_wds_boxes_parse(boxes, text, (size_t)member->bytes, what));
out:
    free(text);
    return status;
}

static dt_status visit_member(void *context, const struct dt_tar_member *member)
{
    struct pairing *pairing = context;

    dt_pulse_beat(&dt_pulse_main); /* the main thread builds the index, which may take long */
    if (!dt_wds_key(member->name))
        return DT_OK;
    if (dt_wds_begins(&pairing->pair, member->name))
        DT_TRY(end_sample(pairing));
    const enum dt_wds_kind kind = dt_wds_add(&pairing->pair, member->name);
    if (kind == DT_WDS_SECOND_IMAGE || kind == DT_WDS_SECOND_LABEL)
        DT_FAIL(DT_ERR_DATA, "member %s of shard %s at byte %llu is a second %s of its sample",
                member->name, pairing->path, (unsigned long long)member->offset,
                kind == DT_WDS_SECOND_IMAGE ? "image" : "label");
    if (kind == DT_WDS_LABEL && pairing->pair.has_boxes)
        DT_TRY(dt_tar_boxes(&pairing->index->boxes, member, pairing->path));
    else if (kind == DT_WDS_LABEL)
        DT_TRY(dt_tar_label(&pairing->entry.label, member, pairing->path));
    if (kind == DT_WDS_IMAGE) {
        pairing->entry.offset = member->offset;
        /* Larger values do not fit the field, and reading rejects far smaller ones. */
        pairing->entry.bytes = member->bytes < UINT32_MAX ? (uint32_t)member->bytes : UINT32_MAX;
    }
    return DT_OK;
}

dt_status dt_tar_index_build(struct dt_tar_index *index, const char *path, bool has_boxes)
{
    struct pairing pairing = {.index = index, .path = path, .pair.has_boxes = has_boxes};
    int n_skipped;

    index->n = index->boxes.n = index->boxes.n_truths = 0;
    index->hash = 0;
    DT_TRY(dt_tar_walk(path, visit_member, &pairing, &n_skipped));
    DT_TRY(end_sample(&pairing));
    if (n_skipped > 0)
        dt_log(DT_LOG_WARNING,
               "shard %s: skipped %d members that are links, devices, FIFOs or sparse files", path,
               n_skipped);
    return DT_OK;
}

void dt_tar_index_reset(struct dt_tar_index *index)
{
    free(index->entries);
    dt_wds_boxes_reset(&index->boxes);
    *index = (struct dt_tar_index){0};
}
