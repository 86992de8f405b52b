/* Sends the events of a run of 40 steps in 4 epochs, as if it trained on ImageNet, to all sinks:
 *
 *     sinks_tool FOLDER LAST [RESUMED [SETTING]]
 *
 * ends by SIGKILL after step LAST, or in good order after step 40. RESUMED is the step of the
 * checkpoint that it resumes from, -1: none. The loss of a step is 100 / step. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "dtrain/config.h"
#include "dtrain/events.h"

enum { STEPS = 40, PER_EPOCH = 10 };

static void send_start(struct dt_events *report, const struct dt_config *config, int64_t at)
{
    char *json = NULL;
    if (dt_config_print(&json, config) != DT_OK)
        exit(1);
    const struct dt_field fields[] = {
        DT_JSONV("config", json),
        DT_INT("ranks", 2),
        DT_INT("global_batch_size", 256),
        DT_INT("micro_batch_size", 32),
        DT_INT("passes", 4),
        DT_NUM("lr", 0.256),
        DT_INT("steps_per_epoch", 5004),
        DT_INT("train_images", 1281167),
        DT_INT("val_images", 50000),
        DT_INT("start_step", at),
    };
    dt_events_emit(report, "run_start", fields, DT_COUNT(fields));
    free(json);
}

static void send_step(struct dt_events *report, int64_t step)
{
    const int64_t epoch = (step - 1) / PER_EPOCH + 1;
    const struct dt_field step_fields[] = {DT_INT("step", step),
                                           DT_INT("epoch", epoch),
                                           DT_NUM("loss", 100.0 / (double)step),
                                           DT_NUM("top1", (double)step),
                                           DT_NUM("lr", 0.256),
                                           DT_NUM("images_per_s", 1000),
                                           DT_NUM("data_wait_s", 0.125),
                                           DT_NUM("comm_s", 0.25),
                                           DT_NUM("step_s", 1),
                                           DT_NUM("compute_s", 0.5),
                                           DT_NUM("sync_s", 0.0625),
                                           DT_NUM("other_s", 0.0625)};
    const struct dt_field eval[] = {DT_INT("epoch", epoch), DT_INT("step", step),
                                    DT_INT("images", 50000), DT_NUM("loss", 1),
                                    DT_NUM("top1", 60 + 0.4 * (double)step)};
    const struct dt_field telemetry[] = {DT_TEXT("device", "x"), DT_INT("step", step),
                                         DT_INT("rss_bytes", 4096), DT_NUM("power_w", 300),
                                         DT_NUM("fan", NAN)};
    const struct dt_field warning[] = {DT_TEXT("text", "one")};
    dt_events_emit(report, "step", step_fields, DT_COUNT(step_fields));
    if (step % PER_EPOCH == 5) {
        dt_events_emit(report, "telemetry", telemetry, DT_COUNT(telemetry));
        dt_events_emit(report, "warning", warning, DT_COUNT(warning));
    }
    if (step % PER_EPOCH == 0)
        dt_events_emit(report, "eval", eval, DT_COUNT(eval));
}

int main(int argc, char **argv)
{
    struct dt_config config;
    struct dt_events *report = NULL;
    const char *const sets[] = {"output.sinks=[\"jsonl\",\"tensorboard\",\"prometheus\",\"csv\"]",
                                "schedule.kind=poly",
                                "schedule.lr=0.256",
                                "schedule.min_lr=0.0001",
                                "train.epochs=4",
                                "schedule.warmup_epochs=2",
                                argc > 4 ? argv[4] : "optim.name=sgd"};
    if (argc < 3 || dt_config_load(&config, NULL, sets, DT_COUNT(sets)) != DT_OK)
        return 1;
    const int64_t last = strtoll(argv[2], NULL, 10),
                  resumed = argc > 3 ? strtoll(argv[3], NULL, 10) : -1;
    const struct dt_events_options options = {
        .config = &config, .dir = argv[1], .append = resumed >= 0, .from_step = resumed + 1};
    if (dt_events_open(&report, &options) != DT_OK)
        return 1;
    send_start(report, &config, resumed > 0 ? resumed : 0);
    for (int64_t step = resumed > 0 ? resumed + 1 : 1; step <= last; step++)
        send_step(report, step);
    if (last < STEPS)
        raise(SIGKILL);
    const struct dt_field end[] = {DT_TEXT("status", "OK"), DT_INT("exit_code", 0)};
    dt_events_emit(report, "run_end", end, DT_COUNT(end));
    dt_events_close(report);
    return 0;
}
