/* Walks the lists of actions of training and evaluation: everything that a step does is an entry of
 * plan->actions.
 *
 * On a device with queues the walk only enqueues work. There the training list is recorded after a
 * few walks and then replayed; values that change from step to step are in device memory. */
#include <limits.h>
#include <math.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "base/trace.h"
#include "plan/plan_internal.h"

/* Walks before the recording: libraries initialise themselves in the first ones. */
enum { WARM_WALKS = 3 };
static const double min_poll_s = 1e-5; /* shorter ones are not traced */

/* --- Input --- */

static dt_status feed(struct dt_plan *plan, int tensor, const void *data)
{
    if (tensor < 0 || plan->place[tensor].arena == DT_ARENA_NONE) /* no node reads it */
        return DT_OK;
    if (!data)
        DT_FAIL(DT_ERR_INTERNAL, "the batch has no %s, but the graph reads it",
                plan->graph->tensor[tensor].name);
    void *dst = (char *)plan->arena[DT_ARENA_WORK] + plan->place[tensor].offset;
    return plan->backend->feed(plan->device, dst, data, plan->place[tensor].bytes);
}

dt_status dt_plan_feed(struct dt_plan *plan, int program, const struct dt_feed *batch)
{
    const struct dt_program *p = &plan->graph->program[program];
    for (int i = 0; i < DT_N_COLUMNS; i++)
        DT_TRY(feed(plan, p->column[i], batch->column[i]));
    return feed(plan, p->class_weights, batch->class_weights);
}

dt_status dt_plan_end_feed(struct dt_plan *plan)
{
    return plan->backend->end_feed(plan->device);
}

/* --- The walk --- */

/* A range for profilers, and in it the node's. */
static void push_ranges(const struct dt_plan *plan, const struct dt_action *action)
{
    const struct dt_node *node = action->node < 0 ? NULL : &plan->graph->node[action->node];
    if (!plan->backend->push_range)
        return;
    plan->backend->push_range(node ? dt_op_name(node->op) : dt_action_kind_name(action->kind));
    if (node)
        plan->backend->push_range(node->name);
}

static void pop_ranges(const struct dt_plan *plan, const struct dt_action *action)
{
    if (!plan->backend->pop_range)
        return;
    if (action->node >= 0)
        plan->backend->pop_range();
    plan->backend->pop_range();
}

static void count_time(struct dt_plan *plan, const struct dt_action *action, double seconds)
{
    *(double *)((char *)&plan->times + dt_action_works[action->kind].clock) += seconds;
    if (action->kind != DT_ACTION_OP)
        return;
    plan->times.op_s[plan->graph->node[action->node].op] += seconds;
    if (plan->node_s)
        plan->node_s[action->node] += seconds;
}

/* One action in the compute row of a timeline (base/trace.h). */
static void trace_action(const struct dt_plan *plan, const struct dt_action *action, double begin_s,
                         double end_s)
{
    char bucket[16];
    if (!dt_trace_is_on())
        return;
    if (action->node >= 0) {
        const struct dt_node *node = &plan->graph->node[action->node];
        const char *name =
            action->kind == DT_ACTION_OP ? dt_op_name(node->op) : dt_action_kind_name(action->kind);
        dt_trace_add(DT_TRACE_COMPUTE, 0, name, "layer", node->name, begin_s, end_s);
        return;
    }
    snprintf(bucket, sizeof bucket, "%d", action->bucket);
    dt_trace_add(DT_TRACE_COMPUTE, 0, dt_action_kind_name(action->kind),
                 action->bucket < 0 ? NULL : "bucket", bucket, begin_s, end_s);
}

/* The sums of a walk whose bucket b has the stamps `stamps` + 2 b and the next; `origin_s` is the
 * time of stamp 0. */
static dt_status trace_sums(struct dt_plan *plan, int stamps, double origin_s)
{
    for (int b = 0; b < plan->n_buckets; b++) {
        double begin_s, end_s;
        int stamp = stamps + 2 * b;
        DT_TRY(plan->backend->elapsed(plan->device, 0, stamp, &begin_s));
        DT_TRY(plan->backend->elapsed(plan->device, 0, stamp + 1, &end_s));
        dt_trace_add(DT_TRACE_REDUCTION, b, "reduction", NULL, NULL, origin_s + begin_s,
                     origin_s + end_s);
    }
    return DT_OK;
}

/* Counts the time of an action that has begun at that time; moves the sums forward after an op. */
static dt_status end_action(struct dt_plan *plan, const struct dt_action *action, double begin_s)
{
    const double end_s = dt_clock_s();
    dt_pulse_beat(&dt_pulse_main);
    count_time(plan, action, end_s - begin_s);
    if (!plan->backend->stamp)
        trace_action(plan, action, begin_s, end_s);
    if (action->kind != DT_ACTION_OP || !plan->comm)
        return DT_OK;
    DT_TRY(dt_comm_poll(plan->comm));
    const double poll_s = dt_clock_s() - end_s;
    plan->times.comm_s += poll_s;
    if (poll_s > min_poll_s)
        dt_trace_add(DT_TRACE_COMPUTE, 0, "poll", NULL, NULL, end_s, end_s + poll_s);
    return DT_OK;
}

/* Runs the actions in order, on the main thread. The training list of configs/quickstart.json on
 * two ranks, as --dry-run=plan prints it but shortened:
 *
 *     0 ingest             ingest          32x3x32x32   work+53154816
 *     1 conv               conv1           32x16x32x32  work+3027456
 *       ...                                             forward
 *    45 softmax_xent       softmax_xent    32x10x1x1    work+8192
 *    46 linear_bwd_weights fc              10x64        grads+0
 *       ...                                             backward
 *    50 conv_bwd_weights   layer3.2.conv2  64x64x3x3    grads+4096
 *    51 reduce             bucket 0        37888        grads+0
 *       ...                                             more backward, and reduce of bucket 1
 *   113 wait               bucket 0        37888        grads+0
 *   114 check              bucket 0        37888        grads+0
 *       ...                                             wait and check of bucket 1
 *   117 update             bucket 0        37888        grads+0
 *   118 update             bucket 1        238592       grads+151552
 *   119 settle
 *
 * dt_plan_make_actions (buckets.c) places REDUCE directly after the node that completes the bucket.
 * REDUCE only starts the sum; the poll after every op advances it while the backward pass
 * continues, and WAIT waits for it (on a device with queues, the compute stream does). If a step
 * has several passes, each of them walks the whole list: ACCUMULATE adds up the gradients in every
 * pass, while the actions that are last_only (actions.c) run in the last pass only.
 *
 * The main thread calls this for dt_plan_train, dt_plan_eval and dt_plan_apply. A failed action
 * ends the walk at once: sums may then be in flight, so the failure ends the job.
 *
 * With several lanes (lanes.c), w is the pass of the last lane. In each round every lane runs the
 * actions from `begin` up to the next SYNC. Only the last lane runs the SYNC itself, because by
 * then all lanes have filled their slots. Lanes may walk two programs, for larger and for smaller
 * micro-batches, but of the same actions, so that `at` is the same place in both. Only the last
 * lane can have the update's last pass, so REDUCE and the update run once, after every lane's
 * ACCUMULATE. */
dt_status dt_plan_walk(const struct dt_walk *w, int n_lanes)
{
    struct dt_plan *plan = w->plan;
    const int n = plan->n_actions[w->program];
    for (int begin = 0, at = 0; begin < n; begin = at)
        for (int lane = 0; lane < n_lanes; lane++) {
            const struct dt_walk *own = w;
            bool is_sync = false;
            if (n_lanes > 1)
                DT_TRY(dt_plan_enter_lane(plan, lane, &own));
            for (at = begin; at < n && !is_sync; at++) {
                const struct dt_action *a = &plan->actions[own->program][at];
                const bool is_last_only = dt_action_works[a->kind].last_only;
                is_sync = n_lanes > 1 && a->kind == DT_ACTION_SYNC;
                if ((is_last_only && !own->last) || (own->update_only && !is_last_only) ||
                    (is_sync && lane + 1 < n_lanes))
                    continue;
                const double begin_s = dt_clock_s();
                push_ranges(plan, a);
                dt_status status = dt_action_works[a->kind].run(own, a);
                pop_ranges(plan, a);
                DT_TRY(status);
                DT_TRY(end_action(plan, a, begin_s));
            }
        }
    return DT_OK;
}

/* The walk of a device with queues takes a time stamp after each action and reads them all at the
 * end. In a timeline the host sees the first and the last stamp somewhat later than they were
 * taken; the smaller delay counts, usually below 0.1 ms, so that no walk seems to begin before the
 * last has ended. */
static dt_status walk_stamped(struct dt_walk w)
{
    struct dt_plan *plan = w.plan;
    const struct dt_backend *backend = plan->backend;
    const struct dt_action *actions = plan->actions[w.program];
    const int n = plan->n_actions[w.program];
    double at_s, before_s = 0;
    if (dt_trace_is_on() && plan->comm && plan->graph->program[w.program].phase == DT_TRAIN &&
        w.last)
        w.sum_stamps = n + 1;
    DT_TRY(backend->stamp(plan->device, 0, false));
    if (dt_trace_is_on())
        DT_TRY(backend->elapsed(plan->device, 0, 0, &at_s));
    double origin_s = dt_clock_s();
    for (int i = 0; i < n; i++) {
        if (!dt_action_works[actions[i].kind].last_only || w.last) {
            push_ranges(plan, &actions[i]);
            dt_status status = dt_action_works[actions[i].kind].run(&w, &actions[i]);
            pop_ranges(plan, &actions[i]);
            DT_TRY(status);
        }
        DT_TRY(backend->stamp(plan->device, i + 1, false));
    }
    DT_TRY(backend->elapsed(plan->device, 0, n, &at_s));
    origin_s = fmin(origin_s, dt_clock_s() - at_s);
    for (int i = 0; i < n; i++) {
        DT_TRY(backend->elapsed(plan->device, 0, i + 1, &at_s));
        count_time(plan, &actions[i], at_s - before_s);
        if (!dt_action_works[actions[i].kind].last_only || w.last)
            trace_action(plan, &actions[i], origin_s + before_s, origin_s + at_s);
        before_s = at_s;
    }
    return w.sum_stamps > 0 ? trace_sums(plan, w.sum_stamps, origin_s) : DT_OK;
}

/* Traced steps of a device with queues are not replayed: a recording has no stamps. */
static bool is_stamped(const struct dt_plan *plan)
{
    return plan->backend->stamp && (plan->options.profile || dt_trace_is_on());
}

/* --- Recording --- */

/* Records the walk of this pass, or warns and gives up; the caller then walks. Ranks must agree
 * where their passes correspond: in every pass without slices, but with slices, of which ranks may
 * have different numbers, only in the last one. A failure there ends recording on all ranks;
 * another slice that cannot be recorded is walked from then on, on this rank alone. */
static dt_status record(const struct dt_walk *w, int kind)
{
    struct dt_plan *plan = w->plan;
    const struct dt_backend *backend = plan->backend;
    struct dt_recording *recording = NULL;
    dt_status walked = DT_OK, status = backend->record(plan->device);
    if (status == DT_OK) {
        walked = dt_plan_walk(w, 1);
        dt_status ended = backend->end_record(plan->device, &recording);
        status = walked != DT_OK ? walked : ended;
    }
    const bool is_common = !dt_split_has_slices(&plan->options.split) || w->last;
    if (plan->comm && is_common)
        status = dt_comm_agree(plan->comm, status);
    if (status == DT_OK) {
        plan->recording[w->program][kind] = recording;
        return DT_OK;
    }
    if (recording)
        backend->release_recording(plan->device, recording);
    if (is_common)
        plan->record = false;
    else
        plan->n_warm[w->program][kind] = INT_MIN;
    if (!is_common || !plan->comm || dt_comm_rank(plan->comm) == 0)
        dt_log(DT_LOG_WARNING, "the training step cannot be recorded and runs unrecorded: %s",
               dt_error_text());
    return DT_OK;
}

/* See DT_N_PASS_KINDS. */
static int pass_kind(const struct dt_walk *w)
{
    if (dt_split_has_slices(&w->plan->options.split))
        return w->pass;
    return w->first && w->last ? 0 : w->first ? 1 : w->last ? 3 : 2;
}

static dt_status train_recorded(const struct dt_walk *w)
{
    struct dt_plan *plan = w->plan;
    const int kind = pass_kind(w);
    if (plan->n_warm[w->program][kind] < WARM_WALKS) {
        plan->n_warm[w->program][kind]++;
        return dt_plan_walk(w, 1);
    }
    if (!plan->recording[w->program][kind])
        DT_TRY(record(w, kind));
    if (!plan->recording[w->program][kind])
        return dt_plan_walk(w, 1);
    if (plan->backend->push_range)
        plan->backend->push_range("recorded step");
    DT_TRY(plan->backend->replay(plan->device, plan->recording[w->program][kind]));
    if (plan->backend->pop_range)
        plan->backend->pop_range();
    return plan->comm ? dt_comm_poll(plan->comm) : DT_OK;
}

dt_status dt_plan_train(struct dt_plan *plan, int program, const struct dt_scalars *scalars,
                        int pass, int n_passes)
{
    const struct dt_walk w = {.plan = plan,
                              .program = program,
                              .pass = pass,
                              .first = pass == 0,
                              .last = pass == n_passes - 1};
    const struct dt_split *split = &plan->options.split;
    struct dt_scalars own = *scalars;
    own.slot = split->group > 1 ? (split->first + pass) % split->group
               : plan->comm     ? dt_comm_rank(plan->comm)
                                : 0;
    DT_TRY(plan->backend->set_scalars(plan->device, &own));
    if (split->group > 1)
        return dt_plan_train_lanes(&w, &own);
    if (is_stamped(plan))
        return walk_stamped(w);
    return plan->record ? train_recorded(&w) : dt_plan_walk(&w, 1);
}

dt_status dt_plan_apply(struct dt_plan *plan, const struct dt_scalars *scalars)
{
    const struct dt_walk w = {
        .plan = plan, .program = DT_TRAIN, .first = true, .last = true, .update_only = true};
    DT_TRY(plan->backend->set_scalars(plan->device, scalars));
    return dt_plan_walk(&w, 1);
}

dt_status dt_plan_eval(struct dt_plan *plan, int program)
{
    static const struct dt_scalars none = {.diff_scale = 1.0f};
    const struct dt_walk w = {.plan = plan, .program = program, .first = true, .last = true};
    DT_TRY(plan->backend->set_scalars(plan->device, &none));
    return is_stamped(plan) ? walk_stamped(w) : dt_plan_walk(&w, 1);
}

void dt_plan_reset_times(struct dt_plan *plan)
{
    plan->times = (struct dt_plan_times){0};
    for (int n = 0; plan->node_s && n < plan->graph->n_nodes; n++)
        plan->node_s[n] = 0;
}

void dt_plan_get_times(const struct dt_plan *plan, struct dt_plan_times *out)
{
    *out = plan->times;
}
