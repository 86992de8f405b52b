#include "image/decode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "image/image_file.h"

struct dt_decoder {
    struct dt_jpeg *jpeg;
    struct dt_image_file file; /* without a format: the open image is JPEG */
    bool applies_exif;
    int64_t max_pixels;
    /* State of the open image: */
    int orientation, turn;
    int width, height; /* as stored, after scaling */
    uint8_t *stored;   /* what is then turned */
    size_t stored_capacity;
};

/* From the picture upright to the one stored: axes are mirrored, then swapped. */
enum { MIRROR_X = 1, MIRROR_Y = 2, SWAP = 4 };
static const uint8_t turns[] = {0, 0, 1, 3, 2, 4, 5, 7, 6}; /* sums of these, by orientation */

dt_status dt_decoder_create(struct dt_decoder **decoder, const struct dt_config_data *data)
{
    dt_status status = DT_OK;
    struct dt_decoder *made = NULL;
    *decoder = NULL;
    DT_TRY(DT_NEW(made, 1));
    DT_TRY_OUT(dt_jpeg_create(&made->jpeg, data));
    made->applies_exif = data && data->exif == DT_EXIF_APPLY;
    made->max_pixels = data && data->max_pixels > 0 ? data->max_pixels : DT_MAX_PIXELS;
    *decoder = made;
    return DT_OK;
out:
    dt_decoder_destroy(made);
    return status;
}

void dt_decoder_destroy(struct dt_decoder *decoder)
{
    if (!decoder)
        return;
    dt_jpeg_destroy(decoder->jpeg);
    dt_image_file_reset(&decoder->file);
    free(decoder->stored);
    free(decoder);
}

static void give_size(int *width, int *height, const struct dt_decoder *decoder)
{
    const bool swaps = decoder->turn & SWAP;
    *width = swaps ? decoder->height : decoder->width;
    *height = swaps ? decoder->width : decoder->height;
}

static bool is_within(const struct dt_decoder *decoder, int denominator)
{
    return (int64_t)decoder->width * decoder->height / (denominator * denominator) <=
           decoder->max_pixels;
}

static dt_status open_stored(struct dt_decoder *decoder, const uint8_t *data, size_t bytes)
{
    int *w = &decoder->width, *h = &decoder->height;
    decoder->file.format = dt_image_format_of_data(data, bytes);
    if (!decoder->file.format)
        return dt_jpeg_open(decoder->jpeg, w, h, data, bytes);
    DT_TRY(dt_image_file_open(&decoder->file, decoder->file.format, data, bytes));
    *w = decoder->file.width;
    *h = decoder->file.height;
    return DT_OK;
}

dt_status dt_decoder_open(struct dt_decoder *decoder, int *width, int *height, const uint8_t *data,
                          size_t bytes)
{
    decoder->orientation = dt_exif_orientation(data, bytes);
    decoder->turn = turns[decoder->applies_exif ? decoder->orientation : 1];
    DT_TRY(open_stored(decoder, data, bytes));
    if (decoder->file.format && !is_within(decoder, 1))
        DT_FAIL(DT_ERR_DATA, "%s of %lld pixels; data.max_pixels allows %lld",
                decoder->file.format->name, (long long)decoder->width * decoder->height,
                (long long)decoder->max_pixels);
    give_size(width, height, decoder);
    return DT_OK;
}

struct dt_jpeg *dt_decoder_jpeg(const struct dt_decoder *decoder)
{
    return decoder->file.format ? NULL : decoder->jpeg;
}

void dt_decoder_scale(struct dt_decoder *decoder, struct dt_crop *crop, int *width, int *height,
                      int denominator)
{
    const float w = (float)*width, h = (float)*height;
    if (decoder->file.format)
        return;
    while (denominator < 8 && !is_within(decoder, denominator))
        denominator *= 2;
    const float d = (float)denominator;
    dt_jpeg_scale(decoder->jpeg, &decoder->width, &decoder->height, denominator);
    give_size(width, height, decoder);
    *crop = (struct dt_crop){crop->x / d, crop->y / d, crop->w / d, crop->h / d, crop->flip};
    if (decoder->turn & MIRROR_X) /* the pixel that is not whole is the first */
        crop->x += (float)*width - w / d;
    if (decoder->turn & MIRROR_Y)
        crop->y += (float)*height - h / d;
}

static dt_status decode_stored(struct dt_decoder *decoder, uint8_t *out, int x, int y, int w, int h)
{
    if (decoder->file.format)
        return dt_image_file_decode(&decoder->file, out, x, y, w, h);
    return dt_jpeg_decode(decoder->jpeg, out, x, y, w, h);
}

dt_status dt_decoder_decode(struct dt_decoder *decoder, uint8_t *out, int x, int y, int w, int h)
{
    const int turn = decoder->turn;
    int width, height;
    if (turn == 0)
        return decode_stored(decoder, out, x, y, w, h);
    give_size(&width, &height, decoder);
    x = turn & MIRROR_X ? width - x - w : x;
    y = turn & MIRROR_Y ? height - y - h : y;
    DT_TRY(DT_GROW(decoder->stored, decoder->stored_capacity, 3 * (size_t)w * (size_t)h,
                   "an image to turn"));
    DT_TRY(turn & SWAP ? decode_stored(decoder, decoder->stored, y, x, h, w)
                       : decode_stored(decoder, decoder->stored, x, y, w, h));
    ptrdiff_t across = 3 * (turn & SWAP ? h : 1), down = 3 * (turn & SWAP ? 1 : w);
    const ptrdiff_t first =
        (turn & MIRROR_X ? (w - 1) * across : 0) + (turn & MIRROR_Y ? (h - 1) * down : 0);
    across = turn & MIRROR_X ? -across : across;
    down = turn & MIRROR_Y ? -down : down;
    for (int row = 0; row < h; row++)
        for (int column = 0; column < w; column++, out += 3)
            memcpy(out, decoder->stored + (first + row * down + column * across), 3);
    return DT_OK;
}

dt_status dt_decoder_expect(const struct dt_decoder *decoder, int width, int height)
{
    char why[96] = "";
    int w, h;
    give_size(&w, &h, decoder);
    if (w == width && h == height)
        return DT_OK;
    if (w == height && h == width && decoder->orientation >= 5)
        snprintf(why, sizeof why,
                 ": its EXIF orientation %d swaps the sides, so set data.exif (or --exif) to %s",
                 decoder->orientation, decoder->applies_exif ? "ignore" : "apply");
    DT_FAIL(DT_ERR_DATA, "it has %d x %d pixels, but its annotations say %d x %d%s", w, h, width,
            height, why);
}

int dt_decoder_orientation(const struct dt_decoder *decoder)
{
    return decoder->orientation;
}

int dt_decoder_peak(const struct dt_decoder *decoder)
{
    return decoder->file.format ? decoder->file.peak : 0;
}

dt_status dt_decoder_skim(struct dt_decoder *decoder, int y, int h)
{
    if (decoder->turn & (SWAP | MIRROR_Y)) { /* a few rows may need all that are stored */
        y = 0;
        h = decoder->height;
    }
    if (decoder->file.format)
        return decode_stored(decoder, NULL, 0, y, 0, h);
    return dt_jpeg_skim(decoder->jpeg, y, h);
}
