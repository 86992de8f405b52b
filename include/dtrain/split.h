/* How a global batch is divided into the passes of all ranks, and who adds their gradients. Pure
 * functions. */
#ifndef DTRAIN_SPLIT_H
#define DTRAIN_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

/* A micro-batch for every pass of every rank, in this order, whose numbers of images differ by
 * `unit` at most. A rank adds the gradients of its passes one by one, and the ranks add their sums;
 * with train.virtual_ranks the micro-batches are slices, which the tree below adds. */
struct dt_split {
    int images;
    int n_parts;         /* micro-batches, of all ranks */
    int first, n_passes; /* of this rank */
    int unit;            /* images that stay together: 2 with mixing, else 1 */
    int group;           /* slices that share batch norm statistics, 1: each has its own;
                            0: no slices */
};

static inline bool dt_split_has_slices(const struct dt_split *split)
{
    return split->group > 0;
}
/* The first image of a micro-batch; n_parts: the end. */
static inline int dt_split_first(const struct dt_split *split, int micro_batch)
{
    const int64_t units = split->images / split->unit;
    return (int)(units * micro_batch / split->n_parts) * split->unit;
}
/* The images of the smallest micro-batch, and of the largest. */
static inline int dt_split_min(const struct dt_split *split)
{
    return split->images / split->unit / split->n_parts * split->unit;
}
static inline int dt_split_max(const struct dt_split *split)
{
    return (split->images / split->unit + split->n_parts - 1) / split->n_parts * split->unit;
}

/* The fixed tree of additions over the slices of a global batch (train.virtual_ranks): its leaves
 * are the slices in their order, an inner node is the sum of its left and its right child, in this
 * order. A node of level k begins at a multiple of 2^k and has 2^k leaves, or all that are left at
 * the end; one without a right sibling is its own parent. So the sum of all has the same bits
 * however the slices lie on ranks. */
enum { DT_MAX_SLICES = 4096, DT_SLICE_PARTS = 28 };

/* Sums of neighbouring slices that wait for their siblings, from left to right. */
struct dt_slice_parts {
    int n;
    struct {
        int begin, end;
    } part[DT_SLICE_PARTS];
};

static inline void dt_slices_add(struct dt_slice_parts *parts, int begin, int end)
{
    parts->part[parts->n].begin = begin;
    parts->part[parts->n++].end = end;
}

/* If the last two parts are siblings in the tree of n_slices, the last but one becomes their sum,
 * for which the caller adds the values of the last to it; false if they are not. */
static inline bool dt_slices_join(struct dt_slice_parts *parts, int n_slices)
{
    if (parts->n < 2)
        return false;
    const int begin = parts->part[parts->n - 2].begin, middle = parts->part[parts->n - 1].begin;
    const int end = parts->part[parts->n - 1].end, size = middle - begin;
    const int whole = begin + 2 * size < n_slices ? begin + 2 * size : n_slices;
    if ((size & (size - 1)) != 0 || begin % (2 * size) != 0 || end != whole)
        return false;
    parts->part[--parts->n - 1].end = end;
    return true;
}

/* The slices of rank r are first(r) .. first(r + 1) - 1. Each `group` slices belong together: while
 * there are at least as many groups as ranks, a rank has whole ones, else a part of one. */
static inline int dt_slices_first(int n_slices, int group, int n_ranks, int r)
{
    const long long n_groups = n_slices / group, n = n_ranks;
    if (n <= n_groups || r == n_ranks)
        return (int)(n_groups * r / n) * group;
    const long long own = (n_groups * (r + 1) - 1) / n; /* group i: ranks from n i / n_groups on */
    const long long begin = n * own / n_groups, end = n * (own + 1) / n_groups;
    return (int)(own * group + group * (r - begin) / (end - begin));
}

/* The parts that remain of the slices begin .. end - 1; *max: how many wait at the same time.
 */
static inline struct dt_slice_parts dt_slices_of(int n_slices, int begin, int end, int *max)
{
    struct dt_slice_parts parts = {0};
    *max = 0;
    for (int s = begin; s < end; s++) {
        dt_slices_add(&parts, s, s + 1);
        while (dt_slices_join(&parts, n_slices))
            ;
        *max = parts.n > *max ? parts.n : *max;
    }
    return parts;
}

#endif
