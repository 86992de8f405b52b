/* Metrics of a training run: where its time goes, the counters of all ranks, summed once per
 * interval, and how the hardware does. */
#ifndef DTRAIN_TRAIN_METRICS_H
#define DTRAIN_TRAIN_METRICS_H

#include "engine/engine.h"

/* laps.c: where the time of training goes: a clock whose laps each belong to one kind, so that the
 * kinds add up to the time that has passed. Main thread only. */

/* The kinds of a step, with their fields of the step event (dtrain/events.h). */
#define DT_LAP_LIST(X)                                                                          \
    X(DATA, data_wait_s)  /* waiting for the loader */                                          \
    X(COMPUTE, compute_s) /* passes; on devices with queues with whatever the host waits for */ \
    X(COMM, comm_s)       /* in passes, but for sums of gradients; 0 on devices with queues */  \
    X(SYNC, sync_s)       /* in other collective calls: agreements, sums of counters */         \
    X(OTHER, other_s)     /* the rest: reports, telemetry, beginning an epoch */

#define DT_LAP_ID(NAME, field) DT_LAP_##NAME,
enum dt_lap { DT_LAP_LIST(DT_LAP_ID) DT_N_LAPS, DT_LAP_PAUSE = DT_N_LAPS };
#undef DT_LAP_ID

struct dt_laps {
    double s[DT_N_LAPS + 1]; /* seconds so far, by kind; the last are those of no step */
    double at_s;             /* dt_clock_s of the last call */
    double comm_s, sync_s;   /* of plan and comm at that time */
};

void dt_laps_begin(struct dt_laps *laps, const struct dt_engine *engine);
/* Ends a lap: the time since the last call belongs to `kind`, except the parts of it that were COMM
 * or SYNC. All of a PAUSE (evaluation, saving) belongs to it. */
void dt_lap(struct dt_laps *laps, const struct dt_engine *engine, enum dt_lap kind);
double dt_laps_total(const double s[DT_N_LAPS]); /* of dt_laps.s or differences: without pauses */

/* --- metrics.c --- */

/* Clock and counter values at the start of a stretch of training. */
struct dt_input_mark {
    int64_t step;
    double total_s; /* dt_laps_total */
    struct dt_loader_times times;
    uint64_t storage_bytes;
};

struct dt_metrics {
    double start_s;     /* when the first interval began */
    int64_t first_step; /* of the interval */
    struct dt_laps laps;
    struct dt_laps mark; /* the laps when the interval began */
    double sent_bytes;   /* dt_comm_sent_bytes then */
    double step_s;       /* mean over intervals so far, weighted towards recent ones */
    struct dt_input_mark input;
};

void dt_metrics_init(struct dt_metrics *metrics, const struct dt_engine *engine, int64_t step);
/* Sums the counters of the steps since the last call over the ranks and sends the step event; the
 * loss is the (weighted) mean over the images whose loss is finite. `step` updates are done, the
 * last one in `epoch` with learning rate `lr`; their losses are added to `epoch_loss`, which begins
 * again with another epoch. Skipped steps cause a warning. DT_ERR_NUMERICAL on all ranks
 * (DT_FAIL_ON_ALL_RANKS), naming `checkpoint`, if more than 3 steps in a row were skipped (fp16: if
 * the loss scale has reached its minimum), or if no loss is finite although not every step was
 * skipped. Collective. */
dt_status dt_metrics_report(struct dt_metrics *metrics, struct dt_engine *engine,
                            struct dt_sets *sets, int64_t step, int64_t epoch, double lr,
                            const char *checkpoint, struct dt_epoch_loss *epoch_loss);
/* The mean of an epoch, rounded to fp32 so that it is the same however the reports have divided the
 * epoch; NaN if there was no loss. */
double dt_metrics_epoch_loss(const struct dt_epoch_loss *epoch_loss);
/* Begins the stretch that dt_metrics_report_input covers. Call it after the first step of a run,
 * which waits for the empty ring to fill. Local. */
void dt_metrics_begin_input(struct dt_metrics *metrics, const struct dt_engine *engine,
                            const struct dt_sets *sets, int64_t step);
/* Sends the input event, at the end of `epoch` or when the run ends within it, and begins the next
 * stretch; does nothing after fewer than `min` steps. Collective. */
dt_status dt_metrics_report_input(struct dt_metrics *metrics, struct dt_engine *engine,
                                  struct dt_sets *sets, int64_t step, int64_t epoch, int64_t min);
/* The dt_clock_s at which output.log_every_s makes the next progress line due. */
double dt_metrics_due_s(const struct dt_metrics *metrics, const struct dt_config *config);

/* telemetry.c: how the hardware does: memory and load of the host, sensors of the GPU. Now and then
 * rank 0 sends an event; every rank warns of its own GPU, once for each reason. No communication.
 */
struct dt_telemetry {
    double next_s;           /* when the next event is due; 0 = at the first call */
    unsigned long long told; /* reasons for throttling that this rank has warned of */
    double ecc_errors;       /* that it has warned of */
};

/* Call after each step. Does nothing until it is due: every output.telemetry_s. */
void dt_telemetry_step(struct dt_telemetry *telemetry, const struct dt_engine *engine,
                       int64_t step);

#endif
