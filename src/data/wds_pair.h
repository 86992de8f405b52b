/* WebDataset's rules for the members of a tar, in order: a sample is a run of members with the same
 * key, and holds one image (.jpg, .jpeg, or without them another format) and one label (.cls, or
 * without it a value in .json), or for a detector its boxes (.json). Training and `dtrain verify`
 * both follow these functions, so they agree on errors. */
#ifndef DTRAIN_DATA_WDS_PAIR_H
#define DTRAIN_DATA_WDS_PAIR_H

#include <stdbool.h>
#include <stddef.h>

#include "dtrain/data.h"

enum { DT_WDS_KEY_MAX = 1024 }; /* dt_tar_walk refuses longer names */

enum dt_wds_kind {
    DT_WDS_OTHER, /* ignored */
    DT_WDS_IMAGE,
    DT_WDS_LABEL,
    DT_WDS_BOXES,
    DT_WDS_JSON,         /* of a classifier: what to keep for dt_wds_needs_json */
    DT_WDS_SECOND_IMAGE, /* an error: the sample already has one */
    DT_WDS_SECOND_LABEL,
};

/* The sample whose members are being visited; starts as {0}, or {.label = DT_WDS_BOXES}. */
struct dt_wds_pair {
    char key[DT_WDS_KEY_MAX + 1];
    enum dt_wds_kind label; /* DT_WDS_BOXES: the .json member, otherwise the .cls member */
    bool has_image, has_label;
    bool has_png;  /* it is not JPEG; a JPEG takes its place, as a mask may lie next to that */
    bool has_like; /* a member is named like an image, or a classifier's .json has company */
    /* Members with the other kind of label: .json of a classifier, used if there is no .cls; .cls
     * of a detector, only for the message that its boxes are missing. */
    bool has_json, has_cls;
};

/* Bytes of the key in a member's name, which ends at the first dot of the base name; the rest is
 * the kind. 0 if the member belongs to no sample (no such dot, hidden, __meta__). */
size_t dt_wds_key(const char *name);
/* Whether a member with a key begins another sample. The caller then checks whether the one in
 * `pair` is complete; dt_wds_add replaces it. */
bool dt_wds_begins(const struct dt_wds_pair *pair, const char *name);
enum dt_wds_kind dt_wds_add(struct dt_wds_pair *pair, const char *name);
/* Whether the label of the sample, complete otherwise, must be in its .json member. */
bool dt_wds_needs_json(const struct dt_wds_pair *pair);
/* The part that a sample with an image or a label lacks; NULL if it is complete, or has neither. */
const char *dt_wds_lacks(const struct dt_wds_pair *pair);

/* Keys of samples that occur twice, not in adjacent members: for `dtrain verify` a fault, for
 * training a notice, since such samples can be used. */

/* Hash of what must be unique: a key, together with its split, which is the base name of the shard
 * up to the last '-'. */
uint64_t dt_wds_hash(const char *shard, const char *key);
/* Logs how many there are among all samples of a data set that was opened from `path`. */
dt_status dt_wds_tell_repeated(const struct dt_dataset *dataset, const uint64_t *keys, size_t n,
                               const char *path);

#endif
