/* The annotations of COCO ("instances" of object detection): a JSON file with images, annotations
 * and categories. Of polygons and run lengths only the box and the area are kept. */
#ifndef DTRAIN_BOXES_COCO_H
#define DTRAIN_BOXES_COCO_H

#include <stddef.h>
#include <stdint.h>

#include "base/names.h"
#include "base/status.h"
#include "boxes/boxes.h"

struct dt_coco_image {
    int64_t id;
    int32_t width, height;
    uint32_t name; /* index in dt_coco.files */
};

/* Images in the order of their ids, boxes in the order of images and, for each, of the file; labels
 * are positions in the order of the categories' ids. */
struct dt_coco {
    uint32_t n_images;
    struct dt_coco_image *images;
    struct dt_names files;
    size_t *first_truth; /* n_images + 1 */
    struct dt_truth *truths;
    int n_categories;
    int64_t *category_ids;
    struct dt_names categories;
    uint32_t max_boxes;       /* of an image */
    uint64_t fingerprint;     /* of all above */
    bool is_lenient;          /* opened so */
    struct dt_names text_ids; /* sorted; then the id of an image is the place of its text in it */
};

struct dt_coco_rules {
    double max_bad; /* data.max_bad_fraction of the images and annotations may be unusable */
    /* For an evaluation alone, of any program's detections, with what pycocotools allows: images
     * without size and file name, and annotations of images or categories that are not listed,
     * which are ignored and counted in a line. */
    bool is_lenient;
    bool may_lack_annotations; /* as the files of images alone do, "image_info" */
};

/* Reads the file once, about 450 MB a second, or twice if ids of images are texts, and shows
 * progress. DT_ERR_NO_INPUT, DT_ERR_PERMISSION, DT_ERR_IO; DT_ERR_DATA "file:line:column: what".
 * Images and annotations that cannot be used are skipped, with a line that counts them and names
 * the first; DT_ERR_DATA if they are more than the rules allow. Boxes that are outside their image,
 * or have no area, are kept and counted in one warning. */
dt_status dt_coco_open(struct dt_coco *coco, const char *path, const struct dt_coco_rules *rules);
void dt_coco_reset(struct dt_coco *coco);
/* The label of a category, -1 if there is none with this id. */
int dt_coco_label(const struct dt_coco *coco, int64_t id);
/* Fills in the categories, in the order of their ids. DT_ERR_DATA if there are none, and for an id
 * or a name that is used twice. */
struct dt_coco_rows;
dt_status dt_coco_make_categories(struct dt_coco *coco, const struct dt_coco_rows *rows);
/* A hash of all members of the box. */
uint64_t dt_coco_hash_truth(const struct dt_truth *truth, uint64_t hash);

/* Detections in COCO's format of results: [{"image_id", "category_id", "bbox", "score"}, ...], in
 * the order of the file; free *found with free(). DT_ERR_DATA as above, also for an image that
 * `coco` does not have. Detections of a category that it does not have are ignored and counted in a
 * line, as detectors of 91 classes have them. */
dt_status dt_coco_read_found(struct dt_found **found, size_t *n, const struct dt_coco *coco,
                             const char *path);

#endif
