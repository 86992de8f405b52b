/* The walk of the training list on a device with queues that only writes down what it is told:
 * when a step is recorded and replayed, per kind of pass, and what happens if that fails. */
#include <string.h>

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "dtrain/models.h"
#include "dtrain/plan.h"
#include "test.h"

/* r: an op, a: accumulate, A: accumulate, first; c: check, u: update, s: settle, f: feed, e: end
 * of feed, (: record, ): end of recording, digit: replay of that recording. Ops in a row count
 * once. */
static char told[4096];
static size_t n_told;
static int n_recorded;
static bool refuse_record;

static void tell(char what)
{
    if (what == 'r' && n_told > 0 && told[n_told - 1] == 'r')
        return;
    assert_true(n_told + 1 < sizeof told);
    told[n_told++] = what;
    told[n_told] = 0;
}

static dt_status queue_alloc(struct dt_device *dev, void **out, size_t bytes)
{
    (void)dev;
    *out = calloc(1, bytes);
    return *out ? DT_OK : DT_ERR_MEMORY;
}

static void queue_free(struct dt_device *dev, void *memory, size_t bytes)
{
    (void)dev;
    (void)bytes;
    free(memory);
}

static dt_status queue_prepare(struct dt_device *dev, struct dt_exec **exec,
                               const struct dt_graph *g, int node)
{
    (void)dev;
    (void)g;
    (void)node;
    *exec = NULL;
    return DT_OK;
}

static dt_status queue_autotune(struct dt_device *dev, dt_status prepared)
{
    (void)dev;
    return prepared;
}

static size_t queue_scratch(struct dt_device *dev, const struct dt_exec *exec)
{
    (void)dev;
    (void)exec;
    return 0;
}

static enum dt_dtype queue_dtype(struct dt_device *dev, const struct dt_graph *g, int tensor)
{
    (void)dev;
    return g->tensor[tensor].dtype;
}

static size_t queue_bytes(struct dt_device *dev, const struct dt_graph *g, int tensor)
{
    return dt_tensor_elements(&g->tensor[tensor]) * dt_dtype_bytes(queue_dtype(dev, g, tensor));
}

static dt_status queue_bind(struct dt_device *dev, struct dt_exec *exec, void *const *address,
                            void *scratch)
{
    (void)dev;
    (void)exec;
    (void)address;
    (void)scratch;
    return DT_OK;
}

static void queue_release(struct dt_device *dev, struct dt_exec *exec)
{
    (void)dev;
    (void)exec;
}

static dt_status queue_set_scalars(struct dt_device *dev, const struct dt_scalars *scalars)
{
    (void)dev;
    (void)scalars;
    return DT_OK;
}

static dt_status queue_run(struct dt_device *dev, struct dt_exec *exec)
{
    (void)dev;
    (void)exec;
    tell('r');
    return DT_OK;
}

static dt_status queue_accumulate(struct dt_device *dev, float *dst, const void *src,
                                  enum dt_dtype src_type, size_t count, bool first)
{
    (void)dev;
    (void)dst;
    (void)src;
    (void)src_type;
    (void)count;
    tell(first ? 'A' : 'a');
    return DT_OK;
}

static dt_status queue_update(struct dt_device *dev, const struct dt_update *update)
{
    (void)dev;
    assert_non_null(update->grads);
    tell('u');
    return DT_OK;
}

static dt_status queue_check(struct dt_device *dev, const void *grads, enum dt_dtype type,
                             size_t count, double *norms)
{
    (void)norms;
    (void)dev;
    (void)grads;
    (void)type;
    (void)count;
    tell('c');
    return DT_OK;
}

static dt_status queue_end_step(struct dt_device *dev)
{
    (void)dev;
    tell('s');
    return DT_OK;
}

static size_t feed_bytes; /* as announced */

static dt_status queue_open_feed(struct dt_device *dev, size_t bytes)
{
    (void)dev;
    feed_bytes = bytes;
    return DT_OK;
}

static dt_status queue_feed(struct dt_device *dev, void *dst, const void *src, size_t bytes)
{
    (void)dev;
    assert_true(bytes <= feed_bytes);
    memcpy(dst, src, bytes);
    tell('f');
    return DT_OK;
}

static dt_status queue_end_feed(struct dt_device *dev)
{
    (void)dev;
    tell('e');
    return DT_OK;
}

static dt_status queue_record(struct dt_device *dev)
{
    (void)dev;
    tell('(');
    return DT_OK;
}

static dt_status queue_end_record(struct dt_device *dev, struct dt_recording **out)
{
    (void)dev;
    tell(')');
    if (refuse_record)
        DT_FAIL(DT_ERR_DEVICE, "a node that cannot be recorded");
    *out = (struct dt_recording *)(intptr_t)++n_recorded;
    return DT_OK;
}

static dt_status queue_replay(struct dt_device *dev, struct dt_recording *recording)
{
    (void)dev;
    tell((char)('0' + (int)(intptr_t)recording));
    return DT_OK;
}

static void queue_release_recording(struct dt_device *dev, struct dt_recording *recording)
{
    (void)dev;
    (void)recording;
    n_recorded--;
}

static const struct dt_backend queue_backend = {
    .name = "queue",
    .alloc = queue_alloc,
    .free = queue_free,
    .prepare = queue_prepare,
    .autotune = queue_autotune,
    .scratch_bytes = queue_scratch,
    .dtype = queue_dtype,
    .tensor_bytes = queue_bytes,
    .bind = queue_bind,
    .set_scalars = queue_set_scalars,
    .run = queue_run,
    .release = queue_release,
    .update = queue_update,
    .accumulate = queue_accumulate,
    .check = queue_check,
    .end_step = queue_end_step,
    .open_feed = queue_open_feed,
    .feed = queue_feed,
    .end_feed = queue_end_feed,
    .record = queue_record,
    .end_record = queue_end_record,
    .replay = queue_replay,
    .release_recording = queue_release_recording,
};

/* Of the test that runs. */
static struct dt_graph *g;
static struct dt_plan *plan;

static void make_graph(bool mixed)
{
    static const double mean[3] = {0.5, 0.5, 0.5}, std[3] = {0.2, 0.2, 0.2};
    const struct dt_model *model = dt_model_find("tiny");
    const struct dt_model_options options = {.num_classes = 10};
    assert_int_equal(dt_graph_create(&g), DT_OK);
    for (int phase = 0; phase < DT_N_PHASES; phase++) {
        assert_int_equal(dt_graph_begin(g, phase, 2, 32, 32), DT_OK);
        if (mixed && phase == DT_TRAIN)
            assert_int_equal(dt_graph_mix_labels(g), DT_OK);
        int image = dt_graph_ingest(g, mean, std);
        dt_graph_softmax_xent(g, model->build(g, image, model, &options), 0);
    }
    assert_int_equal(dt_graph_differentiate(g), DT_OK);
}

static void expect(const char *what)
{
    assert_string_equal(told, what);
    n_told = 0;
    told[0] = 0;
}

/* One bucket, so that the list is short. */
static void make_plan(bool mixed, struct dt_plan_options options)
{
    make_graph(mixed);
    options.bucket_bytes = options.last_bucket_bytes = 1 << 30;
    options.n_ranks = 1;
    assert_int_equal(dt_plan_build(&plan, g, &queue_backend, NULL, NULL, &options), DT_OK);
    assert_int_equal(plan->n_buckets, 1);
    n_told = 0;
    told[0] = 0;
}

static int close_plan(void **state)
{
    (void)state;
    refuse_record = false;
    dt_plan_destroy(plan);
    dt_graph_destroy(g);
    plan = NULL;
    g = NULL;
    assert_int_equal(n_recorded, 0);
    return 0;
}

static void train(int n_steps, int n_passes)
{
    const struct dt_scalars scalars = {.lr = 1};
    for (int step = 0; step < n_steps; step++)
        for (int pass = 0; pass < n_passes; pass++)
            assert_int_equal(dt_plan_train(plan, DT_TRAIN, &scalars, pass, n_passes), DT_OK);
}

TEST_WITH(recorded_after_warm_up, NULL, close_plan)
{
    make_plan(false, (struct dt_plan_options){.record = true});
    train(6, 1);
    expect("rcusrcusrcus(rcus)111");
    assert_int_equal(dt_plan_eval(plan, DT_EVAL), DT_OK);
    train(1, 1);
    expect("r1");
}

/* Three kinds of passes, each with a recording of its own. */
TEST_WITH(every_kind_of_pass, NULL, close_plan)
{
    make_plan(false, (struct dt_plan_options){.record = true, .accumulate = true});
    train(1, 4);
    expect("rArararacus");
    train(2, 4); /* the fourth middle pass is the first one recorded */
    expect("rAra(ra)1racusrA11racus");
    train(2, 4);
    expect("(rA)211(racus)32113");
}

TEST_WITH(not_asked_for, NULL, close_plan)
{
    make_plan(false, (struct dt_plan_options){.record = false});
    train(5, 1);
    expect("rcusrcusrcusrcusrcus");
}

/* The step that could not be recorded is walked, and so are all after it. */
TEST_WITH(refused, NULL, close_plan)
{
    make_plan(false, (struct dt_plan_options){.record = true});
    refuse_record = true;
    train(6, 1);
    expect("rcusrcusrcus(rcus)rcusrcusrcus");
}

TEST_WITH(feed, NULL, close_plan)
{
    make_plan(false, (struct dt_plan_options){.record = true});
    static const uint8_t pixels[2 * 32 * 32 * 3];
    const int32_t labels[2] = {0};
    const struct dt_feed batch = {.pixels = pixels, .labels = labels};
    assert_int_equal(dt_plan_feed(plan, DT_TRAIN, &batch), DT_OK);
    train(1, 1);
    assert_int_equal(dt_plan_end_feed(plan), DT_OK);
    expect("ffrcuse");
}

static const void *input_of(int tensor)
{
    return (const char *)plan->arena[DT_ARENA_WORK] + plan->place[tensor].offset;
}

/* Each input gets to its place; the evaluation has none of the second ones. */
TEST_WITH(feed_mixed, NULL, close_plan)
{
    make_plan(true, (struct dt_plan_options){.record = true});
    static const uint8_t pixels[2 * 32 * 32 * 3] = {7};
    const int32_t labels[2] = {1, 2}, labels2[2] = {3, 4};
    const float shares[2] = {0.75f, 0.5f};
    const struct dt_feed plain = {.pixels = pixels, .labels = labels};
    const struct dt_feed mixed = {
        .pixels = pixels, .labels = labels, .labels2 = labels2, .mix_share = shares};
    assert_int_equal(dt_plan_feed(plan, DT_TRAIN, &mixed), DT_OK);
    expect("ffff");
    assert_memory_equal(input_of(g->program[DT_TRAIN].pixels), pixels, sizeof pixels);
    assert_memory_equal(input_of(g->program[DT_TRAIN].labels), labels, sizeof labels);
    assert_memory_equal(input_of(g->program[DT_TRAIN].labels2), labels2, sizeof labels2);
    assert_memory_equal(input_of(g->program[DT_TRAIN].mix_share), shares, sizeof shares);
    assert_int_equal(dt_plan_feed(plan, DT_EVAL, &mixed), DT_OK);
    expect("ff");
    assert_int_equal(dt_plan_feed(plan, DT_TRAIN, &plain), DT_ERR_INTERNAL);
    assert_non_null(strstr(dt_error_text(), "the batch has no labels2"));
}

int main(void)
{
    dt_log_init(DT_LOG_ERROR, 0, 1);
    return run_all_tests(NULL, NULL);
}
