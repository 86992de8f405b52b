/* Fault injection. Faults meant for another rank are checked and dropped, so that the list stays
 * small and testing for "none" is one load. */
#include "base/fault.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

enum { MAX_FAULTS = 64, MAX_BYTES = 64, MAX_SLOWNESS = 1000 };

enum form { STEP, STEP_OR_SECTION, FACTOR, IO, IO_OR_MORE };
#define KIND(KIND, name, form, error) {#name, form, error},
static const struct {
    const char *name;
    enum form form;
    int error; /* errno of the failing I/O call */
} kinds[] = {DT_FAULT_LIST(KIND)};

struct fault {
    enum dt_fault kind;
    int rank;
    int64_t at;              /* step (-1: see section), or number of the I/O call */
    enum dt_section section; /* DT_SECTION_NONE: fires at a step */
    double factor;
    bool and_all_that_follow;
    atomic_flag done; /* KILL and STOP fire once */
};

static struct {
    int n;
    struct fault faults[MAX_FAULTS];
    atomic_llong n_io;
} state;

/* --- Reading DTRAIN_FAULT --- */

/* Reads an unsigned number at the start of `text` and returns the rest; NULL if there is none. */
static const char *read_number(int64_t *out, const char *text, int64_t min, int64_t max)
{
    char *end;
    if (*text < '0' || *text > '9')
        return NULL;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (errno != 0 || value < min || value > max)
        return NULL;
    *out = value;
    return end;
}

static bool read_rank(int *out, const char *text)
{
    int64_t rank;
    const char *rest = read_number(&rank, text, 0, INT_MAX);
    *out = rest ? (int)rank : -1;
    return rest && !*rest;
}

static bool read_step(struct fault *fault, const char *where, const char *rank)
{
    const char *rest = read_number(&fault->at, where, 0, INT64_MAX);
    if (!rest && kinds[fault->kind].form == STEP_OR_SECTION) {
        int section = DT_N_SECTIONS - 1;
        while (section > DT_SECTION_NONE &&
               strcmp(where, dt_section_name((enum dt_section)section)) != 0)
            section--;
        fault->at = -1;
        fault->section = (enum dt_section)section;
        rest = section != DT_SECTION_NONE ? "" : NULL;
    }
    return rest && !*rest && read_rank(&fault->rank, rank);
}

static bool read_slow(struct fault *fault, const char *rank, const char *factor)
{
    char *end;
    if (!read_rank(&fault->rank, rank) || strspn(factor, "0123456789.") != strlen(factor))
        return false;
    fault->factor = strtod(factor, &end);
    return end != factor && !*end && fault->factor >= 1 && fault->factor <= MAX_SLOWNESS;
}

static bool read_io(struct fault *fault, const char *io, const char *number)
{
    const char *rest = read_number(&fault->at, number, 1, INT64_MAX);
    if (!rest || strcmp(io, "io") != 0)
        return false;
    fault->and_all_that_follow = *rest == '+' && kinds[fault->kind].form == IO_OR_MORE;
    return !rest[fault->and_all_that_follow];
}

static const struct {
    bool (*read)(struct fault *fault, const char *first, const char *second);
    const char *text;
} forms[] = {
    [STEP] = {read_step, "STEP:RANK, as in 100:0"},
    [STEP_OR_SECTION] = {read_step, "STEP:RANK or SECTION:RANK, as in 100:0 or save:0"},
    [FACTOR] = {read_slow, "RANK:FACTOR with a factor of 1 to 1000, as in 1:2.5"},
    [IO] = {read_io, "io:N with N from 1, as in io:12"},
    [IO_OR_MORE] = {read_io, "io:N or io:N+ with N from 1, as in io:12"},
};

/* Splits `text`, "kind@first:second", into its parts. */
static dt_status read_fault(struct fault *fault, const char *text)
{
    char parts[MAX_BYTES], *at, *colon;
    int kind = 0;
    if (snprintf(parts, sizeof parts, "%s", text) >= MAX_BYTES || !(at = strchr(parts, '@')))
        DT_FAIL(DT_ERR_USAGE,
                "DTRAIN_FAULT: \"%.60s\" is not of the form kind@where, as in kill@100:0", text);
    *at++ = '\0';
    while (kind < DT_N_FAULTS && strcmp(kinds[kind].name, parts) != 0)
        kind++;
    if (kind == DT_N_FAULTS)
        DT_FAIL(DT_ERR_USAGE,
                "DTRAIN_FAULT: unknown kind \"%s\" in \"%s\"; known: kill, stop, nan, flip, slow, "
                "crash, enospc, eio",
                parts, text);
    *fault = (struct fault){.kind = (enum dt_fault)kind, .done = ATOMIC_FLAG_INIT};
    colon = strchr(at, ':');
    if (colon)
        *colon++ = '\0';
    if (!colon || !forms[kinds[kind].form].read(fault, at, colon))
        DT_FAIL(DT_ERR_USAGE, "DTRAIN_FAULT: cannot read \"%s\": %s@ must be followed by %s", text,
                kinds[kind].name, forms[kinds[kind].form].text);
    return DT_OK;
}

/* Parses the whole list; faults that are not for `rank` are dropped. */
static dt_status read_list(const char *list, int rank)
{
    for (const char *from = list; from; from = strchr(from, ',')) {
        char text[MAX_BYTES + 1];
        struct fault fault;
        from += from != list; /* the comma */
        snprintf(text, sizeof text, "%.*s", (int)strcspn(from, ","), from);
        DT_TRY(read_fault(&fault, text));
        if (fault.rank != rank)
            continue;
        if (state.n == MAX_FAULTS)
            DT_FAIL(DT_ERR_USAGE, "DTRAIN_FAULT: at most %d faults per rank are supported",
                    MAX_FAULTS);
        state.faults[state.n++] = fault;
    }
    return DT_OK;
}

dt_status dt_fault_init(int rank)
{
    const char *list = getenv("DTRAIN_FAULT");
    state.n = 0;
    atomic_store(&state.n_io, 0);
    if (!list || !*list)
        return DT_OK;
    const dt_status status = read_list(list, rank);
    if (status != DT_OK) {
        state.n = 0;
        return dt_error_pass(status, __func__, __FILE__, __LINE__);
    }
    if (rank == 0)
        dt_log(DT_LOG_WARNING,
               "DTRAIN_FAULT=%s is set: THIS RUN WILL BE DISTURBED ON PURPOSE; unset it to train",
               list);
    return DT_OK;
}

/* --- Firing --- */

bool dt_fault_due(enum dt_fault kind, int64_t step)
{
    for (int i = 0; i < state.n; i++)
        if (state.faults[i].kind == kind && state.faults[i].at == step)
            return true;
    return false;
}

void dt_fault_crash(void)
{
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

/* A stop is delayed by this much, so that the watchdog's last report says where it happened. */
enum { WATCHDOG_PERIOD_S = 2 };

static void carry_out(struct fault *fault, int64_t step)
{
    const bool kills = fault->kind == DT_FAULT_KILL;
    if ((!kills && fault->kind != DT_FAULT_STOP) || atomic_flag_test_and_set(&fault->done))
        return;
    if (fault->section != DT_SECTION_NONE)
        dt_log(DT_LOG_WARNING, "DTRAIN_FAULT: %s in section %s", kinds[fault->kind].name,
               dt_section_name(fault->section));
    else
        dt_log(DT_LOG_WARNING, "DTRAIN_FAULT: %s at step %lld", kinds[fault->kind].name,
               (long long)step);
    if (kills)
        dt_fault_crash();
    dt_clock_sleep(WATCHDOG_PERIOD_S);
    kill(getpid(), SIGSTOP);
}

void dt_fault_at_step(int64_t step)
{
    for (int i = 0; i < state.n; i++)
        if (state.faults[i].section == DT_SECTION_NONE && state.faults[i].at == step)
            carry_out(&state.faults[i], step);
}

void dt_fault_at_section(enum dt_section section)
{
    for (int i = 0; i < state.n; i++)
        if (section != DT_SECTION_NONE && state.faults[i].section == section)
            carry_out(&state.faults[i], -1);
}

double dt_fault_slowness(void)
{
    for (int i = 0; i < state.n; i++)
        if (state.faults[i].kind == DT_FAULT_SLOW)
            return state.faults[i].factor;
    return 1;
}

int dt_fault_io(bool *crash)
{
    int error = 0;
    if (crash)
        *crash = false;
    if (state.n == 0)
        return 0;
    const long long now = atomic_fetch_add(&state.n_io, 1) + 1;
    for (int i = 0; i < state.n; i++) {
        const struct fault *fault = &state.faults[i];
        const bool due = fault->at == now || (fault->and_all_that_follow && fault->at < now);
        if (due && fault->kind == DT_FAULT_CRASH) {
            if (!crash)
                dt_fault_crash();
            *crash = true;
        }
        if (due && kinds[fault->kind].error != 0)
            error = kinds[fault->kind].error;
    }
    return error;
}
