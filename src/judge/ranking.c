/* Metrics of all thresholds on a score. One walk over the groups of equal scores, from the highest
 * to the lowest; counts are integers, so the result does not depend on the order of the images. */
#include <math.h>
#include <stdlib.h>

#include "judge/judge.h"

/* By falling score; rows without an image come last. */
static int by_score(const void *a, const void *b)
{
    const struct dt_score *x = a, *y = b;
    if ((x->label < 0) != (y->label < 0))
        return x->label < 0 ? 1 : -1;
    return (x->score < y->score) - (x->score > y->score);
}

struct walk {
    int64_t total[2], above[2]; /* images of both classes: all, and those of higher groups */
    int64_t twice_pairs;        /* 2 x pairs in the right order + pairs with equal scores */
    int64_t best;               /* Youden index x total[0] x total[1] */
    double precisions;          /* at each positive */
};

static void add_group(struct dt_ranking *ranking, struct walk *w, double score,
                      const int64_t group[2])
{
    w->twice_pairs += group[0] * (2 * w->above[1] + group[1]);
    w->above[0] += group[0];
    w->above[1] += group[1];
    w->precisions += (double)group[1] * (double)w->above[1] / (double)(w->above[0] + w->above[1]);
    int64_t youden = w->above[1] * w->total[0] - w->above[0] * w->total[1];
    if (youden <= w->best)
        return;
    w->best = youden;
    ranking->threshold = score;
    ranking->sensitivity = (double)w->above[1] / (double)w->total[1];
    ranking->specificity = (double)(w->total[0] - w->above[0]) / (double)w->total[0];
}

/* False if a score is NaN. */
static bool count_classes(struct walk *w, const struct dt_score *scores, size_t n)
{
    bool ok = true;
    for (size_t i = 0; i < n; i++) {
        if (scores[i].label < 0)
            continue;
        w->total[scores[i].label]++;
        ok = ok && !isnan(scores[i].score);
    }
    return ok;
}

struct dt_ranking dt_judge_rank(struct dt_score *scores, size_t n)
{
    struct dt_ranking ranking = {NAN, NAN, NAN, NAN, NAN};
    struct walk w = {.best = INT64_MIN};
    if (!count_classes(&w, scores, n) || w.total[1] == 0)
        return ranking;
    qsort(scores, n, sizeof *scores, by_score);
    const size_t n_images = (size_t)(w.total[0] + w.total[1]);
    for (size_t i = 0; i < n_images;) {
        const double score = scores[i].score;
        int64_t group[2] = {0};
        for (; i < n_images && scores[i].score == score; i++)
            group[scores[i].label]++;
        add_group(&ranking, &w, score, group);
    }
    ranking.average_precision = w.precisions / (double)w.total[1];
    if (w.total[0] == 0)
        ranking.threshold = ranking.sensitivity = NAN; /* as the specificity */
    ranking.auc = (double)w.twice_pairs / (2 * (double)w.total[0] * (double)w.total[1]);
    return ranking;
}
