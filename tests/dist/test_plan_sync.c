/* Batch norm over groups of 1 to 4 ranks on CPUs: the gradients of one step, several passes per
 * step, and the loss and running statistics of 20 steps equal those of one rank with the group's
 * images; the memory of a plan. */
#include "sync_rig.h"

/* The CPU, counting what is allocated. */
static struct dt_backend counting;
static size_t n_left = (size_t)1 << 40;
static const struct dt_backend *const backend = &counting;
static const struct dt_comm_options plane = {.plane = DT_PLANE_MPI, .sum = DT_SUM_RING};
static const enum dt_precision precision = DT_PRECISION_FP32;

static dt_status count_alloc(struct dt_device *dev, void **out, size_t bytes)
{
    n_left -= bytes;
    return dt_backend_cpu.alloc(dev, out, bytes);
}

static size_t count_free_bytes(struct dt_device *dev)
{
    (void)dev;
    return n_left;
}

TEST(steps)
{
    check((struct trial){.group = n, .n_passes = 1, .n_steps = 20, .tolerance = 1e-5});
}

TEST(passes)
{
    check((struct trial){
        .group = n, .n_passes = 3, .n_steps = 1, .tolerance = 1e-5, .model = "resnet20"});
}

TEST(groups)
{
    check((struct trial){.group = n % 2 == 0 ? 2 : 1,
                         .n_passes = 2,
                         .n_steps = 1,
                         .tolerance = 1e-5,
                         .model = "resnet20"});
}

TEST(memory)
{
    check_memory();
}

int main(int argc, char **argv)
{
    if (!open_ranks(&argc, &argv))
        return 1;
    counting = dt_backend_cpu;
    counting.alloc = count_alloc;
    counting.free_bytes = count_free_bytes;
    int n_failed = run_all_tests(NULL, NULL);
    dt_comm_close(comm);
    return n_failed;
}
