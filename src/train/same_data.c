#include "train/same_data.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { FILE_BYTES = DT_PATH_MAX + 64 };

/* All ranks have the same message. */
static dt_status refuse(struct dt_comm *comm, const struct dt_dataset *set, const char *key,
                        enum dt_digest kind, int rank, uint32_t at)
{
    char here[FILE_BYTES] = "no more files", there[FILE_BYTES] = "no more files";
    bool has = at < dt_digest_pieces(set, kind);
    if (has && dt_comm_rank(comm) == rank)
        dt_digest_describe(there, set, kind, at);
    if (has && dt_comm_rank(comm) == 0)
        dt_digest_describe(here, set, kind, at);
    DT_TRY(dt_comm_bcast(comm, here, sizeof here, 0));
    DT_TRY(dt_comm_bcast(comm, there, sizeof there, rank));
    const char *host = dt_comm_host(comm, rank), *host0 = dt_comm_host(comm, 0);
    if (strcmp(here, there) == 0)
        DT_FAIL_ALIKE(DT_ERR_DISAGREE,
                      "rank %d (%s) has other bytes in a file of %s than rank 0 (%s): %s; find out "
                      "which is right (sha256sum, dtrain verify) and copy it to the other machine, "
                      "or put the data on a file system that all share",
                      rank, host, key, host0, here);
    DT_FAIL_ALIKE(DT_ERR_DISAGREE,
                  "rank %d (%s) has different files in %s than rank 0 (%s); the first is "
                  "%s on %s and %s on %s; copy the data again, or put them on a file system that "
                  "all share",
                  rank, host, key, host0, there, host, here, host0);
}

/* The lowest rank whose pieces differ from rank 0's, 0 if none, and the first such piece. */
static dt_status find_difference(int *rank, uint32_t *at, struct dt_comm *comm, const uint64_t *own,
                                 uint32_t n_own, const uint64_t *first, uint32_t n)
{
    const int size = dt_comm_size(comm), self = dt_comm_rank(comm);
    uint32_t n_both = n_own < n ? n_own : n, i = 0;
    while (own && i < n_both && own[i] == first[i])
        i++;
    double lowest = own && (i < n_both || n_own != n) ? size - self : 0;
    DT_TRY(dt_comm_max_f64(comm, &lowest, 1));
    *rank = lowest > 0 ? size - (int)lowest : 0;
    *at = i;
    return dt_comm_bcast(comm, at, sizeof *at, *rank);
}

dt_status dt_same_data_compare(struct dt_comm *comm, const struct dt_dataset *set, const char *key,
                               enum dt_digest kind, bool reads)
{
    uint64_t *own = NULL, *first = NULL;
    uint32_t n_own = dt_digest_pieces(set, kind), n = n_own, at = 0;
    dt_status status = DT_OK;
    int rank = 0;
    DT_TRY(dt_comm_bcast(comm, &n, sizeof n, 0));
    status = DT_NEW(first, (size_t)n + 1);
    if (status == DT_OK && reads)
        status = DT_NEW(own, (size_t)n_own + 1);
    if (status == DT_OK && reads)
        status = dt_digest_make(own, set, kind);
    DT_TRY_OUT(dt_comm_agree(comm, status));
    if (dt_comm_rank(comm) == 0)
        memcpy(first, own, n * sizeof *own);
    DT_TRY_OUT(dt_comm_bcast(comm, first, n * sizeof *first, 0));
    DT_TRY_OUT(find_difference(&rank, &at, comm, own, n_own, first, n));
    if (rank > 0)
        status = refuse(comm, set, key, kind, rank, at);
out:
    free(own);
    free(first);
    return status;
}

static dt_status compare_sets(struct dt_sets *sets, enum dt_digest kind, bool reads)
{
    const struct dt_dataset *const both[] = {sets->train_set, sets->val_set};
    static const char *const keys[] = {"data.train", "data.val"};
    for (size_t i = 0; i < DT_COUNT(both); i++)
        if (both[i])
            DT_TRY(dt_same_data_compare(sets->ranks.comm, both[i], keys[i], kind, reads));
    return DT_OK;
}

dt_status dt_same_data_check(struct dt_sets *sets)
{
    const bool full = sets->config->data.check == DT_CHECK_FULL;
    double n_alone = dt_comm_local_size(sets->ranks.comm) == sets->ranks.n_ranks;
    DT_TRY(dt_comm_max_f64(sets->ranks.comm, &n_alone, 1));
    if (n_alone > 0)
        return DT_OK;
    return compare_sets(sets, full ? DT_DIGEST_FULL : DT_DIGEST_QUICK,
                        dt_comm_local_rank(sets->ranks.comm) == 0);
}

dt_status dt_same_data_check_names(struct dt_sets *sets)
{
    return compare_sets(sets, DT_DIGEST_NAMES, true);
}
