/* A rank's CPUs, device, memory, network interfaces and libraries, and how fast it computes. */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <math.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/build.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/host.h"
#include "base/mem.h"
#include "doctor/doctor.h"

/* Shared memory that the ranks of a host exchange messages in, per rank: Open MPI's segment has
 * 4 MiB, NCCL's buffers about 32 MiB for each neighbour it cannot reach otherwise. */
static const double mib = 1 << 20;
enum { SHARED_MIB_MPI = 8, SHARED_MIB_NCCL = 64, LOCKED_MIB = 64 };

static const double burst_s = 0.2;

/* Only InfiniBand needs memory that is locked. */
static void check_locked_memory(struct dt_doctor *d)
{
    struct rlimit limit;
    if (access("/sys/class/infiniband", F_OK) != 0 || dt_comm_local_rank(d->comm) != 0 ||
        getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || (double)limit.rlim_cur >= LOCKED_MIB * mib)
        return;
    dt_doctor_warn(d, DT_STAGE_DEVICES,
                   "only %.0f KiB of memory may be locked, too little for InfiniBand: ulimit -l "
                   "unlimited where the ranks start (docker run --ulimit memlock=-1)",
                   (double)limit.rlim_cur / 1024);
}

static dt_status open_device(struct dt_doctor *d)
{
    struct dt_engine *engine = &d->bench.engine;
    struct dt_device_options options;
    char binding[512], text[256];
    const bool on_cpu = engine->backend == &dt_backend_cpu;
    engine->n_threads =
        d->config->device.threads > 0 ? d->config->device.threads : dt_comm_cpus(d->comm);
    options = dt_devices_options(engine->config, engine->n_threads);
    options.rank = d->rank;
    options.local_rank = dt_comm_local_rank(d->comm);
    DT_TRY(engine->backend->open(&engine->device, &options));
    if (dt_comm_describe_binding(d->comm, on_cpu ? engine->n_threads : 1, binding, sizeof binding))
        dt_doctor_warn(d, DT_STAGE_DEVICES, "%s", binding);
    engine->backend->describe(engine->device, text, sizeof text);
    snprintf(d->own.gpu, sizeof d->own.gpu, "%.*s", on_cpu ? 0 : (int)strcspn(text, ","), text);
    /* Without its first word, which says which device of the host it is. */
    snprintf(d->own.libraries, sizeof d->own.libraries, "%.*s", (int)sizeof d->own.libraries - 1,
             text + strcspn(text, " "));
    return DT_OK;
}

/* --- Network interfaces --- */

/* The number that ethtool NAME prints; 0 if the driver does not say, or only makes up a number. */
static int ask_speed(int fd, struct ifreq *request)
{
    static const char *const virtual[] = {"veth", "tun", "bridge", "virtio_net", "dummy"};
    struct ethtool_drvinfo driver = {.cmd = ETHTOOL_GDRVINFO};
    struct ethtool_cmd link = {.cmd = ETHTOOL_GSET};
    request->ifr_data = (void *)&driver;
    if (ioctl(fd, SIOCETHTOOL, request) != 0)
        return 0;
    for (size_t i = 0; i < DT_COUNT(virtual); i++)
        if (strcmp(driver.driver, virtual[i]) == 0)
            return 0;
    request->ifr_data = (void *)&link;
    if (ioctl(fd, SIOCETHTOOL, request) != 0)
        return 0;
    const uint32_t speed = ethtool_cmd_speed(&link);
    return speed < INT32_MAX ? (int)speed : 0;
}

static void describe(struct dt_interface *out, const struct ifaddrs *at, int fd)
{
    const struct sockaddr_in *address = (const void *)at->ifa_addr;
    struct ifreq request = {0};
    *out = (struct dt_interface){0};
    snprintf(out->name, sizeof out->name, "%s", at->ifa_name);
    inet_ntop(AF_INET, &address->sin_addr, out->address, sizeof out->address);
    memcpy(request.ifr_name, out->name, sizeof request.ifr_name);
    if (ioctl(fd, SIOCGIFMTU, &request) == 0)
        out->mtu = request.ifr_mtu;
    out->mbit_per_s = ask_speed(fd, &request);
}

/* The addresses of this host that other hosts may reach, from the kernel and not from /sys, which
 * in a container may show those of another network namespace. */
static void list_interfaces(struct dt_host_info *own)
{
    struct ifaddrs *first;
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || getifaddrs(&first) != 0)
        first = NULL;
    for (const struct ifaddrs *at = first; at && own->n_interfaces < DT_INTERFACES;
         at = at->ifa_next)
        if (at->ifa_addr && at->ifa_addr->sa_family == AF_INET &&
            (at->ifa_flags & (IFF_UP | IFF_RUNNING | IFF_LOOPBACK)) == (IFF_UP | IFF_RUNNING))
            describe(&own->interfaces[own->n_interfaces++], at, fd);
    if (first)
        freeifaddrs(first);
    if (fd >= 0)
        close(fd);
}

/* --- Speed --- */

/* Some thousand multiply-adds; the result depends on all of them. */
static float compute(float *values, int n)
{
    float sum = 0;
    for (int round = 0; round < 64; round++)
        for (int i = 0; i < n; i++)
            values[i] = values[i] * 0.999f + 0.001f;
    for (int i = 0; i < n; i++)
        sum += values[i];
    return sum;
}

static double thread_s(void)
{
    struct timespec used = {0};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

/* One thread of each rank at the same time. The shortest of many short pieces is what the CPU can
 * do, undisturbed; the share is how much of it this rank gets, at worst. */
static void measure_cpu(struct dt_host_info *own)
{
    enum { N = 4096, OPERATIONS = 2 * 64 * N };
    static float values[N];
    float sum = 0;
    const double begin_s = dt_clock_s(), begin_thread_s = thread_s();
    double shortest_s = INFINITY, now_s = begin_s;
    while (now_s - begin_s < burst_s) {
        const double last_s = now_s;
        sum += compute(values, N);
        now_s = dt_clock_s();
        shortest_s = fmin(shortest_s, now_s - last_s);
    }
    own->cpu_share = fmin(own->cpu_share, (thread_s() - begin_thread_s) / (now_s - begin_s));
    own->cpu_flops_per_s =
        fmax(own->cpu_flops_per_s, (sum < 0 ? 0 : OPERATIONS) / shortest_s / dt_fault_slowness());
}

dt_status dt_doctor_cpus(struct dt_doctor *d)
{
    DT_TRY(dt_comm_barrier(d->comm));
    measure_cpu(&d->own);
    if (d->own.cpu_share < dt_min_cpu_share)
        dt_doctor_warn(d, DT_STAGE_DEVICES,
                       "less than half of a CPU is left for a thread: there are more ranks than "
                       "CPUs, or other programs (top), or a limit (cpu.max)");
    return dt_comm_rest(d->comm);
}

/* Opens this rank's device; *all: every rank has one of the same kind, and its own. */
static dt_status try_device(struct dt_doctor *d, bool *all)
{
    struct dt_engine *engine = &d->bench.engine;
    struct dt_device_choice choice;
    dt_status status = dt_devices_choose(&choice, d->config, d->n_ranks);
    DT_TRY(dt_doctor_note_all(d, DT_STAGE_DEVICES, status, "", all));
    if (!*all)
        return DT_OK;
    status = dt_devices_agree(&choice, d->comm, d->config);
    *all = status == DT_OK;
    dt_doctor_note_alike(d, DT_STAGE_DEVICES, status);
    if (!*all)
        return DT_OK;
    dt_engine_use(engine, &choice);
    const int n = dt_comm_local_size(d->comm);
    const double need =
        n * mib * (choice.plane == DT_PLANE_NCCL ? SHARED_MIB_NCCL : SHARED_MIB_MPI);
    const double left = (double)dt_file_free_bytes("/dev/shm");
    if (n > 1 && dt_comm_local_rank(d->comm) == 0 && left < need)
        dt_doctor_warn(d, DT_STAGE_DEVICES,
                       "/dev/shm has %.0f MiB free, but the %d ranks of this host may need %.0f: "
                       "mount -o remount,size=%.0fm /dev/shm, or docker run --shm-size=%.0fm",
                       left / mib, n, need / mib, 2 * need / mib, 2 * need / mib);
    DT_TRY(dt_doctor_note_all(d, DT_STAGE_DEVICES, open_device(d), "", all));
    if (!*all)
        return DT_OK;
    status = dt_comm_agree(
        d->comm, dt_devices_check_shared(d->comm, engine->backend, engine->device, d->config));
    *all = status == DT_OK;
    dt_doctor_note_alike(d, DT_STAGE_DEVICES, status);
    return DT_OK;
}

dt_status dt_doctor_devices(struct dt_doctor *d)
{
    struct dt_memory_use use;
    snprintf(d->own.build, sizeof d->own.build, "%s", dt_build_id());
    d->own.n_cpus = dt_comm_allowed_cpus(d->comm);
    d->own.n_sharing = dt_comm_sharing_ranks(d->comm);
    dt_memory_use(&use, "");
    d->own.memory_bytes = fmin((double)use.total, (double)dt_memory_limit(""));
    d->own.memory_free_bytes = (double)dt_memory_available("");
    list_interfaces(&d->own);
    check_locked_memory(d);
    DT_TRY(dt_doctor_cpus(d));
    DT_TRY(try_device(d, &d->has_device));
    if (!d->has_device || d->bench.engine.backend == &dt_backend_cpu)
        return DT_OK;
    DT_TRY(dt_bench_peaks(&d->bench));
    d->own.gpu_flops_per_s = d->bench.own.peak_flops_per_s;
    return DT_OK;
}
