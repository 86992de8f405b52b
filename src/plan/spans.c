/* What the walk records in a timeline (base/trace.h). */
#include "base/trace.h"
#include "plan/plan_internal.h"

void dt_plan_trace_action(const struct dt_plan *plan, const struct dt_action *action,
                          double begin_s, double end_s)
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

dt_status dt_plan_trace_sums(struct dt_plan *plan, int stamps, double origin_s)
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
