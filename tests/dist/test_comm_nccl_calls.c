/* How the NCCL plane uses NCCL, without a GPU: the functions of NCCL are defined here, record that
 * they were called and answer as told. Errors and deadlines that hardware produces only by
 * accident, environment settings, and the order of the calls at the end, on 1 to 4 ranks. */
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "dist_rig.h"

enum { FOR_EVER = -1 };

/* --- NCCL --- */

static struct {
    /* Answers. */
    ncclResult_t id, init, reduce, finalize; /* of the call */
    ncclResult_t state;                      /* of ncclCommGetAsyncError */
    int n_polls;                             /* while ncclInProgress after a call that says so */
    const char *last_error;
    /* Observed calls. */
    int n_left;
    char calls[400];
    bool is_wrong;
    ncclDataType_t type;
    size_t count;
    void *stream;
    const void *buffer;
} fake;

/* A communicator is only ever a pointer here; in use between init and destroy or abort. */
static int communicator;
static bool is_open;

static void note(const char *call)
{
    strncat(fake.calls, call, sizeof fake.calls - strlen(fake.calls) - 2);
    strcat(fake.calls, " ");
}

static void check(bool is_good)
{
    fake.is_wrong = fake.is_wrong || !is_good;
}

static ncclResult_t begin(const char *call, ncclComm_t used, ncclResult_t result)
{
    note(call);
    check(is_open && used == (ncclComm_t)(void *)&communicator && fake.n_left == 0);
    fake.n_left = result == ncclInProgress ? fake.n_polls : 0;
    return result;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    note("id");
    check(rank == 0);
    memset(id->internal, 'i', sizeof id->internal);
    return fake.id;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int n_ranks, ncclUniqueId id, int own_rank,
                                    ncclConfig_t *config)
{
    note("init");
    check(!is_open && n_ranks == n && own_rank == rank && config->blocking == 0);
    check(strcmp(config->commName, "dtrain") == 0 && config->magic == 0xcafebeef);
    for (size_t i = 0; i < sizeof id.internal; i++)
        check(id.internal[i] == 'i');
    *out = NULL;
    if (fake.init != ncclSuccess && fake.init != ncclInProgress)
        return fake.init;
    is_open = true;
    *out = (ncclComm_t)(void *)&communicator;
    fake.n_left = fake.init == ncclInProgress ? fake.n_polls : 0;
    return fake.init;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t used, ncclResult_t *state)
{
    check(is_open && used == (ncclComm_t)(void *)&communicator);
    *state = fake.n_left != 0 ? ncclInProgress : fake.state;
    if (fake.n_left > 0)
        fake.n_left--;
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *src, void *dst, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t used, cudaStream_t stream)
{
    check(src == dst && op == ncclSum);
    fake.buffer = src;
    fake.count = count;
    fake.type = type;
    fake.stream = stream;
    return begin("reduce", used, fake.reduce);
}

ncclResult_t ncclCommFinalize(ncclComm_t used)
{
    return begin("finalize", used, fake.finalize);
}

static ncclResult_t end(const char *call, ncclComm_t used)
{
    note(call);
    check(is_open && used == (ncclComm_t)(void *)&communicator);
    is_open = false;
    fake.n_left = 0;
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t used)
{
    check(fake.n_left == 0);
    return end("destroy", used);
}

ncclResult_t ncclCommAbort(ncclComm_t used)
{
    return end("abort", used);
}

const char *ncclGetErrorString(ncclResult_t code)
{
    static char text[30];
    snprintf(text, sizeof text, "text of %d", (int)code);
    return text;
}

const char *ncclGetLastError(ncclComm_t used)
{
    (void)used;
    return fake.last_error;
}

/* --- Checks --- */

/* With the calls so far. */
static void assert_good(bool is_good)
{
    if (!is_good)
        print_error("rank %d: calls \"%s\", %s\n", rank, fake.calls,
                    fake.is_wrong ? "wrong arguments" : "good arguments");
    assert_all(is_good);
}

/* The calls since the last look, and that what they got was right. */
static void assert_calls(const char *expected)
{
    assert_good(strcmp(fake.calls, expected) == 0 && !fake.is_wrong);
    fake.calls[0] = '\0';
}

static void assert_text(dt_status status, dt_status expected, const char *word)
{
    assert_good(status == expected && strstr(dt_error_text(), word) != NULL);
}

static int before_each(void **state)
{
    (void)state;
    static const char *const names[] = {
        "NCCL_ALGO",       "NCCL_HOSTID",        "NCCL_NET",
        "NCCL_IB_DISABLE", "NCCL_SOCKET_IFNAME", "NCCL_MNNVL_ENABLE",
        "NCCL_PROTO",      "NCCL_MAX_CTAS",      "NCCL_GRAPH_REGISTER"};
    for (size_t i = 0; i < DT_COUNT(names); i++)
        unsetenv(names[i]);
    memset(&fake, 0, sizeof fake);
    fake.last_error = "";
    dt_error_clear();
    return 0;
}

#define CALLS_TEST(NAME) TEST_WITH(NAME, before_each, NULL)

static int stream;

static struct dt_comm_options new_options(void)
{
    return (struct dt_comm_options){.plane = DT_PLANE_NCCL,
                                    .sum = DT_SUM_RING,
                                    .n_reductions = 2,
                                    .max_count = 1000,
                                    .dtype = DT_F32,
                                    .stream = &stream,
                                    .timeout_s = 60.0};
}

static void open_plane(void)
{
    struct dt_comm_options options = new_options();
    assert_ok(dt_comm_open_reduce(comm, &options));
    assert_calls(rank == 0 ? "id init " : "init ");
}

static bool is_env(const char *name, const char *value)
{
    const char *text = getenv(name);
    return text && value ? strcmp(text, value) == 0 : text == value;
}

/* --- Tests --- */

CALLS_TEST(open_close)
{
    fake.init = fake.finalize = ncclInProgress;
    fake.n_polls = 300;
    open_plane();
    assert_good(fake.n_left == 0 && is_env("NCCL_ALGO", "Ring") && is_env("NCCL_HOSTID", NULL));
    assert_good(is_env("NCCL_GRAPH_REGISTER", "0"));
    dt_comm_close_reduce(comm);
    assert_calls("finalize destroy ");
    open_plane(); /* again */
    dt_comm_close_reduce(comm);
    assert_calls("finalize destroy ");
}

CALLS_TEST(environment)
{
    struct dt_comm_options options = new_options();
    options.sum = DT_SUM_LIBRARY;
    assert_ok(dt_comm_open_reduce(comm, &options));
    assert_good(is_env("NCCL_ALGO", NULL));

    setenv("NCCL_ALGO", "Tree", 1);
    setenv("NCCL_PROTO", "LL", 1);
    setenv("NCCL_GRAPH_REGISTER", "1", 1);
    options.sum = DT_SUM_RING;
    options.share = true;
    assert_ok(dt_comm_open_reduce(comm, &options));
    char id[32];
    snprintf(id, sizeof id, "dtrain-%d", rank);
    assert_good(is_env("NCCL_ALGO", "Tree") && is_env("NCCL_PROTO", "LL") &&
                is_env("NCCL_GRAPH_REGISTER", "1"));
    assert_good(is_env("NCCL_HOSTID", id) && is_env("NCCL_NET", "Socket") &&
                is_env("NCCL_SOCKET_IFNAME", "lo") && is_env("NCCL_MAX_CTAS", "2") &&
                is_env("NCCL_IB_DISABLE", "1") && is_env("NCCL_MNNVL_ENABLE", "0"));
    dt_comm_close_reduce(comm);
}

CALLS_TEST(reduce)
{
    static const struct {
        enum dt_dtype dtype;
        ncclDataType_t type;
    } types[] = {{DT_F32, ncclFloat}, {DT_F16, ncclHalf}, {DT_BF16, ncclBfloat16}};
    struct dt_comm_options options = new_options();
    char buffer[8];
    for (size_t i = 0; i < DT_COUNT(types); i++) {
        options.dtype = types[i].dtype;
        options.n_fp32 = i % 2;
        assert_ok(dt_comm_open_reduce(comm, &options));
        fake.calls[0] = '\0';
        fake.reduce = i % 2 ? ncclInProgress : ncclSuccess;
        fake.n_polls = 20;
        assert_ok(dt_comm_reduce(comm, 1, buffer, 100 + i));
        assert_good(fake.n_left == 0 && fake.count == 100 + i &&
                    fake.type == (options.n_fp32 ? ncclFloat : types[i].type) &&
                    fake.buffer == buffer && fake.stream == &stream);
        assert_ok(dt_comm_poll(comm));
        assert_ok(dt_comm_wait(comm, 1));
        assert_ok(dt_comm_reduce(comm, 0, buffer, 8));
        assert_good(fake.type == types[i].type);
        assert_ok(dt_comm_reduce(comm, 0, buffer, 0));
        assert_int_equal(dt_comm_reduce(comm, 2, buffer, 1), DT_ERR_INTERNAL);
        assert_int_equal(dt_comm_reduce(comm, 0, buffer, 1001), DT_ERR_INTERNAL);
        assert_calls("reduce reduce ");
    }
    options.dtype = DT_I32;
    assert_text(dt_comm_open_reduce(comm, &options), DT_ERR_INTERNAL, "cannot be summed");
    assert_calls("finalize destroy ");
}

CALLS_TEST(connect_fails)
{
    struct dt_comm_options options = new_options();
    fake.id = ncclSystemError;
    assert_text(dt_comm_open_reduce(comm, &options), DT_ERR_DEVICE, "rank 0 cannot create");
    assert_calls(rank == 0 ? "id " : "");

    fake.id = ncclSuccess;
    fake.init = rank == n - 1 ? ncclInvalidArgument : ncclSuccess;
    char who[40];
    snprintf(who, sizeof who, "rank %d cannot connect", n - 1);
    assert_text(dt_comm_open_reduce(comm, &options), DT_ERR_DEVICE, who);
    assert_good(!is_open);
    fake.calls[0] = '\0';

    fake.init = ncclSuccess;
    open_plane();
    dt_comm_close_reduce(comm);
    assert_calls("finalize destroy ");
}

/* One rank has the cause; the others notice that it is gone. */
CALLS_TEST(cause)
{
    struct dt_comm_options options = new_options();
    bool has_cause = rank == n - 1;
    fake.init = ncclInProgress;
    fake.n_polls = 3;
    fake.state = has_cause ? ncclUnhandledCudaError : ncclRemoteError;
    fake.last_error = has_cause ? "out of memory" : "gone";
    char who[60];
    snprintf(who, sizeof who, "rank %d cannot connect the ranks with NCCL", n - 1);
    assert_text(dt_comm_open_reduce(comm, &options), DT_ERR_DEVICE, who);
    assert_good(strstr(dt_error_text(), "out of memory; the GPU") != NULL);
    assert_calls(rank == 0 ? "id init abort " : "init abort ");
}

CALLS_TEST(twins)
{
    struct dt_comm_options options = new_options();
    fake.init = ncclInProgress;
    fake.state = ncclInvalidUsage;
    fake.last_error = "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1b000";
    assert_text(dt_comm_open_reduce(comm, &options), DT_ERR_CONFIG,
                "device.allow_shared_gpu = true");
    assert_calls(rank == 0 ? "id init abort " : "init abort ");
}

CALLS_TEST(connect_deadline)
{
    struct dt_comm_options options = new_options();
    options.timeout_s = 0.05;
    fake.init = ncclInProgress;
    fake.n_polls = rank == n - 1 ? FOR_EVER : 2;
    char who[60];
    snprintf(who, sizeof who, "rank %d waited 0.05 s", n - 1);
    assert_text(dt_comm_open_reduce(comm, &options), DT_ERR_DEVICE, who);
    assert_good(strstr(dt_error_text(), "NCCL_SOCKET_IFNAME") != NULL);
    assert_calls(rank == 0 ? "id init abort " : "init abort ");
}

CALLS_TEST(reduce_fails)
{
    float values[4];
    struct dt_comm_options options = new_options();
    options.timeout_s = 0.05;
    assert_ok(dt_comm_open_reduce(comm, &options));
    fake.calls[0] = '\0';
    fake.reduce = ncclInProgress;
    fake.n_polls = FOR_EVER;
    assert_text(dt_comm_reduce(comm, 0, values, 4), DT_ERR_DEVICE, "for NCCL to sum gradients");
    dt_comm_close_reduce(comm);
    assert_calls("reduce abort ");

    fake.reduce = ncclInvalidArgument;
    open_plane();
    assert_text(dt_comm_reduce(comm, 0, values, 4), DT_ERR_DEVICE, "text of 4");
    dt_comm_close_reduce(comm);
    assert_calls("reduce abort ");
}

CALLS_TEST(poll_fails)
{
    open_plane();
    assert_ok(dt_comm_poll(comm));
    fake.state = ncclRemoteError;
    char who[40];
    snprintf(who, sizeof who, "rank %d cannot sum gradients", rank);
    assert_text(dt_comm_poll(comm), DT_ERR_DEVICE, who);
    assert_text(dt_comm_poll(comm), DT_ERR_DEVICE, "a peer rank or the network failed");
    dt_comm_close_reduce(comm);
    assert_calls("abort ");
}

CALLS_TEST(finalize_fails)
{
    open_plane();
    fake.finalize = ncclInProgress;
    fake.n_polls = 4;
    fake.state = rank == 0 ? ncclSystemError : ncclSuccess;
    dt_comm_close_reduce(comm);
    assert_calls(rank == 0 ? "finalize abort " : "finalize destroy ");
}

RANKS_TEST_MAIN(NULL, NULL)
