/* Softmax cross entropy against fp64: smoothing, mixed labels, ignored rows, ties, extreme logits,
 * counters. Label: numeric. */
#include "cpu_rig.h"
#include "test_status.h"

enum { N = 6, N_CLASSES = 7 };

struct net {
    struct rig rig;
    int logits, labels, labels2, mix_share, weights, diff;
};

enum kind { EVAL, TRAIN, TRAIN_MIXED, TRAIN_WEIGHTED };

static void open_net(struct net *net, float smoothing, enum kind kind)
{
    rig_open(&net->rig, 2);
    net->logits = rig_tensor(&net->rig, "logits", DT_ACT, N, N_CLASSES, 1, 1);
    net->labels = rig_vector(&net->rig, "labels", DT_INPUT, DT_I32, N);
    net->diff = rig_tensor(&net->rig, "diff", DT_DIFF, N, N_CLASSES, 1, 1);
    net->labels2 = rig_vector(&net->rig, "labels2", DT_INPUT, DT_I32, N);
    net->mix_share = rig_vector(&net->rig, "mix_share", DT_INPUT, DT_F32, N);
    net->weights = rig_vector(&net->rig, "class_weights", DT_INPUT, DT_F32, N_CLASSES);
    const int src[] = {net->logits, net->labels, kind == TRAIN_MIXED ? net->labels2 : -1,
                       kind == TRAIN_MIXED ? net->mix_share : -1,
                       kind == TRAIN_WEIGHTED ? net->weights : -1};
    struct dt_node *node =
        rig_node(&net->rig, DT_OP_SOFTMAX_XENT, 5, src, kind == EVAL ? 0 : 1, &net->diff);
    node->attr.xent.smoothing = smoothing;
    rig_build(&net->rig);
}

static void set_labels(struct net *net, int tensor, const int32_t *labels)
{
    assert_ok(
        dt_backend_cpu.upload(net->rig.dev, net->rig.address[tensor], labels, N * sizeof *labels));
}

/* The target of a row. */
struct target {
    int label, label2;
    double share;
};

static double share_of(struct target t, int c, double smoothing)
{
    double onehot = (c == t.label ? t.share : 0) + (c == t.label2 ? 1 - t.share : 0);
    return (1 - smoothing) * onehot + smoothing / N_CLASSES;
}

/* Loss of one row; p[c] receives the probabilities. */
static double reference(double p[N_CLASSES], const float *x, struct target t, double smoothing)
{
    double max = (double)x[0], sum = 0, loss = 0;
    for (int c = 1; c < N_CLASSES; c++)
        max = fmax(max, (double)x[c]);
    for (int c = 0; c < N_CLASSES; c++)
        sum += exp((double)x[c] - max);
    for (int c = 0; c < N_CLASSES; c++) {
        double log_p = (double)x[c] - max - log(sum);
        p[c] = exp(log_p);
        loss -= share_of(t, c, smoothing) * log_p;
    }
    return loss;
}

static void check(enum kind kind, float smoothing, float scale)
{
    const int32_t labels[N] = {0, 3, -1, 6, 2, -5}, labels2[N] = {4, 3, 9, 0, 5, -5};
    const float shares[N] = {0.75f, 0.6f, 0.5f, 1, 0.5f, 1};
    const struct dt_scalars scalars = {.diff_scale = 0.25f};
    struct net net;
    open_net(&net, smoothing, kind);
    float *x = rig_fill(&net.rig, net.logits, 0, scale);
    set_labels(&net, net.labels, labels);
    set_labels(&net, net.labels2, labels2);
    rig_set(&net.rig, net.mix_share, shares);
    rig_run(&net.rig, &scalars);
    float *diff = rig_get(&net.rig, net.diff);

    struct dt_counters counters;
    assert_ok(dt_backend_cpu.download(net.rig.dev, &counters));
    double loss = 0;
    for (int i = 0; i < N; i++) {
        double p[N_CLASSES], s = (double)smoothing;
        struct target t = {labels[i], labels2[i], kind == TRAIN_MIXED ? (double)shares[i] : 1};
        if (labels[i] >= 0)
            loss += reference(p, x + i * N_CLASSES, t, s);
        for (int c = 0; c < N_CLASSES; c++)
            assert_near((double)diff[i * N_CLASSES + c],
                        labels[i] < 0 ? 0 : 0.25 * (p[c] - share_of(t, c, s)),
                        labels[i] < 0 ? 0 : 1e-7);
    }
    assert_near(counters.loss, loss, 1e-6 * (1 + fabs(loss)));
    assert_int_equal(counters.n, 4);
    assert_ok(dt_backend_cpu.download(net.rig.dev, &counters));
    assert_int_equal(counters.n, 0);
    assert_true(counters.loss == 0);
    free(x);
    free(diff);
    rig_close(&net.rig);
}

TEST(against_reference)
{
    for (enum kind kind = TRAIN; kind <= TRAIN_MIXED; kind++) {
        check(kind, 0, 3);
        check(kind, 0.1f, 3);
        check(kind, 0.1f, 1e4f); /* exp would overflow without the shift by the maximum */
    }
}

/* A second label without a share, and weights of 1, change no bit. */
TEST(neutral)
{
    const int32_t labels[N] = {0, 3, -1, 6, 2, 5}, labels2[N] = {6, 3, -1, 1, 4, 0};
    const float ones[] = {1, 1, 1, 1, 1, 1, 1};
    const struct dt_scalars scalars = {.diff_scale = 1 / 3.0f};
    struct dt_counters counters[TRAIN_WEIGHTED + 1];
    float *diff[TRAIN_WEIGHTED + 1];
    for (enum kind kind = TRAIN; kind <= TRAIN_WEIGHTED; kind++) {
        struct net net;
        open_net(&net, 0.1f, kind);
        free(rig_fill(&net.rig, net.logits, 0, 3));
        set_labels(&net, net.labels, labels);
        set_labels(&net, net.labels2, labels2);
        rig_set(&net.rig, net.mix_share, ones);
        rig_set(&net.rig, net.weights, ones);
        rig_run(&net.rig, &scalars);
        diff[kind] = rig_get(&net.rig, net.diff);
        assert_ok(dt_backend_cpu.download(net.rig.dev, &counters[kind]));
        rig_close(&net.rig);
        assert_memory_equal(diff[TRAIN], diff[kind], N * N_CLASSES * sizeof **diff);
        assert_true(counters[TRAIN].loss == counters[kind].loss && counters[kind].weight == 5);
    }
    for (enum kind kind = TRAIN; kind <= TRAIN_WEIGHTED; kind++)
        free(diff[kind]);
}

TEST(top_k)
{
    /* Ranks of the labels: 0; 4 and 5 around the edge of top 5; ties by index; not a number. */
    static const float x[N][N_CLASSES] = {
        {9, 1, 2, 3, 4, 5, 6}, {5, 9, 8, 7, 6, 1, 2}, {4, 9, 8, 7, 6, 5, 2},
        {1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1}, {NAN, NAN, NAN, NAN, NAN, NAN, NAN}};
    const int32_t labels[N] = {0, 0, 0, 0, 5, 1};
    struct net net;
    struct dt_counters counters;
    open_net(&net, 0, EVAL);
    rig_set(&net.rig, net.logits, &x[0][0]);
    set_labels(&net, net.labels, labels);
    rig_run(&net.rig, NULL);
    assert_ok(dt_backend_cpu.download(net.rig.dev, &counters));
    assert_int_equal(counters.n, N);
    assert_int_equal(counters.top1, 2); /* rows 0 and 3 */
    assert_int_equal(counters.top5, 3); /* and row 1 */
    assert_int_equal(counters.n_finite, N - 1);
    double p[N_CLASSES], loss = 0;
    for (int i = 0; i < N - 1; i++)
        loss += reference(p, x[i], (struct target){labels[i], labels[i], 1}, 0);
    assert_near(counters.loss, loss, 1e-6 * loss);
    rig_close(&net.rig);
}

TEST(label_out_of_range)
{
    const int32_t good[N] = {0}, bad[N] = {0, 0, 0, N_CLASSES, 0, 0}, negative[N] = {0, -1};
    struct net net;
    open_net(&net, 0, TRAIN_MIXED);
    set_labels(&net, net.labels, bad);
    set_labels(&net, net.labels2, good);
    assert_error(dt_backend_cpu.run(net.rig.dev, net.rig.exec[0]), DT_ERR_DATA,
                 "image 3 of the batch has label 7");
    set_labels(&net, net.labels, good);
    set_labels(&net, net.labels2, bad);
    assert_error(dt_backend_cpu.run(net.rig.dev, net.rig.exec[0]), DT_ERR_DATA,
                 "image 3 of the batch has label 7");
    set_labels(&net, net.labels2, negative);
    assert_error(dt_backend_cpu.run(net.rig.dev, net.rig.exec[0]), DT_ERR_DATA,
                 "image 1 of the batch has label -1");
    rig_close(&net.rig);
}

TEST_MAIN(NULL, NULL)
