/* Class folders: root/<class>/<file>.jpg. Labels are the positions of the class folders in
 * byte-sorted order, as in torchvision's ImageFolder; files are sorted too. Names are stored in one
 * block of memory, about 25 bytes per sample. Symbolic links are followed, hidden files skipped. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "data/dataset.h"
#include "data/names.h"

struct folder {
    char root[DT_PATH_MAX];
    struct dt_names classes, files;
    uint32_t *first; /* first[c] .. first[c + 1] - 1 are the samples of class c */
    size_t n_ignored;
    bool with_png;
};

static dt_status find_classes(struct folder *folder)
{
    dt_status status = DT_OK;
    struct dt_names entries = {0};
    char path[DT_PATH_MAX];
    struct stat info;

    DT_TRY_OUT(dt_names_list(&entries, folder->root));
    for (size_t i = 0; i < entries.n; i++) {
        const char *name = dt_names_get(&entries, i);
        DT_TRY_OUT(dt_file_path(path, "%s/%s", folder->root, name));
        if (stat(path, &info))
            DT_TRY_OUT(
                DT_ERROR(dt_file_input_status(errno), "cannot stat %s: %s", path, strerror(errno)));
        if (S_ISDIR(info.st_mode))
            DT_TRY_OUT(dt_names_add(&folder->classes, name, strlen(name)));
    }
out:
    dt_names_reset(&entries);
    return status;
}

static bool is_image(const struct folder *folder, const char *name)
{
    const char *suffix = strrchr(name, '.');
    return suffix &&
           (dt_is_jpeg_suffix(suffix + 1) || (folder->with_png && strcasecmp(suffix, ".png") == 0));
}

/* Adds the image `name` in the folder open as `dir`; other files are counted and skipped. */
static dt_status add_file(struct folder *folder, uint64_t *hash, int dir, const char *path,
                          const char *name)
{
    struct stat info;

    if (!is_image(folder, name)) {
        folder->n_ignored++;
        return DT_OK;
    }
    if (fstatat(dir, name, &info, 0))
        DT_FAIL(dt_file_input_status(errno), "cannot stat %s/%s: %s", path, name, strerror(errno));
    if (!S_ISREG(info.st_mode))
        DT_FAIL(DT_ERR_DATA, "%s/%s has the name of an image but is not a regular file", path,
                name);
    if (folder->files.n >= DT_MAX_SAMPLES)
        DT_FAIL(DT_ERR_DATA, "folder %s holds more than %d images", folder->root, DT_MAX_SAMPLES);
    DT_TRY(dt_names_add(&folder->files, name, strlen(name)));
    const uint64_t size = (uint64_t)info.st_size;
    *hash = XXH64(name, strlen(name), *hash);
    *hash = XXH64(&size, sizeof size, *hash);
    return DT_OK;
}

static dt_status scan_class(struct folder *folder, uint64_t *hash, size_t label)
{
    dt_status status = DT_OK;
    struct dt_names entries = {0};
    char path[DT_PATH_MAX];
    const char *class = dt_names_get(&folder->classes, label);
    int dir = -1;

    DT_TRY(dt_file_path(path, "%s/%s", folder->root, class));
    DT_TRY_OUT(dt_names_list(&entries, path));
    dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        DT_TRY_OUT(DT_ERROR(dt_file_input_status(errno), "cannot open folder %s: %s", path,
                            strerror(errno)));
    *hash = XXH64(class, strlen(class), *hash);
    for (size_t i = 0; i < entries.n; i++) {
        DT_TRY_OUT(add_file(folder, hash, dir, path, dt_names_get(&entries, i)));
        dt_pulse_beat(&dt_pulse_main);
    }
    folder->first[label + 1] = (uint32_t)folder->files.n;
    if (folder->first[label + 1] == folder->first[label])
        dt_log(DT_LOG_WARNING, "class folder %s holds no .jpg or .jpeg files", path);
out:
    if (dir >= 0)
        close(dir);
    dt_names_reset(&entries);
    return status;
}

static dt_status open_images(struct dt_dataset *dataset, const struct dt_dataset_options *options,
                             bool with_png)
{
    struct folder *folder;
    const double start_s = dt_clock_s();

    DT_TRY(DT_NEW(folder, 1));
    dataset->state = folder;
    folder->with_png = with_png;
    DT_TRY(dt_file_path(folder->root, "%s", options->path));
    DT_TRY(find_classes(folder));
    const size_t n_classes = folder->classes.n;
    if (n_classes == 0)
        DT_FAIL(DT_ERR_DATA, "folder %s holds no class folders with images, and no shards",
                folder->root);
    DT_TRY(DT_NEW(folder->first, n_classes + 1));
    for (size_t label = 0; label < n_classes; label++) {
        DT_TRY(scan_class(folder, &dataset->fingerprint, label));
        dt_log_progress_of("listing", label + 1, n_classes, "classes", start_s);
    }
    dt_log_progress("");
    if (folder->n_ignored)
        dt_log(DT_LOG_WARNING, "skipped %zu entries under %s that are not .jpg or .jpeg%s files",
               folder->n_ignored, folder->root, with_png ? " or .png" : "");
    dataset->n = (uint32_t)folder->files.n;
    dataset->n_classes = (int)n_classes;
    return DT_OK;
}

static dt_status open_folder(struct dt_dataset *dataset, const struct dt_dataset_options *options)
{
    return open_images(dataset, options, false);
}

static dt_status open_folder_png(struct dt_dataset *dataset,
                                 const struct dt_dataset_options *options)
{
    return open_images(dataset, options, true);
}

static void close_folder(struct dt_dataset *dataset)
{
    struct folder *folder = dataset->state;
    dt_names_reset(&folder->classes);
    dt_names_reset(&folder->files);
    free(folder->first);
    free(folder);
}

/* The last class whose samples begin at or before `id`. */
static int label_folder(const struct dt_dataset *dataset, uint32_t id)
{
    const struct folder *folder = dataset->state;
    size_t low = 0, high = folder->classes.n;

    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (folder->first[middle] <= id)
            low = middle;
        else
            high = middle;
    }
    return (int)low;
}

static void name_folder(const struct dt_dataset *dataset, uint32_t id, char *out, size_t bytes)
{
    const struct folder *folder = dataset->state;
    snprintf(out, bytes, "%s/%s/%s", folder->root,
             dt_names_get(&folder->classes, (size_t)label_folder(dataset, id)),
             dt_names_get(&folder->files, id));
}

static dt_status read_folder(const struct dt_dataset *dataset, uint32_t id,
                             struct dt_sample *sample)
{
    char path[2 * DT_PATH_MAX];
    uint64_t bytes = 0;
    int fd = -1;

    name_folder(dataset, id, path, sizeof path);
    DT_TRY(dt_file_open(&fd, &bytes, path));
    dt_status status = dt_sample_read(sample, fd, 0, bytes, path);
    close(fd);
    DT_TRY(status);
    return DT_OK;
}

static void forget_folder(const struct dt_dataset *dataset)
{
    char path[2 * DT_PATH_MAX];
    for (uint32_t id = 0; id < dataset->n; id++) {
        name_folder(dataset, id, path, sizeof path);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue;
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
}

static const char *class_folder(const struct dt_dataset *dataset, int label)
{
    const struct dt_names *classes = &((const struct folder *)dataset->state)->classes;
    return (size_t)label < classes->n ? dt_names_get(classes, (size_t)label) : NULL;
}

#define FOLDER_FUNCTIONS                                                                    \
    .read = read_folder, .label = label_folder, .name = name_folder, .close = close_folder, \
    .class_name = class_folder, .forget = forget_folder

const struct dt_dataset_kind dt_dataset_folder = {.open = open_folder, FOLDER_FUNCTIONS};
const struct dt_dataset_kind dt_dataset_folder_png = {.open = open_folder_png, FOLDER_FUNCTIONS};
