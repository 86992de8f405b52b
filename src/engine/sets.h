/* The data of a command: its data sets, their classes, and the loaders that read them. */
#ifndef DTRAIN_ENGINE_SETS_H
#define DTRAIN_ENGINE_SETS_H

#include "base/names.h"
#include "dtrain/comm.h"
#include "dtrain/config.h"
#include "dtrain/data.h"
#include "dtrain/events.h"

struct dt_task;

struct dt_sets {
    const struct dt_config *config;
    struct dt_ranks ranks;
    const struct dt_task *task;
    struct dt_canvases canvases;      /* of evaluation, and of a detector's training */
    struct dt_names classes;          /* names in the order of labels; none if the data have none */
    struct dt_names numbers;          /* of data.class_map, if it differs from `classes` */
    const struct dt_names *class_map; /* one of both; NULL without that key */
    char *classes_text;               /* the same with a newline after each; NULL if none */
    int num_classes;
    int weights_classes; /* of weights that are evaluated; data without names may show fewer */
    bool may_lack_boxes; /* validation images only have detections written */
    const struct dt_names *images;          /* dtrain predict: instead of data.val; else NULL */
    struct dt_dataset *train_set, *val_set; /* NULL if the sub-command or the config has none */
    struct dt_loader *train, *val;
    float *class_weights; /* one per class, NULL = none */
    dt_status status;     /* of a layout without data, and then why: */
    char problem[1024];
};

void dt_sets_init(struct dt_sets *sets, struct dt_comm *comm, const struct dt_config *config,
                  const struct dt_task *task);
/* DT_ERR_CONFIG unless training data are named, or generated images asked for. */
dt_status dt_sets_check_given(const struct dt_config *config);

struct dt_sets_options {
    bool train, val;          /* which sets */
    bool is_raw;              /* only looked at: nothing is asked of the classes */
    bool may_lack;            /* missing data go to sets->status */
    const char *cache_dir;    /* for indices, NULL = they are not kept */
    struct dt_events *events; /* shows progress; NULL = nobody */
};
/* Opens the sets and agrees on their classes. Collective; on failure all ranks return the same
 * status. */
dt_status dt_sets_open(struct dt_sets *sets, const struct dt_sets_options *options);
/* Accepts partly opened sets, whose loaders are closed (dt_engine_close). */
void dt_sets_close(struct dt_sets *sets);

/* Canvases, of a classifier the square of `side`: "1344 x 800, 800 x 1344". */
enum { DT_SIZES_TEXT = 96 };
const char *dt_sets_sizes(const struct dt_sets *sets, int side, char out[DT_SIZES_TEXT]);
/* `side` of the squares to which images are cropped; 0: with boxes they are not. */
int dt_sets_crop(const struct dt_sets *sets, int side);
/* DT_ERR_DATA on all ranks if `n_bad`, summed over them, exceeds the limit of `loader`. */
dt_status dt_sets_check_bad(const struct dt_loader *loader, double n_bad);
/* Whether top-5 accuracy is reported: below 6 classes it says nothing. */
bool dt_sets_has_top5(const struct dt_sets *sets);

#endif
