#include "pack/sidecars.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/wds_pair.h"

enum { MAX_FILE = 256 << 20, DIGITS = 16, NAME_AT = DIGITS + 2 };

/* --- Checksums: a short list, searched linearly: a few thousand shards at most --- */

dt_status dt_checksums_add(struct dt_checksums *sums, const char *file, uint64_t sum)
{
    DT_TRY(DT_GROW(sums->sums, sums->capacity, sums->files.n, "checksums"));
    sums->sums[sums->files.n] = sum;
    return dt_names_add(&sums->files, file, strlen(file));
}

/* xxhsum writes two spaces, or a space and an asterisk for binary mode. */
static bool parse_line(const char *line, uint64_t *sum)
{
    char digits[DIGITS + 1] = {0};
    if (strspn(line, "0123456789abcdefABCDEF") != DIGITS || line[DIGITS] != ' ' ||
        (line[DIGITS + 1] != ' ' && line[DIGITS + 1] != '*') || !line[NAME_AT])
        return false;
    memcpy(digits, line, DIGITS);
    *sum = strtoull(digits, NULL, 16);
    return true;
}

dt_status dt_checksums_load(struct dt_checksums *sums, const char *folder)
{
    dt_status status = DT_OK;
    char path[DT_PATH_MAX], *text = NULL;
    size_t bytes, number = 1;
    uint64_t sum;
    DT_TRY(dt_file_path(path, "%s/" DT_CHECKSUMS_NAME, folder));
    sums->found = dt_file_exists(path);
    if (!sums->found)
        return DT_OK;
    DT_TRY(dt_file_load(&text, &bytes, path, MAX_FILE));
    for (char *line = text, *next; *line; line = next, number++) {
        char *end = line + strcspn(line, "\n");
        next = end + (*end == '\n');
        *end = 0;
        if (parse_line(line, &sum))
            DT_TRY_OUT(dt_checksums_add(sums, line + NAME_AT, sum));
        else if (sums->bad_line == 0)
            sums->bad_line = number;
    }
out:
    free(text);
    return status;
}

bool dt_checksums_find(const struct dt_checksums *sums, const char *file, uint64_t *sum)
{
    for (size_t i = 0; i < sums->files.n; i++)
        if (strcmp(dt_names_get(&sums->files, i), file) == 0) {
            *sum = sums->sums[i];
            return true;
        }
    return false;
}

dt_status dt_checksums_save(const struct dt_checksums *sums, const char *folder)
{
    dt_status status = DT_OK;
    struct dt_names text = {0};
    char path[DT_PATH_MAX], line[DT_PATH_MAX];
    for (size_t i = 0; i < sums->files.n; i++) {
        DT_TRY_OUT(
            dt_file_path(line, "%016" PRIx64 "  %s", sums->sums[i], dt_names_get(&sums->files, i)));
        DT_TRY_OUT(dt_names_add(&text, line, strlen(line)));
        text.text[text.bytes - 1] = '\n';
    }
    DT_TRY_OUT(dt_file_path(path, "%s/" DT_CHECKSUMS_NAME, folder));
    DT_TRY_OUT(dt_file_save(path, text.text, text.bytes));
out:
    dt_names_reset(&text);
    return status;
}

void dt_checksums_reset(struct dt_checksums *sums)
{
    dt_names_reset(&sums->files);
    free(sums->sums);
    *sums = (struct dt_checksums){0};
}

/* --- Indices: the text is appended to member by member --- */

dt_status dt_wds_index_add(struct dt_wds_index *index, const char *name, uint64_t offset,
                           uint64_t bytes)
{
    char text[2 * sizeof index->key + 64];
    const size_t key_bytes = dt_wds_key(name);
    if (key_bytes == 0 || key_bytes >= sizeof index->key)
        return DT_OK;
    const bool is_same = strncmp(index->key, name, key_bytes) == 0 && index->key[key_bytes] == 0;
    const int n = snprintf(text, sizeof text, "%s%s %" PRIu64 " %" PRIu64 " %s",
                           is_same        ? " "
                           : index->n > 0 ? "\n"
                                          : "",
                           name + key_bytes + 1, offset, bytes, name);
    DT_TRY(DT_GROW(index->text, index->capacity, index->bytes + (size_t)n, "shard index"));
    memcpy(index->text + index->bytes, text, (size_t)n);
    index->bytes += (size_t)n;
    if (is_same)
        return DT_OK;
    memcpy(index->key, name, key_bytes);
    index->key[key_bytes] = 0;
    index->n++;
    return DT_OK;
}

dt_status dt_wds_index_finish(const struct dt_wds_index *index, char **text, size_t *bytes)
{
    char head[32];
    const int n = snprintf(head, sizeof head, "v1.2 %u\n", (unsigned)index->n);
    DT_TRY(DT_NEW(*text, (size_t)n + index->bytes + 1));
    memcpy(*text, head, (size_t)n);
    *bytes = (size_t)n;
    if (index->n == 0)
        return DT_OK;
    memcpy(*text + n, index->text, index->bytes);
    *bytes += index->bytes;
    (*text)[(*bytes)++] = '\n';
    return DT_OK;
}

void dt_wds_index_reset(struct dt_wds_index *index)
{
    free(index->text);
    *index = (struct dt_wds_index){0};
}

dt_status dt_wds_index_path(char *out, const char *shard)
{
    const char *dot = strrchr(shard, '.');
    return dt_file_path(out, "%.*s.idx", (int)(dot ? dot - shard : (ptrdiff_t)strlen(shard)),
                        shard);
}
