/* Matches anchors with boxes, as torchvision's Matcher does by box_iou: in fp32 and in its order of
 * operations, so that the results are the same integers.
 *
 * The overlaps of all anchors with all boxes are never stored. A first pass finds the largest
 * overlap of every box, a second one the best box of every anchor; both go only through the anchors
 * that touch the box, since all others have an IoU of 0. IoUs are not negative and thus have the
 * order of their bits, as integers. */
#include <string.h>

#include "cpu/cpu_internal.h"
#include "dtrain/box.h"

enum { PLACES = 128 }; /* that are looked at together */

struct matching {
    const struct dt_detect *detect;
    struct dt_level level[DT_MAX_LEVELS];
    const float *boxes;
    const int32_t *labels;
    int n, n_slots, n_anchors, n_rows; /* rows of places of all levels */
    int32_t *match;
    int32_t *best;  /* work: of every box, the bits of its largest IoU */
    int32_t *found; /* work: foreground anchors of every row of every image */
};

/* Anchors of one shape at neighbouring places of a row. */
struct row {
    float low[2], high[2]; /* of the shape, in y and x; in y with the row added */
    int stride, first, n;
};

struct span {
    int begin, end;
};

union word {
    float value;
    int32_t bits;
};

static struct matching matching_of(const struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const int *dim = exec->graph->tensor[node->src[0]].dim;
    struct matching m = {.detect = &node->attr.detect, .n = dim[0], .n_slots = dim[1]};
    const struct dt_anchors *anchors = &m.detect->anchors;
    for (int i = 0; i < anchors->n_levels; i++) {
        m.level[i] = dt_level_of(anchors, i);
        m.n_rows += anchors->height[i];
    }
    m.n_anchors = dt_anchors_before(anchors, anchors->n_levels);
    return m;
}

static dt_status prepare_match(struct dt_exec *exec)
{
    const struct matching m = matching_of(exec);
    DT_TRY(dt_cpu_port_add_kinds(exec, NULL, 0));
    exec->work_offset =
        dt_cpu_reserve(exec, (size_t)m.n * (size_t)(m.n_slots + m.n_rows) * sizeof(int32_t));
    return DT_OK;
}

/* The places p of [0, n) at which low + p * stride .. high + p * stride may touch a box; some more
 * do no harm. */
static struct span touching(float low, float high, int stride, int n, float box_low, float box_high)
{
    const float begin = floorf((box_low - high) / (float)stride);
    const float end = ceilf((box_high - low) / (float)stride) + 1;
    return (struct span){(int)fminf(fmaxf(begin, 0), (float)n),
                         (int)fminf(fmaxf(end, 0), (float)n)};
}

static struct row row_of(const struct dt_level *level, int y, int shape)
{
    const float *cell = level->cell[shape], shift = (float)(y * level->stride[0]);
    return (struct row){.low = {cell[1] + shift, cell[0]},
                        .high = {cell[3] + shift, cell[2]},
                        .stride = level->stride[1]};
}

/* The IoU of a box with the row's anchors of `span`, as bits. */
static void overlap(int32_t *iou, const struct row *row, const float *box, struct span span)
{
    const float area = (box[2] - box[0]) * (box[3] - box[1]);
    const float anchor_height = row->high[0] - row->low[0];
    const float top = row->low[0] > box[1] ? row->low[0] : box[1];
    const float bottom = row->high[0] < box[3] ? row->high[0] : box[3];
    const float height = bottom > top ? bottom - top : 0;
#pragma omp simd
    for (int i = span.begin; i < span.end; i++) {
        const float shift = (float)((row->first + i) * row->stride);
        const float low = row->low[1] + shift, high = row->high[1] + shift;
        const float left = low > box[0] ? low : box[0], right = high < box[2] ? high : box[2];
        union word width = {.value = right - left};
        width.bits &= ~(width.bits >> 31); /* at least 0 */
        const float inter = width.value * height;
        const union word share = {inter / (area + (high - low) * anchor_height - inter)};
        iou[i - span.begin] = share.bits;
    }
}

/* --- First pass --- */

static int32_t best_of_row(const struct row *row, const float *box, int32_t best, struct span span)
{
    int32_t iou[PLACES];
    for (int i = span.begin; i < span.end; i += PLACES) {
        const int n = span.end - i < PLACES ? span.end - i : PLACES;
        overlap(iou, row, box, (struct span){i, i + n});
#pragma omp simd reduction(max : best)
        for (int k = 0; k < n; k++)
            best = iou[k] > best ? iou[k] : best;
    }
    return best;
}

static int32_t best_of_box(const struct matching *m, const float *box)
{
    int32_t best = 0;
    for (int i = 0; i < m->detect->anchors.n_levels * DT_CELL_ANCHORS; i++) {
        const struct dt_level *level = &m->level[i / DT_CELL_ANCHORS];
        const float *cell = level->cell[i % DT_CELL_ANCHORS];
        const struct span y =
            touching(cell[1], cell[3], level->stride[0], level->height, box[1], box[3]);
        const struct span x =
            touching(cell[0], cell[2], level->stride[1], level->width, box[0], box[2]);
        for (int k = y.begin; k < y.end; k++) {
            const struct row row = row_of(level, k, i % DT_CELL_ANCHORS);
            best = best_of_row(&row, box, best, x);
        }
    }
    return best;
}

/* --- Second pass --- */

/* For each anchor of a row: the largest IoU so far, the box that has it, and whether it is kept
 * because it is a box's largest. */
struct winners {
    int32_t iou[PLACES], slot[PLACES], kept[PLACES];
};

static void try_box(struct winners *won, const struct row *row, const float *box, int slot,
                    int32_t best)
{
    int32_t iou[PLACES];
    if (row->low[0] >= box[3] || row->high[0] <= box[1])
        return;
    const float shift = (float)(row->first * row->stride);
    const struct span span =
        touching(row->low[1] + shift, row->high[1] + shift, row->stride, row->n, box[0], box[2]);
    overlap(iou, row, box, span);
#pragma omp simd
    for (int i = span.begin; i < span.end; i++) {
        const int32_t value = iou[i - span.begin];
        won->kept[i] |= value == best;
        won->slot[i] = value > won->iou[i] ? slot : won->slot[i];
        won->iou[i] = value > won->iou[i] ? value : won->iou[i];
    }
}

/* Before any box is tried, all anchors have an IoU of 0 with the first one; if 0 is the largest
 * IoU of some box, every anchor has it. */
static void begin_row(struct winners *won, const struct matching *m, int image)
{
    const size_t first = (size_t)image * (size_t)m->n_slots;
    int32_t slot = -1, kept = 0;
    for (int k = m->n_slots - 1; k >= 0; k--) {
        if (m->labels[first + (size_t)k] < 0)
            continue;
        slot = k;
        kept |= m->detect->low_quality && m->best[first + (size_t)k] == 0;
    }
    for (int i = 0; i < PLACES; i++) {
        won->iou[i] = 0;
        won->slot[i] = slot;
        won->kept[i] = kept;
    }
}

static int32_t decide(const struct matching *m, const struct winners *won, int i)
{
    const union word iou = {.bits = won->iou[i]};
    if (won->kept[i] || won->slot[i] < 0)
        return won->slot[i];
    return iou.value < m->detect->background   ? -1
           : iou.value < m->detect->foreground ? -2
                                               : won->slot[i];
}

/* Anchors of one shape at up to PLACES places; returns how many are foreground. */
static int match_places(const struct matching *m, int image, int32_t *match, const struct row *row)
{
    const size_t first = (size_t)image * (size_t)m->n_slots;
    struct winners won;
    int found = 0;
    begin_row(&won, m, image);
    for (int slot = 0; slot < m->n_slots; slot++) {
        const size_t k = first + (size_t)slot;
        if (m->labels[k] >= 0)
            try_box(&won, row, m->boxes + 4 * k, slot, m->detect->low_quality ? m->best[k] : -1);
    }
    for (int i = 0; i < row->n; i++) {
        match[i * DT_CELL_ANCHORS] = decide(m, &won, i);
        found += match[i * DT_CELL_ANCHORS] >= 0;
    }
    return found;
}

static int match_row(const struct matching *m, int image, int y)
{
    const struct dt_level *level = m->level;
    int found = 0;
    for (; y >= level->height; level++)
        y -= level->height;
    const size_t place = (size_t)y * (size_t)level->width;
    int32_t *match = m->match + (size_t)image * (size_t)m->n_anchors + (size_t)level->first +
                     place * DT_CELL_ANCHORS;
    for (int x = 0; x < level->width; x += PLACES) {
        for (int shape = 0; shape < DT_CELL_ANCHORS; shape++) {
            struct row row = row_of(level, y, shape);
            row.first = x;
            row.n = level->width - x < PLACES ? level->width - x : PLACES;
            found += match_places(m, image, match + x * DT_CELL_ANCHORS + shape, &row);
        }
    }
    return found;
}

static dt_status run_match(struct dt_exec *exec)
{
    struct matching m = matching_of(exec);
    m.boxes = dt_cpu_src(exec, DT_MATCH_BOXES);
    m.labels = dt_cpu_src(exec, DT_MATCH_BOX_LABELS);
    m.match = dt_cpu_dst(exec, DT_MATCH_DST);
    m.best = exec->work;
    m.found = m.best + m.n * m.n_slots;

#pragma omp parallel for schedule(static, 1)
    for (int i = 0; i < m.n * m.n_slots; i++)
        m.best[i] = m.labels[i] < 0 ? 0 : best_of_box(&m, m.boxes + 4 * (size_t)i);
#pragma omp parallel for schedule(static, 1)
    for (int i = 0; i < m.n * m.n_rows; i++)
        m.found[i] = match_row(&m, i / m.n_rows, i % m.n_rows);
    float *count = dt_cpu_dst(exec, DT_MATCH_COUNT);
    for (int i = 0; i < m.n; i++) {
        int found = 0;
        for (int k = 0; k < m.n_rows; k++)
            found += m.found[i * m.n_rows + k];
        count[i] = (float)found;
        exec->dev->counters.weight += m.detect->global ? found : 1;
    }
    exec->dev->counters.n += m.n;
    return DT_OK;
}

DT_CPU_OP(match, prepare_match, run_match, false);
