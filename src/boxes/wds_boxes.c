#include "boxes/wds_boxes.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/classes.h"
#include "base/file.h"
#include "base/mem.h"
#include "boxes/coco_rows.h"
#include "dtrain/config.h"

enum { MAX_VALUES = 2000000 };

static const struct dt_json_limits limits = {DT_WDS_BOXES_BYTES, MAX_VALUES};
static const int64_t largest_id = INT64_C(1) << 53; /* of the integers that a double holds */

/* --- Reading --- */

static dt_status refuse(const struct dt_json *value, const char *what, const char *fault)
{
    DT_FAIL(DT_ERR_DATA, "%s:%d:%d: %s", what, value->line, value->column, fault);
}

static dt_status read_integer(int64_t *out, const struct dt_json *object, const char *key,
                              int64_t min, int64_t max, const char *what)
{
    const struct dt_json *value = dt_json_get(object, key);
    if (!value || !dt_json_integer(value, min, max, out))
        DT_FAIL(DT_ERR_DATA, "%s:%d:%d: \"%s\" must be an integer in %lld..%lld", what,
                (value ? value : object)->line, (value ? value : object)->column, key,
                (long long)min, (long long)max);
    return DT_OK;
}

static dt_status read_number(double *out, const struct dt_json *value, const char *key, double min,
                             double max, const char *what)
{
    if (value->type != DT_JSON_NUMBER || value->number < min || value->number > max)
        DT_FAIL(DT_ERR_DATA, "%s:%d:%d: \"%s\" must be a number in %g..%g", what, value->line,
                value->column, key, min, max);
    *out = value->number;
    return DT_OK;
}

static dt_status read_bbox(struct dt_truth *truth, const struct dt_json *object, const char *what)
{
    const struct dt_json *bbox = dt_json_get(object, "bbox");
    double *const to[] = {&truth->x, &truth->y, &truth->w, &truth->h};

    if (!bbox || bbox->type != DT_JSON_ARRAY || bbox->n_children != (int)DT_COUNT(to))
        return refuse(bbox ? bbox : object, what, "\"bbox\" must be four numbers: x, y, w, h");
    const struct dt_json *value = bbox->child;
    for (size_t i = 0; i < DT_COUNT(to); i++, value = value->next)
        DT_TRY(read_number(to[i], value, "bbox", i < 2 ? -DT_COCO_MAX_COORDINATE : 0,
                           DT_COCO_MAX_COORDINATE, what));
    return DT_OK;
}

static dt_status read_crowd(bool *is_crowd, const struct dt_json *object, const char *what)
{
    const struct dt_json *value = dt_json_get(object, "iscrowd");
    int64_t number = 0;

    if (value && value->type == DT_JSON_BOOL)
        number = value->boolean;
    else if (value)
        DT_TRY(read_integer(&number, object, "iscrowd", 0, 1, what));
    *is_crowd = number != 0;
    return DT_OK;
}

static dt_status read_truth(struct dt_truth *truth, const struct dt_json *object, const char *what)
{
    int64_t category;
    const struct dt_json *area = dt_json_get(object, "area");

    *truth = (struct dt_truth){0};
    if (object->type != DT_JSON_OBJECT)
        return refuse(object, what, "an annotation must be an object");
    DT_TRY(read_integer(&truth->id, object, "id", -largest_id, largest_id, what));
    DT_TRY(read_integer(&category, object, "category_id", 0, INT32_MAX, what));
    truth->label = (int32_t)category;
    DT_TRY(read_bbox(truth, object, what));
    truth->area = truth->w * truth->h;
    if (area)
        DT_TRY(read_number(&truth->area, area, "area", 0, DT_COCO_MAX_AREA, what));
    return read_crowd(&truth->is_crowd, object, what);
}

static dt_status grow(struct dt_wds_boxes *boxes, size_t n_images, size_t n_truths)
{
    void *images = boxes->images, *truths = boxes->truths;

    if (boxes->n + n_images > DT_MAX_SAMPLES)
        DT_FAIL(DT_ERR_DATA, "the shards hold more than %d images", DT_MAX_SAMPLES);
    DT_TRY(dt_mem_grow(&images, &boxes->capacity, boxes->n + n_images, sizeof *boxes->images,
                       "images of the shards"));
    boxes->images = images;
    DT_TRY(dt_mem_grow(&truths, &boxes->truth_capacity, boxes->n_truths + n_truths,
                       sizeof *boxes->truths, "boxes of the shards"));
    boxes->truths = truths;
    return DT_OK;
}

static dt_status read_image(struct dt_wds_boxes *boxes, const struct dt_json *object,
                            const char *what)
{
    int64_t id, width, height;
    const struct dt_json *annotations = dt_json_get(object, "annotations");

    if (object->type != DT_JSON_OBJECT)
        return refuse(object, what, "an image of COCO with its annotations must be an object");
    DT_TRY(read_integer(&id, object, "id", -largest_id, largest_id, what));
    DT_TRY(read_integer(&width, object, "width", 1, DT_COCO_MAX_SIDE, what));
    DT_TRY(read_integer(&height, object, "height", 1, DT_COCO_MAX_SIDE, what));
    if (!annotations || annotations->type != DT_JSON_ARRAY ||
        annotations->n_children > DT_COCO_MAX_BOXES)
        return refuse(annotations ? annotations : object, what,
                      "\"annotations\" must be a list of at most 100,000 boxes");
    const uint32_t n = (uint32_t)annotations->n_children;
    DT_TRY(grow(boxes, 1, n));
    const struct dt_json *annotation = annotations->child;
    for (size_t i = 0; i < n; i++, annotation = annotation->next)
        DT_TRY(read_truth(&boxes->truths[boxes->n_truths + i], annotation, what));
    boxes->n_truths += n;
    boxes->images[boxes->n++] =
        (struct dt_wds_image){.id = id, .width = (int)width, .height = (int)height, .n_truths = n};
    return DT_OK;
}

dt_status dt_wds_boxes_parse(struct dt_wds_boxes *boxes, const char *text, size_t bytes,
                             const char *what)
{
    struct dt_json_doc *doc;
    DT_TRY(dt_json_parse(&doc, text, bytes, what, &limits));
    const dt_status status = read_image(boxes, dt_json_root(doc), what);
    dt_json_destroy(doc);
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

static int compare_ids(const void *a, const void *b)
{
    const struct dt_json *const *first = a, *const *second = b;
    const double x = dt_json_number(*first, "id"), y = dt_json_number(*second, "id");
    return x > y ? 1 : x < y ? -1 : 0;
}

static dt_status check_category(const struct dt_json *category, const char *path)
{
    const struct dt_json *name = dt_json_get(category, "name");
    int64_t id;

    if (category->type != DT_JSON_OBJECT || !name || name->type != DT_JSON_STRING ||
        !name->string[0] || dt_name_has_control(name->string))
        return refuse(category, path, "a category must be an object with an id and a name");
    return read_integer(&id, category, "id", 0, INT32_MAX, path);
}

static dt_status add_categories(struct dt_coco *coco, const struct dt_json **sorted, int n,
                                const char *path)
{
    DT_TRY(DT_NEW(coco->category_ids, (size_t)n));
    for (int i = 0; i < n; i++) {
        const char *name = dt_json_get(sorted[i], "name")->string;
        coco->category_ids[i] = (int64_t)dt_json_number(sorted[i], "id");
        if (i > 0 && coco->category_ids[i] == coco->category_ids[i - 1])
            return refuse(sorted[i], path, "the id of this category is that of another one too");
        if (dt_classes_find(&coco->categories, name) >= 0)
            return refuse(sorted[i], path, "the name of this category is that of another one too");
        DT_TRY(dt_names_add(&coco->categories, name, strlen(name)));
    }
    coco->n_categories = n;
    return DT_OK;
}

static dt_status sort_categories(struct dt_coco *coco, const struct dt_json *list, const char *path)
{
    dt_status status = DT_OK;
    const struct dt_json **sorted = NULL;
    int n = 0;

    if (list->type != DT_JSON_ARRAY || list->n_children == 0 ||
        list->n_children > DT_COCO_MAX_CATEGORIES)
        return refuse(list, path, "the categories must be a list of 1 to 10,000 objects");
    DT_TRY(DT_NEW(sorted, (size_t)list->n_children));
    for (const struct dt_json *category = list->child; category; category = category->next) {
        DT_TRY_OUT(check_category(category, path));
        sorted[n++] = category;
    }
    qsort(sorted, (size_t)n, sizeof *sorted, compare_ids);
    DT_TRY_OUT(add_categories(coco, sorted, n, path));
out:
    free(sorted);
    return status;
}

dt_status dt_wds_categories_load(struct dt_coco *coco, const char *path)
{
    struct dt_json_doc *doc;
    DT_TRY(dt_json_load(&doc, path, &limits));
    const dt_status status = sort_categories(coco, dt_json_root(doc), path);
    dt_json_destroy(doc);
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
        DT_FAIL(DT_ERR_CONFIG,
                "a detector needs boxes, and shards with boxes have a " DT_CATEGORIES_NAME
                " beside them, but %s has none: pack them with dtrain shard from COCO's .json file",
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

static dt_status relabel(struct dt_wds_boxes *boxes, const struct dt_coco *coco, const char *path)
{
    size_t at = 0;

    for (size_t i = 0; i < boxes->n; i++)
        for (uint32_t k = 0; k < boxes->images[i].n_truths; k++, at++) {
            struct dt_truth *truth = &boxes->truths[at];
            const int label = dt_coco_label(coco, truth->label);
            if (label < 0)
                DT_FAIL(DT_ERR_DATA,
                        "%s: box %" PRId64 " of image %" PRId64
                        " has the category %d, which the " DT_CATEGORIES_NAME
                        " beside the shards does not list",
                        path, truth->id, boxes->images[i].id, (int)truth->label);
            truth->label = label;
        }
    return DT_OK;
}

dt_status dt_wds_boxes_move(struct dt_coco *coco, struct dt_wds_boxes *boxes, const char *path)
{
    size_t first = 0;

    DT_TRY(relabel(boxes, coco, path));
    DT_TRY(DT_NEW(coco->images, boxes->n));
    DT_TRY(DT_NEW(coco->first_truth, boxes->n + 1));
    for (size_t i = 0; i < boxes->n; i++) {
        const struct dt_wds_image *image = &boxes->images[i];
        coco->images[i] =
            (struct dt_coco_image){.id = image->id, .width = image->width, .height = image->height};
        coco->first_truth[i] = first;
        first += image->n_truths;
        if (image->n_truths > coco->max_boxes)
            coco->max_boxes = image->n_truths;
    }
    coco->first_truth[boxes->n] = first;
    coco->n_images = (uint32_t)boxes->n;
    coco->truths = boxes->truths;
    boxes->truths = NULL;
    dt_wds_boxes_reset(boxes);
    return DT_OK;
}

/* --- Writing --- */

static void write_truth(struct dt_jsonw *json, const struct dt_coco *coco,
                        const struct dt_truth *truth)
{
    const double bbox[] = {truth->x, truth->y, truth->w, truth->h};

    dt_jsonw_begin(json, NULL, '{');
    dt_jsonw_integer(json, "id", truth->id);
    dt_jsonw_integer(json, "category_id", coco->category_ids[truth->label]);
    dt_jsonw_begin(json, "bbox", '[');
    for (size_t i = 0; i < DT_COUNT(bbox); i++)
        dt_jsonw_number(json, NULL, bbox[i]);
    dt_jsonw_close(json, ']');
    dt_jsonw_number(json, "area", truth->area);
    dt_jsonw_integer(json, "iscrowd", truth->is_crowd);
    dt_jsonw_close(json, '}');
}

dt_status dt_wds_boxes_write(struct dt_jsonw *json, const struct dt_coco *coco, uint32_t index)
{
    const struct dt_coco_image *image = &coco->images[index];

    dt_jsonw_init(json, false);
    dt_jsonw_begin(json, NULL, '{');
    dt_jsonw_integer(json, "id", image->id);
    dt_jsonw_string(json, "file_name", dt_names_get(&coco->files, image->name));
    dt_jsonw_integer(json, "width", image->width);
    dt_jsonw_integer(json, "height", image->height);
    dt_jsonw_begin(json, "annotations", '[');
    for (size_t i = coco->first_truth[index]; i < coco->first_truth[index + 1]; i++)
        write_truth(json, coco, &coco->truths[i]);
    dt_jsonw_close(json, ']');
    dt_jsonw_close(json, '}');
    return dt_jsonw_end(json);
}

dt_status dt_wds_categories_write(struct dt_jsonw *json, const struct dt_coco *coco)
{
    dt_jsonw_init(json, true);
    dt_jsonw_begin(json, NULL, '[');
    for (int i = 0; i < coco->n_categories; i++) {
        dt_jsonw_begin(json, NULL, '{');
        dt_jsonw_integer(json, "id", coco->category_ids[i]);
        dt_jsonw_string(json, "name", dt_names_get(&coco->categories, (size_t)i));
        dt_jsonw_close(json, '}');
    }
    dt_jsonw_close(json, ']');
    return dt_jsonw_end(json);
}
