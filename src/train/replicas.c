/* Hashes of the replicas, put side by side; and the times of the ranks, put side by side. */
#include "train/replicas.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "dtrain/mem.h"
#include "dtrain/report.h"

/* --- What a rank holds --- */

struct digest {
    uint64_t hash;
    char not_finite[128];        /* a tensor that has such a value, "" = none */
    char where[2 * DT_HOST_MAX]; /* host, and the device where it has a name */
};

static void describe_place(const struct dt_session *s, char *out, size_t bytes)
{
    char host[DT_HOST_MAX] = "unknown host", device[DT_IDENTITY_MAX] = "";
    (void)gethostname(host, sizeof host - 1);
    s->backend->identity(s->device, device);
    snprintf(out, bytes, "%s%s%s", host, device[0] ? ", GPU " : "", device);
}

/* An exponent of ones carries into the top bit. */
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
    static const enum dt_arena arenas[] = {DT_ARENA_PARAMS, DT_ARENA_MOMENTUM};
    const struct dt_tensor *t = &plan->graph->tensor[tensor];
    size_t count = dt_tensor_elements(t);
    for (size_t i = 0; i < DT_COUNT(arenas); i++) {
        DT_TRY(dt_plan_get(plan, arenas[i], tensor, values));
        XXH3_64bits_update(state, values, count * sizeof *values);
        if (!digest->not_finite[0] && !is_finite(values, count))
            snprintf(digest->not_finite, sizeof digest->not_finite, "%s of %s",
                     arenas[i] == DT_ARENA_PARAMS ? "the value" : "the momentum", t->name);
    }
    return DT_OK;
}

static size_t largest_param(const struct dt_graph *g)
{
    size_t most = 0;
    for (int t = 0; t < g->n_tensors; t++)
        if (g->tensor[t].role == DT_PARAM && dt_tensor_elements(&g->tensor[t]) > most)
            most = dt_tensor_elements(&g->tensor[t]);
    return most;
}

/* Of logical values in fp32, so ranks need not agree on memory formats. */
static dt_status make_digest(struct digest *digest, const struct dt_session *s)
{
    struct dt_plan *plan = s->plan;
    XXH3_state_t *state = XXH3_createState();
    float *values = NULL;
    dt_status status = DT_OK;
    if (!state)
        DT_FAIL(DT_ERR_MEMORY, "out of memory: the state of a hash");
    XXH3_64bits_reset(state);
    DT_TRY_OUT(DT_NEW(values, largest_param(plan->graph)));
    for (int t = 0; t < plan->graph->n_tensors; t++)
        if (plan->place[t].arena == DT_ARENA_PARAMS)
            DT_TRY_OUT(add_tensor(digest, state, plan, t, values));
    digest->hash = XXH3_64bits_digest(state);
    describe_place(s, digest->where, sizeof digest->where);
out:
    free(values);
    XXH3_freeState(state);
    return status;
}

/* --- The verdict --- */

/* The rank whose hash most others share; -1 if no hash belongs to more than half of the ranks. */
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

/* "rank 1 (host) and rank 2 (host)": those that differ from rank `majority`, all if it is -1. */
static int name_odd(char *out, size_t bytes, const struct digest *digests, int n, int majority)
{
    int n_odd = 0, n_named = 0;
    size_t used = 0;
    for (int i = 0; i < n; i++)
        n_odd += majority < 0 || digests[i].hash != digests[majority].hash;
    for (int i = 0; i < n && used < bytes; i++) {
        if (majority >= 0 && digests[i].hash == digests[majority].hash)
            continue;
        const char *before = n_named == 0 ? "" : n_named == n_odd - 1 ? " and " : ", ";
        used += (size_t)snprintf(out + used, bytes - used, "%srank %d (%s)", before, i,
                                 digests[i].where);
        n_named++;
    }
    return n_odd;
}

static const char *good_or_none(const char *last_good)
{
    return last_good[0] ? last_good : "none";
}

static dt_status judge_finite(const struct digest *digests, int n, int64_t step,
                              const char *last_good)
{
    for (int i = 0; i < n; i++)
        if (digests[i].not_finite[0])
            DT_FAIL(DT_ERR_NUMERICAL,
                    "%s is not finite on rank %d (%s) after step %" PRId64
                    "; nothing is saved any more, the last good checkpoint is %s; if a run from "
                    "there fails at the same step, lower schedule.lr, else suspect that machine",
                    digests[i].not_finite, i, digests[i].where, step, good_or_none(last_good));
    return DT_OK;
}

static dt_status judge_equal(const struct digest *digests, int n, int64_t step,
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
            "; nothing is saved any more, the last good checkpoint is %s; test the memory of that "
            "machine, and run again without it",
            odd, others, step, good_or_none(last_good));
}

dt_status dt_replicas_compare(struct dt_session *s, int64_t step, const char *last_good)
{
    struct digest own = {0}, *digests = NULL;
    dt_status status = DT_OK;
    DT_TRY(dt_session_agree(s, make_digest(&own, s)));
    DT_TRY(dt_session_agree(s, DT_NEW(digests, (size_t)s->n_ranks)));
    DT_TRY_OUT(dt_comm_gather(s->comm, digests, &own, sizeof own));
    if (s->rank == 0) /* who knows `last_good` */
        status = judge_finite(digests, s->n_ranks, step, last_good);
    if (s->rank == 0 && status == DT_OK)
        status = judge_equal(digests, s->n_ranks, step, last_good);
    DT_TRY_OUT(dt_session_agree(s, status));
out:
    free(digests);
    return status;
}

/* --- Stragglers --- */

enum { WINDOW_STEPS = 100, PATIENCE = 3 };
static const double slow = 1.3;

struct window {
    double data_s, work_s;
};

/* Of all ranks, one window. */
struct comparison {
    double median_s, median_data_s;
    int rank; /* that counts as slow, -1 = none */
};

void dt_stragglers_init(struct dt_stragglers *stragglers, int64_t step)
{
    *stragglers = (struct dt_stragglers){.next_step = step + WINDOW_STEPS, .rank = -1};
}

static double own_s(const struct window *w)
{
    return w->data_s + w->work_s;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The lower one of two, so that a slow half of the ranks is slow too. */
static double lower_median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, ascending);
    return values[(n - 1) / 2];
}

/* On a device with queues the host's time of a pass contains waiting for others; the least of all
 * ranks is what the work takes at most. Only a rank slow in its data is found there. */
static void leave_out_waiting(struct window *windows, int n)
{
    double least = windows[0].work_s;
    for (int i = 1; i < n; i++)
        least = windows[i].work_s < least ? windows[i].work_s : least;
    for (int i = 0; i < n; i++)
        windows[i].work_s = least;
}

/* `scratch` holds n values. A rank that was slow before comes first. */
static struct comparison compare(const struct window *windows, int n, int before, double *scratch)
{
    struct comparison c = {.rank = 0};
    for (int i = 0; i < n; i++)
        scratch[i] = windows[i].data_s;
    c.median_data_s = lower_median(scratch, n);
    for (int i = 0; i < n; i++) {
        scratch[i] = own_s(&windows[i]);
        if (scratch[i] > own_s(&windows[c.rank]))
            c.rank = i;
    }
    c.median_s = lower_median(scratch, n);
    if (before >= 0 && own_s(&windows[before]) > slow * c.median_s)
        c.rank = before;
    if (!(own_s(&windows[c.rank]) > slow * c.median_s))
        c.rank = -1;
    return c;
}

static bool is_to_be_named(struct dt_stragglers *stragglers, int rank)
{
    if (rank < 0 || rank != stragglers->rank) {
        stragglers->warned = false;
        stragglers->n_windows = 0;
    }
    stragglers->rank = rank;
    if (rank >= 0)
        stragglers->n_windows++;
    return !stragglers->warned && stragglers->n_windows >= PATIENCE;
}

/* The others wait for what it takes longer than they do. */
static dt_status name_straggler(struct dt_session *s, const struct window *windows,
                                const struct comparison *c)
{
    const struct window *w = &windows[c->rank];
    double late_s = own_s(w) - c->median_s, late_data_s = w->data_s - c->median_data_s;
    char host[DT_HOST_MAX] = "", text[DT_HOST_MAX + 256];
    if (s->rank == c->rank)
        (void)gethostname(host, sizeof host - 1);
    DT_TRY(dt_comm_bcast(s->comm, host, sizeof host, c->rank));
    snprintf(text, sizeof text,
             "rank %d (%s) takes %.1f times as long for a step as the median of the ranks, most of "
             "it in %s; %.0f %% of the job's time is spent waiting for it",
             c->rank, host, own_s(w) / c->median_s, 2 * late_data_s > late_s ? "data" : "compute",
             100 * late_s / own_s(w));
    const struct dt_field fields[] = {DT_TEXT("text", text)};
    dt_report_event(s->report, "warning", fields, DT_COUNT(fields));
    return DT_OK;
}

static dt_status compare_ranks(struct dt_stragglers *stragglers, struct dt_session *s,
                               struct window *windows, double *scratch)
{
    const struct window own = {stragglers->data_s, stragglers->work_s};
    DT_TRY(dt_comm_gather(s->comm, windows, &own, sizeof own));
    if (!dt_session_has_times(s))
        leave_out_waiting(windows, s->n_ranks);
    const struct comparison c = compare(windows, s->n_ranks, stragglers->rank, scratch);
    if (!is_to_be_named(stragglers, c.rank))
        return DT_OK;
    stragglers->warned = true;
    return name_straggler(s, windows, &c);
}

dt_status dt_stragglers_step(struct dt_stragglers *stragglers, struct dt_session *s, int64_t step,
                             double data_s, double work_s)
{
    struct window *windows = NULL;
    double *scratch = NULL;
    dt_status status = DT_OK;
    stragglers->data_s += data_s;
    stragglers->work_s += work_s;
    if (s->n_ranks == 1 || step < stragglers->next_step)
        return DT_OK;
    status = DT_NEW(windows, (size_t)s->n_ranks);
    if (status == DT_OK)
        status = DT_NEW(scratch, (size_t)s->n_ranks);
    DT_TRY_OUT(dt_session_agree(s, status));
    DT_TRY_OUT(compare_ranks(stragglers, s, windows, scratch));
    stragglers->data_s = stragglers->work_s = 0;
    stragglers->next_step = step + WINDOW_STEPS;
out:
    free(windows);
    free(scratch);
    return status;
}
