/* Stopping on request. A signal only sets a flag; the flags and clocks of all ranks are compared by
 * a small collective, so that every rank stops after the same step. */
#include "train/stop.h"

#include <signal.h>
#include <stddef.h>

#include "dtrain/clock.h"

static volatile sig_atomic_t signal_seen;

static void on_signal(int number)
{
    signal_seen = number;
}

void dt_stop_catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGUSR2, &action, NULL);
}

void dt_stop_init(struct dt_stop *stop, double limit_s, double begin_s, int64_t step)
{
    *stop = (struct dt_stop){.begin_s = begin_s,
                             .limit_s = limit_s,
                             .checked_s = dt_clock_s(),
                             .checked_step = step,
                             .next_step = step + 1};
}

dt_status dt_stop_check(struct dt_stop *stop, struct dt_comm *comm, int64_t step,
                        const char **reason)
{
    enum { MAX_STEPS = 64 };
    const double interval_s = 0.5;
    *reason = NULL;
    if (step < stop->next_step)
        return DT_OK;
    double now = dt_clock_s();
    double most[] = {signal_seen ? 1 : 0,
                     stop->limit_s > 0 && now - stop->begin_s >= stop->limit_s ? 1 : 0,
                     (now - stop->checked_s) / (double)(step - stop->checked_step)};
    DT_TRY(dt_comm_max_f64(comm, most, 3));
    double n_steps = most[2] > 0 ? interval_s / most[2] : MAX_STEPS;
    stop->next_step = step + (n_steps < 1 ? 1 : n_steps > MAX_STEPS ? MAX_STEPS : (int)n_steps);
    stop->checked_s = now;
    stop->checked_step = step;
    if (most[0] > 0)
        *reason = "a signal (SIGUSR1 or SIGUSR2)";
    else if (most[1] > 0)
        *reason = "the time limit";
    return DT_OK;
}
