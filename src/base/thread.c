#include "base/thread.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/host.h"
#include "base/mem.h"

/* A fault whose signal is blocked kills the process without a report, so those signals stay
 * unblocked; and with SIGQUIT a thread is asked for its stack. */
int dt_thread_start(pthread_t *thread, const char *name, void *(*run)(void *context), void *context)
{
    static const int own_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGQUIT};
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < DT_COUNT(own_signals); i++)
        sigdelset(&blocked, own_signals[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int error = pthread_create(thread, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0)
        pthread_setname_np(*thread, name);
    return error;
}

/* --- The loop: each thread takes the next index from a counter --- */

struct run {
    dt_work work;
    void *context;
    uint32_t n;
    _Atomic uint64_t next;
    pthread_mutex_t lock; /* guards the members below */
    dt_status status;
    uint32_t failed; /* index */
    char *text;      /* NULL if copying it ran out of memory */
};

struct worker {
    struct run *run;
    int number;
    pthread_t thread;
};

int dt_parallel_threads(int asked, uint32_t n)
{
    if (asked == 0)
        asked = dt_cpus_allowed();
    if ((uint32_t)asked > n)
        asked = (int)n;
    return asked > 1 ? asked : 1;
}

static void keep_failure(struct run *run, uint32_t index, dt_status status)
{
    pthread_mutex_lock(&run->lock);
    if (run->status == DT_OK || index < run->failed) {
        free(run->text);
        run->text = strdup(dt_error_text());
        run->status = status;
        run->failed = index;
    }
    pthread_mutex_unlock(&run->lock);
    atomic_store(&run->next, run->n);
}

static void *work_on(void *context)
{
    struct worker *worker = context;
    struct run *run = worker->run;
    for (;;) {
        const uint64_t index = atomic_fetch_add(&run->next, 1);
        if (index >= run->n)
            return NULL;
        const dt_status status = run->work(run->context, (uint32_t)index, worker->number);
        if (status != DT_OK)
            keep_failure(run, (uint32_t)index, status);
    }
}

dt_status dt_parallel_run(uint32_t n, int n_threads, dt_work work, void *context)
{
    struct run run = {.work = work, .context = context, .n = n};
    struct worker *workers;
    int n_started = 1; /* the caller */
    DT_TRY(DT_NEW(workers, (size_t)n_threads));
    pthread_mutex_init(&run.lock, NULL); /* cannot fail without attributes */
    for (int i = 0; i < n_threads; i++)
        workers[i] = (struct worker){.run = &run, .number = i};
    /* If a thread cannot be started, fewer threads do the same work. */
    while (n_started < n_threads &&
           dt_thread_start(&workers[n_started].thread, "tool", work_on, &workers[n_started]) == 0)
        n_started++;
    work_on(&workers[0]);
    for (int i = 1; i < n_started; i++)
        pthread_join(workers[i].thread, NULL);
    pthread_mutex_destroy(&run.lock);
    free(workers);
    if (run.status != DT_OK)
        DT_ERROR(run.status, "%s", run.text ? run.text : "out of memory");
    free(run.text);
    return run.status;
}
