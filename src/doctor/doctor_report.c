/* The report: problems first, then what was seen, in tables; or everything as JSON. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/build.h"
#include "base/host.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
#include "doctor/doctor.h"

enum { MAX_PAIRS = 36, MAX_HOSTS_NAMED = 4, HOST_WIDTH = 20 };

/* --- Names --- */

/* "0-3,8" */
static void add_ranges(struct dt_text *text, const bool *ranks, int n_ranks)
{
    const char *comma = "";
    for (int r = 0; r < n_ranks; r++) {
        const int first = r;
        if (!ranks[r])
            continue;
        while (r + 1 < n_ranks && ranks[r + 1])
            r++;
        dt_text_add(text, "%s%d", comma, first);
        if (r > first)
            dt_text_add(text, "-%d", r);
        comma = ",";
    }
}

/* "rank 4 (nodec)", "ranks 0-3 (nodea, nodeb)", "all ranks" */
static const char *name_ranks(char *out, size_t bytes, const struct dt_doctor *d, const bool *ranks)
{
    struct dt_text text = dt_text_in(out, bytes);
    int n = 0, n_hosts = 0;
    for (int r = 0; r < d->n_ranks; r++)
        n += ranks[r];
    if (n == d->n_ranks && n > 1) {
        dt_text_add(&text, "all ranks");
        return out;
    }
    dt_text_add(&text, n == 1 ? "rank " : "ranks ");
    add_ranges(&text, ranks, d->n_ranks);
    for (int h = 0; h < d->n_hosts; h++) {
        bool has_one = false;
        for (int r = d->first_of[h]; r < d->n_ranks; r++)
            has_one |= ranks[r] && d->host_of[r] == h;
        if (has_one && ++n_hosts <= MAX_HOSTS_NAMED)
            dt_text_add(&text, "%s%s", n_hosts == 1 ? " (" : ", ", dt_doctor_host(d, h));
    }
    dt_text_add(&text, "%s", n_hosts > MAX_HOSTS_NAMED ? ", ...)" : ")");
    return out;
}

/* --- Findings --- */

static void print_findings(const struct dt_doctor *d)
{
    int n_problems = 0;
    while (n_problems < d->n_findings && d->findings[n_problems].status != DT_OK)
        n_problems++;
    if (n_problems == 0)
        printf("No problem found%s\n", d->n_findings > 0 ? "; warnings:" : ".");
    else
        printf("%d problem%s; exit code %d (%s):\n", n_problems, DT_S(n_problems),
               d->findings[0].status, dt_status_name((dt_status)d->findings[0].status));
    for (int i = 0; i < d->n_findings; i++) {
        const struct dt_finding *finding = &d->findings[i];
        char who[512] = "", text[sizeof finding->text + 8];
        if (i == n_problems && i > 0)
            printf("Warnings:\n");
        if (!finding->is_named)
            name_ranks(who, sizeof who, d, d->ranks_of + (size_t)i * (size_t)d->n_ranks);
        snprintf(text, sizeof text, "%s", finding->text);
        dt_utf8_escape(text);
        printf("  %d. %s%s%s\n", i + 1, who, who[0] ? ": " : "", text);
    }
    if (d->n_left_out > 0)
        printf("  ... and %d more\n", d->n_left_out);
}

/* --- Hosts --- */

/* Without its first word, the index. */
static const char *gpu_name(const struct dt_host_info *rank)
{
    const char *space = strchr(rank->gpu, ' ');
    return space ? space + 1 : rank->gpu;
}

static bool is_alike(const struct dt_host_info *a, const struct dt_host_info *b)
{
    return a->n_cpus == b->n_cpus && a->n_sharing == b->n_sharing &&
           strcmp(gpu_name(a), gpu_name(b)) == 0;
}

static void add_interfaces(struct dt_text *text, const struct dt_doctor *d, int host)
{
    const struct dt_host_info *own = &d->all[d->first_of[host]];
    const char *comma = "";
    for (int i = 0; i < own->n_interfaces; i++) {
        const struct dt_interface *at = &own->interfaces[i];
        if (dt_doctor_peer_address(d, host, at->address) >= 0)
            continue;
        dt_text_add(text, "%s%s %s", comma, at->name, at->address);
        if (at->mbit_per_s > 0)
            dt_text_add(text, " %.3g Gb/s", 1e-3 * at->mbit_per_s);
        dt_text_add(text, " MTU %d", at->mtu);
        comma = ", ";
    }
}

/* A line for `first` and the ranks of its host that are like it; marks them as done. */
static void print_alike(const struct dt_doctor *d, int first, bool *is_done, bool *alike)
{
    const struct dt_host_info *own = &d->all[first];
    char ranks[64], memory[48], total[32], gpu[128], network[256];
    struct dt_text text = dt_text_in(ranks, sizeof ranks);
    int n = 0;
    for (int r = 0; r < d->n_ranks; r++) {
        alike[r] = d->host_of[r] == d->host_of[first] && is_alike(own, &d->all[r]);
        is_done[r] |= alike[r];
        n += alike[r];
    }
    add_ranges(&text, alike, d->n_ranks);
    dt_memory_format(memory, sizeof memory, (uint64_t)own->memory_free_bytes);
    dt_memory_format(total, sizeof total, (uint64_t)own->memory_bytes);
    snprintf(memory + strlen(memory), sizeof memory - strlen(memory), " of %s", total);
    snprintf(gpu, sizeof gpu, "%s", own->gpu[0] ? own->gpu : "-");
    if (own->gpu[0] && n > 1)
        snprintf(gpu, sizeof gpu, "%d x %s", n, gpu_name(own));
    text = dt_text_in(network, sizeof network);
    add_interfaces(&text, d, d->host_of[first]);
    printf("%-9s %-*s %4d %-8s %-20s %17s  %-12.12s  %s\n", ranks, HOST_WIDTH,
           dt_comm_host(d->comm, first), own->n_cpus, own->n_sharing > 1 ? "shared" : "own", gpu,
           memory, own->build, network);
}

static void print_ranks(const struct dt_doctor *d)
{
    bool *is_done = calloc(2 * (size_t)d->n_ranks, sizeof *is_done);
    printf("\n%-9s %-*s %4s %-8s %-20s %17s  %-12s  %s\n", "rank", HOST_WIDTH, "host", "CPUs",
           "binding", "GPU", "memory free", "build", "network");
    for (int r = 0; is_done && r < d->n_ranks; r++)
        if (!is_done[r])
            print_alike(d, r, is_done, is_done + d->n_ranks);
    free(is_done);
}

#define AT(field) offsetof(struct dt_host_info, field)
static const struct {
    const char *title;
    size_t at;
    double unit;
    int decimals;
} columns[] = {
    {"clock (s)", AT(clock_s), 1, 3},           {"CPU (GFLOP/s)", AT(cpu_flops_per_s), 1e9, 1},
    {"of a CPU (%)", AT(cpu_share), 0.01, 0},   {"GPU (TFLOP/s)", AT(gpu_flops_per_s), 1e12, 1},
    {"free (GB)", AT(disk_free_bytes), 1e9, 1}, {"writes (MB/s)", AT(write_bytes_per_s), 1e6, 0},
};

/* The least of the ranks of a host; infinite if unknown. */
static void print_hosts(const struct dt_doctor *d)
{
    printf("\n%-*s", HOST_WIDTH, "host");
    for (size_t i = 0; i < DT_COUNT(columns); i++)
        printf(" %14s", columns[i].title);
    printf("   (run folder: %s)\n", d->folder);
    for (int h = 0; h < d->n_hosts; h++) {
        printf("%-*s", HOST_WIDTH, dt_doctor_host(d, h));
        for (size_t i = 0; i < DT_COUNT(columns); i++) {
            double value = INFINITY; /* the least of the ranks of a host */
            for (int r = d->first_of[h]; r < d->n_ranks; r++) {
                const double own = *(const double *)((const char *)&d->all[r] + columns[i].at);
                value = d->host_of[r] == h ? fmin(value, own / columns[i].unit) : value;
            }
            if (isfinite(value))
                printf(" %14.*f", columns[i].decimals, fabs(value) < 1e-3 ? 0 : value);
            else
                printf(" %14s", "-");
        }
        printf("\n");
    }
}

/* --- Network and sums --- */

static int by_rate(const void *a, const void *b)
{
    const struct dt_pair *x = a, *y = b;
    const double difference = fmin(x->forth_bytes_per_s, x->back_bytes_per_s) -
                              fmin(y->forth_bytes_per_s, y->back_bytes_per_s);
    return (difference > 0) - (difference < 0);
}

/* The slowest pairs first. */
static void print_network(const struct dt_doctor *d)
{
    const double factor = 2.0 * (d->n_ranks - 1) / d->n_ranks; /* of the bus, as in nccl-tests */
    char plane[128];
    if (d->n_pairs > 0) {
        qsort(d->pairs, (size_t)d->n_pairs, sizeof *d->pairs, by_rate);
        printf("\n%-26s %-26s %12s %12s %12s\n", "from", "to", "latency (us)", "forth (Gb/s)",
               "back (Gb/s)");
    }
    for (int i = 0; i < d->n_pairs && i < MAX_PAIRS; i++)
        printf("%5d %-*s %5d %-*s %12.1f %12.3f %12.3f\n", d->pairs[i].from, HOST_WIDTH,
               dt_comm_host(d->comm, d->pairs[i].from), d->pairs[i].to, HOST_WIDTH,
               dt_comm_host(d->comm, d->pairs[i].to), 1e6 * d->pairs[i].latency_s,
               8e-9 * d->pairs[i].forth_bytes_per_s, 8e-9 * d->pairs[i].back_bytes_per_s);
    if (d->n_pairs > MAX_PAIRS)
        printf("and %d faster pairs\n", d->n_pairs - MAX_PAIRS);
    dt_comm_describe_plane(d->bench.engine.plane, plane, sizeof plane);
    if (d->sums[0].bytes > 0)
        printf("\n%16s %12s %14s   by %s\n", "all-reduce (B)", "time (us)", "busbw (GB/s)", plane);
    for (int i = 0; i < DT_SUM_SIZES && d->sums[i].bytes > 0; i++)
        printf("%16zu %12.1f %14.3f\n", d->sums[i].bytes, 1e6 * d->sums[i].seconds,
               factor * (double)d->sums[i].bytes / d->sums[i].seconds / 1e9);
}

void dt_doctor_print(const struct dt_doctor *d)
{
    printf("dtrain %s, %d rank%s on %d host%s\n", dt_version, d->n_ranks, DT_S(d->n_ranks),
           d->n_hosts, DT_S(d->n_hosts));
    print_findings(d);
    print_ranks(d);
    print_hosts(d);
    print_network(d);
    fflush(stdout);
}

/* --- JSON, for scripts --- */

static void write_hosts(const struct dt_doctor *d, struct dt_jsonw *w)
{
    dt_jsonw_add(w, "], hosts: [");
    for (int h = 0; h < d->n_hosts; h++) {
        const struct dt_host_info *own = &d->all[d->first_of[h]];
        dt_jsonw_add(w, "{host: %s, memory_bytes: %g, memory_free_bytes: %g", dt_doctor_host(d, h),
                     own->memory_bytes, own->memory_free_bytes);
        dt_jsonw_add(w,
                     "clock_ahead_s: %g, disk_free_bytes: %g, write_bytes_per_s: %g, "
                     "interfaces: [",
                     own->clock_s, own->disk_free_bytes, own->write_bytes_per_s);
        for (int i = 0; i < own->n_interfaces; i++) {
            const struct dt_interface *at = &own->interfaces[i];
            dt_jsonw_add(w, "{name: %s, address: %s, mtu: %d", at->name, at->address, at->mtu);
            if (at->mbit_per_s > 0)
                dt_jsonw_number(w, "bytes_per_s", at->mbit_per_s * 1e6 / 8);
            dt_jsonw_close(w, '}');
        }
        dt_jsonw_add(w, "]}");
    }
}

static void write_network(const struct dt_doctor *d, struct dt_jsonw *w)
{
    dt_jsonw_add(w, "], pairs: [");
    for (int i = 0; i < d->n_pairs; i++) {
        const struct dt_pair *pair = &d->pairs[i];
        dt_jsonw_add(w,
                     "{from: %d, to: %d, is_between_hosts: %hhd, latency_s: %g, "
                     "forth_bytes_per_s: %g, back_bytes_per_s: %g}",
                     pair->from, pair->to, pair->is_remote, pair->latency_s,
                     pair->forth_bytes_per_s, pair->back_bytes_per_s);
    }
    dt_jsonw_add(w, "], all_reduce: [");
    for (int i = 0; i < DT_SUM_SIZES && d->sums[i].bytes > 0; i++)
        dt_jsonw_add(w, "{bytes: %zu, seconds: %g}", d->sums[i].bytes, d->sums[i].seconds);
    dt_jsonw_add(w, "]}");
}

dt_status dt_doctor_save(const struct dt_doctor *d, const char *path)
{
    struct dt_jsonw w = {.pretty = true};
    dt_jsonw_add(&w, "{dtrain: %s, exit_code: %d, run_folder: %s, findings: [", dt_version,
                 d->n_findings > 0 ? d->findings[0].status : DT_OK, d->folder);
    for (int i = 0; i < d->n_findings; i++) {
        const struct dt_finding *finding = &d->findings[i];
        const bool *ranks = d->ranks_of + (size_t)i * (size_t)d->n_ranks;
        dt_jsonw_add(&w, "{is_problem: %hhd, code: %d, text: %s, ranks: [",
                     finding->status != DT_OK, finding->status, finding->text);
        for (int r = 0; r < d->n_ranks; r++)
            if (ranks[r] && !finding->is_named)
                dt_jsonw_integer(&w, NULL, r);
        dt_jsonw_add(&w, "]}");
    }
    dt_jsonw_add(&w, "], ranks: [");
    for (int r = 0; r < d->n_ranks; r++) {
        const struct dt_host_info *own = &d->all[r];
        dt_jsonw_add(&w, "{rank: %d, host: %s, cpus: %d, ranks_on_these_cpus: %d, gpu: %s", r,
                     dt_comm_host(d->comm, r), own->n_cpus, own->n_sharing, own->gpu);
        dt_jsonw_add(&w, "build: %s, cpu_flops_per_s: %g, cpu_share: %g, gpu_flops_per_s: %g}",
                     own->build, own->cpu_flops_per_s, own->cpu_share, own->gpu_flops_per_s);
    }
    write_hosts(d, &w);
    write_network(d, &w);
    return dt_jsonw_save(&w, path);
}
