/* Metrics of a training run: the counters of all ranks, summed once per interval. */
#ifndef DTRAIN_TRAIN_METRICS_H
#define DTRAIN_TRAIN_METRICS_H

#include "train/laps.h"

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
 * (DT_FAIL_ALIKE), naming `checkpoint`, if more than 3 steps in a row were skipped (fp16: if the
 * loss scale has reached its minimum), or if no loss is finite although not every step was skipped.
 * Collective. */
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
 * stretch; does nothing after fewer than `least` steps. Collective. */
dt_status dt_metrics_report_input(struct dt_metrics *metrics, struct dt_engine *engine,
                                  struct dt_sets *sets, int64_t step, int64_t epoch, int64_t least);
/* The dt_clock_s at which output.log_every_s makes the next progress line due. */
double dt_metrics_due_s(const struct dt_metrics *metrics, const struct dt_config *config);

#endif
