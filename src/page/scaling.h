/* `dtrain scaling`: the result of scripts/scaling.sh. */
#ifndef DTRAIN_PAGE_SCALING_H
#define DTRAIN_PAGE_SCALING_H

#include "base/status.h"

/* Reads the measurements in the folder, SERIES-npRANKS-REPETITION.json as written by `dtrain bench
 * --json`; prints a table of their medians and saves scaling.json, scaling.csv and scaling.html
 * there. DT_ERR_NO_INPUT if there are none. */
dt_status dt_scaling(const char *dir);

#endif
