// Matrix products of the emulated cuBLASLt: the problem given by descriptors and layouts, whether
// it is allowed, and the product itself. Included by cublaslt.cpp only.
#ifndef DTRAIN_EMULATOR_MATMUL_H
#define DTRAIN_EMULATOR_MATMUL_H

#include <cublasLt.h>

#include <algorithm>
#include <vector>

#include "emulator.h"
#include "numbers.h"

namespace emu
{

enum { ALGO_SPLIT_K = 1, ALGO_PLAIN = 2 };

struct matmul_desc {
    static constexpr const char *title = "a matmul descriptor";
    int32_t compute, scale, pointer_mode = CUBLASLT_POINTER_MODE_HOST;
    int32_t trans_a = CUBLAS_OP_N, trans_b = CUBLAS_OP_N, trans_c = CUBLAS_OP_N;
    int32_t fill_mode = CUBLAS_FILL_MODE_FULL;
    uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
};

struct matrix_layout {
    static constexpr const char *title = "a matrix layout";
    uint32_t type;
    int32_t order = CUBLASLT_ORDER_COL;
    uint64_t rows, cols;
    int64_t ld;
    int32_t batch = 1;
    int64_t batch_stride = 0;
};

// --- Problems ---

// D (m x n) = alpha op(A) (m x k) op(B) (k x n) + beta C
struct matmul_problem {
    matmul_desc d;
    matrix_layout a, b, c, out;
    uint64_t m, n, k;
};

inline bool find_number(number *out, uint32_t type)
{
    *out = type == CUDA_R_16F ? number::f16 : type == CUDA_R_16BF ? number::bf16 : number::f32;
    return type == CUDA_R_16F || type == CUDA_R_16BF || type == CUDA_R_32F;
}

inline size_t element_bytes(const matrix_layout &l)
{
    number type;
    return find_number(&type, l.type) ? bytes_of(type) : 0;
}

inline size_t extent_bytes(const matrix_layout &l)
{
    const uint64_t vectors = l.order == CUBLASLT_ORDER_COL ? l.cols : l.rows;
    const uint64_t length = l.order == CUBLASLT_ORDER_COL ? l.rows : l.cols;
    return ((vectors - 1) * static_cast<uint64_t>(l.ld) + length) * element_bytes(l);
}

inline bool is_transposition(int32_t op)
{
    return op == CUBLAS_OP_N || op == CUBLAS_OP_T;
}

inline cublasStatus_t check_desc(const matmul_desc &d)
{
    if (d.pointer_mode != CUBLASLT_POINTER_MODE_HOST || !is_transposition(d.trans_a) ||
        !is_transposition(d.trans_b) || d.trans_c != CUBLAS_OP_N ||
        d.fill_mode != CUBLAS_FILL_MODE_FULL || d.epilogue != CUBLASLT_EPILOGUE_DEFAULT)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (d.scale != CUDA_R_32F ||
        (d.compute != CUBLAS_COMPUTE_32F && d.compute != CUBLAS_COMPUTE_32F_PEDANTIC &&
         d.compute != CUBLAS_COMPUTE_32F_FAST_TF32))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t check_layout(const matrix_layout &l)
{
    if (l.order != CUBLASLT_ORDER_COL && l.order != CUBLASLT_ORDER_ROW)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (l.rows == 0 || l.cols == 0 || l.batch < 1)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (l.batch != 1 || l.rows > INT32_MAX || l.cols > INT32_MAX)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    const uint64_t length = l.order == CUBLASLT_ORDER_COL ? l.rows : l.cols;
    if (l.ld < 0 || static_cast<uint64_t>(l.ld) < length)
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

// The rows with scale type fp32 of the documentation's table of types.
inline cublasStatus_t check_types(const matmul_problem &p)
{
    number type;
    if (!find_number(&type, p.a.type) || p.a.type != p.b.type || p.c.type != p.out.type ||
        (p.c.type != p.a.type && p.c.type != CUDA_R_32F))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (p.d.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && p.a.type != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t make_problem(matmul_problem *p, const matmul_desc *d, const matrix_layout *a,
                                   const matrix_layout *b, const matrix_layout *c,
                                   const matrix_layout *out)
{
    if (!d || !a || !b || !c || !out)
        return CUBLAS_STATUS_INVALID_VALUE;
    *p = matmul_problem{*d, *a, *b, *c, *out, out->rows, out->cols, 0};
    cublasStatus_t status = check_desc(p->d);
    for (const matrix_layout *l : {a, b, c, out})
        if (status == CUBLAS_STATUS_SUCCESS)
            status = check_layout(*l);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = check_types(*p);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    const bool ta = d->trans_a == CUBLAS_OP_T, tb = d->trans_b == CUBLAS_OP_T;
    p->k = ta ? a->rows : a->cols;
    if ((ta ? a->cols : a->rows) != p->m || (tb ? b->cols : b->rows) != p->k ||
        (tb ? b->rows : b->cols) != p->n || c->rows != p->m || c->cols != p->n)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (c->order != out->order)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

inline size_t workspace_of(const matmul_problem &p, uint64_t algorithm_id)
{
    return algorithm_id == ALGO_SPLIT_K ? p.m * p.n * sizeof(float) : 0;
}

// --- Products ---

struct matmul_run {
    matmul_problem p;
    uint64_t algorithm_id;
    float alpha, beta;
    const void *a, *b, *c;
    void *out, *workspace;
    size_t workspace_bytes;
};

// op(matrix) as rows x cols floats, row by row.
inline std::vector<float> gather(const void *data, const matrix_layout &l, bool transpose,
                                 bool tf32)
{
    number type;
    find_number(&type, l.type);
    const size_t rows = transpose ? l.cols : l.rows, cols = transpose ? l.rows : l.cols;
    const bool down = (l.order == CUBLASLT_ORDER_COL) != transpose; // column-major
    const size_t ld = static_cast<size_t>(l.ld);
    std::vector<float> out(rows * cols);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++) {
            const float v = load_number(data, type, down ? j * ld + i : i * ld + j);
            out[i * cols + j] = tf32 ? round_tf32(v) : v;
        }
    return out;
}

#pragma GCC push_options
#pragma GCC optimize("O3")
inline void add_products(float *sum, const float *row, const float *b, size_t first, size_t last,
                         size_t n)
{
    for (size_t l = first; l < last; l++) {
        const float factor = row[l];
        const float *from = b + l * n;
        for (size_t j = 0; j < n; j++)
            sum[j] += factor * from[j];
    }
}
#pragma GCC pop_options

inline void check_memory(const matmul_run &q)
{
    emu_check_device(q.a, extent_bytes(q.p.a), "cublasLtMatmul: A");
    emu_check_device(q.b, extent_bytes(q.p.b), "cublasLtMatmul: B");
    if (q.beta != 0)
        emu_check_device(q.c, extent_bytes(q.p.c), "cublasLtMatmul: C");
    emu_check_device(q.out, extent_bytes(q.p.out), "cublasLtMatmul: D");
    emu_check_device(q.workspace, q.workspace_bytes, "cublasLtMatmul: workspace");
}

inline void multiply(const matmul_run &q)
{
    check_memory(q);
    const matmul_problem &p = q.p;
    const bool tf32 = p.d.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    const std::vector<float> a = gather(q.a, p.a, p.d.trans_a == CUBLAS_OP_T, tf32);
    const std::vector<float> b = gather(q.b, p.b, p.d.trans_b == CUBLAS_OP_T, tf32);
    std::vector<float> c;
    if (q.beta != 0)
        c = gather(q.c, p.c, false, false);
    if (q.workspace_bytes > 0) // NaNs, to expose a caller that keeps data there
        memset(q.workspace, 0xFF, q.workspace_bytes);
    number type;
    find_number(&type, p.out.type);
    const size_t ld = static_cast<size_t>(p.out.ld);
    const size_t split = q.algorithm_id == ALGO_SPLIT_K ? p.k / 2 : 0;
    std::vector<float> sum(p.n), half(p.n);
    for (size_t i = 0; i < p.m; i++) {
        std::fill(sum.begin(), sum.end(), 0.0f);
        std::fill(half.begin(), half.end(), 0.0f);
        add_products(half.data(), &a[i * p.k], b.data(), 0, split, p.n);
        add_products(sum.data(), &a[i * p.k], b.data(), split, p.k, p.n);
        for (size_t j = 0; j < p.n; j++) {
            float v = q.alpha * (sum[j] + half[j]);
            if (q.beta != 0)
                v += q.beta * c[i * p.n + j];
            store_number(q.out, type, p.out.order == CUBLASLT_ORDER_COL ? j * ld + i : i * ld + j,
                         v);
        }
    }
}

// The result must not overlap anything else, or must coincide with C if that has the same layout.
inline void check_overlap(const matmul_run &q)
{
    const region out = {q.out, extent_bytes(q.p.out)}, c = {q.c, extent_bytes(q.p.c)};
    const region a = {q.a, extent_bytes(q.p.a)}, b = {q.b, extent_bytes(q.p.b)};
    const region workspace = {q.workspace, q.workspace_bytes};
    const bool in_place = q.c == q.out && q.p.c.ld == q.p.out.ld && q.p.c.order == q.p.out.order;
    if (overlap(out, a) || overlap(out, b) || (!in_place && overlap(out, c)))
        emu_fail("cublasLtMatmul: D overlaps with A, B or C");
    for (const region &r : {out, a, b, c})
        if (overlap(workspace, r))
            emu_fail("cublasLtMatmul: the workspace overlaps with A, B, C or D");
}

} // namespace emu

#endif
