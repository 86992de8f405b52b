// cuBLASLt for tests: matrix products on the CPU, with the checks of the real library and those it
// leaves to the caller. fp32 (also rounded to TF32), fp16, bf16; sums in fp32, alpha and beta on
// the host, one matrix per call, no epilogue. What is not emulated is refused with
// CUBLAS_STATUS_NOT_SUPPORTED.
#include <cublasLt.h>

#include <algorithm>
#include <set>

#include "emulator.h"
#include "matmul.h"

using emu::ALGO_PLAIN;
using emu::ALGO_SPLIT_K;
using emu::matmul_desc;
using emu::matmul_problem;
using emu::matmul_run;
using emu::matrix_layout;

namespace
{

// --- Objects behind handles ---

struct handle {
    int device;
};

struct preference {
    uint64_t workspace = 0;
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
    uint32_t alignment[4] = {256, 256, 256, 256}; // of A, B, C, D
};

// The live handles; using any other is undefined in the real library.
std::set<const void *> &live()
{
    static std::set<const void *> set;
    return set;
}

template <typename T> T *check_live(const void *p, const char *what)
{
    const auto lock = emu_lock();
    if (p && !live().count(p))
        emu_fail("cuBLASLt: %s was destroyed or never created", what);
    return const_cast<T *>(static_cast<const T *>(p));
}

template <typename T, typename H> void add_live(H *out, T *object)
{
    const auto lock = emu_lock();
    live().insert(object);
    *out = reinterpret_cast<H>(object);
}

template <typename T> void remove_live(const void *p, const char *what)
{
    T *object = check_live<T>(p, what);
    const auto lock = emu_lock();
    live().erase(object);
    delete object;
}

matmul_desc *desc_of(cublasLtMatmulDesc_t d)
{
    return check_live<matmul_desc>(d, "a matmul descriptor");
}

matrix_layout *layout_of(cublasLtMatrixLayout_t l)
{
    return check_live<matrix_layout>(l, "a matrix layout");
}

preference *preference_of(cublasLtMatmulPreference_t p)
{
    return check_live<preference>(p, "a matmul preference");
}

handle *handle_of(cublasLtHandle_t h)
{
    return check_live<handle>(h, "a cuBLASLt handle");
}

// The location of an attribute in an object; a size different from the caller's is refused.
cublasStatus_t assign(void *field, size_t size, const void *value, size_t value_size)
{
    if (!value || value_size != size)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(field, value, size);
    return CUBLAS_STATUS_SUCCESS;
}

// --- Algorithms ---

enum : uint64_t { ALGO_MAGIC = 0x646c6572617a7961 };

struct algorithm { // stored inside cublasLtMatmulAlgo_t
    uint64_t magic, id, workspace;
    uint32_t alignment[4];
};
static_assert(sizeof(algorithm) <= sizeof(cublasLtMatmulAlgo_t), "an algorithm must fit");

algorithm unpack(const cublasLtMatmulAlgo_t &algo)
{
    algorithm a;
    memcpy(&a, &algo, sizeof a);
    return a;
}

cublasStatus_t check_pointers(const matmul_run &q, const algorithm &algo)
{
    const void *const pointers[] = {q.a, q.b, q.c, q.out};
    const matrix_layout *const layouts[] = {&q.p.a, &q.p.b, &q.p.c, &q.p.out};
    for (int i = 0; i < 4; i++) {
        const uint64_t promised = algo.alignment[i]; // by the preference; a kernel may need it
        if (!pointers[i] ||
            !emu::is_aligned(pointers[i], std::max<uint64_t>(promised, element_bytes(*layouts[i]))))
            return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (q.workspace_bytes < workspace_of(q.p, algo.id) || q.workspace_bytes < algo.workspace)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (q.workspace_bytes > 0 && (!q.workspace || !emu::is_aligned(q.workspace, 256)))
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

const struct {
    cublasStatus_t status;
    const char *name, *text;
} statuses[] = {
    {CUBLAS_STATUS_SUCCESS, "CUBLAS_STATUS_SUCCESS", "success"},
    {CUBLAS_STATUS_NOT_INITIALIZED, "CUBLAS_STATUS_NOT_INITIALIZED",
     "the library was not initialized"},
    {CUBLAS_STATUS_ALLOC_FAILED, "CUBLAS_STATUS_ALLOC_FAILED", "the resource allocation failed"},
    {CUBLAS_STATUS_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE",
     "an unsupported value or parameter was passed to the function"},
    {CUBLAS_STATUS_ARCH_MISMATCH, "CUBLAS_STATUS_ARCH_MISMATCH",
     "the function requires an architectural feature absent from the device"},
    {CUBLAS_STATUS_MAPPING_ERROR, "CUBLAS_STATUS_MAPPING_ERROR",
     "an access to GPU memory space failed"},
    {CUBLAS_STATUS_EXECUTION_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED",
     "the function failed to launch on the GPU"},
    {CUBLAS_STATUS_INTERNAL_ERROR, "CUBLAS_STATUS_INTERNAL_ERROR", "an internal operation failed"},
    {CUBLAS_STATUS_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED",
     "the requested functionality is not supported"},
    {CUBLAS_STATUS_LICENSE_ERROR, "CUBLAS_STATUS_LICENSE_ERROR", "the license check failed"},
};

const char *name_of(cublasStatus_t status)
{
    for (const auto &s : statuses)
        if (s.status == status)
            return s.name;
    return "unrecognized status";
}

const char *text_of(cublasStatus_t status)
{
    for (const auto &s : statuses)
        if (s.status == status)
            return s.text;
    return "unrecognized status";
}

} // namespace

// --- The library ---

extern "C" {

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    return name_of(status);
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return text_of(status);
}

const char *cublasGetStatusName(cublasStatus_t status)
{
    return name_of(status);
}

const char *cublasGetStatusString(cublasStatus_t status)
{
    return text_of(status);
}

size_t cublasLtGetVersion(void)
{
    return CUBLAS_VERSION;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    int n = 0;
    if (!out)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (emu_forbid_capture("cublasLtCreate") != cudaSuccess)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    add_live(out, new handle{emu_current_device()});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
    if (!h)
        return CUBLAS_STATUS_INVALID_VALUE;
    remove_live<handle>(h, "a cuBLASLt handle");
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    if (!out)
        return CUBLAS_STATUS_INVALID_VALUE;
    matmul_desc *d = new matmul_desc;
    d->compute = compute;
    d->scale = scale;
    add_live(out, d);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    if (d)
        remove_live<matmul_desc>(d, "a matmul descriptor");
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t size)
{
    matmul_desc *d = desc_of(handle);
    if (!d)
        return CUBLAS_STATUS_INVALID_VALUE;
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
        return assign(&d->compute, sizeof d->compute, value, size);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
        return assign(&d->scale, sizeof d->scale, value, size);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
        return assign(&d->pointer_mode, sizeof d->pointer_mode, value, size);
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return assign(&d->trans_a, sizeof d->trans_a, value, size);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return assign(&d->trans_b, sizeof d->trans_b, value, size);
    case CUBLASLT_MATMUL_DESC_TRANSC:
        return assign(&d->trans_c, sizeof d->trans_c, value, size);
    case CUBLASLT_MATMUL_DESC_FILL_MODE:
        return assign(&d->fill_mode, sizeof d->fill_mode, value, size);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return assign(&d->epilogue, sizeof d->epilogue, value, size);
    default:
        return attribute >= 0 && attribute <= CUBLASLT_MATMUL_DESC_EMULATION_DESCRIPTOR
                   ? CUBLAS_STATUS_NOT_SUPPORTED
                   : CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    if (!out)
        return CUBLAS_STATUS_INVALID_VALUE;
    matrix_layout *l = new matrix_layout;
    l->type = static_cast<uint32_t>(type);
    l->rows = rows;
    l->cols = cols;
    l->ld = ld;
    add_live(out, l);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    if (l)
        remove_live<matrix_layout>(l, "a matrix layout");
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *value, size_t size)
{
    matrix_layout *l = layout_of(handle);
    if (!l)
        return CUBLAS_STATUS_INVALID_VALUE;
    switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
        return assign(&l->type, sizeof l->type, value, size);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
        return assign(&l->order, sizeof l->order, value, size);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
        return assign(&l->rows, sizeof l->rows, value, size);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
        return assign(&l->cols, sizeof l->cols, value, size);
    case CUBLASLT_MATRIX_LAYOUT_LD:
        return assign(&l->ld, sizeof l->ld, value, size);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        return assign(&l->batch, sizeof l->batch, value, size);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        return assign(&l->batch_stride, sizeof l->batch_stride, value, size);
    case CUBLASLT_MATRIX_LAYOUT_PLANE_OFFSET:
    case CUBLASLT_MATRIX_LAYOUT_BATCH_MODE:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    if (!out)
        return CUBLAS_STATUS_INVALID_VALUE;
    add_live(out, new preference);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    if (p)
        remove_live<preference>(p, "a matmul preference");
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t size)
{
    preference *p = preference_of(handle);
    if (!p)
        return CUBLAS_STATUS_INVALID_VALUE;
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return assign(&p->workspace, sizeof p->workspace, value, size);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return assign(&p->reductions, sizeof p->reductions, value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        return assign(&p->alignment[0], sizeof p->alignment[0], value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        return assign(&p->alignment[1], sizeof p->alignment[1], value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        return assign(&p->alignment[2], sizeof p->alignment[2], value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return assign(&p->alignment[3], sizeof p->alignment[3], value, size);
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
    case CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT:
    case CUBLASLT_MATMUL_PREF_IMPL_MASK:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

// The first result uses a workspace if the preference allows one that is large enough.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t d,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
                                              cublasLtMatmulPreference_t preference,
                                              int n_requested,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int *n_results)
{
    if (!handle_of(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    const auto *pref = preference_of(preference);
    if (!pref || n_requested < 1 || !results || !n_results)
        return CUBLAS_STATUS_INVALID_VALUE;
    *n_results = 0;
    matmul_problem p;
    const cublasStatus_t status =
        make_problem(&p, desc_of(d), layout_of(a), layout_of(b), layout_of(c), layout_of(out));
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    for (const uint64_t id : {ALGO_SPLIT_K, ALGO_PLAIN}) {
        const size_t bytes = workspace_of(p, id);
        const bool in_two_steps = pref->reductions & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
        if (*n_results == n_requested || bytes > pref->workspace ||
            (id == ALGO_SPLIT_K && !in_two_steps))
            continue;
        algorithm algo = {ALGO_MAGIC, id, bytes, {}};
        memcpy(algo.alignment, pref->alignment, sizeof algo.alignment);
        cublasLtMatmulHeuristicResult_t &r = results[(*n_results)++];
        r = cublasLtMatmulHeuristicResult_t{};
        memcpy(&r.algo, &algo, sizeof algo);
        r.workspaceSize = bytes;
        r.wavesCount = 1;
    }
    return *n_results > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t d, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *out,
                              cublasLtMatrixLayout_t out_layout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    const auto *h = handle_of(handle);
    if (!h)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!alpha || !beta)
        return CUBLAS_STATUS_INVALID_VALUE;
    matmul_run q = {{}, ALGO_PLAIN, 0, 0, a, b, c, out, workspace, workspace_bytes};
    cublasStatus_t status = make_problem(&q.p, desc_of(d), layout_of(a_layout), layout_of(b_layout),
                                         layout_of(c_layout), layout_of(out_layout));
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    algorithm chosen = {ALGO_MAGIC, ALGO_PLAIN, 0, {}}; // no algo given: any that fits
    if (algo)
        chosen = unpack(*algo);
    if (chosen.magic != ALGO_MAGIC)
        return CUBLAS_STATUS_INVALID_VALUE;
    status = check_pointers(q, chosen);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    if (emu_is_device(alpha) || emu_is_device(beta))
        emu_fail("cublasLtMatmul: alpha or beta is in device memory, but the pointer mode is host");
    if (emu_stream_device(stream) != h->device)
        emu_fail("cublasLtMatmul: the handle belongs to device %d, the stream to device %d",
                 h->device, emu_stream_device(stream));
    q.algorithm_id = chosen.id;
    memcpy(&q.alpha, alpha, sizeof q.alpha);
    memcpy(&q.beta, beta, sizeof q.beta);
    check_overlap(q);
    emu_enqueue(stream, [q] { multiply(q); }, "cublasLtMatmul", {q.a, q.b, q.out});
    return CUBLAS_STATUS_SUCCESS;
}

} // extern "C"
