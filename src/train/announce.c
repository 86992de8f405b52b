#include "train/announce.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/build.h"
#include "base/json.h"
#include "base/mem.h"

/* Each node's name and how many ranks it has, in the order of their first ranks. */
static void put_hosts(struct dt_jsonw *w, const struct dt_comm *comm)
{
    const int n = dt_comm_size(comm);
    dt_jsonw_begin(w, NULL, '{');
    for (int r = 0; r < n; r++) {
        int n_ranks = 0, first = n;
        for (int other = n; other-- > 0;)
            if (strcmp(dt_comm_host(comm, other), dt_comm_host(comm, r)) == 0) {
                first = other;
                n_ranks++;
            }
        if (first == r)
            dt_jsonw_integer(w, dt_comm_host(comm, r), n_ranks);
    }
    dt_jsonw_close(w, '}');
}

/* Of the device and of the gradient sums. */
static void put_libraries(struct dt_jsonw *w, const struct dt_engine *engine, const char *device)
{
    char text[256];
    dt_jsonw_begin(w, NULL, '[');
    if (engine->backend == &dt_backend_cpu) {
        dt_jsonw_string(w, NULL, device);
    } else {
        const struct dt_gpu_report *gpus = dt_devices_gpus();
        snprintf(text, sizeof text, "CUDA %s, cuDNN %s, cuBLAS %s", gpus->runtime, gpus->cudnn,
                 gpus->cublas);
        dt_jsonw_string(w, NULL, text);
    }
    for (enum dt_plane plane = DT_PLANE_MPI; plane <= engine->plane; plane++) {
        dt_comm_describe_plane(plane, text, sizeof text);
        dt_jsonw_string(w, NULL, text);
    }
    dt_jsonw_close(w, ']');
}

/* Where epochs are in steps: in pieces with as many steps per epoch each. */
static void put_stages(struct dt_jsonw *w, const struct dt_schedule *schedule)
{
    dt_jsonw_begin(w, NULL, '[');
    for (int i = 0; i < schedule->n_parts; i++) {
        const struct dt_schedule_part *part = &schedule->parts[i];
        dt_jsonw_begin(w, NULL, '{');
        dt_jsonw_integer(w, "epoch", part->epoch);
        dt_jsonw_integer(w, "step", part->step);
        dt_jsonw_integer(w, "steps_per_epoch", part->steps_per_epoch);
        dt_jsonw_integer(w, "image_size", part->stage.image_size);
        dt_jsonw_integer(w, "global_batch_size", part->stage.batch);
        dt_jsonw_close(w, '}');
    }
    dt_jsonw_close(w, ']');
}

static dt_status send_start(const struct dt_engine *engine, const struct dt_sets *sets,
                            const char *config_json, int64_t start_step)
{
    char device[256];
    struct dt_jsonw names, libraries, stages;
    engine->backend->describe(engine->device, device, sizeof device);
    dt_jsonw_init(&names, false);
    dt_jsonw_init(&libraries, false);
    dt_jsonw_init(&stages, false);
    put_hosts(&names, engine->ranks.comm);
    put_libraries(&libraries, engine, device);
    put_stages(&stages, &engine->schedule);
    dt_status status = dt_jsonw_end(&names);
    if (status == DT_OK)
        status = dt_jsonw_end(&libraries);
    if (status == DT_OK)
        status = dt_jsonw_end(&stages);
    const struct dt_field fields[] = {
        DT_JSONV("config", config_json),
        DT_INT("ranks", engine->ranks.n_ranks),
        DT_TEXT("device", device),
        DT_INT("global_batch_size", engine->stage.global_batch_size),
        DT_INT("batch_size_per_rank", engine->stage.global_batch_size / engine->ranks.n_ranks),
        DT_INT("micro_batch_size", engine->stage.micro_batch_size),
        DT_INT("passes", engine->stage.n_passes),
        DT_NUM("lr", dt_schedule_peak(&engine->schedule, start_step)),
        DT_INT("steps_per_epoch", engine->stage.steps_per_epoch),
        DT_INT("epochs", engine->config->train.epochs),
        DT_INT("parameters", dt_engine_parameters(engine)),
        DT_INT("train_images", dt_dataset_size(sets->train_set)),
        DT_INT("val_images", sets->val_set ? dt_dataset_size(sets->val_set) : 0),
        DT_INT("start_step", start_step),
        DT_TEXT("version", DTRAIN_VERSION),
        DT_TEXT("build", dt_build_id()),
        DT_JSONV("libraries", libraries.text),
        DT_JSONV("hosts", names.text),
        DT_JSONV("stages", stages.text),
        DT_TEXT("weights", engine->weights),
    };
    if (status == DT_OK)
        dt_report_event(engine->report, "run_start", fields,
                        (int)DT_COUNT(fields) - !engine->weights[0]);
    dt_jsonw_reset(&names);
    dt_jsonw_reset(&libraries);
    dt_jsonw_reset(&stages);
    return status;
}

dt_status dt_announce_start(struct dt_engine *engine, struct dt_sets *sets, const char *config_json,
                            int64_t start_step)
{
    return dt_comm_agree(engine->ranks.comm, engine->ranks.rank == 0
                                                 ? send_start(engine, sets, config_json, start_step)
                                                 : DT_OK);
}
