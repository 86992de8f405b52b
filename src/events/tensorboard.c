/* tensorboard/ in the run folder: an event file per start of the run. Each begins by telling
 * readers to drop what the run repeats, so that no point is doubled after a resume. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/host.h"
#include "base/json.h"
#include "base/mem.h"
#include "events/events_internal.h"
#include "events/tfevents.h"

struct tensorboard {
    struct dt_append file;
    struct dt_proto event;
    int64_t step;   /* of the last event that has one */
    bool has_steps; /* the descriptions of their tags are written */
};

/* --- Hyper-parameters: messages of TensorBoard's plug-in (plugin_data.proto) --- */

/* Keys of the configuration; other settings rarely differ between the runs of an experiment. */
static const char *const settings[][2] = {
    {"model", "name"},         {"model", "image_size"},
    {"model", "dropout"},      {"data", "augment"},
    {"data", "mixup"},         {"data", "cutmix"},
    {"train", "epochs"},       {"train", "precision"},
    {"train", "seed"},         {"optim", "name"},
    {"optim", "momentum"},     {"optim", "trust_coefficient"},
    {"optim", "weight_decay"}, {"train", "label_smoothing"},
    {"schedule", "kind"},      {"schedule", "warmup_epochs"},
};
static const char *const numbers[] = {"ranks", "global_batch_size", "lr"}; /* of the event */

enum { START_HPARAMS = 1, START_TIME = 5 };
enum { VALUE_NUMBER = 2, VALUE_STRING, VALUE_BOOL };

static void put_entry(struct dt_proto *p, const char *name, const struct dt_json *value)
{
    enum { KEY = 1, VALUE };
    size_t entry = dt_proto_open(p, START_HPARAMS);
    dt_proto_text(p, KEY, name);
    size_t inner = dt_proto_open(p, VALUE);
    if (value->type == DT_JSON_STRING)
        dt_proto_text(p, VALUE_STRING, value->string);
    else if (value->type == DT_JSON_BOOL)
        dt_proto_integer(p, VALUE_BOOL, value->boolean);
    else
        dt_proto_double(p, VALUE_NUMBER, value->number);
    dt_proto_close(p, inner);
    dt_proto_close(p, entry);
}

/* How the run ended. */
static void put_hparams_end(struct dt_proto *p, double wall_time_s, bool success)
{
    enum { SESSION_END = 4, STATUS = 1, TIME, SUCCESS = 1, FAILURE };
    struct dt_tfevents_plugin at =
        dt_tfevents_open_plugin(p, "_hparams_/session_end_info", "hparams");
    size_t end = dt_proto_open(p, SESSION_END);
    dt_proto_integer(p, STATUS, success ? SUCCESS : FAILURE);
    dt_proto_double(p, TIME, wall_time_s);
    dt_proto_close(p, end);
    dt_tfevents_close_plugin(p, at);
}

/* --- Events --- */

/* The tags of a step event. */
static const struct {
    const char *field, *tag, *description;
} step_tags[] = {
    {"loss", "train/loss", "Mean over the images since the last point"},
    {"class_loss", "train/class_loss", "Part of a detector's loss"},
    {"box_loss", "train/box_loss", "Part of a detector's loss"},
    {"top1", "train/top1", "Per cent"},
    {"top5", "train/top5", "Per cent"},
    {"lr", "train/lr", "Learning rate of the last step"},
    {"loss_scale", "train/loss_scale", "Factor on the loss in fp16"},
    {"images_per_s", "perf/images_per_s", "Images per second, all ranks"},
    {"data_wait_s", "perf/data_wait", "Seconds per step that a rank waits for data"},
    {"step_s", "perf/step", "Seconds per step; the kinds of time below add up to it"},
    {"compute_s", "perf/compute", "Seconds per step of forward, backward and update"},
    {"sync_s", "perf/sync", "Seconds per step that a rank waits for agreements of the ranks"},
    {"other_s", "perf/other", "Seconds per step of everything else, such as reports"},
    {"comm_s", "perf/exposed_comm", "Seconds per step that a rank waits for the sums of gradients"},
};

static dt_status end_event(struct tensorboard *tb)
{
    DT_TRY(dt_tfevents_end(&tb->event));
    return dt_append_write(&tb->file, tb->event.at, tb->event.used);
}

static void close_tensorboard(void *state)
{
    struct tensorboard *tb = state;
    dt_append_close(&tb->file);
    free(tb->event.at);
}

static dt_status open_tensorboard(void *state, const struct dt_events_options *options)
{
    struct tensorboard *tb = state;
    char dir[DT_PATH_MAX], name[DT_HOST_MAX + 64], host[DT_HOST_MAX];
    dt_host_name(host);
    snprintf(name, sizeof name, "events.out.tfevents.%010" PRId64 ".%s.%07d.0",
             (int64_t)dt_clock_unix_s(), host, (int)getpid());
    DT_TRY(dt_file_path(dir, "%s/tensorboard", options->dir));
    DT_TRY(dt_append_open(&tb->file, dir, name, true));
    tb->step = options->from_step;
    dt_tfevents_begin(&tb->event, dt_clock_unix_s(), 0);
    dt_tfevents_version(&tb->event);
    DT_TRY(end_event(tb));
    dt_tfevents_begin(&tb->event, dt_clock_unix_s(), tb->step);
    dt_tfevents_restart(&tb->event);
    return end_event(tb);
}

static void put_steps(struct tensorboard *tb, const struct dt_event *event)
{
    for (size_t i = 0; i < DT_COUNT(step_tags); i++) {
        double value = dt_field_number(event, step_tags[i].field);
        if (dt_field_find(event, step_tags[i].field))
            dt_tfevents_scalar(&tb->event, step_tags[i].tag, value,
                               tb->has_steps ? NULL : step_tags[i].description);
    }
    tb->has_steps = true;
}

/* Every measurement, as <event>/<key>. */
static void put_measured(struct tensorboard *tb, const struct dt_event *event)
{
    char tag[96];
    for (int i = 0; i < event->n_fields; i++) {
        const double value = dt_field_measured(&event->fields[i]);
        snprintf(tag, sizeof tag, "%s/%s", event->name, event->fields[i].key);
        if (!isnan(value))
            dt_tfevents_scalar(&tb->event, tag, value, NULL);
    }
}

static void put_start(struct tensorboard *tb, const struct dt_event *event)
{
    struct dt_proto *p = &tb->event;
    char *markdown = NULL;
    enum { SESSION_START = 3 };
    char name[64];
    struct dt_json_doc *doc = NULL;
    const struct dt_field *config = dt_field_find(event, "config");
    struct dt_tfevents_plugin at =
        dt_tfevents_open_plugin(p, "_hparams_/session_start_info", "hparams");
    size_t start = dt_proto_open(p, SESSION_START);
    if (config)
        (void)dt_json_parse(&doc, config->text, strlen(config->text), "config", NULL);
    for (size_t i = 0; doc && i < DT_COUNT(settings); i++) {
        const struct dt_json *section = dt_json_get(dt_json_root(doc), settings[i][0]);
        const struct dt_json *value = dt_json_get(section, settings[i][1]);
        snprintf(name, sizeof name, "%s.%s", settings[i][0], settings[i][1]);
        if (value)
            put_entry(p, name, value);
    }
    for (size_t i = 0; i < DT_COUNT(numbers); i++)
        put_entry(p, numbers[i],
                  &(struct dt_json){.type = DT_JSON_NUMBER,
                                    .number = dt_field_number(event, numbers[i])});
    dt_proto_double(p, START_TIME, dt_clock_unix_s());
    dt_proto_close(p, start);
    dt_tfevents_close_plugin(p, at);
    dt_json_destroy(doc);
    if (!config || asprintf(&markdown, "```json\n%s\n```", config->text) < 0)
        return;
    dt_tfevents_text(&tb->event, "config/text_summary", markdown);
    free(markdown);
}

/* The picture may have been removed since. */
static void put_picture(struct tensorboard *tb, const struct dt_event *event)
{
    enum { MAX_BYTES = 1 << 26 };
    const struct dt_field *width = dt_field_find(event, "width");
    const struct dt_field *height = dt_field_find(event, "height");
    char *text = NULL;
    size_t bytes;
    if (dt_file_load(&text, &bytes, dt_field_text(event, "path"), MAX_BYTES) != DT_OK)
        return;
    const uint8_t *file = (const uint8_t *)text;
    if (width && height)
        dt_tfevents_image(&tb->event, event->name, width->integer, height->integer, file, bytes);
    else
        dt_tfevents_png(&tb->event, event->name, file, bytes);
    free(text);
}

static dt_status event_tensorboard(void *state, const struct dt_event *event)
{
    struct tensorboard *tb = state;
    const struct dt_field *step = dt_field_find(event, "step");
    tb->step = step ? step->integer : tb->step;
    dt_tfevents_begin(&tb->event, dt_clock_unix_s(), tb->step);
    size_t summary = dt_tfevents_open_summary(&tb->event);
    if (strcmp(event->name, "step") == 0)
        put_steps(tb, event);
    else if (strcmp(event->name, "eval") == 0 || strcmp(event->name, "telemetry") == 0)
        put_measured(tb, event);
    else if (strcmp(event->name, "run_start") == 0)
        put_start(tb, event);
    else if (strcmp(event->name, "samples") == 0 || strcmp(event->name, "detections") == 0)
        put_picture(tb, event);
    else if (strcmp(event->name, "run_end") == 0)
        put_hparams_end(&tb->event, dt_clock_unix_s(), dt_field_number(event, "exit_code") == 0);
    else
        return DT_OK;
    dt_tfevents_close_summary(&tb->event, summary);
    return end_event(tb);
}

const struct dt_sink dt_sink_tensorboard = {
    .title = "tensorboard",
    .in_folder = true,
    .state_bytes = sizeof(struct tensorboard),
    .open = open_tensorboard,
    .event = event_tensorboard,
    .flush = dt_append_flush,
    .close = close_tensorboard,
};
