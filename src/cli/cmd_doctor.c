/* dtrain doctor, on several ranks in src/doctor. On one process it shows what this build and this
 * machine support, and which device one process would use with the configuration. If it cannot use
 * it, the status tells why (69, or 78 for a configuration that does not suit the device). A line
 * starts with "ok", "--" (absent but not needed) or "!!" (required by the configuration but not
 * working). */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/build.h"
#include "base/file.h"
#include "base/host.h"
#include "cli/commands.h"
#include "doctor/doctor.h"
#include "engine/devices.h"

static const char good[] = "ok", absent[] = "--", bad[] = "!!";

static void say(const char *mark, const char *what, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void say(const char *mark, const char *what, const char *format, ...)
{
    va_list args;
    printf("  %s  %-14s ", mark, what);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

/* --- The build --- */

/* --- The CPU --- */

/* Opens the device, as a run would, and closes it. */
static dt_status try_device(const struct dt_backend *backend, const struct dt_config *config,
                            char *text, size_t bytes)
{
    struct dt_device *device;
    int threads = config->device.threads > 0 ? config->device.threads : dt_cpus_allowed();
    struct dt_device_options options = dt_devices_options(config, threads);
    DT_TRY(backend->open(&device, &options));
    backend->describe(device, text, bytes);
    backend->close(device);
    return DT_OK;
}

static dt_status say_cpu(const struct dt_config *config)
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    char text[256], line[512];
    struct dt_config plain = *config;
    printf("CPU\n");
    snprintf(text, sizeof text, "of unknown model");
    while (file && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        snprintf(text, sizeof text, "%.*s", (int)strcspn(colon, "\n"), colon);
        break;
    }
    if (file)
        fclose(file);
    say(good, "model", "%s", text);
    text[0] = '\0';
    if (dt_cpu_quota("") < INFINITY)
        snprintf(text, sizeof text, " (its quota: %.3g CPUs)", dt_cpu_quota(""));
    say(good, "CPUs", "%d allowed for this process%s", dt_cpus_allowed(), text);
    plain.train.precision = DT_PRECISION_FP32;
    plain.train.loss_scale = 0;
    dt_status status = try_device(&dt_backend_cpu, &plain, text, sizeof text);
    say(status == DT_OK ? good : bad, "library", "%s", status == DT_OK ? text : dt_error_text());
    return status;
}

/* --- GPUs --- */

static void say_gpus(const struct dt_config *config)
{
    struct dt_gpu_report gpus;
    const char *mark = config->device.kind == DT_DEVICE_CUDA ? bad : absent;
    dt_devices_gpus_free(&gpus);
    printf("GPU\n");
    if (dt_devices_has_cuda())
        say(gpus.driver[0] ? good : mark, "driver", "%s%s",
            gpus.driver[0] ? "runs CUDA up to " : "none", gpus.driver);
    if (gpus.n_devices == 0)
        say(mark, "devices", "none: %s", gpus.problem);
    for (int i = 0; i < gpus.n_devices && i < DT_GPU_MAX; i++) {
        char name[16], left[32] = "";
        snprintf(name, sizeof name, "device %d", i);
        if (gpus.device[i].free_bytes > 0)
            snprintf(left, sizeof left, " (%.1f free)",
                     (double)gpus.device[i].free_bytes / (1 << 30));
        say(good, name, "%s, compute capability %d.%d, %.1f GiB%s", gpus.device[i].name,
            gpus.device[i].capability / 10, gpus.device[i].capability % 10,
            (double)gpus.device[i].memory_bytes / (1 << 30), left);
    }
}

/* --- A run --- */

/* The deepest existing folder of the path must be writable. */
static void say_cache(const struct dt_config *config)
{
    char path[DT_PATH_MAX], there[DT_PATH_MAX];
    dt_devices_cache_dir(path, config);
    if (!path[0]) {
        say(absent, "cache folder", "none: set device.cache_dir, XDG_CACHE_HOME or HOME");
        return;
    }
    memcpy(there, path, sizeof there);
    dt_file_existing(there);
    if (access(there, W_OK | X_OK) == 0)
        say(good, "cache folder", "%s", path);
    else
        say(absent, "cache folder", "%s is not writable: %s", path, strerror(errno));
}

static dt_status say_run(const struct dt_config *config)
{
    static const char *const kinds[] = {"auto", "cpu", "cuda"};
    struct dt_config own = *config;
    struct dt_device_choice choice;
    char text[256];
    printf("a run\n");
    say(good, "device.kind", "%s", kinds[config->device.kind]);
    dt_status status = dt_devices_choose(&choice, config, 1);
    own.train.precision = choice.precision;
    if (status == DT_OK)
        status = try_device(choice.backend, &own, text, sizeof text);
    if (status != DT_OK) {
        say(bad, "device", "%s", dt_error_text());
        return status;
    }
    say(good, "device", "%s", text);
    say(good, "precision", "%s%s", dt_precision_name(own.train.precision),
        config->train.precision == DT_PRECISION_AUTO ? " (auto)" : "");
    if (choice.plane == DT_PLANE_NCCL && config->comm.backend == DT_COMM_MPI)
        say(absent, "gradients",
            "one rank only: comm.backend mpi cannot sum in GPU memory, auto and nccl can");
    else
        say(good, "gradients", "summed over the ranks by %s",
            choice.plane == DT_PLANE_NCCL ? "NCCL" : "MPI");
    say_cache(config);
    return DT_OK;
}

dt_status dt_cmd_doctor_on_ranks(struct dt_comm *comm, const struct dt_config *config,
                                 const struct dt_arguments *args)
{
    return dt_doctor(comm, config, args->json, args->quick);
}

dt_status dt_cmd_doctor(const struct dt_arguments *args)
{
    static struct dt_config config;
    DT_TRY(dt_arguments_config(&config, args));
    char mpi[128], nccl[128], cuda[128];
    dt_comm_describe_plane(DT_PLANE_MPI, mpi, sizeof mpi);
    dt_comm_describe_plane(DT_PLANE_NCCL, nccl, sizeof nccl);
    printf("build\n");
    say(good, "dtrain", "%s", dt_version);
    dt_devices_libraries(cuda, sizeof cuda);
    if (dt_devices_has_cuda())
        say(good, "CUDA", "%s", cuda);
    else
        say(absent, "CUDA", "not in this build (cmake -DDTRAIN_CUDA=ON)");
    say(good, "communication", "%s, %s", mpi, nccl[0] ? nccl : "no NCCL");
    DT_TRY(say_cpu(&config));
    say_gpus(&config);
    return say_run(&config);
}
