/* Rectangles of pixels; a font of 5 x 8 pixels in 40 bits per character. */
#include "image/draw.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/names.h"
#include "image/jpeg.h"
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

/* Columns x1 .. x2 - 1 of rows y1 .. y2 - 1. */
static void fill(struct dt_picture *picture, int x1, int y1, int x2, int y2, const uint8_t rgb[3])
{
    const int left = x1 > 0 ? x1 : 0, right = x2 < picture->width ? x2 : picture->width;
    const int top = y1 > 0 ? y1 : 0, bottom = y2 < picture->height ? y2 : picture->height;
    for (int y = top; y < bottom; y++) {
        uint8_t *row = picture->pixels + 3 * (size_t)y * (size_t)picture->width;
        for (int x = left; x < right; x++)
            memcpy(row + 3 * (size_t)x, rgb, 3);
    }
}

void dt_draw_image(struct dt_picture *picture, int x, int y, const uint8_t *pixels, int width,
                   int height, int zoom, int step)
{
    for (int row = 0; row < height; row += step)
        for (int column = 0; column < width; column += step) {
            const int left = x + column / step * zoom, top = y + row / step * zoom;
            fill(picture, left, top, left + zoom, top + zoom, pixels + 3 * (row * width + column));
        }
}

static void draw_frame(struct dt_picture *picture, int x1, int y1, int x2, int y2, int thickness,
                       const uint8_t rgb[3])
{
    fill(picture, x1, y1, x2, y1 + thickness, rgb);
    fill(picture, x1, y2 - thickness, x2, y2, rgb);
    fill(picture, x1, y1, x1 + thickness, y2, rgb);
    fill(picture, x2 - thickness, y1, x2, y2, rgb);
}

/* Whether the byte continues a character in UTF-8. */
static bool continues(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

static void draw_text(struct dt_picture *picture, int x, int y, const char *text, int scale,
                      const uint8_t rgb[3])
{
    enum { WIDTH = 5, N_BITS = WIDTH * DT_TEXT_HEIGHT };
    for (; *text; text++) {
        if (continues(*text))
            continue;
        const uint64_t bits = glyphs[(*text < ' ' || *text > '~' ? '?' : *text) - ' '];
        for (int i = 0; i < N_BITS; i++) {
            const int left = x + i % WIDTH * scale, top = y + i / WIDTH * scale;
            if (bits >> (N_BITS - 1 - i) & 1)
                fill(picture, left, top, left + scale, top + scale, rgb);
        }
        x += DT_TEXT_STEP * scale;
    }
}

void dt_draw_text(struct dt_picture *picture, int x, int y, const char *text, int scale,
                  uint8_t grey)
{
    draw_text(picture, x, y, text, scale, (const uint8_t[3]){grey, grey, grey});
}

/* --- Boxes --- */

/* Hues at the golden ratio: those of the first labels differ most. Every second turn is paler. */
void dt_draw_colour(uint8_t rgb[3], int label)
{
    const double hue = fmod(label * 0.61803398875 + 0.33, 1), pale = label % 2 ? 0.35 : 0;
    for (int c = 0; c < 3; c++) {
        const double away = fabs(fmod(6 * hue + 4 * (c + 1), 6) - 3); /* 3 at the peak of c */
        const double value = fmin(fmax(2 - (3 - away), 0), 1);
        rgb[c] = (uint8_t)lround(255 * (pale + (1 - pale) * value));
    }
}

static int clamp(double value, int low, int high)
{
    return (int)lround(fmax(low, fmin(value, high)));
}

void dt_draw_box(struct dt_picture *picture, const struct dt_draw_box *box)
{
    const int x1 = clamp(box->x1, 0, picture->width), y1 = clamp(box->y1, 0, picture->height);
    const int x2 = clamp(box->x2, x1, picture->width), y2 = clamp(box->y2, y1, picture->height);
    const int thickness = box->scale + 1, outline = (box->scale + 1) / 2;
    const int height = (DT_TEXT_HEIGHT + 2) * box->scale;
    const int brightness = 299 * box->rgb[0] + 587 * box->rgb[1] + 114 * box->rgb[2];
    uint8_t ink[3]; /* black or white, whichever can be read on that colour */
    int n = 0;
    memset(ink, brightness > 128 * 1000 ? 0 : 255, 3);
    draw_frame(picture, x1, y1, x2, y2, thickness + outline, ink);
    draw_frame(picture, x1, y1, x2, y2, thickness, box->rgb);
    for (const char *c = box->text; *c; c++)
        n += !continues(*c);
    if (n == 0)
        return;
    /* The text is inside the picture, if there is room in it at all. */
    const int width = (n * DT_TEXT_STEP + 1) * box->scale, y = box->below ? y2 : y1 - height;
    const int left = clamp(x1, 0, picture->width > width ? picture->width - width : 0);
    const int top = clamp(y, 0, picture->height > height ? picture->height - height : 0);
    fill(picture, left, top, left + width, top + height, box->rgb);
    draw_text(picture, left + box->scale, top + box->scale, box->text, box->scale, ink);
}

int dt_draw_scale(int width, int height)
{
    enum { PIXELS_PER_SCALE = 320, MAX = 6 };
    const int shorter = width < height ? width : height;
    return clamp(1 + shorter / PIXELS_PER_SCALE, 1, MAX);
}

/* --- Files --- */

dt_status dt_picture_check(const char *path)
{
    if (dt_name_has_suffix(path, ".png") && !dt_png_is_known())
        DT_FAIL(DT_ERR_USAGE,
                "%s: this build has no libpng; give the file a name that ends in .jpg", path);
    if (!dt_name_has_suffix(path, ".png") && !dt_name_has_suffix(path, ".jpg") &&
        !dt_name_has_suffix(path, ".jpeg"))
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
    if (dt_name_has_suffix(path, ".png"))
        DT_TRY(dt_png_encode(&data, &bytes, picture->pixels, width, height));
    else
        DT_TRY(dt_jpeg_encode(&data, &bytes, picture->pixels, width, height, QUALITY, 1));
    dt_status status = dt_file_save(path, data, bytes);
    free(data);
    return status;
}
