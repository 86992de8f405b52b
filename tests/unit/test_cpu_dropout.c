/* Dropout: rate and scale, the same mask forward and backward, and what the mask depends on.
 * Label: numeric. */
#include "cpu_rig.h"

enum { N = 4, C = 20, SIZE = 16, COUNT = N * C * SIZE * SIZE };

struct net {
    struct rig rig;
    int src, dst, diff_dst, diff_src;
};

static void open_shape(struct net *net, int threads, float p, uint32_t stream, int n, int c,
                       int size)
{
    rig_open(&net->rig, threads);
    net->src = rig_tensor(&net->rig, "src", DT_ACT, n, c, size, size);
    net->dst = rig_tensor(&net->rig, "dst", DT_ACT, n, c, size, size);
    net->diff_dst = rig_tensor(&net->rig, "diff_dst", DT_DIFF, n, c, size, size);
    net->diff_src = rig_tensor(&net->rig, "diff_src", DT_DIFF, n, c, size, size);
    struct dt_node *node = rig_node(&net->rig, DT_OP_DROPOUT, RIG_IDS(net->src), RIG_IDS(net->dst));
    node->attr.dropout.p = p;
    node->attr.dropout.stream = stream;
    node = rig_node(&net->rig, DT_OP_DROPOUT_BWD, RIG_IDS(net->diff_dst), RIG_IDS(net->diff_src));
    node->attr.dropout.p = p;
    node->attr.dropout.stream = stream;
    rig_build(&net->rig);
}

static void open_net(struct net *net, int threads, float p, uint32_t stream)
{
    open_shape(net, threads, p, stream, N, C, SIZE);
}

/* dst of an all-ones src; closes the net. */
static float *run_ones(struct net *net, const struct dt_scalars *scalars)
{
    float *ones = rig_fill(&net->rig, net->src, 1, 0);
    rig_run(&net->rig, scalars);
    float *dst = rig_get(&net->rig, net->dst);
    free(ones);
    rig_close(&net->rig);
    return dst;
}

static float *mask_of(int threads, uint32_t step, uint32_t stream)
{
    struct net net;
    open_net(&net, threads, 0.3f, stream);
    return run_ones(&net, &(struct dt_scalars){.step = step});
}

static float *mask_of_rows(int n, int c, int size, uint32_t first_row)
{
    struct net net;
    open_shape(&net, 2, 0.3f, 1, n, c, size);
    return run_ones(&net, &(struct dt_scalars){.step = 1, .first_row = first_row});
}

TEST(rate_and_agreement)
{
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

TEST(what_the_mask_depends_on)
{
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

/* The mask belongs to the image's place in the global batch, however that is dealt out. */
TEST(mask_of_parts)
{
    static const struct {
        int c, size;
    } shapes[] = {{C, SIZE}, {3, 5}, {1, 33}, {2, 1}}; /* 0, 3, 1 and 2 elements beyond a block */
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        int c = shapes[i].c, size = shapes[i].size;
        size_t image = (size_t)c * (size_t)size * (size_t)size;
        float *whole = mask_of_rows(6, c, size, 0);
        for (uint32_t first = 0; first < 6; first++) {
            float *part = mask_of_rows(6 - (int)first, c, size, first);
            assert_memory_equal(part, whole + first * image, (6 - first) * image * sizeof *part);
            free(part);
        }
        free(whole);
    }
}

/* Elements are counted beyond 2^32. */
TEST(mask_of_far_rows)
{
    enum { IMAGE = C * SIZE * SIZE };
    uint32_t row = (uint32_t)(((uint64_t)1 << 32) / IMAGE) + 1;
    size_t wrapped = (size_t)((uint64_t)row * IMAGE - ((uint64_t)1 << 32));
    float *near = mask_of_rows(2, C, SIZE, 0), *far = mask_of_rows(1, C, SIZE, row);
    assert_memory_not_equal(far, near + wrapped, IMAGE * sizeof *far);
    free(near);
    free(far);
}

TEST(nothing_dropped)
{
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

TEST_MAIN(NULL, NULL)
