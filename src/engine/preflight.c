/* The checks before training. */
#include "engine/preflight.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <xxhash.h>

#include "base/host.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "base/rng.h"
#include "checkpoint/run_folder.h"
#include "data/digest.h"

enum { N_TRIED = 8, N_TRIED_IN_ALL = 64 }; /* samples of each data set, at most on a rank */

static const char *const set_keys[] = {"data.train", "data.val"};

/* --- The same data on all machines --- */

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
        DT_FAIL_ON_ALL_RANKS(
            DT_ERR_DISAGREE,
            "rank %d (%s) has other bytes in a file of %s than rank 0 (%s): %s; find out "
            "which is right (sha256sum, dtrain verify) and copy it to the other machine, "
            "or put the data on a file system that all share",
            rank, host, key, host0, here);
    DT_FAIL_ON_ALL_RANKS(
        DT_ERR_DISAGREE,
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

static bool sees_the_same(const struct dt_preflight_identity *a,
                          const struct dt_preflight_identity *b)
{
    return strcmp(a->host, b->host) == 0 && a->folder == b->folder;
}

/* Does nothing if all ranks see what rank 0 sees. Otherwise one rank of each view reads. */
static dt_status check_data(struct dt_sets *sets, const struct dt_preflight_identity *ranks)
{
    const enum dt_digest kind =
        sets->config->data.check == DT_CHECK_FULL ? DT_DIGEST_FULL : DT_DIGEST_QUICK;
    const struct dt_dataset *const both[] = {sets->train_set, sets->val_set};
    bool is_one = true, reads = true;
    for (int r = 1; r < sets->ranks.n_ranks; r++)
        is_one = is_one && sees_the_same(&ranks[r], &ranks[0]);
    for (int r = 0; r < sets->ranks.rank; r++)
        reads = reads && !sees_the_same(&ranks[r], &ranks[sets->ranks.rank]);
    for (size_t i = 0; i < DT_COUNT(both) && !is_one; i++)
        if (both[i])
            DT_TRY(dt_same_data_compare(sets->ranks.comm, both[i], set_keys[i], kind, reads));
    return DT_OK;
}

/* --- Agreement of the ranks --- */

void dt_preflight_device(char *out, size_t bytes, const struct dt_engine *engine)
{
    char device[DT_DEVICE_MAX] = "";
    if (engine->device)
        engine->backend->describe(engine->device, device, sizeof device);
    const char *space = strchr(device, ' ');
    snprintf(out, bytes, "%s", space ? space + 1 : device);
}

static void identify(struct dt_preflight_identity *out, const struct dt_engine *engine)
{
    struct stat folder;
    *out = (struct dt_preflight_identity){.config_hash =
                                              XXH3_64bits(engine->config, sizeof *engine->config)};
    char device[DT_DEVICE_MAX], plane[64];
    dt_host_name(out->host);
    dt_preflight_device(device, sizeof device, engine);
    dt_comm_describe_plane(engine->plane, plane, sizeof plane);
    snprintf(out->libraries, sizeof out->libraries, "%s; %s", device, plane);
    if (stat(".", &folder) == 0)
        out->folder = XXH64(&folder.st_ino, sizeof folder.st_ino, (uint64_t)folder.st_dev);
}

static dt_status compare_rank(const struct dt_preflight_identity *ranks, int r)
{
    const struct dt_preflight_identity *a = &ranks[r], *b = &ranks[0];
    if (a->config_hash != b->config_hash)
        DT_FAIL(DT_ERR_DISAGREE,
                "rank %d (%s) has a different configuration (%016" PRIx64
                ") than rank 0 (%s: %016" PRIx64
                "), which sent it; suspect faulty memory or network",
                r, a->host, a->config_hash, b->host, b->config_hash);
    return DT_OK;
}

dt_status dt_preflight_compare(const struct dt_preflight_identity *ranks, int n_ranks,
                               char *warning, size_t bytes)
{
    warning[0] = '\0';
    for (int r = 1; r < n_ranks; r++)
        DT_TRY(compare_rank(ranks, r));
    for (int r = 1; r < n_ranks && !warning[0]; r++)
        if (strcmp(ranks[r].libraries, ranks[0].libraries) != 0)
            snprintf(warning, bytes, "rank %d (%s) uses %s, but rank 0 (%s) uses %s", r,
                     ranks[r].host, ranks[r].libraries, ranks[0].host, ranks[0].libraries);
    return DT_OK;
}

/* Libraries that differ may keep weights, and gradients, in another order in memory, where no sum
 * makes sense. Overwrites the weights. */
static dt_status compare_orders(const struct dt_engine *engine, const char *difference)
{
    struct dt_plan *plan = engine->plan;
    uint64_t own = 0, *ranks = NULL;
    dt_status status = DT_NEW(ranks, (size_t)engine->ranks.n_ranks);
    if (status == DT_OK)
        status = dt_plan_init_params(plan, engine->config->train.seed);
    DT_TRY_OUT(dt_comm_agree(engine->ranks.comm, status));
    if (engine->backend == &dt_backend_cpu)
        own = XXH3_64bits(plan->arena[DT_ARENA_PARAMS], plan->arena_bytes[DT_ARENA_PARAMS]);
    DT_TRY_OUT(dt_comm_gather(engine->ranks.comm, ranks, &own, sizeof own));
    for (int r = 1; r < engine->ranks.n_ranks && status == DT_OK; r++)
        if (ranks[r] != ranks[0])
            status = DT_ERROR(DT_ERR_DISAGREE,
                              "%s: they keep weights in another order and cannot train together; "
                              "use processors of one kind, or set ONEDNN_MAX_CPU_ISA on all ranks "
                              "to what the oldest has",
                              difference);
out:
    free(ranks);
    return status;
}

dt_status dt_preflight_agree(struct dt_engine *engine, struct dt_sets *sets)
{
    struct dt_preflight_identity own, *ranks = NULL;
    char warning[1200];
    dt_status status = DT_NEW(ranks, (size_t)engine->ranks.n_ranks);
    DT_TRY(dt_comm_agree(engine->ranks.comm, status));
    identify(&own, engine);
    DT_TRY_OUT(dt_comm_gather(engine->ranks.comm, ranks, &own, sizeof own));
    status = dt_preflight_compare(ranks, engine->ranks.n_ranks, warning, sizeof warning);
    if (status == DT_OK && warning[0] && engine->plan && engine->plan->arena[DT_ARENA_GRADS])
        status = compare_orders(engine, warning);
    if (status != DT_OK)
        dt_error_set_origin(0); /* all ranks have the same text */
    else if (warning[0] && engine->ranks.rank == 0)
        dt_log(DT_LOG_WARNING, "%s: speed and rounding may differ", warning);
    status = status == DT_OK ? check_data(sets, ranks) : status;
out:
    free(ranks);
    return status;
}

/* --- Trial runs --- */

/* Distinct ids of a set, different on every rank (Floyd's sampling without replacement). */
static int choose_samples(uint32_t ids[N_TRIED], uint32_t size, const struct dt_sets *sets)
{
    const uint32_t share = (uint32_t)(N_TRIED_IN_ALL / sets->ranks.n_ranks);
    const uint32_t max = share < 1 ? 1 : share < N_TRIED ? share : N_TRIED;
    int n = 0;
    struct dt_rng rng;
    /* No training reaches this epoch. */
    dt_rng_init(&rng, sets->config->train.seed, DT_RNG_SHUFFLE, UINT32_MAX,
                (uint32_t)sets->ranks.rank);
    for (uint32_t top = size > max ? size - max : 0; top < size; top++) {
        uint32_t id = dt_rng_below(&rng, top + 1);
        for (int i = 0; i < n; i++)
            if (ids[i] == id)
                id = top;
        ids[n++] = id;
    }
    return n;
}

/* Looks at the images, and tells what all ranks see. Collective. */
static dt_status look(struct dt_image_check *check, const struct dt_sets *sets,
                      const struct dt_dataset *set, const char *key)
{
    struct dt_comm *comm = sets->ranks.comm;
    struct dt_image_notes *notes = &check->notes;
    DT_TRY(dt_comm_agree(comm, dt_dataset_check(check, set)));
    int64_t sums[] = {notes->n, notes->n_bad, notes->n_turned, notes->n_deep};
    double max[] = {notes->n_turned > 0 ? -(double)notes->turned : -HUGE_VAL, (double)notes->peak};
    DT_TRY(dt_comm_sum_i64(comm, sums, DT_COUNT(sums)));
    DT_TRY(dt_comm_max_f64(comm, max, DT_COUNT(max)));
    *notes = (struct dt_image_notes){
        sums[0], sums[1], sums[2], sums[2] > 0 ? -(int64_t)max[0] : 0, sums[3], (int64_t)max[1]};
    return dt_comm_agree(comm, sets->ranks.rank == 0 ? dt_dataset_tell(set, notes, key) : DT_OK);
}

/* Small sets are decoded whole, each rank its share: better now than in the middle of the run. Of
 * others a few samples on every rank; it is enough if one of them all is good. Collective. */
static dt_status check_set(const struct dt_sets *sets, int i, const struct dt_dataset *set,
                           uint64_t *hashes)
{
    enum { MAX_NAMED = 20 };
    const struct dt_ranks *ranks = &sets->ranks;
    const struct dt_config_data *data = &sets->config->data;
    const bool is_whole = hashes || dt_dataset_size(set) <= (uint32_t)data->check_images;
    uint32_t ids[N_TRIED];
    char what[64];
    struct dt_image_check check = {
        .first = (uint32_t)ranks->rank,
        .step = (uint32_t)ranks->n_ranks,
        .n_threads = data->workers > 0 ? data->workers : dt_comm_cpus(ranks->comm),
        .what = what,
        .hashes = hashes,
    };
    const struct dt_names *bad = &check.bad;
    snprintf(what, sizeof what, "checking %s", set_keys[i]);
    if (!is_whole) {
        check.n = (uint32_t)choose_samples(ids, dt_dataset_size(set), sets);
        check.ids = ids;
        check.first = 0;
    }
    dt_status status = look(&check, sets, set, set_keys[i]);
    const int64_t n = check.notes.n, n_bad = check.notes.n_bad; /* on all ranks */
    if (bad->n > 0)
        dt_log(DT_LOG_WARNING,
               "%zu of %u samples of %s could not be decoded; dtrain verify lists all", bad->n,
               (unsigned)check.n, set_keys[i]);
    for (size_t k = 0; k < bad->n && k < MAX_NAMED; k++)
        dt_log(DT_LOG_WARNING, "%s", dt_names_get(bad, k));
    if (status == DT_OK && is_whole)
        status = dt_bad_fraction_check((uint64_t)n_bad, dt_dataset_size(set),
                                       data->max_bad_fraction, i == 0);
    else if (status == DT_OK && n_bad == n)
        status =
            DT_ERROR(DT_ERR_DATA, "none of %" PRId64 " samples of %s could be decoded; one is %s",
                     n, set_keys[i], dt_names_get(bad, 0));
    dt_names_reset(&check.bad);
    return status;
}

/* data.check full: also tells of images of equal bytes. */
static dt_status try_sets(struct dt_sets *sets)
{
    const struct dt_dataset *const both[] = {sets->train_set, sets->val_set};
    struct dt_comm *comm = sets->ranks.comm;
    const size_t n_train = both[0] ? dt_dataset_size(both[0]) : 0;
    const size_t n_all = n_train + (both[1] ? dt_dataset_size(both[1]) : 0);
    uint64_t *hashes = NULL;
    dt_status status = DT_OK;
    if (dt_config_is_synthetic(sets->config))
        return DT_OK;
    if (sets->config->data.check == DT_CHECK_FULL)
        DT_TRY(dt_comm_agree(comm, DT_NEW(hashes, n_all)));
    for (int i = 0; i < 2 && status == DT_OK; i++)
        if (both[i])
            status = check_set(sets, i, both[i], hashes && i ? hashes + n_train : hashes);
    if (status == DT_OK && hashes)
        status = dt_comm_sum_i64(comm, (int64_t *)hashes, (int)n_all);
    if (status == DT_OK && hashes && sets->ranks.rank == 0)
        status = dt_dataset_twins(hashes, both);
    free(hashes);
    return dt_comm_agree(comm, status);
}

dt_status dt_preflight_try(struct dt_engine *engine, struct dt_sets *sets)
{
    dt_status result;
    DT_TRY(dt_plan_test_reduce(engine->plan, &result));
    DT_TRY(dt_comm_agree(engine->ranks.comm, result));
    return try_sets(sets);
}

enum { MAX_CHECKPOINTS = 9, TEXT_BYTES = 16384 /* of a checkpoint, without its tensors */ };

dt_status dt_preflight_space(const struct dt_config *config, uint64_t bytes)
{
    const char *dir = config->output.dir;
    char checkpoints[DT_PATH_MAX];
    int64_t *steps;
    /* One more than are kept, as an old one is removed after a new one is written; capped. */
    int keep = config->checkpoint.keep, n_there;
    int n = (keep < MAX_CHECKPOINTS ? keep : MAX_CHECKPOINTS) + 1 + config->checkpoint.keep_best;
    DT_TRY(dt_file_path(checkpoints, "%s/checkpoints", dir));
    DT_TRY(dt_checkpoint_list(&steps, &n_there, checkpoints));
    free(steps);
    return dt_run_folder_check_space(dir, n > n_there ? n - n_there : 1, bytes + TEXT_BYTES);
}
