/* For tests on several ranks: the communicator, and collective assertions. */
#ifndef TEST_DIST_RIG_H
#define TEST_DIST_RIG_H

#include <stdbool.h>

#include "dtrain/comm.h"
#include "test.h"

static struct dt_comm *comm;
static int n, rank;

/* Starts MPI; prints a message and returns false if it cannot. */
static inline bool open_ranks(int *argc, char ***argv)
{
    if (dt_comm_open(&comm, argc, argv) != DT_OK) {
        print_error("%s\n", dt_error_text());
        return false;
    }
    n = dt_comm_size(comm);
    rank = dt_comm_rank(comm);
    return true;
}

/* Aborts the job, as the other ranks may be waiting for this one. */
static inline void assert_ok(dt_status status)
{
    if (status != DT_OK) {
        print_error("rank %d: %s\n%s\n", rank, dt_error_text(), dt_error_trail());
        dt_comm_abort(comm, status);
    }
}

/* Fails on all ranks if `is_good` is false on any. */
static inline void assert_all(bool is_good)
{
    int64_t n_bad = is_good ? 0 : 1;
    if (!is_good)
        print_error("rank %d: %s\n", rank, dt_error_text());
    assert_ok(dt_comm_sum_i64(comm, &n_bad, 1));
    assert_int_equal(n_bad, 0);
}

/* In place of TEST_MAIN: starts MPI, runs the tests on all ranks and ends it. */
#define RANKS_TEST_MAIN(BEFORE, AFTER)                     \
    int main(int argc, char **argv)                        \
    {                                                      \
        if (!open_ranks(&argc, &argv))                     \
            return 1;                                      \
        const int n_failed = run_all_tests(BEFORE, AFTER); \
        dt_comm_close(comm);                               \
        return n_failed ? 1 : 0;                           \
    }

#endif
