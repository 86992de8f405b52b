/* The CPU backend: opening and closing the device, memory, and what a step needs besides its loops.
 *
 * Convolutions, max pooling and linear layers are oneDNN primitives (cpu_conv.c, cpu_pool.c,
 * cpu_linear.c); the rest are our own OpenMP loops (cpu_norm.c, cpu_pointwise.c, cpu_loss.c,
 * cpu_pool.c, cpu_update.c, and winograd.c for most 3x3 convolutions). All work is done when a call
 * returns: there is no queue. Results depend on the number of threads, never on timing. */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/mem.h"
#include "base/text.h"
#include "cpu/cpu_internal.h"

static void cpu_close(struct dt_device *dev)
{
    if (!dev)
        return;
    while (dev->formats) {
        dev->formats->n_users = 1;
        dt_cpu_formats_release(dev, dev->formats);
    }
    if (dev->stream)
        dnnl_stream_destroy(dev->stream);
    if (dev->engine)
        dnnl_engine_destroy(dev->engine);
    free(dev);
}

static dt_status cpu_open(struct dt_device **out, const struct dt_device_options *options)
{
    dt_status status = DT_OK;
    struct dt_device *dev = NULL;

    if (options->threads < 1)
        DT_FAIL(DT_ERR_INTERNAL, "the CPU backend needs at least 1 thread, not %d",
                options->threads);
    DT_TRY(DT_NEW(dev, 1));
    dev->options = *options;
    dev->clip = 1;
    dev->isa = dt_cpu_isa(0, dt_cpu_type(dev));
    omp_set_num_threads(options->threads);
    DT_TRY_OUT(DT_DNNL("CPU engine", dnnl_engine_create(&dev->engine, dnnl_cpu, 0)));
    DT_TRY_OUT(DT_DNNL("CPU stream",
                       dnnl_stream_create(&dev->stream, dev->engine, dnnl_stream_default_flags)));
    *out = dev;
    dev = NULL;
out:
    cpu_close(dev);
    return status;
}

static void cpu_describe(struct dt_device *dev, char *out, size_t bytes)
{
    static const struct {
        dnnl_cpu_isa_t isa;
        const char *name;
    } names[] = {
#ifdef __aarch64__
        /* dnnl.h names only x86's, whose bits mean these here. */
        {0x1, "NEON"},
        {0x3, "SVE of 128 bits"},
        {0x7, "SVE of 256 bits"},
        {0x1f, "SVE of 512 bits"},
#else
        {dnnl_cpu_isa_sse41, "SSE4.1"},
        {dnnl_cpu_isa_avx, "AVX"},
        {dnnl_cpu_isa_avx2, "AVX2"},
        {dnnl_cpu_isa_avx2_vnni, "AVX2 VNNI"},
        {dnnl_cpu_isa_avx512_core, "AVX-512"},
        {dnnl_cpu_isa_avx512_core_vnni, "AVX-512 VNNI"},
        {dnnl_cpu_isa_avx512_core_bf16, "AVX-512 BF16"},
        {dnnl_cpu_isa_avx512_core_amx, "AVX-512 AMX"},
#endif
    };
    const char *isa = "unnamed instruction set";
    for (size_t i = 0; i < DT_COUNT(names); i++) {
        if (dt_cpu_has(names[i].isa))
            isa = names[i].name;
    }
    const char *products = dt_cpu_has(dnnl_cpu_isa_avx512_core_amx) ? ", bf16 multiplied by AMX"
                           : dt_cpu_has(dnnl_cpu_isa_avx512_core_bf16)
                               ? ", bf16 multiplied by AVX-512"
                               : ", bf16 stored, multiplied in fp32";
    const dnnl_version_t *version = dnnl_version();
    snprintf(out, bytes, "cpu, oneDNN %d.%d.%d, %s, %d thread%s%s", version->major, version->minor,
             version->patch, isa, dev->options.threads, DT_S(dev->options.threads),
             dt_cpu_type(dev) == DT_BF16 ? products : "");
}

static dt_status cpu_alloc(struct dt_device *dev, void **out, size_t bytes)
{
    const size_t huge = (size_t)2 << 20;
    bool large = bytes >= 2 * huge;
    size_t alignment = large ? huge : 64;
    void *block = NULL;

    dev->n_allocs++;
    if (posix_memalign(&block, alignment, bytes ? bytes : 1) != 0)
        DT_FAIL(DT_ERR_MEMORY, "out of memory: requested %zu MB for tensors; use a smaller batch",
                bytes / 1000000);
    /* Only a hint: without huge pages everything works, but with more TLB misses. */
    if (large)
        (void)madvise(block, bytes, MADV_HUGEPAGE);
    memset(block, 0, bytes);
    *out = block;
    return DT_OK;
}

static void cpu_free(struct dt_device *dev, void *memory, size_t bytes)
{
    (void)dev, (void)bytes;
    free(memory);
}

static uint64_t cpu_n_allocs(const struct dt_device *dev)
{
    return dev->n_allocs;
}

static bool cpu_supports(struct dt_device *dev, const struct dt_graph *g,
                         const struct dt_node *node)
{
    (void)dev, (void)g;
    const bool keeps_padding = dt_activate(node->activation, 0) == 0;
    return dt_node_is_foldable(node) && (node->op != DT_OP_BN || keeps_padding);
}

static void cpu_release(struct dt_device *dev, struct dt_exec *exec)
{
    if (!exec)
        return;
    dt_cpu_formats_release(dev, exec->formats);
    dt_cpu_exec_destroy(exec);
}

static dt_status cpu_prepare(struct dt_device *dev, struct dt_exec **out, const struct dt_graph *g,
                             int node)
{
    dt_status status = DT_OK;
    struct dt_exec *exec = NULL;

    omp_set_num_threads(dev->options.threads);
    DT_TRY(DT_NEW(exec, 1));
    exec->dev = dev;
    exec->graph = g;
    exec->node = &g->node[node];
    exec->op = dev->isa->op[exec->node->op];
    DT_TRY_OUT(dt_cpu_formats_acquire(dev, &exec->formats, g));
    exec->type = exec->op->has_reals ? exec->formats->type : DT_F32;
    DT_TRY_OUT(exec->op->prepare(exec));
    *out = exec;
    exec = NULL;
out:
    cpu_release(dev, exec);
    return status;
}

/* The name of oneDNN's code, or of own loops. */
static bool cpu_choice(const struct dt_device *dev, const struct dt_exec *exec, int i,
                       struct dt_choice *out)
{
    (void)dev;
    const_dnnl_primitive_desc_t pd;
    *out = (struct dt_choice){
        .algorithm = exec->algorithm, .runner_up = "", .seconds = NAN, .runner_up_s = NAN};
    if (exec->primitive && dnnl_primitive_get_primitive_desc(exec->primitive, &pd) == dnnl_success)
        (void)dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &out->algorithm);
    return i == 0 && out->algorithm;
}

static dt_status cpu_bind(struct dt_device *dev, struct dt_exec *exec, void *const *address,
                          void *scratch)
{
    (void)dev;
    if (!scratch && exec->scratch_bytes > 0)
        DT_FAIL(DT_ERR_INTERNAL, "node '%s' needs %zu bytes of scratch but got none",
                exec->node->name, exec->scratch_bytes);
    return dt_cpu_ports_bind(exec, address, scratch);
}

/* Algorithms were chosen in prepare; the ranks still agree here. */
static dt_status cpu_autotune(struct dt_device *dev, dt_status prepared)
{
    if (!dev->options.share)
        return prepared;
    return dev->options.share(dev->options.context, prepared, NULL, 0);
}

static size_t cpu_scratch_bytes(struct dt_device *dev, const struct dt_exec *exec)
{
    (void)dev;
    return exec->scratch_bytes;
}

static enum dt_dtype cpu_dtype(struct dt_device *dev, const struct dt_graph *g, int tensor)
{
    const struct dt_cpu_formats any = {.graph = g, .type = dt_cpu_type(dev)};
    return dt_cpu_stored_type(&any, tensor);
}

static dt_status cpu_set_scalars(struct dt_device *dev, const struct dt_scalars *scalars)
{
    dev->scalars = *scalars;
    return DT_OK;
}

/* The instruction set whose loops to call, with the number of threads set: that belongs to the
 * calling thread, and another device may have changed it. */
static const struct dt_cpu_isa *loops(struct dt_device *dev)
{
    omp_set_num_threads(dev->options.threads);
    return dev->isa;
}

static dt_status cpu_run(struct dt_device *dev, struct dt_exec *exec)
{
    (void)loops(dev);
    DT_TRY(dt_cpu_ports_read(exec));
    DT_TRY(exec->op->run(exec));
    if (!dt_node_is_synced(exec->node))
        DT_TRY(dt_cpu_ports_write(exec));
    return DT_OK;
}

static dt_status cpu_run_second_half(struct dt_device *dev, struct dt_exec *exec)
{
    DT_TRY(loops(dev)->run_second_half(exec));
    return dt_cpu_ports_write(exec);
}

static dt_status cpu_check(struct dt_device *dev, const void *grads, enum dt_dtype type,
                           size_t count, double *norms)
{
    (void)type; /* always fp32 */
    return loops(dev)->check(dev, grads, count, norms);
}

static dt_status cpu_update(struct dt_device *dev, const struct dt_update *update)
{
    return loops(dev)->update(dev, update);
}

static dt_status cpu_lerp(struct dt_device *dev, float *dst, const float *src, size_t count)
{
    return loops(dev)->lerp(dev, dst, src, count);
}

static dt_status cpu_refresh(struct dt_device *dev, void *shadow, const float *params, size_t count)
{
    return loops(dev)->to_bf16(shadow, params, count);
}

static dt_status cpu_accumulate(struct dt_device *dev, float *dst, const void *src,
                                enum dt_dtype src_type, size_t count, bool first)
{
    (void)src_type; /* always fp32 */
    return loops(dev)->accumulate(dst, src, count, first);
}

static dt_status cpu_clip(struct dt_device *dev, const double *norms, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += norms[i];
    dev->clip *= dt_optim_clip(sqrt(sum) * (double)dev->clip, dev->scalars.optim.clip_norm);
    return DT_OK;
}

static dt_status cpu_count(struct dt_device *dev, float *count, const float *from, int n,
                           bool first)
{
    (void)dev;
    float sum = first ? 0 : *count;
    for (int i = 0; i < n; i++)
        sum += from[i];
    *count = sum;
    return DT_OK;
}

static dt_status cpu_divide(struct dt_device *dev, const float *counts, int n)
{
    float sum;
    DT_TRY(cpu_count(dev, &sum, counts, n, true));
    dev->clip = 1 / fmaxf(sum, 1);
    return DT_OK;
}

static dt_status cpu_end_step(struct dt_device *dev)
{
    struct dt_counters *counters = &dev->counters;
    dev->n_in_a_row = dev->found ? dev->n_in_a_row + 1 : 0;
    counters->n_skipped += dev->found;
    if (dev->n_in_a_row > counters->n_in_a_row)
        counters->n_in_a_row = dev->n_in_a_row;
    dev->n_updates += !dev->found;
    dev->found = false;
    dev->clip = 1;
    return DT_OK;
}

static dt_status cpu_get_updates(struct dt_device *dev, int64_t *n)
{
    *n = dev->n_updates;
    return DT_OK;
}

static dt_status cpu_set_updates(struct dt_device *dev, int64_t n)
{
    dev->n_updates = n;
    return DT_OK;
}

static dt_status cpu_zero(struct dt_device *dev, void *memory, size_t bytes)
{
    (void)dev;
    memset(memory, 0, bytes);
    return DT_OK;
}

static dt_status cpu_upload(struct dt_device *dev, void *dst, const void *src, size_t bytes)
{
    (void)dev;
    memcpy(dst, src, bytes);
    return DT_OK;
}

static dt_status cpu_download(struct dt_device *dev, struct dt_counters *out)
{
    *out = dev->counters;
    dev->counters = (struct dt_counters){0};
    return DT_OK;
}

/* Ranks may share the CPU. */
static void cpu_identity(struct dt_device *dev, char out[DT_IDENTITY_MAX])
{
    (void)dev;
    out[0] = '\0';
}

static size_t cpu_free_bytes(struct dt_device *dev)
{
    (void)dev;
    return 0;
}

static dt_status cpu_open_feed(struct dt_device *dev, size_t bytes)
{
    (void)dev, (void)bytes;
    return DT_OK;
}

static dt_status cpu_pin(struct dt_device *dev, void *memory, size_t bytes)
{
    (void)memory;
    return cpu_open_feed(dev, bytes);
}

static void cpu_unpin(struct dt_device *dev, void *memory)
{
    (void)dev, (void)memory;
}

/* No work is ever pending. */
static dt_status cpu_nothing(struct dt_device *dev)
{
    (void)dev;
    return DT_OK;
}

const struct dt_backend dt_backend_cpu = {.name = "cpu",
                                          .open = cpu_open,
                                          .close = cpu_close,
                                          .describe = cpu_describe,
                                          .identity = cpu_identity,
                                          .alloc = cpu_alloc,
                                          .free = cpu_free,
                                          .n_allocs = cpu_n_allocs,
                                          .free_bytes = cpu_free_bytes,
                                          .zero = cpu_zero,
                                          .shares = dt_cpu_shares,
                                          .supports = cpu_supports,
                                          .prepare = cpu_prepare,
                                          .autotune = cpu_autotune,
                                          .choice_of = cpu_choice,
                                          .scratch_bytes = cpu_scratch_bytes,
                                          .dtype = cpu_dtype,
                                          .tensor_bytes = dt_cpu_tensor_bytes,
                                          .bind = cpu_bind,
                                          .set_scalars = cpu_set_scalars,
                                          .run = cpu_run,
                                          .exchange_slots = dt_cpu_exchange_slots,
                                          .run_second_half = cpu_run_second_half,
                                          .release = cpu_release,
                                          .update = cpu_update,
                                          .lerp = cpu_lerp,
                                          .refresh = cpu_refresh,
                                          .accumulate = cpu_accumulate,
                                          .check = cpu_check,
                                          .count = cpu_count,
                                          .divide = cpu_divide,
                                          .clip = cpu_clip,
                                          .end_step = cpu_end_step,
                                          .get_updates = cpu_get_updates,
                                          .set_updates = cpu_set_updates,
                                          .upload = cpu_upload,
                                          .read = cpu_upload,
                                          .set_tensor = dt_cpu_set_tensor,
                                          .get_tensor = dt_cpu_get_tensor,
                                          .open_feed = cpu_open_feed,
                                          .feed = cpu_upload,
                                          .end_feed = cpu_nothing,
                                          .pin = cpu_pin,
                                          .unpin = cpu_unpin,
                                          .download = cpu_download,
                                          .sync = cpu_nothing};
