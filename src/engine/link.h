/* The links between nodes, by which sums on CPU ranks choose their algorithm. */
#ifndef DTRAIN_ENGINE_LINK_H
#define DTRAIN_ENGINE_LINK_H

#include "dtrain/comm.h"

/* Measures them, or takes what an earlier start on as many nodes and ranks has left in the run
 * folder (sums-2-nodes-16-ranks.json), so that a resumed run sums in the same order. `dir` may be
 * NULL: nothing is kept. Rank 0 decides. Collective; with ranks of one node nothing is to be
 * chosen. */
dt_status dt_link_find(struct dt_link *link, struct dt_comm *comm, const char *dir);

#endif
