/* Non-maximum suppression against one that compares all pairs, and cases by hand. Exact: both take
 * the IoU in fp32. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "boxes/boxes.h"
#include "test.h"

enum { MANY = 400 };

static int run(struct dt_detection *out, float (*row)[DT_CANDIDATE], int n, double iou, int max)
{
    const struct dt_candidates all = {n > 0 ? row[0] : NULL, n};
    int n_out = -1;
    assert_int_equal(dt_detect_nms(out, &n_out, &all, 1, iou, max), DT_OK);
    return n_out;
}

static void check_row(const struct dt_detection *d, const float row[DT_CANDIDATE])
{
    assert_memory_equal(d->box, row, sizeof d->box);
    assert_true(d->score >= row[4] && d->score <= row[4]);
    assert_int_equal(d->label, (int)row[5]);
}

TEST(by_hand)
{
    /* IoU of the first with the second 0.5, of the second with the third 1/3. */
    float row[][DT_CANDIDATE] = {{0, 0, 10, 10, 0.7f, 1},
                                 {0, 0, 10, 20, 0.9f, 1},
                                 {0, 10, 10, 30, 0.8f, 1},
                                 {0, 0, 10, 20, 0.6f, 2}};
    struct dt_detection out[4];
    assert_int_equal(run(out, row, 4, 0.5, 4), 4); /* 0.5 is not above 0.5 */
    check_row(&out[0], row[1]);
    check_row(&out[1], row[2]);
    check_row(&out[2], row[0]);
    check_row(&out[3], row[3]);
    assert_int_equal(run(out, row, 4, 0.49, 4), 3); /* the other class stays */
    check_row(&out[2], row[3]);
    assert_int_equal(run(out, row, 4, 0.3, 4), 2); /* what is suppressed suppresses nothing */
    check_row(&out[0], row[1]);
    check_row(&out[1], row[3]);
    assert_int_equal(run(out, row, 4, 0.3, 1), 1);
    assert_int_equal(run(out, row, 4, 0.3, 0), 0);
    assert_int_equal(run(out, NULL, 0, 0.3, 4), 0);
}

/* Of equal scores the first one counts, across levels too. */
TEST(ties)
{
    float first[][DT_CANDIDATE] = {{0, 0, 9, 10, 0.5f, 0}, {0, 0, 10, 10, 0.5f, 0}};
    float second[][DT_CANDIDATE] = {
        {0, 1, 10, 10, 0.5f, 0}, {50, 50, 60, 60, 0.5f, 0}, {0, 0, 10, 10, 0.5f, 1}};
    const struct dt_candidates level[] = {{first[0], 2}, {NULL, 0}, {second[0], 3}};
    struct dt_detection out[8];
    int n;
    assert_int_equal(dt_detect_nms(out, &n, level, 3, 0.5, 8), DT_OK);
    assert_int_equal(n, 3);
    check_row(&out[0], first[0]);
    check_row(&out[1], second[1]);
    check_row(&out[2], second[2]);
}

/* Numbers that are not finite leave the others alone; boxes without area stay. */
TEST(bad)
{
    float row[][DT_CANDIDATE] = {{0, 0, 10, 10, 0.5f, 0},
                                 {3, 3, 3, 8, 0.9f, 0},
                                 {3, 3, 3, 8, 0.8f, 0},
                                 {0, 0, 10, 10, 0.4f, 0},
                                 {9, 9, 2, 2, 0.7f, 0}};
    struct dt_detection out[DT_CANDIDATE];
    assert_int_equal(run(out, row, 5, 0.5, 6), 4);
    for (int i = 0; i < 6; i++) {
        float bad[DT_CANDIDATE][DT_CANDIDATE];
        memcpy(bad, row, sizeof row);
        memcpy(bad[5], (const float[]){0, 0, 10, 10, 0.95f, 0}, sizeof bad[5]);
        bad[5][i] = i % 2 ? NAN : INFINITY;
        assert_int_equal(run(out, bad, 6, 0.5, 6), 4);
        check_row(&out[0], row[1]);
        check_row(&out[3], row[0]);
    }
}

static float iou_of(const float a[4], const float b[4])
{
    float w = fminf(a[2], b[2]) - fmaxf(a[0], b[0]), h = fminf(a[3], b[3]) - fmaxf(a[1], b[1]);
    float both = fmaxf(0, w) * fmaxf(0, h);
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both);
}

/* Class by class, the best of those left suppresses; as torchvision's _batched_nms_vanilla. */
static void suppress(bool *kept, float (*row)[DT_CANDIDATE], int n, int label, double iou)
{
    for (;;) {
        int best = -1;
        for (int i = 0; i < n; i++) {
            if (!kept[i] && row[i][5] > (float)label - 1 && row[i][5] < (float)label + 1 &&
                (best < 0 || row[i][4] > row[best][4])) {
                bool lives = true;
                for (int k = 0; k < n && lives; k++)
                    lives = !(kept[k] && row[k][5] >= row[i][5] && row[k][5] <= row[i][5] &&
                              (double)iou_of(row[k], row[i]) > iou);
                best = lives ? i : best;
            }
        }
        if (best < 0)
            return;
        kept[best] = true;
    }
}

static void fill(float (*row)[DT_CANDIDATE], int n, int n_classes, uint64_t seed)
{
    struct dt_rng rng;
    dt_rng_init(&rng, seed, DT_RNG_SYNTHETIC, 0, 0);
    for (int i = 0; i < n; i++) {
        float x = (float)dt_rng_below(&rng, 40), y = (float)dt_rng_below(&rng, 40);
        row[i][0] = x;
        row[i][1] = y;
        row[i][2] = x + 1 + (float)dt_rng_below(&rng, 20);
        row[i][3] = y + 1 + (float)dt_rng_below(&rng, 20);
        row[i][4] = 0.05f + 0.01f * (float)dt_rng_below(&rng, 60); /* many ties */
        row[i][5] = (float)dt_rng_below(&rng, (uint32_t)n_classes);
    }
}

/* The kept ones in the order of their scores: out[0 .. n_out). */
static void check_all(const struct dt_detection *out, int n_out, bool *kept,
                      float (*row)[DT_CANDIDATE], int n)
{
    for (int i = 0; i < n_out; i++) {
        int best = -1;
        for (int k = 0; k < n; k++)
            best = kept[k] && (best < 0 || row[k][4] > row[best][4]) ? k : best;
        assert_true(best >= 0);
        check_row(&out[i], row[best]);
        kept[best] = false;
    }
}

TEST(random)
{
    static float row[MANY][DT_CANDIDATE];
    static struct dt_detection out[MANY];
    static const int counts[] = {1, 2, 17, 200, MANY};
    for (int round = 0; round < 60; round++) {
        const int n = counts[round % (int)DT_COUNT(counts)], n_classes = 1 + round % 4;
        const double iou = 0.2 + 0.1 * (round % 7);
        bool kept[MANY] = {false};
        fill(row, n, n_classes, (uint64_t)round);
        for (int label = 0; label < n_classes; label++)
            suppress(kept, row, n, label, iou);
        int total = 0, max = round % 3 ? n : n / 4;
        for (int i = 0; i < n; i++)
            total += kept[i];
        int n_out = run(out, row, n, iou, max);
        assert_int_equal(n_out, total < max ? total : max);
        check_all(out, n_out, kept, row, n);
    }
}

TEST_MAIN(NULL, NULL)
