/* dtrain samples: a contact sheet of training images as the loader makes them in epoch 0. */
#include <stdio.h>

#include "cli/commands.h"
#include "image/draw.h"
#include "train/samples.h"

static dt_status make_sheet(const struct dt_session *s, int64_t count, const char *path)
{
    char sizes[DT_SIZES_TEXT];
    int n;
    DT_TRY(dt_samples_draw(&n, s, count, path));
    printf("%s: %d of %u training images of %d classes, %s pixels%s\n", path, n,
           dt_dataset_size(s->sets.train_set), s->sets.num_classes,
           dt_session_sizes(s, s->engine.stage.image_size, sizes),
           dt_samples_zoom(s) > 1 ? ", enlarged" : "");
    return DT_OK;
}

dt_status dt_cmd_samples(struct dt_comm *comm, const struct dt_config *config,
                         const struct dt_arguments *args)
{
    struct dt_session s;
    struct dt_session_needs needs = {.train = true, .input_only = true};
    const char *path = args->output ? args->output : "samples.png";
    dt_session_init(&s, comm, config);
    dt_status status = dt_comm_agree(comm, dt_picture_check(path));
    if (status == DT_OK)
        status = dt_session_open(&s, &needs);
    if (status == DT_OK)
        status = dt_comm_agree(comm, s.ranks.rank == 0 ? make_sheet(&s, args->count, path) : DT_OK);
    dt_session_close(&s, status);
    return status;
}
