/* The kernels of batch norm where the table of ops (tests/ops) does not reach: as many blocks as
 * there may be, several ranks, one row, NaN, ties; and that kernels which do the same work leave
 * the same bits. Values are small integers, so that sums are exact in any order and every type. */
#include "kernel_rig.h"

/* eps and the variance add up to 1, so that what backward multiplies with is an integer, too. */
static const double EPS = 0.25, VARIANCE_VALUE = 0.75, MOMENTUM = 0.1;

static const struct dt_pool_shape shapes[] = {
    /* n cp in_h in_w out_h out_w kernel stride pad; cp: before it is rounded up */
    {1, 12, 1, 1, 0, 0, 3, 2, 1},    {2, 3, 1, 1, 0, 0, 1, 1, 0},
    {2, 8, 7, 9, 0, 0, 3, 2, 1},     {3, 11, 6, 6, 0, 0, 2, 2, 0},
    {1, 20, 5, 4, 0, 0, 3, 1, 1},    {2, 5, 13, 13, 0, 0, 3, 2, 0},
    {1, 3, 20, 18, 0, 0, 15, 1, 0},  {1, 8, 9, 9, 0, 0, 2, 4, 0},
    {1, 7, 11, 12, 0, 0, 5, 3, 2},   {2, 64, 16, 16, 0, 0, 3, 2, 1},
    {3, 264, 10, 10, 0, 0, 3, 2, 1}, {1, 92, 25, 36, 0, 0, 3, 2, 1},
    {1, 2048, 5, 52, 0, 0, 3, 2, 1}, {2, 5, 50, 26, 0, 0, 3, 2, 1},
};

/* As many blocks as there may be, of several rows for each thread, which do not come out even, also
 * in two parts. */
static const struct dt_pool_shape large = {1, 61, 367, 369, 0, 0, 3, 2, 1};

/* --- Arrays --- */

/* How many there are of each, how large they are, and from where to where values are drawn. The
 * second one is of the other norm of a pair, those from OTHER on of kernels that do the same work.
 */
#define ARRAY_LIST(X)              \
    X(SRC, 2, MATRIX, -1, 1)       \
    X(DIFF, 2, MATRIX, -1, 2)      \
    X(OUT, 4, MATRIX, 0, 0)        \
    X(MASK, 3, BITS, 0, 0)         \
    X(SCALE, 2, VECTOR, 1, 3)      \
    X(SHIFT, 2, VECTOR, -1, 1)     \
    X(MEAN, 2, VECTOR, -1, 1)      \
    X(VARIANCE, 2, VECTOR, 0, 0)   \
    X(OWN, 3, VECTOR, 0, 0)        \
    X(RUNNING, 2, VECTOR, 0, 0)    \
    X(D_SCALE, 4, VECTOR, 0, 0)    \
    X(D_SHIFT, 4, VECTOR, 0, 0)    \
    X(FACTOR, 4, FACTORS, 0, 0)    \
    X(COEF, 4, COEFS, 0, 0)        \
    X(PARTIAL, 4, PARTIALS, 0, 0)  \
    X(SLOTS, 1, TWO_SLOTS, 0, 0)   \
    X(POOLED, 3, WINDOWS, 0, 0)    \
    X(D_POOLED, 1, WINDOWS, -1, 2) \
    X(WHERE, 3, BYTES, 0, 0)       \
    X(TICKET, 1, TICKETS, 0, 0)

enum { OTHER = 2, MAX = 4 };
enum { MATRIX, BITS, VECTOR, FACTORS, COEFS, PARTIALS, TWO_SLOTS, WINDOWS, BYTES, TICKETS };
#define NUMBERS(NAME, ...) NAME, NAME##_1, NAME##_2, NAME##_3,
enum { ARRAY_LIST(NUMBERS) N_ARRAYS };

static const struct {
    int n, kind, low, high;
} rows[] = {
#define ROW(NAME, ...) {__VA_ARGS__},
    ARRAY_LIST(ROW)
#undef ROW
};

struct net {
    enum dt_dtype type;
    int channels;
    struct dt_pool_shape shape;
    struct dt_norm_args args, several; /* with one rank; with more */
    struct array at[N_ARRAYS];
    struct dt_bn_vectors own, bn[2];    /* of the first with its own statistics; of the pair */
    struct dt_bn_sums sums[4];          /* of the pair; the same by OTHER kernels */
    struct dt_bn_statistics statistics; /* of src[0] */
};

static size_t count_of(const struct net *n, int kind)
{
    const struct dt_pool_shape *s = &n->shape;
    const size_t cp = (size_t)s->cp, windows = (size_t)s->n * (size_t)s->out_h * (size_t)s->out_w;
    const size_t partials = dt_sums_partial_bytes(n->args.rows, s->cp, 2) / sizeof(float);
    const size_t counts[] = {[MATRIX] = n->args.rows * cp,
                             [BITS] = n->args.rows * cp / 8,
                             [VECTOR] = cp,
                             [FACTORS] = cp,
                             [COEFS] = 3 * cp,
                             [PARTIALS] = partials,
                             [TWO_SLOTS] = 2 * DT_BN_SLOT_FLOATS(cp),
                             [WINDOWS] = windows * cp,
                             [BYTES] = windows * cp,
                             [TICKETS] = DT_MAX_TICKETS};
    return counts[kind];
}

static void create(struct net *n, int i)
{
    const int kind = rows[i / MAX].kind, low = rows[i / MAX].low;
    const int n_values = rows[i / MAX].high - low + 1;
    const bool is_byte = kind == BITS || kind == BYTES;
    const bool is_typed = kind == MATRIX || kind == WINDOWS || kind == FACTORS;
    struct array *a = &n->at[i];
    *a = array_create(kind == TICKETS ? DT_I32
                      : is_byte       ? DT_U8
                      : is_typed      ? n->type
                                      : DT_F32,
                      count_of(n, kind));
    for (size_t k = 0; k < a->count && n_values > 1; k++)
        if ((int)(k % (size_t)n->shape.cp) < n->channels)
            a->value[k] = (float)(low + floor((random_value(k, (uint32_t)i) + 1) / 2 * n_values));
    for (int c = 0; c < n->channels && i / MAX == VARIANCE / MAX; c++)
        a->value[c] = (float)VARIANCE_VALUE;
    /* A channel of zeros, and one so small that fp16 rounds positive values to 0. */
    if (n->channels > 2 && (i == SCALE || i == SHIFT || i == MEAN)) {
        a->value[0] = 0;
        a->value[1] = i == SCALE ? 1e-9f : 0;
    }
    array_put(a);
}

static struct net *open_net(const struct dt_pool_shape *shape, enum dt_dtype type)
{
    struct net *n = calloc(1, sizeof *n);
    assert_non_null(n);
    struct dt_pool_shape *s = &n->shape;
    *s = *shape;
    n->type = type;
    n->channels = s->cp;
    s->cp = (s->cp + 7) / 8 * 8;
    s->out_h = (s->in_h + 2 * s->pad - s->kernel) / s->stride + 1;
    s->out_w = (s->in_w + 2 * s->pad - s->kernel) / s->stride + 1;
    n->args = (struct dt_norm_args){.rows = (size_t)s->n * (size_t)s->in_h * (size_t)s->in_w,
                                    .cp = s->cp,
                                    .eps = (float)EPS,
                                    .momentum = (float)MOMENTUM};
    for (int i = 0; i < N_ARRAYS; i++)
        if (i % MAX < rows[i / MAX].n)
            create(n, i);
    n->args.tickets = n->at[TICKET].memory;
    n->several = n->args;
    n->several.yields = true;
    n->own = (struct dt_bn_vectors){n->at[SCALE].memory, n->at[SHIFT].memory, n->at[OWN].memory,
                                    n->at[OWN_1].memory};
    for (int k = 0; k < 2; k++)
        n->bn[k] = (struct dt_bn_vectors){n->at[SCALE + k].memory, n->at[SHIFT + k].memory,
                                          n->at[MEAN + k].memory, n->at[VARIANCE + k].memory};
    for (int i = 0; i < 4; i++)
        n->sums[i] = (struct dt_bn_sums){n->at[D_SCALE + i].memory, n->at[D_SHIFT + i].memory,
                                         n->at[COEF + i].memory, n->at[PARTIAL + i].memory, NULL};
    n->statistics = (struct dt_bn_statistics){.mean = n->at[OWN].memory,
                                              .variance = n->at[OWN_1].memory,
                                              .running_mean = n->at[RUNNING].memory,
                                              .running_var = n->at[RUNNING_1].memory,
                                              .partial = n->at[PARTIAL].memory,
                                              .inverse_std = n->at[OWN_2].memory};
    return n;
}

/* Looks at the guards of all arrays, which it leaves to free_all. */
static void close_net(struct net *n)
{
    for (int i = 0; i < N_ARRAYS; i++)
        if (n->at[i].count > 0)
            array_get(&n->at[i]);
    for (size_t i = 0; i < DT_MAX_TICKETS; i++)
        assert_true(n->at[TICKET].value[i] == 0);
    free(n);
}

static void *mem(const struct net *n, int i)
{
    return n->at[i].memory;
}

static void *mem_if(const struct net *n, bool wanted, int i)
{
    return wanted ? n->at[i].memory : NULL;
}

/* The rows of one of two ranks, of which the first has a third. */
static size_t rows_of(const struct net *n, int rank)
{
    const size_t third = n->args.rows / 3;
    return rank == 0 ? third : n->args.rows - third;
}

static void *part_of(const struct net *n, int i, int rank)
{
    const size_t bytes = n->at[i].count * dt_dtype_bytes(n->at[i].type);
    return (char *)n->at[i].memory + (rank == 0 ? 0 : bytes / n->args.rows * rows_of(n, 0));
}

static float *slot_of(const struct net *n, int rank)
{
    return (float *)mem(n, SLOTS) + (size_t)rank * DT_BN_SLOT_FLOATS(n->shape.cp);
}

static void assert_same(struct net *n, int a, int b)
{
    const size_t bytes = n->at[a].count * dt_dtype_bytes(n->at[a].type);
    char *host[2];
    for (int k = 0; k < 2; k++) {
        host[k] = alloc_host(bytes);
        CUDA(cudaMemcpyAsync(host[k], mem(n, k == 0 ? a : b), bytes, cudaMemcpyDeviceToHost,
                             stream));
        CUDA(cudaStreamSynchronize(stream));
    }
    if (memcmp(host[0], host[1], bytes) != 0)
        fail_msg("arrays %d and %d differ (%zu x %d, type %d)", a, b, n->args.rows, n->channels,
                 (int)n->type);
    free(host[0]);
    free(host[1]);
}

/* --- Forward --- */

static void launch_stats(struct net *n)
{
    CUDA(dt_kernel_bn_stats(stream, n->type, &n->statistics, mem(n, SRC), &n->args));
}

static void launch_apply(struct net *n, int dst, int mask, bool residual, bool relu,
                         const struct dt_bn_vectors *bn, const struct dt_norm_args *args)
{
    CUDA(dt_kernel_bn_apply(stream, n->type, mem(n, dst), mem_if(n, relu, mask), mem(n, SRC),
                            mem_if(n, residual, SRC + 1), bn->scale, bn->shift, bn->mean,
                            bn->variance, relu, args));
}

/* Exact sums of src and of its squares, as a convolution leaves them. */
static struct array make_sums(const struct net *n)
{
    const size_t cp = (size_t)n->shape.cp;
    struct array sums = array_create(DT_F32, 2 * cp);
    for (size_t i = 0; i < n->at[SRC].count; i++) {
        const float x = n->at[SRC].value[i];
        sums.value[i % cp] += x;
        sums.value[cp + i % cp] += x * x;
    }
    array_put(&sums);
    return sums;
}

static void check_statistics(struct net *n, const struct array *sums)
{
    const size_t cp = (size_t)n->shape.cp;
    const double count = (double)n->args.rows;
    double old[2];
    array_get(&n->at[OWN]);
    array_get(&n->at[OWN_1]);
    array_get(&n->at[OWN_2]);
    for (size_t c = 0; c < cp; c++) {
        const double mean = (double)sums->value[c] / count;
        const double m2 = (double)sums->value[cp + c] - count * mean * mean;
        old[0] = (double)n->at[RUNNING].value[c];
        old[1] = (double)n->at[RUNNING_1].value[c];
        assert_value(&n->at[OWN], c, mean, 1e-7);
        assert_value(&n->at[OWN_1], c, m2 / count, 2e-6 * m2 / count);
        assert_value(&n->at[OWN_2], c, 1 / sqrt(m2 / count + EPS), 1e-6);
        n->at[RUNNING].value[c] = (float)(old[0] + MOMENTUM * (mean - old[0]));
        n->at[RUNNING_1].value[c] =
            (float)(old[1] + MOMENTUM * (m2 / (count > 1 ? count - 1 : 1) - old[1]));
    }
    for (int i = RUNNING; i <= RUNNING_1; i++) {
        float *want = (float *)(void *)alloc_host(cp * sizeof *want);
        memcpy(want, n->at[i].value, cp * sizeof *want);
        array_get(&n->at[i]);
        for (size_t c = 0; c < cp; c++)
            assert_value(&n->at[i], c, (double)want[c], 1e-6);
        free(want);
    }
}

static void check_combined_statistics(struct net *n, const struct array *sums)
{
    struct dt_norm_args own = n->args;
    struct dt_bn_statistics out = n->statistics;
    for (int rank = 0; rank < 2; rank++) {
        own.rows = rows_of(n, rank);
        out.slot = slot_of(n, rank);
        CUDA(dt_kernel_bn_stats(stream, n->type, &out, part_of(n, SRC, rank), &own));
    }
    CUDA(dt_kernel_bn_combine(stream, &n->statistics, mem(n, SLOTS), 2, &own));
    check_statistics(n, sums);
}

/* By sums, by their statistics, for several ranks, and in the place of src. */
static void check_forward(struct net *n, unsigned first_flags)
{
    struct array sums = make_sums(n);
    launch_stats(n);
    check_statistics(n, &sums);
    if (n->args.rows >= 3)
        check_combined_statistics(n, &sums);
    for (unsigned flags = first_flags; flags < 4; flags++) {
        const bool relu = flags & 1, residual = flags & 2;
        CUDA(dt_kernel_bn_apply_sums(stream, n->type, mem(n, OUT), mem_if(n, relu, MASK),
                                     mem(n, SRC), mem_if(n, residual, SRC + 1), n->own.scale,
                                     n->own.shift, &n->statistics, sums.memory, relu, &n->several));
        check_statistics(n, &sums);
        launch_apply(n, OUT + OTHER, MASK + OTHER, residual, relu, &n->own, &n->args);
        assert_same(n, OUT, OUT + OTHER);
        assert_same(n, MASK, MASK + OTHER);
    }
    launch_apply(n, SRC, MASK + OTHER, true, true, &n->own, &n->several);
    assert_same(n, OUT, SRC);
    array_put(&n->at[SRC]);
    CUDA(dt_kernel_bn_finalize_sums(stream, n->type, mem(n, FACTOR), mem(n, FACTOR + 1),
                                    &n->statistics, sums.memory, &n->own, &n->args));
    check_statistics(n, &sums);
    CUDA(dt_kernel_bn_scale_shift(stream, n->type, mem(n, FACTOR + OTHER),
                                  mem(n, FACTOR + OTHER + 1), &n->own, &n->args));
    assert_same(n, FACTOR, FACTOR + OTHER);
    assert_same(n, FACTOR + 1, FACTOR + OTHER + 1);
}

static void launch_pair(struct net *n, int dst, const struct dt_norm_args *args)
{
    CUDA(dt_kernel_bn_pair_apply(stream, n->type, mem(n, dst), mem(n, MASK), mem(n, SRC),
                                 mem(n, SRC + 1), &n->bn[0], &n->bn[1], true, args));
}

static void check_pair_forward(struct net *n)
{
    launch_pair(n, OUT, &n->args);
    launch_pair(n, SRC + 1, &n->several);
    assert_same(n, OUT, SRC + 1);
    array_put(&n->at[SRC + 1]);
}

/* --- Backward, with MASK --- */

static void launch_bwd_sums(struct net *n, int k, int diff, bool two)
{
    CUDA(dt_kernel_bn_bwd_sums(stream, n->type, &n->sums[k], NULL, mem(n, SRC + k), mem(n, diff),
                               mem_if(n, two, DIFF + 1), mem(n, MASK), &n->bn[k], &n->args));
}

static void launch_bwd_apply(struct net *n, int k, int diff_src, int diff, bool two)
{
    CUDA(dt_kernel_bn_bwd_apply(stream, n->type, mem(n, diff_src), NULL, mem(n, SRC + k),
                                mem(n, diff), mem_if(n, two, DIFF + 1), mem(n, MASK),
                                mem(n, COEF + k), &n->args));
}

/* By way of diff_residual. */
static void launch_residual_bwd(struct net *n, int k, int diff_src, int diff_residual, bool two)
{
    CUDA(dt_kernel_bn_bwd_sums(stream, n->type, &n->sums[k], mem(n, diff_residual), mem(n, SRC + k),
                               mem(n, DIFF), mem_if(n, two, DIFF + 1), mem(n, MASK), &n->bn[k],
                               &n->args));
    CUDA(dt_kernel_bn_bwd_apply(stream, n->type, mem(n, diff_src), NULL, mem(n, SRC + k),
                                mem(n, diff_residual), NULL, NULL, mem(n, COEF + k), &n->several));
}

static void launch_pair_bwd_sums(struct net *n, int first, bool two)
{
    CUDA(dt_kernel_bn_pair_bwd_sums(stream, n->type, &n->sums[first], mem(n, SRC), mem(n, SRC + 1),
                                    mem(n, DIFF), mem_if(n, two, DIFF + 1), mem(n, MASK), n->bn,
                                    &n->args));
}

static void launch_pair_bwd_apply(struct net *n, int first, int diff_src, bool two,
                                  const struct dt_norm_args *args)
{
    CUDA(dt_kernel_bn_pair_bwd_apply(stream, n->type, mem(n, diff_src), mem(n, diff_src + 1),
                                     mem(n, SRC), mem(n, SRC + 1), mem(n, DIFF),
                                     mem_if(n, two, DIFF + 1), mem(n, MASK), mem(n, COEF + first),
                                     mem(n, COEF + first + 1), args));
}

/* The sums are those of a plain loop, exactly. */
static void check_sums(struct net *n, int k, bool two)
{
    const size_t cp = (size_t)n->shape.cp;
    double *sum = calloc(2 * cp, sizeof *sum);
    assert_non_null(sum);
    array_get(&n->at[MASK]);
    array_get(&n->at[D_SCALE + k]);
    array_get(&n->at[D_SHIFT + k]);
    for (size_t i = 0; i < n->at[SRC].count; i++) {
        const float g = n->at[DIFF].value[i] + (two ? n->at[DIFF + 1].value[i] : 0);
        const float x = n->at[SRC + k].value[i] - n->at[MEAN + k].value[i % cp];
        if (!((int)n->at[MASK].value[i / 8] >> i % 8 & 1))
            continue;
        assert_in_range(i % cp, 0, n->channels - 1); /* no bits of the padding */
        sum[i % cp] += (double)g;
        sum[cp + i % cp] += (double)(g * x);
    }
    for (size_t c = 0; c < (size_t)n->channels; c++) {
        assert_true((double)n->at[D_SHIFT + k].value[c] == sum[c]);
        assert_true((double)n->at[D_SCALE + k].value[c] == sum[cp + c]);
    }
    free(sum);
}

static void assert_same_sums(struct net *n, int k)
{
    assert_same(n, D_SCALE + k, D_SCALE + OTHER + k);
    assert_same(n, D_SHIFT + k, D_SHIFT + OTHER + k);
    assert_same(n, COEF + k, COEF + OTHER + k);
}

static void check_combined_sums(struct net *n)
{
    struct dt_norm_args own = n->args;
    struct dt_bn_sums out = n->sums[OTHER];
    for (int rank = 0; rank < 2; rank++) {
        const uint8_t *mask = part_of(n, MASK, rank);
        own.rows = rows_of(n, rank);
        out.slot = slot_of(n, rank);
        CUDA(dt_kernel_bn_bwd_sums(stream, n->type, &out, NULL, part_of(n, SRC, rank),
                                   part_of(n, DIFF, rank), NULL, mask, &n->bn[0], &own));
    }
    CUDA(dt_kernel_bn_bwd_combine(stream, mem(n, COEF + OTHER), mem(n, SLOTS), 2, &n->bn[0], &own));
    assert_same(n, COEF, COEF + OTHER);
}

/* By itself, by way of diff_residual, for several ranks, both of a pair at once, and in place. */
static void check_backward(struct net *n, bool two)
{
    for (int k = 0; k < 2; k++) {
        launch_residual_bwd(n, k, OUT + OTHER + k, OUT + k, two);
        launch_bwd_sums(n, k, DIFF, two);
        check_sums(n, k, two);
        launch_bwd_apply(n, k, OUT + k, DIFF, two);
        assert_same(n, OUT + k, OUT + OTHER + k);
    }
    if (!two && n->args.rows >= 3)
        check_combined_sums(n);
    launch_pair_bwd_sums(n, OTHER, two);
    for (int in_place = 0; in_place < 2; in_place++) {
        const int to = in_place ? DIFF : OUT + OTHER;
        launch_pair_bwd_apply(n, OTHER, to, two, in_place ? &n->several : &n->args);
        assert_same(n, OUT, to);
        assert_same(n, OUT + 1, to + 1);
    }
    for (int k = 0; k < 2; k++) {
        assert_same_sums(n, k);
        assert_same(n, PARTIAL + k, PARTIAL + OTHER + k);
        array_put(&n->at[DIFF + k]);
    }
}

/* --- With max pooling: bit by bit as one after the other --- */

static void launch_pool_bwd(struct net *n, int diff_src)
{
    CUDA(dt_kernel_bn_pool_bwd_sums(stream, n->type, &n->sums[OTHER], mem(n, SRC), mem(n, D_POOLED),
                                    mem(n, WHERE), &n->bn[0], &n->args, &n->shape));
    CUDA(dt_kernel_bn_pool_bwd_apply(stream, n->type, mem(n, diff_src), mem(n, SRC),
                                     mem(n, D_POOLED), mem(n, WHERE), mem(n, COEF + OTHER),
                                     &n->shape));
}

/* What `where` says is seen backward. */
static void check_pool_forward(struct net *n)
{
    launch_apply(n, OUT, MASK, false, true, &n->bn[0], &n->args);
    CUDA(dt_kernel_max_pool(stream, n->type, mem(n, POOLED + OTHER), mem(n, WHERE + OTHER),
                            mem(n, OUT), &n->shape));
    for (int with_where = 0; with_where < 2; with_where++) {
        CUDA(dt_kernel_bn_max_pool(stream, n->type, mem(n, POOLED), mem_if(n, with_where, WHERE),
                                   mem(n, SRC), &n->bn[0], n->args.eps, &n->shape));
        assert_same(n, POOLED, POOLED + OTHER);
    }
}

static void check_pool_backward(struct net *n)
{
    CUDA(dt_kernel_max_pool_bwd(stream, n->type, mem(n, OUT), mem(n, D_POOLED),
                                mem(n, WHERE + OTHER), &n->shape));
    launch_bwd_sums(n, 0, OUT, false);
    launch_bwd_apply(n, 0, OUT + OTHER, OUT, false);
    launch_pool_bwd(n, OUT);
    assert_same(n, OUT, OUT + OTHER);
    assert_same_sums(n, 0);
    launch_pool_bwd(n, SRC);
    assert_same(n, OUT, SRC);
}

/* --- Tests --- */

static void run_shape(const struct dt_pool_shape *shape, enum dt_dtype type)
{
    const bool is_large = shape == &large; /* which takes long */
    struct net *n = open_net(shape, type);
    check_forward(n, is_large ? 3 : 0);
    check_pair_forward(n);
    check_backward(n, true);
    if (!is_large)
        check_backward(n, false);
    check_pool_forward(n);
    check_pool_backward(n);
    close_net(n);
    free_all();
}

TEST(shapes)
{
    for (size_t i = 0; i < DT_COUNT(shapes); i++)
        for (size_t k = 0; k < DT_COUNT(TYPES); k++)
            run_shape(&shapes[i], TYPES[k]);
}

#ifndef __SANITIZE_ADDRESS__ /* takes minutes, and no code of its own */
TEST(large)
{
    run_shape(&large, DT_F16);
}
#endif

/* Index 255 would be one of a window of 16 x 16. */
TEST(window_too_large)
{
    struct net *n = open_net(&(struct dt_pool_shape){1, 8, 20, 20, 0, 0, 16, 1, 0}, DT_F32);
    assert_int_equal(dt_kernel_bn_max_pool(stream, n->type, mem(n, POOLED), mem(n, WHERE),
                                           mem(n, SRC), &n->bn[0], n->args.eps, &n->shape),
                     cudaErrorInvalidValue);
    close_net(n);
    free_all();
}

enum { BAD = 5, EVERY = 3 }; /* the channel with NaN, in a third of its pixels */

/* Array i has NaN in that channel only: where src[k] has, with k < 0 everywhere, with k > 1
 * nowhere. */
static void check_nan(struct net *n, int i, int k)
{
    const size_t cp = (size_t)n->shape.cp;
    array_get(&n->at[i]);
    for (size_t j = 0; j < n->at[i].count; j++)
        assert_int_equal(isnan(n->at[i].value[j]) != 0,
                         j % cp == BAD && (k < 0 || (k < 2 && j / cp % EVERY == 0)));
}

/* It gets through the ReLU and has its bit in the mask; as a maximum it has a gradient. */
static void check_nan_forward(struct net *n, int k)
{
    array_get(&n->at[MASK]);
    check_nan(n, OUT, k);
    for (size_t i = BAD; i < n->at[OUT].count; i += EVERY * (size_t)n->shape.cp)
        assert_true((int)n->at[MASK].value[i / 8] >> i % 8 & 1);
}

/* In training it takes its channel, there and back, but not the running statistics. */
static void check_nan_in_training(struct net *n, bool two)
{
    launch_stats(n);
    launch_apply(n, OUT, MASK, two, true, &n->own, &n->args);
    check_nan_forward(n, -1);
    for (int i = RUNNING; i <= RUNNING_1; i++) {
        array_get(&n->at[i]);
        for (int c = 0; c < n->channels; c++)
            assert_int_equal(n->at[i].value[c] == 0, c == BAD);
    }
    launch_residual_bwd(n, 0, OUT, OUT + OTHER, two);
    check_nan(n, OUT, -1);
    launch_bwd_apply(n, 0, OUT, DIFF, two);
    check_nan(n, OUT, -1);
}

static struct net *open_nan(enum dt_dtype type, int k)
{
    struct net *n = open_net(&(struct dt_pool_shape){2, 13, 40, 37, 0, 0, 3, 2, 1}, type);
    struct array *src = &n->at[SRC + k];
    for (size_t i = BAD; i < src->count; i += EVERY * (size_t)n->shape.cp)
        src->value[i] = NAN;
    array_put(src);
    return n;
}

/* In evaluation, and in a pair or a pooling forward, it stays where it is. */
TEST(nan)
{
    for (size_t i = 0; i < 2 * DT_COUNT(TYPES); i++) {
        const int k = (int)(i % 2);
        struct net *n = open_nan(TYPES[i / 2], k);
        launch_pair(n, OUT, &n->args);
        check_nan_forward(n, k);
        launch_pair_bwd_sums(n, 0, true);
        launch_pair_bwd_apply(n, 0, OUT, true, &n->args);
        check_nan(n, OUT + k, -1);
        check_nan(n, OUT + 1 - k, 2);
        if (k == 0) {
            launch_apply(n, OUT, MASK, false, true, &n->bn[0], &n->args);
            check_nan_forward(n, 0);
            check_pool_forward(n);
            launch_pool_bwd(n, OUT);
            check_nan(n, OUT, -1);
            check_nan_in_training(n, i / 2 % 2 == 0);
        }
        close_net(n);
        free_all();
    }
}

/* Whichever block is the last: the emulator runs them in another order each time. Of values whose
 * sums are rounded. */
TEST(same_bits)
{
    enum { N_RUNS = 6 };
    static const int results[] = {OUT, D_SCALE, RUNNING_1};
    struct net *nets[N_RUNS];
    for (int run = 0; run < N_RUNS; run++) {
        struct net *n = nets[run] =
            open_net(&(struct dt_pool_shape){1, 264, 40, 50, 0, 0, 1, 1, 0}, DT_F32);
        for (int i = SRC; i <= DIFF; i += DIFF - SRC) {
            for (size_t k = 0; k < n->at[i].count; k++)
                n->at[i].value[k] += (float)random_value(k, (uint32_t)i + 50);
            array_put(&n->at[i]);
        }
        launch_stats(n);
        launch_apply(n, OUT, MASK, true, true, &n->own, &n->args);
        launch_bwd_sums(n, 0, DIFF, true);
        launch_bwd_apply(n, 0, OUT, DIFF, true);
        for (size_t k = 0; k < DT_COUNT(results); k++) {
            struct array *a = &n->at[results[k]];
            array_get(a);
            assert_memory_equal(nets[0]->at[results[k]].value, a->value, a->count * sizeof(float));
        }
    }
    for (int run = 0; run < N_RUNS; run++)
        close_net(nets[run]);
    free_all();
}

KERNEL_TEST_MAIN()
