/* Rank r has the r-th part of each global batch. Rank 0 takes one part after the other, so that its
 * memory does not grow with the ranks. */
#include "eval/predictions.h"

#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "eval/class_metrics.h"

enum { NAME_BYTES = 2 * DT_PATH_MAX };

struct dt_predictions {
    struct dt_predictions_options options;
    float *logits;         /* rank 0: of another rank's part of the batch */
    double *probabilities; /* of one image */
};

static void print_image(FILE *out, const struct dt_predictions *p, uint32_t id, const float *logits)
{
    const struct dt_sets *sets = p->options.sets;
    const char *const *names = p->options.names;
    const int n = sets->num_classes, prediction = dt_predict_class(logits, n);
    char file[NAME_BYTES];
    dt_dataset_name(sets->val_set, id, file, sizeof file);
    dt_softmax(p->probabilities, logits, n);
    if (p->options.top > 0)
        dt_predictions_print_top(out, dt_dataset_size(sets->val_set) > 1 ? file : NULL,
                                 p->options.top, prediction, p->probabilities, n, names);
    if (p->options.json)
        dt_predictions_put_top(p->options.json, file, p->options.top, prediction, p->probabilities,
                               n, names);
    if (p->options.top == 0)
        dt_predictions_print_row(out, file, dt_dataset_label(sets->val_set, id), prediction,
                                 p->probabilities, n, names);
}

/* The rows of a rank, of which the first is image `first`; behind the last image there are none. */
static void print_rows(FILE *out, const struct dt_predictions *p, int64_t first,
                       const float *logits)
{
    const struct dt_sets *sets = p->options.sets;
    const int64_t left = dt_dataset_size(sets->val_set) - first;
    for (int64_t row = 0; row < sets->config->eval.batch_size_per_rank && row < left; row++)
        print_image(out, p, (uint32_t)(first + row), logits + row * sets->num_classes);
}

/* Without logits the header. */
static dt_status write_rows(const struct dt_predictions *p, int64_t first, const float *logits)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (out && !logits)
        dt_predictions_print_head(out, p->options.sets->num_classes, p->options.names);
    else if (out)
        print_rows(out, p, first, logits);
    return dt_file_write_stream(p->options.fd, out, &text, &bytes, p->options.path);
}

dt_status dt_predictions_create(struct dt_predictions **predictions,
                                const struct dt_predictions_options *options)
{
    const struct dt_sets *sets = options->sets;
    const size_t rows = (size_t)sets->config->eval.batch_size_per_rank;
    dt_status status = DT_OK;
    struct dt_predictions *made = NULL;
    *predictions = NULL;
    DT_TRY(DT_NEW(made, 1));
    made->options = *options;
    if (sets->ranks.rank == 0)
        DT_TRY_OUT(DT_NEW(made->logits, rows * (size_t)sets->num_classes));
    DT_TRY_OUT(DT_NEW(made->probabilities, (size_t)sets->num_classes));
    if (sets->ranks.rank == 0 && options->top == 0)
        DT_TRY_OUT(write_rows(made, 0, NULL));
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
    const struct dt_sets *sets = p->options.sets;
    const struct dt_ranks *ranks = &sets->ranks;
    const int rows = sets->config->eval.batch_size_per_rank;
    const size_t bytes = (size_t)rows * (size_t)sets->num_classes * sizeof(float);
    dt_status status = DT_OK;
    for (int r = 0; r < ranks->n_ranks; r++) {
        float *logits = ranks->rank == 0 && r > 0 ? p->logits : p->options.logits;
        DT_TRY(dt_comm_copy(ranks->comm, logits, bytes, r, 0));
        if (ranks->rank == 0 && status == DT_OK) /* else the others still have to send */
            status = write_rows(p, (batch * ranks->n_ranks + r) * rows, logits);
    }
    return status;
}
