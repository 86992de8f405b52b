/* COCO's evaluation against plain loops, written down from the definition, and cases by hand. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "boxes/average_precision.h"
#include "test.h"

enum { MAX_IMAGES = 16, MAX_TRUTHS = 200, MAX_FOUND = 1200, MAX_LABELS = 4, MAX_HITS = 512 };

struct scene {
    int n_images, n_labels, max_detections;
    size_t n_truths, n_found;
    struct dt_truth truth[MAX_TRUTHS]; /* image after image */
    size_t first_truth[MAX_IMAGES + 1];
    struct dt_found found[MAX_FOUND];
};

static void check_close(double a, double b)
{
    assert_true(fabs(a - b) <= 1e-12);
}

static void evaluate(const struct scene *s, double value[DT_N_COCO],
                     struct dt_category_precision *category)
{
    const struct dt_average_precision_input input = {
        .n_images = (uint32_t)s->n_images,
        .n_labels = s->n_labels,
        .truths = s->truth,
        .first_truth = s->first_truth,
        .found = s->found,
        .n_found = s->n_found,
        .max_detections = s->max_detections,
    };
    assert_int_equal(dt_average_precision(value, category, &input), DT_OK);
}

/* --- The reference: one threshold, one range and one category at a time --- */

static const double bounds[4][2] = {{0, 1e10}, {0, 1024}, {1024, 9216}, {9216, 1e10}};

struct outcome {
    double score;
    bool hit, ignored;
};

static double reference_iou(const struct dt_found *d, const struct dt_truth *t)
{
    double w = fmin(d->x + d->w, t->x + t->w) - fmax(d->x, t->x);
    double h = fmin(d->y + d->h, t->y + t->h) - fmax(d->y, t->y);
    double both = w > 0 && h > 0 ? w * h : 0;
    if (both <= 0)
        return 0;
    return both / (t->is_crowd ? d->w * d->h : d->w * d->h + t->w * t->h - both);
}

/* The next best of the image that was not yet `seen`. */
static int next_found(const struct scene *s, int image, int label, const bool *seen)
{
    int best = -1;
    for (int i = 0; i < (int)s->n_found; i++) {
        const struct dt_found *f = &s->found[i];
        if (!seen[i] && (int)f->image == image && f->label == label &&
            (best < 0 || f->score > s->found[best].score))
            best = i;
    }
    return best;
}

static bool is_ignored(const struct dt_truth *t, const double range[2])
{
    return t->is_crowd || t->area < range[0] || t->area > range[1];
}

static struct outcome match_one(const struct scene *s, const struct dt_found *d, int label,
                                double threshold, const double range[2], bool *taken)
{
    struct outcome o = {.score = d->score};
    int best = -1;
    double iou = threshold;
    for (int ignored = 0; ignored < 2 && best < 0; ignored++) {
        for (size_t i = s->first_truth[d->image]; i < s->first_truth[d->image + 1]; i++) {
            const struct dt_truth *t = &s->truth[i];
            if (t->label != label || is_ignored(t, range) != (ignored == 1) ||
                (taken[i] && !t->is_crowd) || reference_iou(d, t) < iou)
                continue;
            iou = reference_iou(d, t);
            best = (int)i;
        }
    }
    if (best >= 0) {
        taken[best] = true;
        o.ignored = is_ignored(&s->truth[best], range);
        o.hit = !o.ignored;
    } else {
        o.ignored = d->w * d->h < range[0] || d->w * d->h > range[1];
    }
    return o;
}

static int outcomes(struct outcome *out, const struct scene *s, int label, double threshold,
                    const double range[2], int max)
{
    bool seen[MAX_FOUND] = {false}, taken[MAX_TRUTHS] = {false};
    int n = 0;
    for (int image = 0; image < s->n_images; image++) {
        for (int k = 0; k < max; k++) {
            int i = next_found(s, image, label, seen);
            if (i < 0)
                break;
            seen[i] = true;
            out[n++] = match_one(s, &s->found[i], label, threshold, range, taken);
        }
    }
    return n;
}

/* Insertion keeps the order of equal ones. */
static void sort_outcomes(struct outcome *o, int n)
{
    for (int i = 1; i < n; i++) {
        struct outcome moved = o[i];
        int k = i;
        for (; k > 0 && o[k - 1].score < moved.score; k--)
            o[k] = o[k - 1];
        o[k] = moved;
    }
}

/* Average precision and recall; false without ground truth. */
static bool reference_curve(const struct scene *s, int label, double threshold,
                            const double range[2], int max, double *ap, double *recall)
{
    static struct outcome o[MAX_FOUND];
    static double pr[MAX_FOUND], rc[MAX_FOUND];
    int n_truths = 0, n = outcomes(o, s, label, threshold, range, max), m = 0, tp = 0, fp = 0;
    for (size_t i = 0; i < s->n_truths; i++)
        n_truths += s->truth[i].label == label && !is_ignored(&s->truth[i], range);
    if (n_truths == 0)
        return false;
    sort_outcomes(o, n);
    for (int i = 0; i < n; i++, m++) {
        tp += o[i].hit;
        fp += !o[i].hit && !o[i].ignored;
        rc[m] = (double)tp / n_truths;
        pr[m] = tp / ((double)(fp + tp) + ldexp(1, -52));
    }
    *ap = 0;
    for (int r = 0; r <= 100; r++) {
        double best = 0;
        for (int i = 0; i < m; i++)
            best = rc[i] >= r * 0.01 && pr[i] > best ? pr[i] : best;
        *ap += best / 101;
    }
    *recall = (double)tp / n_truths;
    return true;
}

/* Means over the categories with ground truth and over thresholds from .. to - 1. */
static double reference_mean(const struct scene *s, int from, int to, int area, int max,
                             bool wants_recall)
{
    double sum = 0;
    int n = 0;
    for (int label = 0; label < s->n_labels; label++) {
        for (int t = from; t < to; t++) {
            double ap, recall, threshold = t == 9 ? 0.95 : 0.5 + t * ((0.95 - 0.5) / 9);
            if (!reference_curve(s, label, threshold, bounds[area], max, &ap, &recall))
                continue;
            sum += wants_recall ? recall : ap;
            n++;
        }
    }
    return n > 0 ? sum / n : -1;
}

static void reference(const struct scene *s, double value[DT_N_COCO])
{
    const int max = s->max_detections;
    value[0] = reference_mean(s, 0, 10, 0, max, false);
    value[1] = reference_mean(s, 0, 1, 0, max, false);
    value[2] = reference_mean(s, 5, 6, 0, max, false);
    for (int area = 1; area < 4; area++)
        value[2 + area] = reference_mean(s, 0, 10, area, max, false);
    value[6] = reference_mean(s, 0, 10, 0, max < 1 ? max : 1, true);
    value[7] = reference_mean(s, 0, 10, 0, max < 10 ? max : 10, true);
    for (int area = 0; area < 4; area++)
        value[8 + area] = reference_mean(s, 0, 10, area, max, true);
}

static void check_equal(const double a[DT_N_COCO], const double b[DT_N_COCO])
{
    for (int i = 0; i < DT_N_COCO; i++)
        check_close(a[i], b[i]);
}

/* --- By hand --- */

static void add_truth(struct scene *s, int image, int label, double x, double size, bool crowd)
{
    s->truth[s->n_truths++] = (struct dt_truth){.x = x,
                                                .y = 5,
                                                .w = size,
                                                .h = size,
                                                .area = size * size,
                                                .id = (int64_t)s->n_truths + 1,
                                                .label = label,
                                                .is_crowd = crowd};
    for (int i = image + 1; i <= MAX_IMAGES; i++)
        s->first_truth[i] = s->n_truths;
}

static void add_found(struct scene *s, int image, int label, double x, double size, double score)
{
    s->found[s->n_found++] = (struct dt_found){.x = x,
                                               .y = 5,
                                               .w = size,
                                               .h = size,
                                               .score = score,
                                               .image = (uint32_t)image,
                                               .label = label};
}

static void check_value(const struct scene *s, int which, double expected)
{
    double value[DT_N_COCO], other[DT_N_COCO];
    evaluate(s, value, NULL);
    reference(s, other);
    check_equal(value, other);
    check_close(value[which], expected);
}

TEST(perfect)
{
    static struct scene s = {.n_images = 3, .n_labels = 3, .max_detections = 100};
    struct dt_category_precision category[3];
    double value[DT_N_COCO];
    add_truth(&s, 0, 0, 10, 20, false);
    add_truth(&s, 0, 2, 50, 40, false);
    add_truth(&s, 2, 0, 10, 200, false);
    add_found(&s, 2, 0, 10, 200, 0.6);
    add_found(&s, 0, 0, 10, 20, 0.9);
    add_found(&s, 0, 2, 50, 40, 0.3);
    add_found(&s, 1, 1, 50, 40, 0.3); /* a category without ground truth does not count */
    evaluate(&s, value, category);
    for (int i = 0; i < DT_N_COCO; i++)
        check_close(value[i], 1);
    check_close(category[0].ap, 1);
    check_close(category[0].ap50, 1);
    check_close(category[1].ap, -1);
    check_close(category[1].ap50, -1);
    check_close(category[2].ap, 1);
    check_value(&s, DT_COCO_AP, 1);
}

TEST(nothing)
{
    static struct scene s = {.n_images = 2, .n_labels = 2, .max_detections = 100};
    for (int i = 0; i < DT_N_COCO; i++)
        check_value(&s, i, -1);
    add_found(&s, 1, 1, 10, 20, 0.5); /* no truth */
    check_value(&s, DT_COCO_AP, -1);
    s.n_found = 0; /* no detection */
    add_truth(&s, 1, 1, 10, 20, false);
    check_value(&s, DT_COCO_AP, 0);
    check_value(&s, 3, 0);  /* ap_small */
    check_value(&s, 5, -1); /* ap_large */
    s = (struct scene){.n_labels = 1, .max_detections = 100};
    check_value(&s, DT_COCO_AP, -1); /* not one image */
}

/* Two false ones before the hit, one after it. */
TEST(precision)
{
    static struct scene s = {.n_images = 2, .n_labels = 1, .max_detections = 100};
    add_truth(&s, 0, 0, 10, 20, false);
    add_truth(&s, 1, 0, 10, 20, false);
    add_found(&s, 0, 0, 100, 20, 0.9);
    add_found(&s, 1, 0, 100, 20, 0.9);
    add_found(&s, 1, 0, 10, 20, 0.8);
    add_found(&s, 1, 0, 10, 20, 0.7); /* a second one of the same object is wrong */
    check_value(&s, DT_COCO_AP, 51. / 101 / 3);
    check_value(&s, 8, 0.5);        /* ar100 */
    check_value(&s, 6, 0);          /* ar1: the best one is wrong */
    add_found(&s, 0, 0, 10, 20, 1); /* the best of all */
    check_value(&s, DT_COCO_AP50, (51 + 50 * 0.5) / 101);
}

/* An IoU of exactly a threshold is enough: 0.5, and 0.75 = 300 / 400. */
TEST(threshold)
{
    static struct scene s = {.n_images = 1, .n_labels = 1, .max_detections = 100};
    add_truth(&s, 0, 0, 10, 20, false);
    add_found(&s, 0, 0, 10, 20, 0.9);
    s.found[0].h = 15;
    check_value(&s, DT_COCO_AP75, 1);
    check_value(&s, DT_COCO_AP, 0.6);
    s.found[0].h = 14.9;
    check_value(&s, DT_COCO_AP75, 0);
    s.found[0].h = 10;
    check_value(&s, DT_COCO_AP, 0.1);
    s.found[0].w = -20; /* a box inside out meets nothing */
    check_value(&s, DT_COCO_AP, 0);
}

/* Of two truths with the same IoU the later one is taken, so that the former is left for a box that
 * meets only that one. */
TEST(ties)
{
    static struct scene s = {.n_images = 1, .n_labels = 1, .max_detections = 100};
    add_truth(&s, 0, 0, 10, 20, false);
    add_truth(&s, 0, 0, 14, 20, false);
    add_found(&s, 0, 0, 12, 20, 0.9);
    add_found(&s, 0, 0, 6, 20, 0.9);
    check_value(&s, DT_COCO_AP50, 1);
    s.found[1].x = 18; /* meets only the one that is gone */
    check_value(&s, DT_COCO_AP50, 51. / 101);
    s.found[1].x = 12; /* of equal scores the first in the list is judged first */
    s.found[0].x = 18;
    check_value(&s, DT_COCO_AP50, 1);
}

TEST(crowd)
{
    static struct scene s = {.n_images = 1, .n_labels = 1, .max_detections = 100};
    add_truth(&s, 0, 0, 100, 100, true);
    check_value(&s, DT_COCO_AP, -1);
    add_truth(&s, 0, 0, 10, 20, false);
    add_found(&s, 0, 0, 120, 10, 0.9); /* inside: neither right nor wrong, any number of them */
    add_found(&s, 0, 0, 130, 10, 0.9);
    add_found(&s, 0, 0, 95, 10, 0.9); /* half of it inside, at 0.5 only */
    add_found(&s, 0, 0, 10, 20, 0.8);
    check_value(&s, DT_COCO_AP50, 1);
    check_value(&s, DT_COCO_AP75, 0.5);
}

/* The area of a truth is that of its object, the area of a detection that of its box. */
TEST(areas)
{
    static struct scene s = {.n_images = 1, .n_labels = 1, .max_detections = 100};
    add_truth(&s, 0, 0, 10, 40, false);
    s.truth[0].area = 1024; /* small and medium */
    add_found(&s, 0, 0, 10, 40, 0.9);
    add_found(&s, 0, 0, 200, 100, 0.95); /* false, but large */
    check_value(&s, DT_COCO_AP, 0.5);
    check_value(&s, 3, 1);
    check_value(&s, 4, 1);
    check_value(&s, 5, -1);
    s.found[1].w = s.found[1].h = 32;
    check_value(&s, 3, 0.5);
    check_value(&s, 4, 0.5);
}

TEST(max_detections)
{
    static struct scene s = {.n_images = 1, .n_labels = 2, .max_detections = 100};
    add_truth(&s, 0, 0, 10, 20, false);
    add_truth(&s, 0, 1, 10, 20, false);
    for (int i = 0; i < 100; i++)
        add_found(&s, 0, 0, 100, 20, 0.9 - i * 0.001);
    add_found(&s, 0, 0, 10, 20, 0.5);
    add_found(&s, 0, 1, 10, 20, 0.1); /* another category has a hundred of its own */
    check_value(&s, 8, 0.5);
    s.max_detections = 101;
    check_value(&s, 8, 1);
    check_value(&s, 7, 0.5);
    check_value(&s, DT_COCO_AP, (1 + 1. / 101) / 2);
    s.max_detections = 5;
    check_value(&s, 8, 0.5);
}

/* --- At random --- */

static void fill(struct scene *s, uint64_t seed)
{
    struct dt_rng rng;
    dt_rng_init(&rng, seed, DT_RNG_SYNTHETIC, 0, 0);
    static const int maxima[] = {100, 300, 3, 15};
    *s = (struct scene){.n_images = 1 + (int)dt_rng_below(&rng, MAX_IMAGES),
                        .n_labels = 1 + (int)dt_rng_below(&rng, MAX_LABELS),
                        .max_detections = maxima[seed % DT_COUNT(maxima)]};
    for (int image = 0; image < s->n_images; image++) {
        int n = (int)dt_rng_below(&rng, 4) ? (int)dt_rng_below(&rng, 12) : 0;
        for (int i = 0; i < n && s->n_truths < MAX_TRUTHS; i++) {
            double size = 8 * (1 + dt_rng_below(&rng, 16));
            add_truth(s, image, (int)dt_rng_below(&rng, (uint32_t)s->n_labels),
                      4 * dt_rng_below(&rng, 30), size, dt_rng_below(&rng, 8) == 0);
            s->truth[s->n_truths - 1].area *= 0.5 + 0.25 * dt_rng_below(&rng, 3);
        }
    }
    size_t n = s->n_truths * (1 + seed % 4) + dt_rng_below(&rng, 50);
    for (size_t i = 0; i < n && i < MAX_FOUND; i++) {
        int image = (int)dt_rng_below(&rng, (uint32_t)s->n_images);
        add_found(s, image, (int)dt_rng_below(&rng, (uint32_t)s->n_labels),
                  4 * dt_rng_below(&rng, 30), 8 * (1 + dt_rng_below(&rng, 16)),
                  0.05 * dt_rng_below(&rng, 20)); /* many ties */
        if (s->n_truths && dt_rng_below(&rng, 2)) {
            const size_t k = dt_rng_below(&rng, (uint32_t)s->n_truths);
            struct dt_found *f = &s->found[i];
            f->x = s->truth[k].x + dt_rng_below(&rng, 3);
            f->w = f->h = s->truth[k].w;
            f->label = s->truth[k].label;
            for (image = 0; s->first_truth[image + 1] <= k; image++)
                ;
            f->image = (uint32_t)image;
        }
    }
}

TEST(random)
{
    static struct scene s;
    int seen = 0;
    for (uint64_t seed = 0; seed < 120; seed++) {
        double value[DT_N_COCO], expected[DT_N_COCO];
        fill(&s, seed);
        evaluate(&s, value, NULL);
        reference(&s, expected);
        check_equal(value, expected);
        seen += value[0] > 0.1 && value[3] > 0 && value[5] > 0 && value[4] < 0.9;
    }
    assert_true(seen > 60);
}

/* Where no scores are equal, the order of the detections changes nothing. */
TEST(permutation)
{
    static struct scene s, other;
    double value[DT_N_COCO], again[DT_N_COCO];
    struct dt_category_precision category[MAX_LABELS], category2[MAX_LABELS];
    for (uint64_t seed = 1; seed < 20; seed++) {
        fill(&s, seed);
        for (size_t i = 0; i < s.n_found; i++)
            s.found[i].score = fmod((double)(i + 1) * 0.6180339887, 1);
        other = s;
        for (size_t i = 0; i < s.n_found; i++)
            other.found[i] = s.found[s.n_found - 1 - i];
        evaluate(&s, value, category);
        evaluate(&other, again, category2);
        assert_memory_equal(value, again, sizeof value);
        assert_memory_equal(category, category2, sizeof *category * (size_t)s.n_labels);
    }
}

TEST(names)
{
    assert_string_equal(dt_coco_names[DT_COCO_AP75], "ap75");
    assert_string_equal(dt_coco_names[DT_N_COCO - 1], "ar_large");
}

TEST_MAIN(NULL, NULL)
