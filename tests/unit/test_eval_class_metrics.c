/* Judging single images and small sets by hand; tests/interop/test_sklearn.py compares large ones.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "eval/class_metrics.h"
#include "eval/predictions.h"
#include "test.h"

TEST(prediction)
{
    const float ties[] = {1, 3, 3, 2}, nan_first[] = {NAN, 1, 2, 3}, nan_last[] = {3, 2, 1, NAN};
    assert_int_equal(dt_predict_class(ties, 4), 1);
    assert_int_equal(dt_predict_class(nan_first, 4), -1);
    assert_int_equal(dt_predict_class(nan_last, 4), -1);
}

/* The mean of the probabilities, also of those far below the smallest float. */
TEST(average)
{
    float a[] = {0, 2, -300}, b[] = {1, -1, 0};
    double pa[3], pb[3], mean[3];
    dt_softmax(pa, a, 3);
    dt_softmax(pb, b, 3);
    dt_average_logits(a, b, 3);
    dt_softmax(mean, a, 3);
    for (int c = 0; c < 3; c++)
        assert_true(fabs(mean[c] - (pa[c] + pb[c]) / 2) < 1e-7);
    float x[] = {0, -2000}, y[] = {0, -1000};
    dt_average_logits(x, y, 2);
    assert_true(fabs((double)x[1] + 1000 + log(2)) < 1e-3);
}

/* An image without a prediction is wrong, has no loss and leaves the ranking undefined; a blank row
 * counts nowhere. */
TEST(nan)
{
    const float good[] = {0, 1}, bad[] = {1, NAN};
    struct dt_class_counts *counts;
    double value[DT_N_METRICS];
    assert_int_equal(dt_class_counts_create(&counts, 2, 4), DT_OK);
    for (int round = 0; round < 2; round++) { /* clear forgets all */
        dt_class_counts_clear(counts);
        dt_class_counts_add(counts, good, 1);
        dt_class_counts_add(counts, good, 0);
        dt_class_counts_add(counts, bad, 0);
        dt_class_counts_add(counts, bad, -1);
    }
    assert_int_equal(counts->n_rows, 4);
    assert_int_equal(counts->n, 3);
    assert_int_equal(counts->n_finite, 2);
    assert_int_equal(counts->top1, 1);
    assert_int_equal(counts->top5, 2);
    const int64_t confusion[] = {0, 1, 1, 0, 1, 0};
    assert_memory_equal(counts->confusion, confusion, sizeof confusion);
    struct dt_ranking ranking = dt_rank_scores(counts->scores, counts->n_rows);
    dt_class_counts_metrics(value, counts, &ranking);
    assert_true(isnan(value[DT_METRIC_AUC]) && isnan(ranking.threshold));
    assert_true(fabs(value[DT_METRIC_BALANCED_ACCURACY] - 50) < 1e-9);
    assert_true(value[DT_METRIC_SPECIFICITY] == 0);
    dt_class_counts_destroy(counts);
}

/* Any order of the same images, with blank rows between them, gives the same bits. */
TEST(order)
{
    enum { N = 301 };
    struct dt_score scores[N + 50], turned[N];
    for (int i = 0; i < N; i++)
        turned[N - 1 - i] = scores[i] = (struct dt_score){i * 37 % 23 / 23.0, i * i % 7 < 2};
    for (int i = N; i < N + 50; i++)
        scores[i] = (struct dt_score){0.5, -1};
    struct dt_score last = scores[0];
    scores[0] = scores[N + 49];
    scores[N + 49] = last;
    struct dt_ranking a = dt_rank_scores(scores, N + 50), b = dt_rank_scores(turned, N);
    assert_memory_equal(&a, &b, sizeof a);
    assert_true(a.auc > 0.3 && a.auc < 0.7);
}

TEST(empty)
{
    struct dt_class_counts *counts;
    double value[DT_N_METRICS];
    assert_int_equal(dt_class_counts_create(&counts, 2, 0), DT_OK);
    struct dt_ranking ranking = dt_rank_scores(counts->scores, 0);
    dt_class_counts_metrics(value, counts, &ranking);
    for (enum dt_metric m = DT_METRIC_TOP5 + 1; m <= DT_METRIC_SPECIFICITY; m++)
        assert_true(isnan(value[m]));
    dt_class_counts_destroy(counts);
    assert_int_equal(dt_class_counts_create(&counts, 1000000, 0), DT_ERR_CONFIG);
    assert_null(counts);
}

/* --- Output --- */

static const char *const names[] = {"a, \"b\"", "<&>"};

static struct dt_class_counts *small_judge(void)
{
    struct dt_class_counts *counts;
    const float rows[][2] = {{0, 1}, {2, 0}, {NAN, 0}};
    assert_int_equal(dt_class_counts_create(&counts, 2, 3), DT_OK);
    for (int i = 0; i < 3; i++)
        dt_class_counts_add(counts, rows[i], i == 1);
    return counts;
}

TEST(csv)
{
    char *text;
    size_t bytes;
    const double p[] = {0.25, 0.75};
    struct dt_class_counts *counts = small_judge();
    FILE *out = open_memstream(&text, &bytes);
    dt_class_counts_print_csv(out, counts, names);
    dt_predictions_print_head(out, 2, names);
    dt_predictions_print_row(out, "x\ny", 0, 1, p, 2, names);
    dt_predictions_print_row(out, "z", 1, -1, NULL, 2, names);
    fclose(out);
    assert_string_equal(text, "label,\"a, \"\"b\"\"\",<&>,\n"
                              "\"a, \"\"b\"\"\",0,1,1\n"
                              "<&>,1,0,0\n"
                              "file,label,prediction,\"p_a, \"\"b\"\"\",p_<&>\n"
                              "\"x\ny\",\"a, \"\"b\"\"\",<&>,0.25,0.75\n"
                              "z,<&>,,,\n");
    free(text);
    dt_class_counts_destroy(counts);
}

/* Of classes that a class is equally often taken for, the first. */
TEST(table)
{
    struct dt_jsonw w = {0};
    struct dt_class_counts *counts;
    static const char *const three[] = {"a", "b", "c\""};
    const float rows[][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {NAN, 0, 0}};
    assert_int_equal(dt_class_counts_create(&counts, 3, 8), DT_OK);
    for (int i = 0; i < 4; i++)
        assert_int_equal(dt_class_counts_add(counts, rows[i], 0), i < 3 ? i : -1);
    assert_int_equal(dt_class_counts_add(counts, rows[2], 1), 2);
    dt_class_counts_put_table(&w, counts, three);
    assert_string_equal(w.text, "[{\"class\":\"a\",\"precision\":1,\"recall\":0.25,\"f1\":0.4,"
                                "\"images\":4,\"predicted\":1,\"confused_with\":\"b\","
                                "\"confused\":1},"
                                "{\"class\":\"b\",\"precision\":0,\"recall\":0,\"f1\":0,"
                                "\"images\":1,\"predicted\":1,\"confused_with\":\"c\\\"\","
                                "\"confused\":1},"
                                "{\"class\":\"c\\\"\",\"precision\":0,\"recall\":0,\"f1\":0,"
                                "\"images\":0,\"predicted\":2,\"confused_with\":\"\","
                                "\"confused\":0}]");
    dt_jsonw_reset(&w);
    dt_class_counts_destroy(counts);
}

/* The same from any order of the images, also in parts that are added up. */
TEST(worst_errors)
{
    enum { N = 40 };
    struct dt_class_errors all = {0}, parts[2] = {0}, sum = {0};
    for (int i = 0; i < N; i++) {
        const int k = i * 7 % N;
        const struct dt_class_error error = {
            .probability = k / 4 / 10.0, .image = (uint32_t)(N - k), .label = k};
        dt_class_errors_add(&all, &error);
        dt_class_errors_add(&parts[k % 2], &error);
    }
    for (int i = 0; i < DT_WORST_ERRORS; i++) {
        const struct dt_class_error *e = &all.worst[i];
        assert_true(e->probability == (9 - i / 4) / 10.0);
        assert_int_equal(e->image, i + 1);
        assert_int_equal(e->label, N - 1 - i);
    }
    for (int i = 0; i < 2 * DT_WORST_ERRORS; i++)
        dt_class_errors_add(&sum, &parts[i % 2].worst[i / 2]);
    assert_memory_equal(&sum, &all, sizeof all);
    assert_int_equal(all.n, DT_WORST_ERRORS);
}

/* A network that gives all images the same probability, whatever they show. */
TEST(separates_nothing)
{
    char *text;
    size_t bytes;
    struct dt_class_counts *counts;
    const float row[] = {0, 1};
    assert_int_equal(dt_class_counts_create(&counts, 2, 4), DT_OK);
    for (int i = 0; i < 4; i++)
        dt_class_counts_add(counts, row, i % 2);
    const struct dt_ranking ranking = dt_rank_scores(counts->scores, counts->n_rows);
    FILE *out = open_memstream(&text, &bytes);
    dt_class_counts_print(out, counts, &ranking, names);
    fclose(out);
    assert_non_null(strstr(text, "AUC 0.5, "));
    assert_non_null(strstr(text, "no threshold separates the classes"));
    assert_null(strstr(text, "highest at probability"));
    free(text);
    dt_class_counts_destroy(counts);
}

/* Of equal probabilities the first class comes first; more classes than there are mean all. */
TEST(top)
{
    static const char *const four[] = {"a", "b", "c", "d"};
    const double p[] = {0.125, 0.375, 0.125, 0.375};
    char *text;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    dt_predictions_print_top(out, NULL, 9, 1, p, 4, four);
    dt_predictions_print_top(out, "x.jpg", 2, 1, p, 4, four);
    dt_predictions_print_top(out, "bad.jpg", 2, -1, p, 4, four);
    dt_predictions_print_top(out, NULL, 2, -1, p, 4, four);
    fclose(out);
    assert_string_equal(text, "b\t0.375\nd\t0.375\na\t0.125\nc\t0.125\n"
                              "x.jpg\tb\t0.375\td\t0.375\n"
                              "bad.jpg\n");
    free(text);
}

TEST(svg)
{
    char *text;
    size_t bytes;
    struct dt_class_counts *counts = small_judge();
    FILE *out = open_memstream(&text, &bytes);
    dt_class_counts_print_svg(out, counts, names);
    fclose(out);
    assert_non_null(strstr(text, "a, \"b\"</text>"));
    assert_non_null(strstr(text, "&#60;&#38;></text>"));
    assert_non_null(strstr(text, "fill-opacity=\"0.500\"")); /* 1 of 2 images with label 0 */
    assert_non_null(strstr(text, "</svg>"));
    free(text);
    dt_class_counts_destroy(counts);
}

TEST_MAIN(NULL, NULL)
