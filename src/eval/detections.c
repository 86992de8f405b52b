#include "eval/detections.h"

#include <stdlib.h>

#include "base/mem.h"

/* --- Levels --- */

dt_status dt_levels_read(struct dt_levels *levels, struct dt_plan *plan, int program)
{
    const struct dt_program *p = &plan->graph->program[program];
    levels->n_levels = 0;
    for (int l = 0; l < DT_MAX_LEVELS && p->detections[l] >= 0; l++) {
        const int rows = p->detections[l];
        const size_t n_floats = dt_tensor_elements(&plan->graph->tensor[rows]);
        DT_TRY(DT_GROW(levels->rows[l], levels->row_capacity[l], n_floats,
                       "the candidates of a level"));
        DT_TRY(DT_GROW(levels->n[l], levels->n_capacity[l], (size_t)p->batch, "their numbers"));
        levels->stride[l] = n_floats / (size_t)p->batch;
        DT_TRY(dt_plan_read(plan, rows, levels->rows[l]));
        DT_TRY(dt_plan_read(plan, p->n_detections[l], levels->n[l]));
        levels->n_levels++;
    }
    return DT_OK;
}

dt_status dt_levels_detect(struct dt_detection *out, int *n, const struct dt_levels *levels,
                           int row, double iou, int max)
{
    struct dt_candidates level[DT_MAX_LEVELS];
    for (int l = 0; l < levels->n_levels; l++)
        level[l] = (struct dt_candidates){levels->rows[l] + (size_t)row * levels->stride[l],
                                          levels->n[l][row]};
    return dt_detect_nms(out, n, level, levels->n_levels, iou, max);
}

void dt_levels_reset(struct dt_levels *levels)
{
    for (int l = 0; l < DT_MAX_LEVELS; l++) {
        free(levels->rows[l]);
        free(levels->n[l]);
    }
    *levels = (struct dt_levels){0};
}

/* --- Images --- */

struct dt_found dt_detection_found(const struct dt_detection *detection, uint32_t image,
                                   const struct dt_image_info *info, const int32_t size[2])
{
    const float *box = detection->box;
    const float by_y = (float)info->height / (float)size[0];
    const float by_x = (float)info->width / (float)size[1];
    const float x1 = box[0] * by_x, y1 = box[1] * by_y, x2 = box[2] * by_x, y2 = box[3] * by_y;
    const float w = x2 - x1, h = y2 - y1;
    return (struct dt_found){.x = (double)x1,
                             .y = (double)y1,
                             .w = (double)w,
                             .h = (double)h,
                             .score = (double)detection->score,
                             .image = image,
                             .label = detection->label};
}

dt_status dt_detections_add(struct dt_detections *d, const struct dt_engine *engine,
                            const struct dt_sets *sets, const struct dt_batch *batch)
{
    DT_TRY(dt_levels_read(&d->levels, engine->plan, engine->program[DT_EVAL][batch->canvas]));
    const struct dt_config_eval *eval = &engine->config->eval;
    DT_TRY(DT_GROW(d->of_image, d->of_image_capacity, (size_t)eval->max_detections,
                   "the detections of an image"));
    for (int row = 0; row < batch->n; row++) {
        struct dt_image_info info;
        int n;
        if (batch->crops[row].w <= 0)
            continue;
        DT_TRY(dt_levels_detect(d->of_image, &n, &d->levels, row, eval->nms_iou,
                                eval->max_detections));
        DT_TRY(DT_GROW(d->found, d->capacity, d->n + (size_t)n, "detections"));
        dt_dataset_image(sets->val_set, batch->ids[row], &info);
        for (int i = 0; i < n; i++)
            d->found[d->n++] = dt_detection_found(&d->of_image[i], batch->ids[row], &info,
                                                  batch->sizes + 2 * (size_t)row);
    }
    return DT_OK;
}

void dt_detections_reset(struct dt_detections *d)
{
    dt_levels_reset(&d->levels);
    free(d->found);
    free(d->of_image);
    *d = (struct dt_detections){0};
}
