/* Pictures of images with boxes: their sizes, where boxes are drawn in them, and the sheet of an
 * evaluation. */
#include "base/file.h"
#include "base/mem.h"
#include "base/names.h"
#include "eval/drawing.h"
#include "image/decode.h"
#include "image/png.h"
#include "test_dir.h"

enum { WIDTH = 300, HEIGHT = 200, GREY = 90, SIZE = 96 };

static struct dt_config config;

static void add(struct dt_names *names, const char *name)
{
    assert_int_equal(dt_names_add(names, at(name), strlen(at(name))), DT_OK);
}

static const uint8_t *pixel(const struct dt_picture *p, int x, int y)
{
    assert_true(x >= 0 && x < p->width && y >= 0 && y < p->height);
    return p->pixels + 3 * (y * p->width + x);
}

static bool is_grey(const struct dt_picture *p, int x, int y)
{
    return abs(pixel(p, x, y)[0] - GREY) < 3 && abs(pixel(p, x, y)[1] - GREY) < 3;
}

static bool is_colour(const struct dt_picture *p, int x, int y, int label)
{
    uint8_t rgb[3];
    dt_draw_colour(rgb, label);
    return memcmp(pixel(p, x, y), rgb, 3) == 0;
}

/* A grey image and a file that is none, as a list of two. */
static struct dt_dataset *open_list(struct dt_names *names)
{
    struct dt_picture picture;
    struct dt_dataset *set;
    assert_int_equal(dt_picture_create(&picture, WIDTH, HEIGHT, GREY), DT_OK);
    assert_int_equal(dt_picture_save(&picture, at("grey.jpg")), DT_OK);
    assert_int_equal(dt_file_save(at("text.jpg"), "no image", 8), DT_OK);
    free(picture.pixels);
    add(names, "grey.jpg");
    add(names, "text.jpg");
    const struct dt_dataset_options options = {
        .data = &config.data, .images = names, .num_classes = 3, .targets = DT_COLUMN_BOXES};
    assert_int_equal(dt_dataset_open(&set, &options), DT_OK);
    return set;
}

TEST(image)
{
    struct dt_names names = {0};
    struct dt_image_info info;
    struct dt_drawing drawing;
    const struct dt_found found[] = {{.x = 30, .y = 40, .w = 90, .h = 60, .score = 0.9, .label = 2},
                                     {.x = 30, .y = 40, .w = 60, .h = 90, .score = 0.8}};
    struct dt_dataset *set = open_list(&names);
    dt_dataset_image(set, 0, &info);
    assert_true(info.width == WIDTH && info.height == HEIGHT);
    assert_int_equal(dt_drawing_open(&drawing, set, 0, 0), DT_OK);
    assert_true(drawing.picture.width == WIDTH && drawing.picture.height == HEIGHT);
    dt_drawing_add_found(&drawing, found, 2);
    assert_true(is_colour(&drawing.picture, 100, 40, 2)); /* the better one is above the other */
    assert_true(is_colour(&drawing.picture, 119, 99, 2));
    assert_true(is_colour(&drawing.picture, 89, 129, 0));
    assert_true(is_grey(&drawing.picture, 100, 80) && is_grey(&drawing.picture, 200, 150));
    dt_drawing_reset(&drawing);
    assert_int_equal(dt_drawing_open(&drawing, set, 0, WIDTH / 3), DT_OK); /* reduced */
    assert_true(drawing.picture.width == WIDTH / 3);
    assert_true(abs(drawing.picture.height - HEIGHT / 3) <= 1);
    dt_drawing_add_found(&drawing, found, 1);
    assert_true(is_colour(&drawing.picture, 39, 30, 2) && is_grey(&drawing.picture, 60, 50));
    dt_drawing_reset(&drawing);
    assert_int_equal(dt_drawing_open(&drawing, set, 1, 0), DT_ERR_DATA);
    dt_drawing_reset(&drawing);
    dt_dataset_close(set);
    dt_names_reset(&names);
}

static struct dt_picture load(const char *path)
{
    char *data;
    size_t bytes;
    struct dt_decoder *decoder;
    struct dt_picture picture = {0};
    assert_int_equal(dt_file_load(&data, &bytes, path, 1 << 24), DT_OK);
    assert_int_equal(dt_decoder_create(&decoder, NULL), DT_OK);
    assert_int_equal(
        dt_decoder_open(decoder, &picture.width, &picture.height, (const uint8_t *)data, bytes),
        DT_OK);
    assert_int_equal(DT_NEW(picture.pixels, 3 * (size_t)picture.width * (size_t)picture.height),
                     DT_OK);
    assert_int_equal(
        dt_decoder_decode(decoder, picture.pixels, 0, 0, picture.width, picture.height), DT_OK);
    dt_decoder_destroy(decoder);
    free(data);
    return picture;
}

static int count_white(const struct dt_picture *p)
{
    int n = 0;
    for (int i = 0; i < p->width * p->height; i++)
        n += p->pixels[3 * i] > 250 && p->pixels[3 * i + 1] > 250 && p->pixels[3 * i + 2] > 250;
    return n;
}

/* Generated images have 1 to 8 truths each; only good detections are drawn. */
TEST(sheet)
{
    static const int n_images[] = {1, 3, 9}, columns[] = {1, 2, 2}, rows[] = {1, 2, 2};
    int size[2];
    if (!dt_png_is_known())
        skip();
    for (size_t i = 0; i < DT_COUNT(n_images); i++) {
        struct dt_dataset *set;
        const struct dt_dataset_options options = {.data = &config.data,
                                                   .num_classes = 3,
                                                   .synthetic_images = n_images[i],
                                                   .canvases = {{{SIZE, SIZE}}, 1},
                                                   .targets = DT_COLUMN_BOXES};
        struct dt_found found[] = {
            {.x = 2, .y = 12, .w = 90, .h = 80, .score = 0.9, .label = 2},
            {.x = 40, .y = 40, .w = 10, .h = 10, .score = 0.2, .label = 1},
        };
        assert_int_equal(dt_dataset_open(&set, &options), DT_OK);
        assert_int_equal(dt_drawing_save_sheet(size, at("sheet.png"), set, found, 2), DT_OK);
        struct dt_picture sheet = load(at("sheet.png"));
        assert_true(size[0] == sheet.width && size[1] == sheet.height);
        assert_int_equal(sheet.width, 8 + columns[i] * (SIZE + 8));
        assert_int_equal(sheet.height, 8 + rows[i] * (SIZE + 8));
        assert_true(count_white(&sheet) > 20 * n_images[i]);
        assert_true(is_colour(&sheet, 8 + 2, 8 + 50, 2) && is_colour(&sheet, 8 + 91, 8 + 50, 2));
        assert_false(is_colour(&sheet, 8 + 40, 8 + 45, 1));
        free(sheet.pixels);
        dt_dataset_close(set);
    }
}

TEST(bad_images)
{
    struct dt_names names = {0};
    int size[2];
    struct dt_dataset *set = open_list(&names);
    assert_int_equal(dt_drawing_save_sheet(size, at("one.jpg"), set, NULL, 0), DT_OK);
    struct dt_picture sheet = load(at("one.jpg"));
    assert_int_equal(sheet.width, 8 + WIDTH + 8); /* the other one is left out */
    free(sheet.pixels);
    assert_int_equal(dt_file_save(at("grey.jpg"), "gone", 4), DT_OK);
    assert_int_equal(dt_drawing_save_sheet(size, at("none.jpg"), set, NULL, 0), DT_OK);
    assert_true(!dt_file_exists(at("none.jpg")) && size[0] == 0 && size[1] == 0);
    dt_dataset_close(set);
    dt_names_reset(&names);
}

static int begin(void **state)
{
    dt_config_init(&config);
    return make_test_dir(state);
}

TEST_MAIN(begin, remove_test_dir)
