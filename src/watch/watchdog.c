/* Four threads. The monitor checks the pulses and the beats, decides, and never blocks. The
 * heartbeat thread writes this rank's beat and reads those of the others. The relay looks at the
 * run folder, and exchanges beats with it if that is this rank's task. The reporter sleeps until a
 * hang, then prints who is to blame and writes the report. The last three may get stuck in the file
 * system; even then the monitor ends the process. */
#include "watch/watchdog.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/host.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "base/thread.h"
#include "watch/diagnosis.h"

enum {
    PERIODS_OF_LIMIT = 10, /* in a limit, at least: time for another rank to take over as relay */
    PERIODS_OF_STALL = 4,  /* a monitor that slept longer was suspended: all timers restart */
    PERIODS_OF_SLACK = 2,  /* delay between two ranks' views, or between two ranks of one hang */
    PERIODS_OF_SIGHT = 3,  /* delay until all ranks have seen a beat */
    STEPS_OF_LIMIT = 10,   /* in the limit of a step: median steps */
};
static const double blind_s = 3.0;  /* plus PERIODS_OF_SIGHT without reading the beats: blind */
static const double leave_s = 2.0;  /* minimum of leave_time */
static const double guard_s = 10.0; /* plus leave_time, after which the monitor ends the process */
static const double stop_s = 5.0;   /* dt_watchdog_stop waits so long for a thread that may hang */
static const double remote_s = 8.0; /* after init_timeout_s, without a folder: see diagnosis.h */
static const double margin_s = 5.0; /* after Open MPI's keepalive, likewise: mpirun comes first */

/* HEARTBEAT is started only with a file of beats, RELAY only with a run folder. */
enum thread { MONITOR, REPORTER, HEARTBEAT, RELAY, N_THREADS };

struct progress {
    uint64_t n_moves;
    double moved_s;
};

struct peer {
    struct dt_heartbeat beat;
    bool is_known; /* if not, the beat has host and pid only, if those are known */
    char process;  /* its state as in struct dt_local_rank; 0 = unknown */
    double seen_s; /* when its beat last changed */
};

struct dt_watchdog {
    struct dt_watchdog_options options;
    struct dt_comm_launch launch;
    char dir[DT_PATH_MAX], path[DT_PATH_MAX]; /* run folder, file of the beats; "" = none */
    char shared[DT_PATH_MAX]; /* heartbeat.bin, if `path` is a file of this node; else "" */
    bool is_replaced;         /* by a watchdog that writes to the same file */
    double period_s, apart_s; /* see diagnosis.h */
    _Atomic double step_limit_s;
    pthread_t threads[N_THREADS];
    int n_threads; /* started */

    pthread_mutex_t lock; /* guards the members up to `diagnosis` */
    pthread_cond_t change;
    bool must_stop;
    struct dt_heartbeat own;
    struct progress main, writer;
    struct peer *peers;
    double start_s;   /* all timers start here; moved by a stall */
    double checked_s; /* last check by the monitor */
    double read_s;    /* when the beats of this node were last read */
    double relayed_s; /* when a new mark of a relay was last seen; if nobody relays, read_s */
    uint64_t relay;   /* the time in that mark, see relay(); 0 = none seen */
    int relay_rank;   /* the rank that has left it */
    bool has_alarm;   /* another rank, alarm_rank, has expired */
    int alarm_rank;
    bool must_write, must_relay;       /* now */
    uint32_t flags_written;            /* flags already written to the file */
    uint64_t written_us;               /* when they were */
    atomic_bool has_left, has_relayed; /* the heartbeat thread and the relay have finished */
    bool has_checkpoint;
    char nodes[256]; /* the other nodes, as in struct dt_diagnosis_case */
    struct dt_view *views;
    struct dt_diagnosis diagnosis;

    struct dt_heartbeat *read; /* from here on: used by the heartbeat thread only */
    bool *valid;
    struct dt_local_rank *local;
    double looked_s; /* when they were last looked for, which takes a while */
    atomic_bool has_warned;
    ino_t lock_inode; /* of the relay: of the run folder's lock, 0 = not known yet */
};

static struct dt_watchdog *current; /* used by the main thread only */
static atomic_bool has_lost_lock;

/* --- Waiting --- */

/* Waits until `until_s` or a change. Call with the lock held. */
static void wait_until(struct dt_watchdog *w, double until_s)
{
    struct timespec until = {.tv_sec = (time_t)until_s};
    until.tv_nsec = (long)((until_s - (double)until.tv_sec) * 1e9);
    pthread_cond_timedwait(&w->change, &w->lock, &until);
}

/* Time for all ranks to see a beat and to write their reports. */
static double leave_time(const struct dt_watchdog *w)
{
    return fmax(leave_s, PERIODS_OF_SIGHT * w->period_s);
}

/* --- Own pulses --- */

static double limit_of(const struct dt_watchdog *w, enum dt_section section)
{
    switch (section) {
    case DT_SECTION_NONE:
        return 0;
    case DT_SECTION_INIT:
        return w->options.limits.init_timeout_s;
    case DT_SECTION_SAVE:
        return w->options.limits.save_timeout_s;
    default:
        return atomic_load(&w->step_limit_s);
    }
}

static void observe(struct dt_heartbeat_thread *out, struct progress *progress,
                    const struct dt_watchdog *w, const struct dt_pulse *pulse, double now_s)
{
    struct dt_pulse_state state;
    dt_pulse_read(pulse, &state);
    if (state.n_moves != progress->n_moves)
        *progress = (struct progress){state.n_moves, now_s};
    *out = (struct dt_heartbeat_thread){
        .section = (int32_t)state.section,
        .step = state.step,
        .n_moves = state.n_moves,
        .idle_s = now_s - progress->moved_s,
        .limit_s = limit_of(w, state.section),
    };
    if (state.waits_for)
        snprintf(out->waits_for, sizeof out->waits_for, "%s", state.waits_for);
}

static void observe_self(struct dt_watchdog *w, double now_s)
{
    struct dt_heartbeat *own = &w->own;
    observe(&own->main, &w->main, w, &dt_pulse_main, now_s);
    observe(&own->writer, &w->writer, w, &dt_pulse_writer, now_s);
    /* A main thread that waits for its own writer moves as long as the writer does, and has a limit
     * of its own from the writer's end on. */
    if (own->main.section == DT_SECTION_SAVE)
        own->main.idle_s = fmin(own->main.idle_s, own->writer.idle_s);
}

static void restart_times(struct dt_watchdog *w, double now_s)
{
    w->start_s = w->main.moved_s = w->writer.moved_s = now_s;
}

/* --- The monitor --- */

/* If each rank has a parent of its own, they do not even find each other's beats. */
static bool sees_nobody(const struct dt_watchdog *w)
{
    for (int r = 0; r < w->options.n_ranks; r++)
        if (r != w->options.rank && (w->peers[r].is_known || w->peers[r].beat.pid > 0))
            return false;
    return true;
}

/* Before MPI has started, hosts are unknown: ranks of this node are those that are seen here. */
static bool is_elsewhere(const struct dt_watchdog *w, const struct peer *peer, bool is_alone)
{
    if (w->options.dir || peer->is_known || peer->beat.pid > 0)
        return false;
    if (is_alone)
        return true;
    if (w->options.comm)
        return strcmp(peer->beat.host, w->own.host) != 0;
    return w->launch.n_local < w->options.n_ranks;
}

static bool is_near(const struct dt_watchdog *w, const struct peer *peer)
{
    return peer->is_known ? peer->beat.node == w->own.node
                          : strcmp(peer->beat.host, w->options.comm ? w->own.host : "") == 0;
}

/* Fills w->views with what this rank knows. Ages are frozen while the beats cannot be read. */
static void look_around(struct dt_watchdog *w)
{
    const bool is_alone = sees_nobody(w);
    for (int r = 0; r < w->options.n_ranks; r++) {
        const struct peer *peer = &w->peers[r];
        double since_s = fmax(peer->is_known ? peer->seen_s : 0, w->start_s);
        w->views[r] = (struct dt_view){
            .beat = peer->beat,
            .is_known = peer->is_known,
            .is_elsewhere = is_elsewhere(w, peer, is_alone),
            .process = peer->process,
            .age_s = fmax((is_near(w, peer) ? w->read_s : w->relayed_s) - since_s, 0)};
    }
    w->views[w->options.rank] = (struct dt_view){.beat = w->own, .is_known = true};
}

static struct dt_diagnosis_case case_of(const struct dt_watchdog *w, double now_s)
{
    const double seen_s = fmax(fmin(w->read_s, w->relayed_s), w->start_s);
    bool is_late = now_s - seen_s > blind_s + PERIODS_OF_SIGHT * w->period_s;
    return (struct dt_diagnosis_case){
        .ranks = w->views,
        .n_ranks = w->options.n_ranks,
        .self = w->options.rank,
        .is_blind = w->path[0] ? is_late : w->options.n_ranks > 1,
        .has_folder = w->options.dir,
        .has_checkpoint = w->has_checkpoint,
        .period_s = w->period_s,
        .apart_s = w->apart_s,
        .nodes = w->nodes,
    };
}

/* Whether the process must end. */
static bool check_run(struct dt_watchdog *w, double now_s)
{
    observe_self(w, now_s);
    look_around(w);
    struct dt_diagnosis_case c = case_of(w, now_s);
    dt_diagnosis_find(&w->diagnosis, &c);
    if (!w->diagnosis.expired && !w->has_alarm)
        return false;
    c.slack_s = PERIODS_OF_SLACK * w->period_s;
    c.apart_s = w->has_alarm ? 0 : c.apart_s; /* somebody there has spoken */
    dt_diagnosis_find(&w->diagnosis, &c);     /* also names ranks whose time is almost up */
    return true;
}

/* Call with the lock held; it is released while waiting for the reporter, which prints and writes
 * what it knows and ends the process. If it hangs, as the heartbeat thread may, this thread ends it
 * after `guard_s`. */
static void end_process(struct dt_watchdog *w)
{
    double guard = dt_clock_s() + guard_s + leave_time(w);
    w->own.flags |= DT_HEARTBEAT_EXPIRED;
    w->must_write = w->must_relay = true;
    pthread_cond_broadcast(&w->change);
    while (dt_clock_s() < guard)
        wait_until(w, guard);
    dt_comm_exit(DT_ERR_HANG);
}

static void *run_monitor(void *arg)
{
    struct dt_watchdog *w = arg;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        double now_s, last_s = w->checked_s, until_s = last_s + w->period_s;
        while ((now_s = dt_clock_s()) < until_s && !w->must_stop && !w->has_alarm)
            wait_until(w, until_s);
        if (w->must_stop)
            break;
        if (now_s - last_s > PERIODS_OF_STALL * w->period_s)
            restart_times(w, now_s); /* the job was suspended */
        w->checked_s = now_s;
        if (check_run(w, now_s))
            end_process(w);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* --- The heartbeat thread --- */

static void take_beats(struct dt_watchdog *w, double now_s)
{
    for (int r = 0; r < w->options.n_ranks; r++) {
        struct peer *peer = &w->peers[r];
        if (!w->valid[r] || (peer->is_known && peer->beat.beat == w->read[r].beat))
            continue;
        *peer = (struct peer){w->read[r], true, 0, now_s};
        if (r == w->options.rank || !(peer->beat.flags & DT_HEARTBEAT_EXPIRED) || w->has_alarm)
            continue;
        w->has_alarm = true;
        w->alarm_rank = r;
    }
    w->read_s = now_s;
    const struct dt_heartbeat *mark = &w->read[w->options.n_ranks];
    const uint64_t relay = w->valid[w->options.n_ranks] ? mark->beat : 0;
    if (!w->shared[0] || relay != w->relay) {
        w->relayed_s = now_s;
        w->relay_rank = mark->node;
    }
    w->relay = relay;
    if (w->has_alarm)
        pthread_cond_broadcast(&w->change);
}

/* Adds what the system shows of the ranks of this node: their states, and pids not known yet. */
static void take_local_ranks(struct dt_watchdog *w)
{
    for (int r = 0; r < w->options.n_ranks; r++) {
        struct peer *peer = &w->peers[r];
        peer->process = w->local[r].state;
        if (peer->beat.pid || w->local[r].pid == 0)
            continue;
        peer->beat.pid = w->local[r].pid;
        memcpy(peer->beat.host, w->own.host, sizeof peer->beat.host);
    }
}

static bool is_checkpoint_there(const struct dt_watchdog *w)
{
    char path[DT_PATH_MAX];
    return w->options.dir && dt_file_path(path, "%s/checkpoints/latest", w->dir) == DT_OK &&
           access(path, F_OK) == 0;
}

/* Whether the lock of the run folder is no longer the file that this start has found. */
static bool is_lock_lost(struct dt_watchdog *w)
{
    char path[DT_PATH_MAX];
    struct stat there;
    if (!w->options.dir || w->options.rank != 0 || dt_file_path(path, "%s/.lock", w->dir) != DT_OK)
        return false;
    if (stat(path, &there) != 0)
        return errno == ENOENT || errno == ENOTDIR || errno == ESTALE;
    if (w->lock_inode == 0)
        w->lock_inode = there.st_ino;
    return there.st_ino != w->lock_inode;
}

static void warn(struct dt_watchdog *w)
{
    if (!atomic_exchange(&w->has_warned, true))
        dt_log(DT_LOG_WARNING, "the other ranks cannot see the watchdog of rank %d: %s",
               w->options.rank, dt_error_text());
}

/* Writes this rank's beat and reads those of its node, once. Only the heartbeat thread calls it,
 * with the lock held; the lock is released during the access, which may hang: the monitor must be
 * able to end the process meanwhile. So the beat is copied before, and flags_written gets the flags
 * that were written, not those that have been set since. A failed write is warned of once. After a
 * failed read read_s stays as it is: ages are frozen, and when it is too old the monitor is blind.
 * Once the main thread has not moved for half of its limit, this also looks at the processes of the
 * node and, without a folder, for the names of other nodes, which the message may need; at most
 * every quarter of the limit, as that takes a while. */
static void exchange(struct dt_watchdog *w)
{
    /* Use the latest state. But after a stall the monitor must run first, or all would look stuck.
     */
    double begin_s = dt_clock_s();
    if (begin_s - w->checked_s < 2 * w->period_s)
        observe_self(w, begin_s);
    w->own.beat++;
    w->must_write = false;
    struct dt_heartbeat own = w->own;
    const double limit_s = own.main.limit_s;
    bool is_late =
        limit_s > 0 && own.main.idle_s > limit_s / 2 && begin_s - w->looked_s > limit_s / 4;
    char nodes[sizeof w->nodes] = "";
    pthread_mutex_unlock(&w->lock);
    if (is_late) {
        w->looked_s = begin_s;
        dt_local_ranks_find(w->local, w->options.n_ranks, w->launch.variable);
        if (!w->options.dir)
            dt_local_ranks_nodes(nodes, sizeof nodes, own.host);
    }
    bool is_written = dt_heartbeat_write(w->path, &own) == DT_OK;
    if (!is_written)
        warn(w);
    dt_status status =
        dt_heartbeat_read(w->path, w->options.start_id, w->read, w->valid, w->options.n_ranks + 1);
    double now_s = dt_clock_s();
    pthread_mutex_lock(&w->lock);
    if (is_written && w->flags_written != own.flags) {
        w->flags_written = own.flags;
        w->written_us = (uint64_t)(now_s * 1e6);
    }
    if (is_late) {
        take_local_ranks(w);
        memcpy(w->nodes, nodes, sizeof nodes);
    }
    if (status == DT_OK)
        take_beats(w, now_s);
}

static void *run_heartbeat(void *arg)
{
    struct dt_watchdog *w = arg;
    pthread_mutex_lock(&w->lock);
    while (!w->must_stop) {
        exchange(w);
        double until_s = dt_clock_s() + (w->shared[0] ? w->period_s / 2 : w->period_s);
        while (dt_clock_s() < until_s && !w->must_stop && !w->must_write)
            wait_until(w, until_s);
    }
    if (!w->is_replaced) {
        w->own.flags |= DT_HEARTBEAT_HAS_LEFT;
        exchange(w);
    }
    w->has_left = true;
    pthread_cond_broadcast(&w->change);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* --- The relay --- */

/* Whether this rank relays now. That is the task of the lowest rank of its node that has not left.
 * Others take it over: any that sees no new mark for PERIODS_OF_SIGHT periods, and any to which the
 * last mark is its own or a higher rank's, so that the lowest that answers prevails. */
static bool relays(const struct dt_watchdog *w)
{
    const double seen_s = fmax(w->relayed_s, w->start_s);
    int first = w->own.node;
    if (!w->shared[0])
        return false;
    while (first < w->options.rank && w->peers[first].is_known &&
           (!is_near(w, &w->peers[first]) || (w->peers[first].beat.flags & DT_HEARTBEAT_HAS_LEFT)))
        first++;
    return first == w->options.rank || (w->relay != 0 && w->relay_rank >= w->options.rank) ||
           dt_clock_s() - seen_s > PERIODS_OF_SIGHT * w->period_s;
}

/* Exchanges beats between the file of this node and the run folder's. Then leaves a mark in the
 * file of this node, after the beats of all ranks: its `beat` is the time in microseconds at which
 * the exchange began, its `node` is this rank. A rank compares that time with written_us to see
 * that its beat has been relayed. */
static dt_status relay(const struct dt_watchdog *w)
{
    struct dt_heartbeat mark = {.start_id = w->options.start_id,
                                .rank = w->options.n_ranks,
                                .node = w->options.rank,
                                .beat = (uint64_t)(dt_clock_s() * 1e6)};
    DT_TRY(dt_heartbeat_merge((const char *const[]){w->path, w->shared}, w->options.start_id,
                              w->options.n_ranks));
    return dt_heartbeat_write(w->path, &mark);
}

/* Call with the lock held; it is released during the access. */
static void look_at_folder(struct dt_watchdog *w)
{
    const bool is_relay = relays(w);
    bool has_checkpoint = w->has_checkpoint;
    w->must_relay = false;
    pthread_mutex_unlock(&w->lock);
    if (is_relay && relay(w) != DT_OK && !w->has_left) /* others then remove the file */
        warn(w);
    if (is_lock_lost(w))
        atomic_store(&has_lost_lock, true);
    if (is_relay || !w->shared[0])
        has_checkpoint = has_checkpoint || is_checkpoint_there(w);
    pthread_mutex_lock(&w->lock);
    w->has_checkpoint = has_checkpoint;
}

static void *run_relay(void *arg)
{
    struct dt_watchdog *w = arg;
    pthread_mutex_lock(&w->lock);
    for (bool is_last = false; !is_last;) {
        is_last = w->has_left;
        look_at_folder(w);
        double until_s = dt_clock_s() + w->period_s;
        while (dt_clock_s() < until_s && !w->has_left && !w->must_relay)
            wait_until(w, until_s);
    }
    w->has_relayed = true;
    pthread_cond_broadcast(&w->change);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* --- The end --- */

/* Sets flags of the beat, or none, and has it written at once. */
static void set_flag(struct dt_watchdog *w, uint32_t flag)
{
    pthread_mutex_lock(&w->lock);
    w->own.flags |= flag;
    w->must_write = w->must_relay = true;
    pthread_cond_broadcast(&w->change);
    pthread_mutex_unlock(&w->lock);
}

static void print_diagnosis(struct dt_watchdog *w)
{
    char line[DT_DIAGNOSIS_TEXT + 2];
    int n = w->diagnosis.expired
                ? snprintf(line, sizeof line, "%s\n", w->diagnosis.text)
                : snprintf(line, sizeof line, "dtrain: error[HANG] rank %d reports a hang%s\n",
                           w->alarm_rank, w->options.dir ? ", see its hang-*.txt" : "");
    for (ssize_t done = 0, k = 0; done < n && k >= 0; done += k)
        k = write(STDERR_FILENO, line + done, (size_t)(n - done));
    set_flag(w, DT_HEARTBEAT_SAID);
}

/* Whether all others that answer have written their reports, and can see that this rank has. */
static bool have_all_written(struct dt_watchdog *w)
{
    pthread_mutex_lock(&w->lock);
    bool all = !w->path[0] || ((w->flags_written & DT_HEARTBEAT_WRITTEN) &&
                               (!w->shared[0] || w->relay > w->written_us));
    look_around(w);
    struct dt_diagnosis_case c = case_of(w, dt_clock_s());
    for (int r = 0; r < w->options.n_ranks; r++)
        if (r != w->options.rank && dt_diagnosis_answers(&c, r))
            all = all && (w->peers[r].beat.flags & DT_HEARTBEAT_WRITTEN);
    pthread_mutex_unlock(&w->lock);
    return all;
}

/* Whether another rank, which may have ended since, has printed a diagnosis. */
static bool someone_reported(struct dt_watchdog *w)
{
    bool any = false;
    pthread_mutex_lock(&w->lock);
    for (int r = 0; r < w->options.n_ranks; r++)
        any = any || (r != w->options.rank && (w->peers[r].beat.flags & DT_HEARTBEAT_SAID));
    pthread_mutex_unlock(&w->lock);
    return any;
}

static void report_hang(struct dt_watchdog *w)
{
    double until_s = dt_clock_s() + leave_time(w);
    /* A stopped rank that is woken by mpirun's signal comes too late to speak. */
    bool is_speaker =
        w->diagnosis.speaker == w->options.rank && w->diagnosis.expired && !someone_reported(w);
    if (is_speaker)
        print_diagnosis(w);
    const struct dt_hang_report report = {
        .dir = w->options.dir,
        .rank = w->options.rank,
        .n_ranks = w->options.n_ranks,
        .init_s = w->options.limits.init_timeout_s,
        .step_s = atomic_load(&w->step_limit_s),
        .save_s = w->options.limits.save_timeout_s,
        .diagnosis = &w->diagnosis,
        .ranks = w->views,
    };
    if (report.dir)
        dt_hang_report_write(&report);
    set_flag(w, DT_HEARTBEAT_WRITTEN);
    while (dt_clock_s() < until_s && !(is_speaker && have_all_written(w))) {
        set_flag(w, 0); /* writing also reads the other beats */
        dt_clock_sleep(0.05 * fmax(w->period_s, 1));
    }
    /* The designated speaker was silent. */
    if (!is_speaker && !someone_reported(w))
        print_diagnosis(w);
}

static void *run_reporter(void *arg)
{
    struct dt_watchdog *w = arg;
    pthread_mutex_lock(&w->lock);
    while (!w->must_stop && !(w->own.flags & DT_HEARTBEAT_EXPIRED))
        pthread_cond_wait(&w->change, &w->lock);
    bool expired = w->own.flags & DT_HEARTBEAT_EXPIRED;
    pthread_mutex_unlock(&w->lock);
    if (!expired)
        return NULL;
    report_hang(w);
    dt_comm_exit(DT_ERR_HANG);
}

/* --- Start and stop --- */

static const struct {
    void *(*run)(void *w);
    char name[16];
} threads[N_THREADS] = {
    [MONITOR] = {run_monitor, "dt-watchdog"},
    [REPORTER] = {run_reporter, "dt-hang"},
    [HEARTBEAT] = {run_heartbeat, "dt-heartbeat"},
    [RELAY] = {run_relay, "dt-relay"},
};

static double find_period(const struct dt_watchdog_options *options)
{
    const double limits[] = {options->limits.init_timeout_s, options->limits.step_timeout_s,
                             options->limits.save_timeout_s};
    double period_s = dt_heartbeat_period_s(options->n_ranks);
    for (size_t i = 0; i < DT_COUNT(limits); i++)
        if (limits[i] > 0)
            period_s = fmin(period_s, limits[i] / PERIODS_OF_LIMIT);
    return period_s;
}

/* A file that the ranks of this node share, of the start or of a run. */
static bool find_local_file(struct dt_watchdog *w, const char *name)
{
    for (int i = 0; i < DT_LOCAL_RANKS_PATHS; i++)
        if (dt_local_ranks_path(w->path, i, name) == DT_OK &&
            dt_heartbeat_write(w->path, &w->own) == DT_OK)
            return true;
    w->path[0] = '\0';
    dt_error_clear();
    return false;
}

/* Writes the first beat: what cannot be written fails now. */
static dt_status find_files(struct dt_watchdog *w)
{
    if (!w->options.dir) {
        if (w->options.n_ranks > 1)
            find_local_file(w, "beats");
        return DT_OK;
    }
    DT_TRY(dt_file_path(w->dir, "%s", w->options.dir));
    DT_TRY(dt_heartbeat_path(w->shared, w->dir));
    w->options.dir = w->dir;
    w->has_checkpoint = is_checkpoint_there(w);
    dt_hang_report_remove(w->dir, w->options.rank);
    DT_TRY(dt_heartbeat_write(w->shared, &w->own));
    if (w->options.n_local > 1 && find_local_file(w, "run-beats"))
        return DT_OK;
    memcpy(w->path, w->shared, sizeof w->path);
    w->shared[0] = '\0';
    return DT_OK;
}

static dt_status prepare_watchdog(struct dt_watchdog *w, const struct dt_watchdog_options *options)
{
    const size_t n = (size_t)options->n_ranks;
    const double keepalive_s = dt_comm_keepalive_s();
    char host[DT_HOST_MAX];
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&w->change, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&w->lock, NULL);
    DT_TRY(DT_NEW(w->peers, n));
    DT_TRY(DT_NEW(w->views, n));
    DT_TRY(DT_NEW(w->read, n + 1)); /* and the relay's mark */
    DT_TRY(DT_NEW(w->valid, n + 1));
    DT_TRY(DT_NEW(w->local, n));
    w->options = *options;
    w->launch = dt_comm_launched();
    w->period_s = find_period(options);
    w->apart_s = keepalive_s > 0 ? keepalive_s + margin_s : 0;
    if (!options->dir)
        w->apart_s = fmax(w->apart_s, options->limits.init_timeout_s + remote_s);
    atomic_init(&w->step_limit_s, options->limits.step_timeout_s);
    w->own = (struct dt_heartbeat){
        .start_id = options->start_id,
        .rank = options->rank,
        .node = options->node,
        .pid = (int32_t)getpid(),
    };
    dt_host_name(host);
    memcpy(w->own.host, host, sizeof w->own.host - 1);
    w->checked_s = dt_clock_s();
    restart_times(w, w->checked_s);
    observe_self(w, w->start_s);
    for (int r = 0; r < options->n_ranks && options->comm; r++)
        snprintf(w->peers[r].beat.host, sizeof w->own.host, "%.63s",
                 dt_comm_host(options->comm, r));
    return find_files(w);
}

bool dt_watchdog_has_lost_lock(void)
{
    return atomic_load(&has_lost_lock);
}

/* Waits for a limited time, as these threads may be stuck in the file system. */
static bool has_ended(struct dt_watchdog *w, const atomic_bool *flag)
{
    double until_s = dt_clock_s() + stop_s;
    pthread_mutex_lock(&w->lock);
    while (!*flag && dt_clock_s() < until_s)
        wait_until(w, until_s);
    const bool ended = *flag;
    pthread_mutex_unlock(&w->lock);
    return ended;
}

/* Whether all other ranks of this node have left. Without a folder some may be of other nodes. */
static bool is_file_needless(const struct dt_watchdog *w)
{
    int n_left = 0, n_here = 0;
    for (int r = 0; r < w->options.n_ranks && w->peers; r++) {
        const struct peer *peer = &w->peers[r];
        if (r == w->options.rank || !peer->is_known || !is_near(w, peer))
            continue;
        n_left += (peer->beat.flags & DT_HEARTBEAT_HAS_LEFT) != 0;
        n_here++;
    }
    return n_left == n_here &&
           (!w->options.dir || (w->shared[0] && n_left == w->options.n_local - 1));
}

static void stop(struct dt_watchdog *w, bool is_replaced)
{
    pthread_mutex_lock(&w->lock);
    w->must_stop = true;
    w->is_replaced = is_replaced;
    pthread_cond_broadcast(&w->change);
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < w->n_threads; i++) {
        if ((i == HEARTBEAT && !has_ended(w, &w->has_left)) ||
            (i == RELAY && !has_ended(w, &w->has_relayed)))
            return; /* leaks the thread and the memory it uses */
        pthread_join(w->threads[i], NULL);
    }
    if (!is_replaced && is_file_needless(w))
        (void)unlink(w->path);
    pthread_cond_destroy(&w->change);
    pthread_mutex_destroy(&w->lock);
    free(w->local);
    free(w->valid);
    free(w->read);
    free(w->views);
    free(w->peers);
    free(w);
}

dt_status dt_watchdog_start(const struct dt_watchdog_options *options)
{
    struct dt_watchdog *w;
    DT_TRY(DT_NEW(w, 1));
    dt_status status = prepare_watchdog(w, options);
    int error = 0, n = w->options.dir ? N_THREADS : w->path[0] ? RELAY : HEARTBEAT;
    while (status == DT_OK && w->n_threads < n && error == 0) {
        int i = w->n_threads;
        error = dt_thread_start(&w->threads[i], threads[i].name, threads[i].run, w);
        w->n_threads += error == 0;
    }
    if (error != 0)
        status = DT_ERROR(DT_ERR_MEMORY, "cannot start a watchdog thread: %s", strerror(error));
    if (status != DT_OK) {
        stop(w, false);
        return dt_error_pass(status, __func__, __FILE__, __LINE__);
    }
    if (current)
        stop(current, strcmp(current->path, w->path) == 0);
    current = w;
    return DT_OK;
}

void dt_watchdog_set_step(double median_s)
{
    double min_s = current ? current->options.limits.step_timeout_s : 0;
    if (min_s > 0)
        atomic_store(&current->step_limit_s, fmax(min_s, STEPS_OF_LIMIT * median_s));
}

void dt_watchdog_stop(void)
{
    if (current)
        stop(current, false);
    current = NULL;
}
