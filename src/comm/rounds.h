/* Who sends what to whom when ranks sum a buffer: the algorithms that work by messages, as pure
 * functions of the number of ranks. The data plane (mpi.c) and the simulator (tests/scale) execute
 * the same rounds; both sum in the order that is described here, so it is fixed for a number of
 * ranks.
 *
 * Ring: the buffer is cut into n segments (dt_schedule_segment). In round k < n - 1, rank r sends
 * the partial sum of segment r - k to rank r + 1 (mod n) and adds what arrives of segment
 * r - k - 1; n - 1 more rounds pass the finished segments on. The sum of segment s starts with the
 * values of rank s and adds those of s + 1, s + 2, ... one after another. It sends the least, in
 * 2 (n - 1) messages.
 *
 * Halving (Rabenseifner 2004; Thakur, Rabenseifner, Gropp 2005): p is the largest power of two up
 * to n. Of the first 2 (n - p) ranks every even one hands its values to the next and gets the
 * result at the end. The p others exchange halves of what they still have with a partner p / 2,
 * p / 4, ... 1 away, until each has one segment of p, and double it again on the way back:
 * 2 log2 p messages.
 *
 * Tree: everything to rank 0 and back along binomial trees: 2 log2 n messages, each of the whole
 * buffer. For small ones. */
#ifndef DTRAIN_COMM_ROUNDS_H
#define DTRAIN_COMM_ROUNDS_H

#include <stdbool.h>
#include <stddef.h>

#include "dtrain/comm.h"

enum {
    DT_SCHEDULE_SEGMENT = 1 << 17, /* floats: 512 KiB, the longest message */
    DT_SCHEDULE_ALIGN = 16,        /* floats: segments begin at a cache line of the buffer */
};

enum dt_schedule { DT_SCHEDULE_RING, DT_SCHEDULE_HALVING, DT_SCHEDULE_TREE, DT_N_SCHEDULES };

/* The work of one rank in one round; counts are floats of the buffer. */
struct dt_round {
    int to, from;      /* -1: nobody */
    size_t out, n_out; /* first one and number, sent */
    size_t in, n_in;   /* received: added, or in place if the round gathers */
    bool gathers;      /* it passes finished sums on */
    bool is_first;     /* of the rank's rounds in which it sends finished sums */
};

/* First float and number of floats of segment `index` of n of a buffer of `count` floats. */
size_t dt_schedule_segment(size_t *first, size_t count, int n, int index);
/* Most floats that may be summed at once, so that no message is longer than a segment. */
size_t dt_schedule_max_messages(enum dt_schedule schedule, int n);
/* Number of rounds, the same for all ranks; a rank may have nothing to do in one. */
int dt_schedule_rounds(enum dt_schedule schedule, int n);
void dt_schedule_round(struct dt_round *out, enum dt_schedule schedule, int n, int rank, int round,
                       size_t count);

/* For `bytes`, of AUTO the fastest by the alpha-beta model, the first one if several are: messages
 * on the critical path x latency, and their bytes; what a range waits for while others are sent is
 * not counted. */
enum dt_schedule dt_schedule_choose(enum dt_sum sum, int n, double bytes,
                                    const struct dt_link *link);

#endif
