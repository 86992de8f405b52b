/* Strict JSON as a tree of read-only nodes with their places: one walk over the stream, which
 * checks the text. Keys and strings lie in one block, which the text itself bounds: decoded they
 * are shorter. Duplicate keys are detected here, where keys are already decoded ("a" and "\u0061"
 * are the same key). */
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json_token.h"
#include "base/mem.h"

const struct dt_json_limits dt_json_default_limits = {.bytes = 1 << 20, .n_values = 10000};

struct dt_json_doc {
    struct dt_json *nodes; /* in document order */
    int n_nodes;
    char *strings, *end; /* the block, and where the next one goes */
};

struct walk {
    struct dt_json_stream *stream;
    struct dt_json_doc *doc;
    int max_values;
};

static const char *keep(struct dt_json_doc *doc, const char *text, size_t bytes)
{
    char *copy = doc->end;
    memcpy(copy, text, bytes + 1);
    doc->end += bytes + 1;
    return copy;
}

static dt_status walk_value(struct walk *walk, struct dt_json **out);

static dt_status walk_children(struct walk *walk, struct dt_json *node)
{
    const bool is_object = node->type == DT_JSON_OBJECT;
    const struct dt_json **link = &node->child;
    struct dt_json *child;
    const char *key = NULL;
    bool more;
    DT_TRY(dt_json_stream_enter(walk->stream, node->type));
    for (;;) {
        if (is_object)
            DT_TRY(dt_json_stream_member(walk->stream, &key));
        else
            DT_TRY(dt_json_stream_item(walk->stream, &more));
        if (is_object ? !key : !more)
            return DT_OK;
        key = key ? keep(walk->doc, key, strlen(key)) : NULL;
        DT_TRY(walk_value(walk, &child));
        child->key = key;
        *link = child;
        link = &child->next;
        node->n_children++;
    }
}

/* Recursive; the stream limits the depth. */
static dt_status walk_value(struct walk *walk, struct dt_json **out)
{
    struct dt_json_doc *doc = walk->doc;
    enum dt_json_type type;
    const char *text;
    size_t bytes;
    DT_TRY(dt_json_stream_peek(walk->stream, &type));
    if (doc->n_nodes == walk->max_values)
        return dt_json_stream_fail(walk->stream, dt_json_stream_offset(walk->stream),
                                   "more than %d values", walk->max_values);
    struct dt_json *node = *out = &doc->nodes[doc->n_nodes++];
    node->type = type;
    dt_json_stream_place(walk->stream, &node->line, &node->column);
    switch (type) {
    case DT_JSON_OBJECT:
    case DT_JSON_ARRAY:
        return walk_children(walk, node);
    case DT_JSON_NUMBER:
        return dt_json_stream_number(walk->stream, &node->number);
    case DT_JSON_BOOL:
        return dt_json_stream_bool(walk->stream, &node->boolean);
    case DT_JSON_NULL:
        return dt_json_stream_skip(walk->stream);
    case DT_JSON_STRING:
        DT_TRY(dt_json_stream_string(walk->stream, &text, &bytes));
        node->string = keep(doc, text, bytes);
    }
    return DT_OK;
}

static int compare_keys(const void *a, const void *b)
{
    const struct dt_json *x = *(const struct dt_json *const *)a;
    const struct dt_json *y = *(const struct dt_json *const *)b;
    int order = strcmp(x->key, y->key);
    return order ? order : (x > y) - (x < y);
}

static dt_status check_duplicates(const struct dt_json *object, const char *source)
{
    const struct dt_json **members = NULL, *twice = NULL, *first = NULL;
    size_t n = 0;
    if (object->type != DT_JSON_OBJECT || object->n_children < 2)
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
                source, twice->line, twice->column, object->key ? object->key : "",
                object->key ? "." : "", twice->key, first->line);
    return DT_OK;
}

dt_status dt_json_parse(struct dt_json_doc **doc, const char *text, size_t bytes,
                        const char *source, const struct dt_json_limits *limits)
{
    dt_status status = DT_OK;
    struct dt_json_doc *made = NULL;
    struct dt_json *root;
    limits = limits ? limits : &dt_json_default_limits;
    if (bytes > limits->bytes)
        DT_FAIL(DT_ERR_DATA, "%s: %zu bytes of JSON; at most %zu are accepted", source, bytes,
                limits->bytes);
    /* A value takes a byte, and a comma or a bracket, which those around it may lack at the end. */
    const size_t n = bytes / 2 + 1 + DT_JSON_DEPTH_MAX, most = (size_t)limits->n_values;
    DT_TRY_OUT(DT_NEW(made, 1));
    DT_TRY_OUT(DT_NEW(made->nodes, n < most ? n : most));
    DT_TRY_OUT(DT_NEW(made->strings, bytes + 1));
    made->end = made->strings;
    struct walk walk = {.doc = made, .max_values = limits->n_values};
    DT_TRY_OUT(dt_json_stream_open_text(&walk.stream, text, bytes, source));
    status = walk_value(&walk, &root);
    if (status == DT_OK)
        status = dt_json_stream_end(walk.stream);
    dt_json_stream_close(walk.stream);
    DT_TRY_OUT(status);
    for (int i = 0; i < made->n_nodes; i++)
        DT_TRY_OUT(check_duplicates(&made->nodes[i], source));
    *doc = made;
    made = NULL;
out:
    dt_json_destroy(made);
    return status;
}

dt_status dt_json_load(struct dt_json_doc **doc, const char *path,
                       const struct dt_json_limits *limits)
{
    char *text = NULL;
    size_t bytes = 0;
    const struct dt_json_limits *used = limits ? limits : &dt_json_default_limits;
    DT_TRY(dt_file_load(&text, &bytes, path, used->bytes));
    dt_status status = dt_json_parse(doc, text, bytes, path, used);
    free(text);
    if (status != DT_OK)
        dt_error_pass(status, __func__, __FILE__, __LINE__);
    return status;
}

dt_status dt_json_load_own(struct dt_json_doc **doc, const char *folder, const char *name,
                           const struct dt_json_limits *limits)
{
    char path[DT_PATH_MAX], *text;
    size_t bytes;
    DT_TRY(dt_file_path(path, "%s/%s", folder, name));
    DT_TRY(dt_file_load_own(&text, &bytes, path, limits->bytes));
    const dt_status status = dt_json_parse(doc, text, bytes, path, limits);
    free(text);
    return status;
}

const struct dt_json *dt_json_root(const struct dt_json_doc *doc)
{
    return doc->nodes;
}

void dt_json_destroy(struct dt_json_doc *doc)
{
    if (!doc)
        return;
    free(doc->nodes);
    free(doc->strings);
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
    const double most = 0x1p53 - 1; /* larger integers may have been rounded, also to 2^53 */
    if (!value || value->type != DT_JSON_NUMBER || value->number != trunc(value->number) ||
        fabs(value->number) > most)
        return false;
    int64_t integer = (int64_t)value->number;
    if (integer < min || integer > max)
        return false;
    *out = integer;
    return true;
}
