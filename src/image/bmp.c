/* BMP files: palettes of 1, 4 and 8 bits, 24 bits, and 32 bits whose fourth byte is ignored, as by
 * Pillow. Others, such as run lengths, are refused. Offsets are those of BITMAPFILEHEADER and
 * BITMAPINFOHEADER, or BITMAPCOREHEADER of OS/2. */
#include "image/image_file.h"

enum { FILE_HEADER = 14, CORE_HEADER = 12, INFO_HEADER = 40 };

static uint32_t get(const struct dt_image_file *p, size_t at, size_t n)
{
    uint32_t value = 0;
    for (size_t i = 0; i < n && at + i < p->bytes; i++)
        value |= (uint32_t)p->data[at + i] << 8 * i;
    return value;
}

struct layout {
    size_t pixels, palette, entry_bytes, row_bytes;
    unsigned bits;
    int64_t width, height; /* below 0: rows from the top */
    size_t channel[3];     /* bytes of red, green and blue in a pixel */
};

/* Reads the masks of red, green and blue in a pixel of 32 bits; false unless each is a byte. */
static bool read_masks(struct layout *layout, const struct dt_image_file *p)
{
    for (size_t c = 0; c < 3; c++) {
        const uint32_t mask = get(p, FILE_HEADER + INFO_HEADER + 4 * c, 4);
        size_t byte = 0;
        while (byte < 4 && mask != 0xffu << 8 * byte)
            byte++;
        layout->channel[c] = byte;
        if (byte == 4)
            return false;
    }
    return true;
}

static dt_status read_layout(struct layout *out, const struct dt_image_file *p)
{
    const size_t header = get(p, FILE_HEADER, 4);
    const bool is_core = header == CORE_HEADER;
    const size_t at = FILE_HEADER + 4, size = is_core ? 2 : 4;
    const uint32_t method = is_core ? 0 : get(p, FILE_HEADER + 16, 4);
    *out = (struct layout){
        .pixels = get(p, 10, 4),
        .palette = FILE_HEADER + header + (method == 3 && header == INFO_HEADER ? 12 : 0),
        .entry_bytes = is_core ? 3 : 4,
        .bits = get(p, at + 2 * size + 2, 2),
        .width = is_core ? (int64_t)get(p, at, 2) : (int32_t)get(p, at, 4),
        .height = is_core ? (int64_t)get(p, at + 2, 2) : (int32_t)get(p, at + 4, 4),
        .channel = {2, 1, 0},
    };
    const unsigned bits = out->bits;
    const bool is_plain =
        method == 0 && (bits == 1 || bits == 4 || bits == 8 || bits == 24 || bits == 32);
    if (!is_core && header < INFO_HEADER)
        DT_FAIL(DT_ERR_DATA, "damaged BMP file: a header of %zu bytes", header);
    if (!is_plain && !(method == 3 && bits == 32 && read_masks(out, p)))
        DT_FAIL(DT_ERR_DATA, "a BMP file of %u bits with compression %u; convert it", bits, method);
    out->row_bytes = (size_t)((out->width * bits + 31) / 32 * 4);
    return DT_OK;
}

dt_status dt_bmp_header(struct dt_image_file *picture)
{
    struct layout layout;
    DT_TRY(read_layout(&layout, picture));
    const int64_t height = layout.height < 0 ? -layout.height : layout.height;
    const bool fits = layout.width > 0 && layout.width <= INT32_MAX && height <= INT32_MAX;
    picture->width = fits ? (int)layout.width : 0;
    picture->height = fits ? (int)height : 0;
    return DT_OK;
}

static const uint8_t *find_pixel(const struct layout *layout, const uint8_t *row,
                                 const struct dt_image_file *p, int x)
{
    static const uint8_t black[4];
    const unsigned bits = layout->bits;
    if (bits >= 24)
        return row + (size_t)x * (bits / 8);
    const unsigned bit = (unsigned)x * bits;
    const size_t index = row[bit / 8] >> (8 - bits - bit % 8) & ((1u << bits) - 1);
    const size_t at = layout->palette + index * layout->entry_bytes;
    return at + layout->entry_bytes <= layout->pixels && at + 4 <= p->bytes ? p->data + at : black;
}

dt_status dt_bmp_decode(struct dt_image_file *picture)
{
    struct layout layout;
    DT_TRY(read_layout(&layout, picture));
    if (layout.pixels > picture->bytes ||
        (picture->bytes - layout.pixels) / layout.row_bytes < (size_t)picture->height)
        DT_FAIL(DT_ERR_DATA, "damaged BMP file: premature end");
    uint8_t *out = picture->pixels;
    for (int y = 0; y < picture->height; y++) {
        const int stored = layout.height < 0 ? y : picture->height - 1 - y;
        const uint8_t *row = picture->data + layout.pixels + (size_t)stored * layout.row_bytes;
        for (int x = 0; x < picture->width; x++, out += 3) {
            const uint8_t *pixel = find_pixel(&layout, row, picture, x);
            for (size_t c = 0; c < 3; c++)
                out[c] = pixel[layout.channel[c]];
        }
    }
    return DT_OK;
}
