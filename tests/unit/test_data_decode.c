/* Parts of images: a rectangle has exactly the pixels that a decode of the whole image has there,
 * for every sampling, order of scans, option and scale; and rows made of parts are those made of
 * whole images. */
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "data/row.h"
#include "image/jpeg.h"
#include "image/resize.h"
#include "jpeg_make.h"
#include "test_dir.h"

static const struct dt_config_data folder_data = {.source = DT_SOURCE_FOLDER};

enum { N_LAYOUTS = DT_COUNT(jpeg_layouts), ROUNDS = 12 };

static const struct dt_config_data all_options[] = {
    {.upsampling = DT_UPSAMPLING_FANCY},
    {.upsampling = DT_UPSAMPLING_PLAIN},
    {.dct = DT_DCT_FAST},
    {.upsampling = DT_UPSAMPLING_PLAIN, .dct = DT_DCT_FAST},
};
static const int denominators[] = {1, 2, 4, 8};

struct image {
    const struct jpeg_kind *kind;
    const struct dt_config_data *options;
    int denominator, width, height;
    struct file file;
    uint8_t *pixels; /* of the whole image */
};

static void open_image(struct dt_jpeg *jpeg, struct image *image)
{
    assert_int_equal(
        dt_jpeg_open(jpeg, &image->width, &image->height, image->file.data, image->file.bytes),
        DT_OK);
    assert_int_equal(image->width, image->kind->width);
    assert_int_equal(image->height, image->kind->height);
    dt_jpeg_scale(jpeg, &image->width, &image->height, image->denominator);
    assert_int_equal(image->width, (image->kind->width - 1) / image->denominator + 1);
    assert_int_equal(image->height, (image->kind->height - 1) / image->denominator + 1);
}

/* The whole image by libjpeg alone, row after row. */
static void decode_plainly(uint8_t *out, const struct image *image)
{
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    info.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&info);
    jpeg_mem_src(&info, image->file.data, image->file.bytes);
    jpeg_read_header(&info, TRUE);
    info.out_color_space = JCS_RGB;
    info.do_fancy_upsampling = image->options->upsampling == DT_UPSAMPLING_FANCY;
    info.dct_method = image->options->dct == DT_DCT_FAST ? JDCT_IFAST : JDCT_ISLOW;
    info.scale_num = 8 / (unsigned)image->denominator;
    info.scale_denom = 8;
    jpeg_start_decompress(&info);
    assert_int_equal(info.output_width, image->width);
    assert_int_equal(info.output_height, image->height);
    for (int y = 0; y < image->height; y++) {
        JSAMPROW row = out + (size_t)y * (size_t)image->width * 3;
        jpeg_read_scanlines(&info, &row, 1);
    }
    jpeg_finish_decompress(&info);
    jpeg_destroy_decompress(&info);
}

static void check_whole(struct dt_jpeg *jpeg, struct image *image)
{
    open_image(jpeg, image);
    size_t bytes = (size_t)image->width * (size_t)image->height * 3;
    image->pixels = malloc(bytes);
    assert_int_equal(dt_jpeg_decode(jpeg, image->pixels, 0, 0, image->width, image->height), DT_OK);
    if (image->kind->pixels == JCS_CMYK)
        return; /* libjpeg makes no RGB of it */
    uint8_t *plain = malloc(bytes);
    decode_plainly(plain, image);
    assert_memory_equal(image->pixels, plain, bytes);
    free(plain);
}

static void check_rectangle(struct dt_jpeg *jpeg, struct image *image, int x, int y, int w, int h)
{
    uint8_t *part = malloc((size_t)w * (size_t)h * 3); /* exact size, for ASan */
    open_image(jpeg, image);
    assert_int_equal(dt_jpeg_decode(jpeg, part, x, y, w, h), DT_OK);
    for (int row = 0; row < h; row++) {
        size_t at = ((size_t)(y + row) * (size_t)image->width + (size_t)x) * 3;
        if (memcmp(part + (size_t)row * (size_t)w * 3, image->pixels + at, (size_t)w * 3) != 0)
            fail_msg("%s, plain %d, fast %d, 1/%d: row %d of %dx%d at %d,%d", image->kind->name,
                     image->options->upsampling, image->options->dct, image->denominator, row, w, h,
                     x, y);
    }
    free(part);
}

/* Half of the time next to an edge of a block. */
static int draw(struct dt_rng *rng, int n)
{
    int value = (int)dt_rng_below(rng, (uint32_t)n);
    if (dt_rng_below(rng, 2))
        value = value / 8 * 8 + (int)dt_rng_below(rng, 3) - 1;
    return value < 0 ? 0 : value >= n ? n - 1 : value;
}

static void check_rectangles(struct dt_jpeg *jpeg, struct image *image, struct dt_rng *rng)
{
    for (int i = 0; i < ROUNDS; i++) {
        int x = draw(rng, image->width), y = draw(rng, image->height);
        int w = 1 + draw(rng, image->width - x), h = 1 + draw(rng, image->height - y);
        check_rectangle(jpeg, image, x, y, w, h);
    }
    check_rectangle(jpeg, image, 0, 0, 1, 1);
    check_rectangle(jpeg, image, image->width - 1, image->height - 1, 1, 1);
    check_rectangle(jpeg, image, 0, image->height / 2, image->width, 1);
}

TEST(rectangles)
{
    struct dt_rng rng;
    dt_rng_init(&rng, 1, DT_RNG_AUGMENT, 0, 0);
    for (size_t o = 0; o < DT_COUNT(all_options); o++) {
        struct dt_jpeg *jpeg;
        assert_int_equal(dt_jpeg_create(&jpeg, &all_options[o]), DT_OK);
        for (size_t i = 0; i < N_LAYOUTS * DT_COUNT(denominators); i++) {
            struct image image = {.kind = &jpeg_layouts[i / DT_COUNT(denominators)],
                                  .options = &all_options[o],
                                  .denominator = denominators[i % DT_COUNT(denominators)]};
            image.file = jpeg_make(image.kind);
            check_whole(jpeg, &image);
            check_rectangles(jpeg, &image, &rng);
            free(image.pixels);
            free(image.file.data);
        }
        dt_jpeg_destroy(jpeg);
    }
}

/* Nothing to decode, or no columns: nothing is written, damage in the rows is still found. */
TEST(empty_rectangles)
{
    struct image image = {
        &jpeg_layouts[3], all_options, 1, 0, 0, jpeg_make(&jpeg_layouts[3]), NULL};
    struct dt_jpeg *jpeg;
    assert_int_equal(dt_jpeg_create(&jpeg, NULL), DT_OK);
    open_image(jpeg, &image);
    assert_int_equal(dt_jpeg_decode(jpeg, NULL, 0, 0, 0, 0), DT_OK);
    open_image(jpeg, &image);
    assert_int_equal(dt_jpeg_decode(jpeg, NULL, image.width, 5, 0, 9), DT_OK);
    open_image(jpeg, &image);
    assert_int_equal(dt_jpeg_decode(jpeg, NULL, 0, image.height, image.width, 0), DT_OK);
    set_u16(&image.file, image.file.bytes / 2, 0xff00 | EOI);
    open_image(jpeg, &image);
    assert_int_equal(dt_jpeg_decode(jpeg, NULL, 0, 0, 0, image.height), DT_ERR_DATA);
    image.file.bytes /= 2;
    open_image(jpeg, &image);
    assert_int_equal(dt_jpeg_decode(jpeg, NULL, 0, image.height, image.width, 0), DT_ERR_DATA);
    dt_jpeg_destroy(jpeg);
    free(image.file.data);
}

/* --- Rows --- */

TEST(scale)
{
    enum { WIDTH = 9000, HEIGHT = 3000 };
    static const struct {
        float x, y, w, h;
        int size, denominator;
    } cases[] = {
        {0, 0, 100, 90, 224, 1},       {7, 9, 224, 224, 224, 1},    {7, 9, 447.9f, 900, 224, 1},
        {7, 9, 900, 447, 224, 1},      {7, 9, 448, 448, 224, 2},    {7, 9, 895, 895, 224, 2},
        {0, 0, 896, 3000, 224, 4},     {7, 9, 1791, 1792, 224, 4},  {7, 9, 1792, 1792, 224, 8},
        {0, 0, WIDTH, HEIGHT, 224, 8}, {7, 9, 32, 32, 32, 1},       {8992, 2992, 8, 8, 1, 8},
        {-1, 0, 2000, 2000, 224, 1},   {0, -1, 2000, 2000, 224, 1}, {7001, 0, 2000, 2000, 224, 1},
        {0, 1001, 2000, 2000, 224, 1},
    };
    for (size_t i = 0; i < DT_COUNT(cases); i++) {
        struct dt_crop crop = {cases[i].x, cases[i].y, cases[i].w, cases[i].h, true};
        int denominator = dt_row_scale(&crop, WIDTH, HEIGHT, cases[i].size);
        assert_int_equal(denominator, cases[i].denominator);
    }
}

static const struct jpeg_kind row_kinds[] = {
    {"smooth", 413, 327, JCS_RGB, JCS_YCbCr, "22 11 11", 0, ONE_SCAN, false, false},
    {"smooth", 203, 205, JCS_RGB, JCS_YCbCr, "21 11 11", 0, PROGRESSIVE, false, false},
    {"smooth grey", 211, 307, JCS_GRAYSCALE, JCS_GRAYSCALE, NULL, 0, ONE_SCAN, false, false},
    {"smooth cmyk", 157, 102, JCS_CMYK, JCS_CMYK, NULL, 1, ONE_SCAN, true, false},
    {"noise", 131, 107, JCS_RGB, JCS_YCbCr, "22 11 11", 0, ONE_SCAN, false, true},
};
enum { N_ROW_KINDS = sizeof row_kinds / sizeof row_kinds[0], SIZE = 24, ROW = SIZE * SIZE * 3 };

struct rows {
    struct file files[N_ROW_KINDS];
    struct dt_dataset *dataset;
    uint64_t bytes; /* of all files */
};

static void make_rows(struct rows *rows)
{
    *rows = (struct rows){0};
    assert_int_equal(make_test_dir(NULL), 0);
    make_folder("class");
    for (int i = 0; i < N_ROW_KINDS; i++) {
        char name[32];
        snprintf(name, sizeof name, "class/%d.jpg", i);
        rows->files[i] = jpeg_make(&row_kinds[i]);
        rows->bytes += rows->files[i].bytes;
        write_bytes(name, rows->files[i].data, rows->files[i].bytes);
    }
    struct dt_dataset_options options = {.data = &folder_data, .path = test_dir, .num_classes = 1};
    assert_int_equal(dt_dataset_open(&rows->dataset, &options), DT_OK);
}

static void remove_rows(struct rows *rows)
{
    dt_dataset_close(rows->dataset);
    for (int i = 0; i < N_ROW_KINDS; i++)
        free(rows->files[i].data);
    assert_int_equal(remove_test_dir(NULL), 0);
}

/* The row of a crop by way of the whole image. */
static void make_row_plainly(uint8_t *out, const struct file *file, const struct dt_crop *crop,
                             bool train)
{
    struct dt_jpeg *jpeg;
    struct dt_resize *resize;
    struct dt_rect need;
    int width, height;
    assert_int_equal(dt_jpeg_create(&jpeg, NULL), DT_OK);
    assert_int_equal(dt_resize_create(&resize), DT_OK);
    assert_int_equal(dt_jpeg_open(jpeg, &width, &height, file->data, file->bytes), DT_OK);
    uint8_t *whole = malloc((size_t)width * (size_t)height * 3);
    assert_int_equal(dt_jpeg_decode(jpeg, whole, 0, 0, width, height), DT_OK);
    enum dt_resize_edge edge = train ? DT_RESIZE_CROP : DT_RESIZE_IMAGE;
    assert_int_equal(dt_resize_prepare(resize, &need, crop, edge, width, height, SIZE, SIZE),
                     DT_OK);
    uint8_t *part = malloc((size_t)need.w * (size_t)need.h * 3 + DT_RESIZE_PAD);
    for (int y = 0; y < need.h; y++)
        memcpy(part + (size_t)y * (size_t)need.w * 3,
               whole + ((size_t)(need.y + y) * (size_t)width + (size_t)need.x) * 3,
               (size_t)need.w * 3);
    dt_resize_run(resize, out, part);
    free(part);
    free(whole);
    dt_resize_destroy(resize);
    dt_jpeg_destroy(jpeg);
}

static void check_near(const uint8_t *a, const uint8_t *b, int max)
{
    for (int i = 0; i < ROW; i++)
        assert_in_range(a[i] > b[i] ? a[i] - b[i] : b[i] - a[i], 0, max);
}

/* Rows of one file, whole, in part and scaled; bit `denominator` of *met is set for those met. */
static void check_rows(const struct rows *rows, uint32_t id, bool train, int *met)
{
    enum { EPOCHS = 25 };
    const struct dt_config_data data = {.augment = DT_AUGMENT_IMAGENET, .val_resize = SIZE + 3};
    struct dt_config_data scaled_data = data;
    scaled_data.scaled_decode = DT_SCALED_ALWAYS;
    const struct dt_loader_options options = {
        .train = train, .data = &data, .canvases = {{{SIZE, SIZE}}, 1}};
    const struct dt_loader_options scaled_options = {
        .train = train, .data = &scaled_data, .canvases = {{{SIZE, SIZE}}, 1}};
    struct dt_row_reader *reader, *scaled_reader;
    assert_int_equal(dt_row_reader_create(&reader, rows->dataset, &options), DT_OK);
    assert_int_equal(dt_row_reader_create(&scaled_reader, rows->dataset, &scaled_options), DT_OK);
    for (uint32_t epoch = 0; epoch < (train ? EPOCHS : 1); epoch++) {
        uint8_t plain[ROW], part[ROW], scaled[ROW];
        struct dt_crop crop, scaled_crop;
        assert_int_equal(dt_row_read(reader, part, &crop, epoch, id), DT_OK);
        make_row_plainly(plain, &rows->files[id], &crop, train);
        assert_memory_equal(part, plain, ROW);
        assert_int_equal(dt_row_read(scaled_reader, scaled, &scaled_crop, epoch, id), DT_OK);
        assert_true(scaled_crop.x == crop.x && scaled_crop.y == crop.y); /* of the source */
        assert_true(scaled_crop.w == crop.w && scaled_crop.h == crop.h);
        int denominator = dt_row_scale(&crop, row_kinds[id].width, row_kinds[id].height, SIZE);
        if (!row_kinds[id].noisy || denominator == 1)
            check_near(scaled, part, denominator == 1 ? 0 : 4);
        *met |= 1 << denominator;
    }
    dt_row_reader_destroy(scaled_reader);
    dt_row_reader_destroy(reader);
}

TEST(rows)
{
    struct rows rows;
    int met = 0;
    make_rows(&rows);
    for (uint32_t id = 0; id < N_ROW_KINDS; id++) {
        check_rows(&rows, id, true, &met);
        check_rows(&rows, id, false, &met);
    }
    assert_int_equal(met, 1 << 1 | 1 << 2 | 1 << 4 | 1 << 8);
    remove_rows(&rows);
}

TEST(times)
{
    struct rows rows;
    struct dt_row_reader *reader;
    struct dt_crop crop;
    uint8_t pixels[ROW];
    make_rows(&rows);
    const struct dt_config_data data = {.val_resize = SIZE};
    const struct dt_loader_options options = {.data = &data, .canvases = {{{SIZE, SIZE}}, 1}};
    assert_int_equal(dt_row_reader_create(&reader, rows.dataset, &options), DT_OK);
    for (uint32_t id = 0; id < N_ROW_KINDS; id++)
        assert_int_equal(dt_row_read(reader, pixels, &crop, 0, id), DT_OK);
    struct dt_row_times times = dt_row_take_times(reader);
    assert_int_equal(times.bytes, rows.bytes);
    assert_true(times.read_s > 0.0 && times.decode_s > 0.0);
    times = dt_row_take_times(reader);
    assert_true(times.bytes == 0 && times.read_s == 0.0 && times.decode_s == 0.0);
    dt_row_reader_destroy(reader);
    remove_rows(&rows);
}

TEST_MAIN(NULL, NULL)
