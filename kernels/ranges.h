/* The ranges of one update as passed to the kernel: a table by value, so that an update needs no
 * copy to the device and a recording of it is complete. Plain C, so that it can be tested without a
 * GPU. */
#ifndef DTRAIN_KERNELS_RANGES_H
#define DTRAIN_KERNELS_RANGES_H

#include "kernels/geometry.h"
#include "kernels/train_step.h"

enum { DT_MAX_RANGES = 128 };

/* Groups have DT_CHANNEL_PACK elements: one thread's work. */
struct dt_range_row {
    uint32_t first; /* first pack of the range, in the arenas */
    uint32_t begin; /* packs in the ranges before it */
    float decay, rate;
    uint32_t first_tile, has_trust; /* of dt_range */
};

struct dt_range_table {
    uint32_t n_ranges, n_packs; /* packs of all ranges together */
    struct dt_range_row row[DT_MAX_RANGES];
};

/* Returns 0 if there are more than DT_MAX_RANGES, if a range is not a whole number of packs, or if
 * pack numbers need more than 32 bits. Empty ranges are skipped. */
static inline int dt_range_table_fill(struct dt_range_table *table, const struct dt_range *ranges,
                                      int n_ranges)
{
    uint64_t n_packs = 0;
    table->n_ranges = 0;
    if (n_ranges > DT_MAX_RANGES)
        return 0;
    for (int i = 0; i < n_ranges; i++) {
        const struct dt_range *range = &ranges[i];
        uint64_t first = range->first / DT_CHANNEL_PACK,
                 end = first + range->count / DT_CHANNEL_PACK;
        if (range->first % DT_CHANNEL_PACK || range->count % DT_CHANNEL_PACK || end > UINT32_MAX)
            return 0;
        if (first == end)
            continue;
        struct dt_range_row *row = &table->row[table->n_ranges++];
        row->first = (uint32_t)first;
        row->begin = (uint32_t)n_packs;
        row->decay = range->decay;
        row->rate = range->rate;
        row->first_tile = range->first_tile;
        row->has_trust = range->has_trust;
        n_packs += end - first;
        if (n_packs > UINT32_MAX)
            return 0;
    }
    table->n_packs = (uint32_t)n_packs;
    return 1;
}

static inline DT_HOST_DEVICE uint32_t dt_range_row_packs(const struct dt_range_table *table,
                                                         uint32_t row)
{
    return (row + 1 < table->n_ranges ? table->row[row + 1].begin : table->n_packs) -
           table->row[row].begin;
}

static inline DT_HOST_DEVICE uint32_t dt_range_row_tiles(const struct dt_range_table *table,
                                                         uint32_t row)
{
    const uint32_t tile = DT_TILE / DT_CHANNEL_PACK;
    return (dt_range_row_packs(table, row) + tile - 1) / tile;
}

/* The last row that begins at or before `at`: a pack, or a tile. */
static inline DT_HOST_DEVICE uint32_t dt_range_table_last(const struct dt_range_table *table,
                                                          uint32_t at, bool is_tile)
{
    uint32_t low = 0, high = table->n_ranges - 1;
    while (low < high) {
        uint32_t middle = (low + high + 1) / 2;
        const struct dt_range_row *row = &table->row[middle];
        if ((is_tile ? row->first_tile : row->begin) <= at)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* The row that pack `pack` of all ranges belongs to; pack < n_packs. */
static inline DT_HOST_DEVICE uint32_t dt_range_table_find(const struct dt_range_table *table,
                                                          uint32_t pack)
{
    return dt_range_table_last(table, pack, false);
}

/* The row that tile `tile` belongs to, which is one of the table's. */
static inline DT_HOST_DEVICE uint32_t dt_range_table_find_tile(const struct dt_range_table *table,
                                                               uint32_t tile)
{
    return dt_range_table_last(table, tile, true);
}

#endif
