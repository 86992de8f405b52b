#include "cuda/tune.h"

#include <math.h>
#include <stdbool.h>

#include "base/sort.h"

/* Running at full load for warm_s brings the clock of a GPU up; the host idled it while it asked
 * for the variants. A variant slower than the best by the factor `hopeless` is dropped. */
static const double warm_s = 0.010, round_s = 0.001, hopeless = 1.3;
static const double shortest_s = 1e-6; /* of a run, if less is measured */
static const double max_s = 2;         /* for one search */
static const double first_share = 0.8; /* of the budget; the rest is for measuring the best again */
/* With an even number of rounds the median round of each variant is at the same time on average. */
enum { MAX_WARM_RUNS = 1000, MAX_RUNS = 10, N_ROUNDS = 6 };

/* INFINITY for a variant that cannot be used. */
static dt_status measure(const struct dt_tune_work *work, int variant, int n, double *seconds)
{
    dt_status status = work->time(work->context, variant, n, seconds);
    if (status != DT_ERR_DEVICE && status != DT_ERR_MEMORY)
        return status;
    *seconds = INFINITY;
    return DT_OK;
}

static int runs_for(double seconds, double run_s, int max)
{
    double n = ceil(seconds / fmax(run_s, shortest_s));
    return n > max ? max : n < 1 ? 1 : (int)n;
}

static dt_status warm_up(const struct dt_tune_work *work, int variant, bool *warm)
{
    double run_s = 0;
    int n = 1;
    for (double left_s = warm_s; left_s > 0; n = runs_for(left_s, run_s, MAX_WARM_RUNS)) {
        DT_TRY(measure(work, variant, n, &run_s));
        if (isinf(run_s))
            return DT_OK;
        left_s -= n * fmax(run_s, shortest_s);
    }
    *warm = true;
    return DT_OK;
}

/* A round lasts about round_s. */
static dt_status measure_round(const struct dt_tune_work *work, int variant, double run_s,
                               double *out)
{
    return measure(work, variant, runs_for(round_s, run_s, MAX_RUNS), out);
}

static bool is_before(const struct dt_tune_rank *a, const struct dt_tune_rank *b)
{
    return a->seconds < b->seconds || (a->seconds == b->seconds && a->variant < b->variant);
}

/* Adds one to the sorted ranking[0 .. n); the last of DT_TUNE_RANKING falls out. */
static void insert(struct dt_tune_rank *ranking, int n, struct dt_tune_rank added)
{
    int i = n < DT_TUNE_RANKING ? n : DT_TUNE_RANKING - 1;
    if (n == DT_TUNE_RANKING && !is_before(&added, &ranking[i]))
        return;
    for (; i > 0 && is_before(&added, &ranking[i - 1]); i--)
        ranking[i] = ranking[i - 1];
    ranking[i] = added;
}

static dt_status measure_all(const struct dt_tune_work *work, double end_s,
                             struct dt_tune_rank *ranking, int *n_places)
{
    bool warm = false;
    for (int variant = 0; variant < work->n_variants; variant++) {
        double s = INFINITY;
        if (*n_places > 0 && work->clock_s(work->context) > end_s)
            break;
        if (!warm)
            DT_TRY(warm_up(work, variant, &warm));
        if (warm)
            DT_TRY(measure(work, variant, 1, &s));
        if (isfinite(s) && s <= hopeless * ranking[0].seconds)
            DT_TRY(measure_round(work, variant, s, &s));
        if (isinf(s))
            continue;
        insert(ranking, *n_places, (struct dt_tune_rank){variant, s});
        *n_places += *n_places < DT_TUNE_RANKING;
    }
    return DT_OK;
}

/* The median, or INFINITY if the variant failed in a round. */
static double median_round(double *s, int n)
{
    dt_sort_f64(s, (size_t)n);
    return isinf(s[n - 1]) ? INFINITY : dt_percentile_f64(s, (size_t)n, 0.5);
}

/* Measures in the order A B C, C B A, A B C, ...; each variant gets the median of its rounds. */
static dt_status measure_best(const struct dt_tune_work *work, double end_s,
                              struct dt_tune_rank *ranking, int n)
{
    double s[DT_TUNE_RANKING][N_ROUNDS];
    struct dt_tune_rank best[DT_TUNE_RANKING];
    int n_rounds = 0;
    for (; n_rounds < N_ROUNDS && work->clock_s(work->context) <= end_s; n_rounds++)
        for (int i = 0; i < n; i++) {
            int k = n_rounds % 2 ? n - 1 - i : i;
            DT_TRY(measure_round(work, ranking[k].variant, ranking[k].seconds, &s[k][n_rounds]));
        }
    for (int k = 0; k < n && n_rounds > 0; k++)
        insert(best, k, (struct dt_tune_rank){ranking[k].variant, median_round(s[k], n_rounds)});
    for (int k = 0; k < n && n_rounds > 0; k++)
        ranking[k] = best[k];
    return DT_OK;
}

double dt_tune_budget(double left_s, int n_left)
{
    return fmin(left_s / n_left, max_s);
}

dt_status dt_tune(struct dt_tune_rank ranking[DT_TUNE_RANKING], const struct dt_tune_work *work)
{
    const double begin_s = work->clock_s(work->context), end_s = begin_s + work->budget_s;
    int n_places = 0, n_best = 0;
    for (int i = 0; i < DT_TUNE_RANKING; i++)
        ranking[i] = (struct dt_tune_rank){-1, INFINITY};
    DT_TRY(measure_all(work, begin_s + first_share * work->budget_s, ranking, &n_places));
    while (n_best < n_places && ranking[n_best].seconds <= hopeless * ranking[0].seconds)
        n_best++;
    if (n_best > 1)
        DT_TRY(measure_best(work, end_s, ranking, n_best));
    for (int i = 0; i < DT_TUNE_RANKING; i++)
        if (isinf(ranking[i].seconds)) /* failed when it was measured again */
            ranking[i].variant = -1;
    return DT_OK;
}
