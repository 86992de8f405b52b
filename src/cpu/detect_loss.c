/* The losses of a detector and their gradients.
 *
 * focal_loss is torchvision's sigmoid_focal_loss. With z the logit, or minus the logit at the class
 * of an anchor's box, s = sigmoid(z) and p = softplus(z) = -log(1 - s), an element's loss is
 * w s^gamma p; its derivative by z is w s^gamma (gamma (1 - s) p + s). w is alpha at the class of
 * the box, else 1 - alpha, and 0 for anchors that are neither foreground nor background. Both come
 * from one exponential, which loops do in vectors of any instruction set with the same bits; s and
 * 1 - s are not subtracted from 1, so that small ones are precise too. */
#include <math.h>
#include <string.h>

#include "cpu/cpu_internal.h"
#include "dtrain/box.h"

enum { CHUNK = 256, SUM_LANES = 8, MAX_BLOCK = 16 };

/* The arguments of both losses for a level. */
struct losses {
    const struct dt_detect *detect;
    struct dt_level level;
    struct dt_cpu_rows rows;
    size_t places, n_anchors, n_slots;
    const float *values; /* logits or deltas */
    const int32_t *match;
    const float *count;
    float *diff; /* may be NULL */
    float diff_scale;
    double *sum; /* work: parts of the loss, n_parts of every image */
    int n_parts;
};

/* --- Formats: rows as the convolution before them has left them --- */

static dt_status prepare_loss(struct dt_exec *exec)
{
    dt_md md = NULL;
    DT_TRY(dt_cpu_rows_choose(&exec->rows, &md, exec, exec->node->src[0], dnnl_format_tag_undef));
    DT_TRY(dt_cpu_port_add_kinds(exec, md, 0));
    const int max =
        exec->rows.n_blocks > exec->rows.height ? exec->rows.n_blocks : exec->rows.height;
    exec->work_offset = dt_cpu_reserve(exec, (size_t)(exec->rows.n * max) * sizeof(double));
    return DT_OK;
}

static struct losses losses_of(const struct dt_exec *exec, int n_parts)
{
    const struct dt_node *node = exec->node;
    const struct dt_tensor *tensor = exec->graph->tensor;
    const struct dt_detect *detect = &node->attr.detect;
    return (struct losses){
        .detect = detect,
        .level = dt_level_of(&detect->anchors, detect->level),
        .rows = exec->rows,
        .places = (size_t)exec->rows.height * (size_t)exec->rows.width,
        .n_anchors = (size_t)tensor[node->src[DT_DETECT_LOSS_MATCH]].dim[1],
        .n_slots = (size_t)tensor[node->src[DT_DETECT_LOSS_BOXES]].dim[1],
        .values = dt_cpu_src(exec, DT_DETECT_LOSS_VALUES),
        .match = dt_cpu_src(exec, DT_DETECT_LOSS_MATCH),
        .count = dt_cpu_src(exec, DT_DETECT_LOSS_COUNT),
        .diff = dt_cpu_dst(exec, 0),
        .diff_scale = exec->dev->scalars.diff_scale,
        .sum = exec->work,
        .n_parts = n_parts,
    };
}

/* Matches of the level's anchors. */
static const int32_t *matches_of(const struct losses *l, int image)
{
    return l->match + (size_t)image * l->n_anchors + (size_t)l->level.first;
}

static float divisor_of(const struct losses *l, int image)
{
    return l->detect->global || l->count[image] < 1 ? 1 : l->count[image];
}

/* Losses that are not finite are skipped; n_finite may be NULL. */
static void add_total(double *total, int64_t *n_finite, const struct losses *l)
{
    for (int i = 0; i < l->rows.n; i++) {
        double sum = 0;
        for (int k = 0; k < l->n_parts; k++)
            sum += l->sum[i * l->n_parts + k];
        if (!isfinite(sum))
            continue;
        *total += dt_cpu_exact(sum / (double)divisor_of(l, i));
        if (n_finite)
            ++*n_finite;
    }
}

/* --- Focal loss --- */

union word {
    float value;
    int32_t bits;
};

/* exp(-x) for x >= 0; at most 87, so that the result is a normal number. NaN is as 87. */
static inline float exp_minus(float x)
{
    static const int32_t MAX = 0x42ae0000;
    static const float ROUND = 0x1.8p23f; /* adding it rounds to an integer */
    union word clamped = {x};
    clamped.bits = clamped.bits < MAX ? clamped.bits : MAX;
    const union word shifted = {ROUND - clamped.value * 1.44269504f};
    const float n = shifted.value - ROUND;
    const float r =
        -(n * 0x1.62e4p-1f + clamped.value) - n * 0x1.7f7d1cp-20f; /* ln 2 in two parts */
    const float p =
        0.5f + r * (0.166665763f + r * (0.0416665524f + r * (0.00836323295f + r * 0.00139262504f)));
    const union word power = {.bits = (int32_t)((uint32_t)(shifted.bits + 127) << 23)};
    return (1 + (r + r * r * p)) * power.value;
}

/* log(1 + t) of t in [0, 1], from u = t / (2 + t): 2 atanh(u). */
static inline float log1p_of(float u)
{
    const float v = u * u;
    return 2 * u *
           (1 + v * (0.333333194f + v * (0.200037807f + v * (0.141183093f + v * 0.134257495f))));
}

/* The losses of n elements, with negative weights at the classes of boxes. Logits that are not
 * finite give results that are not. */
static inline __attribute__((always_inline)) void focal_elements(float *restrict diff,
                                                                 float *restrict loss,
                                                                 const float *restrict logits,
                                                                 const float *restrict weight,
                                                                 int n, float gamma, float scale)
{
    const bool is_square = gamma == 2;
#pragma omp simd
    for (int i = 0; i < n; i++) {
        const union word z = {logits[i] * copysignf(1, weight[i])};
        const float size = fabsf(z.value), t = exp_minus(size);
        const float inverse = 1 / ((1 + t) * (2 + t));
        const union word large = {(2 + t) * inverse}, small = {t * large.value};
        const int32_t flip = z.bits >> 31 & (large.bits ^ small.bits);
        const union word s = {.bits = large.bits ^ flip}, rest = {.bits = small.bits ^ flip};
        const float log1p = log1p_of(t * (1 + t) * inverse);
        const float plus = 0.5f * (size + z.value) + log1p;
        const float minus = 0.5f * (size - z.value) + log1p; /* -log(s) */
        const float power = weight[i] * (is_square ? s.value * s.value : exp_minus(gamma * minus));
        loss[i] = fabsf(power) * plus;
        diff[i] = scale * power * (gamma * rest.value * plus + s.value);
    }
}

static double sum_of(const float *value, int n)
{
    double lane[SUM_LANES] = {0}, sum = 0;
    int i = 0;
    for (; i + SUM_LANES <= n; i += SUM_LANES)
        for (int k = 0; k < SUM_LANES; k++)
            lane[k] += (double)value[i + k];
    for (; i < n; i++)
        lane[0] += (double)value[i];
    for (int k = 0; k < SUM_LANES; k++)
        sum += lane[k];
    return sum;
}

/* Neighbouring channels of a block that belong to one anchor of their place. */
struct run {
    int anchor, begin, end, first_class; /* anchor -1: padding */
};

/* Weights of a block's channels at n places. */
static void weigh(float *weight, const struct losses *l, const struct run *run, int n_runs,
                  const int32_t *match, const int32_t *labels, int n)
{
    const float alpha = l->detect->alpha;
    const float of_box = alpha < 0 ? -1 : -alpha, other = alpha < 0 ? 1 : 1 - alpha;
    for (int i = 0; i < n; i++, weight += l->rows.block, match += DT_CELL_ANCHORS) {
        for (const struct run *r = run; r < run + n_runs; r++) {
            const int32_t m = r->anchor < 0 ? -2 : match[r->anchor];
            for (int k = r->begin; k < r->end; k++)
                weight[k] = m == -2 ? 0 : other;
            const int at = m < 0 ? -1 : r->begin + labels[m] - r->first_class;
            if (at >= r->begin && at < r->end)
                weight[at] = of_box;
        }
    }
}

/* One block of channels of an image: returns its part of the loss. */
static double focal_block(const struct losses *l, const int32_t *labels, int image, int block)
{
    const int n_places = CHUNK / l->rows.block, n_classes = l->rows.channels / DT_CELL_ANCHORS;
    const size_t first = (size_t)(image * l->rows.n_blocks + block) * l->rows.row_elements;
    const float scale = l->diff_scale / divisor_of(l, image), gamma = l->detect->gamma;
    float weight[CHUNK], loss[CHUNK], unused[CHUNK];
    struct run run[MAX_BLOCK];
    int n_runs = 0;
    for (int k = 0; k < l->rows.block;) {
        const int c = block * l->rows.block + k;
        struct run r = {c / n_classes, k, k + n_classes - c % n_classes, c % n_classes};
        if (c >= l->rows.channels)
            r = (struct run){-1, k, l->rows.block, 0};
        r.end = r.end < l->rows.block ? r.end : l->rows.block;
        k = r.end;
        run[n_runs++] = r;
    }
    double sum = 0;
    for (size_t place = 0; place < l->places; place += (size_t)n_places) {
        const size_t left = l->places - place, at = first + place * (size_t)l->rows.block;
        const int n = left < (size_t)n_places ? (int)left : n_places;
        float *diff = l->diff ? l->diff + at : unused;
        weigh(weight, l, run, n_runs, matches_of(l, image) + place * DT_CELL_ANCHORS, labels, n);
        if (gamma == 2)
            focal_elements(diff, loss, l->values + at, weight, n * l->rows.block, 2, scale);
        else
            focal_elements(diff, loss, l->values + at, weight, n * l->rows.block, gamma, scale);
        sum += sum_of(loss, n * l->rows.block);
    }
    return sum;
}

static dt_status run_focal_loss(struct dt_exec *exec)
{
    const struct losses l = losses_of(exec, exec->rows.n_blocks);
    const int32_t *labels = dt_cpu_src(exec, DT_DETECT_LOSS_BOXES);
    const int n_classes = l.rows.channels / DT_CELL_ANCHORS;
    for (size_t i = 0; i < (size_t)l.rows.n * l.n_slots; i++) {
        if (labels[i] >= n_classes)
            DT_FAIL(DT_ERR_DATA,
                    "image %zu of the batch has a box of class %d, but model.num_classes is %d; "
                    "check data.label_offset",
                    i / l.n_slots, (int)labels[i], n_classes);
    }
#pragma omp parallel for schedule(static)
    for (int i = 0; i < l.rows.n * l.n_parts; i++) {
        const int image = i / l.n_parts;
        l.sum[i] = focal_block(&l, labels + (size_t)image * l.n_slots, image, i % l.n_parts);
    }
    add_total(&exec->dev->counters.loss, &exec->dev->counters.n_finite, &l);
    return DT_OK;
}

/* --- Box loss --- */

/* The element of channel c at a place. */
static size_t element_at(const struct losses *l, int image, int c, size_t place)
{
    const int block = l->rows.block;
    const size_t row = (size_t)(image * l->rows.n_blocks + c / block);
    return row * l->rows.row_elements + place * (size_t)block + (size_t)(c % block);
}

static double box_row(const struct losses *l, const float *boxes, int image, int y)
{
    const size_t n = (size_t)l->rows.width * DT_CELL_ANCHORS, first = (size_t)y * n;
    double sum = 0;
    for (size_t i = first; i < first + n; i++) {
        const int slot = matches_of(l, image)[i];
        if (slot < 0)
            continue;
        const float scale = l->diff_scale / divisor_of(l, image);
        float delta[4], at[4];
        double diff[4];
        size_t element[4];
        for (int k = 0; k < 4; k++) {
            element[k] =
                element_at(l, image, (int)(i % DT_CELL_ANCHORS) * 4 + k, i / DT_CELL_ANCHORS);
            delta[k] = l->values[element[k]];
        }
        dt_level_anchor(at, &l->level, (int)i);
        sum +=
            dt_box_loss_of(diff, delta, at, boxes + 4 * ((size_t)image * l->n_slots + (size_t)slot),
                           l->detect->kind, l->detect->beta);
        for (int k = 0; k < 4 && l->diff; k++)
            l->diff[element[k]] = (float)(diff[k] * (double)scale);
    }
    return sum;
}

static dt_status run_box_loss(struct dt_exec *exec)
{
    const struct losses l = losses_of(exec, exec->rows.height);
    const float *boxes = dt_cpu_src(exec, DT_DETECT_LOSS_BOXES);
    if (l.diff) {
#pragma omp parallel for schedule(static)
        for (int i = 0; i < l.rows.n * l.rows.n_blocks; i++)
            memset(l.diff + (size_t)i * l.rows.row_elements, 0,
                   l.rows.row_elements * sizeof(float));
    }
#pragma omp parallel for schedule(static)
    for (int i = 0; i < l.rows.n * l.n_parts; i++)
        l.sum[i] = box_row(&l, boxes, i / l.n_parts, i % l.n_parts);
    add_total(&exec->dev->counters.box_loss, NULL, &l);
    return DT_OK;
}

DT_CPU_OP(focal_loss, prepare_loss, run_focal_loss, false);
DT_CPU_OP(box_loss, prepare_loss, run_box_loss, false);
