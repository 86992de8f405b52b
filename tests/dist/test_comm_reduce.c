/* The data plane on 1 to 4 ranks: exact sums of integers for awkward counts, several reductions at
 * once, bits equal to a sequential reference in the documented order, on all ranks and in every
 * run. A check collects what is wrong on this rank and then asks all ranks, so that all fail
 * together instead of one leaving the others in a collective. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "comm/ring.h"
#include "dist_rig.h"

enum { MAX_COUNT = (1 << 20) + 77, N_REDUCTIONS = 5 };

static const size_t counts[] = {
    0,      1,      2,      3,      5,      15,     16,     17,     63,      1000,
    131071, 131072, 131073, 262144, 262145, 393217, 524288, 524289, 1 << 20, (1 << 20) + 77,
    999983};

static void open_reduce(bool ring)
{
    struct dt_comm_options options = {
        .ring = ring, .n_reductions = N_REDUCTIONS, .max_count = MAX_COUNT, .dtype = DT_F32};
    assert_ok(dt_comm_open_reduce(comm, &options));
}

static float *new_floats(size_t count)
{
    float *values = dt_mem_alloc_aligned(count * sizeof(float) + 1, "values of a test");
    assert_ok(values ? DT_OK : DT_ERR_MEMORY);
    return values;
}

static float integer_value(int r, size_t i)
{
    return (float)((int)(i % 1013) - 500 + 7 * r);
}

static void check_counts(bool ring)
{
    open_reduce(ring);
    float *values = new_floats(MAX_COUNT + 2);
    for (size_t c = 0; c < DT_COUNT(counts); c++) {
        size_t count = counts[c];
        float *buffer = values + 1; /* guard words before and after */
        values[0] = values[count + 1] = -12345.0F;
        for (size_t i = 0; i < count; i++)
            buffer[i] = integer_value(rank, i);
        assert_ok(dt_comm_reduce(comm, (int)(c % N_REDUCTIONS), buffer, count));
        assert_ok(dt_comm_poll(comm));
        assert_ok(dt_comm_wait(comm, (int)(c % N_REDUCTIONS)));
        size_t n_wrong = values[0] != -12345.0F || values[count + 1] != -12345.0F;
        for (size_t i = 0; i < count; i++) {
            float sum = 0.0F;
            for (int r = 0; r < n; r++)
                sum += integer_value(r, i);
            n_wrong += buffer[i] != sum;
        }
        if (n_wrong > 0)
            print_error("rank %d: count %zu: %zu wrong\n", rank, count, n_wrong);
        assert_all(n_wrong == 0);
    }
    free(values);
}

TEST(counts_ring)
{
    check_counts(true);
}

TEST(counts_auto)
{
    check_counts(false);
}

/* All reductions under way at once, started again and again, waited for in a different order; the
 * ranks poll at different rates so that they are at different points. */
static void check_slots(bool ring)
{
    static const size_t reduction_count[N_REDUCTIONS] = {300001, 7, 1 << 20, 0, 65536};
    static const int wait_order[N_REDUCTIONS] = {2, 0, 4, 1, 3};
    open_reduce(ring);
    float *buffer[N_REDUCTIONS];
    for (int s = 0; s < N_REDUCTIONS; s++)
        buffer[s] = new_floats(reduction_count[s]);
    for (int round = 0; round < 4; round++) {
        for (int s = 0; s < N_REDUCTIONS; s++) {
            for (size_t i = 0; i < reduction_count[s]; i++)
                buffer[s][i] = integer_value(rank + round + s, i);
            assert_ok(dt_comm_reduce(comm, s, buffer[s], reduction_count[s]));
            for (int p = 0; p < 3 * rank; p++)
                assert_ok(dt_comm_poll(comm));
        }
        bool is_good = true;
        for (int w = 0; w < N_REDUCTIONS; w++) {
            int s = wait_order[w];
            assert_ok(dt_comm_wait(comm, s));
            for (size_t i = 0; i < reduction_count[s]; i++) {
                float sum = 0.0F;
                for (int r = 0; r < n; r++)
                    sum += integer_value(r + round + s, i);
                is_good = is_good && buffer[s][i] == sum;
            }
        }
        assert_all(is_good);
    }
    for (int s = 0; s < N_REDUCTIONS; s++)
        free(buffer[s]);
}

/* Exchanges while a long reduction is under way; the slots of other groups stay as they are. */
static void check_exchange(bool ring, int group)
{
    enum { COUNT = 700, N_ROUNDS = 5 };
    static const float nothing = -1.5F;
    struct dt_comm_options options = {.ring = ring,
                                      .n_reductions = 1,
                                      .max_count = MAX_COUNT,
                                      .dtype = DT_F32,
                                      .exchange_ranks = group};
    assert_ok(dt_comm_open_reduce(comm, &options));
    float *values = new_floats(MAX_COUNT), *all = new_floats((size_t)n * COUNT);
    bool is_good = true;
    for (size_t i = 0; i < MAX_COUNT; i++)
        values[i] = integer_value(rank, i);
    assert_ok(dt_comm_reduce(comm, 0, values, MAX_COUNT));
    for (int round = 0; round < N_ROUNDS; round++) {
        for (int i = 0; i < n * COUNT; i++)
            all[i] = i / COUNT == rank ? integer_value(rank + round, (size_t)i) : nothing;
        assert_ok(dt_comm_exchange(comm, all, COUNT * sizeof *all));
        for (int i = 0; i < n * COUNT; i++) {
            int r = i / COUNT;
            bool is_filled = r / group == rank / group;
            is_good =
                is_good && all[i] == (is_filled ? integer_value(r + round, (size_t)i) : nothing);
        }
    }
    assert_ok(dt_comm_wait(comm, 0));
    for (size_t i = 0; i < MAX_COUNT; i++) {
        float sum = 0.0F;
        for (int r = 0; r < n; r++)
            sum += integer_value(r, i);
        is_good = is_good && values[i] == sum;
    }
    assert_all(is_good);
    free(values);
    free(all);
}

TEST(exchange)
{
    for (int group = 2; group <= n; group++)
        if (n % group == 0) {
            check_exchange(true, group);
            check_exchange(false, group);
        }
}

TEST(slots_ring)
{
    check_slots(true);
}

TEST(slots_auto)
{
    check_slots(false);
}

static void fill_random(float *values, size_t count, int r)
{
    struct dt_rng rng;
    dt_rng_init(&rng, 42, DT_RNG_SYNTHETIC, 0, (uint32_t)r);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)((dt_rng_uniform(&rng) - 0.5) * (double)(1 + dt_rng_below(&rng, 1000)));
}

/* The order of ring.h, written as plain loops over the values of all ranks. */
static void reference_sum(float *sum, float *const *values, size_t count)
{
    size_t range_max = (size_t)DT_RING_SEGMENT * (size_t)n;
    for (size_t begin = 0; begin < count; begin += range_max) {
        size_t range = count - begin < range_max ? count - begin : range_max;
        for (int s = 0; s < n; s++) {
            size_t first;
            size_t length = dt_ring_segment(&first, range, n, s);
            for (size_t i = begin + first; i < begin + first + length; i++) {
                sum[i] = values[s][i];
                for (int k = 1; k < n; k++)
                    sum[i] += values[(s + k) % n][i];
            }
        }
    }
}

/* Equal bits on all ranks: rank 0's result is handed to everyone and compared. */
static bool is_same_everywhere(const float *values, size_t count)
{
    float *first = new_floats(count);
    memcpy(first, values, count * sizeof(float));
    assert_ok(dt_comm_bcast(comm, first, count * sizeof(float), 0));
    bool is_same = memcmp(first, values, count * sizeof(float)) == 0;
    free(first);
    return is_same;
}

/* The central plane leaves the sum on rank 0 alone. */
static void check_bits(enum dt_plane plane)
{
    static const size_t sizes[] = {1000, 65537, 500009};
    const struct dt_comm_options options = {.plane = plane,
                                            .ring = true,
                                            .n_reductions = N_REDUCTIONS,
                                            .max_count = MAX_COUNT,
                                            .dtype = DT_F32};
    assert_ok(dt_comm_open_reduce(comm, &options));
    float *values[8], *mine = new_floats(MAX_COUNT), *sum = new_floats(MAX_COUNT);
    for (int r = 0; r < n; r++) {
        values[r] = new_floats(MAX_COUNT);
        fill_random(values[r], MAX_COUNT, r);
    }
    for (size_t c = 0; c < DT_COUNT(sizes); c++) {
        reference_sum(sum, values, sizes[c]);
        for (int run = 0; run < 3; run++) {
            memcpy(mine, values[rank], sizes[c] * sizeof(float));
            assert_ok(dt_comm_reduce(comm, 0, mine, sizes[c]));
            for (int p = 0; p < run * (rank + 1); p++)
                assert_ok(dt_comm_poll(comm));
            assert_ok(dt_comm_wait(comm, 0));
            assert_all((plane == DT_PLANE_CENTRAL && rank > 0) ||
                       memcmp(mine, sum, sizes[c] * sizeof(float)) == 0);
        }
    }
    for (int r = 0; r < n; r++)
        free(values[r]);
    free(mine);
    free(sum);
}

TEST(bits_ring)
{
    check_bits(DT_PLANE_MPI);
}

TEST(bits_central)
{
    check_bits(DT_PLANE_CENTRAL);
}

TEST(bits_auto)
{
    enum { COUNT = 100003 };
    open_reduce(false);
    float *mine = new_floats(COUNT);
    fill_random(mine, COUNT, rank);
    assert_ok(dt_comm_reduce(comm, 1, mine, COUNT));
    assert_ok(dt_comm_wait(comm, 1));
    assert_all(is_same_everywhere(mine, COUNT));
    free(mine);
}

static void open_wire(enum dt_dtype wire, size_t total)
{
    struct dt_comm_options options = {.ring = true,
                                      .n_reductions = N_REDUCTIONS,
                                      .max_count = MAX_COUNT,
                                      .total_count = total,
                                      .dtype = DT_F32,
                                      .wire = wire};
    assert_ok(dt_comm_open_reduce(comm, &options));
}

/* Sums by a 16-bit wire, against fp64: every rank rounds a partial sum once, by at most half a
 * unit. Each message has half the bytes. */
static void check_wire(enum dt_dtype wire, double unit)
{
    enum { COUNT = 500009 };
    float *values[8], *mine = new_floats(COUNT);
    for (int r = 0; r < n; r++) {
        values[r] = new_floats(COUNT);
        fill_random(values[r], COUNT, r);
    }
    double bytes[2] = {0};
    for (int narrow = 0; narrow < 2; narrow++) {
        open_wire(narrow ? wire : DT_F32, COUNT);
        const double before = dt_comm_sent_bytes(comm);
        memcpy(mine, values[rank], COUNT * sizeof(float));
        assert_ok(dt_comm_reduce(comm, 0, mine, COUNT));
        assert_ok(dt_comm_wait(comm, 0));
        bytes[narrow] = dt_comm_sent_bytes(comm) - before;
    }
    size_t n_wrong = bytes[0] != 2 * bytes[1];
    for (size_t i = 0; i < COUNT; i++) {
        double sum = 0, size = 0;
        for (int r = 0; r < n; r++) {
            sum += (double)values[r][i];
            size += fabs((double)values[r][i]);
        }
        n_wrong += !(fabs((double)mine[i] - sum) <= n * unit * 1.01 * size + 1e-6);
    }
    assert_all(n_wrong == 0);
    assert_all(is_same_everywhere(mine, COUNT));
    for (int r = 0; r < n; r++)
        free(values[r]);
    free(mine);
}

TEST(wire)
{
    check_wire(DT_BF16, 0x1p-8);
    check_wire(DT_F16, 0x1p-11);
}

/* The same values summed again and again: with fp16, what is lost is made up for later, so the mean
 * of the sums gets closer to the true one; with bf16 the same error repeats. A value too small for
 * fp16 arrives in the end. */
static double mean_error(enum dt_dtype wire, int n_steps)
{
    enum { COUNT = 1009 };
    float mine[COUNT];
    double mean[COUNT] = {0}, worst = 0;
    open_wire(wire, COUNT);
    for (int step = 0; step < n_steps; step++) {
        for (int i = 0; i < COUNT; i++)
            mine[i] = i == 7 ? 0x1p-27F : 0.3F + (float)(i + rank) / 4096;
        assert_ok(dt_comm_reduce(comm, 0, mine, COUNT));
        assert_ok(dt_comm_wait(comm, 0));
        for (int i = 0; i < COUNT; i++)
            mean[i] += (double)mine[i] / n_steps;
    }
    for (int i = 0; i < COUNT; i++) {
        double sum = 0;
        for (int r = 0; r < n; r++) {
            const float value = i == 7 ? 0x1p-27F : 0.3F + (float)(i + r) / 4096;
            sum += (double)value;
        }
        worst = fmax(worst, fabs(mean[i] / sum - 1));
    }
    return worst;
}

TEST(error_feedback)
{
    if (n == 1)
        return;
    const double once = mean_error(DT_F16, 1), often = mean_error(DT_F16, 4096);
    print_message("%d ranks: largest error of the mean of 1 sum %g, of 4096 %g\n", n, once, often);
    assert_all(once == 1 && often < 0.01); /* element 7 is lost at first */
    assert_all(mean_error(DT_BF16, 64) > 1e-3);
}

/* NaN and infinity must arrive on every rank: a skipped step is decided from them. */
static void check_not_finite(enum dt_dtype wire)
{
    open_wire(wire, MAX_COUNT);
    float values[100] = {0};
    if (rank == n - 1) {
        values[3] = (float)(1e300 * 1e10);
        values[99] = values[3] - values[3];
    }
    assert_ok(dt_comm_reduce(comm, 0, values, DT_COUNT(values)));
    assert_ok(dt_comm_wait(comm, 0));
    assert_all(values[3] > 3e38F && values[99] != values[99] && values[0] == 0.0F);
}

TEST(not_finite)
{
    check_not_finite(DT_F32);
    check_not_finite(DT_BF16);
    check_not_finite(DT_F16);
}

/* Rows of ring.h's cut: segments follow each other without gap and cover the range. */
TEST(segments)
{
    for (int ranks = 1; ranks <= 9; ranks++) {
        for (size_t c = 0; c < DT_COUNT(counts); c++) {
            size_t end = 0;
            for (int s = 0; s < ranks; s++) {
                size_t first;
                size_t length = dt_ring_segment(&first, counts[c], ranks, s);
                assert_int_equal(first, end);
                assert_true(length == 0 || first % DT_RING_ALIGN == 0);
                if (counts[c] <= (size_t)DT_RING_SEGMENT * (size_t)ranks)
                    assert_true(length <= DT_RING_SEGMENT);
                end = first + length;
            }
            assert_int_equal(end, counts[c]);
        }
    }
}

TEST(misuse)
{
    float values[8] = {0};
    open_reduce(true);
    assert_int_equal(dt_comm_reduce(comm, N_REDUCTIONS, values, 8), DT_ERR_INTERNAL);
    assert_int_equal(dt_comm_reduce(comm, -1, values, 8), DT_ERR_INTERNAL);
    assert_int_equal(dt_comm_wait(comm, N_REDUCTIONS), DT_ERR_INTERNAL);
    assert_int_equal(dt_comm_reduce(comm, 0, values, MAX_COUNT + 1), DT_ERR_INTERNAL);
    assert_ok(dt_comm_wait(comm, 0)); /* never started */
    assert_ok(dt_comm_poll(comm));
    if (n > 1) {
        assert_ok(dt_comm_reduce(comm, 0, values, 8));
        assert_int_equal(dt_comm_reduce(comm, 0, values, 8), DT_ERR_INTERNAL);
        assert_ok(dt_comm_wait(comm, 0));
    }
    assert_ok(dt_comm_barrier(comm));
}

/* A wrong call on one rank is refused on all, and a plane can be opened after that. */
TEST(planes)
{
    struct dt_comm_options options = {.n_reductions = 1, .max_count = 8, .dtype = DT_F32};
    float values[8] = {0};
    assert_true(dt_comm_has_plane(DT_PLANE_MPI));
    assert_false(dt_comm_has_plane((enum dt_plane)99));
    assert_ok(dt_comm_open_reduce(comm, &options));

    options.dtype = rank == n - 1 ? DT_F16 : DT_F32;
    assert_all(dt_comm_open_reduce(comm, &options) == DT_ERR_INTERNAL);
    assert_all(strstr(dt_error_text(), "fp32 only") != NULL);
    assert_int_equal(dt_comm_reduce(comm, 0, values, 8), DT_ERR_INTERNAL);
    assert_int_equal(dt_comm_wait(comm, 0), DT_ERR_INTERNAL);
    assert_ok(dt_comm_poll(comm));
    options.dtype = DT_F32;
    options.n_reductions = rank == 0 ? -1 : 1;
    assert_all(dt_comm_open_reduce(comm, &options) == DT_ERR_INTERNAL);

    options.n_reductions = 1;
    if (!dt_comm_has_plane(DT_PLANE_NCCL)) {
        options.plane = DT_PLANE_NCCL;
        assert_all(dt_comm_open_reduce(comm, &options) == DT_ERR_CONFIG);
        assert_all(strstr(dt_error_text(), "no NCCL") != NULL);
        options.plane = DT_PLANE_MPI;
    }
    for (size_t i = 0; i < DT_COUNT(values); i++)
        values[i] = 1.0F;
    assert_ok(dt_comm_open_reduce(comm, &options));
    assert_ok(dt_comm_reduce(comm, 0, values, 8));
    assert_ok(dt_comm_wait(comm, 0));
    assert_all(values[7] == (float)n);
    dt_comm_close_reduce(comm);
    dt_comm_close_reduce(comm);
}

RANKS_TEST_MAIN(NULL, NULL)
