#include "eval/predict_boxes.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "eval/detections.h"
#include "eval/drawing.h"

enum { NAME_BYTES = 2 * DT_PATH_MAX };

/* --- Names of pictures --- */

/* A picture has the name of its image; one that does not end like a picture's gets another ending.
 */
static dt_status name_picture(char path[DT_PATH_MAX], const char *folder, const char *image)
{
    const char *name = dt_file_base(image);
    DT_TRY(dt_file_path(path, "%s/%s", folder, name));
    if (dt_picture_check(path) == DT_OK)
        return DT_OK;
    dt_error_clear();
    return dt_file_path(path, "%s/%s.jpg", folder, name);
}

static dt_status name_labels(char path[DT_PATH_MAX], const char *folder, const char *image)
{
    const char *name = dt_file_base(image), *dot = strrchr(name, '.');
    return dt_file_path(path, "%s/labels/%.*s.txt", folder,
                        dot ? (int)(dot - name) : (int)strlen(name), name);
}

static dt_status check_unique(const struct dt_names *images,
                              const struct dt_predict_options *options)
{
    const char *folder = options->output;
    struct dt_names names = {0};
    dt_status status = DT_OK;
    char path[DT_PATH_MAX];
    for (size_t i = 0; i < images->n; i++) {
        DT_TRY_OUT(name_picture(path, folder, dt_names_get(images, i)));
        DT_TRY_OUT(dt_names_add(&names, path, strlen(path)));
        if (options->yolo) {
            DT_TRY_OUT(name_labels(path, folder, dt_names_get(images, i)));
            if (dt_file_exists(path))
                DT_TRY_OUT(DT_ERROR(DT_ERR_CREATE, "--yolo: %s exists; name another folder", path));
            DT_TRY_OUT(dt_names_add(&names, path, strlen(path)));
        }
    }
    dt_names_sort(&names);
    for (size_t i = 1; i < names.n; i++) {
        const char *name = dt_names_get(&names, i);
        if (strcmp(dt_names_get(&names, i - 1), name) == 0)
            DT_TRY_OUT(DT_ERROR(DT_ERR_USAGE,
                                "--output %s: two of the files would be called %s; write "
                                "them into two folders",
                                folder, dt_file_base(name)));
    }
out:
    dt_names_reset(&names);
    return status;
}

/* No image of the list, wherever its link is, may be in the folder: a picture could replace it. */
static dt_status check_kept(const struct dt_names *images, const char *folder)
{
    char path[PATH_MAX];
    struct stat own, its;
    if (stat(folder, &own) != 0)
        return DT_OK;
    for (size_t i = 0; i < images->n; i++) {
        const char *image = dt_names_get(images, i);
        if (!realpath(image, path))
            continue;
        *strrchr(path, '/') = '\0';
        if (stat(path[0] ? path : "/", &its) == 0 && its.st_dev == own.st_dev &&
            its.st_ino == own.st_ino)
            DT_FAIL(DT_ERR_USAGE,
                    "--output %s: the image %s is in this folder and could be replaced; name "
                    "another folder",
                    folder, image);
    }
    return DT_OK;
}

dt_status dt_predict_boxes_check(const struct dt_names *images,
                                 const struct dt_predict_options *options)
{
    if (options->yolo && !options->output)
        DT_FAIL(DT_ERR_USAGE, "--yolo needs a folder: --output FOLDER");
    if (!options->output)
        return DT_OK;
    if (dt_picture_check(options->output) == DT_OK)
        DT_FAIL(DT_ERR_USAGE, "--output %s: name a folder, not a picture", options->output);
    dt_error_clear();
    DT_TRY(check_unique(images, options));
    return check_kept(images, options->output);
}

/* --- Detections --- */

static dt_status detect_all(struct dt_engine *engine, struct dt_sets *sets,
                            struct dt_detections *detections)
{
    const size_t n = (size_t)dt_loader_batches(sets->val);
    const double start_s = dt_clock_s();
    DT_TRY(dt_loader_start(sets->val, 0, 0));
    for (size_t i = 1; i <= n; i++) {
        const struct dt_batch *batch;
        DT_TRY(dt_loader_next(sets->val, &batch));
        if (!batch)
            DT_FAIL(DT_ERR_INTERNAL, "the images ended too early");
        dt_status status = dt_engine_eval(engine, sets, batch);
        if (status == DT_OK)
            status = dt_detections_add(detections, engine, sets, batch);
        dt_loader_release(sets->val, batch);
        DT_TRY(status);
        dt_log_progress_of("detecting", i, n, "batches", start_s);
    }
    dt_log_progress("");
    return DT_OK;
}

/* The detections of one image: those that are to be shown are the first. */
struct shown {
    const struct dt_found *found;
    size_t n;
};

static dt_status choose_shown(struct shown **shown, const struct dt_sets *sets,
                              const struct dt_detections *detections,
                              const struct dt_predict_options *options)
{
    struct shown *made;
    DT_TRY(DT_NEW(made, dt_dataset_size(sets->val_set)));
    for (size_t i = 0; i < detections->n; i++) {
        const struct dt_found *found = &detections->found[i];
        struct shown *image = &made[found->image];
        const bool has_room = options->top == 0 || image->n < (size_t)options->top;
        if (found->score < options->min_score || !has_room)
            continue;
        image->found = image->n == 0 ? found : image->found;
        image->n++;
    }
    *shown = made;
    return DT_OK;
}

static void print_found(const struct dt_sets *sets, const char *file, const struct shown *shown)
{
    char number[16];
    for (size_t i = 0; i < shown->n; i++) {
        const struct dt_found *f = &shown->found[i];
        printf("%s\t%s\t%.9g\t%.2f\t%.2f\t%.2f\t%.2f\n", file,
               dt_dataset_label_text(sets->val_set, f->label, number), f->score, f->x, f->y,
               f->x + f->w, f->y + f->h);
    }
}

static void put_found(struct dt_jsonw *w, const struct dt_sets *sets, const char *file,
                      const struct shown *shown)
{
    char number[16];
    dt_jsonw_add(w, "{image: %s, detections: [", file);
    for (size_t i = 0; i < shown->n; i++) {
        const struct dt_found *f = &shown->found[i];
        dt_jsonw_add(w, "{class: %s, score: %g, box: [%g, %g, %g, %g]}",
                     dt_dataset_label_text(sets->val_set, f->label, number), (double)f->score,
                     (double)f->x, (double)f->y, (double)(f->x + f->w), (double)(f->y + f->h));
    }
    dt_jsonw_add(w, "]}");
}

static dt_status draw_found(const struct dt_sets *sets, uint32_t id, const char *file,
                            const struct shown *shown, const char *folder)
{
    struct dt_drawing drawing;
    char path[DT_PATH_MAX];
    dt_status status = name_picture(path, folder, file);
    if (status == DT_OK)
        status = dt_drawing_open(&drawing, sets->val_set, id, 0);
    DT_TRY(status);
    dt_drawing_add_found(&drawing, shown->found, shown->n);
    status = dt_picture_save(&drawing.picture, path);
    dt_drawing_reset(&drawing);
    return status;
}

/* In YOLO's format: the class, and the box relative to the size of the image. */
static dt_status write_labels(const struct dt_sets *sets, uint32_t id, const char *file,
                              const struct shown *shown, const char *folder)
{
    enum { LINE_BYTES = 80 };
    struct dt_image_info info;
    char path[DT_PATH_MAX], *lines;
    dt_dataset_image(sets->val_set, id, &info);
    DT_TRY(name_labels(path, folder, file));
    DT_TRY(DT_NEW(lines, LINE_BYTES * (shown->n + 1)));
    struct dt_text text = dt_text_in(lines, LINE_BYTES * (shown->n + 1));
    for (size_t i = 0; i < shown->n; i++) {
        const struct dt_found *f = &shown->found[i];
        dt_text_add(&text, "%d %.6f %.6f %.6f %.6f\n", f->label,
                    (double)(f->x + f->w / 2) / info.width, (double)(f->y + f->h / 2) / info.height,
                    (double)f->w / info.width, (double)f->h / info.height);
    }
    const dt_status status = dt_file_save(path, lines, text.used);
    free(lines);
    return status;
}

static dt_status show_all(const struct dt_evaluator *evaluator, const struct shown *shown,
                          const struct dt_predict_options *options)
{
    const struct dt_sets *sets = evaluator->sets;
    const uint32_t n = dt_dataset_size(sets->val_set);
    const double start_s = dt_clock_s();
    char file[NAME_BYTES];
    size_t n_shown = 0;
    for (uint32_t id = 0; id < n; id++) {
        dt_dataset_name(sets->val_set, id, file, sizeof file);
        print_found(sets, file, &shown[id]);
        if (evaluator->json)
            put_found(evaluator->json, sets, file, &shown[id]);
        n_shown += shown[id].n;
    }
    dt_log(DT_LOG_INFO, "%zu detections in %u images with a score of %g or more (--min-score)",
           n_shown, (unsigned)n, options->min_score);
    if (fflush(stdout) != 0)
        DT_FAIL(DT_ERR_IO, "cannot write the detections to standard output");
    for (uint32_t id = 0; id < n && options->output; id++) {
        dt_dataset_name(sets->val_set, id, file, sizeof file);
        dt_status status = draw_found(sets, id, file, &shown[id], options->output);
        if (status == DT_OK && options->yolo)
            status = write_labels(sets, id, file, &shown[id], options->output);
        if (status != DT_ERR_DATA) /* of which the loader has warned */
            DT_TRY(status);
        dt_error_clear();
        dt_log_progress_of("drawing", id + 1, n, "pictures", start_s);
    }
    dt_log_progress("");
    return DT_OK;
}

dt_status dt_predict_boxes(struct dt_evaluator *evaluator, const struct dt_predict_options *options)
{
    struct dt_sets *sets = evaluator->sets;
    struct dt_detections detections = {0};
    struct shown *shown = NULL;
    dt_status status = DT_OK;
    char labels[DT_PATH_MAX];
    if (options->output) {
        DT_TRY(dt_file_path(labels, options->yolo ? "%s/labels" : "%s", options->output));
        DT_TRY(dt_file_make_folder(labels));
    }
    DT_TRY_OUT(detect_all(evaluator->engine, sets, &detections));
    DT_TRY_OUT(choose_shown(&shown, sets, &detections, options));
    DT_TRY_OUT(show_all(evaluator, shown, options));
out:
    free(shown);
    dt_detections_reset(&detections);
    return status;
}
