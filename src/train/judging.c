/* The logits of each batch go through eval.tta to the judge of this rank; sums at the end. */
#include "train/judging.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

bool dt_judging_is_needed(const struct dt_config *config)
{
    bool needed = config->eval.tta != DT_TTA_NONE;
    for (enum dt_metric m = DT_METRIC_TOP5 + 1; m < DT_N_METRICS; m++)
        needed = needed ||
                 (dt_metric_networks(m) == DT_OF_CLASSIFIERS && dt_config_has_metric(config, m));
    return needed;
}

/* --- Creation --- */

static dt_status name_classes(struct dt_judging *j, const struct dt_sets *sets)
{
    char number[16];
    DT_TRY(DT_NEW(j->names, (size_t)sets->num_classes));
    for (int c = 0; c < sets->num_classes; c++) {
        const char *name = dt_dataset_label_text(sets->val_set, c, number);
        DT_TRY(dt_names_add(&j->texts, name, strlen(name)));
    }
    for (int c = 0; c < sets->num_classes; c++)
        j->names[c] = dt_names_get(&j->texts, (size_t)c);
    return DT_OK;
}

static dt_status allocate(struct dt_judging *j, const struct dt_sets *sets)
{
    const size_t batch = (size_t)sets->config->eval.batch_size_per_rank,
                 n = (size_t)sets->num_classes;
    const size_t size = (size_t)sets->config->model.image_size;
    DT_TRY(dt_judge_create(&j->judge, sets->num_classes, dt_loader_batches(sets->val) * batch));
    DT_TRY(DT_NEW(j->logits, batch * n));
    if (n == 2)
        DT_TRY(DT_NEW(j->scores, (size_t)sets->ranks.n_ranks * j->judge->max_rows));
    if (sets->config->eval.tta == DT_TTA_NONE)
        return DT_OK;
    DT_TRY(DT_NEW(j->others, batch * n));
    return DT_NEW(j->mirrored, batch * size * size * 3);
}

dt_status dt_judging_create(struct dt_judging **judging, const struct dt_sets *sets)
{
    dt_status status = DT_OK;
    struct dt_judging *made = NULL;
    *judging = NULL;
    DT_TRY(DT_NEW(made, 1));
    DT_TRY_OUT(allocate(made, sets));
    DT_TRY_OUT(name_classes(made, sets));
    *judging = made;
    return DT_OK;
out:
    dt_judging_destroy(made);
    return status;
}

void dt_judging_destroy(struct dt_judging *judging)
{
    if (!judging)
        return;
    dt_judge_destroy(judging->judge);
    dt_names_reset(&judging->texts);
    free(judging->names);
    free(judging->scores);
    free(judging->logits);
    free(judging->others);
    free(judging->mirrored);
    free(judging);
}

/* --- Batches --- */

static dt_status get_logits(struct dt_engine *engine, float *out)
{
    return dt_plan_get(engine->plan, DT_ARENA_WORK, engine->graph->program[DT_EVAL].logits, out);
}

static void mirror(uint8_t *out, const uint8_t *pixels, size_t n_rows, size_t width)
{
    for (size_t y = 0; y < n_rows; y++, pixels += 3 * width)
        for (size_t x = width; x-- > 0; out += 3)
            memcpy(out, pixels + 3 * x, 3);
}

static dt_status add_mirrored(struct dt_evaluator *evaluator, const struct dt_batch *batch)
{
    const struct dt_judging *j = evaluator->judging;
    const size_t n = (size_t)evaluator->sets->config->eval.batch_size_per_rank,
                 c = (size_t)evaluator->sets->num_classes;
    const size_t size = (size_t)evaluator->sets->config->model.image_size;
    struct dt_batch mirrored = *batch;
    mirror(j->mirrored, batch->pixels, n * size, size);
    mirrored.pixels = j->mirrored;
    DT_TRY(dt_engine_eval(evaluator->engine, evaluator->sets, &mirrored));
    DT_TRY(get_logits(evaluator->engine, j->others));
    for (size_t row = 0; row < n; row++)
        dt_judge_average(j->logits + row * c, j->others + row * c, evaluator->sets->num_classes);
    return DT_OK;
}

dt_status dt_judging_add(struct dt_evaluator *evaluator, const struct dt_batch *batch)
{
    const struct dt_judging *j = evaluator->judging;
    DT_TRY(get_logits(evaluator->engine, j->logits));
    if (evaluator->sets->config->eval.tta == DT_TTA_FLIP)
        DT_TRY(add_mirrored(evaluator, batch));
    for (int row = 0; row < evaluator->sets->config->eval.batch_size_per_rank; row++) {
        float *logits = j->logits + (size_t)row * (size_t)evaluator->sets->num_classes;
        dt_judge_add(j->judge, logits, batch->labels[row]);
        if (batch->crops[row].w <= 0)
            logits[0] = NAN;
    }
    return DT_OK;
}

/* --- The end --- */

dt_status dt_judging_sum(struct dt_evaluator *evaluator, double value[DT_N_METRICS])
{
    struct dt_judging *j = evaluator->judging;
    const struct dt_judge *judge = j->judge;
    const int n = evaluator->sets->num_classes;
    DT_TRY(dt_comm_sum_i64(evaluator->sets->ranks.comm, judge->confusion, n * (n + 1)));
    if (j->scores) {
        DT_TRY(dt_comm_gather(evaluator->sets->ranks.comm, j->scores, judge->scores,
                              judge->n_rows * sizeof *judge->scores));
        j->ranking =
            dt_judge_rank(j->scores, (size_t)evaluator->sets->ranks.n_ranks * judge->n_rows);
    }
    dt_judge_values(value, judge, &j->ranking);
    return DT_OK;
}
