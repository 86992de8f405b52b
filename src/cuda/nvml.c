/* Sensors and free memory of GPUs, from NVIDIA's management library, which comes with the driver
 * and is loaded while the program runs: without it they are unknown. Its header is not part of
 * every toolkit, so the few declarations that are needed stand here, as in nvml.h. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cuda/cuda_internal.h"
#include "dtrain/gpu.h"

enum { SUCCESS = 0, CLOCK_SM = 1, CLOCK_MEMORY = 2, TEMPERATURE_GPU = 0 };
enum { ERROR_UNCORRECTED = 1, SINCE_BOOT = 0 };

struct utilisation {
    unsigned gpu, memory; /* per cent of the time */
};

struct memory {
    unsigned long long total, free, used;
};

/* Each function returns SUCCESS or an error. The sensors' are NULL if the driver lacks them. */
struct dt_cuda_nvml {
    void *library, *gpu;
    int (*init)(void);
    int (*shutdown)(void);
    int (*find)(const char *uuid, void **gpu);
    int (*power)(void *gpu, unsigned *milliwatts);
    int (*temperature)(void *gpu, int sensor, unsigned *celsius);
    int (*clock)(void *gpu, int clock, unsigned *mhz);
    int (*utilisation)(void *gpu, struct utilisation *out);
    int (*memory)(void *gpu, struct memory *out);
    int (*ecc)(void *gpu, int error, int counter, unsigned long long *n);
    int (*throttle)(void *gpu, unsigned long long *reasons);
};

#define AT(field) offsetof(struct dt_cuda_nvml, field)
static const struct {
    const char *name;
    size_t at;
} functions[] = {
    {"nvmlInit_v2", AT(init)},
    {"nvmlShutdown", AT(shutdown)},
    {"nvmlDeviceGetHandleByUUID", AT(find)},
    {"nvmlDeviceGetPowerUsage", AT(power)},
    {"nvmlDeviceGetTemperature", AT(temperature)},
    {"nvmlDeviceGetClockInfo", AT(clock)},
    {"nvmlDeviceGetUtilizationRates", AT(utilisation)},
    {"nvmlDeviceGetMemoryInfo", AT(memory)},
    {"nvmlDeviceGetTotalEccErrors", AT(ecc)},
    {"nvmlDeviceGetCurrentClocksThrottleReasons", AT(throttle)}, /* before driver 535 */
    {"nvmlDeviceGetCurrentClocksEventReasons", AT(throttle)},
};

/* "GPU-01234567-89ab-cdef-0123-456789abcdef" */
static bool find_gpu(struct dt_cuda_nvml *nvml, const char *identity)
{
    char uuid[48];
    snprintf(uuid, sizeof uuid, "GPU-%.8s-%.4s-%.4s-%.4s-%.12s", identity, identity + 8,
             identity + 12, identity + 16, identity + 20);
    return nvml->find(uuid, &nvml->gpu) == SUCCESS;
}

static void close_library(struct dt_cuda_nvml *nvml)
{
    if (!nvml)
        return;
    nvml->shutdown();
    dlclose(nvml->library);
    free(nvml);
}

/* NULL if the library is missing or cannot be used. */
static struct dt_cuda_nvml *open_library(void)
{
    struct dt_cuda_nvml *nvml;
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library || DT_NEW(nvml, 1) != DT_OK)
        return NULL;
    nvml->library = library;
    for (size_t i = 0; i < DT_COUNT(functions); i++) {
        void *function = dlsym(library, functions[i].name);
        if (function)
            memcpy((char *)nvml + functions[i].at, &function, sizeof function);
    }
    if (nvml->init && nvml->shutdown && nvml->find && nvml->init() == SUCCESS)
        return nvml;
    dlclose(library);
    free(nvml);
    return NULL;
}

void dt_cuda_open_nvml(struct dt_device *dev)
{
    struct dt_cuda_nvml *nvml = open_library();
    if (nvml && find_gpu(nvml, dev->identity))
        dev->nvml = nvml;
    else
        close_library(nvml);
}

void dt_cuda_close_nvml(struct dt_device *dev)
{
    close_library(dev->nvml);
}

/* CUDA itself would have to make a context on every GPU to answer this. */
void dt_gpu_probe_memory(struct dt_gpu_report *report)
{
    struct dt_cuda_nvml *nvml = open_library();
    struct memory memory;
    for (int i = 0; nvml && i < report->n_devices && i < DT_GPU_MAX; i++)
        if (find_gpu(nvml, report->device[i].identity) && nvml->memory &&
            nvml->memory(nvml->gpu, &memory) == SUCCESS)
            report->device[i].free_bytes = (size_t)memory.free;
    close_library(nvml);
}

bool dt_cuda_read_sensors(struct dt_device *dev, struct dt_sensors *out)
{
    const struct dt_cuda_nvml *nvml = dev->nvml;
    unsigned milliwatts, celsius, sm_mhz, memory_mhz;
    struct utilisation utilisation;
    struct memory memory;
    unsigned long long n_errors, reasons;
    if (!nvml)
        return false;
#define READ(function, value, ...) \
    (nvml->function && nvml->function(nvml->gpu, __VA_ARGS__) == SUCCESS ? (double)(value) : NAN)
    *out = (struct dt_sensors){
        .power_w = READ(power, milliwatts / 1e3, &milliwatts),
        .temperature_c = READ(temperature, celsius, TEMPERATURE_GPU, &celsius),
        .clock_mhz = READ(clock, sm_mhz, CLOCK_SM, &sm_mhz),
        .memory_clock_mhz = READ(clock, memory_mhz, CLOCK_MEMORY, &memory_mhz),
        .utilisation = READ(utilisation, utilisation.gpu, &utilisation),
        .memory_used_bytes = READ(memory, memory.used, &memory),
        .ecc_errors = READ(ecc, n_errors, ERROR_UNCORRECTED, SINCE_BOOT, &n_errors),
        .throttle = READ(throttle, reasons, &reasons),
    };
#undef READ
    return true;
}
