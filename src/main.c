/* dtrain: reads the command line, runs the sub-command and returns its status as exit code. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/commands.h"

static dt_status run_command(const struct dt_arguments *args)
{
    if (args->topic)
        dt_topic_print(stdout, args->topic);
    else if (args->help)
        dt_help_print(args->named ? args->command : NULL);
    else if (args->version)
        return dt_version_print(args->json);
    else
        return args->command->run(args);
    return DT_OK;
}

static dt_status flush(dt_status status)
{
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == DT_OK)
        DT_FAIL(DT_ERR_IO, "cannot write to standard output: %s", strerror(errno));
    return status;
}

/* One process starts no MPI where it need not: doctor also works where MPI does not. */
static bool wants_ranks(const struct dt_arguments *args)
{
    const struct dt_command *command = args->command;
    if (args->help || args->version || !command->run_on_ranks)
        return false;
    return !command->run || args->json || dt_comm_launched().n_ranks > 1;
}

/* Daemons have closed them: nothing else shall get their numbers, such as a socket or a pipe. */
static void open_standard_streams(void)
{
    int fd;
    while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO)
        ;
    close(fd);
}

/* Programs of a smaller stack die in it, also mpirun. */
static dt_status check_stack(void)
{
    enum { MIN_KIB = 1024 };
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur / 1024 < MIN_KIB)
        DT_FAIL(DT_ERR_MEMORY,
                "the stack may have %llu KiB here, and dtrain needs %d: ulimit -s 8192",
                (unsigned long long)limit.rlim_cur / 1024, MIN_KIB);
    return DT_OK;
}

int main(int argc, char **argv)
{
    struct dt_arguments args;
    open_standard_streams();
    dt_status status = dt_arguments_parse(&args, argc, argv);
    if (status == DT_OK)
        status = check_stack();
    if (status == DT_OK && args.json && strcmp(args.json, "-") == 0)
        dt_jsonw_take_stdout();
    if (status == DT_OK && wants_ranks(&args)) {
        status = dt_run_on_ranks(&args, argc, argv);
    } else {
        if (status == DT_OK)
            status = flush(run_command(&args)); /* before the error on stderr */
        if (status != DT_OK)
            dt_error_print(status);
    }
    dt_arguments_reset(&args);
    return (int)status;
}
