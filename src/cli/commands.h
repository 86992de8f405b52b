/* The sub-commands: one list, which generates their prototypes and the table; and the parsed
 * command line, which they get. A new one: src/cli/cmd_x.c with dt_cmd_x and a row here. */
#ifndef DTRAIN_CLI_COMMANDS_H
#define DTRAIN_CLI_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"
#include "dtrain/bench.h"
#include "dtrain/comm.h"
#include "dtrain/config.h"
#include "dtrain/eval.h"
#include "dtrain/train.h"
#include "launch/launch.h"
#include "pack/pack.h"

struct dt_command;

/* Texts point into argv. */
struct dt_arguments {
    const struct dt_command *command;
    bool named; /* the command was named, not assumed by default */
    const char *config, *out, *weights, *json, *exif, *output, *run, *trace, *data, *model,
        *address, *svg, *ranks, *link, *local_link, *step_time;
    const char **sets; /* or of --env */
    size_t n_sets;
    int64_t images_per_class, size, count, max_detections, n_gpus, port;
    int64_t decode;      /* -1 = all */
    const char *dry_run; /* NULL = no; "" or "plan" */
    bool input, allreduce_only, tee, quiet, watch, quick, help, version;
    const char *topic;        /* of `dtrain help TOPIC`, or NULL */
    char **operands, **words; /* words: owned, or NULL */
    int n_operands;
    /* Options in the structs that the functions of commands take; other commands share some. */
    struct dt_train_options train;
    struct dt_average_options average;
    struct dt_eval_options eval;
    struct dt_predict_options predict;
    struct dt_bench_options bench;
    struct dt_allreduce_options allreduce;
    struct dt_launch_options launch;
    struct dt_shard_options shard;
};

/* Function, name, operands (optional ones in brackets), summary, number of required options, and
 * all options, the required ones first. LOCAL: one process, without MPI; RANKS: collective;
 * EITHER: the first for one process, the second for several and with --json. The first row is the
 * default command. */
#define DT_COMMAND_LIST(LOCAL, RANKS, EITHER)                                                      \
    RANKS(train, "train", "", "Train a network (the default).", 1, "config", "set", "out",         \
          "resume", "max-time", "dry-run", "allow-config-change", "trace", "tee", "quiet")         \
    RANKS(train, "resume", "FOLDER", "Start a run again, with the configuration in its folder.",   \
          0, "set", "max-time", "allow-config-change", "trace", "tee", "quiet")                    \
    RANKS(eval, "eval", "[RUN]",                                                                   \
          "Compute loss and accuracy of saved weights on the validation data.", 0, "weights",      \
          "config", "set", "per-class", "confusion", "predictions", "all-checkpoints", "follow",   \
          "quiet")                                                                                 \
    RANKS(predict, "predict", "RUN IMAGE...",                                                      \
          "Name the most probable classes of images, or find objects: files, folders with all in " \
          "them, or - for a list on stdin.",                                                       \
          0, "top", "min-score", "output", "yolo", "json", "config", "set", "quiet")               \
    RANKS(average, "average", "PATH...",                                                           \
          "Average weights: safetensors files, checkpoints, RUN@best, RUN@latest, RUN@step-N.", 1, \
          "output", "recompute-bn", "images", "config", "set", "quiet")                            \
    RANKS(bench, "bench", "", "Measure images per second of training, or of a part of it.", 0,     \
          "config", "set", "json", "data", "batch-size-per-rank", "forward-only", "no-comm",       \
          "profile", "compare", "tolerance", "trace", "input", "allreduce", "min-bytes",           \
          "max-bytes")                                                                             \
    RANKS(forecast, "forecast", "",                                                                \
          "Predict step time, efficiency and the best buckets on other numbers of ranks.", 2,      \
          "ranks", "link", "config", "set", "json", "step-time", "local-link", "ranks-per-node")   \
    RANKS(samples, "samples", "",                                                                  \
          "Draw training images as the network sees them: augmented, mixed, with their classes.",  \
          1, "config", "set", "count", "output")                                                   \
    LOCAL(launch, "launch", "ARGUMENT...",                                                         \
          "Start ranks with mpirun, watch them, and start them again if some are lost: launch "    \
          "--ranks 4 -- --config FILE; for short: dtrain --ranks 4 --config FILE.",                \
          0, "ranks", "ranks-per-node", "hosts", "hostfile", "cpus", "interface", "env",           \
          "program", "max-restarts", "wait")                                                       \
    LOCAL(report, "report", "RUN...",                                                              \
          "Draw runs as one web page: curves, results, differences, warnings, restarts.", 0,       \
          "output", "svg", "watch", "port", "address")                                             \
    LOCAL(                                                                                         \
        compare, "compare", "RUN RUN...",                                                          \
        "Print results of runs side by side, and what differs in configuration and environment.",  \
        0, NULL)                                                                                   \
    LOCAL(runs, "runs", "[FOLDER]",                                                                \
          "List the runs in a folder (default: runs): state, epoch, best, speed, age, why they "   \
          "ended.",                                                                                \
          0, NULL)                                                                                 \
    LOCAL(coco_eval, "coco-eval", "ANNOTATIONS.json DETECTIONS.json",                              \
          "Compute COCO's average precision and recall of a file of detections.", 0, "per-class",  \
          "max-detections", "json", "set")                                                         \
    LOCAL(verify, "verify", "PATH",                                                                \
          "Check a checkpoint, a run folder or shards against checksums; or decode the images of " \
          "class folders, of a CSV table or a COCO file, and list those that cannot be used.",     \
          0, "decode", "threads", "image-folder", "label-key", "exif", "set")                      \
    LOCAL(shard, "shard", "SRC DST",                                                               \
          "Pack images into tar shards: class folders, CSV tables, COCO files, ILSVRC tars, "      \
          "TFRecord files or shards.",                                                             \
          0, "prefix", "per-shard", "seed", "threads", "resize-short", "quality", "skip-bad",      \
          "labels", "label-offset", "image-key", "label-key", "image-folder", "exif", "test",      \
          "set")                                                                                   \
    LOCAL(demo_data, "demo-data", "DIR", "Generate labelled JPEG files for a first run.", 0,       \
          "images-per-class", "size", "seed")                                                      \
    EITHER(doctor, "doctor", "",                                                                   \
           "Show what this build and this machine support; with mpirun: whether the ranks can "    \
           "train together.",                                                                      \
           0, "config", "set", "json", "quick")                                                    \
    LOCAL(models, "models", "[NAME]",                                                              \
          "List the networks with their parameters and operations, or the layers of one.", 0,      \
          NULL)                                                                                    \
    LOCAL(                                                                                         \
        config, "config", "show|new|schema|help [KEY]",                                            \
        "Print the resolved configuration, a new one to start from, the JSON Schema, or help on "  \
        "all keys, a section or one key.",                                                         \
        0, "config", "set", "out", "data", "model", "gpus")                                        \
    LOCAL(complete, "complete", "WORD...",                                                         \
          "Print what the last word may become: for the completion of bash and zsh.", 0, NULL)

enum { DT_COMMAND_OPTIONS = 16 }; /* most per sub-command */

struct dt_command {
    const char *name, *operands, *summary;
    int n_required;
    const char *options[DT_COMMAND_OPTIONS]; /* NULL at the end */
    dt_status (*run)(const struct dt_arguments *args);
    dt_status (*run_on_ranks)(struct dt_comm *comm, const struct dt_config *config,
                              const struct dt_arguments *args);
};

extern const struct dt_command dt_commands[];
extern const size_t dt_n_commands;

/* NULL, with DT_ERR_USAGE set that suggests the nearest name, if there is no such command. */
const struct dt_command *dt_command_find(const char *name);
/* Minimum and maximum number of operands; a word that ends in "..." stands for any number. */
void dt_command_operands(const struct dt_command *command, int *min, int *max);

/* On standard output; as JSON, to this file or "-", unless it is NULL. */
dt_status dt_version_print(const char *json);

/* NULL: the list of commands. */
void dt_help_print(const struct dt_command *command);
/* Prints the short form of a page, or for "all" the options of all commands, unless `out` is NULL;
 * false if there is no such topic. */
bool dt_topic_print(FILE *out, const char *topic);
const char *dt_topic_name(size_t i); /* NULL after the last */

/* --- options.c: one table tells what value each option takes and where it is stored --- */

enum dt_option_kind {
    DT_OPTION_TEXT,
    DT_OPTION_FLAG,
    DT_OPTION_OPTIONAL, /* a text that may be left out: "" */
    DT_OPTION_INTEGER,
    DT_OPTION_ALL_OR_INTEGER, /* "all" becomes -1 */
    DT_OPTION_DURATION,
    DT_OPTION_SHARE,   /* a number from 0 to 1 */
    DT_OPTION_SETTING, /* may be repeated */
};

struct dt_option {
    const char *name;
    enum dt_option_kind kind;
    size_t offset, bytes;     /* in struct dt_arguments */
    int64_t min, max, number; /* of an integer; number: unless it is given */
    const char *value, *help;
    const char *of; /* the command with this row, NULL: those that have no row of their own */
};

/* NULL if there is no such option. */
const struct dt_option *dt_option_find(const char *name, const char *command);

/* Parses and checks argv; DT_ERR_USAGE, or DT_ERR_DEVICE if this CPU cannot run the program. With
 * help or version nothing else is checked. Call reset in any case. */
dt_status dt_arguments_parse(struct dt_arguments *args, int argc, char **argv);
void dt_arguments_reset(struct dt_arguments *args);

/* The configuration given by --config, --set and --out. */
dt_status dt_arguments_config(struct dt_config *config, const struct dt_arguments *args);

/* --- config_file.c --- */

/* The file of --config: a name without a folder, with or without ".json", is looked for here, in
 * DTRAIN_CONFIG_PATH, and among the configurations of the build or of the installation. */
dt_status dt_config_find(char out[DT_PATH_MAX], const char *name);
/* The names that it knows, without ".json"; returns how many. */
enum { DT_CONFIG_NAMES_MAX = 256 };
int dt_config_names(char names[DT_CONFIG_NAMES_MAX][DT_CONFIG_NAME_MAX]);

/* --- ranks.c --- */

/* Starts MPI and runs args->command on its ranks. Errors have been printed. */
dt_status dt_run_on_ranks(struct dt_arguments *args, int argc, char **argv);
/* Prints the error of a process without MPI on stderr. If there are several, only the first
 * prints; the others wait briefly, so that the launcher does not end it before. */
void dt_error_print(dt_status status);

#define DT_COMMAND_LOCAL(id, ...) dt_status dt_cmd_##id(const struct dt_arguments *args);
#define DT_COMMAND_RANKS(id, ...)                                               \
    dt_status dt_cmd_##id(struct dt_comm *comm, const struct dt_config *config, \
                          const struct dt_arguments *args);
#define DT_COMMAND_EITHER(id, ...)    \
    DT_COMMAND_LOCAL(id, __VA_ARGS__) \
    DT_COMMAND_RANKS(id##_on_ranks, __VA_ARGS__)
DT_COMMAND_LIST(DT_COMMAND_LOCAL, DT_COMMAND_RANKS, DT_COMMAND_EITHER)
#undef DT_COMMAND_EITHER
#undef DT_COMMAND_LOCAL
#undef DT_COMMAND_RANKS

#endif
