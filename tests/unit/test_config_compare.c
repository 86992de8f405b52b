/* Changes of the configuration on resuming: every key once, then several at a time. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "config/keys.h"
#include "test.h"

enum { LIST_BYTES = 4096 };

/* The promise to users, written down a second time: whole sections end in a dot. */
static const char *const free_keys[] = {
    "output.",
    "checkpoint.",
    "watchdog.",
    "bench.",
    "model.initial_checkpoint",
    "model.num_classes",
    "data.source",
    "data.class_map",
    "data.train",
    "data.val",
    "data.train_images",
    "data.val_images",
    "data.synthetic_val",
    "data.workers",
    "data.prefetch",
    "data.max_bad_fraction",
    "data.check",
    "data.check_images",
    "train.epochs",
    "train.max_steps",
    "eval.",
    "early_stop.",
    "train.replica_check_every",
    "train.restore_best",
    "device.cuda_graph",
    "device.numa_bind",
    "device.allow_shared_gpu",
    "device.timeout_s",
    "device.cache_dir",
    "data.cache_mb",
};
static const char *const inexact_keys[] = {
    "comm.backend",
    "comm.algorithm",
    "comm.grad_dtype",
    "comm.bucket_cap_mb",
    "comm.last_bucket_cap_mb",
    "comm.max_staleness",
    "train.micro_batch_size",
    "train.precision",
    "train.loss_scale",
    "train.deterministic",
    "device.kind",
    "device.threads",
    "device.winograd",
    "device.layout",
    "device.conv_candidate",
    "device.fusion",
};

static bool is_among(const char *path, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t bytes = strlen(list[i]);
        bool is_section = list[i][bytes - 1] == '.';
        if (is_section ? strncmp(path, list[i], bytes) == 0 : strcmp(path, list[i]) == 0)
            return true;
    }
    return false;
}

static double other_number(const struct dt_key *key, double value)
{
    if (key->offset == offsetof(struct dt_config, schedule.metric))
        return DT_METRIC_TOP1; /* loss is what auto stands for */
    if (key->type == DT_MEMBER_BOOL || key->type == DT_MEMBER_CHOICE)
        return value < key->max ? value + 1 : 0;
    if (key->type == DT_MEMBER_REAL)
        return value > key->min ? (value + key->min) / 2 : (value + key->max) / 2;
    return value < key->max ? value + 1 : value - 1;
}

static void change(const struct dt_key *key, struct dt_config *config)
{
    if (key->type == DT_MEMBER_TEXT || key->type == DT_KEY_NAMES) {
        char *text = (char *)config + key->offset;
        text[0] = text[0] == 'x' ? 'y' : 'x';
        text[1] = key->type == DT_KEY_NAMES ? '\n' : '\0';
        text[2] = '\0';
    } else if (key->type == DT_KEY_TABLE) {
        int n_rows;
        dt_key_table(key, config, &n_rows)[1] = (int)key->columns[1].max;
        *(int *)((char *)config + key->count_offset) = 1;
    } else if (key->type == DT_KEY_LIST) {
        double items[DT_MAX_CLASS_WEIGHTS] = {2};
        int n = 0;
        const double *present = dt_key_get_list(key, config, &n);
        memcpy(items, present, (size_t)n * sizeof *items);
        items[n > 0 ? n - 1 : 0] /= 2;
        dt_key_set_list(key, config, items, n > 0 ? n : 1);
    } else {
        dt_key_set_number(key, config, other_number(key, dt_key_get_number(key, config)));
    }
}

static void check_lists(const struct dt_config *saved, const struct dt_config *now,
                        const char *path, bool is_free, bool is_inexact)
{
    char refused[LIST_BYTES], inexact[LIST_BYTES], line[128];
    snprintf(line, sizeof line, "    %s: ", path);
    dt_config_compare(saved, now, refused, inexact, LIST_BYTES);
    if ((strstr(refused, line) == refused) != (!is_free && !is_inexact) ||
        (strstr(inexact, line) == inexact) != is_inexact || strchr(refused, '\n') ||
        strchr(inexact, '\n') || (is_free && (refused[0] || inexact[0])))
        fail_msg("%s: refused \"%s\", inexact \"%s\"", path, refused, inexact);
}

TEST(every_key)
{
    int n_free = 0, n_inexact = 0;
    struct dt_config saved, now;
    for (size_t i = 0; i < dt_config_n_keys(); i++) {
        const struct dt_key *key = &dt_keys[i];
        bool is_free = is_among(key->path, free_keys, DT_COUNT(free_keys));
        bool is_inexact = is_among(key->path, inexact_keys, DT_COUNT(inexact_keys));
        dt_config_init(&saved);
        if (key->offset == offsetof(struct dt_config, model.dropout))
            snprintf(saved.model.name, sizeof saved.model.name, "vgg16"); /* it has some */
        now = saved;
        change(key, &now);
        check_lists(&saved, &now, key->path, is_free, is_inexact);
        check_lists(&now, &saved, key->path, is_free, is_inexact);
        n_free += is_free;
        n_inexact += is_inexact;
    }
    printf("%zu keys: %d free, %d inexact\n", dt_config_n_keys(), n_free, n_inexact);
}

/* Where the rate goes to its end value, the end may only move away; where it follows the
 * evaluations, they must not change. */
TEST(schedules)
{
    struct dt_config saved, now;
    for (enum dt_schedule_kind kind = 0; kind <= DT_SCHEDULE_PLATEAU; kind++) {
        bool goes_to_end = kind == DT_SCHEDULE_COSINE || kind == DT_SCHEDULE_POLY ||
                           kind == DT_SCHEDULE_LINEAR || kind == DT_SCHEDULE_WSD ||
                           kind == DT_SCHEDULE_ONE_CYCLE;
        dt_config_init(&saved);
        saved.schedule.kind = kind;
        now = saved;
        now.train.epochs = 91;
        check_lists(&saved, &now, "train.epochs", true, false);
        check_lists(&now, &saved, "train.epochs", !goes_to_end, false);
        now = saved;
        now.eval.every_epochs = 2;
        check_lists(&saved, &now, "eval.every_epochs", kind != DT_SCHEDULE_PLATEAU, false);
    }
}

TEST(text)
{
    char refused[LIST_BYTES], inexact[LIST_BYTES];
    struct dt_config saved, now;
    dt_config_init(&saved);
    now = saved;
    now.train.global_batch_size = 256; /* as 0 */
    now.optim.clip_norm = -0.0;
    now.train.n_stages = 1; /* which changes nothing */
    dt_config_compare(&saved, &now, refused, inexact, LIST_BYTES);
    assert_string_equal(refused, "");
    assert_string_equal(inexact, "");
    now.train.seed = 5;
    now.train.precision = DT_PRECISION_BF16;
    now.optim.momentum = 0.9 + 1e-15;
    now.schedule.n_milestones = 2;
    now.data.workers = 7;
    snprintf(now.model.name, sizeof now.model.name, "a\nb");
    dt_config_compare(&saved, &now, refused, inexact, LIST_BYTES);
    assert_string_equal(refused, "    model.name: was \"resnet50\", now \"a\\nb\"\n"
                                 "    train.seed: was 1, now 5\n"
                                 "    optim.momentum: was 0.9, now 0.900000000000001\n"
                                 "    schedule.milestones: was [30,60,80], now [30,60]");
    assert_string_equal(inexact, "    train.precision: was auto, now bf16");
}

/* A list that is too short has whole lines. */
TEST(cut)
{
    char refused[40], inexact[40];
    struct dt_config saved, now;
    dt_config_init(&saved);
    now = saved;
    now.train.seed = 5;
    now.train.global_batch_size = 512;
    now.optim.nesterov = true;
    memset(refused, 'x', sizeof refused);
    dt_config_compare(&saved, &now, refused, inexact, sizeof refused);
    assert_string_equal(refused, "    train.seed: was 1, now 5");
    assert_string_equal(inexact, "");
}

TEST_MAIN(NULL, NULL)
