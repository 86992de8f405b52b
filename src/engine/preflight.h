/* Checks at the start for what would otherwise fail hours into the run. Collective. */
#ifndef DTRAIN_ENGINE_PREFLIGHT_H
#define DTRAIN_ENGINE_PREFLIGHT_H

#include "checkpoint/manifest.h"
#include "data/digest.h"
#include "engine/engine.h"

enum { DT_DEVICE_MAX = 160 }; /* of dt_preflight_device */

/* Values that must be the same on all ranks. */
struct dt_preflight_identity {
    char host[DT_HOST_MAX];
    uint64_t config_hash;
    uint64_t folder;                    /* a hash of the current folder's device and inode */
    char libraries[DT_DEVICE_MAX + 72]; /* of the device and the data plane */
};
/* Describes what this rank's bits depend on, in the words of its backend without the first one,
 * which says which device of the node it is; "" without a device. Local. */
void dt_preflight_device(char *out, size_t bytes, const struct dt_engine *engine);
/* DT_ERR_DISAGREE naming the first rank that differs from rank 0; different libraries only fill
 * warning[bytes], which is "" otherwise. Local. */
dt_status dt_preflight_compare(const struct dt_preflight_identity *ranks, int n_ranks,
                               char *warning, size_t bytes);

/* Checks that all ranks have the same configuration (bytes) and libraries: DT_ERR_DISAGREE names
 * the rank, the host and the difference; different libraries cause a warning, unless those of a
 * training keep weights in different orders. Then that all see the data of which rank 0 has made
 * the index: one rank of each machine, and of each current folder, reads what data.check asks for,
 * by default 64 pieces of the files: a file that one machine lacks may become a bad sample later.
 * Overwrites the weights; call it when the data sets and the plan, if there is one, are open. */
dt_status dt_preflight_agree(struct dt_engine *engine, struct dt_sets *sets);
/* Compares one set, which all ranks have open; the ranks that do not read count as equal. `key` is
 * data.train or data.val. DT_OK if no difference is found; rank 0 reads. */
dt_status dt_same_data_compare(struct dt_comm *comm, const struct dt_dataset *set, const char *key,
                               enum dt_digest kind, bool reads);
/* Sums a known vector over the ranks on the plan's plane: DT_ERR_DEVICE if the result is wrong.
 * Decodes data sets of at most data.check_images whole: a warning for each bad one, DT_ERR_DATA if
 * they exceed data.max_bad_fraction; of others a few samples on every rank: DT_ERR_DATA if none of
 * all can be decoded, a warning of a rank that cannot decode all of its own. */
dt_status dt_preflight_try(struct dt_engine *engine, struct dt_sets *sets);
/* Checks for space for keep + 1 checkpoints of `bytes`, minus the existing ones. Rank 0. */
dt_status dt_preflight_space(const struct dt_config *config, uint64_t bytes);

#endif
