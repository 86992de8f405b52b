/* What a 16-bit wire does with the numbers of a message: rounded to nearest even when sent, added
 * in fp32 when received. Infinities and NaNs arrive as such, so that the step is skipped on all
 * ranks; an fp16 message makes values of 65520 or more infinite. */
#ifndef DTRAIN_COMM_WIRE_H
#define DTRAIN_COMM_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "dtrain/dtype.h"

struct dt_wire {
    void (*pack)(uint16_t *out, const float *in, int count);
    /* Packs in + kept, and keeps what rounding takes away: error feedback. */
    void (*pack_keeping)(uint16_t *out, const float *in, float *kept, int count);
    void (*unpack)(float *out, const uint16_t *in, int count);
    void (*add)(float *sum, const uint16_t *in, int count);
    bool keeps; /* sums use pack_keeping */
};

const struct dt_wire *dt_wire_find(enum dt_dtype type); /* NULL: not a 16-bit type */

#endif
