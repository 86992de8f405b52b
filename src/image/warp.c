#include "image/warp.h"

#include <math.h>

enum { BITS = 24, SHARE_BITS = 8, SHARE_ONE = 1 << SHARE_BITS };

static double rounded(double value)
{
    return nearbyint(value * (1 << BITS)) / (1 << BITS);
}

void dt_warp_set(struct dt_warp *warp, const double to[6])
{
    double *t = warp->to, *f = warp->from;
    for (int i = 0; i < 6; i++)
        t[i] = rounded(to[i]);
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

static int share_of(int64_t at)
{
    return (int)(at >> (BITS - SHARE_BITS)) & (SHARE_ONE - 1);
}

static uint8_t blend(const uint8_t *top, const uint8_t *bottom, size_t right, int x, int y)
{
    const int above = top[0] * (SHARE_ONE - x) + top[right] * x;
    const int below = bottom[0] * (SHARE_ONE - x) + bottom[right] * x;
    const int half = 1 << (2 * SHARE_BITS - 1);
    return (uint8_t)((above * (SHARE_ONE - y) + below * y + half) >> (2 * SHARE_BITS));
}

static void run_row(uint8_t *dst, const struct line *across, const struct line *down,
                    const uint8_t *src, int width)
{
    for (int i = 0; i < width; i++, dst += 3) {
        const int64_t x = clamp(across, i), y = clamp(down, i);
        const size_t right = x < across->last ? 3 : 0;
        const size_t below = y < down->last ? 3 * (size_t)width : 0;
        const uint8_t *pixel = src + 3 * ((y >> BITS) * width + (x >> BITS));
        for (int c = 0; c < 3; c++)
            dst[c] = blend(pixel + c, pixel + c + below, right, share_of(x), share_of(y));
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
