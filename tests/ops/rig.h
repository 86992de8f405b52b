/* A tiny executor for tests: one block of device memory per tensor, no plan. A parameter that nodes
 * read in 16 bits has a second one for its shadow.
 *
 * Each block carries guard words directly before and behind the tensor. Activations, gradients and
 * scratch start as NaN, as the plan's shared memory may hold anything; parameters, statistics and
 * gradients of parameters start at zero, as the plan's arenas do. */
#ifndef DTRAIN_TESTS_RIG_H
#define DTRAIN_TESTS_RIG_H

#include <stdlib.h>
#include <string.h>

#include "reference.h"

enum { RIG_CHUNK = 256 }; /* the alignment of tensors; bytes of a guard */

struct rig {
    const struct dt_backend *backend;
    struct dt_device *dev;
    const struct dt_graph *g;
    bool fuses; /* a fusion may keep something else in a tensor that it drops */
    int *alias; /* per tensor: the tensor whose memory it takes over, -1 = own memory */
    struct dt_exec **exec;
    void **block;
    size_t *block_bytes;
    void **address;
    size_t *bytes;
    void **shadow; /* blocks, NULL = none */
    size_t *shadow_block_bytes;
    void **bound; /* what nodes see: address or shadow */
    void *scratch;
    size_t scratch_bytes, scratch_block_bytes;
};

static unsigned char rig_guard_byte(size_t i)
{
    return (unsigned char)(0x35 + i % 7); /* every word a normal float */
}

static size_t rig_round(size_t bytes)
{
    return (bytes + RIG_CHUNK - 1) / RIG_CHUNK * RIG_CHUNK;
}

/* A block with guards around `bytes` of content, each byte of which is `fill`. */
static dt_status rig_alloc(struct rig *rig, void **block, size_t *block_bytes, size_t bytes,
                           int fill)
{
    size_t total = RIG_CHUNK + rig_round(bytes) + RIG_CHUNK;
    unsigned char *image;
    DT_TRY(DT_NEW(image, total));
    for (size_t i = 0; i < RIG_CHUNK; i++)
        image[i] = rig_guard_byte(i);
    memset(image + RIG_CHUNK, fill, bytes);
    for (size_t i = RIG_CHUNK + bytes; i < total; i++)
        image[i] = rig_guard_byte(i);
    dt_status status = rig->backend->alloc(rig->dev, block, total);
    if (status == DT_OK) {
        *block_bytes = total;
        status = rig->backend->upload(rig->dev, *block, image, total);
    }
    free(image);
    DT_TRY(status);
    return DT_OK;
}

static dt_status rig_check_block(struct rig *rig, const void *block, size_t block_bytes,
                                 size_t bytes, const char *name)
{
    _Alignas(float) unsigned char image[3 * RIG_CHUNK]; /* the first chunk and the last two */
    size_t tail = block_bytes - 2 * RIG_CHUNK;
    DT_TRY(rig->backend->read(rig->dev, image, block, RIG_CHUNK));
    DT_TRY(
        rig->backend->read(rig->dev, image + RIG_CHUNK, (const char *)block + tail, 2 * RIG_CHUNK));
    for (size_t i = 0; i < RIG_CHUNK; i++) {
        if (image[i] != rig_guard_byte(i))
            DT_FAIL(DT_ERR_INTERNAL, "guard words before %s were overwritten", name);
    }
    for (size_t i = RIG_CHUNK + bytes; i < block_bytes; i++) {
        if (image[RIG_CHUNK + i - tail] != rig_guard_byte(i))
            DT_FAIL(DT_ERR_INTERNAL, "guard words behind %s were overwritten (byte %zu of %zu)",
                    name, i - RIG_CHUNK, bytes);
    }
    return DT_OK;
}

static dt_status rig_check_guards(struct rig *rig)
{
    for (int t = 0; t < rig->g->n_tensors; t++) {
        const char *name = rig->g->tensor[t].name;
        if (rig->block[t])
            DT_TRY(rig_check_block(rig, rig->block[t], rig->block_bytes[t], rig->bytes[t], name));
        if (rig->shadow[t])
            DT_TRY(rig_check_block(rig, rig->shadow[t], rig->shadow_block_bytes[t],
                                   rig->bytes[t] / 2, name));
    }
    if (rig->scratch)
        DT_TRY(rig_check_block(rig, rig->scratch, rig->scratch_block_bytes, rig->scratch_bytes,
                               "the scratch memory"));
    return DT_OK;
}

static void rig_close(struct rig *rig)
{
    const struct dt_backend *backend = rig->backend;
    for (int i = 0; rig->exec && i < rig->g->n_nodes; i++)
        backend->release(rig->dev, rig->exec[i]);
    for (int t = 0; rig->block && t < rig->g->n_tensors; t++) {
        if (rig->block[t])
            backend->free(rig->dev, rig->block[t], rig->block_bytes[t]);
        if (rig->shadow && rig->shadow[t])
            backend->free(rig->dev, rig->shadow[t], rig->shadow_block_bytes[t]);
    }
    if (rig->scratch)
        backend->free(rig->dev, rig->scratch, rig->scratch_block_bytes);
    free(rig->exec);
    free(rig->block);
    free(rig->block_bytes);
    free(rig->address);
    free(rig->bytes);
    free(rig->shadow);
    free(rig->shadow_block_bytes);
    free(rig->bound);
    backend->close(rig->dev);
    *rig = (struct rig){.backend = backend};
}

/* The type of what address[t] holds: of a parameter fp32. */
static enum dt_dtype rig_type(const struct rig *rig, int t)
{
    return rig->g->tensor[t].role == DT_PARAM ? DT_F32 : rig->backend->dtype(rig->dev, rig->g, t);
}

/* False if a fusion runs without it. */
static bool rig_holds(const struct rig *rig, int t)
{
    const struct dt_tensor *tensor = &rig->g->tensor[t];
    const bool is_bits = tensor->dtype == DT_U8 && tensor->role == DT_SAVED;
    return is_bits ||
           rig->bytes[t] >= dt_tensor_elements(tensor) * dt_dtype_bytes(rig_type(rig, t));
}

static dt_status rig_alloc_tensor(struct rig *rig, int t)
{
    const struct dt_tensor *tensor = &rig->g->tensor[t];
    if (rig->address[t])
        return DT_OK;
    rig->bytes[t] = rig->backend->tensor_bytes(rig->dev, rig->g, t);
    if (!rig_holds(rig, t) && rig->bytes[t] > 0 && !rig->fuses)
        DT_FAIL(DT_ERR_INTERNAL, "%zu bytes cannot hold %s", rig->bytes[t], tensor->name);
    int source = rig->alias ? rig->alias[t] : -1;
    if (source >= 0 && rig->bytes[source] != rig->bytes[t])
        rig->alias[t] = source = -1; /* another format: the plan does not place it there either */
    if (source >= 0) {
        rig->bound[t] = rig->address[t] = rig->address[source];
        return DT_OK;
    }
    bool kept =
        tensor->role == DT_PARAM || tensor->role == DT_STAT || tensor->role == DT_DIFF_PARAM;
    DT_TRY(rig_alloc(rig, &rig->block[t], &rig->block_bytes[t], rig->bytes[t], kept ? 0 : 0xff));
    rig->bound[t] = rig->address[t] = (char *)rig->block[t] + RIG_CHUNK;
    if (tensor->role != DT_PARAM || rig->backend->dtype(rig->dev, rig->g, t) == DT_F32)
        return DT_OK;
    DT_TRY(rig_alloc(rig, &rig->shadow[t], &rig->shadow_block_bytes[t], rig->bytes[t] / 2, 0));
    rig->bound[t] = (char *)rig->shadow[t] + RIG_CHUNK;
    return DT_OK;
}

static dt_status rig_prepare_nodes(struct rig *rig)
{
    struct dt_fusion *fusions = NULL;
    dt_status status = DT_OK;
    int n = 0;
    for (int i = 0; i < rig->g->n_nodes; i++)
        DT_TRY(rig->backend->prepare(rig->dev, &rig->exec[i], rig->g, i));
    DT_TRY(dt_graph_fusions(rig->g, &fusions, &n));
    for (int i = 0; i < n && rig->backend->propose_fusion && status == DT_OK; i++)
        status = rig->backend->propose_fusion(rig->dev, &fusions[i], rig->exec);
    free(fusions);
    return status;
}

static dt_status rig_prepare(struct rig *rig)
{
    const struct dt_backend *backend = rig->backend;
    DT_TRY(backend->autotune(rig->dev, rig_prepare_nodes(rig)));
    for (int i = 0; i < rig->g->n_nodes; i++) {
        const struct dt_node *node = &rig->g->node[i];
        size_t bytes = backend->scratch_bytes(rig->dev, rig->exec[i]);
        rig->scratch_bytes = bytes > rig->scratch_bytes ? bytes : rig->scratch_bytes;
        int tensor[DT_MAX_SRC + DT_MAX_DST], n = dt_node_tensors(node, tensor);
        for (int k = 0; k < n; k++)
            DT_TRY(rig_alloc_tensor(rig, tensor[k]));
    }
    DT_TRY(rig_alloc(rig, &rig->scratch, &rig->scratch_block_bytes, rig->scratch_bytes, 0xff));
    for (int i = 0; i < rig->g->n_nodes; i++)
        DT_TRY(backend->bind(rig->dev, rig->exec[i], rig->bound, (char *)rig->scratch + RIG_CHUNK));
    return DT_OK;
}

/* Opens a device, prepares all nodes in order, gives every tensor in use memory, binds. `g` and
 * `alias` (may be NULL; entries that cannot be are set to -1) are kept until rig_close, which is
 * the caller's also on failure. */
static dt_status rig_open(struct rig *rig, const struct dt_backend *backend,
                          const struct dt_device_options *options, const struct dt_graph *g,
                          int *alias)
{
    size_t n_tensors = (size_t)g->n_tensors;
    *rig = (struct rig){
        .backend = backend, .g = g, .alias = alias, .fuses = options->fusion == DT_FUSION_ON};
    DT_TRY(backend->open(&rig->dev, options));
    DT_TRY(DT_NEW(rig->exec, (size_t)g->n_nodes));
    DT_TRY(DT_NEW(rig->block, n_tensors));
    DT_TRY(DT_NEW(rig->block_bytes, n_tensors));
    DT_TRY(DT_NEW(rig->address, n_tensors));
    DT_TRY(DT_NEW(rig->bytes, n_tensors));
    DT_TRY(DT_NEW(rig->shadow, n_tensors));
    DT_TRY(DT_NEW(rig->shadow_block_bytes, n_tensors));
    DT_TRY(DT_NEW(rig->bound, n_tensors));
    DT_TRY(rig_prepare(rig));
    return DT_OK;
}

/* Logical values of a tensor from the reference's fp64 array, and back as fp32 (caller frees). */
static dt_status rig_set(struct rig *rig, int t, const double *value)
{
    const struct dt_tensor *tensor = &rig->g->tensor[t];
    size_t count = dt_tensor_elements(tensor);
    union {
        void *any;
        float *f32;
        int32_t *i32;
        uint8_t *u8;
    } host;
    host.any = dt_mem_alloc(count, sizeof(float), "host copy of a tensor");
    if (!host.any)
        return DT_ERR_MEMORY;
    for (size_t i = 0; i < count; i++) {
        if (tensor->dtype == DT_F32)
            host.f32[i] = (float)value[i];
        else if (tensor->dtype == DT_I32)
            host.i32[i] = (int32_t)value[i];
        else
            host.u8[i] = (uint8_t)value[i];
    }
    dt_status status =
        tensor->dtype == DT_F32
            ? rig->backend->set_tensor(rig->dev, rig->g, t, rig->address[t], host.f32)
            : rig->backend->upload(rig->dev, rig->address[t], host.any,
                                   count * dt_dtype_bytes(tensor->dtype));
    free(host.any);
    DT_TRY(status);
    if (rig->shadow[t])
        DT_TRY(rig->backend->refresh(rig->dev, rig->bound[t], rig->address[t],
                                     rig->bytes[t] / sizeof(float)));
    return DT_OK;
}

static dt_status rig_get(struct rig *rig, int t, float **out)
{
    DT_TRY(DT_NEW(*out, dt_tensor_elements(&rig->g->tensor[t])));
    dt_status status = rig->backend->get_tensor(rig->dev, rig->g, t, *out, rig->address[t]);
    if (status != DT_OK)
        free(*out);
    DT_TRY(status);
    return DT_OK;
}

/* Runs the nodes of one phase; nothing may be allocated meanwhile. */
static dt_status rig_run(struct rig *rig, enum dt_phase phase, const struct dt_scalars *scalars)
{
    uint64_t n_allocs = rig->backend->n_allocs(rig->dev);
    DT_TRY(rig->backend->set_scalars(rig->dev, scalars));
    for (int i = 0; i < rig->g->n_nodes; i++) {
        if (rig->g->node[i].phase == phase)
            DT_TRY(rig->backend->run(rig->dev, rig->exec[i]));
    }
    if (rig->backend->n_allocs(rig->dev) != n_allocs)
        DT_FAIL(DT_ERR_INTERNAL, "running allocated device memory");
    return DT_OK;
}

/* An error allowed: shares of the largest value of a tensor, and of the value itself. */
struct bound {
    double largest, own;
};

/* max (|got - want| - own |want|) / (1e-6 + max |want|) over the elements the reference has; *at is
 * the worst. */
static double rig_error(const float *got, const double *want, size_t count, double own, size_t *at)
{
    double worst = 0, largest = 0;
    *at = 0;
    for (size_t i = 0; i < count; i++) {
        if (isnan(want[i]))
            continue;
        largest = fmax(largest, fabs(want[i]));
        double error =
            isfinite(got[i]) ? fabs((double)got[i] - want[i]) - own * fabs(want[i]) : INFINITY;
        if (error > worst) {
            worst = error;
            *at = i;
        }
    }
    return worst / (1e-6 + largest);
}

/* DT_ERR_NUMERICAL where a tensor differs by more than `bound`. */
static dt_status rig_compare(struct rig *rig, int t, const double *want, struct bound bound)
{
    const struct dt_tensor *tensor = &rig->g->tensor[t];
    size_t at;
    float *got;
    DT_TRY(rig_get(rig, t, &got));
    double error = rig_error(got, want, dt_tensor_elements(tensor), bound.own, &at);
    float value = got[at];
    free(got);
    if (!(error <= bound.largest))
        DT_FAIL(DT_ERR_NUMERICAL, "%s: error %.2g > %.2g, element %zu is %.9g, should be %.9g",
                tensor->name, error, bound.largest, at, (double)value, want[at]);
    return DT_OK;
}

/* -0 is zero: a conversion may lose its sign, which is in the last byte. */
static size_t rig_count_nonzero(const void *values, size_t n, size_t each)
{
    size_t n_nonzero = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char value[sizeof(float)] = {0};
        memcpy(value, (const unsigned char *)values + i * each, each);
        value[each - 1] &= 0x7f;
        n_nonzero += memcmp(value, (unsigned char[sizeof(float)]){0}, each) != 0;
    }
    return n_nonzero;
}

/* What a format has besides the elements must be zero. */
static dt_status rig_check_padding(struct rig *rig, int t)
{
    const struct dt_tensor *tensor = &rig->g->tensor[t];
    const size_t count = dt_tensor_elements(tensor), each = dt_dtype_bytes(rig_type(rig, t));
    unsigned char *raw = NULL;
    float *values = NULL;
    dt_status status;
    if (tensor->dtype != DT_F32 || rig->bytes[t] <= count * each)
        return DT_OK;
    DT_TRY_OUT(DT_NEW(raw, rig_round(rig->bytes[t])));
    DT_TRY_OUT(rig_get(rig, t, &values));
    DT_TRY_OUT(rig->backend->read(rig->dev, raw, rig->address[t], rig_round(rig->bytes[t])));
    if (rig_count_nonzero(raw, rig->bytes[t] / each, each) !=
        rig_count_nonzero(values, count, sizeof *values))
        DT_TRY_OUT(DT_ERROR(DT_ERR_NUMERICAL, "%s: padding is not zero", tensor->name));
out:
    free(raw);
    free(values);
    return status;
}

#endif
