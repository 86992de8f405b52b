/* The only user of libjpeg, which reports errors through a callback that must not return: each
 * operation runs under one setjmp (run_guarded, encode) and fails through longjmp.
 *
 * libjpeg only warns about a truncated or corrupt file; here warnings about the data are errors and
 * only the few in `harmless` pass. Each image gets a new libjpeg object: a reused one keeps the
 * tables of the previous file, so the result of a file without tables would depend on what the
 * thread decoded before. */
#include "image/jpeg.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jerror.h>
#include <jpeglib.h>

#include "base/mem.h"

enum { BYTES_MAX = 50000000, PIXELS_MAX = 2000000000, MEMORY_MAX = 800000000, SCANS_MAX = 100 };
/* Scans x pixels: limits the time but, unlike seconds, gives the same list of bad files on every
 * machine. Photos of 200 million pixels in the usual ten scans are within it. */
#define WORK_MAX UINT64_C(2000000000)

struct dt_jpeg {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf escape;
    bool is_open; /* `info` holds a libjpeg object */
    dt_status status;
    char reason[JMSG_LENGTH_MAX];
    const uint8_t *data;
    size_t bytes;
    bool fancy_upsampling;
    J_DCT_METHOD dct;
    int width, height, denominator; /* size of the image after division by `denominator` */
    uint8_t *out;
    int x, y, w, h; /* the rectangle to decode */
    uint8_t *line;
    size_t line_capacity;
};

static const int harmless[] = {JWRN_EXTRANEOUS_DATA, JWRN_ADOBE_XFORM, JWRN_JFIF_MAJOR,
                               JWRN_NOT_SEQUENTIAL, JWRN_BOGUS_ICC};

#define MAGIC(text) text, sizeof text - 1

static const struct {
    size_t offset;
    const char *magic;
    size_t bytes;
    const char *name;
    bool is_image;
} other_formats[] = {
    {0, MAGIC("\x89PNG"), "a PNG file", true},   {4, MAGIC("ftypavi"), "an AVIF file", true},
    {4, MAGIC("ftyphe"), "a HEIC file", true},   {4, MAGIC("ftypmif1"), "a HEIF file", true},
    {4, MAGIC("ftypmsf1"), "a HEIF file", true}, {0, MAGIC("RIFF"), "a RIFF file", false},
    {0, MAGIC("%PDF"), "a PDF file", false},     {0, MAGIC("\x1f\x8b"), "a gzip file", false},
    {0, MAGIC("PK"), "a zip file", false},       {0, MAGIC("<"), "an HTML or XML file", false},
};

static void close_image(struct dt_jpeg *jpeg)
{
    if (jpeg->is_open)
        jpeg_destroy_decompress(&jpeg->info);
    jpeg->is_open = false;
}

static _Noreturn void refuse(struct dt_jpeg *jpeg, dt_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static _Noreturn void refuse(struct dt_jpeg *jpeg, dt_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(jpeg->reason, sizeof jpeg->reason, format, arguments);
    va_end(arguments);
    jpeg->status = status;
    longjmp(jpeg->escape, 1);
}

static _Noreturn void on_error(j_common_ptr info)
{
    char text[JMSG_LENGTH_MAX];
    int code = info->err->msg_code;
    info->err->format_message(info, text);
    if (code == JERR_NO_BACKING_STORE)
        refuse(info->client_data, DT_ERR_DATA, "decoding needs more than %d MB",
               MEMORY_MAX / 1000000);
    refuse(info->client_data, code == JERR_OUT_OF_MEMORY ? DT_ERR_MEMORY : DT_ERR_DATA, "%s", text);
}

static void on_message(j_common_ptr info, int level)
{
    if (level >= 0)
        return;
    for (size_t i = 0; i < DT_COUNT(harmless); i++) {
        if (info->err->msg_code == harmless[i])
            return;
    }
    on_error(info);
}

static void on_progress(j_common_ptr info)
{
    const struct jpeg_decompress_struct *image = (j_decompress_ptr)info;
    uint64_t scans = (uint64_t)image->input_scan_number;
    uint64_t pixels = (uint64_t)image->image_width * image->image_height;
    if (scans > SCANS_MAX)
        refuse(info->client_data, DT_ERR_DATA, "more than %d scans", SCANS_MAX);
    if (scans * pixels > WORK_MAX)
        refuse(info->client_data, DT_ERR_DATA, "%d scans are too many for %llu pixels", (int)scans,
               (unsigned long long)pixels);
}

/* The only target of longjmp; no local variable is live across it. */
static dt_status run_guarded(struct dt_jpeg *jpeg, void (*work)(struct dt_jpeg *jpeg))
{
    if (setjmp(jpeg->escape)) {
        close_image(jpeg);
        DT_FAIL(jpeg->status, "%s", jpeg->reason);
    }
    work(jpeg);
    return DT_OK;
}

static void check_format(struct dt_jpeg *jpeg)
{
    const uint8_t *data = jpeg->data;
    if (jpeg->bytes == 0)
        refuse(jpeg, DT_ERR_DATA, "the file is empty");
    if (jpeg->bytes > BYTES_MAX)
        refuse(jpeg, DT_ERR_DATA, "bytes %zu > %d", jpeg->bytes, BYTES_MAX);
    if (jpeg->bytes >= 2 && data[0] == 0xff && data[1] == 0xd8)
        return;
    for (size_t i = 0; i < DT_COUNT(other_formats); i++) {
        const size_t n = other_formats[i].bytes, at = other_formats[i].offset;
        if (jpeg->bytes >= at + n && memcmp(data + at, other_formats[i].magic, n) == 0)
            refuse(jpeg, DT_ERR_DATA, "%s, not a JPEG file%s", other_formats[i].name,
                   other_formats[i].is_image ? "; convert it: mogrify -format jpg FILE" : "");
    }
    refuse(jpeg, DT_ERR_DATA, "not a JPEG file: starts with 0x%02x 0x%02x", data[0],
           jpeg->bytes > 1 ? data[1] : 0);
}

static void read_header(struct dt_jpeg *jpeg)
{
    struct jpeg_decompress_struct *info = &jpeg->info;
    check_format(jpeg);
    info->err = jpeg_std_error(&jpeg->errors);
    jpeg->errors.error_exit = on_error;
    jpeg->errors.emit_message = on_message;
    info->client_data = jpeg;
    jpeg->is_open = true; /* a partly initialised object may be destroyed too */
    jpeg_create_decompress(info);
    info->mem->max_memory_to_use = MEMORY_MAX;
    jpeg->progress.progress_monitor = on_progress;
    info->progress = &jpeg->progress;
    jpeg_mem_src(info, jpeg->data, jpeg->bytes);
    jpeg_read_header(info, TRUE);
    uint64_t pixels = (uint64_t)info->image_width * info->image_height;
    if (pixels > PIXELS_MAX)
        refuse(jpeg, DT_ERR_DATA, "pixels %llu > %d", (unsigned long long)pixels, PIXELS_MAX);
    if (info->arith_code)
        refuse(jpeg, DT_ERR_DATA, "arithmetic coding is not supported");
    int n = info->num_components;
    if (n != 1 && n != 3 && n != 4)
        refuse(jpeg, DT_ERR_DATA, "%d colour components, expected 1, 3 or 4", n);
}

/* Adobe programs store CMYK inverted (255 = no ink), which their marker indicates. */
static void cmyk_to_rgb(uint8_t *rgb, const uint8_t *cmyk, int n, bool inverted)
{
    for (int i = 0; i < n; i++, rgb += 3, cmyk += 4) {
        unsigned white = inverted ? cmyk[3] : 255u - cmyk[3];
        for (int c = 0; c < 3; c++) {
            unsigned ink = inverted ? 255u - cmyk[c] : cmyk[c];
            unsigned product = ink * white + 128;
            rgb[c] = (uint8_t)(white - (((product >> 8) + product) >> 8)); /* / 255, rounded */
        }
    }
}

/* Rows below the last needed one are not decoded, but a truncated file must be bad for every
 * rectangle. The two bytes of the end marker cannot occur inside entropy-coded data. */
static void check_end(struct dt_jpeg *jpeg)
{
    const struct jpeg_decompress_struct *info = &jpeg->info;
    const struct jpeg_source_mgr *src = info->src;
    if (jpeg_input_complete(&jpeg->info) || info->unread_marker == JPEG_EOI)
        return;
    const uint8_t *rest = src->next_input_byte;
    size_t n = src->bytes_in_buffer;
    if (n >= 2 && memcmp(rest + n - 2, "\xff\xd9", 2) == 0) /* its usual place */
        return;
    if (!memmem(rest, n, "\xff\xd9", 2))
        refuse(jpeg, DT_ERR_DATA, "Premature end of JPEG file");
}

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

static int max_int(int a, int b)
{
    return a > b ? a : b;
}

/* Restricts decoding to the columns needed and returns the first decoded one, which is at the edge
 * of a block. libjpeg treats the edges of the restricted image like those of a whole one, so a few
 * more columns are requested to get the same pixels. */
static int crop_columns(struct dt_jpeg *jpeg)
{
    enum {
        NEIGHBOUR = 1, /* fancy upsampling reads one chroma column on each side */
        MIN_WIDTH = 16 /* libjpeg replaces it by plain upsampling below three chroma columns */
    };
    struct jpeg_decompress_struct *info = &jpeg->info;
    /* libjpeg-turbo 2.1.5 treats components that scaling enlarges in part (4:1:0) as too narrow. */
    if (jpeg->denominator > 1 && info->max_h_samp_factor > 2)
        return 0;
    int left = jpeg->x - NEIGHBOUR;
    if (info->progressive_mode) /* smoothing of unrefined scans reads two blocks to the left */
        left -= 2 * DCTSIZE / jpeg->denominator * info->max_h_samp_factor;
    left = max_int(min_int(left, jpeg->width - MIN_WIDTH), 0);
    int right = max_int(jpeg->x + jpeg->w + NEIGHBOUR, left + MIN_WIDTH);
    JDIMENSION first = (JDIMENSION)left, n = (JDIMENSION)(min_int(right, jpeg->width) - left);
    jpeg_crop_scanline(info, &first, &n);
    return (int)first;
}

static void copy_row(struct dt_jpeg *jpeg, uint8_t *dst, int first)
{
    ptrdiff_t at = jpeg->x - first;
    if (jpeg->info.num_components == 4)
        cmyk_to_rgb(dst, jpeg->line + 4 * at, jpeg->w, jpeg->info.saw_Adobe_marker);
    else
        memcpy(dst, jpeg->line + 3 * at, (size_t)jpeg->w * 3);
}

/* Decodes a rectangle; dt_jpeg_decode runs it under setjmp, so it owns nothing that a longjmp would
 * leak. crop_columns limits the rows to the columns needed and a few more for equal pixels, rows
 * above are skipped, though their entropy-coded data must be decoded, and rows below are not read
 * in a sequential file. A row goes straight into `out` if it has just the columns asked for and is
 * RGB, otherwise through `line`. dt_jpeg_skim asks for no columns: then nothing is copied. If all
 * rows of the image were read, libjpeg finishes and checks the end; otherwise check_end looks for
 * the end marker, so that a truncated file is bad whichever rectangle is asked for. */
static void decode_rectangle(struct dt_jpeg *jpeg)
{
    struct jpeg_decompress_struct *info = &jpeg->info;
    info->out_color_space = info->num_components == 4 ? JCS_CMYK : JCS_RGB;
    info->do_fancy_upsampling = jpeg->fancy_upsampling;
    info->dct_method = jpeg->dct;
    info->scale_num = 1;
    info->scale_denom = (unsigned)jpeg->denominator;
    jpeg_start_decompress(info);
    int first = crop_columns(jpeg);
    bool is_direct = info->num_components != 4 && info->output_width == (JDIMENSION)jpeg->w;
    if (jpeg->h > 0) /* skipping all rows would read nothing */
        jpeg_skip_scanlines(info, (JDIMENSION)jpeg->y);
    for (int row = 0; row < jpeg->h; row++) {
        uint8_t *dst = jpeg->w > 0 ? jpeg->out + (ptrdiff_t)row * jpeg->w * 3 : NULL;
        JSAMPROW line = is_direct ? dst : jpeg->line;
        jpeg_read_scanlines(info, &line, 1);
        if (dst && !is_direct)
            copy_row(jpeg, dst, first);
    }
    if (info->output_scanline == info->output_height)
        jpeg_finish_decompress(info);
    else
        check_end(jpeg);
}

dt_status dt_jpeg_create(struct dt_jpeg **jpeg, const struct dt_config_data *data)
{
    DT_TRY(DT_NEW(*jpeg, 1));
    (*jpeg)->fancy_upsampling = !data || data->upsampling == DT_UPSAMPLING_FANCY;
    (*jpeg)->dct = data && data->dct == DT_DCT_FAST ? JDCT_IFAST : JDCT_ISLOW;
    return DT_OK;
}

void dt_jpeg_destroy(struct dt_jpeg *jpeg)
{
    if (!jpeg)
        return;
    close_image(jpeg);
    free(jpeg->line);
    free(jpeg);
}

dt_status dt_jpeg_open(struct dt_jpeg *jpeg, int *width, int *height, const uint8_t *data,
                       size_t bytes)
{
    close_image(jpeg);
    jpeg->data = data;
    jpeg->bytes = bytes;
    DT_TRY(run_guarded(jpeg, read_header));
    dt_jpeg_scale(jpeg, width, height, 1);
    return DT_OK;
}

int dt_jpeg_components(const struct dt_jpeg *jpeg)
{
    return jpeg->info.num_components;
}

/* The other scales (7/8, 3/4, 5/8, 3/8) have plain C transforms, slower than a full decode. */
void dt_jpeg_scale(struct dt_jpeg *jpeg, int *width, int *height, int denominator)
{
    jpeg->denominator = denominator;
    jpeg->width = ((int)jpeg->info.image_width + denominator - 1) / denominator;
    jpeg->height = ((int)jpeg->info.image_height + denominator - 1) / denominator;
    *width = jpeg->width;
    *height = jpeg->height;
}

dt_status dt_jpeg_decode(struct dt_jpeg *jpeg, uint8_t *out, int x, int y, int w, int h)
{
    if (!jpeg->is_open)
        DT_FAIL(DT_ERR_INTERNAL, "JPEG decoding was requested without an open image");
    int width = jpeg->width, height = jpeg->height;
    if (x < 0 || y < 0 || w < 0 || h < 0 || w > width - x || h > height - y)
        DT_FAIL(DT_ERR_INTERNAL, "rectangle %d,%d %dx%d is outside the JPEG image of %dx%d", x, y,
                w, h, width, height);
    DT_TRY(DT_GROW(jpeg->line, jpeg->line_capacity, (size_t)width * 4, "a line of a JPEG image"));
    jpeg->out = out;
    jpeg->x = x;
    jpeg->y = y;
    jpeg->w = w;
    jpeg->h = h;
    DT_TRY(run_guarded(jpeg, decode_rectangle));
    close_image(jpeg);
    return DT_OK;
}

dt_status dt_jpeg_skim(struct dt_jpeg *jpeg, int y, int h)
{
    return dt_jpeg_decode(jpeg, NULL, 0, y, 0, h);
}

/* --- Encoding --- */

/* Lives outside the function that calls setjmp, so its fields survive the jump. */
struct encoder {
    struct jpeg_error_mgr errors; /* first member: jump_back gets a pointer to it from libjpeg */
    jmp_buf jump;
    struct jpeg_compress_struct compress;
    unsigned char *data;
    unsigned long bytes;
    char text[JMSG_LENGTH_MAX];
};

static void jump_back(j_common_ptr common)
{
    struct encoder *encoder = (struct encoder *)common->err;
    encoder->errors.format_message(common, encoder->text);
    longjmp(encoder->jump, 1);
}

static int encode(struct encoder *encoder, const uint8_t *pixels, int width, int height,
                  int quality, int orientation)
{
    enum { ORIENTATION_AT = 25 };
    uint8_t exif[] = "Exif\0\0MM\0*\0\0\0\x08\0\1\x01\x12\0\3\0\0\0\1\0\1\0\0\0\0\0";
    struct jpeg_compress_struct *compress = &encoder->compress;
    compress->err = jpeg_std_error(&encoder->errors);
    encoder->errors.error_exit = jump_back;
    if (setjmp(encoder->jump))
        return -1;
    jpeg_create_compress(compress);
    jpeg_mem_dest(compress, &encoder->data, &encoder->bytes);
    compress->image_width = (JDIMENSION)width;
    compress->image_height = (JDIMENSION)height;
    compress->input_components = 3;
    compress->in_color_space = JCS_RGB;
    jpeg_set_defaults(compress);
    compress->dct_method = JDCT_ISLOW; /* the same bits on every machine */
    jpeg_set_quality(compress, quality, TRUE);
    jpeg_start_compress(compress, TRUE);
    exif[ORIENTATION_AT] = (uint8_t)orientation;
    if (orientation > 1)
        jpeg_write_marker(compress, JPEG_APP0 + 1, exif, sizeof exif);
    while (compress->next_scanline < compress->image_height) {
        JSAMPROW row =
            (JSAMPROW)(uintptr_t)(pixels + (size_t)compress->next_scanline * 3 * (size_t)width);
        jpeg_write_scanlines(compress, &row, 1);
    }
    jpeg_finish_compress(compress);
    return 0;
}

dt_status dt_jpeg_encode(uint8_t **data, size_t *bytes, const uint8_t *pixels, int width,
                         int height, int quality, int orientation)
{
    struct encoder encoder = {.data = NULL};
    const int result = encode(&encoder, pixels, width, height, quality, orientation);
    jpeg_destroy_compress(&encoder.compress);
    if (result) {
        free(encoder.data);
        DT_FAIL(DT_ERR_INTERNAL, "cannot encode a JPEG image of %d x %d pixels: %s", width, height,
                encoder.text);
    }
    *data = encoder.data;
    *bytes = encoder.bytes;
    return DT_OK;
}
