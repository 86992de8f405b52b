/* The configuration: one list of keys (dtrain/config_keys.h) makes this struct and fills it from a
 * JSON file and --set overrides; help, JSON Schema and the dump come from the same list. Constant
 * after start. Plain data without pointers, so rank 0 can broadcast it as bytes. */
#ifndef DTRAIN_CONFIG_H
#define DTRAIN_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/file.h"
#include "base/status.h"
#include "dtrain/dtype.h"
#include "dtrain/models.h"
#include "dtrain/optim.h"

/* Kinds of data sets: `upper` names the value of the enumeration, `lower` the value of the key and
 * dt_dataset_<lower>, which a file of src/data defines; `help` is for users. A path is of the first
 * kind that recognises it. */
#define DT_SOURCE_LIST(ROW)                                      \
    ROW(SYNTHETIC, synthetic, "generated images")                \
    ROW(SHARDS, shards, "tars such as train-{0000..0009}.tar")   \
    ROW(FOLDER, folder, "a folder with one subfolder per class") \
    ROW(CSV, csv, "a .csv file with the columns path and label") \
    ROW(COCO, coco, "for detectors a .json file such as annotations/instances_train2017.json")
#define DT_SOURCE_VALUE(upper, ...) DT_SOURCE_##upper,
enum dt_source { DT_SOURCE_LIST(DT_SOURCE_VALUE) DT_SOURCE_AUTO /* by the path */ };
#undef DT_SOURCE_VALUE
enum dt_augment { DT_AUGMENT_NONE, DT_AUGMENT_IMAGENET, DT_AUGMENT_CIFAR };
enum dt_upsampling { DT_UPSAMPLING_FANCY, DT_UPSAMPLING_PLAIN };
enum dt_dct { DT_DCT_ACCURATE, DT_DCT_FAST };
enum dt_scaled_decode { DT_SCALED_NEVER, DT_SCALED_TRAIN, DT_SCALED_ALWAYS };
enum dt_sampling { DT_SAMPLING_SHUFFLED, DT_SAMPLING_BALANCED };
enum dt_exif { DT_EXIF_AUTO, DT_EXIF_IGNORE, DT_EXIF_APPLY };
enum { DT_MAX_PIXELS = 100000000 };
/* Schedules of the learning rate: X(NAME, name, .has_end: whether the rate of a step depends on the
 * length of the run and goes down to min_lr). The formulas are in src/engine/schedule.h. */
#define DT_SCHEDULE_LIST(X)                       \
    X(CONSTANT, constant, .has_end = false)       \
    X(STEP, step, .has_end = false)               \
    X(COSINE, cosine, .has_end = true)            \
    X(POLY, poly, .has_end = true)                \
    X(PIECEWISE, piecewise, .has_end = false)     \
    X(EXPONENTIAL, exponential, .has_end = false) \
    X(LINEAR, linear, .has_end = true)            \
    X(WSD, wsd, .has_end = true)                  \
    X(ONE_CYCLE, one_cycle, .has_end = true)      \
    X(PLATEAU, plateau, .has_end = false)
#define DT_SCHEDULE_VALUE(NAME, ...) DT_SCHEDULE_##NAME,
enum dt_schedule_kind { DT_SCHEDULE_LIST(DT_SCHEDULE_VALUE) };
#undef DT_SCHEDULE_VALUE
enum dt_lr_scaling { DT_LR_SCALING_LINEAR, DT_LR_SCALING_SQRT, DT_LR_SCALING_NONE };
enum { DT_MICRO_BATCH_AUTO = -1 };
enum dt_device_kind { DT_DEVICE_AUTO, DT_DEVICE_CPU, DT_DEVICE_CUDA };
enum dt_comm_kind { DT_COMM_AUTO, DT_COMM_MPI, DT_COMM_NCCL };
enum dt_comm_algorithm {
    DT_ALGORITHM_RING,
    DT_ALGORITHM_AUTO,
    DT_ALGORITHM_LIBRARY,
    DT_ALGORITHM_HIERARCHICAL,
    DT_ALGORITHM_HALVING,
    DT_ALGORITHM_TREE
};
/* LOCAL is no value of comm.mode, but ALLREDUCE with train.sync_every above 1: dt_config_mode. */
enum dt_comm_mode { DT_MODE_ALLREDUCE, DT_MODE_CENTRAL, DT_MODE_ASYNC, DT_MODE_LOCAL };
enum dt_tta { DT_TTA_NONE, DT_TTA_FLIP };
enum dt_weights { DT_WEIGHTS_BOTH, DT_WEIGHTS_RAW, DT_WEIGHTS_EMA };
enum dt_check { DT_CHECK_QUICK, DT_CHECK_FULL };
enum dt_grad_dtype { DT_GRAD_AUTO, DT_GRAD_FP32, DT_GRAD_FP16, DT_GRAD_BF16 };
enum dt_p6_from { DT_P6_FROM_P5, DT_P6_FROM_C5 };
enum dt_head_norm { DT_HEAD_NORM_NONE, DT_HEAD_NORM_GROUP };
enum dt_loss_normalizer { DT_NORMALIZER_IMAGE, DT_NORMALIZER_GLOBAL };

/* Metrics of an evaluation: X(NAME, name, traits, which networks have it). train_loss is the mean
 * of the steps of the epoch before. */
enum { DT_PLAIN_METRIC, DT_IN_PERCENT = 1, DT_LESS_IS_BETTER = 2, DT_TWO_CLASSES_ONLY = 4 };
enum dt_networks { DT_OF_ALL, DT_OF_CLASSIFIERS, DT_OF_DETECTORS };
#define DT_METRIC_LIST(X)                                                               \
    X(LOSS, loss, DT_LESS_IS_BETTER, DT_OF_CLASSIFIERS)                                 \
    X(TOP1, top1, DT_IN_PERCENT, DT_OF_CLASSIFIERS)                                     \
    X(TOP5, top5, DT_IN_PERCENT, DT_OF_CLASSIFIERS)                                     \
    X(BALANCED_ACCURACY, balanced_accuracy, DT_IN_PERCENT, DT_OF_CLASSIFIERS)           \
    X(MACRO_F1, macro_f1, DT_IN_PERCENT, DT_OF_CLASSIFIERS)                             \
    X(AUC, auc, DT_TWO_CLASSES_ONLY, DT_OF_CLASSIFIERS)                                 \
    X(AVERAGE_PRECISION, average_precision, DT_TWO_CLASSES_ONLY, DT_OF_CLASSIFIERS)     \
    X(SENSITIVITY, sensitivity, DT_TWO_CLASSES_ONLY | DT_IN_PERCENT, DT_OF_CLASSIFIERS) \
    X(SPECIFICITY, specificity, DT_TWO_CLASSES_ONLY | DT_IN_PERCENT, DT_OF_CLASSIFIERS) \
    X(TRAIN_LOSS, train_loss, DT_LESS_IS_BETTER, DT_OF_ALL)                             \
    X(AP, ap, DT_PLAIN_METRIC, DT_OF_DETECTORS)                                         \
    X(AP50, ap50, DT_PLAIN_METRIC, DT_OF_DETECTORS)                                     \
    X(AP75, ap75, DT_PLAIN_METRIC, DT_OF_DETECTORS)
#define DT_METRIC_VALUE(NAME, ...) DT_METRIC_##NAME,
enum dt_metric {
    DT_METRIC_LIST(DT_METRIC_VALUE) DT_N_METRICS,
    DT_METRIC_AUTO = DT_N_METRICS /* of a key: dt_config_goal_metric and so on */
};
#undef DT_METRIC_VALUE

/* Sinks of output.sinks: src/events/<name>.c. Events go to them in this order. */
#define DT_SINK_LIST(ROW) \
    ROW(console) ROW(jsonl) ROW(tensorboard) ROW(mlperf) ROW(prometheus) ROW(csv)

enum { DT_MAX_MILESTONES = 16, DT_MAX_CLASS_WEIGHTS = 1000, DT_CONFIG_NAME_MAX = 64 };
enum { DT_CLASS_WEIGHTS_BALANCED = -1 /* n_class_weights */, DT_MAX_STAGES = 16 };
/* Limits for untrusted data sets. */
enum { DT_MAX_SAMPLES = 20000000, DT_MAX_CLASSES = 1000000 };

/* From `epoch` on; a size or batch of 0 keeps the configuration's. */
struct dt_train_stage {
    int epoch, image_size, batch;
};

/* A struct for each section, with the keys as members: modules take the section they need and read
 * it directly. */
#define SECTION(section) struct dt_config_##section {
#define END(section) \
    }                \
    section;
#define BOOL(section, member, ...)         bool member;
#define INT(section, member, ...)          int member;
#define INT64(section, member, ...)        int64_t member;
#define UINT64(section, member, ...)       uint64_t member;
#define REAL(section, member, ...)         double member;
#define POSITIVE                           REAL
#define FRACTION                           REAL
#define CHOICE(section, member, type, ...) type member;
#define TEXT(section, member, bytes, ...)  char member[bytes];
#define NAMES                              TEXT
#define RGB(section, member, ...)          double member[3];
#define TABLE(section, member, type, max, ...) \
    type member[max];                          \
    int n_##member;
#define LIST(section, member, max, ...) TABLE(section, member, double, max, )
struct dt_config {
#include "dtrain/config_keys.h"
    char notes[1024]; /* no key: what loading has changed, lines to show */
};

/* The member "format" of a configuration: a promise of scripts/packaging/README.md. */
enum { DT_CONFIG_FORMAT = 1 };

void dt_config_init(struct dt_config *config); /* every key at its default */
/* Defaults, then the file (NULL = none), then overrides "key.path=value" (value: JSON, else a plain
 * string). All mistakes are reported in one error text, a line each: "file:line:column: path:
 * message; did you mean ...". Codes: DT_ERR_CONFIG, or the file's own (66, 77, 74). */
dt_status dt_config_load(struct dt_config *config, const char *path, const char *const *sets,
                         size_t n_sets);
/* True of "-", standard input, and of pipes: they can be loaded once. */
bool dt_config_is_stream(const char *path);
/* The complete configuration as pretty JSON text that dt_config_load accepts; caller frees. */
dt_status dt_config_print(char **text, const struct dt_config *config);
/* Lists the keys that differ between a saved run and one that resumes it, one line
 * "    key: was OLD, now NEW" each: in `refused` those that make it another run, in `inexact` those
 * after which results are equal only up to rounding. Keys without effect on the result are not
 * listed. Texts are truncated at `bytes`. */
void dt_config_compare(const struct dt_config *saved, const struct dt_config *now, char *refused,
                       char *inexact, size_t bytes);
/* JSON Schema (draft 2020-12), or help as text, one line per key with default and bounds: for all
 * keys by section (NULL), for one, or for those that begin with `keys`; DT_ERR_USAGE if none does.
 */
dt_status dt_config_print_schema(FILE *out);
dt_status dt_config_print_help(FILE *out, const char *keys);

/* A key in words. */
struct dt_config_key {
    const char *path, *help;
    const char *const *choices; /* names that it takes, then NULL; or NULL */
    char expects[512];          /* "an integer from 1 to 100" */
    char value[512];            /* its default, as JSON */
};
/* The i-th key; false if there are no more. */
bool dt_config_key(struct dt_config_key *out, size_t i);

/* Relative paths of data and of initial weights become absolute, as seen from the current folder.
 */
void dt_config_make_absolute(struct dt_config *config);

/* Copies the first of `names` (a field of names: a newline after each) and returns the rest; NULL
 * if there is none. */
const char *dt_config_names_next(const char *names, char *name, size_t bytes);
/* True if an evaluation computes the metric: eval.metrics lists it, or early stopping or the choice
 * of the best checkpoint needs it. */
bool dt_config_has_metric(const struct dt_config *config, enum dt_metric metric);
/* True if training and validation use synthetic images; if there are images to validate on. */
bool dt_config_is_synthetic(const struct dt_config *config);
bool dt_config_has_validation(const struct dt_config *config);
bool dt_config_detects(const struct dt_config *config); /* the model is a detector */
/* The metrics that decide: early_stop.metric, checkpoint.best_metric, schedule.metric. */
enum dt_metric dt_config_goal_metric(const struct dt_config *config);
enum dt_metric dt_config_best_metric(const struct dt_config *config);
enum dt_metric dt_config_plateau_metric(const struct dt_config *config);
const char *dt_metric_name(enum dt_metric metric);
bool dt_schedule_has_end(enum dt_schedule_kind kind); /* depends on the length of the run */
bool dt_metric_is_binary(enum dt_metric metric);      /* defined for two classes only */
bool dt_metric_is_percent(enum dt_metric metric);     /* else a loss, or between 0 and 1 */
enum dt_networks dt_metric_networks(enum dt_metric metric);
bool dt_config_fits(const struct dt_config *config, enum dt_metric metric); /* to the model */
/* How much better `to` is than `from`; negative if worse, NaN if one of them is. */
double dt_metric_gain(enum dt_metric metric, double from, double to);

/* The sizes of images that the network is built for: model.canvases, else the square of `side`. A
 * detector's image lies in the upper left corner of its canvas. */
enum { DT_MAX_CANVASES = 4 };
struct dt_canvas {
    int width, height;
};
struct dt_canvases {
    struct dt_canvas size[DT_MAX_CANVASES];
    int n;
};
struct dt_canvases dt_config_canvases(const struct dt_config *config, int side);

/* The options for the model's builder. */
struct dt_model_options dt_config_model_options(const struct dt_config *config, int num_classes);
/* The optimizer's numbers, with its own where the keys are 0. */
struct dt_optim_options dt_config_optim(const struct dt_config *config);
double dt_config_own_lr(const struct dt_config *config); /* of its optimizer */

/* The global batch on `n_ranks` ranks, and the key that it follows from. */
int dt_config_batch_size(const struct dt_config *config, int n_ranks);
/* After how many steps ranks synchronise: 1 = in every step. */
int dt_config_sync_every(const struct dt_config *config);
/* How many of train.virtual_ranks share batch norm statistics (model.sync_bn); at least 1. */
int dt_config_slice_group(const struct dt_config *config);
enum dt_comm_mode dt_config_mode(const struct dt_config *config);
/* True if all ranks sum their gradients in every step. */
bool dt_config_sums(const struct dt_config *config);
const char *dt_config_batch_key(const struct dt_config *config);
/* Most ranks whose gradients are summed in a ring. With comm.algorithm auto those up to which it
 * loses less than 2 % by `dtrain forecast` (ResNet-50, fp16, 256 images per GPU, nodes of 8 GPUs at
 * 100 to 3,200 Gb/s); with train.deterministic all. */
int dt_config_ring_ranks(const struct dt_config *config);

/* The stage of an epoch, without zeros; with `plain_batch` where no stage gives a batch. *index:
 * its place in train.stages, -1 = before the first; may be NULL. */
struct dt_train_stage dt_config_stage(const struct dt_config *config, int plain_batch,
                                      int64_t epoch, int *index);

/* Hint for an unknown option: "use --set train.global_batch_size=..." for "batch-size". False if no
 * key is known by that name. */
bool dt_config_option_hint(char *out, size_t bytes, const char *name);

#endif
