/* The run that is about to begin: a table in the log, the figures of --dry-run, and the event
 * run_start. */
#include "train/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/build.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/host.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "checkpoint/run_folder.h"
#include "engine/engine.h"

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
static void add_classes(struct dt_text *line, const struct dt_sets *sets)
{
    enum { MAX_NAMES = 6 };
    const size_t n = sets->classes.n;
    dt_text_add(line, "%d classes", sets->num_classes);
    for (size_t i = 0; i < n && i < MAX_NAMES; i++)
        dt_text_add(line, "%s%s", i == 0 ? " (" : ", ", dt_names_get(&sets->classes, i));
    dt_text_add(line, n > MAX_NAMES ? ", ...)" : n > 0 ? ")" : "");
}

static void print_model(struct dt_text *line, const struct dt_summary *summary)
{
    const struct dt_config *config = summary->engine->config;
    char sizes[DT_SIZES_TEXT];
    const bool is_auto = config == &summary->engine->resolved;
    dt_text_add(line, "%s, %.2f million parameters, %s%s, images of %s, ",
                summary->engine->model->name, (double)summary->n_parameters / 1e6,
                dt_precision_name(config->train.precision),
                is_auto && summary->engine->backend != &dt_backend_cpu
                    ? " (train.precision auto; or set it to fp32, tf32, bf16 or fp16)"
                    : "",
                dt_sets_sizes(summary->sets, config->model.image_size, sizes));
    add_classes(line, summary->sets);
    dt_text_add(line, "; build %.12s", dt_build_id());
}

/* How CPU ranks sum. */
static void add_sums(struct dt_text *line, const struct dt_engine *engine)
{
    const struct dt_comm_options options = dt_engine_comm_options(engine);
    const struct dt_comm_memory *memory = &engine->plan->sums;
    if (dt_split_has_slices(&engine->stage.split)) {
        dt_text_add(line, ", sums by virtual rank");
        return;
    }
    if (options.sum == DT_SUM_LIBRARY) {
        dt_text_add(line, ", which chooses how to sum (comm.algorithm=ring: in a fixed order)");
        return;
    }
    if (options.plane != DT_PLANE_MPI || options.sum > DT_SUM_BY_NODE)
        return;
    if (!memory->shared.is_mapped && dt_comm_local_size(engine->ranks.comm) > 1) {
        dt_text_add(line, ", sums by messages, as the ranks of a node cannot share memory here");
        return;
    }
    if (memory->shared.is_mapped)
        dt_text_add(line, ", sums in shared memory");
    if (memory->n_nodes > 1 && options.sum == DT_SUM_AUTO)
        dt_text_add(line, "%s between %d nodes by messages at %.3g Gb/s and %.0f us",
                    memory->shared.is_mapped ? "," : ", sums", memory->n_nodes,
                    8e-9 * options.link.bytes_per_s * memory->n_parts,
                    1e6 * options.link.latency_s);
}

static void print_device(struct dt_text *line, const struct dt_summary *summary)
{
    char device[256], plane[64];
    summary->engine->backend->describe(summary->engine->device, device, sizeof device);
    dt_text_add(line, "%d rank%s on %s", summary->engine->ranks.n_ranks,
                DT_S(summary->engine->ranks.n_ranks), device);
    dt_comm_describe_plane(summary->engine->plane, plane, sizeof plane);
    if (summary->engine->ranks.n_ranks == 1)
        return;
    dt_text_add(line, "; %s", plane);
    if (dt_config_sums(summary->engine->config) && summary->engine->plan)
        add_sums(line, summary->engine);
}

/* The images that make no full batch. With stages their number changes. */
static void add_left_out(struct dt_text *line, const struct dt_engine *engine,
                         const struct dt_sets *sets)
{
    const struct dt_stage *stage = &engine->stage;
    const int64_t n_used = stage->steps_per_epoch * stage->split.images;
    const int64_t n = dt_dataset_size(sets->train_set) - n_used;
    if (n > 0 && n_used > 0 && engine->schedule.n_parts == 1)
        dt_text_add(line,
                    "; the incomplete last batch of an epoch is dropped (%" PRId64
                    " image%s, different ones each epoch)",
                    n, DT_S(n));
}

static void print_data(struct dt_text *line, const struct dt_summary *summary)
{
    const float *weights = summary->sets->class_weights;
    dt_text_add(line, "%" PRIu32 " training and ", dt_dataset_size(summary->sets->train_set));
    if (summary->sets->val_set)
        dt_text_add(line, "%" PRIu32, dt_dataset_size(summary->sets->val_set));
    dt_text_add(line, "%s validation images%s", summary->sets->val_set ? "" : "no",
                dt_config_is_synthetic(summary->engine->config) ? ", synthetic"
                : summary->sets->val_set                        ? ""
                                         : " (set data.val or data.val_fraction)");
    add_left_out(line, summary->engine, summary->sets);
    if (!weights)
        return;
    float min = weights[0], max = weights[0];
    for (int c = 1; c < summary->sets->num_classes; c++) {
        min = weights[c] < min ? weights[c] : min;
        max = weights[c] > max ? weights[c] : max;
    }
    dt_text_add(line, ", class weights from %.3g to %.3g", (double)min, (double)max);
}

static void print_schedule(struct dt_text *line, const struct dt_summary *summary)
{
    char schedule[DT_SCHEDULE_TEXT], batch[DT_BATCH_TEXT];
    dt_schedule_describe(schedule, sizeof schedule, &summary->engine->schedule);
    const bool has_stages = summary->engine->schedule.n_parts > 1;
    const int64_t epochs = summary->engine->config->train.epochs;
    const int64_t steps = summary->engine->stage.steps_per_epoch;
    dt_text_add(line, "%" PRId64 " epoch%s", epochs, DT_S(epochs));
    if (!has_stages)
        dt_text_add(line, " of %" PRId64 " step%s", steps, DT_S(steps));
    if (has_stages || summary->engine->schedule.resumed > 0 ||
        summary->engine->last_step < summary->engine->schedule.total_steps)
        dt_text_add(line, ", %" PRId64 " step%s in all", summary->engine->last_step,
                    DT_S(summary->engine->last_step));
    dt_text_add(line, ", ");
    dt_engine_describe_batch(batch, summary->engine);
    dt_text_add(line, "batch %s", batch);
    if (summary->engine->config->train.micro_batch_size == DT_MICRO_BATCH_AUTO)
        add_bytes(line, " (auto: they fit into ", (uint64_t)dt_engine_room(summary->engine), ")");
    dt_text_add(line, ", learning rate %s", schedule);
    if (summary->engine->config->optim.head_lr_factor != 1)
        dt_text_add(line, " (%s: %.6g times that)", summary->engine->model->head,
                    summary->engine->config->optim.head_lr_factor);
    if (summary->engine->config->schedule.lr == dt_config_own_lr(summary->engine->config))
        dt_text_add(line, "; schedule.lr %g is the default of %s",
                    summary->engine->config->schedule.lr,
                    dt_optim_name(summary->engine->config->optim.name));
}

/* "epochs 4 to 6: 160 x 160, batch 128, 97 steps per epoch, learning rate times 2, 1.2 GB per
 * rank". */
static void add_stage(struct dt_text *line, const struct dt_engine *engine,
                      const struct dt_sets *sets, int i)
{
    const struct dt_schedule_part *part = &engine->schedule.parts[i];
    const bool is_last = i + 1 == engine->schedule.n_parts;
    char sizes[DT_SIZES_TEXT];
    int index;
    dt_config_stage(engine->config, 0, part->epoch, &index);
    dt_text_add(line,
                "epochs %" PRId64 " to %" PRId64 ": %s, batch %d, %" PRId64 " step%s per epoch",
                part->epoch + 1, is_last ? engine->config->train.epochs : part[1].epoch,
                dt_sets_sizes(sets, part->stage.image_size, sizes), part->stage.batch,
                part->steps_per_epoch, DT_S(part->steps_per_epoch));
    if (part->scale != engine->schedule.parts[0].scale)
        dt_text_add(line, ", learning rate times %.6g",
                    part->scale / engine->schedule.parts[0].scale);
    if (index >= 0)
        add_bytes(line, ", ", engine->stage_bytes[index], " per rank");
}

static void print_stages(struct dt_text *line, const struct dt_summary *summary)
{
    for (int i = 0;
         summary->engine->config->train.n_stages > 0 && i < summary->engine->schedule.n_parts;
         i++) {
        dt_text_add(line, i > 0 ? "; " : "");
        add_stage(line, summary->engine, summary->sets, i);
    }
}

/* Prints the numbers that the optimizer uses, its own where the keys are 0. */
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

static void print_optimizer(struct dt_text *line, const struct dt_summary *summary)
{
    add_optimizer(line, summary->engine->config);
}

static void print_memory(struct dt_text *line, const struct dt_summary *summary)
{
    const size_t *bytes = summary->engine->plan->arena_bytes;
    add_bytes(line, "", dt_plan_bytes(summary->engine->plan), " per rank: ");
    add_bytes(line, "weights ",
              bytes[DT_ARENA_PARAMS] + bytes[DT_ARENA_SHADOW] + bytes[DT_ARENA_STATS], ", ");
    add_bytes(line, "gradients ", bytes[DT_ARENA_GRADS] + bytes[DT_ARENA_ACCUM], ", ");
    add_bytes(line, "optimizer ",
              bytes[DT_ARENA_MOMENTUM] + bytes[DT_ARENA_SQUARE] + bytes[DT_ARENA_OUTER] +
                  bytes[DT_ARENA_ANCHOR],
              ", ");
    if (dt_plan_has_ema(summary->engine->plan))
        add_bytes(line, "average ", bytes[DT_ARENA_EMA] + bytes[DT_ARENA_EMA_STATS], ", ");
    add_bytes(line, "activations ", bytes[DT_ARENA_WORK], "");
}

static void print_checkpoints(struct dt_text *line, const struct dt_summary *summary)
{
    const struct dt_config_checkpoint *c = &summary->engine->config->checkpoint;
    uint64_t there = dt_file_free_bytes(summary->run_dir);
    add_bytes(line, "", summary->checkpoint_bytes, ": ");
    if (c->every_seconds > 0)
        add_time(line, "every ", c->every_seconds, ", ");
    if (c->every_steps > 0)
        dt_text_add(line, "every %" PRId64 " steps, ", c->every_steps);
    if (c->every_epochs == 1)
        dt_text_add(line, "every epoch, ");
    else if (c->every_epochs > 1)
        dt_text_add(line, "every %d epochs, ", c->every_epochs);
    dt_text_add(line, "at the end; %s keeps the newest %d", summary->run_dir, c->keep);
    if (c->keep_best)
        dt_text_add(line, ", the best");
    if (c->keep_every > 0)
        dt_text_add(line, ", one every %" PRId64 " steps", c->keep_every);
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

static void print_limits(struct dt_text *line, const struct dt_summary *summary)
{
    const struct dt_config *config = summary->engine->config;
    add_limit(line, "ends the run after this time without progress: start ",
              config->watchdog.init_timeout_s);
    add_limit(line, ", step ", config->watchdog.step_timeout_s);
    add_limit(line, ", save ", config->watchdog.save_timeout_s);
    if (summary->end[0])
        dt_text_add(line, "; stops and saves before %s", summary->end);
}

static void print_weights(struct dt_text *line, const struct dt_summary *summary)
{
    dt_text_add(line, "%s", summary->engine->weights);
}

static void print_frozen(struct dt_text *line, const struct dt_summary *summary)
{
    char text[128];
    dt_freeze_describe(text, sizeof text, summary->engine->graph,
                       summary->engine->config->optim.unfreeze_epoch);
    dt_text_add(line, "%s", text);
}

static void print_start(struct dt_text *line, const struct dt_summary *summary)
{
    dt_text_add(line, "%s, ready after %.1f s", summary->start, summary->seconds);
}

void dt_summary_print(const struct dt_summary *summary)
{
    static const struct {
        const char *label;
        void (*print)(struct dt_text *line, const struct dt_summary *summary);
    } rows[] = {
        {"model", print_model},     {"device", print_device},
        {"data", print_data},       {"schedule", print_schedule},
        {"stages", print_stages},   {"optimizer", print_optimizer},
        {"memory", print_memory},   {"checkpoints", print_checkpoints},
        {"watchdog", print_limits}, {"weights", print_weights},
        {"frozen", print_frozen},   {"start", print_start},
    };
    for (size_t i = 0; i < DT_COUNT(rows); i++) {
        char text[DT_WEIGHTS_TEXT];
        struct dt_text line = dt_text_in(text, sizeof text);
        rows[i].print(&line, summary);
        if (line.used > 0)
            dt_log(DT_LOG_INFO, "%-12s %s", rows[i].label, text);
    }
}

/* --- --dry-run: the figures of the run --- */

static void print_rate(const struct dt_engine *engine, const char *what, int64_t step, FILE *out)
{
    fprintf(out, "  step %9" PRId64 "  epoch %8.3f  %.6g  (%s)\n", step,
            dt_schedule_epochs(&engine->schedule, step), dt_schedule_lr(&engine->schedule, step),
            what);
}

/* Prints nothing for a step at or after the last one. */
static void print_early(const struct dt_engine *engine, const char *what, int64_t step, FILE *out)
{
    if (step < engine->last_step - 1)
        print_rate(engine, what, step, out);
}

static void print_rates(const struct dt_engine *engine, FILE *out)
{
    const struct dt_schedule *schedule = &engine->schedule;
    int64_t warmup = schedule->warmup_steps;
    char text[DT_SCHEDULE_TEXT];
    dt_schedule_describe(text, sizeof text, schedule);
    fprintf(out, "learning rate %s\n", text);
    print_rate(engine, "first", 0, out);
    if (warmup > 1)
        print_early(engine, "last of the warm-up", warmup - 1, out);
    for (int i = 1; i < schedule->n_parts; i++)
        print_early(engine, "stage", schedule->parts[i].step, out);
    const struct dt_config_schedule *config = schedule->config;
    if (config->kind == DT_SCHEDULE_STEP || config->kind == DT_SCHEDULE_PIECEWISE)
        for (int i = 0; i < config->n_milestones; i++)
            print_early(engine, "milestone", schedule->milestones[i], out);
    else if (config->kind != DT_SCHEDULE_CONSTANT)
        print_early(engine, "halfway", (warmup + schedule->total_steps) / 2, out);
    print_rate(engine, "last", engine->last_step - 1, out);
}

/* A paper's table of the recipe lists these next to optimizer and schedule. */
static void print_regularisation(const struct dt_config *c, FILE *out)
{
    const struct dt_model_options model = dt_config_model_options(c, 1);
    const struct {
        const char *name;
        double value;
    } rows[] = {
        {"dropout", model.dropout},
        {"stochastic depth", model.stochastic_depth},
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

void dt_summary_print_dry(const struct dt_engine *engine, const struct dt_sets *sets, FILE *out)
{
    char device[256], frozen[128], classes[512], optimizer[256], sizes[DT_SIZES_TEXT],
        batch[DT_BATCH_TEXT];
    struct dt_text text = dt_text_in(classes, sizeof classes);
    struct dt_text optimizer_text = dt_text_in(optimizer, sizeof optimizer);
    add_classes(&text, sets);
    const int size = engine->config->model.image_size;
    fprintf(out, "%s, images of %s, ", engine->model->name,
            dt_sets_sizes(sets, engine->stage.image_size, sizes));
    if (engine->stage.image_size != size)
        fprintf(out, "evaluated at %d x %d, ", size, size);
    fprintf(out, "%s\n", classes);
    dt_engine_describe_batch(batch, engine);
    fprintf(out, "global batch %s\n", batch);
    engine->backend->describe(engine->device, device, sizeof device);
    fprintf(out, "device %s\n", device);
    add_optimizer(&optimizer_text, engine->config);
    fprintf(out, "optimizer %s\n", optimizer);
    print_regularisation(engine->config, out);
    if (engine->weights[0])
        fprintf(out, "weights: %s\n", engine->weights);
    dt_freeze_describe(frozen, sizeof frozen, engine->graph, engine->config->optim.unfreeze_epoch);
    if (frozen[0])
        fprintf(out, "frozen: %s\n", frozen);
    if (sets->train_set) {
        char left_out[128];
        text = dt_text_in(left_out, sizeof left_out);
        add_left_out(&text, engine, sets);
        fprintf(out,
                "%u training images, %" PRId64 " step%s per epoch, %" PRId64 " step%s in all%s\n",
                dt_dataset_size(sets->train_set), engine->stage.steps_per_epoch,
                DT_S(engine->stage.steps_per_epoch), engine->last_step, DT_S(engine->last_step),
                left_out);
        for (int i = 0; engine->config->train.n_stages > 0 && i < engine->schedule.n_parts; i++) {
            char stage[256];
            text = dt_text_in(stage, sizeof stage);
            add_stage(&text, engine, sets, i);
            fprintf(out, "stage %s\n", stage);
        }
        print_rates(engine, out);
    } else {
        fprintf(out, "steps per epoch, learning rates and classes: unknown, since data.train %s\n",
                engine->config->data.train[0] ? "could not be read" : "is not set");
    }
    dt_plan_print_memory(engine->plan, out);
}

/* --- The first event of a run --- */

/* Each node's name and how many ranks it has, in the order of their first ranks. */
static void put_hosts(struct dt_jsonw *w, const struct dt_comm *comm)
{
    const int n = dt_comm_size(comm);
    dt_jsonw_begin(w, NULL, '{');
    for (int r = 0; r < n; r++) {
        int n_ranks = 0, first = n;
        for (int other = n; other-- > 0;)
            if (strcmp(dt_comm_host(comm, other), dt_comm_host(comm, r)) == 0) {
                first = other;
                n_ranks++;
            }
        if (first == r)
            dt_jsonw_integer(w, dt_comm_host(comm, r), n_ranks);
    }
    dt_jsonw_close(w, '}');
}

/* The libraries of the device and of the gradient sums. */
static void put_libraries(struct dt_jsonw *w, const struct dt_engine *engine, const char *device)
{
    char text[256], cuda[128];
    dt_jsonw_begin(w, NULL, '[');
    if (engine->backend == &dt_backend_cpu) {
        dt_jsonw_string(w, NULL, device);
    } else {
        dt_devices_libraries(cuda, sizeof cuda);
        snprintf(text, sizeof text, "CUDA %s", cuda);
        dt_jsonw_string(w, NULL, text);
    }
    for (enum dt_plane plane = DT_PLANE_MPI; plane <= engine->plane; plane++) {
        dt_comm_describe_plane(plane, text, sizeof text);
        dt_jsonw_string(w, NULL, text);
    }
    dt_jsonw_close(w, ']');
}

/* Tells where epochs are in steps: pieces, within each of which all epochs have as many steps. Of
 * steps of other lengths only the mean is known. */
static void put_stages(struct dt_jsonw *w, const struct dt_schedule *schedule)
{
    const struct dt_schedule_part *parts = schedule->parts;
    const int64_t from = schedule->resumed;
    const double epochs = dt_schedule_epochs(schedule, from);
    dt_jsonw_begin(w, NULL, '[');
    if (from > 0)
        dt_jsonw_add(w, "{epoch: %d, step: %d, steps_per_epoch: %g}", 0, 0, (double)from / epochs);
    for (int i = (int)(dt_schedule_part(schedule, from) - parts); i < schedule->n_parts; i++) {
        const bool is_before = parts[i].step < from;
        dt_jsonw_add(w,
                     "{epoch: %g, step: %" PRId64 ", steps_per_epoch: %" PRId64
                     ", image_size: %d, global_batch_size: %d}",
                     is_before ? epochs : (double)parts[i].epoch, is_before ? from : parts[i].step,
                     parts[i].steps_per_epoch, parts[i].stage.image_size, parts[i].stage.batch);
    }
    dt_jsonw_close(w, ']');
}

static dt_status send_start(const struct dt_engine *engine, const struct dt_sets *sets,
                            const char *config_json, int64_t start_step)
{
    char device[256];
    struct dt_jsonw names = {0}, libraries = {0}, stages = {0};
    engine->backend->describe(engine->device, device, sizeof device);
    put_hosts(&names, engine->ranks.comm);
    put_libraries(&libraries, engine, device);
    put_stages(&stages, &engine->schedule);
    dt_status status = dt_jsonw_end(&names);
    if (status == DT_OK)
        status = dt_jsonw_end(&libraries);
    if (status == DT_OK)
        status = dt_jsonw_end(&stages);
    const struct dt_field fields[] = {
        DT_JSONV("config", config_json),
        DT_INT("ranks", engine->ranks.n_ranks),
        DT_TEXT("device", device),
        DT_INT("global_batch_size", engine->stage.split.images),
        DT_INT("batch_size_per_rank", engine->stage.split.images / engine->ranks.n_ranks),
        DT_INT("micro_batch_size", dt_split_max(&engine->stage.split)),
        DT_INT("passes", engine->stage.split.n_passes),
        DT_NUM("lr", dt_schedule_peak(&engine->schedule, start_step)),
        DT_INT("steps_per_epoch", engine->stage.steps_per_epoch),
        DT_INT("epochs", engine->config->train.epochs),
        DT_INT("parameters", dt_engine_parameters(engine)),
        DT_INT("train_images", dt_dataset_size(sets->train_set)),
        DT_INT("val_images", sets->val_set ? dt_dataset_size(sets->val_set) : 0),
        DT_INT("start_step", start_step),
        DT_TEXT("version", dt_version),
        DT_TEXT("build", dt_build_id()),
        DT_JSONV("libraries", libraries.text),
        DT_JSONV("hosts", names.text),
        DT_JSONV("stages", stages.text),
        DT_TEXT("weights", engine->weights),
    };
    if (status == DT_OK)
        dt_events_emit(engine->events, "run_start", fields,
                       (int)DT_COUNT(fields) - !engine->weights[0]);
    dt_jsonw_reset(&names);
    dt_jsonw_reset(&libraries);
    dt_jsonw_reset(&stages);
    return status;
}

dt_status dt_announce_start(struct dt_engine *engine, struct dt_sets *sets, const char *config_json,
                            int64_t start_step)
{
    return dt_comm_agree(engine->ranks.comm, engine->ranks.rank == 0
                                                 ? send_start(engine, sets, config_json, start_step)
                                                 : DT_OK);
}
