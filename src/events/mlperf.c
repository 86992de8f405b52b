/* mlperf.log in the run folder: the lines of MLPerf Training's ResNet benchmark, as its compliance
 * checker reads them, but for cache_clear: whoever drops the page cache before a run adds that
 * line. A block is the training between two evaluations. A resumed run continues the log and first
 * removes what it writes again. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "events/append.h"
#include "events/events_internal.h"

struct mlperf {
    struct dt_append file;
    const struct dt_config *config;
    int64_t from_step, step; /* step: of the last event */
    int64_t mark_ms;         /* end of the last report: where the next interval begins */
    int64_t first_epoch;     /* of the block, from 1 */
    bool is_started, is_in_block;
};

static int64_t now_ms(void)
{
    return (int64_t)(1000 * dt_clock_unix_s());
}

/* --- Lines --- */

/* `value` is a field whose key is the line's; `metadata` is added to what every line has. */
static dt_status put_line(struct mlperf *m, int64_t time_ms, struct dt_field value,
                          const struct dt_field *metadata, int n_metadata)
{
    struct dt_jsonw w = {0};
    const char *type = strstr(value.key, "_start")  ? "INTERVAL_START"
                       : strstr(value.key, "_stop") ? "INTERVAL_END"
                                                    : "POINT_IN_TIME";
    dt_jsonw_add(&w, "{namespace: %s, time_ms: %" PRId64 ", event_type: %s, key: %s", "", time_ms,
                 type, value.key);
    value.key = "value";
    dt_field_put(&w, &value);
    dt_jsonw_add(&w, "metadata: {file: %s, lineno: %d", "src/events/mlperf.c", __LINE__);
    for (int i = 0; i < n_metadata; i++)
        dt_field_put(&w, &metadata[i]);
    dt_jsonw_add(&w, "}}");
    dt_status status = dt_jsonw_end(&w);
    if (status == DT_OK)
        status = dt_append_line(&m->file, ":::MLLOG ", w.text);
    dt_jsonw_reset(&w);
    return status;
}

#define INTERVAL(key) DT_JSONV(key, "null")

static dt_status put_interval(struct mlperf *m, int64_t time_ms, const char *key,
                              const struct dt_field *metadata, int n_metadata)
{
    return put_line(m, time_ms, (struct dt_field)INTERVAL(key), metadata, n_metadata);
}

static dt_status put_lines(struct mlperf *m, int64_t time_ms, const struct dt_field *lines,
                           size_t n_lines)
{
    for (size_t i = 0; i < n_lines; i++)
        DT_TRY(put_line(m, time_ms, lines[i], NULL, 0));
    return DT_OK;
}

/* --- Events --- */

static dt_status put_number(struct mlperf *m, const char *prefix, const char *key, double value)
{
    char name[64];
    snprintf(name, sizeof name, "%s%s%s", prefix, prefix[0] ? "_" : "", key);
    return put_line(m, now_ms(), (struct dt_field)DT_NUM(name, value), NULL, 0);
}

/* opt_name, and the keys that begin with it; other optimizers than sgd and lars have theirs in the
 * same way. */
static dt_status put_optimizer(struct mlperf *m, double lr, double steps_per_epoch)
{
    const struct dt_config *c = m->config;
    const char *name = dt_optim_name(c->optim.name);
    const bool is_lars = c->optim.name == DT_OPTIM_LARS;
    const double warmup_epochs =
        c->schedule.warmup_epochs + (double)c->schedule.warmup_steps / steps_per_epoch;
    const struct {
        const char *key;
        double value;
    } rows[] = {
        {"opt_base_learning_rate", lr},
        {"opt_end_learning_rate", c->schedule.min_lr * (lr / c->schedule.lr)},
        {"opt_learning_rate_decay_poly_power",
         c->schedule.kind == DT_SCHEDULE_POLY ? c->schedule.power : NAN},
        {"opt_learning_rate_decay_steps",
         round((c->train.epochs - warmup_epochs) * steps_per_epoch)},
        {"opt_weight_decay", c->optim.weight_decay},
        {"opt_momentum", c->optim.momentum},
    };
    DT_TRY(put_line(m, now_ms(), (struct dt_field)DT_TEXT("opt_name", name), NULL, 0));
    for (size_t i = 0; i < DT_COUNT(rows); i++)
        if (!isnan(rows[i].value))
            DT_TRY(put_number(m, name, rows[i].key, rows[i].value));
    DT_TRY(put_number(m, is_lars ? name : "", "opt_learning_rate_warmup_epochs", warmup_epochs));
    return is_lars ? put_number(m, name, "epsilon", (double)dt_config_optim(c).eps) : DT_OK;
}

/* Once, although a run may start several times. */
static dt_status on_run_start(struct mlperf *m, const struct dt_event *event)
{
    enum { IMAGENET_IMAGES = 1281167 }; /* other data cannot be of the closed division */
    const struct dt_config *c = m->config;
#define VALUE(key) dt_field_number(event, key)
    const struct dt_field head[] = {
        DT_TEXT("submission_benchmark", dt_config_detects(c) ? "ssd" : "resnet"),
        DT_TEXT("submission_division",
                VALUE("train_images") == IMAGENET_IMAGES ? "closed" : "open"),
        DT_TEXT("submission_org", "dtrain"),
        DT_TEXT("submission_platform", "dtrain"),
        DT_TEXT("submission_status", "research"),
        INTERVAL("init_start"),
    };
    const struct dt_field settings[] = {
        DT_NUM("global_batch_size", VALUE("global_batch_size")),
        DT_NUM("gradient_accumulation_steps", VALUE("passes")),
        DT_NUM("model_bn_span", VALUE("micro_batch_size")),
        DT_NUM("seed", (double)c->train.seed),
        DT_NUM("train_samples", VALUE("train_images")),
        DT_NUM("eval_samples", VALUE("val_images")),
        INTERVAL("init_stop"),
        INTERVAL("run_start"),
    };
    if (m->is_started)
        return DT_OK;
    DT_TRY(put_lines(m, m->mark_ms, head, DT_COUNT(head)));
    DT_TRY(put_optimizer(m, VALUE("lr"), VALUE("steps_per_epoch")));
#undef VALUE
    return put_lines(m, now_ms(), settings, DT_COUNT(settings));
}

/* A block begins where the previous report ended. */
static dt_status begin_block(struct mlperf *m)
{
    const int64_t left = m->config->train.epochs - m->first_epoch + 1;
    const int every = m->config->eval.every_epochs;
    const struct dt_field metadata[] = {
        DT_INT("first_epoch_num", m->first_epoch),
        DT_INT("epoch_count", every > 0 && every < left ? every
                              : left > 1                ? left
                                                        : 1),
        DT_INT("step", m->step),
    };
    if (m->is_in_block)
        return DT_OK;
    m->is_in_block = true;
    return put_interval(m, m->mark_ms, "block_start", metadata, 3);
}

static dt_status end_block(struct mlperf *m)
{
    const struct dt_field metadata[] = {DT_INT("first_epoch_num", m->first_epoch),
                                        DT_INT("step", m->step)};
    if (!m->is_in_block)
        return DT_OK;
    m->is_in_block = false;
    return put_interval(m, m->mark_ms, "block_stop", metadata, 2);
}

static dt_status on_eval(struct mlperf *m, const struct dt_event *event)
{
    const double top1 = dt_field_number(event, "top1");
    const double value = isnan(top1) ? dt_field_number(event, "ap") : top1 / 100;
    const int64_t epoch = dt_field_find(event, "epoch")->integer;
    const struct dt_field metadata[] = {DT_INT("epoch_num", epoch), DT_INT("step", m->step)};
    const struct dt_field accuracy = DT_NUM("eval_accuracy", value);
    DT_TRY(end_block(m));
    DT_TRY(put_interval(m, m->mark_ms, "eval_start", metadata, 2));
    if (!isnan(value))
        DT_TRY(put_line(m, now_ms(), accuracy, metadata, 2));
    m->first_epoch = epoch + 1;
    return put_interval(m, now_ms(), "eval_stop", metadata, 2);
}

static dt_status on_run_end(struct mlperf *m, const struct dt_event *event)
{
    bool is_complete = dt_field_number(event, "exit_code") == 0;
    const struct dt_field metadata[] = {DT_TEXT("status", is_complete ? "success" : "aborted")};
    DT_TRY(end_block(m));
    return put_interval(m, now_ms(), "run_stop", metadata, 1);
}

static dt_status event_mlperf(void *state, const struct dt_event *event)
{
    struct mlperf *m = state;
    dt_status status = DT_OK;
    const struct dt_field *step = dt_field_find(event, "step");
    bool is_report = true;
    if (strcmp(event->name, "step") == 0) {
        status = begin_block(m);
        m->step = step->integer;
    } else if (strcmp(event->name, "eval") == 0) {
        m->step = step->integer;
        status = on_eval(m, event);
    } else if (strcmp(event->name, "run_start") == 0)
        status = on_run_start(m, event);
    else if (strcmp(event->name, "run_end") == 0)
        status = on_run_end(m, event);
    else
        is_report = false;
    if (is_report)
        m->mark_ms = now_ms();
    return status;
}

/* --- The log of an earlier start --- */

static bool has_key(const char *line, const char *key)
{
    const char *at = strstr(line, "\"key\":\"");
    return at && strncmp(at + 7, key, strlen(key)) == 0;
}

/* The number after a name and its colon, `other` if there is none. */
static int64_t number_after(const char *line, const char *name, int64_t other)
{
    const char *at = strstr(line, name);
    return at ? strtoll(at + strlen(name), NULL, 10) : other;
}

/* Follows the log up to the first line that the run writes again. */
static bool is_repeated(void *context, const char *line)
{
    struct mlperf *m = context;
    if (has_key(line, "run_stop") || number_after(line, "\"step\":", -1) >= m->from_step)
        return true;
    m->step = number_after(line, "\"step\":", m->step);
    m->is_started = m->is_started || has_key(line, "run_start");
    m->is_in_block =
        has_key(line, "block_start") || (m->is_in_block && !has_key(line, "block_stop"));
    m->first_epoch = number_after(line, "\"first_epoch_num\":", m->first_epoch);
    m->first_epoch = number_after(line, "\"epoch_num\":", m->first_epoch - 1) + 1;
    return false;
}

static dt_status open_mlperf(void *state, const struct dt_events_options *options)
{
    struct mlperf *m = state;
    m->config = options->config;
    m->from_step = options->from_step;
    m->first_epoch = 1;
    m->mark_ms = now_ms();
    DT_TRY(dt_append_open(&m->file, options->dir, "mlperf.log", options->append));
    DT_TRY(dt_append_cut(&m->file, is_repeated, m));
    if (m->is_started)
        return DT_OK;
    dt_append_close(&m->file); /* new, or killed in the head */
    return dt_append_open(&m->file, options->dir, "mlperf.log", false);
}

const struct dt_sink dt_sink_mlperf = {
    .title = "mlperf.log",
    .in_folder = true,
    .state_bytes = sizeof(struct mlperf),
    .open = open_mlperf,
    .event = event_mlperf,
    .flush = dt_append_flush,
    .close = dt_append_close,
};
