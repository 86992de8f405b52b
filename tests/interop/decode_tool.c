/* Decodes and resizes image files as the loader does, for comparison with Pillow. Commands on
 * stdin, one a line; the answer is raw RGB on stdout: crop PATH SIZE X Y W H FLIP     crop, then
 * resize to SIZE x SIZE (training) eval PATH SIZE RESIZE           shorter side to RESIZE, then
 * centre crop (evaluation) full PATH                       all pixels usage: decode_tool [scaled |
 * whole | upright] scaled: large crops of JPEG files by a smaller inverse DCT; whole: all of an
 * image is decoded, then cropped; upright: scaled, and turned as EXIF says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/row.h"
#include "image/decode.h"
#include "image/resize.h"

struct tool {
    struct dt_decoder *decoder;
    struct dt_resize *resize;
    bool scaled, whole;
};

/* need.h x need.w pixels, of which those outside the rectangle are not decoded unless `whole`. */
static dt_status decode_part(const struct tool *tool, uint8_t *out, const struct dt_rect *need,
                             int width, int height)
{
    dt_status status = DT_OK;
    uint8_t *all = NULL;
    if (!tool->whole)
        return dt_decoder_decode(tool->decoder, out, need->x, need->y, need->w, need->h);
    DT_TRY_OUT(DT_NEW(all, (size_t)width * (size_t)height * 3));
    DT_TRY_OUT(dt_decoder_decode(tool->decoder, all, 0, 0, width, height));
    for (int y = 0; y < need->h; y++)
        memcpy(out + (size_t)y * (size_t)need->w * 3,
               all + ((size_t)(need->y + y) * (size_t)width + (size_t)need->x) * 3,
               (size_t)need->w * 3);
out:
    free(all);
    return status;
}

static dt_status write_out(const uint8_t *pixels, size_t bytes)
{
    if (fwrite(pixels, 1, bytes, stdout) != bytes || fflush(stdout))
        DT_FAIL(DT_ERR_IO, "cannot write %zu bytes of pixels", bytes);
    return DT_OK;
}

static dt_status decode(struct tool *tool, const char *path, const char *line)
{
    dt_status status = DT_OK;
    char *file = NULL;
    uint8_t *pixels = NULL, *dst = NULL;
    size_t bytes;
    int width, height, size = 0, resize = 0, flip = 0;
    struct dt_crop crop = {0};
    struct dt_rect need = {0};
    enum dt_resize_edge edge = DT_RESIZE_CROP;
    DT_TRY_OUT(dt_file_load(&file, &bytes, path, 50000000));
    DT_TRY_OUT(dt_decoder_open(tool->decoder, &width, &height, (const uint8_t *)file, bytes));
    need = (struct dt_rect){0, 0, width, height};
    if (sscanf(line, "eval %*s %d %d", &size, &resize) == 2) {
        edge = DT_RESIZE_IMAGE;
        const struct dt_config_data data = {.val_resize = resize};
        dt_crop_draw(&crop, &data, false, 0, 0, 0, width, height, size);
    } else if (sscanf(line, "crop %*s %d %f %f %f %f %d", &size, &crop.x, &crop.y, &crop.w, &crop.h,
                      &flip) == 6) {
        crop.flip = flip != 0;
    }
    if (size > 0 && tool->scaled)
        dt_decoder_scale(tool->decoder, &crop, &width, &height,
                         dt_row_scale(&crop, width, height, size));
    if (size > 0)
        DT_TRY_OUT(dt_resize_prepare(tool->resize, &need, &crop, edge, width, height, size, size));
    DT_TRY_OUT(DT_NEW(pixels, (size_t)need.w * (size_t)need.h * 3 + DT_RESIZE_PAD));
    DT_TRY_OUT(decode_part(tool, pixels, &need, width, height));
    if (size > 0) {
        DT_TRY_OUT(DT_NEW(dst, (size_t)size * (size_t)size * 3));
        dt_resize_run(tool->resize, dst, pixels);
        DT_TRY_OUT(write_out(dst, (size_t)size * (size_t)size * 3));
    } else {
        DT_TRY_OUT(write_out(pixels, (size_t)width * (size_t)height * 3));
    }
out:
    free(dst);
    free(pixels);
    free(file);
    return status;
}

int main(int argc, char **argv)
{
    struct tool tool = {0};
    char line[2048], path[DT_PATH_MAX];
    const bool is_upright = argc > 1 && strcmp(argv[1], "upright") == 0;
    const struct dt_config_data data = {.exif = is_upright ? DT_EXIF_APPLY : DT_EXIF_IGNORE};
    tool.scaled = is_upright || (argc > 1 && strcmp(argv[1], "scaled") == 0);
    tool.whole = argc > 1 && strcmp(argv[1], "whole") == 0;
    dt_status status = dt_decoder_create(&tool.decoder, &data);
    if (status == DT_OK)
        status = dt_resize_create(&tool.resize);
    while (status == DT_OK && fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "%*s %1023s", path) != 1)
            status = DT_ERROR(DT_ERR_USAGE, "cannot read the command: %s", line);
        else
            status = decode(&tool, path, line);
    }
    if (status != DT_OK)
        fprintf(stderr, "decode_tool: %s\n", dt_error_text());
    dt_resize_destroy(tool.resize);
    dt_decoder_destroy(tool.decoder);
    return (int)status;
}
