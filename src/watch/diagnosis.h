/* Finds the rank to blame: the rules of watchdog.h as a function of one rank's view of all ranks.
 */
#ifndef DTRAIN_WATCH_DIAGNOSIS_H
#define DTRAIN_WATCH_DIAGNOSIS_H

#include <stdbool.h>

#include "watch/heartbeat.h"

struct dt_view {
    struct dt_heartbeat beat;
    bool is_known;     /* has written its beat in this run; if not, the beat has host and pid only,
                          if those are known */
    bool is_elsewhere; /* on another node, whose beats cannot be seen */
    char process;      /* its state as in struct dt_local_rank; 0 = unknown */
    double age_s;      /* since its beat changed, or since the start; 0 for oneself */
};

struct dt_diagnosis_case {
    const struct dt_view *ranks;
    int n_ranks, self;
    bool is_blind;   /* the beats cannot be read now, so the ages are frozen */
    bool has_folder; /* the run folder exists */
    bool has_checkpoint;
    double period_s; /* between two beats of a healthy rank */
    double slack_s;  /* subtracted from all limits */
    /* Another node, or the network to it, is blamed only after so many seconds, because the
     * launcher or a watchdog there may find the cause first. 0 = without delay. */
    double apart_s;
    const char
        *nodes; /* the others, as "node2 or node3", according to the launcher; "" if unknown */
};

enum { DT_DIAGNOSIS_TEXT = 2048 };
struct dt_diagnosis {
    bool expired;
    int speaker;                  /* the lowest rank that answers */
    char text[DT_DIAGNOSIS_TEXT]; /* one line without newline; "" if not expired */
};

void dt_diagnosis_find(struct dt_diagnosis *out, const struct dt_diagnosis_case *c);
/* Whether that rank still writes its beat. */
bool dt_diagnosis_answers(const struct dt_diagnosis_case *c, int rank);

/* In hang_report.c: hang-<rank>.txt, the state of a rank when the watchdog ends it. */
struct dt_hang_report {
    const char *dir; /* run folder */
    int rank, n_ranks;
    double init_s, step_s, save_s; /* limits, 0 = none */
    const struct dt_diagnosis *diagnosis;
    const struct dt_view *ranks;
};
/* Best effort; may block if the file system hangs. */
void dt_hang_report_write(const struct dt_hang_report *report);
/* Removes this rank's file of an earlier start. */
void dt_hang_report_remove(const char *dir, int rank);

/* --- local_ranks.c: the ranks of this node and the nodes of the job, as far as the system shows
 * them from outside: this also works for a rank that has done nothing yet --- */

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
