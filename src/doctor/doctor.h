/* `dtrain doctor` on several ranks: whether they can train together, and how well. Each stage looks
 * at one thing on all ranks; a finding is a sentence that says who, what, and what mends it. Found
 * by a rank, it gets that rank's name later; found by comparing ranks, it names them itself.
 * Functions are collective unless said otherwise; a status other than DT_OK ends the examination.
 */
#ifndef DTRAIN_DOCTOR_DOCTOR_H
#define DTRAIN_DOCTOR_DOCTOR_H

#include "bench/bench.h"
#include "dtrain/comm.h"
#include "dtrain/config.h"

/* Examines the ranks, prints the report on rank 0's stdout and, if json_path is not NULL, writes it
 * as JSON. The status of the worst problem, DT_OK if there is none. is_quick: only what training
 * would refuse at its start, nothing that is slow or not in order. */
dt_status dt_doctor(struct dt_comm *comm, const struct dt_config *config, const char *json_path,
                    bool is_quick);

/* --- Inside the room --- */

/* In the order in which their findings are listed: what prevents training comes first. */
enum dt_doctor_stage {
    DT_STAGE_DEVICES,
    DT_STAGE_FOLDER,
    DT_STAGE_DATA,
    DT_STAGE_CLOCKS,
    DT_STAGE_NETWORK,
    DT_STAGE_SUMS,
    DT_N_STAGES
};

enum { DT_FINDINGS_OF_RANK = 8, DT_FINDINGS = 64, DT_INTERFACES = 4, DT_SUM_SIZES = 3 };

/* A rank with CPUs of its own gets nearly all of one. */
static const double dt_min_cpu_share = 0.5;

struct dt_finding {
    int32_t stage, status; /* DT_OK: a warning */
    bool is_named;         /* the text says which ranks or hosts it is about */
    char text[1000];
};

struct dt_interface {
    char name[16], address[46];
    int mtu, mbit_per_s; /* 0 = unknown */
};

/* The facts about a rank. NAN = unknown; those of a host are with its first rank. */
struct dt_host_info {
    char build[48], gpu[96], libraries[192];
    int n_cpus, n_sharing; /* CPUs it may use, ranks of its host that use some of them */
    int n_interfaces;      /* of a host */
    struct dt_interface interfaces[DT_INTERFACES];
    double memory_bytes, memory_free_bytes;
    double clock_s;                    /* time of day, ahead of rank 0's */
    double cpu_flops_per_s, cpu_share; /* of one thread: at best; CPU time by wall time at worst */
    double gpu_flops_per_s;
    double disk_free_bytes, write_bytes_per_s; /* of a host, in the run folder */
    int n_findings;
    struct dt_finding findings[DT_FINDINGS_OF_RANK];
};

/* Two ranks that send each other messages. */
struct dt_pair {
    int from, to;
    bool is_remote; /* on different hosts */
    double latency_s, forth_bytes_per_s, back_bytes_per_s;
};

/* One size of the sums over all ranks; bytes 0 = not measured. */
struct dt_sum_test {
    size_t bytes;
    double seconds; /* median */
};

struct dt_doctor {
    struct dt_comm *comm;
    const struct dt_config *config;
    bool is_quick;
    int rank, n_ranks, n_hosts;
    int *host_of;                  /* by rank: which host, in order of their first ranks */
    int *first_of;                 /* by host: its first rank */
    struct dt_bench bench;         /* its sets and engine have the data and the device */
    bool has_device;               /* on all ranks */
    char folder[DT_PATH_MAX];      /* where the run folder is or would be made */
    struct dt_host_info own, *all; /* all: after the stages */
    struct dt_pair *pairs;
    int n_pairs;
    struct dt_sum_test sums[DT_SUM_SIZES];
    /* Findings of all ranks, the worst first; ranks_of has n_ranks flags for each. */
    struct dt_finding *findings;
    bool *ranks_of;
    int n_findings, n_left_out;
};

/* doctor.c, local. note: a finding of this rank from the last error, unless status is DT_OK;
 * `remedy` ("" = the text has one) ends the sentence. warn: one that costs speed or comfort only.
 * merge: puts those of all ranks together. find: then adds one about several, alike on all. */
const char *dt_doctor_host(const struct dt_doctor *d, int host);
void dt_doctor_note(struct dt_doctor *d, enum dt_doctor_stage stage, dt_status status,
                    const char *remedy);
void dt_doctor_warn(struct dt_doctor *d, enum dt_doctor_stage stage, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void dt_doctor_merge(struct dt_doctor *d);
void dt_doctor_find(struct dt_doctor *d, enum dt_doctor_stage stage, dt_status status,
                    const char *format, ...) __attribute__((format(printf, 4, 5)));
/* The status that all ranks share: rank 0 notes it for all. */
void dt_doctor_note_alike(struct dt_doctor *d, enum dt_doctor_stage stage, dt_status status);
/* Notes a local status; *all tells whether it was DT_OK on all ranks. */
dt_status dt_doctor_note_all(struct dt_doctor *d, enum dt_doctor_stage stage, dt_status status,
                             const char *remedy, bool *all);

/* The stages. */
dt_status dt_doctor_devices(struct dt_doctor *d); /* rank_devices.c */
dt_status dt_doctor_cpus(struct dt_doctor *d);    /* a part, again after other measurements */
dt_status dt_doctor_folder(struct dt_doctor *d);  /* storage.c */
dt_status dt_doctor_data(struct dt_doctor *d);
dt_status dt_doctor_clocks(struct dt_doctor *d); /* network.c */
dt_status dt_doctor_network(struct dt_doctor *d);
dt_status dt_doctor_sums(struct dt_doctor *d);
/* compare_ranks.c, local: finds what is much slower than its like, and what differs. */
void dt_doctor_compare(struct dt_doctor *d);
/* A host other than `host` that has the address, too; -1 = none. */
int dt_doctor_peer_address(const struct dt_doctor *d, int host, const char *address);
/* doctor_report.c, rank 0. */
void dt_doctor_print(const struct dt_doctor *d);
dt_status dt_doctor_save(const struct dt_doctor *d, const char *path);

#endif
