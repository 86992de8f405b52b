#include "cuda/tune.h"

#include <math.h>
#include <stdbool.h>

#include "base/sort.h"

/* Running at full load for warm_s brings the clock of a GPU up; the host idled it while it asked
 * for the ways. A way slower than the best by the factor `hopeless` is dropped. */
static const double warm_s = 0.010, round_s = 0.001, hopeless = 1.3;
static const double shortest_s = 1e-6; /* of a run, if less is measured */
static const double most_s = 2;        /* for one search */
static const double first_share = 0.8; /* of the budget; the rest is for measuring the best again */
/* With an even number of rounds the median round of each way is at the same time on average. */
enum { MAX_WARM_RUNS = 1000, MAX_RUNS = 10, N_ROUNDS = 6 };

/* INFINITY for a way that cannot be used. */
static dt_status measure(const struct dt_tune_work *work, int way, int n, double *seconds)
{
    dt_status status = work->time(work->context, way, n, seconds);
    if (status != DT_ERR_DEVICE && status != DT_ERR_MEMORY)
        return status;
    *seconds = INFINITY;
    return DT_OK;
}

static int runs_for(double seconds, double run_s, int most)
{
    double n = ceil(seconds / fmax(run_s, shortest_s));
    return n > most ? most : n < 1 ? 1 : (int)n;
}

static dt_status warm_up(const struct dt_tune_work *work, int way, bool *warm)
{
    double run_s = 0;
    int n = 1;
    for (double left_s = warm_s; left_s > 0; n = runs_for(left_s, run_s, MAX_WARM_RUNS)) {
        DT_TRY(measure(work, way, n, &run_s));
        if (isinf(run_s))
            return DT_OK;
        left_s -= n * fmax(run_s, shortest_s);
    }
    *warm = true;
    return DT_OK;
}

/* A round lasts about round_s. */
static dt_status measure_round(const struct dt_tune_work *work, int way, double run_s, double *out)
{
    return measure(work, way, runs_for(round_s, run_s, MAX_RUNS), out);
}

static bool is_before(const struct dt_tune_rank *a, const struct dt_tune_rank *b)
{
    return a->seconds < b->seconds || (a->seconds == b->seconds && a->way < b->way);
}

/* Adds one to the sorted places[0 .. n); the last of DT_TUNE_PLACES falls out. */
static void insert(struct dt_tune_rank *places, int n, struct dt_tune_rank added)
{
    int i = n < DT_TUNE_PLACES ? n : DT_TUNE_PLACES - 1;
    if (n == DT_TUNE_PLACES && !is_before(&added, &places[i]))
        return;
    for (; i > 0 && is_before(&added, &places[i - 1]); i--)
        places[i] = places[i - 1];
    places[i] = added;
}

static dt_status measure_all(const struct dt_tune_work *work, double end_s,
                             struct dt_tune_rank *places, int *n_places)
{
    bool warm = false;
    for (int way = 0; way < work->n_ways; way++) {
        double s = INFINITY;
        if (*n_places > 0 && work->clock_s(work->context) > end_s)
            break;
        if (!warm)
            DT_TRY(warm_up(work, way, &warm));
        if (warm)
            DT_TRY(measure(work, way, 1, &s));
        if (isfinite(s) && s <= hopeless * places[0].seconds)
            DT_TRY(measure_round(work, way, s, &s));
        if (isinf(s))
            continue;
        insert(places, *n_places, (struct dt_tune_rank){way, s});
        *n_places += *n_places < DT_TUNE_PLACES;
    }
    return DT_OK;
}

/* The median, or INFINITY if the way failed in a round. */
static double median_round(double *s, int n)
{
    dt_sort_f64(s, (size_t)n);
    return isinf(s[n - 1]) ? INFINITY : dt_percentile_f64(s, (size_t)n, 0.5);
}

/* Measures in the order A B C, C B A, A B C, ...; each way gets the median of its rounds. */
static dt_status measure_best(const struct dt_tune_work *work, double end_s,
                              struct dt_tune_rank *places, int n)
{
    double s[DT_TUNE_PLACES][N_ROUNDS];
    struct dt_tune_rank best[DT_TUNE_PLACES];
    int n_rounds = 0;
    for (; n_rounds < N_ROUNDS && work->clock_s(work->context) <= end_s; n_rounds++)
        for (int i = 0; i < n; i++) {
            int k = n_rounds % 2 ? n - 1 - i : i;
            DT_TRY(measure_round(work, places[k].way, places[k].seconds, &s[k][n_rounds]));
        }
    for (int k = 0; k < n && n_rounds > 0; k++)
        insert(best, k, (struct dt_tune_rank){places[k].way, median_round(s[k], n_rounds)});
    for (int k = 0; k < n && n_rounds > 0; k++)
        places[k] = best[k];
    return DT_OK;
}

double dt_tune_budget(double left_s, int n_left)
{
    return fmin(left_s / n_left, most_s);
}

dt_status dt_tune(struct dt_tune_rank places[DT_TUNE_PLACES], const struct dt_tune_work *work)
{
    const double begin_s = work->clock_s(work->context), end_s = begin_s + work->budget_s;
    int n_places = 0, n_best = 0;
    for (int i = 0; i < DT_TUNE_PLACES; i++)
        places[i] = (struct dt_tune_rank){-1, INFINITY};
    DT_TRY(measure_all(work, begin_s + first_share * work->budget_s, places, &n_places));
    while (n_best < n_places && places[n_best].seconds <= hopeless * places[0].seconds)
        n_best++;
    if (n_best > 1)
        DT_TRY(measure_best(work, end_s, places, n_best));
    for (int i = 0; i < DT_TUNE_PLACES; i++)
        if (isinf(places[i].seconds)) /* failed when it was measured again */
            places[i].way = -1;
    return DT_OK;
}
