/* Shards in a folder, patterns of their names: "a-{0000..0009}.tar", "{x,y}", several joined by
 * "::", or folders; and _info.json, which lists them:
 * {"splits": {"train": {"filenames": [...], "shard_lengths": [...]}, ...}}. */
#include "data/shard_list.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

enum { MAX_PATHS = 1000000, MAX_DIGITS = 9 };

/* --- Tars --- */

bool dt_is_tar_name(const char *name)
{
    const char *dot = strrchr(name, '.');
    if (dot && dot - name > 4 && strncmp(dot - 4, ".tar", 4) == 0)
        dot -= 4;
    return dot && (strcmp(dot, ".tar") == 0 || strcmp(dot, ".tgz") == 0 ||
                   strcmp(dot, ".tar.gz") == 0 || strcmp(dot, ".tar.zst") == 0);
}

dt_status dt_names_list_tars(struct dt_names *names, const char *folder)
{
    dt_status status = DT_OK;
    struct dt_names entries = {0};
    char path[DT_PATH_MAX];
    bool has_plain = false;
    DT_TRY_OUT(dt_names_list(&entries, folder));
    for (size_t i = 0; i < entries.n; i++)
        has_plain |= dt_name_has_suffix(dt_names_get(&entries, i), ".tar");
    for (size_t i = 0; i < entries.n; i++) {
        const char *name = dt_names_get(&entries, i);
        if (!dt_is_tar_name(name) || (has_plain && !dt_name_has_suffix(name, ".tar")))
            continue;
        DT_TRY_OUT(dt_file_path(path, "%s/%s", folder, name));
        DT_TRY_OUT(dt_names_add(names, path, strlen(path)));
    }
out:
    dt_names_reset(&entries);
    return status;
}

bool dt_shards_found(const char *path)
{
    struct dt_names entries = {0};
    bool found = false;
    if (!dt_file_is_folder(path))
        return dt_is_tar_name(path) && dt_file_exists(path);
    if (dt_names_list(&entries, path) != DT_OK)
        dt_error_clear(); /* the next call to open it reports the error */
    for (size_t i = 0; i < entries.n && !found; i++)
        found = dt_is_tar_name(dt_names_get(&entries, i)) ||
                strcmp(dt_names_get(&entries, i), "_info.json") == 0;
    dt_names_reset(&entries);
    return found;
}

/* --- Patterns --- */

/* Part of a pattern: bytes first .. last - 1. */
struct span {
    const char *first, *last;
};

static dt_status expand(struct dt_names *names, const char *done, const char *rest);

static dt_status expand_one(struct dt_names *names, const char *done, struct span before,
                            struct span choice, const char *rest)
{
    char path[DT_PATH_MAX];
    DT_TRY(dt_file_path(path, "%s%.*s%.*s", done, (int)(before.last - before.first), before.first,
                        (int)(choice.last - choice.first), choice.first));
    return expand(names, path, rest);
}

static dt_status expand_list(struct dt_names *names, const char *done, struct span before,
                             struct span body, const char *rest)
{
    struct span choice = {.first = body.first};
    for (;;) {
        choice.last = choice.first;
        while (choice.last < body.last && *choice.last != ',')
            choice.last++;
        DT_TRY(expand_one(names, done, before, choice, rest));
        if (choice.last == body.last)
            return DT_OK;
        choice.first = choice.last + 1;
    }
}

/* True if `body` has the form digits..digits. */
static bool find_range(struct span body, struct span *low, struct span *high)
{
    const char *digits = "0123456789";
    const size_t n_low = strspn(body.first, digits);
    if (n_low < 1 || strncmp(body.first + n_low, "..", 2) != 0)
        return false;
    *low = (struct span){body.first, body.first + n_low};
    high->first = low->last + 2;
    high->last = high->first + strspn(high->first, digits);
    return high->last > high->first && high->last == body.last;
}

static dt_status expand_range(struct dt_names *names, const char *done, struct span before,
                              struct span low, struct span high, const char *rest)
{
    const int n_low = (int)(low.last - low.first), n_high = (int)(high.last - high.first);
    const bool padded = (*low.first == '0' && n_low > 1) || (*high.first == '0' && n_high > 1);
    const int width = !padded ? 0 : n_low > n_high ? n_low : n_high;
    char number[16];
    if (n_low > MAX_DIGITS || n_high > MAX_DIGITS)
        DT_FAIL(DT_ERR_CONFIG, "a number in the range {%.*s..%.*s} has more than %d digits", n_low,
                low.first, n_high, high.first, MAX_DIGITS);
    const long from = strtol(low.first, NULL, 10), to = strtol(high.first, NULL, 10);
    if (from > to)
        DT_FAIL(DT_ERR_CONFIG, "the shard range {%.*s..%.*s} is descending", n_low, low.first,
                n_high, high.first);
    for (long i = from; i <= to; i++) {
        const int n = snprintf(number, sizeof number, "%0*ld", width, i);
        DT_TRY(expand_one(names, done, before, (struct span){number, number + n}, rest));
    }
    return DT_OK;
}

/* `done` is already expanded; adds it followed by each expansion of `rest`. */
static dt_status expand(struct dt_names *names, const char *done, const char *rest)
{
    const size_t n_before = strcspn(rest, "{}");
    const struct span before = {rest, rest + n_before};
    if (rest[n_before] == 0) {
        char path[DT_PATH_MAX];
        if (names->n >= MAX_PATHS)
            DT_FAIL(DT_ERR_CONFIG, "a shard pattern expands to more than %d files", MAX_PATHS);
        DT_TRY(dt_file_path(path, "%s%s", done, rest));
        return dt_names_add(names, path, strlen(path));
    }
    const struct span body = {before.last + 1, before.last + 1 + strcspn(before.last + 1, "{}")};
    if (*before.last != '{' || *body.last != '}')
        DT_FAIL(DT_ERR_CONFIG, "the braces in %s%s do not match (they cannot be nested)", done,
                rest);
    struct span low, high;
    if (find_range(body, &low, &high))
        return expand_range(names, done, before, low, high, body.last + 1);
    if (memchr(body.first, ',', (size_t)(body.last - body.first)))
        return expand_list(names, done, before, body, body.last + 1);
    DT_FAIL(DT_ERR_CONFIG, "{%.*s} in %s%s is neither a range like {0000..0009} nor a list {a,b}",
            (int)(body.last - body.first), body.first, done, rest);
}

dt_status dt_brace_expand(struct dt_names *names, const char *pattern)
{
    char spec[DT_PATH_MAX];
    for (const char *first = pattern;;) {
        const char *joint = strstr(first, "::");
        DT_TRY(
            dt_file_path(spec, "%.*s", (int)(joint ? joint - first : (long)strlen(first)), first));
        if (!spec[0])
            DT_FAIL(DT_ERR_CONFIG, "the shard pattern '%s' has an empty part", pattern);
        const bool is_folder = dt_file_is_folder(spec);
        const size_t n_before = names->n;
        DT_TRY(is_folder ? dt_names_list_tars(names, spec) : expand(names, "", spec));
        if (is_folder && names->n == n_before)
            DT_FAIL(DT_ERR_NO_INPUT,
                    "folder %s holds no .tar files; for class folders set data.source=folder",
                    spec);
        if (!joint)
            return DT_OK;
        first = joint + 2;
    }
}

/* --- _info.json --- */

static const struct dt_json_limits info_limits = {.bytes = 64 << 20, .n_values = 2100000};

static dt_status add_split(struct dt_shard_info *info, const struct dt_json *split)
{
    const struct dt_json *files = dt_json_get(split, "filenames");
    const struct dt_json *lengths = dt_json_get(split, "shard_lengths");
    if (!files || !lengths || files->type != DT_JSON_ARRAY || lengths->type != DT_JSON_ARRAY ||
        files->n_children != lengths->n_children)
        DT_FAIL(DT_ERR_DATA,
                "%s:%d: split %s needs the lists filenames and shard_lengths of equal length",
                info->path, split->line, split->key);
    size_t n_splits = (size_t)info->n_splits;
    DT_TRY(DT_GROW(info->num_samples, n_splits, n_splits, "splits"));
    int64_t *total = &info->num_samples[info->n_splits];
    if (!dt_json_integer(dt_json_get(split, "num_samples"), 0, INT64_MAX, total))
        *total = -1;
    DT_TRY(dt_names_add(&info->splits, split->key, strlen(split->key)));
    const size_t n = info->n_lengths + (size_t)files->n_children;
    size_t capacity = info->n_lengths;
    DT_TRY(DT_GROW(info->lengths, capacity, n, "shard lengths"));
    capacity = info->n_lengths;
    DT_TRY(DT_GROW(info->split, capacity, n, "shard splits"));
    const struct dt_json *length = lengths->child;
    for (const struct dt_json *file = files->child; file; file = file->next) {
        int64_t value;
        if (file->type != DT_JSON_STRING || !dt_json_integer(length, 0, UINT32_MAX, &value))
            DT_FAIL(DT_ERR_DATA, "%s:%d: a shard needs a name and a number of samples", info->path,
                    file->line);
        DT_TRY(dt_names_add(&info->filenames, file->string, strlen(file->string)));
        info->split[info->n_lengths] = (uint32_t)info->n_splits;
        info->lengths[info->n_lengths++] = (uint32_t)value;
        length = length->next;
    }
    info->n_splits++;
    return DT_OK;
}

dt_status dt_shard_info_load(struct dt_shard_info *info, const char *folder)
{
    dt_status status = DT_OK;
    struct dt_json_doc *doc = NULL;
    DT_TRY(dt_file_path(info->path, "%s/_info.json", folder));
    if (!dt_file_exists(info->path))
        return DT_OK;
    DT_TRY(dt_json_load(&doc, info->path, &info_limits));
    const struct dt_json *splits = dt_json_get(dt_json_root(doc), "splits");
    if (!splits || splits->type != DT_JSON_OBJECT)
        DT_TRY_OUT(DT_ERROR(DT_ERR_DATA, "%s has no object named splits", info->path));
    for (const struct dt_json *split = splits->child; split; split = split->next)
        DT_TRY_OUT(add_split(info, split));
out:
    dt_json_destroy(doc);
    return status;
}

bool dt_shard_info_find(struct dt_shard_info *info, const char *name, uint32_t *length)
{
    /* Shards are looked up in order, so the search continues where the last one ended. */
    for (size_t i = 0; i < info->filenames.n; i++) {
        const size_t at = (info->cursor + i) % info->filenames.n;
        if (strcmp(dt_names_get(&info->filenames, at), name) != 0)
            continue;
        info->cursor = at + 1;
        *length = info->lengths[at];
        return true;
    }
    return false;
}

void dt_shard_info_reset(struct dt_shard_info *info)
{
    dt_names_reset(&info->splits);
    dt_names_reset(&info->filenames);
    free(info->num_samples);
    free(info->lengths);
    free(info->split);
    *info = (struct dt_shard_info){0};
}
