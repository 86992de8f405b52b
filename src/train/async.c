#include "train/async.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pulse.h"

enum { NOTHING_MORE = -1, NOT_COMPUTING = -1 };

dt_status dt_async_init(struct dt_async *async, const struct dt_ranks *ranks)
{
    *async = (struct dt_async){0};
    DT_TRY(DT_NEW(async->based_on, (size_t)ranks->n_ranks));
    return DT_NEW(async->waits, (size_t)ranks->n_ranks);
}

void dt_async_reset(struct dt_async *async)
{
    free(async->based_on);
    free(async->waits);
    *async = (struct dt_async){0};
}

static int64_t most_stale(const struct dt_engine *engine)
{
    const int n = engine->config->comm.max_staleness;
    return n > 0 ? n : 2 * (int64_t)engine->ranks.n_workers;
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
    for (int r = 1; r < engine->ranks.n_ranks; r++)
        if (r != rank && async->based_on[r] != NOT_COMPUTING &&
            staleness_after(async, &engine->ranks, rank, r) > most_stale(engine))
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
    const int64_t staleness = async->version - async->based_on[from], last = DT_STALENESS_ROWS - 1;
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

dt_status dt_async_serve(struct dt_async *async, struct dt_engine *engine, int64_t step)
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

dt_status dt_async_push(struct dt_async *async, struct dt_engine *engine)
{
    DT_TRY(dt_comm_send_note(engine->ranks.comm, async->version, 0));
    DT_TRY(move_gradients(engine, engine->ranks.rank));
    return move_weights(async, engine, engine->ranks.rank);
}

dt_status dt_async_leave(const struct dt_ranks *ranks)
{
    return dt_comm_send_note(ranks->comm, NOTHING_MORE, 0);
}

/* --- All --- */

dt_status dt_async_meet(struct dt_async *async, struct dt_engine *engine)
{
    DT_TRY(dt_comm_bcast(engine->ranks.comm, &async->version, sizeof async->version, 0));
    return dt_plan_meet(engine->plan);
}

void dt_async_report(const struct dt_async *async, const struct dt_ranks *ranks,
                     struct dt_report *report, int64_t step, bool is_last)
{
    struct dt_jsonw w;
    int64_t n = 0, sum = 0, most = 0;
    for (int64_t i = 0; i < DT_STALENESS_ROWS; i++) {
        n += async->n_updates[i];
        sum += i * async->n_updates[i];
        most = async->n_updates[i] > 0 ? i : most;
    }
    dt_jsonw_init(&w, false);
    dt_jsonw_begin(&w, NULL, '[');
    for (int64_t i = 0; i <= most; i++)
        dt_jsonw_integer(&w, NULL, async->n_updates[i]);
    dt_jsonw_close(&w, ']');
    if (ranks->rank == 0 && n > 0 && dt_jsonw_end(&w) == DT_OK) {
        const double mean = (double)sum / (double)n;
        const struct dt_field fields[] = {DT_INT("step", step), DT_INT("updates", n),
                                          DT_NUM("mean", mean), DT_INT("max", most),
                                          DT_JSONV("histogram", w.text)};
        dt_report_event(report, "staleness", fields, DT_COUNT(fields));
        if (is_last)
            dt_log(DT_LOG_INFO,
                   "staleness of %" PRId64 " updates: mean %.2f, at most %" PRId64
                   "; updates with staleness 0, 1, ...: %s",
                   n, mean, most, w.text);
    }
    dt_jsonw_reset(&w);
}
