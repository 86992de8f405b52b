/* Linear layers by cuBLASLt, one matrix product each; bias and its gradient use our own kernels.
 *
 * In row-major order: dst (n x np) = src (n x k) times weights (np x k) transposed, with k = H W
 * cp, where the padding is zero. cuBLASLt is column-major, which transposes every matrix: rows x
 * width here is width x rows there, with leading dimension width, and the factors are swapped. */
#include <stdlib.h>

#include "base/mem.h"
#include "cuda/cuda_internal.h"

enum { MAX_WORKSPACE = 32 << 20 };

/* In cuBLASLt's terms: out = a b, after transposing a (forward) or b (gradient of the weights). */
struct product {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t layout[3];
    cublasLtMatmulAlgo_t algo;
    size_t workspace_bytes;
};

enum { A, B, OUT };

static void release_linear(struct dt_device *dev, struct dt_exec *exec)
{
    struct product *p = exec->own;
    (void)dev;
    if (!p)
        return;
    for (int i = 0; i < 3; i++)
        if (p->layout[i])
            (void)cublasLtMatrixLayoutDestroy(p->layout[i]);
    if (p->desc)
        (void)cublasLtMatmulDescDestroy(p->desc);
    free(p);
    exec->own = NULL;
}

/* The first algorithm that cuBLASLt proposes: for so few products, timing does not pay off. */
static dt_status choose_algorithm(struct dt_device *dev, struct product *p, const char *name)
{
    dt_status status = DT_OK;
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t found = {0};
    int n_found = 0;

    DT_TRY_OUT(DT_CUBLAS(name, cublasLtMatmulPreferenceCreate(&preference)));
    /* If k is split, the partial sums are in fp32 and added in a separate step: without loss of
     * precision, and in the same order in every run. Unless told otherwise, cuBLASLt expects
     * tensors at multiples of 256 bytes, where the plan puts them. */
    const uint64_t workspace = MAX_WORKSPACE;
    const uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    DT_TRY_OUT(DT_CUBLAS(name, cublasLtMatmulPreferenceSetAttribute(
                                   preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                   sizeof workspace)));
    DT_TRY_OUT(DT_CUBLAS(
        name, cublasLtMatmulPreferenceSetAttribute(
                  preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &scheme, sizeof scheme)));
    DT_TRY_OUT(DT_CUBLAS(name, cublasLtMatmulAlgoGetHeuristic(
                                   dev->blas, p->desc, p->layout[A], p->layout[B], p->layout[OUT],
                                   p->layout[OUT], preference, 1, &found, &n_found)));
    if (n_found < 1)
        DT_TRY_OUT(DT_CUBLAS(name, CUBLAS_STATUS_NOT_SUPPORTED));
    DT_TRY_OUT(DT_CUBLAS(name, found.state));
    p->algo = found.algo;
    p->workspace_bytes = found.workspaceSize;
out:
    if (preference)
        (void)cublasLtMatmulPreferenceDestroy(preference);
    return status;
}

/* The position of factor a among the sources; the other one is b. */
static int factor_a(const struct dt_exec *exec)
{
    return exec->node->op == DT_OP_LINEAR_BWD_WEIGHTS ? 0 : 1;
}

static dt_status prepare_linear(struct dt_device *dev, struct dt_exec *exec)
{
    const char *name = exec->node->name;
    const int first = factor_a(exec);
    const struct dt_cuda_format *format[] = {exec->src[first], exec->src[1 - first], exec->dst[0]};
    struct product *p = NULL;
    DT_TRY(DT_NEW(p, 1));
    exec->own = p; /* released with the node */
    const cublasComputeType_t compute = dev->options.precision == DT_PRECISION_TF32
                                            ? CUBLAS_COMPUTE_32F_FAST_TF32
                                            : CUBLAS_COMPUTE_32F;
    const cublasOperation_t a = exec->node->op == DT_OP_LINEAR ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t b = first == 0 ? CUBLAS_OP_T : CUBLAS_OP_N;
    DT_TRY(DT_CUBLAS(name, cublasLtMatmulDescCreate(&p->desc, compute, CUDA_R_32F)));
    DT_TRY(DT_CUBLAS(
        name, cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a)));
    DT_TRY(DT_CUBLAS(
        name, cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b)));
    for (int i = 0; i < 3; i++) {
        const struct dt_cuda_format *f = format[i];
        uint64_t width = (uint64_t)f->h * (uint64_t)f->w * (uint64_t)f->cp;
        DT_TRY(DT_CUBLAS(name, cublasLtMatrixLayoutCreate(&p->layout[i],
                                                          f->type == DT_F16    ? CUDA_R_16F
                                                          : f->type == DT_BF16 ? CUDA_R_16BF
                                                                               : CUDA_R_32F,
                                                          width, (uint64_t)f->np, (int64_t)width)));
    }
    DT_TRY(choose_algorithm(dev, p, name));
    exec->scratch_bytes = p->workspace_bytes;
    return DT_OK;
}

static dt_status multiply(struct dt_device *dev, struct dt_exec *exec)
{
    static const float one = 1, zero = 0;
    const struct product *p = exec->own;
    const void *a = exec->src_data[factor_a(exec)], *b = exec->src_data[1 - factor_a(exec)];
    void *out = exec->dst_data[0];
    void *workspace = p->workspace_bytes > 0 ? exec->scratch : NULL;
    return DT_CUBLAS(exec->node->name,
                     cublasLtMatmul(dev->blas, p->desc, &one, a, p->layout[A], b, p->layout[B],
                                    &zero, out, p->layout[OUT], out, p->layout[OUT], &p->algo,
                                    workspace, p->workspace_bytes, dev->compute));
}

static dt_status run_linear(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_cuda_format *dst = exec->dst[0];
    DT_TRY(multiply(dev, exec));
    return DT_KERNEL(dev, exec, dt_kernel_bias, dst->type, exec->dst_data[0],
                     exec->src_data[DT_LINEAR_BIAS], (size_t)dst->n, dst->cp, false);
}

/* The workspace and the partial sums of the bias are never used at the same time. */
static dt_status prepare_linear_bwd_weights(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_cuda_format *diff_dst = exec->src[1];
    DT_TRY(prepare_linear(dev, exec));
    size_t partial = dt_channel_partial_bytes((size_t)diff_dst->n, diff_dst->cp, 1);
    if (exec->scratch_bytes < partial)
        exec->scratch_bytes = partial;
    return DT_OK;
}

static dt_status run_linear_bwd_weights(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_cuda_format *diff_dst = exec->src[1];
    DT_TRY(multiply(dev, exec));
    return DT_KERNEL(dev, exec, dt_kernel_bias_bwd, diff_dst->type,
                     exec->dst_data[DT_BWD_DIFF_BIAS], (float *)exec->scratch, exec->src_data[1],
                     (size_t)diff_dst->n, diff_dst->cp);
}

const struct dt_cuda_op dt_cuda_linear = {
    .prepare = prepare_linear, .run = run_linear, .release = release_linear};
const struct dt_cuda_op dt_cuda_linear_bwd_data = {
    .prepare = prepare_linear, .run = multiply, .release = release_linear};
const struct dt_cuda_op dt_cuda_linear_bwd_weights = {.prepare = prepare_linear_bwd_weights,
                                                      .run = run_linear_bwd_weights,
                                                      .release = release_linear};
