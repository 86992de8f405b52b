// The emulated cuBLASLt: compares products with plain sums in fp64, and checks that it refuses what
// the real library refuses, with the same status.
#include <cublasLt.h>

#include "test_rig.h"

static cublasLtHandle_t blas;

static cudaDataType cuda_type(number type)
{
    return type == number::f16 ? CUDA_R_16F : type == number::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

// D (m x n) = alpha op(A) op(B) + beta C, every matrix with a leading dimension of its own.
struct matmul {
    int m = 24, n = 16, k = 40;
    number type = number::f32;
    bool trans_a = false, trans_b = false, rows = false; // rows: all matrices are row-major
    cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
    float alpha = 1, beta = 0;
    int pad = 8; // of leading dimensions
    cublasLtMatmulDesc_t desc = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
    cublasLtMatmulPreference_t preference = nullptr;
    int ld[3];

    static size_t length(int rows_of, int cols_of, bool by_rows, int ld_of)
    {
        return static_cast<size_t>(by_rows ? rows_of : cols_of) * static_cast<size_t>(ld_of);
    }
    cublasLtMatrixLayout_t layout(int rows_of, int cols_of, int *ld_of) const
    {
        cublasLtMatrixLayout_t l;
        const int32_t order = rows ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
        *ld_of = (rows ? cols_of : rows_of) + pad;
        OK(cublasLtMatrixLayoutCreate(&l, cuda_type(type), static_cast<uint64_t>(rows_of),
                                      static_cast<uint64_t>(cols_of), *ld_of));
        OK(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof order));
        return l;
    }
    void open()
    {
        const int32_t ta = trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
        const int32_t tb = trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
        const uint64_t workspace = 1 << 20;
        OK(cublasLtMatmulDescCreate(&desc, compute, CUDA_R_32F));
        OK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta));
        OK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb));
        a = layout(trans_a ? k : m, trans_a ? m : k, &ld[0]);
        b = layout(trans_b ? n : k, trans_b ? k : n, &ld[1]);
        c = layout(m, n, &ld[2]);
        OK(cublasLtMatmulPreferenceCreate(&preference));
        OK(cublasLtMatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace));
    }
    std::vector<cublasLtMatmulHeuristicResult_t> algorithms()
    {
        std::vector<cublasLtMatmulHeuristicResult_t> list(8);
        int n_found = 0;
        OK(cublasLtMatmulAlgoGetHeuristic(blas, desc, a, b, c, c, preference, 8, list.data(),
                                          &n_found));
        list.resize(static_cast<size_t>(n_found));
        return list;
    }
    ~matmul()
    {
        cublasLtMatmulDescDestroy(desc);
        for (cublasLtMatrixLayout_t l : {a, b, c})
            cublasLtMatrixLayoutDestroy(l);
        cublasLtMatmulPreferenceDestroy(preference);
    }
};

static size_t place(const matmul &p, int ld, int i, int j)
{
    return static_cast<size_t>(p.rows ? i * ld + j : j * ld + i);
}

// The memory between the columns of D is unchanged.
static std::vector<double> reference(const matmul &p, const array &a, const array &b,
                                     const array &c)
{
    std::vector<double> out(c.values.begin(), c.values.end());
    for (int i = 0; i < p.m; i++)
        for (int j = 0; j < p.n; j++) {
            double sum = 0;
            for (int l = 0; l < p.k; l++)
                sum +=
                    static_cast<double>(
                        a.values[p.trans_a ? place(p, p.ld[0], l, i) : place(p, p.ld[0], i, l)]) *
                    static_cast<double>(
                        b.values[p.trans_b ? place(p, p.ld[1], j, l) : place(p, p.ld[1], l, j)]);
            double &v = out[place(p, p.ld[2], i, j)];
            v = static_cast<double>(p.alpha) * sum + static_cast<double>(p.beta) * v;
        }
    return out;
}

static void check_matmul(matmul &p)
{
    p.open();
    array a(p.type, matmul::length(p.trans_a ? p.k : p.m, p.trans_a ? p.m : p.k, p.rows, p.ld[0]));
    array b(p.type, matmul::length(p.trans_b ? p.n : p.k, p.trans_b ? p.k : p.n, p.rows, p.ld[1]));
    const auto algorithms = p.algorithms();
    assert_int_equal(algorithms.size(), 2);
    assert_true(algorithms[0].workspaceSize > 0);
    assert_int_equal(algorithms[1].workspaceSize, 0);
    const bool tf32 = p.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    for (const auto &found : algorithms) {
        array c(p.type, matmul::length(p.m, p.n, p.rows, p.ld[2]));
        array workspace(number::f32, found.workspaceSize / 4 + 1);
        OK(found.state);
        OK(cublasLtMatmul(blas, p.desc, &p.alpha, a.device, p.a, b.device, p.b, &p.beta, c.device,
                          p.c, c.device, p.c, &found.algo, workspace.device, found.workspaceSize,
                          nullptr));
        const double error = error_of(c.download(), reference(p, a, b, c));
        assert_true(error < bound_of(p.type, tf32));
        if (tf32)
            assert_true(error > 1e-5);
    }
}

TEST(matmul)
{
    for (const number type : {number::f32, number::f16, number::bf16})
        for (int bits = 0; bits < 8; bits++) {
            matmul p;
            p.type = type;
            p.trans_a = bits & 1;
            p.trans_b = bits & 2;
            p.rows = bits & 4;
            p.alpha = bits & 1 ? 0.5f : 1.0f;
            p.beta = bits & 2 ? 1.0f : 0.0f;
            check_matmul(p);
        }
    matmul p;
    p.compute = CUBLAS_COMPUTE_32F_FAST_TF32;
    check_matmul(p);
}

TEST(matmul_attributes)
{
    matmul p;
    int32_t one = 1, other = 77;
    uint64_t wide = 1;
    p.open();
    GIVES(CUBLAS_STATUS_INVALID_VALUE, cublasLtMatmulDescCreate(nullptr, p.compute, CUDA_R_32F));
    GIVES(CUBLAS_STATUS_INVALID_VALUE,
          cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_TRANSA, &wide, sizeof wide));
    GIVES(CUBLAS_STATUS_INVALID_VALUE,
          cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_TRANSA, nullptr, 4));
    GIVES(CUBLAS_STATUS_INVALID_VALUE,
          cublasLtMatmulDescSetAttribute(nullptr, CUBLASLT_MATMUL_DESC_TRANSA, &one, 4));
    GIVES(CUBLAS_STATUS_INVALID_VALUE,
          cublasLtMatmulDescSetAttribute(p.desc, static_cast<cublasLtMatmulDescAttributes_t>(555),
                                         &one, 4));
    GIVES(CUBLAS_STATUS_SUCCESS,
          cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &other, 4));
    GIVES(CUBLAS_STATUS_INVALID_VALUE,
          cublasLtMatrixLayoutSetAttribute(p.a, CUBLASLT_MATRIX_LAYOUT_LD, &one, sizeof one));
    GIVES(CUBLAS_STATUS_INVALID_VALUE,
          cublasLtMatrixLayoutSetAttribute(p.a, static_cast<cublasLtMatrixLayoutAttribute_t>(99),
                                           &one, sizeof one));
    GIVES(CUBLAS_STATUS_INVALID_VALUE,
          cublasLtMatmulPreferenceSetAttribute(
              p.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &one, sizeof one));
    GIVES(CUBLAS_STATUS_INVALID_VALUE, cublasLtDestroy(nullptr));
    GIVES(CUBLAS_STATUS_SUCCESS, cublasLtMatmulDescDestroy(nullptr));
    GIVES(CUBLAS_STATUS_INVALID_VALUE, cublasLtCreate(nullptr));
    assert_string_equal(cublasLtGetStatusName(CUBLAS_STATUS_NOT_SUPPORTED),
                        "CUBLAS_STATUS_NOT_SUPPORTED");
    assert_string_equal(cublasLtGetStatusString(CUBLAS_STATUS_INVALID_VALUE),
                        "an unsupported value or parameter was passed to the function");
    assert_string_equal(cublasLtGetStatusName(static_cast<cublasStatus_t>(99)),
                        "unrecognized status");
}

// The answers of heuristics and product to one wrong attribute.
static void check_refused(cublasStatus_t status, matmul &p)
{
    array memory(number::f32, 4096);
    char *d = static_cast<char *>(memory.device);
    cublasLtMatmulHeuristicResult_t found;
    const float one = 1, zero = 0;
    int n_found = 5;
    GIVES(status, cublasLtMatmulAlgoGetHeuristic(blas, p.desc, p.a, p.b, p.c, p.c, p.preference, 1,
                                                 &found, &n_found));
    assert_int_equal(n_found, 0);
    GIVES(status, cublasLtMatmul(blas, p.desc, &one, d, p.a, d + 4096, p.b, &zero, d + 8192, p.c,
                                 d + 8192, p.c, nullptr, nullptr, 0, nullptr));
}

static void refuse_desc(cublasStatus_t status, cublasLtMatmulDescAttributes_t attribute,
                        int32_t value)
{
    matmul p;
    p.open();
    OK(cublasLtMatmulDescSetAttribute(p.desc, attribute, &value, sizeof value));
    check_refused(status, p);
}

template <typename T>
static void refuse_layout(cublasStatus_t status, cublasLtMatrixLayoutAttribute_t attribute, T value)
{
    matmul p;
    p.open();
    OK(cublasLtMatrixLayoutSetAttribute(p.a, attribute, &value, sizeof value));
    check_refused(status, p);
}

TEST(matmul_refused)
{
    const cublasStatus_t unsupported = CUBLAS_STATUS_NOT_SUPPORTED;
    const cublasStatus_t invalid = CUBLAS_STATUS_INVALID_VALUE;
    refuse_desc(unsupported, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    refuse_desc(unsupported, CUBLASLT_MATMUL_DESC_POINTER_MODE, CUBLASLT_POINTER_MODE_DEVICE);
    refuse_desc(unsupported, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, CUBLAS_COMPUTE_16F);
    refuse_desc(unsupported, CUBLASLT_MATMUL_DESC_SCALE_TYPE, CUDA_R_16F);
    refuse_desc(invalid, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    refuse_layout<int64_t>(invalid, CUBLASLT_MATRIX_LAYOUT_LD, 23);
    refuse_layout<int64_t>(invalid, CUBLASLT_MATRIX_LAYOUT_LD, -64);
    refuse_layout<uint64_t>(invalid, CUBLASLT_MATRIX_LAYOUT_COLS, 41);
    refuse_layout<uint64_t>(invalid, CUBLASLT_MATRIX_LAYOUT_ROWS, 0);
    refuse_layout<int32_t>(unsupported, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 2);
    refuse_layout<int32_t>(unsupported, CUBLASLT_MATRIX_LAYOUT_ORDER, CUBLASLT_ORDER_COL32);
    refuse_layout<uint32_t>(unsupported, CUBLASLT_MATRIX_LAYOUT_TYPE, CUDA_R_16F);
}

TEST(matmul_arguments)
{
    matmul p;
    p.open();
    array memory(number::f32, 1 << 16);
    const auto found = p.algorithms();
    char *d = static_cast<char *>(memory.device);
    const float one = 1, zero = 0;
    const auto call = [&](const void *alpha, char *a, char *out, const cublasLtMatmulAlgo_t *algo,
                          char *workspace, size_t bytes) {
        return cublasLtMatmul(blas, p.desc, alpha, a, p.a, d + 8192, p.b, &zero, out, p.c, out, p.c,
                              algo, workspace, bytes, nullptr);
    };
    const cublasStatus_t invalid = CUBLAS_STATUS_INVALID_VALUE;
    char *out = d + 16384, *workspace = d + 32768;
    const size_t bytes = found[0].workspaceSize;
    const cublasLtMatmulAlgo_t *algo = &found[0].algo, none = {};
    OK(call(&one, d, out, algo, workspace, bytes));
    OK(call(&one, d, out, nullptr, nullptr, 0));
    GIVES(invalid, call(nullptr, d, out, algo, workspace, bytes));
    GIVES(invalid, call(&one, nullptr, out, algo, workspace, bytes));
    GIVES(invalid, call(&one, d + 4, out, algo, workspace, bytes)); // promised: 16 bytes
    GIVES(invalid, call(&one, d, out, algo, workspace, bytes - 1));
    GIVES(invalid, call(&one, d, out, algo, nullptr, bytes));
    GIVES(invalid, call(&one, d, out, algo, workspace + 16, bytes)); // needed: 256 bytes
    GIVES(invalid, call(&one, d, out, &none, workspace, bytes));
    GIVES(CUBLAS_STATUS_NOT_INITIALIZED,
          cublasLtMatmul(nullptr, p.desc, &one, d, p.a, d + 8192, p.b, &zero, out, p.c, out, p.c,
                         algo, workspace, bytes, nullptr));
    OK(cudaDeviceSynchronize());
    int n = 0;
    cublasLtMatmulHeuristicResult_t results[2];
    GIVES(invalid, cublasLtMatmulAlgoGetHeuristic(blas, p.desc, p.a, p.b, p.c, p.c, p.preference, 0,
                                                  results, &n));
    const uint64_t small = 100; // too small: the algorithm with a workspace is omitted
    OK(cublasLtMatmulPreferenceSetAttribute(p.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                            &small, sizeof small));
    assert_int_equal(p.algorithms().size(), 1);
}

// --- Undefined behaviour ---

static void abuse_overlap()
{
    matmul p;
    p.open();
    array memory(number::f32, 4096);
    const float one = 1, zero = 0;
    cublasLtMatmul(blas, p.desc, &one, memory.device, p.a, memory.device, p.b, &zero, memory.device,
                   p.c, memory.device, p.c, nullptr, nullptr, 0, nullptr);
}

static void abuse_layout()
{
    matmul p;
    p.open();
    OK(cublasLtMatrixLayoutDestroy(p.a));
    cublasLtMatmulHeuristicResult_t found;
    int n;
    cublasLtMatmulAlgoGetHeuristic(blas, p.desc, p.a, p.b, p.c, p.c, p.preference, 1, &found, &n);
}

static const abuse abuses[] = {
    {"overlap", "D overlaps", abuse_overlap},
    {"layout", "a matrix layout was destroyed", abuse_layout},
};

TEST(abuses)
{
    for (const abuse &a : abuses)
        assert_aborts(a);
}

int main(int argc, char **argv)
{
    OK(cublasLtCreate(&blas));
    const int n_failed = run_tests_or_abuse(abuses, argc, argv);
    cublasLtDestroy(blas);
    return n_failed;
}
