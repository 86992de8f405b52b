/* Softmax cross entropy with label smoothing, its gradient, and the counters.
 *
 * Rows are independent and computed in parallel; their results are added up in row order, so the
 * sums do not depend on the number of threads. As in PyTorch, loss = (1 - s) * CE + s * mean over
 * classes of -log p, that is, cross entropy against the target (1 - s) * onehot + s / n_classes.
 * With mixed labels (mixup, CutMix) onehot is the sum of those of two labels, weighted by their
 * shares. Class weights w multiply that target: as in PyTorch's CrossEntropyLoss(weight=w), class c
 * contributes -w[c] * target[c] * log p[c]. */
#include <math.h>
#include <string.h>

#include "cpu/cpu_internal.h"

struct row_result {
    double loss;
    int rank; /* number of classes that beat the label's */
};

/* Without mixed labels, label2 equals label and share is 1. */
struct target {
    int label, label2;
    float share;
};

struct batch {
    const float *logits;
    const int32_t *labels, *labels2;
    const float *mix_shares;    /* NULL, like labels2, if labels are not mixed */
    const float *class_weights; /* NULL: 1 */
    double mean_weight;
    int n, n_classes;
    float smoothing, diff_scale;
};

static dt_status prepare_softmax_xent(struct dt_exec *exec)
{
    size_t n = (size_t)exec->graph->tensor[exec->node->src[0]].dim[0];
    DT_TRY(dt_cpu_port_add_plain(exec));
    exec->work_offset = dt_cpu_reserve(exec, n * sizeof(struct row_result));
    return DT_OK;
}

static float weight_of(const struct batch *b, int label)
{
    return b->class_weights ? b->class_weights[label] : 1;
}

static struct batch batch_of(const struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const int *dim = exec->graph->tensor[node->src[0]].dim;
    struct batch b = {
        .logits = dt_cpu_src(exec, DT_XENT_LOGITS),
        .labels = dt_cpu_src(exec, DT_XENT_LABELS),
        .labels2 = dt_cpu_src(exec, DT_XENT_LABELS2),
        .mix_shares = dt_cpu_src(exec, DT_XENT_MIX_SHARE),
        .class_weights = dt_cpu_src(exec, DT_XENT_CLASS_WEIGHTS),
        .n = dim[0],
        .n_classes = dim[1],
        .smoothing = node->attr.xent.smoothing,
        .diff_scale = node->dst[0] >= 0 ? exec->dev->scalars.diff_scale : 0,
    };
    for (int c = 0; c < b.n_classes; c++)
        b.mean_weight += (double)weight_of(&b, c);
    b.mean_weight /= b.n_classes; /* without weights exactly 1 */
    return b;
}

static struct target target_of(const struct batch *b, int i)
{
    if (!b->labels2)
        return (struct target){b->labels[i], b->labels[i], 1};
    return (struct target){b->labels[i], b->labels2[i], b->mix_shares[i]};
}

/* A class beats the label's if its logit is larger, or equal with a smaller index; a NaN logit
 * beats everything, so a diverged network scores zero. */
static int rank_of(const float *logits, int n_classes, int label)
{
    int rank = 0;
    for (int c = 0; c < n_classes; c++) {
        bool loses = logits[c] < logits[label] || (logits[c] == logits[label] && c >= label);
        rank += !loses;
    }
    return rank;
}

static double row_loss(float *diff, const float *logits, const struct batch *b, struct target t)
{
    const int n_classes = b->n_classes;
    const float weight = t.share * weight_of(b, t.label);
    const float weight2 = (1 - t.share) * weight_of(b, t.label2);
    const double s = (double)b->smoothing, at_onehot = (double)(weight + weight2);
    float max = logits[0];
    double sum_exp = 0, sum = 0;

    for (int c = 1; c < n_classes; c++)
        max = logits[c] > max ? logits[c] : max;
    for (int c = 0; c < n_classes; c++) {
        float e = expf(logits[c] - max);
        if (diff)
            diff[c] = e;
        sum_exp += (double)e;
        sum += (double)weight_of(b, c) * (double)(logits[c] - max);
    }
    if (diff) {
        float all = (float)(at_onehot + s * (b->mean_weight - at_onehot));
        float scale = b->diff_scale * all / (float)sum_exp;
        float uniform = b->diff_scale * b->smoothing / (float)n_classes;
        for (int c = 0; c < n_classes; c++)
            diff[c] = diff[c] * scale - uniform * weight_of(b, c);
        diff[t.label] -= b->diff_scale * ((1 - b->smoothing) * weight);
        diff[t.label2] -= b->diff_scale * ((1 - b->smoothing) * weight2);
    }
    double log_sum = log(sum_exp);
    double at_labels = (double)weight * (double)(logits[t.label] - max) +
                       (double)weight2 * (double)(logits[t.label2] - max);
    return (1 - s) * (at_onehot * log_sum - at_labels) +
           s * (b->mean_weight * log_sum - sum / n_classes);
}

static dt_status run_softmax_xent(struct dt_exec *exec)
{
    const struct batch b = batch_of(exec);
    float *diff = dt_cpu_dst(exec, 0);
    struct row_result *result = exec->work;

    for (int i = 0; i < b.n; i++) {
        struct target t = target_of(&b, i);
        int label = t.label < b.n_classes ? t.label2 : t.label;
        if (t.label >= 0 && (label < 0 || label >= b.n_classes))
            DT_FAIL(DT_ERR_DATA,
                    "image %d of the batch has label %d, but model.num_classes is %d; check "
                    "data.label_offset",
                    i, label, b.n_classes);
    }
#pragma omp parallel for schedule(static)
    for (int i = 0; i < b.n; i++) {
        size_t first = (size_t)i * (size_t)b.n_classes;
        float *diff_row = diff ? diff + first : NULL;
        if (b.labels[i] >= 0) {
            result[i].loss = row_loss(diff_row, b.logits + first, &b, target_of(&b, i));
            result[i].rank = rank_of(b.logits + first, b.n_classes, b.labels[i]);
        } else if (diff) {
            memset(diff_row, 0, (size_t)b.n_classes * sizeof(float));
        }
    }
    struct dt_counters *counters = &exec->dev->counters;
    for (int i = 0; i < b.n; i++) {
        if (b.labels[i] < 0)
            continue;
        if (isfinite(result[i].loss)) {
            counters->loss += dt_cpu_exact(result[i].loss);
            counters->weight += b.labels2 ? 1 : dt_cpu_exact((double)weight_of(&b, b.labels[i]));
            counters->n_finite++;
        }
        counters->n++;
        counters->top1 += result[i].rank < 1;
        counters->top5 += result[i].rank < 5;
    }
    return DT_OK;
}

DT_CPU_OP(softmax_xent, prepare_softmax_xent, run_softmax_xent, false);
