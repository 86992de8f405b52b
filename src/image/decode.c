#include "image/decode.h"

#include <stdlib.h>

#include "base/mem.h"
#include "image/png.h"

struct dt_decoder {
    struct dt_jpeg *jpeg;
    struct dt_png *png;
    bool is_png; /* the open image */
};

dt_status dt_decoder_create(struct dt_decoder **decoder, const struct dt_config_data *data)
{
    dt_status status = DT_OK;
    struct dt_decoder *made = NULL;

    *decoder = NULL;
    DT_TRY(DT_NEW(made, 1));
    DT_TRY_OUT(dt_jpeg_create(&made->jpeg, data));
    DT_TRY_OUT(dt_png_create(&made->png));
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
    dt_png_destroy(decoder->png);
    free(decoder);
}

dt_status dt_decoder_open(struct dt_decoder *decoder, int *width, int *height, const uint8_t *data,
                          size_t bytes)
{
    decoder->is_png = dt_png_found(data, bytes);
    if (decoder->is_png)
        return dt_png_open(decoder->png, width, height, data, bytes);
    return dt_jpeg_open(decoder->jpeg, width, height, data, bytes);
}

struct dt_jpeg *dt_decoder_jpeg(const struct dt_decoder *decoder)
{
    return decoder->is_png ? NULL : decoder->jpeg;
}

dt_status dt_decoder_decode(struct dt_decoder *decoder, uint8_t *out, int x, int y, int w, int h)
{
    if (decoder->is_png)
        return dt_png_decode(decoder->png, out, x, y, w, h);
    return dt_jpeg_decode(decoder->jpeg, out, x, y, w, h);
}

dt_status dt_decoder_skim(struct dt_decoder *decoder, int y, int h)
{
    if (decoder->is_png)
        return dt_png_decode(decoder->png, NULL, 0, y, 0, h);
    return dt_jpeg_skim(decoder->jpeg, y, h);
}
