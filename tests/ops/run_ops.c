#include "run_ops.h"

#include "activation.h"
#include "arena_cases.h"
#include "branch.h"
#include "concat.h"
#include "conv.h"
#include "detect.h"
#include "fusions.h"
#include "linear.h"
#include "loss.h"
#include "net_cases.h"
#include "norm.h"
#include "pointwise.h"
#include "pool.h"
#include "top_detections.h"

static const struct op_test *op_test_of(enum dt_op op)
{
    static const struct op_test *const table[DT_N_OPS] = {
#define ROW(NAME, name, ...) [DT_OP_##NAME] = &op_test_##name,
        DT_OP_LIST(ROW)
#undef ROW
    };
    return table[op];
}

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

enum { OP_TESTS = DT_COUNT(((struct op_test *)NULL)->tests) };

/* The tests of every op in the order of the op list; cmocka skips empty entries. */
static void list_op_tests(struct CMUnitTest *tests, struct suite *suite)
{
    for (int i = 0; i < DT_N_OPS * OP_TESTS; i++) {
        tests[i] = op_test_of(i / OP_TESTS)->tests[i % OP_TESTS];
        tests[i].initial_state = suite;
    }
}

int run_ops(const struct dt_backend *backend, enum dt_precision precision,
            enum dt_tensor_layout layout, bool few_images)
{
    struct suite suite = {.backend = backend,
                          .bound = case_bound,
                          .few_images = few_images,
                          .options = {.threads = 2,
                                      .deterministic = true,
                                      .seed = CASE_SEED,
                                      .layout = layout,
                                      .precision = precision,
                                      .loss_scale = precision == DT_PRECISION_FP16 ? 1 : 0}};
    const struct CMUnitTest fusions[] = {
#define ROW(NAME, name, ...) cmocka_unit_test_prestate(test_fusion_##name, &suite),
        DT_FUSION_LIST(ROW)
#undef ROW
    };
    const struct CMUnitTest others[] = {
        cmocka_unit_test_prestate(test_update, &suite),
        cmocka_unit_test_prestate(test_accumulate, &suite),
        cmocka_unit_test_prestate(test_lerp, &suite),
        cmocka_unit_test_prestate(test_clip, &suite),
        cmocka_unit_test_prestate(test_overflow, &suite),
        cmocka_unit_test_prestate(test_networks, &suite),
        cmocka_unit_test_prestate(test_coverage, &suite),
    };
    struct CMUnitTest tests[DT_N_OPS * OP_TESTS + DT_COUNT(fusions) + DT_COUNT(others)];
    list_op_tests(tests, &suite);
    memcpy(tests + DT_N_OPS * OP_TESTS, fusions, sizeof fusions);
    memcpy(tests + DT_N_OPS * OP_TESTS + DT_COUNT(fusions), others, sizeof others);
    cmocka_set_test_filter(getenv("DTRAIN_TEST")); /* such as test_conv; NULL: all */
    int n_failed = cmocka_run_group_tests_name(backend->name, tests, NULL, NULL);
    printf("%s %s: %d runs, %d failed, %d fused cases not supported\n", backend->name,
           dt_precision_name(precision), suite.n_runs, suite.n_failed, suite.n_unsupported);
    return n_failed;
}
