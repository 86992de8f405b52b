/* data.group: a group is never on both sides of data.val_fraction, by a column and by a pattern,
 * for many seeds and fractions; the share of the images follows the fraction; what cannot be
 * grouped is refused. */
#include "base/names.h"
#include "data/dataset.h"
#include "data_files.h"

enum { N_PATIENTS = 60, N_SEEDS = 25 };

static void patient_of(char out[32], const struct dt_dataset *dataset, uint32_t id)
{
    char name[1024];
    const char *base = dt_file_base(dt_dataset_name(dataset, id, name, sizeof name));
    snprintf(out, 32, "%.*s", (int)strcspn(base, "_"), base);
}

/* Returns the share of the images that is for validation. */
static double check_sides(const char *path, enum dt_source source, const char *group,
                          double fraction, uint64_t seed)
{
    struct dt_config_data data = {.source = source, .val_fraction = fraction};
    char patient[32];
    snprintf(data.group, sizeof data.group, "%s", group);
    struct dt_dataset_options options = {.data = &data, .path = at(path), .seed = seed};
    struct dt_dataset *side[2];
    struct dt_names seen = {0};
    for (int s = 0; s < 2; s++) {
        options.part = s ? DT_PART_VAL : DT_PART_TRAIN;
        assert_ok(dt_dataset_open(&side[s], &options));
    }
    for (uint32_t id = 0; id < dt_dataset_size(side[0]); id++) {
        patient_of(patient, side[0], id);
        assert_int_equal(dt_names_add(&seen, patient, strlen(patient)), DT_OK);
    }
    dt_names_sort(&seen);
    for (uint32_t id = 0; id < dt_dataset_size(side[1]); id++) {
        patient_of(patient, side[1], id);
        const size_t found = dt_names_find(&seen, patient);
        if (found < seen.n && strcmp(dt_names_get(&seen, found), patient) == 0)
            fail_msg("%s is on both sides, seed %d", patient, (int)seed);
    }
    const double n_val = dt_dataset_size(side[1]), n = n_val + dt_dataset_size(side[0]);
    assert_int_equal((int)n, 5 * N_PATIENTS);
    dt_names_reset(&seen);
    dt_dataset_close(side[0]);
    dt_dataset_close(side[1]);
    return n_val / n;
}

/* Five images of each patient, in two classes. */
static int make_images(void **state)
{
    static char table[64 * 5 * N_PATIENTS];
    char name[64];
    size_t used = (size_t)sprintf(table, "path,label,patient\n");
    if (make_test_dir(state) != 0)
        return -1;
    make_folder("set");
    make_folder("set/ill");
    make_folder("set/well");
    for (int i = 0; i < 5 * N_PATIENTS; i++) {
        snprintf(name, sizeof name, "set/%s/p%d_%d.jpg", i % 5 < 2 ? "ill" : "well", i / 5, i % 5);
        write_text(name, "x");
        used += (size_t)sprintf(table + used, "%s,%d,p%d\n", name, i % 5 < 2, i / 5);
    }
    write_text("table.csv", table);
    return 0;
}

TEST(groups_stay_together)
{
    static const double fractions[] = {0.1, 0.3, 0.5};
    for (size_t f = 0; f < DT_COUNT(fractions); f++) {
        double sum = 0;
        for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
            const double share =
                check_sides("table.csv", DT_SOURCE_CSV, "patient", fractions[f], seed);
            const double same =
                check_sides("set", DT_SOURCE_FOLDER, "^(p[0-9]+)_", fractions[f], seed);
            assert_true(share > 0 && same > 0);
            sum += share;
        }
        assert_true(fabs(sum / N_SEEDS - fractions[f]) < 0.05);
    }
}

static void refuses(const char *path, enum dt_source source, const char *group, dt_status expected,
                    const char *text)
{
    struct dt_config_data data = {.source = source, .val_fraction = 0.2};
    struct dt_dataset *dataset;
    snprintf(data.group, sizeof data.group, "%s", group);
    const struct dt_dataset_options options = {
        .data = &data, .path = at(path), .part = DT_PART_TRAIN};
    assert_error(dt_dataset_open(&dataset, &options), expected, text);
}

TEST(refused)
{
    refuses("table.csv", DT_SOURCE_CSV, "study", DT_ERR_DATA, "no column \"study\"");
    refuses("set", DT_SOURCE_FOLDER, "patient", DT_ERR_CONFIG, "is a column of a CSV table");
    refuses("set", DT_SOURCE_FOLDER, "(q[0-9]+)", DT_ERR_DATA, "does not match p");
    refuses("set", DT_SOURCE_FOLDER, "(p[0-9", DT_ERR_CONFIG, "data.group: (p[0-9: ");
    refuses("set", DT_SOURCE_FOLDER, "^p()", DT_ERR_DATA, "has no two groups");
}

TEST_MAIN(make_images, remove_test_dir)
