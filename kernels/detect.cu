// Matching of anchors with boxes, and the losses of a detector. The rules are those of
// src/cpu/match.c and detect_loss.c. Overlaps are fp32 operations in torchvision's order that the
// compiler may not contract; the loss of a box is fp64, of a logit fp32, sums are fp64.
#include "dtrain/box.h"
#include "kernels/device.cuh"

enum { SLOTS = 128 }; // boxes that a block keeps

// --- Matching ---

struct overlap_box {
    float at[4], area, best;
    int slot; // -1: none
};

static __device__ inline float area_of(const float box[4])
{
    return __fmul_rn(__fsub_rn(box[2], box[0]), __fsub_rn(box[3], box[1]));
}

static __device__ inline float iou_of(const float box[4], float area, const float anchor[4])
{
    const float width = fmaxf(__fsub_rn(fminf(box[2], anchor[2]), fmaxf(box[0], anchor[0])), 0);
    const float height = fmaxf(__fsub_rn(fminf(box[3], anchor[3]), fmaxf(box[1], anchor[1])), 0);
    const float inter = __fmul_rn(width, height);
    return __fdiv_rn(inter, __fsub_rn(__fadd_rn(area, area_of(anchor)), inter));
}

// The places of [0, n) whose anchors, low .. high at the first, may touch a box; some more do no
// harm.
static __device__ inline int2 touching(float low, float high, int stride, int n, float box_low,
                                       float box_high)
{
    const float begin = floorf((box_low - high) / (float)stride);
    const float end = ceilf((box_high - low) / (float)stride) + 1;
    return make_int2((int)fminf(fmaxf(begin, 0), (float)n), (int)fminf(fmaxf(end, 0), (float)n));
}

static __device__ inline float best_of_shape(const float box[4], float area,
                                             const struct dt_level *level, int shape)
{
    const float *cell = level->cell[shape];
    const int2 y = touching(cell[1], cell[3], level->stride[0], level->height, box[1], box[3]);
    const int2 x = touching(cell[0], cell[2], level->stride[1], level->width, box[0], box[2]);
    const int width = x.y - x.x, n = width > 0 ? width * (y.y - y.x) : 0;
    float best = 0, anchor[4];
    for (int i = threadIdx.x; i < n; i += DT_BLOCK_THREADS) {
        const int place = (y.x + i / width) * level->width + x.x + i % width;
        dt_level_anchor(anchor, level, place * DT_CELL_ANCHORS + shape);
        best = fmaxf(best, iou_of(box, area, anchor));
    }
    return best;
}

// One block per slot: the largest overlap of its box. Clears the counts for the next kernel. Reads
// 20 bytes per slot.
static __global__ void best_overlap_kernel(float *best, int *found, const struct dt_match_args args)
{
    __shared__ float fold[DT_BLOCK_THREADS];
    const int slot = blockIdx.x, t = threadIdx.x;
    float mine = 0;
    if (args.labels[slot] >= 0) {
        const float *box = args.boxes + 4 * (size_t)slot;
        for (int i = 0; i < args.n_levels * DT_CELL_ANCHORS; i++)
            mine = fmaxf(mine, best_of_shape(box, area_of(box), &args.level[i / DT_CELL_ANCHORS],
                                             i % DT_CELL_ANCHORS));
    }
    fold[t] = mine;
    for (int half = DT_BLOCK_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half)
            fold[t] = fmaxf(fold[t], fold[t + half]);
    }
    if (t == 0)
        best[slot] = fold[0];
    if (t == 0 && slot < args.n)
        found[slot] = 0;
}

static __device__ inline void anchor_of(float anchor[4], const struct dt_match_args &args, int i)
{
    int level = 0;
    while (level + 1 < args.n_levels && i >= args.level[level + 1].first)
        level++;
    dt_level_anchor(anchor, &args.level[level], i - args.level[level].first);
}

// The next SLOTS boxes of an image, one per thread.
static __device__ inline void load_boxes(struct overlap_box *shared, const float *best,
                                         const struct dt_match_args &args, int first)
{
    const int t = threadIdx.x;
    __syncthreads();
    if (t < SLOTS) {
        const bool inside = first + t < args.n_slots;
        const size_t i = (size_t)blockIdx.y * args.n_slots + (inside ? first + t : 0);
        struct overlap_box box;
        for (int k = 0; k < 4; k++)
            box.at[k] = args.boxes[4 * i + k];
        box.area = area_of(box.at);
        box.best = args.low_quality ? best[i] : -1;
        box.slot = inside && args.labels[i] >= 0 ? first + t : -1;
        shared[t] = box;
    }
    __syncthreads();
}

// One thread per anchor. Reads the boxes once per block, writes 4 bytes per anchor.
static __global__ void match_kernel(int32_t *match, int *found, const float *best,
                                    const struct dt_match_args args)
{
    __shared__ struct overlap_box boxes[SLOTS];
    const int i = blockIdx.x * DT_BLOCK_THREADS + threadIdx.x;
    float anchor[4], top = -1;
    int slot = -1;
    bool kept = false;
    anchor_of(anchor, args, i < args.n_anchors ? i : 0);
    for (int first = 0; first < args.n_slots; first += SLOTS) {
        load_boxes(boxes, best, args, first);
        for (int k = 0; k < SLOTS && first + k < args.n_slots; k++) {
            if (boxes[k].slot < 0)
                continue;
            const float iou = iou_of(boxes[k].at, boxes[k].area, anchor);
            kept |= iou == boxes[k].best;
            slot = iou > top ? boxes[k].slot : slot;
            top = fmaxf(top, iou);
        }
    }
    if (slot >= 0 && !kept)
        slot = top < args.background ? -1 : top < args.foreground ? -2 : slot;
    if (i < args.n_anchors) {
        match[(size_t)blockIdx.y * args.n_anchors + i] = slot;
        if (slot >= 0)
            atomicAdd(&found[blockIdx.y], 1);
    }
}

static __global__ void match_count_kernel(float *count, struct dt_step_counters *counters,
                                          const int *found, int n, bool global)
{
    int weight = 0;
    for (int i = 0; i < n; i++) {
        count[i] = (float)found[i];
        weight += global ? found[i] : 1;
    }
    counters->n += n;
    counters->weight += weight;
}

size_t dt_match_scratch_bytes(int n, int n_slots)
{
    return (size_t)n * (n_slots + 1) * sizeof(float);
}

cudaError_t dt_kernel_match(cudaStream_t stream, int32_t *match, float *count,
                            struct dt_step_counters *counters, void *scratch,
                            const struct dt_match_args *args)
{
    float *best = static_cast<float *>(scratch);
    int *found = reinterpret_cast<int *>(best + (size_t)args->n * args->n_slots);
    const struct dt_geometry slots = {(unsigned)(args->n * args->n_slots), 1, DT_BLOCK_THREADS, 1};
    const unsigned blocks = (args->n_anchors + DT_BLOCK_THREADS - 1) / DT_BLOCK_THREADS;
    const struct dt_geometry anchors = {blocks, (unsigned)args->n, DT_BLOCK_THREADS, 1};
    const struct dt_geometry one = {1, 1, 1, 1};
    cudaError_t error = dt_launch(best_overlap_kernel, slots, stream, best, found, *args);
    if (error == cudaSuccess)
        error = dt_launch(match_kernel, anchors, stream, match, found, best, *args);
    if (error == cudaSuccess)
        error = dt_launch(match_count_kernel, one, stream, count, counters, found, args->n,
                          args->global);
    return error;
}

// --- Losses ---

static __device__ inline float divisor_of(const struct dt_detect_args &args, int image)
{
    return args.global ? 1 : fmaxf(args.count[image], 1);
}

static __device__ inline int match_of(const struct dt_detect_args &args, int image, int anchor)
{
    return args.match[(size_t)image * args.n_anchors + args.level.first + anchor];
}

// Loss of a logit of weight w, negative at the class of a box, and its gradient: see
// src/cpu/detect_loss.c.
static __device__ inline float focal_element(float *diff, float logit, float w, float gamma)
{
    const float z = w < 0 ? -logit : logit, t = expf(-fabsf(z)), large = 1 / (1 + t);
    const float s = z < 0 ? t * large : large, rest = z < 0 ? large : t * large;
    const float log1p_t = log1pf(t);
    const float plus = 0.5f * (fabsf(z) + z) + log1p_t;
    const float power = w * (gamma == 2 ? s * s : expf(-gamma * (0.5f * (fabsf(z) - z) + log1p_t)));
    *diff = power * (gamma * rest * plus + s);
    return fabsf(power) * plus;
}

// The weight of a channel: 0 in the padding.
static __device__ inline float weight_of(const struct dt_detect_args &args, int image, int place,
                                         int channel)
{
    const int classes = args.channels / DT_CELL_ANCHORS, anchor = channel / classes;
    if (anchor >= DT_CELL_ANCHORS)
        return 0;
    const int match = match_of(args, image, place * DT_CELL_ANCHORS + anchor);
    if (match == -2)
        return 0;
    if (match >= 0 &&
        args.labels[(size_t)image * args.n_slots + match] == channel - anchor * classes)
        return args.alpha < 0 ? -1 : -args.alpha;
    return args.alpha < 0 ? 1 : 1 - args.alpha;
}

// A thread takes packs of 8 channels of an image, grid_x blocks apart. Reads the logits and writes
// the gradient once.
template <typename T>
static __global__ void focal_loss_kernel(double *sums, T *diff, const T *logits,
                                         const struct dt_detect_args args,
                                         const struct dt_step_values *step,
                                         const struct dt_scale_state *scale)
{
    const int image = blockIdx.y, per_place = args.cp / DT_CHANNEL_PACK;
    const int n = args.level.height * args.level.width * per_place;
    const float factor = step->diff_scale * scale->scale / divisor_of(args, image);
    float v[DT_CHANNEL_PACK], d;
    double sum = 0;
    for (int i = blockIdx.x * DT_BLOCK_THREADS + threadIdx.x; i < n;
         i += gridDim.x * DT_BLOCK_THREADS) {
        const size_t at = ((size_t)image * n + i) * DT_CHANNEL_PACK;
        float part = 0;
        dt_load8(v, logits + at);
        for (int k = 0; k < DT_CHANNEL_PACK; k++) {
            const float w =
                weight_of(args, image, i / per_place, i % per_place * DT_CHANNEL_PACK + k);
            part += focal_element(&d, v[k], w, args.gamma);
            v[k] = d * factor;
        }
        if (diff)
            dt_store8(diff + at, v);
        sum += part;
    }
    sum = dt_fold_sum(sum);
    if (threadIdx.x == 0)
        sums[blockIdx.y * gridDim.x + blockIdx.x] = sum;
}

template <typename T>
static __device__ inline double box_loss_of(double diff[4], const T *deltas,
                                            const struct dt_detect_args &args, int image,
                                            int anchor, int slot)
{
    float delta[4], at[4], box[4];
    dt_level_anchor(at, &args.level, anchor);
    for (int k = 0; k < 4; k++) {
        delta[k] = static_cast<float>(deltas[k]);
        box[k] = args.boxes[4 * ((size_t)image * args.n_slots + slot) + k];
    }
    return dt_box_loss_of(diff, delta, at, box, args.kind, args.beta);
}

// As focal_loss_kernel, by 4 channels: an anchor, or padding.
template <typename T>
static __global__ void box_loss_kernel(double *sums, T *diff, const T *deltas,
                                       const struct dt_detect_args args,
                                       const struct dt_step_values *step,
                                       const struct dt_scale_state *scale)
{
    const int image = blockIdx.y, per_place = args.cp / 4;
    const int n = args.level.height * args.level.width * per_place;
    const float factor = step->diff_scale * scale->scale / divisor_of(args, image);
    double sum = 0;
    for (int i = blockIdx.x * DT_BLOCK_THREADS + threadIdx.x; i < n;
         i += gridDim.x * DT_BLOCK_THREADS) {
        const size_t at = ((size_t)image * n + i) * 4;
        const int anchor = i / per_place * DT_CELL_ANCHORS + i % per_place;
        const int slot = i % per_place < DT_CELL_ANCHORS ? match_of(args, image, anchor) : -1;
        double d[4] = {0};
        if (slot >= 0)
            sum += box_loss_of(d, deltas + at, args, image, anchor, slot);
        for (int k = 0; diff && k < 4; k++)
            dt_store1(diff + at + k, static_cast<float>(d[k] * factor));
    }
    sum = dt_fold_sum(sum);
    if (threadIdx.x == 0)
        sums[blockIdx.y * gridDim.x + blockIdx.x] = sum;
}

// One block. With labels it also counts finite losses, and looks for a box whose label is not a
// class.
static __global__ void detect_totals_kernel(double *total, struct dt_step_counters *counters,
                                            const double *sums, int n_blocks,
                                            const struct dt_detect_args args)
{
    for (int image = 0; image < args.n; image++) {
        double sum = 0;
        for (int i = threadIdx.x; i < n_blocks; i += DT_BLOCK_THREADS)
            sum += sums[image * n_blocks + i];
        sum = dt_fold_sum(sum);
        if (threadIdx.x == 0 && isfinite(sum)) {
            *total += dt_exact(sum / (double)divisor_of(args, image));
            counters->n_finite += args.labels != NULL;
        }
    }
    const int classes = args.channels / DT_CELL_ANCHORS;
    for (int i = 0; threadIdx.x == 0 && args.labels && i < args.n * args.n_slots; i++) {
        if (args.labels[i] >= classes && !counters->classes) {
            counters->bad_label = args.labels[i];
            counters->classes = classes;
        }
    }
}

// each: channels per thread.
static unsigned blocks_of(const struct dt_detect_args *args, int each)
{
    const size_t n = (size_t)args->level.height * args->level.width * (args->cp / each);
    const size_t blocks = (n + DT_BLOCK_THREADS - 1) / DT_BLOCK_THREADS;
    return (unsigned)(blocks < DT_MAX_BLOCKS ? blocks : (size_t)DT_MAX_BLOCKS);
}

size_t dt_detect_scratch_bytes(int n)
{
    return (size_t)n * DT_MAX_BLOCKS * sizeof(double);
}

cudaError_t dt_kernel_focal_loss(cudaStream_t stream, enum dt_dtype type, void *diff,
                                 struct dt_step_counters *counters, double *sums,
                                 const void *logits, const struct dt_detect_args *args,
                                 const struct dt_step_values *step,
                                 const struct dt_scale_state *scale)
{
    const struct dt_geometry geometry = {blocks_of(args, DT_CHANNEL_PACK), (unsigned)args->n,
                                         DT_BLOCK_THREADS, 1};
    const struct dt_geometry one = {1, 1, DT_BLOCK_THREADS, 1};
    cudaError_t error = DT_BY_TYPE(type, (dt_launch(focal_loss_kernel<T>, geometry, stream, sums,
                                                    diff, logits, *args, step, scale)));
    if (error != cudaSuccess)
        return error;
    return dt_launch(detect_totals_kernel, one, stream, &counters->loss, counters, sums,
                     (int)geometry.grid_x, *args);
}

cudaError_t dt_kernel_box_loss(cudaStream_t stream, enum dt_dtype type, void *diff,
                               struct dt_step_counters *counters, double *sums, const void *deltas,
                               const struct dt_detect_args *args, const struct dt_step_values *step,
                               const struct dt_scale_state *scale)
{
    const struct dt_geometry geometry = {blocks_of(args, 4), (unsigned)args->n, DT_BLOCK_THREADS,
                                         1};
    const struct dt_geometry one = {1, 1, DT_BLOCK_THREADS, 1};
    cudaError_t error = DT_BY_TYPE(type, (dt_launch(box_loss_kernel<T>, geometry, stream, sums,
                                                    diff, deltas, *args, step, scale)));
    if (error != cudaSuccess)
        return error;
    return dt_launch(detect_totals_kernel, one, stream, &counters->box_loss, counters, sums,
                     (int)geometry.grid_x, *args);
}
