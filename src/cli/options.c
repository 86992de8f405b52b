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

#define AT(field) offsetof(struct dt_arguments, field)

static const struct dt_option options[] = {
    {"config", DT_OPTION_TEXT, AT(config), 0, 0, "FILE",
     "read the configuration from this JSON file, such as resnet50 (- reads standard input; keys: "
     "dtrain config help)"},
    {"set", DT_OPTION_SETTING, AT(sets), 0, 0, "KEY=VALUE", "override one key; may be repeated"},
    {"out", DT_OPTION_TEXT, AT(out), 0, 0, "DIR",
     "use this run folder; short for --set output.dir=DIR"},
    {"resume", DT_OPTION_TEXT, AT(resume), 0, 0, "RULE",
     "auto (default), must, never, or the folder of a checkpoint"},
    {"max-time", DT_OPTION_DURATION, AT(max_time_s), 0, 0, "TIME",
     "save and stop with exit code 75 after this time (90s, 30m, 2h, 1d)"},
    {"dry-run", DT_OPTION_OPTIONAL, AT(dry_run), 0, 0, "[=plan]",
     "print learning rates and memory, and with =plan every action, then exit"},
    {"allow-config-change", DT_OPTION_FLAG, AT(allow_config_change), 0, 0, NULL,
     "resume even if the changed configuration alters the result"},
    {"trace", DT_OPTION_TEXT, AT(trace), 0, 0, "STEPS|FILE",
     "write a timeline for ui.perfetto.dev: train: of steps such as 100-120 to trace.json.gz in "
     "the run folder; bench: of the measured steps to FILE"},
    {"tee", DT_OPTION_FLAG, AT(tee), 0, 0, NULL,
     "print the messages of all ranks, not only rank 0"},
    {"quiet", DT_OPTION_FLAG, AT(quiet), 0, 0, NULL, "print warnings and errors only (also -q)"},
    {"weights", DT_OPTION_TEXT, AT(weights), 0, 0, "PATH",
     "load a safetensors file, a checkpoint, or of a run folder the best one; also RUN@latest, "
     "RUN@step-N"},
    {"per-class", DT_OPTION_FLAG, AT(per_class), 0, 0, NULL,
     "print precision, recall and F1 of every class; of a detector, and coco-eval: AP and AP50"},
    {"max-detections", DT_OPTION_INTEGER, AT(max_detections), 1, 1000000, "N",
     "evaluate the N best detections of an image and category (default: 100)"},
    {"all-checkpoints", DT_OPTION_FLAG, AT(all_checkpoints), 0, 0, NULL,
     "evaluate every checkpoint of the run, from the oldest: a JSON line for each"},
    {"follow", DT_OPTION_FLAG, AT(follow), 0, 0, NULL,
     "like --all-checkpoints, then each new checkpoint as it appears, until the run has ended"},
    {"confusion", DT_OPTION_TEXT, AT(confusion), 0, 0, "FILE",
     "write the confusion matrix: a table as .csv, a picture as .svg"},
    {"predictions", DT_OPTION_TEXT, AT(predictions), 0, 0, "FILE",
     "write label, prediction and probabilities of every image as CSV; the detections of a "
     "detector as .json, in COCO's format"},
    {"top", DT_OPTION_INTEGER, AT(top), 1, INT_MAX, "N",
     "print the N most probable classes (default: 5), or best detections (default: all; also -k)"},
    {"min-score", DT_OPTION_SHARE, AT(min_score), 0, 0, "S",
     "only detections with a score of S, 0 to 1, or more (default: 0.3)"},
    {"json", DT_OPTION_TEXT, AT(json), 0, 0, "FILE",
     "write the results as JSON; -: to standard output, and all else to standard error"},
    {"data", DT_OPTION_TEXT, AT(data), 0, 0, "KIND|PATH",
     "bench: synthetic (default), or real: the configured data; config new: the training data"},
    {"model", DT_OPTION_TEXT, AT(model), 0, 0, "NAME",
     "config new: the network (default: resnet18; dtrain models lists them)"},
    {"gpus", DT_OPTION_INTEGER, AT(n_gpus), 0, 1 << 20, "N",
     "config new: GPUs to train on, 0: the CPU (default: what is there)"},
    {"batch-size-per-rank", DT_OPTION_TEXT, AT(batch_sizes), 0, 0, "N",
     "images per rank: 64, or 32,64,128 one after the other, or auto: the most that fit"},
    {"forward-only", DT_OPTION_FLAG, AT(forward_only), 0, 0, NULL,
     "measure the forward pass of an evaluation"},
    {"no-comm", DT_OPTION_FLAG, AT(no_comm), 0, 0, NULL,
     "train every rank on its own, to see what communication costs"},
    {"profile", DT_OPTION_FLAG, AT(profile), 0, 0, NULL,
     "print the time of every op and layer, and what limits them"},
    {"compare", DT_OPTION_TEXT, AT(compare), 0, 0, "OLD.json",
     "exit with code 76 if slower than this result of --json"},
    {"tolerance", DT_OPTION_TEXT, AT(tolerance), 0, 0, "P%",
     "how much slower than OLD.json is acceptable (default: 5%); the noise of both always is"},
    {"input", DT_OPTION_FLAG, AT(input), 0, 0, NULL,
     "measure the input pipeline alone, on the real data"},
    {"allreduce", DT_OPTION_FLAG, AT(allreduce), 0, 0, NULL,
     "measure sums over the ranks alone, by size"},
    {"min-bytes", DT_OPTION_INTEGER, AT(min_bytes), 1, INT64_C(1) << 32, "N",
     "smallest size of --allreduce (default: 8)"},
    {"max-bytes", DT_OPTION_INTEGER, AT(max_bytes), 1, INT64_C(1) << 32, "N",
     "largest size of --allreduce (default: 256 MiB, or what memory allows)"},
    {"ranks", DT_OPTION_TEXT, AT(ranks), 0, 0, "N",
     "number of ranks to start (default: one per slot of the hosts); forecast: numbers to predict, "
     "such as 8,64"},
    {"hosts", DT_OPTION_TEXT, AT(hosts), 0, 0, "A:8,B:8",
     "start ranks on these hosts, with so many slots each (default: the job's, or this one)"},
    {"hostfile", DT_OPTION_TEXT, AT(hostfile), 0, 0, "FILE",
     "the same from a file, a host per line"},
    {"cpus", DT_OPTION_INTEGER, AT(n_cpus), 1, 4096, "N",
     "bind each rank to N CPUs (default: not bound)"},
    {"interface", DT_OPTION_TEXT, AT(interface), 0, 0, "NAME",
     "the network between the hosts, such as eth0"},
    {"max-restarts", DT_OPTION_INTEGER, AT(max_restarts), 0, 1000000, "N",
     "start again on the hosts that are left, up to N times, if ranks were lost (default: 0)"},
    {"wait", DT_OPTION_DURATION, AT(wait_s), 0, 0, "TIME",
     "wait so long for hosts that do not answer, before each start (default: not at all)"},
    {"env", DT_OPTION_SETTING, AT(sets), 0, 0, "NAME=VALUE",
     "set this variable for all ranks, or pass on NAME as it is here; may be repeated"},
    {"program", DT_OPTION_TEXT, AT(program), 0, 0, "WORDS",
     "what starts dtrain on a host (default: this program), such as \"apptainer exec d.sif "
     "dtrain\""},
    {"link", DT_OPTION_TEXT, AT(link), 0, 0, "RATE,TIME",
     "bandwidth and latency between nodes, such as 100Gb/s,2us, or measured: between these ranks"},
    {"local-link", DT_OPTION_TEXT, AT(local_link), 0, 0, "RATE,TIME",
     "the same between the ranks of a node"},
    {"ranks-per-node", DT_OPTION_INTEGER, AT(ranks_per_node), 1, 1024, "N",
     "forecast: ranks of a node that share its link (default: 1); launch: ranks on each host"},
    {"step-time", DT_OPTION_TEXT, AT(step_time), 0, 0, "TIME",
     "step time on one rank, such as 0.105 or 105ms; measured (default) runs some steps"},
    {"prefix", DT_OPTION_TEXT, AT(prefix), 0, 0, "P",
     "name the shards P-0000.tar, P-0001.tar, ... (default: train)"},
    {"per-shard", DT_OPTION_INTEGER, AT(per_shard), 1, INT_MAX, "N",
     "images per shard (default: 1000)"},
    {"labels", DT_OPTION_TEXT, AT(labels), 0, 0, "FILE",
     "labels of ILSVRC2012_img_val.tar, a synset per line (scripts/ilsvrc_labels.py)"},
    {"image-folder", DT_OPTION_TEXT, AT(image_folder), 0, 0, "FOLDER",
     "images of a COCO file (default: ../X for instances_X.json, else the folder of the file)"},
    {"exif", DT_OPTION_TEXT, AT(exif), 0, 0, "ignore|apply",
     "whether photos are turned as their EXIF orientation says (default: ignore)"},
    {"resize-short", DT_OPTION_INTEGER, AT(resize_short), DT_RESIZE_SHORT_LEAST,
     DT_RESIZE_SHORT_MOST, "S", "shrink larger images until the shorter side has S pixels"},
    {"quality", DT_OPTION_INTEGER, AT(quality), 1, 100, "Q",
     "JPEG quality of images that are re-encoded: shrunk, CMYK, PNG (default: 95)"},
    {"label-offset", DT_OPTION_INTEGER, AT(label_offset), 0, 1000000, "N",
     "subtract N from the labels in TFRecord files (default: 1)"},
    {"image-key", DT_OPTION_TEXT, AT(image_key), 0, 0, "KEY",
     "key of the images in TFRecord files (default: image/encoded)"},
    {"label-key", DT_OPTION_TEXT, AT(label_key), 0, 0, "KEY",
     "key of the labels in TFRecord files (default: image/class/label), or of the .json members of "
     "shards (default: label)"},
    {"skip-bad", DT_OPTION_FLAG, AT(skip_bad), 0, 0, NULL,
     "skip unusable images instead of aborting"},
    {"threads", DT_OPTION_INTEGER, AT(threads), 1, 1024, "N",
     "worker threads (default: one per CPU)"},
    {"decode", DT_OPTION_ALL_OR_INTEGER, AT(decode), 0, INT_MAX, "all|N",
     "decode all images, or about N spread evenly over them (default: all)"},
    {"images-per-class", DT_OPTION_INTEGER, AT(images_per_class), 1, 1000000, "N",
     "images per class (default: 100)"},
    {"size", DT_OPTION_INTEGER, AT(size), 8, 2048, "S", "height and width in pixels (default: 64)"},
    {"seed", DT_OPTION_INTEGER, AT(seed), 0, INT64_C(1) << 53, "S",
     "seed of the random number generator (default: 1)"},
    {"count", DT_OPTION_INTEGER, AT(count), 1, 1024, "N",
     "number of images (default: 32; also -n)"},
    {"output", DT_OPTION_TEXT, AT(output), 0, 0, "FILE",
     "write this file (default: samples.png or report.html; average: none; predict: the images "
     "with their boxes, into this folder; also -o)"},
    {"svg", DT_OPTION_TEXT, AT(svg), 0, 0, "FOLDER",
     "write each chart as a picture into this folder, instead of a page"},
    {"quick", DT_OPTION_FLAG, AT(quick), 0, 0, NULL,
     "several ranks: only what prevents training, neither clocks nor speeds"},
    {"watch", DT_OPTION_FLAG, AT(watch), 0, 0, NULL,
     "serve the page to browsers, renewed while the runs go on; for a folder of runs, a list of "
     "them"},
    {"port", DT_OPTION_INTEGER, AT(port), 0, 65535, "N",
     "of --watch (default: 8265; 0: any that is free)"},
    {"address", DT_OPTION_TEXT, AT(address), 0, 0, "A",
     "of --watch: listen on this IP address (default: 127.0.0.1, which only this machine reaches)"},
    {"recompute-bn", DT_OPTION_FLAG, AT(recompute_bn), 0, 0, NULL,
     "recompute batch norm's running statistics from training images (of --config, or of the "
     "first PATH)"},
    {"images", DT_OPTION_INTEGER, AT(n_images), 1, INT64_C(1) << 53, "N",
     "training images for --recompute-bn (default: an epoch)"},
    {"help", DT_OPTION_FLAG, AT(help), 0, 0, NULL, "print this help (also -h)"},
    {"version", DT_OPTION_FLAG, AT(version), 0, 0, NULL, "print the version"},
};
/* LONG_OPTION: getopt_long's value for the first option, above all characters. */
enum { LONG_OPTION = 256 };

const struct dt_option *dt_option_find(const char *name)
{
    for (size_t i = 0; i < DT_COUNT(options); i++)
        if (strcmp(options[i].name, name) == 0)
            return &options[i];
    return NULL;
}

/* --- Values --- */

static dt_status parse_integer(int64_t *out, const struct dt_option *row, const char *text)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < row->min || value > row->max)
        DT_FAIL(DT_ERR_USAGE, "--%s: \"%s\" is not an integer in %" PRId64 "..%" PRId64, row->name,
                text, row->min, row->max);
    *out = value;
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
        return parse_integer((int64_t *)field, row, text);
    case DT_OPTION_ALL_OR_INTEGER:
        *(int64_t *)field = -1;
        return strcmp(text, "all") == 0 ? DT_OK : parse_integer((int64_t *)field, row, text);
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
            nearest ? "did you mean --" : "see dtrain --help", nearest ? nearest : "",
            nearest ? "?" : "");
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
    int least, most;
    dt_command_operands(command, &least, &most);
    if (args->n_operands > most) {
        const char *extra = args->operands[most];
        const bool is_config = dt_name_has_suffix(extra, ".json") && command->run_on_ranks;
        DT_FAIL(DT_ERR_USAGE, "%s: unexpected argument of dtrain %s; %s%s%s", extra, command->name,
                is_config ? "did you mean --config " : "see dtrain --help", is_config ? extra : "",
                is_config ? "?" : "");
    }
    if (args->n_operands < least)
        DT_FAIL(DT_ERR_USAGE, "dtrain %s needs %s", command->name, command->operands);
    for (int i = 0; i < command->n_required; i++) {
        const struct dt_option *row = dt_option_find(command->options[i]);
        const bool is_config = row->offset == offsetof(struct dt_arguments, config);
        if (*(const char *const *)((const char *)args + row->offset) || (is_config && args->n_sets))
            continue;
        DT_FAIL(DT_ERR_USAGE, "dtrain %s needs --%s %s%s; see dtrain --help", command->name,
                row->name, row->value, is_config ? ", or --set" : "");
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
        rows[n++] = dt_option_find(args->command->options[i]);
    rows[n++] = dt_option_find("help");
    rows[n++] = dt_option_find("version");
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
    *args = (struct dt_arguments){.resume = "auto",
                                  .step_time = "measured",
                                  .prefix = "train",
                                  .decode = -1,
                                  .per_shard = 1000,
                                  .quality = 95,
                                  .label_offset = 1,
                                  .images_per_class = 100,
                                  .size = 64,
                                  .seed = 1,
                                  .min_score = 0.3,
                                  .count = 32,
                                  .max_detections = 100,
                                  .n_gpus = -1,
                                  .port = -1,
                                  .data = "synthetic"};
    DT_TRY(expand_ranks(args, &argc, &argv));
    /* The leading sub-command, "train ...", or help on it, "help train" or "train help". */
    bool help_first = argc > 1 && argc <= 3 && strcmp(argv[1], "help") == 0;
    args->help = help_first;
    args->named = argc > 1 + help_first && argv[1 + help_first][0] != '-';
    if (help_first && argc == 3 && dt_topic_print(NULL, argv[2])) {
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
    const char *const keys[][2] = {{"exif", args->exif}, {"label_key", args->label_key}};
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
