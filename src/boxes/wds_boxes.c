#include "boxes/wds_boxes.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "boxes/coco_rows.h"
#include "dtrain/config.h"

/* --- Reading --- */

static dt_status grow(struct dt_wds_boxes *boxes, size_t n_images, size_t n_truths)
{
    if (boxes->n + n_images > DT_MAX_SAMPLES)
        DT_FAIL(DT_ERR_DATA, "the shards hold more than %d images", DT_MAX_SAMPLES);
    DT_TRY(DT_GROW(boxes->images, boxes->capacity, boxes->n + n_images, "images of the shards"));
    DT_TRY(DT_GROW(boxes->truths, boxes->truth_capacity, boxes->n_truths + n_truths,
                   "boxes of the shards"));
    return DT_OK;
}

dt_status dt_wds_boxes_parse(struct dt_wds_boxes *boxes, const char *text, size_t bytes,
                             const char *what)
{
    static const struct dt_names no_texts;
    struct dt_coco_rows rows = {.path = what, .start_s = dt_clock_s(), .text_ids = &no_texts};
    dt_status status = DT_OK;
    DT_TRY(dt_json_stream_open_text(&rows.json, text, bytes, what));
    DT_TRY_OUT(dt_coco_rows_read_image(&rows));
    const struct dt_coco_image_row *image = rows.images;
    const size_t n = rows.n_annotations;
    if (n > DT_COCO_MAX_BOXES)
        DT_TRY_OUT(dt_json_stream_fail(rows.json, image->at.offset,
                                       "the image has more than %d boxes", DT_COCO_MAX_BOXES));
    DT_TRY_OUT(grow(boxes, 1, n));
    for (size_t i = 0; i < n; i++)
        boxes->truths[boxes->n_truths++] = rows.annotations[i].truth;
    boxes->images[boxes->n++] = (struct dt_wds_image){.id = image->at.id,
                                                      .width = image->width,
                                                      .height = image->height,
                                                      .n_truths = (uint32_t)n};
out:
    dt_coco_rows_reset(&rows);
    dt_json_stream_close(rows.json);
    return status;
}

dt_status dt_wds_boxes_append(struct dt_wds_boxes *boxes, const struct dt_wds_boxes *more)
{
    DT_TRY(grow(boxes, more->n, more->n_truths));
    if (more->n > 0)
        memcpy(boxes->images + boxes->n, more->images, more->n * sizeof *more->images);
    if (more->n_truths > 0)
        memcpy(boxes->truths + boxes->n_truths, more->truths,
               more->n_truths * sizeof *more->truths);
    boxes->n += more->n;
    boxes->n_truths += more->n_truths;
    return DT_OK;
}

uint64_t dt_wds_boxes_hash(const struct dt_wds_boxes *boxes, uint64_t hash)
{
    const struct dt_wds_image *image = &boxes->images[boxes->n - 1];
    const int64_t head[] = {image->id, image->width, image->height, image->n_truths};
    hash = XXH64(head, sizeof head, hash);
    for (size_t i = boxes->n_truths - image->n_truths; i < boxes->n_truths; i++)
        hash = dt_coco_hash_truth(&boxes->truths[i], hash);
    return hash;
}

void dt_wds_boxes_reset(struct dt_wds_boxes *boxes)
{
    free(boxes->images);
    free(boxes->truths);
    *boxes = (struct dt_wds_boxes){0};
}

/* --- Categories --- */

dt_status dt_wds_categories_load(struct dt_coco *coco, const char *path)
{
    struct dt_coco_rows rows = {.path = path, .start_s = dt_clock_s()};
    DT_TRY(dt_json_stream_open(&rows.json, path));
    dt_status status = dt_coco_rows_read_categories(&rows);
    if (status == DT_OK)
        status = dt_coco_make_categories(coco, &rows);
    dt_coco_rows_reset(&rows);
    dt_json_stream_close(rows.json);
    return status;
}

uint64_t dt_wds_categories_hash(const struct dt_coco *coco, uint64_t hash)
{
    const size_t bytes = (size_t)coco->n_categories * sizeof *coco->category_ids;
    return XXH64(coco->categories.text, coco->categories.bytes,
                 XXH64(coco->category_ids, bytes, hash));
}

dt_status dt_wds_categories_join(struct dt_coco *coco, const char *folder)
{
    struct dt_coco here = {0};
    char path[DT_PATH_MAX];
    DT_TRY(dt_file_path(path, "%s/" DT_CATEGORIES_NAME, folder));
    if (!dt_file_exists(path))
        DT_FAIL(
            DT_ERR_CONFIG,
            "a detector needs boxes, and shards with boxes have a " DT_CATEGORIES_NAME
            " next to them, but %s has none: pack them with dtrain shard from COCO's .json file",
            folder);
    if (coco->n_categories == 0)
        return dt_wds_categories_load(coco, path);
    dt_status status = dt_wds_categories_load(&here, path);
    if (status == DT_OK && dt_wds_categories_hash(&here, 0) != dt_wds_categories_hash(coco, 0))
        status = DT_ERROR(DT_ERR_DATA,
                          "%s differs from the " DT_CATEGORIES_NAME " of the shards before, so the "
                          "boxes would mean different things",
                          path);
    dt_coco_reset(&here);
    return status;
}

/* --- Boxes --- */

dt_status dt_wds_boxes_move(struct dt_coco *coco, struct dt_wds_boxes *boxes, const char *path)
{
    size_t n = 0;
    DT_TRY(DT_NEW(coco->images, boxes->n));
    DT_TRY(DT_NEW(coco->first_truth, boxes->n + 1));
    for (size_t i = 0; i < boxes->n; i++) {
        const struct dt_wds_image *image = &boxes->images[i];
        coco->images[i] =
            (struct dt_coco_image){.id = image->id, .width = image->width, .height = image->height};
        coco->first_truth[i] = n;
        for (const size_t end = n + image->n_truths; n < end; n++) {
            struct dt_truth *truth = &boxes->truths[n];
            const int label = dt_coco_label(coco, truth->label);
            if (label < 0)
                DT_FAIL(DT_ERR_DATA,
                        "%s: box %" PRId64 " of image %" PRId64
                        " has the category %d, which the " DT_CATEGORIES_NAME
                        " next to the shards does not list",
                        path, truth->id, image->id, (int)truth->label);
            truth->label = label;
        }
        if (image->n_truths > coco->max_boxes)
            coco->max_boxes = image->n_truths;
    }
    coco->first_truth[boxes->n] = n;
    coco->n_images = (uint32_t)boxes->n;
    coco->truths = boxes->truths;
    boxes->truths = NULL;
    dt_wds_boxes_reset(boxes);
    return DT_OK;
}

/* --- Writing --- */

dt_status dt_wds_boxes_write(struct dt_jsonw *json, const struct dt_coco *coco, uint32_t index)
{
    const struct dt_coco_image *image = &coco->images[index];
    *json = (struct dt_jsonw){0};
    dt_jsonw_add(json, "{id: %" PRId64 ", file_name: %s, width: %d, height: %d, annotations: [",
                 image->id, dt_names_get(&coco->files, image->name), image->width, image->height);
    for (size_t i = coco->first_truth[index]; i < coco->first_truth[index + 1]; i++) {
        const struct dt_truth *truth = &coco->truths[i];
        dt_jsonw_add(json, "{id: %" PRId64 ", category_id: %" PRId64, truth->id,
                     coco->category_ids[truth->label]);
        dt_jsonw_add(json, "bbox: [%g, %g, %g, %g], area: %g, iscrowd: %d}", truth->x, truth->y,
                     truth->w, truth->h, truth->area, truth->is_crowd);
    }
    dt_jsonw_add(json, "]}");
    return dt_jsonw_end(json);
}

dt_status dt_wds_categories_write(struct dt_jsonw *json, const struct dt_coco *coco)
{
    *json = (struct dt_jsonw){.pretty = true};
    dt_jsonw_begin(json, NULL, '[');
    for (int i = 0; i < coco->n_categories; i++)
        dt_jsonw_add(json, "{id: %" PRId64 ", name: %s}", coco->category_ids[i],
                     dt_names_get(&coco->categories, (size_t)i));
    dt_jsonw_close(json, ']');
    return dt_jsonw_end(json);
}
