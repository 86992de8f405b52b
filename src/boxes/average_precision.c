/* COCO's evaluation, category by category: match the detections of each image with its ground
 * truth, at ten thresholds of the IoU and in four ranges of the area at once (one bit for each
 * threshold), then rank the detections of all images and follow precision and recall. Where two
 * are equal, order decides; every sort here is stable, as pycocotools' are. */
#include "boxes/average_precision.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"

enum { N_IOUS = 10, N_AREAS = 4, N_RECALLS = 101, IOU_75 = 5, FEW = 10 };

#define NAME_OF(name) #name,
const char *const dt_coco_names[DT_N_COCO] = {DT_COCO_LIST(NAME_OF)};

/* All, small, medium, large; both bounds belong to the range. */
static const double area_range[N_AREAS][2] = {{0, 1e10}, {0, 1024}, {1024, 9216}, {9216, 1e10}};

/* A box in the order of labels, images, falling scores, and places in its list. */
struct ranked {
    int32_t label;
    uint32_t image;
    double score;
    size_t place;
};

/* A detection and its fate, a bit for each threshold; neither bit: it is a false one. */
struct matched {
    double score;
    size_t place;  /* in the order of images */
    uint32_t rank; /* in its image, 0 is the best */
    uint16_t hit[N_AREAS];
    uint16_t ignored[N_AREAS]; /* it counts neither way */
};

/* A ground truth of the image being evaluated. */
struct target {
    const struct dt_truth *truth;
    double iou; /* with the detection in question */
    uint16_t taken[N_AREAS];
    bool ignored[N_AREAS];
};

/* Sums over the categories that have a ground truth in the range. */
struct total {
    double ap[N_AREAS][N_IOUS];
    double recall[N_AREAS], recall1, recall10;
    int n[N_AREAS];
};

/* The category being evaluated. */
struct category {
    const struct ranked *found, *truth;
    size_t n_found, n_truths;
    size_t n_counted[N_AREAS]; /* truths that are not ignored */
};

struct work {
    const struct dt_average_precision_input *input;
    struct ranked *found, *truth;
    size_t n_truths;
    struct matched *matched;
    struct target *target;
    double *precision;
    struct total total;
};

static double iou_at(int i)
{
    return i == N_IOUS - 1 ? 0.95 : 0.5 + i * ((0.95 - 0.5) / (N_IOUS - 1));
}

static int by_rank(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->label != y->label)
        return x->label < y->label ? -1 : 1;
    if (x->image != y->image)
        return x->image < y->image ? -1 : 1;
    const int by_value = (x->score < y->score) - (x->score > y->score);
    return by_value ? by_value : (x->place > y->place) - (x->place < y->place);
}

static int by_score(const void *a, const void *b)
{
    const struct matched *x = a, *y = b;
    const int by_value = (x->score < y->score) - (x->score > y->score);
    return by_value ? by_value : (x->place > y->place) - (x->place < y->place);
}

static double overlap(double a, double a_size, double b, double b_size)
{
    return fmin(a + a_size, b + b_size) - fmax(a, b);
}

/* With a crowd: the part of the detection that lies in it. */
static double iou_of(const struct dt_found *d, const struct dt_truth *t)
{
    const double w = overlap(d->x, d->w, t->x, t->w), h = overlap(d->y, d->h, t->y, t->h);
    if (w <= 0 || h <= 0)
        return 0;
    const double area = d->w * d->h, both = w * h;
    return both / (t->is_crowd ? area : area + t->w * t->h - both);
}

static bool is_outside(double area, int range)
{
    return area < area_range[range][0] || area > area_range[range][1];
}

/* The free target, among the ignored or the others, with the highest IoU that is at least `iou`;
 * of equal ones the last. A crowd is never taken. -1: none. */
static int best_of(const struct target *target, size_t n, int area, unsigned bit, double iou,
                   bool ignored)
{
    int best = -1;
    for (size_t i = 0; i < n; i++) {
        const struct target *t = &target[i];
        const bool taken = (t->taken[area] & bit) && !t->truth->is_crowd;
        if (taken || t->ignored[area] != ignored || t->iou < iou)
            continue;
        iou = t->iou;
        best = (int)i;
    }
    return best;
}

static void match(struct matched *j, const struct dt_found *found, struct target *target, size_t n)
{
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        target[i].iou = iou_of(found, target[i].truth);
        any = any || !(target[i].iou < iou_at(0));
    }
    for (int area = 0; area < N_AREAS; area++) {
        for (int t = 0; any && t < N_IOUS; t++) {
            const unsigned bit = 1u << t;
            const int hit = best_of(target, n, area, bit, iou_at(t), false);
            const int best = hit >= 0 ? hit : best_of(target, n, area, bit, iou_at(t), true);
            uint16_t *fate = hit >= 0 ? j->hit : j->ignored;
            if (best < 0)
                continue;
            fate[area] = (uint16_t)(fate[area] | bit);
            target[best].taken[area] = (uint16_t)(target[best].taken[area] | bit);
        }
        if (is_outside(found->w * found->h, area)) /* a false one of another size */
            j->ignored[area] = (uint16_t)~j->hit[area];
    }
}

/* Ground truths [first, end) of the category are those of one image. */
static void fill_targets(struct work *w, struct category *c, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++) {
        const struct dt_truth *truth = &w->input->truths[c->truth[i].place];
        struct target *target = &w->target[i - first];
        *target = (struct target){.truth = truth};
        for (int area = 0; area < N_AREAS; area++) {
            target->ignored[area] = truth->is_crowd || is_outside(truth->area, area);
            c->n_counted[area] += !target->ignored[area];
        }
    }
}

static size_t end_of_image(const struct ranked *ranked, size_t first, size_t n, uint32_t image)
{
    while (first < n && ranked[first].image == image)
        first++;
    return first;
}

/* Matches the detections of image after image with its truths; returns how many count. */
static size_t match_images(struct work *w, struct category *c)
{
    size_t n = 0, found = 0, truth = 0;
    while (found < c->n_found || truth < c->n_truths) {
        uint32_t image = found < c->n_found ? c->found[found].image : UINT32_MAX;
        if (truth < c->n_truths && c->truth[truth].image < image)
            image = c->truth[truth].image;
        const size_t end_truth = end_of_image(c->truth, truth, c->n_truths, image);
        const size_t end_found = end_of_image(c->found, found, c->n_found, image);
        fill_targets(w, c, truth, end_truth);
        for (size_t i = found; i < end_found && i - found < (size_t)w->input->max_detections; i++) {
            w->matched[n] = (struct matched){
                .score = c->found[i].score, .place = n, .rank = (uint32_t)(i - found)};
            match(&w->matched[n++], &w->input->found[c->found[i].place], w->target,
                  end_truth - truth);
        }
        truth = end_truth;
        found = end_found;
    }
    qsort(w->matched, n, sizeof *w->matched, by_score);
    return n;
}

/* The precision at every hit, of which there are at most as many as truths that count. */
static size_t precisions(double *precision, const struct matched *matched, size_t n, int area,
                         unsigned bit)
{
    size_t hits = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        if (matched[i].hit[area] & bit) {
            all++;
            hits++;
            precision[hits - 1] = (double)hits / ((double)all + DBL_EPSILON);
        } else {
            all += !(matched[i].ignored[area] & bit);
        }
    }
    return hits;
}

/* The mean, over the thresholds of the recall, of the highest precision at that recall or more. */
static double mean_precision(double *precision, size_t hits, size_t n_counted)
{
    double sum = 0;
    size_t at = 0;
    for (size_t i = hits; i > 1; i--)
        precision[i - 2] = fmax(precision[i - 2], precision[i - 1]);
    for (int r = 0; r < N_RECALLS; r++) {
        while (at < hits && (double)(at + 1) / (double)n_counted < r * 0.01)
            at++;
        sum += at < hits ? precision[at] : 0;
    }
    return sum / N_RECALLS;
}

/* Mean over the thresholds of the IoU, of the `max` best of each image. */
static double mean_recall(const struct matched *matched, size_t n, uint32_t max, size_t n_counted)
{
    double hits = 0;
    for (size_t i = 0; i < n; i++) {
        if (matched[i].rank < max)
            hits += __builtin_popcount(matched[i].hit[0]);
    }
    return hits / (double)n_counted / N_IOUS;
}

static void add_area(struct work *w, const struct category *c, size_t n, int area,
                     struct dt_category_precision *out)
{
    struct total *total = &w->total;
    double ap = 0, ap50 = 0, recall = 0;
    for (int t = 0; t < N_IOUS; t++) {
        const size_t hits = precisions(w->precision, w->matched, n, area, 1u << t);
        const double mean = mean_precision(w->precision, hits, c->n_counted[area]);
        recall += (double)hits / (double)c->n_counted[area] / N_IOUS;
        total->ap[area][t] += mean;
        ap += mean / N_IOUS;
        ap50 = t ? ap50 : mean;
    }
    total->recall[area] += recall;
    total->n[area]++;
    if (area == 0) {
        total->recall1 += mean_recall(w->matched, n, 1, c->n_counted[0]);
        total->recall10 += mean_recall(w->matched, n, FEW, c->n_counted[0]);
        *out = (struct dt_category_precision){ap, ap50};
    }
}

static size_t end_of_label(const struct ranked *ranked, size_t first, size_t n, int32_t label)
{
    while (first < n && ranked[first].label == label)
        first++;
    return first;
}

static void add_categories(struct work *w, struct dt_category_precision *out)
{
    size_t found = 0, truth = 0;
    for (int32_t label = 0; label < w->input->n_labels; label++) {
        const size_t end_found = end_of_label(w->found, found, w->input->n_found, label);
        const size_t end_truth = end_of_label(w->truth, truth, w->n_truths, label);
        struct category c = {.found = w->found + found,
                             .truth = w->truth + truth,
                             .n_found = end_found - found,
                             .n_truths = end_truth - truth};
        struct dt_category_precision precision = {-1, -1};
        const size_t n = match_images(w, &c);
        for (int area = 0; area < N_AREAS; area++)
            if (c.n_counted[area])
                add_area(w, &c, n, area, &precision);
        if (out)
            out[label] = precision;
        found = end_found;
        truth = end_truth;
        if (w->input->progress)
            w->input->progress(w->input->context, label + 1, w->input->n_labels);
    }
}

static double mean_of(double sum, int n)
{
    return n > 0 ? sum / n : -1;
}

static double mean_ap(const struct total *total, int area)
{
    double sum = 0;
    for (int t = 0; t < N_IOUS; t++)
        sum += total->ap[area][t];
    return mean_of(sum, total->n[area] * N_IOUS);
}

static void summarize(double value[DT_N_COCO], const struct total *total)
{
    double *v = value;
    *v++ = mean_ap(total, 0);
    *v++ = mean_of(total->ap[0][0], total->n[0]);
    *v++ = mean_of(total->ap[0][IOU_75], total->n[0]);
    for (int area = 1; area < N_AREAS; area++)
        *v++ = mean_ap(total, area);
    *v++ = mean_of(total->recall1, total->n[0]);
    *v++ = mean_of(total->recall10, total->n[0]);
    for (int area = 0; area < N_AREAS; area++)
        *v++ = mean_of(total->recall[area], total->n[area]);
}

dt_status dt_average_precision(double value[DT_N_COCO], struct dt_category_precision *category,
                               const struct dt_average_precision_input *input)
{
    struct work w = {.input = input, .n_truths = input->first_truth[input->n_images]};
    dt_status status = DT_OK;
    size_t n = 0;
    DT_TRY_OUT(DT_NEW(w.found, input->n_found));
    DT_TRY_OUT(DT_NEW(w.matched, input->n_found));
    DT_TRY_OUT(DT_NEW(w.truth, w.n_truths));
    DT_TRY_OUT(DT_NEW(w.target, w.n_truths));
    DT_TRY_OUT(DT_NEW(w.precision, w.n_truths));
    for (size_t i = 0; i < input->n_found; i++) {
        const struct dt_found *found = &input->found[i];
        w.found[i] = (struct ranked){found->label, found->image, found->score, i};
    }
    for (uint32_t image = 0; image < input->n_images; image++)
        for (size_t i = input->first_truth[image]; i < input->first_truth[image + 1]; i++)
            w.truth[n++] = (struct ranked){input->truths[i].label, image, 0, i};
    qsort(w.found, input->n_found, sizeof *w.found, by_rank);
    qsort(w.truth, w.n_truths, sizeof *w.truth, by_rank);
    add_categories(&w, category);
    summarize(value, &w.total);
out:
    free(w.precision);
    free(w.target);
    free(w.truth);
    free(w.matched);
    free(w.found);
    return status;
}
