// Batch norm over rows x cp: what its forward (norm.cu) and backward kernels (norm_bwd.cu) share. A
// thread keeps the values for 8 channels in registers and loops over the rows; it reads the next
// rows of all tensors (64 to 96 bytes) before processing them, so that enough bytes are in flight.
// Sums over rows are in fp32 within a thread and a block (a tree) and in fp64 over the blocks (the
// finalize kernels), all in a fixed order.
//
// Bytes moved, of N = rows * cp elements of e bytes:
//   bn_stats      reads N e
//   bn_apply      reads N e (with residual 2 N e), writes N e and for the mask N / 8
//   bn_bwd_sums   reads 2 N e (with diff_dst2 3 N e) and the mask, writes N e for diff_residual
//   bn_bwd_apply  reads as bn_bwd_sums, writes N e
//   finalize      reads 8 * cp bytes per row of blocks of the kernel before it, about 1 MB at most
//   combine       reads 8 * cp bytes per rank of the group
// The first kernel that reads a tensor loops from the last row to the first, the next one the other
// way: each begins with the rows touched last, which may still be in the L2 cache.
#ifndef DTRAIN_KERNELS_NORM_CUH
#define DTRAIN_KERNELS_NORM_CUH

#include "kernels/device.cuh"

enum {
    BLOCKS_PER_SM = 4,   // matches DT_MAX_BLOCKS: at most 64 registers
    FINALIZE_LANES = 64, // threads that share the partial results of a channel
    PARTIALS_PER_LANE = (DT_MAX_BLOCKS + FINALIZE_LANES - 1) / FINALIZE_LANES, // at most
};

// Number of rows that a thread reads ahead in each of N tensors.
template <typename T, int N>
static constexpr int ROWS_AHEAD = (N == 1 ? 4 : 2) * 2 / (int)sizeof(T);

// 8 elements as stored: half the registers of 8 floats while they only wait.
template <typename T> struct raw8 {
    uint4 part[1];
};
template <> struct raw8<float> {
    float4 part[2];
};

template <typename T> static __device__ inline raw8<T> read8(const T *p)
{
    return *reinterpret_cast<const raw8<T> *>(p);
}

template <typename T> static __device__ inline void unpack8(float v[DT_GROUP], const raw8<T> &raw)
{
    dt_load8(v, reinterpret_cast<const T *>(&raw));
}

// The part of a matrix that a thread processes, as defined by dt_channel_geometry: rows first,
// first + step, ... of channels c .. c + 7. Threads with c >= cp are idle.
struct walk {
    unsigned first, step, rows;
    int c, cp;
};

static __device__ inline struct walk walk_of(unsigned rows, int cp)
{
    return {blockIdx.y * blockDim.y + threadIdx.y, gridDim.y * blockDim.y, rows,
            (int)(blockIdx.x * blockDim.x + threadIdx.x) * DT_GROUP, cp};
}

// The same in one of the parts of dt_channel_cuts: w.rows is its end.
static __device__ inline struct walk walk_of_part(unsigned rows, int cp, unsigned cuts)
{
    const struct dt_cut cut = dt_channel_cut(rows, blockIdx.y, gridDim.y, cuts);
    return {cut.begin + cut.block * blockDim.y + threadIdx.y, cut.n_blocks * blockDim.y, cut.end,
            (int)(blockIdx.x * blockDim.x + threadIdx.x) * DT_GROUP, cp};
}

// Offset of the thread's elements in a row; rows are counted from the first or from the last.
static __device__ inline size_t at_row(const struct walk &w, unsigned row)
{
    return (size_t)row * w.cp + w.c;
}

static __device__ inline size_t at_row_from_end(const struct walk &w, unsigned row)
{
    return (size_t)(w.rows - 1 - row) * w.cp + w.c;
}

// Sums a and b over the threads of a block that have the same channels; the threads with
// threadIdx.y == 0 get the results. All threads take part.
static __device__ inline void fold_block(float a[DT_GROUP], float b[DT_GROUP])
{
    __shared__ float other[2 * DT_GROUP][DT_BLOCK_THREADS / 2];
    const unsigned y = threadIdx.y;

    for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
        const unsigned slot = (y % half) * blockDim.x + threadIdx.x;
        if (y >= half && y < 2 * half) {
            for (int k = 0; k < DT_GROUP; k++) {
                other[k][slot] = a[k];
                other[DT_GROUP + k][slot] = b[k];
            }
        }
        __syncthreads();
        if (y < half) {
            for (int k = 0; k < DT_GROUP; k++) {
                a[k] += other[k][slot];
                b[k] += other[DT_GROUP + k][slot];
            }
        }
        __syncthreads();
    }
}

// The sum of v over the FINALIZE_LANES threads of a channel, for all of them.
static __device__ inline double fold_lanes(double v)
{
    __shared__ double sum[FINALIZE_LANES][DT_GROUP];

    sum[threadIdx.y][threadIdx.x] = v;
    for (unsigned half = FINALIZE_LANES / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.y < half)
            sum[threadIdx.y][threadIdx.x] += sum[threadIdx.y + half][threadIdx.x];
    }
    __syncthreads();
    v = sum[0][threadIdx.x];
    __syncthreads();
    return v;
}

// A lane's share of the n partial results of channel c: numbers y, y + FINALIZE_LANES, ... All are
// read before any is used, because these small kernels are bound by memory latency; there is no
// branch between the reads. Values past the end are zero.
struct lane_partials {
    float first[PARTIALS_PER_LANE], second[PARTIALS_PER_LANE];
};

static __device__ inline void read_partials(struct lane_partials *out, const float *partial, int c,
                                            int cp, unsigned n)
{
    for (int k = 0; k < PARTIALS_PER_LANE; k++) {
        const unsigned i = threadIdx.y + k * FINALIZE_LANES;
        const float *at = partial + (size_t)(i < n ? i : 0) * 2 * cp + c;
        out->first[k] = at[0];
        out->second[k] = at[cp];
    }
    for (int k = 0; k < PARTIALS_PER_LANE; k++) {
        if (threadIdx.y + k * FINALIZE_LANES >= n)
            out->first[k] = out->second[k] = 0;
    }
}

struct bn_channels {
    const float *scale, *shift, *mean, *variance;
};

// Of a kernel that walks with walk_of_part.
static struct dt_geometry parts_geometry(const struct dt_norm_args *args, unsigned *cuts)
{
    struct dt_geometry g = dt_channel_geometry(args->rows, args->cp);
    *cuts = args->yields ? dt_channel_cuts(args->rows, g) : 1;
    g.grid_y *= *cuts;
    return g;
}

static struct dt_geometry finalize_geometry(int cp)
{
    return {(unsigned)cp / DT_GROUP, 1, DT_GROUP, FINALIZE_LANES};
}

static struct dt_geometry combine_geometry(int cp)
{
    const unsigned threads = 64; // several blocks, for their latency
    return {((unsigned)cp + threads - 1) / threads, 1, threads, 1};
}

#endif
