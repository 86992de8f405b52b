/* Inside the room: file names in a checkpoint folder, and functions for one or two other files. */
#ifndef DTRAIN_CHECKPOINT_CHECKPOINT_INTERNAL_H
#define DTRAIN_CHECKPOINT_CHECKPOINT_INTERNAL_H

#define DT_MODEL_FILE  "model.safetensors"
#define DT_OPTIM_FILE  "optim.safetensors"
#define DT_EMA_FILE    "ema.safetensors"
#define DT_STATE_FILE  "state.json"
#define DT_CONFIG_FILE "config.json"

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* paths.c: the step in the resolved name of the folder `path`; false if the name has none. */
bool dt_checkpoint_folder_step(int64_t *step, const char *path);

/* paths.c: removes .trash-step-N in the folder of the checkpoints. Beats dt_pulse_writer. */
void dt_checkpoint_empty_trash(const char *dir);
/* foreign.c: fails with DT_ERR_DATA, whose text says what the file, which is not a safetensors
 * file, is by its first bytes, and what to do. */
dt_status dt_foreign_refuse(int fd, uint64_t file_bytes, const char *path);

#endif
