/* A time of their own for groups of processes that play ranks ("worlds"): it stands still while any
 * thread of a world works, and then jumps to the next moment for which one waits. So neither the
 * load nor the speed of a machine changes what happens, and a minute of waiting takes no time.
 *
 * These definitions take the place of those of libc, also in the code under test. Threads that
 * block otherwise for longer must call vt_wait. A process that has ended, or is stopped, does not
 * work. */
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { VT_RANKS = 3, VT_THREADS = 8 };
#define VT_NEVER       INT64_MAX
#define VT_NS(seconds) ((int64_t)((seconds)*1e9))

struct vt_thread {
    atomic_bool is_used;
    atomic_int works;      /* a futex */
    _Atomic int64_t until; /* in ns, if it does not work */
    _Atomic(pthread_cond_t *) change;
};

struct vt_rank {
    pid_t pid;
    atomic_int n_working; /* threads */
    struct vt_thread threads[VT_THREADS];
};

struct vt_world {
    int n_ranks;
    _Atomic int64_t now;
    int64_t pause_at, pause_ns; /* the world sleeps as a whole then, as a suspended job does, and
                                   the threads wake up in the worst order: main last */
    struct vt_rank ranks[VT_RANKS];
};

static atomic_int *vt_news; /* a futex: changes when the last thread of a rank begins to wait */
static struct vt_world *vt_world;
static struct vt_rank *vt_rank; /* of this process; NULL in the one that runs the worlds */
static _Thread_local struct vt_thread *vt_self;

static void vt_futex_wait(atomic_int *word, int value, long timeout_ns)
{
    const struct timespec timeout = {.tv_nsec = timeout_ns};
    syscall(SYS_futex, word, FUTEX_WAIT, value, timeout_ns ? &timeout : NULL, NULL, 0);
}

static void vt_futex_wake(atomic_int *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void vt_end_work(void)
{
    if (atomic_fetch_sub(&vt_rank->n_working, 1) != 1)
        return;
    atomic_fetch_add(vt_news, 1);
    vt_futex_wake(vt_news);
}

static void vt_wake(struct vt_rank *rank, struct vt_thread *thread)
{
    int waits = 0;
    atomic_fetch_add(&rank->n_working, 1);
    if (atomic_compare_exchange_strong(&thread->works, &waits, 1))
        vt_futex_wake(&thread->works);
    else
        atomic_fetch_sub(&rank->n_working, 1);
}

/* Waits until that time or a broadcast; the arguments are those of pthread_cond_timedwait or NULL.
 */
static int vt_wait(pthread_cond_t *change, pthread_mutex_t *lock, int64_t until)
{
    struct vt_thread *self = vt_self;
    if (until <= atomic_load(&vt_world->now))
        return ETIMEDOUT;
    atomic_store(&self->until, until);
    atomic_store(&self->change, change);
    atomic_store(&self->works, 0);
    if (lock)
        pthread_mutex_unlock(lock);
    vt_end_work();
    while (!atomic_load(&self->works))
        vt_futex_wait(&self->works, 0, 0);
    atomic_store(&self->change, NULL);
    if (lock)
        pthread_mutex_lock(lock);
    return until <= atomic_load(&vt_world->now) ? ETIMEDOUT : 0;
}

static void vt_sleep(double seconds)
{
    vt_wait(NULL, NULL, atomic_load(&vt_world->now) + VT_NS(seconds));
}

/* --- In place of libc's --- */

int clock_gettime(clockid_t clock, struct timespec *out)
{
    if (!vt_rank || clock != CLOCK_MONOTONIC)
        return (int)syscall(SYS_clock_gettime, clock, out);
    int64_t now = atomic_load(&vt_world->now);
    *out = (struct timespec){now / 1000000000, now % 1000000000};
    return 0;
}

int nanosleep(const struct timespec *time, struct timespec *left)
{
    if (!vt_rank)
        return (int)syscall(SYS_nanosleep, time, left);
    vt_sleep((double)time->tv_sec + 1e-9 * (double)time->tv_nsec);
    return 0;
}

int pthread_cond_timedwait(pthread_cond_t *change, pthread_mutex_t *lock,
                           const struct timespec *until)
{
    /* The caller may have rounded it down to now, and would ask again for ever. */
    return vt_wait(change, lock, until->tv_sec * INT64_C(1000000000) + until->tv_nsec + 2);
}

int pthread_cond_wait(pthread_cond_t *change, pthread_mutex_t *lock)
{
    return vt_wait(change, lock, VT_NEVER);
}

/* The caller holds the lock. */
int pthread_cond_broadcast(pthread_cond_t *change)
{
    for (int i = 0; i < VT_THREADS; i++)
        if (atomic_load(&vt_rank->threads[i].change) == change)
            vt_wake(vt_rank, &vt_rank->threads[i]);
    return 0;
}

struct vt_start {
    void *(*run)(void *arg);
    void *arg;
    struct vt_thread *thread;
};

static void *vt_run_thread(void *arg)
{
    struct vt_start start = *(struct vt_start *)arg;
    free(arg);
    vt_self = start.thread;
    void *result = start.run(start.arg);
    atomic_store(&start.thread->is_used, false);
    vt_end_work();
    return result;
}

static struct vt_thread *vt_new_thread(struct vt_rank *rank)
{
    int i = 0;
    while (i < VT_THREADS && atomic_load(&rank->threads[i].is_used))
        i++;
    if (i == VT_THREADS)
        abort();
    atomic_store(&rank->threads[i].works, 1);
    atomic_store(&rank->threads[i].is_used, true);
    atomic_fetch_add(&rank->n_working, 1);
    return &rank->threads[i];
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    *(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
    if (!vt_rank)
        return create(thread, attr, run, arg);
    struct vt_start *start = malloc(sizeof *start);
    if (!start)
        return ENOMEM;
    *start = (struct vt_start){run, arg, vt_new_thread(vt_rank)};
    return create(thread, attr, vt_run_thread, start);
}

/* --- Worlds --- */

/* Memory that parent and children share, zeroed. */
static void *vt_share(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Like fork; the child belongs to the world from then on. */
static pid_t vt_fork(struct vt_world *world, int rank)
{
    struct vt_thread *main = vt_new_thread(&world->ranks[rank]);
    pid_t pid = fork();
    if (pid != 0) {
        world->ranks[rank].pid = pid;
    } else {
        vt_world = world;
        vt_rank = &world->ranks[rank];
        vt_self = main;
    }
    return pid;
}

/* Whether the process has ended or is stopped, which only a thread that works can do. */
static bool vt_is_away(const struct vt_rank *rank)
{
    siginfo_t info = {0};
    return atomic_load(&rank->n_working) > 0 &&
           waitid(P_PID, (id_t)rank->pid, &info, WEXITED | WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == rank->pid;
}

enum vt_step { VT_WORKS, VT_MOVED, VT_OVER };

/* Moves the time of a world if nobody works there. */
static enum vt_step vt_step(struct vt_world *world)
{
    int64_t due = VT_NEVER;
    bool is_away[VT_RANKS];
    for (int r = 0; r < world->n_ranks; r++) {
        struct vt_rank *rank = &world->ranks[r];
        is_away[r] = vt_is_away(rank);
        if (!is_away[r] && atomic_load(&rank->n_working) > 0)
            return VT_WORKS;
        for (int i = 0; i < VT_THREADS && !is_away[r]; i++)
            if (atomic_load(&rank->threads[i].is_used) &&
                atomic_load(&rank->threads[i].until) < due)
                due = atomic_load(&rank->threads[i].until);
    }
    if (due == VT_NEVER)
        return VT_OVER;
    if (world->pause_at && due > world->pause_at) {
        due += world->pause_ns;
        world->pause_at = 0;
        for (int r = 0; r < world->n_ranks; r++)
            for (int i = 0; i < VT_THREADS; i++)
                if (atomic_load(&world->ranks[r].threads[i].until) < due)
                    atomic_store(&world->ranks[r].threads[i].until,
                                 due + VT_NS(0.001 * (VT_THREADS - i)));
    }
    due += 1000; /* rounding must not make it earlier */
    atomic_store(&world->now, due);
    for (int r = 0; r < world->n_ranks; r++)
        for (int i = 0; i < VT_THREADS && !is_away[r]; i++)
            if (atomic_load(&world->ranks[r].threads[i].is_used) &&
                atomic_load(&world->ranks[r].threads[i].until) <= due)
                vt_wake(&world->ranks[r], &world->ranks[r].threads[i]);
    return VT_MOVED;
}

/* Runs all worlds until nobody waits for a time any more. -1 if one works for ever. */
static int vt_run(struct vt_world *worlds, int n_worlds)
{
    enum { STUCK = 6000 }; /* looks without any move, up to 10 ms each */
    for (int n_over = 0, n_idle = 0; n_over < n_worlds; n_idle++) {
        int news = atomic_load(vt_news);
        n_over = 0;
        for (int i = 0; i < n_worlds; i++) {
            enum vt_step step = vt_step(&worlds[i]);
            n_idle = step == VT_MOVED ? 0 : n_idle;
            n_over += step == VT_OVER;
        }
        if (n_idle == STUCK)
            return -1;
        if (n_idle > 0 && n_over < n_worlds) /* the end of a process is no news */
            vt_futex_wait(vt_news, news, 10000000);
    }
    return 0;
}
