/* How a job is started: its hosts, and the command line of the MPI launcher that is there. */
#ifndef DTRAIN_LAUNCH_LAUNCHER_H
#define DTRAIN_LAUNCH_LAUNCHER_H

#include <signal.h>
#include <sys/types.h>

#include "base/host.h"
#include "launch/launch.h"

/* --- hosts.c: the hosts of a job: given, of the allocation, or none, if the launcher knows them or
 * there is only this machine --- */

struct dt_launch_host {
    char name[DT_HOST_MAX];
    int slots;
    bool answers; /* when asked the last time */
    bool is_gone; /* answered once and does so no longer */
};

struct dt_launch_hosts {
    struct dt_launch_host *list; /* free() it */
    int n;
};

/* "a:8,b:8", or lines "a", "a:8" or "a slots = 8" of a file, where # begins a comment and a name
 * that comes again adds a slot; either may be NULL. Without both, the file that PBS, LSF or
 * Kubernetes names, or the nodes of the job of Slurm. DT_ERR_USAGE, or those of reading a file. */
dt_status dt_launch_hosts_find(struct dt_launch_hosts *out, const char *hosts,
                               const char *hostfile);
int dt_launch_slots(const struct dt_launch_hosts *hosts); /* that are not gone */
/* Ends what is left of this start on this machine and on all hosts, by its DTRAIN_LAUNCH, removes
 * shared memory that nobody uses any more (neither if `id` is NULL), and finds out which of them
 * answer: to srun in a job of Slurm, otherwise to ssh. The names of the others go to `silent`. */
void dt_launch_hosts_clean(struct dt_launch_hosts *hosts, const char *id, char *silent, int bytes);

/* --- process.c: command lines, and the one place that starts other programs --- */

/* Words of a command line, with NULL behind the last. */
struct dt_words {
    char **at;
    size_t n;
};
dt_status dt_words_add(struct dt_words *words, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Adds what single spaces separate. */
dt_status dt_words_split(struct dt_words *words, const char *text);
/* As a shell takes them, in `out`. */
void dt_words_quote(char *out, size_t bytes, const struct dt_words *words);
void dt_words_reset(struct dt_words *words);

enum dt_process_role {
    DT_PROCESS_JOB,     /* without the terminal's input */
    DT_PROCESS_HELPER,  /* reads and prints nothing */
    DT_PROCESS_CLEANER, /* the same, without DTRAIN_LAUNCH: it is not of the job */
};

/* Starts a program of PATH in a process group of its own, so that Ctrl-C does not reach it, with
 * all signals unblocked; it gets SIGTERM when this process ends. Its standard output goes to `out`
 * unless that is -1. DT_ERR_MEMORY; a program that cannot be run ends with 127. */
dt_status dt_process_start(pid_t *pid, const struct dt_words *words, enum dt_process_role role,
                           int out);
/* Whether it has ended, waiting until `until_s` (dt_clock_s); *code as a shell shows it. */
bool dt_process_has_ended(pid_t pid, double until_s, int *code);
/* SIGTERM, after 5 s SIGKILL for its group; returns when it has ended. */
void dt_process_end(pid_t pid);
/* Runs a helper for at most `seconds`, or until this process is told to end; then its whole group
 * is ended. Returns its exit code, and in `out` the beginning of its standard output, "" if it
 * cannot be run. */
enum { DT_PROCESS_LATE = 128 + SIGTERM };
int dt_process_ask(char *out, size_t bytes, const struct dt_words *words, double seconds);
/* Whether a signal that ends programs waits, blocked. */
bool dt_process_is_asked(void);

/* --- launcher.c --- */

struct dt_launcher;
/* Finds the launcher that DTRAIN_MPIRUN names, else mpirun, else srun in a job of Slurm.
 * DT_ERR_NO_INPUT. */
dt_status dt_launcher_find(const struct dt_launcher **out);
/* Whether it may wait in a queue before it starts the ranks. */
bool dt_launcher_queues(const struct dt_launcher *launcher);
/* The whole command line for n_ranks ranks of dtrain, and in the environment what goes with it. */
dt_status dt_launcher_command(struct dt_words *out, const struct dt_launcher *launcher,
                              const struct dt_launch_options *options,
                              const struct dt_launch_hosts *hosts, int n_ranks);

#endif
