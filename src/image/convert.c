/* Decode, maybe resize, maybe encode. */
#include "image/convert.h"

#include <stdlib.h>

#include "base/mem.h"
#include "image/image_file.h"
#include "image/resize.h"

enum { MAX_SIDE = 65500 }; /* libjpeg's limit */

struct dt_convert {
    int resize_short, quality;
    struct dt_decoder *decoder;
    struct dt_resize *resize;
    uint8_t *pixels, *reduced;
    size_t pixels_capacity, reduced_capacity;
    bool applies_exif, keeps_png;
    int width, height; /* of pixels */
    uint8_t *encoded;
};

dt_status dt_convert_create(struct dt_convert **convert, int resize_short, int quality,
                            bool keeps_png, const struct dt_config_data *data)
{
    dt_status status = DT_OK;
    struct dt_convert *made = NULL;
    *convert = NULL;
    DT_TRY(DT_NEW(made, 1));
    made->resize_short = resize_short;
    made->quality = quality;
    made->keeps_png = keeps_png;
    made->applies_exif = data && data->exif == DT_EXIF_APPLY;
    DT_TRY_OUT(dt_decoder_create(&made->decoder, data));
    DT_TRY_OUT(dt_resize_create(&made->resize));
    *convert = made;
    return DT_OK;
out:
    dt_convert_destroy(made);
    return status;
}

void dt_convert_destroy(struct dt_convert *convert)
{
    if (!convert)
        return;
    dt_decoder_destroy(convert->decoder);
    dt_resize_destroy(convert->resize);
    free(convert->pixels);
    free(convert->reduced);
    free(convert->encoded);
    free(convert);
}

/* Pixels are made only of files that are not what shards hold, grey or RGB JPEG files, or PNG files
 * that are kept, or are to be reduced or turned. */
static dt_status decode(struct dt_convert *convert, enum dt_conversion *done, const uint8_t *data,
                        size_t bytes)
{
    const int side = convert->resize_short;
    struct dt_crop all = {0};
    DT_TRY(dt_decoder_open(convert->decoder, &convert->width, &convert->height, data, bytes));
    const struct dt_jpeg *jpeg = dt_decoder_jpeg(convert->decoder);
    const bool turns = convert->applies_exif && dt_decoder_orientation(convert->decoder) > 1;
    const bool is_png = convert->keeps_png &&
                        dt_image_format_of_data(data, bytes) == dt_image_format_of_suffix("png");
    const bool is_plain = (jpeg ? dt_jpeg_components(jpeg) != 4 : is_png) && !turns;
    const bool is_large = side > 0 && convert->width > side && convert->height > side;
    *done = is_large ? DT_REDUCED : is_plain ? DT_KEPT : DT_CONVERTED;
    if (*done == DT_KEPT)
        return dt_decoder_skim(convert->decoder, 0, convert->height);
    if (is_large)
        dt_decoder_scale(convert->decoder, &all, &convert->width, &convert->height, 1);
    const size_t n = (size_t)convert->width * (size_t)convert->height;
    DT_TRY(DT_GROW(convert->pixels, convert->pixels_capacity, n * 3 + DT_RESIZE_PAD,
                   "pixels of an image"));
    return dt_decoder_decode(convert->decoder, convert->pixels, 0, 0, convert->width,
                             convert->height);
}

static dt_status reduce(struct dt_convert *convert)
{
    const int width = convert->width, height = convert->height;
    const int side = convert->resize_short;
    const int64_t shorter = width < height ? width : height;
    const int out_width = (int)((int64_t)width * side / shorter);
    const int out_height = (int)((int64_t)height * side / shorter);
    const struct dt_crop all = {0, 0, (float)width, (float)height, false};
    struct dt_rect need;
    DT_TRY(DT_GROW(convert->reduced, convert->reduced_capacity,
                   (size_t)out_width * (size_t)out_height * 3, "pixels of an image"));
    DT_TRY(dt_resize_prepare(convert->resize, &need, &all, DT_RESIZE_IMAGE, width, height,
                             out_width, out_height));
    dt_resize_run(convert->resize, convert->reduced, convert->pixels);
    convert->width = out_width;
    convert->height = out_height;
    return DT_OK;
}

dt_status dt_convert_run(struct dt_convert *convert, enum dt_conversion *done, const uint8_t **out,
                         size_t *out_bytes, const uint8_t *data, size_t bytes)
{
    DT_TRY(decode(convert, done, data, bytes));
    *out = data;
    *out_bytes = bytes;
    if (*done == DT_KEPT)
        return DT_OK;
    if (*done == DT_REDUCED)
        DT_TRY(reduce(convert));
    if (convert->width > MAX_SIDE || convert->height > MAX_SIDE)
        DT_FAIL(DT_ERR_DATA, "%d x %d pixels do not fit into a JPEG file", convert->width,
                convert->height);
    free(convert->encoded);
    convert->encoded = NULL;
    DT_TRY(dt_jpeg_encode(&convert->encoded, out_bytes,
                          *done == DT_REDUCED ? convert->reduced : convert->pixels, convert->width,
                          convert->height, convert->quality,
                          convert->applies_exif ? 1 : dt_decoder_orientation(convert->decoder)));
    *out = convert->encoded;
    return DT_OK;
}

const struct dt_decoder *dt_convert_decoder(const struct dt_convert *convert)
{
    return convert->decoder;
}
