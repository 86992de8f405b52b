/* One block of memory holds the data of all files as they are laid out on disk, so that a file is
 * written from one block. It is allocated and touched once, not while training waits. */
#include "checkpoint/snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* The tensors of one file: graph tensors, and PyTorch's num_batches_tracked (graph id -1) after
 * each running_var that is updated. */
struct contents {
    struct dt_st_tensor *tensors;
    int *ids;
    enum dt_arena *arenas;
    int n;
    uint64_t bytes;
    char *data;
};

struct dt_snapshot {
    struct dt_plan *plan;
    struct dt_checkpoint state;
    struct contents files[DT_N_SNAPSHOT_FILES];
    char *block;
};

/* --- Contents --- */

static void add_tensor(struct contents *c, const struct dt_tensor *tensor, int id,
                       enum dt_arena arena, const char *prefix)
{
    struct dt_st_tensor *t = &c->tensors[c->n];
    snprintf(t->name, sizeof t->name, "%s%s%s", prefix, prefix[0] ? "." : "", tensor->name);
    t->dtype = DT_ST_F32;
    t->n_dims = tensor->n_dims;
    for (int i = 0; i < tensor->n_dims; i++)
        t->dim[i] = tensor->dim[i];
    c->arenas[c->n] = arena;
    c->ids[c->n++] = id;
}

static void add_counter(struct contents *c, const struct dt_tensor *running_var)
{
    struct dt_st_tensor *t = &c->tensors[c->n];
    int n_module = (int)(strlen(running_var->name) - strlen("running_var"));
    snprintf(t->name, sizeof t->name, "%.*snum_batches_tracked", n_module, running_var->name);
    t->dtype = DT_ST_I64;
    t->n_dims = 0;
    c->ids[c->n++] = -1;
}

/* Whether tensor `t` is the variance of a batch norm that is not a frozen one. */
static bool is_running_var(const struct dt_graph *g, int t)
{
    int n = 0;
    while (n < g->n_nodes && (g->node[n].op != DT_OP_BN || g->node[n].src[DT_BN_RUNNING_VAR] != t))
        n++;
    return n < g->n_nodes && g->tensor[g->node[n].src[DT_BN_SCALE]].role == DT_PARAM;
}

static void list_model(struct contents *c, const struct dt_graph *g, enum dt_arena params,
                       enum dt_arena stats)
{
    for (int t = 0; t < g->n_tensors; t++) {
        const struct dt_tensor *tensor = &g->tensor[t];
        if (tensor->role == DT_PARAM)
            add_tensor(c, tensor, t, params, "");
        if (tensor->role == DT_STAT)
            add_tensor(c, tensor, t, stats, "");
        if (is_running_var(g, t))
            add_counter(c, tensor);
    }
}

static dt_status list_contents(struct contents *c, const struct dt_plan *plan,
                               enum dt_snapshot_file file)
{
    const struct dt_graph *g = plan->graph;
    const size_t max = 2 * (size_t)g->n_tensors;
    DT_TRY(DT_NEW(c->tensors, max));
    DT_TRY(DT_NEW(c->ids, max));
    DT_TRY(DT_NEW(c->arenas, max));
    if (file == DT_SNAPSHOT_MODEL)
        list_model(c, g, DT_ARENA_PARAMS, DT_ARENA_STATS);
    for (enum dt_arena a = 0; a < DT_N_ARENAS && file == DT_SNAPSHOT_OPTIM; a++)
        for (int t = 0; t < g->n_tensors && dt_plan_has_state(plan, a); t++)
            if (g->tensor[t].role == DT_PARAM)
                add_tensor(c, &g->tensor[t], t, a, dt_arena_name(a));
    if (file == DT_SNAPSHOT_EMA && dt_plan_has_ema(plan))
        list_model(c, g, DT_ARENA_EMA, DT_ARENA_EMA_STATS);
    DT_TRY(dt_st_place(c->tensors, (size_t)c->n));
    for (int i = 0; i < c->n; i++)
        c->bytes += c->tensors[i].bytes;
    return DT_OK;
}

/* --- Interface --- */

dt_status dt_snapshot_create(struct dt_snapshot **snapshot, struct dt_plan *plan)
{
    struct dt_snapshot *s = NULL;
    dt_status status = DT_OK;
    *snapshot = NULL;
    DT_TRY(DT_NEW(s, 1));
    s->plan = plan;
    for (int f = 0; f < DT_N_SNAPSHOT_FILES; f++)
        DT_TRY_OUT(list_contents(&s->files[f], plan, f));
    s->block = dt_mem_alloc_aligned(dt_snapshot_bytes(s), "the copy that is saved");
    if (!s->block)
        DT_TRY_OUT(DT_ERR_MEMORY);
    char *data = s->block;
    for (int f = 0; f < DT_N_SNAPSHOT_FILES; data += s->files[f++].bytes)
        s->files[f].data = data;
    *snapshot = s;
    return DT_OK;
out:
    dt_snapshot_destroy(s);
    return status;
}

void dt_snapshot_destroy(struct dt_snapshot *snapshot)
{
    if (!snapshot)
        return;
    for (int f = 0; f < DT_N_SNAPSHOT_FILES; f++) {
        free(snapshot->files[f].tensors);
        free(snapshot->files[f].ids);
        free(snapshot->files[f].arenas);
    }
    free(snapshot->block);
    free(snapshot);
}

uint64_t dt_snapshot_bytes(const struct dt_snapshot *snapshot)
{
    uint64_t bytes = 0;
    for (int f = 0; f < DT_N_SNAPSHOT_FILES; f++)
        bytes += snapshot->files[f].bytes;
    return bytes;
}

/* Called by the main thread between two steps: on rank 0 by dt_writer_start, and on all ranks when
 * a stage rebuilds the plan. dt_plan_get waits for the device and converts to logical fp32, and
 * training waits for all of it. There is no lock: the writer is not BUSY, and nothing changes the
 * plan meanwhile. After a failure the snapshot mixes two steps; dt_writer_start then leaves the
 * writer IDLE, so that it is never written. */
dt_status dt_snapshot_take(struct dt_snapshot *snapshot, const struct dt_checkpoint *state)
{
    snapshot->state = *state;
    for (int f = 0; f < DT_N_SNAPSHOT_FILES; f++) {
        const struct contents *c = &snapshot->files[f];
        for (int i = 0; i < c->n; i++) {
            char *out = c->data + c->tensors[i].offset;
            if (c->ids[i] >= 0)
                DT_TRY(dt_plan_get(snapshot->plan, c->arenas[i], c->ids[i], (float *)(void *)out));
            else /* not always aligned */
                memcpy(out, &state->n_passes, sizeof state->n_passes);
        }
    }
    return DT_OK;
}

void dt_snapshot_set_plan(struct dt_snapshot *snapshot, struct dt_plan *plan)
{
    snapshot->plan = plan;
}

dt_status dt_snapshot_restore(struct dt_snapshot *snapshot)
{
    struct dt_plan *plan = snapshot->plan;
    for (int f = 0; f < DT_N_SNAPSHOT_FILES; f++) {
        const struct contents *c = &snapshot->files[f];
        for (int i = 0; i < c->n; i++) {
            const void *values = c->data + c->tensors[i].offset;
            if (c->ids[i] >= 0)
                DT_TRY(dt_plan_set(plan, c->arenas[i], c->ids[i], values));
        }
    }
    return DT_OK;
}

const struct dt_checkpoint *dt_snapshot_state(const struct dt_snapshot *snapshot)
{
    return &snapshot->state;
}

const struct dt_st_tensor *dt_snapshot_tensors(const struct dt_snapshot *snapshot,
                                               enum dt_snapshot_file file, int *n)
{
    *n = snapshot->files[file].n;
    return snapshot->files[file].tensors;
}

const void *dt_snapshot_data(const struct dt_snapshot *snapshot, enum dt_snapshot_file file,
                             uint64_t *bytes)
{
    *bytes = snapshot->files[file].bytes;
    return snapshot->files[file].data;
}
