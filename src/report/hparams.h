/* Messages of TensorBoard's plug-in for hyper-parameters (plugin_data.proto). */
#ifndef DTRAIN_REPORT_HPARAMS_H
#define DTRAIN_REPORT_HPARAMS_H

#include "dtrain/report.h"
#include "report/proto.h"

/* A value of a summary: the main settings of the run, from the event run_start. */
void dt_hparams_start(struct dt_proto *p, double wall_time_s, const struct dt_field *fields,
                      int n_fields);
/* How the run ended. */
void dt_hparams_end(struct dt_proto *p, double wall_time_s, bool success);

#endif
