/* All ranks on one GPU without device.allow_shared_gpu: NCCL refuses it and the message says what
 * to do. A separate program because NCCL determines only once which ranks are neighbours. With a
 * GPU or with the emulator of one; exits with 77 without. */
#include <cuda_runtime_api.h>
#include <string.h>

#include "dtrain/comm.h"
#include "test.h"

enum { SKIPPED = 77 };

static struct dt_comm *comm;
static cudaStream_t stream;

TEST(twins)
{
    struct dt_comm_options options = {.plane = DT_PLANE_NCCL,
                                      .n_reductions = 1,
                                      .max_count = 8,
                                      .dtype = DT_F32,
                                      .stream = stream,
                                      .timeout_s = 60.0};
    dt_status status = dt_comm_open_reduce(comm, &options);
    if (dt_comm_size(comm) == 1) {
        assert_int_equal(status, DT_OK);
        return;
    }
    if (status != DT_ERR_CONFIG)
        print_error("%s\n", dt_error_text());
    assert_int_equal(status, DT_ERR_CONFIG);
    assert_non_null(strstr(dt_error_text(), "two ranks use the same GPU"));
    assert_non_null(strstr(dt_error_text(), "device.allow_shared_gpu = true"));
}

static bool find_device(void)
{
    int n_devices = 0;
    return cudaGetDeviceCount(&n_devices) == cudaSuccess && n_devices > 0 &&
           cudaSetDevice(0) == cudaSuccess && cudaStreamCreate(&stream) == cudaSuccess;
}

int main(int argc, char **argv)
{
    if (dt_comm_open(&comm, &argc, &argv) != DT_OK) {
        print_error("%s\n", dt_error_text());
        return 1;
    }
    if (!find_device()) {
        print_message("skipped: no GPU\n");
        dt_comm_close(comm);
        return SKIPPED;
    }
    int n_failed = run_all_tests(NULL, NULL);
    dt_comm_close_reduce(comm);
    dt_comm_close(comm);
    return n_failed ? 1 : 0;
}
