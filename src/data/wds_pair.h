/* WebDataset's rules for the members of a tar, in order: a sample is a run of members with the same
 * key, and holds one image (.jpg, .jpeg) and one label (.cls), or for a detector its boxes (.json).
 * Training and `dtrain verify` both follow these functions, so they agree on errors. */
#ifndef DTRAIN_DATA_WDS_PAIR_H
#define DTRAIN_DATA_WDS_PAIR_H

#include <stdbool.h>
#include <stddef.h>

enum { DT_WDS_KEY_MAX = 1024 }; /* dt_tar_walk refuses longer names */

/* The sample whose members are being visited; starts as {0}, or {.has_boxes = true}. */
struct dt_wds_pair {
    char key[DT_WDS_KEY_MAX + 1];
    bool has_boxes; /* the label is the .json member, otherwise the .cls member */
    bool has_image, has_label;
    bool has_other; /* the label of the other kind, which is ignored */
};

enum dt_wds_kind {
    DT_WDS_OTHER, /* ignored */
    DT_WDS_IMAGE,
    DT_WDS_LABEL,
    DT_WDS_SECOND_IMAGE, /* an error: the sample already has one */
    DT_WDS_SECOND_LABEL,
};

/* Bytes of the key in a member's name, which ends at the first dot of the base name; the rest is
 * the kind. 0 if the member belongs to no sample (no such dot, hidden, __meta__). */
size_t dt_wds_key(const char *name);
/* Whether a member with a key begins another sample. The caller then checks whether the one in
 * `pair` is complete; dt_wds_add replaces it. */
bool dt_wds_begins(const struct dt_wds_pair *pair, const char *name);
enum dt_wds_kind dt_wds_add(struct dt_wds_pair *pair, const char *name);
/* What a sample lacks that has an image or a label; NULL if it is complete, or has neither. */
const char *dt_wds_lacks(const struct dt_wds_pair *pair);

#endif
