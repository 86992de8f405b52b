#include "launch/job.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/host.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/run_folder.h"

enum { UNKNOWN_RANKS = 4096 }; /* watched, if the launcher chooses their number */
/* File systems show beats late; three periods are added: 30 s in all, with hundreds of ranks 42.
 * All may be silent because the job is suspended. */
static const double silent_s = 27, all_silent_s = 300, ended_s = 30;
static const double fresh_s = 10; /* somebody answers */
static const double pause_s = 10; /* of this process: it was suspended, or the file system hung */

/* Takes over what has changed, at the time now_s; before the start nothing lives. */
static dt_status take_beats(struct dt_job *job, bool is_start, double now_s)
{
    char path[DT_PATH_MAX];
    struct dt_heartbeat *beats = NULL;
    bool *valid = NULL;
    dt_status status = DT_OK;
    DT_TRY_OUT(dt_heartbeat_path(path, job->dir));
    DT_TRY_OUT(DT_NEW(beats, (size_t)job->n_ranks));
    DT_TRY_OUT(DT_NEW(valid, (size_t)job->n_ranks));
    DT_TRY_OUT(dt_heartbeat_read(path, -1, beats, valid, job->n_ranks));
    for (int r = 0; r < job->n_ranks; r++) {
        struct dt_job_beat *rank = &job->ranks[r];
        if (!valid[r] ||
            (beats[r].beat == rank->beat.beat && beats[r].start_id == rank->beat.start_id))
            continue;
        *rank = (struct dt_job_beat){.beat = beats[r], .lives = !is_start, .seen_s = now_s};
    }
out:
    free(valid);
    free(beats);
    return status;
}

dt_status dt_job_begin(struct dt_job *job, const struct dt_launch_options *options, int n_ranks)
{
    struct dt_run_state state;
    *job = (struct dt_job){.options = options,
                           .n_ranks = n_ranks > 0 ? n_ranks : UNKNOWN_RANKS,
                           .start_s = options->start_s,
                           .woken_s = dt_clock_s(),
                           .looked_s = dt_clock_s()};
    if (!options->run_dir)
        return DT_OK;
    DT_TRY(dt_file_path(job->dir, "%s", options->run_dir));
    DT_TRY(DT_NEW(job->ranks, (size_t)job->n_ranks));
    if (dt_run_folder_state(&state, job->dir))
        job->incarnation = state.incarnation;
    (void)take_beats(job, true, job->looked_s);
    dt_error_clear();
    return DT_OK;
}

static bool is_over(const struct dt_heartbeat *beat)
{
    return beat->flags & (DT_HEARTBEAT_HAS_LEFT | DT_HEARTBEAT_WRITTEN);
}

/* How long a rank may be silent: in a save, the file system may hold its beats up for as long. */
static double patience(const struct dt_job *job, const struct dt_heartbeat *beat)
{
    const struct dt_heartbeat_thread *threads[] = {&beat->main, &beat->writer};
    double longest_s = silent_s + 3 * dt_heartbeat_period_s(job->n_ranks);
    for (size_t i = 0; i < DT_COUNT(threads); i++)
        if (threads[i]->section == DT_SECTION_SAVE)
            longest_s = fmax(longest_s, threads[i]->limit_s);
    return longest_s;
}

/* The first rank of the node that has been silent for longest, -1 if one of each answers. */
static int find_silent_node(struct dt_job *job, double now_s)
{
    int found = -1;
    for (int r = 0; r < job->n_ranks; r++)
        job->ranks[r].late_s = INFINITY;
    for (int r = 0; r < job->n_ranks; r++) {
        const struct dt_job_beat *rank = &job->ranks[r];
        if (!rank->lives || rank->beat.node < 0 || rank->beat.node >= job->n_ranks)
            continue;
        double *late_s = &job->ranks[rank->beat.node].late_s;
        const double own_s = now_s - rank->seen_s - patience(job, &rank->beat);
        *late_s = fmin(*late_s, is_over(&rank->beat) ? 0 : own_s);
    }
    for (int r = 0; r < job->n_ranks; r++) {
        const double late_s = job->ranks[r].late_s;
        if (isfinite(late_s) && late_s > (found < 0 ? 0 : job->ranks[found].late_s))
            found = r;
    }
    return found;
}

/* Without a shared run folder there is no beat, but RUN. */
static bool has_begun(const struct dt_job *job)
{
    struct dt_run_state state;
    for (int r = 0; r < job->n_ranks; r++)
        if (job->ranks[r].lives)
            return true;
    return dt_run_folder_state(&state, job->dir) && state.incarnation > job->incarnation;
}

static enum dt_job_state look_at_start(struct dt_job *job, double now_s)
{
    job->waited_s += fmin(now_s - job->woken_s, pause_s);
    job->woken_s = now_s;
    job->has_begun = job->has_begun || has_begun(job);
    return job->has_begun || job->waited_s < job->start_s ? DT_JOB_RUNS : DT_JOB_LATE;
}

enum dt_job_state dt_job_look(struct dt_job *job, char host[DT_HOST_MAX])
{
    const double now_s = dt_clock_s(), slept_s = now_s - job->looked_s;
    double latest_s = 0;
    int n_live = 0, n_over = 0;
    if (!job->ranks)
        return DT_JOB_RUNS;
    const bool is_read = take_beats(job, false, now_s) == DT_OK;
    dt_error_clear();
    if (look_at_start(job, now_s) == DT_JOB_LATE)
        return DT_JOB_LATE;
    if (!is_read)
        return DT_JOB_RUNS;
    job->looked_s = dt_clock_s();
    for (int r = 0; r < job->n_ranks; r++) {
        struct dt_job_beat *rank = &job->ranks[r];
        if (slept_s > pause_s || job->looked_s - now_s > pause_s)
            rank->seen_s = job->looked_s;
        n_live += rank->lives;
        n_over += rank->lives && is_over(&rank->beat);
        latest_s = rank->lives ? fmax(latest_s, rank->seen_s) : latest_s;
    }
    const double quiet_s = now_s - latest_s;
    if (n_live == 0)
        return DT_JOB_RUNS;
    if (n_over == n_live)
        return quiet_s > ended_s ? DT_JOB_HAS_ENDED : DT_JOB_RUNS;
    if (n_over > 0 && quiet_s > ended_s) { /* for a save nobody waits any more */
        int left = 0;
        while (!job->ranks[left].lives || is_over(&job->ranks[left].beat))
            left++;
        memcpy(host, job->ranks[left].beat.host, sizeof job->ranks[left].beat.host);
        return DT_JOB_SILENT_HOST;
    }
    const int silent = quiet_s < fresh_s ? find_silent_node(job, now_s) : -1;
    if (silent >= 0)
        memcpy(host, job->ranks[silent].beat.host, sizeof job->ranks[silent].beat.host);
    return silent >= 0 ? DT_JOB_SILENT_HOST : quiet_s > all_silent_s ? DT_JOB_SILENT : DT_JOB_RUNS;
}

int dt_job_code(const struct dt_job *job, int code, bool is_asked)
{
    enum { LOST_NODE = 205 };
    struct dt_run_state state;
    if (code >= SIGILL && code <= SIGSEGV) /* as MPICH says it */
        code += 128;
    if (!job->dir[0])
        return code;
    const bool is_there = dt_run_folder_state(&state, job->dir);
    const bool is_own = is_there && state.incarnation > job->incarnation;
    /* A job that is ended for a host that does not answer may still save and end, but nobody has
     * asked it to. */
    const bool is_hang = code == DT_ERR_HANG && state.exit_code == DT_STOPPED && !is_asked;
    if (is_own && !state.is_running && !is_hang)
        return state.exit_code;
    const bool is_believed =
        is_there ? !is_own && !state.is_running && state.exit_code == 0 : !job->options->sees_run;
    return code == 0 && (is_asked || !is_believed) ? LOST_NODE : code;
}

int64_t dt_job_step(const struct dt_job *job)
{
    char dir[DT_PATH_MAX];
    int64_t *steps = NULL, newest = -1;
    int n = 0;
    if (job->dir[0] && dt_file_path(dir, "%s/checkpoints", job->dir) == DT_OK &&
        dt_checkpoint_list(&steps, &n, dir) == DT_OK && n > 0)
        newest = steps[0];
    free(steps);
    dt_error_clear();
    return newest;
}

void dt_job_end(struct dt_job *job)
{
    free(job->ranks);
    job->ranks = NULL;
}
