/* The data plane on 1 to 4 ranks, by every way to sum: exact sums of integers for awkward counts,
 * several reductions at once, bits equal to a sequential reference in the documented order, on all
 * ranks and in every run. BY_NODE and AUTO sum in shared memory; the ranks may be on several nodes
 * (tests/cluster). A check collects what is
 * wrong on this rank and then asks all ranks, so that all fail together instead of one leaving the
 * others in a collective. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/host.h"
#include "base/mem.h"
#include "base/rng.h"
#include "comm/add.h"
#include "comm/rounds.h"
#include "dist_rig.h"

enum { MAX_COUNT = (1 << 20) + 77, N_REDUCTIONS = 5 };

static const size_t counts[] = {
    0,      1,      2,      3,      5,      15,     16,     17,     63,      1000,
    131071, 131072, 131073, 262144, 262145, 393217, 524288, 524289, 1 << 20, (1 << 20) + 77,
    999983};

static const enum dt_sum sums[] = {DT_SUM_AUTO,    DT_SUM_BY_NODE, DT_SUM_RING,
                                   DT_SUM_HALVING, DT_SUM_TREE,    DT_SUM_LIBRARY};
static struct dt_comm_memory memory; /* of what is summed */

static struct dt_comm_options options_of(enum dt_sum sum)
{
    return (struct dt_comm_options){.sum = sum,
                                    .n_reductions = N_REDUCTIONS,
                                    .max_count = MAX_COUNT,
                                    .total_count = MAX_COUNT,
                                    .dtype = DT_F32,
                                    .memory = &memory,
                                    .link = {1e9, 1e-5}};
}

static void open_reduce(enum dt_sum sum)
{
    const struct dt_comm_options options = options_of(sum);
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

static void check_counts(enum dt_sum by)
{
    open_reduce(by);
    float *values = memory.own;
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
}

TEST(counts)
{
    for (size_t i = 0; i < DT_COUNT(sums); i++)
        check_counts(sums[i]);
}

/* All reductions under way at once, started again and again, waited for in a different order; the
 * ranks poll at different rates so that they are at different points. */
static void check_slots(enum dt_sum sum_by)
{
    static const size_t reduction_count[N_REDUCTIONS] = {300001, 7, 1 << 20, 0, 65536};
    static const int wait_order[N_REDUCTIONS] = {2, 0, 4, 1, 3};
    open_reduce(sum_by);
    float *buffer[N_REDUCTIONS] = {memory.own};
    for (int s = 1; s < N_REDUCTIONS; s++)
        buffer[s] = buffer[s - 1] + reduction_count[s - 1];
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
}

/* Exchanges while a long reduction is under way; the slots of other groups stay as they are. */
static void check_exchange(enum dt_sum by, int group)
{
    enum { COUNT = 700, N_ROUNDS = 5 };
    static const float nothing = -1.5F;
    struct dt_comm_options options = options_of(by);
    options.n_reductions = 1;
    options.exchange_ranks = group;
    assert_ok(dt_comm_open_reduce(comm, &options));
    float *values = memory.own, *all = new_floats((size_t)n * COUNT);
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
    free(all);
}

TEST(exchange)
{
    for (int group = 2; group <= n; group++)
        for (size_t i = 0; n % group == 0 && i < DT_COUNT(sums); i++)
            check_exchange(sums[i], group);
}

TEST(slots)
{
    for (size_t i = 0; i < DT_COUNT(sums); i++)
        check_slots(sums[i]);
}

/* Buffers in the shared memory and others in turn. */
TEST(mixed_memory)
{
    enum { COUNT = 200003 };
    float *alone = new_floats(COUNT), *shared = memory.own;
    bool is_good = true;
    open_reduce(DT_SUM_AUTO);
    for (int round = 0; round < 6; round++) {
        const int count = round % 2 ? COUNT : 20;
        for (int i = 0; i < count; i++)
            alone[i] = shared[i] = integer_value(rank + round, (size_t)i);
        assert_ok(dt_comm_reduce(comm, 0, shared, (size_t)count));
        assert_ok(dt_comm_reduce(comm, 1, alone, (size_t)count));
        assert_ok(dt_comm_wait(comm, 1));
        assert_ok(dt_comm_wait(comm, 0));
        for (int i = 0; i < count; i++)
            is_good = is_good && alone[i] == shared[i];
    }
    assert_all(is_good);
    free(alone);
}

/* What fits for each rank, but not for all of a node. */
TEST(too_large)
{
    const size_t bytes = dt_memory_available("") / 4 * 3;
    struct dt_comm_memory large;
    double max = dt_comm_local_size(comm);
    assert_ok(dt_comm_max_f64(comm, &max, 1));
    if (max == 1)
        skip();
    assert_all(dt_comm_alloc(comm, &large, bytes, 1) == DT_ERR_MEMORY);
    assert_all(strstr(dt_error_text(), "for the gradients of this node's ranks") != NULL);
    dt_comm_free(&large);
}

static void fill_random(float *values, size_t count, int r)
{
    struct dt_rng rng;
    dt_rng_init(&rng, 42, DT_RNG_SYNTHETIC, 0, (uint32_t)r);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)((dt_rng_uniform(&rng) - 0.5) * (double)(1 + dt_rng_below(&rng, 1000)));
}

/* --- The orders of rounds.h and node.h, as plain loops over the values of all ranks --- */

/* Pairs of ranks, then pairs of pairs; of ranks `apart` and more away from `rank` on. */
static float tree_sum(float *const *values, size_t i, int first, int size)
{
    if (size == 1)
        return values[first][i];
    const int half = size / 2;
    const float sum = tree_sum(values, i, first, half);
    return first + half < n ? sum + tree_sum(values, i, first + half, half) : sum;
}

/* Of the p ranks that exchange, whose values are those of a pair where ranks are left. */
static float halving_sum(float *const *values, size_t i, int own, int apart)
{
    const int p = n == 3 ? 2 : n, rest = n - p;
    if (apart == p)
        return own < rest ? values[2 * own + 1][i] + values[2 * own][i] : values[own + rest][i];
    return halving_sum(values, i, own, 2 * apart) + halving_sum(values, i, own ^ apart, 2 * apart);
}

/* Of the ranks of a node, whose first one is `first`. */
static float node_sum(float *const *values, size_t i, int first)
{
    float sum = values[first][i];
    for (int r = first + 1; r < n; r++)
        sum += memory.first[r] == first ? values[r][i] : 0;
    return sum;
}

struct nodes {
    int n, first[8], n_parts;
};

static struct nodes find_nodes(void)
{
    struct nodes nodes = {.n_parts = n};
    for (int r = 0; r < n; r++) {
        int n_ranks = 0;
        for (int q = 0; q < n; q++)
            n_ranks += memory.first[q] == r;
        if (n_ranks > 0)
            nodes.first[nodes.n++] = r;
        if (n_ranks > 0 && n_ranks < nodes.n_parts)
            nodes.n_parts = n_ranks;
    }
    return nodes;
}

/* Rings of `n_in_ring` from element `from` on; by node, each member stands for one. */
static void reference_ring(float *sum, float *const *values, size_t from, size_t count,
                           const struct nodes *nodes)
{
    const int n_in_ring = nodes ? nodes->n : n;
    const size_t range_max = (size_t)DT_SCHEDULE_SEGMENT * (size_t)n_in_ring;
    for (size_t begin = 0; begin < count; begin += range_max) {
        const size_t range = count - begin < range_max ? count - begin : range_max;
        for (int s = 0; s < n_in_ring; s++) {
            size_t first;
            const size_t length = dt_schedule_segment(&first, range, n_in_ring, s);
            for (size_t k = 0; k < length; k++) {
                const size_t i = from + begin + first + k;
                sum[i] = nodes ? node_sum(values, i, nodes->first[s]) : values[s][i];
                for (int m = s + 1; m < s + n_in_ring; m++)
                    sum[i] += nodes ? node_sum(values, i, nodes->first[m % n_in_ring])
                                    : values[m % n_in_ring][i];
            }
        }
    }
}

static void reference_sum(float *sum, enum dt_sum by, float *const *values, size_t count)
{
    const struct nodes nodes = find_nodes();
    if (by == DT_SUM_RING)
        reference_ring(sum, values, 0, count, NULL);
    for (int p = 0; p < nodes.n_parts && by <= DT_SUM_BY_NODE; p++) {
        size_t first;
        const size_t length = dt_schedule_segment(&first, count, nodes.n_parts, p);
        reference_ring(sum, values, first, length, &nodes);
    }
    for (size_t i = 0; i < count && by == DT_SUM_TREE; i++)
        sum[i] = tree_sum(values, i, 0, n > 2 ? 4 : n);
    for (size_t i = 0; i < count && by == DT_SUM_HALVING; i++)
        sum[i] = halving_sum(values, i, 0, 1);
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
static void check_bits(enum dt_plane plane, enum dt_sum by)
{
    static const size_t sizes[] = {1000, 65537, 500009};
    struct dt_comm_options options = options_of(by);
    options.plane = plane;
    assert_ok(dt_comm_open_reduce(comm, &options));
    float *values[8], *mine = memory.own, *sum = new_floats(MAX_COUNT);
    for (int r = 0; r < n; r++) {
        values[r] = new_floats(MAX_COUNT);
        fill_random(values[r], MAX_COUNT, r);
    }
    for (size_t c = 0; c < DT_COUNT(sizes); c++) {
        reference_sum(sum, by, values, sizes[c]);
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
    free(sum);
}

TEST(bits)
{
    for (enum dt_sum by = DT_SUM_AUTO; by < DT_SUM_LIBRARY; by++)
        if (by != DT_SUM_AUTO || find_nodes().n == 1) /* else as it chooses */
            check_bits(DT_PLANE_MPI, by);
    check_bits(DT_PLANE_CENTRAL, DT_SUM_RING);
}

TEST(bits_library)
{
    enum { COUNT = 100003 };
    open_reduce(DT_SUM_LIBRARY);
    float *mine = new_floats(COUNT);
    fill_random(mine, COUNT, rank);
    assert_ok(dt_comm_reduce(comm, 1, mine, COUNT));
    assert_ok(dt_comm_wait(comm, 1));
    assert_all(is_same_everywhere(mine, COUNT));
    free(mine);
}

static void open_wire(enum dt_sum by, enum dt_dtype wire)
{
    struct dt_comm_options options = options_of(by);
    options.wire = wire;
    assert_ok(dt_comm_open_reduce(comm, &options));
}

/* Sums by a 16-bit wire, against fp64: every rank rounds a partial sum once, by at most half a
 * unit. Each message has half the bytes. */
static void check_wire(enum dt_sum by, enum dt_dtype wire, double unit)
{
    enum { COUNT = 500009 };
    float *values[8], *mine = new_floats(COUNT);
    for (int r = 0; r < n; r++) {
        values[r] = new_floats(COUNT);
        fill_random(values[r], COUNT, r);
    }
    double bytes[2] = {0};
    for (int narrow = 0; narrow < 2; narrow++) {
        open_wire(by, narrow ? wire : DT_F32);
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
    for (enum dt_sum by = DT_SUM_AUTO; by < DT_SUM_LIBRARY; by++) {
        check_wire(by, DT_BF16, 0x1p-8);
        check_wire(by, DT_F16, 0x1p-11);
    }
}

/* The same values summed again and again: with fp16, what is lost is made up for later, so the mean
 * of the sums gets closer to the true one; with bf16 the same error repeats. A value too small for
 * fp16 arrives in the end. */
static double mean_error(enum dt_sum by, enum dt_dtype wire, int n_steps)
{
    enum { COUNT = 1009 };
    float mine[COUNT];
    double mean[COUNT] = {0}, worst = 0;
    open_wire(by, wire);
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
    if (n == 1 || find_nodes().n > 1) /* it sends many small messages */
        return;
    for (enum dt_sum by = DT_SUM_RING; by < DT_SUM_LIBRARY; by++) {
        const double once = mean_error(by, DT_F16, 1), often = mean_error(by, DT_F16, 2048);
        print_message("%d ranks: largest error of the mean of 1 sum %g, of 2048 %g\n", n, once,
                      often);
        assert_all(once == 1 && often < 0.01); /* element 7 is lost at first */
        assert_all(mean_error(by, DT_BF16, 64) > 1e-3);
    }
}

/* NaN and infinity must arrive on every rank: a skipped step is decided from them. */
static void check_not_finite(enum dt_dtype wire)
{
    open_wire(DT_SUM_RING, wire);
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

/* Rows of rounds.h's cut: segments follow each other without gap and cover the range. */
TEST(segments)
{
    for (int ranks = 1; ranks <= 9; ranks++) {
        for (size_t c = 0; c < DT_COUNT(counts); c++) {
            size_t end = 0;
            for (int s = 0; s < ranks; s++) {
                size_t first;
                size_t length = dt_schedule_segment(&first, counts[c], ranks, s);
                assert_int_equal(first, end);
                assert_true(length == 0 || first % DT_SCHEDULE_ALIGN == 0);
                if (counts[c] <= (size_t)DT_SCHEDULE_SEGMENT * (size_t)ranks)
                    assert_true(length <= DT_SCHEDULE_SEGMENT);
                end = first + length;
            }
            assert_int_equal(end, counts[c]);
        }
    }
}

TEST(misuse)
{
    float values[8] = {0};
    open_reduce(DT_SUM_RING);
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

static int set_up(void **state)
{
    (void)state;
    return dt_comm_alloc(comm, &memory, (2 << 20) * sizeof(float), N_REDUCTIONS) != DT_OK;
}

static int tear_down(void **state)
{
    (void)state;
    dt_comm_close_reduce(comm);
    dt_comm_free(&memory);
    return 0;
}

RANKS_TEST_MAIN(set_up, tear_down)
