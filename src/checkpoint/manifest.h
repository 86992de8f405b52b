/* MANIFEST.json: the contents of a checkpoint folder, with sizes and checksums (XXH3). It is
 * written last, so a folder without it is not a checkpoint.
 *
 *   {"format", "step", "epoch", "batch", "incarnation", "ranks", "global_batch_size", "run_id",
 *    "build_id", "repro", "config_hash",
 *    "files": {"NAME": {"bytes", "hash", "tensors": {"NAME": hash, ...}}, ...}, "checksum"}
 *
 * Hashes are lower-case hexadecimal, 16 digits of XXH3-64 or 32 of XXH3-128 (high half first);
 * "checksum" is the XXH3-128 of all bytes of the file before the comma that precedes it. The text
 * has one canonical form, and no other is accepted. Files without tensors have no "tensors". */
#ifndef DTRAIN_CHECKPOINT_MANIFEST_H
#define DTRAIN_CHECKPOINT_MANIFEST_H

#include <stdint.h>

#include "base/json.h"
#include "checkpoint/safetensors.h"

enum {
    DT_MANIFEST_FORMAT = 2,
    DT_MANIFEST_MAX_FILES = 8,
    DT_MANIFEST_NAME_MAX = 64,
    DT_MANIFEST_MAX_TENSORS = 10000, /* of all files */
    DT_MANIFEST_MAX_BYTES = 8 << 20,
    DT_ID_MAX = 48 /* run and build ids, NUL included */
};
extern const char dt_manifest_name[]; /* "MANIFEST.json" */

struct dt_hash {
    uint64_t low, high; /* XXH3, 128 bits */
};
enum { DT_HASH_TEXT = 33 };
/* As `xxhsum -H2` prints it. */
void dt_hash_format(char out[DT_HASH_TEXT], struct dt_hash hash);

struct dt_manifest_tensor {
    char name[DT_ST_NAME_MAX];
    uint64_t hash; /* XXH3, 64 bits, of its bytes in the file */
};

struct dt_manifest_file {
    char name[DT_MANIFEST_NAME_MAX]; /* a plain file name */
    uint64_t bytes;
    struct dt_hash hash;
    struct dt_manifest_tensor *tensors; /* of a safetensors file, in the order of the data */
    int n_tensors;
};

struct dt_manifest {
    int64_t step, epoch, batch, incarnation; /* incarnation: of the run, from 1 */
    char run_id[DT_ID_MAX], build_id[DT_ID_MAX];
    uint64_t config_hash;
    int n_ranks, global_batch_size;
    char repro[256]; /* device and libraries, on which the bits depend */
    struct dt_manifest_file files[DT_MANIFEST_MAX_FILES];
    int n_files;
};

/* Initialises `w` and prints the text of the file to it; the caller calls dt_jsonw_reset
 * afterwards, also on failure. Bytes of run_id, build_id and repro that are not printable ASCII
 * become '?'. DT_ERR_DATA for too many files or tensors and for names that a load would refuse
 * (duplicates; not printable ASCII; file names with '/' or a leading '.'). */
dt_status dt_manifest_print(struct dt_jsonw *w, const struct dt_manifest *manifest);
/* Reads and checks folder/MANIFEST.json. DT_ERR_NO_INPUT if it is missing, DT_ERR_DATA for anything
 * that dt_manifest_print would not have written. */
dt_status dt_manifest_load(struct dt_manifest *manifest, const char *folder);
void dt_manifest_reset(struct dt_manifest *manifest); /* frees the tensors */

/* DT_ERR_DATA unless the member "format" of a file's root is this one. */
dt_status dt_manifest_check_format(const struct dt_json *root, int format, const char *path);

#endif
