/* The first image of a TIFF file, by libtiff: grey and RGB of 16 bits here, all others by libtiff's
 * conversion to RGBA. */
#include "image/image_file.h"

#ifdef DTRAIN_HAVE_TIFF
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tiffio.h>

#include "base/mem.h"

/* --- The file, in memory --- */

struct reading {
    struct dt_image_file *picture;
    toff_t at;
};

static tmsize_t read_bytes(thandle_t handle, void *out, tmsize_t n)
{
    struct reading *from = handle;
    const toff_t left = from->at < from->picture->bytes ? from->picture->bytes - from->at : 0;
    n = (toff_t)n < left ? n : (tmsize_t)left;
    memcpy(out, from->picture->data + (n ? from->at : 0), (size_t)n);
    from->at += (toff_t)n;
    return n;
}

static tmsize_t write_bytes(thandle_t handle, void *data, tmsize_t n)
{
    (void)handle, (void)data, (void)n;
    return -1;
}

static toff_t seek(thandle_t handle, toff_t offset, int whence)
{
    struct reading *from = handle;
    from->at = offset + (whence == SEEK_CUR   ? from->at
                         : whence == SEEK_END ? from->picture->bytes
                                              : 0);
    return from->at;
}

static int keep_open(thandle_t handle)
{
    (void)handle;
    return 0;
}

static toff_t find_size(thandle_t handle)
{
    return ((struct reading *)handle)->picture->bytes;
}

/* Keeps the first reason. */
static void on_error(thandle_t handle, const char *module, const char *format, va_list arguments)
{
    const struct reading *from = handle;
    (void)module;
    if (from && !from->picture->reason[0])
        vsnprintf(from->picture->reason, sizeof from->picture->reason, format, arguments);
}

static void set_handlers(void)
{
    TIFFSetErrorHandler(NULL);
    TIFFSetWarningHandler(NULL);
    TIFFSetErrorHandlerExt(on_error);
}

static TIFF *open_file(struct reading *from, struct dt_image_file *picture)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_handlers);
    picture->reason[0] = '\0';
    *from = (struct reading){.picture = picture};
    return TIFFClientOpen("memory", "rm", from, read_bytes, write_bytes, seek, keep_open, find_size,
                          NULL, NULL);
}

static dt_status refuse(const struct dt_image_file *picture)
{
    return DT_ERROR(DT_ERR_DATA, "damaged TIFF file, or a kind that libtiff cannot convert: %s",
                    picture->reason[0] ? picture->reason : "no reason given");
}

/* --- Its pixels --- */

enum { MAX_PART = 16 << 20 };

dt_status dt_tiff_header(struct dt_image_file *picture)
{
    uint32_t width = 0, height = 0;
    struct reading from;
    TIFF *file = open_file(&from, picture);
    if (!file)
        return refuse(picture);
    TIFFGetField(file, TIFFTAG_IMAGEWIDTH, &width);
    TIFFGetField(file, TIFFTAG_IMAGELENGTH, &height);
    TIFFClose(file);
    picture->width = width <= INT32_MAX ? (int)width : 0;
    picture->height = height <= INT32_MAX ? (int)height : 0;
    return DT_OK;
}

/* The number of values per pixel of a file of 16 bits: 1 for grey, 3 for RGB; 0: another kind. */
static uint16_t deep_values(TIFF *file)
{
    uint16_t bits = 0, values = 1, kind = 0, planes = 1, type = SAMPLEFORMAT_UINT;
    TIFFGetFieldDefaulted(file, TIFFTAG_BITSPERSAMPLE, &bits);
    TIFFGetFieldDefaulted(file, TIFFTAG_SAMPLESPERPIXEL, &values);
    TIFFGetFieldDefaulted(file, TIFFTAG_PLANARCONFIG, &planes);
    TIFFGetFieldDefaulted(file, TIFFTAG_SAMPLEFORMAT, &type);
    TIFFGetField(file, TIFFTAG_PHOTOMETRIC, &kind);
    const bool is_grey = kind == PHOTOMETRIC_MINISBLACK && values == 1;
    const bool is_rgb = kind == PHOTOMETRIC_RGB && values == 3;
    return bits == 16 && planes == PLANARCONFIG_CONTIG && type == SAMPLEFORMAT_UINT &&
                   !TIFFIsTiled(file) && (is_grey || is_rgb)
               ? values
               : 0;
}

static dt_status decode_deep(struct dt_image_file *picture, TIFF *file, uint16_t n_values)
{
    const tmsize_t bytes = TIFFScanlineSize(file);
    const size_t width = (size_t)picture->width, step = n_values == 1 ? 0 : 1;
    dt_status status = DT_OK;
    uint16_t *line = NULL;
    if ((size_t)bytes < 2 * width * n_values)
        return refuse(picture);
    DT_TRY(DT_NEW(line, (size_t)bytes / 2 + 1));
    uint8_t *out = picture->pixels;
    for (int y = 0; y < picture->height; y++) {
        if (TIFFReadScanline(file, line, (uint32_t)y, 0) < 0)
            DT_TRY_OUT(refuse(picture));
        for (size_t x = 0; x < width; x++, out += 3)
            for (size_t c = 0; c < 3; c++) {
                const uint16_t value = line[x * n_values + c * step];
                picture->peak = value > picture->peak ? value : picture->peak;
                out[c] = (uint8_t)(value >> 8);
            }
    }
out:
    free(line);
    return status;
}

/* Values of RGBA are already multiplied by alpha, which is compositing on black. */
static dt_status decode_rgba(struct dt_image_file *picture, TIFF *file)
{
    const size_t n = (size_t)picture->width * (size_t)picture->height;
    uint16_t orientation = ORIENTATION_TOPLEFT;
    uint32_t *rgba;
    TIFFGetFieldDefaulted(file, TIFFTAG_ORIENTATION, &orientation);
    DT_TRY(DT_NEW(rgba, n));
    const bool is_read = TIFFReadRGBAImageOriented(file, (uint32_t)picture->width,
                                                   (uint32_t)picture->height, rgba, orientation, 1);
    for (size_t i = 0; i < n && is_read; i++) {
        picture->pixels[3 * i] = (uint8_t)TIFFGetR(rgba[i]);
        picture->pixels[3 * i + 1] = (uint8_t)TIFFGetG(rgba[i]);
        picture->pixels[3 * i + 2] = (uint8_t)TIFFGetB(rgba[i]);
    }
    free(rgba);
    return is_read ? DT_OK : refuse(picture);
}

dt_status dt_tiff_decode(struct dt_image_file *picture)
{
    struct reading from;
    TIFF *file = open_file(&from, picture);
    if (!file)
        return refuse(picture);
    const uint64_t n = (uint64_t)picture->width * (uint64_t)picture->height;
    const uint64_t part = TIFFIsTiled(file) ? TIFFTileSize64(file) : TIFFStripSize64(file);
    const uint16_t n_values = deep_values(file);
    dt_status status = DT_OK;
    if (part > 16 * n + MAX_PART) /* it would be allocated at once */
        status = DT_ERROR(DT_ERR_DATA, "damaged TIFF file: a part of it has %llu bytes",
                          (unsigned long long)part);
    else
        status = n_values ? decode_deep(picture, file, n_values) : decode_rgba(picture, file);
    TIFFClose(file);
    return status;
}
#endif
