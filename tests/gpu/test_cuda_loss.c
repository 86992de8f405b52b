/* The kernel of loss.cu against fp64: smoothing, mixed labels, class weights, ignored rows, labels
 * that are no class, ties, extreme logits, the loss scale, and counters that add up over passes. */
#include "kernel_rig.h"

struct problem {
    int n, classes, cp;
    double spread; /* of the logits */
    float smoothing;
};

/* What the kernel keeps, on the GPU. */
struct net {
    struct array logits, labels, labels2, mix_shares, weights, diff;
    struct dt_step_counters *counters;
    struct dt_loss_row *rows;
    struct dt_step_values *step;
    struct dt_scale_state *scale;
};

static struct net net_create(enum dt_dtype type, const struct problem *p, float loss_scale)
{
    const struct dt_step_counters zero = {0};
    const struct dt_step_values values = {.diff_scale = 0.25f};
    const struct dt_scale_state state = {.scale = loss_scale};
    return (struct net){
        .logits = array_rows(type, (size_t)p->n, p->classes, p->cp, p->spread, 1),
        .labels = array_create(DT_I32, (size_t)p->n),
        .labels2 = array_create(DT_I32, (size_t)p->n),
        .mix_shares = array_create(DT_F32, (size_t)p->n),
        .weights = array_create(DT_F32, (size_t)p->classes),
        .diff = array_create(type, (size_t)p->n * (size_t)p->cp),
        .counters = struct_create(&zero, sizeof zero),
        .rows = block_create((size_t)p->n * sizeof(struct dt_loss_row), 0)->gpu,
        .step = struct_create(&values, sizeof values),
        .scale = struct_create(&state, sizeof state),
    };
}

enum { PLAIN, MIXED, WEIGHTED };

static void net_run(struct net *net, const struct problem *p, int labels, bool with_diff)
{
    const struct dt_loss_batch batch = {
        .logits = net->logits.memory,
        .labels = net->labels.memory,
        .labels2 = labels == MIXED ? net->labels2.memory : NULL,
        .mix_shares = labels == MIXED ? net->mix_shares.memory : NULL,
        .class_weights = labels == WEIGHTED ? net->weights.memory : NULL,
        .n = p->n,
        .classes = p->classes,
        .cp = p->cp,
        .smoothing = p->smoothing,
    };
    CUDA(dt_kernel_softmax_xent(stream, net->logits.type, with_diff ? net->diff.memory : NULL,
                                net->counters, net->rows, &batch, net->step, net->scale));
}

/* What a row is trained towards. */
struct target {
    int label, label2;
    double share;
};

static struct target target_of(const struct net *net, int i, int labels)
{
    int label = (int)net->labels.value[i];
    if (labels != MIXED)
        return (struct target){label, label, 1};
    return (struct target){label, (int)net->labels2.value[i], (double)net->mix_shares.value[i]};
}

/* One row: its loss; gradient[c] of the classes, before diff_scale. weights: NULL = 1. */
static double reference(double *gradient, const float *x, int classes, struct target t,
                        double smoothing, const float *weights)
{
    double max = (double)-INFINITY, sum = 0, loss = 0, all = 0;
    for (int c = 0; c < classes; c++)
        max = fmax(max, (double)x[c]);
    for (int c = 0; c < classes; c++)
        sum += exp((double)x[c] - max);
    for (int c = 0; c < classes; c++) {
        double log_p = (double)x[c] - max - log(sum);
        double onehot = (c == t.label ? t.share : 0) + (c == t.label2 ? 1 - t.share : 0);
        double target = (1 - smoothing) * onehot + smoothing / classes;
        target *= weights ? (double)weights[c] : 1;
        all += target;
        loss -= target * log_p;
        gradient[c] = -target;
    }
    for (int c = 0; c < classes; c++)
        gradient[c] += all * exp((double)x[c] - max) / sum;
    return loss;
}

static int rank_of(const float *x, int classes, int label)
{
    int rank = 0;
    for (int c = 0; c < classes; c++)
        rank += !(x[c] < x[label] || (x[c] == x[label] && c >= label));
    return rank;
}

/* Adds row i to the counters and checks its gradient. */
static void check_row(struct dt_step_counters *want, const struct net *net, const struct problem *p,
                      int i, int labels, double diff_scale)
{
    const float *x = net->logits.value + (size_t)i * (size_t)p->cp;
    const struct target t = target_of(net, i, labels);
    bool counted = t.label >= 0 && t.label < p->classes && t.label2 >= 0 && t.label2 < p->classes;
    double *gradient = calloc((size_t)p->cp, sizeof *gradient);
    assert_non_null(gradient);
    if (counted) {
        const float *weights = labels == WEIGHTED ? net->weights.value : NULL;
        want->loss += reference(gradient, x, p->classes, t, (double)p->smoothing, weights);
        want->weight += weights ? (double)weights[t.label] : 1;
        want->n++;
        want->n_finite++;
        want->top1 += rank_of(x, p->classes, t.label) < 1;
        want->top5 += rank_of(x, p->classes, t.label) < 5;
    }
    for (int c = 0; c < p->cp; c++)
        assert_value(&net->diff, (size_t)i * (size_t)p->cp + (size_t)c, diff_scale * gradient[c],
                     counted && c < p->classes ? 1e-6 * diff_scale : 0);
    free(gradient);
}

static void assert_counters(const struct net *net, const struct dt_step_counters *want, int times)
{
    struct dt_step_counters got;
    struct_get(&got, net->counters, sizeof got);
    if (!(fabs(got.loss - times * want->loss) <= 1e-5 * times * fabs(want->loss)))
        fail_msg("loss %.9g, not %.9g", got.loss, times * want->loss);
    assert_true(got.weight == times * want->weight); /* multiples of 1/4 */
    assert_int_equal(got.n, times * want->n);
    assert_int_equal(got.n_finite, times * want->n_finite);
    assert_int_equal(got.top1, times * want->top1);
    assert_int_equal(got.top5, times * want->top5);
    assert_int_equal(got.bad_label, want->bad_label);
    assert_int_equal(got.classes, want->classes);
}

/* Every seventh row is ignored; of the mixed ones every third has the same label twice, and shares
 * of 1 and 0.5 come too. */
static void put_labels(struct net *net, const struct problem *p)
{
    for (int i = 0; i < p->n; i++) {
        net->labels.value[i] = (float)(i % 7 == 6 ? -1 - i : (i * 31 + 5) % p->classes);
        net->labels2.value[i] =
            i % 3 == 1 ? net->labels.value[i] : (float)((i * 17 + 2) % p->classes);
        net->mix_shares.value[i] = 0.5f + 0.125f * (float)(i % 5);
    }
    array_put(&net->labels);
    array_put(&net->labels2);
    array_put(&net->mix_shares);
    for (int c = 0; c < p->classes; c++)
        net->weights.value[c] = 0.25f * (float)(1 + c % 5);
    array_put(&net->weights);
}

static void check(enum dt_dtype type, const struct problem *p, int labels, float loss_scale)
{
    struct dt_step_counters want = {0};
    struct net net = net_create(type, p, loss_scale);
    put_labels(&net, p);
    net_run(&net, p, labels, false);
    array_get(&net.diff); /* only its guards say something yet */
    net_run(&net, p, labels, true);
    array_get(&net.diff);
    for (int i = 0; i < p->n; i++)
        check_row(&want, &net, p, i, labels, 0.25 * (double)loss_scale);
    assert_counters(&net, &want, 2);
    free_all();
}

TEST(against_reference)
{
    static const struct problem problems[] = {{1, 1, 8, 3, 0},
                                              {6, 7, 8, 3, 0},
                                              {6, 7, 8, 3, 0.1f},
                                              {9, 16, 16, 1e4, 0.1f},
                                              {300, 10, 16, 3, 0.1f},
                                              {5, 1000, 1000, 5, 0.1f},
                                              {20, 1000, 1000, 6e4, 0.1f},
                                              {4, 1024, 1024, 5, 0},
                                              {4, 1030, 1032, 5, 0.2f},
                                              {2, 5000, 5000, 8, 0.1f}};
    for (size_t t = 0; t < DT_COUNT(TYPES); t++)
        for (size_t i = 0; i < DT_COUNT(problems); i++) {
            check(TYPES[t], &problems[i], PLAIN, 1);
            check(TYPES[t], &problems[i], PLAIN, 1024);
            check(TYPES[t], &problems[i], MIXED, 1024);
            check(TYPES[t], &problems[i], WEIGHTED, 1);
        }
}

TEST(top_k)
{
    /* Ranks of the labels: 0; 4 and 5 around the edge of top 5; ties by index; not a number. */
    static const float x[6][7] = {{9, 1, 2, 3, 4, 5, 6}, {5, 9, 8, 7, 6, 1, 2},
                                  {4, 9, 8, 7, 6, 5, 2}, {1, 1, 1, 1, 1, 1, 1},
                                  {1, 1, 1, 1, 1, 1, 1}, {NAN, NAN, NAN, NAN, NAN, NAN, NAN}};
    static const float labels[6] = {0, 0, 0, 0, 5, 1};
    const struct problem p = {6, 7, 8, 0, 0};
    for (size_t t = 0; t < DT_COUNT(TYPES); t++) {
        struct dt_step_counters got;
        struct net net = net_create(TYPES[t], &p, 1);
        for (int i = 0; i < 6; i++) {
            net.labels.value[i] = labels[i];
            memcpy(net.logits.value + i * p.cp, x[i], sizeof x[i]);
        }
        array_put(&net.labels);
        array_put(&net.logits);
        net_run(&net, &p, PLAIN, false);
        struct_get(&got, net.counters, sizeof got);
        assert_int_equal(got.n, 6);
        assert_int_equal(got.top1, 2); /* rows 0 and 3 */
        assert_int_equal(got.top5, 3); /* and row 1 */
        assert_int_equal(got.n_finite, 5);
        double gradient[8], loss = 0;
        for (int i = 0; i < 5; i++)
            loss += reference(gradient, x[i], p.classes, target_of(&net, i, PLAIN), 0, NULL);
        assert_true(fabs(got.loss - loss) <= 1e-5 * loss);
        free_all();
    }
}

/* The first label that is no class is kept over passes, and its rows are left out. */
TEST(bad_label)
{
    const struct problem p = {700, 7, 8, 1, 0};
    struct dt_step_counters want = {0};
    struct net net = net_create(DT_F32, &p, 1);
    net.labels.value[613] = 9;
    net.labels.value[300] = 7;
    net.labels.value[699] = 8;
    array_put(&net.labels);
    net_run(&net, &p, PLAIN, true);
    net.labels.value[0] = 12;
    array_put(&net.labels);
    net_run(&net, &p, PLAIN, true);
    array_get(&net.diff);
    for (int i = 0; i < p.n; i++)
        check_row(&want, &net, &p, i, PLAIN, 0.25);
    struct dt_step_counters got;
    struct_get(&got, net.counters, sizeof got);
    assert_int_equal(got.bad_label, 7);
    assert_int_equal(got.classes, 7);
    assert_int_equal(got.n, 2 * want.n + 1);
    free_all();
}

/* The same of second labels, which may not be -1 either; those of ignored rows are not read. */
TEST(bad_label2)
{
    const struct problem p = {9, 7, 8, 1, 0.1f};
    static const float bad[] = {-1, 7, 123456};
    for (size_t k = 0; k < DT_COUNT(bad); k++) {
        struct dt_step_counters want = {.bad_label = (int32_t)bad[k], .classes = 7};
        struct net net = net_create(DT_F32, &p, 1);
        put_labels(&net, &p);
        net.labels2.value[6] = 99;
        net.labels2.value[4] = bad[k];
        array_put(&net.labels2);
        net_run(&net, &p, MIXED, true);
        array_get(&net.diff);
        for (int i = 0; i < p.n; i++)
            check_row(&want, &net, &p, i, MIXED, 0.25);
        assert_int_equal(want.n, 7);
        assert_counters(&net, &want, 1);
        free_all();
    }
}

/* A second label without a share, and weights of 1, change no bit. */
TEST(neutral)
{
    const struct problem p = {50, 100, 104, 3, 0.1f};
    for (size_t t = 0; t < DT_COUNT(TYPES); t++) {
        struct dt_step_counters counters[3];
        struct net net[3];
        for (int labels = PLAIN; labels <= WEIGHTED; labels++) {
            net[labels] = net_create(TYPES[t], &p, 3);
            put_labels(&net[labels], &p);
            for (int i = 0; i < p.n; i++)
                net[labels].mix_shares.value[i] = 1;
            for (int c = 0; c < p.classes; c++)
                net[labels].weights.value[c] = 1;
            array_put(&net[labels].mix_shares);
            array_put(&net[labels].weights);
            net_run(&net[labels], &p, labels, true);
            array_get(&net[labels].diff);
            struct_get(&counters[labels], net[labels].counters, sizeof *counters);
        }
        for (int labels = PLAIN; labels <= WEIGHTED; labels++) {
            assert_memory_equal(net[PLAIN].diff.value, net[labels].diff.value,
                                net[PLAIN].diff.count * sizeof(float));
            assert_true(counters[PLAIN].n > 0 && counters[PLAIN].loss == counters[labels].loss);
            assert_true(counters[labels].weight == (double)counters[PLAIN].n);
        }
        free_all();
    }
}

/* The same bits whenever it runs. */
TEST(repeats)
{
    const struct problem p = {1000, 100, 104, 3, 0.1f};
    struct dt_step_counters first = {0};
    for (int i = 0; i < 3; i++) {
        struct dt_step_counters got;
        struct net net = net_create(DT_F32, &p, 1);
        array_put(&net.labels);
        net_run(&net, &p, PLAIN, false);
        struct_get(&got, net.counters, sizeof got);
        if (i == 0)
            first = got;
        assert_true(got.n == 1000 && got.loss == first.loss);
        free_all();
    }
}

KERNEL_TEST_MAIN()
