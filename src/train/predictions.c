/* Rank r has the r-th part of each global batch, so gathered rows are in order. */
#include "train/predictions.h"

#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "train/judging.h"

enum { NAME_BYTES = 2 * DT_PATH_MAX };

struct dt_predictions {
    const struct dt_session *session;
    struct dt_predictions_options options;
    float *logits;         /* of the batch, all ranks */
    double *probabilities; /* of one image */
};

static void print_image(FILE *out, const struct dt_predictions *p, uint32_t id, const float *logits)
{
    const struct dt_session *s = p->session;
    const char *const *names = s->evaluator.judging->names;
    const int n = s->sets.num_classes, prediction = dt_judge_predict(logits, n);
    char file[NAME_BYTES];
    dt_dataset_name(s->sets.val_set, id, file, sizeof file);
    dt_judge_softmax(p->probabilities, logits, n);
    if (p->options.top > 0)
        dt_predictions_print_top(out, dt_dataset_size(s->sets.val_set) > 1 ? file : NULL,
                                 p->options.top, prediction, p->probabilities, n, names);
    else
        dt_predictions_print_row(out, file, dt_dataset_label(s->sets.val_set, id), prediction,
                                 p->probabilities, n, names);
}

static void print_batch(FILE *out, const struct dt_predictions *p, int64_t batch)
{
    const struct dt_session *s = p->session;
    const int64_t size = (int64_t)s->ranks.n_ranks * s->config->eval.batch_size_per_rank;
    const int64_t left = dt_dataset_size(s->sets.val_set) - batch * size;
    for (int64_t row = 0; row < size && row < left; row++)
        print_image(out, p, (uint32_t)(batch * size + row), p->logits + row * s->sets.num_classes);
}

/* The header for batch -1. */
static dt_status write_batch(const struct dt_predictions *p, int64_t batch)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (out && batch < 0)
        dt_predictions_print_head(out, p->session->sets.num_classes,
                                  p->session->evaluator.judging->names);
    else if (out)
        print_batch(out, p, batch);
    return dt_file_write_stream(p->options.fd, out, &text, &bytes, p->options.path);
}

dt_status dt_predictions_create(struct dt_predictions **predictions, const struct dt_session *s,
                                const struct dt_predictions_options *options)
{
    dt_status status = DT_OK;
    struct dt_predictions *made = NULL;
    const size_t rows = (size_t)s->ranks.n_ranks * (size_t)s->config->eval.batch_size_per_rank;
    *predictions = NULL;
    DT_TRY(DT_NEW(made, 1));
    made->session = s;
    made->options = *options;
    DT_TRY_OUT(DT_NEW(made->logits, rows * (size_t)s->sets.num_classes));
    DT_TRY_OUT(DT_NEW(made->probabilities, (size_t)s->sets.num_classes));
    if (s->ranks.rank == 0 && options->top == 0)
        DT_TRY_OUT(write_batch(made, -1));
    *predictions = made;
    return DT_OK;
out:
    dt_predictions_destroy(made);
    return status;
}

void dt_predictions_destroy(struct dt_predictions *predictions)
{
    if (!predictions)
        return;
    free(predictions->logits);
    free(predictions->probabilities);
    free(predictions);
}

dt_status dt_predictions_add(struct dt_predictions *p, int64_t batch)
{
    const struct dt_session *s = p->session;
    const size_t rows = (size_t)s->config->eval.batch_size_per_rank;
    DT_TRY(dt_comm_gather(s->ranks.comm, p->logits, s->evaluator.judging->logits,
                          rows * (size_t)s->sets.num_classes * sizeof(float)));
    return s->ranks.rank == 0 ? write_batch(p, batch) : DT_OK;
}
