/* Data set tools: packing shards, verifying them, generating images. */
#ifndef DTRAIN_PACK_PACK_H
#define DTRAIN_PACK_PACK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"
#include "dtrain/config.h"

struct dt_shard_options {
    const char *src;    /* a folder of class folders; a .csv table; ILSVRC2012_img_train.tar (a tar
                           of one tar per class); ILSVRC2012_img_val.tar (images only, with
                           `labels`); a .json file of COCO; shards (a folder of tars or a brace
                           pattern); TFRecord files, as a pattern; CIFAR's archive; MNIST's folder */
    const char *dst;    /* output folder */
    const char *prefix; /* shards are <prefix>-0000.tar ... */
    const char *labels; /* of ILSVRC2012_img_val.tar: a synset per line, by file name; or NULL */
    const char *image_folder;          /* COCO: of the images; NULL = as in training */
    const struct dt_config_data *data; /* as in training: exif APPLY turns photos upright, else the
                                          tag is kept; max_pixels; label_key of shards;
                                          label_offset of tables; max_bad_fraction of COCO */
    const char *image_key;             /* TFRecord; NULL = image/encoded */
    const char *label_key;             /* TFRecord; NULL = image/class/label */
    int per_shard;                     /* samples */
    int resize_short; /* larger images are scaled down until the shorter side has this many
                         pixels, and re-encoded; 0 = files are copied unchanged */
    int quality;      /* JPEG quality of re-encoded images, 1 .. 100 */
    int label_offset; /* TFRecord: subtracted from labels */
    int threads;      /* 0 = one per allowed CPU */
    bool test;        /* CIFAR, MNIST: the test images */
    bool skip_bad;    /* unusable images are skipped with a warning, else DT_ERR_DATA;
                         the other samples keep their shards and names */
    uint64_t seed;    /* shuffle seed */
};
/* Packs labelled images into WebDataset tars in shuffled order. Also writes classes.txt if the
 * classes have names, <shard>.idx (DALI's wds2idx v1.2), checksums.xxh64 (for `xxhsum -c`) and
 * _info.json, in which the split is named after the prefix; other splits in dst are kept. Every
 * image is decoded, as a check; CMYK JPEG files and those of other formats become RGB JPEG files,
 * but images of CIFAR and MNIST PNG files. The same input and
 * seed give the same bytes for any number of threads. Images of COCO are packed in the order of
 * their ids instead, so that training has the same order as with the .json file, with their boxes
 * (data/wds_boxes.h) and categories.json next to the shards. DT_ERR_CREATE if dst already holds
 * shards of this prefix. */
dt_status dt_shard_write(const struct dt_shard_options *options);
/* Checks the shards of a folder, or a single one: structure, pairing, _info.json, labels, .idx and
 * checksums; decodes n_decode samples spread over the set (-1 = all), by exif, label_key and
 * max_pixels of `data`. Prints a line per fault and a summary on `out`, and progress with the
 * remaining time on the terminal. DT_ERR_DATA if anything is wrong. */
dt_status dt_shards_verify(const char *path, const struct dt_config_data *data, int64_t n_decode,
                           int threads, FILE *out);
/* Generates `per_class` JPEG files for each of ten classes of coloured shapes with noise in
 * dir/<class>/<number>.jpg, a pure function of the seed. */
dt_status dt_shapes_write(const char *dir, int per_class, int size, uint64_t seed);

#endif
