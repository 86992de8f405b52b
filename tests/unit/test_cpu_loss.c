/* Softmax cross entropy against fp64: smoothing, ignored rows, ties, extreme logits, counters. */
#include "cpu_rig.h"

enum { N = 6, N_CLASSES = 7 };

struct net {
    struct rig rig;
    int logits, labels, diff;
};

static void open_net(struct net *net, float smoothing, bool train)
{
    rig_open(&net->rig, 2);
    net->logits = rig_tensor(&net->rig, "logits", DT_ACT, N, N_CLASSES, 1, 1);
    net->labels = rig_vector(&net->rig, "labels", DT_INPUT, DT_I32, N);
    net->diff = rig_tensor(&net->rig, "diff", DT_DIFF, N, N_CLASSES, 1, 1);
    struct dt_node *node = rig_node(&net->rig, DT_OP_SOFTMAX_XENT,
                                    RIG_IDS(net->logits, net->labels), train ? 1 : 0, &net->diff);
    node->attr.xent.smoothing = smoothing;
    rig_build(&net->rig);
}

static void set_labels(struct net *net, const int32_t *labels)
{
    OK(dt_backend_cpu.upload(net->rig.dev, net->rig.address[net->labels], labels,
                             N * sizeof *labels));
}

/* Loss of one row; p[c] receives the probabilities. */
static double reference(double p[N_CLASSES], const float *x, int label, double smoothing)
{
    double max = (double)x[0], sum = 0, loss = 0;
    for (int c = 1; c < N_CLASSES; c++)
        max = fmax(max, (double)x[c]);
    for (int c = 0; c < N_CLASSES; c++)
        sum += exp((double)x[c] - max);
    for (int c = 0; c < N_CLASSES; c++) {
        double log_p = (double)x[c] - max - log(sum);
        p[c] = exp(log_p);
        double target = (c == label ? 1 - smoothing : 0) + smoothing / N_CLASSES;
        loss -= target * log_p;
    }
    return loss;
}

static void check(float smoothing, float scale)
{
    const int32_t labels[N] = {0, 3, -1, 6, 2, -5};
    const struct dt_scalars scalars = {.diff_scale = 0.25f};
    struct net net;
    open_net(&net, smoothing, true);
    float *x = rig_fill(&net.rig, net.logits, 0, scale);
    set_labels(&net, labels);
    rig_run(&net.rig, &scalars);
    float *diff = rig_get(&net.rig, net.diff);

    struct dt_counters counters;
    OK(dt_backend_cpu.download(net.rig.dev, &counters));
    double loss = 0;
    for (int i = 0; i < N; i++) {
        double p[N_CLASSES], s = (double)smoothing;
        if (labels[i] >= 0)
            loss += reference(p, x + i * N_CLASSES, labels[i], s);
        for (int c = 0; c < N_CLASSES; c++) {
            double target = (c == labels[i] ? 1 - s : 0) + s / N_CLASSES;
            assert_near((double)diff[i * N_CLASSES + c], labels[i] < 0 ? 0 : 0.25 * (p[c] - target),
                        labels[i] < 0 ? 0 : 1e-7);
        }
    }
    assert_near(counters.loss, loss, 1e-6 * (1 + fabs(loss)));
    assert_int_equal(counters.n, 4);
    OK(dt_backend_cpu.download(net.rig.dev, &counters));
    assert_int_equal(counters.n, 0);
    assert_true(counters.loss == 0);
    free(x);
    free(diff);
    rig_close(&net.rig);
}

static void test_against_reference(void **state)
{
    (void)state;
    check(0, 3);
    check(0.1f, 3);
    check(0.1f, 1e4f); /* exp would overflow without the shift by the maximum */
}

static void test_top_k(void **state)
{
    (void)state;
    /* Ranks of the labels: 0; 4 and 5 around the edge of top 5; ties by index; not a number. */
    static const float x[N][N_CLASSES] = {
        {9, 1, 2, 3, 4, 5, 6}, {5, 9, 8, 7, 6, 1, 2}, {4, 9, 8, 7, 6, 5, 2},
        {1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1}, {NAN, NAN, NAN, NAN, NAN, NAN, NAN}};
    const int32_t labels[N] = {0, 0, 0, 0, 5, 1};
    struct net net;
    struct dt_counters counters;
    open_net(&net, 0, false);
    rig_set(&net.rig, net.logits, &x[0][0]);
    set_labels(&net, labels);
    rig_run(&net.rig, NULL);
    OK(dt_backend_cpu.download(net.rig.dev, &counters));
    assert_int_equal(counters.n, N);
    assert_int_equal(counters.top1, 2); /* rows 0 and 3 */
    assert_int_equal(counters.top5, 3); /* and row 1 */
    assert_int_equal(counters.n_finite, N - 1);
    double p[N_CLASSES], loss = 0;
    for (int i = 0; i < N - 1; i++)
        loss += reference(p, x[i], labels[i], 0);
    assert_near(counters.loss, loss, 1e-6 * loss);
    rig_close(&net.rig);
}

static void test_label_out_of_range(void **state)
{
    (void)state;
    const int32_t labels[N] = {0, 0, 0, N_CLASSES, 0, 0};
    struct net net;
    open_net(&net, 0, false);
    set_labels(&net, labels);
    assert_int_equal(dt_backend_cpu.run(net.rig.dev, net.rig.exec[0]), DT_ERR_DATA);
    assert_non_null(strstr(dt_error_text(), "label 7"));
    rig_close(&net.rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_reference),
                                       cmocka_unit_test(test_top_k),
                                       cmocka_unit_test(test_label_out_of_range)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
