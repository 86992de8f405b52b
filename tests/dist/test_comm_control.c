/* The control plane on 1 to 4 ranks: agreement on a status, broadcast, sums, gather, copies, the
 * offset of the clocks, and what is found out about the launch and the binding. */
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/mem.h"
#include "dist_rig.h"

TEST(ranks)
{
    assert_all(n >= 1 && rank >= 0 && rank < n);
    assert_all(dt_comm_local_size(comm) == n && dt_comm_local_rank(comm) == rank);
    assert_all(dt_comm_allowed_cpus(comm) >= 1);
}

TEST(agree_ok)
{
    assert_all(dt_comm_agree(comm, DT_OK) == DT_OK);
}

/* One rank fails, and in a second round all ranks from `failing` on. */
TEST(agree_fail)
{
    for (int failing = 0; failing < n; failing++) {
        for (int are_more = 0; are_more < 2; are_more++) {
            bool fails = rank == failing || (are_more && rank > failing);
            dt_error_clear();
            dt_status status = DT_OK;
            if (fails)
                status = DT_ERROR(rank == failing ? DT_ERR_DATA : DT_ERR_IO,
                                  "rank %d cannot read 100%% of \"x\"", rank);
            dt_status agreed = dt_comm_agree(comm, status);
            int origin = dt_error_origin();
            char expected[100];
            snprintf(expected, sizeof expected, "rank %d cannot read 100%% of \"x\"", failing);
            bool is_good = agreed == DT_ERR_DATA && origin == failing &&
                           strcmp(dt_error_text(), expected) == 0;
            if (!is_good)
                print_error("rank %d: agreed %d, origin %d, text %s\n", rank, agreed, origin,
                            dt_error_text());
            assert_all(is_good);
        }
    }
}

TEST(agree_long_text)
{
    char text[9001];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    dt_error_clear();
    dt_status status = rank == n - 1 ? DT_ERROR(DT_ERR_CONFIG, "%s", text) : DT_OK;
    assert_all(dt_comm_agree(comm, status) == DT_ERR_CONFIG);
    assert_all(strcmp(dt_error_text(), text) == 0);
}

TEST(bcast)
{
    enum { BYTES = 100003 };
    unsigned char *data = malloc(BYTES);
    assert_ok(data ? DT_OK : DT_ERR_MEMORY);
    for (int root = 0; root < n; root++) {
        for (int i = 0; i < BYTES; i++)
            data[i] = rank == root ? (unsigned char)(i * 7 + root) : 0;
        assert_ok(dt_comm_bcast(comm, data, BYTES, root));
        bool is_good = true;
        for (int i = 0; i < BYTES; i++)
            is_good = is_good && data[i] == (unsigned char)(i * 7 + root);
        assert_all(is_good);
    }
    assert_ok(dt_comm_bcast(comm, data, 0, 0));
    free(data);
}

TEST(sums)
{
    double pair = n * (n - 1) / 2.0;
    double f64[2] = {rank + 0.5, -rank};
    assert_ok(dt_comm_sum_f64(comm, f64, 2));
    assert_all(f64[0] == pair + 0.5 * n && f64[1] == -pair);
    int64_t i64[2] = {INT64_C(1) << 60, rank - INT64_C(5000000000)};
    assert_ok(dt_comm_sum_i64(comm, i64, 2));
    assert_all(i64[0] == n * (INT64_C(1) << 60) &&
               i64[1] == (int64_t)pair - n * INT64_C(5000000000));
    double max[2] = {rank, -1.0 - rank};
    assert_ok(dt_comm_max_f64(comm, max, 2));
    assert_all(max[0] == n - 1 && max[1] == -1.0);
}

/* Values that travel beside other calls; their buffer may be changed meanwhile. */
TEST(max_beside)
{
    double wait_s = dt_comm_wait_s(comm);
    for (int count = 1; count <= DT_COMM_MAXIMA; count++) {
        double values[DT_COMM_MAXIMA] = {0};
        values[count - 1] = rank;
        assert_ok(dt_comm_begin_max(comm, values, count));
        assert_all(dt_comm_begin_max(comm, values, count) == DT_ERR_INTERNAL);
        values[count - 1] = -1;
        for (int i = 0; i < 3; i++)
            assert_ok(dt_comm_poll(comm));
        assert_ok(dt_comm_barrier(comm));
        assert_ok(dt_comm_end_max(comm, values));
        assert_all(values[count - 1] == n - 1 && (count == 1 || values[0] == 0));
    }
    assert_all(dt_comm_wait_s(comm) > wait_s);
}

TEST(gather)
{
    struct item {
        int rank;
        char text[20];
    } mine = {.rank = rank}, all[4];
    snprintf(mine.text, sizeof mine.text, "rank %d", rank);
    assert_ok(dt_comm_gather(comm, all, &mine, sizeof mine));
    bool is_good = true;
    for (int r = 0; r < n && r < 4; r++) {
        char text[20];
        snprintf(text, sizeof text, "rank %d", r);
        is_good = is_good && all[r].rank == r && strcmp(all[r].text, text) == 0;
    }
    assert_all(is_good);
}

TEST(copy)
{
    for (int from = 0; from < n; from++) {
        for (int to = 0; to < n; to++) {
            int value[2] = {rank, -rank};
            int expected = rank == to ? from : rank;
            assert_ok(dt_comm_copy(comm, value, sizeof value, from, to));
            assert_all(value[0] == expected && value[1] == -expected);
        }
    }
}

/* The ranks share one clock. */
TEST(clock)
{
    double offset_s = 1, error_s = -1;
    assert_ok(dt_comm_clock(comm, &offset_s, &error_s));
    assert_all(fabs(offset_s) <= error_s + 1e-9 && (rank > 0) == (error_s > 0));
}

static int find_twin(const char *identity)
{
    enum { BYTES = 12 };
    char field[BYTES] = {0};
    int twin = 99;
    memcpy(field, identity, strlen(identity) + 1);
    assert_ok(dt_comm_find_same(comm, field, BYTES, &twin));
    return twin;
}

TEST(find_twin)
{
    char here[DT_HOST_MAX] = "", own[12];
    gethostname(here, sizeof here - 1);
    for (int r = 0; r < n; r++)
        assert_all(strcmp(dt_comm_host(comm, r), here) == 0);
    assert_all(find_twin("") == -1);
    snprintf(own, sizeof own, "gpu %d", rank);
    assert_all(find_twin(own) == -1);
    /* All the same, over the full length of the field. */
    int twin = find_twin("GPU-1234567");
    assert_all(twin == (n == 1 ? -1 : rank == 0 ? 1 : 0));
    /* The last rank shares with rank 0; the others have devices of their own or none. */
    bool is_shared = rank == 0 || rank == n - 1;
    twin = find_twin(is_shared ? "gpu" : rank == 1 ? "" : own);
    assert_all(twin == (n == 1 || !is_shared ? -1 : rank == 0 ? n - 1 : 0));
}

TEST(binding)
{
    /* The tests run with --bind-to none: all ranks share the CPUs. */
    assert_all(dt_comm_sharing_ranks(comm) == n);
    dt_comm_check_binding(comm, 1); /* says nothing */
}

static void bind_to(int cpu)
{
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(cpu, &cpus);
    assert_int_equal(sched_setaffinity(0, sizeof cpus, &cpus), 0);
}

/* Rank 0 alone on CPU 0, the others together on CPU 1. */
TEST(binding_again)
{
    cpu_set_t before;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    if (!CPU_ISSET(0, &before) || !CPU_ISSET(1, &before))
        skip();
    bind_to(rank == 0 ? 0 : 1);
    assert_ok(dt_comm_find_binding(comm));
    assert_all(dt_comm_allowed_cpus(comm) == 1);
    assert_all(dt_comm_sharing_ranks(comm) == (rank == 0 ? 1 : n - 1));
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_ok(dt_comm_find_binding(comm));
    assert_all(dt_comm_allowed_cpus(comm) == CPU_COUNT(&before));
    assert_all(dt_comm_sharing_ranks(comm) == n);
}

static const char *const launch_names[] = {"OMPI_COMM_WORLD_SIZE",
                                           "SLURM_STEP_NUM_TASKS",
                                           "SLURM_NTASKS",
                                           "SLURM_PROCID",
                                           "PMI_SIZE",
                                           "PMI_RANK",
                                           "WORLD_SIZE",
                                           "LOCAL_RANK"};

/* The bytes of rank 0 on all ranks; in one memory, but where a rank may not open another file. */
static void check_share(size_t bytes, bool is_mapped)
{
    struct dt_shared shared;
    char *own = malloc(bytes + 1);
    for (size_t i = 0; i < bytes; i++)
        own[i] = (char)(rank == 0 ? i * 7 % 251 : 0);
    assert_all(dt_comm_share(comm, &shared, own, rank == 0 ? bytes : 0) == DT_OK);
    assert_all(shared.is_mapped == is_mapped);
    for (size_t i = 0; i < bytes; i++)
        own[i] = (char)(i * 7 % 251);
    assert_all(bytes == 0 || memcmp(own, shared.data, bytes) == 0);
    dt_shared_free(&shared);
    free(own);
}

TEST(share)
{
    struct rlimit limit, low;
    check_share(0, true);
    check_share(1, true);
    check_share(5000001, true);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low = limit;
    low.rlim_cur = 0; /* descriptors that are open stay so */
    if (rank == n - 1)
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    check_share(5000001, false);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

struct launch_case {
    const char *set[4][2];
    int n_ranks;
    dt_status status;
    const char *word; /* in the text */
};

static const struct launch_case launch_cases[] = {
    {{{0}}, 1, DT_OK, ""},
    {{{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "3"}}, 1, DT_ERR_USAGE, "--mpi=pmix"},
    {{{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "0"}}, 1, DT_ERR_USAGE, "srun started 2"},
    {{{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "3"}}, 8, DT_OK, ""},
    {{{"SLURM_NTASKS", "1"}, {"SLURM_PROCID", "0"}}, 1, DT_OK, ""},
    {{{"SLURM_NTASKS", "many"}, {"SLURM_PROCID", "0"}}, 1, DT_OK, ""},
    {{{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}, 1, DT_OK, ""},
    {{{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}, 1, DT_OK, ""},
    {{{"OMPI_COMM_WORLD_SIZE", "4"}}, 1, DT_ERR_USAGE, "the mpirun of Open MPI started 4"},
    {{{"PMI_SIZE", "4"}, {"PMI_RANK", "1"}}, 1, DT_ERR_USAGE, "another MPI"},
    {{{"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}}, 1, DT_ERR_USAGE, "torchrun"},
    {{{"WORLD_SIZE", "4"}}, 1, DT_OK, ""},
};

TEST(launch)
{
    for (size_t c = 0; c < DT_COUNT(launch_cases); c++) {
        const struct launch_case *lc = &launch_cases[c];
        for (size_t i = 0; i < DT_COUNT(launch_names); i++)
            unsetenv(launch_names[i]);
        for (int i = 0; i < 4 && lc->set[i][0]; i++)
            setenv(lc->set[i][0], lc->set[i][1], 1);
        dt_error_clear();
        assert_int_equal(dt_comm_check_launch(lc->n_ranks), lc->status);
        assert_non_null(strstr(dt_error_text(), lc->word));
    }
}

/* What is known before MPI has started. */
TEST(launched)
{
    for (size_t i = 0; i < DT_COUNT(launch_names); i++)
        unsetenv(launch_names[i]);
    unsetenv("OMPI_COMM_WORLD_RANK");
    unsetenv("PMIX_RANK");
    assert_int_equal(dt_comm_launched().n_ranks, 0);
    assert_string_equal(dt_comm_launched().variable, "");
    setenv("SLURM_PROCID", "3", 1);
    setenv("SLURM_STEP_NUM_TASKS", "8", 1);
    assert_int_equal(dt_comm_launched().rank, 3);
    assert_int_equal(dt_comm_launched().n_ranks, 8);
    setenv("OMPI_COMM_WORLD_RANK", "1", 1); /* mpirun in a Slurm job */
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
    struct dt_comm_launch launch = dt_comm_launched();
    assert_string_equal(launch.variable, "OMPI_COMM_WORLD_RANK");
    assert_true(launch.rank == 1 && launch.n_ranks == 4 && launch.n_local == 2);
    assert_true(dt_comm_keepalive_s() == 0);
    setenv("OMPI_MCA_oob_tcp_keepalive_time", "10", 1);
    setenv("OMPI_MCA_oob_tcp_keepalive_intvl", "5", 1);
    setenv("OMPI_MCA_oob_tcp_keepalive_probes", "3", 1);
    assert_true(dt_comm_keepalive_s() == 25);
}

RANKS_TEST_MAIN(NULL, NULL)
