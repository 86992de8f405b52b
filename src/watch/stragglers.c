/* Compares the step times of the ranks. */
#include "watch/stragglers.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/sort.h"

enum { WINDOW_STEPS = 100, PATIENCE = 3 };
static const double slow = 1.3;

struct window {
    double data_s, work_s;
};

/* Result of comparing all ranks over one window. */
struct comparison {
    double median_s, median_data_s;
    int rank; /* the slow rank, -1 = none */
};

void dt_stragglers_init(struct dt_stragglers *stragglers, struct dt_comm *comm,
                        struct dt_events *events, bool has_queues, int64_t step)
{
    *stragglers = (struct dt_stragglers){.comm = comm,
                                         .events = events,
                                         .has_queues = has_queues,
                                         .next_step = step + WINDOW_STEPS,
                                         .rank = -1};
}

static double own_s(const struct window *w)
{
    return w->data_s + w->work_s;
}

/* Lower median, so that ranks still count as slow if half of them are. */
static double lower_median(double *values, int n)
{
    dt_sort_f64(values, (size_t)n);
    return values[(n - 1) / 2];
}

/* On a device with queues the host's time of a pass includes waiting for others, so the minimum
 * over the ranks is used as everybody's work. Only a rank with slow data is detected there. */
static void leave_out_waiting(struct window *windows, int n)
{
    double min = windows[0].work_s;
    for (int i = 1; i < n; i++)
        min = windows[i].work_s < min ? windows[i].work_s : min;
    for (int i = 0; i < n; i++)
        windows[i].work_s = min;
}

/* `scratch` holds n values. `before`, the rank that was slow before, takes precedence. */
static struct comparison compare_windows(const struct window *windows, int n, int before,
                                         double *scratch)
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

/* The others wait for as long as the step of this rank exceeds the median. */
static void name_straggler(struct dt_stragglers *s, const struct window *windows,
                           const struct comparison *c)
{
    const struct window *w = &windows[c->rank];
    double late_s = own_s(w) - c->median_s, late_data_s = w->data_s - c->median_data_s;
    char text[DT_HOST_MAX + 256];
    snprintf(text, sizeof text,
             "rank %d (%s) takes %.1f times as long per step as the median rank, mostly in %s; "
             "%.0f %% of the job's time is spent waiting for it",
             c->rank, dt_comm_host(s->comm, c->rank), own_s(w) / c->median_s,
             2 * late_data_s > late_s ? "data" : "compute", 100 * late_s / own_s(w));
    const struct dt_field fields[] = {DT_TEXT("text", text)};
    dt_events_emit(s->events, "warning", fields, DT_COUNT(fields));
}

/* Every rank gets here in the same step. They agree that all have memory before any of them
 * gathers: otherwise one that has failed would leave the others waiting for it. */
dt_status dt_stragglers_step(struct dt_stragglers *s, int64_t step, double data_s, double work_s)
{
    struct window *windows = NULL;
    double *scratch = NULL;
    dt_status status = DT_OK;
    const int n_ranks = dt_comm_size(s->comm);
    s->data_s += data_s;
    s->work_s += work_s;
    if (n_ranks == 1 || step < s->next_step)
        return DT_OK;
    const struct window own = {s->data_s, s->work_s};
    status = DT_NEW(windows, (size_t)n_ranks);
    if (status == DT_OK)
        status = DT_NEW(scratch, (size_t)n_ranks);
    DT_TRY_OUT(dt_comm_agree(s->comm, status));
    DT_TRY_OUT(dt_comm_gather(s->comm, windows, &own, sizeof own));
    if (s->has_queues)
        leave_out_waiting(windows, n_ranks);
    const struct comparison c = compare_windows(windows, n_ranks, s->rank, scratch);
    if (is_to_be_named(s, c.rank)) {
        s->warned = true;
        name_straggler(s, windows, &c);
    }
    s->data_s = s->work_s = 0;
    s->next_step = step + WINDOW_STEPS;
out:
    free(windows);
    free(scratch);
    return status;
}
