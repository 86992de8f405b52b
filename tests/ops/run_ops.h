/* All op tests on one backend: what a test program of a backend calls. */
#ifndef DTRAIN_TESTS_RUN_OPS_H
#define DTRAIN_TESTS_RUN_OPS_H

#include "arena_cases.h"
#include "net_cases.h"
#include "op_table.h"

/* Last: every op of the op list was compared at least once. */
static void test_coverage(void **state)
{
    const struct suite *suite = *state;
    for (int op = 0; op < DT_N_OPS; op++) {
        if (!suite->covered[op])
            fprintf(stderr, "FAIL no case of op %s was compared\n", dt_op_name(op));
        assert_true(suite->covered[op]);
    }
}

static int run_ops(const struct dt_backend *backend, enum dt_precision precision)
{
    struct suite suite = {.backend = backend,
                          .options = {.threads = 2,
                                      .deterministic = true,
                                      .seed = 11,
                                      .precision = precision,
                                      .loss_scale = precision == DT_PRECISION_FP16 ? 1 : 0}};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_ingest, &suite),
        cmocka_unit_test_prestate(test_conv, &suite),
        cmocka_unit_test_prestate(test_resnet50, &suite),
        cmocka_unit_test_prestate(test_winograd, &suite),
        cmocka_unit_test_prestate(test_bn, &suite),
        cmocka_unit_test_prestate(test_relu, &suite),
        cmocka_unit_test_prestate(test_add, &suite),
        cmocka_unit_test_prestate(test_max_pool, &suite),
        cmocka_unit_test_prestate(test_avg_pool, &suite),
        cmocka_unit_test_prestate(test_linear, &suite),
        cmocka_unit_test_prestate(test_dropout, &suite),
        cmocka_unit_test_prestate(test_softmax_xent, &suite),
        cmocka_unit_test_prestate(test_update, &suite),
        cmocka_unit_test_prestate(test_accumulate, &suite),
        cmocka_unit_test_prestate(test_overflow, &suite),
        cmocka_unit_test_prestate(test_networks, &suite),
        cmocka_unit_test_prestate(test_coverage, &suite),
    };
    int n_failed = cmocka_run_group_tests_name(backend->name, tests, NULL, NULL);
    printf("%s %s: %d runs, %d failed, %d fused cases not supported\n", backend->name,
           dt_precision_name(precision), suite.n_runs, suite.n_failed, suite.n_unsupported);
    return n_failed;
}

#endif
