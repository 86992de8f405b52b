/* Human-readable output on stderr. On a terminal, steps rewrite one line; in a log, each is a plain
 * line, like every other event. Parts whose field is absent or not a number are omitted. run_start
 * is not printed, because the trainer prints a summary of its own. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "events/events_internal.h"

enum { LINE_BYTES = 512 };
static const double redraw_s = 0.1; /* minimum between two progress lines */
static const double input_s = 60;   /* minimum between two lines about the input */

struct console {
    double drawn_s, input_s; /* when the last of them was shown; -INFINITY = never */
};

static int64_t integer(const struct dt_event *e, const char *key)
{
    double value = dt_field_number(e, key);
    return isnan(value) ? 0 : (int64_t)value;
}

/* ", loss 2.3026", only if the event has the field. */
static void add_number(struct dt_text *line, const struct dt_event *e, const char *key,
                       const char *before, int decimals, const char *after)
{
    if (!isnan(dt_field_number(e, key)))
        dt_text_add(line, "%s%.*f%s", before, decimals, dt_field_number(e, key), after);
}

/* Prints the most important numbers first, since a narrow terminal shows no more. */
static void on_step(const struct dt_event *e)
{
    char text[LINE_BYTES];
    struct dt_text line = dt_text_in(text, sizeof text);
    char elapsed[32], eta[32];
    double elapsed_s = dt_field_number(e, "elapsed_s"), eta_s = dt_field_number(e, "eta_s");
    dt_text_add(&line, "epoch %" PRId64 " step %" PRId64, integer(e, "epoch"), integer(e, "step"));
    if (dt_field_number(e, "total_steps") > 0)
        dt_text_add(&line, "/%" PRId64 " (%.0f %%)", integer(e, "total_steps"),
                    floor(100 * dt_field_number(e, "step") / dt_field_number(e, "total_steps")));
    dt_text_add(&line, ":  loss %.4f", dt_field_number(e, "loss")); /* even if it is not finite */
    add_number(&line, e, "class_loss", " (class ", 4, "");
    add_number(&line, e, "box_loss", ", box ", 4, ")");
    add_number(&line, e, "top1", "  top1 ", 2, "");
    if (isfinite(eta_s))
        dt_text_add(&line, "  ETA %s", dt_clock_format(eta, sizeof(eta), eta_s));
    add_number(&line, e, "images_per_s", "  ", 1, " images/s");
    if (isfinite(elapsed_s))
        dt_text_add(&line, "  elapsed %s", dt_clock_format(elapsed, sizeof(elapsed), elapsed_s));
    if (!isnan(dt_field_number(e, "lr")))
        dt_text_add(&line, "  lr %.4g", dt_field_number(e, "lr"));
    if (!dt_log_is_terminal()) {
        dt_log(DT_LOG_INFO, "%s", text);
        return;
    }
    dt_log_progress(text);
    dt_log_record(DT_LOG_INFO, text);
}

/* Not the other numbers of COCO's evaluation, which would make the line long. */
static bool is_metric(const char *key)
{
    for (enum dt_metric m = 0; m < DT_N_METRICS; m++) {
        const char *name = dt_metric_name(m);
        const size_t n = strlen(name);
        if (strncmp(key, name, n) == 0 && (key[n] == '\0' || strcmp(key + n, "_raw") == 0))
            return true;
    }
    return false;
}

static void on_eval(const struct dt_event *e)
{
    char text[LINE_BYTES];
    struct dt_text line = dt_text_in(text, sizeof text);
    for (int i = 0; i < e->n_fields; i++)
        if (e->fields[i].kind == DT_FIELD_NUMBER && is_metric(e->fields[i].key))
            dt_text_add(&line, " %s %.5g", e->fields[i].key, e->fields[i].number);
    const char *unit = dt_field_find(e, "reported_only") ? "step" : "epoch";
    dt_log(DT_LOG_INFO, " * %s %" PRId64 ":%s (%" PRId64 " images)", unit, integer(e, unit), text,
           integer(e, "images"));
}

static void on_checkpoint(const struct dt_event *e)
{
    dt_log(DT_LOG_INFO, "checkpoint of step %" PRId64 " in %s (%.1f s)", integer(e, "step"),
           dt_field_text(e, "path"), dt_field_number(e, "seconds"));
}

static void on_warning(const struct dt_event *e)
{
    dt_log(DT_LOG_WARNING, "%s", dt_field_text(e, "text"));
}

/* Printed only if input is slow, so most runs print nothing; short epochs do not repeat it. */
static void on_input(struct console *console, const struct dt_event *e)
{
    const double min = 0.01, now_s = dt_clock_s();
    if (dt_field_number(e, "wait_share") < min || now_s - console->input_s < input_s)
        return;
    console->input_s = now_s;
    dt_log(DT_LOG_INFO, "%s", dt_field_text(e, "text"));
}

/* ", <before><text><after>", only if the event has a text. */
static void add_text(struct dt_text *line, const struct dt_event *e, const char *key,
                     const char *before, const char *after)
{
    const char *text = dt_field_text(e, key);
    if (text && text[0])
        dt_text_add(line, "%s%s%s", before, text, after);
}

static void on_run_end(const struct dt_event *e)
{
    char text[LINE_BYTES + 2 * DT_PATH_MAX], duration[32];
    struct dt_text line = dt_text_in(text, sizeof text);
    double seconds = dt_field_number(e, "seconds");
    dt_text_add(&line, "end: %s after %" PRId64 " step%s", dt_field_text(e, "status"),
                integer(e, "steps"), DT_S(integer(e, "steps")));
    if (isfinite(seconds))
        dt_text_add(&line, ", %s", dt_clock_format(duration, sizeof(duration), seconds));
    add_number(&line, e, "images_per_s", ", ", 1, " images/s");
    if (integer(e, "exit_code") == DT_OK || integer(e, "exit_code") == DT_STOPPED)
        add_text(&line, e, "reason", ": ", ""); /* otherwise the error itself follows */
    add_text(&line, e, "best_metric", "; best ", "");
    add_number(&line, e, "best", " ", 3, "");
    add_number(&line, e, "best_epoch", " in epoch ", 0, "");
    add_text(&line, e, "best_path", " (", ")");
    add_text(&line, e, "model", "; model ", "");
    add_text(&line, e, "model_xxh128", ", XXH128 ", "");
    dt_log(DT_LOG_INFO, "%s", text);
}

static const struct {
    const char *event;
    void (*show)(const struct dt_event *e);
} shown[] = {
    {"step", on_step},       {"eval", on_eval},       {"checkpoint", on_checkpoint},
    {"warning", on_warning}, {"run_end", on_run_end},
};

static dt_status event_console(void *state, const struct dt_event *event)
{
    if (strcmp(event->name, "input") == 0)
        on_input(state, event);
    for (size_t i = 0; i < DT_COUNT(shown); i++)
        if (strcmp(shown[i].event, event->name) == 0)
            shown[i].show(event);
    return DT_OK;
}

static void progress_console(void *state, const char *what, int64_t done, int64_t total)
{
    struct console *console = state;
    char text[LINE_BYTES];
    struct dt_text line = dt_text_in(text, sizeof text);
    double now_s = dt_clock_s();
    if (now_s - console->drawn_s < redraw_s)
        return;
    console->drawn_s = now_s;
    dt_text_add(&line, "%s: %" PRId64, what, done);
    if (total > 0)
        dt_text_add(&line, "/%" PRId64 " (%.0f %%)", total, 100.0 * (double)done / (double)total);
    dt_log_progress(text);
}

static dt_status open_console(void *state, const struct dt_events_options *options)
{
    (void)options;
    *(struct console *)state = (struct console){-INFINITY, -INFINITY};
    return DT_OK;
}

static void close_console(void *state)
{
    (void)state;
    if (dt_log_is_terminal())
        dt_log_progress("");
}

const struct dt_sink dt_sink_console = {
    .title = "the console",
    .state_bytes = sizeof(struct console),
    .open = open_console,
    .event = event_console,
    .progress = progress_console,
    .close = close_console,
};
