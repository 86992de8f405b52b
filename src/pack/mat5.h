/* Reads a struct array from a little-endian MATLAB 5 file (MAT-File Format, MathWorks), such as
 * meta.mat of the ILSVRC development kit. */
#ifndef DTRAIN_PACK_MAT5_H
#define DTRAIN_PACK_MAT5_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct dt_mat_cell {
    const uint8_t *data; /* contents of its miMATRIX element */
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

/* Loads the variable `name`, a struct array, from file[0 .. bytes), which must outlive the struct.
 * DT_ERR_DATA with a reason that does not name the file. Limits: 64 MB decompressed, 10,000
 * elements, 256 fields. */
dt_status dt_mat_load(struct dt_mat_struct *array, const uint8_t *file, size_t bytes,
                      const char *name);
void dt_mat_reset(struct dt_mat_struct *array);
/* Index of a field, or -1. */
int dt_mat_field(const struct dt_mat_struct *array, const char *name);
/* False if the cell is not a single number or, for text, a row of at most bytes-1 ASCII
 * characters. */
bool dt_mat_number(const struct dt_mat_struct *array, uint32_t element, int field, double *out);
bool dt_mat_text(const struct dt_mat_struct *array, uint32_t element, int field, char *out,
                 size_t bytes);

#endif
