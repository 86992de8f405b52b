/* Separable resampling with Pillow's filter: a triangle as wide as the reduction (at least one
 * pixel), rows first into 8 bits, then columns. Each axis has a table: for every output pixel the
 * first source pixel and the taps. Pixels outside the image keep their taps and count as black, as
 * if a zero-padded image were resized. The inner loops are in resize_<instruction set>.c. */
#include "image/resize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "image/resize_kernels.h"

enum { ONE = 1 << DT_RESIZE_BITS };

struct axis {
    struct dt_resize_axis table;
    size_t windows_capacity, taps_capacity;
    int begin, end; /* source pixels used by any output pixel; equal if none is used */
};

struct dt_resize {
    const struct dt_resize_kernels *kernels;
    struct axis x, y;
    struct dt_rect need;
    int width, height; /* of the output */
    bool flip, is_copy;
    int left, top; /* is_copy: source position of the first output pixel */
    uint8_t *rows; /* output of the row pass, need.h x pitch, plus DT_RESIZE_ROWS rows of padding */
    size_t rows_capacity, pitch;
};

/* Geometry of one axis: one output pixel for every `scale` source pixels from `origin` on.
 * Positions are relative to `clip`, the first pixel that the filter may use; of the n_clip pixels
 * from there, image_begin .. image_end-1 are inside the image. */
struct span {
    double origin, scale, stretch; /* stretch: half the width of the triangle */
    int clip, n_clip, image_begin, image_end, size;
    bool flip;
};

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

static int max_int(int a, int b)
{
    return a > b ? a : b;
}

/* Clamps n to 0 .. limit. */
static int clamp(int n, int limit)
{
    return min_int(max_int(n, 0), limit);
}

static int round_up(int n, int multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

static struct span make_span(float origin, float length, enum dt_resize_edge edge, int limit,
                             int size, bool flip)
{
    int clip = 0, clip_end = limit;
    if (edge == DT_RESIZE_CROP) {
        clip = (int)floor((double)origin);
        clip_end = (int)ceil((double)origin + (double)length);
    }
    int n_clip = clip_end - clip;
    double scale = (double)length / size;
    return (struct span){.origin = (double)origin - clip,
                         .scale = scale,
                         .stretch = fmax(scale, 1.0),
                         .clip = clip,
                         .n_clip = n_clip,
                         .image_begin = clamp(-clip, n_clip),
                         .image_end = clamp(limit - clip, n_clip),
                         .size = size,
                         .flip = flip};
}

static double centre_of(const struct span *span, int i)
{
    int at = span->flip ? span->size - 1 - i : i;
    return span->origin + (at + 0.5) * span->scale;
}

/* The window of output pixel i before clipping to the image; empty if the pixel is black. */
static struct dt_resize_window find_window(const struct span *span, int i)
{
    double centre = centre_of(span, i);
    if (i >= span->size || centre < 0.0 || centre >= span->n_clip)
        return (struct dt_resize_window){span->image_begin, 0};
    int low = max_int((int)(centre - span->stretch + 0.5), 0);
    int high = min_int((int)(centre + span->stretch + 0.5), span->n_clip);
    return (struct dt_resize_window){low, high - low};
}

/* Finds all windows, and the range of image pixels that they use. */
static void find_windows(struct axis *axis, const struct span *span)
{
    int longest = 0;
    axis->begin = span->image_end;
    axis->end = span->image_begin;
    for (int i = 0; i < axis->table.size; i++) {
        struct dt_resize_window window = find_window(span, i);
        int begin = max_int(window.first, span->image_begin);
        int end = min_int(window.first + window.n, span->image_end);
        axis->table.windows[i] = window;
        if (begin >= end)
            continue;
        axis->begin = min_int(axis->begin, begin);
        axis->end = max_int(axis->end, end);
        longest = max_int(longest, end - begin);
    }
    axis->end = max_int(axis->end, axis->begin);
    axis->table.n_taps = round_up(longest, DT_RESIZE_TAPS);
}

/* The triangle's height at x from its centre. */
static inline double triangle(double x, double per_pixel)
{
    double y = 1.0 - fabs(x) * per_pixel;
    return y > 0.0 ? y : 0.0;
}

/* Sum of the triangle at n pixels on one side, the nearest one at x from the centre. */
static inline double sum_side(double x, int n, double per_pixel)
{
    return n * (1.0 - (x + 0.5 * (n - 1)) * per_pixel);
}

/* Writes n taps from pixel `first` on, zero outside the window: the same count for all output
 * pixels saves more on mispredicted branches than the extra arithmetic costs. The running sum is
 * rounded rather than each tap, so the taps sum to exactly one and flat areas stay flat. Pixels
 * before `first` are outside the image. */
static void write_taps(int16_t *taps, struct dt_resize_window window, int first, int n,
                       double centre, double per_pixel)
{
    int high = window.first + window.n;
    int nearest = (int)(centre + 0.5); /* the first pixel to the right of the centre */
    double from_centre = nearest + 0.5 - centre, sum = 0.5;
    double total = sum_side(from_centre, high - nearest, per_pixel) +
                   sum_side(1.0 - from_centre, nearest - window.first, per_pixel);
    double to_tap = ONE / total;
    for (int k = window.first; k < first; k++)
        sum += triangle(k + 0.5 - centre, per_pixel) * to_tap;
    int before = (int)sum;
    double x = first + 0.5 - centre;
    for (int k = 0; k < n; k++, x += 1.0) {
        sum += triangle(x, per_pixel) * to_tap;
        taps[k] = (int16_t)((int)sum - before);
        before = (int)sum;
    }
}

/* Clips window i, makes it relative to the first needed pixel, and writes its taps. */
static void fill_window(struct axis *axis, const struct span *span, int i, double per_pixel)
{
    struct dt_resize_window *clipped = &axis->table.windows[i], window = *clipped;
    int n_taps = axis->table.n_taps;
    int begin = max_int(window.first, axis->begin);
    int end = min_int(window.first + window.n, axis->end);
    /* n_taps pixels are read from `first` on, so near the end it has to move back. */
    int first = max_int(min_int(begin, axis->end - n_taps), axis->begin);
    *clipped = (struct dt_resize_window){first - axis->begin, 0};
    if (begin >= end)
        return;
    clipped->n = round_up(end - first, DT_RESIZE_TAPS);
    write_taps(axis->table.taps + (size_t)i * (size_t)n_taps, window, first,
               min_int(n_taps, axis->end - first), centre_of(span, i), per_pixel);
}

static dt_status build_axis(struct axis *axis, const struct span *span)
{
    struct dt_resize_axis *table = &axis->table;
    table->size = round_up(span->size, DT_RESIZE_OUTPUTS);
    DT_TRY(DT_GROW(table->windows, axis->windows_capacity, (size_t)table->size, "a filter table"));
    find_windows(axis, span);
    DT_TRY(DT_GROW(table->taps, axis->taps_capacity, (size_t)table->size * (size_t)table->n_taps,
                   "filter taps"));
    double per_pixel = 1.0 / span->stretch;
    memset(table->taps, 0, (size_t)table->size * (size_t)table->n_taps * sizeof *table->taps);
    for (int i = 0; i < table->size; i++)
        fill_window(axis, span, i, per_pixel);
    return DT_OK;
}

const struct dt_resize_kernels *dt_resize_kernels(int i)
{
#if defined(__x86_64__)
    static const struct dt_resize_kernels *const sets[] = {&dt_resize_avx2, &dt_resize_plain, NULL};
    return sets[min_int(__builtin_cpu_supports("avx2") ? i : i + 1, 2)];
#elif defined(__aarch64__)
    static const struct dt_resize_kernels *const sets[] = {&dt_resize_neon, &dt_resize_plain, NULL};
    return sets[min_int(i, 2)];
#else
    return i == 0 ? &dt_resize_plain : NULL;
#endif
}

void dt_resize_use(struct dt_resize *resize, const struct dt_resize_kernels *kernels)
{
    resize->kernels = kernels;
}

dt_status dt_resize_create(struct dt_resize **resize)
{
    DT_TRY(DT_NEW(*resize, 1));
    (*resize)->kernels = dt_resize_kernels(0);
    return DT_OK;
}

void dt_resize_destroy(struct dt_resize *resize)
{
    if (!resize)
        return;
    free(resize->x.table.windows);
    free(resize->x.table.taps);
    free(resize->y.table.windows);
    free(resize->y.table.taps);
    free(resize->rows);
    free(resize);
}

static dt_status prepare_filter(struct dt_resize *resize, const struct dt_crop *crop,
                                enum dt_resize_edge edge, int width, int height)
{
    struct axis *x = &resize->x, *y = &resize->y;
    struct span across = make_span(crop->x, crop->w, edge, width, resize->width, crop->flip);
    struct span down = make_span(crop->y, crop->h, edge, height, resize->height, false);
    DT_TRY(build_axis(x, &across));
    DT_TRY(build_axis(y, &down));
    resize->need =
        (struct dt_rect){clamp(across.clip + x->begin, width), clamp(down.clip + y->begin, height),
                         x->end - x->begin, y->end - y->begin};
    resize->pitch = 3 * (size_t)x->table.size + 4;
    return DT_GROW(resize->rows, resize->rows_capacity,
                   (size_t)(resize->need.h + DT_RESIZE_ROWS) * resize->pitch, "resized rows");
}

dt_status dt_resize_prepare(struct dt_resize *resize, struct dt_rect *need,
                            const struct dt_crop *crop, enum dt_resize_edge edge, int width,
                            int height, int out_width, int out_height)
{
    if (!(crop->w > 0.0f) || !(crop->h > 0.0f) || out_width < 1 || out_height < 1)
        DT_FAIL(DT_ERR_INTERNAL, "cannot resize a rectangle of %g x %g to %d x %d pixels", crop->w,
                crop->h, out_width, out_height);
    resize->width = out_width;
    resize->height = out_height;
    resize->flip = crop->flip;
    /* Same size at whole pixels: the pixels are copied, without filter tables. */
    resize->is_copy = crop->w == (float)out_width && crop->h == (float)out_height &&
                      crop->x == floorf(crop->x) && crop->y == floorf(crop->y);
    if (resize->is_copy) {
        resize->left = (int)crop->x;
        resize->top = (int)crop->y;
        int x = clamp(resize->left, width), y = clamp(resize->top, height);
        resize->need =
            (struct dt_rect){x, y, max_int(min_int(resize->left + out_width, width) - x, 0),
                             max_int(min_int(resize->top + out_height, height) - y, 0)};
    } else {
        DT_TRY(prepare_filter(resize, crop, edge, width, height));
    }
    *need = resize->need;
    return DT_OK;
}

static void copy_row(uint8_t *dst, const uint8_t *src, int n, bool flip)
{
    if (!flip) {
        memcpy(dst, src, 3 * (size_t)n);
        return;
    }
    for (int i = 0; i < n; i++, src += 3) {
        uint8_t *out = dst + 3 * (ptrdiff_t)(n - 1 - i);
        out[0] = src[0];
        out[1] = src[1];
        out[2] = src[2];
    }
}

static void copy_pixels(const struct dt_resize *resize, uint8_t *dst, size_t pitch,
                        const uint8_t *pixels)
{
    const struct dt_rect *need = &resize->need;
    int width = resize->width, column = need->x - resize->left;
    if (resize->flip)
        column = width - column - need->w;
    for (int row = 0; row < resize->height && (need->w < width || need->h < resize->height); row++)
        memset(dst + (size_t)row * pitch, 0, 3 * (size_t)width);
    dst += (ptrdiff_t)pitch * (need->y - resize->top) + 3 * (ptrdiff_t)column;
    for (int row = 0; row < need->h; row++)
        copy_row(dst + (ptrdiff_t)pitch * row, pixels + 3 * (ptrdiff_t)row * need->w, need->w,
                 resize->flip);
}

void dt_resize_run_into(struct dt_resize *resize, uint8_t *dst, size_t pitch, const uint8_t *pixels)
{
    const struct dt_resize_axis *y = &resize->y.table;
    size_t row_values = (size_t)resize->width * 3, width = 3 * (size_t)resize->need.w;
    int done = 0; /* rows are filtered when first needed, so that they are still in the cache */
    if (resize->is_copy) {
        copy_pixels(resize, dst, pitch, pixels);
        return;
    }
    for (int j = 0; j < resize->height; j++, dst += pitch) {
        const struct dt_resize_window *window = &y->windows[j];
        for (; done < min_int(window->first + window->n, resize->need.h); done += DT_RESIZE_ROWS)
            resize->kernels->rows(resize->rows + (size_t)done * resize->pitch, resize->pitch,
                                  pixels + (size_t)done * width, width,
                                  min_int(resize->need.h - done, DT_RESIZE_ROWS), &resize->x.table);
        resize->kernels->columns(dst, row_values,
                                 resize->rows + (size_t)window->first * resize->pitch,
                                 resize->pitch, y->taps + (size_t)j * (size_t)y->n_taps, window->n);
    }
}

void dt_resize_run(struct dt_resize *resize, uint8_t *dst, const uint8_t *pixels)
{
    dt_resize_run_into(resize, dst, 3 * (size_t)resize->width, pixels);
}
