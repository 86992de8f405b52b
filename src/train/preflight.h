/* Everything that can fail at hour five and can be checked at second five. Collective. */
#ifndef DTRAIN_TRAIN_PREFLIGHT_H
#define DTRAIN_TRAIN_PREFLIGHT_H

#include "checkpoint/manifest.h"
#include "train/session.h"

/* What must be the same on all ranks. */
struct dt_preflight_identity {
    char host[DT_HOST_MAX];
    uint64_t config_hash;
    uint64_t fingerprint[2]; /* of training and validation data */
    uint32_t n_images[2];
    char libraries[256];
};
/* DT_ERR_DISAGREE with the first rank that is not as rank 0; other libraries only make a text
 * warning[bytes], else "". Local. */
dt_status dt_preflight_compare(const struct dt_preflight_identity *ranks, int n_ranks,
                               char *warning, size_t bytes);

/* All ranks have the same configuration (bytes), libraries and data index: DT_ERR_DISAGREE names
 * the rank, host and thing that differ; other library versions are a warning. After the data sets
 * are open. */
dt_status dt_preflight_agree(struct dt_session *s);
/* Sums a known vector over the ranks by the plan's plane and compares: DT_ERR_DEVICE. Decodes a few
 * samples of each data set per rank: DT_ERR_DATA if a rank can decode none, else a warning. */
dt_status dt_preflight_try(struct dt_session *s);
/* Space for keep + 1 checkpoints of `bytes`, less those that are there. Rank 0. */
dt_status dt_preflight_space(const struct dt_session *s, uint64_t bytes);

#endif
