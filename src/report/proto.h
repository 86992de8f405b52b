/* Writes protocol buffers: fields in the order of the calls, nested messages between open and
 * close. Running out of memory is remembered in `status`. */
#ifndef DTRAIN_REPORT_PROTO_H
#define DTRAIN_REPORT_PROTO_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct dt_proto {
    uint8_t *at;
    size_t used, capacity;
    dt_status status;
};

void dt_proto_raw(struct dt_proto *p, const void *data, size_t bytes);
void dt_proto_fixed(struct dt_proto *p, uint64_t value, size_t bytes); /* little-endian */
/* Fields of the types int64, double, float, bytes and string. */
void dt_proto_integer(struct dt_proto *p, int field, int64_t value);
void dt_proto_double(struct dt_proto *p, int field, double value);
void dt_proto_float(struct dt_proto *p, int field, float value);
void dt_proto_bytes(struct dt_proto *p, int field, const void *data, size_t bytes);
void dt_proto_text(struct dt_proto *p, int field, const char *text);
/* Returns what close needs. */
size_t dt_proto_open(struct dt_proto *p, int field);
void dt_proto_close(struct dt_proto *p, size_t begin);

#endif
