/* The mean of saved weights, as a safetensors file. Local. */
#ifndef DTRAIN_CHECKPOINT_AVERAGE_WEIGHTS_H
#define DTRAIN_CHECKPOINT_AVERAGE_WEIGHTS_H

#include "base/file.h"
#include "checkpoint/safetensors.h"

struct dt_average {
    struct dt_st_tensor *tensors; /* placed; F32 and I64 */
    size_t n_tensors;
    char *data, *classes; /* classes: NULL if unknown */
};

/* Arithmetic means in fp64 of the floating-point tensors of `paths` (dt_weights_find); integers are
 * the last one's. DT_ERR_CONFIG if they are not of the same model, with the same classes. *average
 * may be reset in any case. */
dt_status dt_average_read(struct dt_average *average, char *const *paths, int n);
/* Writes them from the beginning of a file that dt_file_begin has begun, again if called again. */
dt_status dt_average_write(const struct dt_average *average, const struct dt_new_file *file);
void dt_average_reset(struct dt_average *average);

#endif
