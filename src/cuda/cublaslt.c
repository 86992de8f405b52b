/* cuBLASLt is loaded when it is first called, as a rank on a CPU never does: the library has
 * 350,000 relocations, which take every start 0.1 s and every process 210 MB. These are the
 * functions that dtrain calls, as cublasLt.h declares them; the emulator of the tests has its own.
 */
#include <cublasLt.h>
#include <dlfcn.h>
#include <string.h>

static void *find(const char *name)
{
    static void *library;
    if (!library)
        library = dlopen(DT_CUBLASLT, RTLD_NOW | RTLD_LOCAL);
    return library ? dlsym(library, name) : NULL;
}

#define FORWARD(type, missing, name, parameters, arguments) \
    type name parameters                                    \
    {                                                       \
        static type(*function) parameters;                  \
        void *found = function ? NULL : find(#name);        \
        if (found)                                          \
            memcpy(&function, &found, sizeof function);     \
        return function ? function arguments : (missing);   \
    }
#define CALL(name, parameters, arguments) \
    FORWARD(cublasStatus_t, CUBLAS_STATUS_NOT_INITIALIZED, name, parameters, arguments)

FORWARD(const char *, "cuBLASLt", cublasLtGetStatusName, (cublasStatus_t status), (status))
FORWARD(const char *, DT_CUBLASLT " cannot be loaded", cublasLtGetStatusString,
        (cublasStatus_t status), (status))
FORWARD(size_t, 0, cublasLtGetVersion, (void), ())
CALL(cublasLtCreate, (cublasLtHandle_t * handle), (handle))
CALL(cublasLtDestroy, (cublasLtHandle_t handle), (handle))
CALL(cublasLtMatmul,
     (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
      cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
      const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
      cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo, void *workspace,
      size_t bytes, cudaStream_t stream),
     (handle, desc, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout, algo,
      workspace, bytes, stream))
CALL(cublasLtMatmulAlgoGetHeuristic,
     (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
      cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
      cublasLtMatmulPreference_t preference, int n_wanted, cublasLtMatmulHeuristicResult_t *out,
      int *n_found),
     (handle, desc, a, b, c, d, preference, n_wanted, out, n_found))
CALL(cublasLtMatmulDescCreate,
     (cublasLtMatmulDesc_t * desc, cublasComputeType_t compute, cudaDataType_t scale),
     (desc, compute, scale))
CALL(cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t desc), (desc))
CALL(cublasLtMatmulDescSetAttribute,
     (cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const void *value,
      size_t bytes),
     (desc, attribute, value, bytes))
CALL(cublasLtMatmulPreferenceCreate, (cublasLtMatmulPreference_t * preference), (preference))
CALL(cublasLtMatmulPreferenceDestroy, (cublasLtMatmulPreference_t preference), (preference))
CALL(cublasLtMatmulPreferenceSetAttribute,
     (cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
      const void *value, size_t bytes),
     (preference, attribute, value, bytes))
CALL(cublasLtMatrixLayoutCreate,
     (cublasLtMatrixLayout_t * layout, cudaDataType type, uint64_t rows, uint64_t columns,
      int64_t stride),
     (layout, type, rows, columns, stride))
CALL(cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t layout), (layout))
