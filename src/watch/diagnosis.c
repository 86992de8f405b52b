/* Applies the rules to every rank and writes the message. */
#include "watch/diagnosis.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/pulse.h"
#include "base/text.h"

enum {
    PERIODS_TO_ANSWER = 4, /* a rank with an older beat does not answer */
    MAX_NAMED = 8,
};

enum state {
    MOVES, /* or is idle, or is within its limit */
    HAS_LEFT,
    ELSEWHERE,  /* unknown */
    WAITS,      /* for other ranks, within the limit */
    WAITS_LONG, /* for other ranks, beyond the limit */
    STUCK,      /* the main thread */
    WRITER_STUCK,
    SILENT,
    DEAD, /* has not answered for long while others wait */
};

static bool has_left(const struct dt_view *view)
{
    return view->is_known && (view->beat.flags & DT_HEARTBEAT_HAS_LEFT) && view->process != 'T';
}

static bool is_remote(const struct dt_diagnosis_case *c, int rank)
{
    const char *host = c->ranks[rank].beat.host;
    return c->ranks[rank].is_elsewhere ||
           (host[0] && strcmp(host, c->ranks[c->self].beat.host) != 0);
}

bool dt_diagnosis_answers(const struct dt_diagnosis_case *c, int rank)
{
    const struct dt_view *view = &c->ranks[rank];
    if (rank == c->self)
        return true;
    return view->is_known && !has_left(view) && view->age_s <= PERIODS_TO_ANSWER * c->period_s;
}

static bool is_over(const struct dt_diagnosis_case *c, const struct dt_heartbeat_thread *thread,
                    double age_s)
{
    return thread->limit_s > 0 && thread->idle_s + age_s > fmax(thread->limit_s - c->slack_s, 0);
}

/* Any state but DEAD, which depends on the other ranks. */
static enum state find_state(const struct dt_diagnosis_case *c, int rank)
{
    const struct dt_view *view = &c->ranks[rank];
    const struct dt_heartbeat_thread *main = &view->beat.main;
    if (has_left(view))
        return HAS_LEFT;
    if (view->is_elsewhere)
        return ELSEWHERE;
    if (!dt_diagnosis_answers(c, rank))
        return SILENT;
    if (is_over(c, &view->beat.writer, view->age_s))
        return WRITER_STUCK;
    bool over = is_over(c, main, view->age_s);
    if (main->waits_for[0])
        return over ? WAITS_LONG : WAITS;
    return over ? STUCK : MOVES;
}

/* After so many seconds a silent rank is dead: the shortest limit of the ranks that are stuck or
 * wait beyond their limit, but at least PERIODS_TO_ANSWER periods. INFINITY: there are none. */
static double patience(const struct dt_diagnosis_case *c)
{
    double shortest = INFINITY;
    for (int r = 0; r < c->n_ranks; r++) {
        enum state state = find_state(c, r);
        if (state == WAITS_LONG || state == STUCK)
            shortest = fmin(shortest, c->ranks[r].beat.main.limit_s);
    }
    return fmax(shortest - c->slack_s, PERIODS_TO_ANSWER * c->period_s);
}

static enum state state_of(const struct dt_diagnosis_case *c, int rank, double patience_s)
{
    enum state state = find_state(c, rank);
    const struct dt_view *view = &c->ranks[rank];
    if (is_remote(c, rank))
        patience_s = fmax(patience_s, c->apart_s - c->slack_s);
    if (state == SILENT && view->beat.main.idle_s + view->age_s > patience_s)
        return DEAD;
    return state;
}

/* --- The message --- */

static void add_where(struct dt_text *out, const struct dt_heartbeat_thread *thread)
{
    dt_text_add(out, "since step %" PRId64 ", section %s", thread->step,
                dt_section_name((enum dt_section)thread->section));
}

static void add_culprit(struct dt_text *out, const struct dt_view *view, int rank, enum state state)
{
    const struct dt_heartbeat *beat = &view->beat;
    const char *stopped = view->process == 'T' ? "is stopped (SIGSTOP, a debugger?)" : NULL;
    dt_text_add(out, "rank %d ", rank);
    if (beat->pid)
        dt_text_add(out, "(%s pid %d) ", beat->host, (int)beat->pid);
    else if (beat->host[0])
        dt_text_add(out, "(%s) ", beat->host);
    if (!view->is_known) {
        dt_text_add(out, "%s%shas not answered at all for %.0f s", stopped ? stopped : "",
                    stopped ? " and " : "", view->age_s);
        return;
    }
    if (state == DEAD) {
        dt_text_add(out, "%s ",
                    stopped ? stopped : "does not answer (stopped, killed or its node is gone)");
        add_where(out, &beat->main);
        dt_text_add(out, ", for %.0f s", view->age_s);
        return;
    }
    const struct dt_heartbeat_thread *thread = state == STUCK ? &beat->main : &beat->writer;
    dt_text_add(out,
                state == STUCK ? "has not moved " : "has not moved while it writes a checkpoint ");
    add_where(out, thread);
    dt_text_add(out, ", for %.0f s", thread->idle_s + view->age_s);
}

static int add_culprits(struct dt_text *out, const struct dt_diagnosis_case *c, double patience_s)
{
    /* Dead ranks come first, as others may be stuck because of them. */
    static const enum state order[] = {DEAD, STUCK, WRITER_STUCK};
    int n = 0;
    for (size_t k = 0; k < DT_COUNT(order); k++)
        for (int r = 0; r < c->n_ranks; r++) {
            if (state_of(c, r, patience_s) != order[k])
                continue;
            if (n++ >= MAX_NAMED)
                continue;
            dt_text_add(out, n > 1 ? "; " : "");
            add_culprit(out, &c->ranks[r], r, order[k]);
        }
    if (n > MAX_NAMED)
        dt_text_add(out, "; and %d more", n - MAX_NAMED);
    return n;
}

static bool waits(const struct dt_diagnosis_case *c, int rank)
{
    enum state state = find_state(c, rank);
    return state == WAITS || state == WAITS_LONG;
}

static void add_waiting(struct dt_text *out, const struct dt_diagnosis_case *c, int n_culprits)
{
    int n = 0, n_named = 0;
    for (int r = 0; r < c->n_ranks; r++)
        n += waits(c, r);
    if (n == 0)
        return;
    dt_text_add(out, n == 1 ? "; rank" : "; ranks");
    for (int r = 0; r < c->n_ranks && n_named < MAX_NAMED; r++)
        if (waits(c, r))
            dt_text_add(out, "%s %d", n_named++ ? "," : "", r);
    if (n > n_named)
        dt_text_add(out, " and %d more", n - n_named);
    dt_text_add(out, " %s for %s", n == 1 ? "waits" : "wait", n_culprits == 1 ? "it" : "them");
}

static int count(const struct dt_diagnosis_case *c, enum state state)
{
    int n = 0;
    for (int r = 0; r < c->n_ranks; r++)
        n += find_state(c, r) == state;
    return n;
}

/* The hosts of the ranks elsewhere, each once. */
static void add_hosts(struct dt_text *out, const struct dt_diagnosis_case *c)
{
    int n = 0;
    dt_text_add(out, " Or a rank hangs on ");
    for (int r = 0; r < c->n_ranks; r++) {
        const char *host = c->ranks[r].beat.host;
        bool is_new = c->ranks[r].is_elsewhere && host[0] && n < MAX_NAMED;
        for (int i = 0; i < r && is_new; i++)
            is_new = strcmp(c->ranks[i].beat.host, host) != 0;
        if (is_new)
            dt_text_add(out, "%s%s", n++ ? " or " : "", host);
    }
    if (n == 0)
        dt_text_add(out, "%s", c->nodes[0] ? c->nodes : "another node");
    dt_text_add(out, "; mpirun --mca btl_tcp_if_include and --mca oob_tcp_if_include choose the "
                     "interfaces that must reach each other");
}

static void add_wait(struct dt_text *out, const struct dt_diagnosis_case *c)
{
    const struct dt_heartbeat_thread *main = &c->ranks[c->self].beat.main;
    dt_text_add(out, "in %s at step %" PRId64 ", section %s, for %.0f s", main->waits_for,
                main->step, dt_section_name((enum dt_section)main->section), main->idle_s);
}

/* Reports a wait beyond its limit for which no rank is to blame: if all ranks that can be seen wait
 * so long, or if this one does and cannot read the beats of the others. */
static bool blame_network(struct dt_text *out, const struct dt_diagnosis_case *c)
{
    const struct dt_heartbeat *own = &c->ranks[c->self].beat;
    const int n_wait = count(c, WAITS_LONG), n_elsewhere = count(c, ELSEWHERE);
    bool any_remote = false;
    for (int r = 0; r < c->n_ranks; r++)
        any_remote = any_remote || is_remote(c, r);
    if (any_remote && own->main.idle_s <= c->apart_s - c->slack_s)
        return false; /* too early to blame what lies between the nodes */
    if (c->is_blind && find_state(c, c->self) == WAITS_LONG) {
        dt_text_add(out, "rank %d (%s pid %d) waits ", c->self, own->host, (int)own->pid);
        add_wait(out, c);
        return true;
    }
    if (n_wait == 0 || n_wait + count(c, HAS_LEFT) + n_elsewhere < c->n_ranks)
        return false;
    dt_text_add(out, c->n_ranks == 1 ? "the only rank waits " : "all ranks ");
    if (n_elsewhere > 0)
        dt_text_add(out, "of %s ", own->host);
    dt_text_add(out, c->n_ranks == 1 ? "" : "wait ");
    add_wait(out, c);
    dt_text_add(out, ": the network?");
    if (n_elsewhere > 0)
        add_hosts(out, c);
    return true;
}

void dt_diagnosis_find(struct dt_diagnosis *out, const struct dt_diagnosis_case *c)
{
    struct dt_text text = dt_text_in(out->text, sizeof out->text);
    dt_text_add(&text, "dtrain: error[HANG] ");
    out->speaker = 0;
    while (!dt_diagnosis_answers(c, out->speaker))
        out->speaker++;
    int n = add_culprits(&text, c, patience(c));
    if (n > 0)
        add_waiting(&text, c, n);
    out->expired = n > 0 || blame_network(&text, c);
    if (!out->expired) {
        out->text[0] = '\0';
        return;
    }
    if (!c->has_folder)
        return;
    if (c->is_blind)
        dt_text_add(&text, "; the file system of the run folder does not answer");
    dt_text_add(&text,
                c->has_checkpoint
                    ? "; the newest checkpoint is intact; submit the job again to resume"
                    : "; there is no checkpoint yet; submit the job again to start from scratch");
}
