/* Plain text: the diagnosis, all beats, the last moves, the threads of this process. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/build.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/pulse.h"
#include "watch/diagnosis.h"

static void print_thread(FILE *out, const char *name, const struct dt_heartbeat_thread *thread)
{
    fprintf(out, " | %s: %s, step %" PRId64 ", %" PRIu64 " moves, idle %.1f s of %g", name,
            dt_section_name((enum dt_section)thread->section), thread->step, thread->n_moves,
            thread->idle_s, thread->limit_s);
    if (thread->waits_for[0])
        fprintf(out, ", waits in %s", thread->waits_for);
}

static void print_ranks(FILE *out, const struct dt_view *ranks, int n_ranks)
{
    fprintf(out, "\nranks, as seen by this one\n");
    for (int r = 0; r < n_ranks; r++) {
        const struct dt_view *view = &ranks[r];
        fprintf(out, "  rank %d: ", r);
        if (!view->is_known) {
            fprintf(out, "no beat for %.1f s\n", view->age_s);
            continue;
        }
        fprintf(out, "%s pid %d, last beat %.1f s ago%s", view->beat.host, (int)view->beat.pid,
                view->age_s, view->beat.flags & DT_HEARTBEAT_HAS_LEFT ? ", has left" : "");
        print_thread(out, "main", &view->beat.main);
        print_thread(out, "writer", &view->beat.writer);
        fputc('\n', out);
    }
}

static void print_history(FILE *out, const char *name, const struct dt_pulse *pulse)
{
    struct dt_pulse_event events[DT_PULSE_EVENTS];
    int n = dt_pulse_history(pulse, events);
    double now_s = dt_clock_s();
    fprintf(out, "\nlast %d moves of the %s thread, newest last\n", n, name);
    for (int i = 0; i < n; i++)
        fprintf(out, "  %10.3f s  step %-8" PRId64 " %-8s%s%s\n", events[i].at_s - now_s,
                events[i].step, dt_section_name(events[i].section),
                events[i].waits_for ? " waits in " : "",
                events[i].waits_for ? events[i].waits_for : "");
}

/* One line of /proc/self/task/<thread>/<name>, "-" if it cannot be read. */
static const char *read_task(char *line, int bytes, const char *thread, const char *name)
{
    char path[DT_PATH_MAX];
    snprintf(path, sizeof path, "/proc/self/task/%.32s/%s", thread, name);
    FILE *file = fopen(path, "re");
    if (!file || !fgets(line, bytes, file))
        snprintf(line, (size_t)bytes, "-");
    if (file)
        fclose(file);
    line[strcspn(line, "\n")] = '\0';
    return line;
}

static void print_threads(FILE *out)
{
    char name[64], stat[512], where[128];
    DIR *folder = opendir("/proc/self/task");
    fprintf(out, "\nthreads of this process: id, name, state, kernel function\n");
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        if (entry->d_name[0] == '.')
            continue;
        read_task(stat, sizeof stat, entry->d_name, "stat");
        const char *bracket = strrchr(stat, ')'); /* ends the name; the state follows */
        fprintf(out, "  %-8s %-16s %c  %s\n", entry->d_name,
                read_task(name, sizeof name, entry->d_name, "comm"),
                bracket && bracket[1] ? bracket[2] : '-',
                read_task(where, sizeof where, entry->d_name, "wchan"));
    }
    if (folder)
        closedir(folder);
}

static dt_status find_path(char *path, const char *dir, int rank)
{
    return dt_file_path(path, "%s/hang-%d.txt", dir, rank);
}

void dt_hang_report_remove(const char *dir, int rank)
{
    char path[DT_PATH_MAX];
    if (find_path(path, dir, rank) == DT_OK)
        (void)unlink(path);
}

void dt_hang_report_write(const struct dt_hang_report *report)
{
    char path[DT_PATH_MAX], date[32];
    time_t now = time(NULL);
    struct tm utc;
    if (find_path(path, report->dir, report->rank) != DT_OK)
        return;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
    if (!out) {
        if (fd >= 0)
            close(fd);
        return;
    }
    const char *text = report->diagnosis->text;
    fprintf(out, "%s\n", text[0] ? text : "another rank has ended the job");
    fprintf(out, "rank %d of %d, pid %d, build %s\n", report->rank, report->n_ranks, (int)getpid(),
            dt_build_id());
    if (gmtime_r(&now, &utc) && strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", &utc) > 0)
        fprintf(out, "at %s UTC\n", date);
    fprintf(out, "limits in s (0 = none): init %g, data, compute, reduce and eval %g, save %g\n",
            report->init_s, report->step_s, report->save_s);
    print_ranks(out, report->ranks, report->n_ranks);
    print_history(out, "main", &dt_pulse_main);
    print_history(out, "writer", &dt_pulse_writer);
    print_threads(out);
    fclose(out);
}
