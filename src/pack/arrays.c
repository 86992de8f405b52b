/* Data sets that are published as arrays of pixels: the archives of the binary version of CIFAR-10
 * and CIFAR-100 (https://www.cs.toronto.edu/~kriz/cifar.html), and the IDX files of MNIST and those
 * that follow it (http://yann.lecun.com/exdb/mnist), plain or compressed. All of a part is kept in
 * memory; samples are PNG files, which have the very pixels. */
#include <archive.h>
#include <archive_entry.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "image/png.h"
#include "pack/source.h"

enum { MAX_BYTES = 1 << 30, BLOCK = 1 << 20, IDX_LABELS = 0x801, IDX_IMAGES = 0x803, SIDE = 32 };

struct bytes {
    uint8_t *data;
    size_t n, capacity;
};

/* Places in the files of images and labels: of the first one, and steps to the next. */
struct layout {
    size_t pixels, pixels_step, label, label_step;
    int width, height, n_planes; /* planes: red, green, blue; or grey */
};

struct arrays {
    char path[DT_PATH_MAX];
    struct dt_names classes;
    struct bytes images, labels; /* CIFAR: labels are in images */
    struct layout layout;
};

/* --- Files --- */

static dt_status append_member(struct bytes *out, struct archive *archive, const char *path)
{
    la_ssize_t got = 1;
    while (got > 0) {
        if (out->n > MAX_BYTES)
            DT_FAIL(DT_ERR_DATA, "%s is larger than any file of CIFAR or MNIST", path);
        DT_TRY(DT_GROW(out->data, out->capacity, out->n + BLOCK, path));
        got = archive_read_data(archive, out->data + out->n, BLOCK);
        out->n += got > 0 ? (size_t)got : 0;
    }
    if (got < 0)
        DT_FAIL(DT_ERR_DATA, "%s is damaged or incomplete: %s", path,
                archive_error_string(archive));
    return DT_OK;
}

/* Reads all members of an archive for which `choose` returns a place; a file that is none, but may
 * be compressed, is a member without a name. */
static dt_status read_archive(const char *path,
                              struct bytes *(*choose)(void *context, const char *name),
                              void *context)
{
    dt_status status = DT_OK;
    struct archive_entry *entry;
    struct archive *archive = archive_read_new();
    if (!archive)
        DT_FAIL(DT_ERR_MEMORY, "out of memory: cannot read %s", path);
    archive_read_support_filter_all(archive);
    archive_read_support_format_tar(archive);
    archive_read_support_format_raw(archive);
    int code = archive_read_open_filename(archive, path, BLOCK);
    while (code == ARCHIVE_OK && (code = archive_read_next_header(archive, &entry)) == ARCHIVE_OK) {
        const char *name = archive_entry_pathname(entry);
        struct bytes *out = choose(context, name ? dt_file_base(name) : "");
        if (out)
            DT_TRY_OUT(append_member(out, archive, path));
    }
    if (code != ARCHIVE_EOF)
        DT_TRY_OUT(
            DT_ERROR(DT_ERR_DATA, "cannot read %s: %s", path, archive_error_string(archive)));
out:
    archive_read_free(archive);
    return status;
}

/* --- CIFAR --- */

struct cifar {
    struct bytes *images, names;
    bool test, has_coarse; /* CIFAR-100: a label of 20 classes comes before that of 100 */
};

static struct bytes *choose_cifar(void *context, const char *name)
{
    struct cifar *c = context;
    const bool is_test = strncmp(name, "test", 4) == 0;
    if (strcmp(name, "fine_label_names.txt") == 0 || strcmp(name, "batches.meta.txt") == 0) {
        c->has_coarse = name[0] == 'f';
        return &c->names;
    }
    return dt_name_has_suffix(name, ".bin") && is_test == c->test ? c->images : NULL;
}

static dt_status open_cifar(struct arrays *a, const struct dt_shard_options *options)
{
    struct cifar c = {.images = &a->images, .test = options->test};
    dt_status status = DT_OK;
    DT_TRY_OUT(read_archive(options->src, choose_cifar, &c));
    if (a->images.n == 0 || c.names.n == 0)
        DT_TRY_OUT(DT_ERROR(DT_ERR_DATA,
                            "%s is not the binary version of CIFAR-10 or CIFAR-100, such as "
                            "cifar-10-binary.tar.gz; the Python version is not read",
                            options->src));
    DT_TRY_OUT(DT_GROW(c.names.data, c.names.capacity, c.names.n, options->src));
    c.names.data[c.names.n] = '\0';
    while (c.names.n > 0 && strchr("\r\n", c.names.data[c.names.n - 1]))
        c.names.data[--c.names.n] = '\0';
    DT_TRY_OUT(dt_classes_parse(&a->classes, (const char *)c.names.data, options->src));
    const size_t label = c.has_coarse, record = label + 1 + 3 * SIDE * SIDE;
    a->layout = (struct layout){label + 1, record, label, record, SIDE, SIDE, 3};
out:
    free(c.names.data);
    return status;
}

/* --- MNIST --- */

static uint32_t word(const struct bytes *file, size_t i)
{
    uint32_t value = 0;
    for (size_t at = 4 * i; at < 4 * i + 4; at++)
        value = value << 8 | (at < file->n ? file->data[at] : 0u);
    return value;
}

/* The path of "t10k-images-idx3-ubyte" or "t10k-labels-idx1-ubyte" in a folder, plain or
 * compressed; false if there is neither. */
static bool find_idx(char *path, const char *folder, bool test, const char *what)
{
    const char *part = test ? "t10k" : "train";
    snprintf(path, DT_PATH_MAX, "%s/%s-%s-ubyte", folder, part, what);
    if (!dt_file_exists(path))
        snprintf(path, DT_PATH_MAX, "%s/%s-%s-ubyte.gz", folder, part, what);
    return dt_file_exists(path);
}

static struct bytes *choose_all(void *context, const char *name)
{
    (void)name;
    return context;
}

static dt_status open_mnist(struct arrays *a, const struct dt_shard_options *options)
{
    struct bytes *images = &a->images, *labels = &a->labels;
    char path[DT_PATH_MAX], label_path[DT_PATH_MAX];
    if (!find_idx(path, options->src, options->test, "images-idx3") ||
        !find_idx(label_path, options->src, options->test, "labels-idx1"))
        DT_FAIL(DT_ERR_NO_INPUT, "%s has no %s-images-idx3-ubyte with its labels", options->src,
                options->test ? "t10k" : "train");
    DT_TRY(read_archive(path, choose_all, images));
    DT_TRY(read_archive(label_path, choose_all, labels));
    const uint64_t n = word(images, 1), height = word(images, 2), width = word(images, 3);
    const bool fits = height > 0 && width > 0 && height <= 4096 && width <= 4096;
    if (word(images, 0) != IDX_IMAGES || !fits || images->n != 16 + n * height * width)
        DT_FAIL(DT_ERR_DATA, "%s is no complete IDX file of images", path);
    if (word(labels, 0) != IDX_LABELS || word(labels, 1) != n || labels->n != 8 + n)
        DT_FAIL(DT_ERR_DATA, "%s is no IDX file of the labels of %llu images", label_path,
                (unsigned long long)n);
    a->layout = (struct layout){16, (size_t)(height * width), 8, 1, (int)width, (int)height, 1};
    return DT_OK;
}

/* --- The data set --- */

static bool is_mnist(const char *path)
{
    char file[DT_PATH_MAX];
    return find_idx(file, path, false, "images-idx3") || find_idx(file, path, true, "images-idx3");
}

bool dt_arrays_found(const char *path)
{
    const char *name = dt_file_base(path);
    return (strncmp(name, "cifar-10", 8) == 0 && strstr(name, ".tar")) || is_mnist(path);
}

static int label_of(const struct dt_dataset *dataset, uint32_t id)
{
    const struct arrays *a = dataset->state;
    const uint8_t *labels = a->labels.n > 0 ? a->labels.data : a->images.data;
    return labels[a->layout.label + id * a->layout.label_step];
}

dt_status dt_arrays_open(struct dt_dataset *dataset, const struct dt_shard_options *options)
{
    struct arrays *a;
    DT_TRY(DT_NEW(a, 1));
    dataset->state = a;
    dataset->classes = &a->classes;
    snprintf(a->path, sizeof a->path, "%s", options->src);
    DT_TRY(is_mnist(options->src) ? open_mnist(a, options) : open_cifar(a, options));
    if (a->labels.n == 0 && a->images.n % a->layout.pixels_step != 0)
        DT_FAIL(DT_ERR_DATA, "%s is incomplete: its %zu bytes are no whole images of %zu",
                options->src, a->images.n, a->layout.pixels_step);
    dataset->n = (uint32_t)((a->images.n - (a->labels.n > 0 ? 16 : 0)) / a->layout.pixels_step);
    for (uint32_t id = 0; id < dataset->n && a->classes.n > 0; id++)
        if ((size_t)label_of(dataset, id) >= a->classes.n)
            DT_FAIL(DT_ERR_DATA, "image %u of %s has the label %d, but there are %zu classes",
                    (unsigned)id, options->src, label_of(dataset, id), a->classes.n);
    return DT_OK;
}

static dt_status read_image(const struct dt_dataset *dataset, uint32_t id, struct dt_sample *sample)
{
    const struct arrays *a = dataset->state;
    const struct layout *layout = &a->layout;
    const size_t n = (size_t)layout->width * (size_t)layout->height;
    const size_t plane = layout->n_planes == 1 ? 0 : n;
    const uint8_t *from = a->images.data + layout->pixels + id * layout->pixels_step;
    dt_status status = DT_OK;
    uint8_t *rgb = NULL, *png = NULL;
    size_t bytes = 0;
    DT_TRY_OUT(DT_NEW(rgb, 3 * n));
    for (size_t i = 0; i < 3 * n; i++)
        rgb[i] = from[i % 3 * plane + i / 3];
    DT_TRY_OUT(dt_png_encode(&png, &bytes, rgb, layout->width, layout->height));
    DT_TRY_OUT(dt_sample_reserve(sample, bytes));
    memcpy(sample->data, png, bytes);
out:
    free(png);
    free(rgb);
    return status;
}

static void name_image(const struct dt_dataset *dataset, uint32_t id, char *out, size_t bytes)
{
    const struct arrays *a = dataset->state;
    snprintf(out, bytes, "%s: image %u", a->path, (unsigned)id);
}

static void close_arrays(struct dt_dataset *dataset)
{
    struct arrays *a = dataset->state;
    dt_names_reset(&a->classes);
    free(a->images.data);
    free(a->labels.data);
    free(a);
}

const struct dt_dataset_kind dt_arrays = {
    .read = read_image, .label = label_of, .name = name_image, .close = close_arrays};
