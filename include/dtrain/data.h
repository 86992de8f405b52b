/* From files to complete host batches. Independent of graphs and devices.
 *
 * The order is a pure function of (seed, epoch), augmentation of (seed, epoch, sample id), and
 * mixing of these and the pair of neighbours, 2k and 2k+1, in the order. Global batch g of an epoch
 * is positions [g*G, (g+1)*G) of that order and rank r takes the r-th of R equal slices, so
 * for a fixed G the data depend neither on the number of workers nor on the number of ranks.
 *
 * The images of a detector lie on canvases of a few sizes (boxes/canvas.h), one size in a global
 * batch: the order is walked, and whenever a canvas has G images they are the next batch. In
 * training what is left at the end is dropped; evaluation makes incomplete batches of it. */
#ifndef DTRAIN_DATA_H
#define DTRAIN_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/names.h"
#include "base/status.h"
#include "boxes/boxes.h"
#include "dtrain/columns.h"
#include "dtrain/config.h"
#include "dtrain/split.h"
#include "image/crop.h"

/* --- Data set: encoded samples by id 0 .. n-1. Thread-safe after open. --- */

enum dt_part { DT_PART_ALL, DT_PART_TRAIN, DT_PART_VAL };

/* For ranks that open a data set together: one reads the files, the others get what it found. */
struct dt_data_share {
    bool reads; /* this rank is the one */
    /* Collective. Puts the `data` of the rank that reads, `bytes` long, into *shared on all ranks.
     * All pass their status as `mine` and return the same: a rank's failure, or the exchange's. */
    dt_status (*give)(void *context, dt_status mine, struct dt_shared *shared, const void *data,
                      size_t bytes);
    void *context;
};

struct dt_names;
struct dt_dataset;
struct dt_dataset_options {
    const struct dt_config_data *data; /* source, label_offset, val_fraction, max_train */
    const char *path; /* NULL or "" = synthetic, where the source is auto; brace range of tars
                         ("x-{0000..0009}.tar", several joined by "::"); a folder: of tars for
                         shards, of class folders for folder; a table for csv; annotations
                         for coco */
    const char *images_folder; /* coco: of the image files; NULL or "" = ../X for instances_X.json,
                                  else the folder of the annotations */
    const char *cache_dir;     /* where shard indices are cached; NULL = not cached */
    int num_classes; /* labels outside 0..num_classes-1 are DT_ERR_DATA; 0 = as many as the
                        data have names for, or labels */
    const struct dt_names *classes;   /* names in the order of labels, kept until dt_dataset_close;
                                         NULL or empty = the data set's own */
    const struct dt_names *class_map; /* names for labels that are numbers, kept as long; NULL or
                                         empty = there is no data.class_map */
    const char *classes_of;           /* for messages: who has set `classes` or, if it is empty,
                                         num_classes; NULL = nobody, so this set decides */
    bool by_order;                    /* only num_classes is known and this set has names: take them
                                         in their order; false = DT_ERR_DATA */
    bool subset;                      /* skip samples whose class is not in `classes`; false =
                                         DT_ERR_DATA */
    const struct dt_names *images;    /* NULL, or these files instead of `path`, with label 0; kept
                                         until dt_dataset_close */
    int synthetic_images;             /* for source synthetic */
    struct dt_canvases canvases;      /* the same: image i has size i % n */
    enum dt_sample_column targets; /* what samples must have, DT_COLUMN_LABELS or, placed whole on
                                      canvases, _BOXES, else DT_ERR_CONFIG; 0 = either */
    bool may_lack_boxes;           /* coco: the file may have images without "annotations" */
    uint64_t seed;
    /* Side of data.val_fraction; training: also data.max_train (select.h), and with boxes
     * only images with a box to train on (dt_truth_is_usable). */
    enum dt_part part;
    const struct dt_data_share *share; /* NULL = every caller reads for itself */
    const struct dt_dataset *rest_of;  /* a data set of part train that is open: its files are not
                                          listed again; it must stay open. NULL = none */
};

/* DT_ERR_NO_INPUT with the names of missing files, DT_ERR_DATA for damaged archives and labels. */
dt_status dt_dataset_open(struct dt_dataset **dataset, const struct dt_dataset_options *options);
void dt_dataset_close(struct dt_dataset *dataset);
uint32_t dt_dataset_size(const struct dt_dataset *dataset);
/* A hash of names, sizes and labels, and of which samples are used. */
uint64_t dt_dataset_fingerprint(const struct dt_dataset *dataset);
int dt_dataset_label(const struct dt_dataset *dataset, uint32_t id);
/* The most boxes of a sample, crowds too, at least 1; 0: the set has none, but labels. */
int dt_dataset_max_boxes(const struct dt_dataset *dataset);
/* The boxes of a sample into out[max_boxes]. Returns their number. */
int dt_dataset_truths(const struct dt_dataset *dataset, uint32_t id, struct dt_truth *out);
/* An image as its annotations describe it; a file of another size is a bad sample. */
struct dt_image_info {
    int64_t id;
    int width, height;
    const char *text_id; /* NULL, or the id is this text, until dt_dataset_close */
};
void dt_dataset_image(const struct dt_dataset *dataset, uint32_t id, struct dt_image_info *out);
/* The id of a label in files of annotations and detections. */
int64_t dt_dataset_category(const struct dt_dataset *dataset, int label);
/* Number of classes; name of one, NULL past the last or if they have no names. */
int dt_dataset_n_classes(const struct dt_dataset *dataset);
const char *dt_dataset_class(const struct dt_dataset *dataset, int label);
/* The same, but the number of the class if they have no names. */
const char *dt_dataset_label_text(const struct dt_dataset *dataset, int label, char number[16]);
/* The names of all classes in the order of labels, until dt_dataset_close; NULL if they have none.
 */
const struct dt_names *dt_dataset_classes(const struct dt_dataset *dataset);
/* "shard.tar: member.jpg" or a path, for messages. */
const char *dt_dataset_name(const struct dt_dataset *dataset, uint32_t id, char *out, size_t bytes);
#define DT_EXIF_QUESTION \
    "say with data.exif (or --exif) if boxes are of pixels as stored (ignore) or upright (apply)"
/* A check of images counts these. Starts as {0}. */
struct dt_image_notes {
    int64_t n, n_bad;
    int64_t n_turned, turned; /* with an EXIF orientation other than 1; the lowest id */
    int64_t n_deep, peak;     /* files of 16 bits; their largest value */
};
/* Warns of images that EXIF turns, and of files of 16 bits with small values. Where the set has
 * boxes and data.exif is auto, turned images are DT_ERR_CONFIG instead. */
dt_status dt_dataset_tell(const struct dt_dataset *dataset, const struct dt_image_notes *notes,
                          const char *what);
/* Images to decode whole, in n_threads threads (0 = one per allowed CPU), and what is found. */
struct dt_image_check {
    const uint32_t *ids; /* n of them; NULL: first, first + step, ... */
    uint32_t n, first, step;
    int n_threads;
    bool lists_all;      /* a file that cannot be read is a bad sample, too, not an error */
    const char *what;    /* shown with the progress */
    uint64_t *hashes;    /* NULL, or one for each sample of the set: XXH3 of its bytes */
    struct dt_names bad; /* "name: reason", sorted; to be released */
    struct dt_image_notes notes;
};
dt_status dt_dataset_check(struct dt_image_check *check, const struct dt_dataset *dataset);
/* Warns of images of equal bytes, by the hashes of sets[0] and then sets[1], which may be NULL; 0:
 * the image has not been read. */
dt_status dt_dataset_twins(const uint64_t *hashes, const struct dt_dataset *const sets[2]);
/* DT_ERR_DATA if n_bad of n images exceed `fraction`, data.max_bad_fraction. */
dt_status dt_bad_fraction_check(uint64_t n_bad, uint32_t n, double fraction, bool train);
/* Caches encoded samples in memory as they are read, until `bytes` are used. Samples are never
 * evicted: with a random order, no policy hits more often than a fixed subset. Call it once, before
 * the first read. */
dt_status dt_dataset_cache(struct dt_dataset *dataset, uint64_t bytes);
/* For benchmarks: asks the system to drop its cached pages of the files, so that the next reads
 * come from the disk (file systems may ignore it). */
void dt_dataset_forget(const struct dt_dataset *dataset);

/* --- Sampler --- */

/* order[0 .. n): the permutation of epoch `epoch` (identity if not shuffled). */
void dt_sampler_order(uint32_t *order, uint32_t n, uint64_t seed, uint32_t epoch, bool shuffle);

/* Balances an order of dt_sampler_order: the same number of places, in which each class that has
 * samples comes once in every round, in a random order, with its samples in the given order, again
 * from the first one when all have been taken. labels[id] is below n_classes; `memory` has room for
 * n + 3 n_classes numbers. */
void dt_sampler_balance(uint32_t *order, uint32_t n, const int32_t *labels, int n_classes,
                        uint64_t seed, uint32_t epoch, uint32_t *memory);

/* A global batch: order[first .. first + n), all of one canvas. */
struct dt_sampler_batch {
    uint32_t first, n;
    int canvas;
};
/* Arranges `order` by batches of `size` samples of one canvas, in the order in which they get
 * complete: the samples that are left follow, by canvas, as incomplete batches with `keep_rest`.
 * canvas_of[id] (NULL: all 0) is below n_canvases; `waiting` has room for size * n_canvases ids.
 * Returns the number of batches. */
uint64_t dt_sampler_batches(struct dt_sampler_batch *batches, uint32_t *order, uint32_t n,
                            uint32_t size, const uint8_t *canvas_of, int n_canvases, bool keep_rest,
                            uint32_t *waiting);

/* --- Loader: a ring of batches kept full by worker threads --- */

struct dt_batch {
    /* A row for each image; rows >= n are zeros with label -1. NULL: the data set has no boxes, of
     * which a row has room for dt_dataset_max_boxes. */
    DT_COLUMN_MEMBERS(DT_COLUMN_POINTER, void *);
    uint32_t *ids;             /* batch; sample ids as drawn (before replacement of bad ones) */
    struct dt_crop *crops;     /* batch; all 0 for rows >= n and bad images in evaluation */
    int n;                     /* valid rows, in training all */
    int canvas, width, height; /* canvas: its index, 0 without canvases */
    uint32_t epoch;
    uint64_t index; /* of the global batch in its epoch */
    int pass;       /* micro-batch inside the global batch */
    int slot;
};

struct dt_loader_options {
    bool train;                        /* shuffled, augmented, last partial global batch dropped */
    const struct dt_config_data *data; /* kept until dt_loader_destroy */
    struct dt_canvases canvases; /* sizes of rows: one square, or where images have boxes any */
    struct dt_split split; /* evaluation: one pass, images = ranks * rows of a batch, of which the
                              last batch fills some. Mixing needs pairs */
    int workers;           /* threads; data->workers is the user's setting, which may be 0 */
    uint32_t epochs;       /* of the run: later epochs are not prefetched; 0 = no limit */
    uint64_t seed;
};

struct dt_loader;
/* `dataset` is kept until dt_loader_destroy. Starts the worker threads. */
dt_status dt_loader_create(struct dt_loader **loader, struct dt_dataset *dataset,
                           const struct dt_loader_options *options);
void dt_loader_destroy(struct dt_loader *loader); /* accepts NULL; stops and joins the workers */
/* Memory block i of those that hold pixels, labels and shares of all batches, for a device to pin;
 * NULL past the last. Page-aligned, valid until dt_loader_destroy. */
void *dt_loader_memory(const struct dt_loader *loader, int i, size_t *bytes);
uint64_t dt_loader_batches(const struct dt_loader *loader); /* global batches per epoch */
/* The images of each canvas. canvas_of: NULL; or, if there are several, gets the one of each. */
void dt_loader_count(uint32_t n[DT_MAX_CANVASES], uint8_t *canvas_of,
                     const struct dt_dataset *dataset, const struct dt_config_data *data,
                     const struct dt_canvases *canvases);
/* Begins epoch `epoch` at global batch `first`. After an epoch the workers prefetch the next one
 * (evaluation: the same again), so starting that one at 0 finds batches ready; any other start
 * drops the prefetched batches. */
dt_status dt_loader_start(struct dt_loader *loader, uint32_t epoch, uint64_t first);
/* Waits for the next micro-batch in order; *batch is NULL at the end of the epoch. The batch
 * belongs to the caller until dt_loader_release. A bad image is logged once and replaced (train:
 * the next position of the order; evaluation: a grey image with its label). Fails with DT_ERR_DATA
 * if the bad images found by this rank alone exceed max_bad_fraction of the data set; then *batch
 * holds any images and labels, for a rank that has to end its step together with the others. */
dt_status dt_loader_next(struct dt_loader *loader, const struct dt_batch **batch);
void dt_loader_release(struct dt_loader *loader, const struct dt_batch *batch);
/* Training: the sum of the class weights of the images of the whole global batch that `batch`, held
 * by the caller, is a part of: the same on every rank. A bad image counts with the weight of its
 * own class, not with the weight of the image that replaces it, as other ranks do not know of it.
 */
double dt_loader_weigh(const struct dt_loader *loader, const struct dt_batch *batch,
                       const float *class_weights);
/* Seconds that dt_loader_next has waited since creation. */
double dt_loader_wait_s(const struct dt_loader *loader);
/* Totals since the creation of the loader. */
struct dt_loader_times {
    double wait_s;         /* waited by the caller in dt_loader_next */
    double longest_wait_s; /* of one call, except the first after a start that dropped batches */
    /* Sums over the workers: */
    double read_s;          /* reading files */
    double decode_s;        /* decoding, resizing, mixing */
    double idle_s;          /* waiting because all slots were full */
    uint64_t images, bytes; /* images finished; encoded bytes read */
    int workers;
};
void dt_loader_times(const struct dt_loader *loader, struct dt_loader_times *out);
/* Bad samples among the positions of this rank, in the current epoch and in the one before. Each
 * position belongs to one rank, so sums over the ranks count no sample twice. */
void dt_loader_bad_positions(const struct dt_loader *loader, uint64_t *now, uint64_t *before);
/* DT_ERR_DATA if n_bad samples exceed max_bad_fraction of the data set. */
dt_status dt_loader_check_bad(const struct dt_loader *loader, uint64_t n_bad);

/* Time of one worker by stage, in seconds over n images. */
struct dt_input_stages {
    uint64_t images, bytes;
    double read_s;
    double entropy_s;   /* header and Huffman decoding down to the last row needed */
    double transform_s; /* dequantising, inverse DCT, upsampling, colours of the crop */
    double resize_s;    /* resize, flip and augmentation */
};
/* Makes the training rows of positions first .. first+n-1 of epoch 0 in one thread and times each
 * stage. An image file is decoded twice: once without the transform. */
dt_status dt_input_measure(struct dt_input_stages *out, const struct dt_dataset *dataset,
                           const struct dt_loader_options *options, uint32_t first, uint32_t n);

#endif
