/* The findings: of this rank while the stages run, then of all ranks, the worst first. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "doctor/doctor.h"

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
