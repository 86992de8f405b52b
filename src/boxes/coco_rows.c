#include "boxes/coco_rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "dtrain/config.h"

enum {
    MAX_NAME_BYTES = 512,
    MAX_ANNOTATIONS = 200000000,
    PROGRESS_EVERY = 4096,
};

#define FAIL_AT(r, offset, ...) return dt_json_stream_fail((r)->json, offset, __VA_ARGS__)
/* Fails at the value that was taken last, the one of r->key. */
#define FAIL_HERE(r, format, ...) \
    FAIL_AT(r, dt_json_stream_offset((r)->json), "%s: " format, (r)->key, __VA_ARGS__)

/* --- Objects and lists --- */

struct field {
    const char *key;
    dt_status (*read)(struct dt_coco_rows *r, void *to);
    void *to;
    bool is_optional;
};

void dt_coco_rows_note_bad(struct dt_coco_rows *r)
{
    const size_t used = strlen(r->bad);
    if (r->n_bad++ < DT_COCO_BAD_LISTED)
        snprintf(r->bad + used, sizeof r->bad - used, "\n    %s", dt_error_text());
    dt_error_clear();
}

/* Takes what is left of a value that cannot be used, or returns the error of the file. */
static dt_status pass_over(struct dt_coco_rows *r, int depth, dt_status fault)
{
    if (fault != DT_ERR_DATA)
        return fault;
    dt_error_keep();
    const dt_status status = dt_json_stream_leave(r->json, depth);
    dt_error_restore();
    return status == DT_OK ? DT_OK : fault;
}

/* An object of which only these members matter, and where it begins; `what` is for messages. Inside
 * a list all of it is taken, also if a value cannot be used. */
static dt_status read_object(struct dt_coco_rows *r, uint64_t *offset, const char *what,
                             const struct field *fields, size_t n)
{
    const char *key;
    unsigned seen = 0; /* bit i: fields[i] */
    dt_status fault = DT_OK;
    DT_TRY(dt_json_stream_enter(r->json, DT_JSON_OBJECT));
    const int depth = dt_json_stream_depth(r->json);
    *offset = dt_json_stream_offset(r->json);
    DT_TRY(dt_json_stream_member(r->json, &key));
    while (key) {
        size_t i = 0;
        while (i < n && strcmp(key, fields[i].key) != 0)
            i++;
        if (i < n && (seen >> i & 1))
            FAIL_AT(r, *offset, "%s has \"%s\" twice", what, key);
        if (i < n) {
            seen |= 1u << i;
            r->key = fields[i].key;
            const dt_status status = fields[i].read(r, fields[i].to);
            fault = status != DT_OK ? status : fault;
            DT_TRY(depth > 1 ? pass_over(r, depth, status) : status);
        } else {
            DT_TRY(dt_json_stream_skip(r->json));
        }
        DT_TRY(dt_json_stream_member(r->json, &key));
    }
    DT_TRY(fault);
    for (size_t i = 0; i < n; i++)
        if (!fields[i].is_optional && !(seen >> i & 1))
            FAIL_AT(r, DT_COCO_PLACE(r, *offset), "%s has no \"%s\"", what, fields[i].key);
    return DT_OK;
}

struct list {
    dt_status (*read_item)(struct dt_coco_rows *r);
    const char *fault; /* of what is no list */
};

static dt_status read_list(struct dt_coco_rows *r, void *to)
{
    const struct list *list = to;
    enum dt_json_type type;
    char what[128];
    bool more;
    DT_TRY(dt_json_stream_peek(r->json, &type));
    if (type != DT_JSON_ARRAY)
        FAIL_AT(r, dt_json_stream_offset(r->json), "%s", list->fault);
    DT_TRY(dt_json_stream_enter(r->json, DT_JSON_ARRAY));
    DT_TRY(dt_json_stream_item(r->json, &more));
    while (more) {
        if (++r->n_items % PROGRESS_EVERY == 0) {
            snprintf(what, sizeof what, "reading %.100s", dt_file_base(r->path));
            dt_pulse_beat(&dt_pulse_main);
            dt_log_progress_of(what, 1 + (size_t)(dt_json_stream_offset(r->json) >> 20),
                               1 + (size_t)(dt_json_stream_bytes(r->json) >> 20), "MiB",
                               r->start_s);
        }
        DT_TRY(list->read_item(r));
        DT_TRY(dt_json_stream_item(r->json, &more));
    }
    return DT_OK;
}

/* --- Values --- */

static dt_status read_integer(struct dt_coco_rows *r, void *to)
{
    return dt_json_stream_integer(r->json, to);
}

/* The id of an image. If it is a text, `collected` (NULL: it is not the image's own) gets it while
 * not all are known. DT_COCO_NO_ID: no image has it. */
static dt_status take_image_id(struct dt_coco_rows *r, int64_t *id, struct dt_names *collected)
{
    const struct dt_names *known = r->text_ids;
    enum dt_json_type type;
    const char *text;
    size_t bytes;
    DT_TRY(dt_json_stream_peek(r->json, &type));
    if (type != DT_JSON_STRING) {
        DT_TRY(dt_json_stream_integer(r->json, id));
        if (known && known->n > 0)
            FAIL_HERE(r, "%lld is a number, but ids of images are texts here", (long long)*id);
        return DT_OK;
    }
    DT_TRY(dt_json_stream_string(r->json, &text, &bytes));
    *id = DT_COCO_NO_ID;
    if (!known)
        return collected ? dt_names_add(collected, text, bytes) : DT_OK;
    const size_t place = dt_names_find(known, text);
    if (place < known->n && strcmp(dt_names_get(known, place), text) == 0)
        *id = (int64_t)place;
    else if (!r->is_lenient || collected)
        FAIL_HERE(r, "there is no image with the id \"%s\"%s", text,
                  known->n == 0 ? ": ids of images are numbers" : "");
    return DT_OK;
}

static dt_status read_image_id(struct dt_coco_rows *r, void *to)
{
    return take_image_id(r, to, NULL);
}

static dt_status read_own_id(struct dt_coco_rows *r, void *to)
{
    return take_image_id(r, to, &r->collected_ids);
}

static dt_status read_flag(struct dt_coco_rows *r, void *to)
{
    return dt_json_stream_bool(r->json, to);
}

static dt_status read_within(struct dt_coco_rows *r, int32_t *value, int32_t min, int32_t max)
{
    int64_t number;
    DT_TRY(dt_json_stream_integer(r->json, &number));
    if (number < min || number > max)
        FAIL_HERE(r, "%lld is not within %d..%d", (long long)number, (int)min, (int)max);
    *value = (int32_t)number;
    return DT_OK;
}

static dt_status read_side(struct dt_coco_rows *r, void *to)
{
    return read_within(r, to, 1, DT_COCO_MAX_SIDE);
}

static dt_status read_category_id(struct dt_coco_rows *r, void *to)
{
    return read_within(r, to, 0, INT32_MAX);
}

static dt_status read_name(struct dt_coco_rows *r, void *to)
{
    const char *text;
    size_t bytes;
    DT_TRY(dt_json_stream_string(r->json, &text, &bytes));
    if (bytes == 0 || bytes > MAX_NAME_BYTES)
        FAIL_HERE(r, "a name of %zu bytes; 1 to %d are allowed", bytes, MAX_NAME_BYTES);
    if (dt_name_has_control(text))
        FAIL_HERE(r, "%s has control characters: rename it", text);
    return dt_names_add(to, text, bytes);
}

static dt_status read_file_name(struct dt_coco_rows *r, void *to)
{
    const struct dt_names *names = to;
    DT_TRY(read_name(r, to));
    const char *name = dt_names_get(names, names->n - 1);
    if (!dt_name_is_inside(name))
        FAIL_HERE(r,
                  "%s must be a path inside the folder of the images, without a leading '/' and "
                  "without \"..\"",
                  name);
    return DT_OK;
}

static dt_status read_number(struct dt_coco_rows *r, double *value, double min, double max)
{
    DT_TRY(dt_json_stream_number(r->json, value));
    if (*value < min && min == 0)
        FAIL_HERE(r, "%g is negative", *value);
    if (*value < min || *value > max)
        FAIL_HERE(r, "%g is far outside any image", *value);
    return DT_OK;
}

static dt_status read_area(struct dt_coco_rows *r, void *to)
{
    return read_number(r, to, 0, DT_COCO_MAX_AREA);
}

static dt_status read_score(struct dt_coco_rows *r, void *to)
{
    return read_number(r, to, -DT_COCO_MAX_COORDINATE, DT_COCO_MAX_COORDINATE);
}

/* [x, y, width, height] */
static dt_status read_box(struct dt_coco_rows *r, void *to)
{
    double *const *numbers = to;
    bool more;
    int n = 0;
    DT_TRY(dt_json_stream_enter(r->json, DT_JSON_ARRAY));
    const uint64_t offset = dt_json_stream_offset(r->json);
    DT_TRY(dt_json_stream_item(r->json, &more));
    for (; more; n++) {
        DT_TRY(n < 4 ? read_number(r, numbers[n], n < 2 ? -DT_COCO_MAX_COORDINATE : 0,
                                   DT_COCO_MAX_COORDINATE)
                     : dt_json_stream_skip(r->json));
        DT_TRY(dt_json_stream_item(r->json, &more));
    }
    if (n != 4)
        FAIL_AT(r, offset, "bbox: a box must be four numbers, [x, y, width, height]");
    return DT_OK;
}

/* --- Items of the lists --- */

/* Skips an item of a list of the outermost object if it cannot be used. */
static dt_status skip_bad(struct dt_coco_rows *r, dt_status status)
{
    enum { LIST_DEPTH = 2 };
    r->n_rows++;
    DT_TRY(pass_over(r, LIST_DEPTH, status));
    if (status != DT_OK)
        dt_coco_rows_note_bad(r);
    return DT_OK;
}

/* `last` is the member that only files of annotations have, or only shards. */
static dt_status add_image(struct dt_coco_rows *r, const struct field *last)
{
    struct dt_coco_image_row row = {.at.id = DT_COCO_NO_ID, .name = (uint32_t)r->files.n};
    const bool is_optional = r->is_lenient;
    const struct field fields[] = {{"id", read_own_id, &row.at.id, false},
                                   {"width", read_side, &row.width, is_optional},
                                   {"height", read_side, &row.height, is_optional},
                                   *last};
    const dt_status status = read_object(r, &row.at.offset, "the image", fields, DT_COUNT(fields));
    if (row.at.id == DT_COCO_NO_ID)
        return status;
    if (r->n_images >= DT_MAX_SAMPLES)
        FAIL_AT(r, row.at.offset, "more than %d images", DT_MAX_SAMPLES);
    DT_TRY(DT_GROW(r->images, r->image_capacity, r->n_images, "images"));
    row.name = status == DT_OK ? row.name : DT_COCO_SKIPPED;
    r->images[r->n_images++] = row;
    return status;
}

static dt_status read_image(struct dt_coco_rows *r)
{
    const struct field last = {"file_name", read_file_name, &r->files, r->is_lenient};
    return skip_bad(r, add_image(r, &last));
}

static dt_status read_category(struct dt_coco_rows *r)
{
    struct dt_coco_category_row row = {.name = (uint32_t)r->category_names.n};
    int32_t id = 0;
    const struct field fields[] = {{"id", read_category_id, &id, false},
                                   {"name", read_name, &r->category_names, false}};
    if (r->n_categories >= DT_COCO_MAX_CATEGORIES)
        FAIL_AT(r, dt_json_stream_offset(r->json), "more than %d categories",
                DT_COCO_MAX_CATEGORIES);
    DT_TRY(read_object(r, &row.at.offset, "the category", fields, DT_COUNT(fields)));
    row.at.id = id;
    DT_TRY(DT_GROW(r->categories, r->category_capacity, r->n_categories, "categories"));
    r->categories[r->n_categories++] = row;
    return DT_OK;
}

/* The last member, which image it is, only matters in files of annotations. */
static dt_status add_annotation(struct dt_coco_rows *r, bool is_in_image)
{
    struct dt_coco_annotation_row row = {.truth.area = -1};
    struct dt_truth *t = &row.truth;
    double *const box[] = {&t->x, &t->y, &t->w, &t->h};
    const struct field fields[] = {{"id", read_integer, &t->id, false},
                                   {"category_id", read_category_id, &t->label, false},
                                   {"bbox", read_box, (void *)box, false},
                                   {"area", read_area, &t->area, true},
                                   {"iscrowd", read_flag, &t->is_crowd, true},
                                   {"image_id", read_image_id, &row.image, false}};
    DT_TRY(read_object(r, &row.offset, "the annotation", fields, DT_COUNT(fields) - is_in_image));
    if (r->n_annotations >= MAX_ANNOTATIONS)
        FAIL_AT(r, row.offset, "more than %d annotations", MAX_ANNOTATIONS);
    if (t->area < 0)
        t->area = t->w * t->h;
    DT_TRY(DT_GROW(r->annotations, r->annotation_capacity, r->n_annotations, "annotations"));
    r->annotations[r->n_annotations++] = row;
    return DT_OK;
}

static dt_status read_annotation(struct dt_coco_rows *r)
{
    return skip_bad(r, add_annotation(r, false));
}

static dt_status read_annotation_of_image(struct dt_coco_rows *r)
{
    return add_annotation(r, true);
}

static dt_status read_found(struct dt_coco_rows *r)
{
    struct dt_coco_found_row row = {0};
    struct dt_found *f = &row.found;
    double *const box[] = {&f->x, &f->y, &f->w, &f->h};
    const struct field fields[] = {{"image_id", read_image_id, &row.image, false},
                                   {"category_id", read_category_id, &f->label, false},
                                   {"bbox", read_box, (void *)box, false},
                                   {"score", read_score, &f->score, false}};
    DT_TRY(read_object(r, &row.offset, "the detection", fields, DT_COUNT(fields)));
    DT_TRY(DT_GROW(r->found, r->found_capacity, r->n_found, "detections"));
    r->found[r->n_found++] = row;
    return DT_OK;
}

/* --- Whole texts --- */

#define NO_INSTANCES "this is not a file of COCO's instances: "

dt_status dt_coco_rows_read(struct dt_coco_rows *r)
{
    struct list images = {read_image, NO_INSTANCES "\"images\" must be a list"};
    struct list categories = {read_category, NO_INSTANCES "\"categories\" must be a list"};
    struct list annotations = {read_annotation, NO_INSTANCES "\"annotations\" must be a list"};
    const struct field fields[] = {
        {"images", read_list, &images, false},
        {"categories", read_list, &categories, false},
        {"annotations", read_list, &annotations, r->may_lack_annotations}};
    enum dt_json_type type;
    uint64_t offset;
    DT_TRY(dt_json_stream_peek(r->json, &type));
    if (type != DT_JSON_OBJECT)
        FAIL_AT(r, dt_json_stream_offset(r->json),
                NO_INSTANCES "it must be an object with the lists \"images\", \"annotations\" and "
                             "\"categories\"");
    DT_TRY(read_object(r, &offset, NO_INSTANCES "the outermost object", fields, DT_COUNT(fields)));
    return dt_json_stream_end(r->json);
}

dt_status dt_coco_rows_read_image(struct dt_coco_rows *r)
{
    struct list annotations = {read_annotation_of_image, "\"annotations\" must be a list of boxes"};
    DT_TRY(add_image(r, &(const struct field){"annotations", read_list, &annotations, false}));
    return dt_json_stream_end(r->json);
}

dt_status dt_coco_rows_read_categories(struct dt_coco_rows *r)
{
    DT_TRY(read_list(r, &(struct list){read_category, "the categories must be a list"}));
    return dt_json_stream_end(r->json);
}

dt_status dt_coco_rows_read_found(struct dt_coco_rows *r)
{
    DT_TRY(read_list(r, &(struct list){read_found,
                                       "this is not a file of detections: it must be a list of "
                                       "objects with image_id, category_id, bbox and score"}));
    return dt_json_stream_end(r->json);
}

void dt_coco_rows_reset(struct dt_coco_rows *rows)
{
    dt_names_reset(&rows->files);
    dt_names_reset(&rows->category_names);
    dt_names_reset(&rows->collected_ids);
    free(rows->images);
    free(rows->categories);
    free(rows->annotations);
    free(rows->found);
    *rows = (struct dt_coco_rows){.json = rows->json, .path = rows->path};
}
