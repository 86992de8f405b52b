/* What a training run tells about itself: counters of all ranks summed, once per interval. */
#ifndef DTRAIN_TRAIN_METRICS_H
#define DTRAIN_TRAIN_METRICS_H

#include "train/session.h"

/* Where the clocks stood when a stretch of training began. */
struct dt_input_mark {
    int64_t step;
    double begin_s, paused_s;
    struct dt_loader_times times;
};

struct dt_metrics {
    double start_s;     /* when the first interval began */
    int64_t first_step; /* of the interval */
    double begin_s;     /* when it began */
    double wait_s;      /* dt_loader_wait_s then */
    double paused_s;    /* evaluation and saving inside the interval */
    double step_s;      /* mean over intervals so far, weighted towards recent ones */
    struct dt_input_mark input;
};

void dt_metrics_init(struct dt_metrics *metrics, const struct dt_session *s, int64_t step);
/* Sums the counters of the steps since the last call over the ranks and sends the step event; the
 * loss is the mean over images where it is finite. `step` updates are done, the last one in
 * `epoch`, with rate `lr`. Skipped steps are a warning. DT_ERR_NUMERICAL on all ranks
 * (DT_FAIL_ALIKE) if more than 3 were skipped in a row (fp16: if the loss scale is down to its
 * least), or if no loss is finite though steps count; `checkpoint` is named then. Collective. */
dt_status dt_metrics_report(struct dt_metrics *metrics, struct dt_session *s, int64_t step,
                            int64_t epoch, double lr, const char *checkpoint);
/* Begins the stretch that dt_metrics_report_input tells about: after the first step of a run, which
 * waits for an empty ring to be filled. Local. */
void dt_metrics_begin_input(struct dt_metrics *metrics, const struct dt_session *s, int64_t step);
/* Sends the input event, at the end of `epoch` or of the run in it, and begins the next stretch;
 * nothing after less than `least` steps. Collective. */
dt_status dt_metrics_report_input(struct dt_metrics *metrics, struct dt_session *s, int64_t step,
                                  int64_t epoch, int64_t least);
/* The dt_clock_s at which the next line of progress is due by output.log_every_s. */
double dt_metrics_due_s(const struct dt_metrics *metrics, const struct dt_session *s);
/* Time that does not belong to training. */
void dt_metrics_pause(struct dt_metrics *metrics, double seconds);

#endif
