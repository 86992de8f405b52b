/* The data plane of train.virtual_ranks on 1 to 4 ranks: several sums at once, of awkward counts,
 * with the bits that a loop over all slices gives on one rank, and of fp64 within rounding. */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "dist_rig.h"

enum { MAX_COUNT = 20001, N_REDUCTIONS = 3, TIMES = 2 };

static const size_t counts[] = {1, 15, 16, 17, 63, 1000, 16384, MAX_COUNT};

static float value_of(int slice, size_t i, int time)
{
    return sinf((float)(slice * 131 + (int)(i % 4099) * 7 + time)) * 3;
}

/* A slot for each part that waits, as in a plan. */
static float *make_parts(float *slots, int begin, int end, size_t count, int n_slices, int time)
{
    struct dt_slice_parts parts = {0};
    for (int s = begin; s < end; s++) {
        dt_slices_add(&parts, s, s + 1);
        float *last = slots + (size_t)(parts.n - 1) * MAX_COUNT;
        for (size_t i = 0; i < count; i++)
            last[i] = value_of(s, i, time);
        while (dt_slices_join(&parts, n_slices)) {
            float *left = slots + (size_t)(parts.n - 1) * MAX_COUNT;
            for (size_t i = 0; i < count; i++)
                left[i] += left[MAX_COUNT + i];
        }
    }
    return slots;
}

static size_t count_wrong(const float *sum, const float *expected, size_t count, int n_slices,
                          int time)
{
    size_t n_wrong = 0;
    for (size_t i = 0; i < count; i++) {
        double exact = 0;
        for (int s = 0; s < n_slices; s++)
            exact += (double)value_of(s, i, time);
        n_wrong += sum[i] != expected[i] || fabs(exact - (double)sum[i]) > 1e-4;
    }
    return n_wrong;
}

static void check_slices(int n_slices)
{
    const struct dt_comm_options options = {.plane = DT_PLANE_SLICES,
                                            .split = {.n_parts = n_slices, .group = 1},
                                            .slot_bytes = MAX_COUNT * sizeof(float),
                                            .n_reductions = N_REDUCTIONS,
                                            .max_count = MAX_COUNT,
                                            .total_count = (size_t)N_REDUCTIONS * MAX_COUNT,
                                            .dtype = DT_F32};
    const size_t bytes = DT_SLICE_PARTS * MAX_COUNT * sizeof(float);
    float *slots[N_REDUCTIONS], *alone = calloc(1, bytes);
    for (int k = 0; k < N_REDUCTIONS; k++)
        slots[k] = calloc(1, bytes);
    for (size_t c = 0; c < DT_COUNT(counts); c++) {
        assert_ok(dt_comm_open_reduce(comm, &options));
        for (int time = 0; time < TIMES; time++) {
            for (int k = 0; k < N_REDUCTIONS; k++) {
                make_parts(slots[k], dt_slices_first(n_slices, 1, n, rank),
                           dt_slices_first(n_slices, 1, n, rank + 1), counts[c], n_slices,
                           time + k);
                assert_ok(dt_comm_reduce(comm, k, slots[k], counts[c]));
                assert_ok(dt_comm_poll(comm));
            }
            for (int k = N_REDUCTIONS - 1; k >= 0; k--) {
                assert_ok(dt_comm_wait(comm, k));
                make_parts(alone, 0, n_slices, counts[c], n_slices, time + k);
                assert_all(count_wrong(slots[k], alone, counts[c], n_slices, time + k) == 0);
            }
        }
    }
    for (int k = 0; k < N_REDUCTIONS; k++)
        free(slots[k]);
    free(alone);
    dt_comm_close_reduce(comm);
}

TEST(sums)
{
    static const int slices[] = {4, 5, 7, 12, 16};
    for (size_t i = 0; i < DT_COUNT(slices); i++)
        check_slices(slices[i]);
}

TEST(exchange)
{
    const struct dt_comm_options options = {.plane = DT_PLANE_SLICES,
                                            .split = {.n_parts = 8, .group = 1},
                                            .slot_bytes = 64,
                                            .n_reductions = 1,
                                            .max_count = 16,
                                            .dtype = DT_F32};
    float *all = calloc((size_t)n, sizeof *all);
    all[rank] = (float)(rank + 1);
    assert_ok(dt_comm_open_reduce(comm, &options));
    assert_ok(dt_comm_exchange(comm, all, sizeof *all));
    bool is_right = true;
    for (int r = 0; r < n; r++)
        is_right &= all[r] == (float)(r + 1);
    assert_all(is_right);
    free(all);
    dt_comm_close_reduce(comm);
}

RANKS_TEST_MAIN(NULL, NULL)
