/* Weights in the formats of other programs, which people give where a safetensors file belongs. */
#ifndef DTRAIN_CHECKPOINT_FOREIGN_H
#define DTRAIN_CHECKPOINT_FOREIGN_H

#include <stdint.h>

#include "base/status.h"

/* Fails with DT_ERR_DATA, whose text says what the file is, by its first bytes, and what to do. */
dt_status dt_foreign_refuse(int fd, uint64_t file_bytes, const char *path);

#endif
