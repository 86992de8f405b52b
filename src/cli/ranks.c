/* Sub-commands that run on all MPI ranks: rank 0 reads the configuration and the others get a copy.
 * An error is printed once, by the rank where it originated. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alive.h"
#include "base/build.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/names.h"
#include "base/pulse.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/run_folder.h"
#include "checkpoint/weights.h"
#include "cli/commands.h"
#include "dtrain/comm.h"
#include "engine/sets.h"
#include "watch/watchdog.h"

/* --- Errors --- */

static void print_error(dt_status status)
{
    dt_log_progress("");
    const char *colour = dt_log_colour(DT_LOG_ERROR);
    fprintf(stderr, "%sdtrain: %serror[%s]%s %s\n", dt_log_place(), colour, dt_status_name(status),
            colour[0] ? DT_LOG_PLAIN : "", dt_error_text());
    if (getenv("DTRAIN_DEBUG"))
        fprintf(stderr, "  at %s\n", dt_error_trail());
}

/* Launchers end all processes once one has failed, so the others give the first time to print. */
void dt_error_print(dt_status status)
{
    enum { TIME_TO_PRINT_S = 5 };
    if (dt_comm_launched().rank == 0)
        print_error(status);
    else
        dt_clock_sleep(TIME_TO_PRINT_S);
}

/* --- Start --- */

/* Must be the first message after dt_comm_open and never change its size, so that any two builds
 * can exchange it. */
static dt_status check_build(struct dt_comm *comm)
{
    enum { BUILD_BYTES = 64 };
    char own[BUILD_BYTES] = "", (*all)[BUILD_BYTES];
    dt_status status = DT_OK;
    snprintf(own, sizeof own, "%s", dt_build_id());
    DT_TRY(DT_NEW(all, (size_t)dt_comm_size(comm)));
    DT_TRY_OUT(dt_comm_gather(comm, all, own, sizeof own));
    for (int r = 1; r < dt_comm_size(comm); r++)
        if (strcmp(all[r], all[0]) != 0)
            DT_TRY_OUT(DT_ERROR(DT_ERR_DISAGREE,
                                "rank %d (%s) runs another build of dtrain (%.12s) than rank 0 "
                                "(%.12s); start the same program on all nodes",
                                r, dt_comm_host(comm, r), all[r], all[0]));
out:
    if (status != DT_OK)
        dt_error_set_origin(0); /* all ranks have the same error */
    free(all);
    return status;
}

/* A network may be evaluated on other data than what its run kept of the training data. */
static void prefer_val(struct dt_arguments *args)
{
    static const char key[] = "data.val=";
    bool is_given = false;
    for (size_t i = 0; i < args->n_sets; i++)
        is_given |= strncmp(args->sets[i], key, strlen(key)) == 0 && args->sets[i][strlen(key)];
    if (is_given) /* there is room for as many as there are words */
        args->sets[args->n_sets++] = "data.val_fraction=0";
}

/* "" if there is none. */
static void resolve(char out[PATH_MAX], const char *path)
{
    if (!realpath(path, out))
        snprintf(out, PATH_MAX, "%s", path);
}

/* `run`: that of the weights, whose own part of data.train it has not seen. */
static void warn_of_trained(const struct dt_config *run, const struct dt_config *config)
{
    static struct dt_config here;
    char trained[PATH_MAX], evaluated[PATH_MAX];
    here = *config;
    dt_config_make_absolute(&here);
    const bool is_split = here.data.val_fraction > 0;
    resolve(trained, run->data.train);
    resolve(evaluated, is_split ? here.data.train : here.data.val);
    if (!trained[0] || strcmp(trained, evaluated) != 0 ||
        (is_split && here.data.val_fraction == run->data.val_fraction &&
         here.train.seed == run->train.seed && strcmp(here.data.group, run->data.group) == 0))
        return;
    dt_log(DT_LOG_WARNING,
           "the weights were trained on images of %s that are now evaluated, so the result says "
           "little about other images",
           evaluated);
}

/* Weights without --config have their own configuration. They are verified on the way, which takes
 * long, so from here on their path is that of the file that was found. */
static dt_status load_config(struct dt_config *config, struct dt_arguments *args)
{
    static char model[DT_PATH_MAX], own[DT_PATH_MAX];
    static struct dt_config run;
    const char *weights = args->average.recompute_bn ? args->operands[0] : args->weights;
    if (!args->config && weights) {
        DT_TRY(dt_weights_find(model, weights));
        DT_TRY(dt_weights_config(own, model));
        if (args->average.recompute_bn)
            args->operands[0] = model;
        args->weights = model;
        args->config = own;
    }
    if (args->weights)
        prefer_val(args);
    DT_TRY(dt_arguments_config(config, args));
    if (args->command->run_on_ranks == dt_cmd_eval && args->config == own) {
        DT_TRY(dt_config_load(&run, own, NULL, 0));
        warn_of_trained(&run, config);
    }
    return DT_OK;
}

/* With --follow, a run that has just begun may have no checkpoint yet. Collective, so that no rank
 * looks stuck. */
static dt_status wait_for_weights(struct dt_comm *comm, const struct dt_arguments *args)
{
    char dir[DT_PATH_MAX];
    int64_t *steps, waits = args->eval.follow;
    int n_steps = 0;
    bool is_one;
    for (int i = 0; waits; i++) {
        const bool reads = dt_comm_rank(comm) == 0 &&
                           dt_checkpoint_locate(dir, &is_one, args->weights) == DT_OK &&
                           dt_checkpoint_list(&steps, &n_steps, dir) == DT_OK;
        waits = reads && n_steps == 0 && dt_run_is_alive(args->weights);
        if (reads)
            free(steps);
        DT_TRY(dt_comm_bcast(comm, &waits, sizeof waits, 0));
        if (waits && i == 0)
            dt_log(DT_LOG_INFO, "waiting for the first checkpoint of %s", args->weights);
        if (waits)
            dt_clock_sleep(DT_FOLLOW_S);
        dt_pulse_beat(&dt_pulse_main);
    }
    dt_error_clear(); /* what is wrong is said where the weights are loaded */
    return DT_OK;
}

/* --- The watchdog --- */

/* Rank 0 may be the only one that sees the configuration: then the others take the default. So do
 * all if it can be read only once. */
static struct dt_config_watchdog own_limits(const struct dt_arguments *args)
{
    static struct dt_config config;
    const bool waits = args->config && dt_config_is_stream(args->config);
    if ((waits || dt_arguments_config(&config, args) != DT_OK) &&
        dt_config_load(&config, NULL, NULL, 0) != DT_OK)
        memset(&config, 0, sizeof config);
    dt_error_clear();
    return config.watchdog;
}

/* Several ranks are watched from here on, and training on one, too; but a command does not fail
 * because it is not. `comm` is NULL before MPI has started. */
static void watch(const struct dt_comm *comm, const struct dt_config_watchdog *limits,
                  const struct dt_arguments *args)
{
    const struct dt_comm_launch launch = dt_comm_launched();
    const struct dt_watchdog_options options = {
        .comm = comm,
        .rank = comm ? dt_comm_rank(comm) : launch.rank,
        .n_ranks = comm ? dt_comm_size(comm) : launch.n_ranks,
        .limits = *limits,
    };
    bool trains = comm && args->command->run_on_ranks == dt_cmd_train;
    if (options.n_ranks < (trains ? 1 : 2) || options.rank >= options.n_ranks)
        return;
    dt_pulse_enter(&dt_pulse_main, DT_SECTION_INIT);
    if (dt_watchdog_start(&options) != DT_OK)
        dt_log(DT_LOG_WARNING, "a hang would not be noticed: %s", dt_error_text());
    else /* a first batch may take as long as the start */
        dt_watchdog_set_step(limits->init_timeout_s / 10);
    dt_error_clear();
}

/* The order of the start: signals are caught and the watchdog runs before MPI, whose start may
 * hang; but they end a process that waits for somebody to write its configuration. The builds are
 * compared before any message whose size depends on the build; the configuration is read by rank 0
 * alone, and its errors are agreed on before it is broadcast. An error that only one rank knows of
 * ends the job by MPI_Abort, since the others may wait for that rank. */
dt_status dt_run_on_ranks(struct dt_arguments *args, int argc, char **argv)
{
    static struct dt_config config;
    struct dt_comm *comm;
    const bool trains = args->command->run_on_ranks == dt_cmd_train;
    const bool waits = args->config && dt_config_is_stream(args->config);
    if (trains && !waits)
        dt_train_catch_signals();
    struct dt_config_watchdog limits = own_limits(args);
    watch(NULL, &limits, args);
    dt_status status = dt_comm_open(&comm, &argc, &argv);
    if (status != DT_OK) {
        dt_watchdog_stop();
        dt_error_print(status);
        return status;
    }
    int rank = dt_comm_rank(comm), n_ranks = dt_comm_size(comm);
    dt_log_init(getenv("DTRAIN_DEBUG") ? DT_LOG_DEBUG
                : args->quiet          ? DT_LOG_NOTICE
                                       : DT_LOG_INFO,
                rank, n_ranks);
    dt_watchdog_show_stacks(rank);
    if (args->tee)
        dt_log_tee();
    status = check_build(comm);
    if (status == DT_OK)
        status = dt_comm_agree(comm, dt_fault_init(rank));
    if (status == DT_OK)
        status = wait_for_weights(comm, args);
    if (status == DT_OK)
        status = dt_comm_agree(comm, rank == 0 ? load_config(&config, args) : DT_OK);
    if (status == DT_OK)
        status = dt_comm_bcast(comm, &config, sizeof config, 0);
    if (trains && waits)
        dt_train_catch_signals();
    for (char *rest = config.notes, *line; status == DT_OK && (line = strsep(&rest, "\n"));)
        if (line[0])
            dt_log(DT_LOG_NOTICE, "%s", line);
    if (status == DT_OK && args->json)
        status = dt_comm_agree(comm, rank == 0 ? dt_file_check_new(args->json) : DT_OK);
    if (status == DT_OK) {
        limits = config.watchdog;
        watch(comm, &limits, args);
        status = args->command->run_on_ranks(comm, &config, args);
    }
    if (status != DT_OK && status != DT_STOPPED) {
        int origin = dt_error_origin();
        dt_log_record(DT_LOG_ERROR, dt_error_text());
        if (origin == DT_ORIGIN_LOCAL || origin == rank)
            print_error(status);
        if (origin == DT_ORIGIN_LOCAL && n_ranks > 1)
            dt_comm_abort(comm, status);
    }
    watch(comm, &limits, args); /* training had its own */
    dt_comm_close(comm);
    dt_watchdog_stop();
    return status;
}

/* --- The sub-commands --- */

dt_status dt_cmd_train(struct dt_comm *comm, const struct dt_config *config,
                       const struct dt_arguments *args)
{
    bool print_plan = args->dry_run && strcmp(args->dry_run, "plan") == 0;
    if (args->dry_run && args->dry_run[0] && !print_plan)
        DT_FAIL_ON_ALL_RANKS(DT_ERR_USAGE, "--dry-run=%s: write --dry-run or --dry-run=plan",
                             args->dry_run);
    DT_TRY(dt_sets_check_given(config));
    if (args->dry_run)
        return dt_dry_run(comm, config, print_plan);
    struct dt_train_options options = args->train;
    options.trace = args->trace;
    return dt_train(comm, config, &options);
}

dt_status dt_cmd_average(struct dt_comm *comm, const struct dt_config *config,
                         const struct dt_arguments *args)
{
    if (args->average.n_images > 0 && !args->average.recompute_bn)
        DT_FAIL_ON_ALL_RANKS(DT_ERR_USAGE, "--images is for --recompute-bn");
    if (args->output && !dt_name_has_suffix(args->output, ".safetensors"))
        DT_FAIL_ON_ALL_RANKS(DT_ERR_USAGE,
                             "-o %s: weights are written as safetensors, so the name must "
                             "end in .safetensors",
                             args->output);
    struct dt_average_options options = args->average;
    options.paths = args->operands;
    options.n_paths = args->n_operands;
    options.out = args->output;
    return dt_average(comm, config, &options);
}

dt_status dt_cmd_eval(struct dt_comm *comm, const struct dt_config *config,
                      const struct dt_arguments *args)
{
    struct dt_eval_options options = args->eval;
    options.weights = args->weights;
    options.run = args->run;
    options.all_checkpoints |= options.follow;
    return dt_evaluate(comm, config, &options);
}

dt_status dt_cmd_predict(struct dt_comm *comm, const struct dt_config *config,
                         const struct dt_arguments *args)
{
    struct dt_predict_options options = args->predict;
    options.weights = args->weights;
    options.paths = args->operands;
    options.n_paths = args->n_operands;
    options.output = args->output;
    options.json = args->json;
    return dt_predict(comm, config, &options);
}

dt_status dt_cmd_bench(struct dt_comm *comm, const struct dt_config *config,
                       const struct dt_arguments *args)
{
    const bool is_real = strcmp(args->data, "real") == 0;
    const bool runs_no_network = args->input || args->allreduce_only;
    struct dt_bench_options options = args->bench;
    struct dt_allreduce_options sums = args->allreduce;
    options.json_path = sums.json_path = args->json;
    options.real_data = is_real;
    options.trace = args->trace;
    if (!is_real && strcmp(args->data, "synthetic") != 0)
        DT_FAIL_ON_ALL_RANKS(DT_ERR_USAGE, "--data %s: write real or synthetic", args->data);
    if (runs_no_network && (options.profile || is_real || options.forward_only || options.no_comm ||
                            options.batch_sizes || options.compare || options.trace ||
                            (args->input && args->allreduce_only)))
        DT_FAIL_ON_ALL_RANKS(
            DT_ERR_USAGE,
            "--%s: it runs no network, so of the other options it takes only --json%s; "
            "see dtrain bench --help",
            args->input ? "input" : "allreduce",
            args->input ? "" : ", --min-bytes and --max-bytes");
    if (!args->allreduce_only && (sums.min_bytes || sums.max_bytes))
        DT_FAIL_ON_ALL_RANKS(DT_ERR_USAGE, "--min-bytes, --max-bytes: only with --allreduce");
    if (options.tolerance && !options.compare)
        DT_FAIL_ON_ALL_RANKS(DT_ERR_USAGE, "--tolerance: only with --compare");
    if (args->input)
        return dt_bench_input(comm, config, args->json);
    if (args->allreduce_only)
        return dt_bench_allreduce(comm, config, &sums);
    return dt_bench(comm, config, &options);
}
