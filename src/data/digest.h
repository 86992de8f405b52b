/* Hashes of a data set's files, to find out whether several machines have the same. */
#ifndef DTRAIN_DATA_DIGEST_H
#define DTRAIN_DATA_DIGEST_H

#include "base/file.h"
#include "dtrain/data.h"

enum dt_digest {
    DT_DIGEST_QUICK, /* 64 pieces of at most 64 KiB, spread over the files */
    DT_DIGEST_FULL,  /* a piece is a whole file */
};

/* Number of pieces; 0 if the files belong to another data set, or there are none. */
uint32_t dt_digest_pieces(const struct dt_dataset *dataset, enum dt_digest kind);
/* The file of a piece and its size: "a.tar (10240 bytes)", or "a.tar (missing)". */
void dt_digest_describe(char out[DT_PATH_MAX + 64], const struct dt_dataset *dataset,
                        enum dt_digest kind, uint32_t piece);
/* Reads the pieces in several threads and hashes each. Shows progress. Main thread. */
dt_status dt_digest_make(uint64_t *hashes, const struct dt_dataset *dataset, enum dt_digest kind);

#endif
