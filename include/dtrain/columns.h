/* The columns of a sample: the batch of a loader, what a plan is fed and the inputs of a graph all
 * follow from this list. */
#ifndef DTRAIN_COLUMNS_H
#define DTRAIN_COLUMNS_H

#include <stdint.h>

#include "dtrain/dtype.h"

/* Dimensions that differ from run to run. */
enum dt_extent { DT_EXTENT_HEIGHT, DT_EXTENT_WIDTH, DT_EXTENT_BOXES, DT_N_EXTENTS };

/* X(upper, name, C type, dtype, dimensions of one sample). A dimension is a number, or ~e for
 * extent e, which differs from run to run; 0 stands for no dimensions. */
#define DT_COLUMN_LIST(X)                                                              \
    /* RGB of the row, whose image may be smaller: zeros around it. Stored H,W,C */    \
    X(PIXELS, pixels, uint8_t, DT_U8, 3, ~DT_EXTENT_HEIGHT, ~DT_EXTENT_WIDTH)          \
    /* The class; -1: ignore the image. labels2: of the image mixed in, or the same */ \
    X(LABELS, labels, int32_t, DT_I32, 0)                                              \
    X(LABELS2, labels2, int32_t, DT_I32, 0)                                            \
    /* The weight of labels, 0.5 .. 1; labels2 has the rest */                         \
    X(MIX_SHARE, mix_share, float, DT_F32, 0)                                          \
    /* x1 y1 x2 y2 in the pixels, x1 < x2 and y1 < y2, without crowds */               \
    X(BOXES, boxes, float, DT_F32, ~DT_EXTENT_BOXES, 4)                                \
    X(BOX_LABELS, box_labels, int32_t, DT_I32, ~DT_EXTENT_BOXES) /* -1 = no box */     \
    X(SIZES, sizes, int32_t, DT_I32, 2) /* height and width of the image in its row */

#define DT_COLUMN_ENUM(upper, ...) DT_COLUMN_##upper,
enum dt_sample_column { DT_COLUMN_LIST(DT_COLUMN_ENUM) DT_N_COLUMNS };
#undef DT_COLUMN_ENUM

/* Members of a struct: one for each column, by name or by number. */
#define DT_COLUMN_MEMBERS(MEMBER, any) \
    union {                            \
        struct {                       \
            DT_COLUMN_LIST(MEMBER)     \
        };                             \
        any column[DT_N_COLUMNS];      \
    }
#define DT_COLUMN_POINTER(upper, name, type, ...)  type *name;
#define DT_COLUMN_BORROWED(upper, name, type, ...) const type *name;
#define DT_COLUMN_TENSOR(upper, name, ...)         int name;

struct dt_column_row {
    const char *name;
    enum dt_dtype dtype;
    int dim[3];
};

#define DT_COLUMN_ROW(upper, name, type, dtype, ...) {#name, dtype, {__VA_ARGS__}},
static inline const struct dt_column_row *dt_column_row(enum dt_sample_column column)
{
    static const struct dt_column_row rows[] = {DT_COLUMN_LIST(DT_COLUMN_ROW)};
    return &rows[column];
}
#undef DT_COLUMN_ROW

/* The shape of so many samples. Returns the number of dimensions. */
static inline int dt_column_shape(int dim[4], enum dt_sample_column column, int n_samples,
                                  const int extent[DT_N_EXTENTS])
{
    const int *own = dt_column_row(column)->dim;
    int n_dims = 1;
    dim[0] = n_samples;
    dim[1] = dim[2] = dim[3] = 1;
    for (int i = 0; i < 3 && own[i] != 0; i++)
        dim[n_dims++] = own[i] < 0 ? extent[~own[i]] : own[i];
    return n_dims;
}

#endif
