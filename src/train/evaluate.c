/* Evaluation: the validation set once, every image counted exactly once on any number of ranks (the
 * loader sees to it), and the sub-command `dtrain eval`. */
#include <math.h>
#include <stdio.h>

#include "dtrain/json.h"
#include "dtrain/train.h"
#include "train/session.h"

static dt_status run_batches(struct dt_session *s)
{
    int64_t n_images = dt_dataset_size(s->val_set), n_done = 0;
    DT_TRY(dt_loader_start(s->val, 0, 0));
    for (;;) {
        const struct dt_batch *batch;
        DT_TRY(dt_loader_next(s->val, &batch));
        if (!batch)
            return DT_OK;
        DT_TRY(dt_session_eval_pass(s, batch));
        n_done += (int64_t)s->n_ranks * s->config->train.eval_batch;
        dt_report_progress(s->report, "evaluation", n_done < n_images ? n_done : n_images,
                           n_images);
    }
}

dt_status dt_session_evaluate(struct dt_session *s, struct dt_eval_result *result)
{
    struct dt_counters counters;
    uint64_t n_bad, unused;
    /* Nothing is exchanged between batches, so a rank that fails among them fails here. */
    DT_TRY(dt_session_agree(s, run_batches(s)));
    DT_TRY(s->backend->download(s->device, &counters));
    dt_loader_bad_positions(s->val, &n_bad, &unused);
    double sums[] = {counters.loss, (double)counters.n, (double)counters.top1,
                     (double)counters.top5, (double)n_bad};
    DT_TRY(dt_comm_sum_f64(s->comm, sums, 5));
    DT_TRY(dt_session_check_bad(s, s->val, sums[4]));
    *result = (struct dt_eval_result){
        .n_images = (int64_t)sums[1],
        .loss = sums[0] / sums[1],
        .top1 = 100 * sums[2] / sums[1],
        .top5 = 100 * sums[3] / sums[1],
    };
    return DT_OK;
}

static dt_status load_weights(struct dt_session *s, const char *weights)
{
    char path[DT_PATH_MAX];
    if (s->rank != 0)
        return DT_OK;
    DT_TRY(dt_weights_find(path, weights));
    return dt_weights_load(s->plan, path, s->model->head, false);
}

/* Six digits: beyond them the order of summation over ranks shows. */
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
    dt_jsonw_number(&w, "loss", rounded(result->loss));
    dt_jsonw_number(&w, "top1", rounded(result->top1));
    dt_jsonw_number(&w, "top5", rounded(result->top5));
    dt_jsonw_close(&w, '}');
    dt_status status = dt_jsonw_end(&w);
    if (status == DT_OK && (printf("%s\n", w.text) < 0 || fflush(stdout) != 0))
        status = DT_ERROR(DT_ERR_IO, "cannot write the result to standard output");
    dt_jsonw_reset(&w);
    return status;
}

static dt_status evaluate(struct dt_session *s, const char *weights)
{
    struct dt_eval_result result;
    struct dt_session_needs needs = {.eval = true};
    struct dt_report_options report = {.dir = NULL};
    DT_TRY(dt_session_agree(s, s->rank == 0 ? dt_report_open(&s->report, &report) : DT_OK));
    DT_TRY(dt_session_open(s, &needs));
    DT_TRY(dt_session_agree(s, load_weights(s, weights)));
    DT_TRY(dt_plan_broadcast(s->plan));
    DT_TRY(dt_session_evaluate(s, &result));
    return dt_session_agree(s, s->rank == 0 ? print_result(&result) : DT_OK);
}

dt_status dt_evaluate(struct dt_comm *comm, const struct dt_config *config, const char *weights,
                      int *origin)
{
    struct dt_session s;
    dt_session_init(&s, comm, config);
    dt_status status = evaluate(&s, weights);
    *origin = s.origin;
    dt_session_close(&s, status);
    return status;
}
