/* Dropout: rate and scale, the same mask forward and backward, and what the mask depends on. */
#include "cpu_rig.h"

enum { N = 4, C = 20, SIZE = 16, COUNT = N * C * SIZE * SIZE };

struct net {
    struct rig rig;
    int src, dst, diff_dst, diff_src;
};

static void open_net(struct net *net, int threads, float p, uint32_t stream)
{
    rig_open(&net->rig, threads);
    net->src = rig_tensor(&net->rig, "src", DT_ACT, N, C, SIZE, SIZE);
    net->dst = rig_tensor(&net->rig, "dst", DT_ACT, N, C, SIZE, SIZE);
    net->diff_dst = rig_tensor(&net->rig, "diff_dst", DT_DIFF, N, C, SIZE, SIZE);
    net->diff_src = rig_tensor(&net->rig, "diff_src", DT_DIFF, N, C, SIZE, SIZE);
    struct dt_node *node = rig_node(&net->rig, DT_OP_DROPOUT, RIG_IDS(net->src), RIG_IDS(net->dst));
    node->attr.dropout.p = p;
    node->attr.dropout.stream = stream;
    node = rig_node(&net->rig, DT_OP_DROPOUT_BWD, RIG_IDS(net->diff_dst), RIG_IDS(net->diff_src));
    node->attr.dropout.p = p;
    node->attr.dropout.stream = stream;
    rig_build(&net->rig);
}

/* dst of an all-ones src. */
static float *mask_of(int threads, uint32_t step, uint32_t stream)
{
    struct net net;
    open_net(&net, threads, 0.3f, stream);
    float *ones = rig_fill(&net.rig, net.src, 1, 0);
    rig_run(&net.rig, &(struct dt_scalars){.step = step});
    float *dst = rig_get(&net.rig, net.dst);
    free(ones);
    rig_close(&net.rig);
    return dst;
}

static void test_rate_and_agreement(void **state)
{
    (void)state;
    struct net net;
    open_net(&net, 2, 0.3f, 5);
    float *src = rig_fill(&net.rig, net.src, 3, 1);
    float *diff_dst = rig_fill(&net.rig, net.diff_dst, 5, 1);
    rig_run(&net.rig, &(struct dt_scalars){.step = 11});
    float *dst = rig_get(&net.rig, net.dst), *diff_src = rig_get(&net.rig, net.diff_src);
    int n_dropped = 0;
    for (int i = 0; i < COUNT; i++) {
        bool dropped = dst[i] == 0;
        n_dropped += dropped;
        assert_near((double)dst[i], dropped ? 0 : (double)src[i] / 0.7, 1e-5);
        assert_near((double)diff_src[i], dropped ? 0 : (double)diff_dst[i] / 0.7, 1e-5);
    }
    /* Five standard deviations of a binomial count. */
    assert_near(n_dropped, 0.3 * COUNT, 5 * sqrt(0.21 * COUNT));
    free(src);
    free(diff_dst);
    free(dst);
    free(diff_src);
    rig_close(&net.rig);
}

static void test_what_the_mask_depends_on(void **state)
{
    (void)state;
    float *base = mask_of(1, 1, 1), *threads = mask_of(3, 1, 1);
    float *step = mask_of(1, 2, 1), *stream = mask_of(1, 1, 2);
    assert_memory_equal(base, threads, COUNT * sizeof *base);
    assert_memory_not_equal(base, step, COUNT * sizeof *base);
    assert_memory_not_equal(base, stream, COUNT * sizeof *base);
    for (size_t i = 1; i < 8; i++) /* nowhere does the mask start again */
        assert_memory_not_equal(base, base + i * 512, 512 * sizeof *base);
    free(base);
    free(threads);
    free(step);
    free(stream);
}

static void test_nothing_dropped(void **state)
{
    (void)state;
    struct net net;
    open_net(&net, 2, 0, 1);
    float *src = rig_fill(&net.rig, net.src, 3, 1);
    rig_run(&net.rig, &(struct dt_scalars){.step = 1});
    float *dst = rig_get(&net.rig, net.dst);
    assert_memory_equal(src, dst, COUNT * sizeof *src);
    free(src);
    free(dst);
    rig_close(&net.rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rate_and_agreement),
                                       cmocka_unit_test(test_what_the_mask_depends_on),
                                       cmocka_unit_test(test_nothing_dropped)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
