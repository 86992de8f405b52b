#include "boxes/coco_rows.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "base/text.h"
#include "dtrain/config.h"

enum {
    MAX_NAME_BYTES = 512,
    MAX_ANNOTATIONS = 200000000,
    PROGRESS_EVERY = 4096,
};

#define FAIL_AT(r, offset, ...) return dt_json_stream_fail((r)->json, offset, __VA_ARGS__)
/* At the value that was taken last, that of r->key. */
#define FAIL_HERE(r, format, ...) \
    FAIL_AT(r, dt_json_stream_offset((r)->json), "%s: " format, (r)->key, __VA_ARGS__)

/* --- Members of an object --- */

/* An object of which only some keys matter; the first n_required must be there. */
struct object {
    struct dt_coco_rows *rows;
    const char *what; /* for messages */
    const char *const *keys;
    int n_keys, n_required;
    uint64_t offset;
    unsigned seen; /* bit i: keys[i] */
};

static dt_status begin_object(struct object *object)
{
    struct dt_json_stream *json = object->rows->json;
    DT_TRY(dt_json_stream_enter(json, DT_JSON_OBJECT));
    object->offset = dt_json_stream_offset(json);
    return DT_OK;
}

static dt_status check_required(const struct object *object)
{
    for (int i = 0; i < object->n_required; i++)
        if (!(object->seen >> i & 1))
            FAIL_AT(object->rows, object->offset, "%s has no \"%s\"", object->what,
                    object->keys[i]);
    return DT_OK;
}

/* To the value of the next key that matters, *which in `keys`; -1 at the end of the object. */
static dt_status next_member(struct object *object, int *which)
{
    struct dt_json_stream *json = object->rows->json;
    const char *key;
    for (*which = -1;;) {
        DT_TRY(dt_json_stream_member(json, &key));
        if (!key)
            return check_required(object);
        for (int i = 0; i < object->n_keys; i++)
            if (strcmp(key, object->keys[i]) == 0)
                *which = i;
        if (*which >= 0)
            break;
        DT_TRY(dt_json_stream_skip(json));
    }
    if (object->seen >> *which & 1)
        FAIL_AT(object->rows, object->offset, "%s has \"%s\" twice", object->what, key);
    object->seen |= 1u << *which;
    object->rows->key = object->keys[*which];
    return DT_OK;
}

void dt_coco_rows_show(struct dt_coco_rows *r)
{
    if (++r->n_items % PROGRESS_EVERY)
        return;
    char what[128];
    struct dt_text text = dt_text_in(what, sizeof what);
    dt_text_add(&text, "reading %s", dt_file_base(r->path));
    dt_pulse_beat(&dt_pulse_main);
    dt_log_progress_of(what, 1 + (size_t)(dt_json_stream_offset(r->json) >> 20),
                       1 + (size_t)(dt_json_stream_bytes(r->json) >> 20), "MiB", r->start_s);
}

static dt_status read_list(struct dt_coco_rows *r, const char *key,
                           dt_status (*read_item)(struct dt_coco_rows *r))
{
    enum dt_json_type type;
    bool more;
    DT_TRY(dt_json_stream_peek(r->json, &type));
    if (type != DT_JSON_ARRAY)
        FAIL_AT(r, dt_json_stream_offset(r->json),
                "this is not a file of COCO's instances: \"%s\" must be a list", key);
    DT_TRY(dt_json_stream_enter(r->json, DT_JSON_ARRAY));
    DT_TRY(dt_json_stream_item(r->json, &more));
    while (more) {
        dt_coco_rows_show(r);
        DT_TRY(read_item(r));
        DT_TRY(dt_json_stream_item(r->json, &more));
    }
    return DT_OK;
}

/* --- Values --- */

static dt_status read_within(struct dt_coco_rows *r, int64_t *value, int64_t least, int64_t most)
{
    DT_TRY(dt_json_stream_integer(r->json, value));
    if (*value < least || *value > most)
        FAIL_HERE(r, "%lld is not within %lld..%lld", (long long)*value, (long long)least,
                  (long long)most);
    return DT_OK;
}

static dt_status read_name(struct dt_coco_rows *r, struct dt_names *names, bool is_file)
{
    const char *text;
    size_t bytes;
    DT_TRY(dt_json_stream_string(r->json, &text, &bytes));
    if (bytes == 0 || bytes > MAX_NAME_BYTES)
        FAIL_HERE(r, "a name of %zu bytes; 1 to %d are allowed", bytes, MAX_NAME_BYTES);
    if (dt_name_has_control(text))
        FAIL_HERE(r, "%s has control characters: rename it", text);
    if (is_file && !dt_name_is_inside(text))
        FAIL_HERE(r,
                  "%s must be a path inside the folder of the images, without a leading '/' and "
                  "without \"..\"",
                  text);
    DT_TRY(dt_names_add(names, text, bytes));
    return DT_OK;
}

static dt_status read_number(struct dt_coco_rows *r, double *value, double least, double most)
{
    DT_TRY(dt_json_stream_number(r->json, value));
    if (*value < least && least == 0)
        FAIL_HERE(r, "%g is negative", *value);
    if (*value < least || *value > most)
        FAIL_HERE(r, "%g is far outside any image", *value);
    return DT_OK;
}

/* [x, y, width, height] */
static dt_status read_box(struct dt_coco_rows *r, double *x, double *y, double *w, double *h)
{
    double *const numbers[] = {x, y, w, h};
    bool more;
    int n = 0;
    DT_TRY(dt_json_stream_enter(r->json, DT_JSON_ARRAY));
    const uint64_t offset = dt_json_stream_offset(r->json);
    DT_TRY(dt_json_stream_item(r->json, &more));
    for (; more && n < 4; n++) {
        DT_TRY(read_number(r, numbers[n], n < 2 ? -DT_COCO_MAX_COORDINATE : 0,
                           DT_COCO_MAX_COORDINATE));
        DT_TRY(dt_json_stream_item(r->json, &more));
    }
    if (more || n < 4)
        FAIL_AT(r, offset, "bbox: a box must be four numbers, [x, y, width, height]");
    return DT_OK;
}

/* --- Items of the lists --- */

static dt_status read_image(struct dt_coco_rows *r)
{
    static const char *const keys[] = {"id", "file_name", "width", "height"};
    struct object object = {r, "the image", keys, DT_COUNT(keys), DT_COUNT(keys), 0, 0};
    struct dt_coco_image_row row = {.name = (uint32_t)r->files.n};
    int64_t width = 0, height = 0;
    void *rows = r->images;
    int which;
    if (r->n_images >= DT_MAX_SAMPLES)
        FAIL_AT(r, dt_json_stream_offset(r->json), "more than %d images", DT_MAX_SAMPLES);
    DT_TRY(begin_object(&object));
    DT_TRY(next_member(&object, &which));
    while (which >= 0) {
        if (which == 0)
            DT_TRY(dt_json_stream_integer(r->json, &row.id));
        else if (which == 1)
            DT_TRY(read_name(r, &r->files, true));
        else
            DT_TRY(read_within(r, which == 2 ? &width : &height, 1, DT_COCO_MAX_SIDE));
        DT_TRY(next_member(&object, &which));
    }
    row.offset = object.offset;
    row.width = (int32_t)width;
    row.height = (int32_t)height;
    DT_TRY(dt_mem_grow(&rows, &r->image_capacity, r->n_images, sizeof row, "images"));
    r->images = rows;
    r->images[r->n_images++] = row;
    return DT_OK;
}

static dt_status read_category(struct dt_coco_rows *r)
{
    static const char *const keys[] = {"id", "name"};
    struct object object = {r, "the category", keys, DT_COUNT(keys), DT_COUNT(keys), 0, 0};
    struct dt_coco_category_row row = {.name = (uint32_t)r->category_names.n};
    void *rows = r->categories;
    int which;
    if (r->n_categories >= DT_COCO_MAX_CATEGORIES)
        FAIL_AT(r, dt_json_stream_offset(r->json), "more than %d categories",
                DT_COCO_MAX_CATEGORIES);
    DT_TRY(begin_object(&object));
    DT_TRY(next_member(&object, &which));
    while (which >= 0) {
        if (which == 0)
            DT_TRY(read_within(r, &row.id, 0, INT32_MAX));
        else
            DT_TRY(read_name(r, &r->category_names, false));
        DT_TRY(next_member(&object, &which));
    }
    row.offset = object.offset;
    DT_TRY(dt_mem_grow(&rows, &r->category_capacity, r->n_categories, sizeof row, "categories"));
    r->categories = rows;
    r->categories[r->n_categories++] = row;
    return DT_OK;
}

enum { ID, IMAGE_ID, CATEGORY_ID, BBOX, AREA, IS_CROWD };

/* A label that is still the id of a category. */
static dt_status read_category_id(struct dt_coco_rows *r, int32_t *label)
{
    int64_t id = 0;
    DT_TRY(read_within(r, &id, 0, INT32_MAX));
    *label = (int32_t)id;
    return DT_OK;
}

static dt_status read_truth_member(struct dt_coco_rows *r, struct dt_coco_annotation_row *row,
                                   int which)
{
    struct dt_truth *t = &row->truth;
    switch (which) {
    case ID:
        return dt_json_stream_integer(r->json, &t->id);
    case IMAGE_ID:
        return dt_json_stream_integer(r->json, &row->image);
    case CATEGORY_ID:
        return read_category_id(r, &t->label);
    case BBOX:
        return read_box(r, &t->x, &t->y, &t->w, &t->h);
    case AREA:
        return read_number(r, &t->area, 0, DT_COCO_MAX_AREA);
    default:
        return dt_json_stream_bool(r->json, &t->is_crowd);
    }
}

static dt_status read_annotation(struct dt_coco_rows *r)
{
    static const char *const keys[] = {"id", "image_id", "category_id", "bbox", "area", "iscrowd"};
    struct object object = {r, "the annotation", keys, DT_COUNT(keys), AREA, 0, 0};
    struct dt_coco_annotation_row row = {0};
    void *rows = r->annotations;
    int which;
    if (r->n_annotations >= MAX_ANNOTATIONS)
        FAIL_AT(r, dt_json_stream_offset(r->json), "more than %d annotations", MAX_ANNOTATIONS);
    DT_TRY(begin_object(&object));
    DT_TRY(next_member(&object, &which));
    while (which >= 0) {
        DT_TRY(read_truth_member(r, &row, which));
        DT_TRY(next_member(&object, &which));
    }
    row.offset = object.offset;
    if (!(object.seen >> AREA & 1))
        row.truth.area = row.truth.w * row.truth.h;
    DT_TRY(
        dt_mem_grow(&rows, &r->annotation_capacity, r->n_annotations, sizeof row, "annotations"));
    r->annotations = rows;
    r->annotations[r->n_annotations++] = row;
    return DT_OK;
}

static dt_status read_found_member(struct dt_coco_rows *r, struct dt_coco_found_row *row, int which)
{
    struct dt_found *f = &row->found;
    switch (which) {
    case IMAGE_ID:
        return dt_json_stream_integer(r->json, &row->image);
    case CATEGORY_ID:
        return read_category_id(r, &f->label);
    case BBOX:
        return read_box(r, &f->x, &f->y, &f->w, &f->h);
    default:
        return read_number(r, &f->score, -DT_COCO_MAX_COORDINATE, DT_COCO_MAX_COORDINATE);
    }
}

dt_status dt_coco_rows_read_found(struct dt_coco_rows *r, struct dt_coco_found_row *row)
{
    static const char *const keys[] = {"image_id", "category_id", "bbox", "score"};
    struct object object = {r, "the detection", keys, DT_COUNT(keys), DT_COUNT(keys), 0, 0};
    int which;
    *row = (struct dt_coco_found_row){0};
    DT_TRY(begin_object(&object));
    DT_TRY(next_member(&object, &which));
    while (which >= 0) {
        DT_TRY(read_found_member(r, row, IMAGE_ID + which));
        DT_TRY(next_member(&object, &which));
    }
    row->offset = object.offset;
    return DT_OK;
}

/* --- The whole file --- */

dt_status dt_coco_rows_read(struct dt_coco_rows *r)
{
    static const char *const keys[] = {"images", "categories", "annotations"};
    static dt_status (*const readers[])(struct dt_coco_rows *) = {read_image, read_category,
                                                                  read_annotation};
    struct object object = {r,
                            "this is not a file of COCO's instances: the outermost object",
                            keys,
                            DT_COUNT(keys),
                            DT_COUNT(keys),
                            0,
                            0};
    enum dt_json_type type;
    int which;
    DT_TRY(dt_json_stream_peek(r->json, &type));
    if (type != DT_JSON_OBJECT)
        FAIL_AT(r, dt_json_stream_offset(r->json),
                "this is not a file of COCO's instances: it must be an object with the lists "
                "\"images\", \"annotations\" and \"categories\"");
    DT_TRY(begin_object(&object));
    DT_TRY(next_member(&object, &which));
    while (which >= 0) {
        DT_TRY(read_list(r, keys[which], readers[which]));
        DT_TRY(next_member(&object, &which));
    }
    return dt_json_stream_end(r->json);
}

void dt_coco_rows_reset(struct dt_coco_rows *rows)
{
    dt_names_reset(&rows->files);
    dt_names_reset(&rows->category_names);
    free(rows->images);
    free(rows->categories);
    free(rows->annotations);
    *rows = (struct dt_coco_rows){.json = rows->json, .path = rows->path};
}
