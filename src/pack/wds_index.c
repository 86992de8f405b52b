/* The text is appended to member by member. */
#include "pack/wds_index.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/wds_pair.h"

static dt_status append(struct dt_wds_index *index, const char *text, size_t bytes)
{
    void *block = index->text;
    DT_TRY(dt_mem_grow(&block, &index->capacity, index->bytes + bytes, 1, "shard index"));
    index->text = block;
    memcpy(index->text + index->bytes, text, bytes);
    index->bytes += bytes;
    return DT_OK;
}

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
    DT_TRY(append(index, text, (size_t)n));
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
