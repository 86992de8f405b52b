/* The option table and the command line parser. */
#include "cli/commands.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/names.h"
#include "base/nearest.h"
#include "base/text.h"
#include "image/convert.h"

#define ROW(type, id, member, words, ...)                                        \
    {                                                                            \
        .name = (id), .kind = DT_OPTION_##type, .value = (words),                \
        .offset = offsetof(struct dt_arguments, member),                         \
        .bytes = sizeof(((struct dt_arguments *)0)->member), .help = __VA_ARGS__ \
    }
#define FLAG(id, member, ...)        ROW(FLAG, id, member, NULL, __VA_ARGS__)
#define TEXT(id, member, words, ...) ROW(TEXT, id, member, words, __VA_ARGS__)
#define INTEGER(id, member, value, low, high, words, ...) \
    ROW(INTEGER, id, member, words, __VA_ARGS__, .number = (value), .min = (low), .max = (high))

static const struct dt_option options[] = {
    TEXT("config", config, "FILE",
         "read the configuration from this JSON file, such as resnet50 (- reads standard input; "
         "keys: dtrain config help)"),
    ROW(SETTING, "set", sets, "KEY=VALUE", "override one key; may be repeated"),
    TEXT("out", out, "DIR", "use this run folder; short for --set output.dir=DIR"),
    TEXT("resume", train.resume, "RULE",
         "auto (default), must, never, or the folder of a checkpoint"),
    ROW(DURATION, "max-time", train.max_time_s, "TIME",
        "save and stop with exit code 75 after this time (90s, 30m, 2h, 1d)"),
    ROW(OPTIONAL, "dry-run", dry_run, "[=plan]",
        "print learning rates and memory, and with =plan every action, then exit"),
    FLAG("allow-config-change", train.allow_config_change,
         "resume even if the changed configuration alters the result"),
    TEXT("trace", trace, "FILE", "write a timeline of the measured steps, for ui.perfetto.dev",
         .of = "bench"),
    TEXT("trace", trace, "STEPS",
         "write a timeline of steps such as 100-120, for ui.perfetto.dev, to trace.json.gz in the "
         "run folder"),
    FLAG("tee", tee, "print the messages of all ranks, not only rank 0"),
    FLAG("quiet", quiet, "print warnings and errors only (also -q)"),
    TEXT("weights", weights, "PATH",
         "weights to load: a safetensors file, a checkpoint, a run folder (its best checkpoint), "
         "RUN@latest or RUN@step-N"),
    FLAG("per-class", eval.per_class, "print AP and AP50 of every category", .of = "coco-eval"),
    FLAG("per-class", eval.per_class,
         "print precision, recall and F1 of every class, or AP and AP50 of a detector"),
    INTEGER("max-detections", max_detections, 100, 1, 1000000, "N",
            "evaluate the N best detections of an image and category (default: 100)"),
    FLAG("all-checkpoints", eval.all_checkpoints,
         "evaluate every checkpoint of the run, from the oldest: a JSON line for each"),
    FLAG("follow", eval.follow,
         "like --all-checkpoints, then each new checkpoint as it appears, until the run has ended"),
    TEXT("confusion", eval.confusion, "FILE",
         "write the confusion matrix: a table as .csv, a picture as .svg"),
    TEXT("predictions", eval.predictions, "FILE",
         "write label, prediction and probabilities of every image as CSV; the detections of a "
         "detector as .json, in COCO's format"),
    INTEGER("top", predict.top, 0, 1, INT_MAX, "N",
            "print the N most probable classes (default: 5), or best detections (default: all; "
            "also -k)"),
    FLAG("yolo", predict.yolo, "with --output, also write FOLDER/labels/*.txt in YOLO's format"),
    ROW(SHARE, "min-score", predict.min_score, "S",
        "only detections with a score of S, 0 to 1, or more (default: 0.3)"),
    TEXT("json", json, "FILE",
         "write the results as JSON; -: to standard output, and all else to standard error"),
    TEXT("data", data, "PATH", "new: the training data", .of = "config"),
    TEXT("data", data, "KIND", "synthetic (default), or real: the configured data"),
    TEXT("model", model, "NAME", "new: the network (default: resnet18; dtrain models lists them)"),
    INTEGER("gpus", n_gpus, -1, 0, 1 << 20, "N",
            "new: GPUs to train on, 0: the CPU (default: what is there)"),
    TEXT("batch-size-per-rank", bench.batch_sizes, "N",
         "images per rank: 64, or 32,64,128 one after the other, or auto: the most that fit"),
    FLAG("forward-only", bench.forward_only, "measure the forward pass of an evaluation"),
    FLAG("no-comm", bench.no_comm, "train every rank on its own, to see what communication costs"),
    FLAG("profile", bench.profile, "print the time of every op and layer, and what limits them"),
    TEXT("compare", bench.compare, "OLD.json",
         "exit with code 76 if slower than this result of --json"),
    TEXT("tolerance", bench.tolerance, "P%",
         "accepted slowdown against OLD.json (default: 5%), or the noise if that is larger"),
    FLAG("input", input, "measure the input pipeline alone, on the real data"),
    FLAG("allreduce", allreduce_only, "measure sums over the ranks alone, by size"),
    INTEGER("min-bytes", allreduce.min_bytes, 0, 1, INT64_C(1) << 32, "N",
            "smallest size of --allreduce (default: 8)"),
    INTEGER("max-bytes", allreduce.max_bytes, 0, 1, INT64_C(1) << 32, "N",
            "largest size of --allreduce (default: 256 MiB, or what memory allows)"),
    TEXT("ranks", ranks, "N,...", "numbers of ranks to predict for, such as 8,64",
         .of = "forecast"),
    TEXT("ranks", ranks, "N", "number of ranks to start (default: one per slot of the hosts)"),
    TEXT("hosts", launch.hosts, "A:8,B:8",
         "start ranks on these hosts, with so many slots each (default: the job's, or this one)"),
    TEXT("hostfile", launch.hostfile, "FILE", "the same from a file, a host per line"),
    INTEGER("cpus", launch.n_cpus, 0, 1, 4096, "N",
            "bind each rank to N CPUs (default: not bound)"),
    TEXT("interface", launch.interface, "NAME", "the network between the hosts, such as eth0"),
    INTEGER(
        "max-restarts", launch.max_restarts, 0, 0, 1000000, "N",
        "start again on the hosts that are left, up to N times, if ranks were lost (default: 0)"),
    ROW(DURATION, "wait", launch.wait_s, "TIME",
        "before each start, wait up to TIME for hosts that do not answer (default: do not wait)"),
    ROW(SETTING, "env", sets, "NAME=VALUE",
        "set this variable for all ranks, or pass on NAME as it is here; may be repeated"),
    TEXT("program", launch.program, "WORDS",
         "what starts dtrain on a host (default: this program), such as \"apptainer exec d.sif "
         "dtrain\""),
    TEXT("link", link, "RATE,TIME",
         "bandwidth and latency between nodes, such as 100Gb/s,2us, or measured: between these "
         "ranks"),
    TEXT("local-link", local_link, "RATE,TIME", "the same between the ranks of a node"),
    INTEGER("ranks-per-node", launch.ranks_per_node, 0, 1, 1024, "N",
            "ranks of a node that share its link (default: 1)", .of = "forecast"),
    INTEGER("ranks-per-node", launch.ranks_per_node, 0, 1, 1024, "N", "ranks on each host"),
    TEXT("step-time", step_time, "TIME",
         "step time on one rank, such as 0.105 or 105ms; measured (default) runs some steps"),
    TEXT("prefix", shard.prefix, "P",
         "name the shards P-0000.tar, P-0001.tar, ... (default: train)"),
    INTEGER("per-shard", shard.per_shard, 1000, 1, INT_MAX, "N",
            "images per shard (default: 1000)"),
    TEXT("labels", shard.labels, "FILE",
         "labels of ILSVRC2012_img_val.tar, a synset per line (scripts/ilsvrc_labels.py)"),
    TEXT("image-folder", shard.image_folder, "FOLDER",
         "images of a COCO file (default: ../X for instances_X.json, else the folder of the file)"),
    TEXT("exif", exif, "ignore|apply",
         "whether photos are turned as their EXIF orientation says (default: ignore)"),
    INTEGER("resize-short", shard.resize_short, 0, DT_MIN_RESIZE_SHORT, DT_MAX_RESIZE_SHORT, "S",
            "shrink larger images until the shorter side has S pixels"),
    INTEGER("quality", shard.quality, 95, 1, 100, "Q",
            "JPEG quality of images that are re-encoded: shrunk, CMYK, not JPEG (default: 95)"),
    INTEGER("label-offset", shard.label_offset, 1, 0, 1000000, "N",
            "subtract N from the labels in TFRecord files (default: 1)"),
    TEXT("image-key", shard.image_key, "KEY",
         "key of the images in TFRecord files (default: image/encoded)"),
    TEXT("label-key", shard.label_key, "KEY",
         "key of the labels in TFRecord files (default: image/class/label), or of the .json "
         "members of shards (default: label)"),
    FLAG("test", shard.test,
         "pack the test images of CIFAR or MNIST (default: the training images)"),
    FLAG("skip-bad", shard.skip_bad, "skip unusable images instead of aborting"),
    INTEGER("threads", shard.threads, 0, 1, 1024, "N", "worker threads (default: one per CPU)"),
    ROW(ALL_OR_INTEGER, "decode", decode, "all|N",
        "decode all images, or about N spread evenly over them (default: all)", .number = -1,
        .max = INT_MAX),
    INTEGER("images-per-class", images_per_class, 100, 1, 1000000, "N",
            "images per class (default: 100)"),
    INTEGER("size", size, 64, 8, 2048, "S", "height and width in pixels (default: 64)"),
    INTEGER("seed", shard.seed, 1, 0, INT64_C(1) << 53, "S",
            "seed of the random number generator (default: 1)"),
    INTEGER("count", count, 32, 1, 1024, "N", "number of images (default: 32; also -n)"),
    TEXT("output", output, "FILE", "write this page (default: report.html; also -o)",
         .of = "report"),
    TEXT("output", output, "FILE", "write this picture (default: samples.png; also -o)",
         .of = "samples"),
    TEXT("output", output, "FOLDER", "write the images with their boxes into this folder (also -o)",
         .of = "predict"),
    TEXT("output", output, "FILE", "write the averaged weights to this file (also -o)"),
    TEXT("svg", svg, "FOLDER", "write each chart as a picture into this folder, instead of a page"),
    FLAG("quick", quick, "on several ranks: check what prevents training, not clocks or speeds"),
    FLAG("watch", watch,
         "serve the page to browsers, renewed while the runs go on; for a folder of runs, a list "
         "of them"),
    INTEGER("port", port, -1, 0, 65535, "N", "of --watch (default: 8265; 0: any that is free)"),
    TEXT("address", address, "A",
         "of --watch: listen on this IP address (default: 127.0.0.1, which only this machine "
         "reaches)"),
    FLAG("recompute-bn", average.recompute_bn,
         "recompute batch norm's running statistics from training images (of --config, or of the "
         "first PATH)"),
    INTEGER("images", average.n_images, 0, 1, INT64_C(1) << 53, "N",
            "training images for --recompute-bn (default: an epoch)"),
    FLAG("help", help, "print this help (also -h)"),
    FLAG("version", version, "print the version"),
};
/* LONG_OPTION: getopt_long's value for the first option, above all characters. */
enum { LONG_OPTION = 256 };

const struct dt_option *dt_option_find(const char *name, const char *command)
{
    for (size_t i = 0; i < DT_COUNT(options); i++)
        if (strcmp(options[i].name, name) == 0 &&
            (!options[i].of || strcmp(options[i].of, command) == 0))
            return &options[i];
    return NULL;
}

/* --- Values --- */

static void set_integer(void *field, const struct dt_option *row, int64_t value)
{
    if (row->bytes == sizeof(int))
        *(int *)field = (int)value;
    else
        *(int64_t *)field = value;
}

static dt_status parse_integer(void *field, const struct dt_option *row, const char *text)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < row->min || value > row->max)
        DT_FAIL(DT_ERR_USAGE, "--%s: \"%s\" is not an integer in %" PRId64 "..%" PRId64, row->name,
                text, row->min, row->max);
    set_integer(field, row, value);
    return DT_OK;
}

/* "90", "90s", "1h30m", "0.5d" */
static dt_status parse_duration(double *out, const struct dt_option *row, const char *text)
{
    static const struct {
        char name;
        double seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}, {'\0', 1}};
    const char *at = text;
    double sum = 0;
    bool ok = *text != '\0';
    while (ok && *at) {
        char *end;
        size_t u = 0;
        double value = strtod(at, &end);
        while (u < DT_COUNT(units) && units[u].name != *end)
            u++;
        ok = end != at && isfinite(value) && value >= 0 && u < DT_COUNT(units);
        if (ok)
            sum += value * units[u].seconds;
        at = *end ? end + 1 : end;
    }
    if (!ok || sum <= 0)
        DT_FAIL(DT_ERR_USAGE, "--%s: \"%s\" is not a time such as 90s, 30m or 2h", row->name, text);
    *out = sum;
    return DT_OK;
}

static dt_status parse_share(double *out, const struct dt_option *row, const char *text)
{
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= 0 && value <= 1))
        DT_FAIL(DT_ERR_USAGE, "--%s: \"%s\" is not a number from 0 to 1", row->name, text);
    *out = value;
    return DT_OK;
}

static dt_status store_option(struct dt_arguments *args, const struct dt_option *row,
                              const char *text)
{
    char *field = (char *)args + row->offset;
    switch (row->kind) {
    case DT_OPTION_TEXT:
        if (text[0] == '\0')
            DT_FAIL(DT_ERR_USAGE, "--%s: the value is empty", row->name);
        *(const char **)field = text;
        return DT_OK;
    case DT_OPTION_OPTIONAL:
        *(const char **)field = text ? text : "";
        return DT_OK;
    case DT_OPTION_FLAG:
        *(bool *)field = true;
        return DT_OK;
    case DT_OPTION_INTEGER:
        return parse_integer(field, row, text);
    case DT_OPTION_ALL_OR_INTEGER:
        set_integer(field, row, -1);
        return strcmp(text, "all") == 0 ? DT_OK : parse_integer(field, row, text);
    case DT_OPTION_DURATION:
        return parse_duration((double *)field, row, text);
    case DT_OPTION_SHARE:
        return parse_share((double *)field, row, text);
    case DT_OPTION_SETTING:
        args->sets[args->n_sets++] = text;
        return DT_OK;
    }
    return DT_OK;
}

/* The argument at which getopt_long stopped. It advances past a group of short options such as
 * "-hx" only with the last of them. */
static const char *stopped_at(char *const *argv)
{
    const char *last = argv[optind - 1];
    bool in_group = optopt > 0 && optopt < LONG_OPTION &&
                    !(last[0] == '-' && last[1] != '-' && strchr(last, optopt));
    return in_group ? argv[optind] : last;
}

static dt_status refuse_option(const char *text, const struct dt_command *command, bool lacks_value)
{
    const char *names[DT_COMMAND_OPTIONS + 1] = {"help"};
    char name[64], hint[128];
    size_t n = 1;
    if (lacks_value)
        DT_FAIL(DT_ERR_USAGE, "%s requires a value", text);
    if (optopt >= LONG_OPTION)
        DT_FAIL(DT_ERR_USAGE, "%s: --%.*s takes no value", text, (int)strcspn(text, "=") - 2,
                text + 2);
    for (; n <= DT_COMMAND_OPTIONS && command->options[n - 1]; n++)
        names[n] = command->options[n - 1];
    size_t n_dashes = strspn(text, "-");
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text + n_dashes, "="), text + n_dashes);
    if (command->run_on_ranks && dt_config_option_hint(hint, sizeof hint, name))
        DT_FAIL(DT_ERR_USAGE, "%s: dtrain %s has no such option; %s", text, command->name, hint);
    const char *nearest = dt_nearest(name, names, n);
    DT_FAIL(DT_ERR_USAGE, "%s: dtrain %s has no such option; %s%s%s", text, command->name,
            nearest ? "did you mean --" : "see dtrain ", nearest ? nearest : command->name,
            nearest ? "?" : " --help");
}

/* dtrain resume FOLDER: as if its configuration and the folder had been given. */
static dt_status take_run(struct dt_arguments *args)
{
    static char config[DT_PATH_MAX];
    args->out = args->operands[0];
    args->config = config;
    return dt_file_path(config, "%s/config.json", args->out);
}

static dt_status check_given(struct dt_arguments *args)
{
    const struct dt_command *command = args->command;
    int min, max;
    dt_command_operands(command, &min, &max);
    if (args->n_operands > max) {
        const char *extra = args->operands[max];
        const bool is_config = dt_name_has_suffix(extra, ".json") && command->run_on_ranks;
        DT_FAIL(DT_ERR_USAGE, "%s: unexpected argument of dtrain %s; %s%s%s", extra, command->name,
                is_config ? "did you mean --config " : "see dtrain ",
                is_config ? extra : command->name, is_config ? "?" : " --help");
    }
    if (args->n_operands < min)
        DT_FAIL(DT_ERR_USAGE, "dtrain %s needs %s", command->name, command->operands);
    for (int i = 0; i < command->n_required; i++) {
        const struct dt_option *row = dt_option_find(command->options[i], command->name);
        const bool is_config = row->offset == offsetof(struct dt_arguments, config);
        if (*(const char *const *)((const char *)args + row->offset) || (is_config && args->n_sets))
            continue;
        DT_FAIL(DT_ERR_USAGE, "dtrain %s needs --%s %s%s; see dtrain %s --help", command->name,
                row->name, row->value, is_config ? ", or --set" : "", command->name);
    }
    if (command->run_on_ranks == dt_cmd_train && args->n_operands > 0)
        return take_run(args);
    /* For commands that run a network, an operand RUN is the same as --weights. */
    if (!strstr(command->operands, "RUN") || !command->run_on_ranks)
        return DT_OK;
    if (args->weights && args->n_operands > 0)
        DT_FAIL(DT_ERR_USAGE, "%s and --weights %s: give one of them", args->operands[0],
                args->weights);
    if (!args->weights && args->n_operands == 0)
        DT_FAIL(DT_ERR_USAGE, "dtrain %s needs a run folder, or --weights PATH", command->name);
    if (!args->weights) {
        args->weights = *args->operands++;
        args->n_operands--;
    }
    args->run = args->weights; /* which may become the path of the file that is found */
    return DT_OK;
}

/* The short name of an option, 0 if it has none. */
static char letter_of(const struct dt_option *row)
{
    static const char *const names[][2] = {
        {"help", "h"}, {"count", "n"}, {"output", "o"}, {"top", "k"}, {"quiet", "q"}};
    for (size_t i = 0; i < DT_COUNT(names); i++)
        if (strcmp(row->name, names[i][0]) == 0)
            return names[i][1][0];
    return 0;
}

static dt_status parse_options(struct dt_arguments *args, int argc, char **argv)
{
    const struct dt_option *rows[DT_COUNT(options)];
    struct option known[DT_COUNT(options) + 1] = {0};
    char letters[3 * DT_COUNT(options)];
    struct dt_text text = dt_text_in(letters, sizeof letters);
    int n = 0, found;
    for (int i = 0; i < DT_COMMAND_OPTIONS && args->command->options[i]; i++)
        rows[n++] = dt_option_find(args->command->options[i], args->command->name);
    rows[n++] = dt_option_find("help", "");
    rows[n++] = dt_option_find("version", "");
    dt_text_add(&text, ":");
    for (int i = 0; i < n; i++) {
        const enum dt_option_kind kind = rows[i]->kind;
        const int has = kind == DT_OPTION_FLAG       ? no_argument
                        : kind == DT_OPTION_OPTIONAL ? optional_argument
                                                     : required_argument;
        known[i] = (struct option){rows[i]->name, has, NULL, LONG_OPTION + i};
        if (letter_of(rows[i]))
            dt_text_add(&text, "%c%s", letter_of(rows[i]), has == required_argument ? ":" : "");
    }
    opterr = 0;
    while ((found = getopt_long(argc, argv, letters, known, NULL)) != -1) {
        if (found == '?' || found == ':')
            return refuse_option(stopped_at(argv), args->command, found == ':');
        int i = 0;
        while (found != LONG_OPTION + i && found != letter_of(rows[i]))
            i++;
        DT_TRY(store_option(args, rows[i], optarg));
    }
    args->operands = argv + optind;
    args->n_operands = argc - optind;
    return args->help || args->version ? DT_OK : check_given(args);
}

/* "dtrain --ranks N WORD..." as "dtrain launch --ranks N -- WORD...". */
static dt_status expand_ranks(struct dt_arguments *args, int *argc, char ***argv)
{
    static const char option[] = "--ranks";
    char **old = *argv, **words;
    const char *rest = *argc > 1 && strncmp(old[1], option, strlen(option)) == 0
                           ? old[1] + strlen(option)
                           : "none";
    const int n = rest[0] == '\0' && *argc > 2 ? 3 : 2; /* words up to N */
    if (rest[0] != '\0' && rest[0] != '=')
        return DT_OK;
    DT_TRY(DT_NEW(args->words, (size_t)*argc + 3));
    words = args->words;
    *words++ = old[0];
    *words++ = (char *)"launch";
    for (int i = 1; i < n; i++)
        *words++ = old[i];
    *words++ = (char *)"--";
    memcpy(words, old + n, (size_t)(*argc - n) * sizeof *words);
    *argc += 2;
    *argv = args->words;
    return DT_OK;
}

dt_status dt_arguments_parse(struct dt_arguments *args, int argc, char **argv)
{
    *args = (struct dt_arguments){.train.resume = "auto",
                                  .step_time = "measured",
                                  .shard.prefix = "train",
                                  .data = "synthetic",
                                  .predict.min_score = 0.3};
    for (const struct dt_option *row = options; row < options + DT_COUNT(options); row++)
        if (row->number != 0)
            set_integer((char *)args + row->offset, row, row->number);
    DT_TRY(expand_ranks(args, &argc, &argv));
    /* The leading sub-command, "train ...", or help on it, "help train" or "train help". */
    bool help_first = argc > 1 && argc <= 3 && strcmp(argv[1], "help") == 0;
    args->help = help_first;
    args->named = argc > 1 + help_first && argv[1 + help_first][0] != '-';
    if (help_first && argc == 3 && dt_topic_print(false, argv[2])) {
        args->topic = argv[2];
        return DT_OK;
    }
    if (help_first && argc == 3 && strchr(argv[2], '.')) { /* a key: "config help KEY" */
        args->help = false;
        args->command = dt_command_find("config");
        args->operands = argv + 1;
        args->n_operands = 2;
        return DT_OK;
    }
    if (argc == 3 && strcmp(argv[1], "--version") == 0 && strcmp(argv[2], "--json") == 0) {
        args->version = true;
        args->json = "-";
        return DT_OK;
    }
    args->command = args->named ? dt_command_find(argv[1 + help_first]) : dt_commands;
    if (!args->command)
        return dt_error_pass(DT_ERR_USAGE, __func__, __FILE__, __LINE__);
    if (args->named && argc == 3 && strcmp(argv[2], "help") == 0)
        args->help |= !strstr(args->command->operands, "help"); /* "dtrain config help" */
    if (args->help)
        return DT_OK;
    DT_TRY(DT_NEW(args->sets, (size_t)argc));
    return parse_options(args, argc - args->named, argv + args->named);
}

void dt_arguments_reset(struct dt_arguments *args)
{
    free(args->words);
    free(args->sets);
}

/* Options that are keys become settings, for which args->sets has room. */
dt_status dt_arguments_config(struct dt_config *config, const struct dt_arguments *args)
{
    const char *const keys[][2] = {{"exif", args->exif}, {"label_key", args->shard.label_key}};
    char file[DT_PATH_MAX], texts[DT_COUNT(keys)][DT_PATH_MAX];
    size_t n_sets = args->n_sets;
    for (size_t i = 0; i < DT_COUNT(keys); i++)
        if (keys[i][1]) {
            snprintf(texts[i], sizeof texts[i], "data.%s=%s", keys[i][0], keys[i][1]);
            args->sets[n_sets++] = texts[i];
        }
    if (args->config)
        DT_TRY(dt_config_find(file, args->config));
    DT_TRY(dt_config_load(config, args->config ? file : NULL, args->sets, n_sets));
    if (!args->out)
        return DT_OK;
    return dt_file_path(config->output.dir, "%s", args->out);
}
