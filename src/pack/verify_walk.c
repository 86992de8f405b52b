/* Headers of one shard: checks its members against WebDataset's rules, and its index. */
#include "pack/shard_verify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "data/tar_index.h"

enum { MAX_LINE = 4096, MAX_INDEX_BYTES = 1 << 30 };

/* --- Faults --- */

dt_status dt_finding_add(struct dt_names *findings, const char *format, ...)
{
    char line[MAX_LINE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    for (char *c = line; (c = strchr(c, '\n'));)
        *c = '?';
    dt_utf8_escape(line); /* names in damaged files may hold anything */
    return dt_names_add(findings, line, strlen(line));
}

dt_status dt_finding_of(struct dt_names *findings, const char *what, dt_status status)
{
    if (status == DT_OK || status == DT_ERR_MEMORY)
        return status;
    DT_TRY(dt_finding_add(findings, "%s: %s", what, dt_error_text()));
    dt_error_clear();
    return DT_OK;
}

/* --- Structure --- */

/* A label, 0 if reading it failed with `status`. */
static dt_status check_label(struct dt_shard_check *shard, dt_status status, int32_t label,
                             const char *member, int n_classes)
{
    DT_TRY(dt_finding_of(&shard->findings, shard->base, status));
    if (label < 0 || (n_classes >= 0 && label >= n_classes))
        return dt_finding_add(&shard->findings, "%s: label %d in member %s is not in 0 to %d",
                              shard->base, (int)label, member,
                              n_classes >= 0 ? n_classes - 1 : INT32_MAX);
    return DT_OK;
}

static dt_status end_sample(struct dt_shard_check *shard, const struct dt_verify *verify)
{
    const struct dt_wds_pair *pair = &shard->pair;
    const bool needs_json = dt_wds_needs_json(pair);
    int32_t label = 0;
    if (!pair->has_image && !pair->has_label)
        return !pair->has_like
                   ? DT_OK
                   : dt_finding_add(&shard->findings,
                                    "%s: sample %s has no image; a key ends at the first dot",
                                    shard->base, pair->key);
    if (dt_wds_lacks(pair))
        DT_TRY(dt_finding_add(&shard->findings, "%s: sample %s has no %s", shard->base, pair->key,
                              dt_wds_lacks(pair)));
    if (needs_json) {
        const dt_status status = dt_tar_json_label(&label, &shard->json, verify->data->label_key,
                                                   pair->key, shard->path);
        DT_TRY(check_label(shard, status, label, pair->key, verify->n_classes));
    }
    if (shard->has_image && shard->has_size) {
        struct dt_shard_image *image = &shard->images[shard->n - 1];
        image->width = shard->boxes.images[shard->boxes.n - 1].width;
        image->height = shard->boxes.images[shard->boxes.n - 1].height;
    }
    shard->has_image = shard->has_size = false;
    shard->n_samples += pair->has_image && (pair->has_label || needs_json);
    return dt_names_add(&shard->keys, pair->key, strlen(pair->key));
}

static dt_status add_image(struct dt_shard_check *shard, const struct dt_tar_member *member)
{
    if (member->bytes == 0)
        return dt_finding_add(&shard->findings, "%s: member %s is empty", shard->base,
                              member->name);
    if (member->bytes > DT_MAX_ENCODED_BYTES)
        return dt_finding_add(&shard->findings, "%s: member %s has %" PRIu64 " bytes, more than %d",
                              shard->base, member->name, member->bytes, DT_MAX_ENCODED_BYTES);
    shard->n -= shard->has_image; /* a JPEG takes the place of a PNG */
    DT_TRY(DT_GROW(shard->images, shard->capacity, shard->n, "images"));
    DT_TRY(dt_names_add(&shard->names, member->name, strlen(member->name)));
    shard->images[shard->n++] = (struct dt_shard_image){.offset = member->offset,
                                                        .bytes = (uint32_t)member->bytes,
                                                        .name = (uint32_t)(shard->names.n - 1)};
    shard->has_image = true;
    return DT_OK;
}

/* Checks the boxes, of which only id and size of the image are kept. */
static dt_status check_boxes(struct dt_shard_check *shard, const struct dt_tar_member *member,
                             const struct dt_coco *coco)
{
    struct dt_wds_boxes *boxes = &shard->boxes;
    const size_t n = boxes->n;
    boxes->n_truths = 0;
    DT_TRY(dt_finding_of(&shard->findings, shard->base,
                         dt_tar_boxes(boxes, &shard->json, member, shard->path)));
    shard->has_size = boxes->n > n;
    for (size_t i = 0; i < boxes->n_truths; i++)
        if (dt_coco_label(coco, boxes->truths[i].label) < 0)
            DT_TRY(dt_finding_add(
                &shard->findings,
                "%s: box %" PRId64 " in member %s has the category %d, which " DT_CATEGORIES_NAME
                " does not list",
                shard->base, boxes->truths[i].id, member->name, (int)boxes->truths[i].label));
    return DT_OK;
}

/* The context that dt_tar_walk passes to visit_member. */
struct walk {
    struct dt_shard_check *shard;
    const struct dt_verify *verify;
};

static dt_status visit_member(void *context, const struct dt_tar_member *member)
{
    const struct walk *walk = context;
    const struct dt_verify *verify = walk->verify;
    struct dt_shard_check *shard = walk->shard;
    dt_status status;
    int32_t label = 0;
    if (!dt_wds_key(member->name))
        return DT_OK;
    DT_TRY(dt_wds_index_add(&shard->index, member->name, member->offset, member->bytes));
    if (dt_wds_begins(&shard->pair, member->name))
        DT_TRY(end_sample(shard, verify));
    switch (dt_wds_add(&shard->pair, member->name)) {
    case DT_WDS_IMAGE:
        return add_image(shard, member);
    case DT_WDS_BOXES:
        return check_boxes(shard, member, &verify->coco);
    case DT_WDS_LABEL:
        status = dt_tar_label(&label, member, shard->path);
        return check_label(shard, status, label, member->name, verify->n_classes);
    case DT_WDS_JSON:
        return dt_tar_json_keep(&shard->json, member, shard->path);
    case DT_WDS_SECOND_IMAGE:
        return dt_finding_add(&shard->findings, "%s: member %s is a second image of its sample",
                              shard->base, member->name);
    case DT_WDS_SECOND_LABEL:
        return dt_finding_add(&shard->findings, "%s: member %s is a second %s of its sample",
                              shard->base, member->name,
                              shard->pair.label == DT_WDS_BOXES ? ".json member" : "label");
    default:
        return DT_OK;
    }
}

/* --- The index of the shard --- */

/* Number, from 1, of the line that contains byte `bytes` of the text. */
static size_t line_at(const char *text, size_t bytes)
{
    size_t n = 1;
    for (size_t i = 0; i < bytes; i++)
        n += text[i] == '\n';
    return n;
}

static dt_status check_index(struct dt_shard_check *shard)
{
    dt_status status = DT_OK;
    char path[DT_PATH_MAX], *want = NULL, *have = NULL;
    size_t n_want = 0, n_have = 0, at = 0;
    DT_TRY(dt_wds_index_path(path, shard->path));
    if (!dt_file_exists(path))
        return dt_finding_add(&shard->findings, "%s: its .idx is missing", shard->base);
    DT_TRY_OUT(dt_wds_index_finish(&shard->index, &want, &n_want));
    DT_TRY_OUT(dt_file_load(&have, &n_have, path, MAX_INDEX_BYTES));
    while (at < n_want && at < n_have && want[at] == have[at])
        at++;
    if (at < n_want || at < n_have)
        DT_TRY_OUT(dt_finding_add(&shard->findings, "%s: line %zu of its .idx does not match it",
                                  shard->base, line_at(want, at)));
out:
    free(want);
    free(have);
    return status;
}

/* --- First pass: headers --- */

dt_status dt_shard_walk(void *context, uint32_t index, int thread)
{
    struct dt_verify *verify = context;
    struct dt_shard_check *shard = &verify->shards[index];
    struct walk walk = {shard, verify};
    struct stat info;
    int n_skipped = 0;
    (void)thread;
    shard->pair.label = verify->label;
    dt_status status = DT_OK;
    if (stat(shard->path, &info) == 0)
        shard->bytes = (uint64_t)info.st_size;
    else
        status = DT_ERROR(dt_file_input_status(errno), "cannot stat it: %s", strerror(errno));
    DT_TRY(dt_finding_of(&shard->findings, shard->base, status));
    status = dt_tar_walk(shard->path, visit_member, &walk, &n_skipped);
    shard->is_whole = status == DT_OK;
    DT_TRY(dt_finding_of(&shard->findings, shard->base, status));
    /* After an aborted walk the other half of the last sample may exist beyond that point. */
    if (shard->is_whole)
        DT_TRY(end_sample(shard, verify));
    if (n_skipped > 0)
        DT_TRY(dt_finding_add(&shard->findings, "%s: %d members are links, devices or FIFOs",
                              shard->base, n_skipped));
    if (verify->has_indices && shard->is_whole)
        DT_TRY(dt_finding_of(&shard->findings, shard->base, check_index(shard)));
    dt_wds_index_reset(&shard->index); /* about 100 bytes per sample */
    pthread_mutex_lock(&verify->lock);
    dt_log_progress_of("reading headers", ++verify->n_walked, verify->n, "shards", verify->start_s);
    pthread_mutex_unlock(&verify->lock);
    return DT_OK;
}
