/* The section of the report with the curves of all runs in common charts. */
#ifndef DTRAIN_PAGE_CURVES_H
#define DTRAIN_PAGE_CURVES_H

#include <stdio.h>

#include "page/run.h"

dt_status dt_curves_print(FILE *out, const struct dt_run *runs, size_t n);

#endif
