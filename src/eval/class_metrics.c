/* The collector, and the metrics that follow from the confusion matrix or from the scores. */
#include "eval/class_metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { MAX_CLASSES = 30000 }; /* the matrix then has 7 GB */

/* --- One image --- */

int dt_predict_class(const float *logits, int n)
{
    int best = 0;
    for (int c = 0; c < n; c++) {
        if (isnan(logits[c]))
            return -1;
        if (logits[c] > logits[best])
            best = c;
    }
    return best;
}

static double largest(const float *logits, int n)
{
    double max = (double)logits[0];
    for (int c = 1; c < n; c++)
        max = fmax(max, (double)logits[c]);
    return max;
}

/* In this form equal differences of logits give equal probabilities. */
void dt_softmax(double *out, const float *logits, int n)
{
    double max = largest(logits, n), sum = 0;
    for (int c = 0; c < n; c++)
        sum += out[c] = exp((double)logits[c] - max);
    for (int c = 0; c < n; c++)
        out[c] /= sum;
}

double dt_softmax_largest(const float *logits, int n)
{
    double max = largest(logits, n), sum = 0;
    for (int c = 0; c < n; c++)
        sum += exp((double)logits[c] - max);
    return 1 / sum;
}

/* log(sum(exp(logits))) */
static double log_sum(const float *logits, int n)
{
    double max = largest(logits, n), sum = 0;
    for (int c = 0; c < n; c++)
        sum += exp((double)logits[c] - max);
    return max + log(sum);
}

void dt_average_logits(float *logits, const float *others, int n)
{
    double log_all = log_sum(logits, n), log_others = log_sum(others, n);
    for (int c = 0; c < n; c++) {
        double a = (double)logits[c] - log_all, b = (double)others[c] - log_others;
        double low = a < b ? a : b, high = a < b ? b : a;
        logits[c] = (float)(high + log1p(exp(low - high)) - log(2));
    }
}

/* --- Collecting --- */

dt_status dt_class_counts_create(struct dt_class_counts **counts, int n_classes, size_t max_rows)
{
    dt_status status = DT_OK;
    struct dt_class_counts *made = NULL;
    *counts = NULL;
    if (n_classes > MAX_CLASSES)
        DT_FAIL(DT_ERR_CONFIG,
                "%d classes are too many for a confusion matrix, at most %d are possible; "
                "choose loss, top1 and top5 in eval.metrics",
                n_classes, MAX_CLASSES);
    DT_TRY(DT_NEW(made, 1));
    made->n_classes = n_classes;
    made->max_rows = max_rows;
    DT_TRY_OUT(DT_NEW(made->confusion, (size_t)n_classes * (size_t)(n_classes + 1)));
    if (n_classes == 2)
        DT_TRY_OUT(DT_NEW(made->scores, max_rows));
    *counts = made;
    return DT_OK;
out:
    dt_class_counts_destroy(made);
    return status;
}

void dt_class_counts_destroy(struct dt_class_counts *counts)
{
    if (!counts)
        return;
    free(counts->confusion);
    free(counts->scores);
    free(counts);
}

void dt_class_counts_clear(struct dt_class_counts *counts)
{
    size_t n = (size_t)counts->n_classes;
    memset(counts->confusion, 0, n * (n + 1) * sizeof *counts->confusion);
    counts->n_rows = 0;
    counts->loss = 0;
    counts->n = counts->n_finite = counts->top1 = counts->top5 = 0;
}

/* The place of a label is the number of classes that beat it: with a larger logit, or an equal one
 * and a smaller index. */
int dt_class_counts_add(struct dt_class_counts *counts, const float *logits, int label)
{
    const int n = counts->n_classes;
    double p[2] = {0};
    if (counts->scores && label >= 0)
        dt_softmax(p, logits, 2);
    if (counts->scores)
        counts->scores[counts->n_rows] = (struct dt_score){p[1], label};
    counts->n_rows++;
    if (label < 0)
        return -1;
    const int predicted = dt_predict_class(logits, n);
    const double loss = log_sum(logits, n) - (double)logits[label];
    int place = 0;
    for (int c = 0; c < n; c++)
        place += logits[c] > logits[label] || (logits[c] == logits[label] && c < label);
    counts->confusion[(size_t)label * (size_t)(n + 1) + (size_t)(predicted < 0 ? n : predicted)]++;
    counts->n++;
    counts->n_finite += isfinite(loss);
    counts->loss += isfinite(loss) ? loss : 0;
    counts->top1 += predicted >= 0 && place < 1;
    counts->top5 += predicted >= 0 && place < 5;
    return predicted;
}

/* --- Metrics --- */

static double ratio(int64_t part, int64_t whole)
{
    return whole > 0 ? (double)part / (double)whole : 0;
}

struct dt_class_metrics dt_class_counts_of(const struct dt_class_counts *counts, int class)
{
    const size_t n = (size_t)counts->n_classes, c = (size_t) class;
    const int64_t hits = counts->confusion[c * (n + 1) + c];
    struct dt_class_metrics m = {0};
    for (size_t i = 0; i < n; i++) {
        m.support += counts->confusion[c * (n + 1) + i];
        m.n_predicted += counts->confusion[i * (n + 1) + c];
    }
    m.support += counts->confusion[c * (n + 1) + n];
    m.precision = ratio(hits, m.n_predicted);
    m.recall = ratio(hits, m.support);
    m.f1 = ratio(2 * hits, m.support + m.n_predicted);
    return m;
}

static double recall_of(const struct dt_class_counts *counts, int class)
{
    const struct dt_class_metrics m = dt_class_counts_of(counts, class);
    return m.support > 0 ? m.recall : NAN;
}

/* Recall is averaged over the classes that have images, F1 over those that have images or
 * predictions. */
void dt_class_counts_metrics(double value[DT_N_METRICS], const struct dt_class_counts *counts,
                             const struct dt_ranking *ranking)
{
    double recalls = 0, f1s = 0;
    int n_recalls = 0, n_f1s = 0;
    for (int c = 0; c < counts->n_classes; c++) {
        const struct dt_class_metrics m = dt_class_counts_of(counts, c);
        recalls += m.recall;
        f1s += m.f1;
        n_recalls += m.support > 0;
        n_f1s += m.support > 0 || m.n_predicted > 0;
    }
    value[DT_METRIC_BALANCED_ACCURACY] = 100 * recalls / n_recalls;
    value[DT_METRIC_MACRO_F1] = 100 * f1s / n_f1s;
    if (counts->n_classes != 2)
        return;
    value[DT_METRIC_AUC] = ranking->auc;
    value[DT_METRIC_AVERAGE_PRECISION] = ranking->average_precision;
    value[DT_METRIC_SENSITIVITY] = 100 * recall_of(counts, 1);
    value[DT_METRIC_SPECIFICITY] = 100 * recall_of(counts, 0);
}

/* --- Metrics of all thresholds on a score --- */

/* Sorts by falling score; rows without an image come last. */
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

/* One walk over the groups of equal scores, from the highest to the lowest; counts are integers, so
 * the result does not depend on the order of the images. */
struct dt_ranking dt_rank_scores(struct dt_score *scores, size_t n)
{
    struct dt_ranking ranking = {NAN, NAN, NAN, NAN, NAN};
    struct walk w = {.best = INT64_MIN};
    bool has_nan = false;
    for (size_t i = 0; i < n; i++) {
        if (scores[i].label < 0)
            continue;
        w.total[scores[i].label]++;
        has_nan = has_nan || isnan(scores[i].score);
    }
    if (has_nan || w.total[1] == 0)
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
