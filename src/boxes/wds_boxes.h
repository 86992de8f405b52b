/* Shards of a detector: next to each image a .json member with an image object of COCO and its
 * annotations inside,
 *   {"id", "file_name", "width", "height",
 *    "annotations": [{"id", "category_id", "bbox", "area", "iscrowd"}, ...]},
 * and next to the shards categories.json, [{"id", "name"}, ...]. Other
 * members of the objects are ignored. area (width times height) and iscrowd (0) may be missing. */
#ifndef DTRAIN_BOXES_WDS_BOXES_H
#define DTRAIN_BOXES_WDS_BOXES_H

#include "base/json.h"
#include "boxes/coco.h"

#define DT_CATEGORIES_NAME "categories.json"

struct dt_wds_image {
    int64_t id;
    int32_t width, height;
    uint32_t n_truths;
    uint32_t unused; /* 0; makes the size of the struct plain, as it is stored as bytes */
};

/* Images with their boxes, in order; labels are ids of categories. Starts as {0}. */
struct dt_wds_boxes {
    struct dt_wds_image *images;
    size_t n, capacity;
    struct dt_truth *truths;
    size_t n_truths, truth_capacity;
};

enum { DT_WDS_BOXES_BYTES = 16 << 20 }; /* of a .json member at most */

/* Appends what `text` says; `what` names it in messages. DT_ERR_DATA "what:line:column: fault". */
dt_status dt_wds_boxes_parse(struct dt_wds_boxes *boxes, const char *text, size_t bytes,
                             const char *what);
dt_status dt_wds_boxes_append(struct dt_wds_boxes *boxes, const struct dt_wds_boxes *more);
/* A hash of the last image, its id, size and boxes, on top of `hash`. */
uint64_t dt_wds_boxes_hash(const struct dt_wds_boxes *boxes, uint64_t hash);
void dt_wds_boxes_reset(struct dt_wds_boxes *boxes);

/* The text of a .json member into a writer without content. Labels become ids of categories. */
dt_status dt_wds_boxes_write(struct dt_jsonw *json, const struct dt_coco *coco, uint32_t image);

/* Fills in the categories of `coco`, sorted by id. DT_ERR_DATA names file, line and column. */
dt_status dt_wds_categories_load(struct dt_coco *coco, const char *path);
/* The same from a folder of shards. Categories that *coco has already, of another folder, must be
 * the same: DT_ERR_DATA. A folder without the file is DT_ERR_CONFIG. */
dt_status dt_wds_categories_join(struct dt_coco *coco, const char *folder);
uint64_t dt_wds_categories_hash(const struct dt_coco *coco, uint64_t hash);
/* The text of the file into a writer without content. */
dt_status dt_wds_categories_write(struct dt_jsonw *json, const struct dt_coco *coco);
/* Moves images and boxes of shards to `coco`, which has the categories, and makes labels positions
 * of these; names of files stay empty. DT_ERR_DATA for another category: reset `coco` then; `path`
 * names the shards. */
dt_status dt_wds_boxes_move(struct dt_coco *coco, struct dt_wds_boxes *boxes, const char *path);

#endif
