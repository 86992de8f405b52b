/* A table of images stored in larger files. Each read opens its file, as there may be more files
 * than a process may have open; the cost is small compared with reading an image. */
#include "pack/images.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

dt_status dt_images_add(struct dt_images *images, const char *name, uint64_t offset, uint64_t bytes,
                        uint32_t file, int32_t label)
{
    if (images->n >= DT_MAX_SAMPLES)
        DT_FAIL(DT_ERR_DATA, "%s holds more than %d images", dt_names_get(&images->files, file),
                DT_MAX_SAMPLES);
    DT_TRY(DT_GROW(images->image, images->capacity, images->n, "images"));
    DT_TRY(dt_names_add(&images->names, name, strlen(name)));
    images->image[images->n++] = (struct dt_image){
        .offset = offset,
        .bytes = bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX,
        .file = file,
        .name = (uint32_t)(images->names.n - 1),
        .label = label,
    };
    return DT_OK;
}

static int compare_images(const void *a, const void *b, void *names)
{
    return strcmp(dt_names_get(names, ((const struct dt_image *)a)->name),
                  dt_names_get(names, ((const struct dt_image *)b)->name));
}

dt_status dt_images_sort(struct dt_images *images, size_t first)
{
    const size_t n = images->n - first;

    if (n < 2)
        return DT_OK;
    qsort_r(images->image + first, n, sizeof *images->image, compare_images, &images->names);
    for (size_t i = first + 1; i < images->n; i++)
        if (compare_images(&images->image[i - 1], &images->image[i], &images->names) == 0)
            DT_FAIL(DT_ERR_DATA, "%s holds two images named %s",
                    dt_names_get(&images->files, images->image[i].file),
                    dt_names_get(&images->names, images->image[i].name));
    return DT_OK;
}

dt_status dt_images_read(const struct dt_dataset *dataset, uint32_t id, struct dt_sample *sample)
{
    const struct dt_images *images = dataset->state;
    const struct dt_image *image = &images->image[id];
    const char *path = dt_names_get(&images->files, image->file);
    uint64_t file_bytes;
    int fd = -1;

    DT_TRY(dt_file_open(&fd, &file_bytes, path));
    const dt_status status =
        dt_sample_read(sample, fd, image->offset - image->before,
                       (uint64_t)image->before + image->bytes + image->after, path);
    close(fd);
    DT_TRY(status);
    return DT_OK;
}

int dt_images_label(const struct dt_dataset *dataset, uint32_t id)
{
    return ((const struct dt_images *)dataset->state)->image[id].label;
}

void dt_images_name(const struct dt_dataset *dataset, uint32_t id, char *out, size_t bytes)
{
    const struct dt_images *images = dataset->state;
    const struct dt_image *image = &images->image[id];
    snprintf(out, bytes, "%s: %s", dt_names_get(&images->files, image->file),
             dt_names_get(&images->names, image->name));
}

void dt_images_close(struct dt_dataset *dataset)
{
    struct dt_images *images = dataset->state;
    dt_names_reset(&images->files);
    dt_names_reset(&images->names);
    dt_names_reset(&images->classes);
    free(images->image);
    free(images);
}
