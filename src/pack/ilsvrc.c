/* The two tars of ILSVRC2012, read in place. Training: a tar of one tar per class, named after the
 * class. Validation: images only, with labels from the development kit. Classes and images are
 * sorted bytewise by name, so that the order of the samples is that of the class folders unpacked
 * from the same tars.
 *
 * The ground truth of the kit holds one ILSVRC2012_ID, 1 .. 1000, per line. These IDs do not follow
 * the order of the WordNet IDs; the struct array `synsets` in meta.mat maps one to the other. Only
 * its leaves (no children) are classes. */
#include <archive.h>
#include <archive_entry.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/tar_index.h"
#include "pack/images.h"
#include "pack/mat5.h"
#include "pack/pack.h"

enum { MAX_FILE = 64 << 20, BLOCK = 65536, MAX_WNID = 32 };

static bool has_suffix(const char *base, const char *suffix)
{
    const char *dot = strrchr(base, '.');
    return dot && base[0] != '.' && strcasecmp(dot, suffix) == 0; /* "._x.jpg" is not an image */
}

/* Context of add_image: the destination, and the label of the images. */
struct adding {
    struct dt_images *images;
    int32_t label;
    size_t n_ignored;
};

static dt_status add_image(void *context, const struct dt_tar_member *member)
{
    struct adding *adding = context;
    const char *base = dt_file_base(member->name);

    if (!has_suffix(base, ".jpg") && !has_suffix(base, ".jpeg") && !has_suffix(base, ".png")) {
        adding->n_ignored++;
        return DT_OK;
    }
    return dt_images_add(adding->images, base, member->offset, member->bytes, 0, adding->label);
}

static dt_status begin_images(struct dt_dataset *dataset, struct dt_images **images,
                              const char *path)
{
    DT_TRY(DT_NEW(*images, 1));
    dataset->state = *images;
    dataset->classes = &(*images)->classes;
    return dt_names_add(&(*images)->files, path, strlen(path));
}

static void warn_ignored(size_t n, const char *path)
{
    if (n)
        dt_log(DT_LOG_WARNING, "%zu members of %s are not .jpg, .jpeg or .png and were skipped", n,
               path);
}

/* --- Training --- */

struct class_tar {
    char *name;
    struct dt_tar_range range;
};

struct class_tars {
    struct class_tar *tar;
    size_t n, capacity, n_ignored;
};

static dt_status add_class(void *context, const struct dt_tar_member *member)
{
    struct class_tars *tars = context;
    const char *base = dt_file_base(member->name);
    void *block = tars->tar;

    if (!has_suffix(base, ".tar")) {
        tars->n_ignored++;
        return DT_OK;
    }
    DT_TRY(dt_mem_grow(&block, &tars->capacity, tars->n, sizeof *tars->tar, "classes"));
    tars->tar = block;
    struct class_tar *tar = &tars->tar[tars->n];
    tar->range = (struct dt_tar_range){member->offset, member->bytes};
    tar->name = strndup(base, strlen(base) - strlen(".tar"));
    if (!tar->name)
        DT_FAIL(DT_ERR_MEMORY, "out of memory: cannot keep the name of class %s", base);
    tars->n++;
    return DT_OK;
}

static int compare_classes(const void *a, const void *b)
{
    return strcmp(((const struct class_tar *)a)->name, ((const struct class_tar *)b)->name);
}

static dt_status scan_class(struct adding *adding, const struct class_tar *tar, const char *path)
{
    const size_t first = adding->images->n;
    int n_skipped;

    const dt_status status = dt_tar_walk_range(path, &tar->range, add_image, adding, &n_skipped);
    if (status != DT_OK)
        DT_FAIL(status, "in its member %s.tar: %s", tar->name, dt_error_text());
    adding->n_ignored += (size_t)n_skipped;
    if (adding->images->n == first)
        dt_log(DT_LOG_WARNING, "member %s.tar of %s holds no images", tar->name, path);
    DT_TRY(dt_images_sort(adding->images, first));
    return dt_names_add(&adding->images->classes, tar->name, strlen(tar->name));
}

static dt_status scan_classes(struct adding *adding, const struct class_tars *tars,
                              const char *path)
{
    const double start_s = dt_clock_s();

    if (tars->n == 0)
        DT_FAIL(DT_ERR_DATA,
                "%s holds no class tars; if it is ILSVRC2012_img_val.tar, also give the "
                "development kit with --devkit",
                path);
    for (size_t i = 0; i < tars->n; i++) {
        if (i > 0 && compare_classes(&tars->tar[i - 1], &tars->tar[i]) == 0)
            DT_FAIL(DT_ERR_DATA, "%s holds two members named %s.tar", path, tars->tar[i].name);
        adding->label = (int32_t)i;
        DT_TRY(scan_class(adding, &tars->tar[i], path));
        dt_log_progress_of("listing", i + 1, tars->n, "classes", start_s);
    }
    return DT_OK;
}

dt_status dt_ilsvrc_open_train(struct dt_dataset *dataset, const struct dt_shard_options *options)
{
    dt_status status = DT_OK;
    struct class_tars tars = {0};
    struct adding adding = {0};
    int n_skipped;

    DT_TRY(begin_images(dataset, &adding.images, options->src));
    DT_TRY_OUT(dt_tar_walk(options->src, add_class, &tars, &n_skipped));
    if (tars.n > 1)
        qsort(tars.tar, tars.n, sizeof *tars.tar, compare_classes);
    DT_TRY_OUT(scan_classes(&adding, &tars, options->src));
    warn_ignored(adding.n_ignored + tars.n_ignored + (size_t)n_skipped, options->src);
    dataset->n = (uint32_t)adding.images->n;
out:
    dt_log_progress("");
    for (size_t i = 0; i < tars.n; i++)
        free(tars.tar[i].name);
    free(tars.tar);
    return status;
}

/* --- Two files of the development kit --- */

/* Labels of the validation images; starts as {0}. */
struct devkit {
    struct dt_names wnids; /* WordNet IDs of the classes, sorted bytewise; index = label */
    int32_t *labels;       /* one per validation image, in order of file name */
    size_t n;
};

struct blob {
    const char *name; /* end of the member's path */
    char *data;       /* NUL-terminated */
    size_t bytes;
};

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

static dt_status read_member(struct blob *blob, struct archive *archive,
                             struct archive_entry *entry, const char *path)
{
    const int64_t bytes = archive_entry_size(entry);

    if (bytes < 1 || bytes > MAX_FILE || blob->data)
        DT_FAIL(DT_ERR_DATA, "%s: %s has %lld bytes or occurs twice; expected 1 to %d bytes", path,
                blob->name, (long long)bytes, MAX_FILE);
    DT_TRY(DT_NEW(blob->data, (size_t)bytes + 1));
    if (archive_read_data(archive, blob->data, (size_t)bytes) != bytes)
        DT_FAIL(DT_ERR_DATA, "%s is damaged at %s: %s", path, blob->name,
                archive_error_string(archive) ? archive_error_string(archive) : "it is truncated");
    blob->bytes = (size_t)bytes;
    return DT_OK;
}

static dt_status read_members(struct blob *blobs, size_t n, struct archive *archive,
                              const char *path)
{
    struct archive_entry *entry;
    int result;

    while ((result = archive_read_next_header(archive, &entry)) == ARCHIVE_OK ||
           result == ARCHIVE_WARN) {
        const char *name = archive_entry_pathname(entry);
        for (size_t i = 0; name && i < n; i++)
            if (ends_with(name, blobs[i].name) && archive_entry_filetype(entry) == AE_IFREG)
                DT_TRY(read_member(&blobs[i], archive, entry, path));
    }
    if (result != ARCHIVE_EOF)
        DT_FAIL(DT_ERR_DATA, "%s is damaged or not a tar archive: %s", path,
                archive_error_string(archive));
    for (size_t i = 0; i < n; i++)
        if (!blobs[i].data)
            DT_FAIL(DT_ERR_DATA,
                    "%s does not hold %s; give the file ILSVRC2012_devkit_t12.tar.gz as --devkit",
                    path, blobs[i].name);
    return DT_OK;
}

static dt_status read_archive(struct blob *blobs, size_t n, const char *path)
{
    dt_status status = DT_OK;
    struct archive *archive = archive_read_new();

    if (!archive)
        DT_FAIL(DT_ERR_MEMORY, "out of memory: cannot read %s", path);
    archive_read_support_filter_gzip(archive); /* other filters may run external programs */
    archive_read_support_format_tar(archive);
    if (archive_read_open_filename(archive, path, BLOCK) != ARCHIVE_OK) {
        const dt_status of_file = dt_file_input_status(archive_errno(archive));
        DT_TRY_OUT(DT_ERROR(of_file == DT_ERR_IO ? DT_ERR_DATA : of_file,
                            "cannot read %s as the development kit (a tar.gz file): %s", path,
                            archive_error_string(archive)));
    }
    DT_TRY_OUT(read_members(blobs, n, archive, path));
out:
    archive_read_free(archive);
    return status;
}

/* --- meta.mat --- */

/* False if the cells have unexpected contents. */
static bool read_synset(char *wnid, int *id, bool *is_leaf, const struct dt_mat_struct *synsets,
                        uint32_t element, const int fields[3])
{
    double number, children;
    if (!dt_mat_number(synsets, element, fields[0], &number) ||
        !dt_mat_text(synsets, element, fields[1], wnid, MAX_WNID) ||
        !dt_mat_number(synsets, element, fields[2], &children) || !(number >= 1) ||
        number > INT_MAX)
        return false;
    *id = (int)number;
    *is_leaf = children == 0;
    return true;
}

/* Names and IDs of the leaves, in file order. */
static dt_status read_leaves(struct dt_names *wnids, int *id_of_name,
                             const struct dt_mat_struct *synsets, const char *path)
{
    const int fields[] = {dt_mat_field(synsets, "ILSVRC2012_ID"), dt_mat_field(synsets, "WNID"),
                          dt_mat_field(synsets, "num_children")};
    char wnid[MAX_WNID];
    bool is_leaf;
    int id;

    if (fields[0] < 0 || fields[1] < 0 || fields[2] < 0)
        DT_FAIL(DT_ERR_DATA, "%s: synsets of meta.mat lacks ILSVRC2012_ID, WNID or num_children",
                path);
    for (uint32_t i = 0; i < synsets->n_elements; i++) {
        if (!read_synset(wnid, &id, &is_leaf, synsets, i, fields))
            DT_FAIL(DT_ERR_DATA, "%s: synset %u of meta.mat is damaged", path, (unsigned)i + 1);
        if (!is_leaf)
            continue;
        id_of_name[wnids->n] = id;
        DT_TRY(dt_names_add(wnids, wnid, strlen(wnid)));
    }
    if (wnids->n == 0)
        DT_FAIL(DT_ERR_DATA, "%s: synsets of meta.mat has no classes (num_children 0)", path);
    return DT_OK;
}

/* Fills in label_of_id[1 .. n]; every ID in 1 .. n must occur exactly once among the leaves. */
static dt_status map_ids(int32_t *label_of_id, struct dt_names *wnids, const int *id_of_name,
                         const char *path)
{
    dt_status status = DT_OK;
    const uint32_t n = (uint32_t)wnids->n;
    uint32_t *before = NULL; /* offsets before sorting, parallel to id_of_name */

    DT_TRY(DT_NEW(before, n));
    memcpy(before, wnids->offset, n * sizeof *before);
    dt_names_sort(wnids);
    for (uint32_t i = 1; i <= n; i++)
        label_of_id[i] = -1;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t label = 0;
        while (wnids->offset[label] != before[i])
            label++;
        if ((uint32_t)id_of_name[i] > n || label_of_id[id_of_name[i]] >= 0 ||
            (label > 0 && strcmp(dt_names_get(wnids, label), dt_names_get(wnids, label - 1)) == 0))
            DT_TRY_OUT(DT_ERROR(DT_ERR_DATA,
                                "%s: the %u classes of meta.mat are not numbered 1 to %u", path,
                                (unsigned)n, (unsigned)n));
        label_of_id[id_of_name[i]] = (int32_t)label;
    }
out:
    free(before);
    return status;
}

/* --- The ground truth --- */

static dt_status read_truth(struct devkit *devkit, const struct blob *truth,
                            const int32_t *label_of_id, const char *path)
{
    void *block = NULL;
    size_t capacity = 0;

    for (char *at = truth->data, *end; at[strspn(at, " \t\r\n")]; at = end) {
        const long id = strtol(at, &end, 10);
        if (end == at || id < 1 || (size_t)id > devkit->wnids.n)
            DT_FAIL(DT_ERR_DATA, "%s: line %zu of %s is not a class of 1 to %zu", path,
                    devkit->n + 1, truth->name, devkit->wnids.n);
        DT_TRY(dt_mem_grow(&block, &capacity, devkit->n, sizeof *devkit->labels, "labels"));
        devkit->labels = block;
        devkit->labels[devkit->n++] = label_of_id[id];
    }
    return DT_OK;
}

static dt_status read_meta(struct devkit *devkit, int32_t **label_of_id, const struct blob *meta,
                           const char *path)
{
    dt_status status = DT_OK;
    struct dt_mat_struct synsets = {0};
    int *id_of_name = NULL;

    status = dt_mat_load(&synsets, (const uint8_t *)meta->data, meta->bytes, "synsets");
    if (status != DT_OK)
        DT_TRY_OUT(DT_ERROR(status, "meta.mat of %s cannot be read: %s", path, dt_error_text()));
    DT_TRY_OUT(DT_NEW(id_of_name, synsets.n_elements));
    DT_TRY_OUT(DT_NEW(*label_of_id, (size_t)synsets.n_elements + 1));
    DT_TRY_OUT(read_leaves(&devkit->wnids, id_of_name, &synsets, path));
    DT_TRY_OUT(map_ids(*label_of_id, &devkit->wnids, id_of_name, path));
out:
    dt_mat_reset(&synsets);
    free(id_of_name);
    return status;
}

/* `path` is a tar, plain or gzipped, with data/meta.mat and
 * data/ILSVRC2012_validation_ground_truth.txt. DT_ERR_DATA if the two are inconsistent. */
static dt_status load_devkit(struct devkit *devkit, const char *path)
{
    dt_status status = DT_OK;
    struct blob blobs[] = {{.name = "meta.mat"}, {.name = "validation_ground_truth.txt"}};
    int32_t *label_of_id = NULL;

    DT_TRY_OUT(read_archive(blobs, DT_COUNT(blobs), path));
    DT_TRY_OUT(read_meta(devkit, &label_of_id, &blobs[0], path));
    DT_TRY_OUT(read_truth(devkit, &blobs[1], label_of_id, path));
out:
    free(label_of_id);
    for (size_t i = 0; i < DT_COUNT(blobs); i++)
        free(blobs[i].data);
    return status;
}

static void reset_devkit(struct devkit *devkit)
{
    dt_names_reset(&devkit->wnids);
    free(devkit->labels);
    *devkit = (struct devkit){0};
}

/* --- Validation --- */

static dt_status set_labels(struct dt_images *images, struct devkit *devkit,
                            const struct dt_shard_options *options)
{
    if (devkit->n != images->n)
        DT_FAIL(DT_ERR_DATA, "%s holds %zu images, but %s has labels for %zu", options->src,
                images->n, options->devkit, devkit->n);
    for (size_t i = 0; i < images->n; i++)
        images->image[i].label = devkit->labels[i];
    images->classes = devkit->wnids;
    devkit->wnids = (struct dt_names){0};
    return DT_OK;
}

dt_status dt_ilsvrc_open_val(struct dt_dataset *dataset, const struct dt_shard_options *options)
{
    dt_status status = DT_OK;
    struct devkit devkit = {0};
    struct adding adding = {0};
    int n_skipped;

    DT_TRY(begin_images(dataset, &adding.images, options->src));
    DT_TRY(dt_tar_walk(options->src, add_image, &adding, &n_skipped));
    DT_TRY(dt_images_sort(adding.images, 0));
    warn_ignored(adding.n_ignored + (size_t)n_skipped, options->src);
    DT_TRY_OUT(load_devkit(&devkit, options->devkit));
    DT_TRY_OUT(set_labels(adding.images, &devkit, options));
    dataset->n = (uint32_t)adding.images->n;
out:
    reset_devkit(&devkit);
    return status;
}
