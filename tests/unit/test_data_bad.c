/* Bad images in the loader: replaced by the rule, logged and counted once, and above the limit the
 * end of the job with one clear sentence. */
#include "capture.h"
#include "loader_rig.h"

static int count_lines(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

static void folder_add_bad(struct folder *folder, const char *name)
{
    for (int i = 0; i < N_BAD_FILES; i++) {
        if (strcmp(bad_files[i].name, name) != 0)
            continue;
        struct file file = bad_file_make(&bad_files[i]);
        folder_add(folder, name, &file);
        free(file.data);
        return;
    }
    fail_msg("no bad file %s", name);
}

static bool is_bad(const struct dt_dataset *dataset, uint32_t id)
{
    char name[256];
    return strstr(dt_dataset_name(dataset, id, name, sizeof name), "good") == NULL;
}

TEST(bad_training_samples)
{
    struct folder folder;
    uint32_t order[N];
    char text[16384];
    static struct run run;
    folder_make(&folder);
    const char *bad[] = {"png", "cut-half", "cut-progressive", "scrambled", "huge", "no-tables"};
    folder_add_good(&folder, 20);
    for (size_t i = 0; i < 6; i++)
        folder_add_bad(&folder, bad[i]);
    folder_add_good(&folder, N - 26);
    struct dt_dataset *dataset = open_folder(&folder);
    struct capture capture = capture_begin(stderr);
    read_run(&run, dataset, 1, GLOBAL, 4);
    capture_end(&capture, text, sizeof text);
    int n_lines = count_lines(text);

    int n_met = 0, n_replaced = 0, is_met[N] = {0};
    for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
        dt_sampler_order(order, N, SEED, epoch, true);
        for (int p = 0; p < BATCHES * GLOBAL; p++) {
            const struct row *row = &run.rows[epoch][p / GLOBAL][p % GLOBAL];
            int q = p;
            for (; is_bad(dataset, order[q % N]); q++) {
                n_met += !is_met[order[q % N]];
                is_met[order[q % N]] = 1;
            }
            assert_int_equal(row->id, order[p]);
            assert_int_equal(row->label, dt_dataset_label(dataset, order[q % N]));
            if (q == p || q >= BATCHES * GLOBAL)
                continue;
            const struct row *source = &run.rows[epoch][q / GLOBAL][q % GLOBAL];
            assert_memory_equal(row->pixels, source->pixels, sizeof row->pixels);
            assert_memory_equal(&row->crop, &source->crop, sizeof row->crop);
            n_replaced++;
        }
    }
    assert_true(n_replaced >= 6 && n_met >= 5);
    assert_int_equal(n_lines, n_met); /* one warning each, though met in every epoch */
    for (uint32_t id = 0; id < N; id++) {
        char name[256];
        if (is_met[id])
            assert_non_null(strstr(text, dt_dataset_name(dataset, id, name, sizeof name)));
    }
    capture = capture_begin(stderr);
    check_same_for_all_splits(dataset, &run);
    capture_end(&capture, text, sizeof text);
    close_folder(&folder, dataset);
}

TEST(bad_evaluation_samples)
{
    struct folder folder;
    char text[4096];
    folder_make(&folder);
    folder_add_good(&folder, 5);
    folder_add_bad(&folder, "avif");
    folder_add_bad(&folder, "cut-tenth");
    struct dt_dataset *dataset = open_folder(&folder);
    struct dt_loader_options options = make_options(false, 0, 1, 4, 2);
    struct dt_config_data data = rig_data;
    data.max_bad_fraction = 2.0 / 7.0; /* exactly as many as there are */
    options.data = &data;
    struct dt_loader *loader = open_loader(dataset, &options);
    const struct dt_batch *batch;
    struct capture capture = capture_begin(stderr);
    for (uint32_t epoch = 0; epoch < 3; epoch++) {
        assert_int_equal(dt_loader_start(loader, epoch, 0), DT_OK);
        while ((batch = next(loader))) {
            for (int i = 0; i < batch->n; i++) {
                const uint8_t *pixels = batch->pixels + i * SIZE * SIZE * 3;
                bool is_grey = true;
                for (int k = 0; k < SIZE * SIZE * 3; k++)
                    is_grey = is_grey && pixels[k] == 128;
                assert_int_equal(is_grey, is_bad(dataset, batch->ids[i]));
                assert_int_equal(batch->labels[i], dt_dataset_label(dataset, batch->ids[i]));
            }
            dt_loader_release(loader, batch);
        }
    }
    capture_end(&capture, text, sizeof text);
    assert_int_equal(count_lines(text), 2);
    uint64_t now, before;
    dt_loader_bad_positions(loader, &now, &before);
    assert_true(now == 2 && before == 2); /* of the last evaluation and the one before */
    assert_int_equal(dt_loader_check_bad(loader, now), DT_OK);
    assert_error(dt_loader_check_bad(loader, now + 1), DT_ERR_DATA,
                 "3 of 7 validation images are bad");
    assert_non_null(strstr(dt_error_text(), "% of 7 images (2)"));
    dt_loader_destroy(loader);
    close_folder(&folder, dataset);
}

/* Each kind of bad file, none allowed: code 65 and one sentence with the file and the reason. */
TEST(each_bad_file_ends_the_job)
{
    for (int k = 0; k < N_BAD_FILES; k++) {
        struct folder folder;
        char log[4096];
        const struct dt_batch *batch = NULL;
        dt_status status = DT_OK;
        folder_make(&folder);
        folder_add_good(&folder, 5);
        folder_add_bad(&folder, bad_files[k].name);
        struct dt_dataset *dataset = open_folder(&folder);
        struct dt_loader_options options = make_options(false, 0, 1, 2, 2);
        options.data = &(const struct dt_config_data){.val_resize = SIZE + 4, .prefetch = 3};
        struct dt_loader *loader = open_loader(dataset, &options);
        struct capture capture = capture_begin(stderr);
        assert_int_equal(dt_loader_start(loader, 0, 0), DT_OK);
        while ((status = dt_loader_next(loader, &batch)) == DT_OK && batch)
            dt_loader_release(loader, batch);
        capture_end(&capture, log, sizeof log);
        assert_int_equal(status, DT_ERR_DATA);
        dt_loader_release(loader, batch); /* given all the same */
        const char *text = dt_error_text();
        /* An empty file is refused where it is read, in the data set's own words. */
        const char *reason = strcmp(bad_files[k].name, "empty") ? bad_files[k].reason : "0 bytes";
        if (!strstr(text, bad_files[k].name) || !strstr(text, reason) ||
            !strstr(text, "1 of 6 validation images") ||
            !strstr(text, "at most 0 % of 6 images (0)") || strchr(text, '\n'))
            fail_msg("%s: %s", bad_files[k].name, text);
        assert_int_equal(dt_loader_next(loader, &batch), DT_ERR_DATA); /* stays so */
        dt_loader_destroy(loader);
        close_folder(&folder, dataset);
    }
}

TEST(all_bad)
{
    struct folder folder;
    char log[8192];
    const struct dt_batch *batch;
    folder_make(&folder);
    for (int i = 0; i < GLOBAL; i++)
        folder_add_bad(&folder, bad_files[i].name);
    struct dt_dataset *dataset = open_folder(&folder);
    struct dt_loader_options options = make_options(true, 0, 1, 6, 4);
    struct dt_loader *loader = open_loader(dataset, &options);
    struct capture capture = capture_begin(stderr);
    assert_int_equal(dt_loader_start(loader, 0, 0), DT_OK);
    dt_status status = dt_loader_next(loader, &batch);
    capture_end(&capture, log, sizeof log);
    assert_error(status, DT_ERR_DATA, "none of the 12 samples");
    dt_loader_destroy(loader);
    close_folder(&folder, dataset);
}

TEST_MAIN(NULL, NULL)
