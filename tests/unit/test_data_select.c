/* data.val_fraction and data.max_train: as functions of keys, and for a folder that grows. */
#include "base/rng.h"
#include "data/dataset.h"
#include "data/select.h"
#include "data_files.h"

enum { N = 10000, N_CLASSES = 8 };

/* Sizes of the classes: N / 2, N / 4, ...; the last two are 1 and 2. */
static size_t make_picks(struct dt_pick *picks, uint64_t seed)
{
    struct dt_rng rng;
    size_t n = 0;
    dt_rng_init(&rng, seed, DT_RNG_SHUFFLE, 0, 0);
    for (int label = 0; label < N_CLASSES; label++) {
        const int size = label < N_CLASSES - 2 ? N >> (label + 1) : label - N_CLASSES + 3;
        for (int i = 0; i < size; i++, n++) {
            const uint64_t high = dt_rng_u32(&rng), low = dt_rng_u32(&rng);
            picks[n] = (struct dt_pick){.key = high << 32 | low, .id = (uint32_t)n, .label = label};
        }
    }
    return n;
}

static void count(size_t n_of[N_CLASSES], const struct dt_pick *picks, size_t n)
{
    memset(n_of, 0, N_CLASSES * sizeof *n_of);
    for (size_t i = 0; i < n; i++) {
        n_of[picks[i].label]++;
        assert_true(i == 0 || picks[i].id > picks[i - 1].id);
    }
}

TEST(fraction)
{
    static struct dt_pick train[N], val[N];
    static bool was_val[N];
    static const double fractions[] = {0.001, 0.1, 0.5, 0.999};
    size_t all[N_CLASSES], n_train[N_CLASSES], n_val[N_CLASSES];
    for (size_t f = 0; f < 4; f++) {
        const double fraction = fractions[f];
        const size_t n = make_picks(train, 7);
        make_picks(val, 7);
        count(all, train, n);
        const size_t a = dt_select_train(train, n, fraction, true, 0);
        const size_t b = dt_select_val(val, n, fraction, true);
        assert_int_equal(a + b, n);
        count(n_train, train, a);
        count(n_val, val, b);
        for (size_t i = 0, k = 0; i < n; i++) /* every sample is on one side */
            if (i - k < a && train[i - k].id == i)
                assert_true(k == b || val[k].id != i);
            else
                assert_int_equal(val[k++].id, i);
        for (int label = 0; label < N_CLASSES; label++) {
            const double wanted = fraction * (double)all[label];
            const double error = (double)n_val[label] - wanted;
            assert_int_equal(n_train[label] + n_val[label], all[label]);
            assert_true(n_train[label] >= 1 && (n_val[label] >= 1 || all[label] == 1));
            assert_true(error * error <= 16 * (wanted + 1)); /* four standard deviations */
        }
        for (size_t i = 0; i < b; i++) /* a larger fraction keeps what a smaller one has */
            was_val[val[i].id] |= fraction == 0.1;
        for (size_t i = 0; fraction == 0.5 && i < a; i++)
            assert_false(was_val[train[i].id]);
    }
}

TEST(max)
{
    static struct dt_pick picks[N];
    static bool was_kept[N];
    static const size_t max[] = {1, 10, 1000, 5000, N};
    size_t all[N_CLASSES], kept[N_CLASSES];
    for (size_t m = 0; m < 5; m++) {
        const size_t n = make_picks(picks, 3);
        count(all, picks, n);
        const size_t n_kept = dt_select_train(picks, n, 0, true, max[m]);
        size_t n_again = 0;
        assert_int_equal(n_kept, max[m] < n ? max[m] : n);
        count(kept, picks, n_kept);
        for (int label = 0; label < N_CLASSES; label++) {
            const double wanted = (double)n_kept * (double)all[label] / (double)n;
            assert_true((double)kept[label] > wanted - 1.01 && (double)kept[label] < wanted + 1.01);
        }
        for (size_t i = 0; i < n_kept; i++)
            n_again += was_kept[picks[i].id];
        assert_int_equal(n_again, m == 0 ? 0 : max[m - 1]);
        for (size_t i = 0; i < n_kept; i++)
            was_kept[picks[i].id] = true;
    }
}

/* --- Data sets --- */

static struct dt_config_data data = {.source = DT_SOURCE_FOLDER};

static void add_files(const char *class, int first, int n)
{
    char name[64];
    for (int i = first; i < first + n; i++) {
        snprintf(name, sizeof name, "set/%s/%d.jpg", class, i);
        write_text(name, name);
    }
}

static struct dt_dataset *open_part(enum dt_part part, uint64_t seed,
                                    const struct dt_dataset *other)
{
    const struct dt_dataset_options options = {
        .data = &data, .path = at("set"), .part = part, .seed = seed, .rest_of = other};
    struct dt_dataset *dataset;
    assert_ok(dt_dataset_open(&dataset, &options));
    return dataset;
}

static bool has(const struct dt_dataset *dataset, const char *file)
{
    char name[300];
    for (uint32_t id = 0; id < dt_dataset_size(dataset); id++)
        if (strstr(dt_dataset_name(dataset, id, name, sizeof name), file))
            return true;
    return false;
}

/* The same with the training set open or not, and for files in a set that has grown. */
TEST(folder_that_grows)
{
    struct dt_sample sample = {0};
    char name[300];
    int n_moved = 0;
    data.val_fraction = 0.2;
    struct dt_dataset *train = open_part(DT_PART_TRAIN, 5, NULL);
    struct dt_dataset *view = open_part(DT_PART_VAL, 5, train);
    struct dt_dataset *val = open_part(DT_PART_VAL, 5, NULL),
                      *other = open_part(DT_PART_VAL, 6, NULL);
    const uint32_t n = dt_dataset_size(val);
    assert_int_equal(dt_dataset_size(train) + n, 240);
    assert_int_equal(dt_dataset_size(view), n);
    assert_true(dt_dataset_fingerprint(view) != dt_dataset_fingerprint(train));
    assert_true(dt_dataset_fingerprint(val) != dt_dataset_fingerprint(other));
    for (uint32_t id = 0; id < n; id++) {
        const char *path = dt_dataset_name(val, id, name, sizeof name);
        assert_true(has(view, path) && !has(train, path));
        assert_int_equal(dt_dataset_label(view, id), dt_dataset_label(val, id));
        assert_int_equal(dt_dataset_read(view, id, &sample), DT_OK);
        assert_memory_equal(sample.data, path + strlen(test_dir) + 1, sample.bytes);
        n_moved += !has(other, path);
    }
    assert_true(n_moved > 10);
    dt_dataset_close(view);
    dt_dataset_close(other);

    add_files("a", 1000, 100);
    make_folder("set/0");
    add_files("0", 0, 10);
    other = open_part(DT_PART_VAL, 5, NULL);
    assert_true(dt_dataset_size(other) > n);
    for (uint32_t id = 0; id < n; id++)
        assert_true(has(other, strstr(dt_dataset_name(val, id, name, sizeof name), "set/")));
    dt_dataset_close(other);
    dt_dataset_close(val);
    dt_dataset_close(train);
    free(sample.data);
}

TEST(most_of_a_folder)
{
    struct dt_config_data before = data;
    uint64_t fingerprints[3];
    for (int i = 0; i < 3; i++) {
        data.max_train = i * 100;
        struct dt_dataset *train = open_part(DT_PART_TRAIN, 5, NULL);
        struct dt_dataset *val = open_part(DT_PART_VAL, 5, train);
        assert_true(i == 0 || dt_dataset_size(train) == (uint32_t)i * 100);
        assert_true(dt_dataset_size(val) > 50);
        fingerprints[i] = dt_dataset_fingerprint(train);
        assert_true(i == 0 || fingerprints[i] != fingerprints[i - 1]);
        dt_dataset_close(val);
        dt_dataset_close(train);
    }
    data = before;
}

/* The keys of samples in shards are those of their places in them, wherever the shards are. */
TEST(shards)
{
    static const char *const folders[] = {"shards", "moved"};
    struct dt_config_data of_shards = {.source = DT_SOURCE_SHARDS, .val_fraction = 0.25};
    uint64_t fingerprints[2];
    char name[64];
    for (int i = 0; i < 2; i++) {
        make_folder(folders[i]);
        for (int k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "%s/s-%d.tar", folders[i], k);
            make_shard(name, 100 * k, 100);
        }
        struct dt_dataset_options options = {
            .data = &of_shards, .path = at(folders[i]), .part = DT_PART_TRAIN};
        struct dt_dataset *train, *val;
        assert_int_equal(dt_dataset_open(&train, &options), DT_OK);
        options.part = DT_PART_VAL;
        options.rest_of = train;
        assert_int_equal(dt_dataset_open(&val, &options), DT_OK);
        assert_int_equal(dt_dataset_size(train) + dt_dataset_size(val), 200);
        assert_in_range(dt_dataset_size(val), 30, 70);
        fingerprints[i] = dt_dataset_fingerprint(val);
        dt_dataset_close(val);
        dt_dataset_close(train);
    }
    assert_true(fingerprints[0] == fingerprints[1]);
}

TEST(nothing_left)
{
    const struct dt_dataset_options options = {
        .data = &data, .path = at("single"), .part = DT_PART_VAL};
    struct dt_dataset *dataset;
    make_folder("single/a");
    write_text("single/a/1.jpg", "1");
    assert_error(dt_dataset_open(&dataset, &options), DT_ERR_DATA, "has no class with two images");
}

static int make_set(void **state)
{
    if (make_test_dir(state))
        return -1;
    make_folder("set/a");
    make_folder("set/b");
    add_files("a", 0, 200);
    add_files("b", 0, 40);
    return 0;
}

TEST_MAIN(make_set, remove_test_dir)
