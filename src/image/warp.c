#include "image/resize.h"

#include <math.h>

enum { BITS = 24, SHARE_BITS = 6, SHARE_ONE = 1 << SHARE_BITS, LANE = 21 };

void dt_warp_set(struct dt_warp *warp, const double to[6])
{
    double *t = warp->to, *f = warp->from;
    const double one = 1 << BITS;
    for (int i = 0; i < 6; i++)
        t[i] = nearbyint(to[i] * one) / one;
    const double determinant = t[0] * t[4] - t[1] * t[3];
    f[0] = t[4] / determinant;
    f[1] = -t[1] / determinant;
    f[3] = -t[3] / determinant;
    f[4] = t[0] / determinant;
    f[2] = -(f[0] * t[2] + f[1] * t[5]);
    f[5] = -(f[3] * t[2] + f[4] * t[5]);
}

/* Along a row the position in the source, in units of 2^-24 pixels, moves by a constant. */
struct line {
    int64_t at, step, last; /* last: of the last pixel of this axis */
};

/* The centres of pixels lie at halves. */
static struct line make_line(const double from[3], int y, int size)
{
    const double one = 1 << BITS;
    return (struct line){
        .at = llrint((0.5 * from[0] + (y + 0.5) * from[1] + from[2] - 0.5) * one),
        .step = llrint(from[0] * one),
        .last = (int64_t)(size - 1) << BITS,
    };
}

static int64_t clamp(const struct line *line, int x)
{
    const int64_t at = line->at + x * line->step;
    return at < 0 ? 0 : at > line->last ? line->last : at;
}

/* A pixel with 21 bits for each colour: products with shares of 2^12 do not overlap. */
static uint64_t spread(const uint8_t *rgb)
{
    return rgb[0] | (uint64_t)rgb[1] << LANE | (uint64_t)rgb[2] << 2 * LANE;
}

/* a (64 - share) + b share; borrows between the colours cancel out. */
static uint64_t between(uint64_t a, uint64_t b, uint64_t share)
{
    return a * SHARE_ONE + (b - a) * share;
}

static void run_row(uint8_t *dst, const struct line *across, const struct line *down,
                    const uint8_t *src, int width)
{
    const uint64_t half = 1u << (2 * SHARE_BITS - 1),
                   halves = half | half << LANE | half << 2 * LANE;
    for (int i = 0; i < width; i++, dst += 3) {
        const int64_t at_x = clamp(across, i), at_y = clamp(down, i);
        const uint64_t x = (uint64_t)(at_x >> (BITS - SHARE_BITS)) & (SHARE_ONE - 1);
        const uint64_t y = (uint64_t)(at_y >> (BITS - SHARE_BITS)) & (SHARE_ONE - 1);
        const size_t right = at_x < across->last ? 3 : 0;
        const size_t below = at_y < down->last ? 3 * (size_t)width : 0;
        const uint8_t *pixel = src + 3 * ((at_y >> BITS) * width + (at_x >> BITS));
        const uint64_t top = between(spread(pixel), spread(pixel + right), x);
        const uint64_t bottom = between(spread(pixel + below), spread(pixel + below + right), x);
        const uint64_t sum = (between(top, bottom, y) + halves) >> 2 * SHARE_BITS;
        dst[0] = (uint8_t)sum;
        dst[1] = (uint8_t)(sum >> LANE);
        dst[2] = (uint8_t)(sum >> 2 * LANE);
    }
}

void dt_warp_run(const struct dt_warp *warp, uint8_t *dst, size_t dst_pitch, const uint8_t *src,
                 int width, int height)
{
    for (int y = 0; y < height; y++, dst += dst_pitch) {
        const struct line across = make_line(warp->from, y, width);
        const struct line down = make_line(warp->from + 3, y, height);
        run_row(dst, &across, &down, src, width);
    }
}
