/* The choices on a device. Convolution algorithms: measured and kept, taken from the file only if
 * it is the same plan, forced by an option, and never one that sums in 16 bits. Fusions of nodes:
 * measured once for all that are the same work, kept, shared, and apart where together is refused.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unistd.h>

#include "algo_cache_folder.h"
#include "base/mem.h"
#include "cuda/cuda_conv.h"
#include "cuda/fusion.h"
#include "need_gpu.h"
#include "test.h"

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
        OK(dt_graph_begin(g, (enum dt_phase)phase, 4, 8, 8));
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
    struct dt_dnn_configs *configs = NULL;
    struct dt_dnn_engine engine;
    assert_non_null(p->exec.plan);
    assert_string_equal(p->exec.tag, p->choice.tag);
    assert_memory_equal(p->choice.tag, "eng", 3);
    OK(dt_dnn_configs_create(&configs, &target, &p->task));
    OK(dt_dnn_engine(&engine, configs, (int)p->choice.candidate));
    assert_int_equal(engine.index, strtoll(p->choice.tag + 3, NULL, 10));
    assert_false(engine.numerical & 1u << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION);
    dt_dnn_configs_destroy(configs);
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
    dt_status status = CUDA->autotune(dev, DT_OK);
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
        if (CUDA->choice_of(dev, exec[i], 0, &choice)) {
            const struct dt_conv_choice *own = &exec[i]->problem->choice;
            assert_string_equal(choice.algorithm, own->tag);
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
TEST_WITH(kept, set_up, NULL)
{
    struct dt_conv_choice first[N_PROBLEMS], second[N_PROBLEMS];
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
TEST_WITH(other_plan, set_up, NULL)
{
    static const char *const edits[][2] = {{"\"plan\": \"eng", "\"plan\": \"ENG"},
                                           {"\"candidate\": ", "\"candidate\":9"}};
    struct dt_conv_choice choice[N_PROBLEMS];
    for (size_t k = 0; k < DT_COUNT(edits); k++) {
        choose(choice, 0);
        assert_int_equal(count_in(path, edits[k][0]), N_PROBLEMS);
        edit(edits[k][0], edits[k][1]);
        choose(choice, 0);
        check_measured(choice);
        assert_int_equal(count_in(log_path, "warning"), 1);
        assert_int_equal(count_in(log_path, "chosen again"), 1);
        assert_int_equal(count_in(path, edits[k][0]), N_PROBLEMS);
        assert_int_equal(count_in(path, edits[k][1]), 0);
    }
    edit("\"version\": 2", "\"version\": 1");
    choose(choice, 0);
    check_measured(choice);
    assert_int_equal(count_in(log_path, "warning"), 1);
    assert_int_equal(count_in(log_path, "chosen again"), 1);
}

/* The first usable candidate from a number on, which the option asks for. */
static int find_usable(struct dt_device *dev, const struct dt_conv_task *task, int number)
{
    const struct dt_conv_rules rules = dt_conv_rules(&dev->options);
    const struct dt_dnn_target target = {.handle = dev->dnn};
    struct dt_dnn_configs *configs = NULL;
    struct dt_dnn_exec exec;
    OK(dt_dnn_configs_create(&configs, &target, task));
    int n = configs->n_candidates, i = (number - 1) % n;
    while (dt_conv_try(&exec, &target, configs, &rules, task->type, i) != DT_OK)
        i = (i + 1) % n;
    dt_dnn_exec_destroy(&exec);
    dt_dnn_configs_destroy(configs);
    return i;
}

TEST_WITH(forced, set_up, NULL)
{
    const struct dt_conv_task task = {DT_CONV_FORWARD, DT_F16, 4, 16, 8, 8, 16, 3, 3, 1, 1, 1, 1,
                                      DT_CONV_PLAIN}; /* conv2 */
    const struct dt_device_options options = {.threads = 1, .precision = DT_PRECISION_FP16};
    struct dt_device *dev = NULL;
    bool differs = false;
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

/* --- Fusions --- */

enum { MAX_GROUPS = 32, MAX_NODES = 64, MAX_BLOCKS = 128 };

struct variant {
    char text[DT_FUSION_TEXT_MAX];
    struct dt_conv_choice choice;
    enum dt_fusion_kind kind;
    bool together, has_conv;
};

static int add_conv_bn(struct dt_graph *g, int src, const char *name, int kernel)
{
    char bn[DT_NAME_MAX];
    const struct dt_conv_options options = {
        .out_channels = 16, .kernel = kernel, .stride = 1, .pad = kernel / 2};
    snprintf(bn, sizeof bn, "%s.bn", name);
    return dt_graph_bn(g, dt_graph_conv(g, src, name, options), bn, 1);
}

/* "c" and "d" are the same work, "e" differs from them in the window only. */
static struct dt_graph *make_fusions_graph(void)
{
    static const double zeros[3] = {0, 0, 0}, ones[3] = {1, 1, 1};
    struct dt_graph *g = NULL;
    OK(dt_graph_create(&g));
    OK(dt_graph_begin(g, DT_TRAIN, 4, 8, 8));
    int x = dt_graph_relu(g, add_conv_bn(g, dt_graph_ingest(g, zeros, ones), "a", 3), "a.relu");
    x = dt_graph_max_pool(g, x, "pool", 3, 1, 1);
    int y = add_conv_bn(g, x, "b", 1);
    x = dt_graph_relu(g, add_conv_bn(g, x, "c", 3), "c.relu");
    x = dt_graph_relu(g, add_conv_bn(g, x, "d", 3), "d.relu");
    x = dt_graph_relu(g, add_conv_bn(g, x, "e", 1), "e.relu");
    x = dt_graph_relu(g, dt_graph_add(g, add_conv_bn(g, x, "f", 3), y, "add"), "f.relu");
    x = dt_graph_linear(g, x, "fc", 5, (struct dt_init){0}, (struct dt_init){0});
    dt_graph_softmax_xent(g, x, 0);
    OK(dt_graph_fuse(g, NULL, NULL));
    OK(dt_graph_differentiate(g));
    OK(dt_graph_check(g));
    return g;
}

/* Each fusion is listed once, with its first node. */
static void check_listed(struct dt_device *dev, const struct dt_graph *g,
                         struct dt_exec *const *exec, int n_fusions)
{
    struct dt_choice choice;
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; CUDA->choice_of(dev, exec[i], k, &choice); k++) {
            n += choice.fusion != NULL;
            assert_true(choice.fusion || k == 0);
            assert_true(!choice.fusion || strcmp(choice.algorithm, "apart") == 0 ||
                        strcmp(choice.algorithm, "together") == 0);
        }
    assert_int_equal(n, n_fusions);
}

static int read_variants(struct variant out[MAX_GROUPS], struct dt_device *dev)
{
    int n = 0;
    for (const struct dt_cuda_fusion *fusion = dev->fusions; fusion; fusion = fusion->next) {
        assert_in_range(n, 0, MAX_GROUPS - 1);
        out[n].choice = fusion->choice;
        out[n].kind = fusion->kind;
        out[n].together = dt_cuda_partner(fusion->exec[0], fusion->kind, 0, 1) != NULL;
        out[n].has_conv = fusion->problem[0] != NULL;
        assert_string_equal(fusion->choice.tag, out[n].together ? "together" : "apart");
        snprintf(out[n].text, sizeof out[n].text, "%s", fusion->task->text);
        n++;
    }
    return n;
}

/* All memory that is left, to the last 256 bytes. */
static int take_memory(void *block[MAX_BLOCKS])
{
    int n = 0;
    for (size_t bytes = (size_t)1 << 40; bytes >= 256 && n < MAX_BLOCKS;)
        if (cudaMalloc(&block[n], bytes) == cudaSuccess)
            n++;
        else
            bytes /= 2;
    (void)cudaGetLastError();
    return n;
}

static int choose_variants(struct variant out[MAX_GROUPS], const struct dt_device_options *options,
                           bool has_memory)
{
    struct dt_device *dev = NULL;
    struct dt_exec *exec[MAX_NODES] = {NULL};
    struct dt_graph *g = make_fusions_graph();
    struct dt_fusion *fusions = NULL;
    void *block[MAX_BLOCKS];
    int n = 0;
    assert_in_range(g->n_nodes, 1, MAX_NODES);
    OK(CUDA->open(&dev, options));
    for (int i = 0; i < g->n_nodes; i++)
        OK(CUDA->prepare(dev, &exec[i], g, i));
    OK(dt_graph_fusions(g, &fusions, &n));
    for (int i = 0; i < n; i++)
        OK(CUDA->propose_fusion(dev, &fusions[i], exec));
    int n_blocks = has_memory ? 0 : take_memory(block);
    OK(CUDA->autotune(dev, DT_OK));
    assert_string_equal(dt_error_text(), "");
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    while (n_blocks > 0)
        (void)cudaFree(block[--n_blocks]);
    n = read_variants(out, dev);
    check_listed(dev, g, exec, n);
    for (int i = 0; i < g->n_nodes; i++)
        CUDA->release(dev, exec[i]);
    assert_null(dev->fusions);
    free(fusions);
    dt_graph_destroy(g);
    CUDA->close(dev);
    return n;
}

static struct dt_device_options with_fusion(enum dt_fusion_mode fusion)
{
    return (struct dt_device_options){.threads = 1,
                                      .precision = DT_PRECISION_FP16,
                                      .timeout_s = 120,
                                      .cache_dir = folder,
                                      .fusion = fusion};
}

static int count_ways_in_file(void)
{
    return count_in(path, "\"plan\": \"together\"") + count_in(path, "\"plan\": \"apart\"");
}

/* Fusions with the same text share a measurement; returns the number of texts that have one. */
static int count_measured(const struct variant *variant, int n)
{
    int n_texts = 0;
    for (int i = 0; i < n; i++) {
        int k = 0;
        while (strcmp(variant[k].text, variant[i].text) != 0)
            k++;
        assert_int_equal(variant[k].together, variant[i].together);
        if (!isnan(variant[i].choice.seconds))
            assert_true(variant[k].choice.seconds == variant[i].choice.seconds);
        n_texts += k == i && !isnan(variant[i].choice.seconds);
    }
    return n_texts;
}

static void check_same(const struct variant *a, const struct variant *b, int n)
{
    for (int i = 0; i < n; i++) {
        assert_string_equal(a[i].text, b[i].text);
        assert_string_equal(a[i].choice.tag, b[i].choice.tag);
        assert_true((isnan(a[i].choice.seconds) && isnan(b[i].choice.seconds)) ||
                    is_close(a[i].choice.seconds, b[i].choice.seconds));
    }
}

TEST_WITH(fusions_kept, set_up, NULL)
{
    const struct dt_device_options options = with_fusion(DT_FUSION_AUTO);
    struct variant first[MAX_GROUPS], second[MAX_GROUPS];
    const char *conv_bn[MAX_GROUPS];
    int n_conv_bn = 0;
    const int n = choose_variants(first, &options, true);
    for (int i = 0; i < n; i++)
        if (first[i].kind == DT_FUSION_CONV_BN)
            conv_bn[n_conv_bn++] = first[i].text;
    assert_int_equal(n_conv_bn, 6);
    assert_string_equal(conv_bn[2], conv_bn[3]);
    assert_string_not_equal(conv_bn[3], conv_bn[4]);
    assert_int_equal(count_measured(first, n), count_ways_in_file());
    assert_int_equal(choose_variants(second, &options, true), n);
    check_same(first, second, n);
    edit("\"plan\": \"together\"", "\"plan\": \"TOGETHER\"");
    edit("\"plan\": \"apart\"", "\"plan\": \"APART\"");
    assert_int_equal(choose_variants(second, &options, true), n);
    assert_int_equal(count_measured(second, n), count_ways_in_file());
}

/* Nothing that was not measured is kept. */
TEST_WITH(fusions_on, set_up, NULL)
{
    const struct dt_device_options options = with_fusion(DT_FUSION_ON);
    struct variant variant[MAX_GROUPS];
    const int n = choose_variants(variant, &options, true);
    assert_int_equal(count_measured(variant, n), 0);
    assert_int_equal(count_ways_in_file(), 0);
    const struct dt_device_options off = with_fusion(DT_FUSION_OFF);
    assert_int_equal(choose_variants(variant, &off, true), 0);
}

/* cuDNN has no fused convolutions in fp32, whatever the file says. */
TEST_WITH(fusions_refused, set_up, NULL)
{
    struct dt_device_options options = with_fusion(DT_FUSION_AUTO);
    struct variant variant[MAX_GROUPS];
    struct dt_algo_cache *cache = NULL;
    struct dt_device *dev = NULL;
    const struct dt_conv_choice together = {DT_FUSION_FUSED, "together", "", 1e-6, NAN};
    char scope[128];
    options.precision = DT_PRECISION_FP32;
    for (int time = 0; time < 2; time++) {
        const int n = choose_variants(variant, &options, true);
        OK(CUDA->open(&dev, &options));
        snprintf(scope, sizeof scope, "%s, cuDNN %lld", dev->name, (long long)cudnnGetVersion());
        CUDA->close(dev);
        OK(dt_algo_cache_open(&cache, folder, scope));
        for (int i = 0; i < n; i++)
            if (variant[i].kind == DT_FUSION_CONV_BN) {
                assert_false(variant[i].together);
                OK(dt_algo_cache_put(cache, variant[i].text, &together));
            }
        dt_algo_cache_save(cache);
        dt_algo_cache_close(cache);
        assert_in_range(count_in(path, "\"none\""), 1, MAX_GROUPS); /* not asked again */
    }
}

/* The algorithms of convolutions are kept, so only fusions would be timed: our own kernels are
 * taken as they are better, cuDNN's not. */
TEST_WITH(fusions_without_memory, set_up, NULL)
{
    const struct dt_device_options options = with_fusion(DT_FUSION_AUTO);
    struct variant variant[MAX_GROUPS];
    if (!is_emulated())
        return;
    choose_variants(variant, &options, true);
    edit("\"plan\": \"together\"", "\"plan\": \"TOGETHER\"");
    edit("\"plan\": \"apart\"", "\"plan\": \"APART\"");
    const int n = choose_variants(variant, &options, false);
    for (int i = 0; i < n; i++) {
        assert_true(isnan(variant[i].choice.seconds));
        assert_int_equal(variant[i].together, !variant[i].has_conv);
    }
    assert_int_equal(count_ways_in_file(), 0);
}

/* What rank 0 sent. */
static char sent[1 << 16];

static dt_status send_all(void *context, dt_status mine, void *data, size_t bytes)
{
    (void)context;
    assert_in_range(bytes, 1, sizeof sent);
    memcpy(sent, data, bytes);
    return mine;
}

static dt_status receive_all(void *context, dt_status mine, void *data, size_t bytes)
{
    (void)context;
    memcpy(data, sent, bytes);
    return mine;
}

TEST_WITH(fusions_shared, set_up, NULL)
{
    struct dt_device_options options = with_fusion(DT_FUSION_AUTO);
    struct variant first[MAX_GROUPS], second[MAX_GROUPS];
    options.n_ranks = 2;
    options.share = send_all;
    const int n = choose_variants(first, &options, true);
    options.rank = 1;
    options.cache_dir = NULL;
    options.share = receive_all;
    assert_int_equal(choose_variants(second, &options, true), n);
    check_same(first, second, n);
}

GPU_TEST_MAIN(make_base_and_log, remove_base)
