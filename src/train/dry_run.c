/* --dry-run: the plan, then the numbers a run would have. */
#include <inttypes.h>

#include "train/session.h"

static void print_rate(const struct dt_session *s, const char *what, int64_t step, FILE *out)
{
    fprintf(out, "  step %9" PRId64 "  epoch %8.3f  %.6g  (%s)\n", step,
            (double)step / (double)s->steps_per_epoch, dt_schedule_lr(&s->schedule, step), what);
}

/* Training may end before. */
static void print_early(const struct dt_session *s, const char *what, int64_t step, FILE *out)
{
    if (step < s->last_step - 1)
        print_rate(s, what, step, out);
}

static void print_rates(const struct dt_session *s, FILE *out)
{
    const struct dt_schedule *schedule = &s->schedule;
    int64_t warmup = schedule->warmup_steps;
    fprintf(out, "learning rate\n");
    print_rate(s, "first", 0, out);
    if (warmup > 1)
        print_early(s, "last of the warm-up", warmup - 1, out);
    if (schedule->kind == DT_SCHEDULE_STEP)
        for (int i = 0; i < schedule->n_milestones; i++)
            print_early(s, "milestone", schedule->milestones[i], out);
    else if (schedule->kind != DT_SCHEDULE_CONSTANT)
        print_early(s, "half way", (warmup + schedule->total_steps) / 2, out);
    print_rate(s, "last", s->last_step - 1, out);
}

void dt_session_print(const struct dt_session *s, FILE *out)
{
    char device[256];
    dt_plan_print(s->plan, out);
    fprintf(out, "\nglobal batch %d = %d rank(s) x %d pass(es) x %d images\n", s->global_batch_size,
            s->n_ranks, s->n_passes, s->micro_batch_size);
    s->backend->describe(s->device, device, sizeof device);
    fprintf(out, "device %s\n", device);
    if (!s->train_set) {
        fprintf(out, "steps per epoch and learning rates: unknown, data.train cannot be read: %s\n",
                s->data_problem);
        return;
    }
    fprintf(out, "%u training images, %" PRId64 " steps per epoch, %" PRId64 " steps in all\n",
            dt_dataset_size(s->train_set), s->steps_per_epoch, s->last_step);
    print_rates(s, out);
}
