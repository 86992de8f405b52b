/* The same COCO set from its file of annotations and packed into shards: images, boxes, the parts
 * for training and validation, and the bytes of the batches do not differ. With the sample of COCO,
 * where there is one, on canvases of its size. */
#include "base/log.h"
#include "data/dataset.h"
#include "data_files.h"
#include "jpeg_make.h"
#include "pack/pack.h"

enum { N = 23, G = 4, EPOCHS = 2 };

/* Two ways to open the same set. */
struct twins {
    struct dt_dataset *json, *shards;
};

struct places {
    const char *json, *shards;
    int num_classes;
};

static const struct dt_config_data all_data = {.max_bad_fraction = 1};

static struct dt_dataset *open_one(const char *path, const struct places *places, enum dt_part part,
                                   const struct dt_config_data *data)
{
    struct dt_dataset *dataset = NULL;
    struct dt_config_data of_path = *data;
    of_path.source = DT_SOURCE_AUTO;
    const struct dt_dataset_options options = {.data = &of_path,
                                               .path = path,
                                               .cache_dir = at("cache"),
                                               .num_classes = places->num_classes,
                                               .targets = DT_COLUMN_BOXES,
                                               .seed = 5,
                                               .part = part};
    assert_ok(dt_dataset_open(&dataset, &options));
    return dataset;
}

static struct twins open_twins(const struct places *places, enum dt_part part,
                               const struct dt_config_data *data)
{
    return (struct twins){open_one(places->json, places, part, data),
                          open_one(places->shards, places, part, data)};
}

static void close_twins(struct twins *twins)
{
    dt_dataset_close(twins->json);
    dt_dataset_close(twins->shards);
}

static void pack(const char *src, const char *dst, int per_shard)
{
    const struct dt_shard_options options = {.src = src,
                                             .data = &all_data,
                                             .dst = dst,
                                             .prefix = "x",
                                             .per_shard = per_shard,
                                             .quality = 95,
                                             .threads = 2,
                                             .seed = 3};
    assert_ok(dt_shard_write(&options));
}

/* --- Samples --- */

static void compare_truths(const struct twins *twins, uint32_t id)
{
    const int max = dt_dataset_max_boxes(twins->json);
    struct dt_truth *a = calloc((size_t)max + 1, sizeof *a),
                    *b = calloc((size_t)max + 1, sizeof *b);
    assert_true(a && b);
    const int n = dt_dataset_truths(twins->json, id, a);
    assert_int_equal(dt_dataset_truths(twins->shards, id, b), n);
    for (int i = 0; i < n; i++)
        assert_true(a[i].x == b[i].x && a[i].y == b[i].y && a[i].w == b[i].w && a[i].h == b[i].h &&
                    a[i].area == b[i].area && a[i].id == b[i].id && a[i].label == b[i].label &&
                    a[i].is_crowd == b[i].is_crowd);
    free(a);
    free(b);
}

static void compare_samples(const struct twins *twins)
{
    struct dt_image_info a, b;
    struct dt_sample x = {0}, y = {0};

    assert_int_equal(dt_dataset_size(twins->json), dt_dataset_size(twins->shards));
    for (uint32_t id = 0; id < dt_dataset_size(twins->json); id++) {
        dt_dataset_image(twins->json, id, &a);
        dt_dataset_image(twins->shards, id, &b);
        assert_true(a.id == b.id && a.width == b.width && a.height == b.height);
        compare_truths(twins, id);
        assert_int_equal(dt_dataset_read(twins->json, id, &x), DT_OK);
        assert_int_equal(dt_dataset_read(twins->shards, id, &y), DT_OK);
        assert_int_equal(x.bytes, y.bytes);
        assert_memory_equal(x.data, y.data, x.bytes);
    }
    free(x.data);
    free(y.data);
}

static void compare_classes(const struct twins *twins)
{
    assert_int_equal(dt_dataset_max_boxes(twins->json), dt_dataset_max_boxes(twins->shards));
    assert_int_equal(dt_dataset_n_classes(twins->json), dt_dataset_n_classes(twins->shards));
    for (int i = 0; i < dt_dataset_n_classes(twins->json); i++) {
        assert_string_equal(dt_dataset_class(twins->json, i), dt_dataset_class(twins->shards, i));
        assert_true(dt_dataset_category(twins->json, i) == dt_dataset_category(twins->shards, i));
    }
}

static void compare_parts(const struct places *places)
{
    struct dt_config_data split = all_data;
    split.val_fraction = 0.3;
    for (int part = DT_PART_ALL; part <= DT_PART_VAL; part++) {
        struct twins twins = open_twins(places, (enum dt_part)part, &split);
        compare_samples(&twins);
        compare_classes(&twins);
        close_twins(&twins);
    }
}

/* --- Batches --- */

static struct dt_loader *open_loader(struct dt_dataset *dataset, const struct dt_canvases *canvases,
                                     const struct dt_config_data *data, bool train, int workers)
{
    struct dt_loader *loader = NULL;
    const struct dt_loader_options options = {.train = train,
                                              .data = data,
                                              .canvases = *canvases,
                                              .split = {G, 1, 0, 1, 1},
                                              .workers = workers,
                                              .seed = 7};
    assert_ok(dt_loader_create(&loader, dataset, &options));
    return loader;
}

static void compare_batch(const struct dt_batch *a, const struct dt_batch *b, int max)
{
    const size_t rows = (size_t)a->n, boxes = rows * (size_t)max;
    assert_true(a->n == b->n && a->canvas == b->canvas && a->width == b->width &&
                a->height == b->height && a->index == b->index);
    assert_memory_equal(a->pixels, b->pixels, rows * (size_t)a->width * (size_t)a->height * 3);
    assert_memory_equal(a->ids, b->ids, rows * sizeof *a->ids);
    assert_memory_equal(a->sizes, b->sizes, rows * 2 * sizeof *a->sizes);
    assert_memory_equal(a->box_labels, b->box_labels, boxes * sizeof *a->box_labels);
    assert_memory_equal(a->boxes, b->boxes, boxes * 4 * sizeof *a->boxes);
}

/* Returns the number of images. */
static int compare_epoch(struct dt_loader *a, struct dt_loader *b, uint32_t epoch, int max)
{
    const struct dt_batch *x, *y;
    int n = 0;

    assert_int_equal(dt_loader_start(a, epoch, 0), DT_OK);
    assert_int_equal(dt_loader_start(b, epoch, 0), DT_OK);
    for (;;) {
        assert_int_equal(dt_loader_next(a, &x), DT_OK);
        assert_int_equal(dt_loader_next(b, &y), DT_OK);
        assert_true((x == NULL) == (y == NULL));
        if (!x)
            return n;
        compare_batch(x, y, max);
        n += x->n;
        dt_loader_release(a, x);
        dt_loader_release(b, y);
    }
}

static void compare_batches(const struct places *places, const struct dt_canvases *canvases,
                            const struct dt_config_data *data)
{
    for (int train = 0; train < 2; train++) {
        struct twins twins = open_twins(places, train ? DT_PART_TRAIN : DT_PART_ALL, data);
        struct dt_loader *a = open_loader(twins.json, canvases, data, train, 1);
        struct dt_loader *b = open_loader(twins.shards, canvases, data, train, 3);
        for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
            const int n = compare_epoch(a, b, epoch, dt_dataset_max_boxes(twins.json));
            if (n == 0 || (!train && n != (int)dt_dataset_size(twins.json)))
                fail_msg("%d images of %u", n, (unsigned)dt_dataset_size(twins.json));
        }
        dt_loader_destroy(a);
        dt_loader_destroy(b);
        close_twins(&twins);
    }
}

/* --- Generated images --- */

/* Image i has the id 1000 - 7 i and i % 5 boxes, the first of them a crowd if i is odd. */
static void make_coco(void)
{
    static char images[N * 128], boxes[N * 5 * 256], text[sizeof images + sizeof boxes + 512];
    size_t at_image = 0, at_box = 0;
    char name[64];

    make_folder("annotations");
    make_folder("part");
    for (int i = 0; i < N; i++) {
        struct jpeg_kind kind = jpeg_kinds[i % 4];
        kind.width = i % 2 ? 60 + i : 40 + i % 3;
        kind.height = i % 2 ? 40 + i % 4 : 62 + i;
        struct file file = jpeg_make(&kind);
        snprintf(name, sizeof name, "part/%02d.jpg", i);
        write_bytes(name, file.data, file.bytes);
        free(file.data);
        at_image += (size_t)snprintf(images + at_image, sizeof images - at_image,
                                     "%s{\"id\":%d,\"file_name\":\"%02d.jpg\",\"width\":%d,"
                                     "\"height\":%d}",
                                     i ? "," : "", 1000 - 7 * i, i, kind.width, kind.height);
        for (int k = 0; k < i % 5; k++)
            at_box += (size_t)snprintf(
                boxes + at_box, sizeof boxes - at_box,
                "%s{\"id\":%d,\"image_id\":%d,\"category_id\":%d,\"iscrowd\":%d,\"area\":%d.3,"
                "\"bbox\":[%d.1,%d.7,%d.3,9.9],\"segmentation\":[[1,2,3]]}",
                at_box ? "," : "", 500 - 10 * i + k, 1000 - 7 * i, k % 2 ? 4 : 9, i % 2 && k == 0,
                20 + k, i, k, 12 + k);
    }
    snprintf(text, sizeof text,
             "{\"images\":[%s],\"annotations\":[%s],\"categories\":[{\"id\":9,\"name\":\"b\"},"
             "{\"id\":4,\"name\":\"a\"}]}",
             images, boxes);
    write_text("annotations/instances_part.json", text);
}

TEST(generated)
{
    static const struct dt_canvases canvases = {{{96, 64}, {64, 96}}, 2};
    const struct dt_config_data data = {.augment = DT_AUGMENT_IMAGENET,
                                        .prefetch = 2,
                                        .min_side = 48,
                                        .max_side = 96,
                                        .max_bad_fraction = 1};
    struct places places = {at("annotations/instances_part.json"), at("packed"), 0};

    make_coco();
    pack(places.json, places.shards, 5);
    compare_parts(&places);
    places.num_classes = 12; /* labels are the ids */
    compare_parts(&places);
    compare_batches(&places, &canvases, &data);
}

TEST(sample_of_coco)
{
    static const struct dt_canvases canvases = {{{416, 256}, {256, 416}}, 2};
    const struct dt_config_data data = {
        .augment = DT_AUGMENT_IMAGENET, .prefetch = 2, .min_side = 256, .max_side = 416};
    char json[DT_PATH_MAX];
    const char *shared = getenv("DTRAIN_SHARED_DIR");
    const struct places places = {json, at("sample"), 91};

    snprintf(json, sizeof json, "%s/data/coco-sample/annotations/instances_train2017.json",
             shared ? shared : "");
    if (access(json, R_OK) != 0)
        skip();
    pack(places.json, places.shards, 20);
    compare_parts(&places);
    compare_batches(&places, &canvases, &data);
}

int main(void)
{
    dt_log_init(DT_LOG_ERROR, 0, 1);
    return run_all_tests(make_test_dir, remove_test_dir);
}
