/* The first image of a GIF file, by giflib. What it does not cover is black, like what is
 * transparent. */
#include "image/image_file.h"

#ifdef DTRAIN_HAVE_GIF
#include <gif_lib.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

struct reading {
    const uint8_t *data;
    size_t bytes;
};

static int read_bytes(GifFileType *file, GifByteType *out, int n)
{
    struct reading *from = file->UserData;
    const size_t given = (size_t)n < from->bytes ? (size_t)n : from->bytes;
    memcpy(out, from->data, given);
    from->data += given;
    from->bytes -= given;
    return (int)given;
}

dt_status dt_gif_header(struct dt_image_file *picture)
{
    const uint8_t *data = picture->data;
    if (picture->bytes < 13)
        DT_FAIL(DT_ERR_DATA, "damaged GIF file: premature end");
    picture->width = data[6] | data[7] << 8;
    picture->height = data[8] | data[9] << 8;
    return DT_OK;
}

/* Up to the first image; *transparent is an index of its palette, or -1. */
static bool find_image(GifFileType *file, int *transparent)
{
    GifRecordType type = UNDEFINED_RECORD_TYPE;
    GraphicsControlBlock control;
    *transparent = NO_TRANSPARENT_COLOR;
    while (DGifGetRecordType(file, &type) == GIF_OK && type == EXTENSION_RECORD_TYPE) {
        GifByteType *block;
        int code, more = DGifGetExtension(file, &code, &block);
        if (more == GIF_OK && code == GRAPHICS_EXT_FUNC_CODE && block &&
            DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK)
            *transparent = control.TransparentColor;
        while (more == GIF_OK && block)
            more = DGifGetExtensionNext(file, &block);
    }
    return type == IMAGE_DESC_RECORD_TYPE && DGifGetImageDesc(file) == GIF_OK;
}

static void put_row(struct dt_image_file *picture, const GifFileType *file, const uint8_t *row,
                    int y, int transparent)
{
    const GifImageDesc *image = &file->Image;
    const ColorMapObject *map = image->ColorMap ? image->ColorMap : file->SColorMap;
    for (int i = 0; i < image->Width && image->Left + i < picture->width; i++) {
        const GifColorType *colour = &map->Colors[row[i]];
        uint8_t *out = picture->pixels + 3 * ((ptrdiff_t)y * picture->width + image->Left + i);
        if (row[i] == transparent || row[i] >= map->ColorCount)
            continue;
        out[0] = colour->Red;
        out[1] = colour->Green;
        out[2] = colour->Blue;
    }
}

static dt_status put_image(struct dt_image_file *picture, GifFileType *file)
{
    static const int first[] = {0, 4, 2, 1}, step[] = {8, 8, 4, 2}; /* of interlaced files */
    dt_status status = DT_OK;
    uint8_t *row = NULL;
    int transparent;
    if (!find_image(file, &transparent) || (!file->Image.ColorMap && !file->SColorMap))
        DT_TRY_OUT(DT_ERROR(DT_ERR_DATA, "damaged GIF file: no image with a palette"));
    const GifImageDesc *image = &file->Image;
    if (image->Width > picture->width || image->Height > picture->height)
        DT_TRY_OUT(DT_ERROR(DT_ERR_DATA, "damaged GIF file: its image exceeds its screen"));
    const bool is_interlaced = image->Interlace;
    DT_TRY_OUT(DT_NEW(row, (size_t)image->Width + 1));
    for (int pass = 0; pass < (is_interlaced ? 4 : 1); pass++)
        for (int y = is_interlaced ? first[pass] : 0; y < image->Height;
             y += is_interlaced ? step[pass] : 1) {
            if (DGifGetLine(file, row, image->Width) != GIF_OK)
                DT_TRY_OUT(
                    DT_ERROR(DT_ERR_DATA, "damaged GIF file: %s", GifErrorString(file->Error)));
            if (image->Top + y < picture->height)
                put_row(picture, file, row, image->Top + y, transparent);
        }
out:
    free(row);
    return status;
}

dt_status dt_gif_decode(struct dt_image_file *picture)
{
    struct reading from = {picture->data, picture->bytes};
    int code;
    GifFileType *file = DGifOpen(&from, read_bytes, &code);
    if (!file)
        DT_FAIL(code == D_GIF_ERR_NOT_ENOUGH_MEM ? DT_ERR_MEMORY : DT_ERR_DATA,
                "damaged GIF file: %s", GifErrorString(code));
    memset(picture->pixels, 0, 3 * (size_t)picture->width * (size_t)picture->height);
    const dt_status status = put_image(picture, file);
    DGifCloseFile(file, NULL);
    return status;
}
#endif
