/* Judges cases from standard input, for comparison with scikit-learn. A case is the number of
 * classes and of images, then for each image its label and logits. Prints a line of JSON per case;
 * null stands for NaN. */
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/mem.h"
#include "eval/class_metrics.h"

static dt_status read_images(struct dt_class_counts *counts, int n)
{
    float *logits;
    int label;
    DT_TRY(DT_NEW(logits, (size_t)counts->n_classes));
    for (int i = 0; i < n; i++) {
        bool ok = scanf("%d", &label) == 1;
        for (int c = 0; c < counts->n_classes; c++)
            ok = ok && scanf("%f", &logits[c]) == 1;
        if (!ok)
            DT_FAIL(DT_ERR_DATA, "a case is too short");
        dt_class_counts_add(counts, logits, label);
    }
    free(logits);
    return DT_OK;
}

static void print_classes(struct dt_jsonw *w, const struct dt_class_counts *counts)
{
    dt_jsonw_begin(w, "classes", '[');
    for (int c = 0; c < counts->n_classes; c++) {
        struct dt_class_metrics m = dt_class_counts_of(counts, c);
        dt_jsonw_begin(w, NULL, '[');
        dt_jsonw_number(w, NULL, m.precision);
        dt_jsonw_number(w, NULL, m.recall);
        dt_jsonw_number(w, NULL, m.f1);
        dt_jsonw_integer(w, NULL, m.support);
        dt_jsonw_close(w, ']');
    }
    dt_jsonw_close(w, ']');
    dt_jsonw_begin(w, "confusion", '[');
    for (int i = 0; i < counts->n_classes * (counts->n_classes + 1); i++)
        dt_jsonw_integer(w, NULL, counts->confusion[i]);
    dt_jsonw_close(w, ']');
}

static void print_metrics(struct dt_jsonw *w, const struct dt_class_counts *counts)
{
    double value[DT_N_METRICS] = {0};
    struct dt_ranking ranking = dt_rank_scores(counts->scores, counts->scores ? counts->n_rows : 0);
    dt_class_counts_metrics(value, counts, &ranking);
    value[DT_METRIC_LOSS] = counts->loss / (double)counts->n_finite;
    value[DT_METRIC_TOP1] = 100 * (double)counts->top1 / (double)counts->n;
    value[DT_METRIC_TOP5] = 100 * (double)counts->top5 / (double)counts->n;
    for (enum dt_metric m = 0; m < DT_N_METRICS; m++)
        dt_jsonw_number(w, dt_metric_name(m), value[m] / (dt_metric_is_percent(m) ? 100 : 1));
    dt_jsonw_number(w, "threshold", ranking.threshold);
    dt_jsonw_number(w, "best_sensitivity", ranking.sensitivity);
    dt_jsonw_number(w, "best_specificity", ranking.specificity);
}

static dt_status evaluate_case(int n_classes, int n)
{
    struct dt_class_counts *counts;
    struct dt_jsonw w = {0};
    dt_status status = DT_OK;
    DT_TRY(dt_class_counts_create(&counts, n_classes, (size_t)n));
    DT_TRY_OUT(read_images(counts, n));
    dt_jsonw_begin(&w, NULL, '{');
    print_metrics(&w, counts);
    print_classes(&w, counts);
    dt_jsonw_close(&w, '}');
    DT_TRY_OUT(dt_jsonw_end(&w));
    puts(w.text);
out:
    dt_jsonw_reset(&w);
    dt_class_counts_destroy(counts);
    return status;
}

int main(void)
{
    int n_classes, n;
    dt_status status = DT_OK;
    while (status == DT_OK && scanf("%d %d", &n_classes, &n) == 2)
        status = evaluate_case(n_classes, n);
    if (status != DT_OK)
        fprintf(stderr, "judge_tool: %s\n", dt_error_text());
    return status;
}
