#include "data/coco_set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/mem.h"
#include "base/names.h"

/* --- Labels: map[c] is the label of category c, -1 if it is skipped --- */

/* Names of all labels below n_classes, which follow the ids. */
static dt_status name_ids(struct dt_coco_set *set, int n_classes)
{
    const struct dt_coco *coco = &set->coco;
    char gap[32];
    for (int label = 0, c = 0; label < n_classes; label++) {
        snprintf(gap, sizeof gap, DT_CLASSES_GAP "%d", label);
        const bool is_gap = c == coco->n_categories || coco->category_ids[c] != label;
        const char *name = is_gap ? gap : dt_names_get(&coco->categories, (size_t)c++);
        DT_TRY(dt_names_add(&set->classes, name, strlen(name)));
    }
    return DT_OK;
}

static dt_status choose_labels(int *map, struct dt_coco_set *set, struct dt_dataset *dataset,
                               const struct dt_dataset_options *options)
{
    const struct dt_coco *coco = &set->coco;
    const bool has_ids = options->num_classes > coco->n_categories &&
                         options->num_classes > coco->category_ids[coco->n_categories - 1];
    if (options->classes && options->classes->n > 0) {
        dataset->classes = options->classes;
        dataset->n_classes = (int)options->classes->n;
        return dt_classes_map(map, &coco->categories, options->classes, options->subset,
                              options->part == DT_PART_TRAIN, options->path);
    }
    for (int c = 0; c < coco->n_categories; c++)
        map[c] = has_ids ? (int)coco->category_ids[c] : c;
    dataset->n_classes = has_ids ? options->num_classes : coco->n_categories;
    DT_TRY(has_ids ? name_ids(set, dataset->n_classes)
                   : dt_names_add_all(&set->classes, &coco->categories));
    dataset->classes = &set->classes;
    return DT_OK;
}

/* Gives the boxes their labels and closes the gaps of those that are skipped. */
static void relabel(struct dt_coco *coco, const int *map)
{
    size_t n = 0, next = 0;
    for (uint32_t i = 0; i < coco->n_images; i++) {
        for (const size_t end = coco->first_truth[i + 1]; next < end; next++) {
            struct dt_truth truth = coco->truths[next];
            truth.label = map[truth.label];
            if (truth.label >= 0)
                coco->truths[n++] = truth;
        }
        coco->first_truth[i + 1] = n;
    }
}

dt_status dt_coco_set_use(struct dt_coco_set *set, struct dt_dataset *dataset,
                          const struct dt_dataset_options *options)
{
    struct dt_coco *coco = &set->coco;
    const size_t n = (size_t)coco->n_categories;
    int *map;
    DT_TRY(DT_NEW(map, n));
    dt_status status = choose_labels(map, set, dataset, options);
    if (status == DT_OK)
        status = DT_NEW(set->categories, (size_t)dataset->n_classes);
    if (status == DT_OK) {
        memset(set->categories, -1, (size_t)dataset->n_classes * sizeof *set->categories);
        for (size_t c = 0; c < n; c++)
            if (map[c] >= 0)
                set->categories[map[c]] = coco->category_ids[c];
        relabel(coco, map);
    }
    dataset->fingerprint = XXH64(map, n * sizeof *map, coco->fingerprint);
    free(map);
    DT_TRY(status);
    dataset->n = coco->n_images;
    dataset->max_boxes = (int)coco->max_boxes;
    dataset->categories = set->categories;
    dataset->set = set;
    return DT_OK;
}

void dt_coco_set_reset(struct dt_coco_set *set)
{
    dt_coco_reset(&set->coco);
    dt_names_reset(&set->classes);
    free(set->categories);
    *set = (struct dt_coco_set){0};
}

/* The names of the categories are those of the classes. */
dt_status dt_coco_set_share(struct dt_block *block, struct dt_coco_set *set,
                            struct dt_dataset *dataset)
{
    struct dt_coco *coco = &set->coco;
    size_t n_truths = block->use == DT_BLOCK_READ ? 0 : coco->first_truth[coco->n_images];
    bool has_own = dataset->classes == &set->classes;
    DT_BLOCK_VALUE(block, coco->n_images);
    DT_BLOCK_VALUE(block, n_truths);
    DT_BLOCK_VALUE(block, coco->max_boxes);
    DT_BLOCK_VALUE(block, has_own);
    DT_BLOCK_ARRAY(block, coco->images, coco->n_images);
    dt_block_names(block, &coco->files);
    dt_block_names(block, &coco->text_ids);
    DT_BLOCK_ARRAY(block, coco->first_truth, coco->n_images + 1);
    DT_BLOCK_ARRAY(block, coco->truths, n_truths);
    dt_block_names(block, &set->classes);
    DT_BLOCK_ARRAY(block, set->categories, (size_t)dataset->n_classes);
    if (block->use == DT_BLOCK_READ) {
        dataset->classes = has_own ? &set->classes : NULL;
        dataset->categories = set->categories;
        dataset->set = set;
    }
    return DT_OK;
}

/* --- Samples --- */

int dt_coco_set_truths(const struct dt_dataset *dataset, uint32_t id, struct dt_truth *out)
{
    const struct dt_coco *coco = &dataset->set->coco;
    const size_t first = coco->first_truth[id], n = coco->first_truth[id + 1] - first;
    if (n > 0)
        memcpy(out, coco->truths + first, n * sizeof *out);
    return (int)n;
}

void dt_coco_set_image(const struct dt_dataset *dataset, uint32_t id, struct dt_image_info *out)
{
    const struct dt_coco *coco = &dataset->set->coco;
    const struct dt_coco_image *image = &coco->images[id];
    *out = (struct dt_image_info){image->id, image->width, image->height, NULL};
    if (coco->text_ids.n > 0)
        out->text_id = dt_names_get(&coco->text_ids, (size_t)image->id);
}

const char *dt_coco_set_file(const struct dt_dataset *dataset, uint32_t id)
{
    const struct dt_coco *coco = &dataset->set->coco;
    return dt_names_get(&coco->files, coco->images[id].name);
}

uint64_t dt_coco_set_key(const struct dt_dataset *dataset, uint32_t id, uint64_t seed)
{
    struct dt_image_info image;
    dt_coco_set_image(dataset, id, &image);
    return image.text_id ? XXH64(image.text_id, strlen(image.text_id), seed)
                         : XXH64(&image.id, sizeof image.id, seed);
}
