/* Convolutions with what is computed along with them, by every candidate that cuDNN offers, against
 * plain loops in fp64. Label: numeric. */
#include "cuda/conv.h"
#include "kernel_rig.h"

#define OK(call) assert_string_equal((call) == DT_OK ? "" : dt_error_text(), "")

struct net {
    struct dt_conv_task task;
    struct array at[DT_DNN_N_TENSORS]; /* empty: not used by the task */
    double *want[DT_DNN_N_TENSORS];    /* of the tensors that it writes */
    double *size[DT_DNN_N_TENSORS];    /* the sum of the magnitudes that were added up */
};

/* What the task reads gets random values, what it writes none. */
static struct net *open_net(const struct dt_conv_task *task)
{
    struct net *n = calloc(1, sizeof *n);
    assert_non_null(n);
    n->task = *task;
    for (int t = 0; t < DT_DNN_N_TENSORS; t++) {
        const enum dt_dtype type = t <= DT_DNN_Y ? task->type : DT_F32;
        const size_t count = dt_dnn_tensor_bytes(task, t) / dt_dtype_bytes(type);
        if (count == 0)
            continue;
        n->at[t] = dt_dnn_writes(task, t) ? array_create(type, count)
                                          : array_random(type, count, (uint32_t)t + 1);
        n->want[t] = calloc(count, sizeof *n->want[t]);
        n->size[t] = calloc(count, sizeof *n->size[t]);
        assert_true(n->want[t] && n->size[t]);
    }
    return n;
}

static void close_net(struct net *n)
{
    for (int t = 0; t < DT_DNN_N_TENSORS; t++) {
        if (n->at[t].count > 0)
            array_free(&n->at[t]);
        free(n->want[t]);
        free(n->size[t]);
    }
    free(n);
}

/* --- What is expected --- */

static void add(struct net *n, enum dt_dnn_tensor tensor, size_t i, double term)
{
    n->want[tensor][i] += term;
    n->size[tensor][i] += fabs(term);
}

/* Adds the products of one tap to the tensor that the convolution computes. */
static void add_tap(struct net *n, size_t in_pixel, size_t tap, size_t out_pixel)
{
    const struct dt_conv_task *t = &n->task;
    const size_t n_c = (size_t)t->c, n_k = (size_t)t->k, n_taps = (size_t)t->r * (size_t)t->s;
    const float *x = n->at[DT_DNN_X].value, *w = n->at[DT_DNN_W].value;
    for (size_t k = 0; k < n_k; k++)
        for (size_t c = 0; c < n_c; c++)
            add(n, DT_DNN_Y, out_pixel * n_k + k,
                (double)x[in_pixel * n_c + c] * (double)w[(k * n_taps + tap) * n_c + c]);
}

static void expect_conv(struct net *n)
{
    const struct dt_conv_task *t = &n->task;
    const int out_h = dt_conv_out_h(t), out_w = dt_conv_out_w(t);
    for (int out = 0; out < t->n * out_h * out_w; out++)
        for (int tap = 0; tap < t->r * t->s; tap++) {
            const int image = out / (out_h * out_w);
            const int y = out / out_w % out_h * t->stride + tap / t->s - t->pad;
            const int x = out % out_w * t->stride + tap % t->s - t->pad;
            if (y >= 0 && y < t->h && x >= 0 && x < t->w)
                add_tap(n, (size_t)((image * t->h + y) * t->w + x), (size_t)tap, (size_t)out);
        }
}

static void expect_sums(struct net *n)
{
    const size_t n_k = (size_t)n->task.k;
    for (size_t i = 0; i < n->at[DT_DNN_Y].count; i++) {
        const double y = n->want[DT_DNN_Y][i];
        add(n, DT_DNN_SUM, i % n_k, y);
        add(n, DT_DNN_SQUARE_SUM, i % n_k, y * y);
    }
}

/* --- Runs --- */

/* Rounding of the terms is allowed for: whether sums are made of rounded values is not specified.
 */
static void check_written(struct net *n)
{
    for (int t = 0; t < DT_DNN_N_TENSORS; t++) {
        if (!dt_dnn_writes(&n->task, t))
            continue;
        array_get(&n->at[t]);
        const double slack = n->at[t].type == DT_F32 ? half_unit(n->task.type) : 0x1p-20;
        for (size_t i = 0; i < n->at[t].count; i++)
            assert_value(&n->at[t], i, n->want[t][i], slack * n->size[t][i]);
    }
}

static void run_plan(cudnnHandle_t dnn, struct net *n, const struct dt_dnn_plan *plan)
{
    struct dt_dnn_memory memory = {0};
    cudnnBackendDescriptor_t pack = NULL;
    for (int t = 0; t < DT_DNN_N_TENSORS; t++) {
        memory.at[t] = n->at[t].memory;
        if (dt_dnn_writes(&n->task, t)) /* NaN, which no other plan has left there */
            CUDA(cudaMemsetAsync(memory.at[t], 0xff, dt_dnn_tensor_bytes(&n->task, t), stream));
    }
    CUDA(cudaMalloc(&memory.workspace, plan->workspace_bytes + 1));
    OK(dt_dnn_pack_create(&pack, &memory));
    OK(dt_dnn_run(dnn, plan, pack));
    check_written(n);
    dt_dnn_pack_destroy(pack);
    CUDA(cudaFree(memory.workspace));
}

/* Returns the number of plans. */
static int run_all(struct net *n)
{
    struct dt_dnn_target target = {0};
    struct dt_dnn_offer *offer = NULL;
    int n_plans = 0;
    assert_int_equal(cudnnCreate(&target.handle), CUDNN_STATUS_SUCCESS);
    assert_int_equal(cudnnSetStream(target.handle, stream), CUDNN_STATUS_SUCCESS);
    OK(dt_dnn_offer_create(&offer, &target, &n->task));
    for (int i = 0; i < offer->n_candidates; i++) {
        struct dt_dnn_plan plan;
        if (dt_dnn_plan_create(&plan, &target, offer, i) != DT_OK)
            continue;
        run_plan(target.handle, n, &plan);
        dt_dnn_plan_destroy(&plan);
        n_plans++;
    }
    dt_dnn_offer_destroy(offer);
    assert_int_equal(cudnnDestroy(target.handle), CUDNN_STATUS_SUCCESS);
    return n_plans;
}

/* --- Shapes --- */

static const struct dt_conv_task shapes[] = {
    {.n = 2, .c = 16, .h = 7, .w = 6, .k = 24, .r = 1, .s = 1, .stride = 1, .pad = 0},
    {.n = 2, .c = 16, .h = 7, .w = 6, .k = 8, .r = 3, .s = 3, .stride = 1, .pad = 1},
    {.n = 3, .c = 8, .h = 8, .w = 5, .k = 32, .r = 3, .s = 3, .stride = 2, .pad = 1},
    {.n = 2, .c = 64, .h = 9, .w = 9, .k = 16, .r = 1, .s = 1, .stride = 2, .pad = 0},
};

static void test_sums(void **state)
{
    (void)state;
    for (size_t i = 0; i < DT_COUNT(shapes); i++) {
        struct dt_conv_task task = shapes[i];
        task.kind = DT_CONV_FORWARD;
        task.extra = DT_CONV_SUMS;
        task.type = DT_F16;
        struct net *n = open_net(&task);
        expect_conv(n);
        expect_sums(n);
        assert_true(run_all(n) >= 2);
        close_net(n);
    }
}

/* An empty offer for what cuDNN does not do. */
static void test_refused(void **state)
{
    const struct dt_conv_task stem = {
        .n = 2, .c = 4, .h = 32, .w = 32, .k = 64, .r = 7, .s = 7, .stride = 2, .pad = 3};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct dt_conv_task task = i == 0 ? stem : shapes[0];
        task.extra = DT_CONV_SUMS;
        task.type = i == 1 ? DT_BF16 : i == 2 ? DT_F32 : DT_F16;
        struct net *n = open_net(&task);
        const int n_plans = run_all(n);
        if (is_emulated())
            assert_int_equal(n_plans, 0);
        close_net(n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_refused),
    };
    return RUN_KERNEL_TESTS(tests);
}
