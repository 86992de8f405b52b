/* The pages of runs that may still be going on. "/" shows the runs of these paths on one page; or,
 * if the only path is that of a folder of runs, a list of them, and each as "/run/NAME". */
#ifndef DTRAIN_PAGE_LIVE_H
#define DTRAIN_PAGE_LIVE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

bool dt_live_has(char *const *paths, size_t n, const char *page);
/* Another number after a file of the page's runs has changed, one of them was killed, or one has
 * been added or removed; never 0. *bytes: of their metrics. */
uint64_t dt_live_state(char *const *paths, size_t n, const char *page, uint64_t *bytes);
/* If the runs cannot be read, the page says why. DT_ERR_MEMORY. */
dt_status dt_live_print(FILE *out, char *const *paths, size_t n, const char *page);

#endif
