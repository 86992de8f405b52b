/* Stopping on request. A signal only sets a flag; the flags and clocks of all ranks are compared by
 * a small collective during the last pass of a step, so that all stop after the same step. */
#include "engine/stop.h"

#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "watch/watchdog.h"

/* Ranks agree on the row, 0 = none; of several reasons the last row wins. */
static const struct {
    const char *text;
    int signal;
} reasons[] = {
    {NULL, 0},
    {"the end of the Slurm allocation", 0},
    {"--max-time", 0},
    {"the loss of the run folder", 0},
    {"SIGINT", SIGINT},
    {"SIGTERM", SIGTERM},
    {"SIGUSR2", SIGUSR2},
    {"SIGUSR1", SIGUSR1},
    {"a request to dtrain launch (SIGUSR1)", SIGUSR1}, /* only there */
};
enum { ALLOCATION = 1, MAX_TIME, LOST_FOLDER, FIRST_SIGNAL };

/* Both are lock-free, so the handler may use them in any thread. */
static atomic_int seen;
static _Atomic int64_t first_ns; /* of the monotonic clock; 0 = no signal yet */
static bool is_launched;         /* dtrain launch repeats SIGUSR1 */

static void on_signal(int number)
{
    const int64_t second_ns = 1000000000;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t now_ns = now.tv_sec * second_ns + now.tv_nsec, first = 0;
    if (atomic_compare_exchange_strong(&first_ns, &first, now_ns)) {
        seen = number;
        return;
    }
    /* One request often arrives twice, from the scheduler and through mpirun. */
    if (now_ns - first < second_ns || (is_launched && number == SIGUSR1))
        return;
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigaction(number, &action, NULL);
    raise(number); /* it is blocked until this returns */
}

void dt_stop_catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    is_launched = getenv("DTRAIN_LAUNCH") != NULL;
    sigemptyset(&action.sa_mask);
    for (size_t i = FIRST_SIGNAL; i < DT_COUNT(reasons); i++)
        sigaddset(&action.sa_mask, reasons[i].signal);
    for (size_t i = FIRST_SIGNAL; i < DT_COUNT(reasons); i++)
        sigaction(reasons[i].signal, &action, NULL);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGXFSZ, &ignore, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
}

/* When to have left the allocation, on the monotonic clock; INFINITY = no end known. */
static double allocation_end_s(void)
{
    const double margin_s = 30, old_s = 60;
    const char *text = getenv("SLURM_JOB_END_TIME");
    if (!text)
        return INFINITY;
    char *rest;
    double left_s = strtod(text, &rest) - (double)time(NULL);
    if (rest == text || *rest || !isfinite(left_s) || left_s < -old_s) {
        dt_log(DT_LOG_WARNING,
               "SLURM_JOB_END_TIME=%s is in the past or malformed (seconds since 1970 are "
               "expected) and is ignored; use --max-time",
               text);
        return INFINITY;
    }
    return dt_clock_s() + left_s - margin_s;
}

void dt_stop_init(struct dt_stop *stop, double limit_s, double begin_s, int64_t step)
{
    double allocation_s = allocation_end_s();
    double limit_end_s = limit_s > 0 ? begin_s + limit_s : INFINITY;
    bool allocation_first = allocation_s < limit_end_s;
    *stop = (struct dt_stop){.end_s = allocation_first ? allocation_s : limit_end_s,
                             .end_reason = reasons[allocation_first ? ALLOCATION : MAX_TIME].text,
                             .save_at_s = INFINITY,
                             .log_at_s = INFINITY,
                             .n_steps = 1,
                             .checked_s = dt_clock_s(),
                             .checked_step = step,
                             .next_step = step};
}

void dt_stop_begin_batches(struct dt_stop *batches, const struct dt_stop *stop)
{
    *batches = *stop;
    batches->save_at_s = batches->log_at_s = INFINITY; /* neither is done between two batches */
    batches->n_steps = 1;
    batches->checked_s = dt_clock_s();
    batches->checked_step = 0;
    batches->next_step = 1;
}

void dt_stop_pause(struct dt_stop *stop, double seconds)
{
    stop->checked_s += seconds;
}

/* Row of the reason why this rank has to stop now. */
static int find_own_reason(const struct dt_stop *stop, double now_s)
{
    int number = seen, row = (int)DT_COUNT(reasons) - (is_launched ? 1 : 2);
    while (number && reasons[row].signal != number)
        row--;
    if (number)
        return row;
    if (stop->folder && (stop->must_look || dt_watchdog_has_lost_lock()) &&
        dt_run_folder_is_lost(stop->folder))
        return LOST_FOLDER;
    if (now_s + 2 * (stop->save_s + (double)stop->n_steps * stop->step_s) < stop->end_s)
        return 0;
    return stop->end_reason == reasons[ALLOCATION].text ? ALLOCATION : MAX_TIME;
}

/* The numbers that ranks exchange; the status alone in most steps. */
enum { FAILED, REASON, SAVE, LOG, STEP_S, N_ASKED };

/* Sends what dt_stop_receive of the same step receives. Every rank calls both once per step, before
 * and after its last pass. All ranks must send equally many numbers, so asks_all depends only on
 * next_step, which all have computed from the same maxima. Signals and clocks are local: a rank
 * proposes and the maximum decides, so that all stop after the same step, for the reason in the
 * highest row. Rank 0 alone proposes saves and lines of progress. step_s follows the slowest rank
 * and forgets slowly, so that one fast step does not let a stop come too late. A rank that has
 * failed sends in every case: the others wait in dt_stop_receive, where dt_comm_agree then gives
 * its status and text to all. */
dt_status dt_stop_send(struct dt_stop *stop, struct dt_comm *comm, int64_t step, dt_status status)
{
    const double forget = 0.75;
    double max[N_ASKED] = {status != DT_OK}, now_s = dt_clock_s();
    stop->asks_all = step >= stop->next_step;
    if (!stop->asks_all)
        return dt_comm_begin_max(comm, max, 1);
    int64_t n_new = step - stop->checked_step; /* 0 before the first step */
    double step_s = n_new > 0 ? (now_s - stop->checked_s) / (double)n_new : 0;
    bool decides = dt_comm_rank(comm) == 0;
    stop->step_s = fmax(step_s, forget * stop->step_s);
    stop->checked_s = now_s;
    stop->checked_step = step;
    max[REASON] = find_own_reason(stop, now_s);
    max[SAVE] = decides && now_s >= stop->save_at_s;
    max[LOG] = decides && now_s >= stop->log_at_s;
    max[STEP_S] = stop->step_s;
    return dt_comm_begin_max(comm, max, N_ASKED);
}

dt_status dt_stop_receive(struct dt_stop *stop, struct dt_comm *comm, dt_status status,
                          struct dt_due *due)
{
    enum { MAX_STEPS = 64 };
    const double interval_s = 0.5;
    double max[N_ASKED] = {0};
    *due = (struct dt_due){0};
    DT_TRY(dt_comm_end_max(comm, max));
    if (max[FAILED] > 0)
        return dt_comm_agree(comm, status);
    if (!stop->asks_all)
        return DT_OK;
    stop->step_s = max[STEP_S];
    double n_steps = stop->step_s > 0 ? interval_s / stop->step_s : 1;
    stop->next_step = stop->checked_step + (n_steps < 1           ? 1
                                            : n_steps > MAX_STEPS ? MAX_STEPS
                                                                  : (int)n_steps);
    *due = (struct dt_due){
        .stop = reasons[(int)max[REASON]].text, .save = max[SAVE] > 0, .log = max[LOG] > 0};
    return DT_OK;
}

dt_status dt_stop_check(struct dt_stop *stop, struct dt_comm *comm, int64_t step, dt_status status,
                        struct dt_due *due)
{
    *due = (struct dt_due){0};
    if (step < stop->next_step)
        return DT_OK;
    DT_TRY(dt_stop_send(stop, comm, step, status));
    return dt_stop_receive(stop, comm, status, due);
}
