// cuBLASLt for tests: matrix products on the CPU, with the checks of the real library and those it
// leaves to the caller. fp32 (also rounded to TF32), fp16, bf16; sums in fp32, alpha and beta on
// the host, one matrix per call, no epilogue. What is not emulated is refused with
// CUBLAS_STATUS_NOT_SUPPORTED.
#include <cublasLt.h>

#include <algorithm>
#include <set>
#include <vector>

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
    static constexpr const char *title = "a cuBLASLt handle";
    int device;
};

struct preference {
    static constexpr const char *title = "a matmul preference";
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

// The object behind a handle; NULL behind none.
template <typename T, typename H> T *object(H h)
{
    const auto lock = emu_lock();
    if (h && !live().count(h))
        emu_fail("cuBLASLt: %s was destroyed or never created", T::title);
    return reinterpret_cast<T *>(h);
}

template <typename T, typename H> void add_live(H *out, T *object)
{
    const auto lock = emu_lock();
    live().insert(object);
    *out = reinterpret_cast<H>(object);
}

template <typename T, typename H> cublasStatus_t destroy(H h)
{
    const auto lock = emu_lock();
    T *const own = object<T>(h);
    live().erase(own);
    delete own;
    return CUBLAS_STATUS_SUCCESS;
}

// An attribute in an object.
struct field {
    template <typename T> field(int number, T *at) : attribute(number), place(at), bytes(sizeof *at)
    {
    }
    int attribute;
    void *place;
    size_t bytes;
};

// A size different from the caller's is refused. `exists`: in cuBLASLt, if not here.
cublasStatus_t assign(const std::vector<field> &fields, int attribute, const void *value,
                      size_t bytes, bool exists)
{
    for (const field &f : fields) {
        if (f.attribute != attribute)
            continue;
        if (!value || bytes != f.bytes)
            return CUBLAS_STATUS_INVALID_VALUE;
        memcpy(f.place, value, bytes);
        return CUBLAS_STATUS_SUCCESS;
    }
    return exists ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_INVALID_VALUE;
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

struct status_row {
    cublasStatus_t status;
    const char *name, *text;
};

const status_row statuses[] = {
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

const status_row &row_of(cublasStatus_t status)
{
    static const status_row none = {{}, "unrecognized status", "unrecognized status"};
    for (const status_row &s : statuses)
        if (s.status == status)
            return s;
    return none;
}

} // namespace

// --- The library ---

extern "C" {

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    return row_of(status).name;
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return row_of(status).text;
}

const char *cublasGetStatusName(cublasStatus_t status)
{
    return row_of(status).name;
}

const char *cublasGetStatusString(cublasStatus_t status)
{
    return row_of(status).text;
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
    return destroy<handle>(h);
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
    return destroy<matmul_desc>(d);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t size)
{
    matmul_desc *d = object<matmul_desc>(handle);
    if (!d)
        return CUBLAS_STATUS_INVALID_VALUE;
    return assign({{CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, &d->compute},
                   {CUBLASLT_MATMUL_DESC_SCALE_TYPE, &d->scale},
                   {CUBLASLT_MATMUL_DESC_POINTER_MODE, &d->pointer_mode},
                   {CUBLASLT_MATMUL_DESC_TRANSA, &d->trans_a},
                   {CUBLASLT_MATMUL_DESC_TRANSB, &d->trans_b},
                   {CUBLASLT_MATMUL_DESC_TRANSC, &d->trans_c},
                   {CUBLASLT_MATMUL_DESC_FILL_MODE, &d->fill_mode},
                   {CUBLASLT_MATMUL_DESC_EPILOGUE, &d->epilogue}},
                  attribute, value, size,
                  attribute >= 0 && attribute <= CUBLASLT_MATMUL_DESC_EMULATION_DESCRIPTOR);
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
    return destroy<matrix_layout>(l);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *value, size_t size)
{
    matrix_layout *l = object<matrix_layout>(handle);
    if (!l)
        return CUBLAS_STATUS_INVALID_VALUE;
    return assign({{CUBLASLT_MATRIX_LAYOUT_TYPE, &l->type},
                   {CUBLASLT_MATRIX_LAYOUT_ORDER, &l->order},
                   {CUBLASLT_MATRIX_LAYOUT_ROWS, &l->rows},
                   {CUBLASLT_MATRIX_LAYOUT_COLS, &l->cols},
                   {CUBLASLT_MATRIX_LAYOUT_LD, &l->ld},
                   {CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &l->batch},
                   {CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &l->batch_stride}},
                  attribute, value, size,
                  attribute == CUBLASLT_MATRIX_LAYOUT_PLANE_OFFSET ||
                      attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_MODE);
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
    return destroy<preference>(p);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t size)
{
    preference *p = object<preference>(handle);
    if (!p)
        return CUBLAS_STATUS_INVALID_VALUE;
    return assign({{CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &p->workspace},
                   {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &p->reductions},
                   {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &p->alignment[0]},
                   {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &p->alignment[1]},
                   {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &p->alignment[2]},
                   {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &p->alignment[3]}},
                  attribute, value, size,
                  attribute == CUBLASLT_MATMUL_PREF_SEARCH_MODE ||
                      attribute == CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT ||
                      attribute == CUBLASLT_MATMUL_PREF_IMPL_MASK);
}

// The first result uses a workspace if the preference allows one that is large enough.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t owner, cublasLtMatmulDesc_t d,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
                                              cublasLtMatmulPreference_t wanted, int n_requested,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int *n_results)
{
    if (!object<handle>(owner))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    const auto *pref = object<preference>(wanted);
    if (!pref || n_requested < 1 || !results || !n_results)
        return CUBLAS_STATUS_INVALID_VALUE;
    *n_results = 0;
    matmul_problem p;
    const cublasStatus_t status =
        make_problem(&p, object<matmul_desc>(d), object<matrix_layout>(a), object<matrix_layout>(b),
                     object<matrix_layout>(c), object<matrix_layout>(out));
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

cublasStatus_t cublasLtMatmul(cublasLtHandle_t owner, cublasLtMatmulDesc_t d, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *out,
                              cublasLtMatrixLayout_t out_layout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    const auto *h = object<handle>(owner);
    if (!h)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!alpha || !beta)
        return CUBLAS_STATUS_INVALID_VALUE;
    matmul_run q = {{}, ALGO_PLAIN, 0, 0, a, b, c, out, workspace, workspace_bytes};
    cublasStatus_t status =
        make_problem(&q.p, object<matmul_desc>(d), object<matrix_layout>(a_layout),
                     object<matrix_layout>(b_layout), object<matrix_layout>(c_layout),
                     object<matrix_layout>(out_layout));
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
