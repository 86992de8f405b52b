/* Asynchronous training: rank 0 keeps the weights and serves, the other ranks work. A worker
 * computes gradients of its own images, pushes them with the version of the weights they belong to,
 * and pulls the new weights; it waits for rank 0, but not for other workers. A version is the
 * number of updates before it, and the staleness of an update is the number of versions that came
 * between: stale synchronous parallel (Ho et al. 2013) bounds it. Rank 0 takes no push after
 * which the others, pushing in the order of age, would exceed comm.max_staleness; the one that is
 * ahead waits. With W workers staleness is about W - 1, and with a bound of at least that the
 * oldest gradient is always acceptable, so nobody waits for ever.
 *
 * An update has 1 / W of the images of a synchronous step, and 1 / W of its learning rate.
 *
 * Ranks synchronise every train.sync_every steps: only there do they agree on anything, evaluate
 * and save. Not deterministic. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "train/run.h"

enum { NOTHING_MORE = -1, NOT_COMPUTING = -1, STALENESS_ROWS = 64 };

struct dt_async {
    int64_t version;                   /* of this rank's weights */
    int64_t n_updates[STALENESS_ROWS]; /* rank 0: by staleness; the last row: or more */
    int64_t *based_on;                 /* rank 0: version with which a rank computes */
    bool *waits;                       /* rank 0: to push */
};

static dt_status begin(struct run *r)
{
    const size_t n = (size_t)r->engine.ranks.n_ranks;
    DT_TRY(DT_NEW(r->async, 1));
    DT_TRY(DT_NEW(r->async->based_on, n));
    return DT_NEW(r->async->waits, n);
}

static void end(struct run *r)
{
    if (!r->async)
        return;
    free(r->async->based_on);
    free(r->async->waits);
    free(r->async);
}

/* --- Rank 0 --- */

/* How stale the gradient of `r` becomes if `rank` pushes now and the others in the order of age. */
static int64_t staleness_after(const struct dt_async *async, const struct dt_ranks *ranks, int rank,
                               int r)
{
    const int64_t *based_on = async->based_on;
    int64_t version = async->version + 1;
    for (int o = 1; o < ranks->n_ranks; o++)
        version += o != rank && based_on[o] != NOT_COMPUTING &&
                   (based_on[o] < based_on[r] || (based_on[o] == based_on[r] && o < r));
    return version - based_on[r];
}

static bool may_push(const struct dt_async *async, const struct dt_engine *engine, int rank)
{
    const int bound = engine->config->comm.max_staleness;
    const int64_t max = bound > 0 ? bound : 2 * (int64_t)engine->ranks.n_workers;
    for (int r = 1; r < engine->ranks.n_ranks; r++)
        if (r != rank && async->based_on[r] != NOT_COMPUTING &&
            staleness_after(async, &engine->ranks, rank, r) > max)
            return false;
    return async->waits[rank];
}

/* The worker that may push and has waited for the most versions; 0 = none. */
static int find_next(const struct dt_async *async, const struct dt_engine *engine)
{
    int next = 0;
    for (int r = 1; r < engine->ranks.n_ranks; r++)
        if (may_push(async, engine, r) && (next == 0 || async->based_on[r] < async->based_on[next]))
            next = r;
    return next;
}

static dt_status move_weights(struct dt_async *async, struct dt_engine *engine, int to)
{
    DT_TRY(dt_comm_copy(engine->ranks.comm, &async->version, sizeof async->version, 0, to));
    return dt_comm_copy(engine->ranks.comm, engine->plan->arena[DT_ARENA_PARAMS],
                        dt_plan_trained_bytes(engine->plan), 0, to);
}

static dt_status move_gradients(struct dt_engine *engine, int from)
{
    return dt_comm_copy(engine->ranks.comm, dt_plan_gradients(engine->plan),
                        dt_plan_trained_bytes(engine->plan), from, 0);
}

static dt_status take_push(struct dt_async *async, struct dt_engine *engine, int from, int64_t step)
{
    const int64_t staleness = async->version - async->based_on[from], last = STALENESS_ROWS - 1;
    struct dt_scalars scalars = dt_engine_scalars(engine, step);
    scalars.lr /= (float)engine->ranks.n_workers;
    DT_TRY(move_gradients(engine, from));
    DT_TRY(dt_plan_apply(engine->plan, &scalars));
    async->n_updates[staleness < last ? staleness : last]++;
    async->based_on[from] = ++async->version;
    async->waits[from] = false;
    dt_pulse_beat(&dt_pulse_main);
    return move_weights(async, engine, from);
}

static dt_status serve(struct dt_async *async, struct dt_engine *engine, int64_t step)
{
    const int64_t first = async->version;
    int n_left = engine->ranks.n_workers;
    for (int r = 1; r < engine->ranks.n_ranks; r++)
        async->based_on[r] = first;
    while (n_left > 0) {
        int64_t note;
        int from;
        DT_TRY(dt_comm_take_note(engine->ranks.comm, &note, &from));
        async->waits[from] = note != NOTHING_MORE;
        if (note == NOTHING_MORE) {
            async->based_on[from] = NOT_COMPUTING;
            n_left--;
        }
        for (int r = find_next(async, engine); r > 0; r = find_next(async, engine))
            DT_TRY(take_push(async, engine, r,
                             step + (async->version - first) / engine->ranks.n_workers));
    }
    return DT_OK;
}

/* --- Workers --- */

/* Computes the gradients of a step, pushes them, and pulls the new weights. */
static dt_status work(struct run *r, int64_t step)
{
    struct dt_scalars scalars = dt_engine_scalars(&r->engine, step);
    for (int pass = 0; pass < r->engine.stage.split.n_passes; pass++) {
        const struct dt_batch *batch = NULL;
        DT_TRY(dt_run_next_batch(r, &batch));
        dt_run_enter_compute(r);
        DT_TRY(dt_engine_train(&r->engine, &r->sets, batch, &scalars, pass));
        dt_lap(&r->metrics.laps, &r->engine, DT_LAP_COMPUTE);
    }
    DT_TRY(dt_comm_send_note(r->engine.ranks.comm, r->async->version, 0));
    DT_TRY(move_gradients(&r->engine, r->engine.ranks.rank));
    DT_TRY(move_weights(r->async, &r->engine, r->engine.ranks.rank));
    return dt_plan_refresh(r->engine.plan);
}

/* --- All --- */

/* A worker that fails leaves early. At the end all ranks get the same weights and statistics. */
static dt_status step(struct run *r, int64_t n_steps)
{
    struct dt_async *async = r->async;
    struct dt_engine *engine = &r->engine;
    struct dt_comm *comm = engine->ranks.comm;
    dt_status own = dt_save_policy_poll(&r->save_policy);
    dt_pulse_enter(&dt_pulse_main, DT_SECTION_COMPUTE);
    if (engine->ranks.rank == 0)
        DT_TRY(serve(async, engine, r->at.step));
    for (int64_t i = 0; i < n_steps && engine->ranks.rank > 0 && own == DT_OK; i++)
        own = work(r, r->at.step + i);
    if (engine->ranks.rank > 0)
        DT_TRY(dt_comm_send_note(comm, NOTHING_MORE, 0));
    DT_TRY(dt_run_agree(r, own));
    DT_TRY(dt_comm_bcast(comm, &async->version, sizeof async->version, 0));
    return dt_plan_sync_weights(engine->plan);
}

/* The last time it is logged too. */
static void report(struct run *r, bool is_last)
{
    const struct dt_async *async = r->async;
    struct dt_jsonw w = {0};
    int64_t n = 0, sum = 0, max = 0;
    for (int64_t i = 0; i < STALENESS_ROWS; i++) {
        n += async->n_updates[i];
        sum += i * async->n_updates[i];
        max = async->n_updates[i] > 0 ? i : max;
    }
    dt_jsonw_begin(&w, NULL, '[');
    for (int64_t i = 0; i <= max; i++)
        dt_jsonw_integer(&w, NULL, async->n_updates[i]);
    dt_jsonw_close(&w, ']');
    if (r->engine.ranks.rank == 0 && n > 0 && dt_jsonw_end(&w) == DT_OK) {
        const double mean = (double)sum / (double)n;
        const struct dt_field fields[] = {DT_INT("step", r->at.step), DT_INT("updates", n),
                                          DT_NUM("mean", mean), DT_INT("max", max),
                                          DT_JSONV("histogram", w.text)};
        dt_events_emit(r->engine.events, "staleness", fields, DT_COUNT(fields));
        if (is_last)
            dt_log(DT_LOG_INFO,
                   "staleness of %" PRId64 " updates: mean %.2f, at most %" PRId64
                   "; updates with staleness 0, 1, ...: %s",
                   n, mean, max, w.text);
    }
    dt_jsonw_reset(&w);
}

const struct dt_mode_steps dt_async_steps = {
    .begin = begin,
    .step = step,
    .report = report,
    .end = end,
};
