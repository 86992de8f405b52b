/* For tools that run a graph of their own: the device, weights from a safetensors file into a plan,
 * and its tensors into another one. */
#ifndef DTRAIN_TESTS_PLAN_FILES_H
#define DTRAIN_TESTS_PLAN_FILES_H

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/snapshot.h"
#include "dtrain/config.h"
#include "dtrain/plan.h"
#include "engine/devices.h"

struct tool_device {
    const struct dt_backend *backend;
    struct dt_device *device;
};

/* In deterministic mode; on two threads unless the configuration says how many. */
static inline dt_status open_device(struct tool_device *d, const struct dt_config *config)
{
    const int threads = config->device.threads;
    struct dt_device_choice choice;
    DT_TRY(dt_devices_choose(&choice, config, 1));
    const struct dt_device_options options = {.threads = threads > 0 ? threads : 2,
                                              .deterministic = true,
                                              .seed = 1,
                                              .winograd = true,
                                              .precision = choice.precision};
    d->backend = choice.backend;
    return d->backend->open(&d->device, &options);
}

/* For dt_graph_fuse, whose context is the device. */
static inline bool is_supported(void *context, const struct dt_graph *g, const struct dt_node *node)
{
    const struct tool_device *d = context;
    return d->backend->supports(d->device, g, node);
}

static inline dt_status load_weights(struct dt_plan *plan, const char *path)
{
    struct dt_st_reader *reader = NULL;
    float *values = NULL;
    dt_status status = DT_OK;
    DT_TRY(dt_st_open(&reader, path));
    for (int t = 0; t < plan->graph->n_tensors; t++) {
        const struct dt_tensor *tensor = &plan->graph->tensor[t];
        if (tensor->role != DT_PARAM && tensor->role != DT_STAT)
            continue;
        const struct dt_st_tensor *entry = dt_st_find(reader, tensor->name);
        if (!entry || entry->elements != dt_tensor_elements(tensor))
            DT_TRY_OUT(DT_ERROR(DT_ERR_DATA, "%s: no fitting %s", path, tensor->name));
        free(values);
        DT_TRY_OUT(DT_NEW(values, entry->elements));
        DT_TRY_OUT(dt_st_read_f32(reader, entry, values));
        DT_TRY_OUT(dt_plan_set(plan, plan->place[t].arena, t, values));
    }
out:
    free(values);
    dt_st_close(reader);
    return status;
}

/* One file section: name prefix, which tensors, from which arena. */
struct section {
    const char *prefix;
    enum dt_role role;
    enum dt_arena arena;
    float **values; /* per tensor id; NULL where not taken */
};

static inline dt_status take(struct dt_plan *plan, struct section *section)
{
    const struct dt_graph *g = plan->graph;
    DT_TRY(DT_NEW(section->values, (size_t)g->n_tensors));
    for (int t = 0; t < g->n_tensors; t++) {
        bool absent = section->arena == DT_ARENA_GRADS && g->tensor[t].frozen;
        if (g->tensor[t].role != section->role || absent)
            continue;
        DT_TRY(DT_NEW(section->values[t], dt_tensor_elements(&g->tensor[t])));
        DT_TRY(dt_plan_get(plan, section->arena, t, section->values[t]));
    }
    return DT_OK;
}

static inline dt_status write_out(const struct dt_graph *g, const char *path,
                                  const struct section *sections, int n_sections)
{
    struct dt_st_tensor *entries = NULL;
    const float **data = NULL;
    char *head = NULL;
    size_t n = 0, head_bytes;
    int fd;
    DT_TRY(DT_NEW(entries, (size_t)(n_sections * g->n_tensors)));
    DT_TRY(DT_NEW(data, (size_t)(n_sections * g->n_tensors)));
    for (int s = 0; s < n_sections; s++)
        for (int t = 0; t < g->n_tensors; t++) {
            if (!sections[s].values[t])
                continue;
            struct dt_st_tensor *entry = &entries[n];
            snprintf(entry->name, sizeof(entry->name), "%s.%s", sections[s].prefix,
                     g->tensor[t].name);
            entry->dtype = DT_ST_F32;
            entry->n_dims = g->tensor[t].n_dims;
            for (int d = 0; d < entry->n_dims; d++)
                entry->dim[d] = g->tensor[t].dim[d];
            data[n++] = sections[s].values[t];
        }
    DT_TRY(dt_st_place(entries, n));
    DT_TRY(dt_st_head(&head, &head_bytes, entries, n, NULL, NULL));
    DT_TRY(dt_file_remove(path));
    DT_TRY(dt_file_create(&fd, path));
    DT_TRY(dt_file_write(fd, head, head_bytes, path));
    for (size_t i = 0; i < n; i++)
        DT_TRY(dt_file_write(fd, data[i], entries[i].bytes, path));
    DT_TRY(dt_file_finish(&fd, path));
    for (int s = 0; s < n_sections; s++) {
        for (int t = 0; t < g->n_tensors; t++)
            free(sections[s].values[t]);
        free(sections[s].values);
    }
    free(head);
    free(entries);
    free(data);
    return DT_OK;
}

/* One file of a checkpoint of the plan. */
static inline dt_status write_state(struct dt_plan *plan, enum dt_snapshot_file which,
                                    const char *path)
{
    const struct dt_checkpoint unused = {0};
    struct dt_snapshot *snapshot;
    char *head;
    size_t head_bytes;
    uint64_t bytes;
    int n, fd;
    DT_TRY(dt_snapshot_create(&snapshot, plan));
    DT_TRY(dt_snapshot_take(snapshot, &unused));
    const struct dt_st_tensor *tensors = dt_snapshot_tensors(snapshot, which, &n);
    const void *data = dt_snapshot_data(snapshot, which, &bytes);
    DT_TRY(dt_st_head(&head, &head_bytes, tensors, (size_t)n, NULL, NULL));
    DT_TRY(dt_file_remove(path));
    DT_TRY(dt_file_create(&fd, path));
    DT_TRY(dt_file_write(fd, head, head_bytes, path));
    DT_TRY(dt_file_write(fd, data, bytes, path));
    free(head);
    dt_snapshot_destroy(snapshot);
    return dt_file_finish(&fd, path);
}

#endif
