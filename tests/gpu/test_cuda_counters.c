/* What comes back from the GPU in numbers: loss and counters, a label that is no class, skipped
 * steps and the loss scale. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "dtrain/backend.h"
#include "need_gpu.h"
#include "test.h"

#define OK(call) assert_string_equal((call) == DT_OK ? "" : dt_error_text(), "")

enum { N = 6, N_CLASSES = 7, N_PARAMS = 64, ARENA_BYTES = N_PARAMS * (int)sizeof(float) };

static const struct dt_backend *const gpu = &dt_backend_cuda;

static struct dt_device *open_gpu(enum dt_precision precision, double loss_scale)
{
    const struct dt_device_options options = {
        .threads = 1, .precision = precision, .loss_scale = loss_scale, .timeout_s = 60};
    struct dt_device *dev;
    OK(gpu->open(&dev, &options));
    return dev;
}

/* --- Loss --- */

struct net {
    struct dt_device *dev;
    struct dt_graph *g;
    struct dt_exec *exec;
    int logits, labels;
    void *address[2], *scratch; /* tensors 0 and 1 */
};

/* All logits zero: the loss of a row is log(N_CLASSES), and class 0 is first. */
static void net_open(struct net *net)
{
    const int dims[4] = {N, N_CLASSES, 1, 1}, n[4] = {N, 1, 1, 1};
    net->dev = open_gpu(DT_PRECISION_FP32, 0);
    OK(dt_graph_create(&net->g));
    net->g->current = DT_EVAL;
    net->logits = dt_graph_tensor(net->g, "logits", DT_ACT, DT_F32, 4, dims);
    net->labels = dt_graph_tensor(net->g, "labels", DT_INPUT, DT_I32, 1, n);
    assert_true(net->logits == 0 && net->labels == 1);
    const int src[2] = {0, 1};
    assert_non_null(dt_graph_node(net->g, DT_OP_SOFTMAX_XENT, "loss", 2, src, 0, NULL));
    OK(gpu->autotune(net->dev, gpu->prepare(net->dev, &net->exec, net->g, 0)));
    for (int t = 0; t < 2; t++)
        OK(gpu->alloc(net->dev, &net->address[t], gpu->tensor_bytes(net->dev, net->g, t)));
    OK(gpu->alloc(net->dev, &net->scratch, gpu->scratch_bytes(net->dev, net->exec)));
    OK(gpu->bind(net->dev, net->exec, net->address, net->scratch));
}

static void net_close(struct net *net)
{
    gpu->release(net->dev, net->exec);
    for (int t = 0; t < 2; t++)
        gpu->free(net->dev, net->address[t], 0);
    gpu->free(net->dev, net->scratch, 0);
    dt_graph_destroy(net->g);
    gpu->close(net->dev);
}

static void net_run(struct net *net, const int32_t *labels)
{
    OK(gpu->upload(net->dev, net->address[1], labels, N * sizeof *labels));
    OK(gpu->run(net->dev, net->exec));
}

TEST(counters)
{
    const int32_t labels[N] = {0, 4, 5, -1, 0, 6};
    const double log_classes = 1.9459101490553132;
    struct dt_counters got;
    struct net net;
    net_open(&net);
    OK(gpu->download(net.dev, &got)); /* nothing ran */
    assert_true(got.n == 0 && got.loss == 0);
    for (int times = 1; times < 3; times++) {
        for (int i = 0; i < times; i++)
            net_run(&net, labels);
        OK(gpu->download(net.dev, &got));
        assert_int_equal(got.n, 5 * times);
        assert_int_equal(got.n_finite, 5 * times);
        assert_int_equal(got.top1, 2 * times);
        assert_int_equal(got.top5, 3 * times);
        assert_int_equal(got.n_skipped, 0);
        assert_true(got.loss > 5 * times * (log_classes - 1e-6) &&
                    got.loss < 5 * times * (log_classes + 1e-6));
    }
    net_close(&net);
}

TEST(bad_label)
{
    const int32_t bad[N] = {0, 0, 8, 7, 0, 0}, huge[N] = {0, 0, INT32_MAX, 0, 0, 0};
    const int32_t good[N] = {0};
    struct dt_counters got;
    struct net net;
    net_open(&net);
    net_run(&net, bad);
    net_run(&net, huge);
    assert_int_equal(gpu->download(net.dev, &got), DT_ERR_DATA);
    assert_non_null(strstr(dt_error_text(), "label 8"));
    assert_non_null(strstr(dt_error_text(), "model.num_classes is 7"));
    assert_int_equal(got.n, 4 + 5);
    net_run(&net, huge);
    assert_int_equal(gpu->download(net.dev, &got), DT_ERR_DATA);
    assert_non_null(strstr(dt_error_text(), "label 2147483647"));
    net_run(&net, good); /* reported once */
    OK(gpu->download(net.dev, &got));
    assert_int_equal(got.n, N);
    net_close(&net);
}

/* --- Loss scale --- */

/* params, momentum, grads and shadow of one segment, all on the GPU. */
struct arenas {
    struct dt_device *dev;
    enum dt_dtype type; /* of the shadow */
    void *params, *momentum, *shadow, *grads;
};

static void arenas_open(struct arenas *a, enum dt_precision precision, double loss_scale)
{
    a->dev = open_gpu(precision, loss_scale);
    a->type = precision == DT_PRECISION_FP16   ? DT_F16
              : precision == DT_PRECISION_BF16 ? DT_BF16
                                               : DT_F32;
    OK(gpu->alloc(a->dev, &a->params, ARENA_BYTES));
    OK(gpu->alloc(a->dev, &a->momentum, ARENA_BYTES));
    OK(gpu->alloc(a->dev, &a->shadow, ARENA_BYTES));
    OK(gpu->alloc(a->dev, &a->grads, ARENA_BYTES));
}

static void arenas_close(struct arenas *a)
{
    gpu->free(a->dev, a->params, ARENA_BYTES);
    gpu->free(a->dev, a->momentum, ARENA_BYTES);
    gpu->free(a->dev, a->shadow, ARENA_BYTES);
    gpu->free(a->dev, a->grads, ARENA_BYTES);
    gpu->close(a->dev);
}

/* What the plan does after the backward part, with all gradients `gradient` and the last `last`. */
static void take_step(struct arenas *a, float gradient, float last)
{
    const struct dt_scalars scalars = {.lr = 1};
    const struct dt_segment segment = {0, N_PARAMS, 1, 1, 0, false};
    const struct dt_update update = {.params = a->params,
                                     .momentum = a->momentum,
                                     .shadow = a->shadow,
                                     .grads = a->grads,
                                     .grads_type = DT_F32,
                                     .segments = &segment,
                                     .n_segments = 1};
    float grads[N_PARAMS];
    for (int i = 0; i < N_PARAMS; i++)
        grads[i] = i == N_PARAMS - 1 ? last : gradient;
    OK(gpu->upload(a->dev, a->grads, grads, sizeof grads));
    OK(gpu->set_scalars(a->dev, &scalars));
    OK(gpu->check(a->dev, a->grads, DT_F32, N_PARAMS, NULL));
    OK(gpu->update(a->dev, &update));
    OK(gpu->end_step(a->dev));
}

static void assert_scale(struct arenas *a, float scale, int32_t n_clean)
{
    struct dt_loss_scale got;
    OK(gpu->get_loss_scale(a->dev, &got));
    assert_true(got.scale == scale);
    assert_int_equal(got.n_clean, n_clean);
}

static void assert_skipped(struct arenas *a, int64_t n)
{
    struct dt_counters got;
    OK(gpu->download(a->dev, &got));
    assert_int_equal(got.n_skipped, n);
}

/* The parameters themselves: their 16-bit copy is added to zeros. */
static void assert_params(struct arenas *a, float want)
{
    struct dt_graph *g;
    const int dim[4] = {N_PARAMS, 1, 1, 1};
    float got[N_PARAMS];
    OK(dt_graph_create(&g));
    int t = dt_graph_tensor(g, "vector", DT_STAT, DT_F32, 1, dim);
    OK(gpu->get_tensor(a->dev, g, t, got, a->params));
    for (int i = 0; i < N_PARAMS; i++)
        assert_true(got[i] == want);
    OK(gpu->accumulate(a->dev, a->grads, a->shadow, a->type, N_PARAMS, true));
    OK(gpu->get_tensor(a->dev, g, t, got, a->grads));
    for (int i = 0; i < N_PARAMS; i++)
        assert_true(got[i] == want);
    dt_graph_destroy(g);
}

TEST(dynamic_scale)
{
    struct arenas a;
    arenas_open(&a, DT_PRECISION_FP16, 0);
    assert_scale(&a, 65536, 0);
    take_step(&a, 65536, 65536); /* a gradient of 1 */
    assert_params(&a, -1);
    assert_scale(&a, 65536, 1);
    take_step(&a, 65536, (float)NAN);
    take_step(&a, 65536, (float)INFINITY);
    assert_params(&a, -1);
    assert_scale(&a, 16384, 0);
    assert_skipped(&a, 2);
    take_step(&a, 32768, 32768);
    assert_params(&a, -3);
    take_step(&a, 32768, -(float)INFINITY);
    assert_skipped(&a, 1);
    assert_skipped(&a, 0);
    arenas_close(&a);
}

TEST(set_scale)
{
    const struct dt_loss_scale set = {.scale = 8, .n_clean = 1998};
    struct arenas a;
    arenas_open(&a, DT_PRECISION_FP16, 0);
    take_step(&a, 0, (float)NAN);
    OK(gpu->set_loss_scale(a.dev, &set));
    assert_skipped(&a, 1);
    take_step(&a, 16, 16);
    assert_params(&a, -2);
    assert_scale(&a, 8, 1999);
    take_step(&a, 0, 0);
    assert_scale(&a, 16, 0);
    take_step(&a, 0, (float)NAN);
    assert_scale(&a, 8, 0);
    assert_skipped(&a, 1);
    arenas_close(&a);
}

/* A fixed scale stays, but a step that is not finite is left out all the same. */
TEST(fixed_scale)
{
    struct arenas a;
    arenas_open(&a, DT_PRECISION_FP16, 128);
    assert_scale(&a, 128, 0);
    take_step(&a, 128, (float)NAN);
    take_step(&a, 128, 128);
    assert_params(&a, -1);
    assert_scale(&a, 128, 1);
    assert_skipped(&a, 1);
    arenas_close(&a);
}

/* In the other precisions there is no scale, not even one that is set, but steps are left out. */
TEST(no_scale)
{
    const enum dt_precision precisions[] = {DT_PRECISION_FP32, DT_PRECISION_TF32,
                                            DT_PRECISION_BF16};
    const struct dt_loss_scale set = {.scale = 8};
    for (size_t i = 0; i < DT_COUNT(precisions); i++) {
        struct arenas a;
        struct dt_counters got;
        arenas_open(&a, precisions[i], 128);
        OK(gpu->set_loss_scale(a.dev, &set));
        take_step(&a, 1, 1);
        for (int k = 0; k < 3; k++)
            take_step(&a, 1, (float)NAN);
        assert_params(&a, -1);
        assert_scale(&a, 1, 0);
        OK(gpu->download(a.dev, &got));
        assert_true(got.n_skipped == 3 && got.n_in_a_row == 3);
        take_step(&a, 1, (float)INFINITY);
        take_step(&a, 1, 1);
        assert_params(&a, -2);
        assert_scale(&a, 1, 1);
        OK(gpu->download(a.dev, &got));
        assert_true(got.n_skipped == 1 && got.n_in_a_row == 4);
        OK(gpu->download(a.dev, &got));
        assert_true(got.n_skipped == 0 && got.n_in_a_row == 0);
        arenas_close(&a);
    }
}

GPU_TEST_MAIN(NULL, NULL)
