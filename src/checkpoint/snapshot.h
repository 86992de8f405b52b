/* A copy of the trainable state in host memory: the source from which a checkpoint is written while
 * training continues. Parameters, running statistics (with PyTorch's num_batches_tracked) and
 * momentum, as logical fp32 values under the names they have in the files. */
#ifndef DTRAIN_CHECKPOINT_SNAPSHOT_H
#define DTRAIN_CHECKPOINT_SNAPSHOT_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"

struct dt_snapshot;

/* Prefix that turns the name of a parameter into the name of its momentum. */
#define DT_MOMENTUM_PREFIX "momentum."

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
/* The tensors of one file (momentum: optim.safetensors, else model.safetensors), placed, and their
 * data in one block, as it follows the header in the file. */
const struct dt_st_tensor *dt_snapshot_tensors(const struct dt_snapshot *snapshot, bool momentum,
                                               int *n);
const void *dt_snapshot_data(const struct dt_snapshot *snapshot, bool momentum, uint64_t *bytes);

#endif
