/* dtrain samples: a contact sheet of training images as the loader makes them in epoch 0. */
#include <stdio.h>

#include "cli/commands.h"
#include "eval/drawing.h"
#include "eval/evaluator.h"
#include "image/draw.h"

static dt_status make_sheet(const struct dt_engine *engine, const struct dt_sets *sets,
                            int64_t count, const char *path)
{
    char sizes[DT_SIZES_TEXT];
    int n;
    DT_TRY(dt_samples_draw(&n, engine, sets, count, path));
    printf("%s: %d of %u training images of %d classes, %s pixels%s\n", path, n,
           dt_dataset_size(sets->train_set), sets->num_classes,
           dt_sets_sizes(sets, engine->stage.image_size, sizes),
           dt_samples_zoom(engine, sets) > 1 ? ", enlarged" : "");
    return DT_OK;
}

dt_status dt_cmd_samples(struct dt_comm *comm, const struct dt_config *config,
                         const struct dt_arguments *args)
{
    const struct dt_sets_options data = {.train = true, .is_raw = true};
    struct dt_sets sets;
    struct dt_engine engine;
    const char *path = args->output ? args->output : "samples.png";
    dt_sets_init(&sets, comm, config, dt_task_of(config));
    dt_engine_init(&engine, &sets);
    dt_status status = dt_comm_agree(comm, dt_picture_check(path));
    if (status == DT_OK)
        status = dt_sets_open(&sets, &data);
    if (status == DT_OK)
        status = dt_comm_agree(
            comm, sets.ranks.rank == 0 ? make_sheet(&engine, &sets, args->count, path) : DT_OK);
    dt_engine_close(&engine, &sets, status);
    return status;
}
