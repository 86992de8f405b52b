#include "report/hparams.h"

#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
#include "report/internal.h"
#include "report/tfevents.h"

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

static void put_settings(struct dt_proto *p, const struct dt_json *config)
{
    char name[64];
    for (size_t i = 0; i < DT_COUNT(settings); i++) {
        const struct dt_json *section = dt_json_get(config, settings[i][0]);
        const struct dt_json *value = dt_json_get(section, settings[i][1]);
        struct dt_text text = dt_text_in(name, sizeof name);
        dt_text_add(&text, "%s.%s", settings[i][0], settings[i][1]);
        if (value)
            put_entry(p, name, value);
    }
}

void dt_hparams_start(struct dt_proto *p, double wall_time_s, const struct dt_field *fields,
                      int n_fields)
{
    enum { SESSION_START = 3 };
    struct dt_json_doc *doc = NULL;
    const struct dt_field *config = dt_field_find(fields, n_fields, "config");
    struct dt_tfevents_plugin at =
        dt_tfevents_open_plugin(p, "_hparams_/session_start_info", "hparams");
    size_t start = dt_proto_open(p, SESSION_START);
    if (config && dt_json_parse(&doc, config->text, strlen(config->text), "config", NULL) == DT_OK)
        put_settings(p, dt_json_root(doc));
    for (size_t i = 0; i < DT_COUNT(numbers); i++)
        put_entry(p, numbers[i],
                  &(struct dt_json){.type = DT_JSON_NUMBER,
                                    .number = dt_field_number(fields, n_fields, numbers[i])});
    dt_proto_double(p, START_TIME, wall_time_s);
    dt_proto_close(p, start);
    dt_tfevents_close_plugin(p, at);
    dt_json_destroy(doc);
}

void dt_hparams_end(struct dt_proto *p, double wall_time_s, bool success)
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
