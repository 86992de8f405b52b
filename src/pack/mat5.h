/* Reads a struct array out of a MATLAB 5 file (MAT-File Format, MathWorks; little-endian), which is
 * what meta.mat of the ILSVRC development kit holds. */
#ifndef DTRAIN_PACK_MAT5_H
#define DTRAIN_PACK_MAT5_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct dt_mat_cell {
    const uint8_t *data; /* of its miMATRIX element */
    size_t bytes;
};

/* Starts as {0}. */
struct dt_mat_struct {
    uint8_t *data; /* the variable, decompressed */
    size_t bytes;
    uint32_t n_elements, n_fields;
    char (*fields)[64];
    struct dt_mat_cell *cells; /* [element][field] */
};

/* The variable `name`, a struct array, of the file that lies in file[0 .. bytes). DT_ERR_DATA with
 * the reason (which names no file). `file` is kept until dt_mat_reset. Limits: 64 MB decompressed,
 * 10,000 elements, 256 fields. */
dt_status dt_mat_load(struct dt_mat_struct *array, const uint8_t *file, size_t bytes,
                      const char *name);
void dt_mat_reset(struct dt_mat_struct *array);
/* Index of a field, or -1. */
int dt_mat_field(const struct dt_mat_struct *array, const char *name);
/* False if the cell is not a single number, or not a line of at most bytes-1 ASCII characters. */
bool dt_mat_number(const struct dt_mat_struct *array, uint32_t element, int field, double *out);
bool dt_mat_text(const struct dt_mat_struct *array, uint32_t element, int field, char *out,
                 size_t bytes);

#endif
