/* All op tests on one backend: what a test program of a backend calls. Compiled once (run_ops.c).
 */
#ifndef DTRAIN_TESTS_RUN_OPS_H
#define DTRAIN_TESTS_RUN_OPS_H

#include <stdbool.h>

#include "dtrain/backend.h"

/* With sanitizers the backend is slow, too. */
#ifdef __SANITIZE_ADDRESS__
enum { HAS_SANITIZERS = true };
#else
enum { HAS_SANITIZERS = false };
#endif

/* Returns the number of tests that failed. few_images: as in struct suite (op_cases.h). */
int run_ops(const struct dt_backend *backend, enum dt_precision precision,
            enum dt_tensor_layout layout, bool few_images);

#endif
