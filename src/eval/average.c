/* dtrain average: the mean of saved weights, and batch norm statistics that fit it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/pulse.h"
#include "checkpoint/weights.h"
#include "dtrain/eval.h"
#include "eval/evaluator.h"

enum { CHUNK = 8192 }; /* values that the ranks exchange at a time */

/* The running statistics that training updates, in the order of the batch norms: mean, variance. */
struct stats {
    struct dt_engine *engine;
    struct dt_sets *sets;
    struct dt_average *average; /* rank 0: where they belong */
    double *sums;
    float *values; /* of one tensor */
    size_t count;
    int64_t n_batches; /* of all ranks */
};

typedef dt_status stat_function(struct stats *stats, int tensor, double momentum, double *sums);

/* Without `work` it only counts the values. */
static dt_status for_all(struct stats *stats, stat_function *work)
{
    const struct dt_graph *g = stats->engine->graph;
    stats->count = 0;
    for (int n = 0; n < g->n_nodes; n++) {
        const struct dt_node *node = &g->node[n];
        const bool is_ours = node->op == DT_OP_BN && dt_node_has_statistics(node);
        for (int i = DT_BN_RUNNING_MEAN; i <= DT_BN_RUNNING_VAR && is_ours; i++) {
            const int t = node->src[i];
            if (work)
                DT_TRY(work(stats, t, (double)node->attr.bn.momentum, stats->sums + stats->count));
            stats->count += dt_tensor_elements(&g->tensor[t]);
        }
    }
    return DT_OK;
}

/* After a pass from zero the running statistics are those of the batch times the momentum; of
 * slices that share them, which run at the same time, the first has them. */
static dt_status clear(struct stats *stats, int tensor, double momentum, double *sums)
{
    (void)momentum, (void)sums;
    memset(stats->values, 0,
           dt_tensor_elements(&stats->engine->graph->tensor[tensor]) * sizeof *stats->values);
    return dt_plan_set(stats->engine->plan, DT_ARENA_STATS, tensor, stats->values);
}

static dt_status add(struct stats *stats, int tensor, double momentum, double *sums)
{
    DT_TRY(dt_plan_get(stats->engine->plan, DT_ARENA_STATS, tensor, stats->values));
    for (size_t i = 0; i < dt_tensor_elements(&stats->engine->graph->tensor[tensor]); i++)
        sums[i] += stats->engine->plan->n_lanes * (double)stats->values[i] / momentum;
    return DT_OK;
}

/* Over n_images, or with 0 over an epoch. */
static dt_status run_batches(struct stats *stats, int64_t n_images)
{
    struct dt_engine *engine = stats->engine;
    const struct dt_stage *stage = &engine->stage;
    int64_t n_steps = (n_images + stage->split.images - 1) / stage->split.images;
    if (n_images == 0 || n_steps > stage->steps_per_epoch)
        n_steps = stage->steps_per_epoch;
    DT_TRY(dt_loader_start(stats->sets->train, 0, 0));
    for (int64_t step = 0; step < n_steps; step++) {
        struct dt_scalars scalars = dt_engine_scalars(engine, step);
        for (int pass = 0; pass < stage->split.n_passes; pass++) {
            const struct dt_batch *batch;
            DT_TRY(for_all(stats, clear));
            DT_TRY(dt_loader_next(stats->sets->train, &batch));
            if (!batch)
                DT_FAIL(DT_ERR_INTERNAL, "the training set ended too early");
            DT_TRY(dt_engine_train(engine, stats->sets, batch, &scalars, pass));
            if (engine->plan->at_lane == 0) /* else it has run nothing yet */
                DT_TRY(for_all(stats, add));
        }
        dt_pulse_beat(&dt_pulse_main);
        dt_events_progress(engine->events, "batch norm statistics",
                           (step + 1) * stage->split.images, n_steps * stage->split.images);
    }
    stats->n_batches = n_steps * stage->split.n_parts;
    return DT_OK;
}

/* Adds in the order of the ranks, so that every run has the same bits. */
static dt_status add_ranks(struct stats *stats)
{
    const int n_ranks = stats->engine->ranks.n_ranks;
    double *all = NULL;
    dt_status status = DT_OK;
    DT_TRY(dt_comm_agree(stats->engine->ranks.comm, DT_NEW(all, (size_t)n_ranks * CHUNK)));
    for (size_t at = 0; at < stats->count; at += CHUNK) {
        double *sums = stats->sums + at;
        DT_TRY_OUT(dt_comm_gather(stats->engine->ranks.comm, all, sums, CHUNK * sizeof *sums));
        memset(sums, 0, CHUNK * sizeof *sums);
        for (int r = 0; r < n_ranks; r++)
            for (size_t i = 0; i < CHUNK; i++)
                sums[i] += all[(size_t)r * CHUNK + i];
    }
out:
    free(all);
    return status;
}

/* --- Into the file --- */

static dt_status put(struct stats *stats, int tensor, double momentum, double *sums)
{
    const struct dt_average *average = stats->average;
    const struct dt_tensor *t = &stats->engine->graph->tensor[tensor];
    (void)momentum;
    for (size_t i = 0; i < average->n_tensors; i++) {
        float *out = (float *)(void *)(average->data + average->tensors[i].offset);
        if (strcmp(average->tensors[i].name, t->name) != 0)
            continue;
        for (size_t k = 0; k < dt_tensor_elements(t); k++)
            out[k] = (float)(sums[k] / (double)stats->n_batches);
    }
    return DT_OK;
}

/* The integers are PyTorch's num_batches_tracked. */
static dt_status put_all(struct stats *stats)
{
    const struct dt_average *average = stats->average;
    for (size_t i = 0; i < average->n_tensors; i++)
        if (average->tensors[i].dtype == DT_ST_I64)
            memcpy(average->data + average->tensors[i].offset, &stats->n_batches,
                   sizeof stats->n_batches);
    return for_all(stats, put);
}

static dt_status recompute(struct dt_engine *engine, struct dt_sets *sets,
                           struct dt_average *average, const struct dt_average_options *options,
                           const char *weights)
{
    const struct dt_engine_options needs = {.train = true, .forward_only = true};
    const struct dt_events_options report = {.config = NULL};
    struct stats stats = {.engine = engine, .sets = sets, .average = average};
    struct dt_comm *comm = engine->ranks.comm;
    const bool first = engine->ranks.rank == 0;
    dt_status status = DT_OK;
    DT_TRY(dt_comm_agree(comm, first ? dt_events_open(&engine->events, &report) : DT_OK));
    DT_TRY(dt_engine_open_weights(engine, sets, &needs, weights));
    DT_TRY_OUT(for_all(&stats, NULL));
    if (stats.count == 0)
        DT_TRY_OUT(
            DT_ERROR(DT_ERR_USAGE, "--recompute-bn: %s has no batch norm", engine->model->name));
    status = DT_NEW(stats.sums, (stats.count + CHUNK - 1) / CHUNK * CHUNK);
    if (status == DT_OK)
        status = DT_NEW(stats.values, stats.count);
    DT_TRY_OUT(dt_comm_agree(comm, status));
    DT_TRY_OUT(dt_comm_agree(comm, run_batches(&stats, options->n_images)));
    DT_TRY_OUT(add_ranks(&stats));
    if (first)
        status = put_all(&stats);
out:
    free(stats.sums);
    free(stats.values);
    return status;
}

/* The weights are loaded from the new file, which is then written again. */
static dt_status recompute_in(struct dt_comm *comm, const struct dt_config *config,
                              struct dt_average *average, const struct dt_average_options *options,
                              const struct dt_new_file *file)
{
    struct dt_sets sets;
    struct dt_engine engine;
    dt_sets_init(&sets, comm, config, dt_task_of(config));
    dt_engine_init(&engine, &sets);
    dt_engine_enter(&engine, config->train.epochs - 1); /* images and batch of the last stage */
    dt_status status = recompute(&engine, &sets, average, options, file->temporary);
    dt_engine_close(&engine, &sets, status);
    DT_TRY(status);
    return dt_comm_agree(comm, file->fd >= 0 ? dt_average_write(average, file) : DT_OK);
}

/* The file is begun first: long work would be lost if it could not be written. */
static dt_status begin(struct dt_average *average, struct dt_new_file *file,
                       const struct dt_average_options *options)
{
    DT_TRY(dt_file_begin(file, options->out));
    DT_TRY(dt_average_read(average, options->paths, options->n_paths));
    return dt_average_write(average, file);
}

dt_status dt_average(struct dt_comm *comm, const struct dt_config *config,
                     const struct dt_average_options *options)
{
    struct dt_average average = {0};
    struct dt_new_file file = {.fd = -1};
    const bool first = dt_comm_rank(comm) == 0;
    dt_status status = dt_comm_agree(comm, first ? begin(&average, &file, options) : DT_OK);
    if (status == DT_OK && options->recompute_bn)
        status = recompute_in(comm, config, &average, options, &file);
    const dt_status ended = dt_file_end(&file, status);
    status = status == DT_OK ? dt_comm_agree(comm, ended) : status;
    if (status == DT_OK && first)
        printf("%s: mean of %d, %zu tensors%s\n", options->out, options->n_paths, average.n_tensors,
               options->recompute_bn ? ", new batch norm statistics" : "");
    dt_average_reset(&average);
    return status;
}
