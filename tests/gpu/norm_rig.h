/* What all tests of batch norm's kernels need: tickets, which are zero between any two launches. */
#ifndef DTRAIN_TESTS_NORM_RIG_H
#define DTRAIN_TESTS_NORM_RIG_H

#include "kernel_rig.h"

static struct array tickets;

static int open_tickets(void **state)
{
    int status = rig_open(state);
    tickets = array_create(DT_I32, DT_MAX_TICKETS);
    array_put(&tickets);
    return status;
}

static int close_tickets(void **state)
{
    array_get(&tickets);
    for (size_t i = 0; i < tickets.count; i++)
        assert_true(tickets.value[i] == 0);
    array_free(&tickets);
    return rig_close(state);
}

#define NORM_TEST_MAIN() GPU_TEST_MAIN(open_tickets, close_tickets)

#endif
