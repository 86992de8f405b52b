/* dtrain predict with a detector: a line for each detection, and pictures of the images. */
#ifndef DTRAIN_EVAL_PREDICT_BOXES_H
#define DTRAIN_EVAL_PREDICT_BOXES_H

#include "dtrain/eval.h"
#include "eval/evaluator.h"

/* DT_ERR_USAGE if two pictures would have the same name, or one would replace an image. */
dt_status dt_predict_boxes_check(const struct dt_names *images,
                                 const struct dt_predict_options *options);
/* Runs the images of the open engine on its one rank; of those that cannot be read it warns. */
dt_status dt_predict_boxes(struct dt_evaluator *evaluator,
                           const struct dt_predict_options *options);

#endif
