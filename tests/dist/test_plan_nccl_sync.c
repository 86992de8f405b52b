/* Batch norm over groups of ranks on GPUs, or on emulated ones, against one rank with the group's
 * images; the step is recorded after three; the memory of a plan. Exits with 77 without a GPU. */
#include "sync_rig.h"

#include "../gpu/need_gpu.h"

static const struct dt_backend *const backend = &dt_backend_cuda;
static const struct dt_comm_options plane = {
    .plane = DT_PLANE_NCCL, .sum = DT_SUM_RING, .timeout_s = 60, .share = true};
static const enum dt_precision precision = DT_PRECISION_FP32;

TEST(steps)
{
    check((struct trial){.group = n, .n_passes = 1, .n_steps = 6, .tolerance = 1e-5});
}

TEST(passes)
{
    check((struct trial){
        .group = n % 2 == 0 ? 2 : 1, .n_passes = 2, .n_steps = 1, .tolerance = 1e-5});
}

TEST(memory)
{
    if (is_emulated()) /* a GPU allocates in larger pieces, and others use it */
        check_memory();
}

int main(int argc, char **argv)
{
    if (!open_ranks(&argc, &argv))
        return 1;
    int n_failed = has_gpu() ? run_all_tests(NULL, NULL) : SKIPPED;
    dt_comm_close(comm);
    return n_failed;
}
