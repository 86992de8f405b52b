/* The state from which a run starts: initial weights, or a checkpoint's position and tensors. Rank
 * 0 reads, the others receive copies. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "checkpoint/weights.h"
#include "engine/parallel.h"
#include "engine/preflight.h"
#include "train/best.h"
#include "train/run.h"

enum { CLASSES_BYTES = 320 };

static struct dt_checkpoint describe_start(const struct dt_engine *engine,
                                           const struct dt_sets *sets)
{
    struct dt_checkpoint state = {
        .n_ranks = engine->ranks.n_ranks,
        .micro_batch_size = dt_split_max(&engine->stage.split),
        .n_parts = engine->stage.split.n_parts,
        .precision = (int)engine->config->train.precision,
        .num_classes = sets->num_classes,
        .image_size = engine->config->model.image_size,
        .global_batch_size = engine->stage.split.images,
        .seed = engine->config->train.seed,
        .fingerprint = dt_dataset_fingerprint(sets->train_set),
        .n_train_images = dt_dataset_size(sets->train_set),
    };
    snprintf(state.model, sizeof state.model, "%s", engine->model->name);
    dt_best_init(&state, engine->config);
    return state;
}

dt_status dt_resume_initial_weights(struct dt_engine *engine)
{
    char path[DT_PATH_MAX];
    if (engine->ranks.rank != 0 || engine->config->model.initial_checkpoint[0] == '\0')
        return DT_OK;
    DT_TRY(dt_weights_find(path, engine->config->model.initial_checkpoint));
    return dt_weights_load(engine->plan, path, engine->model, true, engine->weights);
}

static dt_status load_state(struct dt_engine *engine, const struct dt_resume *resume)
{
    if (engine->ranks.rank != 0)
        return DT_OK;
    if (!resume->found || resume->new_optimizer)
        DT_TRY(dt_plan_init_params(engine->plan, engine->config->train.seed));
    if (resume->found)
        return dt_checkpoint_load(engine->plan, resume->path, !resume->new_optimizer);
    DT_TRY(dt_resume_initial_weights(engine));
    return dt_plan_start_ema(engine->plan);
}

/* Bits depend on the instruction set, threads and libraries. Rank 0. */
static void log_device(const struct dt_resume *resume, const struct dt_engine *engine)
{
    char device[DT_DEVICE_MAX];
    struct dt_manifest saved;
    if (!dt_engine_promises_bits(engine))
        return;
    if (dt_manifest_load(&saved, resume->path) != DT_OK) {
        dt_error_clear();
        return;
    }
    dt_preflight_device(device, sizeof device, engine);
    saved.repro[strcspn(saved.repro, ";")] = '\0'; /* without the data plane */
    const char *space = strchr(saved.repro, ' ');
    const char *then = space ? space + 1 : saved.repro;
    if (strcmp(then, device) != 0)
        dt_log(DT_LOG_WARNING,
               "resuming on %s a run of %s; results agree up to rounding but are not bit-identical",
               device, then);
    dt_manifest_reset(&saved);
}

static void log_changes(const struct dt_checkpoint *saved, const struct dt_engine *engine)
{
    char passes[160] = "the same micro-batches", images[DT_SPLIT_TEXT];
    dt_split_describe(images, &engine->stage.split);
    const bool differs = saved->n_parts != engine->stage.split.n_parts;
    if (differs)
        snprintf(passes, sizeof passes,
                 "micro-batches of %s instead of %d, which changes the batch norm statistics",
                 images, saved->micro_batch_size);
    if (saved->n_ranks != engine->ranks.n_ranks && dt_split_has_slices(&engine->stage.split))
        dt_log(DT_LOG_INFO, "resuming a run of %d rank%s on %d: the same virtual ranks",
               saved->n_ranks, DT_S(saved->n_ranks), engine->ranks.n_ranks);
    else if (saved->n_ranks != engine->ranks.n_ranks)
        dt_log(DT_LOG_INFO,
               "resuming a run of %d rank%s on %d: same samples and schedule, %s; results agree "
               "up to rounding but are not bit-identical",
               saved->n_ranks, DT_S(saved->n_ranks), engine->ranks.n_ranks, passes);
    else if (differs && engine->config->train.micro_batch_size == DT_MICRO_BATCH_AUTO)
        dt_log(DT_LOG_WARNING, "train.micro_batch_size auto resumes with %s", passes);
    if (saved->precision >= 0 && saved->precision != (int)engine->config->train.precision)
        dt_log(DT_LOG_INFO,
               "resuming a run of train.precision %s with %s; results agree up to rounding but are "
               "not bit-identical",
               dt_precision_name((enum dt_precision)saved->precision),
               dt_precision_name(engine->config->train.precision));
}

/* The schedule that the saved run had; of other data it knows only how many images there were. */
static void find_course(struct dt_schedule *s, const struct dt_resume *resume,
                        const struct dt_engine *engine, bool has_same_data)
{
    const struct dt_config *saved = &resume->saved;
    struct dt_checkpoint at = resume->state;
    const uint32_t n_images[DT_MAX_CANVASES] = {(uint32_t)at.n_train_images};
    dt_schedule_init(s, saved, dt_config_batch_size(saved, at.n_ranks),
                     has_same_data ? engine->n_images : n_images);
    dt_schedule_resume(s, &at);
    s->plateau = engine->schedule.plateau;
}

/* The rate depends on the length of the run in steps, and on the batch, so it may jump. */
static void log_course(const struct dt_resume *resume, const struct dt_engine *engine,
                       const struct dt_checkpoint *state)
{
    const struct dt_checkpoint *saved = &resume->state;
    const struct dt_schedule *now = &engine->schedule;
    const int64_t step = state->step, images = state->n_train_images;
    const int then_epochs = resume->saved.train.epochs, epochs = engine->config->train.epochs;
    const bool has_same_data = saved->fingerprint == state->fingerprint;
    struct dt_schedule then;
    char changes[256];
    struct dt_text text = dt_text_in(changes, sizeof changes);
    find_course(&then, resume, engine, has_same_data);
    const int then_batch = dt_schedule_part(&then, step)->stage.batch;
    const int batch = dt_schedule_part(now, step)->stage.batch;
    if (then_epochs != epochs && dt_schedule_has_end(now->config->kind))
        dt_text_add(&text, ", train.epochs was %d and is now %d", then_epochs, epochs);
    if (then_batch != batch)
        dt_text_add(&text, ", a global batch had %d images and now has %d", then_batch, batch);
    if (!has_same_data)
        dt_text_add(&text, ", data.train had %" PRId64 " images and now has %" PRId64 "%s",
                    saved->n_train_images, images,
                    saved->n_train_images == images ? " others" : "");
    if (dt_schedule_lr(&then, step) != dt_schedule_lr(now, step) && text.used == 0)
        dt_text_add(&text, ", the learning rate follows another schedule");
    if (text.used > 0 && step > 0 && step < engine->last_step)
        dt_log(
            DT_LOG_INFO,
            "%s: the run goes on after %.4g of %d epochs; the learning rate was %.4g in the last "
            "step, goes on with %.4g and ends after step %" PRId64,
            changes + 2, dt_schedule_epochs(now, step), epochs, dt_schedule_lr(&then, step - 1),
            dt_schedule_lr(now, step), engine->last_step);
}

/* Why a resumed run goes another way than one that was never stopped; NULL if it does not. */
static const char *find_loss(const struct dt_engine *engine)
{
    const struct dt_config *config = engine->config;
    const bool has_state = config->optim.name != DT_OPTIM_SGD || config->optim.momentum > 0;
    if (engine->parallel->why_inexact)
        return engine->parallel->why_inexact;
    if (engine->ranks.sync_every > 1 && has_state && !config->train.average_states)
        return "all ranks go on with the optimizer's states of rank 0, see train.average_states";
    if (config->comm.grad_dtype == DT_GRAD_FP16 && engine->ranks.n_ranks > 1 &&
        engine->plane == DT_PLANE_MPI)
        return "the rounding errors that comm.grad_dtype fp16 carries forward are not saved";
    return NULL;
}

/* Weights and momentum are fp32 in a checkpoint, so any precision can continue from it. */
static void adopt(struct dt_checkpoint *state, const struct dt_checkpoint *saved,
                  struct dt_engine *engine)
{
    struct dt_checkpoint at = *saved;
    dt_schedule_resume(&engine->schedule, &at);
    dt_engine_find_end(engine);
    state->step = at.step;
    state->epoch = at.epoch;
    state->batch = at.batch;
    state->n_updates = saved->n_updates;
    state->n_passes = saved->n_passes;
    dt_best_adopt(state, saved);
    state->epoch_loss = saved->epoch_loss;
    state->eval_due = at.eval_due;
    state->loss_scale = saved->loss_scale;
    memcpy(state->origin, saved->origin, sizeof state->origin);
    if (find_loss(engine))
        dt_log(DT_LOG_INFO, "the resumed run will not be bit-identical: %s", find_loss(engine));
    log_changes(saved, engine);
}

/* A fixed scale comes from the configuration, not from the checkpoint. */
static dt_status load_loss_scale(struct dt_checkpoint *state, const struct dt_engine *engine)
{
    const struct dt_loss_scale saved = state->loss_scale;
    bool dynamic = engine->config->train.loss_scale == 0;
    state->loss_scale = (struct dt_loss_scale){0};
    DT_TRY(engine->backend->set_updates(engine->device, state->n_updates));
    if (!dt_engine_scales_loss(engine))
        return DT_OK;
    if (saved.scale > 0 && dynamic)
        DT_TRY(engine->backend->set_loss_scale(engine->device, &saved));
    return engine->backend->get_loss_scale(engine->device, &state->loss_scale);
}

/* "cat,dog" from a text with a newline after each name. */
static const char *list_classes(char out[CLASSES_BYTES], const char *classes)
{
    bool is_cut = snprintf(out, CLASSES_BYTES, "%s", classes) >= CLASSES_BYTES;
    snprintf(out + strlen(out) - (is_cut ? 4 : 1), 5, "%s", is_cut ? "..." : "");
    for (char *c = strchr(out, '\n'); c; c = strchr(c, '\n'))
        *c = ',';
    return out;
}

/* The same classes in another order would be learnt again, silently. */
static dt_status match_classes(const struct dt_sets *sets, const char *path)
{
    char old[CLASSES_BYTES], now[CLASSES_BYTES], *saved;
    DT_TRY(dt_checkpoint_classes(&saved, path));
    dt_status status = DT_OK;
    if (saved && sets->classes_text && strcmp(saved, sets->classes_text) != 0)
        status = DT_ERROR(DT_ERR_CONFIG,
                          "cannot resume from %s, which was trained for other classes: %s then, "
                          "%s now; use the old data or data.class_map, or another --out",
                          path, list_classes(old, saved), list_classes(now, sets->classes_text));
    free(saved);
    return status;
}

dt_status dt_resume_load(struct dt_checkpoint *state, const struct dt_resume *resume,
                         struct dt_engine *engine, struct dt_sets *sets)
{
    *state = describe_start(engine, sets);
    if (resume->found) {
        DT_TRY(dt_comm_agree(engine->ranks.comm,
                             engine->ranks.rank == 0 ? match_classes(sets, resume->path) : DT_OK));
        if (!resume->may_differ)
            DT_TRY(dt_comm_agree(engine->ranks.comm,
                                 dt_checkpoint_match(&resume->state, state, resume->path)));
        adopt(state, &resume->state, engine);
        if (engine->ranks.rank == 0)
            log_device(resume, engine);
        if (resume->new_optimizer)
            state->n_updates = 0;
    }
    if (state->plateau.factor > 0)
        engine->schedule.plateau = state->plateau.factor;
    if (resume->found)
        log_course(resume, engine, state);
    DT_TRY(dt_comm_agree(engine->ranks.comm, load_loss_scale(state, engine)));
    DT_TRY(dt_comm_agree(engine->ranks.comm, load_state(engine, resume)));
    return dt_plan_broadcast(engine->plan);
}
