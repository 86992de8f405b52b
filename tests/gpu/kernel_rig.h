/* Arrays on the GPU for tests that call kernels directly. Each lies between guards, which array_get
 * checks; host values are floats that the array's type holds exactly. */
#ifndef DTRAIN_TESTS_KERNEL_RIG_H
#define DTRAIN_TESTS_KERNEL_RIG_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ops/numbers.h"
#include "base/mem.h"
#include "kernels/kernels.h"
#include "need_gpu.h"
#include "test.h"

#define CUDA(call) assert_string_equal(cudaGetErrorName(call), "cudaSuccess")

enum { GUARD_BYTES = 256, GUARD = 0xa5 };

static const enum dt_dtype TYPES[] = {DT_F32, DT_F16, DT_BF16};

static cudaStream_t stream; /* of all launches */

static inline int rig_open(void **state)
{
    (void)state;
    return cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess;
}

static inline int rig_close(void **state)
{
    (void)state;
    return cudaStreamDestroy(stream) != cudaSuccess;
}

#define KERNEL_TEST_MAIN() GPU_TEST_MAIN(rig_open, rig_close)

/* --- Values --- */

static inline float stored(enum dt_dtype type, double x)
{
    return (float)(type == DT_F16    ? round_to(DT_PRECISION_FP16, x)
                   : type == DT_BF16 ? round_to(DT_PRECISION_BF16, x)
                                     : x);
}

/* Half a unit in the last place, relative; fp32 with some room for the order of operations. */
static inline double half_unit(enum dt_dtype type)
{
    return type == DT_F16 ? 0x1.01p-11 : type == DT_BF16 ? 0x1.01p-8 : 0x1p-22;
}

/* A fixed sequence that looks random, in [-1, 1). */
static inline double random_value(size_t i, uint32_t seed)
{
    uint32_t x = ((uint32_t)i + seed * 7919u) * 2654435761u + 12345u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return (double)x * 0x1p-31 - 1.0;
}

/* --- Memory on the GPU --- */

struct block {
    struct block *next;
    void *gpu;
    float value[]; /* on the host */
};
static struct block *blocks;

static inline struct block *block_create(size_t gpu_bytes, size_t n_values)
{
    struct block *b = calloc(1, sizeof *b + n_values * sizeof *b->value);
    assert_non_null(b);
    CUDA(cudaMalloc(&b->gpu, gpu_bytes));
    b->next = blocks;
    blocks = b;
    return b;
}

/* All arrays and structures so far. */
static inline void free_all(void)
{
    for (struct block *b = blocks; b; b = blocks) {
        CUDA(cudaFree(b->gpu));
        blocks = b->next;
        free(b);
    }
}

/* --- Arrays --- */

struct array {
    enum dt_dtype type;
    size_t count;
    float *value; /* on the host */
    char *block;  /* on the GPU: guard, memory, guard */
    void *memory;
};

static inline void pack(void *to, const struct array *a)
{
    for (size_t i = 0; i < a->count; i++) {
        if (a->type == DT_U8)
            ((uint8_t *)to)[i] = (uint8_t)a->value[i];
        else if (a->type == DT_I32)
            ((int32_t *)to)[i] = (int32_t)a->value[i];
        else if (a->type == DT_F32)
            ((float *)to)[i] = a->value[i];
        else
            ((uint16_t *)to)[i] = pack16(a->type, a->value[i]);
    }
}

static inline void unpack(struct array *a, const void *from)
{
    for (size_t i = 0; i < a->count; i++)
        a->value[i] = a->type == DT_U8    ? (float)((const uint8_t *)from)[i]
                      : a->type == DT_I32 ? (float)((const int32_t *)from)[i]
                      : a->type == DT_F32 ? ((const float *)from)[i]
                                          : unpack16(a->type, ((const uint16_t *)from)[i]);
}

static inline char *alloc_host(size_t bytes)
{
    char *memory = malloc(bytes);
    assert_non_null(memory);
    return memory;
}

/* Writes the values to the GPU, and the guards. */
static inline void array_put(struct array *a)
{
    size_t bytes = a->count * dt_dtype_bytes(a->type);
    char *host = alloc_host(bytes + 2 * GUARD_BYTES);
    memset(host, GUARD, bytes + 2 * GUARD_BYTES);
    pack(host + GUARD_BYTES, a);
    CUDA(cudaMemcpyAsync(a->block, host, bytes + 2 * GUARD_BYTES, cudaMemcpyHostToDevice, stream));
    CUDA(cudaStreamSynchronize(stream));
    free(host);
}

/* Reads the values after all launches so far. */
static inline void array_get(struct array *a)
{
    size_t bytes = a->count * dt_dtype_bytes(a->type);
    char *host = alloc_host(bytes + 2 * GUARD_BYTES);
    CUDA(cudaMemcpyAsync(host, a->block, bytes + 2 * GUARD_BYTES, cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        assert_int_equal((unsigned char)host[i], GUARD);
        assert_int_equal((unsigned char)host[GUARD_BYTES + bytes + i], GUARD);
    }
    unpack(a, host + GUARD_BYTES);
    free(host);
}

/* All zero; on the GPU still unlike anything computed. */
static inline struct array array_create(enum dt_dtype type, size_t count)
{
    size_t bytes = count * dt_dtype_bytes(type) + 2 * GUARD_BYTES;
    struct block *b = block_create(bytes, count);
    CUDA(cudaMemsetAsync(b->gpu, GUARD, bytes, stream));
    return (struct array){type, count, b->value, b->gpu, (char *)b->gpu + GUARD_BYTES};
}

/* rows x cp random values in [-scale, scale), the channels from c on zero; on the GPU too. */
static inline struct array array_rows(enum dt_dtype type, size_t rows, int c, int cp, double scale,
                                      uint32_t seed)
{
    struct array a = array_create(type, rows * (size_t)cp);
    for (size_t i = 0; i < a.count; i++)
        if ((int)(i % (size_t)cp) < c)
            a.value[i] = stored(type, scale * random_value(i, seed));
    array_put(&a);
    return a;
}

static inline struct array array_random(enum dt_dtype type, size_t count, uint32_t seed)
{
    return array_rows(type, count, 1, 1, 1, seed);
}

/* a.value[i] is `want`, rounded to the type after an error of at most `slack`. */
static inline void assert_value(const struct array *a, size_t i, double want, double slack)
{
    double got = (double)a->value[i], bound = half_unit(a->type) * fabs(want) + slack;
    if (a->type == DT_F16)
        bound += 0x1p-25; /* subnormals */
    if (isnan(want) ? !isnan(got) : !(got == want || fabs(got - want) <= bound))
        fail_msg("element %zu of %zu (type %d): %.9g is not within %g of %.9g", i, a->count,
                 (int)a->type, got, bound, want);
}

/* --- Structures on the GPU --- */

static inline void *struct_create(const void *value, size_t bytes)
{
    void *memory = block_create(bytes, 0)->gpu;
    CUDA(cudaMemcpyAsync(memory, value, bytes, cudaMemcpyHostToDevice, stream));
    CUDA(cudaStreamSynchronize(stream));
    return memory;
}

static inline void struct_get(void *value, const void *memory, size_t bytes)
{
    CUDA(cudaMemcpyAsync(value, memory, bytes, cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));
}

#endif
