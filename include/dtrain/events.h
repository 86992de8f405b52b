/* One stream of events to many sinks. Rank 0 only; main thread only.
 * A new sink: src/events/x.c and one name in DT_SINK_LIST of config.h. */
#ifndef DTRAIN_EVENTS_H
#define DTRAIN_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct dt_config;

/* A named value of an event. */
enum dt_field_kind { DT_FIELD_INT, DT_FIELD_NUMBER, DT_FIELD_TEXT, DT_FIELD_JSON };
struct dt_field {
    const char *key;
    enum dt_field_kind kind;
    int64_t integer;
    double number;
    const char *text; /* TEXT, or JSON: a complete JSON value */
};
#define DT_INT(k, v)                                     \
    {                                                    \
        .key = (k), .kind = DT_FIELD_INT, .integer = (v) \
    }
#define DT_NUM(k, v)                                       \
    {                                                      \
        .key = (k), .kind = DT_FIELD_NUMBER, .number = (v) \
    }
#define DT_TEXT(k, v)                                  \
    {                                                  \
        .key = (k), .kind = DT_FIELD_TEXT, .text = (v) \
    }
#define DT_JSONV(k, v)                                 \
    {                                                  \
        .key = (k), .kind = DT_FIELD_JSON, .text = (v) \
    }

/* Events and their fields, optional ones in brackets:
 *   run_start   config, ranks, device, global_batch_size, batch_size_per_rank, micro_batch_size,
 *               passes, lr, steps_per_epoch, epochs, parameters, train_images, val_images,
 *               start_step, version (of dtrain), build (its id), libraries (array of texts),
 *               hosts (object: name to number of ranks), stages (array of objects, one for each
 *               of train.stages and what is before them: epoch, step, steps_per_epoch, image_size,
 *               global_batch_size), [weights: their origin]
 *   samples     path (a picture of training images; new runs only)
 *   step        step, total_steps, epoch, loss, [top1 (per cent)], lr, images_per_s, step_s,
 *               elapsed_s (since the start), eta_s, [top5: above 5 classes], [a detector,
 *               instead of top1 and top5: class_loss, box_loss, whose sum is loss], [fp16:
 *               loss_scale, skipped_steps], [several ranks on CPUs: sent_bytes (of gradients,
 *               weights and statistics, per step and rank)]; means since the previous step event.
 *               The times are means of the ranks and add up to step_s: data_wait_s, compute_s
 *               (forward, backward, update; on devices with queues whatever the host waits for in
 *               them), [comm_s (exposed: waiting for sums of gradients): devices without queues],
 *               sync_s (waiting for other ranks in agreements and sums of counters), other_s
 *   eval        epoch, step, images, [the metrics of eval.metrics and those that decide], [with
 *               train.ema_decay, unless eval.weights is raw: weights "ema", whose metrics these
 *               are; both: the metrics of the weights themselves as loss_raw, top1_raw, ...], [of
 *               one that does not count for the best: reported_only true]
 *   detections  path (a picture of some validation images with what a detector found in them, of
 *               the evaluation just reported), width, height
 *   checkpoint  step, path, seconds (writing), stall_s (training blocked), bytes
 *   input       per epoch, or per part of it that was trained:
 *               epoch, step, steps, wait_share (fraction of step time spent waiting for data),
 *               busy_share (fraction of the workers' time), read_share (fraction of busy time),
 *               longest_wait_s (of any rank since the start), capacity_images_per_s (all workers
 *               always busy), demand_images_per_s (no rank ever waiting), workers (per rank), text
 *   telemetry   step, host_memory_used_bytes, host_memory_available_bytes, page_cache_bytes,
 *               rss_bytes (of rank 0), load (mean number of running processes over a minute), [rank
 *               0's GPU, if any: gpu_power_w, gpu_temperature_c, gpu_clock_mhz,
 *               gpu_memory_clock_mhz, gpu_utilisation (per cent), gpu_memory_used_bytes,
 *               gpu_ecc_errors (uncorrected, since boot), gpu_throttle (bits of NVML's
 *               nvmlClocksEventReasons; 0 or 1 (idle) = none); not finite = not supported]
 *   staleness   comm.mode async: step, updates, mean, max, histogram (array: how many updates had
 *               staleness 0, 1, ...); since the start of this process
 *   warning     text
 *   run_end     status, exit_code, reason (of a failure the error's sentence), steps, seconds,
 *               images_per_s, model, warnings (of rank 0, since this start), [best_metric, best,
 *               best_epoch, best_path], [top1], [model_xxh128: of a run that promises its bits] */
struct dt_events;

struct dt_events_options {
    const struct dt_config *config; /* its output.sinks are opened; NULL = the console */
    const char *dir;                /* run folder; NULL = without the sinks that need it */
    bool append;                    /* resumed run */
    int64_t from_step;              /* events of this step and later ones are sent again */
};
/* A sink that cannot be opened causes a warning, and the others are used; one whose file is not a
 * regular file is DT_ERR_PERMISSION. `config` and `dir` are used until the report is closed. */
dt_status dt_events_open(struct dt_events **report, const struct dt_events_options *options);
void dt_events_close(struct dt_events *report); /* accepts NULL */
/* Sends an event; accepts a NULL report (other ranks). A sink that cannot write warns once
 * and tries again with every event: reporting never ends a run. */
void dt_events_emit(struct dt_events *report, const char *event, const struct dt_field *fields,
                    int n_fields);
/* Shows a transient progress line for work that has no event (evaluation, building an index). */
void dt_events_progress(struct dt_events *report, const char *what, int64_t done, int64_t total);

#endif
