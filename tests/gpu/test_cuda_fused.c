/* What is computed along with convolutions, by every candidate that cuDNN offers, against plain
 * loops in fp64. */
#include "cuda/conv.h"
#include "cuda/internal.h"
#include "kernel_rig.h"

#define OK(call) assert_string_equal((call) == DT_OK ? "" : dt_error_text(), "")

struct net {
    struct dt_conv_task task;
    struct array at[DT_DNN_N_TENSORS]; /* empty: not used by the task */
    double *want[DT_DNN_N_TENSORS];    /* of the tensors that it writes */
    double *size[DT_DNN_N_TENSORS];    /* the sum of the magnitudes that were added up */
};

static bool is_vector(int tensor)
{
    const bool of_bn = tensor >= DT_DNN_BN && (tensor - DT_DNN_BN) % DT_BN_N_TENSORS != DT_BN_SRC;
    return of_bn || (tensor >= DT_DNN_SUM && tensor <= DT_DNN_SHIFT);
}

static enum dt_dtype type_of(const struct dt_conv_task *task, int tensor)
{
    const bool is_applied = tensor == DT_DNN_SCALE || tensor == DT_DNN_SHIFT;
    return is_vector(tensor) && !is_applied ? DT_F32 : task->type;
}

/* Multiples of 1/32, so that the argument of a ReLU is exact and its sign certain. */
static void fill(struct array *a, int tensor)
{
    const bool is_inv_std =
        tensor >= DT_DNN_BN && (tensor - DT_DNN_BN) % DT_BN_N_TENSORS == DT_BN_INV_STD;
    for (size_t i = 0; i < a->count; i++) {
        const double x = nearbyint(32 * random_value(i, (uint32_t)tensor + 1)) / 32;
        a->value[i] = (float)(is_inv_std ? x + 1.5 : x);
    }
    array_put(a);
}

/* Values for what the task reads. */
static struct net *open_net(const struct dt_conv_task *task)
{
    struct net *n = calloc(1, sizeof *n);
    assert_non_null(n);
    n->task = *task;
    for (int t = 0; t < DT_DNN_N_TENSORS; t++) {
        const size_t bytes = dt_dnn_tensor_bytes(task, (enum dt_dnn_tensor)t);
        const size_t count = bytes / dt_dtype_bytes(type_of(task, t));
        if (count == 0)
            continue;
        n->at[t] = array_create(type_of(task, t), count);
        n->want[t] = calloc(count, sizeof *n->want[t]);
        n->size[t] = calloc(count, sizeof *n->size[t]);
        assert_true(n->want[t] && n->size[t]);
        if (!dt_dnn_writes(task, (enum dt_dnn_tensor)t))
            fill(&n->at[t], t);
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

static void add(struct net *n, int tensor, size_t i, double term, double size)
{
    n->want[tensor][i] += term;
    n->size[tensor][i] += size;
}

static double at(const struct net *n, int tensor, size_t i)
{
    return (double)n->at[tensor].value[i];
}

/* x, as the convolution reads it. */
static double factor_x(const struct net *n, size_t i)
{
    const size_t c = i % (size_t)n->task.c;
    if (n->at[DT_DNN_SCALE].count == 0)
        return at(n, DT_DNN_X, i);
    return (double)stored(n->task.type, fmax(0, at(n, DT_DNN_X, i) * at(n, DT_DNN_SCALE, c) +
                                                    at(n, DT_DNN_SHIFT, c)));
}

/* Adds the products of one tap to the tensor that the convolution computes. */
static void add_tap(struct net *n, size_t in_pixel, size_t tap, size_t out_pixel)
{
    static const int results[] = {DT_DNN_Y, DT_DNN_X, DT_DNN_W};
    const struct dt_conv_task *t = &n->task;
    const size_t n_c = (size_t)t->c, n_k = (size_t)t->k, n_taps = (size_t)t->r * (size_t)t->s;
    const int result = results[t->kind];
    for (size_t k = 0; k < n_k; k++)
        for (size_t c = 0; c < n_c; c++) {
            const size_t index[] = {in_pixel * n_c + c, (k * n_taps + tap) * n_c + c,
                                    out_pixel * n_k + k};
            double term = 1;
            if (result != DT_DNN_X)
                term *= factor_x(n, index[DT_DNN_X]);
            if (result != DT_DNN_W)
                term *= at(n, DT_DNN_W, index[DT_DNN_W]);
            if (result != DT_DNN_Y)
                term *= at(n, DT_DNN_Y, index[DT_DNN_Y]);
            add(n, result, index[result], term, fabs(term));
        }
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
        add(n, DT_DNN_SUM, i % n_k, y, fabs(y));
        add(n, DT_DNN_SQUARE_SUM, i % n_k, y * y, 2 * y * y);
    }
}

static double normed_src(const struct net *n, int bn, size_t i)
{
    const size_t c = i % (size_t)n->task.c;
    return (at(n, bn + DT_BN_SRC, i) - at(n, bn + DT_BN_MEAN, c)) * at(n, bn + DT_BN_INV_STD, c);
}

static double bn_dst(const struct net *n, int bn, size_t i)
{
    const size_t c = i % (size_t)n->task.c;
    return normed_src(n, bn, i) * at(n, bn + DT_BN_SCALE, c) + at(n, bn + DT_BN_SHIFT, c);
}

static void expect_mask(struct net *n)
{
    for (size_t i = 0; i < n->at[DT_DNN_X].count; i++) {
        double relu_src = bn_dst(n, DT_DNN_BN, i);
        if (n->at[DT_DNN_DIFF2].count > 0)
            add(n, DT_DNN_X, i, at(n, DT_DNN_DIFF2, i), fabs(at(n, DT_DNN_DIFF2, i)));
        if (n->at[DT_DNN_RESIDUAL].count > 0)
            relu_src += at(n, DT_DNN_RESIDUAL, i);
        if (n->at[DT_DNN_BN2].count > 0)
            relu_src += bn_dst(n, DT_DNN_BN2, i);
        if (!(relu_src > 0))
            n->want[DT_DNN_X][i] = n->size[DT_DNN_X][i] = 0;
    }
}

/* The backward pass of batch norm over the rows of x, up to the gradient of src. */
static void expect_reduced(struct net *n, int bn)
{
    const size_t n_c = (size_t)n->task.c, n_rows = n->at[DT_DNN_X].count / n_c;
    const double *scale_size = n->size[bn + DT_BN_DIFF_SCALE];
    const double *shift_size = n->size[bn + DT_BN_DIFF_SHIFT];
    for (size_t i = 0; i < n->at[DT_DNN_X].count; i++) {
        const double diff = n->want[DT_DNN_X][i], product = diff * normed_src(n, bn, i);
        add(n, bn + DT_BN_DIFF_SCALE, i % n_c, product, fabs(product));
        add(n, bn + DT_BN_DIFF_SHIFT, i % n_c, diff, fabs(diff));
    }
    for (size_t c = 0; c < n_c; c++) {
        const double inv_std = at(n, bn + DT_BN_INV_STD, c), mean = at(n, bn + DT_BN_MEAN, c);
        const double a = at(n, bn + DT_BN_SCALE, c) * inv_std, per_row = a / (double)n_rows;
        const double coef_src = -per_row * inv_std * n->want[bn + DT_BN_DIFF_SCALE][c];
        const double coef_size = fabs(per_row * inv_std) * scale_size[c];
        add(n, bn + DT_BN_COEF_DIFF, c, a, fabs(a));
        add(n, bn + DT_BN_COEF_SRC, c, coef_src, coef_size);
        add(n, bn + DT_BN_COEF_ONE, c,
            -per_row * n->want[bn + DT_BN_DIFF_SHIFT][c] - coef_src * mean,
            fabs(per_row) * shift_size[c] + fabs(mean) * coef_size);
    }
}

static void expect(struct net *n)
{
    expect_conv(n);
    if (n->at[DT_DNN_SUM].count > 0)
        expect_sums(n);
    if (n->at[DT_DNN_BN].count > 0) {
        expect_mask(n);
        expect_reduced(n, DT_DNN_BN);
    }
    if (n->at[DT_DNN_BN2].count > 0)
        expect_reduced(n, DT_DNN_BN2);
}

/* --- Runs --- */

/* Rounding of the terms is allowed for: whether sums are made of rounded values is not specified.
 */
static void check_written(struct net *n)
{
    for (int t = 0; t < DT_DNN_N_TENSORS; t++) {
        if (!dt_dnn_writes(&n->task, (enum dt_dnn_tensor)t))
            continue;
        array_get(&n->at[t]);
        const double slack = n->at[t].type == DT_F32 ? half_unit(n->task.type) : 0x1p-20;
        for (size_t i = 0; i < n->at[t].count; i++)
            assert_value(&n->at[t], i, n->want[t][i], slack * n->size[t][i]);
    }
}

static cudnnHandle_t dnn;

static int open_dnn(void **state)
{
    (void)state;
    return cudnnCreate(&dnn) != CUDNN_STATUS_SUCCESS ||
           cudnnSetStream(dnn, stream) != CUDNN_STATUS_SUCCESS;
}

static int close_dnn(void **state)
{
    (void)state;
    return cudnnDestroy(dnn) != CUDNN_STATUS_SUCCESS;
}

static void run_plan(struct net *n, const struct dt_dnn_plan *plan)
{
    struct dt_dnn_memory memory = {0};
    cudnnBackendDescriptor_t pack = NULL;
    for (int t = 0; t < DT_DNN_N_TENSORS; t++) {
        memory.at[t] = n->at[t].memory;
        if (dt_dnn_writes(&n->task, (enum dt_dnn_tensor)t)) /* NaN: no other plan leaves that */
            CUDA(cudaMemsetAsync(memory.at[t], 0xff, n->at[t].count * dt_dtype_bytes(n->at[t].type),
                                 stream));
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
    const struct dt_dnn_target target = {.handle = dnn};
    const struct dt_conv_rules rules = {0};
    struct dt_dnn_offer *offer = NULL;
    int n_plans = 0;
    OK(dt_dnn_offer_create(&offer, &target, &n->task));
    for (int i = 0; i < offer->n_candidates; i++) {
        struct dt_dnn_plan plan;
        if (dt_conv_try(&plan, &target, offer, &rules, n->task.type, i) != DT_OK)
            continue;
        run_plan(n, &plan);
        dt_dnn_plan_destroy(&plan);
        n_plans++;
    }
    dt_dnn_offer_destroy(offer);
    return n_plans;
}

/* --- Shapes --- */

static const struct dt_conv_task shapes[] = {
    {.n = 2, .c = 16, .h = 7, .w = 6, .k = 24, .r = 1, .s = 1, .stride = 1, .pad = 0},
    {.n = 2, .c = 16, .h = 7, .w = 6, .k = 8, .r = 3, .s = 3, .stride = 1, .pad = 1},
    {.n = 3, .c = 8, .h = 8, .w = 5, .k = 32, .r = 3, .s = 3, .stride = 2, .pad = 1},
    {.n = 2, .c = 64, .h = 9, .w = 9, .k = 16, .r = 1, .s = 1, .stride = 2, .pad = 0},
};

static const struct {
    enum dt_conv_kind kind;
    enum dt_conv_extra extra;
    bool dense; /* only with stride 1 */
} fused[] = {
    {DT_CONV_FORWARD, DT_CONV_SUMS, false},
    {DT_CONV_FORWARD, DT_CONV_NORM_SUMS, false},
    {DT_CONV_BWD_WEIGHTS, DT_CONV_NORM, false},
    {DT_CONV_BWD_DATA, DT_CONV_BN_BWD, false},
    {DT_CONV_BWD_DATA, DT_CONV_ADD_RESIDUAL_BN_BWD, true},
    {DT_CONV_BWD_DATA, DT_CONV_ADD_PAIR_BN_BWD, true},
};

TEST_WITH(numbers, open_dnn, close_dnn)
{
    for (size_t f = 0; f < DT_COUNT(fused); f++)
        for (size_t i = 0; i < DT_COUNT(shapes); i++) {
            struct dt_conv_task task = shapes[i];
            task.kind = fused[f].kind;
            task.extra = fused[f].extra;
            task.type = DT_F16;
            struct net *n = open_net(&task);
            expect(n);
            const int n_plans = run_all(n);
            if (!fused[f].dense || task.stride == 1)
                assert_true(n_plans > 0);
            else if (is_emulated())
                assert_int_equal(n_plans, 0);
            close_net(n);
        }
}

/* An empty offer for what cuDNN does not do. */
TEST_WITH(refused, open_dnn, close_dnn)
{
    const struct dt_conv_task stem = {
        .n = 2, .c = 4, .h = 32, .w = 32, .k = 64, .r = 7, .s = 7, .stride = 1, .pad = 3};
    const struct dt_conv_task tasks[] = {stem, shapes[0], shapes[0]};
    static const enum dt_dtype types[] = {DT_F16, DT_BF16, DT_F32};
    const struct dt_dnn_target target = {.handle = dnn};
    for (size_t f = 0; f < DT_COUNT(fused); f++)
        for (size_t i = 0; i < DT_COUNT(tasks); i++) {
            struct dt_conv_task task = tasks[i];
            struct dt_dnn_offer *offer = NULL;
            task.kind = fused[f].kind;
            task.extra = fused[f].extra;
            task.type = types[i];
            OK(dt_dnn_offer_create(&offer, &target, &task));
            if (is_emulated())
                assert_int_equal(offer->n_candidates, 0);
            dt_dnn_offer_destroy(offer);
        }
}

/* The timer finds room for the tensors of every task. */
TEST(timed)
{
    const struct dt_device_options options = {.threads = 1, .precision = DT_PRECISION_FP16};
    const struct dt_conv_rules rules = {0};
    struct dt_conv_problem problem[DT_COUNT(fused)] = {{0}};
    struct dt_conv_timer timer = {0};
    double seconds = -1;
    OK(dt_backend_cuda.open(&timer.dev, &options));
    for (size_t f = 0; f < DT_COUNT(fused); f++) {
        problem[f].task = shapes[1];
        problem[f].task.kind = fused[f].kind;
        problem[f].task.extra = fused[f].extra;
        problem[f].task.type = DT_F16;
        problem[f].next = f + 1 < DT_COUNT(fused) ? &problem[f + 1] : NULL;
    }
    OK(dt_conv_timer_open(&timer, problem));
    for (size_t f = 0; f < DT_COUNT(fused); f++) {
        const struct dt_dnn_target target = {.handle = timer.dev->dnn};
        struct dt_dnn_offer *offer = NULL;
        struct dt_dnn_plan plan;
        OK(dt_dnn_offer_create(&offer, &target, &problem[f].task));
        OK(dt_conv_try(&plan, &target, offer, &rules, DT_F16, 0));
        OK(dt_conv_timer_run(&timer, &problem[f].task, &plan, 2, &seconds));
        assert_true(seconds >= 0);
        dt_dnn_plan_destroy(&plan);
        dt_dnn_offer_destroy(offer);
    }
    dt_conv_timer_close(&timer);
    dt_backend_cuda.close(timer.dev);
}

KERNEL_TEST_MAIN()
