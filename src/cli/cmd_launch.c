/* `dtrain launch`: what the ranks would refuse is refused before they are started. */
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "cli/commands.h"

/* Finds what is known of a training that will have a run folder; its configuration must be right.
 */
static dt_status find_run(struct dt_launch_options *out, const struct dt_arguments *job)
{
    static const double launcher_s = 30; /* to start the ranks, which then watch themselves */
    static struct dt_config config;
    static char dir[DT_PATH_MAX];
    if (job->command->run_on_ranks != dt_cmd_train || job->dry_run)
        return DT_OK;
    const bool is_read = job->config && dt_config_is_stream(job->config); /* only once */
    DT_TRY(is_read ? dt_config_load(&config, NULL, NULL, 0) : dt_arguments_config(&config, job));
    DT_TRY(dt_file_path(dir, "%s", !is_read ? config.output.dir : job->out ? job->out : ""));
    const double limit_s = config.watchdog.init_timeout_s;
    out->run_dir = dir[0] ? dir : NULL;
    out->sees_run =
        !is_read && config.output.shared && !out->program && !strchr(job->train.resume, '/');
    out->start_s = limit_s > 0 ? limit_s + launcher_s : INFINITY;
    out->max_time_s = job->train.max_time_s;
    return DT_OK;
}

/* Checks the words as the ranks will. */
static dt_status check_job(struct dt_launch_options *out, const struct dt_arguments *args)
{
    char **words;
    struct dt_arguments job = {0};
    dt_status status;
    DT_TRY(DT_NEW(words, (size_t)args->n_operands + 2)); /* getopt changes their order */
    words[0] = (char *)"dtrain";
    memcpy(words + 1, args->operands, (size_t)args->n_operands * sizeof *words);
    optind = 0;
    DT_TRY_OUT(dt_arguments_parse(&job, args->n_operands + 1, words));
    if (!job.command || job.help || job.version || !job.command->run_on_ranks)
        DT_TRY_OUT(DT_ERROR(DT_ERR_USAGE,
                            "dtrain %s does not run on several ranks; call it without launch",
                            args->operands[0]));
    if (job.config && dt_config_is_stream(job.config) && args->launch.max_restarts > 0)
        DT_TRY_OUT(DT_ERROR(DT_ERR_USAGE,
                            "--config %s can be read only once, so --max-restarts "
                            "needs a file",
                            job.config));
    DT_TRY_OUT(find_run(out, &job));
out:
    dt_arguments_reset(&job);
    free(words);
    return status;
}

/* For this process too, whose configuration may name them. */
static dt_status set_variables(const struct dt_arguments *args)
{
    for (size_t i = 0; i < args->n_sets; i++) {
        char name[256];
        const char *text = args->sets[i], *value = strchr(text, '=');
        const int bytes = (int)strcspn(text, "=");
        snprintf(name, sizeof name, "%.*s", bytes, text);
        if (bytes == 0 || bytes >= (int)sizeof name)
            DT_FAIL(DT_ERR_USAGE, "--env %s: expected NAME=VALUE, or the NAME of a variable", text);
        if (value)
            setenv(name, value + 1, 1);
    }
    return DT_OK;
}

dt_status dt_cmd_launch(const struct dt_arguments *args)
{
    sigset_t signals;
    dt_launch_listen(&signals);
    struct dt_launch_options options = args->launch;
    int code = 0;
    if (args->ranks && dt_text_integers(&options.n_ranks, 1, 1 << 20, args->ranks) == 0)
        DT_FAIL(DT_ERR_USAGE, "--ranks: \"%s\" is not a number of ranks", args->ranks);
    if (args->launch.hosts && args->launch.hostfile)
        DT_FAIL(DT_ERR_USAGE, "--hosts and --hostfile: give one of them");
    if (dt_comm_launched().n_ranks > 1)
        DT_FAIL(DT_ERR_USAGE, "dtrain launch starts the ranks itself; call it without mpirun");
    DT_TRY(set_variables(args));
    options.variables = args->sets;
    options.n_variables = args->n_sets;
    options.words = args->operands;
    options.n_words = args->n_operands;
    options.signals = signals;
    DT_TRY(check_job(&options, args));
    DT_TRY(dt_supervise(&options, &code));
    if (code != 0) /* its ranks have said why */
        exit(code);
    return DT_OK;
}
