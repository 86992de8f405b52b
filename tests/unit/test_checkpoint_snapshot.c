/* The copy that is saved: PyTorch's names in the order of the graph, contiguous data, and no change
 * when training continues. */

#include "checkpoint_rig.h"

static const struct {
    const char *name;
    int n_dims, elements; /* 0 dims = a counter */
} contents[2][10] = {
    {{"conv1.weight", 4, 135},
     {"bn1.weight", 1, 5},
     {"bn1.bias", 1, 5},
     {"bn1.running_mean", 1, 5},
     {"bn1.running_var", 1, 5},
     {"bn1.num_batches_tracked", 0, 1},
     {"fc.weight", 2, 15},
     {"fc.bias", 1, 3}},
    {{"momentum.conv1.weight", 4, 135},
     {"momentum.bn1.weight", 1, 5},
     {"momentum.bn1.bias", 1, 5},
     {"momentum.fc.weight", 2, 15},
     {"momentum.fc.bias", 1, 3},
     {"square.conv1.weight", 4, 135},
     {"square.bn1.weight", 1, 5},
     {"square.bn1.bias", 1, 5},
     {"square.fc.weight", 2, 15},
     {"square.fc.bias", 1, 3}},
};
static const int n_tensors[2] = {8, 10};

RIG_TEST(contents)
{
    uint64_t sum = 0;
    for (int file = 0; file < 2; file++) {
        int n;
        uint64_t bytes, end = 0;
        const struct dt_st_tensor *tensors = dt_snapshot_tensors(r->snapshot, file == 1, &n);
        assert_int_equal(n, n_tensors[file]);
        for (int i = 0; i < n; i++) {
            assert_string_equal(tensors[i].name, contents[file][i].name);
            assert_int_equal(tensors[i].n_dims, contents[file][i].n_dims);
            assert_int_equal(tensors[i].elements, contents[file][i].elements);
            assert_int_equal(tensors[i].dtype, tensors[i].n_dims ? DT_ST_F32 : DT_ST_I64);
            assert_int_equal(tensors[i].offset, end);
            end += tensors[i].bytes;
        }
        assert_non_null(dt_snapshot_data(r->snapshot, file == 1, &bytes));
        assert_int_equal(bytes, end);
        sum += bytes;
    }
    assert_int_equal(dt_snapshot_bytes(r->snapshot), sum);
}

static void assert_values(const struct rig *r, bool momentum, const char *name, const void *values,
                          size_t n_bytes)
{
    int n;
    uint64_t bytes;
    const struct dt_st_tensor *tensors = dt_snapshot_tensors(r->snapshot, momentum, &n);
    const char *data = dt_snapshot_data(r->snapshot, momentum, &bytes);
    for (int i = 0; i < n; i++) {
        if (strcmp(tensors[i].name, name) != 0)
            continue;
        assert_int_equal(tensors[i].bytes, n_bytes);
        assert_memory_equal(data + tensors[i].offset, values, n_bytes);
        return;
    }
    fail_msg("no %s", name);
}

static int find_tensor(const struct dt_graph *g, const char *name)
{
    int t = 0;
    while (strcmp(g->tensor[t].name, name) != 0)
        t++;
    return t;
}

RIG_TEST(take)
{
    struct dt_checkpoint at = rig_state(21);
    float weight[15], momentum[15], variance[5];
    const int64_t tracked = 42;
    int fc = find_tensor(r->graph, "fc.weight"), bn = find_tensor(r->graph, "bn1.running_var");
    rig_visit(r, 1, false);
    ok(dt_plan_get(r->plan, DT_ARENA_PARAMS, fc, weight));
    ok(dt_plan_get(r->plan, DT_ARENA_MOMENTUM, fc, momentum));
    ok(dt_plan_get(r->plan, DT_ARENA_STATS, bn, variance));
    ok(dt_snapshot_take(r->snapshot, &at));
    at.step = 99;           /* it is a copy, */
    rig_visit(r, 5, false); /* of everything */
    assert_int_equal(dt_snapshot_state(r->snapshot)->step, 21);
    assert_values(r, false, "fc.weight", weight, sizeof weight);
    assert_values(r, true, "momentum.fc.weight", momentum, sizeof momentum);
    assert_values(r, false, "bn1.running_var", variance, sizeof variance);
    assert_values(r, false, "bn1.num_batches_tracked", &tracked, sizeof tracked);
    assert_true(memcmp(weight, momentum, sizeof weight) != 0);

    at = rig_state(22);
    ok(dt_snapshot_take(r->snapshot, &at));
    ok(dt_plan_get(r->plan, DT_ARENA_PARAMS, fc, weight));
    assert_int_equal(dt_snapshot_state(r->snapshot)->step, 22);
    assert_values(r, false, "fc.weight", weight, sizeof weight);
}

TEST_MAIN(NULL, NULL)
