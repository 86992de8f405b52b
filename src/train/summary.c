/* Prints a table to the log, one line per row. */
#include "train/summary.h"

#include <inttypes.h>

#include "base/build.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/memory.h"
#include "base/text.h"
#include "checkpoint/run_folder.h"
#include "train/freeze.h"

static void add_bytes(struct dt_text *line, const char *before, uint64_t bytes, const char *after)
{
    char text[32];
    dt_text_add(line, "%s%s%s", before, dt_memory_format(text, sizeof text, bytes), after);
}

static void add_time(struct dt_text *line, const char *before, double seconds, const char *after)
{
    char text[32];
    dt_text_add(line, "%s%s%s", before, dt_clock_format(text, sizeof text, seconds), after);
}

/* "2 classes (cat, dog)"; of two, the second one is positive. */
static void add_classes(struct dt_text *line, const struct dt_session *s)
{
    enum { MOST_NAMES = 6 };
    const size_t n = s->sets.classes.n;
    dt_text_add(line, "%d classes", s->sets.num_classes);
    for (size_t i = 0; i < n && i < MOST_NAMES; i++)
        dt_text_add(line, "%s%s", i == 0 ? " (" : ", ", dt_names_get(&s->sets.classes, i));
    dt_text_add(line, n > MOST_NAMES ? ", ...)" : n > 0 ? ")" : "");
}

static void print_model(struct dt_text *line, const struct dt_session *s,
                        const struct dt_summary *summary)
{
    const struct dt_config *config = s->config;
    char sizes[DT_SIZES_TEXT];
    dt_text_add(line, "%s, %.2f million parameters, %s, images of %s, ", s->engine.model->name,
                (double)summary->n_parameters / 1e6, dt_precision_name(config->train.precision),
                dt_session_sizes(s, config->model.image_size, sizes));
    add_classes(line, s);
    dt_text_add(line, "; build %.12s", dt_build_id());
}

static void print_device(struct dt_text *line, const struct dt_session *s,
                         const struct dt_summary *summary)
{
    char device[256], plane[64];
    (void)summary;
    s->engine.backend->describe(s->engine.device, device, sizeof device);
    dt_text_add(line, "%d rank%s on %s", s->ranks.n_ranks, s->ranks.n_ranks == 1 ? "" : "s",
                device);
    dt_comm_describe_plane(s->engine.plane, plane, sizeof plane);
    if (s->ranks.n_ranks > 1)
        dt_text_add(line, "; %s", plane);
}

static void add_class_weights(struct dt_text *line, const struct dt_session *s)
{
    float least = s->sets.class_weights[0], most = s->sets.class_weights[0];
    for (int c = 1; c < s->sets.num_classes; c++) {
        least = s->sets.class_weights[c] < least ? s->sets.class_weights[c] : least;
        most = s->sets.class_weights[c] > most ? s->sets.class_weights[c] : most;
    }
    dt_text_add(line, ", class weights from %.3g to %.3g", (double)least, (double)most);
}

static void print_data(struct dt_text *line, const struct dt_session *s,
                       const struct dt_summary *summary)
{
    (void)summary;
    dt_text_add(line, "%" PRIu32 " training and %" PRIu32 " validation images%s",
                dt_dataset_size(s->sets.train_set),
                s->sets.val_set ? dt_dataset_size(s->sets.val_set) : 0,
                dt_config_is_synthetic(s->config) ? ", synthetic" : "");
    if (s->sets.class_weights)
        add_class_weights(line, s);
}

static void print_schedule(struct dt_text *line, const struct dt_session *s,
                           const struct dt_summary *summary)
{
    char schedule[DT_SCHEDULE_TEXT];
    (void)summary;
    dt_schedule_describe(schedule, sizeof schedule, &s->engine.schedule);
    const bool has_stages = s->engine.schedule.n_parts > 1;
    dt_text_add(line, "%d epochs", s->config->train.epochs);
    if (!has_stages)
        dt_text_add(line, " of %" PRId64 " steps", s->engine.stage.steps_per_epoch);
    if (has_stages || s->engine.last_step < s->engine.schedule.total_steps)
        dt_text_add(line, ", %" PRId64 " steps in all", s->engine.last_step);
    dt_text_add(line, ", ");
    dt_text_add(line, "batch %d = %d rank%s x ", s->engine.stage.global_batch_size,
                s->ranks.n_workers, s->ranks.n_workers == 1 ? "" : "s");
    if (s->engine.stage.n_passes > 1)
        dt_text_add(line, "%d micro-batches x ", s->engine.stage.n_passes);
    dt_text_add(line, "%d images, learning rate %s", s->engine.stage.micro_batch_size, schedule);
    if (s->config->optim.head_lr_factor != 1)
        dt_text_add(line, " (%s: %.6g times that)", s->engine.model->head,
                    s->config->optim.head_lr_factor);
}

/* "epochs 4 to 6: 160 x 160, batch 128, 97 steps per epoch, learning rate times 2, 1.2 GB per
 * rank". */
static void add_stage(struct dt_text *line, const struct dt_session *s, int i)
{
    const struct dt_schedule_part *part = &s->engine.schedule.parts[i];
    const bool is_last = i + 1 == s->engine.schedule.n_parts;
    char sizes[DT_SIZES_TEXT];
    int index;
    dt_config_stage(s->config, 0, part->epoch, &index);
    dt_text_add(line,
                "epochs %" PRId64 " to %" PRId64 ": %s, batch %d, %" PRId64 " steps per epoch",
                part->epoch + 1, is_last ? s->config->train.epochs : part[1].epoch,
                dt_session_sizes(s, part->stage.image_size, sizes), part->stage.batch,
                part->steps_per_epoch);
    if (part->scale != s->engine.schedule.parts[0].scale)
        dt_text_add(line, ", learning rate times %.6g",
                    part->scale / s->engine.schedule.parts[0].scale);
    if (index >= 0)
        add_bytes(line, ", ", s->engine.stage_bytes[index], " per rank");
}

static void print_stages(struct dt_text *line, const struct dt_session *s,
                         const struct dt_summary *summary)
{
    (void)summary;
    for (int i = 0; s->config->train.n_stages > 0 && i < s->engine.schedule.n_parts; i++) {
        dt_text_add(line, i > 0 ? "; " : "");
        add_stage(line, s, i);
    }
}

/* With the numbers that the optimizer uses, its own where the keys are 0. */
static void add_optimizer(struct dt_text *line, const struct dt_config *config)
{
    const enum dt_optim optim = config->optim.name;
    const struct dt_optim_options o = dt_config_optim(config);
    const bool is_lars = dt_optim_trust(optim) == DT_TRUST_GRADIENT;
    dt_text_add(line, "%s, %s %g", dt_optim_name(optim),
                o.nesterov ? "Nesterov momentum" : "momentum", o.momentum);
    if (dt_optim_has_square(optim))
        dt_text_add(line, ", beta2 %g", o.beta2);
    if (is_lars)
        dt_text_add(line, ", trust coefficient %g", (double)o.trust);
    if (dt_optim_has_square(optim) || is_lars)
        dt_text_add(line, ", epsilon %g", (double)o.eps);
    dt_text_add(line, ", weight decay %g%s", (double)o.weight_decay,
                o.weight_decay == 0             ? ""
                : config->optim.decay_norm_bias ? " on all parameters"
                                                : " except on batch norm and bias");
    if (o.clip_norm > 0)
        dt_text_add(line, ", norm of the gradients at most %g", (double)o.clip_norm);
    if (o.clip_value > 0)
        dt_text_add(line, ", gradients at most %g", (double)o.clip_value);
}

static void print_optimizer(struct dt_text *line, const struct dt_session *s,
                            const struct dt_summary *summary)
{
    (void)summary;
    add_optimizer(line, s->config);
}

static void print_memory(struct dt_text *line, const struct dt_session *s,
                         const struct dt_summary *summary)
{
    const size_t *bytes = s->engine.plan->arena_bytes;
    (void)summary;
    add_bytes(line, "", dt_plan_bytes(s->engine.plan), " per rank: ");
    add_bytes(line, "weights ",
              bytes[DT_ARENA_PARAMS] + bytes[DT_ARENA_SHADOW] + bytes[DT_ARENA_STATS], ", ");
    add_bytes(line, "gradients ", bytes[DT_ARENA_GRADS] + bytes[DT_ARENA_ACCUM], ", ");
    add_bytes(line, "optimizer ",
              bytes[DT_ARENA_MOMENTUM] + bytes[DT_ARENA_SQUARE] + bytes[DT_ARENA_OUTER] +
                  bytes[DT_ARENA_ANCHOR],
              ", ");
    if (dt_plan_has_ema(s->engine.plan))
        add_bytes(line, "average ", bytes[DT_ARENA_EMA] + bytes[DT_ARENA_EMA_STATS], ", ");
    add_bytes(line, "activations ", bytes[DT_ARENA_WORK], "");
}

static void add_times_of_saves(struct dt_text *line, const struct dt_config *config)
{
    if (config->checkpoint.every_seconds > 0)
        add_time(line, "every ", config->checkpoint.every_seconds, ", ");
    if (config->checkpoint.every_steps > 0)
        dt_text_add(line, "every %" PRId64 " steps, ", config->checkpoint.every_steps);
    if (config->checkpoint.every_epochs == 1)
        dt_text_add(line, "every epoch, ");
    else if (config->checkpoint.every_epochs > 1)
        dt_text_add(line, "every %d epochs, ", config->checkpoint.every_epochs);
    dt_text_add(line, "at the end");
}

static void print_checkpoints(struct dt_text *line, const struct dt_session *s,
                              const struct dt_summary *summary)
{
    const struct dt_config *config = s->config;
    uint64_t there = dt_file_free_bytes(summary->run_dir);
    add_bytes(line, "", summary->checkpoint_bytes, ": ");
    add_times_of_saves(line, config);
    dt_text_add(line, "; %s keeps the newest %d", summary->run_dir, config->checkpoint.keep);
    if (config->checkpoint.keep_best)
        dt_text_add(line, ", the best");
    if (config->checkpoint.keep_every > 0)
        dt_text_add(line, ", one every %" PRId64 " steps", config->checkpoint.keep_every);
    if (there < INT64_MAX)
        add_bytes(line, "; ", there, " free");
}

static void add_limit(struct dt_text *line, const char *name, double seconds)
{
    if (seconds > 0)
        add_time(line, name, seconds, "");
    else
        dt_text_add(line, "%snone", name);
}

static void print_limits(struct dt_text *line, const struct dt_session *s,
                         const struct dt_summary *summary)
{
    const struct dt_config *config = s->config;
    add_limit(line, "without progress: start ", config->watchdog.init_timeout_s);
    add_limit(line, ", step ", config->watchdog.step_timeout_s);
    add_limit(line, ", save ", config->watchdog.save_timeout_s);
    if (summary->end[0])
        dt_text_add(line, "; stops in time for %s", summary->end);
}

static void print_weights(struct dt_text *line, const struct dt_session *s,
                          const struct dt_summary *summary)
{
    (void)summary;
    dt_text_add(line, "%s", s->engine.weights);
}

static void print_frozen(struct dt_text *line, const struct dt_session *s,
                         const struct dt_summary *summary)
{
    char text[128];
    (void)summary;
    dt_freeze_describe(text, sizeof text, s->engine.graph, s->config->optim.unfreeze_epoch);
    dt_text_add(line, "%s", text);
}

static void print_start(struct dt_text *line, const struct dt_session *s,
                        const struct dt_summary *summary)
{
    (void)s;
    dt_text_add(line, "%s, checked in %.1f s", summary->start, summary->seconds);
}

void dt_summary_print(const struct dt_session *s, const struct dt_summary *summary)
{
    static const struct {
        const char *label;
        void (*print)(struct dt_text *line, const struct dt_session *s,
                      const struct dt_summary *summary);
    } rows[] = {
        {"model", print_model},   {"device", print_device},
        {"data", print_data},     {"schedule", print_schedule},
        {"stages", print_stages}, {"optimizer", print_optimizer},
        {"memory", print_memory}, {"checkpoints", print_checkpoints},
        {"limits", print_limits}, {"weights", print_weights},
        {"frozen", print_frozen}, {"start", print_start},
    };
    for (size_t i = 0; i < DT_COUNT(rows); i++) {
        char text[DT_WEIGHTS_TEXT];
        struct dt_text line = dt_text_in(text, sizeof text);
        rows[i].print(&line, s, summary);
        if (line.used > 0)
            dt_log(DT_LOG_INFO, "%-12s %s", rows[i].label, text);
    }
}

/* --- --dry-run: the figures of the run --- */

static void print_rate(const struct dt_session *s, const char *what, int64_t step, FILE *out)
{
    fprintf(out, "  step %9" PRId64 "  epoch %8.3f  %.6g  (%s)\n", step,
            dt_schedule_epochs(&s->engine.schedule, step),
            dt_schedule_lr(&s->engine.schedule, step), what);
}

/* Prints nothing for a step at or after the last one. */
static void print_early(const struct dt_session *s, const char *what, int64_t step, FILE *out)
{
    if (step < s->engine.last_step - 1)
        print_rate(s, what, step, out);
}

static void print_rates(const struct dt_session *s, FILE *out)
{
    const struct dt_schedule *schedule = &s->engine.schedule;
    int64_t warmup = schedule->warmup_steps;
    char text[DT_SCHEDULE_TEXT];
    dt_schedule_describe(text, sizeof text, schedule);
    fprintf(out, "learning rate %s\n", text);
    print_rate(s, "first", 0, out);
    if (warmup > 1)
        print_early(s, "last of the warm-up", warmup - 1, out);
    for (int i = 1; i < schedule->n_parts; i++)
        print_early(s, "stage", schedule->parts[i].step, out);
    const struct dt_config_schedule *config = schedule->config;
    if (config->kind == DT_SCHEDULE_STEP || config->kind == DT_SCHEDULE_PIECEWISE)
        for (int i = 0; i < config->n_milestones; i++)
            print_early(s, "milestone", schedule->milestones[i], out);
    else if (config->kind != DT_SCHEDULE_CONSTANT)
        print_early(s, "halfway", (warmup + schedule->total_steps) / 2, out);
    print_rate(s, "last", s->engine.last_step - 1, out);
}

static void print_stage_lines(const struct dt_session *s, FILE *out)
{
    for (int i = 0; s->config->train.n_stages > 0 && i < s->engine.schedule.n_parts; i++) {
        char text[256];
        struct dt_text line = dt_text_in(text, sizeof text);
        add_stage(&line, s, i);
        fprintf(out, "stage %s\n", text);
    }
}

/* What a paper's table of the recipe lists beside optimizer and schedule. */
static void print_regularisation(const struct dt_config *c, FILE *out)
{
    const struct {
        const char *name;
        double value;
    } rows[] = {
        {"label smoothing", c->train.label_smoothing},
        {"mixup", c->data.mixup},
        {"CutMix", c->data.cutmix},
        {"random erasing", c->data.random_erasing},
        {"colour jitter", c->data.color_jitter},
        {"moving average of the weights", c->train.ema_decay},
    };
    const char *separator = "regularisation ";
    for (size_t i = 0; i < DT_COUNT(rows); i++)
        if (rows[i].value > 0) {
            fprintf(out, "%s%s %g", separator, rows[i].name, rows[i].value);
            separator = ", ";
        }
    if (separator[0] == ',')
        fprintf(out, "\n");
}

void dt_session_print(const struct dt_session *s, FILE *out)
{
    char device[256], frozen[128], classes[512], optimizer[256], sizes[DT_SIZES_TEXT];
    struct dt_text text = dt_text_in(classes, sizeof classes);
    struct dt_text optimizer_text = dt_text_in(optimizer, sizeof optimizer);
    add_classes(&text, s);
    const int size = s->config->model.image_size;
    fprintf(out, "%s, images of %s, ", s->engine.model->name,
            dt_session_sizes(s, s->engine.stage.image_size, sizes));
    if (s->engine.n_canvases == 0 && s->engine.stage.image_size != size)
        fprintf(out, "evaluated at %d x %d, ", size, size);
    fprintf(out, "%s\n", classes);
    fprintf(out, "global batch %d = %d rank(s) x %d micro-batch(es) x %d images\n",
            s->engine.stage.global_batch_size, s->ranks.n_ranks, s->engine.stage.n_passes,
            s->engine.stage.micro_batch_size);
    s->engine.backend->describe(s->engine.device, device, sizeof device);
    fprintf(out, "device %s\n", device);
    add_optimizer(&optimizer_text, s->config);
    fprintf(out, "optimizer %s\n", optimizer);
    print_regularisation(s->config, out);
    if (s->engine.weights[0])
        fprintf(out, "weights: %s\n", s->engine.weights);
    dt_freeze_describe(frozen, sizeof frozen, s->engine.graph, s->config->optim.unfreeze_epoch);
    if (frozen[0])
        fprintf(out, "frozen: %s\n", frozen);
    if (s->sets.train_set) {
        fprintf(out, "%u training images, %" PRId64 " steps per epoch, %" PRId64 " steps in all\n",
                dt_dataset_size(s->sets.train_set), s->engine.stage.steps_per_epoch,
                s->engine.last_step);
        print_stage_lines(s, out);
        print_rates(s, out);
    } else {
        fprintf(out, "steps per epoch, learning rates and classes: unknown without data.train\n");
    }
    dt_plan_print_memory(s->engine.plan, out);
}
