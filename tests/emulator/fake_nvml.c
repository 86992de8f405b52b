/* Stands in for the driver's libnvidia-ml.so.1. FAKE_NVML lists what the calls report in turn, the
 * last again and again: "REASONS:ERRORS,..." with the bits of the reasons in hexadecimal. It knows
 * the emulated GPUs. Their memory can be read if FAKE_NVML_FREE says how many bytes are free, which
 * some real ones cannot tell. */
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6 };

static unsigned long long reasons, errors;
static const char *rest;
static int gpu, n_users;

static int is_known(const void *device)
{
    return n_users > 0 && device == &gpu ? SUCCESS : NOT_FOUND;
}

int nvmlInit_v2(void);
int nvmlInit_v2(void)
{
    n_users++;
    rest = getenv("FAKE_NVML");
    return rest ? SUCCESS : NOT_SUPPORTED;
}

int nvmlShutdown(void);
int nvmlShutdown(void)
{
    return n_users-- > 0 ? SUCCESS : NOT_FOUND;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    /* "dtrain-emulated" and the number */
    static const char known[] = "GPU-64747261-696e-2d65-6d75-6c6174656400";
    *device = &gpu;
    return strlen(uuid) == strlen(known) && strncmp(uuid, known, strlen(known) - 1) == 0
               ? SUCCESS
               : NOT_FOUND;
}

/* The first of the calls for a sample. */
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts);
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts)
{
    char *end = NULL;
    if (*rest) {
        reasons = strtoull(rest, &end, 16);
        errors = *end == ':' ? strtoull(end + 1, &end, 10) : 0;
        rest = *end == ',' ? end + 1 : end;
    }
    *milliwatts = 651500;
    return is_known(device);
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius);
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius)
{
    *celsius = 87;
    return sensor == 0 ? is_known(device) : NOT_FOUND;
}

int nvmlDeviceGetClockInfo(void *device, int clock, unsigned *mhz);
int nvmlDeviceGetClockInfo(void *device, int clock, unsigned *mhz)
{
    *mhz = clock == 1 ? 1410 : 3201;
    return clock == 1 || clock == 2 ? is_known(device) : NOT_FOUND;
}

struct utilisation {
    unsigned gpu, memory;
};
int nvmlDeviceGetUtilizationRates(void *device, struct utilisation *out);
int nvmlDeviceGetUtilizationRates(void *device, struct utilisation *out)
{
    *out = (struct utilisation){99, 42};
    return is_known(device);
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *total_free_used);
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *total_free_used)
{
    const char *left = getenv("FAKE_NVML_FREE");
    if (!left)
        return NOT_SUPPORTED;
    total_free_used[0] = 4ULL << 30;
    total_free_used[1] = strtoull(left, NULL, 10);
    total_free_used[2] = total_free_used[0] - total_free_used[1];
    return is_known(device);
}

int nvmlDeviceGetTotalEccErrors(void *device, int type, int counter, unsigned long long *n);
int nvmlDeviceGetTotalEccErrors(void *device, int type, int counter, unsigned long long *n)
{
    *n = errors;
    return type == 1 && counter == 0 ? is_known(device) : NOT_FOUND;
}

/* The name before driver 535 only. */
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *out);
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *out)
{
    *out = reasons;
    return is_known(device);
}
