/* Weights and running statistics by name from a safetensors file: resume, evaluation, fine-tuning.
 * Mismatches are listed in the wording of PyTorch's load_state_dict. */
#include "checkpoint/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "checkpoint/safetensors.h"

#define BODY "backbone.body." /* of a detector: a classifier's names follow */

enum { LIST_BYTES = 4096, LIST_NAMES = 5 };

/* The first few names and the number of all. */
struct list {
    int n;
    struct dt_text text;
    char buffer[LIST_BYTES];
};

struct loading {
    struct dt_plan *plan;
    const struct dt_graph *graph;
    struct dt_st_reader *file;
    const struct dt_st_tensor **saved; /* per tensor of the graph; NULL = not in the file */
    const struct dt_model *model;      /* whose head may keep its values; NULL: nothing may */
    const char *path;
    size_t n_prefix; /* bytes of all names of the file that the model's names lack */
    bool must_be_finite;
    bool is_backbone; /* the file is a classifier, the model a detector with that backbone */
    float *values;
    int n_wanted, n_fitting, n_new; /* tensors of the model: all, in the file, of a new head */
    struct list missing, unexpected, mismatched;
};

static void list_add(struct list *list, const char *before, const char *text, const char *after)
{
    if (++list->n > LIST_NAMES)
        return;
    dt_text_add_whole(&list->text, "%s%s%s", before, text, after);
}

/* Appends " and 7 more" if the text does not name all. */
static void list_end(struct list *list, const char *before)
{
    if (list->n > LIST_NAMES)
        dt_text_add(&list->text, "%sand %d more", before, list->n - LIST_NAMES);
}

static void list_name(struct list *list, const char *name)
{
    list_add(list, list->n > 0 ? ", \"" : "\"", name, "\"");
}

static bool is_wanted(const struct dt_tensor *tensor)
{
    return tensor->role == DT_PARAM || tensor->role == DT_STAT;
}

/* Whether the model may keep its own values. */
static bool is_head(const struct loading *l, const char *name)
{
    bool is_above = l->is_backbone && strncmp(name, BODY, strlen(BODY)) != 0;
    return l->model && (is_above || dt_graph_is_within(name, l->model->head));
}

static bool same_shape(const struct dt_st_tensor *saved, const struct dt_tensor *tensor)
{
    if (saved->n_dims != tensor->n_dims)
        return false;
    for (int i = 0; i < saved->n_dims; i++)
        if (saved->dim[i] != tensor->dim[i])
            return false;
    return true;
}

static void format_shape(char *out, size_t bytes, int n_dims, const int64_t *dim)
{
    struct dt_text text = dt_text_in(out, bytes);
    dt_text_add(&text, "[");
    for (int i = 0; i < n_dims; i++)
        dt_text_add(&text, "%s%lld", i > 0 ? ", " : "", (long long)dim[i]);
    dt_text_add(&text, "]");
}

static bool is_usable(const struct dt_st_tensor *saved, const struct dt_tensor *tensor)
{
    return saved && same_shape(saved, tensor) && saved->dtype != DT_ST_I64;
}

static void list_mismatch(struct list *list, const struct dt_st_tensor *saved,
                          const struct dt_tensor *tensor)
{
    char text[512], from[128], to[128];
    int64_t dim[4];
    for (int i = 0; i < 4; i++)
        dim[i] = tensor->dim[i];
    format_shape(from, sizeof from, saved->n_dims, saved->dim);
    format_shape(to, sizeof to, tensor->n_dims, dim);
    if (saved->dtype == DT_ST_I64)
        snprintf(text, sizeof text,
                 "%s holds integers (I64), but weights are floating-point numbers: convert them.",
                 tensor->name);
    else
        snprintf(text, sizeof text,
                 "size mismatch for %s: copying a param with shape %s from checkpoint, the shape "
                 "in current model is %s.",
                 tensor->name, from, to);
    list_add(list, "\n    ", text, "");
}

/* --- Names in the file --- */

/* Wrappers of modules, such as DDP and torch.compile, put a prefix before all names. The first
 * tensor of the model that the file has shows it. */
static void find_prefix(struct loading *l)
{
    const struct dt_st_tensor *found = NULL;
    for (int t = 0; t < l->graph->n_tensors && !found; t++) {
        const char *name = l->graph->tensor[t].name + (l->is_backbone ? strlen(BODY) : 0);
        if (is_wanted(&l->graph->tensor[t]))
            found = dt_st_find(l->file, name);
        if (found)
            l->n_prefix = strlen(found->name) - strlen(name);
    }
    if (l->n_prefix > 0)
        dt_log(DT_LOG_INFO, "%s: all names begin with \"%.*s\", which is omitted", l->path,
               (int)l->n_prefix, found->name);
}

/* The name in the graph: as torchvision spells it since 0.13, and of a backbone its place in the
 * detector. */
static void translate(char out[DT_ST_NAME_MAX], const struct loading *l, const char *name)
{
    char part[16], kind[8];
    int i, end = 0;
    if (sscanf(name, "head.%15[a-z]_head.conv.%d.%7[a-z]%n", part, &i, kind, &end) == 3 &&
        name[end] == '\0')
        snprintf(out, DT_ST_NAME_MAX, "head.%s_head.conv.%d.0.%s", part, i / 2, kind);
    else if (sscanf(name, "backbone.fpn.%15[a-z]_blocks.%d.%7[a-z]%n", part, &i, kind, &end) == 3 &&
             name[end] == '\0')
        snprintf(out, DT_ST_NAME_MAX, "backbone.fpn.%s_blocks.%d.0.%s", part, i, kind);
    else
        snprintf(out, DT_ST_NAME_MAX, "%s%.*s", l->is_backbone ? BODY : "",
                 DT_ST_NAME_MAX - (int)sizeof BODY, name);
}

/* Whether the model need not have the name: a counter, the classifier's, or one of another number
 * of classes.
 */
static bool is_skipped(const struct loading *l, const char *name)
{
    const char *counter = strstr(name, "num_batches_tracked");
    bool is_counter = counter && strcmp(counter, "num_batches_tracked") == 0;
    return is_counter || is_head(l, name) ||
           (l->is_backbone && dt_graph_is_within(name, BODY "fc"));
}

static void find_saved(struct loading *l)
{
    for (size_t i = 0; i < dt_st_count(l->file); i++) {
        const struct dt_st_tensor *tensor = dt_st_get(l->file, i);
        char name[DT_ST_NAME_MAX];
        translate(name, l, tensor->name + l->n_prefix);
        int t = dt_graph_find(l->graph, name);
        if (t >= 0 && is_wanted(&l->graph->tensor[t]))
            l->saved[t] = tensor;
        else if (!is_skipped(l, name))
            list_name(&l->unexpected, tensor->name + l->n_prefix);
    }
}

/* A classifier is taken whole or not at all: new weights do not go with an old bias. */
static void keep_head_whole(struct loading *l)
{
    const struct dt_tensor *tensor = l->graph->tensor, *other = NULL;
    for (int t = 0; t < l->graph->n_tensors; t++)
        if (is_wanted(&tensor[t]) && is_head(l, tensor[t].name) &&
            !is_usable(l->saved[t], &tensor[t]))
            other = &tensor[t];
    for (int t = 0; t < l->graph->n_tensors && other; t++) {
        if (!is_head(l, tensor[t].name) || !is_usable(l->saved[t], &tensor[t]))
            continue;
        dt_log(DT_LOG_NOTICE,
               "%s: %s fits, but %s does not, so neither is taken: a layer is loaded whole or not "
               "at all",
               l->path, tensor[t].name, other->name);
        l->saved[t] = NULL;
    }
}

/* Compares all tensors before any is changed, so that a file that does not fit changes nothing. */
static void compare_tensors(struct loading *l)
{
    find_prefix(l);
    find_saved(l);
    keep_head_whole(l);
    for (int t = 0; t < l->graph->n_tensors; t++) {
        const struct dt_tensor *tensor = &l->graph->tensor[t];
        const struct dt_st_tensor *saved = l->saved[t];
        if (!is_wanted(tensor))
            continue;
        bool fits = is_usable(saved, tensor);
        l->n_wanted++;
        l->n_fitting += fits;
        if (!fits && is_head(l, tensor->name) && !(saved && saved->dtype == DT_ST_I64))
            l->n_new++;
        else if (!saved)
            list_name(&l->missing, tensor->name);
        else if (!fits)
            list_mismatch(&l->mismatched, saved, tensor);
    }
    list_end(&l->missing, " ");
    list_end(&l->unexpected, " ");
    list_end(&l->mismatched, "\n    ");
}

static bool is_finite(const float *values, size_t n)
{
    bool finite = true;
    for (size_t i = 0; i < n; i++)
        finite &= isfinite(values[i]) != 0;
    return finite;
}

static dt_status copy_tensors(struct loading *l)
{
    size_t max = 0;
    for (int t = 0; t < l->graph->n_tensors; t++) {
        size_t n = dt_tensor_elements(&l->graph->tensor[t]);
        if (is_wanted(&l->graph->tensor[t]) && n > max)
            max = n;
    }
    DT_TRY(DT_NEW(l->values, max));
    for (int t = 0; t < l->graph->n_tensors; t++) {
        const struct dt_tensor *tensor = &l->graph->tensor[t];
        if (!is_wanted(tensor))
            continue;
        const struct dt_st_tensor *saved = l->saved[t];
        if (!is_usable(saved, tensor))
            continue; /* the new head */
        DT_TRY(dt_st_read_f32(l->file, saved, l->values));
        if (l->must_be_finite && !is_finite(l->values, dt_tensor_elements(tensor)))
            DT_FAIL(DT_ERR_NUMERICAL,
                    "tensor %s of %s holds NaN or infinite values; take weights from before the "
                    "training diverged",
                    tensor->name, l->path);
        enum dt_arena arena = tensor->role == DT_PARAM ? DT_ARENA_PARAMS : DT_ARENA_STATS;
        DT_TRY(dt_plan_set(l->plan, arena, t, l->values));
    }
    return DT_OK;
}

/* Outputs of the classifier for every class. */
static int rows_per_class(const struct dt_model *model)
{
    return model->detects ? DT_CELL_ANCHORS : 1;
}

/* Returns 0 if the file has no such weight. */
static int64_t saved_classes(const struct dt_st_reader *file, const struct dt_model *model)
{
    char name[DT_NAME_MAX + 8];
    snprintf(name, sizeof name, "%s.bias", model->head); /* a weight may be transposed */
    const struct dt_st_tensor *saved = dt_st_find(file, name);
    return saved && saved->n_dims > 0 ? saved->dim[0] / rows_per_class(model) : 0;
}

static void describe(char *out, const struct loading *l, const char *path)
{
    struct dt_text text = dt_text_in(out, DT_WEIGHTS_TEXT);
    char name[DT_NAME_MAX + 8];
    dt_text_add(&text, "%d of %d tensors from %s", l->n_fitting, l->n_wanted, path);
    if (l->is_backbone)
        dt_text_add(&text, ", a classifier without its fc; pyramid and heads are new");
    if (l->n_new == 0 || l->is_backbone)
        return;
    dt_text_add(&text, "; classifier %s new (", l->model->head);
    const int64_t n_saved = saved_classes(l->file, l->model);
    if (n_saved > 0)
        dt_text_add(&text, "%lld -> ", (long long)n_saved);
    snprintf(name, sizeof name, "%s.weight", l->model->head);
    const struct dt_tensor *own = &l->graph->tensor[dt_graph_find(l->graph, name)];
    dt_text_add(&text, "%d classes)", own->dim[0] / rows_per_class(l->model));
}

dt_status dt_weights_load(struct dt_plan *plan, const char *path,
                          const struct dt_model *may_lack_head, bool must_be_finite, char *text)
{
    struct loading *l = NULL;
    dt_status status = DT_OK;
    DT_TRY(DT_NEW(l, 1));
    l->plan = plan;
    l->graph = plan->graph;
    l->model = may_lack_head;
    l->must_be_finite = must_be_finite;
    l->path = path;
    struct list *lists[] = {&l->missing, &l->unexpected, &l->mismatched};
    for (size_t i = 0; i < DT_COUNT(lists); i++)
        lists[i]->text = dt_text_in(lists[i]->buffer, LIST_BYTES);
    DT_TRY_OUT(DT_NEW(l->saved, (size_t)l->graph->n_tensors));
    DT_TRY_OUT(dt_st_open(&l->file, path));
    l->is_backbone = may_lack_head && dt_graph_find(l->graph, BODY "conv1.weight") >= 0 &&
                     dt_st_find(l->file, "conv1.weight") &&
                     !dt_st_find(l->file, BODY "conv1.weight");
    compare_tensors(l);
    const struct list *missing = &l->missing, *unexpected = &l->unexpected;
    if (missing->n + unexpected->n + l->mismatched.n > 0)
        DT_TRY_OUT(DT_ERROR(DT_ERR_CONFIG, "%s does not fit the model:%s%s%s%s%s%s%s", path,
                            missing->n ? "\n    Missing key(s) in state_dict: " : "",
                            missing->text.at, missing->n ? "." : "",
                            unexpected->n ? "\n    Unexpected key(s) in state_dict: " : "",
                            unexpected->text.at, unexpected->n ? "." : "", l->mismatched.text.at));
    if (plan->arena[DT_ARENA_PARAMS])
        DT_TRY_OUT(copy_tensors(l));
    if (text)
        describe(text, l, path);
out:
    dt_st_close(l->file);
    free(l->values);
    free(l->saved);
    free(l);
    return status;
}

dt_status dt_weights_classes(char **classes, int64_t *n, const char *path,
                             const struct dt_model *model)
{
    struct dt_st_reader *file;
    dt_status status = DT_OK;
    *classes = NULL;
    DT_TRY(dt_st_open(&file, path));
    if (dt_st_classes(file))
        status = dt_mem_copy_text(classes, dt_st_classes(file));
    if (n)
        *n = saved_classes(file, model);
    dt_st_close(file);
    return status;
}
