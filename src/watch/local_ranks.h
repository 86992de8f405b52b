/* The ranks of this node and the nodes of the job, as far as the system shows them from outside:
 * this also works for a rank that has done nothing yet. */
#ifndef DTRAIN_WATCH_LOCAL_RANKS_H
#define DTRAIN_WATCH_LOCAL_RANKS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct dt_local_rank {
    int32_t pid; /* 0 = none found */
    char state;  /* as in proc(5): 'T' = stopped, 'D' = in an access to a disk, ... */
};
/* Looks for the processes of the same parent whose environment has a rank in `variable`; fills
 * by_rank[0 .. n_ranks). Reads /proc and may block there. */
void dt_local_ranks_find(struct dt_local_rank *by_rank, int n_ranks, const char *variable);
/* The nodes of the job but `own`, as "node2 or node3", from what the launcher left in the
 * environment or wrote on the command lines of its children; "" if unknown. */
void dt_local_ranks_nodes(char *out, size_t bytes, const char *own);
/* The same from a list like node[1-3,7],login (Slurm) or node[1:1-3,7],login@0(5) (Open MPI). */
void dt_local_ranks_expand(char *out, size_t bytes, const char *list, const char *own);
/* Creates, if needed, a file of this user, which ends in `name`, for what the ranks of this node
 * share: in the folder that the launcher keeps for the job (0), or in /dev/shm (1). Out has
 * DT_PATH_MAX bytes. DT_ERR_NO_INPUT, DT_ERR_PERMISSION. */
enum { DT_LOCAL_RANKS_PATHS = 2 };
dt_status dt_local_ranks_path(char *out, int i, const char *name);

#endif
