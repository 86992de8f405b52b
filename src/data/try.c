/* A look at one sample before training, through the same code as in training. */
#include <stdlib.h>

#include "base/mem.h"
#include "data/row.h"

dt_status dt_dataset_try(const struct dt_dataset *dataset, uint32_t id, int image_size)
{
    const struct dt_config_data data = {.val_resize = image_size};
    struct dt_loader_options options = {.data = &data, .image_size = image_size};
    struct dt_row_reader *reader = NULL;
    struct dt_crop crop;
    uint8_t *pixels = NULL;
    dt_status status = DT_OK;
    DT_TRY_OUT(DT_NEW(pixels, (size_t)image_size * (size_t)image_size * 3));
    DT_TRY_OUT(dt_row_reader_create(&reader, dataset, &options));
    DT_TRY_OUT(dt_row_read(reader, pixels, &crop, 0, id));
out:
    dt_row_reader_destroy(reader);
    free(pixels);
    return status;
}
