/* How good a classifier is: counts and scores of single images, and the metrics made from them.
 * Pure computation in host memory; no threads of its own.
 *
 * Metrics are defined as in scikit-learn with zero_division=0 (tests/interop/test_sklearn.py
 * compares), except that one which the images leave undefined is NaN: scikit-learn then warns and
 * gives 0, or fails. Of two classes, class 1 is the positive one. */
#ifndef DTRAIN_EVAL_CLASS_METRICS_H
#define DTRAIN_EVAL_CLASS_METRICS_H

#include <stdint.h>
#include <stdio.h>

#include "base/status.h"
#include "dtrain/config.h"

struct dt_jsonw;

/* --- One image: logits of n classes --- */

/* The class with the largest logit, the first of equal ones as in torch.argmax; -1 if a logit is
 * NaN (torch.argmax gives its index): such an image has no prediction and counts as wrong. */
int dt_predict_class(const float *logits, int n);
/* Softmax in double precision: out[n]. */
void dt_softmax(double *out, const float *logits, int n);
double dt_softmax_largest(const float *logits, int n); /* of out[n] */
/* Replaces the logits by the logarithms of the mean of both images' probabilities. */
void dt_average_logits(float *logits, const float *others, int n);

/* --- All images --- */

struct dt_score {
    double score;  /* probability of class 1 */
    int32_t label; /* -1 = no image */
};

struct dt_class_counts {
    int n_classes;
    int64_t *confusion; /* n_classes x (n_classes + 1); row = label, column = prediction, the last
                           one for images without a prediction */
    struct dt_score *scores; /* two classes: one for each row added; else NULL */
    size_t n_rows, max_rows;
    /* The same as in struct dt_counters (backend.h), computed in double. */
    double loss;
    int64_t n_finite, n, top1, top5;
};

/* For at most max_rows rows between two calls of dt_class_counts_clear. DT_ERR_CONFIG for too many
 * classes. */
dt_status dt_class_counts_create(struct dt_class_counts **counts, int n_classes, size_t max_rows);
void dt_class_counts_destroy(struct dt_class_counts *counts); /* accepts NULL */
void dt_class_counts_clear(struct dt_class_counts *counts);
/* Adds a row of a batch; one with label -1 is no image and counts in n_rows only. Returns the
 * prediction, or -1. */
int dt_class_counts_add(struct dt_class_counts *counts, const float *logits, int label);

/* --- Metrics, as fractions --- */

struct dt_class_metrics {
    double precision, recall, f1; /* 0 where they are 0 / 0 */
    int64_t support, n_predicted; /* images with this label; with this prediction */
};
struct dt_class_metrics dt_class_counts_of(const struct dt_class_counts *counts, int class);

/* The best that thresholds on the score can achieve; NaN if a score is. */
struct dt_ranking {
    double auc; /* area under the ROC curve: P(score of a positive > of a negative), ties half */
    double average_precision; /* sum over thresholds of precision x step of recall; NaN without
                                 positives */
    /* Best Youden index, sensitivity + specificity - 1, for the rule score >= threshold; of equal
     * ones that with the highest threshold. NaN, like auc, unless both classes occur. */
    double threshold, sensitivity, specificity;
};
/* Sorts the scores. */
struct dt_ranking dt_rank_scores(struct dt_score *scores, size_t n);

/* Sets the values of all metrics that are not made from the counters; per cent where
 * dt_metric_is_percent. `ranking` may be NULL unless there are two classes. */
void dt_class_counts_metrics(double value[DT_N_METRICS], const struct dt_class_counts *counts,
                             const struct dt_ranking *ranking);

/* --- Output; names: n_classes texts --- */

/* A table with a line per class, then what sums it up. */
void dt_class_counts_print(FILE *out, const struct dt_class_counts *counts,
                           const struct dt_ranking *ranking, const char *const *names);
/* The same as an array of objects, with the class that images of the class are most often taken
 * for, and their number. */
void dt_class_counts_put_table(struct dt_jsonw *w, const struct dt_class_counts *counts,
                               const char *const *names);
/* The confusion matrix in CSV (RFC 4180) and as a picture, shaded by the share of the row: a row
 * per label, a column per prediction. In CSV a last column without a name counts images without a
 * prediction, if there are any. */
void dt_class_counts_print_csv(FILE *out, const struct dt_class_counts *counts,
                               const char *const *names);
void dt_class_counts_print_svg(FILE *out, const struct dt_class_counts *counts,
                               const char *const *names);

/* A table of single images in CSV: its header, and a row, whose last n_classes + 1 fields are empty
 * if the prediction is -1. */
void dt_predictions_print_head(FILE *out, int n_classes, const char *const *names);
void dt_predictions_print_row(FILE *out, const char *file, int label, int prediction,
                              const double *probabilities, int n_classes, const char *const *names);

/* The `top` most probable classes with their probabilities, separated by tabs: a line for each, or
 * with a file name all on one line after it; none if the prediction is -1. */
void dt_predictions_print_top(FILE *out, const char *file, int top, int prediction,
                              const double *probabilities, int n_classes, const char *const *names);
/* The same as an object: {image: FILE, classes: [{class: NAME, probability: P}, ...]}. */
void dt_predictions_put_top(struct dt_jsonw *w, const char *file, int top, int prediction,
                            const double *probabilities, int n_classes, const char *const *names);

#endif
