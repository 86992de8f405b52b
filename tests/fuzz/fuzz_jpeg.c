/* The JPEG decoder: decodes the whole image, a rectangle of it, which must have the same pixels,
 * and only its entropy-coded data, which must have the same faults. The verdict must be the one
 * that libjpeg alone comes to, whatever the decoder has met before. The length of the input selects
 * the options and the scale. Of images above a megapixel the replay decodes the last rows; the
 * fuzzer only opens them, because decoding them costs time and finds nothing new. */
#include <setjmp.h>

#include "fuzz.h"

#include <jpeglib.h>

#include "image/jpeg.h"

enum { PIXELS_DECODED = 1 << 20 };

struct image {
    const uint8_t *data;
    size_t bytes;
    int width, height, denominator;
};

static void open_image(struct dt_jpeg *jpeg, struct image *image)
{
    FUZZ_CHECK(dt_jpeg_open(jpeg, &image->width, &image->height, image->data, image->bytes) ==
               DT_OK);
    dt_jpeg_scale(jpeg, &image->width, &image->height, image->denominator);
    FUZZ_CHECK(image->width > 0 && image->height > 0);
}

/* Columns x .. x+w-1 of rows y .. y+h-1; NULL if the file is bad. */
static uint8_t *decode(struct dt_jpeg *jpeg, struct image *image, int x, int y, int w, int h)
{
    uint8_t *pixels = malloc((size_t)w * (size_t)h * 3);
    FUZZ_CHECK(pixels);
    open_image(jpeg, image);
    dt_status status = dt_jpeg_decode(jpeg, pixels, x, y, w, h);
    if (status == DT_OK)
        return pixels;
    fuzz_check_refusal(status, DT_ERR_DATA);
    free(pixels);
    return NULL;
}

static void check_rectangle(struct dt_jpeg *jpeg, struct image *image, const uint8_t *whole)
{
    int x = image->width / 4, y = image->height / 4;
    int w = (image->width + 1) / 2, h = (image->height + 1) / 2;
    uint8_t *part = decode(jpeg, image, x, y, w, h);
    FUZZ_CHECK(part || !whole); /* a part requires less than the whole */
    for (int row = 0; whole && row < h; row++) {
        size_t at = ((size_t)(y + row) * (size_t)image->width + (size_t)x) * 3;
        FUZZ_CHECK(memcmp(part + (size_t)row * (size_t)w * 3, whole + at, (size_t)w * 3) == 0);
    }
    free(part);
}

/* Skimming rows y .. y+n-1 says what decoding them says, and leaves nothing open. */
static void check_skim(struct dt_jpeg *jpeg, struct image *image, int y, int n,
                       const uint8_t *whole)
{
    char text[256] = "";
    uint8_t *rows = decode(jpeg, image, 0, y, image->width, n);
    if (!rows)
        snprintf(text, sizeof text, "%s", dt_error_text());
    FUZZ_CHECK(rows || !whole);
    FUZZ_CHECK(!rows || whole || y + n < image->height);
    open_image(jpeg, image);
    dt_status status = dt_jpeg_skim(jpeg, y, n);
    FUZZ_CHECK((status == DT_OK) == (rows != NULL));
    FUZZ_CHECK(rows || strcmp(dt_error_text(), text) == 0);
    FUZZ_CHECK(dt_jpeg_skim(jpeg, 0, 1) == DT_ERR_INTERNAL);
    dt_error_clear();
    free(rows);
}

/* Whether the file is good. */
static int check_image(struct dt_jpeg *jpeg, struct image *image)
{
    open_image(jpeg, image); /* the scaled size */
    uint8_t *whole = decode(jpeg, image, 0, 0, image->width, image->height);
    const int is_decoded = whole != NULL, half = image->height / 2;
    check_rectangle(jpeg, image, whole);
    check_skim(jpeg, image, half / 2, half, whole);
    check_skim(jpeg, image, half, image->height - half, whole);
    free(whole);
    return is_decoded;
}

/* The same for an image that is too large to be kept. */
static int check_last_rows(struct dt_jpeg *jpeg, struct image *image)
{
    enum { ROWS = 16 };
    open_image(jpeg, image);
    const int n = image->height < ROWS ? image->height : ROWS;
    uint8_t *rows = decode(jpeg, image, 0, image->height - n, image->width, n);
    const int is_decoded = rows != NULL;
    free(rows);
    return is_decoded;
}

/* --- What libjpeg alone says --- */

struct plain {
    struct jpeg_error_mgr errors;
    jmp_buf end;
};

static void end_plain(j_common_ptr info)
{
    longjmp(((struct plain *)info->err)->end, 1);
}

/* Damage to the image data is bad; odd headers and junk between segments are not. */
static void count_remark(j_common_ptr info, int level)
{
    static const char *const harmless[] = {
        "Unknown Adobe color transform code", "extraneous bytes before marker",
        "unknown JFIF revision number", "Invalid SOS parameters for sequential JPEG",
        "bad ICC marker"};
    char text[JMSG_LENGTH_MAX];
    info->err->format_message(info, text);
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        if (level >= 0 || strstr(text, harmless[i]))
            return;
    end_plain(info);
}

static void limit_scans(j_common_ptr info)
{
    if (((j_decompress_ptr)info)->input_scan_number > 100)
        end_plain(info);
}

/* dtrain also refuses arithmetic coding, two components and more than 2000 M pixels. It reads from
 * memory like this: elsewhere libjpeg-turbo treats an impossible Huffman code as 0. */
static int is_good(const uint8_t *data, size_t bytes)
{
    struct plain plain;
    struct jpeg_decompress_struct info;
    struct jpeg_progress_mgr progress = {.progress_monitor = limit_scans};
    info.err = jpeg_std_error(&plain.errors);
    plain.errors.error_exit = end_plain;
    plain.errors.emit_message = count_remark;
    jpeg_create_decompress(&info);
    if (setjmp(plain.end)) {
        jpeg_destroy_decompress(&info);
        return 0;
    }
    jpeg_mem_src(&info, data, bytes);
    info.mem->max_memory_to_use = 800000000;
    info.progress = &progress;
    jpeg_read_header(&info, TRUE);
    if (info.arith_code || info.out_color_space == JCS_UNKNOWN ||
        (uint64_t)info.image_width * info.image_height > 2000000000)
        end_plain((j_common_ptr)&info);
    jpeg_start_decompress(&info);
    JSAMPARRAY row =
        info.mem->alloc_sarray((j_common_ptr)&info, JPOOL_IMAGE,
                               info.output_width * (JDIMENSION)info.output_components, 1);
    while (info.output_scanline < info.output_height)
        jpeg_read_scanlines(&info, row, 1);
    jpeg_finish_decompress(&info);
    jpeg_destroy_decompress(&info);
    return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct dt_jpeg *decoders[4];
    const struct dt_config_data data_keys = {.upsampling = bytes & 4 ? DT_UPSAMPLING_PLAIN
                                                                     : DT_UPSAMPLING_FANCY,
                                             .dct = bytes & 8 ? DT_DCT_FAST : DT_DCT_ACCURATE};
    struct image image = {.data = data, .bytes = bytes, .denominator = 1 << (bytes & 3)};
    struct dt_jpeg **const decoder = &decoders[bytes >> 2 & 3], *jpeg;
    if (!*decoder)
        FUZZ_CHECK(dt_jpeg_create(decoder, &data_keys) == DT_OK);
    jpeg = *decoder;
    dt_status status = dt_jpeg_open(jpeg, &image.width, &image.height, data, bytes);
    const int is_small = (uint64_t)image.width * (uint64_t)image.height <= PIXELS_DECODED;
    int good = 0;
    if (status != DT_OK)
        fuzz_check_refusal(status, DT_ERR_DATA);
    else if (is_small)
        good = check_image(jpeg, &image);
    else if (fuzz_outcome.is_replay)
        good = check_last_rows(jpeg, &image);
    if (status != DT_OK || is_small || fuzz_outcome.is_replay)
        FUZZ_CHECK(good == is_good(data, bytes));
    if (good)
        fuzz_accept(1);
    return 0;
}
