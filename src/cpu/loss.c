/* Softmax cross entropy with label smoothing, its gradient, and the counters.
 *
 * Rows are independent and computed in parallel; their results are added up in row order, so the
 * sums do not depend on threads. As PyTorch: loss = (1 - s) * CE + s * mean over classes of -log p,
 * that is, cross entropy against the target (1 - s) * onehot + s / n_classes. */
#include <math.h>
#include <string.h>

#include "cpu.h"

struct row_result {
    double loss;
    int rank; /* classes that beat the label's */
};

static dt_status prepare_softmax_xent(struct dt_device *dev, struct dt_exec *exec)
{
    size_t n = (size_t)exec->graph->tensor[exec->node->src[0]].dim[0];
    DT_TRY(dt_cpu_port_add_plain(dev, exec));
    exec->work_offset = dt_cpu_reserve(exec, n * sizeof(struct row_result));
    return DT_OK;
}

/* A class beats the label's if its logit is larger, or equal with a smaller index; a logit that is
 * not a number beats everything, so a diverged network scores zero. */
static int rank_of(const float *logits, int n_classes, int label)
{
    int rank = 0;
    for (int c = 0; c < n_classes; c++) {
        bool loses = logits[c] < logits[label] || (logits[c] == logits[label] && c >= label);
        rank += !loses;
    }
    return rank;
}

static double row_loss(float *diff, const float *logits, int n_classes, int label, float smoothing,
                       float diff_scale)
{
    float max = logits[0];
    double sum_exp = 0, sum = 0;

    for (int c = 1; c < n_classes; c++)
        max = logits[c] > max ? logits[c] : max;
    for (int c = 0; c < n_classes; c++) {
        float e = expf(logits[c] - max);
        if (diff)
            diff[c] = e;
        sum_exp += (double)e;
        sum += (double)(logits[c] - max);
    }
    double log_sum = log(sum_exp), s = (double)smoothing;
    if (diff) {
        float scale = diff_scale / (float)sum_exp;
        float uniform = diff_scale * smoothing / (float)n_classes;
        for (int c = 0; c < n_classes; c++)
            diff[c] = diff[c] * scale - uniform;
        diff[label] -= diff_scale * (1 - smoothing);
    }
    return (1 - s) * (log_sum - (double)(logits[label] - max)) + s * (log_sum - sum / n_classes);
}

static dt_status run_softmax_xent(struct dt_device *dev, struct dt_exec *exec,
                                  const struct dt_scalars *scalars)
{
    const struct dt_node *node = exec->node;
    const struct dt_tensor *t = &exec->graph->tensor[node->src[0]];
    int n = t->dim[0], n_classes = t->dim[1];
    const float *logits = dt_cpu_src(exec, 0);
    const int32_t *labels = dt_cpu_src(exec, 1);
    float *diff = node->n_dst > 0 ? dt_cpu_dst(exec, 0) : NULL;
    struct row_result *result = exec->work;

    for (int i = 0; i < n; i++) {
        if (labels[i] >= n_classes)
            DT_FAIL(DT_ERR_DATA,
                    "image %d of the batch has label %d, but model.num_classes is %d; check "
                    "data.label_offset",
                    i, (int)labels[i], n_classes);
    }
#pragma omp parallel for schedule(static)
    for (int i = 0; i < n; i++) {
        const float *row = logits + (size_t)i * (size_t)n_classes;
        float *diff_row = diff ? diff + (size_t)i * (size_t)n_classes : NULL;
        if (labels[i] >= 0) {
            result[i].loss = row_loss(diff_row, row, n_classes, labels[i],
                                      node->attr.xent.smoothing, diff ? scalars->diff_scale : 0);
            result[i].rank = rank_of(row, n_classes, labels[i]);
        } else if (diff) {
            memset(diff_row, 0, (size_t)n_classes * sizeof(float));
        }
    }
    for (int i = 0; i < n; i++) {
        if (labels[i] < 0)
            continue;
        if (isfinite(result[i].loss)) {
            dev->counters.loss += result[i].loss;
            dev->counters.n_finite++;
        }
        dev->counters.n++;
        dev->counters.top1 += result[i].rank < 1;
        dev->counters.top5 += result[i].rank < 5;
    }
    return DT_OK;
}

const struct dt_cpu_op dt_cpu_softmax_xent = {prepare_softmax_xent, run_softmax_xent};
