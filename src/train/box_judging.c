#include "train/box_judging.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "base/utf8.h"

/* --- Creation --- */

/* Two walks: the boxes are not kept anywhere in one piece. */
static dt_status read_truths(struct dt_box_judging *j, const struct dt_dataset *set)
{
    const uint32_t n = dt_dataset_size(set);
    const size_t most = (size_t)dt_dataset_max_boxes(set);
    struct dt_truth *of_image;
    dt_status status = DT_OK;
    DT_TRY(DT_NEW(of_image, most));
    DT_TRY_OUT(DT_NEW(j->first_truth, (size_t)n + 1));
    for (uint32_t id = 0; id < n; id++)
        j->first_truth[id + 1] = j->first_truth[id] + (size_t)dt_dataset_truths(set, id, of_image);
    DT_TRY_OUT(DT_NEW(j->truths, j->first_truth[n]));
    for (uint32_t id = 0; id < n; id++) {
        const size_t n_boxes = (size_t)dt_dataset_truths(set, id, of_image);
        memcpy(j->truths + j->first_truth[id], of_image, n_boxes * sizeof *of_image);
    }
out:
    free(of_image);
    return status;
}

dt_status dt_box_judging_create(struct dt_box_judging **judging, const struct dt_sets *sets)
{
    dt_status status = DT_OK;
    struct dt_box_judging *made = NULL;
    *judging = NULL;
    DT_TRY(DT_NEW(made, 1));
    DT_TRY_OUT(DT_NEW(made->category, (size_t)sets->num_classes));
    if (sets->ranks.rank == 0)
        DT_TRY_OUT(read_truths(made, sets->val_set));
    *judging = made;
    return DT_OK;
out:
    dt_box_judging_destroy(made);
    return status;
}

void dt_box_judging_destroy(struct dt_box_judging *judging)
{
    if (!judging)
        return;
    dt_detections_reset(&judging->detections);
    free(judging->truths);
    free(judging->first_truth);
    free(judging->found);
    free(judging->category);
    free(judging);
}

/* --- The detections of all ranks --- */

/* Stable, so that of an image the order remains. */
static dt_status sort_by_image(struct dt_found *sorted, const struct dt_found *found, size_t n,
                               uint32_t n_images)
{
    size_t *next;
    DT_TRY(DT_NEW(next, (size_t)n_images + 1));
    for (size_t i = 0; i < n; i++)
        next[found[i].image + 1]++;
    for (uint32_t image = 0; image < n_images; image++)
        next[image + 1] += next[image];
    for (size_t i = 0; i < n; i++)
        sorted[next[found[i].image]++] = found[i];
    free(next);
    return DT_OK;
}

/* Rank 0 gets them rank after rank into all[]. */
static dt_status copy_all(struct dt_evaluator *evaluator, struct dt_found *all, const int64_t *n)
{
    struct dt_detections *own = &evaluator->box_judging->detections;
    size_t at = own->n;
    if (evaluator->sets->ranks.rank == 0 && own->n > 0)
        memcpy(all, own->found, own->n * sizeof *all);
    for (int r = 1; r < evaluator->sets->ranks.n_ranks; r++) {
        struct dt_found *data = evaluator->sets->ranks.rank == 0 ? all + at : own->found;
        DT_TRY(dt_comm_copy(evaluator->sets->ranks.comm, data, (size_t)n[r] * sizeof *data, r, 0));
        at += (size_t)n[r];
    }
    return DT_OK;
}

static dt_status collect(struct dt_evaluator *evaluator, const int64_t *n)
{
    struct dt_box_judging *j = evaluator->box_judging;
    struct dt_found *all = NULL;
    dt_status status = DT_OK;
    size_t total = 0;
    for (int r = 0; r < evaluator->sets->ranks.n_ranks; r++)
        total += (size_t)n[r];
    free(j->found);
    j->found = NULL;
    j->n_found = total;
    if (evaluator->sets->ranks.rank == 0)
        status = DT_NEW(all, total);
    if (evaluator->sets->ranks.rank == 0 && status == DT_OK)
        status = DT_NEW(j->found, total);
    DT_TRY_OUT(dt_comm_agree(evaluator->sets->ranks.comm, status));
    DT_TRY_OUT(copy_all(evaluator, all, n));
    if (evaluator->sets->ranks.rank == 0)
        status = sort_by_image(j->found, all, total, dt_dataset_size(evaluator->sets->val_set));
out:
    free(all);
    return status;
}

/* --- The numbers --- */

static void show_progress(void *context, int done, int total)
{
    const struct dt_evaluator *evaluator = context;
    dt_pulse_beat(&dt_pulse_main);
    dt_report_progress(evaluator->engine->report, "judging the detections, categories", done,
                       total);
}

static dt_status judge(struct dt_evaluator *evaluator, double value[DT_N_COCO])
{
    struct dt_box_judging *j = evaluator->box_judging;
    const struct dt_average_precision_input input = {
        .n_images = dt_dataset_size(evaluator->sets->val_set),
        .n_labels = evaluator->sets->num_classes,
        .truths = j->truths,
        .first_truth = j->first_truth,
        .found = j->found,
        .n_found = j->n_found,
        .max_detections = DT_COCO_MOST,
        .progress = show_progress,
        .context = evaluator,
    };
    return dt_average_precision(value, j->category, &input);
}

static void set_metrics(struct dt_eval_result *result)
{
    static const struct {
        enum dt_metric metric;
        int place;
    } rows[] = {
        {DT_METRIC_AP, DT_COCO_AP}, {DT_METRIC_AP50, DT_COCO_AP50}, {DT_METRIC_AP75, DT_COCO_AP75}};
    for (size_t i = 0; i < DT_COUNT(rows); i++) {
        const double value = result->coco[rows[i].place];
        result->value[rows[i].metric] = value < 0 ? NAN : value;
    }
}

dt_status dt_box_judging_sum(struct dt_evaluator *evaluator, struct dt_eval_result *result)
{
    struct dt_box_judging *j = evaluator->box_judging;
    const int64_t own = (int64_t)j->detections.n;
    const size_t category_bytes = (size_t)evaluator->sets->num_classes * sizeof *j->category;
    int64_t *n = NULL;
    dt_status status = DT_NEW(n, (size_t)evaluator->sets->ranks.n_ranks);
    DT_TRY_OUT(dt_comm_agree(evaluator->sets->ranks.comm, status));
    DT_TRY_OUT(dt_comm_gather(evaluator->sets->ranks.comm, n, &own, sizeof own));
    status = collect(evaluator, n);
    if (status == DT_OK && evaluator->sets->ranks.rank == 0)
        status = judge(evaluator, result->coco);
    DT_TRY_OUT(dt_comm_agree(evaluator->sets->ranks.comm, status));
    DT_TRY_OUT(dt_comm_bcast(evaluator->sets->ranks.comm, result->coco, sizeof result->coco, 0));
    DT_TRY_OUT(dt_comm_bcast(evaluator->sets->ranks.comm, j->category, category_bytes, 0));
    result->n_images = dt_dataset_size(evaluator->sets->val_set);
    result->n_found = (int64_t)j->n_found;
    set_metrics(result);
out:
    free(n);
    return status;
}

/* --- Tables --- */

static size_t count_truths(const struct dt_evaluator *evaluator, int label)
{
    const struct dt_box_judging *j = evaluator->box_judging;
    size_t n = 0;
    for (size_t i = 0; i < j->first_truth[dt_dataset_size(evaluator->sets->val_set)]; i++)
        n += j->truths[i].label == label && !j->truths[i].is_crowd;
    return n;
}

void dt_box_judging_print(FILE *out, const struct dt_evaluator *evaluator)
{
    enum { NAME_BYTES = 256 };
    char number[16], name[NAME_BYTES];
    fprintf(out, "%8s %9s %7s %7s  category\n", "id", "boxes", "AP", "AP50");
    for (int label = 0; label < evaluator->sets->num_classes; label++) {
        const struct dt_category_precision *c = &evaluator->box_judging->category[label];
        snprintf(name, sizeof name, "%s",
                 dt_dataset_label_text(evaluator->sets->val_set, label, number));
        dt_utf8_escape(name);
        fprintf(out, "%8" PRId64 " %9zu %7.3f %7.3f  %s\n",
                dt_dataset_category(evaluator->sets->val_set, label),
                count_truths(evaluator, label), c->ap, c->ap50, name);
    }
}

static void print_found(FILE *out, const struct dt_sets *sets, const struct dt_found *f)
{
    struct dt_image_info info;
    dt_dataset_image(sets->val_set, f->image, &info);
    fprintf(out,
            "{\"image_id\":%" PRId64 ",\"category_id\":%" PRId64
            ",\"bbox\":[%.17g,%.17g,%.17g,%.17g],\"score\":%.17g}",
            info.id, dt_dataset_category(sets->val_set, f->label), f->x, f->y, f->w, f->h,
            f->score);
}

dt_status dt_box_judging_write(const struct dt_evaluator *evaluator, int fd, const char *path)
{
    enum { PIECE = 4096 };
    const struct dt_box_judging *j = evaluator->box_judging;
    size_t n_written = 0;
    for (size_t first = 0; first == 0 || first < j->n_found; first += PIECE) {
        const size_t end = j->n_found - first < PIECE ? j->n_found : first + PIECE;
        char *text = NULL;
        size_t bytes = 0;
        FILE *out = open_memstream(&text, &bytes);
        for (size_t i = first; out && i < end; i++) {
            if (dt_dataset_category(evaluator->sets->val_set, j->found[i].label) < 0)
                continue;
            fputs(n_written++ == 0 ? "[" : ",\n", out);
            print_found(out, evaluator->sets, &j->found[i]);
        }
        if (out && end == j->n_found)
            fputs(n_written == 0 ? "[]\n" : "]\n", out);
        DT_TRY(dt_file_write_stream(fd, out, &text, &bytes, path));
        dt_pulse_beat(&dt_pulse_main);
    }
    return DT_OK;
}
