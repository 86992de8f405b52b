/* A copy of the trainable state in host memory: the source from which a checkpoint is written while
 * training continues. Parameters, running statistics (with PyTorch's num_batches_tracked), their
 * moving averages and the optimizer's states, as logical fp32 values under the names they have in
 * the files. */
#ifndef DTRAIN_CHECKPOINT_SNAPSHOT_H
#define DTRAIN_CHECKPOINT_SNAPSHOT_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"

struct dt_snapshot;

/* The files with tensors. Names in the second begin with the state: "momentum.conv1.weight"; the
 * third has those of the first, or is empty if the plan has no moving averages. */
enum dt_snapshot_file {
    DT_SNAPSHOT_MODEL,
    DT_SNAPSHOT_OPTIM,
    DT_SNAPSHOT_EMA,
    DT_N_SNAPSHOT_FILES
};

/* Allocates memory for the tensors of `plan`, which must outlive the snapshot. */
dt_status dt_snapshot_create(struct dt_snapshot **snapshot, struct dt_plan *plan);
void dt_snapshot_destroy(struct dt_snapshot *snapshot); /* accepts NULL */
uint64_t dt_snapshot_bytes(const struct dt_snapshot *snapshot);
/* Copies state and tensors; waits for the device. Main thread. */
dt_status dt_snapshot_take(struct dt_snapshot *snapshot, const struct dt_checkpoint *state);
/* From now on the tensors are those of `plan`, whose graph differs from the first one's in what is
 * frozen only. Main thread. */
void dt_snapshot_set_plan(struct dt_snapshot *snapshot, struct dt_plan *plan);
/* Sets the tensors of the plan to those taken last. Local; main thread. */
dt_status dt_snapshot_restore(struct dt_snapshot *snapshot);

/* The rest may be called from any thread, but not during dt_snapshot_take. */
const struct dt_checkpoint *dt_snapshot_state(const struct dt_snapshot *snapshot);
/* The tensors of one file, placed, and their data in one block, as it follows the header in the
 * file. */
const struct dt_st_tensor *dt_snapshot_tensors(const struct dt_snapshot *snapshot,
                                               enum dt_snapshot_file file, int *n);
const void *dt_snapshot_data(const struct dt_snapshot *snapshot, enum dt_snapshot_file file,
                             uint64_t *bytes);

#endif
