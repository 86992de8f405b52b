/* Reads metrics.jsonl line by line. */
#include "page/page_run.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alive.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/names.h"
#include "base/sort.h"
#include "base/text.h"

enum {
    MAX_NOTES = 200,
    MAX_CURVES = 100,
    MAX_EPOCHS = 10000,
    MAX_LINE = 1 << 20,
    MAX_RATES = 1 << 16
};

/* The lines read so far. */
struct events {
    struct dt_run *run;
    int line;
    size_t curve_capacity, note_capacity, start_capacity, time_capacity;
    int64_t timed_step;      /* of the step event before */
    double rates[MAX_RATES]; /* images/s of every rate_stride-th step event */
    size_t n_rates;
    int64_t n_warnings; /* events since the last run_start */
    int64_t n_steps, rate_stride;
    int64_t n_damaged;         /* lines that are skipped */
    char damage[512];          /* of the first one */
    struct dt_json_doc *event; /* of this line, NULL once the run has it */
};

/* --- Curves --- */

static dt_status add_point(struct events *e, const char *event, const char *key, double value)
{
    struct dt_run *run = e->run;
    char name[DT_CURVE_NAME];
    snprintf(name, sizeof name, "%s.%s", event, key);
    size_t i = 0;
    while (i < run->n_curves && strcmp(run->curves[i].name, name) != 0)
        i++;
    if (i == MAX_CURVES)
        return DT_OK;
    if (i == run->n_curves) {
        DT_TRY(DT_GROW(run->curves, e->curve_capacity, i, "curves"));
        memcpy(run->curves[run->n_curves++].name, name, sizeof name);
    }
    const bool is_aside = dt_json_get(dt_json_root(e->event), "reported_only");
    dt_curve_add(&run->curves[i], &(struct dt_point){run->step, run->elapsed_s, value, is_aside});
    return DT_OK;
}

/* Every number but those that only say where it belongs. */
static dt_status add_numbers(struct events *e)
{
    static const char *const places[] = {"step",      "total_steps", "epoch",       "elapsed_s",
                                         "images",    "eta_s",       "data_wait_s", "comm_s",
                                         "compute_s", "sync_s",      "other_s"};
    const char *event = dt_event_text(e->event, "event");
    for (const struct dt_json *f = dt_json_root(e->event)->child; f; f = f->next) {
        bool is_value = f->type == DT_JSON_NUMBER;
        for (size_t i = 0; i < DT_COUNT(places); i++)
            is_value &= strcmp(f->key, places[i]) != 0;
        if (is_value)
            DT_TRY(add_point(e, event, f->key, f->number));
    }
    return DT_OK;
}

static dt_status on_input(struct events *e)
{
    static const char *const keys[] = {"images_read_per_s", "bytes_read_per_s",
                                       "storage_bytes_per_s"};
    for (size_t i = 0; i < DT_COUNT(keys); i++) {
        const double value = dt_event_number(e->event, keys[i]);
        if (isfinite(value))
            DT_TRY(add_point(e, "input", keys[i], value));
    }
    return DT_OK;
}

/* Seconds per step as per cent of the step. */
static dt_status add_share(struct events *e, const char *key, const char *name)
{
    double share = 100 * dt_event_number(e->event, key) / dt_event_number(e->event, "step_s");
    return isfinite(share) ? add_point(e, "step", name, share) : DT_OK;
}

/* --- Events --- */

static dt_status add_note(struct events *e, bool is_restart, const char *text)
{
    struct dt_run *run = e->run;
    *(is_restart ? &run->n_restarts : &run->n_warnings) += 1;
    if (run->n_notes == MAX_NOTES)
        return DT_OK;
    DT_TRY(DT_GROW(run->notes, e->note_capacity, run->n_notes, "notes"));
    struct dt_note *note = &run->notes[run->n_notes];
    *note = (struct dt_note){.is_restart = is_restart, run->step, run->elapsed_s};
    dt_event_time(note->time, e->event);
    DT_TRY(dt_mem_copy_text(&note->text, text));
    run->n_notes++;
    return DT_OK;
}

/* The run keeps the event. */
static void keep(struct dt_json_doc **place, struct events *e)
{
    dt_json_destroy(*place);
    *place = e->event;
    e->event = NULL;
}

static bool get_step(int64_t *step, const struct events *e, const char *key)
{
    const int64_t max = INT64_C(1) << 53;
    return dt_json_integer(dt_json_get(dt_json_root(e->event), key), 0, max, step);
}

static void add_ranks(struct dt_run *run, double ranks)
{
    const size_t used = strlen(run->ranks);
    char text[32];
    const int n = snprintf(text, sizeof text, "%s%.0f", used > 0 ? ", " : "", ranks);
    if (used + (size_t)n < sizeof run->ranks)
        memcpy(run->ranks + used, text, (size_t)n + 1);
    else
        snprintf(run->ranks, sizeof run->ranks, "..., %.0f", ranks);
}

/* The events after the checkpoint that this start resumes from are going to be repeated. */
static dt_status on_run_start(struct events *e)
{
    struct dt_run *run = e->run;
    char text[128];
    int64_t step = 0;
    get_step(&step, e, "start_step");
    if (run->start) {
        snprintf(text, sizeof text,
                 "restart from step %" PRId64 ", %" PRId64 " steps repeated: %s%s", step,
                 run->step > step ? run->step - step : 0,
                 run->end ? "the run had ended with " : "the run had been killed",
                 dt_event_text(run->end, "status"));
        run->step = step;
        for (size_t i = 0; i < run->n_curves; i++)
            dt_curve_cut(&run->curves[i], step);
        DT_TRY(add_note(e, true, text));
    }
    run->step = e->timed_step = step;
    e->n_warnings = 0;
    dt_json_destroy(run->end);
    run->end = NULL;
    if (!run->start || dt_event_number(run->start, "ranks") != dt_event_number(e->event, "ranks"))
        add_ranks(run, dt_event_number(e->event, "ranks"));
    keep(&run->start, e);
    return DT_OK;
}

/* The times of a step event are means over the steps since the one before. */
static dt_status add_times(struct events *e)
{
    static const char *const keys[DT_N_TIMES] = {"compute_s", "data_wait_s", "comm_s", "sync_s",
                                                 "other_s"};
    struct dt_run *run = e->run;
    const double epoch = dt_event_number(e->event, "epoch");
    const double n_steps = (double)(run->step - e->timed_step);
    e->timed_step = run->step;
    if (!(epoch >= 1 && epoch <= MAX_EPOCHS))
        return DT_OK;
    while (run->n_times < (size_t)epoch) {
        DT_TRY(DT_GROW(run->times, e->time_capacity, run->n_times, "times"));
        run->times[run->n_times++] = (struct dt_times){0};
    }
    for (int p = 0; p < DT_N_TIMES; p++) {
        const double seconds = dt_event_number(e->event, keys[p]);
        if (isfinite(seconds) && n_steps > 0)
            run->times[(size_t)epoch - 1].seconds[p] += n_steps * seconds;
    }
    return DT_OK;
}

static dt_status on_step(struct events *e)
{
    const double rate = dt_event_number(e->event, "images_per_s");
    get_step(&e->run->total_steps, e, "total_steps");
    if (isfinite(rate) && e->n_steps++ % e->rate_stride == 0) {
        if (e->n_rates == MAX_RATES) { /* every second one is dropped, now and from then on */
            for (e->n_rates = 0; e->n_rates < MAX_RATES / 2; e->n_rates++)
                e->rates[e->n_rates] = e->rates[2 * e->n_rates];
            e->rate_stride *= 2;
        }
        e->rates[e->n_rates++] = rate;
    }
    DT_TRY(add_times(e));
    DT_TRY(add_share(e, "data_wait_s", "data wait"));
    DT_TRY(add_share(e, "comm_s", "exposed communication"));
    DT_TRY(add_share(e, "compute_s", "compute"));
    DT_TRY(add_share(e, "sync_s", "sync"));
    return add_numbers(e);
}

static dt_status on_warning(struct events *e)
{
    e->n_warnings++;
    return add_note(e, false, dt_event_text(e->event, "text"));
}

/* The end counts all warnings of the start, of which only some are events. */
static dt_status on_run_end(struct events *e)
{
    const double n = dt_event_number(e->event, "warnings");
    if (n > (double)e->n_warnings)
        e->run->n_warnings += (int64_t)n - e->n_warnings;
    keep(&e->run->end, e);
    return DT_OK;
}

static const struct {
    const char *event;
    bool has_step;
    dt_status (*handle)(struct events *e);
} handlers[] = {
    {"run_start", false, on_run_start}, {"step", true, on_step},
    {"eval", true, add_numbers},        {"telemetry", false, add_numbers},
    {"warning", false, on_warning},     {"run_end", false, on_run_end},
    {"input", true, on_input},
};

/* Moves the clock of the run to now; between two starts the clock stands still. */
static dt_status advance(struct events *e, double now_s, bool is_start)
{
    struct dt_run *run = e->run;
    if (is_start || run->n_starts == 0) {
        DT_TRY(DT_GROW(run->starts, e->start_capacity, run->n_starts, "starts"));
        run->starts[run->n_starts++] = (struct dt_start){run->elapsed_s, now_s};
    }
    const struct dt_start *start = &run->starts[run->n_starts - 1];
    run->elapsed_s = fmax(run->elapsed_s, start->elapsed_s + now_s - start->unix_s);
    return DT_OK;
}

static dt_status on_event(struct events *e)
{
    const char *event = dt_event_text(e->event, "event");
    struct tm utc = {0};
    const char *rest = strptime(dt_event_text(e->event, "ts"), "%Y-%m-%dT%H:%M:%S", &utc);
    size_t h = 0;
    while (h < DT_COUNT(handlers) && strcmp(handlers[h].event, event) != 0)
        h++;
    if (rest)
        DT_TRY(
            advance(e, (double)timegm(&utc) + strtod(rest, NULL), strcmp(event, "run_start") == 0));
    if (!event[0])
        DT_FAIL(DT_ERR_DATA, "%s:%d: not an event of a run", e->run->path, e->line);
    if (h == DT_COUNT(handlers))
        return DT_OK;
    if (!get_step(&e->run->step, e, "step") && handlers[h].has_step)
        DT_FAIL(DT_ERR_DATA, "%s:%d: the event \"%s\" has no step", e->run->path, e->line, event);
    return handlers[h].handle(e);
}

/* Adds the next line. DT_ERR_DATA names file and line. */
static dt_status add_line(struct events *e, const char *text, size_t bytes)
{
    char what[256];
    e->line++;
    if (dt_json_parse(&e->event, text, bytes, "", NULL) != DT_OK) { /* ":1:column: what" */
        snprintf(what, sizeof what, "%s", dt_error_text() + strlen(":1:"));
        DT_FAIL(DT_ERR_DATA, "%s:%d:%s", e->run->path, e->line, what);
    }
    dt_status status = on_event(e);
    dt_json_destroy(e->event);
    e->event = NULL;
    return status;
}

/* --- Files --- */

/* A line that a disk or an editor has damaged does not cost the rest of the run. */
static dt_status skip_damaged(struct events *e, dt_status status)
{
    if (status != DT_ERR_DATA)
        return status;
    if (e->n_damaged++ == 0)
        snprintf(e->damage, sizeof e->damage, "%s", dt_error_text());
    dt_error_clear();
    return DT_OK;
}

/* Half a line is at the end of a file that is being written, or whose writer was killed. */
static dt_status read_lines(struct events *events, FILE *file)
{
    const char *path = events->run->path;
    char *line = NULL;
    dt_status status = DT_OK;
    DT_TRY(DT_NEW(line, MAX_LINE));
    while (fgets(line, MAX_LINE, file)) {
        size_t bytes = strlen(line);
        if (bytes > 0 && line[bytes - 1] == '\n')
            DT_TRY_OUT(skip_damaged(events, add_line(events, line, bytes - 1)));
        else if (!feof(file))
            DT_TRY_OUT(
                skip_damaged(events, DT_ERROR(DT_ERR_DATA, "%s:%d: not a line of JSON below 1 MiB",
                                              path, ++events->line)));
    }
    if (events->n_damaged > 0)
        dt_log(DT_LOG_WARNING, "%" PRId64 " damaged line%s skipped, the first: %s",
               events->n_damaged, DT_S(events->n_damaged), events->damage);
    if (ferror(file))
        DT_TRY_OUT(DT_ERROR(DT_ERR_IO, "cannot read %s: %s", path, strerror(errno)));
    if (!events->run->start)
        DT_TRY_OUT(DT_ERROR(DT_ERR_DATA, "%s: no run has started in this file", path));
out:
    free(line);
    return status;
}

bool dt_run_exists(const char *folder)
{
    char path[DT_PATH_MAX];
    return dt_file_path(path, "%s/metrics.jsonl", folder) == DT_OK && dt_file_exists(path);
}

bool dt_runs_found(const char *folder)
{
    struct dt_names names = {0};
    char path[DT_PATH_MAX];
    bool is_found = false;
    dt_error_keep();
    if (dt_names_list(&names, folder) == DT_OK)
        for (size_t i = 0; i < names.n && !is_found; i++)
            is_found = dt_file_path(path, "%s/%s", folder, dt_names_get(&names, i)) == DT_OK &&
                       dt_run_exists(path);
    dt_names_reset(&names);
    dt_error_restore();
    return is_found;
}

/* Folder, file and name from the path of folder or file. */
static dt_status set_paths(struct dt_run *run, const char *path)
{
    DT_TRY(dt_file_path(run->path, dt_file_is_folder(path) ? "%s/metrics.jsonl" : "%s", path));
    char *real = realpath(run->path, NULL);
    const int error = errno;
    if (!real && dt_runs_found(path))
        DT_FAIL(DT_ERR_NO_INPUT,
                "%s is a folder of runs; name one or several, %s/*, or list them "
                "with dtrain runs %s",
                path, path, path);
    if (!real)
        DT_FAIL(dt_file_input_status(error),
                "cannot read %s: %s; name a run folder or its metrics.jsonl", run->path,
                strerror(error));
    *strrchr(real, '/') = '\0';
    dt_status status = dt_file_path(run->folder, "%s", real);
    snprintf(run->name, sizeof run->name, "%s", dt_file_base(run->folder));
    free(real);
    return status;
}

/* Reads what dtrain launch has written: "137 (restart), 0 (ended)". */
static void load_launches(struct dt_run *run)
{
    enum { FILE_MAX = 1 << 20 };
    struct dt_text text = dt_text_in(run->launches, sizeof run->launches);
    char path[DT_PATH_MAX], *lines = NULL;
    size_t bytes;
    if (dt_file_path(path, "%s/restarts.jsonl", run->folder) != DT_OK ||
        dt_file_load_own(&lines, &bytes, path, FILE_MAX) != DT_OK)
        lines = NULL; /* there is none */
    for (char *rest = lines, *line; rest && (line = strsep(&rest, "\n"));) {
        struct dt_json_doc *doc = NULL;
        const bool is_one = dt_json_parse(&doc, line, strlen(line), path, NULL) == DT_OK;
        for (int i = 0; is_one && i < 2; i++) { /* the last ones, if not all fit */
            if (dt_text_add_whole(&text, "%s%g (%s)", text.used ? ", " : "",
                                  dt_event_number(doc, "exit_code"), dt_event_text(doc, "then")))
                break;
            text = dt_text_in(run->launches, sizeof run->launches);
            dt_text_add(&text, "...");
        }
        dt_json_destroy(doc);
    }
    free(lines);
    dt_error_clear();
}

/* Reads what the watchdog of a rank has found, if one has; most of them say that another rank did.
 */
static void find_hang(struct dt_run *run)
{
    const double n_ranks = fmin(dt_event_number(run->start, "ranks"), 65536);
    static const char other[] = "another rank ";
    char path[DT_PATH_MAX], *text;
    size_t bytes;
    for (int r = 0; r < n_ranks && (!run->why[0] || strncmp(run->why, other, strlen(other)) == 0);
         r++)
        if (dt_file_path(path, "%s/hang-%d.txt", run->folder, r) == DT_OK &&
            dt_file_load_own(&text, &bytes, path, 16 << 20) == DT_OK) {
            snprintf(run->why, sizeof run->why, "%.*s", (int)strcspn(text, "\n"), text);
            free(text);
        }
    dt_error_clear();
}

/* The one place that says how a run is: by its last event, a rank that lives, or what is left. */
static void find_state(struct dt_run *run)
{
    const double code = dt_event_number(run->end, "exit_code");
    const bool is_alive = !run->end && dt_run_is_alive(run->folder);
    snprintf(run->why, sizeof run->why, "%s", dt_event_text(run->end, "reason"));
    if (!run->end && !is_alive)
        find_hang(run);
    run->state = is_alive             ? "running"
                 : code == DT_OK      ? "finished"
                 : code == DT_STOPPED ? "stopped"
                 : run->end           ? "failed"
                 : run->why[0]        ? "hung"
                                      : "killed";
    if (!run->end && !is_alive && !run->why[0])
        snprintf(run->why, sizeof run->why,
                 "ended without a final event: SIGKILL, out of memory, a crash or a lost "
                 "machine%s%s",
                 run->launches[0] ? "; dtrain launch: " : "", run->launches);
}

dt_status dt_run_load(struct dt_run *run, const char *path)
{
    struct events *events = NULL;
    int fd;
    uint64_t bytes;
    *run = (struct dt_run){.median_images_per_s = NAN};
    DT_TRY(set_paths(run, path));
    load_launches(run);
    const bool is_named = strcmp(run->path, path) == 0;
    DT_TRY((is_named ? dt_file_open : dt_file_open_own)(&fd, &bytes, run->path));
    FILE *file = fdopen(fd, "r");
    dt_status status = DT_NEW(events, 1);
    if (!file)
        status = DT_ERROR(DT_ERR_MEMORY, "out of memory for reading %s", run->path);
    if (status == DT_OK) {
        events->run = run;
        events->rate_stride = 1;
        status = read_lines(events, file);
        dt_sort_f64(events->rates, events->n_rates);
        if (events->n_rates > 0)
            run->median_images_per_s = dt_percentile_f64(events->rates, events->n_rates, 0.5);
    }
    if (status == DT_OK)
        find_state(run);
    free(events);
    if (file)
        fclose(file);
    else
        close(fd);
    return status;
}

dt_status dt_runs_load(struct dt_run **runs, char *const *paths, size_t *n)
{
    const size_t n_paths = *n;
    DT_TRY(DT_NEW(*runs, n_paths));
    *n = 0;
    for (size_t i = 0; i < n_paths; i++) {
        dt_status status = dt_run_load(&(*runs)[*n], paths[i]);
        const bool is_last = i + 1 == n_paths && *n == 0;
        if (status != DT_OK)
            dt_run_reset(&(*runs)[*n]);
        if (status != DT_OK && (status != DT_ERR_NO_INPUT || !dt_file_exists(paths[i]) || is_last))
            return dt_error_pass(status, __func__, __FILE__, __LINE__);
        if (status != DT_OK)
            dt_log(DT_LOG_WARNING, "skipping %s, in which no run has begun", paths[i]);
        *n += status == DT_OK;
    }
    dt_error_clear();
    for (size_t i = 0; i < *n; i++)
        for (size_t k = 0; k < *n; k++)
            if (k != i && strcmp(dt_file_base((*runs)[i].name), dt_file_base((*runs)[k].name)) == 0)
                memcpy((*runs)[i].name, (*runs)[i].folder, DT_PATH_MAX);
    return DT_OK;
}
