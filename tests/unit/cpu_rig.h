/* Runs a hand-made graph on the CPU backend: one block of memory per tensor, no plan. */
#ifndef DTRAIN_TESTS_CPU_RIG_H
#define DTRAIN_TESTS_CPU_RIG_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "dtrain/backend.h"
#include "test_status.h"

enum { RIG_MAX = 64 };

struct rig {
    struct dt_graph *g;
    struct dt_device *dev;
    struct dt_exec *exec[RIG_MAX];
    size_t scratch_bytes[RIG_MAX];
    void *address[RIG_MAX];
    void *scratch;
};

static inline void rig_open_rank(struct rig *rig, int threads, int rank, int n_ranks)
{
    const struct dt_device_options options = {
        .threads = threads, .deterministic = true, .seed = 7, .rank = rank, .n_ranks = n_ranks};
    *rig = (struct rig){0};
    assert_ok(dt_backend_cpu.open(&rig->dev, &options));
    assert_ok(dt_graph_create(&rig->g));
    rig->g->current = DT_TRAIN;
}

static inline void rig_open(struct rig *rig, int threads)
{
    rig_open_rank(rig, threads, 0, 1);
}

static inline int rig_tensor(struct rig *rig, const char *name, enum dt_role role, int n, int c,
                             int h, int w)
{
    const int dim[4] = {n, c, h, w};
    int id = dt_graph_tensor(rig->g, name, role, DT_F32, 4, dim);
    assert_true(id >= 0);
    return id;
}

static inline int rig_vector(struct rig *rig, const char *name, enum dt_role role,
                             enum dt_dtype dtype, int n)
{
    const int dim[4] = {n, 1, 1, 1};
    int id = dt_graph_tensor(rig->g, name, role, dtype, 1, dim);
    assert_true(id >= 0);
    return id;
}

#define RIG_IDS(...)                                           \
    (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (int[]) \
    {                                                          \
        __VA_ARGS__                                            \
    }

static inline struct dt_node *rig_node(struct rig *rig, enum dt_op op, int n_src, const int *src,
                                       int n_dst, const int *dst)
{
    struct dt_node *node = dt_graph_node(rig->g, op, "node", n_src, src, n_dst, dst);
    assert_non_null(node);
    if (op == DT_OP_CONV || op == DT_OP_CONV_BWD_DATA || op == DT_OP_CONV_BWD_WEIGHTS)
        node->attr.conv.dilation = 1;
    return node;
}

/* Prepares all nodes, gives every tensor memory, binds. */
static inline void rig_build(struct rig *rig)
{
    size_t scratch = 0;
    assert_true(rig->g->n_nodes <= RIG_MAX && rig->g->n_tensors <= RIG_MAX);
    for (int i = 0; i < rig->g->n_nodes; i++) {
        assert_ok(dt_backend_cpu.prepare(rig->dev, &rig->exec[i], rig->g, i));
        size_t bytes = dt_backend_cpu.scratch_bytes(rig->dev, rig->exec[i]);
        rig->scratch_bytes[i] = bytes;
        scratch = bytes > scratch ? bytes : scratch;
    }
    for (int i = 0; i < rig->g->n_tensors; i++)
        assert_ok(dt_backend_cpu.alloc(rig->dev, &rig->address[i],
                                       dt_backend_cpu.tensor_bytes(rig->dev, rig->g, i)));
    assert_ok(dt_backend_cpu.alloc(rig->dev, &rig->scratch, scratch));
    for (int i = 0; i < rig->g->n_nodes; i++)
        assert_ok(dt_backend_cpu.bind(rig->dev, rig->exec[i], rig->address, rig->scratch));
}

static inline void rig_run(struct rig *rig, const struct dt_scalars *scalars)
{
    static const struct dt_scalars none;
    assert_ok(dt_backend_cpu.set_scalars(rig->dev, scalars ? scalars : &none));
    for (int i = 0; i < rig->g->n_nodes; i++)
        assert_ok(dt_backend_cpu.run(rig->dev, rig->exec[i]));
}

static inline void rig_close(struct rig *rig)
{
    for (int i = 0; i < RIG_MAX; i++) {
        dt_backend_cpu.release(rig->dev, rig->exec[i]);
        dt_backend_cpu.free(rig->dev, rig->address[i], 0);
    }
    dt_backend_cpu.free(rig->dev, rig->scratch, 0);
    dt_graph_destroy(rig->g);
    dt_backend_cpu.close(rig->dev);
}

static inline void rig_set(struct rig *rig, int tensor, const float *values)
{
    assert_ok(dt_backend_cpu.set_tensor(rig->dev, rig->g, tensor, rig->address[tensor], values));
}

/* Logical values of a tensor; the caller frees them. */
static inline float *rig_get(struct rig *rig, int tensor)
{
    float *values = dt_mem_alloc(dt_tensor_elements(&rig->g->tensor[tensor]), sizeof *values, "");
    assert_non_null(values);
    assert_ok(dt_backend_cpu.get_tensor(rig->dev, rig->g, tensor, values, rig->address[tensor]));
    return values;
}

/* A fixed sequence that looks random, in [-1, 1). */
static inline float rig_value(size_t i)
{
    uint32_t x = (uint32_t)i * 2654435761u + 12345u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return (float)((double)x * 0x1p-31 - 1.0);
}

/* Sets a tensor to offset + scale * rig_value and returns a copy; the caller frees it. */
static inline float *rig_fill(struct rig *rig, int tensor, float offset, float scale)
{
    size_t n = dt_tensor_elements(&rig->g->tensor[tensor]);
    float *values = dt_mem_alloc(n, sizeof *values, "");
    assert_non_null(values);
    for (size_t i = 0; i < n; i++)
        values[i] = offset + scale * rig_value(i + 1000 * (size_t)tensor);
    rig_set(rig, tensor, values);
    return values;
}

static inline void assert_near(double actual, double expected, double tolerance)
{
    if (!(fabs(actual - expected) <= tolerance))
        fail_msg("%.9g is not within %g of %.9g", actual, tolerance, expected);
}

#endif
