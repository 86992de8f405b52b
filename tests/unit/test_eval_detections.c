/* Detections in pixels of the original images: the arithmetic of torchvision's resize_boxes and of
 * its conversion to COCO's boxes (fp32; the numbers are from PyTorch 1.13), and levels of a batch.
 */
#include <stdlib.h>
#include <string.h>

#include "eval/detections.h"
#include "test.h"

static void assert_exactly(double a, double b)
{
    assert_memory_equal(&a, &b, sizeof a);
}

TEST(scale)
{
    /* ratio = tensor(428.) / tensor(535.), ...; box * ratio; x2 - x1 */
    const struct dt_image_info info = {.id = 7, .width = 640, .height = 428};
    const struct dt_detection d = {{10.1f, 20.7f, 333.3f, 444.4f}, .score = 0.3f, .label = 5};
    const struct dt_found f = dt_detection_found(&d, 3, &info, (int32_t[]){535, 800});
    assert_exactly(f.x, 8.0800008773803711);
    assert_exactly(f.y, 16.560001373291016);
    assert_exactly(f.w, 258.55999755859375);
    assert_exactly(f.h, 338.95999145507812);
    assert_exactly(f.score, (double)0.3f);
    assert_int_equal(f.image, 3);
    assert_int_equal(f.label, 5);
}

/* Two images, two levels; of the first image the levels have two and one candidates. */
TEST(levels)
{
    float low[] = {0, 0, 4, 4, 0.5f, 1, 0, 0, 8, 8, 0.25f, 1, 1, 1, 2, 2, 0.5f, 0,
                   9, 9, 9, 9, 9,    9, 9, 9, 9, 9, 9,     9, 9, 9, 9, 9, 9,    9};
    float high[] = {0, 0, 4, 4, 0.75f, 1, 2, 2, 3, 3, 0.5f, 2};
    int32_t n_low[] = {2, 0}, n_high[] = {1, 1};
    const struct dt_levels levels = {.rows = {low, high},
                                     .n = {n_low, n_high},
                                     .stride = {3 * DT_CANDIDATE, DT_CANDIDATE},
                                     .n_levels = 2};
    struct dt_detection out[4];
    int n;
    assert_int_equal(dt_levels_detect(out, &n, &levels, 0, 0.5, 4), DT_OK);
    assert_int_equal(n, 2); /* the first candidate is covered by that of the other level */
    assert_exactly((double)out[0].score, 0.75);
    assert_exactly((double)out[1].score, 0.25);
    assert_int_equal(dt_levels_detect(out, &n, &levels, 0, 0.5, 1), DT_OK);
    assert_int_equal(n, 1);
    assert_int_equal(dt_levels_detect(out, &n, &levels, 1, 0.5, 4), DT_OK);
    assert_int_equal(n, 1);
    assert_int_equal(out[0].label, 2);
}

TEST_MAIN(NULL, NULL)
