/* One thread, which waits for signals: that of the launcher's end, and those that ask for one. */
#include "launch/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/host.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "launch/job.h"
#include "launch/launcher.h"

static const double longest_wait_s = 60; /* between two starts */
static const double again_s = 1;         /* a request often arrives twice */
static const double last_start_s = 5;    /* for a start that is to end anyway */
static const double doctor_s = 60;       /* at most, with a CPU for each rank */
static const double in_use_s = 60;       /* until a lost rank 0 no longer counts as alive */

enum { SHOWN_BYTES = 8192 };

struct launch {
    const struct dt_launch_options *options;
    const struct dt_launcher *launcher;
    struct dt_launch_hosts hosts;
    struct dt_job job;
    char id[17]; /* DTRAIN_LAUNCH of all processes of this launch */
    sigset_t signals;
    int n_ranks;                /* of this start, 0: the launcher's choice */
    pid_t pid;                  /* of the launcher */
    double end_s;               /* of --max-time, INFINITY = none */
    int n_asked;                /* how often this process was told to end */
    double asked_s;             /* the last time */
    const char *by;             /* what has told it, the last time */
    bool is_told;               /* ranks that were there have got it */
    int64_t last_step;          /* of the newest checkpoint at the last restart */
    double wait_s;              /* before the next start */
    char silent[1024];          /* hosts that do not answer */
    char why[DT_HOST_MAX + 64]; /* the supervisor has ended it, "" if not */
};

/* --- The launcher's process --- */

static dt_status start_launcher(struct launch *l)
{
    char shown[SHOWN_BYTES];
    struct dt_words words = {0};
    dt_status status = DT_OK;
    DT_TRY_OUT(dt_launcher_command(&words, l->launcher, l->options, &l->hosts, l->n_ranks));
    if (isfinite(l->end_s)) { /* the last one counts */
        DT_TRY_OUT(dt_words_add(&words, "--max-time"));
        DT_TRY_OUT(dt_words_add(&words, "%.1fs", fmax(l->end_s - dt_clock_s(), 0.1)));
    }
    dt_words_quote(shown, sizeof shown, &words);
    dt_log(DT_LOG_INFO, "launch: %s", shown);
    DT_TRY_OUT(dt_process_start(&l->pid, &words, DT_PROCESS_JOB, -1));
out:
    dt_words_reset(&words);
    return status;
}

/* Names a host that keeps the ranks from starting, which from here on counts as lost. */
static void blame_host(struct launch *l)
{
    bool any = false;
    dt_launch_hosts_clean(&l->hosts, NULL, l->silent, sizeof l->silent);
    for (int i = 0; i < l->hosts.n; i++)
        any |= l->hosts.list[i].answers;
    for (int i = 0; i < l->hosts.n && any; i++)
        l->hosts.list[i].is_gone |= !l->hosts.list[i].answers;
    if (!any) /* ssh may not be allowed here: nothing is known */
        l->silent[0] = '\0';
}

/* Looks at the job, and says why it cannot end by itself. */
static bool is_stuck(struct launch *l)
{
    char host[DT_HOST_MAX] = "";
    switch (dt_job_look(&l->job, host)) {
    case DT_JOB_LATE:
        l->silent[0] = '\0';
        if (l->n_asked == 0)
            blame_host(l);
        if (!l->silent[0] && l->n_asked == 0 && (l->hosts.n > 0 || !l->options->sees_run)) {
            dt_log(DT_LOG_WARNING,
                   "launch: no rank has begun within %.0f s, but all hosts answer; if %s is not "
                   "visible on this machine, set output.shared to false",
                   l->job.start_s, l->options->run_dir);
            l->job.start_s = INFINITY;
        } else {
            snprintf(l->why, sizeof l->why, "no rank has begun within %.0f s%s%.64s",
                     l->job.start_s, l->silent[0] ? "; no answer from " : "", l->silent);
        }
        break;
    case DT_JOB_SILENT_HOST:
        snprintf(l->why, sizeof l->why, "the ranks on %s do not answer", host);
        break;
    case DT_JOB_SILENT:
        snprintf(l->why, sizeof l->why, "no rank answers");
        break;
    case DT_JOB_HAS_ENDED:
        snprintf(l->why, sizeof l->why, "the ranks have ended, the launcher has not");
        break;
    case DT_JOB_RUNS:
        break;
    }
    return l->why[0];
}

/* --- Requests to end --- */

/* Waits for a signal, at most so long; whether it is a request, which often arrives twice. */
static bool hear(struct launch *l, time_t seconds)
{
    const struct timespec max = {.tv_sec = seconds};
    const int number = sigtimedwait(&l->signals, NULL, &max);
    if (number <= 0 || number == SIGCHLD || (l->n_asked > 0 && dt_clock_s() - l->asked_s < again_s))
        return false;
    l->by = strsignal(number);
    l->n_asked++;
    l->asked_s = dt_clock_s();
    return true;
}

/* Between two starts --max-time is a request, too; ranks look at it themselves. */
static bool is_asked(struct launch *l)
{
    (void)hear(l, 0);
    if (l->n_asked == 0 && dt_clock_s() >= l->end_s) {
        l->by = "--max-time";
        l->n_asked++;
    }
    return l->n_asked > 0;
}

/* Until the launcher has ended; returns the exit code of the job. A training saves and ends when it
 * gets SIGUSR1, which every launcher passes on: to the ranks that there are, and some launchers are
 * ended by it before they have started any, so it is repeated until there are ranks. */
static int watch(struct launch *l)
{
    int code = DT_ERR_HANG;
    while (!dt_process_has_ended(l->pid, 0, &code)) {
        const bool is_new = hear(l, 1), saves = l->options->run_dir && l->n_asked < 2;
        if (is_new)
            dt_log(DT_LOG_INFO, "launch: got %s, the job is told to %s", l->by,
                   saves ? "save and end; once more ends it at once" : "end");
        if (is_new && saves)
            l->job.start_s = fmin(l->job.start_s, l->job.waited_s + last_start_s);
        if (l->n_asked > 0 && saves && !l->is_told) {
            l->is_told = l->job.has_begun;
            kill(l->pid, SIGUSR1);
        }
        if (is_stuck(l))
            dt_log(DT_LOG_WARNING, "launch: %s; the job is ended", l->why);
        if (l->why[0] || (l->n_asked > 0 && !saves)) {
            dt_process_end(l->pid);
            code = l->why[0] ? DT_ERR_HANG : 128 + SIGTERM;
            break;
        }
    }
    return dt_job_code(&l->job, code, l->n_asked > 0);
}

/* --- Whether to start again --- */

/* A device failed, a hang, weights differ, a rank or a node was lost, or a rank crashed. */
static bool can_help(int code)
{
    static const int codes[] = {DT_ERR_DEVICE, DT_ERR_HANG, DT_ERR_DIVERGED, 205, 255};
    for (size_t i = 0; i < DT_COUNT(codes); i++)
        if (code == codes[i])
            return true;
    return code >= 128 + SIGILL && code <= 128 + SIGSEGV;
}

/* A line of restarts.jsonl about the start that has just ended. */
static void record(const struct launch *l, int n, double seconds, int code, int64_t step,
                   const char *then)
{
    struct dt_jsonw w = {0};
    char path[DT_PATH_MAX];
    if (!l->job.dir[0] || dt_file_path(path, "%s/restarts.jsonl", l->job.dir) != DT_OK)
        return;
    dt_jsonw_add(&w, "{time_s: %g, start: %d, ranks: %d, seconds: %g, exit_code: %d",
                 dt_clock_unix_s(), n, l->n_ranks, round(seconds * 10) / 10, code);
    dt_jsonw_add(&w, "checkpoint_step: %" PRId64 ", why: %s, then: %s}", step, l->why, then);
    const int fd =
        open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (dt_jsonw_end(&w) != DT_OK || fd < 0 || dprintf(fd, "%s\n", w.text) < 0)
        dt_log(DT_LOG_WARNING, "launch: cannot write %s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    dt_jsonw_reset(&w);
}

static bool has_lost_hosts(const struct launch *l)
{
    bool is_lost = false;
    for (int i = 0; i < l->hosts.n; i++)
        is_lost |= l->hosts.list[i].is_gone;
    return is_lost;
}

/* As many as given, or fewer if hosts are gone. */
static int count_ranks(const struct launch *l)
{
    const int given = l->options->n_ranks, slots = dt_launch_slots(&l->hosts);
    if (l->hosts.n == 0)
        return given ? given : l->options->ranks_per_node;
    return given > 0 && (!has_lost_hosts(l) || given < slots) ? given : slots;
}

/* Until all hosts answer, but not longer than the options say. */
static void wait_for_hosts(struct launch *l)
{
    static const double pause_s = 2;
    const double wait_s = l->options->wait_s, until_s = fmin(dt_clock_s() + wait_s, l->end_s);
    bool has_said = false;
    for (;;) {
        dt_launch_hosts_clean(&l->hosts, l->id, l->silent, sizeof l->silent);
        if (!l->silent[0] || dt_clock_s() >= until_s || dt_process_is_asked())
            return;
        if (!has_said)
            dt_log(DT_LOG_NOTICE, "launch: waiting up to %.0f s for %s", wait_s, l->silent);
        has_said = true;
        dt_clock_sleep(pause_s);
    }
}

/* Whether it is an error of dtrain's own, which would come again. */
static bool is_error(int code)
{
    return code >= DT_ERR_USAGE && code < DT_ERR_IN_USE && code != DT_STOPPED && !can_help(code);
}

/* Runs the doctor on the ranks of the next start. Returns the exit code of what keeps them from
 * training together, which the doctor's report has shown; 0 if there is nothing, or nobody knows.
 */
static int examine(struct launch *l)
{
    enum { REPORT_BYTES = 32768 };
    char config[DT_PATH_MAX] = "", folder[DT_PATH_MAX] = "", report[REPORT_BYTES];
    char *words[] = {(char *)"doctor", (char *)"--quick", (char *)"--config",
                     config,           (char *)"--set",   folder};
    const int n_ranks = count_ranks(l);
    const double n_cpus = dt_cpus_allowed() * fmax(l->hosts.n, 1);
    const double limit_s = fmin(doctor_s * fmax(n_ranks / n_cpus, 1), l->end_s - dt_clock_s());
    struct dt_launch_options doctor = *l->options;
    struct dt_words line = {0};
    int code = 0;
    doctor.words = words;
    doctor.n_words = DT_COUNT(words);
    if (dt_file_path(config, "%s/config.json", l->job.dir) != DT_OK || !dt_file_exists(config) ||
        dt_file_path(folder, "output.dir=%s", l->job.dir) != DT_OK)
        doctor.n_words = 2;
    if (dt_launcher_command(&line, l->launcher, &doctor, &l->hosts, n_ranks) == DT_OK)
        code = dt_process_ask(report, sizeof report, &line, limit_s);
    dt_words_reset(&line);
    if (code == 0 || code == DT_ERR_DEVICE || is_error(code)) {
        fputs(code ? report : "", stderr);
        return code;
    }
    dt_launch_hosts_clean(&l->hosts, l->id, l->silent, sizeof l->silent);
    if (!is_asked(l))
        dt_log(DT_LOG_NOTICE, "launch: dtrain doctor did not finish (code %d), so it is ignored",
               code);
    return 0;
}

static const char ended[] = "ended"; /* as it should, or without a chance */

/* Why it is not started again, NULL if it is; *code may become another reason. */
static const char *refuse_restart(struct launch *l, int n, int *code, int64_t step)
{
    const bool is_held = *code == DT_ERR_IN_USE && n > 1; /* by the rank 0 that was lost */
    if (*code != 0 || l->why[0] || l->n_asked > 0)
        dt_launch_hosts_clean(&l->hosts, l->id, l->silent, sizeof l->silent);
    if (l->options->max_restarts == 0 || !(can_help(*code) || is_held) || is_asked(l))
        return ended;
    if (n > l->options->max_restarts)
        return "gave up: --max-restarts is reached";
    if (n > 1 && step <= l->last_step && !is_held)
        return "gave up: no newer checkpoint than at the last restart";
    l->last_step = step - is_held; /* the next start may find it held no more */
    if (l->silent[0] && l->options->wait_s > 0)
        wait_for_hosts(l);
    for (int i = 0; i < l->hosts.n; i++)
        if (l->hosts.list[i].is_gone)
            dt_log(DT_LOG_WARNING, "launch: no answer from %s: the job continues without",
                   l->hosts.list[i].name);
    if (l->hosts.n > 0 && dt_launch_slots(&l->hosts) == 0)
        return "gave up: no host answers";
    const int found = is_asked(l) ? 0 : examine(l);
    *code = found ? found : *code;
    return is_asked(l) ? ended
           : found     ? "gave up: by dtrain doctor the ranks cannot train together"
                       : NULL;
}

/* Waits before the next start, ever longer but not longer than the last one ran, and returns false
 * if there shall be none. */
static bool back_off(struct launch *l, int n, int code, double seconds)
{
    l->wait_s = fmax(fmin(fmin(2 * l->wait_s, longest_wait_s), seconds), 1);
    if (code == DT_ERR_IN_USE)
        l->wait_s = in_use_s;
    dt_log(DT_LOG_NOTICE, "launch: the job ended with %d; restart %d of %d in %.0f s", code, n,
           l->options->max_restarts, l->wait_s);
    for (double until_s = dt_clock_s() + l->wait_s; dt_clock_s() < until_s && !is_asked(l);)
        (void)hear(l, 1);
    return !is_asked(l);
}

/* Until it has ended for good. */
static dt_status run_job(struct launch *l, int *code)
{
    if (l->hosts.n > 0 && (l->options->max_restarts > 0 || l->options->wait_s > 0) && !is_asked(l))
        wait_for_hosts(l);
    *code = 128 + SIGTERM;
    for (int n = 1; !is_asked(l); n++) {
        const double begin_s = dt_clock_s();
        l->why[0] = '\0';
        l->n_ranks = count_ranks(l);
        DT_TRY(dt_job_begin(&l->job, l->options, l->n_ranks));
        if (dt_launcher_queues(l->launcher))
            l->job.start_s = INFINITY;
        DT_TRY(start_launcher(l));
        *code = watch(l);
        const double seconds = dt_clock_s() - begin_s;
        const int64_t step = dt_job_step(&l->job);
        const char *end = refuse_restart(l, n, code, step);
        if (end && end != ended)
            dt_log(DT_LOG_WARNING, "launch: the job ended with %d; %s", *code, end);
        if (!end && !back_off(l, n, *code, seconds))
            end = ended;
        if (n > 1 || end != ended)
            record(l, n, seconds, *code, step, end ? end : "restart");
        dt_job_end(&l->job);
        if (end)
            break;
    }
    return DT_OK;
}

/* A training that was asked to end and has not finished can go on. */
static int final_code(struct launch *l, int code)
{
    (void)hear(l, 0);
    const bool can_go_on = l->n_asked > 0 && code != 0 && !is_error(code);
    if (!can_go_on || (!l->options->run_dir && l->pid))
        return code;
    if (code != DT_STOPPED)
        dt_log(DT_LOG_INFO,
               "launch: ended on request (%s) before the job had finished; run again to continue",
               l->by);
    return DT_STOPPED;
}

void dt_launch_listen(sigset_t *signals)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
    struct sigaction old;
    signal(SIGCHLD, SIG_DFL);
    sigemptyset(signals);
    sigaddset(signals, SIGCHLD);
    for (size_t i = 0; i < DT_COUNT(numbers); i++) /* nohup ignores SIGHUP */
        if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaddset(signals, numbers[i]);
    sigprocmask(SIG_BLOCK, signals, NULL);
}

dt_status dt_supervise(const struct dt_launch_options *options, int *code)
{
    struct launch l = {.options = options,
                       .signals = options->signals,
                       .end_s =
                           options->max_time_s > 0 ? dt_clock_s() + options->max_time_s : INFINITY};
    uint64_t id = 0;
    (void)!getrandom(&id, sizeof id, 0);
    snprintf(l.id, sizeof l.id, "%016" PRIx64, id);
    setenv("DTRAIN_LAUNCH", l.id, 1);
    dt_status status = dt_launch_hosts_find(&l.hosts, options->hosts, options->hostfile);
    if (status == DT_OK && l.hosts.n == 0 && options->ranks_per_node &&
        getenv("SLURM_JOB_NODELIST"))
        status = DT_ERROR(DT_ERR_NO_INPUT, "scontrol does not name the hosts of this job of Slurm, "
                                           "which --ranks-per-node needs; give --ranks instead");
    for (int i = 0; i < l.hosts.n && options->ranks_per_node; i++)
        l.hosts.list[i].slots = options->ranks_per_node;
    if (status == DT_OK)
        status = dt_launcher_find(&l.launcher);
    if (is_asked(&l)) { /* which may have kept a program from answering */
        status = DT_OK;
        dt_error_clear();
    }
    if (status == DT_OK)
        status = run_job(&l, code);
    *code = final_code(&l, *code);
    dt_job_end(&l.job);
    free(l.hosts.list);
    return status;
}
