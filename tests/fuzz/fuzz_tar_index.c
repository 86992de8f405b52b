/* A tar shard: a data set of ten classes, and the index for a classifier and for a detector.
 * Accepted samples lie inside the file and have names, and each has its boxes; a refusal names the
 * shard. */
#include "base/log.h"
#include "data/tar_index.h"
#include "dtrain/data.h"
#include "fuzz.h"

static void check_refusal(dt_status status, const char *path)
{
    fuzz_check_refusal(status, DT_ERR_DATA);
    FUZZ_CHECK(strstr(dt_error_text(), path));
}

static void check_dataset(const char *path)
{
    static const struct dt_config_data shards = {.source = DT_SOURCE_SHARDS, .label_key = "label"};
    const struct dt_dataset_options options = {.data = &shards, .path = path, .num_classes = 10};
    struct dt_dataset *dataset;
    const dt_status status = dt_dataset_open(&dataset, &options);
    FUZZ_CHECK((status == DT_OK) == (dataset != NULL));
    if (status == DT_OK)
        fuzz_accept(dt_dataset_size(dataset));
    else
        check_refusal(status, path);
    dt_dataset_close(dataset);
}

static void check_boxes(const struct dt_wds_boxes *boxes, size_t n)
{
    size_t n_truths = 0;
    FUZZ_CHECK(boxes->n == n);
    for (size_t i = 0; i < boxes->n; i++) {
        FUZZ_CHECK(boxes->images[i].width > 0 && boxes->images[i].height > 0);
        n_truths += boxes->images[i].n_truths;
    }
    FUZZ_CHECK(n_truths == boxes->n_truths);
    for (size_t i = 0; i < n_truths; i++) {
        const struct dt_truth *truth = &boxes->truths[i];
        FUZZ_CHECK(truth->label >= 0);
        FUZZ_CHECK(truth->w >= 0 && truth->w <= 1e9 && truth->h >= 0 && truth->h <= 1e9);
        FUZZ_CHECK(truth->x >= -1e9 && truth->x <= 1e9 && truth->area >= 0);
    }
}

static void check_index(const char *path, size_t bytes, bool detects)
{
    struct dt_tar_index index = {0};
    char name[2048];
    dt_status status = dt_tar_index_build(&index, path, detects ? NULL : "label");
    if (status != DT_OK)
        check_refusal(status, path);
    for (size_t i = 0; status == DT_OK && i < index.n; i++) {
        const struct dt_tar_entry *entry = &index.entries[i];
        FUZZ_CHECK(entry->offset <= bytes && entry->bytes <= bytes - entry->offset);
        FUZZ_CHECK(i == 0 || entry->offset > index.entries[i - 1].offset);
    }
    if (status == DT_OK)
        check_boxes(&index.boxes, detects ? index.n : 0);
    if (status == DT_OK && index.n > 0) {
        dt_tar_member_name(path, index.entries[0].offset, name, sizeof name);
        FUZZ_CHECK(strncmp(name, "byte ", 5) != 0 || strstr(name, ".j") || strstr(name, ".J"));
    }
    dt_tar_index_reset(&index);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const char *path = fuzz_file(data, bytes);
    dt_log_init(DT_LOG_ERROR, 0, 1); /* no warnings about skipped members */
    check_dataset(path);
    check_index(path, bytes, false);
    check_index(path, bytes, true);
    return 0;
}
