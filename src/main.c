/* The command line: one table of sub-commands, one of options. Sub-commands that train run on all
 * MPI ranks: rank 0 reads the configuration and the others get a copy. An error is printed once, by
 * the rank it comes from, and its code is the exit code. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/build.h"
#include "base/fault.h"
#include "base/host.h"
#include "base/isa.h"
#include "base/log.h"
#include "base/mem.h"
#include "dtrain/comm.h"
#include "dtrain/config.h"
#include "dtrain/data.h"
#include "dtrain/train.h"
#include "image/convert.h"
#include "pack/pack.h"

struct arguments {
    const char *config, *resume, *out, *weights, *json, *prefix, *devkit, *decode;
    const char **sets;
    size_t n_sets;
    double max_time_s;
    int64_t per_shard, per_class, size, seed, resize_short, quality, label_offset, threads;
    bool dry_run, allow_config_change, profile, input, skip_bad, help, version;
    char **positional;
    int n_positional;
};

/* --- Options --- */

enum kind { TEXT, FLAG, INTEGER, DURATION, SETTING };

struct option_row {
    const char *name;
    enum kind kind;
    size_t offset; /* in struct arguments */
    int64_t min, max;
    const char *value, *help;
};

#define AT(field) offsetof(struct arguments, field)

static const struct option_row option_rows[] = {
    {"config", TEXT, AT(config), 0, 0, "FILE",
     "configuration, JSON; `dtrain config help` lists keys"},
    {"set", SETTING, AT(sets), 0, 0, "KEY=VALUE", "overrides one key; may be repeated"},
    {"out", TEXT, AT(out), 0, 0, "DIR", "run folder; the same as --set output.dir=DIR"},
    {"resume", TEXT, AT(resume), 0, 0, "RULE",
     "auto (default), must, never, or a checkpoint folder"},
    {"max-time", DURATION, AT(max_time_s), 0, 0, "TIME",
     "saves and stops with exit code 75 after this time (90s, 30m, 2h, 1d)"},
    {"dry-run", FLAG, AT(dry_run), 0, 0, NULL, "prints the plan and the learning rate, and stops"},
    {"allow-config-change", FLAG, AT(allow_config_change), 0, 0, NULL,
     "resumes although the configuration makes it a different run"},
    {"weights", TEXT, AT(weights), 0, 0, "PATH",
     "safetensors file, checkpoint folder or run folder"},
    {"json", TEXT, AT(json), 0, 0, "FILE", "writes the results as JSON"},
    {"profile", FLAG, AT(profile), 0, 0, NULL, "prints the time of every op"},
    {"input", FLAG, AT(input), 0, 0, NULL, "measures the input pipeline alone, on the real data"},
    {"prefix", TEXT, AT(prefix), 0, 0, "P",
     "shards are named P-0000.tar and so on (default: train)"},
    {"per-shard", INTEGER, AT(per_shard), 1, INT_MAX, "N", "images in a shard (default: 1000)"},
    {"devkit", TEXT, AT(devkit), 0, 0, "FILE",
     "ILSVRC2012_devkit_t12.tar.gz: the labels of ILSVRC2012_img_val.tar"},
    {"resize-short", INTEGER, AT(resize_short), DT_RESIZE_SHORT_LEAST, DT_RESIZE_SHORT_MOST, "S",
     "reduces larger images so that the shorter side has S pixels"},
    {"quality", INTEGER, AT(quality), 1, 100, "Q",
     "of the JPEG files made anew: reduced, CMYK, PNG (default: 95)"},
    {"label-offset", INTEGER, AT(label_offset), 0, 1000000, "N",
     "subtracted from labels of TFRecord files (default: 1)"},
    {"skip-bad", FLAG, AT(skip_bad), 0, 0, NULL, "leaves out images that cannot be used"},
    {"threads", INTEGER, AT(threads), 1, 1024, "N", "worker threads (default: one per CPU)"},
    {"decode", TEXT, AT(decode), 0, 0, "all|N",
     "images of shards that are decoded, spread over all (default: all)"},
    {"per-class", INTEGER, AT(per_class), 1, 1000000, "N", "images of each class (default: 100)"},
    {"size", INTEGER, AT(size), 8, 2048, "S", "height and width in pixels (default: 64)"},
    {"seed", INTEGER, AT(seed), 0, INT64_C(1) << 53, "S",
     "seed of the random numbers (default: 1)"},
    {"help", FLAG, AT(help), 0, 0, NULL, "prints this help"},
    {"version", FLAG, AT(version), 0, 0, NULL, "prints the version"},
};
/* LONG_OPTION: what getopt_long returns for the first one, above all characters. */
enum {
    LONG_OPTION = 256,
    MAX_OPTIONS = sizeof option_rows / sizeof option_rows[0],
    MAX_COMMAND_OPTIONS = 10
};

static dt_status parse_integer(int64_t *out, const struct option_row *row, const char *text)
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

/* --- Sub-commands that need no MPI --- */

static dt_status flush(void)
{
    if (fflush(stdout) != 0 || ferror(stdout))
        DT_FAIL(DT_ERR_IO, "cannot write to standard output: %s", strerror(errno));
    return DT_OK;
}

static dt_status load_config(struct dt_config *config, const struct arguments *args)
{
    DT_TRY(dt_config_load(config, args->config, args->sets, args->n_sets));
    if (!args->out)
        return DT_OK;
    return dt_file_path(config->output.dir, "%s", args->out);
}

static dt_status show_config(const struct arguments *args)
{
    struct dt_config config;
    char *text;
    DT_TRY(load_config(&config, args));
    DT_TRY(dt_config_print(&text, &config));
    size_t n = strlen(text);
    printf("%s%s", text, n > 0 && text[n - 1] == '\n' ? "" : "\n");
    free(text);
    return DT_OK;
}

static dt_status print_schema(const struct arguments *args)
{
    (void)args;
    return dt_config_print_schema(stdout);
}

static dt_status print_keys(const struct arguments *args)
{
    (void)args;
    return dt_config_print_help(stdout);
}

static dt_status run_config(const struct arguments *args)
{
    static const char *const names[] = {"show", "schema", "help"};
    static dt_status (*const actions[])(const struct arguments *) = {show_config, print_schema,
                                                                     print_keys};
    const char *name = args->positional[0];
    for (size_t i = 0; i < DT_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0) {
            DT_TRY(actions[i](args));
            return flush();
        }
    const char *nearest = dt_config_nearest(name, names, DT_COUNT(names));
    DT_FAIL(DT_ERR_USAGE, "dtrain config %s: unknown; %s%s%s", name,
            nearest ? "did you mean " : "there are show, schema and help", nearest ? nearest : "",
            nearest ? "?" : "");
}

static dt_status run_doctor(const struct arguments *args)
{
    static struct dt_config config;
    DT_TRY(load_config(&config, args));
    dt_status status = dt_doctor(&config, stdout);
    if (status == DT_OK)
        return flush();
    fflush(stdout); /* before the error on stderr */
    return status;
}

/* --decode all|N: -1 = all */
static dt_status parse_decode(int64_t *out, const char *text)
{
    static const struct option_row number = {"decode", INTEGER, 0, 0, INT_MAX, NULL, NULL};
    *out = -1;
    return !text || strcmp(text, "all") == 0 ? DT_OK : parse_integer(out, &number, text);
}

static dt_status run_verify(const struct arguments *args)
{
    const char *path = args->positional[0];
    int64_t n_decode;
    DT_TRY(parse_decode(&n_decode, args->decode));
    if (dt_shards_found(path))
        DT_TRY(dt_shards_verify(path, n_decode, (int)args->threads, stdout));
    else
        DT_TRY(dt_verify(path, stdout));
    return flush();
}

static dt_status run_shard(const struct arguments *args)
{
    struct dt_shard_options options = {
        .src = args->positional[0],
        .dst = args->positional[1],
        .prefix = args->prefix,
        .devkit = args->devkit,
        .per_shard = (int)args->per_shard,
        .resize_short = (int)args->resize_short,
        .quality = (int)args->quality,
        .label_offset = (int)args->label_offset,
        .threads = (int)args->threads,
        .skip_bad = args->skip_bad,
        .seed = (uint64_t)args->seed,
    };
    return dt_shard_write(&options);
}

static dt_status run_shapes(const struct arguments *args)
{
    return dt_shapes_write(args->positional[0], (int)args->per_class, (int)args->size,
                           (uint64_t)args->seed);
}

/* --- Sub-commands on all ranks --- */

static dt_status run_train(struct dt_comm *comm, const struct dt_config *config,
                           const struct arguments *args, int *origin)
{
    struct dt_train_options options = {.resume = args->resume,
                                       .max_time_s = args->max_time_s,
                                       .dry_run = args->dry_run,
                                       .allow_config_change = args->allow_config_change};
    return dt_train(comm, config, &options, origin);
}

static dt_status run_eval(struct dt_comm *comm, const struct dt_config *config,
                          const struct arguments *args, int *origin)
{
    return dt_evaluate(comm, config, args->weights, origin);
}

static dt_status run_bench(struct dt_comm *comm, const struct dt_config *config,
                           const struct arguments *args, int *origin)
{
    *origin = 0; /* all ranks see the same command line */
    if (args->input && args->profile)
        DT_FAIL(DT_ERR_USAGE, "--profile: dtrain bench --input runs no ops; see dtrain --help");
    if (args->input)
        return dt_bench_input(comm, config, args->json, origin);
    struct dt_bench_options options = {.json_path = args->json, .profile = args->profile};
    return dt_bench(comm, config, &options, origin);
}

/* --- The table --- */

struct command {
    const char *name, *operands, *summary;
    int n_operands;
    const char *options[MAX_COMMAND_OPTIONS], *required[2];
    dt_status (*run_local)(const struct arguments *args);
    dt_status (*run)(struct dt_comm *comm, const struct dt_config *config,
                     const struct arguments *args, int *origin);
};

static const struct command commands[] = {
    {"train",
     "",
     "trains a network (the default)",
     0,
     {"config", "set", "out", "resume", "max-time", "dry-run", "allow-config-change"},
     {"config"},
     NULL,
     run_train},
    {"eval",
     "",
     "loss and accuracy of saved weights on the validation data",
     0,
     {"config", "set", "weights"},
     {"config", "weights"},
     NULL,
     run_eval},
    {"bench",
     "",
     "images per second on synthetic data, or of the input pipeline",
     0,
     {"config", "set", "json", "profile", "input"},
     {0},
     NULL,
     run_bench},
    {"verify",
     "PATH",
     "checks checkpoints against their checksums (one, or a run folder), or shards (a folder, or "
     "one)",
     1,
     {"decode", "threads"},
     {0},
     run_verify,
     NULL},
    {"shard",
     "SRC DST",
     "packs images into tar shards: class folders, ILSVRC tars, TFRecord, or other shards",
     2,
     {"prefix", "per-shard", "seed", "threads", "resize-short", "quality", "skip-bad", "devkit",
      "label-offset"},
     {0},
     run_shard,
     NULL},
    {"shapes",
     "DIR",
     "generates labelled JPEG files for a first run",
     1,
     {"per-class", "size", "seed"},
     {0},
     run_shapes,
     NULL},
    {"doctor",
     "",
     "what this build and this machine have, and the device a run would use",
     0,
     {"config", "set"},
     {0},
     run_doctor,
     NULL},
    {"config",
     "show|schema|help",
     "the resolved configuration, its JSON Schema, all keys",
     1,
     {"config", "set", "out"},
     {0},
     run_config,
     NULL},
};

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < DT_COUNT(commands); i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    const char *names[DT_COUNT(commands)];
    for (size_t i = 0; i < DT_COUNT(commands); i++)
        names[i] = commands[i].name;
    const char *nearest = dt_config_nearest(name, names, DT_COUNT(names));
    DT_ERROR(DT_ERR_USAGE, "%s: unknown command; %s%s%s", name,
             nearest ? "did you mean " : "see dtrain --help", nearest ? nearest : "",
             nearest ? "?" : "");
    return NULL;
}

static const struct option_row *find_option(const char *name)
{
    for (size_t i = 0; i < DT_COUNT(option_rows); i++)
        if (strcmp(option_rows[i].name, name) == 0)
            return &option_rows[i];
    return NULL;
}

/* --- Help --- */

static void print_option(const char *name)
{
    const struct option_row *row = find_option(name);
    int n = printf("    --%s%s%s", row->name, row->value ? " " : "", row->value ? row->value : "");
    printf("%*s%s\n", n < 26 ? 26 - n : 1, "", row->help);
}

static void print_command(const struct command *command)
{
    printf("  dtrain %s %s%s\n    %s\n", command->name, command->operands,
           command->operands[0] ? " [options]" : "[options]", command->summary);
    for (int i = 0; i < MAX_COMMAND_OPTIONS && command->options[i]; i++)
        print_option(command->options[i]);
}

static dt_status print_help(const struct command *command)
{
    if (command) {
        printf("usage:\n");
        print_command(command);
        return flush();
    }
    printf("dtrain trains convolutional networks on many processes.\n\nusage:\n");
    for (size_t i = 0; i < DT_COUNT(commands); i++)
        print_command(&commands[i]);
    printf(
        "  dtrain --help | --version\n\n"
        "Several processes: mpirun -np 2 --bind-to none dtrain --config FILE\n"
        "Environment: DTRAIN_DEBUG=1 prints more messages, and where an error was raised.\n"
        "  DTRAIN_FAULT=stop@100:1 and the like make things fail, for tests (README.md).\n"
        "Exit codes: 0 done, 64 usage, 65 bad data, 66 input missing, 69 device, 70 internal,\n"
        "  71 memory, 73 cannot create output, 74 I/O, 75 stopped with a checkpoint (run again),\n"
        "  76 ranks disagree, 77 permission, 78 configuration, 80 hang, 81 numerical,\n"
        "  82 weights differ between ranks, 83 no checkpoint, 84 run folder in use.\n");
    return flush();
}

static dt_status print_version(void)
{
    printf("dtrain %s\n", DTRAIN_VERSION);
    return flush();
}

/* --- Parsing --- */

/* "90", "90s", "1h30m", "0.5d" */
static dt_status parse_duration(double *out, const struct option_row *row, const char *text)
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

static dt_status store(struct arguments *args, const struct option_row *row, const char *text)
{
    char *field = (char *)args + row->offset;
    switch (row->kind) {
    case TEXT:
        if (text[0] == '\0')
            DT_FAIL(DT_ERR_USAGE, "--%s: the value is empty", row->name);
        *(const char **)field = text;
        return DT_OK;
    case FLAG:
        *(bool *)field = true;
        return DT_OK;
    case INTEGER:
        return parse_integer((int64_t *)field, row, text);
    case DURATION:
        return parse_duration((double *)field, row, text);
    case SETTING:
        args->sets[args->n_sets++] = text;
        return DT_OK;
    }
    return DT_OK;
}

/* The argument getopt_long stopped at. Within a group of short options, of which there are none, it
 * has not moved on yet. */
static const char *stopped_at(char *const *argv)
{
    const char *last = argv[optind - 1];
    bool in_group = optopt > 0 && optopt < LONG_OPTION &&
                    !(last[0] == '-' && last[1] == optopt && last[2] == '\0');
    return in_group ? argv[optind] : last;
}

static dt_status refuse(const char *text, const struct command *command, bool lacks_value)
{
    const char *names[MAX_COMMAND_OPTIONS];
    char name[64];
    size_t n = 0;
    if (lacks_value)
        DT_FAIL(DT_ERR_USAGE, "%s: a value must follow", text);
    if (optopt >= LONG_OPTION)
        DT_FAIL(DT_ERR_USAGE, "%s: --%.*s takes no value", text, (int)strcspn(text, "=") - 2,
                text + 2);
    while (n < MAX_COMMAND_OPTIONS && command->options[n]) {
        names[n] = command->options[n];
        n++;
    }
    size_t n_dashes = strspn(text, "-");
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text + n_dashes, "="), text + n_dashes);
    const char *nearest = dt_config_nearest(name, names, n);
    DT_FAIL(DT_ERR_USAGE, "%s: dtrain %s has no such option; %s%s%s", text, command->name,
            nearest ? "did you mean --" : "see dtrain --help", nearest ? nearest : "",
            nearest ? "?" : "");
}

static dt_status check_operands(const struct arguments *args, const struct command *command)
{
    if (args->n_positional > command->n_operands)
        DT_FAIL(DT_ERR_USAGE, "%s: unexpected argument of dtrain %s; see dtrain --help",
                args->positional[command->n_operands], command->name);
    if (args->n_positional < command->n_operands)
        DT_FAIL(DT_ERR_USAGE, "dtrain %s needs %s", command->name, command->operands);
    for (size_t i = 0; i < DT_COUNT(command->required) && command->required[i]; i++) {
        const struct option_row *row = find_option(command->required[i]);
        if (!*(const char *const *)((const char *)args + row->offset))
            DT_FAIL(DT_ERR_USAGE, "dtrain %s needs --%s %s; see dtrain --help", command->name,
                    row->name, row->value);
    }
    return DT_OK;
}

static dt_status parse(struct arguments *args, const struct command *command, int argc, char **argv)
{
    const struct option_row *rows[MAX_OPTIONS];
    struct option options[MAX_OPTIONS + 1] = {0};
    int n = 0, found;
    for (int i = 0; i < MAX_COMMAND_OPTIONS && command->options[i]; i++)
        rows[n++] = find_option(command->options[i]);
    rows[n++] = find_option("help");
    rows[n++] = find_option("version");
    for (int i = 0; i < n; i++)
        options[i] =
            (struct option){rows[i]->name, rows[i]->kind == FLAG ? no_argument : required_argument,
                            NULL, LONG_OPTION + i};
    opterr = 0;
    while ((found = getopt_long(argc, argv, ":", options, NULL)) != -1) {
        if (found == '?' || found == ':')
            return refuse(stopped_at(argv), command, found == ':');
        DT_TRY(store(args, rows[found - LONG_OPTION], optarg));
    }
    args->positional = argv + optind;
    args->n_positional = argc - optind;
    return args->help || args->version ? DT_OK : check_operands(args, command);
}

/* --- Running --- */

static void print_error(dt_status status)
{
    dt_log_progress("");
    fprintf(stderr, "dtrain: error[%s] %s\n", dt_status_name(status), dt_error_text());
    if (getenv("DTRAIN_DEBUG"))
        fprintf(stderr, "  at %s\n", dt_error_trail());
}

/* Before MPI has started, the launcher's environment says whether this process is the first. */
static bool is_first_process(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                        "SLURM_PROCID"};
    for (size_t i = 0; i < DT_COUNT(names); i++) {
        const char *rank = getenv(names[i]);
        if (rank)
            return strcmp(rank, "0") == 0;
    }
    return true;
}

/* Comes first and never changes its size: another build would not understand anything else. */
static dt_status check_build(struct dt_comm *comm)
{
    enum { BUILD_BYTES = 64 };
    struct {
        char build[BUILD_BYTES], host[BUILD_BYTES];
    } own = {0}, *all;
    char host[DT_HOST_MAX];
    dt_status status = DT_OK;
    snprintf(own.build, sizeof own.build, "%s", dt_build_id());
    dt_host_name(host);
    snprintf(own.host, sizeof own.host, "%.63s", host);
    DT_TRY(DT_NEW(all, (size_t)dt_comm_size(comm)));
    DT_TRY_OUT(dt_comm_gather(comm, all, &own, sizeof own));
    for (int r = 1; r < dt_comm_size(comm); r++)
        if (strcmp(all[r].build, all[0].build) != 0)
            DT_TRY_OUT(DT_ERROR(DT_ERR_DISAGREE,
                                "rank %d (%s) runs another build of dtrain (%.12s) than rank 0 "
                                "(%.12s); start the same program on all nodes",
                                r, all[r].host, all[r].build, all[0].build));
out:
    free(all);
    return status;
}

static dt_status share_config(struct dt_config *config, struct dt_comm *comm,
                              const struct arguments *args, int *origin)
{
    dt_status status = dt_comm_rank(comm) == 0 ? load_config(config, args) : DT_OK;
    DT_TRY(dt_comm_agree(comm, status, origin));
    *origin = DT_ORIGIN_LOCAL;
    return dt_comm_bcast(comm, config, sizeof *config, 0);
}

static dt_status run_on_ranks(const struct command *command, const struct arguments *args, int argc,
                              char **argv)
{
    static struct dt_config config;
    struct dt_comm *comm;
    int origin = 0; /* all ranks see another build alike */
    if (command->run == run_train)
        dt_train_catch_signals();
    dt_status status = dt_comm_open(&comm, &argc, &argv);
    if (status != DT_OK) {
        if (is_first_process())
            print_error(status);
        return status;
    }
    int rank = dt_comm_rank(comm), n_ranks = dt_comm_size(comm);
    dt_log_init(getenv("DTRAIN_DEBUG") ? DT_LOG_DEBUG : DT_LOG_INFO, rank, n_ranks);
    status = check_build(comm);
    if (status == DT_OK)
        status = dt_comm_agree(comm, dt_fault_init(rank), &origin);
    if (status == DT_OK)
        status = share_config(&config, comm, args, &origin);
    if (status == DT_OK)
        status = command->run(comm, &config, args, &origin);
    if (status != DT_OK && status != DT_STOPPED) {
        if (origin == DT_ORIGIN_LOCAL || origin == rank)
            print_error(status);
        if (origin == DT_ORIGIN_LOCAL && n_ranks > 1)
            dt_comm_abort(comm, status);
    }
    dt_comm_close(comm);
    return status;
}

/* "dtrain config help" lists the keys. */
static bool is_help_on(const struct command *command, const char *operand)
{
    return command->run_local != run_config && strcmp(operand, "help") == 0;
}

static dt_status run_command(int argc, char **argv)
{
    struct arguments args = {.resume = "auto",
                             .prefix = "train",
                             .per_shard = 1000,
                             .quality = 95,
                             .label_offset = 1,
                             .per_class = 100,
                             .size = 64,
                             .seed = 1};
    bool named = argc > 1 && argv[1][0] != '-';
    bool help_first = named && argc <= 3 && strcmp(argv[1], "help") == 0;
    const struct command *command = &commands[0];
    if (help_first && argc == 2)
        named = false;
    if (named)
        command = find_command(argv[1 + help_first]);
    args.help = help_first || (command && argc == 3 && is_help_on(command, argv[2]));
    dt_status status = command ? DT_OK : DT_ERR_USAGE;
    if (command && command->run_local != run_doctor) /* which says it among other things */
        status = dt_isa_check();
    if (status == DT_OK)
        status = DT_NEW(args.sets, (size_t)argc);
    if (status == DT_OK && !args.help)
        status = parse(&args, command, argc - named, argv + named);
    if (status == DT_OK && args.help)
        status = print_help(named ? command : NULL);
    else if (status == DT_OK && args.version)
        status = print_version();
    else if (status == DT_OK && command->run_local)
        status = command->run_local(&args);
    else if (status == DT_OK) {
        status = run_on_ranks(command, &args, argc, argv);
        free(args.sets);
        return status; /* it has printed */
    }
    if (status != DT_OK && is_first_process())
        print_error(status);
    free(args.sets);
    return status;
}

int main(int argc, char **argv)
{
    return (int)run_command(argc, argv);
}
