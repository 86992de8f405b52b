/* The findings: of this rank while the stages run, then of all ranks, the worst first; and the
 * examination: stage by stage, then the findings of all ranks are compared and reported. */
#include "doctor/doctor.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

static const double patience_s = 1; /* without a word */

const char *dt_doctor_host(const struct dt_doctor *d, int host)
{
    return dt_comm_host(d->comm, d->first_of[host]);
}

/* --- Findings of a rank --- */

static void add(struct dt_doctor *d, enum dt_doctor_stage stage, dt_status status, const char *text,
                const char *remedy)
{
    struct dt_host_info *own = &d->own;
    if (own->n_findings == DT_FINDINGS_OF_RANK)
        return;
    struct dt_finding *finding = &own->findings[own->n_findings++];
    const int room = (int)(sizeof finding->text - strlen(remedy) - sizeof "; ");
    *finding = (struct dt_finding){.stage = (int32_t)stage, .status = (int32_t)status};
    snprintf(finding->text, sizeof finding->text, "%.*s%s%s", room, text, remedy[0] ? "; " : "",
             remedy);
}

void dt_doctor_note(struct dt_doctor *d, enum dt_doctor_stage stage, dt_status status,
                    const char *remedy)
{
    if (status == DT_OK)
        return;
    add(d, stage, status, dt_error_text(), remedy);
    dt_error_clear();
}

void dt_doctor_note_alike(struct dt_doctor *d, enum dt_doctor_stage stage, dt_status status)
{
    const int n = d->own.n_findings;
    if (status != DT_OK && d->rank == 0)
        add(d, stage, status, dt_error_text(), "");
    if (d->own.n_findings > n)
        d->own.findings[n].is_named = true;
    dt_error_clear();
}

void dt_doctor_warn(struct dt_doctor *d, enum dt_doctor_stage stage, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    add(d, stage, DT_OK, text, "");
}

dt_status dt_doctor_note_all(struct dt_doctor *d, enum dt_doctor_stage stage, dt_status status,
                             const char *remedy, bool *all)
{
    int64_t n_failed = status != DT_OK;
    dt_doctor_note(d, stage, status, remedy);
    DT_TRY(dt_comm_sum_i64(d->comm, &n_failed, 1));
    *all = n_failed == 0;
    return DT_OK;
}

/* --- Findings of all --- */

static int urgency(const struct dt_finding *finding)
{
    return finding->stage + (finding->status == DT_OK ? DT_N_STAGES : 0);
}

/* The flags of the ranks that this was found on, in a list that stays sorted. */
static bool *insert(struct dt_doctor *d, const struct dt_finding *finding)
{
    const size_t n_flags = (size_t)d->n_ranks;
    int at = 0;
    for (; at < d->n_findings && urgency(&d->findings[at]) <= urgency(finding); at++)
        if (urgency(&d->findings[at]) == urgency(finding) &&
            strcmp(d->findings[at].text, finding->text) == 0)
            return d->ranks_of + (size_t)at * n_flags;
    if (d->n_findings == DT_FINDINGS) {
        d->n_left_out++;
        return NULL;
    }
    const size_t n_after = (size_t)(d->n_findings++ - at);
    bool *flags = d->ranks_of + (size_t)at * n_flags;
    memmove(&d->findings[at + 1], &d->findings[at], n_after * sizeof *d->findings);
    memmove(flags + n_flags, flags, n_after * n_flags * sizeof *flags);
    memset(flags, 0, n_flags * sizeof *flags);
    d->findings[at] = *finding;
    return flags;
}

void dt_doctor_find(struct dt_doctor *d, enum dt_doctor_stage stage, dt_status status,
                    const char *format, ...)
{
    struct dt_finding finding = {
        .stage = (int32_t)stage, .status = (int32_t)status, .is_named = true};
    va_list args;
    va_start(args, format);
    vsnprintf(finding.text, sizeof finding.text, format, args);
    va_end(args);
    (void)insert(d, &finding);
}

void dt_doctor_merge(struct dt_doctor *d)
{
    for (int r = 0; r < d->n_ranks; r++)
        for (int i = 0; i < d->all[r].n_findings; i++) {
            bool *flags = insert(d, &d->all[r].findings[i]);
            if (flags)
                flags[r] = true;
        }
}

/* --- The examination --- */

static const struct {
    const char *what;
    dt_status (*run)(struct dt_doctor *d);
} stages[] = {
    [DT_STAGE_DEVICES] = {"trying the devices", dt_doctor_devices},
    [DT_STAGE_FOLDER] = {"writing to the run folder", dt_doctor_folder},
    [DT_STAGE_DATA] = {"opening the data", dt_doctor_data},
    [DT_STAGE_CLOCKS] = {"comparing the clocks", dt_doctor_clocks},
    [DT_STAGE_NETWORK] = {"measuring the network", dt_doctor_network},
    [DT_STAGE_SUMS] = {"summing over the ranks", dt_doctor_sums},
};

static dt_status allocate(struct dt_doctor *d)
{
    const size_t n = (size_t)d->n_ranks;
    DT_TRY(DT_NEW(d->host_of, n));
    DT_TRY(DT_NEW(d->first_of, n));
    DT_TRY(DT_NEW(d->all, n));
    DT_TRY(DT_NEW(d->findings, DT_FINDINGS));
    DT_TRY(DT_NEW(d->ranks_of, DT_FINDINGS * n));
    return DT_OK;
}

/* Called by all ranks. A stage notes what it finds and goes on, so that one run shows all problems;
 * only an error of the communication itself ends the examination. The findings are gathered on all
 * ranks, which then draw the same conclusions in the same order and end with the same status. */
static dt_status examine(struct dt_doctor *d, const char *json_path)
{
    const double begin_s = dt_clock_s();
    DT_TRY(dt_comm_agree(d->comm, allocate(d)));
    for (int r = 0; r < d->n_ranks; r++) {
        int h = 0;
        while (h < d->n_hosts && strcmp(dt_doctor_host(d, h), dt_comm_host(d->comm, r)) != 0)
            h++;
        d->host_of[r] = h;
        if (h == d->n_hosts)
            d->first_of[d->n_hosts++] = r;
    }
    for (size_t i = 0; i < DT_COUNT(stages); i++) {
        char line[128];
        if (d->is_quick && (i == DT_STAGE_CLOCKS || i == DT_STAGE_NETWORK))
            continue;
        snprintf(line, sizeof line, "doctor: %s", stages[i].what);
        if (d->rank == 0 && !dt_log_is_terminal() && dt_clock_s() - begin_s > patience_s)
            dt_log(DT_LOG_INFO, "%s", line);
        if (d->rank == 0)
            dt_log_progress(line);
        DT_TRY(stages[i].run(d));
    }
    dt_log_progress("");
    DT_TRY(dt_comm_gather(d->comm, d->all, &d->own, sizeof d->own));
    dt_doctor_merge(d);
    if (!d->is_quick)
        dt_doctor_compare(d);
    if (d->rank == 0)
        dt_doctor_print(d);
    DT_TRY(
        dt_comm_agree(d->comm, d->rank == 0 && json_path ? dt_doctor_save(d, json_path) : DT_OK));
    if (d->n_findings > 0 && d->findings[0].status != DT_OK)
        DT_FAIL_ON_ALL_RANKS((dt_status)d->findings[0].status,
                             "these ranks are not fit for training; the report above says why");
    return DT_OK;
}

dt_status dt_doctor(struct dt_comm *comm, const struct dt_config *config, const char *json_path,
                    bool is_quick)
{
    struct dt_doctor *d;
    DT_TRY(DT_NEW(d, 1));
    d->comm = comm;
    d->config = config;
    d->is_quick = is_quick;
    d->rank = dt_comm_rank(comm);
    d->n_ranks = dt_comm_size(comm);
    d->own.clock_s = d->own.cpu_flops_per_s = d->own.cpu_share = d->own.gpu_flops_per_s = NAN;
    d->own.disk_free_bytes = d->own.write_bytes_per_s = NAN;
    dt_sets_init(&d->bench.sets, comm, config, dt_task_of(config));
    dt_engine_init(&d->bench.engine, &d->bench.sets);
    dt_status status = examine(d, json_path);
    dt_comm_close_reduce(comm);
    dt_engine_close(&d->bench.engine, &d->bench.sets, status);
    free(d->host_of);
    free(d->first_of);
    free(d->all);
    free(d->pairs);
    free(d->findings);
    free(d->ranks_of);
    free(d);
    return status;
}
