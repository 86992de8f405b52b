/* Suppression in the order of the scores. Every candidate is compared with those taken before it,
 * of which there are at most `max`, so that thousands of candidates need no more than a millisecond
 * or two. */
#include "boxes/boxes.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/mem.h"

struct ranked {
    const float *row;
    int place; /* among all candidates */
};

static int by_score(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    int by_value = (x->row[4] < y->row[4]) - (x->row[4] > y->row[4]);
    return by_value ? by_value : x->place - y->place;
}

static bool is_finite(const float row[DT_CANDIDATE])
{
    bool finite = true;
    for (int i = 0; i < DT_CANDIDATE; i++)
        finite = finite && isfinite(row[i]);
    return finite;
}

static float area_of(const float box[4])
{
    return (box[2] - box[0]) * (box[3] - box[1]);
}

/* The common length of a[first] .. a[first + 2] and the same side of b; 0 if they are apart. */
static float overlap(const float a[4], const float b[4], int first)
{
    float low = a[first] > b[first] ? a[first] : b[first];
    float high = a[first + 2] < b[first + 2] ? a[first + 2] : b[first + 2];
    return high > low ? high - low : 0;
}

static float iou_of(const float a[4], const float b[4])
{
    float both = overlap(a, b, 0) * overlap(a, b, 1);
    return both > 0 ? both / (area_of(a) + area_of(b) - both) : 0;
}

static bool is_covered(const struct dt_detection *better, int n, const struct dt_detection *d,
                       double iou)
{
    for (int i = 0; i < n; i++) {
        if (better[i].label == d->label && (double)iou_of(better[i].box, d->box) > iou)
            return true;
    }
    return false;
}

static int rank_all(struct ranked *ranked, const struct dt_candidates *level, int n_levels)
{
    int n = 0;
    for (int l = 0; l < n_levels; l++) {
        for (int i = 0; i < level[l].n; i++) {
            const float *row = level[l].rows + (size_t)i * DT_CANDIDATE;
            if (is_finite(row)) {
                ranked[n] = (struct ranked){row, n};
                n++;
            }
        }
    }
    qsort(ranked, (size_t)n, sizeof *ranked, by_score);
    return n;
}

dt_status dt_detect_nms(struct dt_detection *out, int *n_out, const struct dt_candidates *level,
                        int n_levels, double iou, int max)
{
    struct ranked *ranked;
    size_t total = 0;
    for (int l = 0; l < n_levels; l++)
        total += (size_t)level[l].n;
    DT_TRY(DT_NEW(ranked, total));
    const int n = rank_all(ranked, level, n_levels);
    *n_out = 0;
    for (int i = 0; i < n && *n_out < max; i++) {
        const float *row = ranked[i].row;
        const struct dt_detection d = {{row[0], row[1], row[2], row[3]}, row[4], (int)row[5]};
        if (!is_covered(out, *n_out, &d, iou))
            out[(*n_out)++] = d;
    }
    free(ranked);
    return DT_OK;
}
