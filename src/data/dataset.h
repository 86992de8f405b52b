/* Inside the data module: the interface of a kind of data set, and how the loader reads samples.
 *
 * To add a kind, write one file with its struct dt_dataset_kind and add a row to DT_SOURCE_LIST in
 * config.h. */
#ifndef DTRAIN_DATA_DATASET_H
#define DTRAIN_DATA_DATASET_H

#include "data/block.h"
#include "data/sample.h"
#include "dtrain/data.h"

/* Encoded bytes of sample `id` (a JPEG or PNG file), or, if dt_dataset_is_raw, finished pixels:
 * height x width x 3 u8 RGB, as large as dt_dataset_image says. Thread-safe.
 * DT_ERR_DATA if this one sample cannot be read as indexed.
 */
dt_status dt_dataset_read(const struct dt_dataset *dataset, uint32_t id, struct dt_sample *sample);
/* Hint that the sample will be read soon. */
void dt_dataset_will_need(const struct dt_dataset *dataset, uint32_t id);
bool dt_dataset_is_raw(const struct dt_dataset *dataset);
/* The path of a set that may still be opening; generated images have none. */
const char *dt_dataset_in_messages(const struct dt_dataset_options *options);
/* With boxes, AUTO stays, and images that are turned are refused; else it is IGNORE. */
enum dt_exif dt_exif_of(const struct dt_config_data *data, bool boxes);
struct dt_decoder;
/* Adds what the decoder knows of the image that it has decoded last. */
void dt_image_notes_add(struct dt_image_notes *notes, const struct dt_decoder *decoder, int64_t id);
/* A decoder with the data.exif and data.max_pixels that the set was opened with. */
dt_status dt_dataset_decoder(struct dt_decoder **decoder, const struct dt_dataset *dataset);
/* DT_ERR_DATA unless the open image suits its annotations: it has the size that they give, and if
 * EXIF turns it, data.exif says what boxes refer to. */
dt_status dt_dataset_expect(const struct dt_dataset *dataset, const struct dt_decoder *decoder,
                            int width, int height);

/* One kind of data set. `open` sets state, n, n_classes, classes and fingerprint; after a failed
 * open, `close` is called on the partial state, which may be NULL. The other functions are
 * thread-safe; their ids and labels are the kind's own. */
struct dt_dataset_kind {
    bool raw;
    /* For data.source auto, one of: how the names of its files end, in any case; whether a path,
     * which may not exist, is of this kind. */
    const char *suffix;
    bool (*recognises)(const char *path);
    dt_status (*open)(struct dt_dataset *dataset, const struct dt_dataset_options *options);
    dt_status (*read)(const struct dt_dataset *dataset, uint32_t id, struct dt_sample *sample);
    /* dt_dataset_will_need and dt_dataset_forget; may be NULL. */
    void (*will_need)(const struct dt_dataset *dataset, uint32_t id);
    void (*forget)(const struct dt_dataset *dataset);
    int (*label)(const struct dt_dataset *dataset, uint32_t id); /* NULL: all are 0 */
    /* The values of a sample in a column that the loader does not fill in its own way, or NULL. */
    void (*column[DT_N_COLUMNS])(const struct dt_dataset *dataset, uint32_t id, void *out);
    /* dt_dataset_truths and dt_dataset_image; NULL if the kind has no boxes. */
    int (*truths)(const struct dt_dataset *dataset, uint32_t id, struct dt_truth *out);
    void (*image)(const struct dt_dataset *dataset, uint32_t id, struct dt_image_info *out);
    void (*name)(const struct dt_dataset *dataset, uint32_t id, char *out, size_t bytes);
    /* A hash of the seed and what names the sample inside the data set: wherever the data set is
     * and whatever else is in it. NULL: of its id. */
    uint64_t (*key)(const struct dt_dataset *dataset, uint32_t id, uint64_t seed);
    /* A hash of the group of a sample, by the column that data.group names; NULL: no columns. */
    uint64_t (*group)(const struct dt_dataset *dataset, uint32_t id);
    /* Path of one of dataset->n_files files; NULL if there are none. */
    void (*file)(const struct dt_dataset *dataset, uint32_t index, char *out, size_t bytes);
    /* Passes every member of the state that `open` sets through the block. To be read, the state is
     * state_bytes of zeros. NULL: every rank opens the set itself, since that reads no file. */
    dt_status (*share)(struct dt_block *block, struct dt_dataset *dataset);
    size_t state_bytes;
    void (*close)(struct dt_dataset *dataset);
};

struct dt_cache;
struct dt_coco_set;
struct dt_names;

struct dt_dataset {
    const struct dt_dataset_kind *kind;
    void *state;
    struct dt_cache *cache; /* NULL = none */
    uint32_t n;             /* samples of the kind */
    uint32_t n_files;       /* that hold them; set by open if the kind has `file` */
    uint32_t *ids;          /* the kind's ids of those that are used; NULL = all */
    uint32_t n_ids;
    struct dt_shared shared; /* has the arrays of the state, unless its data are NULL */
    bool is_view;            /* all but ids and cache belong to another data set */
    int n_classes;  /* of the kind while it opens (1 + its highest label), then as labels count */
    int *label_map; /* from the kind's labels to those of dt_dataset_label; NULL = the same */
    enum dt_exif exif; /* with boxes, AUTO refuses images that are turned */
    int max_pixels;
    int max_boxes;             /* of a sample; set by open if it has them */
    const int64_t *categories; /* ids of the kind's labels in the files; NULL = the labels + 1 */
    const struct dt_names *classes; /* names of those, first the kind's own; NULL or empty = none */
    const struct dt_coco_set *set;  /* that has the boxes, of kinds that use one; else NULL */
    uint64_t fingerprint;
};

#define DT_DATASET_KIND(upper, lower, help) extern const struct dt_dataset_kind dt_dataset_##lower;
DT_SOURCE_LIST(DT_DATASET_KIND)
DT_DATASET_KIND(, list, ) /* dt_dataset_options.images */
#undef DT_DATASET_KIND

/* --- class_map.c: what the labels of a set mean, the one place where names and numbers of two sets
 * meet --- */

/* Turns the kind's own labels into those of options->classes: names by name, numbers as the class
 * map names them or, where all classes are called by numbers, as the class of that number. What
 * only a guess could pair is DT_ERR_DATA; a pairing of names with numbers is told. */
dt_status dt_dataset_map_classes(struct dt_dataset *dataset,
                                 const struct dt_dataset_options *options);
/* The label of the kind's sample `id`; -1: of a class that is not listed. */
int dt_dataset_label_of(const struct dt_dataset *dataset, uint32_t id);
bool dt_dataset_has_names(const struct dt_dataset *dataset);
/* How many classes labels without names may be of; 0: any number. */
int dt_dataset_label_limit(const struct dt_dataset_options *options);

/* In list.c, for the kinds whose samples are single files: the name of a sample is the path of its
 * file. Functions of a struct dt_dataset_kind. */
dt_status dt_files_read(const struct dt_dataset *dataset, uint32_t id, struct dt_sample *sample);
void dt_files_forget(const struct dt_dataset *dataset);
/* Whether the name ends like that of an image which this build can decode. */
bool dt_files_is_image(const char *name);

#endif
