/* The kernels of pointwise.cu against plain loops. */
#include "base/rng.h"
#include "kernel_rig.h"

static const size_t COUNTS[] = {8, 2048, 2056, 40000};

static double relu(double x)
{
    return x <= 0 ? 0 : x;
}

/* NaN, infinity, -0 and the edges between threads. */
static void make_special(struct array *a)
{
    a->value[0] = NAN;
    a->value[3] = -0.0f;
    a->value[5] = -INFINITY;
    a->value[a->count - 1] = NAN;
    a->value[a->count - 2] = INFINITY;
    array_put(a);
}

static void check_relu(enum dt_dtype type, size_t count)
{
    struct array src = array_random(type, count, 1), dst = array_create(type, count);
    make_special(&src);
    CUDA(dt_kernel_activation(stream, type, DT_RELU, dst.memory, src.memory, count, 8, 8));
    /* In place. */
    CUDA(dt_kernel_activation(stream, type, DT_RELU, src.memory, src.memory, count, 8, 8));
    array_get(&dst);
    for (size_t i = 0; i < count; i++)
        assert_value(&dst, i, relu((double)src.value[i]), 0);
    array_get(&src);
    for (size_t i = 0; i < count; i++)
        assert_value(&src, i, (double)dst.value[i], 0);
    free_all();
}

static void check_add(enum dt_dtype type, size_t count, bool with_relu)
{
    struct array a = array_random(type, count, 1), b = array_random(type, count, 2);
    struct array dst = array_create(type, count);
    make_special(&a);
    CUDA(dt_kernel_add(stream, type, dst.memory, a.memory, b.memory, count, with_relu));
    CUDA(dt_kernel_add(stream, type, b.memory, a.memory, b.memory, count, with_relu));
    array_get(&dst);
    for (size_t i = 0; i < count; i++) {
        double sum = (double)a.value[i] + (double)b.value[i];
        assert_value(&dst, i, with_relu ? relu(sum) : sum, 0);
    }
    array_get(&b);
    for (size_t i = 0; i < count; i++)
        assert_value(&b, i, (double)dst.value[i], 0);
    free_all();
}

static void check_relu_bwd(enum dt_dtype type, size_t count, bool two)
{
    struct array diff = array_random(type, count, 1), diff2 = array_random(type, count, 2);
    struct array dst = array_random(type, count, 3), diff_src = array_create(type, count);
    make_special(&dst);
    diff.value[4] = NAN;
    array_put(&diff);
    CUDA(dt_kernel_activation_bwd(stream, type, DT_RELU, diff_src.memory, diff.memory,
                                  two ? diff2.memory : NULL, dst.memory, count));
    array_get(&diff_src);
    for (size_t i = 0; i < count; i++) {
        double sum = (double)diff.value[i] + (two ? (double)diff2.value[i] : 0);
        assert_value(&diff_src, i, dst.value[i] <= 0 ? 0 : sum, 0);
    }
    free_all();
}

static void check_sum(enum dt_dtype type, size_t count, int n_terms)
{
    struct array term[DT_MAX_TERMS], dst = array_create(type, count);
    const void *terms[DT_MAX_TERMS];
    for (int k = 0; k < n_terms; k++) {
        term[k] = array_random(type, count, (uint32_t)k + 1);
        terms[k] = term[k].memory;
    }
    CUDA(dt_kernel_sum(stream, type, dst.memory, terms, n_terms, count));
    array_get(&dst);
    for (size_t i = 0; i < count; i++) {
        double sum = 0;
        for (int k = 0; k < n_terms; k++)
            sum += (double)term[k].value[i];
        assert_value(&dst, i, sum, 1e-6);
    }
    free_all();
}

TEST(flat)
{
    for (size_t t = 0; t < DT_COUNT(TYPES); t++)
        for (size_t i = 0; i < DT_COUNT(COUNTS); i++) {
            check_relu(TYPES[t], COUNTS[i]);
            check_add(TYPES[t], COUNTS[i], false);
            check_add(TYPES[t], COUNTS[i], true);
            check_relu_bwd(TYPES[t], COUNTS[i], false);
            check_relu_bwd(TYPES[t], COUNTS[i], true);
            check_sum(TYPES[t], COUNTS[i], 2);
            check_sum(TYPES[t], COUNTS[i], DT_MAX_TERMS);
        }
}

/* --- Bias --- */

static void check_bias(enum dt_dtype type, size_t rows, int c, int cp, bool with_bias,
                       bool with_relu)
{
    struct array src = array_rows(type, rows, c, cp, 1, 1);
    struct array bias = array_rows(DT_F32, 1, c, cp, 1, 2);
    struct array dst = array_rows(type, rows, c, cp, 1, 1);
    CUDA(dt_kernel_bias(stream, type, dst.memory, with_bias ? bias.memory : NULL, rows, cp,
                        with_relu));
    array_get(&dst);
    for (size_t i = 0; i < dst.count; i++) {
        double x = (double)src.value[i] + (with_bias ? (double)bias.value[i % (size_t)cp] : 0);
        assert_value(&dst, i, with_relu ? relu(x) : x, 1e-7);
    }
    free_all();
}

static void check_bias_bwd(enum dt_dtype type, size_t rows, int c, int cp, double range)
{
    struct array diff = array_rows(type, rows, c, cp, range, 1);
    struct array diff_bias = array_create(DT_F32, (size_t)cp);
    struct array partial =
        array_create(DT_F32, dt_channel_partial_bytes(rows, cp, 1) / sizeof(float));
    CUDA(cudaMemsetAsync(partial.memory, 0xff, partial.count * sizeof(float), stream)); /* NaN */
    CUDA(dt_kernel_bias_bwd(stream, type, diff_bias.memory, partial.memory, diff.memory, rows, cp));
    array_get(&diff_bias);
    array_get(&partial);
    for (int channel = 0; channel < cp; channel++) {
        double sum = 0;
        for (size_t row = 0; row < rows; row++)
            sum += (double)diff.value[row * (size_t)cp + (size_t)channel];
        assert_value(&diff_bias, (size_t)channel, sum, 1e-6 * range * sqrt((double)rows));
    }
    free_all();
}

TEST(bias)
{
    enum { MANY_ROWS = 20000 };
    static const struct {
        size_t rows;
        int c, cp;
    } shapes[] = {{1, 3, 8}, {7, 24, 24}, {300, 10, 16}, {5000, 5, 8}, {70, 523, 528}};
    for (size_t t = 0; t < DT_COUNT(TYPES); t++)
        for (size_t i = 0; i < DT_COUNT(shapes); i++) {
            for (int flags = 0; flags < 4; flags++)
                check_bias(TYPES[t], shapes[i].rows, shapes[i].c, shapes[i].cp, flags & 1,
                           flags & 2);
            check_bias_bwd(TYPES[t], shapes[i].rows, shapes[i].c, shapes[i].cp, 1);
        }
    assert_true(dt_channel_geometry(MANY_ROWS, 104).grid_y >
                64); /* more than finalize has threads */
    check_bias_bwd(DT_F32, MANY_ROWS, 100, 104, 1);
    check_bias_bwd(DT_F16, MANY_ROWS, 3, 8, 60000); /* sums that fp16 cannot hold */
}

/* --- Dropout --- */

struct dropout_case {
    int n, c, h, w, cp;
    float p;
    uint32_t first_row;
};

static void check_dropout(enum dt_dtype type, const struct dropout_case *d)
{
    enum { SEED_HIGH = 3, DROPOUT_STREAM = 2, STEP = 11 };
    const uint64_t seed = (uint64_t)SEED_HIGH << 32 | 77;
    const struct dt_step_values values = {.step = STEP, .first_row = d->first_row};
    struct dt_step_values *step = struct_create(&values, sizeof values);
    size_t rows = (size_t)d->n * (size_t)d->h * (size_t)d->w, cp = (size_t)d->cp;
    size_t image = (size_t)d->c * (size_t)d->h * (size_t)d->w;
    size_t skip = d->first_row * image, n_words = skip + (size_t)d->n * image;
    struct array src = array_rows(type, rows, d->c, d->cp, 1, 1);
    struct array dst = array_create(type, rows * cp);
    uint32_t *word = (uint32_t *)(void *)alloc_host(n_words * sizeof *word);
    dt_rng_fill(word, n_words, seed, DT_RNG_DROPOUT, STEP, DROPOUT_STREAM, 0);
    double scale = d->p < 1 ? 1 / (1 - (double)d->p) : 0;

    CUDA(dt_kernel_dropout(stream, type, dst.memory, src.memory, d->n, d->c, d->h, d->w, d->cp,
                           d->p, seed, DROPOUT_STREAM, step));
    array_get(&dst);
    for (size_t row = 0; row < rows; row++)
        for (size_t c = 0; c < cp; c++) {
            size_t plane = (size_t)d->h * (size_t)d->w, at = row * cp + c;
            size_t i = skip + (row / plane * (size_t)d->c + c) * plane + row % plane;
            bool kept = c < (size_t)d->c && word[i] >= (double)d->p * 0x1p32;
            assert_value(&dst, at, kept ? scale * (double)src.value[at] : 0, 0);
        }
    free(word);
    free_all();
}

TEST(dropout)
{
    static const struct dropout_case cases[] = {
        {3, 64, 1, 1, 64, 0.5f, 0}, {3, 21, 1, 1, 24, 0.3f, 5}, {2, 13, 3, 5, 16, 0.3f, 1},
        {4, 8, 2, 1, 8, 0.9f, 2},   {1, 9, 7, 7, 16, 0, 0},     {2, 8, 2, 2, 8, 1, 3}};
    for (size_t t = 0; t < DT_COUNT(TYPES); t++)
        for (size_t i = 0; i < DT_COUNT(cases); i++)
            check_dropout(TYPES[t], &cases[i]);
}

/* --- Ingest --- */

static bool is_inside(const struct dt_ingest *a, const struct array *sizes, size_t row)
{
    size_t line = row / (size_t)a->width, image = line / (size_t)a->height;
    return !a->sizes || ((float)(line % (size_t)a->height) < sizes->value[2 * image] &&
                         (float)(row % (size_t)a->width) < sizes->value[2 * image + 1]);
}

static void check_ingest(enum dt_dtype type, struct dt_ingest a, bool sized)
{
    size_t rows = (size_t)a.n * (size_t)a.height * (size_t)a.width, cp = (size_t)a.cp;
    struct array src = array_create(DT_U8, rows * (size_t)a.channels);
    struct array dst = array_create(type, rows * cp);
    struct array sizes = array_create(DT_I32, 2 * (size_t)a.n);
    for (size_t i = 0; i < src.count; i++)
        src.value[i] = (float)((i * 37 + i / 256) % 256);
    for (int i = 0; i < 2 * a.n; i++)
        sizes.value[i] = (float)((i % 2 ? a.width : a.height) - i);
    array_put(&src);
    array_put(&sizes);
    a.sizes = sized ? sizes.memory : NULL;
    for (int c = 0; c < 3; c++) {
        a.scale[c] = 0.017f + 0.0002f * (float)c;
        a.shift[c] = -2.1f + 0.1f * (float)c;
    }
    CUDA(dt_kernel_ingest(stream, type, dst.memory, src.memory, &a));
    array_get(&dst);
    for (size_t i = 0; i < dst.count; i++) {
        size_t row = i / cp, c = i % cp;
        double want = 0;
        if (c < (size_t)a.channels && is_inside(&a, &sizes, row))
            want = (double)src.value[row * (size_t)a.channels + c] * (double)a.scale[c] +
                   (double)a.shift[c];
        assert_value(&dst, i, want, want != 0 ? 1e-6 : 0);
    }
    free_all();
}

TEST(ingest)
{
    static const struct dt_ingest shapes[] = {{.n = 1, .height = 1, .width = 1},
                                              {.n = 1, .height = 2, .width = 2},
                                              {.n = 1, .height = 7, .width = 1},
                                              {.n = 4, .height = 16, .width = 16},
                                              {.n = 3, .height = 401, .width = 9}};
    for (size_t t = 0; t < DT_COUNT(TYPES); t++)
        for (size_t i = 0; i < DT_COUNT(shapes); i++)
            for (int flags = 0; flags < 6; flags++)
                for (int cp = 4; cp <= 16; cp *= 2) {
                    struct dt_ingest a = shapes[i];
                    a.channels = 1 + flags / 2;
                    a.cp = cp;
                    check_ingest(TYPES[t], a, flags % 2);
                }
}

KERNEL_TEST_MAIN()
