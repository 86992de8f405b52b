#include "train/metrics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/host.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"

/* NVML's reasons that something is wrong. The others are idleness, the user's settings, and the
 * power limit, which a GPU at work often reaches. */
static const struct {
    unsigned bit;
    const char *text;
} reasons[] = {
    {0x08, "hardware slowdown"},
    {0x20, "too hot (the driver's limit)"},
    {0x40, "too hot (the hardware's limit)"},
    {0x80, "power brake (the power supply's limit)"},
};

/* --- Warnings --- */

/* Only rank 0 has sinks. */
static void warn(const struct dt_engine *engine, const char *text)
{
    const struct dt_field fields[] = {DT_TEXT("text", text)};
    if (engine->ranks.rank == 0)
        dt_events_emit(engine->events, "warning", fields, DT_COUNT(fields));
    else
        dt_log(DT_LOG_WARNING, "%s", text);
}

static void warn_of_throttling(struct dt_telemetry *t, const struct dt_engine *engine,
                               const struct dt_sensors *sensors)
{
    char text[512];
    struct dt_text line = dt_text_in(text, sizeof text);
    unsigned bits = isnan(sensors->throttle) ? 0 : (unsigned)sensors->throttle;
    const char *before = " ";
    dt_text_add(&line, "the GPU of rank %d is slowed down:", engine->ranks.rank);
    for (size_t i = 0; i < DT_COUNT(reasons); i++) {
        if (!(bits & ~t->told & reasons[i].bit))
            continue;
        dt_text_add(&line, "%s%s", before, reasons[i].text);
        before = ", ";
    }
    dt_text_add(&line, "; it runs at %.0f MHz, %.0f C, %.0f W", sensors->clock_mhz,
                sensors->temperature_c, sensors->power_w);
    t->told |= bits;
    if (before[0] == ',')
        warn(engine, text);
}

static void warn_of_errors(struct dt_telemetry *t, const struct dt_engine *engine,
                           const struct dt_sensors *sensors)
{
    char text[160];
    if (!(sensors->ecc_errors > t->ecc_errors))
        return;
    t->ecc_errors = sensors->ecc_errors;
    snprintf(text, sizeof text,
             "the memory of rank %d's GPU had %.0f errors since boot that could not be corrected "
             "(ECC): results may be wrong; have the GPU checked",
             engine->ranks.rank, sensors->ecc_errors);
    warn(engine, text);
}

/* --- The event --- */

static void report(struct dt_events *report, const struct dt_sensors *g, bool has_gpu, int64_t step)
{
    struct dt_memory_use memory;
    double load = NAN;
    dt_memory_use(&memory, "");
    if (getloadavg(&load, 1) != 1)
        load = NAN;
    const struct dt_field fields[] = {
        DT_INT("step", step),
        DT_INT("host_memory_used_bytes", (int64_t)(memory.total - memory.available)),
        DT_INT("host_memory_available_bytes", (int64_t)memory.available),
        DT_INT("page_cache_bytes", (int64_t)memory.cached),
        DT_INT("rss_bytes", (int64_t)memory.resident),
        DT_NUM("load", load),
        DT_NUM("gpu_power_w", g->power_w),
        DT_NUM("gpu_temperature_c", g->temperature_c),
        DT_NUM("gpu_clock_mhz", g->clock_mhz),
        DT_NUM("gpu_memory_clock_mhz", g->memory_clock_mhz),
        DT_NUM("gpu_utilisation", g->utilisation),
        DT_NUM("gpu_memory_used_bytes", g->memory_used_bytes),
        DT_NUM("gpu_ecc_errors", g->ecc_errors),
        DT_NUM("gpu_throttle", g->throttle),
    };
    enum { HOST_FIELDS = 6 };
    dt_events_emit(report, "telemetry", fields, has_gpu ? (int)DT_COUNT(fields) : HOST_FIELDS);
}

void dt_telemetry_step(struct dt_telemetry *t, const struct dt_engine *engine, int64_t step)
{
    double now_s = dt_clock_s(), every_s = engine->config->output.telemetry_s;
    struct dt_sensors sensors = {0};
    if (every_s == 0 || now_s < t->next_s)
        return;
    t->next_s = now_s + every_s;
    bool has_gpu =
        engine->backend->read_sensors && engine->backend->read_sensors(engine->device, &sensors);
    if (has_gpu) {
        warn_of_throttling(t, engine, &sensors);
        warn_of_errors(t, engine, &sensors);
    }
    if (engine->ranks.rank == 0)
        report(engine->events, &sensors, has_gpu, step);
}
