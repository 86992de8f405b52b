/* Squares of pixels; a font of 5 x 8 pixels in 40 bits per character. */
#include "image/draw.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/mem.h"
#include "image/jpeg_encode.h"
#include "image/png.h"

/* ' ' to '~': rows from the top, the leftmost pixel of a row in its highest bit. */
static const uint64_t glyphs[] = {
    0x0000000000, 0x2108420080, 0x5294000000, 0x52beafa940, 0x23e8e2f880, 0xc644444c60,
    0x45288ac9a0, 0x2108000000, 0x1110841040, 0x4104211100, 0x012aea9000, 0x0109f21000,
    0x00000018c4, 0x0001f00000, 0x00000018c0, 0x0844444200, 0x74675cc5c0, 0x23084211c0,
    0x74422223e0, 0xf88820c5c0, 0x11952f8840, 0xfc3c10c5c0, 0x3221e8c5c0, 0xf844442100,
    0x7462e8c5c0, 0x7462f08980, 0x018c031800, 0x018c0018c4, 0x1111041040, 0x003e0f8000,
    0x4104111100, 0x7442220080, 0x746f5bc1c0, 0x7463f8c620, 0xf463e8c7c0, 0x74610845c0,
    0xe4a318cb80, 0xfc21e843e0, 0xfc21e84200, 0x746178c5e0, 0x8c63f8c620, 0x71084211c0,
    0x3884214980, 0x8ca98a4a20, 0x84210843e0, 0x8eeb58c620, 0x8c7359c620, 0x746318c5c0,
    0xf463e84200, 0x74631ac9a0, 0xf463ea4a20, 0x7c20e087c0, 0xf908421080, 0x8c6318c5c0,
    0x8c6318a880, 0x8c635aee20, 0x8c54454620, 0x8c54421080, 0xf8444443e0, 0x72108421c0,
    0x8410410420, 0x70842109c0, 0x22a2000000, 0x000000001f, 0x4104000000, 0x001c17c5e0,
    0x842d98c7c0, 0x001d1845c0, 0x085b38c5e0, 0x001d1fc1c0, 0x3251c42100, 0x001f18bc2e,
    0x842d98c620, 0x20184211c0, 0x100c210a4c, 0x84254c5240, 0x61084211c0, 0x00355ad6a0,
    0x002d98c620, 0x001d18c5c0, 0x003d18fa10, 0x001f18bc21, 0x002d984200, 0x001f0707c0,
    0x42388424c0, 0x002318cda0, 0x002318a880, 0x00231ad540, 0x0022a22a20, 0x002318bc2e,
    0x003e2223e0, 0x1108821040, 0x2108421080, 0x4108221100, 0x0011510000};

dt_status dt_picture_create(struct dt_picture *picture, int width, int height, uint8_t grey)
{
    enum { MAX_PIXELS = 1 << 27 };
    const size_t n = (size_t)width * (size_t)height;
    if (n > MAX_PIXELS)
        DT_FAIL(DT_ERR_USAGE, "a picture of %d x %d pixels is too large; show fewer images", width,
                height);
    *picture = (struct dt_picture){.width = width, .height = height};
    DT_TRY(DT_NEW(picture->pixels, 3 * n));
    memset(picture->pixels, grey, 3 * n);
    return DT_OK;
}

static void draw_square(struct dt_picture *picture, int x, int y, int side, const uint8_t rgb[3])
{
    for (int i = 0; i < side * side; i++) {
        int column = x + i % side, row = y + i / side;
        size_t at = (size_t)row * (size_t)picture->width + (size_t)column;
        if (column >= 0 && column < picture->width && row >= 0 && row < picture->height)
            memcpy(picture->pixels + 3 * at, rgb, 3);
    }
}

void dt_draw_image(struct dt_picture *picture, int x, int y, const uint8_t *pixels, int size,
                   int zoom)
{
    for (int i = 0; i < size * size; i++)
        draw_square(picture, x + i % size * zoom, y + i / size * zoom, zoom, pixels + 3 * i);
}

void dt_draw_frame(struct dt_picture *picture, int x1, int y1, int x2, int y2, int thickness,
                   uint8_t grey)
{
    const uint8_t rgb[3] = {grey, grey, grey};
    for (int x = x1; x <= x2 - thickness; x++) {
        draw_square(picture, x, y1, thickness, rgb);
        draw_square(picture, x, y2 - thickness, thickness, rgb);
    }
    for (int y = y1; y <= y2 - thickness; y++) {
        draw_square(picture, x1, y, thickness, rgb);
        draw_square(picture, x2 - thickness, y, thickness, rgb);
    }
}

static void draw_glyph(struct dt_picture *picture, int x, int y, char c, int scale, uint8_t grey)
{
    enum { WIDTH = 5, N_BITS = WIDTH * DT_TEXT_HEIGHT };
    const uint8_t rgb[3] = {grey, grey, grey};
    const uint64_t bits = glyphs[(c < ' ' || c > '~' ? '?' : c) - ' '];
    for (int i = 0; i < N_BITS; i++)
        if (bits >> (N_BITS - 1 - i) & 1)
            draw_square(picture, x + i % WIDTH * scale, y + i / WIDTH * scale, scale, rgb);
}

void dt_draw_text(struct dt_picture *picture, int x, int y, const char *text, int scale,
                  uint8_t grey)
{
    for (; *text; text++) {
        if (((unsigned char)*text & 0xc0) == 0x80)
            continue; /* a further byte of a character in UTF-8 */
        draw_glyph(picture, x, y, *text, scale, grey);
        x += DT_TEXT_STEP * scale;
    }
}

static bool has_suffix(const char *path, const char *suffix)
{
    size_t n = strlen(path), n_suffix = strlen(suffix);
    return n > n_suffix && strcasecmp(path + n - n_suffix, suffix) == 0;
}

dt_status dt_picture_check(const char *path)
{
    if (has_suffix(path, ".png") && !dt_png_is_known())
        DT_FAIL(DT_ERR_USAGE,
                "%s: this build has no libpng; give the file a name that ends in .jpg", path);
    if (!has_suffix(path, ".png") && !has_suffix(path, ".jpg") && !has_suffix(path, ".jpeg"))
        DT_FAIL(DT_ERR_USAGE, "%s: a picture's name must end in .png or .jpg", path);
    return DT_OK;
}

dt_status dt_picture_save(const struct dt_picture *picture, const char *path)
{
    enum { QUALITY = 92 };
    const int width = picture->width, height = picture->height;
    uint8_t *data = NULL;
    size_t bytes = 0;
    DT_TRY(dt_picture_check(path));
    if (has_suffix(path, ".png"))
        DT_TRY(dt_png_encode(&data, &bytes, picture->pixels, width, height));
    else
        DT_TRY(dt_jpeg_encode(&data, &bytes, picture->pixels, width, height, QUALITY));
    dt_status status = dt_file_save(path, data, bytes);
    free(data);
    return status;
}
