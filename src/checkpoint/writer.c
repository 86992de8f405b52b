/* One thread, one snapshot, one save at a time. The snapshot belongs to the writer thread while the
 * state is BUSY and to the main thread otherwise; the lock hands it over. */
#include "checkpoint/writer.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "base/thread.h"
#include "base/trace.h"
#include "checkpoint/snapshot.h"

enum state { IDLE, BUSY, ENDED }; /* ENDED: the result has not been taken */

struct dt_writer {
    const struct dt_checkpoint_target *target;
    struct dt_snapshot *snapshot;
    pthread_t thread;
    bool has_lock, has_changed, has_thread;
    pthread_mutex_t lock; /* protects the members below */
    pthread_cond_t changed;
    enum state state;
    bool stop;
    struct dt_saved saved;
};

/* --- The thread --- */

/* The writer thread of rank 0, from dt_writer_create to dt_writer_destroy. States: IDLE; BUSY once
 * dt_writer_start has filled the snapshot; ENDED once `saved` has the result; IDLE again when the
 * main thread takes it. The mutex is released while a checkpoint is written, which may take
 * minutes, because the main thread asks for the state in every step. Being BUSY is what keeps the
 * main thread away from the snapshot, and `saved` is a copy during that time. A failed write does
 * not end the thread: error texts are kept per thread, so the text goes into `problem` for the main
 * thread, which may try again. A save that was begun is finished even after `stop`. */
static void *write_saves(void *context)
{
    struct dt_writer *s = context;
    dt_trace_set_row(DT_TRACE_WRITER, 0);
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (s->state != BUSY && !s->stop)
            pthread_cond_wait(&s->changed, &s->lock);
        if (s->state != BUSY)
            break;
        struct dt_saved saved = s->saved;
        pthread_mutex_unlock(&s->lock);
        double begin_s = dt_clock_s();
        saved.status = dt_checkpoint_write(saved.path, s->target, s->snapshot);
        saved.seconds = dt_clock_s() - begin_s;
        dt_trace_span("checkpoint", NULL, NULL, begin_s, begin_s + saved.seconds);
        if (saved.status != DT_OK)
            snprintf(saved.problem, sizeof saved.problem, "%s", dt_error_text());
        pthread_mutex_lock(&s->lock);
        s->saved = saved;
        s->state = ENDED;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Timed waits use the monotonic clock. */
static dt_status init_lock(struct dt_writer *s)
{
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes) != 0)
        DT_FAIL(DT_ERR_MEMORY, "cannot create a lock for the thread that writes checkpoints");
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    s->has_lock = pthread_mutex_init(&s->lock, NULL) == 0;
    s->has_changed = pthread_cond_init(&s->changed, &attributes) == 0;
    pthread_condattr_destroy(&attributes);
    if (!s->has_lock || !s->has_changed)
        DT_FAIL(DT_ERR_MEMORY, "cannot create a lock for the thread that writes checkpoints");
    return DT_OK;
}

/* --- Interface --- */

dt_status dt_writer_create(struct dt_writer **writer, const struct dt_checkpoint_target *target,
                           struct dt_plan *plan)
{
    struct dt_writer *s = NULL;
    dt_status status = DT_OK;
    *writer = NULL;
    DT_TRY(DT_NEW(s, 1));
    s->target = target;
    DT_TRY_OUT(dt_snapshot_create(&s->snapshot, plan));
    DT_TRY_OUT(init_lock(s));
    int error = dt_thread_start(&s->thread, "dt-writer", write_saves, s);
    s->has_thread = error == 0;
    if (error != 0)
        DT_TRY_OUT(DT_ERROR(DT_ERR_MEMORY, "cannot start the thread that writes checkpoints: %s",
                            strerror(error)));
    *writer = s;
    return DT_OK;
out:
    dt_writer_destroy(s);
    return status;
}

static void warn_of_untaken(const struct dt_writer *s)
{
    if (s->state == ENDED && s->saved.status != DT_OK)
        dt_log(DT_LOG_WARNING, "%s", s->saved.problem);
}

void dt_writer_destroy(struct dt_writer *writer)
{
    if (!writer)
        return;
    if (writer->has_thread) {
        pthread_mutex_lock(&writer->lock);
        writer->stop = true;
        pthread_cond_broadcast(&writer->changed);
        pthread_mutex_unlock(&writer->lock);
        pthread_join(writer->thread, NULL);
        warn_of_untaken(writer);
    }
    if (writer->has_changed)
        pthread_cond_destroy(&writer->changed);
    if (writer->has_lock)
        pthread_mutex_destroy(&writer->lock);
    dt_snapshot_destroy(writer->snapshot);
    free(writer);
}

void dt_writer_set_plan(struct dt_writer *writer, struct dt_plan *plan)
{
    dt_snapshot_set_plan(writer->snapshot, plan);
}

uint64_t dt_writer_bytes(const struct dt_writer *writer)
{
    return dt_snapshot_bytes(writer->snapshot);
}

/* With the lock held. The thread has its own pulse, so beats during the wait hide no hang. */
static void wait_until_free(struct dt_writer *s)
{
    while (s->state == BUSY) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec++;
        pthread_cond_timedwait(&s->changed, &s->lock, &until);
        dt_pulse_beat(&dt_pulse_main);
    }
}

dt_status dt_writer_start(struct dt_writer *writer, const struct dt_checkpoint *state)
{
    pthread_mutex_lock(&writer->lock);
    wait_until_free(writer);
    warn_of_untaken(writer);
    writer->state = IDLE;
    pthread_mutex_unlock(&writer->lock);
    double begin_s = dt_trace_now();
    DT_TRY(dt_snapshot_take(writer->snapshot, state));
    dt_trace_span("snapshot", NULL, NULL, begin_s, dt_trace_now());
    pthread_mutex_lock(&writer->lock);
    writer->saved =
        (struct dt_saved){.step = state->step, .bytes = dt_snapshot_bytes(writer->snapshot)};
    writer->state = BUSY;
    pthread_cond_broadcast(&writer->changed);
    pthread_mutex_unlock(&writer->lock);
    return DT_OK;
}

bool dt_writer_is_busy(struct dt_writer *writer)
{
    pthread_mutex_lock(&writer->lock);
    bool busy = writer->state == BUSY;
    pthread_mutex_unlock(&writer->lock);
    return busy;
}

bool dt_writer_take_result(struct dt_writer *writer, struct dt_saved *saved, bool wait)
{
    pthread_mutex_lock(&writer->lock);
    if (wait)
        wait_until_free(writer);
    bool ended = writer->state == ENDED;
    if (ended) {
        *saved = writer->saved;
        writer->state = IDLE;
    }
    pthread_mutex_unlock(&writer->lock);
    return ended;
}
