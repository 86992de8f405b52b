/* How much of the sums of gradients a timeline shows to be behind computing. */
#ifndef DTRAIN_TRACE_OVERLAP_H
#define DTRAIN_TRACE_OVERLAP_H

#include "base/status.h"

struct dt_overlap {
    double sums_s;     /* during which at least one sum was running */
    double computed_s; /* of these: during which the rank computed as well */
};

/* Of this process; after dt_trace_end. DT_ERR_MEMORY. */
dt_status dt_overlap_find(struct dt_overlap *out);

#endif
