#include "image/decode.h"

#include <stdbool.h>

/* Markers of JPEG, chunks of PNG, the tag and a type of TIFF. */
enum {
    SOS = 0xda,
    APP1 = 0xe1,
    IDAT = 0x49444154,
    EXIF = 0x65584966,
    ORIENTATION = 0x112,
    LONG = 4
};

/* Part of a file; what would lie behind its end is 0. */
struct part {
    const uint8_t *data;
    size_t bytes;
    bool little_endian;
};

static size_t get(const struct part *p, size_t at, size_t n)
{
    size_t value = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t from = at + (p->little_endian ? n - 1 - i : i);
        value = value << 8 | (from < p->bytes ? p->data[from] : 0u);
    }
    return value;
}

/* Reads the orientation from a block of n bytes, with or without "Exif" before it; 0 if there is
 * none. */
static int read_block(const struct part *file, size_t at, size_t n)
{
    struct part tiff = {file->data, at + n < file->bytes ? at + n : file->bytes, false};
    if (get(&tiff, at, 4) == 0x45786966)
        at += 6;
    const size_t magic = get(&tiff, at, 4);
    tiff.little_endian = magic == 0x49492a00;
    if (!tiff.little_endian && magic != 0x4d4d002a)
        return 0;
    const size_t first = at + get(&tiff, at + 4, 4), n_entries = get(&tiff, first, 2);
    for (size_t i = 0, entry = first + 2; i < n_entries && entry < tiff.bytes; i++, entry += 12) {
        if (get(&tiff, entry, 2) != ORIENTATION)
            continue;
        const size_t value = get(&tiff, entry + 8, get(&tiff, entry + 2, 2) == LONG ? 4 : 2);
        return value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}

int dt_exif_orientation(const uint8_t *data, size_t bytes)
{
    const struct part file = {data, bytes, false};
    const bool is_png = get(&file, 0, 4) == 0x89504e47;
    size_t n, kind;
    int found = read_block(&file, 0, bytes); /* a TIFF file is such a block */
    for (size_t at = is_png ? 8 : 2; found == 0 && at < bytes; at += is_png ? n + 12 : n + 2) {
        n = is_png ? get(&file, at, 4) : get(&file, at + 2, 2);
        kind = is_png ? get(&file, at + 4, 4) : get(&file, at + 1, 1);
        if (kind == IDAT || kind == SOS || (!is_png && data[at] != 0xff))
            break;
        if (kind == 0xff) /* a fill byte */
            n = (size_t)-1;
        else if (kind == EXIF || kind == APP1)
            found = read_block(&file, is_png ? at + 8 : at + 4, n);
    }
    return found > 0 ? found : 1;
}
