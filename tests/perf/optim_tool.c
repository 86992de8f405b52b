/* How near the updates of the CPU backend are to the memory's speed, in rounds that alternate:
 *
 *     optim_tool MILLIONS THREADS ROUNDS
 *
 * prints a line for each optimizer: its name, bytes per parameter, and median GB/s. "loop1" and
 * "loop2" are plain loops that read and write the same arrays as an optimizer with one and two
 * states. Bytes are the least: every state is read and written once, the gradient is read once.
 * lars needs the norms first, and reads parameters and gradient twice; lamb reads parameters and
 * states twice. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/sort.h"
#include "dtrain/backend.h"

enum { SEGMENT = 1 << 18, N_LOOPS = 2, N_ROWS = DT_N_OPTIMS + N_LOOPS, MAX_ROUNDS = 1000 };

struct bench {
    struct dt_device *device;
    size_t count;
    float *arrays[4]; /* params, momentum, square, gradient */
    double *norms;
    struct dt_segment *segments;
    int n_segments;
};

static double times_s[N_ROWS][MAX_ROUNDS];

static const char *row_name(int row)
{
    static const char *const loops[] = {"loop1", "loop2"};
    return row < DT_N_OPTIMS ? dt_optim_name(row) : loops[row - DT_N_OPTIMS];
}

static int bytes_per_parameter(int row)
{
    if (row >= DT_N_OPTIMS)
        return row == DT_N_OPTIMS ? 20 : 28;
    const int once = dt_optim_has_square(row) ? 28 : 20;
    const enum dt_trust trust = dt_optim_trust(row);
    return once + (trust == DT_TRUST_GRADIENT ? 8 : trust == DT_TRUST_DIRECTION ? 12 : 0);
}

static void run_loop(struct bench *b, bool two)
{
    float *restrict w = b->arrays[0], *restrict m = b->arrays[1], *restrict v = b->arrays[2];
    const float *restrict g = b->arrays[3];
#pragma omp parallel for simd schedule(static)
    for (size_t i = 0; i < b->count; i++) {
        w[i] += g[i];
        m[i] += g[i];
        if (two)
            v[i] += g[i];
    }
}

static dt_status run_row(struct bench *b, int row)
{
    if (row >= DT_N_OPTIMS) {
        run_loop(b, row > DT_N_OPTIMS);
        return DT_OK;
    }
    const struct dt_update update = {.optim = row,
                                     .params = b->arrays[0],
                                     .momentum = b->arrays[1],
                                     .square = b->arrays[2],
                                     .norms = b->norms,
                                     .grads = b->arrays[3],
                                     .grads_type = DT_F32,
                                     .segments = b->segments,
                                     .n_segments = b->n_segments};
    return dt_backend_cpu.update(b->device, &update);
}

static dt_status prepare(struct bench *b, size_t millions, int threads)
{
    const struct dt_device_options options = {.threads = threads};
    const struct dt_scalars scalars = {
        .lr = 1e-3f,
        .optim = {
            .momentum = 0.9, .beta2 = 0.999, .eps = 1e-8f, .weight_decay = 1e-4f, .trust = 0.001f}};
    b->n_segments = (int)(millions * 1000000 / SEGMENT);
    b->count = (size_t)b->n_segments * SEGMENT;
    DT_TRY(DT_NEW(b->segments, (size_t)b->n_segments));
    DT_TRY(DT_NEW(b->norms, 2 * (size_t)dt_tiles(b->count)));
    for (int i = 0; i < b->n_segments; i++)
        b->segments[i] =
            (struct dt_segment){(size_t)i * SEGMENT, SEGMENT, 1, 1, i * dt_tiles(SEGMENT), true};
    for (int a = 0; a < 4; a++) {
        DT_TRY(DT_NEW(b->arrays[a], b->count));
        for (size_t i = 0; i < b->count; i++)
            b->arrays[a][i] = 1e-3f * (float)(i % 1000 + 1);
    }
    DT_TRY(dt_backend_cpu.open(&b->device, &options));
    omp_set_num_threads(threads);
    return dt_backend_cpu.set_scalars(b->device, &scalars);
}

int main(int argc, char **argv)
{
    struct bench b = {NULL};
    const int rounds = argc > 3 ? (int)strtol(argv[3], NULL, 10) : 0;
    if (rounds < 1 || rounds > MAX_ROUNDS ||
        prepare(&b, strtoul(argv[1], NULL, 10), (int)strtol(argv[2], NULL, 10)) != DT_OK)
        return 1;
    for (int round = -1; round < rounds; round++)
        for (int row = 0; row < N_ROWS; row++) {
            const double begin_s = dt_clock_s();
            if (run_row(&b, row) != DT_OK)
                return 1;
            if (round >= 0)
                times_s[row][round] = dt_clock_s() - begin_s;
        }
    for (int row = 0; row < N_ROWS; row++) {
        const int bytes = bytes_per_parameter(row);
        dt_sort_f64(times_s[row], (size_t)rounds);
        const double median_s = dt_percentile_f64(times_s[row], (size_t)rounds, 0.5);
        printf("%s %d %.2f\n", row_name(row), bytes, 1e-9 * bytes * (double)b.count / median_s);
    }
    return 0;
}
