/* Evaluation: the validation set once, every image counted exactly once on any number of ranks (the
 * loader sees to it), and the sub-command `dtrain eval`. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "checkpoint/weights.h"
#include "data/classes.h"
#include "dtrain/train.h"
#include "train/session.h"
#include "train/stop.h"

static dt_status run_batch(struct dt_session *s)
{
    const struct dt_batch *batch;
    DT_TRY(dt_loader_next(s->val, &batch));
    if (!batch)
        DT_FAIL(DT_ERR_INTERNAL, "the validation set ended too early");
    return dt_session_eval_pass(s, batch);
}

/* The ranks do not communicate between batches, so a rank that fails skips its remaining batches
 * until the next collective call: at the end, or when they check for a stop. */
static dt_status run_batches(struct dt_session *s, struct dt_stop *stop, const char **reason)
{
    int64_t n_images = dt_dataset_size(s->val_set);
    int64_t per_batch = (int64_t)s->n_ranks * s->config->eval.batch_size_per_rank;
    int64_t n_batches = (int64_t)dt_loader_batches(s->val);
    struct dt_due due = {0};
    dt_status status = dt_loader_start(s->val, 0, 0);
    for (int64_t i = 1; i <= n_batches && !due.stop; i++) {
        if (status == DT_OK)
            status = run_batch(s);
        dt_pulse_beat(&dt_pulse_main);
        dt_report_progress(s->report, "evaluation",
                           i * per_batch < n_images ? i * per_batch : n_images, n_images);
        if (!stop || i < stop->next_step || i == n_batches)
            continue;
        DT_TRY(dt_comm_agree(s->comm, status));
        DT_TRY(dt_stop_check(stop, s->comm, i, &due));
    }
    *reason = due.stop;
    return dt_comm_agree(s->comm, status);
}

static dt_status evaluate(struct dt_session *s, struct dt_eval_result *result,
                          const struct dt_stop *stop)
{
    struct dt_counters counters;
    struct dt_stop batches;
    uint64_t n_bad, unused;
    if (stop)
        dt_stop_begin_batches(&batches, stop);
    DT_TRY(dt_plan_broadcast_stats(s->plan));
    DT_TRY(run_batches(s, stop ? &batches : NULL, &result->stop));
    DT_TRY(s->backend->download(s->device, &counters));
    if (result->stop)
        return DT_OK;
    dt_loader_bad_positions(s->val, &n_bad, &unused);
    double sums[] = {counters.loss,         (double)counters.n, (double)counters.top1,
                     (double)counters.top5, (double)n_bad,      (double)counters.n_finite};
    DT_TRY(dt_comm_sum_f64(s->comm, sums, 6));
    DT_TRY(dt_session_check_bad(s->val, sums[4]));
    result->n_images = (int64_t)sums[1];
    for (int m = 0; m < DT_N_METRICS; m++)
        result->value[m] = NAN;
    result->value[DT_METRIC_LOSS] = sums[0] / sums[5];
    result->value[DT_METRIC_TOP1] = 100 * sums[2] / sums[1];
    result->value[DT_METRIC_TOP5] = 100 * sums[3] / sums[1];
    return DT_OK;
}

dt_status dt_session_evaluate(struct dt_session *s, struct dt_eval_result *result,
                              const struct dt_stop *stop)
{
    enum dt_section before = dt_pulse_enter(&dt_pulse_main, DT_SECTION_EVAL);
    dt_fault_at_section(DT_SECTION_EVAL);
    dt_status status = evaluate(s, result, stop);
    dt_pulse_enter(&dt_pulse_main, before);
    return status;
}

/* The model's classes are those of the weights; all ranks get them from rank 0. Collective. */
static dt_status take_classes(struct dt_session *s, char *path, const char *weights)
{
    dt_status status = DT_OK;
    char *text = NULL;
    if (s->rank == 0)
        status = dt_weights_find(path, weights);
    if (s->rank == 0 && status == DT_OK)
        status = dt_weights_classes(&text, path);
    int64_t bytes = text ? (int64_t)strlen(text) : 0;
    DT_TRY_OUT(dt_comm_agree(s->comm, status));
    DT_TRY_OUT(dt_comm_bcast(s->comm, &bytes, sizeof bytes, 0));
    if (s->rank != 0)
        status = DT_NEW(text, (size_t)bytes + 1);
    DT_TRY_OUT(dt_comm_agree(s->comm, status));
    DT_TRY_OUT(dt_comm_bcast(s->comm, text, (size_t)bytes, 0));
    DT_TRY_OUT(
        dt_comm_agree(s->comm, bytes ? dt_classes_parse(&s->classes, text, weights) : DT_OK));
out:
    free(text);
    return status;
}

/* Six digits: the digits after them depend on the order of summation over ranks. */
static double rounded(double value)
{
    return round(value * 1e6) / 1e6;
}

static dt_status print_result(const struct dt_eval_result *result)
{
    struct dt_jsonw w;
    dt_jsonw_init(&w, false);
    dt_jsonw_begin(&w, NULL, '{');
    dt_jsonw_integer(&w, "images", result->n_images);
    for (enum dt_metric m = 0; m < DT_N_METRICS; m++)
        if (!isnan(result->value[m]))
            dt_jsonw_number(&w, dt_metric_name(m), rounded(result->value[m]));
    dt_jsonw_close(&w, '}');
    dt_status status = dt_jsonw_end(&w);
    if (status == DT_OK && (printf("%s\n", w.text) < 0 || fflush(stdout) != 0))
        status = DT_ERROR(DT_ERR_IO, "cannot write the result to standard output");
    dt_jsonw_reset(&w);
    return status;
}

static dt_status load_and_evaluate(struct dt_session *s, const char *weights)
{
    struct dt_eval_result result;
    struct dt_session_needs needs = {.eval = true};
    struct dt_report_options report = {.dir = NULL};
    char path[DT_PATH_MAX];
    dt_status status = DT_OK;
    DT_TRY(dt_comm_agree(s->comm, s->rank == 0 ? dt_report_open(&s->report, &report) : DT_OK));
    DT_TRY(take_classes(s, path, weights));
    DT_TRY(dt_session_open(s, &needs));
    if (s->rank == 0)
        status = dt_weights_load(s->plan, path, s->model->head, false);
    DT_TRY(dt_comm_agree(s->comm, status));
    DT_TRY(dt_plan_broadcast(s->plan));
    DT_TRY(dt_session_evaluate(s, &result, NULL));
    return dt_comm_agree(s->comm, s->rank == 0 ? print_result(&result) : DT_OK);
}

dt_status dt_evaluate(struct dt_comm *comm, const struct dt_config *config, const char *weights)
{
    struct dt_session s;
    dt_session_init(&s, comm, config);
    dt_status status = load_and_evaluate(&s, weights);
    dt_session_close(&s, status);
    return status;
}
