/* Inside the JSON module: the strict pass over a text that runs before cJSON sees it. */
#ifndef DTRAIN_BASE_JSON_SCAN_H
#define DTRAIN_BASE_JSON_SCAN_H

#include <stddef.h>

#include "base/status.h"

enum { DT_JSON_DEPTH_MAX = 16, DT_JSON_STRING_MAX = 4096, DT_JSON_NUMBER_MAX = 63 };

struct dt_json_place {
    int line, column; /* from 1; column counts bytes */
};

/* Accepts exactly RFC 8259 within the limits above and `max_values`; `bytes` must fit in an int.
 * places[i] is where value i begins, in document order; free() it. Error: DT_ERR_DATA
 * "source:line:column: what". */
dt_status dt_json_scan(struct dt_json_place **places, int *n_values, const char *text, size_t bytes,
                       const char *source, int max_values);

#endif
