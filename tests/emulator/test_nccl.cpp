// The emulated NCCL: every case starts a few processes of this program, one per rank, that find
// each other by a unique id. The ranks share the only device and have different host names.
#include <nccl.h>

#include <memory>

#include "test_rig.h"

// A rank's arguments.
static int rank, n_ranks;
static ncclUniqueId id;
static cudaStream_t stream;

static void check(bool is_good, const char *what, int line)
{
    if (is_good)
        return;
    fprintf(stderr, "rank %d, line %d: %s (%s)\n", rank, line, what, ncclGetLastError(nullptr));
    _exit(1);
}
#define CHECK(condition) check((condition), #condition, __LINE__)

static ncclResult_t state_of(ncclComm_t comm)
{
    ncclResult_t state;
    CHECK(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
    return state;
}

// The state once nothing is in progress, or after some seconds.
static ncclResult_t settle(ncclComm_t comm, double seconds = 20)
{
    ncclResult_t state = ncclInProgress;
    for (int i = 0; state == ncclInProgress && i < seconds * 1000; i++) {
        state = state_of(comm);
        if (state == ncclInProgress)
            usleep(1000);
    }
    return state;
}

static ncclResult_t start(ncclComm_t *comm)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    CHECK(ncclCommInitRankConfig(comm, n_ranks, id, rank, &config) == ncclInProgress);
    CHECK(*comm);
    return settle(*comm);
}

static ncclComm_t connect()
{
    ncclComm_t comm = nullptr;
    CHECK(start(&comm) == ncclSuccess);
    return comm;
}

static ncclResult_t all_reduce(ncclComm_t comm, const array &from, const array &to, size_t count)
{
    const ncclDataType_t type = from.type == number::f16    ? ncclFloat16
                                : from.type == number::bf16 ? ncclBfloat16
                                                            : ncclFloat32;
    const ncclResult_t code =
        ncclAllReduce(from.device, to.device, count, type, ncclSum, comm, stream);
    return code == ncclInProgress ? settle(comm) : code;
}

static void leave(ncclComm_t comm)
{
    CHECK(ncclCommFinalize(comm) == ncclInProgress);
    CHECK(settle(comm) == ncclSuccess);
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

// Small integers: their sums are exact in every type.
static float value_of(int r, size_t i)
{
    return static_cast<float>(static_cast<int>(i % 13) - 6 + 2 * r);
}

static void fill(array &a, int r)
{
    std::vector<char> stored(a.values.size() * emu::bytes_of(a.type));
    for (size_t i = 0; i < a.values.size(); i++)
        emu::store_number(stored.data(), a.type, i, value_of(r, i));
    CHECK(cudaMemcpy(a.device, stored.data(), stored.size(), cudaMemcpyHostToDevice) ==
          cudaSuccess);
    CHECK(cudaStreamSynchronize(nullptr) == cudaSuccess); // the copy may return before it is done
}

// `times`: an all-reduce in place multiplies by the number of ranks when repeated.
static void check_sums(const array &a, size_t count, int times)
{
    const std::vector<float> got = a.download();
    for (size_t i = 0; i < count; i++) {
        float sum = 0;
        for (int r = 0; r < n_ranks; r++)
            sum += value_of(r, i);
        for (int k = 1; k < times; k++)
            sum *= static_cast<float>(n_ranks);
        CHECK(got[i] == sum);
    }
    for (size_t i = count; i < got.size(); i++)
        CHECK(got[i] == value_of(rank, i));
}

// --- Cases: run by every rank ---

static void case_sums()
{
    ncclComm_t comm = connect();
    for (const number type : {number::f32, number::f16, number::bf16})
        for (const size_t count : {1, 1000, 262144, 600001}) {
            array in_place(type, count + 3), from(type, count + 3), to(type, count + 3);
            for (array *a : {&in_place, &from, &to})
                fill(*a, rank);
            CHECK(all_reduce(comm, in_place, in_place, count) == ncclSuccess);
            CHECK(all_reduce(comm, from, to, count) == ncclSuccess);
            CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
            check_sums(in_place, count, 1);
            check_sums(to, count, 1);
            check_sums(from, 0, 1);
        }
    leave(comm);
}

// From a buffer of its own, and from its place in the result.
static void case_gather()
{
    const size_t count = 300001;
    ncclComm_t comm = connect();
    array from(number::f32, count), to(number::f32, count * static_cast<size_t>(n_ranks));
    fill(from, rank);
    char *own = static_cast<char *>(to.device) + static_cast<size_t>(rank) * count * sizeof(float);
    for (const void *source :
         {static_cast<const void *>(from.device), static_cast<const void *>(own)}) {
        CHECK(ncclAllGather(source, to.device, count, ncclFloat32, comm, stream) == ncclInProgress);
        CHECK(settle(comm) == ncclSuccess);
        CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
        const std::vector<float> got = to.download();
        for (size_t i = 0; i < got.size(); i++)
            CHECK(got[i] == value_of(static_cast<int>(i / count), i % count));
    }
    leave(comm);
}

// To and from every other rank in one group, two messages each, longer than a mailbox holds.
static void case_messages()
{
    const size_t counts[] = {1, 300001};
    ncclComm_t comm = connect();
    array from(number::f32, 300001);
    std::vector<std::unique_ptr<array>> to;
    fill(from, rank);
    for (int i = 0; i < 2 * n_ranks; i++)
        to.push_back(std::make_unique<array>(number::f32, 300001));
    CHECK(ncclGroupStart() == ncclSuccess);
    for (int r = 0; r < n_ranks; r++)
        for (int i = 0; r != rank && i < 2; i++) {
            void *place = to[static_cast<size_t>(2 * r + i)]->device;
            CHECK(ncclRecv(place, counts[i], ncclFloat32, r, comm, stream) == ncclSuccess);
            CHECK(ncclSend(from.device, counts[i], ncclFloat32, r, comm, stream) == ncclSuccess);
        }
    CHECK(ncclGroupEnd() == ncclInProgress);
    CHECK(settle(comm) == ncclSuccess);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    for (int r = 0; r < n_ranks; r++)
        for (int i = 0; r != rank && i < 2; i++) {
            const std::vector<float> got = to[static_cast<size_t>(2 * r + i)]->download();
            for (size_t k = 0; k < counts[i]; k++)
                CHECK(got[k] == value_of(r, k));
        }
    leave(comm);
}

static void case_blocking()
{
    ncclComm_t comm = nullptr;
    array a(number::f32, 1000), b(number::f32, 10);
    fill(a, rank);
    fill(b, rank);
    CHECK(ncclCommInitRank(&comm, n_ranks, id, rank) == ncclSuccess);
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(all_reduce(comm, a, a, 1000) == ncclSuccess);
    CHECK(all_reduce(comm, b, b, 10) == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclSuccess);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    check_sums(a, 1000, 1);
    check_sums(b, 10, 1);
    CHECK(ncclGroupEnd() == ncclInvalidUsage);
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

static void case_statuses()
{
    ncclComm_t comm = connect();
    array a(number::f32, 100);
    fill(a, rank);
    CHECK(ncclAllReduce(a.device, a.device, 50, ncclFloat, ncclSum, comm, stream) ==
          ncclInProgress);
    // Until that is over, nothing is in the stream and other calls are refused.
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    check_sums(a, 0, 1);
    CHECK(ncclAllReduce(a.device, a.device, 50, ncclFloat, ncclSum, comm, stream) ==
          ncclInvalidArgument);
    CHECK(strstr(ncclGetLastError(comm), "before the previous operation"));
    CHECK(settle(comm) == ncclSuccess);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    check_sums(a, 50, 1);
    CHECK(ncclAllReduce(a.device, a.device, 1, ncclNumTypes, ncclSum, comm, stream) ==
          ncclInvalidArgument);
    CHECK(ncclAllReduce(a.device, a.device, 1, ncclFloat, ncclNumOps, comm, stream) ==
          ncclInvalidArgument);
    CHECK(ncclAllReduce(a.device, a.device, 1, ncclFloat, ncclSum, nullptr, stream) ==
          ncclInvalidArgument);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t other = nullptr;
    config.magic = 0;
    CHECK(ncclCommInitRankConfig(&other, n_ranks, id, rank, &config) == ncclInvalidArgument);
    CHECK(ncclCommInitRank(&other, n_ranks, id, n_ranks) == ncclInvalidArgument);
    CHECK(ncclCommInitRank(&other, n_ranks, ncclUniqueId{}, rank) == ncclInvalidArgument);
    leave(comm);
}

// Recorded once and launched three times; the communicator waits for the graph to be destroyed.
static void case_graph()
{
    ncclComm_t comm = connect();
    array a(number::f32, 5000);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    fill(a, rank);
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK(all_reduce(comm, a, a, 5000) == ncclSuccess);
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    CHECK(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
    for (int i = 0; i < 3; i++)
        CHECK(cudaGraphLaunch(exec, stream) == cudaSuccess);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    check_sums(a, 5000, 3);
    CHECK(ncclCommFinalize(comm) == ncclInProgress);
    CHECK(settle(comm, 0.05) == ncclInProgress);
    CHECK(cudaGraphExecDestroy(exec) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(settle(comm) == ncclSuccess);
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

static void case_duplicate()
{
    ncclComm_t comm = nullptr;
    unsetenv("NCCL_HOSTID");
    CHECK(start(&comm) == ncclInvalidUsage);
    CHECK(strstr(ncclGetLastError(comm), "Duplicate GPU"));
    CHECK(ncclCommAbort(comm) == ncclSuccess);
}

// The last rank never joins.
static void case_missing()
{
    ncclComm_t comm = nullptr;
    if (rank == n_ranks - 1)
        return;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    CHECK(ncclCommInitRankConfig(&comm, n_ranks, id, rank, &config) == ncclInProgress);
    CHECK(settle(comm, 0.1) == ncclInProgress);
    CHECK(ncclCommAbort(comm) == ncclSuccess);
}

// The last rank leaves in the middle, by aborting or silently.
static void lose_rank(bool without_a_word)
{
    ncclComm_t comm = connect();
    array a(number::f32, 1000);
    CHECK(all_reduce(comm, a, a, 1000) == ncclSuccess);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    if (rank == n_ranks - 1) {
        if (without_a_word)
            _exit(0);
        CHECK(ncclCommAbort(comm) == ncclSuccess);
        return;
    }
    (void)all_reduce(comm, a, a, 1000);
    ncclResult_t state = ncclSuccess;
    for (int i = 0; state != ncclRemoteError && i < 10000; i++) {
        state = state_of(comm);
        usleep(1000);
    }
    CHECK(state == ncclRemoteError);
    CHECK(ncclCommAbort(comm) == ncclSuccess);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess); // the pending work has ended
}

static void case_mismatch()
{
    ncclComm_t comm = connect();
    array a(number::f32, 1000);
    (void)all_reduce(comm, a, a, rank == 0 ? 1000 : 999);
    // The rank that detects it aborts; the other aborts too, or loses its peer.
    while (cudaStreamQuery(stream) == cudaErrorNotReady && state_of(comm) == ncclSuccess)
        usleep(100);
    _exit(1);
}

static const struct {
    const char *name;
    void (*run)();
    int n_ranks;
    const char *message; // NULL: succeeds
} cases[] = {
    {"sums", case_sums, 3, nullptr},
    {"sums", case_sums, 1, nullptr},
    {"gather", case_gather, 3, nullptr},
    {"messages", case_messages, 3, nullptr},
    {"blocking", case_blocking, 2, nullptr},
    {"statuses", case_statuses, 2, nullptr},
    {"graph", case_graph, 2, nullptr},
    {"duplicate", case_duplicate, 2, nullptr},
    {"missing", case_missing, 2, nullptr},
    {"aborted", [] { lose_rank(false); }, 2, nullptr},
    {"lost", [] { lose_rank(true); }, 3, nullptr},
    {"mismatch", case_mismatch, 2, "elements of type"},
};

// --- Running them ---

static std::string id_text()
{
    std::string text;
    char byte[3];
    for (const char c : id.internal) {
        snprintf(byte, sizeof byte, "%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
        text += byte;
    }
    return text;
}

static void read_id(const char *text)
{
    unsigned byte;
    for (size_t i = 0; i < sizeof id.internal && sscanf(text + 2 * i, "%2x", &byte) == 1; i++)
        id.internal[i] = static_cast<char>(byte);
}

static void run_case(const char *name, int n, const char *message)
{
    std::vector<FILE *> ranks;
    std::string text;
    char line[512];
    bool failed = false;
    OK(ncclGetUniqueId(&id));
    const std::string id_words = id_text();
    for (int r = 0; r < n; r++) {
        char command[1024];
        snprintf(command, sizeof command, "NCCL_HOSTID=host%d exec /proc/%d/exe %s %d %d %s 2>&1",
                 r, static_cast<int>(getpid()), name, r, n, id_words.c_str());
        ranks.push_back(popen(command, "r"));
        assert_non_null(ranks.back());
    }
    for (FILE *out : ranks) {
        while (fgets(line, sizeof line, out))
            text += line;
        failed = pclose(out) != 0 || failed;
    }
    if (failed != (message != nullptr) || (message && text.find(message) == std::string::npos))
        fail_msg("%s with %d ranks: %s", name, n, text.c_str());
}

TEST(cases)
{
    for (const auto &c : cases)
        run_case(c.name, c.n_ranks, c.message);
}

TEST(texts)
{
    int version = 0;
    OK(ncclGetVersion(&version));
    assert_int_equal(version, NCCL_VERSION_CODE);
    GIVES(ncclInvalidArgument, ncclGetVersion(nullptr));
    assert_string_equal(ncclGetErrorString(ncclInProgress), "NCCL operation in progress");
    assert_string_equal(ncclGetErrorString(ncclNumResults), "unknown result code");
    GIVES(ncclSuccess, ncclCommDestroy(nullptr));
    GIVES(ncclSuccess, ncclCommAbort(nullptr));
    GIVES(ncclSuccess, ncclCommFinalize(nullptr));
}

static int run_rank(char **argv)
{
    rank = atoi(argv[2]);
    n_ranks = atoi(argv[3]);
    read_id(argv[4]);
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    for (const auto &c : cases)
        if (strcmp(argv[1], c.name) == 0) {
            c.run();
            CHECK(cudaStreamDestroy(stream) == cudaSuccess);
            return 0;
        }
    return 2;
}

int main(int argc, char **argv)
{
    if (argc == 5)
        return run_rank(argv);
    return run_all_tests(nullptr, nullptr);
}
