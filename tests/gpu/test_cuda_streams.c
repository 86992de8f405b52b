/* The CUDA device without its ops: opening, transfers, feeding, order of the streams, recordings,
 * the deadline of waiting. Work is what the backend offers without a graph: sums of long vectors.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cuda/cuda_internal.h"
#include "dtrain/gpu.h"
#include "need_gpu.h"
#include "test.h"

#define OK(call) assert_string_equal((call) == DT_OK ? "" : dt_error_text(), "")

static const struct dt_backend *const CUDA = &dt_backend_cuda;

enum { COUNT = 4096, N_PASSES = 12, FEED_BYTES = 1000, N_FED = 256 /* floats of it are read */ };

static struct dt_device *open_device(enum dt_precision precision)
{
    const struct dt_device_options options = {
        .threads = 1, .precision = precision, .timeout_s = 120};
    struct dt_device *dev = NULL;
    OK(CUDA->open(&dev, &options));
    return dev;
}

/* Vectors of COUNT floats. */
static float *make(struct dt_device *dev)
{
    void *memory = NULL;
    OK(CUDA->alloc(dev, &memory, COUNT * sizeof(float)));
    return memory;
}

static void fill(struct dt_device *dev, float *memory, float value)
{
    float host[COUNT];
    for (int i = 0; i < COUNT; i++)
        host[i] = value;
    OK(CUDA->upload(dev, memory, host, sizeof host));
}

/* What is in device memory when all work is done. */
static void read_raw(struct dt_device *dev, void *out, const void *memory, size_t bytes)
{
    OK(CUDA->sync(dev));
    OK(DT_CUDA("reading",
               cudaMemcpyAsync(out, memory, bytes, cudaMemcpyDeviceToHost, dev->compute)));
    OK(CUDA->sync(dev));
}

static void check_value(struct dt_device *dev, const float *memory, float value)
{
    float host[COUNT];
    read_raw(dev, host, memory, sizeof host);
    for (int i = 0; i < COUNT; i++)
        if (host[i] != value)
            fail_msg("element %d is %g, should be %g", i, (double)host[i], (double)value);
}

/* Work that keeps the compute stream busy. */
static void be_busy(struct dt_device *dev, float *memory, int n)
{
    for (int i = 0; i < n; i++)
        OK(CUDA->accumulate(dev, memory, memory + COUNT / 2, DT_F32, COUNT / 2, true));
}

/* The comm stream's work: dst = src, as NCCL would be put there. */
static void copy_on_comm(struct dt_device *dev, float *dst, const float *src)
{
    cudaStream_t comm = CUDA->comm_stream(dev);
    OK(DT_CUDA("copy",
               cudaMemcpyAsync(dst, src, COUNT * sizeof(float), cudaMemcpyDeviceToDevice, comm)));
}

/* --- */

TEST(open)
{
    static const char *const names[] = {"fp32", "tf32", "bf16", "fp16"};
    for (int p = DT_PRECISION_FP32; p <= DT_PRECISION_FP16; p++) {
        char text[256], identity[DT_IDENTITY_MAX] = "";
        struct dt_device *dev = open_device((enum dt_precision)p);
        CUDA->describe(dev, text, sizeof text);
        assert_ptr_equal(strstr(text, "cuda:0 "), text);
        assert_non_null(strstr(text, "cuDNN 9."));
        assert_string_equal(text + strlen(text) - 4, names[p]);
        CUDA->identity(dev, identity);
        assert_int_equal(strlen(identity), 32);
        assert_true(CUDA->free_bytes(dev) > 0);
        struct dt_loss_scale scale = {0};
        OK(CUDA->get_loss_scale(dev, &scale));
        assert_true(scale.scale == (p == DT_PRECISION_FP16 ? DT_SCALE_START : 1));
        assert_int_equal(scale.n_clean, 0);
        struct dt_counters counters;
        OK(CUDA->download(dev, &counters));
        assert_true(counters.n == 0 && counters.loss == 0 && counters.n_skipped == 0);
        CUDA->close(dev);
    }
    CUDA->close(NULL);
}

TEST(options)
{
    char folder[] = "/tmp/somewhere";
    struct dt_device_options options = {.threads = 1,
                                        .precision = DT_PRECISION_FP16,
                                        .loss_scale = 128,
                                        .timeout_s = 120,
                                        .local_rank = 1000,
                                        .cache_dir = folder};
    struct dt_device *dev = NULL;
    struct dt_loss_scale scale;
    OK(CUDA->open(&dev, &options)); /* ranks beyond the number of GPUs share them */
    folder[1] = '\0';
    assert_string_equal(dev->options.cache_dir, "/tmp/somewhere");
    OK(CUDA->get_loss_scale(dev, &scale));
    assert_true(scale.scale == 128);
    CUDA->close(dev);
    options.local_rank = -1;
    assert_int_equal(CUDA->open(&dev, &options), DT_ERR_INTERNAL);
    assert_null(dev);
}

TEST(probe)
{
    struct dt_gpu_report report;
    dt_gpu_probe(&report);
    assert_string_equal(report.problem, "");
    assert_true(report.n_devices > 0 && report.device[0].capability >= 50);
    assert_true(report.device[0].name[0] && report.driver[0]);
    char libraries[128];
    dt_gpu_libraries(libraries, sizeof libraries);
    assert_true(strstr(libraries, ", cuDNN 9.") && !strstr(libraries, "cuBLAS 0."));
    assert_int_equal(strlen(report.device[0].identity), 32);
}

TEST(memory)
{
    struct dt_device *dev = open_device(DT_PRECISION_FP32);
    uint64_t n_allocs = CUDA->n_allocs(dev);
    float *memory = make(dev);
    assert_int_equal(CUDA->n_allocs(dev), n_allocs + 1);
    check_value(dev, memory, 0);
    fill(dev, memory, 3);
    check_value(dev, memory, 3);
    OK(CUDA->zero(dev, memory, COUNT * sizeof(float)));
    check_value(dev, memory, 0);
    CUDA->free(dev, memory, COUNT * sizeof(float));
    void *huge = NULL;
    assert_int_equal(CUDA->alloc(dev, &huge, (size_t)1 << 50), DT_ERR_MEMORY);
    assert_non_null(strstr(dt_error_text(), "train.micro_batch_size"));
    assert_null(huge);
    memory = make(dev); /* an error before it does no harm */
    CUDA->free(dev, memory, COUNT * sizeof(float));
    CUDA->close(dev);
}

/* An upload happens after the work before it and before the work behind it. */
TEST(upload_order)
{
    struct dt_device *dev = open_device(DT_PRECISION_FP32);
    float *value = make(dev), *sum = make(dev), *busy = make(dev);
    for (int i = 1; i <= 3; i++) {
        be_busy(dev, busy, 20);
        OK(CUDA->accumulate(dev, sum, value, DT_F32, COUNT, false));
        fill(dev, value, (float)i);
    }
    OK(CUDA->accumulate(dev, sum, value, DT_F32, COUNT, false));
    check_value(dev, sum, 0 + 1 + 2 + 3);
    CUDA->free(dev, value, 0);
    CUDA->free(dev, sum, 0);
    CUDA->free(dev, busy, 0);
    CUDA->close(dev);
}

/* --- Tensors: logical order there and back, the stored bytes, padding --- */

/* `size`: bytes of an element; place(i): where element i is stored. */
static void check_tensor(struct dt_device *dev, const struct dt_graph *g, int tensor, size_t count,
                         size_t size, size_t (*place)(size_t i))
{
    size_t bytes = CUDA->tensor_bytes(dev, g, tensor);
    float *values, *back;
    char *raw, *zeros;
    void *memory = NULL;
    OK(DT_NEW(values, count));
    OK(DT_NEW(back, count));
    OK(DT_NEW(raw, bytes));
    OK(DT_NEW(zeros, bytes));
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(i + 1); /* exact in fp16 */
    memset(raw, 0xff, bytes);
    OK(CUDA->alloc(dev, &memory, bytes));
    OK(CUDA->upload(dev, memory, raw, bytes));
    OK(CUDA->set_tensor(dev, g, tensor, memory, values));
    OK(CUDA->get_tensor(dev, g, tensor, back, memory));
    assert_memory_equal(back, values, count * sizeof *values);
    read_raw(dev, raw, memory, bytes);
    for (size_t i = 0; i < count; i++) {
        assert_memory_not_equal(raw + place(i) * size, zeros, size);
        memset(raw + place(i) * size, 0, size);
    }
    assert_memory_equal(raw, zeros, bytes); /* the padding */
    CUDA->free(dev, memory, bytes);
    free(values);
    free(back);
    free(raw);
    free(zeros);
}

/* 4 x 5 x 4 x 4 in rows of 8. */
static size_t place_activation(size_t i)
{
    size_t n = i / 80, c = i / 16 % 5, p = i % 16;
    return (n * 16 + p) * 8 + c;
}

/* 9 x 80, multiplies 5 x 4 x 4. */
static size_t place_linear(size_t i)
{
    size_t o = i / 80, c = i % 80 / 16, p = i % 16;
    return (o * 16 + p) * 8 + c;
}

TEST(tensors)
{
    struct dt_device *dev = open_device(DT_PRECISION_FP16);
    struct dt_graph *g;
    OK(dt_graph_create(&g));
    g->current = DT_TRAIN;
    const int src_dim[4] = {4, 5, 4, 4}, weights_dim[4] = {9, 80, 1, 1}, bias_dim[4] = {9, 1, 1, 1};
    const int dst_dim[4] = {4, 9, 1, 1};
    int src[3] = {dt_graph_tensor(g, "src", DT_ACT, DT_F32, 4, src_dim),
                  dt_graph_tensor(g, "weights", DT_PARAM, DT_F32, 2, weights_dim),
                  dt_graph_tensor(g, "bias", DT_PARAM, DT_F32, 1, bias_dim)};
    int dst = dt_graph_tensor(g, "dst", DT_ACT, DT_F32, 4, dst_dim);
    assert_non_null(dt_graph_node(g, DT_OP_LINEAR, "node", 3, src, 1, &dst));
    assert_int_equal(CUDA->tensor_bytes(dev, g, src[0]), 512 * 2);
    check_tensor(dev, g, src[0], 320, 2, place_activation);
    assert_int_equal(CUDA->tensor_bytes(dev, g, src[1]), 16 * 128 * 4); /* the master */
    check_tensor(dev, g, src[1], 720, 4, place_linear);
    dt_graph_destroy(g);
    CUDA->close(dev);
}

/* --- Feeding --- */

/* Passes are fed while the work of earlier ones is under way; a source is overwritten as soon as
 * end_feed returns. Each pass's work keeps what it saw. */
static void feed_passes(struct dt_device *dev, bool with_slots)
{
    const size_t log_bytes = (size_t)N_PASSES * N_FED * sizeof(float);
    float *busy = make(dev), *src, *log;
    int32_t *small;
    void *pixels = NULL, *labels = NULL, *seen = NULL;
    if (with_slots)
        OK(CUDA->open_feed(dev, N_FED * sizeof(float) + FEED_BYTES));
    OK(CUDA->alloc(dev, &pixels, N_FED * sizeof(float)));
    OK(CUDA->alloc(dev, &labels, FEED_BYTES));
    OK(CUDA->alloc(dev, &seen, log_bytes));
    OK(DT_NEW(src, N_FED));
    OK(DT_NEW(small, FEED_BYTES / sizeof *small));
    OK(DT_NEW(log, N_PASSES * N_FED));
    OK(CUDA->pin(dev, src, N_FED * sizeof *src));
    for (int pass = 0; pass < N_PASSES; pass++) {
        for (int i = 0; i < N_FED; i++)
            src[i] = (float)(1000 * pass + i);
        small[0] = pass;
        OK(CUDA->feed(dev, pixels, src, N_FED * sizeof *src));
        OK(CUDA->feed(dev, labels, small, FEED_BYTES));
        be_busy(dev, busy, 10);
        OK(CUDA->accumulate(dev, (float *)seen + (size_t)pass * N_FED, pixels, DT_F32, N_FED,
                            true));
        OK(CUDA->end_feed(dev));
        memset(src, 0xee, N_FED * sizeof *src);
        memset(small, 0xee, FEED_BYTES);
    }
    read_raw(dev, log, seen, log_bytes);
    for (int i = 0; i < N_PASSES * N_FED; i++)
        assert_true(log[i] == (float)(1000 * (i / N_FED) + i % N_FED));
    read_raw(dev, small, labels, sizeof *small);
    assert_int_equal(small[0], N_PASSES - 1);
    CUDA->unpin(dev, src);
    CUDA->free(dev, busy, 0);
    CUDA->free(dev, pixels, 0);
    CUDA->free(dev, labels, 0);
    CUDA->free(dev, seen, 0);
    free(src);
    free(small);
    free(log);
}

TEST(feed)
{
    struct dt_device *dev = open_device(DT_PRECISION_FP32);
    feed_passes(dev, false);
    feed_passes(dev, true);
    OK(CUDA->open_feed(dev, 8)); /* less than before: nothing changes */
    feed_passes(dev, false);
    void *dst = NULL;
    char *much;
    OK(DT_NEW(much, 1 << 16));
    OK(CUDA->alloc(dev, &dst, 1 << 16));
    assert_int_equal(CUDA->feed(dev, dst, much, 1 << 16), DT_ERR_INTERNAL);
    OK(CUDA->end_feed(dev)); /* nothing was fed */
    CUDA->free(dev, dst, 0);
    free(much);
    CUDA->close(dev);
}

/* --- Order and recordings --- */

/* sum += 1 on compute; then, twice: a copy of it on comm, and what came out is added to total. */
struct work {
    struct dt_device *dev;
    float *one, *sum, *copy[2], *total, *busy;
};

static void open_work(struct work *w)
{
    w->dev = open_device(DT_PRECISION_FP32);
    float **const vectors[] = {&w->one, &w->sum, &w->copy[0], &w->copy[1], &w->total, &w->busy};
    for (size_t i = 0; i < DT_COUNT(vectors); i++)
        *vectors[i] = make(w->dev);
    fill(w->dev, w->one, 1);
    OK(CUDA->open_marks(w->dev, 7));
    OK(CUDA->open_marks(w->dev, 2)); /* another plan */
}

static void close_work(struct work *w)
{
    float *const vectors[] = {w->one, w->sum, w->copy[0], w->copy[1], w->total, w->busy};
    for (size_t i = 0; i < DT_COUNT(vectors); i++)
        CUDA->free(w->dev, vectors[i], COUNT * sizeof(float));
    CUDA->close(w->dev);
}

static void do_work(const struct work *w)
{
    struct dt_device *dev = w->dev;
    be_busy(dev, w->busy, 3);
    for (int i = 0; i < 2; i++) {
        OK(CUDA->accumulate(dev, w->sum, w->one, DT_F32, COUNT, false));
        OK(CUDA->fork(dev));
        copy_on_comm(dev, w->copy[i], w->sum);
        OK(CUDA->mark(dev, i));
        be_busy(dev, w->busy, 3);
        /* The second copy would see a wrong sum if compute did not wait for the first. */
        OK(CUDA->join(dev, i));
        OK(CUDA->accumulate(dev, w->total, w->copy[i], DT_F32, COUNT, false));
    }
}

/* After n times: sum = 2 n, total = 1 + 2 + ... + 2 n. */
static void check_work(const struct work *w, int n)
{
    check_value(w->dev, w->sum, (float)(2 * n));
    check_value(w->dev, w->total, (float)(n * (2 * n + 1)));
}

TEST(order)
{
    struct work w;
    open_work(&w);
    for (int i = 0; i < 10; i++)
        do_work(&w);
    check_work(&w, 10);
    assert_int_equal(CUDA->mark(w.dev, 2), DT_ERR_INTERNAL);
    assert_int_equal(CUDA->join(w.dev, -1), DT_ERR_INTERNAL);
    close_work(&w);
}

TEST(recording)
{
    struct work w;
    struct dt_recording *recording = NULL;
    open_work(&w);
    do_work(&w);
    OK(CUDA->record(w.dev));
    do_work(&w);
    OK(CUDA->end_record(w.dev, &recording));
    assert_non_null(recording);
    check_work(&w, 1); /* recording does nothing yet */
    for (int i = 0; i < 4; i++)
        OK(CUDA->replay(w.dev, recording));
    check_work(&w, 5);
    /* Direct work, uploads and feeding between replays. */
    do_work(&w);
    OK(CUDA->replay(w.dev, recording));
    fill(w.dev, w.one, 1);
    OK(CUDA->replay(w.dev, recording));
    check_work(&w, 8);
    feed_passes(w.dev, true);
    OK(CUDA->replay(w.dev, recording));
    check_work(&w, 9);
    CUDA->release_recording(w.dev, recording);
    CUDA->release_recording(w.dev, NULL);
    do_work(&w);
    check_work(&w, 10);
    close_work(&w);
}

/* A recording that cannot be ended leaves a device on which everything goes on. */
TEST(failed_recordings)
{
    struct work w;
    struct dt_recording *recording = NULL;
    open_work(&w);

    OK(CUDA->record(w.dev)); /* the comm stream does not come back */
    OK(CUDA->fork(w.dev));
    copy_on_comm(w.dev, w.copy[0], w.sum);
    assert_int_equal(CUDA->end_record(w.dev, &recording), DT_ERR_DEVICE);
    assert_null(recording);
    for (int i = 0; i < 3; i++)
        do_work(&w);
    check_work(&w, 3);

    OK(CUDA->record(w.dev)); /* a call that may not be recorded */
    void *memory = NULL;
    assert_int_not_equal(CUDA->alloc(w.dev, &memory, 64), DT_OK);
    assert_int_equal(CUDA->end_record(w.dev, &recording), DT_ERR_DEVICE);
    assert_non_null(strstr(dt_error_text(), "it began with: GPU memory"));
    assert_null(recording);

    OK(CUDA->record(w.dev));
    do_work(&w);
    OK(CUDA->end_record(w.dev, &recording));
    OK(CUDA->replay(w.dev, recording));
    check_work(&w, 4);
    CUDA->release_recording(w.dev, recording);
    close_work(&w);
}

TEST(stamps)
{
    struct work w;
    double seconds = -1;
    open_work(&w);
    for (int round = 0; round < 2; round++) {
        OK(CUDA->stamp(w.dev, 0, false));
        do_work(&w);
        OK(CUDA->stamp(w.dev, DT_CUDA_MAX_STAMPS - 1, false));
        OK(CUDA->elapsed(w.dev, 0, DT_CUDA_MAX_STAMPS - 1, &seconds));
        assert_true(seconds >= 0 && seconds < 3600);
        OK(CUDA->fork(w.dev));
        OK(CUDA->stamp(w.dev, 2, true));
        OK(CUDA->elapsed(w.dev, DT_CUDA_MAX_STAMPS - 1, 2, &seconds));
        assert_true(seconds >= 0 && seconds < 3600);
    }
    assert_int_equal(CUDA->stamp(w.dev, DT_CUDA_MAX_STAMPS, false), DT_ERR_INTERNAL);
    assert_int_equal(CUDA->elapsed(w.dev, 0, 1, &seconds), DT_ERR_INTERNAL);
    check_work(&w, 2);
    close_work(&w);
}

/* --- The deadline --- */

static dt_status fail_poll(void *context)
{
    (*(int *)context)++;
    DT_FAIL(DT_ERR_DISAGREE, "another rank has failed");
}

/* With next to no time a wait fails, unless the work is done before the first look: then with
 * more work. */
static dt_status wait_too_short(struct work *w)
{
    dt_status status = DT_OK;
    for (int n = 16; n <= 1 << 16 && status == DT_OK; n *= 2) {
        w->dev->options.timeout_s = 120;
        OK(CUDA->sync(w->dev));
        for (int i = 0; i < n; i++)
            do_work(w);
        w->dev->options.timeout_s = 1e-9;
        status = CUDA->sync(w->dev);
    }
    w->dev->options.timeout_s = 120;
    return status;
}

TEST(deadline)
{
    struct work w;
    open_work(&w);
    assert_int_equal(wait_too_short(&w), DT_ERR_HANG);
    assert_non_null(strstr(dt_error_text(), "device.timeout_s"));
    assert_true(w.dev->hung);
    w.dev->hung = false; /* it was only slow */
    OK(CUDA->sync(w.dev));
    close_work(&w);
}

/* A failing poll ends a wait; the work is long enough for polls to happen. */
TEST(poll)
{
    struct work w;
    int n_polls = 0;
    dt_status status = DT_OK;
    open_work(&w);
    w.dev->options.poll = fail_poll;
    w.dev->options.context = &n_polls;
    for (int n = 64; n <= 1 << 12 && status == DT_OK; n *= 2) {
        for (int i = 0; i < n; i++)
            do_work(&w);
        status = CUDA->sync(w.dev);
    }
    assert_int_equal(status, n_polls > 0 ? DT_ERR_DISAGREE : DT_OK);
    assert_true(n_polls <= 1);
    assert_true(w.dev->hung == (n_polls == 1));
    w.dev->hung = false;
    w.dev->options.poll = NULL;
    close_work(&w);
}

GPU_TEST_MAIN(NULL, NULL)
