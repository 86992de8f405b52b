/* Sizes and canvases, draws, and boxes: against plain formulas in fp64, and a warped box against
 * all pixels that it covers. */
#include <string.h>

#include <math.h>

#include "base/rng.h"
#include "boxes/canvas.h"
#include "test.h"

static const struct dt_canvas four[] = {{1344, 800}, {800, 1344}, {1088, 800}, {800, 800}};

static struct dt_layout layout_of(const struct dt_config_data *data,
                                  const struct dt_canvas *canvases, int n)
{
    struct dt_layout layout = {.data = data, .canvases.n = n};
    memcpy(layout.canvases.size, canvases, (size_t)n * sizeof *canvases);
    return layout;
}

static struct dt_on_canvas plain(const struct dt_config_data *data,
                                 const struct dt_canvas *canvases, int n, int width, int height)
{
    const struct dt_layout layout = layout_of(data, canvases, n);
    struct dt_on_canvas p;
    dt_canvas_plain(&p, &layout, width, height);
    return p;
}

static void check(const struct dt_on_canvas *p, int canvas, int width, int height)
{
    assert_int_equal(p->canvas, canvas);
    assert_int_equal(p->width, width);
    assert_int_equal(p->height, height);
    assert_false(p->flip || p->is_warped);
}

/* The numbers of torchvision 0.29's GeneralizedRCNNTransform(800, 1333). */
TEST(torchvision)
{
    static const int cases[][5] = {
        {640, 480, 2, 1066, 800}, {640, 427, 0, 1199, 800}, {375, 500, 1, 800, 1066},
        {500, 333, 0, 1201, 800}, {425, 640, 1, 800, 1204}, {2000, 100, 0, 1333, 66},
        {100, 2000, 1, 66, 1333}, {333, 333, 3, 800, 800},  {4000, 3000, 2, 1066, 800}};
    const struct dt_config_data data = {.min_side = 800, .max_side = 1333};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct dt_on_canvas p = plain(&data, four, 4, cases[i][0], cases[i][1]);
        check(&p, cases[i][2], cases[i][3], cases[i][4]);
    }
}

TEST(as_large_as_fits)
{
    const struct dt_config_data data = {0}, limited = {.max_side = 640}, small = {.min_side = 2000};
    struct dt_on_canvas p = plain(&data, four, 1, 640, 480);
    check(&p, 0, 1066, 800);
    p = plain(&data, four, 1, 3000, 1);
    check(&p, 0, 1344, 1);
    p = plain(&data, four, 4, 7, 7);
    check(&p, 3, 800, 800);
    p = plain(&data, four, 4, 480, 640);
    check(&p, 1, 800, 1066);
    p = plain(&limited, four, 4, 480, 640);
    check(&p, 3, 480, 640);
    p = plain(&small, four, 4, 800, 300); /* fits nowhere, and is largest on the widest */
    check(&p, 0, 1344, 504);
    const struct dt_layout any = layout_of(&data, four, 4), large = layout_of(&small, four, 4),
                           one = layout_of(&limited, four, 1);
    assert_true(dt_canvas_fits(&any, 9000, 1) && !dt_canvas_fits(&large, 800, 300));
    assert_true(dt_canvas_fits(&one, 9000, 10) && dt_canvas_fits(&one, 10, 9000));
}

TEST(stretch)
{
    const struct dt_config_data data = {.stretch = true};
    struct dt_on_canvas p = plain(&data, four, 4, 10, 3000);
    check(&p, 1, 800, 1344);
    p = plain(&data, four, 4, 300, 310);
    check(&p, 3, 800, 800);
    p = plain(&data, four + 3, 1, 640, 480);
    check(&p, 0, 800, 800);
}

/* Whatever the size, the image fits on its canvas, and is as large as a side or a limit allows. */
TEST(any_size)
{
    const struct dt_config_data data = {.min_side = 800, .max_side = 1333};
    struct dt_rng rng;
    dt_rng_init(&rng, 1, DT_RNG_AUGMENT, 0, 0);
    for (int i = 0; i < 20000; i++) {
        const int w = 1 + (int)dt_rng_below(&rng, i % 2 ? 9000 : 700);
        const int h = 1 + (int)dt_rng_below(&rng, i % 3 ? 9000 : 700);
        const struct dt_on_canvas p = plain(&data, four, 4, w, h);
        const struct dt_canvas *canvas = &four[p.canvas];
        const double shorter = fmin(w, h), longer = fmax(w, h);
        const double wanted = fmin(800 / shorter, 1333 / longer);
        const double fit = fmin((double)canvas->width / w, (double)canvas->height / h);
        assert_in_range(p.width, 1, canvas->width);
        assert_in_range(p.height, 1, canvas->height);
        assert_true(fabs(p.width - fmin(wanted, fit) * w) < 1.001);
        assert_true(fabs(p.height - fmin(wanted, fit) * h) < 1.001);
        for (int k = 0; k < 4; k++) {
            const struct dt_on_canvas other = plain(&data, four + k, 1, w, h);
            assert_true((double)p.width * p.height >= (double)other.width * other.height);
            if (other.width == p.width && other.height == p.height)
                assert_true(canvas->width * canvas->height <= four[k].width * four[k].height);
        }
    }
}

static struct dt_on_canvas draw(const struct dt_config_data *data, uint32_t epoch, uint32_t id)
{
    const struct dt_layout layout = layout_of(data, four, 4);
    struct dt_on_canvas p;
    dt_canvas_draw(&p, &layout, 5, epoch, id, 640, 480);
    return p;
}

/* Half are flipped, all eleven sizes of torchvision's multiscale are drawn, the canvas stays, and
 * what one key turns on does not change the draws of the others. */
TEST(draws)
{
    enum { N = 2000 };
    struct dt_config_data data = {
        .augment = DT_AUGMENT_IMAGENET, .min_side = 800, .max_side = 1333, .min_side_low = 480};
    int n_flips = 0, n_sides[11] = {0};
    for (uint32_t id = 0; id < N; id++) {
        data.min_side_low = 480;
        data.rotate = 0;
        const struct dt_on_canvas p = draw(&data, 3, id);
        assert_false(p.is_warped);
        assert_int_equal(p.canvas, 2);
        n_flips += p.flip;
        const int side = (p.height + 16) / 32 * 32; /* torchvision's rounding may take one pixel */
        assert_in_range(side - p.height, 0, 1);
        assert_in_range(side, 480, 800);
        n_sides[(side - 480) / 32]++;
        data.min_side_low = 0;
        data.rotate = 0.1;
        const struct dt_on_canvas other = draw(&data, 3, id);
        assert_true(other.is_warped && other.flip == p.flip && other.height == 800);
    }
    assert_in_range(n_flips, N / 2 - 100, N / 2 + 100);
    for (int i = 0; i < 11; i++)
        assert_in_range(n_sides[i], N / 11 - 60, N / 11 + 60);
    data.augment = DT_AUGMENT_NONE;
    for (uint32_t id = 0; id < 50; id++)
        assert_false(draw(&data, 3, id).flip);
}

/* In the words of keras-retinanet's transform.py. */
static void multiply(double out[9], const double a[9], const double b[9])
{
    for (int i = 0; i < 9; i++)
        out[i] = a[i / 3 * 3] * b[i % 3] + a[i / 3 * 3 + 1] * b[3 + i % 3] +
                 a[i / 3 * 3 + 2] * b[6 + i % 3];
}

static double between(struct dt_rng *rng, double low, double high)
{
    return low + (high - low) * dt_rng_uniform(rng);
}

static void reference(double to[9], const struct dt_config_data *data, uint32_t id, double width,
                      double height)
{
    struct dt_rng rng;
    double parts[3][9];
    dt_rng_init(&rng, 5, DT_RNG_AUGMENT, 7, id);
    dt_rng_uniform(&rng); /* flip, side */
    dt_rng_uniform(&rng);
    const double angle = between(&rng, -data->rotate, data->rotate);
    const double x = between(&rng, -data->translate, data->translate);
    const double y = between(&rng, -data->translate, data->translate);
    const double shear = between(&rng, -data->shear, data->shear);
    const double by_x = between(&rng, 1 - data->scale, 1 + data->scale);
    const double by_y = between(&rng, 1 - data->scale, 1 + data->scale);
    const double rotation[9] = {cos(angle), -sin(angle), 0, sin(angle), cos(angle), 0, 0, 0, 1};
    const double translation[9] = {1, 0, x, 0, 1, y, 0, 0, 1};
    const double shearing[9] = {1, -sin(shear), 0, 0, cos(shear), 0, 0, 0, 1};
    const double scaling[9] = {by_x, 0, 0, 0, by_y, 0, 0, 0, 1};
    multiply(parts[0], rotation, translation);
    multiply(parts[1], parts[0], shearing);
    multiply(parts[2], parts[1], scaling);
    parts[2][2] *= width;
    parts[2][5] *= height;
    const double there[9] = {1, 0, width / 2, 0, 1, height / 2, 0, 0, 1};
    const double back[9] = {1, 0, -width / 2, 0, 1, -height / 2, 0, 0, 1};
    multiply(parts[0], there, parts[2]);
    multiply(to, parts[0], back);
}

TEST(warp)
{
    const struct dt_config_data data = {.min_side = 800,
                                        .max_side = 1333,
                                        .rotate = 0.4,
                                        .shear = 0.3,
                                        .translate = 0.1,
                                        .scale = 0.2};
    for (uint32_t id = 0; id < 200; id++) {
        const struct dt_on_canvas p = draw(&data, 7, id);
        double to[9];
        reference(to, &data, id, p.width, p.height);
        assert_true(p.is_warped);
        for (int i = 0; i < 6; i++)
            assert_true(fabs(p.warp.to[i] - to[i]) < 1e-6);
        for (int i = 0; i < 4; i++) { /* there and back */
            const double x = i * 200, y = 700 - i * 100;
            const double at_x = to[0] * x + to[1] * y + to[2], at_y = to[3] * x + to[4] * y + to[5];
            const double *f = p.warp.from;
            assert_true(fabs(f[0] * at_x + f[1] * at_y + f[2] - x) < 1e-3);
            assert_true(fabs(f[3] * at_x + f[4] * at_y + f[5] - y) < 1e-3);
        }
    }
}

/* The bounds of what is warped out of a box, over a fine grid, clipped to the image. */
static bool bounds(double out[4], const struct dt_on_canvas *p, const struct dt_truth *truth)
{
    enum { STEPS = 40 };
    out[0] = out[1] = INFINITY;
    out[2] = out[3] = -INFINITY;
    for (int i = 0; i <= STEPS; i++)
        for (int k = 0; k <= STEPS; k++) {
            double x = (truth->x + truth->w * i / STEPS) * p->width / p->image_width;
            double y = (truth->y + truth->h * k / STEPS) * p->height / p->image_height;
            const double flipped = p->flip ? p->width - x : x;
            x = p->is_warped ? p->warp.to[0] * flipped + p->warp.to[1] * y + p->warp.to[2]
                             : flipped;
            y = p->is_warped ? p->warp.to[3] * flipped + p->warp.to[4] * y + p->warp.to[5] : y;
            out[0] = fmin(out[0], x);
            out[1] = fmin(out[1], y);
            out[2] = fmax(out[2], x);
            out[3] = fmax(out[3], y);
        }
    for (int i = 0; i < 4; i++)
        out[i] = fmax(0, fmin(out[i], i % 2 ? p->height : p->width));
    return out[2] > out[0] && out[3] > out[1];
}

TEST(boxes)
{
    struct dt_rng rng;
    int n_gone = 0;
    dt_rng_init(&rng, 3, DT_RNG_AUGMENT, 0, 0);
    for (uint32_t id = 0; id < 3000; id++) {
        const bool warps = id % 2;
        const struct dt_config_data data = {.augment = DT_AUGMENT_IMAGENET,
                                            .min_side = 800,
                                            .min_side_low = 320,
                                            .rotate = warps ? 0.5 : 0,
                                            .translate = warps ? 0.3 : 0,
                                            .scale = warps ? 0.4 : 0};
        const struct dt_on_canvas p = draw(&data, 1, id);
        const struct dt_truth truth = {.x = between(&rng, -40, 660),
                                       .y = between(&rng, -40, 500),
                                       .w = between(&rng, 0, 200),
                                       .h = between(&rng, 0, 200)};
        double expected[4];
        float box[4];
        const bool is_left = dt_on_canvas_box(box, &p, &truth);
        assert_int_equal(is_left, bounds(expected, &p, &truth));
        n_gone += !is_left;
        for (int i = 0; is_left && i < 4; i++)
            assert_true(fabs((double)box[i] - expected[i]) < 1e-4);
    }
    assert_in_range(n_gone, 100, 1500);
}

/* Whole boxes stay exact, and no area is no box. */
TEST(box_corners)
{
    const struct dt_config_data data = {0};
    const struct dt_on_canvas p = plain(&data, four + 3, 1, 400, 400);
    const struct dt_truth whole = {.w = 400, .h = 400}, line = {.x = 5, .y = 5, .w = 0, .h = 9};
    const struct dt_truth beside = {.x = 400, .y = 5, .w = 9, .h = 9};
    float box[4];
    assert_true(dt_on_canvas_box(box, &p, &whole));
    assert_true(box[0] == 0 && box[1] == 0 && box[2] == 800 && box[3] == 800);
    assert_false(dt_on_canvas_box(box, &p, &line));
    assert_false(dt_on_canvas_box(box, &p, &beside));
}

TEST_MAIN(NULL, NULL)
