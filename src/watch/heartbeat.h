/* The beats in <run folder>/heartbeat.bin and in a file of each node, through which the watchdogs
 * of all ranks share their state. Every access opens and closes the file, so that nodes of a
 * network file system see each other's writes. fault.h does not count these writes, because they
 * depend on the clock. */
#ifndef DTRAIN_WATCH_HEARTBEAT_H
#define DTRAIN_WATCH_HEARTBEAT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "dtrain/comm.h"

enum dt_heartbeat_flag {
    DT_HEARTBEAT_HAS_LEFT = 1, /* has stopped its watchdog */
    DT_HEARTBEAT_EXPIRED = 2,  /* has found a stuck rank and ends the job */
    DT_HEARTBEAT_SAID = 4,     /* has printed the diagnosis */
    DT_HEARTBEAT_WRITTEN = 8,  /* has written its hang-<rank>.txt */
};

/* State of the main thread or the checkpoint writer. */
struct dt_heartbeat_thread {
    int32_t section, unused;
    int64_t step;
    uint64_t n_moves;
    double idle_s, limit_s; /* since the last move; 0 = no limit */
    char waits_for[32];     /* "" = does not wait */
};

struct dt_heartbeat {
    char magic[8];
    int64_t start_id; /* random, shared by all ranks of one start */
    int32_t rank, pid;
    uint32_t flags;
    int32_t node;  /* the first rank of its node */
    uint64_t beat; /* grows with every write */
    char host[64];
    struct dt_heartbeat_thread main, writer;
    uint64_t checksum; /* XXH3 of all members above; detects a partly written beat */
};

/* <dir>/heartbeat.bin into path[DT_PATH_MAX]; too long is DT_ERR_USAGE. */
dt_status dt_heartbeat_path(char *path, const char *dir);
/* Time between two beats of a rank: more ranks write and read less often, to spare the file system.
 * Short limits of the watchdog shorten it. */
double dt_heartbeat_period_s(int n_ranks);
/* Fills in magic and checksum of *beat and writes it to the beat of its rank. DT_ERR_IO. */
dt_status dt_heartbeat_write(const char *path, struct dt_heartbeat *beat);
/* Reads the beats of ranks 0 .. n_ranks-1; valid[r] tells whether beat r is intact and belongs to
 * this start (-1: any). DT_ERR_NO_INPUT, DT_ERR_IO, ... */
dt_status dt_heartbeat_read(const char *path, int64_t start_id, struct dt_heartbeat *beats,
                            bool *valid, int n_ranks);
/* Copies beats of this start, of ranks 0 .. n_ranks-1, from each of two files to the other if they
 * are newer. */
dt_status dt_heartbeat_merge(const char *const paths[2], int64_t start_id, int n_ranks);
/* Waits at most 5 s for the beat of rank 0 to appear in `dir`: a network file system may show a new
 * file late. DT_ERR_DISAGREE if it does not: the two ranks see different folders there. Local. */
dt_status dt_heartbeat_find_first(const char *dir, int64_t start_id, const struct dt_comm *comm);
/* Highest step in the beats of the last start, -1 if unknown. */
int64_t dt_heartbeat_last_step(const char *dir);
/* Whether no rank writes its beat there any more, as far as this rank sees. */
bool dt_heartbeat_have_left(const char *dir);

#endif
