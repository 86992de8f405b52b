/* RUN as JSON. The checksum is that of the record as this program prints it without one: what does
 * not change a value, such as white space, does not matter. */
#include "checkpoint/run_record.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "base/file.h"
#include "base/json.h"

enum { CHECK_MAX = 17 };
static const int64_t most = INT64_C(1) << 53; /* exact in JSON */

static dt_status print(struct dt_jsonw *w, const struct dt_run_record *record, const char *check)
{
    dt_jsonw_init(w, true);
    dt_jsonw_begin(w, NULL, '{');
    dt_jsonw_string(w, "run_id", record->run_id);
    dt_jsonw_integer(w, "incarnation", record->incarnation);
    dt_jsonw_string(w, "state", record->is_running ? "running" : "ended");
    dt_jsonw_integer(w, "exit_code", record->exit_code);
    dt_jsonw_integer(w, "step", record->step);
    dt_jsonw_string(w, "host", record->host);
    dt_jsonw_integer(w, "pid", record->pid);
    dt_jsonw_string(w, "memory_group", record->kills.group);
    dt_jsonw_integer(w, "memory_kills", record->kills.n);
    if (check)
        dt_jsonw_string(w, "check", check);
    dt_jsonw_close(w, '}');
    return dt_jsonw_end(w);
}

static dt_status compute_check(char check[CHECK_MAX], const struct dt_run_record *record)
{
    struct dt_jsonw w;
    dt_status status = print(&w, record, NULL);
    if (status == DT_OK)
        snprintf(check, CHECK_MAX, "%016" PRIx64, (uint64_t)XXH3_64bits(w.text, w.bytes));
    dt_jsonw_reset(&w);
    return status;
}

dt_status dt_run_record_save(const char *path, const struct dt_run_record *record)
{
    char check[CHECK_MAX];
    struct dt_jsonw w;
    DT_TRY(compute_check(check, record));
    dt_status status = print(&w, record, check);
    if (status == DT_OK)
        status = dt_file_save(path, w.text, w.bytes);
    dt_jsonw_reset(&w);
    DT_TRY(status);
    return DT_OK;
}

/* False if the member is no string of fewer than `bytes` bytes. */
static bool get_text(char *out, size_t bytes, const struct dt_json *object, const char *key)
{
    const struct dt_json *value = dt_json_get(object, key);
    return value && value->type == DT_JSON_STRING &&
           snprintf(out, bytes, "%s", value->string) < (int)bytes;
}

static bool get_integer(int64_t *out, const struct dt_json *object, const char *key, int64_t least)
{
    const struct dt_json *value = dt_json_get(object, key);
    return value && dt_json_integer(value, least, most, out);
}

static bool parse(struct dt_run_record *record, char check[CHECK_MAX], const struct dt_json *root)
{
    char state[16];
    int64_t exit_code;
    bool good = get_text(record->run_id, sizeof record->run_id, root, "run_id") &&
                get_integer(&record->incarnation, root, "incarnation", 1) &&
                get_text(state, sizeof state, root, "state") &&
                get_integer(&exit_code, root, "exit_code", 0) && exit_code <= 255 &&
                get_integer(&record->step, root, "step", -1) &&
                get_text(record->host, sizeof record->host, root, "host") &&
                get_integer(&record->pid, root, "pid", 0) &&
                get_text(record->kills.group, sizeof record->kills.group, root, "memory_group") &&
                get_integer(&record->kills.n, root, "memory_kills", 0) &&
                get_text(check, CHECK_MAX, root, "check");
    if (!good)
        return false;
    record->is_running = strcmp(state, "running") == 0;
    record->exit_code = (int)exit_code;
    return record->is_running || strcmp(state, "ended") == 0;
}

dt_status dt_run_record_load(struct dt_run_record *record, const char *path)
{
    char found[CHECK_MAX], expected[CHECK_MAX];
    struct dt_json_doc *doc;
    *record = (struct dt_run_record){0};
    DT_TRY(dt_json_load(&doc, path, NULL));
    bool good = parse(record, found, dt_json_root(doc));
    dt_json_destroy(doc);
    if (good)
        DT_TRY(compute_check(expected, record));
    if (!good || strcmp(found, expected) != 0)
        DT_FAIL(DT_ERR_DATA, "%s is damaged: it is not as it was written", path);
    return DT_OK;
}
