/* The choice of convolution algorithms on a device: measured and kept, taken from the file only if
 * it is the same plan, forced by an option, and never one that sums in 16 bits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <unistd.h>

#include "base/mem.h"
#include "cuda/conv.h"
#include "cuda/internal.h"
#include "need_gpu.h"
#include "plan_cache_folder.h"

#define OK(call) assert_string_equal((call) == DT_OK ? "" : dt_error_text(), "")

static const struct dt_backend *const CUDA = &dt_backend_cuda;

static char log_path[DT_PATH_MAX];

static int make_base_and_log(void **state)
{
    return make_base(state) == 0 && dt_file_path(log_path, "%s/log", base) == DT_OK ? 0 : -1;
}

/* conv1 reads the image, so it has no bwd_data. */
static struct dt_graph *make_graph(void)
{
    static const double zeros[3] = {0, 0, 0}, ones[3] = {1, 1, 1};
    const struct dt_conv_options options = {.out_channels = 16, .kernel = 3, .stride = 1, .pad = 1};
    struct dt_graph *g = NULL;
    OK(dt_graph_create(&g));
    for (int phase = 0; phase < DT_N_PHASES; phase++) {
        OK(dt_graph_begin(g, (enum dt_phase)phase, 4, 8));
        int x = dt_graph_ingest(g, zeros, ones);
        x = dt_graph_conv(g, x, "conv1", options);
        x = dt_graph_conv(g, x, "conv2", options);
        x = dt_graph_linear(g, x, "fc", 5, (struct dt_init){0}, (struct dt_init){0});
        dt_graph_softmax_xent(g, x, 0);
    }
    OK(dt_graph_fuse(g, NULL, NULL));
    OK(dt_graph_differentiate(g));
    OK(dt_graph_check(g));
    return g;
}

enum { N_PROBLEMS = 5 }; /* 2 forward, 1 bwd_data, 2 bwd_weights */

/* The plan is the one that the choice names, and its engine is allowed. */
static void check_problem(struct dt_device *dev, const struct dt_conv_problem *p)
{
    const struct dt_dnn_target target = {.handle = dev->dnn};
    struct dt_dnn_offer *offer = NULL;
    struct dt_dnn_engine engine;
    assert_non_null(p->plan.plan);
    assert_string_equal(p->plan.tag, p->choice.tag);
    assert_memory_equal(p->choice.tag, "eng", 3);
    OK(dt_dnn_offer_create(&offer, &target, &p->task));
    OK(dt_dnn_engine(&engine, offer, (int)p->choice.candidate));
    assert_int_equal(engine.index, strtoll(p->choice.tag + 3, NULL, 10));
    assert_false(engine.numerical & 1u << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION);
    dt_dnn_offer_destroy(offer);
}

/* Chooses for all convolutions of the graph, with stderr in the file log_path. */
static void choose(struct dt_conv_choice out[N_PROBLEMS], int conv_candidate)
{
    const struct dt_device_options options = {.threads = 1,
                                              .precision = DT_PRECISION_FP16,
                                              .timeout_s = 120,
                                              .cache_dir = folder,
                                              .conv_candidate = conv_candidate};
    struct dt_device *dev = NULL;
    struct dt_exec *exec[64] = {NULL};
    struct dt_graph *g = make_graph();
    struct dt_choice choice;
    int n = 0, n_chosen = 0, old = dup(STDERR_FILENO);
    assert_in_range(g->n_nodes, 1, DT_COUNT(exec));
    OK(CUDA->open(&dev, &options));
    for (int i = 0; i < g->n_nodes; i++)
        OK(CUDA->prepare(dev, &exec[i], g, i));
    assert_non_null(freopen(log_path, "w", stderr));
    dt_status status = CUDA->choose(dev, DT_OK);
    fflush(stderr);
    assert_int_equal(dup2(old, STDERR_FILENO), STDERR_FILENO);
    close(old);
    OK(status);
    for (const struct dt_conv_problem *p = dev->problems; p; p = p->next) {
        check_problem(dev, p);
        assert_in_range(n, 0, N_PROBLEMS - 1);
        out[n++] = p->choice;
    }
    assert_int_equal(n, N_PROBLEMS);
    for (int i = 0; i < g->n_nodes; i++)
        if (CUDA->chosen(dev, exec[i], 0, &choice)) {
            const struct dt_conv_choice *own = &exec[i]->problem->choice;
            assert_string_equal(choice.way, own->tag);
            assert_string_equal(choice.runner_up, own->runner_up);
            n_chosen++;
        }
    assert_int_equal(n_chosen, 2 + 2 + 1 + 2); /* the forward ones in both phases */
    for (int i = 0; i < g->n_nodes; i++)
        CUDA->release(dev, exec[i]);
    dt_graph_destroy(g);
    CUDA->close(dev);
}

static int count_in(const char *file, const char *what)
{
    char *text = NULL;
    size_t bytes;
    int n = 0;
    OK(dt_file_load(&text, &bytes, file, 1 << 20));
    for (const char *p = text; (p = strstr(p, what)); p++)
        n++;
    free(text);
    return n;
}

static bool is_close(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fabs(b);
}

static void check_measured(const struct dt_conv_choice *choice)
{
    for (int i = 0; i < N_PROBLEMS; i++) {
        assert_true(choice[i].seconds > 0);
        if (choice[i].runner_up[0]) /* "": all others failed */
            assert_true(choice[i].runner_up_s >= choice[i].seconds);
    }
}

/* The second run takes the first one's choices, with the times of then. */
static void test_kept(void **state)
{
    struct dt_conv_choice first[N_PROBLEMS], second[N_PROBLEMS];
    (void)state;
    choose(first, 0);
    check_measured(first);
    assert_int_equal(count_in(log_path, "warning"), 0);
    choose(second, 0);
    assert_int_equal(count_in(log_path, "warning"), 0);
    for (int i = 0; i < N_PROBLEMS; i++) {
        assert_string_equal(first[i].tag, second[i].tag);
        assert_string_equal(first[i].runner_up, second[i].runner_up);
        assert_true(is_close(second[i].seconds, first[i].seconds));
        assert_true(is_close(second[i].runner_up_s, first[i].runner_up_s));
    }
}

/* Replaces `from` by `to`, of the same length, everywhere in the file of choices. */
static void edit(const char *from, const char *to)
{
    char *text = NULL;
    size_t bytes;
    OK(dt_file_load(&text, &bytes, path, 1 << 20));
    assert_int_equal(strlen(from), strlen(to));
    for (char *p = text; (p = strstr(p, from));)
        memcpy(p, to, strlen(to));
    OK(dt_file_save(path, text, bytes));
    free(text);
}

/* What is kept names another plan than cuDNN makes: one sentence, and all is measured again. */
static void test_other_plan(void **state)
{
    static const char *const edits[][2] = {{"\"plan\": \"eng", "\"plan\": \"ENG"},
                                           {"\"candidate\": ", "\"candidate\":9"}};
    struct dt_conv_choice choice[N_PROBLEMS];
    (void)state;
    for (size_t k = 0; k < DT_COUNT(edits); k++) {
        choose(choice, 0);
        assert_int_equal(count_in(path, edits[k][0]), N_PROBLEMS);
        edit(edits[k][0], edits[k][1]);
        choose(choice, 0);
        check_measured(choice);
        assert_int_equal(count_in(log_path, "warning"), 1);
        assert_int_equal(count_in(log_path, "chosen anew"), 1);
        assert_int_equal(count_in(path, edits[k][0]), N_PROBLEMS);
        assert_int_equal(count_in(path, edits[k][1]), 0);
    }
    edit("\"version\": 2", "\"version\": 1");
    choose(choice, 0);
    check_measured(choice);
    assert_int_equal(count_in(log_path, "warning"), 1);
    assert_int_equal(count_in(log_path, "chosen anew"), 1);
}

/* The first usable candidate from a number on, which the option asks for. */
static int find_usable(struct dt_device *dev, const struct dt_conv_task *task, int number)
{
    const struct dt_conv_rules rules = dt_conv_rules(&dev->options);
    const struct dt_dnn_target target = {.handle = dev->dnn};
    struct dt_dnn_offer *offer = NULL;
    struct dt_dnn_plan plan;
    OK(dt_dnn_offer_create(&offer, &target, task));
    int n = offer->n_candidates, i = (number - 1) % n;
    while (dt_conv_try(&plan, &target, offer, &rules, task->type, i) != DT_OK)
        i = (i + 1) % n;
    dt_dnn_plan_destroy(&plan);
    dt_dnn_offer_destroy(offer);
    return i;
}

static void test_forced(void **state)
{
    const struct dt_conv_task task = {DT_CONV_FORWARD, DT_F16, 4, 16, 8, 8, 16, 3, 3, 1, 1,
                                      DT_CONV_PLAIN}; /* conv2 */
    const struct dt_device_options options = {.threads = 1, .precision = DT_PRECISION_FP16};
    struct dt_device *dev = NULL;
    bool differs = false;
    (void)state;
    OK(CUDA->open(&dev, &options));
    for (int number = 1; number <= 10; number++) {
        struct dt_conv_choice choice[N_PROBLEMS];
        choose(choice, number);
        assert_int_equal(choice[1].candidate, find_usable(dev, &task, number));
        differs = differs || choice[1].candidate != find_usable(dev, &task, 1);
        for (int i = 0; i < N_PROBLEMS; i++)
            assert_true(isnan(choice[i].seconds) && !choice[i].runner_up[0]);
        assert_false(dt_file_exists(path)); /* it is not for others */
    }
    assert_true(differs);
    CUDA->close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_kept, set_up),
        cmocka_unit_test_setup(test_other_plan, set_up),
        cmocka_unit_test_setup(test_forced, set_up),
    };
    if (!has_gpu())
        return SKIPPED;
    return cmocka_run_group_tests(tests, make_base_and_log, remove_base);
}
