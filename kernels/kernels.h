/* Launchers of the hand-written CUDA kernels: plain C, asynchronous on `stream`, errors of the
 * launch as cudaError_t.
 *
 * An activation is a matrix of rows x cp: a row per pixel (n, h, w), cp channels side by side
 * (NHWC). cp is the number of channels rounded up to 8, so that a thread always moves 8 channels:
 * one access of 16 bytes in 16-bit types, two in fp32. Padding channels are zero, and all kernels
 * map zero to zero there. Only ingest writes rows of 4. Vectors of channels (scale, mean, ...) are
 * fp32, cp long, zero in the padding. `type` is DT_F32, DT_F16 or DT_BF16; arithmetic is fp32.
 * Nothing here uses atomics on floating-point numbers: results do not depend on timing. README.md
 * has a table with the bytes each kernel moves. */
#ifndef DTRAIN_KERNELS_H
#define DTRAIN_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "dtrain/activation.h"
#include "dtrain/box.h"
#include "dtrain/dtype.h"
#include "kernels/geometry.h"
#include "kernels/train_step.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- train_step.cu: the values of a step, in device memory so that a recording can be replayed ---
 */

/* *step = *values, with unbias1 and unbias2 by the number of updates so far. */
cudaError_t dt_kernel_set_step(cudaStream_t stream, struct dt_step_values *step,
                               const struct dt_step_values *values,
                               const struct dt_scale_state *state);
cudaError_t dt_kernel_set_scale(cudaStream_t stream, struct dt_scale_state *state,
                                const struct dt_scale_state *values);
/* Sets found = 1 if any of src[0 .. count) is not finite; never resets it. count % 8 == 0. */
cudaError_t dt_kernel_check(cudaStream_t stream, struct dt_scale_state *state, enum dt_dtype type,
                            const void *src, size_t count);
/* The same, and norms[t] = the sum of squares of tile t (DT_TILE of optim.h). */
cudaError_t dt_kernel_check_norms(cudaStream_t stream, struct dt_scale_state *state,
                                  enum dt_dtype type, const void *src, size_t count, double *norms);
/* As dt_backend.count and divide; n is small. */
cudaError_t dt_kernel_count(cudaStream_t stream, float *count, const float *from, int n,
                            bool first);
cudaError_t dt_kernel_divide(cudaStream_t stream, struct dt_scale_state *state, const float *counts,
                             int n);
/* Multiplies state->clip by dt_optim_clip of the root of the sum of norms[0 .. n). */
cudaError_t dt_kernel_clip(cudaStream_t stream, struct dt_scale_state *state,
                           const struct dt_step_values *step, const double *norms, int n);
/* dt_scale_state_advance, on the device. */
cudaError_t dt_kernel_settle(cudaStream_t stream, struct dt_scale_state *state,
                             struct dt_step_counters *counters);

/* --- update.cu --- */

/* dt_update of backend.h. */
struct dt_update_memory {
    float *params, *momentum, *square; /* square: NULL if the optimizer has none */
    void *shadow;                      /* may be NULL */
    const void *grads;
    double *norms;
};
/* An update over at most DT_MAX_RANGES (ranges.h) segments. */
cudaError_t dt_kernel_update(cudaStream_t stream, enum dt_optim optim,
                             const struct dt_update_memory *memory, enum dt_dtype shadow_type,
                             enum dt_dtype grads_type, const struct dt_range *ranges, int n_ranges,
                             const struct dt_step_values *step, const struct dt_scale_state *scale);
/* dst = dt_optim_lerp(dst, src, step->ema_weight), unless scale->found. count % 8 == 0. */
cudaError_t dt_kernel_lerp(cudaStream_t stream, float *dst, const float *src, size_t count,
                           const struct dt_step_values *step, const struct dt_scale_state *scale);
/* dst = src, or dst += src. count % 8 == 0. */
cudaError_t dt_kernel_accumulate(cudaStream_t stream, float *dst, enum dt_dtype type,
                                 const void *src, size_t count, bool first);
/* dst = src rounded to `type`. count % 8 == 0. */
cudaError_t dt_kernel_convert(cudaStream_t stream, enum dt_dtype type, void *dst, const float *src,
                              size_t count);

/* --- pointwise.cu --- */

struct dt_ingest {
    const int32_t *sizes; /* n times height and width of the image; NULL: it has all pixels */
    int n, height, width, channels, cp;
    float scale[3], shift[3];
};
/* dst rows x cp (cp = 4 or a multiple of 8) from u8 rows x channels (at most 3):
 * dst = src * scale[c] + shift[c], and 0 beyond the size of an image. */
cudaError_t dt_kernel_ingest(cudaStream_t stream, enum dt_dtype type, void *dst, const uint8_t *src,
                             const struct dt_ingest *ingest);
/* dst = [relu](a + b); relu lets NaN through. count % 8 == 0, here and below. */
cudaError_t dt_kernel_add(cudaStream_t stream, enum dt_dtype type, void *dst, const void *a,
                          const void *b, size_t count, bool relu);
/* dst = the sum of n_terms (2 to DT_MAX_TERMS) in their order, rounded to `type` once. */
enum { DT_MAX_TERMS = 9 };
cudaError_t dt_kernel_sum(cudaStream_t stream, enum dt_dtype type, void *dst,
                          const void *const *terms, int n_terms, size_t count);
/* dst = f(src) of c channels in rows of cp, where f(0) may not be 0. */
cudaError_t dt_kernel_activation(cudaStream_t stream, enum dt_dtype type, enum dt_activation kind,
                                 void *dst, const void *src, size_t count, int c, int cp);
/* diff_src = (diff_dst [+ diff_dst2]) * f'(src); ReLU may have dst for src. */
cudaError_t dt_kernel_activation_bwd(cudaStream_t stream, enum dt_dtype type,
                                     enum dt_activation kind, void *diff_src, const void *diff_dst,
                                     const void *diff_dst2, const void *src, size_t count);
/* In place: dst = [relu](dst [+ bias]); bias fp32, cp long, may be NULL. */
cudaError_t dt_kernel_bias(cudaStream_t stream, enum dt_dtype type, void *dst, const float *bias,
                           size_t rows, int cp, bool relu);
/* diff_bias[c] = sum over rows; partial: dt_channel_partial_bytes(rows, cp, 1). */
cudaError_t dt_kernel_bias_bwd(cudaStream_t stream, enum dt_dtype type, float *diff_bias,
                               float *partial, const void *diff_dst, size_t rows, int cp);
/* Forward and backward. The mask of element (n, c, h, w) is word number
 * first_row * C*H*W + ((n * C + c) * H + h) * W + w of the Philox stream (seed, DT_RNG_DROPOUT,
 * step, stream), as src/base/rng.c has it: kept where word >= p * 2^32, times 1 / (1 - p). */
cudaError_t dt_kernel_dropout(cudaStream_t stream, enum dt_dtype type, void *dst, const void *src,
                              int n, int channels, int height, int width, int cp, float p,
                              uint64_t seed, uint32_t dropout_stream,
                              const struct dt_step_values *step);

/* --- branch.cu: gate and scaled_add --- */

/* The factor of channel c of image n: factor[n][c] (of `type`) or scale[c]; both NULL: 1. Times
 * keep, which is 0 with probability p, else 1 / (1 - p): by word first_row + n of the Philox stream
 * (seed, DT_RNG_DROPOUT, step, stream). */
struct dt_branch {
    int n, pixels, cp; /* images, their pixels, channels */
    const void *factor;
    const float *scale;
    float p;
    uint32_t stream;
    uint64_t seed;
};
/* dst = factor * src [+ residual]; dst may be one of the two. */
cudaError_t dt_kernel_branch(cudaStream_t stream, enum dt_dtype type, void *dst, const void *src,
                             const void *residual, const struct dt_branch *branch,
                             const struct dt_step_values *step);
/* diff_src = factor * diff_dst, and the gradient of factor (of `type`) or scale. diff_src may be
 * diff_dst or src. */
static inline size_t dt_branch_partial_bytes(const struct dt_branch *branch)
{
    return (size_t)branch->n * dt_channel_partial_bytes((size_t)branch->pixels, branch->cp, 1);
}
cudaError_t dt_kernel_branch_bwd(cudaStream_t stream, enum dt_dtype type, void *diff_src,
                                 void *diff_factor, float *partial, const void *diff_dst,
                                 const void *src, const struct dt_branch *branch,
                                 const struct dt_step_values *step);

/* --- concat.cu --- */

enum { DT_MAX_PARTS = 9 };
struct dt_parts {
    const void *at[DT_MAX_PARTS]; /* part i: channels[i] channels of each row of cp[i] */
    int channels[DT_MAX_PARTS], cp[DT_MAX_PARTS];
    int n;
};
/* dst, rows x cp, gets the channels of all parts, one after the other. */
cudaError_t dt_kernel_concat(cudaStream_t stream, enum dt_dtype type, void *dst, size_t rows,
                             int cp, const struct dt_parts *parts);

/* --- pool.cu --- */

struct dt_pool_shape {
    int n, cp, in_h, in_w, out_h, out_w;
    int kernel, stride, pad; /* max_pool only */
};
/* where (may be NULL): one byte per element of dst, index in the window (row * kernel + column) of
 * the first largest value; NaN counts as largest. */
cudaError_t dt_kernel_max_pool(cudaStream_t stream, enum dt_dtype type, void *dst, uint8_t *where,
                               const void *src, const struct dt_pool_shape *shape);
cudaError_t dt_kernel_max_pool_bwd(cudaStream_t stream, enum dt_dtype type, void *diff_src,
                                   const void *diff_dst, const uint8_t *where,
                                   const struct dt_pool_shape *shape);
/* Adaptive: output i takes inputs floor(i * in / out) .. ceil((i + 1) * in / out) - 1. */
cudaError_t dt_kernel_avg_pool(cudaStream_t stream, enum dt_dtype type, void *dst, const void *src,
                               const struct dt_pool_shape *shape);
cudaError_t dt_kernel_avg_pool_bwd(cudaStream_t stream, enum dt_dtype type, void *diff_src,
                                   const void *diff_dst, const struct dt_pool_shape *shape);
/* dst = fine + the value of coarse at half its place; dst may be fine. In the shape, in_h is 2
 * out_h and in_w is 2 out_w, those of coarse. */
cudaError_t dt_kernel_upsample_add(cudaStream_t stream, enum dt_dtype type, void *dst,
                                   const void *coarse, const void *fine,
                                   const struct dt_pool_shape *shape);
/* diff_coarse = the sums of 2x2 values. */
cudaError_t dt_kernel_upsample_add_bwd(cudaStream_t stream, enum dt_dtype type, void *diff_coarse,
                                       const void *diff_dst, const struct dt_pool_shape *shape);

/* --- loss.cu --- */

struct dt_loss_batch {
    const void *logits; /* n rows of `classes`, cp long */
    const int32_t *labels;
    const int32_t *labels2;  /* mixed labels: the target is mix_shares * onehot(labels) */
    const float *mix_shares; /* + (1 - mix_shares) * onehot(labels2); both NULL: onehot(labels) */
    const float *class_weights; /* factors on the target; NULL: 1 */
    int n, classes, cp;
    float smoothing;
};
/* Softmax cross entropy with label smoothing; adds to *counters (ranks are those of labels); diff
 * (may be NULL) = gradient * step->diff_scale * scale->scale. A loss that is not finite is excluded
 * from counters->loss, weight and n_finite. Rows with labels < 0 are ignored (diff 0); so are those
 * whose label is not a class, the first of which is stored in counters->bad_label. rows: scratch of
 * n struct dt_loss_row. Same definition as src/cpu/cpu_loss.c. */
cudaError_t dt_kernel_softmax_xent(cudaStream_t stream, enum dt_dtype type, void *diff,
                                   struct dt_step_counters *counters, struct dt_loss_row *rows,
                                   const struct dt_loss_batch *batch,
                                   const struct dt_step_values *step,
                                   const struct dt_scale_state *scale);

/* --- detect.cu: same definitions as src/cpu/match.c and detect_loss.c --- */

struct dt_match_args {
    const float *boxes;    /* of n images, n_slots each: x1 y1 x2 y2 */
    const int32_t *labels; /* < 0: no box in the slot */
    int n, n_slots, n_anchors, n_levels;
    bool low_quality, global;
    float background, foreground;
    struct dt_level level[DT_MAX_LEVELS];
};
/* match: n x n_anchors; count: foreground anchors of every image. Adds n to counters->n,
 * and that, or with global the sum of count, to weight. */
cudaError_t dt_kernel_match(cudaStream_t stream, int32_t *match, float *count,
                            struct dt_step_counters *counters, void *scratch,
                            const struct dt_match_args *args);
size_t dt_match_scratch_bytes(int n, int n_slots);

/* Arguments for one level; logits and deltas are activations of its grid, n images, `channels`. */
struct dt_detect_args {
    const int32_t *match, *labels; /* labels: of focal_loss */
    const float *count, *boxes;    /* boxes: of box_loss */
    struct dt_level level;
    int n, channels, cp, n_anchors, n_slots; /* n_anchors: of all levels */
    bool global;
    float alpha, gamma, beta;
    enum dt_box_loss kind;
};
/* diff (may be NULL) = gradient * step->diff_scale * scale->scale. Adds to counters->loss; a label
 * that is not a class is stored in counters->bad_label. */
cudaError_t dt_kernel_focal_loss(cudaStream_t stream, enum dt_dtype type, void *diff,
                                 struct dt_step_counters *counters, double *sums,
                                 const void *logits, const struct dt_detect_args *args,
                                 const struct dt_step_values *step,
                                 const struct dt_scale_state *scale);
/* Likewise; adds to counters->box_loss. */
cudaError_t dt_kernel_box_loss(cudaStream_t stream, enum dt_dtype type, void *diff,
                               struct dt_step_counters *counters, double *sums, const void *deltas,
                               const struct dt_detect_args *args, const struct dt_step_values *step,
                               const struct dt_scale_state *scale);
size_t dt_detect_scratch_bytes(int n); /* of sums */

/* --- norm.cu, norm_bwd.cu: batch norm over rows x cp --- */

struct dt_norm_args {
    size_t rows;
    int cp;
    float eps;
    float momentum; /* running = (1 - momentum) * running + momentum * batch, variance unbiased; not
                       where that is not finite */
    bool yields;    /* the kernels that add nothing up let others start meanwhile (geometry.h) */
    unsigned *tickets; /* of bn_stats and the kernels of sums: DT_MAX_TICKETS, all zero before the
                          first launch; every launch leaves them so. For launches in one stream. */
};
/* A batch norm's scale, shift (where needed), mean and biased variance. */
struct dt_bn_vectors {
    const float *scale, *shift, *mean, *variance;
};
/* partial: dt_sums_partial_bytes(rows, cp, 2), for results of parts of the rows. With a slot
 * (DT_BN_SLOT_FLOATS(cp), else NULL), mean and squared deviation of the rows go there, with their
 * number behind them, and nowhere else. */
#define DT_BN_SLOT_FLOATS(cp) (2 * (size_t)(cp) + 8) /* a multiple of 8 */
struct dt_bn_statistics {
    float *mean, *variance, *running_mean, *running_var, *partial, *slot;
    float *inverse_std; /* 1 / sqrt(variance + eps), NULL = not wanted */
};
/* Training: mean, biased variance and running statistics. Over several ranks: each fills a slot;
 * bn_combine makes the rest of n_slots of them, one after the other, by their numbers of rows.
 * Backward it is the same with the two sums: with a slot bn_bwd_sums leaves out coefs, and
 * bn_bwd_combine makes them. */
cudaError_t dt_kernel_bn_stats(cudaStream_t stream, enum dt_dtype type,
                               const struct dt_bn_statistics *out, const void *src,
                               const struct dt_norm_args *args);
/* bn(x) = scale * x + shift, for all channels, in the type of activations, which is what cuDNN
 * takes. In fp16 the result is off by about 2^-11 |mean| / deviation, in units of bn's scale. */
cudaError_t dt_kernel_bn_scale_shift(cudaStream_t stream, enum dt_dtype type, void *scale,
                                     void *shift, const struct dt_bn_vectors *bn,
                                     const struct dt_norm_args *args);
/* As bn_stats, from sums of src and of its squares, floats [2][cp], that a convolution has left. In
 * fp32 their difference is imprecise if a mean is large compared with the deviation. scale and
 * shift, both may be NULL, are as of bn_scale_shift; bn needs no statistics. */
cudaError_t dt_kernel_bn_finalize_sums(cudaStream_t stream, enum dt_dtype type, void *scale,
                                       void *shift, const struct dt_bn_statistics *out,
                                       const float *sums, const struct dt_bn_vectors *bn,
                                       const struct dt_norm_args *args);
cudaError_t dt_kernel_bn_combine(cudaStream_t stream, const struct dt_bn_statistics *out,
                                 const float *slots, int n_slots, const struct dt_norm_args *args);
/* dst = [relu]((src - mean) * scale / sqrt(variance + eps) + shift [+ residual]); dst may be src.
 * shift and mean may both be NULL: zeros, as in the gradient of a frozen batch norm.
 * mask (with relu in training, else NULL): bit i of byte j says element 8 j + i of dst was > 0 or
 * NaN, before it was rounded to `type`. */
cudaError_t dt_kernel_bn_apply(cudaStream_t stream, enum dt_dtype type, void *dst, uint8_t *mask,
                               const void *src, const void *residual, const float *scale,
                               const float *shift, const float *mean, const float *variance,
                               bool relu, const struct dt_norm_args *args);
/* As bn_finalize_sums and bn_apply. */
cudaError_t dt_kernel_bn_apply_sums(cudaStream_t stream, enum dt_dtype type, void *dst,
                                    uint8_t *mask, const void *src, const void *residual,
                                    const float *scale, const float *shift,
                                    const struct dt_bn_statistics *out, const float *sums,
                                    bool relu, const struct dt_norm_args *args);
/* partial and slot as in dt_bn_statistics; coefs: floats [3][cp]. */
struct dt_bn_sums {
    float *diff_scale, *diff_shift, *coefs, *partial, *slot;
};
/* g = (diff_dst [+ diff_dst2]) where mask. First, by the sums of g and g * (src - mean),
 * diff_scale, diff_shift and the coefficients of diff_src = coefs[0][c] * g + coefs[1][c] * src +
 * coefs[2][c], and diff_residual = g if wanted; then diff_src, which may be diff_dst. With
 * diff_residual, bwd_apply reads it as diff_dst, without mask. */
cudaError_t dt_kernel_bn_bwd_sums(cudaStream_t stream, enum dt_dtype type,
                                  const struct dt_bn_sums *out, void *diff_residual,
                                  const void *src, const void *diff_dst, const void *diff_dst2,
                                  const uint8_t *mask, const struct dt_bn_vectors *bn,
                                  const struct dt_norm_args *args);
cudaError_t dt_kernel_bn_bwd_combine(cudaStream_t stream, float *coefs, const float *slots,
                                     int n_slots, const struct dt_bn_vectors *bn,
                                     const struct dt_norm_args *args);
cudaError_t dt_kernel_bn_bwd_apply(cudaStream_t stream, enum dt_dtype type, void *diff_src,
                                   const void *addend, const void *src, const void *diff_dst,
                                   const void *diff_dst2, const uint8_t *mask, const float *coefs,
                                   const struct dt_norm_args *args);

/* --- group_norm.cu --- */

struct dt_group_norm {
    int n, pixels, cp;         /* images, their pixels, channels */
    int groups, groups_padded; /* of an image; a multiple of 8 */
    int size;                  /* channels of a group */
    float eps;
};
/* Sums per channel of every block of rows; they are those of one image. */
static inline size_t dt_group_norm_partial_bytes(const struct dt_group_norm *args)
{
    return (size_t)args->n * dt_sums_partial_bytes((size_t)args->pixels, args->cp, 2);
}
/* mean, inverse_std = 1 / sqrt(variance + eps): floats [n][groups_padded], zero in the padding.
 * partial: dt_group_norm_partial_bytes. */
struct dt_group_norm_statistics {
    float *mean, *inverse_std, *partial;
};
/* dst = (src - mean) * inverse_std * scale + shift; dst may be src. */
cudaError_t dt_kernel_group_norm(cudaStream_t stream, enum dt_dtype type, void *dst,
                                 const struct dt_group_norm_statistics *out, const void *src,
                                 const float *scale, const float *shift,
                                 const struct dt_group_norm *args);
/* diff_src may be diff_dst; diff_scale and diff_shift may both be NULL. coefs: floats
 * [2][n][groups_padded]. */
struct dt_group_norm_gradients {
    void *diff_src;
    float *diff_scale, *diff_shift, *coefs, *partial;
};
cudaError_t dt_kernel_group_norm_bwd(cudaStream_t stream, enum dt_dtype type,
                                     const struct dt_group_norm_gradients *out, const void *src,
                                     const void *diff_dst, const float *scale, const float *mean,
                                     const float *inverse_std, const struct dt_group_norm *args);

/* --- layer_norm.cu --- */

struct dt_layer_norm {
    size_t rows;
    int channels, cp; /* at most DT_ROW_CHANNELS */
    float eps;
};
/* dst = (src - mean) * inverse_std * scale + shift with the mean of the channels of a row and
 * inverse_std = 1 / sqrt(their variance + eps): floats [rows], may both be NULL. dst may be src. */
cudaError_t dt_kernel_layer_norm(cudaStream_t stream, enum dt_dtype type, void *dst, float *mean,
                                 float *inverse_std, const void *src, const float *scale,
                                 const float *shift, const struct dt_layer_norm *args);
/* diff_src may be diff_dst; diff_scale and diff_shift may both be NULL. */
static inline size_t dt_layer_norm_partial_bytes(const struct dt_layer_norm *args)
{
    return dt_partial_bytes(dt_whole_rows_geometry(args->rows, args->cp), args->cp, 2);
}
cudaError_t dt_kernel_layer_norm_bwd(cudaStream_t stream, enum dt_dtype type, void *diff_src,
                                     float *diff_scale, float *diff_shift, float *partial,
                                     const void *src, const void *diff_dst, const float *scale,
                                     const float *mean, const float *inverse_std,
                                     const struct dt_layer_norm *args);

/* --- norm_pair.cu: the batch norms at the end of a projection block and of its shortcut --- */

/* dst = [relu](bn(src1) + bn(src2)), mask as in bn_apply; dst may be src1 or src2. */
cudaError_t dt_kernel_bn_pair_apply(cudaStream_t stream, enum dt_dtype type, void *dst,
                                    uint8_t *mask, const void *src1, const void *src2,
                                    const struct dt_bn_vectors *bn1,
                                    const struct dt_bn_vectors *bn2, bool relu,
                                    const struct dt_norm_args *args);
/* As bn_bwd_sums and bn_bwd_apply of both, with the same g and without slots. diff_src1 and
 * diff_src2 may be diff_dst and diff_dst2. */
cudaError_t dt_kernel_bn_pair_bwd_sums(cudaStream_t stream, enum dt_dtype type,
                                       const struct dt_bn_sums out[2], const void *src1,
                                       const void *src2, const void *diff_dst,
                                       const void *diff_dst2, const uint8_t *mask,
                                       const struct dt_bn_vectors bn[2],
                                       const struct dt_norm_args *args);
cudaError_t dt_kernel_bn_pair_bwd_apply(cudaStream_t stream, enum dt_dtype type, void *diff_src1,
                                        void *diff_src2, const void *src1, const void *src2,
                                        const void *diff_dst, const void *diff_dst2,
                                        const uint8_t *mask, const float *coefs1,
                                        const float *coefs2, const struct dt_norm_args *args);

/* --- norm_pool.cu: batch norm, ReLU and max pooling --- */

enum { DT_BN_POOL_MAX_KERNEL = 15 };
/* dst and where (may be NULL) have the bits that bn_apply with ReLU and max_pool of its result
 * would leave, but where is 255 where the ReLU lets no gradient through. shape->kernel is at
 * most DT_BN_POOL_MAX_KERNEL. */
cudaError_t dt_kernel_bn_max_pool(cudaStream_t stream, enum dt_dtype type, void *dst,
                                  uint8_t *where, const void *src, const struct dt_bn_vectors *bn,
                                  float eps, const struct dt_pool_shape *shape);
/* As bn_bwd_sums, without a slot, and bn_bwd_apply where g = max_pool_bwd of diff_dst, not rounded.
 * args->rows are the pixels of src. diff_src may be src. */
cudaError_t dt_kernel_bn_pool_bwd_sums(cudaStream_t stream, enum dt_dtype type,
                                       const struct dt_bn_sums *out, const void *src,
                                       const void *diff_dst, const uint8_t *where,
                                       const struct dt_bn_vectors *bn,
                                       const struct dt_norm_args *args,
                                       const struct dt_pool_shape *shape);
cudaError_t dt_kernel_bn_pool_bwd_apply(cudaStream_t stream, enum dt_dtype type, void *diff_src,
                                        const void *src, const void *diff_dst, const uint8_t *where,
                                        const float *coefs, const struct dt_pool_shape *shape);

/* --- top_detections.cu --- */

enum { DT_MAX_TOP = 1024 };
struct dt_top_level {
    struct dt_level place;
    int n, channels; /* images; scores at a place of the grid */
    int cp, delta_cp;
    unsigned keep; /* most rows of an image, at most DT_MAX_TOP */
    float min_score;
};
size_t dt_top_scratch_bytes(int n); /* for n images; need not be set */
/* The op of that name: rows [n][keep][6]; places x channels of an image are less than 2^31. */
cudaError_t dt_kernel_top_detections(cudaStream_t stream, enum dt_dtype type, float *rows,
                                     int32_t *n_rows, const void *logits, const void *deltas,
                                     const int32_t *sizes, void *scratch,
                                     const struct dt_top_level *level);

#ifdef __cplusplus
}
#endif
#endif
