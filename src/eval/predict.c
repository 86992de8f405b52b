/* The sub-command `dtrain predict`: an evaluation of a list of files, of which only the table of
 * predictions is shown; a detector's is in predict_boxes.c. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/json.h"
#include "data/dataset.h"
#include "dtrain/eval.h"
#include "engine/task.h"
#include "eval/evaluator.h"
#include "eval/predict_boxes.h"

/* --- The list --- */

/* Also the images of the folders in it; links to folders, which may be loops, are not followed. */
static dt_status add_folder(struct dt_names *images, const char *folder)
{
    struct dt_names entries = {0};
    struct stat info;
    char path[DT_PATH_MAX];
    const bool has_slash = folder[strlen(folder) - 1] == '/';
    dt_status status = DT_OK;
    DT_TRY_OUT(dt_names_list(&entries, folder));
    for (size_t i = 0; i < entries.n; i++) {
        const char *name = dt_names_get(&entries, i);
        DT_TRY_OUT(dt_file_path(path, "%s%s%s", folder, has_slash ? "" : "/", name));
        if (dt_files_is_image(name))
            DT_TRY_OUT(dt_names_add(images, path, strlen(path)));
        else if (lstat(path, &info) == 0 && S_ISDIR(info.st_mode))
            DT_TRY_OUT(add_folder(images, path));
    }
out:
    dt_names_reset(&entries);
    return status;
}

static dt_status add_path(struct dt_names *images, const char *path)
{
    const size_t before = images->n;
    if (!dt_file_exists(path))
        DT_FAIL(dt_file_input_status(errno), "cannot open %s: %s", path, strerror(errno));
    if (!dt_file_is_folder(path))
        return dt_names_add(images, path, strlen(path));
    DT_TRY(add_folder(images, path));
    if (images->n == before)
        DT_FAIL(DT_ERR_DATA, "folder %s holds no image files, nor do those in it", path);
    return DT_OK;
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

struct prediction {
    struct dt_sets sets;
    struct dt_engine engine;
    struct dt_evaluator evaluator;
    struct dt_jsonw json;
};

static dt_status predict(struct prediction *p, const struct dt_predict_options *options)
{
    const struct dt_engine_options engine = {.eval = true};
    uint64_t n_bad, unused;
    DT_TRY(dt_predict_boxes_check(p->sets.images, options));
    DT_TRY(dt_engine_open_weights(&p->engine, &p->sets, &engine, options->weights));
    DT_TRY(dt_evaluator_open(&p->evaluator, &p->engine, &p->sets, true));
    p->evaluator.json = options->json ? &p->json : NULL;
    dt_jsonw_begin(&p->json, NULL, '[');
    DT_TRY(p->engine.task->predict(&p->evaluator, options));
    dt_jsonw_close(&p->json, ']');
    if (options->json)
        DT_TRY(dt_jsonw_save(&p->json, options->json));
    dt_loader_bad_positions(p->sets.val, &n_bad, &unused);
    if (n_bad > 0)
        DT_FAIL(DT_ERR_DATA, "%u of %u images cannot be read", (unsigned)n_bad,
                dt_dataset_size(p->sets.val_set));
    return DT_OK;
}

dt_status dt_predict(struct dt_comm *comm, const struct dt_config *config,
                     const struct dt_predict_options *options)
{
    struct prediction p = {0};
    struct dt_names images = {0};
    struct dt_config own = *config;
    if (dt_comm_size(comm) > 1)
        DT_FAIL_ON_ALL_RANKS(DT_ERR_USAGE,
                             "dtrain predict runs on one rank: start it without mpirun");
    dt_sets_init(&p.sets, comm, &own, dt_task_of(&own));
    dt_engine_init(&p.engine, &p.sets);
    dt_status status = list_images(&images, options);
    if (images.n < (size_t)own.eval.batch_size_per_rank)
        own.eval.batch_size_per_rank = images.n ? (int)images.n : 1;
    own.data.max_bad_fraction = 1;
    p.sets.images = &images;
    if (status == DT_OK)
        status = predict(&p, options);
    dt_jsonw_reset(&p.json);
    dt_evaluator_close(&p.evaluator);
    dt_engine_close(&p.engine, &p.sets, status);
    dt_names_reset(&images);
    return status;
}
