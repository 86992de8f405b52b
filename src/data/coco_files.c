/* COCO's annotations with the images as single files in a folder. The files are not looked for one
 * by one when the set is opened, which would take long for 118,287 of them on a file server: one
 * that is missing is a bad sample when it is read. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/coco_set.h"

enum { N_PROBES = 8 };

struct coco_files {
    struct dt_coco_set set;
    char path[DT_PATH_MAX], folder[DT_PATH_MAX];
};

dt_status dt_coco_images_folder(char *out, const char *path)
{
    static const char prefix[] = "instances_";
    const char *base = dt_file_base(path), *dot = strrchr(base, '.');
    const int n_folder = base > path ? (int)(base - path) - 1 : 0;
    const char *folder = n_folder > 0 ? path : base > path ? "/" : ".";
    const int n = n_folder > 0 ? n_folder : 1;
    if (strncmp(base, prefix, strlen(prefix)) != 0 || !dot || dot <= base + strlen(prefix))
        return dt_file_path(out, "%.*s", n, folder);
    base += strlen(prefix);
    return dt_file_path(out, "%.*s/../%.*s", n, folder, (int)(dot - base), base);
}

static void name_coco(const struct dt_dataset *dataset, uint32_t id, char *out, size_t bytes)
{
    const struct coco_files *files = dataset->state;
    snprintf(out, bytes, "%s/%s", files->folder, dt_coco_set_file(dataset, id));
}

/* If none of the first images is in the folder, it is the wrong one. */
static dt_status open_coco(struct dt_dataset *dataset, const struct dt_dataset_options *options)
{
    const bool is_val = options->part == DT_PART_VAL && options->data->val_fraction == 0;
    const char *key = options->part == DT_PART_ALL ? "--image-folder"
                      : is_val                     ? "data.val_images"
                                                   : "data.train_images";
    char path[2 * DT_PATH_MAX];
    struct stat info;
    struct coco_files *files;
    const char *folder = options->images_folder;
    DT_TRY(DT_NEW(files, 1));
    dataset->state = files;
    DT_TRY(dt_file_path(files->path, "%s", options->path));
    DT_TRY(folder && folder[0] ? dt_file_path(files->folder, "%s", folder)
                               : dt_coco_images_folder(files->folder, files->path));
    DT_TRY(dt_coco_open(&files->set.coco, files->path,
                        &(struct dt_coco_rules){.max_bad = options->data->max_bad_fraction,
                                                .may_lack_annotations = options->may_lack_boxes}));
    DT_TRY(dt_coco_set_use(&files->set, dataset, options));
    dataset->n_files = dataset->n + 1;
    if (stat(files->folder, &info) != 0)
        DT_FAIL(dt_file_input_status(errno),
                "cannot read the folder of the images of %s, %s: %s; set %s to their folder",
                files->path, files->folder, strerror(errno), key);
    for (uint32_t id = 0; id < dataset->n && id < N_PROBES; id++) {
        name_coco(dataset, id, path, sizeof path);
        if (dt_file_exists(path))
            return DT_OK;
    }
    DT_FAIL(DT_ERR_NO_INPUT,
            "the folder %s does not hold the images of %s, such as %s; set %s to their folder",
            files->folder, files->path, dt_coco_set_file(dataset, 0), key);
}

static dt_status share_coco(struct dt_block *block, struct dt_dataset *dataset)
{
    struct coco_files *files = dataset->state;
    DT_BLOCK_VALUE(block, files->path);
    DT_BLOCK_VALUE(block, files->folder);
    return dt_coco_set_share(block, &files->set, dataset);
}

static void close_coco(struct dt_dataset *dataset)
{
    struct coco_files *files = dataset->state;
    dt_coco_set_reset(&files->set);
    free(files);
}

/* The images, and the annotations. */
static void file_coco(const struct dt_dataset *dataset, uint32_t index, char *out, size_t bytes)
{
    if (index < dataset->n)
        name_coco(dataset, index, out, bytes);
    else
        snprintf(out, bytes, "%s", ((const struct coco_files *)dataset->state)->path);
}

const struct dt_dataset_kind dt_dataset_coco = {
    .suffix = ".json",
    .open = open_coco,
    .read = dt_files_read,
    .forget = dt_files_forget,
    .truths = dt_coco_set_truths,
    .image = dt_coco_set_image,
    .name = name_coco,
    .file = file_coco,
    .key = dt_coco_set_key,
    .share = share_coco,
    .state_bytes = sizeof(struct coco_files),
    .close = close_coco,
};
