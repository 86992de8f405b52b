/* The beats in <run folder>/heartbeat.bin, in which the watchdogs of the ranks tell each other
 * where they are. Every access opens and closes the file, so that the nodes of a network file
 * system see it. These writes are not counted by fault.h: they depend on the clock. */
#ifndef DTRAIN_WATCH_HEARTBEAT_H
#define DTRAIN_WATCH_HEARTBEAT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum dt_heartbeat_flag {
    DT_HEARTBEAT_HAS_LEFT = 1, /* watches no more */
    DT_HEARTBEAT_EXPIRED = 2,  /* somebody is stuck: ends the job */
    DT_HEARTBEAT_SAID = 4,     /* has printed who */
    DT_HEARTBEAT_WRITTEN = 8,  /* has written its hang-<rank>.txt */
};

/* What the main thread or the writer does. */
struct dt_heartbeat_thread {
    int32_t section, unused;
    int64_t step;
    uint64_t n_moves;
    double idle_s, limit_s; /* since the last move; 0 = no limit */
    char waits_for[32];     /* "" = for nobody */
};

struct dt_heartbeat {
    char magic[8];
    int64_t start_id; /* of all ranks of one start, random */
    int32_t rank, pid;
    uint32_t flags, unused;
    uint64_t beat; /* grows with every write */
    char host[64];
    struct dt_heartbeat_thread main, writer;
    uint64_t checksum; /* XXH3 of what comes before: the beat was not read half-written */
};

/* <dir>/heartbeat.bin into path[DT_PATH_MAX]; too long is DT_ERR_USAGE. */
dt_status dt_heartbeat_path(char *path, const char *dir);
/* Fills in magic and checksum of *beat and writes it to the beat of its rank. DT_ERR_IO. */
dt_status dt_heartbeat_write(const char *path, struct dt_heartbeat *beat);
/* The beats of ranks 0 .. n_ranks-1; valid[r] tells whether beat r is whole and of this start (-1:
 * any). DT_ERR_NO_INPUT, DT_ERR_IO, ... */
dt_status dt_heartbeat_read(const char *path, int64_t start_id, struct dt_heartbeat *beats,
                            bool *valid, int n_ranks);
/* The highest step in the beats of the last start, -1 if unknown. */
int64_t dt_heartbeat_last_step(const char *dir);

#endif
