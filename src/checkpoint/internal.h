/* File names in a checkpoint folder, for the code that reads and writes them. */
#ifndef DTRAIN_CHECKPOINT_INTERNAL_H
#define DTRAIN_CHECKPOINT_INTERNAL_H

#define DT_MODEL_FILE  "model.safetensors"
#define DT_OPTIM_FILE  "optim.safetensors"
#define DT_EMA_FILE    "ema.safetensors"
#define DT_STATE_FILE  "state.json"
#define DT_CONFIG_FILE "config.json"

#include <stdbool.h>
#include <stdint.h>

/* The step in the resolved name of the folder `path`; false if the name has none. */
bool dt_checkpoint_folder_step(int64_t *step, const char *path);

/* Removes .trash-step-N in the folder of the checkpoints. Beats dt_pulse_writer. */
void dt_checkpoint_empty_trash(const char *dir);

#endif
