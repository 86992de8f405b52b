/* dtrain.prom in the run folder: the latest values in the text format of Prometheus, for the
 * textfile collector of node_exporter. The file is replaced by a rename, at most once per second
 * while the run lasts. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include "events/events_internal.h"

enum { LABELS_BYTES = 320, FILE_BYTES = 65536, MAX_OTHERS = 64, NAME_BYTES = 64 };

/* Each row takes from events the value of a field times a factor, the sum of all values (counters),
 * or without a field the number of events. */
#define EVAL(key, help, traits) \
    {"eval", key, "eval_" key, help, (DT_IN_PERCENT & (traits)) ? 0.01 : 1, false},
#define METRIC(NAME, name, traits, ...) EVAL(#name, "Latest evaluation", traits)
#define RAW(NAME, name, traits, ...) \
    EVAL(#name "_raw", "Latest evaluation, of weights not averaged", traits)
static const struct {
    const char *event, *field, *name, *help;
    double factor;
    bool adds;
} rows[] = {
    {"run_start", "ranks", "ranks", "Processes of the run", 1, false},
    {"step", "step", "steps_total", "Updates of the weights", 1, false},
    {"step", "epoch", "epoch", "Epoch of the last step, from 1", 1, false},
    {"step", "loss", "train_loss", "Training loss since the previous report", 1, false},
    {"step", "class_loss", "train_class_loss", "Its part for the classes, of a detector", 1, false},
    {"step", "box_loss", "train_box_loss", "Its part for the boxes, of a detector", 1, false},
    {"step", "top1", "train_top1_ratio", "Training accuracy since the previous report", 0.01,
     false},
    {"step", "top5", "train_top5_ratio", "Training accuracy among the first five", 0.01, false},
    {"step", "lr", "learning_rate", "Learning rate of the last step", 1, false},
    {"step", "loss_scale", "loss_scale", "Factor on the loss in fp16", 1, false},
    {"step", "skipped_steps", "skipped_steps_total", "Steps without an update", 1, true},
    {"step", "images_per_s", "images_per_second", "Training speed of all ranks", 1, false},
    {"step", "data_wait_s", "data_wait_seconds", "Wait for data in a step", 1, false},
    {"step", "comm_s", "exposed_communication_seconds", "Wait for sums of gradients in a step", 1,
     false},
    {"step", "step_s", "step_seconds", "Time of a step", 1, false},
    {"step", "compute_s", "compute_seconds", "Forward, backward and update in a step", 1, false},
    {"step", "sync_s", "sync_seconds", "Agreements of the ranks in a step", 1, false},
    {"step", "other_s", "other_seconds", "The rest of a step", 1, false},
    {"step", "eta_s", "remaining_seconds", "Expected time to the end of the run", 1, false},
    DT_METRIC_LIST(METRIC) DT_METRIC_LIST(RAW){"checkpoint", "step", "checkpoint_step",
                                               "Step of the newest checkpoint", 1, false},
    {"checkpoint", NULL, "checkpoints_total", "Checkpoints written by this start of the run", 1,
     true},
    {"warning", NULL, "warnings_total", "Warnings of this start of the run", 1, true},
    {"run_end", "exit_code", "exit_code", "How the run ended, absent until then", 1, false},
};

struct prometheus {
    const char *dir;
    double written_s;
    char run[LABELS_BYTES];        /* its label, escaped */
    double values[DT_COUNT(rows)]; /* NaN = none */
    struct {
        char name[NAME_BYTES];
        double value;
    } others[MAX_OTHERS]; /* numbers of telemetry */
    int n_others;
};

static dt_status open_prometheus(void *state, const struct dt_events_options *options)
{
    struct prometheus *p = state;
    struct dt_text run = dt_text_in(p->run, sizeof p->run);
    p->dir = options->dir;
    p->written_s = -1;
    for (const char *c = options->dir; *c; c++)
        dt_text_add_whole(&run, *c == '\n' ? "\\n" : *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
    for (size_t i = 0; i < DT_COUNT(rows); i++)
        p->values[i] = NAN;
    return DT_OK;
}

static void take(struct prometheus *p, const struct dt_event *event)
{
    for (size_t i = 0; i < DT_COUNT(rows); i++) {
        double value = rows[i].field ? dt_field_number(event, rows[i].field) : 1;
        if (strcmp(rows[i].event, event->name) != 0 || (rows[i].adds && isnan(value)))
            continue;
        bool adds = rows[i].adds && !isnan(p->values[i]);
        p->values[i] = rows[i].factor * value + (adds ? p->values[i] : 0);
    }
    if (strcmp(event->name, "telemetry") != 0)
        return;
    p->n_others = 0;
    for (int i = 0; i < event->n_fields && p->n_others < MAX_OTHERS; i++) {
        const double value = dt_field_measured(&event->fields[i]);
        if (isnan(value))
            continue;
        snprintf(p->others[p->n_others].name, NAME_BYTES, "telemetry_%s", event->fields[i].key);
        p->others[p->n_others++].value = value;
    }
}

static void put(struct dt_text *text, const struct prometheus *p, const char *name,
                const char *help, double value)
{
    const size_t n = strlen(name);
    const bool counts = n > 6 && strcmp(name + n - 6, "_total") == 0;
    if (!isnan(value))
        dt_text_add_whole(text,
                          "# HELP dtrain_%s %s\n# TYPE dtrain_%s "
                          "%s\ndtrain_%s{run=\"%s\",ranks=\"%.0f\"} %.10g\n",
                          name, help, name, counts ? "counter" : "gauge", name, p->run,
                          p->values[0], value);
}

static dt_status write_file(struct prometheus *p)
{
    char all[FILE_BYTES], path[DT_PATH_MAX], temporary[DT_PATH_MAX];
    struct dt_text text = dt_text_in(all, sizeof all);
    int fd = -1;
    for (size_t i = 0; i < DT_COUNT(rows); i++)
        put(&text, p, rows[i].name, rows[i].help, p->values[i]);
    for (int i = 0; i < p->n_others; i++)
        put(&text, p, p->others[i].name, "Latest measurement", p->others[i].value);
    put(&text, p, "last_report_timestamp_seconds", "When this file was written", dt_clock_unix_s());
    DT_TRY(dt_file_path(path, "%s/dtrain.prom", p->dir));
    DT_TRY(dt_file_path(temporary, "%s/.dtrain.prom", p->dir));
    DT_TRY(dt_file_remove(temporary)); /* of a run that was killed */
    DT_TRY(dt_file_create(&fd, temporary));
    dt_status status = dt_file_write(fd, text.at, text.used, temporary);
    close(fd);
    if (status == DT_OK)
        status = dt_file_rename(temporary, path);
    return status;
}

static dt_status event_prometheus(void *state, const struct dt_event *event)
{
    struct prometheus *p = state;
    take(p, event);
    bool is_due = strcmp(event->name, "step") != 0 || !(dt_clock_s() < p->written_s + 1);
    if (!is_due)
        return DT_OK;
    const dt_status status = write_file(p);
    p->written_s = status == DT_OK ? dt_clock_s() : -1;
    return status;
}

const struct dt_sink dt_sink_prometheus = {
    .title = "dtrain.prom",
    .in_folder = true,
    .state_bytes = sizeof(struct prometheus),
    .open = open_prometheus,
    .event = event_prometheus,
};
