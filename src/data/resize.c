/* Separable resampling with Pillow's arithmetic: a triangle filter as wide as the reduction (at
 * least one pixel), weights rounded to 22 bits, rows first into 8 bits, then columns. Each axis has
 * a table: for every output pixel the first source pixel and the weights. Pixels outside the image
 * keep their share of the weight and count as black, which is what resizing a zero-padded image
 * gives. */
#include "data/resize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dtrain/mem.h"

enum { PRECISION = 32 - 8 - 2, ONE = 1 << PRECISION, HALF = 1 << (PRECISION - 1) };

struct tap {
    int first, n; /* source pixels first .. first+n-1; n = 0: black */
};

struct axis {
    struct tap *taps;
    size_t taps_capacity;
    int32_t *weights; /* of output pixel i at i * stride */
    size_t weights_capacity;
    int stride;
    int begin, end; /* source pixels used by any output pixel */
    bool is_copy;
};

struct dt_resize {
    struct axis x, y;
    int size;
    bool flip;
    uint8_t *rows; /* need.h x size x 3, after the pass over rows */
    size_t rows_capacity;
    int32_t *sums; /* size x 3 */
    size_t sums_capacity;
};

/* One axis of the problem: `length` pixels from `origin` become `size`; clip_begin .. clip_end are
 * the pixels the filter may use, 0 .. limit those that exist. */
struct span {
    double origin, length;
    int clip_begin, clip_end, limit, size;
};

static double triangle(double x)
{
    double y = 1.0 - fabs(x);
    return y > 0.0 ? y : 0.0;
}

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

static int max_int(int a, int b)
{
    return a > b ? a : b;
}

/* Weights of the output pixel with its centre at `centre` (counted from clip_begin). */
static struct tap build_tap(int32_t *weights, const struct span *span, double centre,
                            double stretch)
{
    struct tap tap = {span->clip_begin, 0};
    int n_clip = span->clip_end - span->clip_begin;
    if (centre < 0.0 || centre >= n_clip)
        return tap;
    int low = max_int((int)(centre - stretch + 0.5), 0);
    int high = min_int((int)(centre + stretch + 0.5), n_clip);
    double total = 0.0;
    for (int i = low; i < high; i++)
        total += triangle((i - centre + 0.5) / stretch);
    int begin = max_int(low, -span->clip_begin);
    int end = min_int(high, span->limit - span->clip_begin);
    for (int i = begin; i < end; i++) {
        double share = triangle((i - centre + 0.5) / stretch) / total;
        int32_t weight = (int32_t)(0.5 + share * ONE);
        if (tap.n == 0) {
            if (weight == 0)
                continue;
            tap.first = span->clip_begin + i;
        }
        weights[tap.n++] = weight;
    }
    while (tap.n > 0 && weights[tap.n - 1] == 0)
        tap.n--;
    return tap;
}

static dt_status build_axis(struct axis *axis, const struct span *span)
{
    double scale = span->length / span->size;
    double stretch = scale > 1.0 ? scale : 1.0;
    size_t size = (size_t)span->size;
    axis->stride = 2 * (int)ceil(stretch) + 1;
    DT_TRY(dt_mem_grow((void **)&axis->taps, &axis->taps_capacity, size, sizeof *axis->taps,
                       "a filter table"));
    DT_TRY(dt_mem_grow((void **)&axis->weights, &axis->weights_capacity,
                       size * (size_t)axis->stride, sizeof *axis->weights, "filter weights"));
    axis->begin = span->limit;
    axis->end = 0;
    axis->is_copy = true;
    for (int i = 0; i < span->size; i++) {
        int32_t *weights = axis->weights + (size_t)i * (size_t)axis->stride;
        double centre = span->origin - span->clip_begin + (i + 0.5) * scale;
        struct tap tap = build_tap(weights, span, centre, stretch);
        axis->taps[i] = tap;
        if (tap.n == 0)
            continue;
        axis->begin = min_int(axis->begin, tap.first);
        axis->end = max_int(axis->end, tap.first + tap.n);
        axis->is_copy = axis->is_copy && tap.n == 1 && weights[0] == ONE;
    }
    return DT_OK;
}

/* dst: one row of `size` pixels from a row of source pixels that begins at axis->begin. */
static void filter_row(uint8_t *dst, const uint8_t *src, const struct axis *axis, int size,
                       bool flip)
{
    for (int i = 0; i < size; i++) {
        const int32_t *weights = axis->weights + (size_t)i * (size_t)axis->stride;
        const struct tap *tap = &axis->taps[i];
        const uint8_t *pixel = src + 3 * (ptrdiff_t)(tap->first - axis->begin);
        int32_t r = HALF, g = HALF, b = HALF;
        for (int t = 0; t < tap->n; t++, pixel += 3) {
            r += weights[t] * pixel[0];
            g += weights[t] * pixel[1];
            b += weights[t] * pixel[2];
        }
        uint8_t *out = dst + 3 * (ptrdiff_t)(flip ? size - 1 - i : i);
        out[0] = (uint8_t)min_int(r >> PRECISION, 255);
        out[1] = (uint8_t)min_int(g >> PRECISION, 255);
        out[2] = (uint8_t)min_int(b >> PRECISION, 255);
    }
}

/* dst[n] = the weighted sum of rows of n values; whole rows at a time, so it vectorises. */
static void filter_columns(uint8_t *dst, const uint8_t *rows, int32_t *restrict sums, size_t n,
                           const int32_t *weights, int n_weights)
{
    for (size_t c = 0; c < n; c++)
        sums[c] = HALF;
    for (int t = 0; t < n_weights; t++, rows += n) {
        int32_t weight = weights[t];
        for (size_t c = 0; c < n; c++)
            sums[c] += weight * rows[c];
    }
    for (size_t c = 0; c < n; c++)
        dst[c] = (uint8_t)min_int(sums[c] >> PRECISION, 255);
}

/* Same size and whole pixels: nothing to filter. */
static void copy_pixels(const struct dt_resize *resize, uint8_t *dst, const uint8_t *pixels)
{
    const struct axis *x = &resize->x, *y = &resize->y;
    int size = resize->size, width = x->end - x->begin;
    memset(dst, 0, (size_t)size * (size_t)size * 3);
    for (int j = 0; j < size; j++) {
        if (y->taps[j].n == 0)
            continue;
        const uint8_t *src = pixels + 3 * (ptrdiff_t)(y->taps[j].first - y->begin) * width;
        uint8_t *row = dst + 3 * (ptrdiff_t)j * size;
        for (int i = 0; i < size; i++) {
            if (x->taps[i].n == 0)
                continue;
            const uint8_t *pixel = src + 3 * (ptrdiff_t)(x->taps[i].first - x->begin);
            uint8_t *out = row + 3 * (ptrdiff_t)(resize->flip ? size - 1 - i : i);
            out[0] = pixel[0];
            out[1] = pixel[1];
            out[2] = pixel[2];
        }
    }
}

dt_status dt_resize_create(struct dt_resize **resize)
{
    return DT_NEW(*resize, 1);
}

void dt_resize_destroy(struct dt_resize *resize)
{
    if (!resize)
        return;
    free(resize->x.taps);
    free(resize->x.weights);
    free(resize->y.taps);
    free(resize->y.weights);
    free(resize->rows);
    free(resize->sums);
    free(resize);
}

dt_status dt_resize_prepare(struct dt_resize *resize, struct dt_rect *need,
                            const struct dt_crop *crop, enum dt_resize_edge edge, int width,
                            int height, int size)
{
    if (!(crop->w > 0.0f) || !(crop->h > 0.0f) || size < 1)
        DT_FAIL(DT_ERR_INTERNAL, "cannot resize a rectangle of %g x %g to %d pixels", crop->w,
                crop->h, size);
    struct span x = {crop->x, crop->w, 0, width, width, size};
    struct span y = {crop->y, crop->h, 0, height, height, size};
    if (edge == DT_RESIZE_CROP) {
        x.clip_begin = (int)floor(x.origin);
        x.clip_end = (int)ceil(x.origin + x.length);
        y.clip_begin = (int)floor(y.origin);
        y.clip_end = (int)ceil(y.origin + y.length);
    }
    DT_TRY(build_axis(&resize->x, &x));
    DT_TRY(build_axis(&resize->y, &y));
    need->x = min_int(resize->x.begin, resize->x.end);
    need->y = min_int(resize->y.begin, resize->y.end);
    need->w = max_int(resize->x.end - resize->x.begin, 0);
    need->h = max_int(resize->y.end - resize->y.begin, 0);
    resize->size = size;
    resize->flip = crop->flip;
    size_t row_values = (size_t)size * 3;
    DT_TRY(dt_mem_grow((void **)&resize->rows, &resize->rows_capacity, (size_t)need->h * row_values,
                       1, "resized rows"));
    return dt_mem_grow((void **)&resize->sums, &resize->sums_capacity, row_values,
                       sizeof *resize->sums, "a row of sums");
}

void dt_resize_run(struct dt_resize *resize, uint8_t *dst, const uint8_t *pixels)
{
    const struct axis *x = &resize->x, *y = &resize->y;
    if (x->is_copy && y->is_copy) {
        copy_pixels(resize, dst, pixels);
        return;
    }
    int size = resize->size;
    size_t row_values = (size_t)size * 3;
    for (int row = 0; row < y->end - y->begin; row++)
        filter_row(resize->rows + (size_t)row * row_values,
                   pixels + 3 * (ptrdiff_t)row * (x->end - x->begin), x, size, resize->flip);
    for (int j = 0; j < size; j++) {
        const struct tap *tap = &y->taps[j];
        const uint8_t *rows =
            resize->rows + (size_t)(tap->n ? tap->first - y->begin : 0) * row_values;
        filter_columns(dst + (size_t)j * row_values, rows, resize->sums, row_values,
                       y->weights + (size_t)j * (size_t)y->stride, tap->n);
    }
}
