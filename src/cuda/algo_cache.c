/* The choices of earlier runs in <folder>/cudnn-plans.json:
 *
 *   {"version": 2, "plans": {"<GPU, cuDNN: task, rules>": {"candidate": 3, "plan": "eng45_k2=1",
 *      "us": 81.3, "runner_up": "eng47", "runner_up_us": 83.0}, ...}}
 *
 * The file is replaced as a whole by renaming a temporary file with a unique name, so that jobs
 * which write at the same time never mix; one of two such jobs may lose its additions and choose
 * again. The file may be lost or damaged at any time: it only saves time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "cuda/cuda_conv.h"

/* A new version for new rules of choosing, or if tasks are put to cuDNN in another way. */
enum { VERSION = 2, KEY_MAX = 512 };

/* A file beyond these limits counts as damaged, and a new one is begun. */
static const struct dt_json_limits limits = {.bytes = 2 << 20, .n_values = 30000};

struct entry {
    char *key;
    struct dt_conv_choice choice;
};

struct dt_algo_cache {
    char folder[DT_PATH_MAX], path[DT_PATH_MAX];
    char scope[KEY_MAX / 2];
    struct entry *entries;
    size_t n_entries, capacity;
    bool changed;
};

static struct entry *find_entry(const struct dt_algo_cache *cache, const char *key)
{
    for (size_t i = 0; i < cache->n_entries; i++)
        if (strcmp(cache->entries[i].key, key) == 0)
            return &cache->entries[i];
    return NULL;
}

static dt_status add_entry(struct dt_algo_cache *cache, const char *key,
                           const struct dt_conv_choice *choice)
{
    size_t bytes = strlen(key) + 1;
    DT_TRY(DT_GROW(cache->entries, cache->capacity, cache->n_entries, "choices of algorithms"));
    char *copy = dt_mem_alloc(bytes, 1, "a choice of an algorithm");
    if (!copy)
        return DT_ERR_MEMORY;
    memcpy(copy, key, bytes);
    cache->entries[cache->n_entries++] = (struct entry){.key = copy, .choice = *choice};
    return DT_OK;
}

static void clear(struct dt_algo_cache *cache)
{
    for (size_t i = 0; i < cache->n_entries; i++)
        free(cache->entries[i].key);
    cache->n_entries = 0;
}

/* --- Reading --- */

/* The text of a member, "" if there is none; false if it is not a text of a tag's length. */
static bool read_tag(char out[DT_DNN_TAG_MAX], const struct dt_json *member)
{
    return dt_json_text(member, out, DT_DNN_TAG_MAX) || !member;
}

/* Adds the entries of the file. */
static dt_status merge_file(struct dt_algo_cache *cache)
{
    struct dt_json_doc *doc = NULL;
    int64_t version;
    dt_status status = DT_OK;
    if (!dt_file_exists(cache->path))
        return DT_OK;
    DT_TRY(dt_json_load(&doc, cache->path, &limits));
    const struct dt_json *root = dt_json_root(doc), *plans = dt_json_get(root, "plans");
    if (!dt_json_integer(dt_json_get(root, "version"), VERSION, VERSION, &version) || !plans ||
        plans->type != DT_JSON_OBJECT)
        DT_TRY_OUT(
            DT_ERROR(DT_ERR_DATA, "%s: not a version %d list of algorithms", cache->path, VERSION));
    for (const struct dt_json *value = plans->child; value; value = value->next) {
        struct dt_conv_choice choice = {.seconds = 1e-6 * dt_json_number(value, "us"),
                                        .runner_up_s =
                                            1e-6 * dt_json_number(value, "runner_up_us")};
        if (!dt_json_integer(dt_json_get(value, "candidate"), 0, DT_DNN_MAX_CANDIDATES - 1,
                             &choice.candidate) ||
            !read_tag(choice.tag, dt_json_get(value, "plan")) || !choice.tag[0] ||
            !read_tag(choice.runner_up, dt_json_get(value, "runner_up")))
            DT_TRY_OUT(DT_ERROR(
                DT_ERR_DATA, "%s:%d:%d: a choice needs the number 'candidate' and the text 'plan'",
                cache->path, value->line, value->column));
        /* Entries put by this process are newer. */
        DT_TRY_OUT(find_entry(cache, value->key) ? DT_OK : add_entry(cache, value->key, &choice));
    }
out:
    dt_json_destroy(doc);
    return status;
}

dt_status dt_algo_cache_open(struct dt_algo_cache **out, const char *folder, const char *scope)
{
    struct dt_algo_cache *cache = NULL;
    dt_status status = DT_OK;
    *out = NULL;
    DT_TRY(DT_NEW(cache, 1));
    snprintf(cache->scope, sizeof(cache->scope), "%s", scope);
    if (folder[0]) {
        DT_TRY_OUT(dt_file_path(cache->folder, "%s", folder));
        DT_TRY_OUT(dt_file_path(cache->path, "%s/cudnn-plans.json", folder));
        if (merge_file(cache) != DT_OK) {
            dt_log(DT_LOG_WARNING, "%s; convolution algorithms are chosen again", dt_error_text());
            dt_error_clear();
            clear(cache);
        }
    }
    *out = cache;
    cache = NULL;
out:
    dt_algo_cache_close(cache);
    return status;
}

bool dt_algo_cache_get(const struct dt_algo_cache *cache, const char *key,
                       struct dt_conv_choice *out)
{
    char full[KEY_MAX];
    snprintf(full, sizeof full, "%s: %s", cache->scope, key);
    const struct entry *entry = find_entry(cache, full);
    if (entry)
        *out = entry->choice;
    return entry != NULL;
}

/* --- Writing --- */

dt_status dt_algo_cache_put(struct dt_algo_cache *cache, const char *key,
                            const struct dt_conv_choice *choice)
{
    char full[KEY_MAX];
    snprintf(full, sizeof full, "%s: %s", cache->scope, key);
    struct entry *entry = find_entry(cache, full);
    cache->changed = true;
    if (!entry)
        return add_entry(cache, full, choice);
    entry->choice = *choice;
    return DT_OK;
}

void dt_algo_cache_save(struct dt_algo_cache *cache)
{
    struct dt_jsonw w = {.pretty = true};
    dt_status status = DT_OK;
    if (!cache->folder[0] || !cache->changed)
        return;
    DT_TRY_OUT(dt_file_make_folder(cache->folder));
    if (merge_file(cache) != DT_OK)
        dt_error_clear(); /* already reported by open: whatever can be read is kept */
    dt_jsonw_add(&w, "{version: %d, plans: {", VERSION);
    for (size_t i = 0; i < cache->n_entries; i++) {
        const struct dt_conv_choice *choice = &cache->entries[i].choice;
        dt_jsonw_begin(&w, cache->entries[i].key, '{');
        dt_jsonw_integer(&w, "candidate", choice->candidate);
        dt_jsonw_add(&w, "plan: %s, us: %g", choice->tag, 1e6 * choice->seconds);
        if (choice->runner_up[0])
            dt_jsonw_add(&w, "runner_up: %s, runner_up_us: %g", choice->runner_up,
                         1e6 * choice->runner_up_s);
        dt_jsonw_close(&w, '}');
    }
    dt_jsonw_add(&w, "}}");
    DT_TRY_OUT(dt_jsonw_end(&w));
    DT_TRY_OUT(dt_file_save(cache->path, w.text, w.bytes));
    cache->changed = false;
out:
    dt_jsonw_reset(&w);
    if (status != DT_OK) {
        dt_log(DT_LOG_WARNING, "%s; the next run chooses convolution algorithms again",
               dt_error_text());
        dt_error_clear();
        cache->folder[0] = '\0'; /* warn only once */
    }
}

void dt_algo_cache_close(struct dt_algo_cache *cache)
{
    if (!cache)
        return;
    clear(cache);
    free(cache->entries);
    free(cache);
}
