/* Saving during training: the main thread copies the state, a separate thread writes it. Rank 0
 * only. */
#ifndef DTRAIN_CHECKPOINT_WRITER_H
#define DTRAIN_CHECKPOINT_WRITER_H

#include "checkpoint/checkpoint.h"

struct dt_writer;

/* Result of a save. */
struct dt_saved {
    dt_status status;       /* of the write; its text is in `problem` */
    int64_t step;           /* updates done */
    double seconds;         /* of the thread */
    uint64_t bytes;         /* of tensors */
    char path[DT_PATH_MAX]; /* of the checkpoint */
    char problem[DT_PATH_MAX + 1024];
};

/* Allocates the snapshot and starts the thread. `target` and `plan` must outlive the writer. */
dt_status dt_writer_create(struct dt_writer **writer, const struct dt_checkpoint_target *target,
                           struct dt_plan *plan);
/* Waits for the save under way and stops the thread; accepts NULL. */
void dt_writer_destroy(struct dt_writer *writer);

/* As dt_snapshot_set_plan; a save under way is not disturbed. */
void dt_writer_set_plan(struct dt_writer *writer, struct dt_plan *plan);

/* Bytes of the tensors of a checkpoint. */
uint64_t dt_writer_bytes(const struct dt_writer *writer);

/* Copies the state and starts writing it. Waits for a save that is still under way. A result that
 * has not been taken is dropped, with a warning if it is a failure. */
dt_status dt_writer_start(struct dt_writer *writer, const struct dt_checkpoint *state);
bool dt_writer_is_busy(struct dt_writer *writer);
/* True if a save has ended since the last call; its result goes to *saved. With `wait` it first
 * waits for the one under way. */
bool dt_writer_take_result(struct dt_writer *writer, struct dt_saved *saved, bool wait);

#endif
