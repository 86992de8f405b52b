/* JPEG encoding with libjpeg. Its default error handler ends the process, so ours jumps back. */
#include "image/jpeg_encode.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <jpeglib.h>

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
                  int quality)
{
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
    while (compress->next_scanline < compress->image_height) {
        JSAMPROW row =
            (JSAMPROW)(uintptr_t)(pixels + (size_t)compress->next_scanline * 3 * (size_t)width);
        jpeg_write_scanlines(compress, &row, 1);
    }
    jpeg_finish_compress(compress);
    return 0;
}

dt_status dt_jpeg_encode(uint8_t **data, size_t *bytes, const uint8_t *pixels, int width,
                         int height, int quality)
{
    struct encoder encoder = {.data = NULL};
    const int result = encode(&encoder, pixels, width, height, quality);

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
