/* Fusions: which nodes of a network may run together, and which must not. */
#include "graph_check.h"
#include "resnet50_graph.h"

/* "bn_pair: layer1.0.bn3 layer1.0.downsample.1", one line per fusion of the kind. */
static int list(const struct dt_graph *g, enum dt_fusion_kind kind, char *text, size_t bytes)
{
    struct dt_fusion *fusions;
    int n_fusions, n = 0;
    size_t used = 0;
    assert_int_equal(dt_graph_fusions(g, &fusions, &n_fusions), DT_OK);
    text[0] = '\0';
    for (int i = 0; i < n_fusions; i++) {
        if (fusions[i].kind != kind)
            continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s:", dt_fusion_name(kind));
        for (int k = 0; k < fusions[i].n_nodes; k++)
            used += (size_t)snprintf(text + used, bytes - used, " %s",
                                     g->node[fusions[i].node[k]].name);
        used += (size_t)snprintf(text + used, bytes - used, "\n");
        assert_in_range(used, 1, bytes - 1);
        n++;
    }
    free(fusions);
    return n;
}

static struct dt_graph *make(int bn_ranks, bool fuse, const char *frozen)
{
    struct dt_graph *g;
    assert_int_equal(dt_graph_create(&g), DT_OK);
    g->bn_ranks = bn_ranks;
    add_resnet50(g, DT_TRAIN, 2);
    add_resnet50(g, DT_EVAL, 2);
    if (frozen)
        assert_int_not_equal(dt_graph_freeze(g, frozen), 0);
    if (fuse)
        assert_int_equal(dt_graph_fuse(g, NULL, NULL), DT_OK);
    assert_int_equal(dt_graph_differentiate(g), DT_OK);
    return g;
}

static void check(int bn_ranks, bool fuse, const char *frozen,
                  const int expected[DT_N_FUSION_KINDS])
{
    char text[8192];
    struct dt_graph *g = make(bn_ranks, fuse, frozen);
    for (int kind = 0; kind < DT_N_FUSION_KINDS; kind++)
        if (list(g, kind, text, sizeof text) != expected[kind])
            fail_msg("expected %d:\n%s", expected[kind], text);
    dt_graph_destroy(g);
}

TEST(resnet50)
{
    char text[8192];
    struct dt_graph *g = make(0, true, NULL);
    assert_int_equal(list(g, DT_FUSION_BN_PAIR, text, sizeof text), 4);
    assert_string_equal(text, "bn_pair: layer1.0.bn3 layer1.0.downsample.1\n"
                              "bn_pair: layer2.0.bn3 layer2.0.downsample.1\n"
                              "bn_pair: layer3.0.bn3 layer3.0.downsample.1\n"
                              "bn_pair: layer4.0.bn3 layer4.0.downsample.1\n");
    assert_int_equal(list(g, DT_FUSION_BN_PAIR_BWD, text, sizeof text), 4);
    assert_memory_equal(text, "bn_pair_bwd: layer4.0.downsample.1 layer4.0.bn3\n", 47);
    assert_int_equal(list(g, DT_FUSION_BN_POOL, text, sizeof text), 1);
    assert_string_equal(text, "bn_pool: bn1 maxpool maxpool bn1\n");
    dt_graph_destroy(g);
}

/* Nodes whose halves wait for other ranks, plain ReLU and addition, and fixed statistics. */
TEST(others)
{
    check(2, true, NULL, (int[DT_N_FUSION_KINDS]){0});
    check(0, false, NULL, (int[DT_N_FUSION_KINDS]){[DT_FUSION_CONV_BN] = 53});
    check(0, true, "bn1",
          (int[DT_N_FUSION_KINDS]){[DT_FUSION_BN_PAIR] = 4,
                                   [DT_FUSION_BN_PAIR_BWD] = 4,
                                   [DT_FUSION_CONV_BN] = 52,
                                   [DT_FUSION_CONV_BN_BWD] = 32,
                                   [DT_FUSION_CONV_ADD_BN_BWD] = 11,
                                   [DT_FUSION_CONV_PAIR_BWD] = 4,
                                   [DT_FUSION_BN_CONV] = 32});
    check(0, true, "layer1.0.downsample",
          (int[DT_N_FUSION_KINDS]){[DT_FUSION_BN_PAIR] = 3,
                                   [DT_FUSION_BN_PAIR_BWD] = 3,
                                   [DT_FUSION_BN_POOL] = 1,
                                   [DT_FUSION_CONV_BN] = 52,
                                   [DT_FUSION_CONV_BN_BWD] = 32,
                                   [DT_FUSION_CONV_ADD_BN_BWD] = 11,
                                   [DT_FUSION_CONV_PAIR_BWD] = 3,
                                   [DT_FUSION_BN_CONV] = 32});
}

/* Nothing is before the first node. */
TEST(one_node)
{
    const int dim[4] = {2, 8, 4, 4};
    struct dt_graph *g;
    struct dt_fusion *fusions;
    int n;
    assert_int_equal(dt_graph_create(&g), DT_OK);
    const int src = dt_graph_tensor(g, "src", DT_ACT, DT_F32, 4, dim);
    assert_int_not_equal(dt_graph_bn(g, src, "bn", 1), -1);
    assert_int_equal(dt_graph_fusions(g, &fusions, &n), DT_OK);
    assert_int_equal(n, 0);
    free(fusions);
    dt_graph_destroy(g);
}

TEST_MAIN(NULL, NULL)
