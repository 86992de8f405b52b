/* Finds what differs between the ranks and what is much slower than its like. Speeds are compared
 * by their ratio to a median, with wide limits: each is the best of several measurements, but the
 * machine may be busy. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/sort.h"
#include "doctor/doctor.h"

enum { MIN_HOSTS = 3 };                  /* of two nobody knows which one is the slow one */
static const double max_clock_s = 1;     /* times of files and logs stay in order */
static const double slow_rank = 0.5;     /* throttled, or its CPUs are taken; noise is below 20 % */
static const double slow_disk = 0.25;    /* a sync of a healthy disk varies by a factor of 2 */
static const double slow_link = 1.0 / 3; /* another rate or lost packets; noise is a factor of 2 */
static const double slow_latency = 1.0 / 4; /* another path; noise of short messages is larger */
static const double min_latency_s = 1e-3;   /* below it another path costs training nothing */
static const double hardly_runs = 0.15;     /* share of a CPU with which no speed is certain */
static const double slow_interface = 0.15; /* TCP on a fast interface reaches 0.2 with one stream */

static double min_share(const struct dt_doctor *d)
{
    double min = 1;
    for (int r = 0; r < d->n_ranks; r++)
        min = fmin(min, d->all[r].cpu_share);
    return min;
}

/* The factor on a limit: ranks that share CPUs with others send and write in slices. */
static double caution(const struct dt_doctor *d)
{
    return min_share(d) < dt_min_cpu_share ? 0.3 : 1;
}

/* The status of a slow part: a rank that hardly runs makes everything slow that it takes part in.
 */
static dt_status severity(const struct dt_doctor *d)
{
    return min_share(d) < hardly_runs ? DT_OK : DT_ERR_DEVICE;
}

/* The better one of two. NAN if all are. */
static double median_of(const double *values, int n)
{
    double *sorted, median = NAN;
    size_t n_known = 0;
    if (DT_NEW(sorted, (size_t)n) != DT_OK)
        return NAN;
    for (int i = 0; i < n; i++)
        if (values[i] > 0)
            sorted[n_known++] = values[i];
    dt_sort_f64(sorted, n_known);
    if (n_known > 0)
        median = sorted[n_known / 2];
    free(sorted);
    return median;
}

/* --- Clocks --- */

/* The host whose clock is in the middle; of two the first. */
static int find_reference(const struct dt_doctor *d)
{
    for (int h = 0; h < d->n_hosts; h++) {
        int n_before = 0;
        for (int other = 0; other < d->n_hosts; other++)
            n_before += d->all[d->first_of[other]].clock_s < d->all[d->first_of[h]].clock_s;
        if (n_before == d->n_hosts / 2 && d->n_hosts >= MIN_HOSTS)
            return h;
    }
    return 0;
}

static void compare_clocks(struct dt_doctor *d)
{
    char text[32];
    const int reference = find_reference(d);
    for (int h = 0; h < d->n_hosts; h++) {
        const double ahead_s =
            d->all[d->first_of[h]].clock_s - d->all[d->first_of[reference]].clock_s;
        if (fabs(ahead_s) > max_clock_s)
            dt_doctor_find(
                d, DT_STAGE_CLOCKS, DT_ERR_DISAGREE,
                "the clock of %s is %s %s the clock of %s: set it (chronyc makestep), and "
                "let chronyd or systemd-timesyncd keep it",
                dt_doctor_host(d, h), dt_clock_format(text, sizeof text, fabs(ahead_s)),
                ahead_s > 0 ? "ahead of" : "behind", dt_doctor_host(d, reference));
    }
}

/* --- Ranks and disks --- */

/* `rates` of all ranks. */
static void find_slow_ranks(struct dt_doctor *d, const double *rates, double limit,
                            dt_status status, const char *what, const char *advice)
{
    const double median = median_of(rates, d->n_ranks), min = limit * median;
    for (int r = 0; r < d->n_ranks; r++)
        if (rates[r] < min)
            dt_doctor_find(d, DT_STAGE_DEVICES, status,
                           "the %s of rank %d (%s) computes %.1f times as slowly as the "
                           "median rank's, %.3g GFLOP/s against %.3g: %s",
                           what, r, dt_comm_host(d->comm, r), median / rates[r], rates[r] / 1e9,
                           median / 1e9, advice);
}

static void compare_ranks(struct dt_doctor *d)
{
    double *rates;
    if (DT_NEW(rates, (size_t)d->n_ranks) != DT_OK)
        return;
    for (int r = 0; r < d->n_ranks; r++)
        rates[r] = d->all[r].cpu_flops_per_s;
    find_slow_ranks(d, rates, slow_rank, DT_ERR_DEVICE, "CPU",
                    "see whether it is throttled (turbostat, cpupower frequency-info)");
    for (int r = 0; r < d->n_ranks; r++)
        rates[r] = d->all[r].gpu_flops_per_s;
    find_slow_ranks(d, rates, slow_rank * caution(d), severity(d), "GPU",
                    "see whether it is throttled or shared (nvidia-smi -q -d PERFORMANCE, PIDS)");
    free(rates);
}

static void compare_disks(struct dt_doctor *d)
{
    double *rates;
    if (d->n_hosts < MIN_HOSTS || DT_NEW(rates, (size_t)d->n_hosts) != DT_OK)
        return;
    for (int h = 0; h < d->n_hosts; h++)
        rates[h] = d->all[d->first_of[h]].write_bytes_per_s;
    const double median = median_of(rates, d->n_hosts);
    for (int h = 0; h < d->n_hosts; h++)
        if (rates[h] < slow_disk * caution(d) * median)
            dt_doctor_find(d, DT_STAGE_FOLDER, severity(d),
                           "%s writes %.3g MB/s to %s, the median host %.3g: look for errors and "
                           "other writers there (dmesg, iostat -x, nfsiostat)",
                           dt_doctor_host(d, h), rates[h] / 1e6, d->folder, median / 1e6);
    free(rates);
}

/* --- Links --- */

/* The quality by which pairs are compared, latency or rate: the more the better. */
static double quality(const struct dt_pair *pair, bool of_latency)
{
    return of_latency ? 1 / fmax(pair->latency_s, min_latency_s)
                      : fmin(pair->forth_bytes_per_s, pair->back_bytes_per_s);
}

static const char *print_quality(char out[32], double value, bool of_latency)
{
    const double s = 1 / value;
    if (of_latency)
        snprintf(out, 32, "in %s%.3g ms", s > min_latency_s ? "" : "less than ", 1e3 * s);
    else
        snprintf(out, 32, "at %.3g Gb/s", 8e-9 * value);
    return out;
}

/* A host with a slow link is slow in all its pairs, and then all of them are slow of 3 hosts: so
 * hosts are compared by the best of their pairs, and pairs only between hosts that are good. */
static void find_best(double *best, const struct dt_doctor *d, bool of_latency)
{
    for (int h = 0; h < d->n_hosts; h++)
        best[h] = 0;
    for (int i = 0; i < d->n_pairs; i++) {
        const struct dt_pair *pair = &d->pairs[i];
        const int hosts[] = {d->host_of[pair->from], d->host_of[pair->to]};
        for (size_t k = 0; k < DT_COUNT(hosts) && pair->is_remote; k++)
            best[hosts[k]] = fmax(best[hosts[k]], quality(pair, of_latency));
    }
}

static void check_links(struct dt_doctor *d, bool of_latency, double *best, bool *is_bad)
{
    static const char advice[] = "check cable, port and switch (ethtool, ip -s link), or take "
                                 "another network with --mca btl_tcp_if_include NAME";
    char own[32], normal[32];
    find_best(best, d, of_latency);
    const double median = median_of(best, d->n_hosts);
    const double limit = of_latency ? slow_latency : slow_link;
    const double min = limit * caution(d) * median;
    print_quality(normal, median, of_latency);
    for (int h = 0; h < d->n_hosts; h++) {
        const bool is_slow = best[h] < min;
        if (is_slow && !is_bad[h])
            dt_doctor_find(d, DT_STAGE_NETWORK, severity(d),
                           "messages of %s pass %s at best, the median host's %s: %s",
                           dt_doctor_host(d, h), print_quality(own, best[h], of_latency), normal,
                           advice);
        is_bad[h] |= is_slow;
    }
    for (int i = 0; i < d->n_pairs; i++) {
        const struct dt_pair *pair = &d->pairs[i];
        const bool is_known = is_bad[d->host_of[pair->from]] || is_bad[d->host_of[pair->to]];
        if (pair->is_remote && !is_known && quality(pair, of_latency) < min)
            dt_doctor_find(d, DT_STAGE_NETWORK, severity(d),
                           "%s - %s: messages pass %s, the median host's %s: %s",
                           dt_comm_host(d->comm, pair->from), dt_comm_host(d->comm, pair->to),
                           print_quality(own, quality(pair, of_latency), of_latency), normal,
                           advice);
    }
}

/* Finds hosts whose messages take a slower interface than the host has. */
static void check_interfaces(struct dt_doctor *d, const double *best, const bool *is_bad)
{
    for (int h = 0; h < d->n_hosts; h++) {
        const struct dt_host_info *host = &d->all[d->first_of[h]];
        const struct dt_interface *fastest = &host->interfaces[0];
        for (int i = 1; i < host->n_interfaces; i++)
            if (host->interfaces[i].mbit_per_s > fastest->mbit_per_s)
                fastest = &host->interfaces[i];
        if (!is_bad[h] && 8e-6 * best[h] < slow_interface * fastest->mbit_per_s)
            dt_doctor_find(d, DT_STAGE_NETWORK, DT_OK,
                           "%s sends at %.3g Gb/s, but %s could at %.3g: if that is the network "
                           "between the hosts, say so with --mca btl_tcp_if_include %s "
                           "(NCCL_SOCKET_IFNAME=%s)",
                           dt_doctor_host(d, h), 8e-9 * best[h], fastest->name,
                           1e-3 * fastest->mbit_per_s, fastest->name, fastest->name);
    }
}

static void compare_links(struct dt_doctor *d)
{
    double *best = NULL;
    bool *is_bad = NULL;
    dt_status status = DT_NEW(best, (size_t)d->n_hosts);
    if (status == DT_OK)
        status = DT_NEW(is_bad, (size_t)d->n_hosts);
    for (size_t i = 0; status == DT_OK && d->n_hosts >= MIN_HOSTS && i < 2; i++)
        check_links(d, i == 0, best, is_bad); /* late messages also pass at a low rate */
    if (status == DT_OK && d->n_hosts > 1) {
        find_best(best, d, false);
        check_interfaces(d, best, is_bad);
    }
    free(best);
    free(is_bad);
}

int dt_doctor_peer_address(const struct dt_doctor *d, int host, const char *address)
{
    for (int h = 0; h < d->n_hosts; h++)
        for (int i = 0; h != host && i < d->all[d->first_of[h]].n_interfaces; i++)
            if (strcmp(d->all[d->first_of[h]].interfaces[i].address, address) == 0)
                return h;
    return -1;
}

void dt_doctor_compare(struct dt_doctor *d)
{
    for (int h = 1; h < d->n_hosts && d->has_device; h++) {
        const char *a = d->all[d->first_of[h]].libraries, *b = d->all[0].libraries;
        if (strcmp(a, b) != 0)
            dt_doctor_find(d, DT_STAGE_DEVICES, DT_OK,
                           "%s uses%s, but %s uses%s: speed and rounding may differ; install the "
                           "same libraries, or set ONEDNN_MAX_CPU_ISA to what all CPUs have",
                           dt_doctor_host(d, h), a, dt_doctor_host(d, 0), b);
    }
    compare_clocks(d);
    compare_ranks(d);
    compare_disks(d);
    compare_links(d);
    /* Docker and libvirt give their bridges the same address everywhere: MPI tries it and waits. */
    for (int i = 0; i < d->all[0].n_interfaces; i++) {
        const struct dt_interface *own = &d->all[0].interfaces[i];
        const int peer = dt_doctor_peer_address(d, 0, own->address);
        if (peer > 0)
            dt_doctor_find(d, DT_STAGE_NETWORK, DT_OK,
                           "%s and %s have the same address %s, on %s: exclude it with --mca "
                           "btl_tcp_if_exclude lo,%s (NCCL_SOCKET_IFNAME=^lo,%s)",
                           dt_doctor_host(d, 0), dt_doctor_host(d, peer), own->address, own->name,
                           own->name, own->name);
    }
}
