/* The safetensors file format: named tensors, validated before anything is allocated.
 * Format: u64 LE n | n bytes of JSON header | data (huggingface/safetensors). Read: F32, F16, BF16,
 * F64; accepted: I64; written: F32 and I64. Rules enforced: header <= 16 MiB and inside the file,
 * at most 10,000 tensors, unique names, offsets contiguous from 0 to the end of the file, sizes
 * equal to the product of the dims. */
#ifndef DTRAIN_CHECKPOINT_SAFETENSORS_H
#define DTRAIN_CHECKPOINT_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { DT_ST_MAX_DIMS = 8, DT_ST_NAME_MAX = 256 };
enum dt_st_dtype { DT_ST_F32, DT_ST_F16, DT_ST_BF16, DT_ST_F64, DT_ST_I64 };

struct dt_st_tensor {
    char name[DT_ST_NAME_MAX];
    enum dt_st_dtype dtype;
    int n_dims;
    int64_t dim[DT_ST_MAX_DIMS];
    uint64_t offset, bytes, elements; /* offset from the start of the data */
};

/* --- Reading --- */
struct dt_st_reader;
dt_status dt_st_open(struct dt_st_reader **reader, const char *path);
void dt_st_close(struct dt_st_reader *reader); /* accepts NULL */
size_t dt_st_count(const struct dt_st_reader *reader);
const struct dt_st_tensor *dt_st_get(const struct dt_st_reader *reader, size_t index);
/* By name, which may lack a prefix that all names of the file share, such as DDP's "module." and
 * the
 * "_orig_mod." of compiled models; NULL if absent. */
const struct dt_st_tensor *dt_st_find(const struct dt_st_reader *reader, const char *name);
/* The classes in the metadata, as written by dt_st_head; NULL if absent. */
const char *dt_st_classes(const struct dt_st_reader *reader);
const char *dt_st_config(const struct dt_st_reader *reader);
/* All elements as fp32; DT_ERR_DATA for I64. */
dt_status dt_st_read_f32(struct dt_st_reader *reader, const struct dt_st_tensor *t, float *out);
dt_status dt_st_read_i64(struct dt_st_reader *reader, const struct dt_st_tensor *t, void *out);

/* --- Writing --- */
/* Computes elements, bytes and offset of tensors whose dtype (F32 or I64), dims and name are set.
 */
dt_status dt_st_place(struct dt_st_tensor *tensors, size_t n_tensors);
/* The start of the file: the header with {"format":"pt"} and, unless it is NULL, the names of the
 * classes with a newline after each as "classes", and the path of the configuration of the run as
 * "config"; padded to 8 bytes. The tensors must have been placed; their data follow in the same
 * order. free(*head). */
dt_status dt_st_head(char **head, size_t *bytes, const struct dt_st_tensor *tensors,
                     size_t n_tensors, const char *classes, const char *config);

#endif
