/* How the ring partitions a buffer, which fixes the order of the additions.
 *
 * A buffer is cut into ranges of n * DT_RING_SEGMENT floats (the last one shorter), and a range
 * into n segments (dt_ring_segment). The sum of segment s starts with the values of rank s and adds
 * those of the ranks s + 1, s + 2, ... (mod n), one after another. */
#ifndef DTRAIN_COMM_RING_H
#define DTRAIN_COMM_RING_H

#include <stddef.h>

enum {
    DT_RING_SEGMENT = 1 << 17, /* floats: 512 KiB per message */
    DT_RING_ALIGN = 16,        /* floats: segments begin at a cache line of the buffer */
};

/* First float and number of floats of segment `index` of a range of `count` floats. */
static inline size_t dt_ring_segment(size_t *first, size_t count, int n, int index)
{
    size_t each = (count + (size_t)n - 1) / (size_t)n;
    each = (each + DT_RING_ALIGN - 1) / DT_RING_ALIGN * DT_RING_ALIGN;
    size_t begin = each * (size_t)index;
    *first = begin < count ? begin : count;
    size_t left = count - *first;
    return left < each ? left : each;
}

/* In blocks of a known length, which compilers vectorise at -O2 too: otherwise adding takes longer
 * than receiving. */
static inline void dt_ring_add(float *restrict sum, const float *restrict values, int count)
{
    int i = 0;
    for (; i + DT_RING_ALIGN <= count; i += DT_RING_ALIGN)
        for (int k = 0; k < DT_RING_ALIGN; k++)
            sum[i + k] += values[i + k];
    for (; i < count; i++)
        sum[i] += values[i];
}

#endif
