/* Compares hashes of the replicas. */
#include "engine/engine.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/host.h"
#include "base/mem.h"
#include "base/text.h"

/* --- Digest of a rank --- */

struct digest {
    uint64_t hash;
    char not_finite[128];        /* a tensor with a non-finite value, "" = none */
    char where[2 * DT_HOST_MAX]; /* host, and the device if it has a name */
};

/* Adding one to an exponent of all ones carries into the top bit. */
static bool is_finite(const float *values, size_t count)
{
    uint32_t carries = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        carries |= (bits & 0x7f800000) + 0x00800000;
    }
    return carries >> 31 == 0;
}

static dt_status add_tensor(struct digest *digest, XXH3_state_t *state, struct dt_plan *plan,
                            int tensor, float *values)
{
    const struct dt_tensor *t = &plan->graph->tensor[tensor];
    size_t count = dt_tensor_elements(t);
    for (enum dt_arena a = 0; a < DT_N_ARENAS; a++) {
        bool is_average = a == DT_ARENA_EMA && dt_plan_has_ema(plan);
        if (!is_average && !dt_plan_is_replicated(plan, a))
            continue;
        DT_TRY(dt_plan_get(plan, a, tensor, values));
        XXH3_64bits_update(state, values, count * sizeof *values);
        if (!digest->not_finite[0] && !is_finite(values, count))
            snprintf(digest->not_finite, sizeof digest->not_finite, "the %s of %s",
                     a == DT_ARENA_PARAMS ? "value" : dt_arena_name(a), t->name);
    }
    return DT_OK;
}

/* Hashes logical values in fp32, so ranks may use different memory formats. */
static dt_status make_digest(struct digest *digest, const struct dt_engine *engine)
{
    struct dt_plan *plan = engine->plan;
    XXH3_state_t *state = XXH3_createState();
    char host[DT_HOST_MAX], device[DT_IDENTITY_MAX] = "";
    float *values = NULL;
    dt_status status = DT_OK;
    if (!state)
        DT_FAIL(DT_ERR_MEMORY, "out of memory: the state of a hash");
    XXH3_64bits_reset(state);
    DT_TRY_OUT(DT_NEW(values, dt_graph_largest(plan->graph, DT_PARAM)));
    for (int t = 0; t < plan->graph->n_tensors; t++)
        if (plan->place[t].arena == DT_ARENA_PARAMS)
            DT_TRY_OUT(add_tensor(digest, state, plan, t, values));
    digest->hash = XXH3_64bits_digest(state);
    dt_host_name(host);
    engine->backend->identity(engine->device, device);
    snprintf(digest->where, sizeof digest->where, "%s%s%s", host, device[0] ? ", GPU " : "",
             device);
out:
    free(values);
    XXH3_freeState(state);
    return status;
}

/* --- The result --- */

/* The first rank whose hash more than half of the ranks share; -1 if there is no such hash. */
static int find_majority(const struct digest *digests, int n)
{
    for (int i = 0; i < n; i++) {
        int n_same = 0;
        for (int k = 0; k < n; k++)
            n_same += digests[k].hash == digests[i].hash;
        if (2 * n_same > n)
            return i;
    }
    return -1;
}

/* "rank 1 (host) and rank 2 (host)": the ranks that differ from rank `majority`, all ranks if it is
 * -1. Returns their number. */
static int name_odd(char *out, size_t bytes, const struct digest *digests, int n, int majority)
{
    int n_odd = 0, n_named = 0;
    struct dt_text text = dt_text_in(out, bytes);
    for (int i = 0; i < n; i++)
        n_odd += majority < 0 || digests[i].hash != digests[majority].hash;
    for (int i = 0; i < n; i++) {
        if (majority >= 0 && digests[i].hash == digests[majority].hash)
            continue;
        const char *before = n_named == 0 ? "" : n_named == n_odd - 1 ? " and " : ", ";
        dt_text_add(&text, "%srank %d (%s)", before, i, digests[i].where);
        n_named++;
    }
    return n_odd;
}

static const char *good_or_none(const char *last_good)
{
    return last_good[0] ? last_good : "none";
}

static dt_status check_finite(const struct digest *digests, int n, int64_t step,
                              const char *last_good)
{
    for (int i = 0; i < n; i++)
        if (digests[i].not_finite[0])
            DT_FAIL(DT_ERR_NUMERICAL,
                    "%s is not finite on rank %d (%s) after step %" PRId64
                    "; nothing more is saved; the last good checkpoint is %s; if a run from there "
                    "fails at the same step, lower schedule.lr, otherwise suspect that machine",
                    digests[i].not_finite, i, digests[i].where, step, good_or_none(last_good));
    return DT_OK;
}

static dt_status check_equal(const struct digest *digests, int n, int64_t step,
                             const char *last_good)
{
    char odd[4096];
    int majority = find_majority(digests, n);
    int n_odd = name_odd(odd, sizeof odd, digests, n, majority);
    if (n_odd == 0)
        return DT_OK;
    char others[64] = "each other, and no hash has a majority";
    if (majority >= 0)
        snprintf(others, sizeof others, "the %d other%s", n - n_odd, n - n_odd > 1 ? "s" : "");
    DT_FAIL(DT_ERR_DIVERGED,
            "weights or momentum of %s differ from %s after step %" PRId64
            "; nothing more is saved; the last good checkpoint is %s; test the memory of that "
            "machine, and run again without it",
            odd, others, step, good_or_none(last_good));
}

dt_status dt_replicas_compare(struct dt_engine *engine, int64_t step, const char *last_good)
{
    struct digest own = {0}, *digests = NULL;
    dt_status status = DT_OK;
    DT_TRY(dt_comm_agree(engine->ranks.comm, make_digest(&own, engine)));
    DT_TRY(dt_comm_agree(engine->ranks.comm, DT_NEW(digests, (size_t)engine->ranks.n_ranks)));
    DT_TRY_OUT(dt_comm_gather(engine->ranks.comm, digests, &own, sizeof own));
    if (engine->ranks.rank == 0) /* only rank 0 knows `last_good` */
        status = check_finite(digests, engine->ranks.n_ranks, step, last_good);
    if (engine->ranks.rank == 0 && status == DT_OK)
        status = check_equal(digests, engine->ranks.n_ranks, step, last_good);
    DT_TRY_OUT(dt_comm_agree(engine->ranks.comm, status));
out:
    free(digests);
    return status;
}
