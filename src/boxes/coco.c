#include "boxes/coco.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/names.h"
#include "base/sort.h"
#include "boxes/coco_rows.h"

#define FAIL_AT(rows, offset, ...) return dt_json_stream_fail((rows)->json, offset, __VA_ARGS__)

/* --- Tables --- */

static int compare_ids(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int compare_rows(const void *a, const void *b)
{
    const struct dt_coco_row *x = a, *y = b;
    const int order = compare_ids(&x->id, &y->id);
    return order ? order : (x->offset > y->offset) - (x->offset < y->offset);
}

static dt_status refuse_repeated(const struct dt_coco_rows *rows, const char *what, int64_t id,
                                 uint64_t offset)
{
    FAIL_AT(rows, offset,
            "there is another %s with the id %lld before this one: ids must be unique", what,
            (long long)id);
}

/* Sorts n rows of so many bytes, which begin with a dt_coco_row. */
static dt_status sort_rows(void *table, size_t n, size_t bytes, const char *what,
                           const struct dt_coco_rows *rows)
{
    qsort(table, n, bytes, compare_rows);
    for (size_t i = 1; i < n; i++) {
        const struct dt_coco_row *row = (const void *)((const char *)table + i * bytes);
        const struct dt_coco_row *before = (const void *)((const char *)row - bytes);
        if (row->id == before->id)
            return refuse_repeated(rows, what, row->id, row->offset);
    }
    return DT_OK;
}

static dt_status check_annotation_ids(const struct dt_coco_rows *rows)
{
    const struct dt_coco_annotation_row *row = rows->annotations;
    const size_t n = rows->n_annotations;
    uint64_t *ids;
    uint32_t *first;
    DT_TRY(DT_NEW(ids, n));
    for (size_t i = 0; i < n; i++)
        ids[i] = (uint64_t)row[i].truth.id;
    dt_status status = dt_find_repeated(&first, ids, n);
    for (size_t i = 0; first && i < n && status == DT_OK; i++)
        if (first[i] < i)
            status = refuse_repeated(rows, "annotation", row[i].truth.id, row[i].offset);
    free(first);
    free(ids);
    return status;
}

static dt_status make_images(struct dt_coco *coco, struct dt_coco_rows *rows)
{
    const size_t n = rows->n_images;
    if (n == 0)
        DT_FAIL(DT_ERR_DATA, "%s: the list of images is empty", rows->path);
    DT_TRY(sort_rows(rows->images, n, sizeof *rows->images, "image", rows));
    DT_TRY(DT_NEW(coco->images, n));
    for (size_t i = 0; i < n; i++) {
        const struct dt_coco_image_row *row = &rows->images[i];
        coco->images[i] = (struct dt_coco_image){row->at.id, row->width, row->height, row->name};
    }
    coco->n_images = (uint32_t)n;
    coco->files = rows->files;
    rows->files = (struct dt_names){0};
    return DT_OK;
}

dt_status dt_coco_make_categories(struct dt_coco *coco, const struct dt_coco_rows *rows)
{
    const size_t n = rows->n_categories;
    if (n == 0)
        DT_FAIL(DT_ERR_DATA, "%s: the list of categories is empty", rows->path);
    DT_TRY(sort_rows(rows->categories, n, sizeof *rows->categories, "category", rows));
    DT_TRY(DT_NEW(coco->category_ids, n));
    for (size_t i = 0; i < n; i++) {
        const struct dt_coco_category_row *row = &rows->categories[i];
        const char *name = dt_names_get(&rows->category_names, row->name);
        if (dt_classes_find(&coco->categories, name) >= 0)
            FAIL_AT(rows, row->at.offset,
                    "there is another category with the name %s: names must be unique", name);
        coco->category_ids[coco->n_categories++] = row->at.id;
        DT_TRY(dt_names_add(&coco->categories, name, strlen(name)));
    }
    return DT_OK;
}

/* --- Boxes by image --- */

static int compare_image_ids(const void *key, const void *image)
{
    return compare_ids(key, &((const struct dt_coco_image *)image)->id);
}

int dt_coco_label(const struct dt_coco *coco, int64_t id)
{
    if (coco->n_categories == 0)
        return -1;
    const int64_t *found = bsearch(&id, coco->category_ids, (size_t)coco->n_categories,
                                   sizeof *coco->category_ids, compare_ids);
    return found ? (int)(found - coco->category_ids) : -1;
}

/* From ids to the index of the image and the label; -1 for what is to be left out: a category that
 * nobody listed, or its image. */
static dt_status find_owner(uint32_t *image, int32_t *label, const struct dt_coco *coco,
                            const struct dt_coco_rows *rows, int64_t image_id, uint64_t offset)
{
    const int64_t category = *label;
    const struct dt_coco_image *found =
        bsearch(&image_id, coco->images, coco->n_images, sizeof *coco->images, compare_image_ids);
    const bool is_skipped = found ? found->name == DT_COCO_SKIPPED : rows->is_lenient;
    *label = found && !is_skipped ? dt_coco_label(coco, category) : -1;
    if (is_skipped)
        return DT_OK;
    if (!found && image_id == DT_COCO_NO_ID)
        FAIL_AT(rows, offset, "its image_id is a text, but ids of images are numbers here");
    if (!found)
        FAIL_AT(rows, offset, "there is no image with the id %lld: the list of images lacks it",
                (long long)image_id);
    if (*label < 0 && !coco->is_lenient)
        FAIL_AT(rows, offset,
                "there is no category with the id %lld: the list of categories lacks it",
                (long long)category);
    *image = (uint32_t)(found - coco->images);
    return DT_OK;
}

static void tell_ignored(const char *path, size_t n, size_t of, const char *what)
{
    if (n > 0)
        dt_log(DT_LOG_NOTICE, "%s: %zu of %zu %s are ignored", path, n, of, what);
}

static dt_status make_truths(struct dt_coco *coco, struct dt_coco_rows *rows)
{
    const uint32_t n = coco->n_images;
    const size_t n_bad = rows->n_bad;
    size_t *next, n_kept = 0;
    DT_TRY(DT_NEW(coco->first_truth, (size_t)n + 1));
    /* Replaces the ids in the rows by indices, and counts the boxes of each image one place on. */
    for (size_t i = 0; i < rows->n_annotations; i++) {
        struct dt_coco_annotation_row *row = &rows->annotations[n_kept];
        uint32_t image;
        *row = rows->annotations[i];
        const dt_status status = find_owner(&image, &row->truth.label, coco, rows, row->image,
                                            DT_COCO_PLACE(rows, row->offset));
        if (status != DT_OK)
            dt_coco_rows_note_bad(rows);
        if (status != DT_OK || row->truth.label < 0)
            continue;
        n_kept++;
        row->image = image;
        if (++coco->first_truth[image + 1] > DT_COCO_MAX_BOXES)
            FAIL_AT(rows, row->offset, "more than %d boxes in the image with the id %lld",
                    DT_COCO_MAX_BOXES, (long long)coco->images[image].id);
    }
    tell_ignored(rows->path, rows->n_annotations - n_kept - (rows->n_bad - n_bad),
                 rows->n_annotations,
                 "annotations, of images or categories that it does not list or that are skipped,");
    rows->n_annotations = n_kept;
    DT_TRY(DT_NEW(coco->truths, n_kept));
    DT_TRY(DT_NEW(next, n));
    coco->n_images = 0;
    for (uint32_t i = 0; i < n; i++) {
        const size_t boxes = coco->first_truth[i + 1];
        if (boxes > coco->max_boxes)
            coco->max_boxes = (uint32_t)boxes;
        next[i] = coco->first_truth[coco->n_images];
        if (coco->images[i].name == DT_COCO_SKIPPED && !coco->is_lenient)
            continue; /* has no boxes; a lenient evaluation may have detections of it */
        coco->images[coco->n_images++] = coco->images[i];
        coco->first_truth[coco->n_images] = next[i] + boxes;
    }
    for (size_t i = 0; i < rows->n_annotations; i++)
        coco->truths[next[rows->annotations[i].image]++] = rows->annotations[i].truth;
    free(next);
    return DT_OK;
}

/* The one rule for training, evaluation, coco-eval, verify and shard. */
static dt_status check_bad(const struct dt_coco_rows *rows, double max)
{
    const size_t n = rows->n_bad, of = rows->n_rows;
    const char *more = n > DT_COCO_BAD_LISTED ? "\n    ..." : "";
    if ((double)n > max * (double)of)
        DT_FAIL(DT_ERR_DATA,
                "%s: %zu of %zu images and annotations cannot be used, but data.max_bad_fraction "
                "allows at most %g %% of them (%.0f); repair the file or raise the limit:%s%s",
                rows->path, n, of, 100 * max, floor(max * (double)of), rows->bad, more);
    if (n > 0)
        dt_log(DT_LOG_NOTICE,
               "%s: %zu of %zu images and annotations cannot be used and are skipped:%s%s",
               rows->path, n, of, rows->bad, more);
    return DT_OK;
}

/* --- The result --- */

uint64_t dt_coco_hash_truth(const struct dt_truth *t, uint64_t hash)
{
    const double numbers[] = {t->x, t->y, t->w, t->h, t->area};
    const int64_t ids[] = {t->id, t->label, t->is_crowd};
    return XXH64(ids, sizeof ids, XXH64(numbers, sizeof numbers, hash));
}

static uint64_t hash_tables(const struct dt_coco *coco)
{
    const struct dt_names *texts = &coco->text_ids;
    uint64_t hash = texts->n > 0 ? XXH64(texts->text, texts->bytes, 0) : 0;
    for (size_t i = 0; i < coco->categories.n; i++) {
        const char *name = dt_names_get(&coco->categories, i);
        hash = XXH64(name, strlen(name) + 1, hash);
    }
    hash = XXH64(coco->category_ids, (size_t)coco->n_categories * sizeof *coco->category_ids, hash);
    for (uint32_t i = 0; i < coco->n_images; i++) {
        const struct dt_coco_image *image = &coco->images[i];
        const int64_t numbers[] = {image->id, image->width, image->height,
                                   (int64_t)coco->first_truth[i + 1]};
        const char *name = dt_names_get(&coco->files, image->name);
        hash = XXH64(name, strlen(name), XXH64(numbers, sizeof numbers, hash));
    }
    for (size_t i = 0; i < coco->first_truth[coco->n_images]; i++)
        hash = dt_coco_hash_truth(&coco->truths[i], hash);
    return hash;
}

void dt_coco_reset(struct dt_coco *coco)
{
    free(coco->images);
    dt_names_reset(&coco->files);
    free(coco->first_truth);
    free(coco->truths);
    free(coco->category_ids);
    dt_names_reset(&coco->categories);
    dt_names_reset(&coco->text_ids);
    *coco = (struct dt_coco){0};
}

static void tell_oddities(const struct dt_coco *coco, const char *path)
{
    size_t n_outside = 0, n_small = 0, n_empty = 0;
    for (uint32_t i = 0; i < coco->n_images; i++) {
        n_empty += coco->first_truth[i] == coco->first_truth[i + 1];
        for (size_t k = coco->first_truth[i]; k < coco->first_truth[i + 1]; k++) {
            const struct dt_truth *t = &coco->truths[k];
            /* More than a pixel outside, which rounding does not explain. */
            n_outside += t->x < -1 || t->y < -1 || t->x + t->w > coco->images[i].width + 1 ||
                         t->y + t->h > coco->images[i].height + 1;
            n_small += t->w < 1 || t->h < 1;
        }
    }
    if (n_outside + n_small > 0)
        dt_log(DT_LOG_NOTICE,
               "%s: of %zu boxes %zu reach out of their image, where training clips them, and %zu "
               "are narrower than a pixel",
               path, coco->first_truth[coco->n_images], n_outside, n_small);
    if (n_empty > 0)
        dt_log(DT_LOG_INFO, "%s: %zu of %u images have no box", path, n_empty,
               (unsigned)coco->n_images);
}

/* Reads the file; if ids of images are texts, they are only collected until `texts` has them. */
static dt_status read_file(struct dt_coco *coco, const char *path,
                           const struct dt_coco_rules *rules, const struct dt_names *texts)
{
    struct dt_coco_rows rows = {.path = path,
                                .start_s = dt_clock_s(),
                                .is_lenient = rules->is_lenient,
                                .may_lack_annotations = rules->may_lack_annotations,
                                .text_ids = texts};
    dt_status status = DT_OK;
    DT_TRY(dt_json_stream_open(&rows.json, path));
    DT_TRY_OUT(dt_coco_rows_read(&rows));
    if (rows.collected_ids.n > rows.n_images) {
        coco->text_ids = rows.collected_ids;
        rows.collected_ids = (struct dt_names){0};
        dt_names_sort(&coco->text_ids);
    } else if (rows.collected_ids.n == 0) {
        if (rows.n_images == 0)
            DT_TRY_OUT(check_bad(&rows, rules->max_bad));
        DT_TRY_OUT(make_images(coco, &rows));
        DT_TRY_OUT(dt_coco_make_categories(coco, &rows));
        DT_TRY_OUT(check_annotation_ids(&rows));
        DT_TRY_OUT(make_truths(coco, &rows));
        DT_TRY_OUT(check_bad(&rows, rules->max_bad));
    }
out:
    dt_log_progress("");
    dt_json_stream_close(rows.json);
    dt_coco_rows_reset(&rows);
    return status;
}

dt_status dt_coco_open(struct dt_coco *coco, const char *path, const struct dt_coco_rules *rules)
{
    *coco = (struct dt_coco){.is_lenient = rules->is_lenient};
    dt_status status = read_file(coco, path, rules, NULL);
    if (status == DT_OK && !coco->images) /* there are texts, or a few among numbers */
        status = read_file(coco, path, rules, &coco->text_ids);
    if (status != DT_OK)
        dt_coco_reset(coco);
    DT_TRY(status);
    if (rules->is_lenient)
        return DT_OK;
    coco->fingerprint = hash_tables(coco);
    tell_oddities(coco, path);
    return DT_OK;
}

/* --- Detections --- */

dt_status dt_coco_read_found(struct dt_found **found, size_t *n, const struct dt_coco *coco,
                             const char *path)
{
    struct dt_coco_rows rows = {.path = path, .start_s = dt_clock_s(), .text_ids = &coco->text_ids};
    dt_status status = DT_OK;
    *found = NULL;
    *n = 0;
    DT_TRY(dt_json_stream_open(&rows.json, path));
    DT_TRY_OUT(dt_coco_rows_read_found(&rows));
    DT_TRY_OUT(DT_NEW(*found, rows.n_found));
    for (size_t i = 0; i < rows.n_found; i++) {
        const struct dt_coco_found_row *row = &rows.found[i];
        struct dt_found *one = &(*found)[*n];
        *one = row->found;
        DT_TRY_OUT(find_owner(&one->image, &one->label, coco, &rows, row->image, row->offset));
        *n += one->label >= 0;
    }
    tell_ignored(path, rows.n_found - *n, rows.n_found,
                 "detections, of images that are skipped or categories that the annotations do not "
                 "list,");
out:
    dt_log_progress("");
    dt_coco_rows_reset(&rows);
    dt_json_stream_close(rows.json);
    if (status != DT_OK) {
        free(*found);
        *found = NULL;
    }
    return status;
}
