/* Sums among the ranks of a node, in memory that they share, and where the ranks of other nodes
 * come in.
 *
 * A buffer is cut into as many parts as the smallest node has ranks (dt_schedule_segment). Local
 * rank p owns part p: once the buffers of all ranks of the node are complete, it adds their parts
 * in the order of the local ranks, sums the result with the owners of part p on the other nodes by
 * messages (mpi.c), and writes it into all buffers of the node. A buffer is read and written once
 * on the way, and the messages of a node are spread over its ranks.
 *
 * The ranks tell each other by counters how often a reduction's buffer was complete, and how often
 * a part was done. */
#ifndef DTRAIN_COMM_NODE_H
#define DTRAIN_COMM_NODE_H

#include "dtrain/comm.h"

struct dt_node {
    int n_local, local; /* ranks of this node that share memory, and the place of this one */
    int n_parts;        /* this rank owns one if local < n_parts */
    int n_owners, self; /* of this rank's part, one per node; without a part 0 */
    int *owners;        /* their ranks in the order of the nodes */
    const struct dt_comm_memory *memory;
};

/* Sets the numbers of `memory` that follow from its `first`. */
dt_status dt_node_count(struct dt_comm_memory *memory, int n_ranks);
/* The place of the ranks in their nodes. Without memory it has no buffer. */
dt_status dt_node_open(struct dt_node *node, int rank, int n_ranks,
                       const struct dt_comm_memory *memory);
void dt_node_close(struct dt_node *node);
/* Whether the ranks of this node can sum this buffer in place. */
bool dt_node_has(const struct dt_node *node, const float *buffer, size_t count);
/* How often it was complete so far, the same on all ranks: the counters are never set back, as
 * another rank may still look at them. */
uint32_t dt_node_times(const struct dt_node *node, int reduction);
/* The buffer of `reduction` is complete for the `times`-th time. */
void dt_node_offer(const struct dt_node *node, int reduction, uint32_t times);
/* Whether the buffers of all ranks are complete, or all parts done, for so many times. */
bool dt_node_is_offered(const struct dt_node *node, int reduction, uint32_t times);
bool dt_node_is_done(const struct dt_node *node, int reduction, uint32_t times);
/* First float and number of floats of this rank's part. */
size_t dt_node_part(const struct dt_node *node, size_t *first, size_t count);
/* Adds the part into this rank's buffer; `spread`: into the buffers of all. */
void dt_node_add(const struct dt_node *node, float *buffer, size_t count, bool spread);
/* Copies the finished part to all buffers. */
void dt_node_spread(const struct dt_node *node, float *buffer, size_t count);
void dt_node_finish(const struct dt_node *node, int reduction,
                    uint32_t times); /* the part is done */

#endif
