// Softmax cross entropy with label smoothing, its gradient, and the counters: one block per row,
// then one block that adds the rows' results in a fixed order. Exponentials in fp32, sums in
// double. With mixed labels a row has a second label and the share of the first one. Class weights
// are factors on the target; without them every formula yields the same bits as with weights of 1.
#include "kernels/device.cuh"

enum { ROW_THREADS = 128, TOTAL_THREADS = 256 };

// Reduction within a block: one element per thread, the result in element 0.
struct row_shared {
    float max[ROW_THREADS];
    double exp[ROW_THREADS], logit[ROW_THREADS], weight[ROW_THREADS];
    int rank[ROW_THREADS];
    float label_logit, label2_logit;
};

// Without mixed labels, label2 equals label and share is 1.
struct target {
    int label, label2;
    float share;
};

template <typename T> struct loss_row {
    T *diff; // may be NULL
    const T *logits;
    const float *weights; // of the classes; may be NULL
    int classes, cp;
    float smoothing;
    struct target target;
};

static __device__ inline struct target target_of(const struct dt_loss_batch &b, int i)
{
    const int label = b.labels[i];
    if (!b.labels2)
        return {label, label, 1};
    return {label, b.labels2[i], b.mix_shares[i]};
}

static __device__ inline float weight_of(const float *weights, int label)
{
    return weights ? weights[label] : 1;
}

static __device__ inline bool is_class(int label, int classes)
{
    return label >= 0 && label < classes;
}

template <typename T>
static __device__ inline struct loss_row<T> row_of(const struct dt_loss_batch &b, T *diff, int i) {
    const size_t first = (size_t)i * b.cp;
    const T *logits = static_cast<const T *>(b.logits) + first;
    return {diff ? diff + first : NULL,
            logits,
            b.class_weights,
            b.classes,
            b.cp,
            b.smoothing,
            target_of(b, i)};
}

// Largest logit (ignoring NaN, which the sums reveal), and those of the labels.
template <typename T>
static __device__ inline void find_max(struct row_shared &s, const struct loss_row<T> &row)
{
    const int t = threadIdx.x;
    float max = -INFINITY, v[DT_CHANNEL_PACK];
    for (int first = t * DT_CHANNEL_PACK; first < row.classes;
         first += ROW_THREADS * DT_CHANNEL_PACK) {
        dt_load8(v, row.logits + first);
        for (int k = 0; k < DT_CHANNEL_PACK && first + k < row.classes; k++) {
            max = fmaxf(max, v[k]);
            if (first + k == row.target.label)
                s.label_logit = v[k];
            if (first + k == row.target.label2)
                s.label2_logit = v[k];
        }
    }
    s.max[t] = max;
    for (int distance = ROW_THREADS / 2; distance > 0; distance /= 2) {
        __syncthreads();
        if (t < distance)
            s.max[t] = fmaxf(s.max[t], s.max[t + distance]);
    }
    __syncthreads();
}

// Sums of exp(logit - max), of weight * (logit - max) and of weight; rank: how many classes beat
// the label's, that is, are larger, or equal with a smaller index, or NaN (so a diverged network
// scores zero).
template <typename T>
static __device__ inline void add_classes(struct row_shared &s, const struct loss_row<T> &row)
{
    const int t = threadIdx.x;
    const float max = s.max[0], label_logit = s.label_logit;
    double sum_exp = 0, sum = 0, sum_weight = 0;
    float v[DT_CHANNEL_PACK];
    int rank = 0;
    for (int first = t * DT_CHANNEL_PACK; first < row.classes;
         first += ROW_THREADS * DT_CHANNEL_PACK) {
        dt_load8(v, row.logits + first);
        for (int k = 0; k < DT_CHANNEL_PACK && first + k < row.classes; k++) {
            const bool loses =
                v[k] < label_logit || (v[k] == label_logit && first + k >= row.target.label);
            rank += !loses;
            sum_exp += (double)expf(v[k] - max);
            const double weight = (double)weight_of(row.weights, first + k);
            sum += weight * (double)(v[k] - max);
            sum_weight += weight;
        }
    }
    s.exp[t] = sum_exp;
    s.logit[t] = sum;
    s.weight[t] = sum_weight;
    s.rank[t] = rank;
    for (int distance = ROW_THREADS / 2; distance > 0; distance /= 2) {
        __syncthreads();
        if (t < distance) {
            s.exp[t] += s.exp[t + distance];
            s.logit[t] += s.logit[t + distance];
            s.weight[t] += s.weight[t + distance];
            s.rank[t] += s.rank[t + distance];
        }
    }
    __syncthreads();
}

// The weights of the two labels in the target, and of the target as a whole before and after
// smoothing.
struct target_weights {
    float first, second;
    double onehot, smoothed;
};

template <typename T>
static __device__ inline struct target_weights target_weights_of(const struct row_shared &s,
                                                                 const struct loss_row<T> &row)
{
    const float first = row.target.share * weight_of(row.weights, row.target.label);
    const float second = (1 - row.target.share) * weight_of(row.weights, row.target.label2);
    const double onehot = (double)(first + second), mean = s.weight[0] / row.classes;
    return {first, second, onehot, onehot + (double)row.smoothing * (mean - onehot)};
}

// diff_scale * (weight of the target * softmax - target); zero in the padding.
template <typename T>
static __device__ inline void store_diff(const struct row_shared &s, const struct loss_row<T> &row,
                                         float diff_scale)
{
    const struct target_weights w = target_weights_of(s, row);
    const float scale = diff_scale * (float)w.smoothed / (float)s.exp[0], max = s.max[0];
    const float uniform = diff_scale * row.smoothing / (float)row.classes;
    const float share = (1 - row.smoothing) * w.first;
    const float share2 = (1 - row.smoothing) * w.second;
    float v[DT_CHANNEL_PACK];
    for (int first = threadIdx.x * DT_CHANNEL_PACK; first < row.cp;
         first += ROW_THREADS * DT_CHANNEL_PACK) {
        dt_load8(v, row.logits + first);
        for (int k = 0; k < DT_CHANNEL_PACK; k++) {
            const int c = first + k;
            v[k] = c < row.classes
                       ? fmaf(expf(v[k] - max), scale, -uniform * weight_of(row.weights, c))
                       : 0;
            if (c == row.target.label)
                v[k] -= diff_scale * share;
            if (c == row.target.label2)
                v[k] -= diff_scale * share2;
        }
        dt_store8(row.diff + first, v);
    }
}

template <typename T> static __device__ inline void store_no_diff(const struct loss_row<T> &row)
{
    const float zero[DT_CHANNEL_PACK] = {0};
    for (int first = threadIdx.x * DT_CHANNEL_PACK; first < row.cp;
         first += ROW_THREADS * DT_CHANNEL_PACK)
        dt_store8(row.diff + first, zero);
}

template <typename T>
static __device__ inline double loss_of(const struct row_shared &s, const struct loss_row<T> &row)
{
    const struct target_weights w = target_weights_of(s, row);
    const double a = (double)row.smoothing;
    const double at_labels = (double)w.first * (double)(s.label_logit - s.max[0]) +
                             (double)w.second * (double)(s.label2_logit - s.max[0]);
    return w.smoothed * log(s.exp[0]) - (1 - a) * at_labels - a * s.logit[0] / row.classes;
}

// Reads the logits once from memory (again from the caches), writes the gradient and 16 bytes.
template <typename T>
static __global__ void loss_rows_kernel(struct dt_loss_row *rows, T *diff,
                                        struct dt_loss_batch batch,
                                        const struct dt_step_values *step,
                                        const struct dt_scale_state *scale)
{
    __shared__ struct row_shared s;
    const int i = blockIdx.x;
    const struct loss_row<T> row = row_of(batch, diff, i);
    const bool counted = is_class(row.target.label, row.classes) &&
                         is_class(row.target.label2, row.classes); // the same in all threads

    if (counted) {
        find_max(s, row);
        add_classes(s, row);
        if (row.diff)
            store_diff(s, row, step->diff_scale * scale->scale);
    } else if (row.diff) {
        store_no_diff(row);
    }
    if (threadIdx.x == 0) {
        rows[i].loss = counted ? loss_of(s, row) : 0;
        rows[i].rank = counted ? s.rank[0] : 0;
        rows[i].counted = counted;
    }
}

struct totals {
    double loss[TOTAL_THREADS], weight[TOTAL_THREADS];
    int n[TOTAL_THREADS], finite[TOTAL_THREADS], top1[TOTAL_THREADS], top5[TOTAL_THREADS];
    int bad[TOTAL_THREADS]; // first row whose label is not a class
};

static __device__ inline void add_pair(struct totals &s, int to, int from)
{
    s.loss[to] += s.loss[from];
    s.weight[to] += s.weight[from];
    s.n[to] += s.n[from];
    s.finite[to] += s.finite[from];
    s.top1[to] += s.top1[from];
    s.top5[to] += s.top5[from];
    s.bad[to] = min(s.bad[to], s.bad[from]);
}

// Reads 20 to 24 bytes per row.
static __global__ void loss_totals_kernel(struct dt_step_counters *counters,
                                          const struct dt_loss_row *rows,
                                          struct dt_loss_batch batch)
{
    __shared__ struct totals s;
    const int n = batch.n;
    const int t = threadIdx.x;
    double loss = 0, weight = 0;
    int counted = 0, finite = 0, top1 = 0, top5 = 0, bad = n;
    for (int i = t; i < n; i += TOTAL_THREADS) {
        const struct dt_loss_row row = rows[i];
        const bool is_finite = row.counted && isfinite(row.loss);
        loss += is_finite ? dt_exact(row.loss) : 0;
        if (is_finite)
            weight += batch.labels2
                          ? 1
                          : dt_exact((double)weight_of(batch.class_weights, batch.labels[i]));
        finite += is_finite;
        counted += row.counted;
        top1 += row.counted && row.rank < 1;
        top5 += row.counted && row.rank < 5;
        if (!row.counted && batch.labels[i] >= 0)
            bad = min(bad, i);
    }
    s.loss[t] = loss;
    s.weight[t] = weight;
    s.n[t] = counted;
    s.finite[t] = finite;
    s.top1[t] = top1;
    s.top5[t] = top5;
    s.bad[t] = bad;
    for (int distance = TOTAL_THREADS / 2; distance > 0; distance /= 2) {
        __syncthreads();
        if (t < distance)
            add_pair(s, t, t + distance);
    }
    if (t > 0)
        return;
    counters->loss += s.loss[0];
    counters->weight += s.weight[0];
    counters->n += s.n[0];
    counters->n_finite += s.finite[0];
    counters->top1 += s.top1[0];
    counters->top5 += s.top5[0];
    if (s.bad[0] < n && !counters->classes) {
        const struct target target = target_of(batch, s.bad[0]);
        counters->bad_label = is_class(target.label, batch.classes) ? target.label2 : target.label;
        counters->classes = batch.classes;
    }
}

cudaError_t dt_kernel_softmax_xent(cudaStream_t stream, enum dt_dtype type, void *diff,
                                   struct dt_step_counters *counters, struct dt_loss_row *rows,
                                   const struct dt_loss_batch *batch,
                                   const struct dt_step_values *step,
                                   const struct dt_scale_state *scale)
{
    const struct dt_geometry one_each = {(unsigned)batch->n, 1, ROW_THREADS, 1};
    const struct dt_geometry one_block = {1, 1, TOTAL_THREADS, 1};
    cudaError_t error = DT_BY_TYPE(
        type, (dt_launch(loss_rows_kernel<T>, one_each, stream, rows, diff, *batch, step, scale)));
    if (error != cudaSuccess)
        return error;
    return dt_launch(loss_totals_kernel, one_block, stream, counters, rows, *batch);
}
