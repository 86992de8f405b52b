/* The two tars of ILSVRC2012, read in place. Training: a tar of one tar per class, named after the
 * class. Validation: images only; line i of a list is the class, a synset of WordNet, of the i-th
 * image. Classes and images are sorted bytewise by name, so that the order of the samples is that
 * of the class folders unpacked from the same tars. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/tar_index.h"
#include "pack/pack.h"
#include "pack/source.h"

enum { MAX_LABELS_BYTES = 64 << 20 };

#define MAKE_LABELS "; scripts/ilsvrc_labels.py makes the list of labels from the development kit"

/* Context of add_member: the destination, and the label of what is added. */
struct adding {
    struct dt_images *images;
    int32_t label;
    bool are_tars; /* of classes, kept by their names without the suffix */
    size_t n_ignored;
};

static dt_status add_member(void *context, const struct dt_tar_member *member)
{
    struct adding *adding = context;
    char name[DT_PATH_MAX];
    const char *base = dt_file_base(member->name), *dot = strrchr(base, '.');
    const bool is_image = dot && dt_is_image_suffix(dot + 1);
    /* "._x.jpg" is not an image */
    if (base[0] == '.' || !(adding->are_tars ? dt_name_has_suffix(base, ".tar") : is_image)) {
        adding->n_ignored++;
        return DT_OK;
    }
    snprintf(name, sizeof name, "%.*s", (int)(adding->are_tars ? dot - base : INT_MAX), base);
    return dt_images_add(adding->images, name, member->offset, member->bytes, 0, adding->label);
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
        dt_log(DT_LOG_WARNING, "%zu members of %s are no images that dtrain reads and were skipped",
               n, path);
}

/* --- Training --- */

static dt_status scan_classes(struct adding *adding, const struct dt_images *tars, const char *path)
{
    const double start_s = dt_clock_s();
    struct dt_images *images = adding->images;
    int n_skipped;
    if (tars->n == 0)
        DT_FAIL(DT_ERR_DATA,
                "%s holds no class tars; if it is ILSVRC2012_img_val.tar, also give the list "
                "of its labels with --labels",
                path);
    for (size_t i = 0; i < tars->n; i++) {
        const struct dt_tar_range range = {tars->image[i].offset, tars->image[i].bytes};
        const char *name = dt_names_get(&tars->names, tars->image[i].name);
        const size_t first = images->n;
        adding->label = (int32_t)i;
        dt_status status = dt_tar_walk_range(path, &range, add_member, adding, &n_skipped);
        if (status != DT_OK)
            DT_FAIL(status, "in its member %s.tar: %s", name, dt_error_text());
        adding->n_ignored += (size_t)n_skipped;
        if (images->n == first)
            dt_log(DT_LOG_WARNING, "member %s.tar of %s holds no images", name, path);
        DT_TRY(dt_images_sort(images, first));
        DT_TRY(dt_names_add(&images->classes, name, strlen(name)));
        dt_log_progress_of("listing", i + 1, tars->n, "classes", start_s);
    }
    return DT_OK;
}

dt_status dt_ilsvrc_open_train(struct dt_dataset *dataset, const struct dt_shard_options *options)
{
    dt_status status = DT_OK;
    struct dt_dataset classes = {0};
    struct adding tars = {.are_tars = true}, adding = {0};
    int n_skipped;
    DT_TRY_OUT(begin_images(&classes, &tars.images, options->src));
    DT_TRY_OUT(begin_images(dataset, &adding.images, options->src));
    DT_TRY_OUT(dt_tar_walk(options->src, add_member, &tars, &n_skipped));
    DT_TRY_OUT(dt_images_sort(tars.images, 0));
    DT_TRY_OUT(scan_classes(&adding, tars.images, options->src));
    warn_ignored(adding.n_ignored + tars.n_ignored + (size_t)n_skipped, options->src);
    dataset->n = (uint32_t)adding.images->n;
out:
    dt_log_progress("");
    if (classes.state)
        dt_images_close(&classes);
    return status;
}

/* --- Validation --- */

/* One synset per line. */
static dt_status load_synsets(struct dt_names *synsets, const char *path)
{
    char *text = NULL;
    size_t bytes;
    dt_status status = dt_file_load(&text, &bytes, path, MAX_LABELS_BYTES);
    if (status != DT_OK)
        DT_FAIL(status, "%s" MAKE_LABELS, dt_error_text());
    for (const char *line = text; *line; line += strspn(line, "\r\n")) {
        const size_t n = strcspn(line, "\r\n");
        if (n != 9 || line[0] != 'n' || strspn(line + 1, "0123456789") != 8)
            DT_TRY_OUT(DT_ERROR(DT_ERR_DATA,
                                "line %zu of %s is not a synset such as n01440764" MAKE_LABELS,
                                synsets->n + 1, path));
        DT_TRY_OUT(dt_names_add(synsets, line, n));
        line += n;
    }
out:
    free(text);
    return status;
}

dt_status dt_ilsvrc_open_val(struct dt_dataset *dataset, const struct dt_shard_options *options)
{
    dt_status status = DT_OK;
    struct dt_names synsets = {0};
    struct adding adding = {0};
    int n_skipped;
    DT_TRY(begin_images(dataset, &adding.images, options->src));
    DT_TRY(dt_tar_walk(options->src, add_member, &adding, &n_skipped));
    DT_TRY(dt_images_sort(adding.images, 0));
    warn_ignored(adding.n_ignored + (size_t)n_skipped, options->src);
    DT_TRY_OUT(load_synsets(&synsets, options->labels));
    struct dt_images *images = adding.images;
    if (synsets.n != images->n)
        DT_TRY_OUT(DT_ERROR(DT_ERR_DATA, "%s holds %zu images, but %s has labels for %zu",
                            options->src, images->n, options->labels, synsets.n));
    DT_TRY_OUT(dt_names_add_unique(&images->classes, &synsets));
    for (size_t i = 0; i < images->n; i++)
        images->image[i].label =
            (int32_t)dt_names_find(&images->classes, dt_names_get(&synsets, i));
    dataset->n = (uint32_t)images->n;
out:
    dt_names_reset(&synsets);
    return status;
}
