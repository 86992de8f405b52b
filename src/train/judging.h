/* Judges the images of an evaluation from their logits on the host: for metrics that the device's
 * counters do not give, for eval.tta and for tables of predictions. */
#ifndef DTRAIN_TRAIN_JUDGING_H
#define DTRAIN_TRAIN_JUDGING_H

#include "data/names.h"
#include "judge/judge.h"
#include "train/evaluator.h"

struct dt_judging {
    struct dt_judge *judge;    /* of this rank; the confusion matrix after dt_judging_sum of all */
    struct dt_score *scores;   /* two classes: of all ranks */
    struct dt_ranking ranking; /* of these, after dt_judging_sum */
    float *logits;             /* of the last batch; a bad image's first one is NaN */
    float *others;             /* eval.tta: of its mirrored images, and these */
    uint8_t *mirrored;
    struct dt_names texts;
    const char **names; /* of all classes: their numbers if they have no names */
};

/* Whether eval.metrics, the metrics that decide, or eval.tta need one. */
bool dt_judging_is_needed(const struct dt_config *config);
/* For the validation set, once its loader exists. */
dt_status dt_judging_create(struct dt_judging **judging, const struct dt_sets *sets);
void dt_judging_destroy(struct dt_judging *judging); /* accepts NULL */
/* After the pass over a batch, which is not yet released; eval.tta runs another pass. Call
 * dt_judge_clear before the first batch. Local. */
dt_status dt_judging_add(struct dt_evaluator *evaluator, const struct dt_batch *batch);
/* Sums over the ranks and sets the metrics in per cent or as defined in config.h. All ranks get the
 * same bits on any number of ranks. Collective. */
dt_status dt_judging_sum(struct dt_evaluator *evaluator, double value[DT_N_METRICS]);

#endif
