/* The sub-command `dtrain predict`: an evaluation of a list of files, of which only the table of
 * predictions is shown; a detector's is in predict_boxes.c. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "data/files.h"
#include "dtrain/train.h"
#include "train/predict_boxes.h"
#include "train/predictions.h"

/* --- The list --- */

static dt_status add_folder(struct dt_names *images, const char *folder)
{
    struct dt_names entries = {0};
    char path[DT_PATH_MAX];
    const size_t before = images->n;
    const bool has_slash = folder[strlen(folder) - 1] == '/';
    dt_status status = DT_OK;
    DT_TRY_OUT(dt_names_list(&entries, folder));
    for (size_t i = 0; i < entries.n; i++) {
        const char *name = dt_names_get(&entries, i);
        DT_TRY_OUT(dt_file_path(path, "%s%s%s", folder, has_slash ? "" : "/", name));
        if (dt_files_is_image(name))
            DT_TRY_OUT(dt_names_add(images, path, strlen(path)));
    }
    if (images->n == before)
        DT_TRY_OUT(
            DT_ERROR(DT_ERR_DATA,
                     "folder %s holds no .jpg, .jpeg or .png files; folders in it are not searched",
                     folder));
out:
    dt_names_reset(&entries);
    return status;
}

static dt_status add_path(struct dt_names *images, const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0)
        DT_FAIL(dt_file_input_status(errno), "cannot open %s: %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode))
        return add_folder(images, path);
    return dt_names_add(images, path, strlen(path));
}

static dt_status add_lines(struct dt_names *images, FILE *in)
{
    char *line = NULL;
    size_t capacity = 0;
    dt_status status = DT_OK;
    while (status == DT_OK && getline(&line, &capacity, in) >= 0) {
        line[strcspn(line, "\r\n")] = '\0';
        if (line[0])
            status = add_path(images, line);
    }
    free(line);
    return status;
}

static dt_status list_images(struct dt_names *images, const struct dt_predict_options *options)
{
    for (int i = 0; i < options->n_paths; i++) {
        const char *path = options->paths[i];
        DT_TRY(strcmp(path, "-") == 0 ? add_lines(images, stdin) : add_path(images, path));
    }
    if (images->n == 0)
        DT_FAIL(DT_ERR_NO_INPUT, "no image is listed on standard input");
    return DT_OK;
}

/* --- The answers --- */

static dt_status name_classes(struct dt_session *s, const struct dt_predict_options *options)
{
    enum { TOP = 5 };
    const int top = options->top > 0 ? options->top : TOP;
    const struct dt_predictions_options table = {STDOUT_FILENO, "standard output", top};
    struct dt_eval_result result;
    if (options->output)
        DT_FAIL(DT_ERR_USAGE, "--output: %s finds no boxes that could be drawn",
                s->engine.model->name);
    DT_TRY(dt_predictions_create(&s->evaluator.predictions, s, &table));
    return dt_session_evaluate(s, &result, NULL);
}

static dt_status predict(struct dt_session *s, const struct dt_predict_options *options)
{
    struct dt_session_needs needs = {.eval = true, .judge = true};
    uint64_t n_bad, unused;
    DT_TRY(dt_predict_boxes_check(s->sets.images, options));
    DT_TRY(dt_session_open_weights(s, &needs, options->weights));
    DT_TRY(s->engine.model->detects ? dt_predict_boxes(s, options) : name_classes(s, options));
    dt_loader_bad_positions(s->sets.val, &n_bad, &unused);
    if (n_bad > 0)
        DT_FAIL(DT_ERR_DATA, "%u of %u images cannot be read", (unsigned)n_bad,
                dt_dataset_size(s->sets.val_set));
    return DT_OK;
}

dt_status dt_predict(struct dt_comm *comm, const struct dt_config *config,
                     const struct dt_predict_options *options)
{
    struct dt_session s;
    struct dt_names images = {0};
    struct dt_config own = *config;
    if (dt_comm_size(comm) > 1)
        DT_FAIL_ALIKE(DT_ERR_USAGE, "dtrain predict runs on one rank: start it without mpirun");
    dt_session_init(&s, comm, &own);
    dt_status status = list_images(&images, options);
    if (images.n < (size_t)own.eval.batch_size_per_rank)
        own.eval.batch_size_per_rank = images.n ? (int)images.n : 1;
    own.data.max_bad_fraction = 1;
    s.sets.images = &images;
    if (status == DT_OK)
        status = predict(&s, options);
    dt_predictions_destroy(s.evaluator.predictions);
    dt_session_close(&s, status);
    dt_names_reset(&images);
    return status;
}
