/* Launch geometry: how a kernel's work is divided into blocks. Plain C, so that it can be tested
 * without a GPU. */
#ifndef DTRAIN_KERNELS_GEOMETRY_H
#define DTRAIN_KERNELS_GEOMETRY_H

#include <stddef.h>

#ifdef __CUDACC__
#define DT_HOST_DEVICE __host__ __device__
#else
#define DT_HOST_DEVICE
#endif

enum {
    DT_BLOCK_THREADS = 256,
    DT_SUM_THREADS = 512, /* of dt_sums_geometry */
    DT_CHANNEL_PACK = 8,  /* channels or elements per thread */
    DT_MAX_BLOCKS = 528,  /* of kernels that loop: four on each of the 132 SMs of an H100 or H200 */
    DT_MIN_ROWS_PER_THREAD = 4,
    DT_MAX_TICKETS = 4096, /* columns of blocks whose last one adds up */
    DT_MAX_CUTS = 4,
    DT_MAX_GRID_Y = 65535, /* of the hardware */
};

struct dt_geometry {
    unsigned grid_x, grid_y, block_x, block_y;
};

/* Flat arrays: one thread for DT_CHANNEL_PACK elements. count is a multiple of DT_CHANNEL_PACK. */
static inline struct dt_geometry dt_flat_geometry(size_t count)
{
    size_t threads = count / DT_CHANNEL_PACK;
    return (struct dt_geometry){(unsigned)((threads + DT_BLOCK_THREADS - 1) / DT_BLOCK_THREADS), 1,
                                DT_BLOCK_THREADS, 1};
}

/* Matrices rows x cp, where a thread keeps its pack of channels and loops over rows: threadIdx.x
 * and blockIdx.x select the pack (block_x adjacent packs, a power of two, at most `widest`),
 * threadIdx.y and blockIdx.y the first row; the row stride is grid_y * block_y. Every block has at
 * least one row. Sums over rows leave grid_y partial results. The geometry depends only on the
 * shape, so that sums are bit-identical on every device. */
static inline struct dt_geometry dt_rows_geometry(size_t rows, int cp, unsigned threads,
                                                  unsigned widest)
{
    unsigned packs = (unsigned)cp / DT_CHANNEL_PACK, x = 1;
    while (x < packs && x < widest)
        x *= 2;
    /* Narrower if that leaves fewer threads idle, but at least 64 bytes of a row. */
    for (unsigned narrower = x / 2; narrower >= 4; narrower /= 2) {
        if ((packs + narrower - 1) / narrower * narrower < (packs + x - 1) / x * x)
            x = narrower;
    }
    unsigned y = threads / x, grid_x = (packs + x - 1) / x;
    unsigned max_blocks = DT_MAX_BLOCKS * DT_BLOCK_THREADS / threads;
    size_t per_block = (size_t)y * DT_MIN_ROWS_PER_THREAD;
    size_t grid_y = (rows + per_block - 1) / per_block;
    size_t limit = grid_x < max_blocks ? max_blocks / grid_x : 1;
    if (grid_y > limit)
        grid_y = limit;
    return (struct dt_geometry){grid_x, grid_y < 1 ? 1 : (unsigned)grid_y, x, y};
}

/* One warp reads 512 contiguous bytes of 16-bit values. */
static inline struct dt_geometry dt_channel_geometry(size_t rows, int cp)
{
    return dt_rows_geometry(rows, cp, DT_BLOCK_THREADS, 32);
}

/* For each of n images `each`, with fewer blocks where the grid would be too large. */
static inline struct dt_geometry dt_images_geometry(struct dt_geometry each, int n)
{
    const unsigned limit = DT_MAX_GRID_Y / (unsigned)n;
    each.grid_y = (each.grid_y < limit ? each.grid_y : limit) * (unsigned)n;
    return each;
}

/* For sums that the last block of a column ends: it alone reads all partial results of its
 * channels. Large blocks leave few of them, narrow ones divide them among more last blocks: in
 * ResNet-50 at most 135 kB for each; with dt_channel_geometry it would be 1 MB. */
static inline struct dt_geometry dt_sums_geometry(size_t rows, int cp)
{
    return dt_rows_geometry(rows, cp, DT_SUM_THREADS, 8);
}

/* Matrices rows x cp, where the threads of a row hold all of it: block_x of them, a power of two,
 * each with at most DT_ROW_PACKS packs, block_x packs apart; threadIdx.y and blockIdx.y select the
 * first row as above. cp is at most DT_ROW_CHANNELS. */
enum { DT_ROW_PACKS = 4, DT_ROW_CHANNELS = DT_BLOCK_THREADS * DT_ROW_PACKS * DT_CHANNEL_PACK };
static inline struct dt_geometry dt_whole_rows_geometry(size_t rows, int cp)
{
    const unsigned packs = (unsigned)cp / DT_CHANNEL_PACK;
    unsigned x = 1;
    while (x * DT_ROW_PACKS < packs && x < DT_BLOCK_THREADS)
        x *= 2;
    const unsigned y = DT_BLOCK_THREADS / x;
    const size_t per_block = (size_t)y * DT_MIN_ROWS_PER_THREAD;
    const size_t grid_y = (rows + per_block - 1) / per_block, limit = DT_MAX_BLOCKS;
    return (struct dt_geometry){1, (unsigned)(grid_y < limit ? grid_y : limit), x, y};
}

/* All blocks of a channel geometry run at the same time and fill the GPU until they end together,
 * while NCCL's blocks, 544 threads with 96 registers each, need nearly all of an SM. A kernel that
 * adds nothing up over rows can let them in: it cuts the rows into this many parts and gives each
 * of them grid_y blocks. The results are the same. Parts are processed in order, as blocks are
 * started in order. */
static inline unsigned dt_channel_cuts(size_t rows, struct dt_geometry g)
{
    const size_t limit = DT_MAX_CUTS,
                 cuts = rows / ((size_t)g.grid_y * g.block_y * DT_MIN_ROWS_PER_THREAD);
    return (unsigned)(cuts < 1 ? 1 : cuts < limit ? cuts : limit);
}

/* The part to which block `block` of all n_blocks belongs: its rows [begin, end), the number of its
 * blocks and the block's place among them. */
struct dt_cut {
    unsigned block, n_blocks, begin, end;
};

static inline DT_HOST_DEVICE struct dt_cut dt_channel_cut(unsigned rows, unsigned block,
                                                          unsigned n_blocks, unsigned cuts)
{
    const unsigned each = n_blocks / cuts, length = (rows + cuts - 1) / cuts;
    const unsigned begin = block / each * length, left = rows - begin;
    struct dt_cut cut = {block % each, each, begin, begin + (left < length ? left : length)};
    return cut;
}

/* Number of rows processed by block `block` of n_blocks (grid_y); rows < 2^31. */
static inline DT_HOST_DEVICE unsigned dt_channel_block_rows(unsigned rows, unsigned block,
                                                            unsigned n_blocks, unsigned block_y)
{
    unsigned step = n_blocks * block_y, first = block * block_y, rest = rows % step;
    unsigned last = rest <= first ? 0 : rest - first < block_y ? rest - first : block_y;
    return rows / step * block_y + last;
}

/* Bytes of n_sums partial sums of every channel: floats [grid_y][n_sums][cp]. */
static inline size_t dt_partial_bytes(struct dt_geometry g, int cp, int n_sums)
{
    return (size_t)g.grid_y * (size_t)n_sums * (size_t)cp * sizeof(float);
}

static inline size_t dt_channel_partial_bytes(size_t rows, int cp, int n_sums)
{
    return dt_partial_bytes(dt_channel_geometry(rows, cp), cp, n_sums);
}

static inline size_t dt_sums_partial_bytes(size_t rows, int cp, int n_sums)
{
    return dt_partial_bytes(dt_sums_geometry(rows, cp), cp, n_sums);
}

#endif
