/* Storage of the graph: two growing arrays, of tensors and of nodes, addressed by index.
 *
 * The first error of any building call is remembered in the graph (its text stays the thread's last
 * error); all later calls do nothing. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/graph_internal.h"

static void clear_program(struct dt_program *p, enum dt_phase phase)
{
    *p = (struct dt_program){.phase = phase};
    p->class_weights = p->logits = p->match = p->count = p->divisor = -1;
    for (int i = 0; i < DT_N_COLUMNS; i++)
        p->column[i] = -1;
    for (int i = 0; i < DT_MAX_LEVELS; i++)
        p->detections[i] = p->n_detections[i] = -1;
}

dt_status dt_graph_create(struct dt_graph **graph)
{
    struct dt_graph *g;
    *graph = NULL;
    DT_TRY(DT_NEW(g, 1));
    for (int i = 0; i < DT_MAX_PROGRAMS; i++)
        clear_program(&g->program[i], i == DT_EVAL ? DT_EVAL : DT_TRAIN);
    *graph = g;
    return DT_OK;
}

void dt_graph_destroy(struct dt_graph *graph)
{
    if (!graph)
        return;
    free(graph->node);
    free(graph->tensor);
    free(graph);
}

void dt_graph_remember(struct dt_graph *g, dt_status status)
{
    if (g->status == DT_OK)
        g->status = status;
}

dt_status dt_graph_check(const struct dt_graph *g)
{
    DT_TRY(g->status);
    return DT_OK;
}

dt_status dt_graph_begin(struct dt_graph *g, enum dt_phase phase, int batch, int height, int width)
{
    DT_TRY(g->status);
    /* The first of a phase has the phase's number. */
    int id = (int)phase;
    while (id < DT_MAX_PROGRAMS && g->program[id].batch > 0)
        id = id < DT_N_PHASES ? DT_N_PHASES : id + 1;
    if (id == DT_MAX_PROGRAMS)
        DT_FAIL(DT_ERR_CONFIG, "a graph can have at most %d programs, one for each size of images",
                DT_MAX_PROGRAMS);
    if (batch < 1 || height < 1 || width < 1)
        DT_FAIL(DT_ERR_CONFIG, "a graph of %d images of %dx%d pixels cannot be built", batch,
                height, width);
    clear_program(&g->program[id], phase);
    g->current = id;
    g->program[id].batch = batch;
    g->program[id].height = height;
    g->program[id].width = width;
    DT_TRY(dt_graph_column(g, DT_COLUMN_PIXELS, 0));
    return dt_graph_column(g, DT_COLUMN_LABELS, 0);
}

dt_status dt_graph_column(struct dt_graph *g, enum dt_sample_column column, int max_boxes)
{
    DT_TRY(g->status);
    struct dt_program *p = &g->program[g->current];
    const struct dt_column_row *row = dt_column_row(column);
    int dim[4];
    const int n_dims =
        dt_column_shape(dim, column, p->batch, (int[]){p->height, p->width, max_boxes});
    p->column[column] = dt_graph_tensor(g, row->name, DT_INPUT, row->dtype, n_dims, dim);
    DT_TRY(g->status);
    return DT_OK;
}

dt_status dt_graph_boxes(struct dt_graph *g, int max_boxes)
{
    DT_TRY(dt_graph_column(g, DT_COLUMN_BOXES, max_boxes));
    DT_TRY(dt_graph_column(g, DT_COLUMN_BOX_LABELS, max_boxes));
    return dt_graph_column(g, DT_COLUMN_SIZES, max_boxes);
}

dt_status dt_graph_mix_labels(struct dt_graph *g)
{
    DT_TRY(g->status);
    if (dt_graph_program(g)->labels < 0)
        DT_FAIL(DT_ERR_INTERNAL, "there are no labels to mix: call dt_graph_begin first");
    DT_TRY(dt_graph_column(g, DT_COLUMN_LABELS2, 0));
    return dt_graph_column(g, DT_COLUMN_MIX_SHARE, 0);
}

dt_status dt_graph_weigh_classes(struct dt_graph *g, int n_classes)
{
    DT_TRY(g->status);
    const int dim[4] = {n_classes, 1, 1, 1};
    g->program[g->current].class_weights =
        dt_graph_tensor(g, "class_weights", DT_INPUT, DT_F32, 1, dim);
    DT_TRY(g->status);
    return DT_OK;
}

static dt_status add_tensor(struct dt_graph *g, const char *name, enum dt_role role,
                            enum dt_dtype dtype, int n_dims, const int dim[4])
{
    if (strlen(name) >= DT_NAME_MAX)
        DT_FAIL(DT_ERR_INTERNAL, "the tensor name %s is longer than %d characters", name,
                DT_NAME_MAX - 1);
    for (int i = 0; i < 4; i++) {
        if (n_dims < 1 || n_dims > 4 || dim[i] < 1 || (i >= n_dims && dim[i] != 1))
            DT_FAIL(DT_ERR_INTERNAL, "tensor %s: %d dimensions of %d,%d,%d,%d are not a shape",
                    name, n_dims, dim[0], dim[1], dim[2], dim[3]);
    }
    /* Complete before the array grows: name and dim may point into it. */
    struct dt_tensor t = {
        .dtype = dtype, .role = role, .n_dims = n_dims, .rate = 1, .whole = -1, .diff = -1};
    memcpy(t.name, name, strlen(name) + 1);
    memcpy(t.dim, dim, sizeof t.dim);
    DT_TRY(DT_GROW(g->tensor, g->tensor_capacity, (size_t)g->n_tensors, "graph tensors"));
    g->tensor[g->n_tensors++] = t;
    return DT_OK;
}

int dt_graph_tensor(struct dt_graph *g, const char *name, enum dt_role role, enum dt_dtype dtype,
                    int n_dims, const int dim[4])
{
    if (g->status != DT_OK)
        return -1;
    dt_graph_remember(g, add_tensor(g, name, role, dtype, n_dims, dim));
    return g->status == DT_OK ? g->n_tensors - 1 : -1;
}

static bool fits(char kind, const struct dt_tensor *t, const struct dt_tensor *first)
{
    const int *a = t->dim, *b = first->dim;
    const bool images = a[0] == b[0], channels = a[1] == b[1],
               pixels = a[2] == b[2] && a[3] == b[3];
    if (kind == 'v')
        return t->dtype == DT_F32 && dt_tensor_is_vector(t) && a[0] == b[1];
    if (t->dtype != (kind == 'w' ? DT_U8 : DT_F32))
        return kind == 'o';
    const bool is_value = t->role == DT_ACT || t->role == DT_DIFF || t->role == DT_DIFF_PARAM ||
                          t->role == DT_DIFF_TERM; /* in the precision and format of the network */
    if (strchr("acisx", kind) && !is_value)
        return false;
    return kind == 'a' || kind == 'w' ? images && channels && pixels
           : kind == 'c'              ? images && pixels
           : kind == 'i'              ? images && channels && a[2] == 1 && a[3] == 1
                                      : kind != 's' || (images && channels);
}

static dt_status check_ids(const struct dt_graph *g, const char *name, int n, const int *id,
                           const char *kinds, const int *first, const char *what)
{
    const int max_n = (int)strlen(kinds);
    int min_n = 0;
    char dims[2][48];
    while (islower((unsigned char)kinds[min_n]))
        min_n++;
    if (n < min_n || n > max_n)
        DT_FAIL(DT_ERR_INTERNAL, "node %s has %d %ss; allowed: %d to %d", name, n, what, min_n,
                max_n);
    for (int i = 0; i < n; i++) {
        if (id[i] < (islower((unsigned char)kinds[i]) ? 0 : -1) || id[i] >= g->n_tensors)
            DT_FAIL(DT_ERR_INTERNAL, "node %s: %s %d is tensor %d, which does not exist", name,
                    what, i, id[i]);
        const struct dt_tensor *t = id[i] < 0 ? NULL : &g->tensor[id[i]];
        if (t && !fits((char)tolower((unsigned char)kinds[i]), t, &g->tensor[*first]))
            DT_FAIL(DT_ERR_INTERNAL, "node %s: %s %d, %s of %s, does not go with %s of %s", name,
                    what, i, t->name, dt_tensor_format_dims(dims[0], sizeof dims[0], t),
                    g->tensor[*first].name,
                    dt_tensor_format_dims(dims[1], sizeof dims[1], &g->tensor[*first]));
    }
    return DT_OK;
}

/* Fills up with -1; returns how many there are without those at the end. */
static int copy_ids(int *out, int size, const int *id, int n)
{
    for (int i = 0; i < size; i++)
        out[i] = i < n ? id[i] : -1;
    while (n > 0 && id[n - 1] < 0)
        n--;
    return n;
}

static dt_status add_node(struct dt_graph *g, enum dt_op op, const char *name, int n_src,
                          const int *src, int n_dst, const int *dst)
{
    const struct dt_op_row *row = dt_op_row(op);
    if (strlen(name) >= DT_NAME_MAX)
        DT_FAIL(DT_ERR_INTERNAL, "the node name %s is longer than %d characters", name,
                DT_NAME_MAX - 1);
    DT_TRY(check_ids(g, name, n_src, src, row->src, src, "source"));
    DT_TRY(check_ids(g, name, n_dst, dst, row->dst, src, "destination"));
    struct dt_node node = {.op = op, .phase = dt_graph_program(g)->phase, .program = g->current};
    memcpy(node.name, name, strlen(name) + 1);
    node.n_src = copy_ids(node.src, DT_MAX_SRC, src, n_src);
    node.n_dst = copy_ids(node.dst, DT_MAX_DST, dst, n_dst);
    DT_TRY(DT_GROW(g->node, g->node_capacity, (size_t)g->n_nodes, "graph nodes"));
    g->node[g->n_nodes++] = node;
    return DT_OK;
}

struct dt_node *dt_graph_node(struct dt_graph *g, enum dt_op op, const char *name, int n_src,
                              const int *src, int n_dst, const int *dst)
{
    if (g->status != DT_OK)
        return NULL;
    dt_graph_remember(g, add_node(g, op, name, n_src, src, n_dst, dst));
    return g->status == DT_OK ? &g->node[g->n_nodes - 1] : NULL;
}

int dt_node_tensors(const struct dt_node *node, int tensor[DT_MAX_SRC + DT_MAX_DST])
{
    int n = 0;
    for (int i = 0; i < node->n_src; i++)
        if (node->src[i] >= 0)
            tensor[n++] = node->src[i];
    for (int i = 0; i < node->n_dst; i++)
        tensor[n++] = node->dst[i];
    return n;
}

void dt_node_save_nothing(struct dt_node *node)
{
    node->n_dst = 1;
    for (int i = 1; i < DT_MAX_DST; i++)
        node->dst[i] = -1;
}

bool dt_graph_is_within(const char *name, const char *module)
{
    size_t n = strlen(module);
    return strncmp(name, module, n) == 0 && (name[n] == '.' || name[n] == '\0');
}

int dt_graph_freeze(struct dt_graph *g, const char *module)
{
    int n_params = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        struct dt_node *node = &g->node[i];
        if (node->phase == DT_TRAIN && node->op == DT_OP_BN &&
            dt_graph_is_within(node->name, module))
            dt_node_save_nothing(node);
    }
    for (int t = 0; t < g->n_tensors; t++) {
        const char *name = g->tensor[t].name;
        if (g->tensor[t].role != DT_PARAM || !dt_graph_is_within(name, module) ||
            strcmp(name, module) == 0) /* a parameter is no module */
            continue;
        g->tensor[t].frozen = true;
        n_params++;
    }
    return n_params;
}

size_t dt_tensor_elements(const struct dt_tensor *tensor)
{
    size_t n = 1;
    for (int i = 0; i < 4; i++)
        n *= (size_t)tensor->dim[i];
    return n;
}

size_t dt_graph_largest(const struct dt_graph *g, enum dt_role role)
{
    size_t max = 0;
    for (int i = 0; i < g->n_tensors; i++) {
        size_t n = dt_tensor_elements(&g->tensor[i]);
        if (g->tensor[i].role == role && n > max)
            max = n;
    }
    return max;
}

int dt_graph_find(const struct dt_graph *g, const char *tensor_name)
{
    for (int i = 0; i < g->n_tensors; i++) {
        if (strcmp(g->tensor[i].name, tensor_name) == 0)
            return i;
    }
    return -1;
}

int dt_graph_find_role(const struct dt_graph *g, const char *name, enum dt_role role)
{
    for (int i = 0; i < g->n_tensors; i++) {
        if (g->tensor[i].role == role && strcmp(g->tensor[i].name, name) == 0)
            return i;
    }
    return -1;
}

const char *dt_tensor_format_dims(char *out, size_t bytes, const struct dt_tensor *tensor)
{
    size_t used = 0;
    if (bytes > 0)
        out[0] = '\0';
    for (int i = 0; i < tensor->n_dims && used < bytes; i++) {
        int n = snprintf(out + used, bytes - used, "%s%d", i ? "x" : "", tensor->dim[i]);
        used += n > 0 ? (size_t)n : 0;
    }
    return out;
}

/* --- The op table, generated from DT_OP_LIST --- */

static const struct dt_op_row table[DT_N_OPS] = {
#define ROW(NAME, op, ...) [DT_OP_##NAME] = {.name = #op, .rule = &dt_rule_##op, __VA_ARGS__},
    DT_OP_LIST(ROW)
#undef ROW
};

const struct dt_op_row *dt_op_row(enum dt_op op)
{
    return &table[op];
}

const char *dt_op_name(enum dt_op op)
{
    return table[op].name;
}

char dt_node_kind(const struct dt_node *node, int i)
{
    const struct dt_op_row *row = &table[node->op];
    const int kind = i < node->n_src ? row->src[i] : row->dst[i - node->n_src];
    return (char)tolower(kind);
}

unsigned dt_op_inplace(enum dt_op op)
{
    return table[op].in_place;
}
