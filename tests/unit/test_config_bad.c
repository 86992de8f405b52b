/* Wrong configurations: a table of hand-made ones, and mistakes generated for every key. Each must
 * give DT_ERR_CONFIG and one line with file, line, path and what is wrong. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "config/keys.h"
#include "dtrain/config.h"
#include "test.h"

static char file[] = "/tmp/dtrain-config-XXXXXX";

static const struct {
    const char *text;
    int line;         /* 0: the key is not in the file */
    const char *path; /* NULL: not JSON at all */
    const char *what;
} rows[] = {
    /* Not JSON. */
    {"", 1, NULL, "expected a value, but the text ends here"},
    {"\n{\"train\": {\"epochs\": 3}", 2, NULL, "'{' without its '}'"},
    {"{\"train\": {\"epochs\": 3}}\n}", 2, NULL, "expected the end of the text"},
    {"{\"train\": {\"epochs\": 03}}", 1, NULL, "leading zero"},
    {"{\"train\": {\"epochs\": 3,}}", 1, NULL, "comma before '}'"},
    {"// my run\n{}", 1, NULL, "JSON has no comments, use a key \"_comment\""},
    {"{\"schedule\": {\n\"lr\": .1}}", 2, NULL, "JSON numbers look like"},
    {"{\"schedule\": {\"lr\": 1e999}}", 1, NULL, "too large"},
    {"{\"schedule\": {\"lr\": NaN}}", 1, NULL, "expected a value, got 'N'"},
    {"{'train': {}}", 1, NULL, "double quotes"},
    {"{\"train\": {}, \n\"train\": {}}", 2, NULL, "train: key appears twice"},
    {"{\"train\": {\"seed\": 1,\n\n\"seed\": 2}}", 3, NULL, "train.seed: key appears twice"},
    {"{\"output\": {\"dir\": \"a\xff\"}}", 1, NULL, "not UTF-8"},
    {"\xef\xbb\xbf{}", 1, NULL, "byte-order mark"},
    /* Wrong shape. */
    {"[]", 1, "configuration", "expected an object, got a list"},
    {"3", 1, "configuration", "expected an object, got 3"},
    {"\n{\"train\": 5}", 2, "train", "expected an object with the keys of train, got 5"},
    {"{\"train\": null}", 1, "train", "got null"},
    {"{\"data\": [\"x\"]}", 1, "data", "got a list"},
    /* Unknown keys. */
    {"{\"train\":\n {\"epohcs\": 3}}", 2, "train.epohcs",
     "unknown key; did you mean train.epochs?"},
    {"{\"trian\": {\"epochs\": 3}}", 1, "trian", "did you mean train?"},
    {"{\"Train\": {}}", 1, "Train", "did you mean train?"},
    {"{\"train\": {\"EPOCHS\": 3}}", 1, "train.EPOCHS", "did you mean train.epochs?"},
    {"{\"epochs\": 3}", 1, "epochs", "did you mean train.epochs?"},
    {"{\"lr\": 3}", 1, "lr", "did you mean schedule.lr?"},
    {"{\"train\": {\"lr\": 0.1}}", 1, "train.lr", "did you mean schedule.lr?"},
    {"{\"train.epochs\": 3}", 1, "train.epochs", "nested objects instead of a dot"},
    {"{\"optim\": {\"betas\": [1]}}", 1, "optim.betas", "did you mean optim.beta2?"},
    {"{\"optim\": {\"slots\": 2}}", 1, "optim.slots", "optim has the keys name, momentum"},
    {"{\"comments\": \"x\"}", 1, "comments", "unknown key"},
    {"{\"model\": {\"name\": \"tiny\", \"\": 1}}", 1, "model.", "unknown key"},
    /* Wrong type. */
    {"{\"train\": {\"epochs\": \"ten\"}}", 1, "train.epochs",
     "expected an integer from 1 to 100000, got \"ten\""},
    {"{\"train\": {\"epochs\": 2.5}}", 1, "train.epochs", "got 2.5"},
    {"{\"train\": {\"epochs\": true}}", 1, "train.epochs", "got true"},
    {"{\"train\": {\"global_batch_size\": {}}}", 1, "train.global_batch_size", "got an object"},
    {"{\"train\": {\"deterministic\": 1}}", 1, "train.deterministic",
     "expected true or false, got 1"},
    {"{\"optim\": {\"nesterov\": \"yes\"}}", 1, "optim.nesterov", "got \"yes\""},
    {"{\"model\": {\"name\":\n\"resnet5O\"}}", 2, "model.name",
     "there is no model \"resnet5O\"; did you mean \"resnet50\"?"},
    {"{\"model\": {\"name\": \"mobilenet_v2\"}}", 1, "model.name", "the models are resnet18, "},
    {"{\"model\": {\"name\": 50}}", 1, "model.name", "expected a string of 1 to 63 bytes, got 50"},
    {"{\"output\": {\"dir\": null}}", 1, "output.dir", "got null"},
    {"{\"schedule\": {\"lr\": \"0.1\"}}", 1, "schedule.lr", "expected a number above 0"},
    {"{\"data\": {\"mean\": 0.5}}", 1, "data.mean", "expected a list of 3 numbers"},
    {"{\"schedule\": {\"milestones\": [30,\n \"60\"]}}", 2, "schedule.milestones", "got \"60\""},
    /* Out of range. */
    {"{\"train\": {\"epochs\": 0}}", 1, "train.epochs", "got 0"},
    {"{\"train\": {\"seed\": -1}}", 1, "train.seed", "from 0 to 9007199254740992, got -1"},
    {"{\"train\": {\"seed\": 9007199254740994}}", 1, "train.seed", "got 9007199254740994"},
    {"{\"train\": {\"global_batch_size\": 3000000000}}", 1, "train.global_batch_size",
     "got 3000000000"},
    {"{\"schedule\": {\"lr\": 0}}", 1, "schedule.lr",
     "expected a number above 0, up to 1000, got 0"},
    {"{\"optim\": {\"momentum\": 1}}", 1, "optim.momentum", "expected a number from 0, below 1"},
    {"{\"train\": {\"label_smoothing\": -0.1}}", 1, "train.label_smoothing", "got -0.1"},
    {"{\"data\": {\"mean\": [0.5, 0.5]}}", 1, "data.mean", "got a list of 2"},
    {"{\"data\": {\"std\": [0.5, 0.5, 0]}}", 1, "data.std", "above 0, up to 1, got 0"},
    {"{\"output\": {\"dir\": \"\"}}", 1, "output.dir", "got \"\""},
    {"{\"model\": {\"image_size\": 7}}", 1, "model.image_size", "from 8 to 2048, got 7"},
    /* Variables. */
    {"{\"output\": {\n\"dir\": \"${DTRAIN_T_UNSET}/run\"}}", 2, "output.dir",
     "the environment variable DTRAIN_T_UNSET is not set where rank 0 runs; set it, or write "
     "${DTRAIN_T_UNSET:-VALUE}"},
    {"{\"data\": {\"train\": \"${DTRAIN_T_EMPTY}\"}}", 1, "data.train", "T_EMPTY is empty"},
    {"{\"data\": {\"train\": \"${DTRAIN_T_BYTES:-x}\"}}", 1, "data.train", "is not UTF-8"},
    {"{\"data\": {\"val\": \"${DTRAIN_T_UNSET:-${DTRAIN_T_EMPTY}}\"}}", 1, "data.val", "is empty"},
    {"{\"output\": {\"dir\": \"${DTRAIN_T_EMPTY:-}\"}}", 1, "output.dir",
     "1 to 1023 bytes, got \"\""},
    {"{\"output\": {\"dir\": \"${DTRAIN_T_LONG}\"}}", 1, "output.dir", "(and more)"},
    {"{\"output\": {\"dir\": \"a${\"}}", 1, "output.dir",
     "expected ${NAME} or ${NAME:-VALUE}, got \"${\"; $${ stands for ${ itself"},
    {"{\"output\": {\"dir\": \"${A\"}}", 1, "output.dir", "got \"${A\""},
    {"{\"output\": {\"dir\": \"${}\"}}", 1, "output.dir", "got \"${}\""},
    {"{\"output\": {\"dir\": \"${A:-{}\"}}", 1, "output.dir", "got \"${A:-{}\""},
    {"{\"output\": {\"dir\": \"${0..9}\"}}", 1, "output.dir", "got \"${0..9}\""},
    {"{\"output\": {\"dir\": \"${A-b}\"}}", 1, "output.dir", "got \"${A-b}\""},
    {"{\"model\": {\"name\": \"${DTRAIN_T_MODEL}\"}}", 1, "model.name",
     "there is no model \"resnet5O\"; did you mean \"resnet50\"?"},
    {"{\"train\": {\"precision\": \"${DTRAIN_T_MODEL}\"}}", 1, "train.precision",
     "got \"${DTRAIN_T_MODEL}\""},
    /* Not one of the choices. */
    {"{\"train\": {\"precision\": \"fp23\"}}", 1, "train.precision", "did you mean \"fp32\"?"},
    {"{\"train\": {\"precision\": \"FP32\"}}", 1, "train.precision", "did you mean \"fp32\"?"},
    {"{\"data\": {\"scaled_decode\": \"half\"}}", 1, "data.scaled_decode",
     "expected one of \"never\", \"train\", \"always\", got \"half\""},
    {"{\"eval\": {\"metrics\": [\"loss\",\n\"top2\"]}}", 2, "eval.metrics",
     "expected a list of some of \"loss\", \"top1\", \"top5\", "},
    {"{\"eval\": {\"metrics\": \"loss\"}}", 1, "eval.metrics", "got \"loss\"; write [\"loss\"]"},
    {"{\"train\": {\"class_weights\": \"balance\"}}", 1, "train.class_weights",
     "expected one of \"none\", \"balanced\", or a list of at most 1000 numbers from 1e-06 to "
     "1000000, got \"balance\"; did you mean \"balanced\"?"},
    {"{\"train\": {\"class_weights\": []}}", 1, "train.class_weights", "got a list of 0"},
    {"{\"train\": {\"class_weights\": [1,\n0]}}", 2, "train.class_weights", "got 0"},
    {"{\"train\": {\"stages\": [{\"epoch\": 1},\n{\"epoch\": -1}]}}", 2, "train.stages[1].epoch",
     "expected an integer from 0 to 100000, got -1"},
    {"{\"train\": {\"stages\": [{\"batch\": 8}]}}", 1, "train.stages[0]", "a member is missing"},
    {"{\"train\": {\"stages\": [{\"epoch\": 1,\n\"size\": 8}]}}", 2, "train.stages[0].size",
     "unknown key; train.stages takes a list of at most 16 objects with \"epoch\" ("},
    {"{\"train\": {\"stages\": [{\"epoch\": 3}, {\"epoch\": 3}]}}", 1, "train.stages",
     "epoch 3 after 3 is not in ascending order"},
    {"{\"train\": {\"class_weights\": 2}}", 1, "train.class_weights", "got 2"},
    {"{\"schedule\": {\"kind\": 3}}", 1, "schedule.kind", "expected one of \"constant\""},
    /* Each key valid, together wrong. */
    {"{\"data\": {\n\"source\": \"shards\"}}", 0, "data.train", "data.source is \"shards\""},
    {"{\"data\": {\"train\": \"a\", \"val\": \"b\",\n\"val_fraction\": 0.1}}", 2,
     "data.val_fraction", "0.1 of data.train, but data.val is given too"},
    {"{\"data\": {\n\"val_fraction\": 0.1}}", 2, "data.val_fraction", "the images are generated"},
    {"{\"data\": {\"train\": \"a\",\n\"val_fraction\": 1}}", 2, "data.val_fraction", "below 1"},
    {"{\"data\": {\"source\": \"folder\",\n\"train\": \"\"}}", 2, "data.train",
     "data.source is \"folder\""},
    {"{\"data\": {\"synthetic_train\": 100}}", 1, "data.synthetic_train",
     "fewer than train.global_batch_size 256"},
    {"{\"data\": {\"val_resize\": 200}}", 1, "data.val_resize",
     "smaller than model.image_size 224"},
    {"{\"train\": {\"batch_size_per_rank\": 32,\n\"global_batch_size\": 64}}", 1,
     "train.batch_size_per_rank", "train.global_batch_size 64 is given too; leave one of them out"},
    {"{\"train\": {\"batch_size_per_rank\": 32, \"micro_batch_size\": 12}}", 1,
     "train.micro_batch_size", "train.batch_size_per_rank 32 is not a multiple of 12"},
    {"{\"train\": {\"micro_batch_size\": 48}}", 1, "train.micro_batch_size",
     "256 is not a multiple of 48"},
    {"{\"train\": {\"deterministic\": true}, \"comm\": {\"algorithm\": \"auto\"}}", 1,
     "train.deterministic", "only comm.algorithm \"ring\""},
    {"{\"early_stop\": {\"target\": 0.75}}", 1, "early_stop.target",
     "0.75 is in per cent; did you mean 75?"},
    {"{\"early_stop\": {\"target\": 90, \"metric\": \"auc\"}}", 1, "early_stop.target",
     "auc lies between 0 and 1; did you mean 0.9?"},
    {"{\"early_stop\": {\"target\": 36, \"metric\": \"auto\"},"
     " \"model\": {\"name\": \"retinanet_resnet18_fpn\"}}",
     1, "early_stop.target", "ap lies between 0 and 1; did you mean 0.36?"},
    {"{\"early_stop\": {\"metric\": \"ap\"}}", 1, "early_stop.metric",
     "\"ap\" is not for classifiers, which are judged by loss, top1, top5, balanced_accuracy"},
    {"{\"model\": {\"name\": \"retinanet_resnet18_fpn\",\n \"canvases\": [\"96x60\"]}}", 2,
     "model.canvases", "\"96x60\" is not a size WIDTHxHEIGHT"},
    {"{\"model\": {\"name\": \"retinanet_resnet18_fpn\", \"canvases\": [\"96x64 \"]}}", 1,
     "model.canvases", "is not a size WIDTHxHEIGHT"},
    {"{\"model\": {\"name\": \"retinanet_resnet18_fpn\", \"canvases\": [\"4096x64\"]}}", 1,
     "model.canvases", "multiples of 32 up to 2048"},
    {"{\"model\": {\"name\": \"retinanet_resnet18_fpn\", \"canvases\": [\"96x64\", \"32x32\", "
     "\"96x64\"]}}",
     1, "model.canvases", "96x64 is listed twice"},
    {"{\"model\": {\"name\": \"retinanet_resnet18_fpn\", \"canvases\": [\"96x64\"]}, \"data\": "
     "{\"min_side\": 80}}",
     1, "data.min_side", "the shorter side of every canvas is at most 64"},
    {"{\"model\": {\"name\": \"retinanet_resnet18_fpn\"}, \"data\": {\"min_side\": 80, "
     "\"max_side\": 79}}",
     1, "data.min_side", "80 is more than data.max_side 79"},
    {"{\"model\": {\"name\": \"retinanet_resnet18_fpn\"}, \"data\": {\"min_side_low\": 80}}", 1,
     "data.min_side_low", "which is not given"},
    {"{\"model\": {\"name\": \"retinanet_resnet18_fpn\"}, \"data\": {\"min_side\": 64, "
     "\"min_side_low\": 80}}",
     1, "data.min_side_low", "80 is more than data.min_side 64"},
    {"{\"model\": {\"name\": \"retinanet_resnet18_fpn\"}, \"data\": {\"max_side\": 64, "
     "\"stretch\": true}}",
     1, "data.stretch", "fills the canvas"},
    {"{\"early_stop\": {\"metric\": \"top1\"}, \"model\": {\"name\": \"retinanet_resnet18_fpn\"}}",
     1, "early_stop.metric",
     "is not for detectors, which are judged by train_loss, ap, ap50, ap75"},
    {"{\"schedule\": {\"metric\": \"ap50\"}}", 1, "schedule.metric", "is not for classifiers"},
    {"{\"checkpoint\": {\"best_metric\": \"ap\"}}", 1, "checkpoint.best_metric",
     "is not for classifiers"},
    {"{\"eval\": {\"metrics\": [\"auc\", \"ap75\"]}}", 1, "eval.metrics",
     "\"ap75\" is not for classifiers"},
    {"{\"early_stop\": {\"patience\": 3}, \"data\": {\"synthetic_val\": 0}}", 1,
     "early_stop.patience", "no validation data"},
    {"{\"early_stop\": {\"target\": 90}, \"data\": {\"synthetic_val\": 0}}", 1, "early_stop.target",
     "no validation data"},
    {"{\"optim\": {\"nesterov\": true, \"momentum\": 0}}", 1, "optim.nesterov", "optim.momentum"},
    {"{\"optim\": {\"nesterov\": true, \"name\": \"lars\"}}", 1, "optim.nesterov",
     "only optim.name"},
    {"{\"optim\": {\"beta2\": 0.9}}", 1, "optim.beta2", "\"sgd\" keeps no squared gradients"},
    {"{\"optim\": {\"eps\": 1e-8}}", 1, "optim.eps", "\"sgd\" has no denominators"},
    {"{\"optim\": {\"trust_coefficient\": 0.02}}", 1, "optim.trust_coefficient", "only \"lars\""},
    {"{\"optim\": {\"clip_norm\": 1, \"clip_value\": 1}}", 1, "optim.clip_value",
     "optim.clip_norm 1"},
    {"{\"optim\": {\"unfreeze_epoch\": 3}}", 1, "optim.unfreeze_epoch", "lists nothing"},
    {"{\"train\": {\"epochs\": 3},\n \"schedule\": {\"warmup_epochs\": 4}}", 2,
     "schedule.warmup_epochs", "longer than train.epochs 3"},
    {"{\"train\": {\"epochs\": 3}}", 0, "schedule.warmup_epochs", "5 epochs is longer"},
    {"{\"schedule\": {\"milestones\": [30, 60, 60]}}", 1, "schedule.milestones",
     "60 after 60 is not in ascending order"},
    {"{\"schedule\": {\"milestones\": []}}", 1, "schedule.milestones", "empty"},
    {"{\"schedule\": {\"warmup_steps\": 9,\n\"warmup_epochs\": 4}}", 1, "schedule.warmup_steps",
     "schedule.warmup_epochs 4 is given too; leave one of them out"},
    {"{\"schedule\": {\"lr_base_size\": 0}}", 1, "schedule.lr_base_size",
     "set schedule.lr_scaling to \"none\""},
    {"{\"schedule\": {\"kind\": \"piecewise\",\n\"factors\": [1, 0.5]}}", 2, "schedule.factors",
     "needs one for each of the 3 schedule.milestones, not 2"},
    {"{\"schedule\": {\"kind\": \"plateau\"}, \"eval\": {\"every_epochs\": 0}}", 1, "schedule.kind",
     "eval.every_epochs is 0"},
    {"{\"schedule\": {\"kind\": \"plateau\"}, \"data\": {\"synthetic_val\": 0}}", 1,
     "schedule.kind", "no validation data"},
    {"{\"schedule\": {\"kind\": \"cosine\", \"min_lr\": 1}}", 1, "schedule.min_lr",
     "larger than schedule.lr 0.1"},
    {"{\"comm\": {\"backend\": \"nccl\"}, \"device\": {\"kind\": \"cpu\"}}", 1, "comm.backend",
     "needs a GPU"},
    {"{\"comm\": {\"grad_dtype\": \"fp16\", \"algorithm\": \"auto\"}}", 1, "comm.grad_dtype",
     "only comm.algorithm \"ring\""},
    {"{\"comm\": {\"grad_dtype\": \"bf16\"},\n \"train\": {\"precision\": \"fp16\"}}", 1,
     "comm.grad_dtype", "another 16-bit type"},
    {"{\"comm\": {\"mode\": \"central\", \"backend\": \"nccl\"}}", 1, "comm.mode",
     "needs comm.backend \"mpi\""},
    {"{\"comm\": {\"mode\": \"async\", \"grad_dtype\": \"bf16\"}}", 1, "comm.mode", "fp32 only"},
    {"{\"comm\": {\"mode\": \"async\"}, \"train\": {\"deterministic\": true}}", 1, "comm.mode",
     "who is first"},
    {"{\"comm\": {\"mode\": \"central\"}, \"train\": {\"sync_every\": 4}}", 1, "train.sync_every",
     "updates in every step"},
    {"{\"train\": {\"sync_every\": 4}, \"comm\": {\"grad_dtype\": \"fp16\"}}", 1,
     "train.sync_every", "averaged in fp32"},
    {"{\"train\": {\"sync_every\": 4, \"max_steps\": 6}}", 1, "train.sync_every",
     "not a multiple of 4"},
    {"{\"train\": {\"average_states\": true}}", 1, "train.average_states", "above 1"},
    {"{\"train\": {\"outer_momentum\": 0.5}}", 1, "train.outer_momentum", "above 1"},
};

static dt_status load_text(struct dt_config *config, const char *text)
{
    FILE *out = fopen(file, "w");
    assert_non_null(out);
    assert_int_equal(fwrite(text, 1, strlen(text), out), strlen(text));
    assert_int_equal(fclose(out), 0);
    return dt_config_load(config, file, NULL, 0);
}

/* One mistake, in one line, at that place. */
static void check(const char *text, dt_status status, int line, const char *path, const char *what)
{
    char where[160], blame[160] = "";
    snprintf(where, sizeof(where), line ? "%s:%d:" : "%s:", file, line);
    if (path)
        snprintf(blame, sizeof(blame), ": %s: ", path);
    const char *error = dt_error_text();
    if (status != DT_ERR_CONFIG || strncmp(error, where, strlen(where)) != 0 ||
        !strstr(error, blame) || !strstr(error, what) || strchr(error, '\n'))
        fail_msg("%s\n-> %d \"%s\"\nexpected \"%s ...%s... %s\"", text, status, error, where, blame,
                 what);
}

TEST(hand_made)
{
    struct dt_config config;
    char too_long[DT_PATH_MAX + 1] = "";
    memset(too_long, 'x', DT_PATH_MAX);
    assert_int_equal(setenv("DTRAIN_T_LONG", too_long, 1), 0);
    assert_int_equal(setenv("DTRAIN_T_EMPTY", "", 1), 0);
    assert_int_equal(setenv("DTRAIN_T_BYTES", "a\xff", 1), 0);
    assert_int_equal(setenv("DTRAIN_T_MODEL", "resnet5O", 1), 0);
    assert_true(DT_COUNT(rows) >= 40);
    for (size_t i = 0; i < DT_COUNT(rows); i++)
        check(rows[i].text, load_text(&config, rows[i].text), rows[i].line, rows[i].path,
              rows[i].what);
}

/* {"section": {<newline> "key": value}} */
static void write_key(char *text, size_t bytes, const char *path, const char *key,
                      const char *value)
{
    snprintf(text, bytes, "{\"%.*s\": {\n\"%s\": %s}}", (int)strcspn(path, "."), path, key, value);
}

TEST(wrong_types_of_every_key)
{
    static const char *const wrong_for_all[] = {"null",  "{}",     "[[1]]",
                                                "1e300", "-1e300", "[true, true, true]"};
    struct dt_config config;
    char text[8192], long_string[4000], where[128];
    memset(long_string, 'x', sizeof(long_string) - 1);
    long_string[0] = long_string[sizeof(long_string) - 2] = '"';
    long_string[sizeof(long_string) - 1] = '\0';
    for (size_t i = 0; i < dt_config_n_keys(); i++) {
        const char *path = dt_keys[i].path, *key = strchr(path, '.') + 1;
        for (size_t j = 0; j < DT_COUNT(wrong_for_all); j++) {
            bool is_row = dt_keys[i].type == DT_KEY_TABLE && wrong_for_all[j][0] == '[';
            snprintf(where, sizeof(where), "%s%s", path, is_row ? "[0]" : "");
            write_key(text, sizeof(text), path, key, wrong_for_all[j]);
            check(text, load_text(&config, text), 2, where, "expected ");
        }
        write_key(text, sizeof(text), path, key, long_string);
        check(text, load_text(&config, text), 2, path, "expected ");
    }
}

TEST(misspelling_of_every_key)
{
    struct dt_config config;
    char text[512], key[80], path[128], what[160];
    for (size_t i = 0; i < dt_config_n_keys(); i++) {
        const char *right = dt_keys[i].path;
        int section = (int)strcspn(right, ".") + 1;
        snprintf(what, sizeof(what), "unknown key; did you mean %s?", right);
        for (int kind = 0; kind < 3; kind++) {
            snprintf(key, sizeof(key), kind == 2 ? "_%s" : "%s", right + section);
            if (kind == 0)
                snprintf(key + strlen(key), 2, "x");
            else if (kind == 1)
                key[0] = (char)(key[0] - 'a' + 'A');
            snprintf(path, sizeof(path), "%.*s%s", section, right, key);
            write_key(text, sizeof(text), right, key, "1");
            check(text, load_text(&config, text), 2, path, what);
        }
    }
}

TEST(all_mistakes_at_once)
{
    static const char text[] = "{\n\"train\": {\"epochs\": 0,\n\"foo\": 1},\n\"zoo\": 3,\n"
                               "\"data\": {\"workers\": -1},\n\"model\": {\"name\": \"vgg\"}}";
    static const char *const sets[] = {"train.seed=x", "train.epochz=1", "nonsense"};
    static const char *const lines[] = {":2:21: train.epochs: ",
                                        ":3:8: train.foo: ",
                                        ":4:8: zoo: ",
                                        ":5:21: data.workers: ",
                                        ":6:19: model.name: there is no model ",
                                        "--set: train.seed: ",
                                        "--set: train.epochz: ",
                                        "--set: nonsense: expected key.path=value"};
    struct dt_config config;
    int n_lines = 1;
    load_text(&config, text);
    assert_int_equal(dt_config_load(&config, file, sets, DT_COUNT(sets)), DT_ERR_CONFIG);
    for (size_t i = 0; i < DT_COUNT(lines); i++)
        if (!strstr(dt_error_text(), lines[i]))
            fail_msg("\"%s\" is not in\n%s", lines[i], dt_error_text());
    for (const char *p = dt_error_text(); *p; p++)
        n_lines += *p == '\n';
    assert_int_equal(n_lines, (int)DT_COUNT(lines));
}

TEST(too_many_mistakes)
{
    struct dt_config config;
    char *text = calloc(1, 200000);
    size_t used = 1;
    assert_non_null(text);
    text[0] = '{';
    for (int i = 0; i < 1000; i++)
        used += (size_t)snprintf(text + used, 200000 - used, "%s\"made_up_%d\\n\": 1",
                                 i ? ",\n" : "", i);
    text[used] = '}';
    assert_int_equal(load_text(&config, text), DT_ERR_CONFIG);
    free(text);
    int n_left_out = 0, n_lines = 0;
    for (const char *p = dt_error_text(); *p; p++)
        n_lines += *p == '\n';
    const char *last = strrchr(dt_error_text(), '\n');
    assert_non_null(last);
    assert_int_equal(sscanf(last, "\n(and %d more mistakes)", &n_left_out), 1);
    assert_int_equal(n_lines + n_left_out, 1000);
}

TEST(unreadable_files)
{
    struct dt_config config;
    assert_int_equal(dt_config_load(&config, "/tmp/no/such/file.json", NULL, 0), DT_ERR_NO_INPUT);
    assert_non_null(strstr(dt_error_text(), "/tmp/no/such/file.json"));
    assert_int_equal(dt_config_load(&config, "/tmp", NULL, 0), DT_ERR_NO_INPUT);
    assert_int_equal(dt_config_load(&config, "/dev/zero", NULL, 0), DT_ERR_NO_INPUT);
    if (geteuid() != 0) {
        load_text(&config, "{}");
        assert_int_equal(chmod(file, 0), 0);
        assert_int_equal(dt_config_load(&config, file, NULL, 0), DT_ERR_PERMISSION);
        assert_int_equal(chmod(file, 0600), 0);
    }
    char *big = malloc((2 << 20) + 1);
    assert_non_null(big);
    memset(big, ' ', 2 << 20);
    big[2 << 20] = '\0';
    assert_int_equal(load_text(&config, big), DT_ERR_CONFIG);
    assert_non_null(strstr(dt_error_text(), "at most 1048576"));
    free(big);
}

static int make_file(void **state)
{
    (void)state;
    int fd = mkstemp(file);
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(file);
}

TEST_MAIN(make_file, remove_file)
