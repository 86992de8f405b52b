/* The tables of COCO's files while they are read: what one object says is checked here, what
 * objects say of each other in coco.c. */
#ifndef DTRAIN_BOXES_COCO_ROWS_H
#define DTRAIN_BOXES_COCO_ROWS_H

#include "base/json_stream.h"
#include "base/names.h"
#include "boxes/boxes.h"

/* Limits of files. Coordinates leave room for sums and products. */
enum { DT_COCO_MAX_SIDE = 65500 /* libjpeg's */, DT_COCO_MAX_BOXES = 100000 /* of an image */ };
enum { DT_COCO_MAX_CATEGORIES = 10000, DT_COCO_BAD_LISTED = 5 };
#define DT_COCO_NO_ID          INT64_MIN  /* of an image: of another type than those of the file */
#define DT_COCO_SKIPPED        UINT32_MAX /* the name of an image that cannot be used */
#define DT_COCO_MAX_COORDINATE 1e9
#define DT_COCO_MAX_AREA       1e18

/* In the order of the file, with the place of each for messages. */
struct dt_coco_row {
    int64_t id;
    uint64_t offset;
};
struct dt_coco_image_row {
    struct dt_coco_row at;
    int32_t width, height;
    uint32_t name; /* index in dt_coco_rows.files, or DT_COCO_SKIPPED */
};
struct dt_coco_category_row {
    struct dt_coco_row at;
    uint32_t name; /* index in dt_coco_rows.category_names */
};
struct dt_coco_annotation_row {
    struct dt_truth truth; /* its label is the id of the category */
    int64_t image;         /* id */
    uint64_t offset;
};
struct dt_coco_found_row {
    struct dt_found found; /* its label is the id of the category */
    int64_t image;         /* id */
    uint64_t offset;
};

/* Starts as {.json, .path, .start_s}, and what else is asked for. */
struct dt_coco_rows {
    struct dt_json_stream *json;
    const char *path;
    const char *key;                       /* whose value is being read, for messages */
    bool is_lenient, may_lack_annotations; /* dt_coco_rules */
    /* Ids of images may be texts. The number of one is its place in text_ids, which is sorted; NULL
     * until all are known, and empty if ids are numbers. */
    const struct dt_names *text_ids;
    struct dt_names collected_ids;
    struct dt_names files, category_names;
    struct dt_coco_image_row *images;
    struct dt_coco_category_row *categories;
    struct dt_coco_annotation_row *annotations;
    struct dt_coco_found_row *found;
    size_t n_images, n_categories, n_annotations, n_found;
    size_t image_capacity, category_capacity, annotation_capacity, found_capacity;
    size_t n_items;       /* of any list so far */
    size_t n_rows, n_bad; /* images and annotations of a file; those that cannot be used */
    char bad[2048];       /* why the first of them are, in a line each */
    double start_s;       /* for the progress */
};

/* Each reads a whole text, with nothing behind: */

/* {"images": [...], "annotations": [...], "categories": [...]} in any order. Images and annotations
 * that cannot be used are counted; of these only images with an id are kept, as DT_COCO_SKIPPED. */
dt_status dt_coco_rows_read(struct dt_coco_rows *rows);
/* One image with the list of its annotations inside; the names of the file and of the image in the
 * annotations do not matter. */
dt_status dt_coco_rows_read_image(struct dt_coco_rows *rows);
/* A list of categories; of detections. */
dt_status dt_coco_rows_read_categories(struct dt_coco_rows *rows);
dt_status dt_coco_rows_read_found(struct dt_coco_rows *rows);

/* Counts a row that cannot be used for the reason of the last error, which is cleared. Only of the
 * first the message is kept, and needs a place: to find its line is to read up to it. */
void dt_coco_rows_note_bad(struct dt_coco_rows *rows);
#define DT_COCO_PLACE(rows, offset) ((rows)->n_bad < DT_COCO_BAD_LISTED ? (offset) : 0)

void dt_coco_rows_reset(struct dt_coco_rows *rows); /* does not close the stream */

#endif
