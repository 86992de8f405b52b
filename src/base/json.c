/* Strict JSON parsing: a walk over the stream checks the text and finds the position of every
 * value, so that cJSON only ever sees clean, small, shallow text; cJSON parses it, and its tree is
 * turned into read-only nodes that carry those positions. The tree is kept, because the nodes
 * borrow its strings. Duplicate keys are detected here, where keys are already decoded ("a" and
 * "\u0061" are the same key). */
#include "base/json.h"

#include <cjson/cJSON.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"

const struct dt_json_limits dt_json_default_limits = {.bytes = 1 << 20, .n_values = 10000};

struct dt_json_doc {
    cJSON *tree;
    struct dt_json *nodes; /* in document order */
    int n_nodes;
};

/* --- The walk: line and column of every node --- */

struct walk {
    struct dt_json_stream *stream;
    struct dt_json_doc *doc;
    size_t capacity;
    int max_values;
};

static dt_status walk_value(struct walk *walk);

static dt_status walk_children(struct walk *walk, enum dt_json_type type)
{
    const char *key = NULL;
    bool more;
    DT_TRY(dt_json_stream_enter(walk->stream, type));
    for (;;) {
        if (type == DT_JSON_OBJECT)
            DT_TRY(dt_json_stream_member(walk->stream, &key));
        else
            DT_TRY(dt_json_stream_item(walk->stream, &more));
        if (type == DT_JSON_OBJECT ? !key : !more)
            return DT_OK;
        DT_TRY(walk_value(walk));
    }
}

static dt_status walk_value(struct walk *walk)
{
    struct dt_json_doc *doc = walk->doc;
    enum dt_json_type type;
    const char *text;
    size_t bytes;
    DT_TRY(dt_json_stream_peek(walk->stream, &type));
    if (doc->n_nodes == walk->max_values)
        return dt_json_stream_fail(walk->stream, dt_json_stream_offset(walk->stream),
                                   "more than %d values", walk->max_values);
    DT_TRY(DT_GROW(doc->nodes, walk->capacity, (size_t)doc->n_nodes, "JSON values"));
    struct dt_json *node = &doc->nodes[doc->n_nodes++];
    dt_json_stream_place(walk->stream, &node->line, &node->column);
    if (type == DT_JSON_OBJECT || type == DT_JSON_ARRAY)
        return walk_children(walk, type);
    return type == DT_JSON_STRING ? dt_json_stream_string(walk->stream, &text, &bytes)
                                  : dt_json_stream_skip(walk->stream);
}

/* --- From cJSON's tree to nodes --- */

struct converter {
    struct dt_json_doc *doc;
    const char *source;
    int n_done;
};

static int compare_keys(const void *a, const void *b)
{
    const struct dt_json *x = *(const struct dt_json *const *)a;
    const struct dt_json *y = *(const struct dt_json *const *)b;
    int order = strcmp(x->key, y->key);
    return order ? order : (x > y) - (x < y);
}

static dt_status check_duplicates(const struct converter *c, const struct dt_json *object)
{
    const struct dt_json **members = NULL, *twice = NULL, *first = NULL;
    size_t n = 0;
    if (object->n_children < 2)
        return DT_OK;
    DT_TRY(DT_NEW(members, (size_t)object->n_children));
    for (const struct dt_json *m = object->child; m; m = m->next)
        members[n++] = m;
    qsort(members, n, sizeof(*members), compare_keys);
    for (size_t i = 1; i < n; i++) {
        if (strcmp(members[i - 1]->key, members[i]->key) == 0 && (!twice || members[i] < twice)) {
            first = members[i - 1];
            twice = members[i];
        }
    }
    free(members);
    if (twice)
        DT_FAIL(DT_ERR_DATA, "%s:%d:%d: %s%s%s: key appears twice in this object, first on line %d",
                c->source, twice->line, twice->column, object->key ? object->key : "",
                object->key ? "." : "", twice->key, first->line);
    return DT_OK;
}

static enum dt_json_type type_of(const cJSON *item)
{
    static const struct {
        int cjson;
        enum dt_json_type type;
    } types[] = {
        {cJSON_False, DT_JSON_BOOL},    {cJSON_True, DT_JSON_BOOL},
        {cJSON_Number, DT_JSON_NUMBER}, {cJSON_String, DT_JSON_STRING},
        {cJSON_Array, DT_JSON_ARRAY},   {cJSON_Object, DT_JSON_OBJECT},
    };
    for (size_t i = 0; i < DT_COUNT(types); i++)
        if ((item->type & 0xff) == types[i].cjson)
            return types[i].type;
    return DT_JSON_NULL;
}

/* Recursive; the walk has already limited the depth. */
static dt_status convert(struct converter *c, const struct dt_json **out, const cJSON *item)
{
    if (c->n_done >= c->doc->n_nodes)
        DT_FAIL(DT_ERR_INTERNAL, "%s: cJSON found more values than the walk", c->source);
    struct dt_json *node = &c->doc->nodes[c->n_done];
    node->type = type_of(item);
    node->key = item->string;
    node->string = item->valuestring;
    node->number = item->valuedouble;
    node->boolean = (item->type & 0xff) == cJSON_True;
    c->n_done++;
    *out = node;
    const struct dt_json **link = &node->child;
    for (const cJSON *child = item->child; child; child = child->next) {
        struct dt_json *made = &c->doc->nodes[c->n_done];
        DT_TRY(convert(c, link, child));
        link = &made->next;
        node->n_children++;
    }
    if (node->type == DT_JSON_OBJECT)
        DT_TRY(check_duplicates(c, node));
    return DT_OK;
}

/* cJSON reads past the end of a text that is not NUL-terminated, so it gets a terminated copy. */
static dt_status parse_tree(cJSON **tree, const char *text, size_t bytes, const char *source)
{
    char *copy = NULL;
    DT_TRY(DT_NEW(copy, bytes + 1));
    memcpy(copy, text, bytes);
    *tree = cJSON_ParseWithLengthOpts(copy, bytes + 1, NULL, 1);
    free(copy);
    if (!*tree)
        DT_FAIL(DT_ERR_MEMORY, "%s: out of memory while parsing %zu bytes of JSON", source, bytes);
    return DT_OK;
}

dt_status dt_json_parse(struct dt_json_doc **doc, const char *text, size_t bytes,
                        const char *source, const struct dt_json_limits *limits)
{
    dt_status status = DT_OK;
    struct dt_json_doc *made = NULL;
    const struct dt_json *root = NULL;
    limits = limits ? limits : &dt_json_default_limits;
    const size_t max = limits->bytes < INT_MAX ? limits->bytes : INT_MAX;
    if (bytes > max)
        DT_FAIL(DT_ERR_DATA, "%s: %zu bytes of JSON; at most %zu are accepted", source, bytes, max);
    DT_TRY_OUT(DT_NEW(made, 1));
    struct walk walk = {.doc = made, .max_values = limits->n_values};
    DT_TRY_OUT(dt_json_stream_open_text(&walk.stream, text, bytes, source));
    status = walk_value(&walk);
    if (status == DT_OK)
        status = dt_json_stream_end(walk.stream);
    dt_json_stream_close(walk.stream);
    DT_TRY_OUT(status);
    DT_TRY_OUT(parse_tree(&made->tree, text, bytes, source));
    struct converter c = {.doc = made, .source = source};
    DT_TRY_OUT(convert(&c, &root, made->tree));
    *doc = made;
    made = NULL;
out:
    dt_json_destroy(made);
    return status;
}

static dt_status load(struct dt_json_doc **doc, const char *path,
                      const struct dt_json_limits *limits,
                      dt_status (*load_file)(char **, size_t *, const char *, size_t))
{
    char *text = NULL;
    size_t bytes = 0;
    const struct dt_json_limits *used = limits ? limits : &dt_json_default_limits;
    DT_TRY(load_file(&text, &bytes, path, used->bytes));
    dt_status status = dt_json_parse(doc, text, bytes, path, used);
    free(text);
    if (status != DT_OK)
        dt_error_pass(status, __func__, __FILE__, __LINE__);
    return status;
}

dt_status dt_json_load(struct dt_json_doc **doc, const char *path,
                       const struct dt_json_limits *limits)
{
    return load(doc, path, limits, dt_file_load);
}

dt_status dt_json_load_own(struct dt_json_doc **doc, const char *folder, const char *name,
                           const struct dt_json_limits *limits)
{
    char path[DT_PATH_MAX];
    DT_TRY(dt_file_path(path, "%s/%s", folder, name));
    return load(doc, path, limits, dt_file_load_own);
}

const struct dt_json *dt_json_root(const struct dt_json_doc *doc)
{
    return doc->nodes;
}

void dt_json_destroy(struct dt_json_doc *doc)
{
    if (!doc)
        return;
    cJSON_Delete(doc->tree);
    free(doc->nodes);
    free(doc);
}

const struct dt_json *dt_json_get(const struct dt_json *object, const char *key)
{
    if (!object || object->type != DT_JSON_OBJECT)
        return NULL;
    const struct dt_json *member = object->child;
    while (member && strcmp(member->key, key) != 0)
        member = member->next;
    return member;
}

double dt_json_number(const struct dt_json *object, const char *key)
{
    const struct dt_json *value = dt_json_get(object, key);
    return value && value->type == DT_JSON_NUMBER ? value->number : NAN;
}

bool dt_json_text(const struct dt_json *value, char *out, size_t bytes)
{
    const bool fits = value && value->type == DT_JSON_STRING && strlen(value->string) < bytes;
    snprintf(out, bytes, "%s", fits ? value->string : "");
    return fits;
}

bool dt_json_integer(const struct dt_json *value, int64_t min, int64_t max, int64_t *out)
{
    const double exact = 0x1p53 - 1; /* larger integers may have been rounded, also to 2^53 */
    if (!value || value->type != DT_JSON_NUMBER || value->number != trunc(value->number) ||
        fabs(value->number) > exact)
        return false;
    int64_t integer = (int64_t)value->number;
    if (integer < min || integer > max)
        return false;
    *out = integer;
    return true;
}
