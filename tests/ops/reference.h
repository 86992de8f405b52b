/* Plain-loop fp64 reference of every op, over the same graph a backend runs.
 *
 * Values are logical (N C H W, O I H W); pixels are N,H,W,C as the graph says. Most ops are
 * functions of one output element, so that a large tensor can be checked on a sample of its
 * elements: elements that were not computed are NaN. What a forward op keeps for its backward is
 * the reference's own business: max_pool keeps the index of the maximum, bn the mask of its ReLU.
 * `margin` is the smallest distance of a value to a kink (ReLU at 0, two equal maxima): where it is
 * tiny, fp32 and fp64 may rightly disagree about a gradient. */
#ifndef DTRAIN_TESTS_REFERENCE_H
#define DTRAIN_TESTS_REFERENCE_H

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "dtrain/backend.h"

struct ref {
    const struct dt_graph *g;
    double **value;      /* one array per tensor used by a node */
    size_t max_elements; /* of conv and linear tensors; larger ones are sampled; 0 = no limit */
    double diff_scale;
    struct dt_counters counters;
    double margin;
};

typedef double ref_element_fn(struct ref *r, const struct dt_node *node, int which, size_t i);
typedef void ref_whole_fn(struct ref *r, const struct dt_node *node);

static size_t ref_count(const struct dt_graph *g, const struct dt_node *node, int which)
{
    const struct dt_tensor *tensor = &g->tensor[node->dst[which]];
    return dt_tensor_elements(tensor->dtype == DT_U8 ? &g->tensor[node->dst[0]] : tensor);
}

static const double *ref_src(const struct ref *r, const struct dt_node *node, int which)
{
    return r->value[node->src[which]];
}

static const int *ref_dim(const struct ref *r, int tensor)
{
    return r->g->tensor[tensor].dim;
}

static void ref_decode(int at[4], const int dim[4], size_t i)
{
    for (int d = 3; d >= 0; d--) {
        at[d] = (int)(i % (size_t)dim[d]);
        i /= (size_t)dim[d];
    }
}

static size_t ref_index(const int dim[4], int n, int c, int h, int w)
{
    return (((size_t)n * (size_t)dim[1] + (size_t)c) * (size_t)dim[2] + (size_t)h) *
               (size_t)dim[3] +
           (size_t)w;
}

static double ref_relu(struct ref *r, bool relu, double value)
{
    if (!relu)
        return value;
    r->margin = fmin(r->margin, fabs(value));
    return value > 0 ? value : 0;
}

static double ref_ingest(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    (void)which;
    int at[4];
    const int *dim = ref_dim(r, node->dst[0]);
    ref_decode(at, dim, i);
    size_t pixel =
        (((size_t)at[0] * (size_t)dim[2] + (size_t)at[2]) * (size_t)dim[3] + (size_t)at[3]) * 3 +
        (size_t)at[1];
    return (ref_src(r, node, 0)[pixel] / 255.0 - (double)node->attr.ingest.mean[at[1]]) /
           (double)node->attr.ingest.std[at[1]];
}

static double ref_conv(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    (void)which;
    const double *src = ref_src(r, node, 0), *weights = ref_src(r, node, 1);
    const int *sd = ref_dim(r, node->src[0]), *wd = ref_dim(r, node->src[1]);
    int stride = node->attr.conv.stride, pad = node->attr.conv.pad, at[4];
    ref_decode(at, ref_dim(r, node->dst[0]), i);
    double sum = node->n_src == 3 ? ref_src(r, node, 2)[at[1]] : 0;
    for (int c = 0; c < wd[1]; c++)
        for (int y = 0; y < wd[2]; y++)
            for (int x = 0; x < wd[3]; x++) {
                int h = at[2] * stride - pad + y, w = at[3] * stride - pad + x;
                if (h >= 0 && h < sd[2] && w >= 0 && w < sd[3])
                    sum +=
                        src[ref_index(sd, at[0], c, h, w)] * weights[ref_index(wd, at[1], c, y, x)];
            }
    return ref_relu(r, node->relu, sum);
}

static double ref_conv_bwd_data(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    (void)which;
    const double *diff_dst = ref_src(r, node, 0), *weights = ref_src(r, node, 1);
    const int *dd = ref_dim(r, node->src[0]), *wd = ref_dim(r, node->src[1]);
    int stride = node->attr.conv.stride, pad = node->attr.conv.pad, at[4];
    ref_decode(at, ref_dim(r, node->dst[0]), i);
    double sum = 0;
    for (int y = 0; y < wd[2]; y++)
        for (int x = 0; x < wd[3]; x++) {
            int h = at[2] + pad - y, w = at[3] + pad - x;
            if (h < 0 || w < 0 || h % stride != 0 || w % stride != 0)
                continue;
            h /= stride;
            w /= stride;
            if (h >= dd[2] || w >= dd[3])
                continue;
            for (int k = 0; k < wd[0]; k++)
                sum += diff_dst[ref_index(dd, at[0], k, h, w)] *
                       weights[ref_index(wd, k, at[1], y, x)];
        }
    return sum;
}

static double ref_conv_bwd_weights(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    const double *src = ref_src(r, node, 0), *diff_dst = ref_src(r, node, 1);
    const int *sd = ref_dim(r, node->src[0]), *dd = ref_dim(r, node->src[1]);
    int stride = node->attr.conv.stride, pad = node->attr.conv.pad, at[4];
    ref_decode(at, ref_dim(r, node->dst[which]), i);
    double sum = 0;
    for (int n = 0; n < dd[0]; n++)
        for (int y = 0; y < dd[2]; y++)
            for (int x = 0; x < dd[3]; x++) {
                double diff = diff_dst[ref_index(dd, n, at[0], y, x)];
                int h = y * stride - pad + at[2], w = x * stride - pad + at[3];
                if (which == 1)
                    sum += diff;
                else if (h >= 0 && h < sd[2] && w >= 0 && w < sd[3])
                    sum += diff * src[ref_index(sd, n, at[1], h, w)];
            }
    return sum;
}

static double ref_relu_op(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    (void)which;
    return ref_relu(r, true, ref_src(r, node, 0)[i]);
}

static double ref_relu_bwd(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    (void)which;
    double diff = ref_src(r, node, 0)[i] + (node->n_src == 3 ? ref_src(r, node, 2)[i] : 0);
    return ref_src(r, node, 1)[i] > 0 ? diff : 0;
}

static double ref_add(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    (void)which;
    return ref_relu(r, node->relu, ref_src(r, node, 0)[i] + ref_src(r, node, 1)[i]);
}

/* dst[0]: the maximum; dst[1]: its index in src. */
static double ref_max_pool(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    const double *src = ref_src(r, node, 0);
    const int *sd = ref_dim(r, node->src[0]);
    int stride = node->attr.pool.stride, pad = node->attr.pool.pad, at[4];
    ref_decode(at, ref_dim(r, node->dst[0]), i);
    double best = -INFINITY, second = -INFINITY;
    size_t best_index = 0;
    for (int y = 0; y < node->attr.pool.kernel; y++)
        for (int x = 0; x < node->attr.pool.kernel; x++) {
            int h = at[2] * stride - pad + y, w = at[3] * stride - pad + x;
            if (h < 0 || h >= sd[2] || w < 0 || w >= sd[3])
                continue;
            size_t index = ref_index(sd, at[0], at[1], h, w);
            if (src[index] > best) {
                second = best;
                best = src[index];
                best_index = index;
            } else {
                second = fmax(second, src[index]);
            }
        }
    /* Zeros behind a ReLU tie often and harmlessly: the ReLU's gradient there is zero. */
    if (best != 0 || second != 0)
        r->margin = fmin(r->margin, best - second);
    return which == 0 ? best : (double)best_index;
}

static double ref_max_pool_bwd(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    (void)which;
    const double *diff_dst = ref_src(r, node, 0), *index = ref_src(r, node, 1);
    const int *dd = ref_dim(r, node->src[0]);
    int stride = node->attr.pool.stride, pad = node->attr.pool.pad, at[4];
    ref_decode(at, ref_dim(r, node->dst[0]), i);
    double sum = 0;
    for (int y = 0; y < dd[2]; y++) {
        int dy = at[2] + pad - y * stride;
        for (int x = 0; dy >= 0 && dy < node->attr.pool.kernel && x < dd[3]; x++) {
            size_t j = ref_index(dd, at[0], at[1], y, x);
            if (index[j] == (double)i)
                sum += diff_dst[j];
        }
    }
    return sum;
}

/* Adaptive window of output o: [floor(o * in / out), ceil((o + 1) * in / out)). */
static int ref_window_first(int o, int in, int out)
{
    return o * in / out;
}

static int ref_window_last(int o, int in, int out)
{
    return ((o + 1) * in + out - 1) / out - 1;
}

static double ref_avg_pool(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    (void)which;
    const double *src = ref_src(r, node, 0);
    const int *sd = ref_dim(r, node->src[0]), *dd = ref_dim(r, node->dst[0]);
    int at[4], n = 0;
    ref_decode(at, dd, i);
    double sum = 0;
    for (int h = ref_window_first(at[2], sd[2], dd[2]); h <= ref_window_last(at[2], sd[2], dd[2]);
         h++)
        for (int w = ref_window_first(at[3], sd[3], dd[3]);
             w <= ref_window_last(at[3], sd[3], dd[3]); w++, n++)
            sum += src[ref_index(sd, at[0], at[1], h, w)];
    return sum / n;
}

static double ref_avg_pool_bwd(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    (void)which;
    const double *diff_dst = ref_src(r, node, 0);
    const int *dd = ref_dim(r, node->src[0]), *sd = ref_dim(r, node->dst[0]);
    int at[4];
    ref_decode(at, sd, i);
    double sum = 0;
    for (int y = 0; y < dd[2]; y++)
        for (int x = 0; x < dd[3]; x++) {
            int h = ref_window_first(y, sd[2], dd[2]), h_last = ref_window_last(y, sd[2], dd[2]);
            int w = ref_window_first(x, sd[3], dd[3]), w_last = ref_window_last(x, sd[3], dd[3]);
            if (at[2] >= h && at[2] <= h_last && at[3] >= w && at[3] <= w_last)
                sum += diff_dst[ref_index(dd, at[0], at[1], y, x)] /
                       ((double)(h_last - h + 1) * (w_last - w + 1));
        }
    return sum;
}

static double ref_linear(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    (void)which;
    size_t n_out = (size_t)ref_dim(r, node->src[1])[0];
    size_t n_in = (size_t)ref_dim(r, node->src[1])[1];
    const double *src = ref_src(r, node, 0) + i / n_out * n_in;
    const double *weights = ref_src(r, node, 1) + i % n_out * n_in;
    double sum = ref_src(r, node, 2)[i % n_out];
    for (size_t f = 0; f < n_in; f++)
        sum += src[f] * weights[f];
    return sum;
}

static double ref_linear_bwd_data(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    (void)which;
    size_t n_out = (size_t)ref_dim(r, node->src[1])[0];
    size_t n_in = (size_t)ref_dim(r, node->src[1])[1];
    const double *diff_dst = ref_src(r, node, 0) + i / n_in * n_out;
    const double *weights = ref_src(r, node, 1) + i % n_in;
    double sum = 0;
    for (size_t o = 0; o < n_out; o++)
        sum += diff_dst[o] * weights[o * n_in];
    return sum;
}

static double ref_linear_bwd_weights(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    const double *src = ref_src(r, node, 0), *diff_dst = ref_src(r, node, 1);
    size_t n_out = (size_t)ref_dim(r, node->dst[0])[0];
    size_t n_in = (size_t)ref_dim(r, node->dst[0])[1];
    size_t n_images = (size_t)ref_dim(r, node->src[1])[0];
    double sum = 0;
    for (size_t n = 0; n < n_images; n++)
        sum += which == 1 ? diff_dst[n * n_out + i]
                          : diff_dst[n * n_out + i / n_in] * src[n * n_in + i % n_in];
    return sum;
}

/* Only p = 0: the mask of a backend is checked by its statistics. */
static double ref_dropout(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    (void)which;
    return node->attr.dropout.p == 0 ? ref_src(r, node, 0)[i] : NAN;
}

static void ref_bn_statistics(const struct ref *r, const struct dt_node *node, int c, double *mean,
                              double *variance)
{
    const int *dim = ref_dim(r, node->src[0]);
    size_t plane = (size_t)dim[2] * (size_t)dim[3];
    double n = (double)dim[0] * (double)plane;
    *mean = 0;
    *variance = 0;
    for (int b = 0; b < dim[0]; b++)
        for (size_t i = 0; i < plane; i++)
            *mean += ref_src(r, node, 0)[ref_index(dim, b, c, 0, 0) + i] / n;
    for (int b = 0; b < dim[0]; b++)
        for (size_t i = 0; i < plane; i++) {
            double d = ref_src(r, node, 0)[ref_index(dim, b, c, 0, 0) + i] - *mean;
            *variance += d * d / n;
        }
}

static void ref_bn(struct ref *r, const struct dt_node *node)
{
    const int *dim = ref_dim(r, node->src[0]);
    size_t plane = (size_t)dim[2] * (size_t)dim[3];
    double n = (double)dim[0] * (double)plane, momentum = (double)node->attr.bn.momentum;
    const double *scale = ref_src(r, node, 1), *shift = ref_src(r, node, 2);
    double *running_mean = r->value[node->src[3]], *running_var = r->value[node->src[4]];
    for (int c = 0; c < dim[1]; c++) {
        double mean = running_mean[c], variance = running_var[c];
        if (node->n_dst > 1) {
            ref_bn_statistics(r, node, c, &mean, &variance);
            r->value[node->dst[1]][c] = mean;
            r->value[node->dst[2]][c] = variance;
            running_mean[c] += momentum * (mean - running_mean[c]);
            running_var[c] += momentum * (variance * n / (n - 1) - running_var[c]);
        }
        double factor = scale[c] / sqrt(variance + (double)node->attr.bn.eps);
        for (int b = 0; b < dim[0]; b++)
            for (size_t i = 0; i < plane; i++) {
                size_t at = ref_index(dim, b, c, 0, 0) + i;
                double y = (ref_src(r, node, 0)[at] - mean) * factor + shift[c];
                if (node->residual)
                    y += ref_src(r, node, node->n_src - 1)[at];
                r->value[node->dst[0]][at] = ref_relu(r, node->relu, y);
                if (node->n_dst == 4)
                    r->value[node->dst[3]][at] = !node->relu || y > 0;
            }
    }
}

/* diff_dst [+ diff_dst2], where the ReLU was active. */
static double ref_bn_diff(const struct ref *r, const struct dt_node *node, size_t at)
{
    int n_src = node->relu ? 7 : 6;
    double diff = ref_src(r, node, 1)[at] + (node->n_src > n_src ? ref_src(r, node, n_src)[at] : 0);
    return node->relu ? diff * ref_src(r, node, 6)[at] : diff;
}

static void ref_bn_bwd(struct ref *r, const struct dt_node *node)
{
    const int *dim = ref_dim(r, node->src[0]);
    size_t plane = (size_t)dim[2] * (size_t)dim[3];
    double n = (double)dim[0] * (double)plane;
    const double *src = ref_src(r, node, 0);
    for (int c = 0; c < dim[1]; c++) {
        double mean = ref_src(r, node, 4)[c];
        double inverse = 1 / sqrt(ref_src(r, node, 5)[c] + (double)node->attr.bn.eps);
        double diff_scale = 0, diff_shift = 0;
        for (int b = 0; b < dim[0]; b++)
            for (size_t i = 0; i < plane; i++) {
                size_t at = ref_index(dim, b, c, 0, 0) + i;
                double diff = ref_bn_diff(r, node, at);
                diff_shift += diff;
                diff_scale += diff * (src[at] - mean) * inverse;
            }
        r->value[node->dst[1]][c] = diff_scale;
        r->value[node->dst[2]][c] = diff_shift;
        for (int b = 0; b < dim[0]; b++)
            for (size_t i = 0; i < plane; i++) {
                size_t at = ref_index(dim, b, c, 0, 0) + i;
                double diff = ref_bn_diff(r, node, at);
                double normal = (src[at] - mean) * inverse;
                r->value[node->dst[0]][at] = ref_src(r, node, 2)[c] * inverse *
                                             (diff - diff_shift / n - normal * diff_scale / n);
                if (node->n_dst == 4)
                    r->value[node->dst[3]][at] = diff;
            }
    }
}

/* Weight of the class in (1 - s) * onehot(label) + s / classes, as PyTorch's label_smoothing; with
 * mixed labels onehot is the weighted mean of two. */
static double ref_target(const struct ref *r, const struct dt_node *node, int row, int k)
{
    const int classes = ref_dim(r, node->src[0])[1];
    bool mixed = node->n_src == 4;
    double smoothing = (double)node->attr.xent.smoothing;
    double weight = mixed ? ref_src(r, node, 3)[row] : 1;
    double onehot = k == (int)ref_src(r, node, 1)[row] ? weight : 0;
    if (mixed && k == (int)ref_src(r, node, 2)[row])
        onehot += 1 - weight;
    return (1 - smoothing) * onehot + smoothing / classes;
}

static void ref_softmax_xent(struct ref *r, const struct dt_node *node)
{
    const int *dim = ref_dim(r, node->src[0]);
    for (int b = 0; b < dim[0]; b++) {
        const double *logits = ref_src(r, node, 0) + (size_t)b * (size_t)dim[1];
        int label = (int)ref_src(r, node, 1)[b], n_above = 0;
        double top = -INFINITY, sum = 0, loss = 0;
        for (int k = 0; k < dim[1]; k++)
            top = fmax(top, logits[k]);
        for (int k = 0; k < dim[1]; k++)
            sum += exp(logits[k] - top);
        for (int k = 0; k < dim[1]; k++) {
            double target = ref_target(r, node, b, k);
            double log_p = logits[k] - top - log(sum);
            loss -= target * log_p;
            n_above += label >= 0 && logits[k] > logits[label];
            if (node->n_dst == 1)
                r->value[node->dst[0]][(size_t)b * (size_t)dim[1] + (size_t)k] =
                    label < 0 ? 0 : (exp(log_p) - target) * r->diff_scale;
        }
        if (label < 0)
            continue;
        r->counters.n++;
        r->counters.n_finite++;
        r->counters.loss += loss;
        r->counters.top1 += n_above < 1;
        r->counters.top5 += n_above < 5;
    }
}

static const struct {
    ref_element_fn *element;
    ref_whole_fn *whole;
    bool sampled; /* expensive per element */
} ref_table[DT_N_OPS] = {
    [DT_OP_INGEST] = {ref_ingest, NULL, false},
    [DT_OP_CONV] = {ref_conv, NULL, true},
    [DT_OP_BN] = {NULL, ref_bn, false},
    [DT_OP_RELU] = {ref_relu_op, NULL, false},
    [DT_OP_ADD] = {ref_add, NULL, false},
    [DT_OP_MAX_POOL] = {ref_max_pool, NULL, false},
    [DT_OP_AVG_POOL] = {ref_avg_pool, NULL, false},
    [DT_OP_LINEAR] = {ref_linear, NULL, true},
    [DT_OP_DROPOUT] = {ref_dropout, NULL, false},
    [DT_OP_SOFTMAX_XENT] = {NULL, ref_softmax_xent, false},
    [DT_OP_CONV_BWD_DATA] = {ref_conv_bwd_data, NULL, true},
    [DT_OP_CONV_BWD_WEIGHTS] = {ref_conv_bwd_weights, NULL, true},
    [DT_OP_BN_BWD] = {NULL, ref_bn_bwd, false},
    [DT_OP_RELU_BWD] = {ref_relu_bwd, NULL, false},
    [DT_OP_MAX_POOL_BWD] = {ref_max_pool_bwd, NULL, false},
    [DT_OP_AVG_POOL_BWD] = {ref_avg_pool_bwd, NULL, false},
    [DT_OP_LINEAR_BWD_DATA] = {ref_linear_bwd_data, NULL, true},
    [DT_OP_LINEAR_BWD_WEIGHTS] = {ref_linear_bwd_weights, NULL, true},
    [DT_OP_DROPOUT_BWD] = {ref_dropout, NULL, false},
};

/* All 16 corners and max_elements more, spread over the tensor. */
static void ref_sample(struct ref *r, const struct dt_node *node, int which, size_t count)
{
    double *value = r->value[node->dst[which]];
    const int *dim = ref_dim(r, node->dst[which]);
    for (size_t i = 0; i < count; i++)
        value[i] = NAN;
    for (unsigned corner = 0; corner < 16; corner++) {
        size_t i = ref_index(dim, corner & 1 ? dim[0] - 1 : 0, corner & 2 ? dim[1] - 1 : 0,
                             corner & 4 ? dim[2] - 1 : 0, corner & 8 ? dim[3] - 1 : 0);
        value[i] = ref_table[node->op].element(r, node, which, i);
    }
    for (uint64_t j = 0; j < r->max_elements; j++) {
        size_t i = (size_t)((j * 2654435761u + 97) % count);
        value[i] = ref_table[node->op].element(r, node, which, i);
    }
}

static bool ref_is_read(const struct dt_graph *g, int t)
{
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->node[i].n_src; k++)
            if (g->node[i].src[k] == t)
                return true;
    return false;
}

static void ref_run(struct ref *r, const struct dt_node *node)
{
    if (ref_table[node->op].whole) {
        ref_table[node->op].whole(r, node);
        return;
    }
    for (int which = 0; which < node->n_dst; which++) {
        size_t count = ref_count(r->g, node, which);
        if (ref_table[node->op].sampled && r->max_elements && count > 2 * r->max_elements &&
            !ref_is_read(r->g, node->dst[which])) {
            ref_sample(r, node, which, count);
            continue;
        }
        for (size_t i = 0; i < count; i++)
            r->value[node->dst[which]][i] = ref_table[node->op].element(r, node, which, i);
    }
}

static void ref_close(struct ref *r)
{
    for (int t = 0; r->value && t < r->g->n_tensors; t++)
        free(r->value[t]);
    free(r->value);
    r->value = NULL;
}

static dt_status ref_alloc(struct ref *r, int tensor, size_t count)
{
    if (r->value[tensor])
        return DT_OK;
    return DT_NEW(r->value[tensor], count);
}

/* On failure ref_close is still the caller's. */
static dt_status ref_open(struct ref *r, const struct dt_graph *g, size_t max_elements)
{
    *r = (struct ref){.g = g, .max_elements = max_elements, .diff_scale = 1, .margin = INFINITY};
    DT_TRY(DT_NEW(r->value, (size_t)g->n_tensors));
    for (int i = 0; i < g->n_nodes; i++) {
        const struct dt_node *node = &g->node[i];
        for (int k = 0; k < node->n_dst; k++)
            DT_TRY(ref_alloc(r, node->dst[k], ref_count(g, node, k)));
        for (int k = 0; k < node->n_src; k++)
            DT_TRY(ref_alloc(r, node->src[k], dt_tensor_elements(&g->tensor[node->src[k]])));
    }
    return DT_OK;
}

#endif
