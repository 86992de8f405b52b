/* Good configurations: defaults, values from a file, overrides, the dump that loads again, the
 * ready configurations, and help, README and schema that cover every key. */

#include <dirent.h>

#include "base/json.h"
#include "base/mem.h"
#include "config/keys.h"
#include "dtrain/config.h"
#include "test_dir.h"
#include "test_status.h"

static void load(struct dt_config *config, const char *path, const char *const *sets, size_t n_sets)
{
    assert_ok(dt_config_load(config, path, sets, n_sets));
}

/* The dump of `config`, loaded again, is the same configuration byte by byte. */
static void check_round_trip(const struct dt_config *config)
{
    struct dt_config again;
    char *text = NULL;
    assert_int_equal(dt_config_print(&text, config), DT_OK);
    write_text("config.json", text);
    memset(&again, 0xff, sizeof(again));
    load(&again, at("config.json"), NULL, 0);
    assert_memory_equal(config, &again, sizeof(again));
    free(text);
}

TEST(defaults)
{
    struct dt_config config, loaded;
    memset(&config, 0xff, sizeof(config));
    dt_config_init(&config);
    assert_string_equal(config.model.name, "resnet50");
    assert_int_equal(config.model.num_classes, 0);
    assert_int_equal(config.data.source, DT_SOURCE_AUTO);
    assert_true(config.data.mean[2] == 0.406 && config.data.std[0] == 0.229);
    assert_int_equal(config.train.epochs, 90);
    assert_int_equal(config.train.seed, 1);
    assert_true(config.optim.weight_decay == 1e-4);
    assert_int_equal(config.schedule.n_milestones, 3);
    assert_true(config.schedule.milestones[2] == 80);
    assert_int_equal(config.comm.algorithm, DT_ALGORITHM_AUTO);
    assert_int_equal(dt_config_ring_ranks(&config), 32);
    assert_string_equal(config.output.dir, "runs/default");
    load(&loaded, NULL, NULL, 0);
    assert_memory_equal(&config, &loaded, sizeof(config));
    check_round_trip(&config);
}

TEST(every_kind_of_key)
{
    struct dt_config c;
    write_text(
        "config.json",
        "{\"$schema\": \"s.json\", \"_comment\": [1], \"// why\": {\"train\": 1},\n"
        "\"model\": {\"name\": \"tiny\", \"zero_init_residual\": true, \"dropout\": 0, "
        "\"_comment_2\": null},\n"
        "\"data\": {\"source\": \"shards\", \"train\": \"a-{00..09}.tar\", \"val\": \"\\u00e9\", "
        "\"mean\": [0, 1, 0.25], \"std\": [1, 0.5, 1e-3], \"//\": \"x\", \"augment\": \"cifar\"},\n"
        "\"train\": {\"max_steps\": 9007199254740991, \"seed\": 9007199254740991, "
        "\"precision\": \"fp16\", \"global_batch_size\": 2e2, \"label_smoothing\": 0.1, "
        "\"class_weights\": [0.5, 2], \"stages\": [{\"epoch\": 2, \"batch\": 8}, {\"// x\": 1, "
        "\"image_size\": 16, \"epoch\": 4}]},\n"
        "\"schedule\": {\"kind\": \"cosine\", \"lr_scaling\": \"none\", \"milestones\": [0.5], "
        "\"lr\": 1000},\n"
        "\"device\": {\"kind\": \"cuda\", \"threads\": 7}, \"comm\": {\"backend\": \"nccl\"}}");
    load(&c, at("config.json"), NULL, 0);
    assert_string_equal(c.model.name, "tiny");
    assert_true(c.model.zero_init_residual && c.model.dropout == 0);
    assert_int_equal(c.data.source, DT_SOURCE_SHARDS);
    assert_string_equal(c.data.train, "a-{00..09}.tar");
    assert_string_equal(c.data.val, "\xc3\xa9");
    assert_true(c.data.mean[0] == 0 && c.data.mean[1] == 1 && c.data.mean[2] == 0.25);
    assert_true(c.data.std[0] == 1 && c.data.std[1] == 0.5 && c.data.std[2] == 1e-3);
    assert_int_equal(c.data.augment, DT_AUGMENT_CIFAR);
    assert_int_equal(c.train.max_steps, INT64_C(9007199254740991));
    assert_int_equal(c.train.seed, UINT64_C(9007199254740991));
    assert_int_equal(c.train.precision, DT_PRECISION_FP16);
    assert_int_equal(c.train.global_batch_size, 200);
    assert_true(c.train.n_stages == 2 && c.train.stages[0].epoch == 2 &&
                c.train.stages[0].image_size == 0 && c.train.stages[0].batch == 8);
    assert_true(c.train.stages[1].epoch == 4 && c.train.stages[1].image_size == 16 &&
                c.train.stages[1].batch == 0);
    assert_true(c.train.n_class_weights == 2 && c.train.class_weights[1] == 2);
    assert_int_equal(c.schedule.kind, DT_SCHEDULE_COSINE);
    assert_int_equal(c.schedule.lr_scaling, DT_LR_SCALING_NONE);
    assert_int_equal(c.schedule.n_milestones, 1);
    assert_true(c.schedule.milestones[0] == 0.5 && c.schedule.milestones[1] == 0);
    assert_int_equal(c.device.kind, DT_DEVICE_CUDA);
    assert_int_equal(c.device.threads, 7);
    assert_int_equal(c.comm.backend, DT_COMM_NCCL);
    assert_int_equal(c.train.epochs, 90); /* not in the file: default */
    check_round_trip(&c);
}

TEST(overrides)
{
    static const char *const sets[] = {"train.epochs=7",
                                       "train.epochs=8",
                                       "model.name=resnet18",
                                       "output.dir=2024",
                                       "data.train=\"with space\"",
                                       "data.val=a=b,[c",
                                       "optim.nesterov=true",
                                       "schedule.milestones=[1, 2]",
                                       "schedule.warmup_epochs=0",
                                       "data={\"workers\": 3}",
                                       "eval.metrics=[\"auc\", \"loss\"]",
                                       "early_stop.metric=sensitivity",
                                       "train.class_weights=balanced",
                                       "train.micro_batch_size=auto",
                                       "train.precision=bf16",
                                       "model.initial_checkpoint=true"};
    struct dt_config c;
    write_text("config.json", "{\"train\": {\"epochs\": 5, \"seed\": 4}}");
    load(&c, at("config.json"), sets, DT_COUNT(sets));
    assert_int_equal(c.train.epochs, 8); /* the last one counts */
    assert_int_equal(c.train.n_class_weights, DT_CLASS_WEIGHTS_BALANCED);
    assert_int_equal(c.train.micro_batch_size, DT_MICRO_BATCH_AUTO);
    assert_int_equal(c.train.seed, 4);
    assert_string_equal(c.model.name, "resnet18");
    assert_string_equal(c.output.dir, "2024");
    assert_string_equal(c.data.train, "with space");
    assert_string_equal(c.data.val, "a=b,[c");
    assert_string_equal(c.model.initial_checkpoint, "true");
    assert_true(c.optim.nesterov);
    assert_int_equal(c.schedule.n_milestones, 2);
    assert_int_equal(c.data.workers, 3);
    assert_string_equal(c.eval.metrics, "auc\nloss\n");
    for (int m = 0; m < DT_N_METRICS; m++)
        assert_true(dt_config_has_metric(&c, m) ==
                    (m == DT_METRIC_AUC || m == DT_METRIC_LOSS || m == DT_METRIC_SENSITIVITY));
    assert_int_equal(c.train.precision, DT_PRECISION_BF16);
    assert_string_equal(dt_error_text(), "");
    check_round_trip(&c);
}

/* Without a word about it, the warm-up in epochs gives way to the one in steps. */
TEST(alternatives)
{
    static const char *const set = "schedule.warmup_steps=0";
    struct dt_config c;
    write_text("config.json", "{\"schedule\": {\"warmup_steps\": 7}}");
    load(&c, at("config.json"), NULL, 0);
    assert_true(c.schedule.warmup_steps == 7 && c.schedule.warmup_epochs == 0);
    check_round_trip(&c);
    write_text("config.json", "{\"schedule\": {\"warmup_steps\": 7}}");
    load(&c, at("config.json"), &set, 1);
    assert_true(c.schedule.warmup_steps == 0 && c.schedule.warmup_epochs == 5);
}

/* Strings of a file have variables; those of --set do not, because the shell has had its turn. */
TEST(variables)
{
    static const char *const sets[] = {"model.initial_checkpoint=${DTRAIN_T}"};
    struct dt_config c;
    assert_int_equal(setenv("DTRAIN_T", "/scratch/${x}\xc3\xa9", 1), 0);
    assert_int_equal(unsetenv("DTRAIN_T_UNSET"), 0);
    write_text(
        "config.json",
        "{\"output\": {\"dir\": \"${DTRAIN_T}/a${DTRAIN_T:-b}\"},\n"
        "\"data\": {\"train\": \"${DTRAIN_T_UNSET:-t-{0..9}}.tar\", "
        "\"val\": \"$5 $$ $${a}${DTRAIN_T_UNSET:-}$\"},\n"
        "\"device\": {\"cache_dir\": \"${DTRAIN_T_UNSET:-${DTRAIN_T_UNSET:-c}${DTRAIN_T}}\"}}");
    load(&c, at("config.json"), sets, DT_COUNT(sets));
    assert_string_equal(c.output.dir, "/scratch/${x}\xc3\xa9/a/scratch/${x}\xc3\xa9");
    assert_string_equal(c.data.train, "t-{0..9}.tar");
    assert_string_equal(c.data.val, "$5 $$ ${a}$");
    assert_string_equal(c.device.cache_dir, "c/scratch/${x}\xc3\xa9");
    assert_string_equal(c.model.initial_checkpoint, "${DTRAIN_T}");
    check_round_trip(&c);
}

/* Strings and numbers that are hard to write down. */
TEST(round_trip_of_odd_values)
{
    struct dt_config c;
    dt_config_init(&c);
    snprintf(c.output.dir, sizeof(c.output.dir), "%s", "a \"b\" \\ \t\n\x01 \xe2\x82\xac");
    memset(c.data.val, 'v', sizeof(c.data.val) - 1);
    for (size_t i = 0; i + 2 < sizeof(c.data.train); i += 2)
        memcpy(c.data.train + i, "${", 2);
    snprintf(c.device.cache_dir, sizeof(c.device.cache_dir), "$$${a}$${b}${");
    c.schedule.lr = 1.0 / 3;
    c.optim.weight_decay = 1.0 / 32768;
    c.early_stop.target = 75.9;
    c.schedule.n_milestones = DT_MAX_MILESTONES;
    for (int i = 0; i < DT_MAX_MILESTONES; i++)
        c.schedule.milestones[i] = 1 + i / 7.0;
    check_round_trip(&c);
}

static const char *source_folder(void)
{
    const char *folder = getenv("DTRAIN_SOURCE_DIR");
    return folder ? folder : ".";
}

TEST(ready_configurations)
{
    char folder[512], path[1024];
    int n = 0;
    snprintf(folder, sizeof(folder), "%s/configs", source_folder());
    DIR *dir = opendir(folder);
    if (!dir)
        fail_msg("no folder %s; set DTRAIN_SOURCE_DIR", folder);
    for (const struct dirent *entry; (entry = readdir(dir));) {
        const char *dot = strrchr(entry->d_name, '.');
        struct dt_config config;
        if (!dot || strcmp(dot, ".json") != 0)
            continue;
        snprintf(path, sizeof(path), "%s/%.255s", folder, entry->d_name);
        load(&config, path, NULL, 0);
        check_round_trip(&config);
        n++;
    }
    closedir(dir);
    assert_true(n >= 5);
}

/* What --set asks for does not depend on defaults, nor on the data of a recipe. */
TEST(what_was_asked_for)
{
    static const struct {
        const char *set, *train, *val, *note;
        double warmup_epochs;
    } cases[] = {
        {"device.kind=gpu", "t", "v/{0..1}.tar", "", 5},
        {"train.epochs=2", "t", "v/{0..1}.tar",
         "schedule.warmup_epochs: 5 epochs are longer than train.epochs 2; it is 0.5", 0.5},
        {"data.source=synthetic", "", "", "", 5},
        {"data.val_fraction=0.2", "t", "", "", 5},
        {"data.val=w", "t", "w", "", 5},
        {"data.train=u", "u", "", "data.val: v/{0..1}.tar of ", 5},
    };
    for (size_t i = 0; i < DT_COUNT(cases); i++) {
        struct dt_config c;
        write_text("config.json", "{\"data\": {\"train\": \"t\", \"val\": \"v/{0..1}.tar\"}}");
        load(&c, at("config.json"), &cases[i].set, 1);
        assert_string_equal(c.data.train, cases[i].train);
        assert_string_equal(c.data.val, cases[i].val);
        assert_true(c.schedule.warmup_epochs == cases[i].warmup_epochs);
        assert_ptr_equal(strstr(c.notes, cases[i].note), c.notes);
        assert_true(cases[i].note[0] || !c.notes[0]);
        assert_int_equal(c.device.kind, i == 0 ? DT_DEVICE_CUDA : DT_DEVICE_AUTO);
    }
}

static void capture(char **text, dt_status (*print)(FILE *out))
{
    size_t bytes = 0;
    FILE *out = open_memstream(text, &bytes);
    assert_non_null(out);
    assert_int_equal(print(out), DT_OK);
    assert_int_equal(fclose(out), 0);
}

static dt_status print_all_keys(FILE *out)
{
    return dt_config_print_help(out, NULL);
}

TEST(help_and_readme)
{
    char start[160], path[512], *help = NULL;
    char *readme = calloc(1, 1 << 17);
    capture(&help, print_all_keys);
    for (size_t i = 0; i < dt_config_n_keys(); i++) {
        snprintf(start, sizeof(start), "\n- `%s`: ", dt_keys[i].path);
        const char *line = strstr(help, start);
        assert_non_null(line);
        assert_non_null(strstr(line, "default `"));
        assert_true(strstr(line, "default `") < strchr(line + 1, '\n'));
    }
    assert_non_null(strstr(help, "from 1 to 100000; default `90`"));
    snprintf(path, sizeof(path), "%s/configs/keys.md", source_folder());
    FILE *in = fopen(path, "r");
    assert_non_null(in);
    assert_non_null(readme);
    assert_true(fread(readme, 1, (1 << 17) - 1, in) > 0);
    fclose(in);
    if (!strstr(readme, help))
        fail_msg("out of date; run: sed -i '/^## model$/,$d' configs/keys.md && "
                 "build-dev/dtrain config help >> configs/keys.md");
    free(readme);
    free(help);
}

/* The schema describes every key of the dump, and nothing else is allowed. */
TEST(schema)
{
    char *schema = NULL, *dump = NULL;
    capture(&schema, dt_config_print_schema);
    struct dt_json_doc *schema_doc = NULL, *dump_doc = NULL;
    struct dt_config defaults;
    size_t n_keys = 0;
    dt_config_init(&defaults);
    assert_int_equal(dt_config_print(&dump, &defaults), DT_OK);
    assert_int_equal(dt_json_parse(&schema_doc, schema, strlen(schema), "schema", NULL), DT_OK);
    assert_int_equal(dt_json_parse(&dump_doc, dump, strlen(dump), "dump", NULL), DT_OK);
    const struct dt_json *root = dt_json_root(schema_doc);
    assert_string_equal(dt_json_get(root, "$schema")->string,
                        "https://json-schema.org/draft/2020-12/schema");
    assert_false(dt_json_get(root, "additionalProperties")->boolean);
    for (const struct dt_json *s = dt_json_root(dump_doc)->child; s; s = s->next) {
        const struct dt_json *section = dt_json_get(dt_json_get(root, "properties"), s->key);
        assert_non_null(section);
        if (strcmp(s->key, "format") == 0)
            continue;
        assert_false(dt_json_get(section, "additionalProperties")->boolean);
        assert_int_equal(dt_json_get(section, "properties")->n_children, s->n_children);
        for (const struct dt_json *key = s->child; key; key = key->next, n_keys++) {
            const struct dt_json *rule = dt_json_get(dt_json_get(section, "properties"), key->key);
            const struct dt_json *type = dt_json_get(rule, "type");
            assert_int_equal(dt_json_get(rule, "default")->type, key->type);
            if (!type)
                assert_int_equal(dt_json_get(rule, "anyOf")->n_children, 2);
            else if (strcmp(type->string, "integer") == 0 || strcmp(type->string, "number") == 0)
                assert_true(dt_json_get(rule, "minimum") || dt_json_get(rule, "exclusiveMinimum"));
        }
    }
    assert_int_equal(n_keys, dt_config_n_keys());
    dt_json_destroy(schema_doc);
    dt_json_destroy(dump_doc);
    free(schema);
    free(dump);
}

static double bound(const struct dt_json *rule, const char *name, const char *open_name)
{
    const struct dt_json *closed = dt_json_get(rule, name), *open = dt_json_get(rule, open_name);
    assert_true(closed || open);
    return closed ? closed->number : open->number;
}

/* Candidate `i` for another value of a key, as a --set value; false after the last one. */
static bool other_value(char *out, size_t bytes, const struct dt_json *rule, int i)
{
    if (dt_json_get(rule, "anyOf")) /* the second one is a list or an integer */
        return other_value(out, bytes, dt_json_get(rule, "anyOf")->child->next, i);
    const char *type = dt_json_get(rule, "type")->string;
    const struct dt_json *now = dt_json_get(rule, "default"), *names = dt_json_get(rule, "enum");
    if (names) {
        const struct dt_json *name = names->child;
        for (; name && i > 0; i--)
            name = name->next;
        return name && snprintf(out, bytes, "%s", name->string) > 0;
    }
    if (strcmp(type, "boolean") == 0)
        return i == 0 && snprintf(out, bytes, now->boolean ? "false" : "true") > 0;
    if (strcmp(type, "string") == 0)
        return i < 2 && snprintf(out, bytes, "%s", i == 0 ? "other" : "resnet18") > 0;
    const struct dt_json *items = dt_json_get(rule, "items");
    if (items && strcmp(dt_json_get(items, "type")->string, "number") == 0)
        return i == 0 && snprintf(out, bytes, "[0.25, 0.5, 0.75]") > 0;
    if (items && strcmp(dt_json_get(items, "type")->string, "object") == 0)
        return i == 0 && snprintf(out, bytes, "[{\"epoch\": 0, \"batch\": 8}, {\"epoch\": 2}]") > 0;
    names = dt_json_get(items, "enum");
    if (items)
        return i == 0 &&
               snprintf(out, bytes, "[\"%s\"]", names ? names->child->string : "96x64") > 0;
    double min = bound(rule, "minimum", "exclusiveMinimum");
    double max = bound(rule, "maximum", "exclusiveMaximum");
    const double number = now ? now->number : min;
    const double values[] = {
        max, min, number + 1, (min + max) / 2, (min + number) / 2, (min + 3 * max) / 4};
    return i < (int)DT_COUNT(values) && snprintf(out, bytes, "%.17g", values[i]) > 0;
}

/* Lines in which two dumps differ; the last of them begins at *where in `a`. */
static int n_different_lines(const char *a, const char *b, const char **where)
{
    int n = 0;
    while (*a && *b) {
        size_t n_a = strcspn(a, "\n"), n_b = strcspn(b, "\n");
        if (n_a != n_b || memcmp(a, b, n_a) != 0) {
            n++;
            *where = a;
        }
        a += n_a + (a[n_a] == '\n');
        b += n_b + (b[n_b] == '\n');
    }
    return *a || *b ? -1 : n;
}

/* Sets `path` to another valid value: the dump changes in that line and nowhere else. */
static void check_key_alone(const char *path, const struct dt_json *rule)
{
    char set[512], value[256], line[128], *before = NULL, *after = NULL;
    const bool is_local =
        strcmp(path, "train.average_states") == 0 || strcmp(path, "train.outer_momentum") == 0;
    const bool is_split = strcmp(path, "data.val_fraction") == 0; /* only without data.val */
    const bool is_adams = strcmp(path, "optim.beta2") == 0 || strcmp(path, "optim.eps") == 0;
    const char *optimizer = is_adams                                       ? "optim.name=adam"
                            : strcmp(path, "optim.trust_coefficient") == 0 ? "optim.name=lars"
                                                                           : "optim.name=sgd";
    const bool is_beta = strcmp(path, "train.box_loss_beta") == 0;
    const bool is_eps = strcmp(path, "model.norm_eps") == 0;
    const bool is_low = strcmp(path, "data.min_side_low") == 0;
    const bool is_virtual = strcmp(path, "train.virtual_ranks") == 0;
    const bool detects = dt_key_find(path)->of_detectors;
    const char *const sets[] = {detects ? "model.name=retinanet_resnet18_fpn" : "model.name=tiny",
                                is_beta ? "train.box_loss=smooth_l1" : "train.box_loss=l1",
                                is_eps ? "model.frozen_norm=true" : "model.frozen_norm=false",
                                is_low ? "data.min_side=64" : "data.min_side=0",
                                is_virtual ? "device.threads=2" : "device.threads=0",
                                "data.train=x",
                                is_split ? "data.val=" : "data.val=x",
                                "train.precision=fp16",
                                "optim.freeze=[\"fc\"]",
                                is_local ? "train.sync_every=2" : "train.sync_every=0",
                                "schedule.warmup_epochs=0",
                                "schedule.lr=0.1",
                                optimizer,
                                set};
    const char *where = "";
    struct dt_config config;
    bool changed = false;
    load(&config, NULL, sets, DT_COUNT(sets) - 1);
    assert_int_equal(dt_config_print(&before, &config), DT_OK);
    snprintf(line, sizeof(line), "    \"%s\": ", strchr(path, '.') + 1);
    for (int i = 0; !changed && other_value(value, sizeof(value), rule, i); i++) {
        snprintf(set, sizeof(set), "%s=%s", path, value);
        if (dt_config_load(&config, NULL, sets, DT_COUNT(sets)) != DT_OK)
            continue; /* against a rule over several keys: the next candidate */
        assert_int_equal(dt_config_print(&after, &config), DT_OK);
        int n = n_different_lines(after, before, &where);
        assert_in_range(n, 0, 1);
        changed = n == 1;
        if (changed && strncmp(where, line, strlen(line)) != 0)
            fail_msg("%s changed another key: %.80s", set, where);
        check_round_trip(&config);
        free(after);
    }
    if (!changed)
        fail_msg("%s cannot be changed: %s", path, dt_error_text());
    free(before);
}

TEST(every_key_sets_its_own_field)
{
    struct dt_json_doc *doc = NULL;
    char *schema = NULL, section[64];
    capture(&schema, dt_config_print_schema);
    assert_int_equal(dt_json_parse(&doc, schema, strlen(schema), "schema", NULL), DT_OK);
    for (size_t i = 0; i < dt_config_n_keys(); i++) {
        const char *path = dt_keys[i].path, *dot = strchr(path, '.');
        const struct dt_json *at = dt_json_get(dt_json_root(doc), "properties");
        snprintf(section, sizeof(section), "%.*s", (int)(dot - path), path);
        at = dt_json_get(dt_json_get(dt_json_get(at, section), "properties"), dot + 1);
        assert_non_null(at);
        check_key_alone(path, at);
    }
    dt_json_destroy(doc);
    free(schema);
}

static dt_status print_section(FILE *out)
{
    return dt_config_print_help(out, "checkp"); /* any prefix */
}

static dt_status print_one_key(FILE *out)
{
    return dt_config_print_help(out, "checkpoint.keep"); /* not keep_best */
}

TEST(help_on_keys)
{
    char *help;
    capture(&help, print_one_key);
    assert_string_equal(help, "- `checkpoint.keep`: Number of newest checkpoints to keep. Takes an "
                              "integer from 1 to 1000000; default `3`.\n");
    free(help);
    capture(&help, print_section);
    int n_lines = 0;
    for (const char *line = help; *line; line = strchr(line, '\n') + 1, n_lines++)
        assert_int_equal(strncmp(line, "- `checkpoint.", 14), 0);
    assert_true(n_lines > 3);
    free(help);
    assert_int_equal(dt_config_print_help(stdout, ""), DT_ERR_USAGE);
    assert_int_equal(dt_config_print_help(stdout, "train.epohs"), DT_ERR_USAGE);
    assert_string_equal(dt_error_text(), "train.epohs: unknown key; did you mean train.epochs?");
}

TEST(full_disk)
{
    FILE *full = fopen("/dev/full", "w");
    if (!full)
        skip();
    assert_int_equal(dt_config_print_schema(full), DT_ERR_IO);
    assert_int_equal(dt_config_print_help(full, NULL), DT_ERR_IO);
    fclose(full);
}

TEST_MAIN(make_test_dir, remove_test_dir)
