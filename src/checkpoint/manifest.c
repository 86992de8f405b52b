/* Printing is the one definition of the text: a manifest is accepted only if printing what was read
 * gives the same bytes again, checksum included, so no damage can hide in spaces, in the order of
 * the members, in a number written differently or after the end. */
#include "checkpoint/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/build.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/member.h"

const char dt_manifest_name[] = "MANIFEST.json";

enum { OTHER_VALUES = 128 };
static const int64_t integer_max = INT64_C(1) << 53; /* exact in JSON's doubles */
static const struct dt_json_limits limits = {.bytes = DT_MANIFEST_MAX_BYTES,
                                             .n_values = DT_MANIFEST_MAX_TENSORS + OTHER_VALUES};

#define ROW(...) DT_MEMBER(struct dt_manifest, __VA_ARGS__)
enum { N_NUMBERS = 6 }; /* then texts, which are cleaned before they are printed */
static const struct dt_member members[] = {
    ROW(INT64, step, "step"),    ROW(INT64, epoch, "epoch"),
    ROW(INT64, batch, "batch"),  ROW(INT64, incarnation, "incarnation"),
    ROW(INT, n_ranks, "ranks"),  ROW(INT, global_batch_size, "global_batch_size"),
    ROW(TEXT, run_id, "run_id"), ROW(TEXT, build_id, "build_id"),
    ROW(TEXT, repro, "repro"),   ROW(HASH, config_hash, "config_hash"),
};

/* --- Printing --- */

static bool is_printable(char c)
{
    return c >= ' ' && c <= '~';
}

/* Names of devices and libraries may contain any bytes, so they are truncated and cleaned. */
static void print_text(struct dt_jsonw *w, const char *key, const char *text)
{
    char clean[sizeof((struct dt_manifest *)0)->repro];
    snprintf(clean, sizeof clean, "%s", text);
    for (char *c = clean; *c; c++)
        if (!is_printable(*c))
            *c = '?';
    dt_jsonw_string(w, key, clean);
}

static void print_hash(struct dt_jsonw *w, const char *key, uint64_t hash)
{
    char text[DT_HASH_DIGITS + 1];
    dt_hash_write(text, hash);
    dt_jsonw_string(w, key, text);
}

void dt_hash_format(char out[DT_HASH_TEXT], struct dt_hash hash)
{
    dt_hash_write(out, hash.high);
    dt_hash_write(out + DT_HASH_DIGITS, hash.low);
}

static void print_wide_hash(struct dt_jsonw *w, const char *key, struct dt_hash hash)
{
    char text[DT_HASH_TEXT];
    dt_hash_format(text, hash);
    dt_jsonw_string(w, key, text);
}

static dt_status print_manifest(struct dt_jsonw *w, const struct dt_manifest *manifest)
{
    const struct dt_manifest_file *files_end = manifest->files + manifest->n_files;
    *w = (struct dt_jsonw){.pretty = true};
    dt_jsonw_add(w, "{format: %d", DT_MANIFEST_FORMAT);
    dt_members_write(w, members, N_NUMBERS, manifest);
    print_text(w, "run_id", manifest->run_id);
    print_text(w, "build_id", manifest->build_id);
    print_text(w, "repro", manifest->repro);
    print_hash(w, "config_hash", manifest->config_hash);
    dt_jsonw_begin(w, "files", '{');
    for (const struct dt_manifest_file *f = manifest->files; f < files_end; f++) {
        dt_jsonw_begin(w, f->name, '{');
        dt_jsonw_integer(w, "bytes", (int64_t)f->bytes);
        print_wide_hash(w, "hash", f->hash);
        if (f->n_tensors > 0)
            dt_jsonw_begin(w, "tensors", '{');
        for (int i = 0; i < f->n_tensors; i++)
            print_hash(w, f->tensors[i].name, f->tensors[i].hash);
        if (f->n_tensors > 0)
            dt_jsonw_close(w, '}');
        dt_jsonw_close(w, '}');
    }
    dt_jsonw_close(w, '}');
    if (w->failed)
        DT_FAIL(DT_ERR_MEMORY, "out of memory while writing %s", dt_manifest_name);
    XXH128_hash_t sum = XXH3_128bits(w->text, w->bytes);
    print_wide_hash(w, "checksum", (struct dt_hash){.low = sum.low64, .high = sum.high64});
    dt_jsonw_close(w, '}');
    return dt_jsonw_end(w);
}

/* --- Reading --- */

static bool is_printable_text(const char *text)
{
    while (is_printable(*text))
        text++;
    return *text == '\0';
}

static dt_status parse_tensors(struct dt_manifest_file *file, const struct dt_json *list,
                               int *n_left, const char *path)
{
    if (list->type != DT_JSON_OBJECT || list->n_children > *n_left)
        DT_FAIL(DT_ERR_DATA, "%s: the tensors of %s are not a list of at most %d", path, file->name,
                DT_MANIFEST_MAX_TENSORS);
    *n_left -= list->n_children;
    DT_TRY(DT_NEW(file->tensors, (size_t)list->n_children));
    for (const struct dt_json *t = list->child; t; t = t->next) {
        struct dt_manifest_tensor *tensor = &file->tensors[file->n_tensors++];
        bool ok = strlen(t->key) < sizeof tensor->name && is_printable_text(t->key) &&
                  t->type == DT_JSON_STRING && strlen(t->string) == DT_HASH_DIGITS &&
                  dt_hash_read(&tensor->hash, t->string);
        if (!ok)
            DT_FAIL(DT_ERR_DATA, "%s:%d:%d: not a tensor's checksum", path, t->line, t->column);
        snprintf(tensor->name, sizeof tensor->name, "%s", t->key);
    }
    return DT_OK;
}

static dt_status parse_file(struct dt_manifest_file *file, const struct dt_json *entry, int *n_left,
                            const char *path)
{
    int64_t bytes;
    char hash[DT_HASH_TEXT];
    const char *name = entry->key;
    /* The name is not "..", not hidden, and not outside the folder. */
    bool ok = name[0] != '\0' && name[0] != '.' && strlen(name) < DT_MANIFEST_NAME_MAX &&
              !strchr(name, '/') && is_printable_text(name);
    ok = ok && dt_json_integer(dt_json_get(entry, "bytes"), 0, integer_max, &bytes);
    ok = ok && dt_json_text(dt_json_get(entry, "hash"), hash, sizeof hash) &&
         strlen(hash) == 2 * DT_HASH_DIGITS && dt_hash_read(&file->hash.high, hash) &&
         dt_hash_read(&file->hash.low, hash + DT_HASH_DIGITS);
    if (!ok)
        DT_FAIL(DT_ERR_DATA, "%s:%d:%d: not the name, size and checksum of a file", path,
                entry->line, entry->column);
    snprintf(file->name, sizeof file->name, "%s", name);
    file->bytes = (uint64_t)bytes;
    const struct dt_json *tensors = dt_json_get(entry, "tensors");
    return tensors ? parse_tensors(file, tensors, n_left, path) : DT_OK;
}

dt_status dt_manifest_check_format(const struct dt_json *root, int format, const char *path)
{
    int64_t found;
    if (!dt_json_integer(dt_json_get(root, "format"), 0, integer_max, &found))
        DT_FAIL(DT_ERR_DATA, "%s: it has no format number", path);
    if (found != format)
        DT_FAIL(DT_ERR_DATA, "%s: its format is %" PRId64 ", and dtrain %s reads format %d", path,
                found, dt_version, format);
    return DT_OK;
}

static dt_status parse_manifest(struct dt_manifest *manifest, const struct dt_json *root,
                                const char *path)
{
    int n_left = DT_MANIFEST_MAX_TENSORS;
    const struct dt_json *files = dt_json_get(root, "files");
    DT_TRY(dt_manifest_check_format(root, DT_MANIFEST_FORMAT, path));
    if (!dt_members_read(manifest, members, DT_COUNT(members), root) || !files ||
        files->n_children > DT_MANIFEST_MAX_FILES)
        DT_FAIL(DT_ERR_DATA, "%s: members are missing or have wrong values", path);
    for (const struct dt_json *entry = files->child; entry; entry = entry->next)
        DT_TRY(parse_file(&manifest->files[manifest->n_files++], entry, &n_left, path));
    return DT_OK;
}

static dt_status read_text(struct dt_manifest *manifest, const char *text, size_t bytes,
                           const char *path)
{
    struct dt_json_doc *doc = NULL;
    struct dt_jsonw w = {0};
    dt_status status = DT_OK;
    *manifest = (struct dt_manifest){0};
    DT_TRY(dt_json_parse(&doc, text, bytes, path, &limits));
    DT_TRY_OUT(parse_manifest(manifest, dt_json_root(doc), path));
    DT_TRY_OUT(print_manifest(&w, manifest));
    if (w.bytes != bytes || memcmp(w.text, text, bytes) != 0)
        DT_TRY_OUT(DT_ERROR(DT_ERR_DATA, "%s: its text does not match its checksum", path));
out:
    dt_jsonw_reset(&w);
    dt_json_destroy(doc);
    if (status != DT_OK)
        dt_manifest_reset(manifest);
    return status;
}

/* --- Interface --- */

/* A manifest that could not be read back must not be written either. */
dt_status dt_manifest_print(struct dt_jsonw *w, const struct dt_manifest *manifest)
{
    struct dt_manifest *back = NULL;
    DT_TRY(print_manifest(w, manifest));
    DT_TRY(DT_NEW(back, 1));
    dt_status status = read_text(back, w->text, w->bytes, dt_manifest_name);
    dt_manifest_reset(back);
    free(back);
    return status == DT_OK ? DT_OK : dt_error_pass(status, __func__, __FILE__, __LINE__);
}

dt_status dt_manifest_load(struct dt_manifest *manifest, const char *folder)
{
    char path[DT_PATH_MAX], *text = NULL;
    size_t bytes = 0;
    *manifest = (struct dt_manifest){0};
    DT_TRY(dt_file_path(path, "%s/%s", folder, dt_manifest_name));
    DT_TRY(dt_file_load(&text, &bytes, path, DT_MANIFEST_MAX_BYTES));
    dt_status status = read_text(manifest, text, bytes, path);
    free(text);
    return status == DT_OK ? DT_OK : dt_error_pass(status, __func__, __FILE__, __LINE__);
}

void dt_manifest_reset(struct dt_manifest *manifest)
{
    for (int i = 0; i < manifest->n_files; i++)
        free(manifest->files[i].tensors);
    *manifest = (struct dt_manifest){0};
}
