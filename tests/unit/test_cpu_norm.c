/* Batch norm beyond the op table: running statistics, values far from zero, all row formats, the
 * same bits for any number of threads, fused ReLU and residual against separate nodes.
 * Label: numeric. */
#include "cpu_rig.h"

enum { N = 3, SIZE = 5, AREA = SIZE * SIZE, N_RANKS = 3 };

struct net {
    struct rig rig;
    int c, image, src, scale, shift, running_mean, running_var, residual;
    int dst, mean, variance, mask;
    int diff_dst, diff_src, diff_scale, diff_shift, diff_residual;
};

/* src comes out of a 1x1 convolution when `blocked`, so that it has the library's format. group: of
 * N_RANKS ranks, of which this net is `rank`. */
static void open_rank(struct net *net, int c, int threads, bool blocked, int rank, int group)
{
    struct rig *rig = &net->rig;
    rig_open_rank(rig, threads, rank, N_RANKS);
    net->c = c;
    net->src = rig_tensor(rig, "src", DT_ACT, N, c, SIZE, SIZE);
    if (blocked) {
        net->image = rig_tensor(rig, "image", DT_ACT, N, c, SIZE, SIZE);
        int weights = rig_tensor(rig, "weights", DT_PARAM, c, c, 1, 1);
        rig_node(rig, DT_OP_CONV, RIG_IDS(net->image, weights), RIG_IDS(net->src))
            ->attr.conv.stride = 1;
    }
    net->scale = rig_vector(rig, "scale", DT_PARAM, DT_F32, c);
    net->shift = rig_vector(rig, "shift", DT_PARAM, DT_F32, c);
    net->running_mean = rig_vector(rig, "running_mean", DT_STAT, DT_F32, c);
    net->running_var = rig_vector(rig, "running_var", DT_STAT, DT_F32, c);
    net->residual = rig_tensor(rig, "residual", DT_ACT, N, c, SIZE, SIZE);
    net->dst = rig_tensor(rig, "dst", DT_ACT, N, c, SIZE, SIZE);
    net->mean = rig_vector(rig, "mean", DT_SAVED, DT_F32, c);
    net->variance = rig_vector(rig, "variance", DT_SAVED, DT_F32, c);
    net->mask =
        dt_graph_tensor(rig->g, "mask", DT_SAVED, DT_U8, 4, (const int[]){N, c, SIZE, SIZE});
    net->diff_dst = rig_tensor(rig, "diff_dst", DT_DIFF, N, c, SIZE, SIZE);
    net->diff_src = rig_tensor(rig, "diff_src", DT_DIFF, N, c, SIZE, SIZE);
    net->diff_scale = rig_vector(rig, "diff_scale", DT_DIFF_PARAM, DT_F32, c);
    net->diff_shift = rig_vector(rig, "diff_shift", DT_DIFF_PARAM, DT_F32, c);
    net->diff_residual = rig_tensor(rig, "diff_residual", DT_DIFF, N, c, SIZE, SIZE);
    struct dt_node *node = rig_node(rig, DT_OP_BN,
                                    RIG_IDS(net->src, net->scale, net->shift, net->running_mean,
                                            net->running_var, net->residual),
                                    RIG_IDS(net->dst, net->mean, net->variance, net->mask));
    node->activation = DT_RELU;
    node->residual = true;
    node->attr.bn.eps = 1e-5f;
    node->attr.bn.momentum = 0.1f;
    node->attr.bn.n_ranks = group;
    node = rig_node(rig, DT_OP_BN_BWD,
                    RIG_IDS(net->src, net->diff_dst, net->scale, net->shift, net->mean,
                            net->variance, net->mask),
                    RIG_IDS(net->diff_src, net->diff_scale, net->diff_shift, net->diff_residual));
    node->activation = DT_RELU;
    node->residual = true;
    node->attr.bn.eps = 1e-5f;
    node->attr.bn.n_ranks = group;
    rig_build(rig);
}

static void open_net(struct net *net, int c, int threads, bool blocked)
{
    open_rank(net, c, threads, blocked, 0, 0);
}

/* Runs only the batch norm nodes, over src given here. */
static void run_bn(struct net *net)
{
    for (int i = net->rig.g->n_nodes - 2; i < net->rig.g->n_nodes; i++)
        assert_ok(dt_backend_cpu.run(net->rig.dev, net->rig.exec[i]));
}

static size_t at(const struct net *net, int n, int c, int i)
{
    return ((size_t)n * (size_t)net->c + (size_t)c) * AREA + (size_t)i;
}

/* fp64 mean and biased variance of a channel. */
static void moments(const struct net *net, const float *x, int c, double *mean, double *variance)
{
    *mean = *variance = 0;
    for (int n = 0; n < N; n++) {
        for (int i = 0; i < AREA; i++)
            *mean += (double)x[at(net, n, c, i)] / (N * AREA);
    }
    for (int n = 0; n < N; n++) {
        for (int i = 0; i < AREA; i++)
            *variance += pow((double)x[at(net, n, c, i)] - *mean, 2) / (N * AREA);
    }
}

static void check(int c, bool blocked, float offset)
{
    struct net net;
    open_net(&net, c, 2, blocked);
    float *x = rig_fill(&net.rig, net.src, offset, 2);
    float *scale = rig_fill(&net.rig, net.scale, 1, 0.5f);
    float *shift = rig_fill(&net.rig, net.shift, 0, 0.5f);
    float *old_mean = rig_fill(&net.rig, net.running_mean, 0, 1);
    float *old_var = rig_fill(&net.rig, net.running_var, 2, 1);
    float *r = rig_fill(&net.rig, net.residual, 0, 1);
    float *diff_dst = rig_fill(&net.rig, net.diff_dst, 0, 1);
    run_bn(&net);
    float *dst = rig_get(&net.rig, net.dst);
    float *new_mean = rig_get(&net.rig, net.running_mean);
    float *new_var = rig_get(&net.rig, net.running_var);
    float *diff_residual = rig_get(&net.rig, net.diff_residual);
    double far = 1 + fabs((double)offset);
    for (int k = 0; k < c; k++) {
        double mean, variance;
        moments(&net, x, k, &mean, &variance);
        double n = N * AREA, unbiased = variance * n / (n - 1);
        assert_near((double)new_mean[k], 0.9 * (double)old_mean[k] + 0.1 * mean, 1e-6 * far);
        assert_near((double)new_var[k], 0.9 * (double)old_var[k] + 0.1 * unbiased, 1e-5);
        for (int i = 0; i < N * AREA; i++) {
            size_t e = at(&net, i / AREA, k, i % AREA);
            double y = ((double)x[e] - mean) / sqrt(variance + 1e-5) * (double)scale[k] +
                       (double)shift[k] + (double)r[e];
            assert_near((double)dst[e], y > 0 ? y : 0, 1e-5 * far);
            assert_true(diff_residual[e] == (dst[e] > 0 ? diff_dst[e] : 0));
        }
    }
    free(x);
    free(scale);
    free(shift);
    free(old_mean);
    free(old_var);
    free(r);
    free(diff_dst);
    free(dst);
    free(new_mean);
    free(new_var);
    free(diff_residual);
    rig_close(&net.rig);
}

TEST(running_statistics)
{
    check(5, false, 0);
    check(16, true, 0);
    check(20, true, 0);
    check(40, true, -3);
}

TEST(far_from_zero)
{
    /* A one-pass sum of squares in fp32 would lose the variance here. */
    check(20, true, 1000);
    check(5, false, -1000);
}

TEST(threads_do_not_matter)
{
    float *dst[2], *diff[2], *diff_scale[2];
    for (int i = 0; i < 2; i++) {
        struct net net;
        open_net(&net, 40, i == 0 ? 1 : 3, true);
        float *fills[] = {rig_fill(&net.rig, net.src, 1, 2), rig_fill(&net.rig, net.scale, 1, 1),
                          rig_fill(&net.rig, net.residual, 0, 1),
                          rig_fill(&net.rig, net.diff_dst, 0, 1)};
        run_bn(&net);
        dst[i] = rig_get(&net.rig, net.dst);
        diff[i] = rig_get(&net.rig, net.diff_src);
        diff_scale[i] = rig_get(&net.rig, net.diff_scale);
        for (size_t k = 0; k < DT_COUNT(fills); k++)
            free(fills[k]);
        rig_close(&net.rig);
    }
    assert_memory_equal(dst[0], dst[1], (size_t)(N * 40 * AREA) * sizeof(float));
    assert_memory_equal(diff[0], diff[1], (size_t)(N * 40 * AREA) * sizeof(float));
    assert_memory_equal(diff_scale[0], diff_scale[1], 40 * sizeof(float));
    for (int i = 0; i < 2; i++) {
        free(dst[i]);
        free(diff[i]);
        free(diff_scale[i]);
    }
}

/* --- Over a group of ranks, which are nets that exchange their slots here --- */

static void exchange(struct net nets[N_RANKS], int node)
{
    char *all[N_RANKS];
    size_t bytes = 0;
    for (int r = 0; r < N_RANKS; r++) {
        const struct dt_scalars scalars = {.slot = r};
        assert_ok(dt_backend_cpu.set_scalars(nets[r].rig.dev, &scalars));
        assert_ok(dt_backend_cpu.run(nets[r].rig.dev, nets[r].rig.exec[node]));
        all[r] = dt_backend_cpu.exchange_slots(nets[r].rig.dev, nets[r].rig.exec[node], &bytes);
    }
    for (int r = 0; r < N_RANKS; r++)
        for (int from = 0; from < N_RANKS; from++)
            memcpy(all[r] + (size_t)from * bytes, all[from] + (size_t)from * bytes, bytes);
    for (int r = 0; r < N_RANKS; r++)
        assert_ok(dt_backend_cpu.run_second_half(nets[r].rig.dev, nets[r].rig.exec[node]));
}

/* What a rank was given and what it computed. */
struct side {
    float *x, *scale, *shift, *r, *diff_dst;
    float *dst, *mean, *variance, *new_var, *diff_src, *diff_scale;
};

static void open_side(struct side *side, struct net *net, int c, bool blocked, int rank,
                      float offset)
{
    open_rank(net, c, 1 + rank, blocked, rank, N_RANKS);
    *side = (struct side){.x = rig_fill(&net->rig, net->src, offset + 0.5F * (float)rank, 1),
                          .scale = rig_fill(&net->rig, net->scale, 1, 0.5f),
                          .shift = rig_fill(&net->rig, net->shift, 0, 0.5f),
                          .r = rig_fill(&net->rig, net->residual, 0, 1),
                          .diff_dst = rig_fill(&net->rig, net->diff_dst, 0.2F * (float)rank, 1)};
    for (int i = 0; i < N * c * AREA; i++) /* different values on every rank */
        side->x[i] += (float)((i * (rank + 3)) % 7) / 8;
    rig_set(&net->rig, net->src, side->x);
}

static void get_side(struct side *side, struct net *net)
{
    side->dst = rig_get(&net->rig, net->dst);
    side->mean = rig_get(&net->rig, net->mean);
    side->variance = rig_get(&net->rig, net->variance);
    side->new_var = rig_get(&net->rig, net->running_var);
    side->diff_src = rig_get(&net->rig, net->diff_src);
    side->diff_scale = rig_get(&net->rig, net->diff_scale);
}

static void check_channel(const struct net *net, const struct side sides[N_RANKS], int c,
                          double far)
{
    const double n = N_RANKS * N * AREA;
    double mean = 0, variance = 0, s1 = 0, s2 = 0, diff_scale = 0;
    for (int k = 0; k < N_RANKS * N * AREA; k++)
        mean += (double)sides[k / (N * AREA)].x[at(net, k / AREA % N, c, k % AREA)] / n;
    for (int k = 0; k < N_RANKS * N * AREA; k++)
        variance +=
            pow((double)sides[k / (N * AREA)].x[at(net, k / AREA % N, c, k % AREA)] - mean, 2) / n;
    double inverse = 1 / sqrt(variance + 1e-5);
    for (int k = 0; k < N_RANKS * N * AREA; k++) {
        const struct side *s = &sides[k / (N * AREA)];
        size_t e = at(net, k / AREA % N, c, k % AREA);
        double normal = ((double)s->x[e] - mean) * inverse;
        double y = normal * (double)s->scale[c] + (double)s->shift[c] + (double)s->r[e];
        assert_near((double)s->dst[e], y > 0 ? y : 0, 1e-6 * far);
        s1 += s->dst[e] > 0 ? (double)s->diff_dst[e] : 0;
        s2 += s->dst[e] > 0 ? (double)s->diff_dst[e] * normal : 0;
    }
    for (int k = 0; k < N_RANKS * N * AREA; k++) {
        const struct side *s = &sides[k / (N * AREA)];
        size_t e = at(net, k / AREA % N, c, k % AREA);
        double normal = ((double)s->x[e] - mean) * inverse;
        double g = s->dst[e] > 0 ? (double)s->diff_dst[e] : 0;
        assert_near((double)s->diff_src[e],
                    (double)s->scale[c] * inverse * (g - s1 / n - normal * s2 / n), 1e-6 * far);
    }
    for (int r = 0; r < N_RANKS; r++) {
        assert_near((double)sides[r].mean[c], mean, 1e-7 * far);
        assert_near((double)sides[r].variance[c], variance, 1e-6 + 1e-7 * far);
        assert_near((double)sides[r].new_var[c] - (double)sides[0].new_var[c], 0, 0);
        diff_scale += (double)sides[r].diff_scale[c]; /* each rank has its own part */
    }
    assert_near((double)sides[0].new_var[c], 0.1 * variance * n / (n - 1), 1e-6 + 1e-7 * far);
    assert_near(diff_scale, s2, 1e-5 * far);
}

/* With values far from zero a sum of squares in fp32 would lose the variance. */
static void check_group(int c, bool blocked, float offset)
{
    struct net nets[N_RANKS];
    struct side sides[N_RANKS];
    for (int r = 0; r < N_RANKS; r++)
        open_side(&sides[r], &nets[r], c, blocked, r, offset);
    exchange(nets, nets[0].rig.g->n_nodes - 2);
    exchange(nets, nets[0].rig.g->n_nodes - 1);
    for (int r = 0; r < N_RANKS; r++)
        get_side(&sides[r], &nets[r]);
    for (int k = 0; k < c; k++)
        check_channel(&nets[0], sides, k, 1 + fabs((double)offset));
    for (int r = 0; r < N_RANKS; r++) {
        float **values = &sides[r].x;
        for (size_t i = 0; i < sizeof sides[r] / sizeof *values; i++)
            free(values[i]);
        rig_close(&nets[r].rig);
    }
}

TEST(group_of_ranks)
{
    check_group(5, false, 0);
    check_group(20, true, 0);
    check_group(20, true, 10000);
    check_group(5, false, -10000);
}

/* sum(diff_src) = 0 and sum(diff_src * x_hat) = 0 over a channel: two properties of the formula. */
TEST(gradient_is_orthogonal)
{
    struct net net;
    open_net(&net, 20, 2, true);
    float *x = rig_fill(&net.rig, net.src, 1, 2), *scale = rig_fill(&net.rig, net.scale, 1, 0.5f);
    float *diff_dst = rig_fill(&net.rig, net.diff_dst, 0.3f, 1);
    run_bn(&net);
    float *diff_src = rig_get(&net.rig, net.diff_src);
    float *diff_shift = rig_get(&net.rig, net.diff_shift), *dst = rig_get(&net.rig, net.dst);
    double size = 0;
    for (int c = 0; c < net.c; c++) {
        double mean, variance, sum = 0, product = 0, shift = 0;
        moments(&net, x, c, &mean, &variance);
        for (int i = 0; i < N * AREA; i++) {
            size_t e = at(&net, i / AREA, c, i % AREA);
            sum += (double)diff_src[e];
            product += (double)diff_src[e] * ((double)x[e] - mean);
            shift += dst[e] > 0 ? (double)diff_dst[e] : 0;
            size += fabs((double)diff_src[e]);
        }
        assert_near(sum, 0, 1e-4);
        assert_near(product, 0, 1e-2); /* up to the eps in the variance */
        assert_near((double)diff_shift[c], shift, 1e-4);
    }
    assert_true(size > 10);
    free(x);
    free(scale);
    free(diff_dst);
    free(diff_src);
    free(diff_shift);
    free(dst);
    rig_close(&net.rig);
}

TEST_MAIN(NULL, NULL)
