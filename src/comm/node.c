#include "comm/node.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "comm/add.h"
#include "comm/rounds.h"

enum { BLOCK = 1024 }; /* floats that stay in the cache between an addition and the copies */

/* --- Counters --- */

/* In the shared memory, of each rank; each pair in a place that only this rank writes. */
struct counts {
    _Atomic uint32_t n_offered, n_done;
};

static struct counts *counts_of(const struct dt_node *node, int local, int reduction)
{
    return (struct counts *)((char *)node->memory->shared.data +
                             node->memory->counts_bytes * (size_t)local) +
           reduction;
}

/* A count that was reached may be exceeded. */
static bool has_reached(_Atomic uint32_t *count, uint32_t times)
{
    return (int32_t)(atomic_load_explicit(count, memory_order_acquire) - times) >= 0;
}

uint32_t dt_node_times(const struct dt_node *node, int reduction)
{
    return node->n_local > 1 ? counts_of(node, node->local, reduction)->n_offered : 0;
}

void dt_node_offer(const struct dt_node *node, int reduction, uint32_t times)
{
    if (node->n_local > 1)
        atomic_store_explicit(&counts_of(node, node->local, reduction)->n_offered, times,
                              memory_order_release);
}

void dt_node_finish(const struct dt_node *node, int reduction, uint32_t times)
{
    if (node->n_local > 1)
        atomic_store_explicit(&counts_of(node, node->local, reduction)->n_done, times,
                              memory_order_release);
}

bool dt_node_is_offered(const struct dt_node *node, int reduction, uint32_t times)
{
    for (int i = 0; i < node->n_local && node->n_local > 1; i++)
        if (!has_reached(&counts_of(node, i, reduction)->n_offered, times))
            return false;
    return true;
}

bool dt_node_is_done(const struct dt_node *node, int reduction, uint32_t times)
{
    for (int i = 0; i < node->n_parts && node->n_local > 1; i++)
        if (!has_reached(&counts_of(node, i, reduction)->n_done, times))
            return false;
    return true;
}

/* --- Sums --- */

bool dt_node_has(const struct dt_node *node, const float *buffer, size_t count)
{
    const char *own = node->memory ? node->memory->own : NULL, *at = (const char *)buffer;
    return own && at >= own && at + count * sizeof *buffer <= own + node->memory->own_bytes;
}

/* The same place in the memory of another rank of the node. */
static float *peer_buffer(const struct dt_node *node, float *buffer, int local)
{
    const ptrdiff_t apart = local - node->local;
    return (float *)((char *)buffer + apart * (ptrdiff_t)node->memory->own_bytes);
}

size_t dt_node_part(const struct dt_node *node, size_t *first, size_t count)
{
    if (node->local < node->n_parts)
        return dt_schedule_segment(first, count, node->n_parts, node->local);
    return *first = 0;
}

void dt_node_add(const struct dt_node *node, float *buffer, size_t count, bool spread)
{
    size_t first;
    const size_t n = dt_node_part(node, &first, count);
    for (size_t at = first; at < first + n; at += BLOCK) {
        const int block = (int)(first + n - at < BLOCK ? first + n - at : BLOCK);
        float sum[BLOCK];
        memcpy(sum, peer_buffer(node, buffer + at, 0), (size_t)block * sizeof *sum);
        for (int i = 1; i < node->n_local; i++)
            dt_sum_add(sum, peer_buffer(node, buffer + at, i), block);
        for (int i = 0; i < node->n_local; i++)
            if (spread || i == node->local)
                memcpy(peer_buffer(node, buffer + at, i), sum, (size_t)block * sizeof *sum);
    }
}

void dt_node_spread(const struct dt_node *node, float *buffer, size_t count)
{
    size_t first;
    const size_t n = dt_node_part(node, &first, count);
    for (int i = 0; i < node->n_local; i++)
        if (i != node->local)
            memcpy(peer_buffer(node, buffer + first, i), buffer + first, n * sizeof *buffer);
}

/* --- Where the ranks are --- */

dt_status dt_node_count(struct dt_comm_memory *memory, int n_ranks)
{
    int *n_of; /* ranks of the node whose first rank it is */
    DT_TRY(DT_NEW(n_of, (size_t)n_ranks));
    for (int r = 0; r < n_ranks; r++)
        n_of[memory->first[r]]++;
    memory->n_nodes = 0;
    memory->n_parts = n_ranks;
    for (int r = 0; r < n_ranks; r++) {
        memory->n_nodes += n_of[r] > 0;
        if (n_of[r] > 0 && n_of[r] < memory->n_parts)
            memory->n_parts = n_of[r];
    }
    free(n_of);
    return DT_OK;
}

static dt_status find_owners(struct dt_node *node, int rank, int n_ranks)
{
    const int *first = node->memory->first;
    int *n_of;
    DT_TRY(DT_NEW(node->owners, (size_t)n_ranks));
    DT_TRY(DT_NEW(n_of, (size_t)n_ranks));
    node->n_parts = node->memory->n_parts;
    for (int r = 0; r < rank; r++)
        node->local += first[r] == first[rank];
    for (int r = 0; r < n_ranks; r++) {
        const int place = n_of[first[r]]++; /* in its node */
        node->n_local += first[r] == first[rank];
        if (place != node->local || place >= node->n_parts)
            continue;
        node->self = r == rank ? node->n_owners : node->self;
        node->owners[node->n_owners++] = r;
    }
    free(n_of);
    return DT_OK;
}

dt_status dt_node_open(struct dt_node *node, int rank, int n_ranks,
                       const struct dt_comm_memory *memory)
{
    *node = (struct dt_node){.memory = memory};
    return memory ? find_owners(node, rank, n_ranks) : DT_OK;
}

void dt_node_close(struct dt_node *node)
{
    free(node->owners);
    *node = (struct dt_node){0};
}
