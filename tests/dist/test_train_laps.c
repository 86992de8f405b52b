/* The laps of a run on 1 to 4 ranks: every moment belongs to one kind. */
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "dist_rig.h"
#include "train/metrics.h"

static const double rounding_s = 1e-6; /* of clocks that count from the machine's start */
static struct dt_plan plan;
static struct dt_engine engine = {.backend = &dt_backend_cpu, .plan = &plan};

/* Time passes, part of it in sums of gradients and in collective calls. */
static void work(bool with_plan)
{
    double begin_s = dt_clock_s();
    dt_clock_sleep(1e-3);
    if (with_plan)
        plan.times.comm_s += dt_clock_s() - begin_s;
    dt_clock_sleep(1e-3);
    assert_ok(dt_comm_barrier(comm));
}

TEST(add_up)
{
    static const enum dt_lap kinds[] = {DT_LAP_DATA, DT_LAP_COMPUTE, DT_LAP_OTHER, DT_LAP_PAUSE};
    struct dt_laps laps;
    dt_laps_begin(&laps, &engine);
    double begin_s = laps.at_s, wait_s = dt_comm_wait_s(comm), pause_wait_s = 0;
    for (size_t i = 0; i < 40; i++) {
        enum dt_lap kind = kinds[i % DT_COUNT(kinds)];
        double before_s = dt_comm_wait_s(comm);
        work(kind == DT_LAP_COMPUTE);
        dt_lap(&laps, &engine, kind);
        pause_wait_s += kind == DT_LAP_PAUSE ? dt_comm_wait_s(comm) - before_s : 0;
    }
    double passed_s = laps.at_s - begin_s;
    double synced_s = dt_comm_wait_s(comm) - wait_s - pause_wait_s;
    assert_all(fabs(dt_laps_total(laps.s) + laps.s[DT_LAP_PAUSE] - passed_s) < rounding_s);
    for (int i = 0; i <= DT_N_LAPS; i++)
        assert_all(laps.s[i] > 0);
    assert_all(fabs(laps.s[DT_LAP_COMM] - plan.times.comm_s) < rounding_s);
    assert_all(fabs(laps.s[DT_LAP_SYNC] - synced_s) < rounding_s);
}

/* A pause may replace the plan, which then begins to count anew. */
TEST(new_plan)
{
    struct dt_laps laps;
    plan.times.comm_s = 1000;
    dt_laps_begin(&laps, &engine);
    plan.times.comm_s = 0;
    dt_lap(&laps, &engine, DT_LAP_PAUSE);
    work(true);
    dt_lap(&laps, &engine, DT_LAP_COMPUTE);
    assert_all(laps.s[DT_LAP_COMM] == plan.times.comm_s && laps.s[DT_LAP_COMPUTE] > 0);
}

int main(int argc, char **argv)
{
    if (!open_ranks(&argc, &argv))
        return 1;
    engine.ranks.comm = comm;
    int n_failed = run_all_tests(NULL, NULL);
    dt_comm_close(comm);
    return n_failed ? 1 : 0;
}
