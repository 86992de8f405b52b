/* One row per MPI. */
#include "launch/launcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"

extern char **environ;

/* --- Launchers --- */

struct dt_launcher {
    const char *version;             /* part of what --version prints */
    const char *ranks, *hosts;       /* options, NULL: it has none */
    const char *unbound, *bound;     /* words with single spaces; bound: to %d CPUs per rank */
    const char *more;                /* more ranks than slots */
    const char *always;              /* keepalive: a lost host is noticed after 25 s */
    const char *pass;                /* passes a variable on; NULL: it passes all */
    const char *const interfaces[3]; /* variables that name the network */
    bool has_slots;                  /* hosts are written as name:slots */
    const char *per_host;            /* in place of that: all have %d slots */
    const char *n_hosts;             /* %d hosts */
};

#define OPEN_MPI(VERSION, INTERFACE)                                                            \
    {                                                                                           \
        .version = (VERSION), .ranks = "-np", .hosts = "--host", .has_slots = true,             \
        .unbound = "--bind-to none", .bound = "--map-by slot:PE=%d", .more = "--oversubscribe", \
        .pass = "-x",                                                                           \
        .always = "--mca oob_tcp_keepalive_time 10 --mca oob_tcp_keepalive_intvl 5 "            \
                  "--mca oob_tcp_keepalive_probes 3",                                           \
        .interfaces = {(INTERFACE), "OMPI_MCA_btl_tcp_if_include"},                             \
    }

static const struct dt_launcher launchers[] = {
    OPEN_MPI("(Open MPI) 5", "PRTE_MCA_oob_tcp_if_include"),
    OPEN_MPI("(Open MPI)", "OMPI_MCA_oob_tcp_if_include"),
    OPEN_MPI("(OpenRTE)", "OMPI_MCA_oob_tcp_if_include"), /* its mpiexec */
    {.version = "Intel(R) MPI",
     .ranks = "-n",
     .hosts = "-hosts",
     .unbound = "-genv I_MPI_PIN 0",
     .bound = "-genv I_MPI_PIN_DOMAIN %d",
     .interfaces = {"I_MPI_HYDRA_IFACE", "FI_TCP_IFACE"},
     .per_host = "-ppn %d"},
    {.version = "HYDRA",
     .ranks = "-n",
     .hosts = "-hosts",
     .unbound = "-bind-to none",
     .bound = "-bind-to core:%d",
     .interfaces = {"HYDRA_IFACE", "FI_TCP_IFACE"},
     .has_slots = true},
    {.version = "slurm",
     .ranks = "-n",
     .hosts = "--nodelist",
     .per_host = "--ntasks-per-node=%d",
     .n_hosts = "--nodes=%d",
     .unbound = "--cpu-bind=none",
     .bound = "--cpus-per-task=%d",
     .more = "--overcommit",
     .always = "--mpi=pmix --kill-on-bad-exit=1"},
};

/* Adds the option of the table, with `n` in place of its %d. */
static dt_status add_option(struct dt_words *out, const char *format, int n)
{
    char text[128];
    const char *number = format ? strstr(format, "%d") : NULL;
    if (!number)
        return dt_words_split(out, format);
    snprintf(text, sizeof text, "%.*s%d", (int)(number - format), format, n);
    return dt_words_split(out, text);
}

static const char *launcher_name(void)
{
    const char *name = getenv("DTRAIN_MPIRUN");
    return name && name[0] ? name : "mpirun";
}

/* Gets the output of `name --version`, "" if it cannot be run. A slow program gets a second chance.
 */
static dt_status ask_version(char *out, size_t bytes, const char *name)
{
    static const double first_s = 5, second_s = 20;
    struct dt_words words = {0};
    dt_status status = dt_words_split(&words, name);
    if (status == DT_OK)
        status = dt_words_add(&words, "--version");
    if (status == DT_OK && dt_process_ask(out, bytes, &words, first_s) == DT_PROCESS_LATE &&
        !dt_process_is_asked()) {
        dt_log(DT_LOG_WARNING,
               "launch: %s --version has not answered for %.0f s and was ended; it gets %.0f s now",
               name, first_s, second_s);
        if (dt_process_ask(out, bytes, &words, second_s) == DT_PROCESS_LATE &&
            !dt_process_is_asked())
            status = DT_ERROR(DT_ERR_HANG,
                              "%s --version has not answered for %.0f s and was ended; find out "
                              "what it waits for, or name another launcher with DTRAIN_MPIRUN",
                              name, second_s);
    }
    if (status == DT_OK && dt_process_is_asked())
        status = DT_ERROR(DT_STOPPED, "stopped on request before the start");
    dt_words_reset(&words);
    return status;
}

dt_status dt_launcher_find(const struct dt_launcher **out)
{
    char version[4096];
    DT_TRY(ask_version(version, sizeof version, launcher_name()));
    if (!version[0] && getenv("SLURM_JOB_ID"))
        DT_TRY(ask_version(version, sizeof version, "srun"));
    for (size_t i = 0; i < DT_COUNT(launchers); i++)
        if (strstr(version, launchers[i].version)) {
            *out = &launchers[i];
            return DT_OK;
        }
    version[strcspn(version, "\n")] = '\0';
    dt_utf8_escape(version);
    DT_FAIL(DT_ERR_NO_INPUT,
            version[0] ? "%s is a launcher that dtrain does not know (%s); name another one with "
                         "DTRAIN_MPIRUN, or use it without dtrain launch"
                       : "there is no %s in PATH%s; install the MPI that dtrain was built with, or "
                         "name its launcher with DTRAIN_MPIRUN",
            launcher_name(), version);
}

static dt_status add_hosts(struct dt_words *out, const struct dt_launcher *launcher,
                           const struct dt_launch_hosts *hosts)
{
    dt_status status = DT_OK;
    size_t bytes = 1;
    int slots = 0, n = 0;
    char *text = NULL;
    for (int i = 0; i < hosts->n; i++)
        bytes += strlen(hosts->list[i].name) + 16;
    DT_TRY_OUT(DT_NEW(text, bytes));
    struct dt_text line = dt_text_in(text, bytes);
    for (int i = 0; i < hosts->n; i++) {
        if (hosts->list[i].is_gone)
            continue;
        if (launcher->per_host && slots > 0 && slots != hosts->list[i].slots)
            DT_TRY_OUT(DT_ERROR(
                DT_ERR_USAGE, "%s and %s have other numbers of slots, which this MPI cannot place",
                hosts->list[0].name, hosts->list[i].name));
        slots = hosts->list[i].slots;
        n++;
        dt_text_add(&line, "%s%s", line.used ? "," : "", hosts->list[i].name);
        if (launcher->has_slots)
            dt_text_add(&line, ":%d", hosts->list[i].slots);
    }
    DT_TRY_OUT(dt_words_add(out, "%s", launcher->hosts));
    DT_TRY_OUT(dt_words_add(out, "%s", text));
    DT_TRY_OUT(add_option(out, launcher->per_host, slots));
    DT_TRY_OUT(add_option(out, launcher->n_hosts, n));
out:
    free(text);
    return status;
}

static dt_status pass_variable(struct dt_words *out, const char *option, const char *variable)
{
    DT_TRY(dt_words_add(out, "%s", option));
    return dt_words_add(out, "%.*s", (int)strcspn(variable, "="), variable);
}

static dt_status pass_environment(struct dt_words *out, const char *option,
                                  const struct dt_launch_options *options)
{
    static const char *const names[] = {"PATH=", "LD_LIBRARY_PATH", "DTRAIN_", "NCCL_",
                                        "UCX_",  "ONEDNN_",         "OMP_",    "CUDA_",
                                        "PYTHON"};
    for (size_t i = 0; i < options->n_variables; i++)
        DT_TRY(pass_variable(out, option, options->variables[i]));
    for (char **variable = environ; *variable; variable++)
        for (size_t i = 0; i < DT_COUNT(names); i++)
            if (strncmp(*variable, names[i], strlen(names[i])) == 0)
                DT_TRY(pass_variable(out, option, *variable));
    return DT_OK;
}

static void set_environment(const struct dt_launcher *launcher, const char *interface)
{
    static const char *const settings[][2] = {
        {"OMPI_MCA_btl_vader_single_copy_mechanism", "none"}, /* containers refuse it */
        {"OMPI_MCA_oob_tcp_keepalive_time", "10"}, /* the ranks ask for it; see `always` */
        {"OMPI_MCA_oob_tcp_keepalive_intvl", "5"},
        {"OMPI_MCA_oob_tcp_keepalive_probes", "3"},
        {"OMPI_ALLOW_RUN_AS_ROOT", "1"}, /* from here on: as root */
        {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
    const size_t n = DT_COUNT(settings) - (geteuid() == 0 ? 0 : 2);
    char exact[DT_HOST_MAX];
    for (size_t i = 0; i < n; i++)
        setenv(settings[i][0], settings[i][1], 0);
    for (int i = 0; interface && launcher->interfaces[i]; i++)
        setenv(launcher->interfaces[i], interface, 1);
    snprintf(exact, sizeof exact, "=%s", interface ? interface : "");
    if (interface)
        setenv("NCCL_SOCKET_IFNAME", exact, 1);
}

static dt_status add_self(struct dt_words *out)
{
    char self[DT_PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0)
        DT_FAIL(DT_ERR_NO_INPUT, "cannot find this program in /proc");
    return dt_words_add(out, "%.*s", (int)n, self);
}

bool dt_launcher_queues(const struct dt_launcher *launcher)
{
    return strcmp(launcher->version, "slurm") == 0;
}

dt_status dt_launcher_command(struct dt_words *out, const struct dt_launcher *launcher,
                              const struct dt_launch_options *options,
                              const struct dt_launch_hosts *hosts, int n_ranks)
{
    const bool is_job = getenv("SLURM_JOB_ID") != NULL;
    set_environment(launcher, options->interface);
    DT_TRY(dt_words_split(
        out, dt_launcher_queues(launcher) && !getenv("DTRAIN_MPIRUN") ? "srun" : launcher_name()));
    if (n_ranks > 0) {
        DT_TRY(dt_words_add(out, "%s", launcher->ranks));
        DT_TRY(dt_words_add(out, "%d", n_ranks));
    }
    if (hosts->n > 0)
        DT_TRY(add_hosts(out, launcher, hosts));
    if (options->n_cpus || !strstr(launcher_name(), "bind")) /* DTRAIN_MPIRUN may say how */
        DT_TRY(add_option(out, options->n_cpus ? launcher->bound : launcher->unbound,
                          options->n_cpus));
    /* Alone, this machine has a slot per core, not per CPU. */
    if (hosts->n > 0 ? n_ranks > dt_launch_slots(hosts) : !is_job)
        DT_TRY(add_option(out, launcher->more, 0));
    DT_TRY(add_option(out, launcher->always, 0));
    if (launcher->pass && (hosts->n > 0 || is_job))
        DT_TRY(pass_environment(out, launcher->pass, options));
    DT_TRY(options->program ? dt_words_split(out, options->program) : add_self(out));
    for (int i = 0; i < options->n_words; i++)
        DT_TRY(dt_words_add(out, "%s", options->words[i]));
    return DT_OK;
}
