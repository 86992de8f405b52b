/* Names of other programs and of earlier versions: each leads to a key that exists. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "config/keys.h"
#include "test.h"

TEST(targets_exist)
{
    int n_missing = 0;
    for (const struct dt_hint *hint = dt_hints; hint->names; hint++) {
        assert_true(!hint->key != !hint->advice);
        if (hint->key && !dt_key_find(hint->key)) {
            print_error("%s: no such key\n", hint->key);
            n_missing++;
        }
    }
    assert_int_equal(n_missing, 0);
}

/* A hint counts before the search among the keys, so it must not hide one, nor another hint. */
TEST(names_are_no_keys)
{
    char name[64], seen[8192] = " ", key[80];
    for (const struct dt_hint *hint = dt_hints; hint->names; hint++)
        for (const char *word = hint->names; *word; word += strspn(word, " ")) {
            size_t bytes = strcspn(word, " ");
            snprintf(name, sizeof name, " %.*s ", (int)bytes, word);
            if (strstr(seen, name))
                fail_msg("%s: twice", name);
            strncat(seen, name + 1, sizeof seen - strlen(seen) - 1);
            snprintf(key, sizeof key, "%s%.*s", memchr(word, '.', bytes) ? "" : ".", (int)bytes,
                     word);
            for (size_t i = 0; i < dt_config_n_keys(); i++) {
                const char *path = dt_keys[i].path, *end = strstr(path, key);
                if (end && strcmp(end, key) == 0)
                    fail_msg("%s: the name of %s", name, path);
            }
            word += bytes;
        }
}

TEST(suggestions)
{
    static const struct {
        const char *path, *text;
    } rows[] = {
        {"batch_size", "; did you mean train.global_batch_size?"},
        {"train.bs", "; did you mean train.global_batch_size?"},
        {"per_device_train_batch_size", "; did you mean train.batch_size_per_rank?"},
        {"eval.batch_size", "; did you mean eval.batch_size_per_rank?"},
        {"data.batch-size", "; did you mean train.global_batch_size?"},
        {"train.global_batch", "; did you mean train.global_batch_size?"},
        {"optimizer.learning_rate", "; did you mean schedule.lr?"},
        {"amp", "; use train.precision=fp16 (or bf16)"},
        {"model.pretrained", "; use model.initial_checkpoint=FILE"},
        {"num_gpus", "; start one rank per GPU: mpirun -np GPUS dtrain ..."},
        {"optim.lr", "; did you mean schedule.lr?"},
        {"zz", ""},
    };
    char text[512];
    for (size_t i = 0; i < DT_COUNT(rows); i++)
        assert_string_equal(dt_key_suggest(text, sizeof text, rows[i].path), rows[i].text);
}

TEST(options)
{
    static const struct {
        const char *name, *text;
    } rows[] = {
        {"batch-size", "use --set train.global_batch_size=..."},
        {"b", "use --set train.global_batch_size=..."},
        {"lr", "use --set schedule.lr=..."},
        {"epochs", "use --set train.epochs=..."},
        {"weight-decay", "use --set optim.weight_decay=..."},
        {"amp", "use --set train.precision=fp16 (or bf16)"},
        {"gpus", "start one rank per GPU: mpirun -np GPUS dtrain ..."},
    };
    char text[128];
    for (size_t i = 0; i < DT_COUNT(rows); i++) {
        assert_true(dt_config_option_hint(text, sizeof text, rows[i].name));
        assert_string_equal(text, rows[i].text);
    }
    assert_false(dt_config_option_hint(text, sizeof text, "confg"));
    assert_false(dt_config_option_hint(text, sizeof text, "x"));
}

TEST_MAIN(NULL, NULL)
