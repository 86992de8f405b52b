/* Microseconds of a step event per sink and for all sinks, in rounds that alternate between them:
 *
 *     report_tool FOLDER     prints a line for each sink: its name and the median
 *
 * Prometheus gets an event for which it always writes its file; for steps it does so once per
 * second. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/sort.h"
#include "dtrain/config.h"
#include "dtrain/events.h"

enum { ROUNDS = 101, EVENTS = 50 };

#define NAME(name) #name,
static const char *const sinks[] = {"none", DT_SINK_LIST(NAME) "all"};
static struct dt_config configs[DT_COUNT(sinks)];
static struct dt_events *reports[DT_COUNT(sinks)];
static double times_s[DT_COUNT(sinks)][ROUNDS];

#define LINE(name) #name "\n"
static bool open_report(size_t i, const char *folder)
{
    const bool all = strcmp(sinks[i], "all") == 0, none = strcmp(sinks[i], "none") == 0;
    char *dir = NULL;
    if (asprintf(&dir, "%s/%s", folder, sinks[i]) < 0)
        return false;
    dt_config_init(&configs[i]);
    snprintf(configs[i].output.sinks, sizeof configs[i].output.sinks,
             all    ? "%s"
             : none ? ""
                    : "%s\n",
             all ? DT_SINK_LIST(LINE) : sinks[i]);
    const struct dt_events_options options = {.config = &configs[i], .dir = dir};
    return dt_file_make_folder(dir) == DT_OK && dt_events_open(&reports[i], &options) == DT_OK;
}

static void send(struct dt_events *report, const char *event, int64_t step)
{
    const struct dt_field fields[] = {
        DT_INT("step", step),       DT_INT("total_steps", 1 << 20), DT_INT("epoch", 1),
        DT_NUM("loss", 2.345678),   DT_NUM("top1", 12.3456),        DT_NUM("lr", 0.0123),
        DT_NUM("images_per_s", 41), DT_NUM("data_wait_s", 0.00123), DT_NUM("elapsed_s", 100),
        DT_NUM("eta_s", 1000),      DT_NUM("top5", 45.678),         DT_NUM("comm_s", 0.0123)};
    dt_events_emit(report, event, fields, DT_COUNT(fields));
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < DT_COUNT(sinks); i++)
        if (argc < 2 || !open_report(i, argv[1]))
            return 1;
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < DT_COUNT(sinks); i++) {
            const bool once = strcmp(sinks[i], "prometheus") == 0;
            double begin_s = dt_clock_s();
            for (int k = 0; k < EVENTS; k++)
                send(reports[i], once ? "checkpoint" : "step", round * EVENTS + k + 1);
            times_s[i][round] = (dt_clock_s() - begin_s) / EVENTS;
        }
    for (size_t i = 0; i < DT_COUNT(sinks); i++) {
        dt_sort_f64(times_s[i], ROUNDS);
        printf("%s %.2f\n", sinks[i], 1e6 * times_s[i][ROUNDS / 2]);
        dt_events_close(reports[i]);
    }
    return 0;
}
