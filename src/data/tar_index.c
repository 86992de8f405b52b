/* The index of one shard, pairs of image and label, and its copy in the cache. */
#include "data/tar_index.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <xxhash.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "base/text.h"
#include "boxes/wds_boxes.h"
#include "data/block.h"
#include "data/dataset.h"
#include "data/wds_pair.h"

enum { MAX_LABEL_BYTES = 32, SUFFIXES_BYTES = 256 };

/* The sample being assembled. */
struct pairing {
    struct dt_tar_index *index;
    const char *path;
    const char *label_key;
    struct dt_wds_pair pair;
    struct dt_sample json; /* of the sample */
    struct dt_tar_entry entry;
    size_t n_unused; /* samples that look like one, but have no image and no label */
};

struct suffixes {
    const char *key;
    struct dt_text text; /* " .a .b " */
};

static dt_status add_suffix(void *context, const struct dt_tar_member *member)
{
    struct suffixes *found = context;
    const size_t bytes = dt_wds_key(member->name);
    char suffix[DT_WDS_KEY_MAX + 3];
    snprintf(suffix, sizeof suffix, " %s ", member->name + bytes);
    if (bytes &&
        (!found->key || (!strncmp(member->name, found->key, bytes) && !found->key[bytes])) &&
        !strstr(found->text.at, suffix))
        dt_text_add_whole(&found->text, "%s", suffix + 1);
    return DT_OK;
}

/* The suffixes of the members of a sample, key NULL: of all, each once: " .cls .jpg"; found by
 * reading the headers again. */
static void list_suffixes(char *out, size_t bytes, const char *path, const char *key)
{
    struct suffixes found = {key, dt_text_in(out, bytes)};
    int n_skipped;
    dt_text_add(&found.text, " ");
    if (dt_tar_walk(path, add_suffix, &found, &n_skipped) != DT_OK)
        dt_error_clear(); /* the suffixes are for another message */
    out[found.text.used - 1] = '\0';
}

static dt_status end_sample(struct pairing *pairing)
{
    const struct dt_wds_pair *pair = &pairing->pair;
    struct dt_tar_index *index = pairing->index;
    char suffixes[SUFFIXES_BYTES];
    if (dt_wds_lacks(pair)) {
        list_suffixes(suffixes, sizeof suffixes, pairing->path, pair->key);
        DT_FAIL(DT_ERR_DATA,
                "sample %s of shard %s has no %s, only%s; its members must be adjacent", pair->key,
                pairing->path, dt_wds_lacks(pair), suffixes);
    }
    pairing->n_unused += !pair->has_image && pair->has_like;
    if (!pair->has_image)
        return DT_OK;
    if (dt_wds_needs_json(pair))
        DT_TRY(dt_tar_json_label(&pairing->entry.label, &pairing->json, pairing->label_key,
                                 pair->key, pairing->path));
    if (index->n >= DT_MAX_SAMPLES)
        DT_FAIL(DT_ERR_DATA, "shard %s holds more than %d samples", pairing->path, DT_MAX_SAMPLES);
    DT_TRY(DT_GROW(index->entries, index->capacity, index->n, "shard index"));
    pairing->entry.key = dt_wds_hash(dt_file_base(pairing->path), pair->key);
    index->entries[index->n++] = pairing->entry;
    index->hash = XXH64(pair->key, strlen(pair->key), index->hash);
    index->hash = XXH64(&pairing->entry.bytes, sizeof pairing->entry.bytes, index->hash);
    index->hash = pair->label == DT_WDS_BOXES
                      ? dt_wds_boxes_hash(&index->boxes, index->hash)
                      : XXH64(&pairing->entry.label, sizeof pairing->entry.label, index->hash);
    return DT_OK;
}

dt_status dt_tar_label(int32_t *label, const struct dt_tar_member *member, const char *path)
{
    char text[MAX_LABEL_BYTES + 1] = {0}, *end = text;
    long value = 0;
    if (member->bytes <= MAX_LABEL_BYTES) {
        DT_TRY(dt_file_pread(member->fd, text, (size_t)member->bytes, member->offset, path));
        errno = 0;
        value = strtol(text, &end, 10);
    }
    const bool is_empty = end == text;
    end += strspn(end, " \t\r\n");
    if (is_empty || end != text + member->bytes || errno == ERANGE || value < INT32_MIN ||
        value > INT32_MAX)
        DT_FAIL(DT_ERR_DATA, "label member %s of shard %s at byte %llu is not an integer: '%s'",
                member->name, path, (unsigned long long)member->offset, text);
    *label = (int32_t)value;
    return DT_OK;
}

dt_status dt_tar_json_label(int32_t *label, const struct dt_sample *json, const char *label_key,
                            const char *key, const char *path)
{
    dt_status status = DT_OK;
    struct dt_json_doc *doc = NULL;
    char what[2 * DT_PATH_MAX], names[SUFFIXES_BYTES];
    struct dt_text text = dt_text_in(names, sizeof names);
    int64_t value = 0;
    snprintf(what, sizeof what, "member %s.json of shard %s", key, path);
    DT_TRY(dt_json_parse(&doc, (const char *)json->data, json->bytes, what, NULL));
    const struct dt_json *root = dt_json_root(doc), *found = dt_json_get(root, label_key);
    for (const struct dt_json *child = root->child; child && child->key; child = child->next)
        dt_text_add_whole(&text, " %s", child->key);
    const char *more =
        dt_json_get(root, "annotations") ? "; shards for a detector do not train a classifier" : "";
    if (!found)
        DT_TRY_OUT(DT_ERROR(DT_ERR_DATA,
                            "sample %s of shard %s has no .cls member, and its .json no \"%s\" "
                            "(data.label_key), only%s%s",
                            key, path, label_key, names[0] ? names : " other values", more));
    if (!dt_json_integer(found, INT32_MIN, INT32_MAX, &value))
        DT_TRY_OUT(DT_ERROR(DT_ERR_DATA, "%s:%d:%d: \"%s\", the label, is not an integer", what,
                            found->line, found->column, label_key));
    *label = (int32_t)value;
out:
    dt_json_destroy(doc);
    return status;
}

dt_status dt_tar_json_keep(struct dt_sample *json, const struct dt_tar_member *member,
                           const char *path)
{
    if (member->bytes > DT_WDS_BOXES_BYTES)
        DT_FAIL(DT_ERR_DATA, "member %s of shard %s has %llu bytes; at most %d are accepted",
                member->name, path, (unsigned long long)member->bytes, DT_WDS_BOXES_BYTES);
    DT_TRY(dt_sample_reserve(json, (size_t)member->bytes));
    return dt_file_pread(member->fd, json->data, json->bytes, member->offset, path);
}

dt_status dt_tar_boxes(struct dt_wds_boxes *boxes, struct dt_sample *json,
                       const struct dt_tar_member *member, const char *path)
{
    char what[2 * DT_PATH_MAX];
    snprintf(what, sizeof what, "member %s of shard %s", member->name, path);
    DT_TRY(dt_tar_json_keep(json, member, path));
    return dt_wds_boxes_parse(boxes, (const char *)json->data, json->bytes, what);
}

static dt_status visit_member(void *context, const struct dt_tar_member *member)
{
    struct pairing *pairing = context;
    dt_pulse_beat(&dt_pulse_main); /* the main thread builds the index, which may take long */
    if (!dt_wds_key(member->name))
        return DT_OK;
    if (dt_wds_begins(&pairing->pair, member->name))
        DT_TRY(end_sample(pairing));
    const enum dt_wds_kind kind = dt_wds_add(&pairing->pair, member->name);
    if (kind == DT_WDS_SECOND_IMAGE || kind == DT_WDS_SECOND_LABEL)
        DT_FAIL(DT_ERR_DATA, "member %s of shard %s at byte %llu is a second %s of its sample",
                member->name, pairing->path, (unsigned long long)member->offset,
                kind == DT_WDS_SECOND_IMAGE ? "image" : "label");
    if (kind == DT_WDS_BOXES)
        DT_TRY(dt_tar_boxes(&pairing->index->boxes, &pairing->json, member, pairing->path));
    else if (kind == DT_WDS_JSON && !pairing->pair.has_label)
        DT_TRY(dt_tar_json_keep(&pairing->json, member, pairing->path));
    else if (kind == DT_WDS_LABEL)
        DT_TRY(dt_tar_label(&pairing->entry.label, member, pairing->path));
    if (kind == DT_WDS_IMAGE) {
        pairing->entry.offset = member->offset;
        /* Larger values do not fit the field, and reading rejects far smaller ones. */
        pairing->entry.bytes = member->bytes < UINT32_MAX ? (uint32_t)member->bytes : UINT32_MAX;
    }
    return DT_OK;
}

/* Nothing that looks like a sample is dropped without a word. */
static dt_status tell_unused(const struct pairing *pairing)
{
    static const char format[] = "shard %s holds %zu samples, and %zu without an image; a key ends "
                                 "at the first dot of a name, and these suffixes follow it:%s";
    const size_t n = pairing->index->n, n_unused = pairing->n_unused;
    char suffixes[SUFFIXES_BYTES];
    if (n > 0 && n_unused == 0)
        return DT_OK;
    list_suffixes(suffixes, sizeof suffixes, pairing->path, NULL);
    if (n == 0 && suffixes[0])
        DT_FAIL(DT_ERR_DATA, format, pairing->path, n, n_unused, suffixes);
    if (n > 0)
        dt_log(DT_LOG_WARNING, format, pairing->path, n, n_unused, suffixes);
    return DT_OK;
}

dt_status dt_tar_index_build(struct dt_tar_index *index, const char *path, const char *label_key)
{
    dt_status status = DT_OK;
    struct pairing pairing = {.index = index,
                              .path = path,
                              .label_key = label_key,
                              .pair.label = label_key ? DT_WDS_LABEL : DT_WDS_BOXES};
    int n_skipped;
    index->n = index->boxes.n = index->boxes.n_truths = 0;
    index->hash = 0;
    DT_TRY_OUT(dt_tar_walk(path, visit_member, &pairing, &n_skipped));
    DT_TRY_OUT(end_sample(&pairing));
    DT_TRY_OUT(tell_unused(&pairing));
    if (n_skipped > 0)
        dt_log(DT_LOG_WARNING, "shard %s: skipped %d members that are links, devices or FIFOs",
               path, n_skipped);
out:
    free(pairing.json.data);
    return status;
}

/* --- The index between runs, in cache_dir/index/<name>-<hash of path and label_key>.index: a
 * header and a block. Labels are stored as written, so label_offset and num_classes may change. ---
 */

enum { MAX_BYTES = 1 << 30 };

struct header {
    char magic[8];
    uint64_t bytes; /* of the shard when it was read, like its time */
    int64_t time_ns;
    uint64_t check; /* hash of what is above and below */
};

static void use_index(struct dt_block *block, struct dt_tar_index *index)
{
    DT_BLOCK_VALUE(block, index->n);
    DT_BLOCK_VALUE(block, index->hash);
    DT_BLOCK_VALUE(block, index->boxes.n);
    DT_BLOCK_VALUE(block, index->boxes.n_truths);
    DT_BLOCK_ARRAY(block, index->entries, index->n);
    DT_BLOCK_ARRAY(block, index->boxes.images, index->boxes.n);
    DT_BLOCK_ARRAY(block, index->boxes.truths, index->boxes.n_truths);
}

void dt_tar_index_reset(struct dt_tar_index *index)
{
    struct dt_block block = {.use = DT_BLOCK_LEAVE};
    if (index->block)
        use_index(&block, index);
    free(index->block);
    free(index->entries);
    dt_wds_boxes_reset(&index->boxes);
    *index = (struct dt_tar_index){0};
}

/* Finds the copy of the index, and its header if it belongs to the shard as it is now. */
static dt_status find_file(char *path, struct header *header, const char *shard,
                           const char *label_key, const char *cache_dir)
{
    struct stat info;
    if (stat(shard, &info) != 0)
        DT_FAIL(dt_file_input_status(errno), "cannot read %s: %s", shard, strerror(errno));
    memcpy(header->magic, label_key ? "DTINDEX5" : "DTBOXES3", sizeof header->magic);
    header->bytes = (uint64_t)info.st_size;
    header->time_ns = (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec;
    char *full = realpath(shard, NULL);
    const char *key = full ? full : shard;
    const uint64_t seed = label_key ? XXH64(label_key, strlen(label_key), 0) : 0;
    const XXH128_hash_t hash = XXH3_128bits_withSeed(key, strlen(key), seed);
    free(full);
    return dt_file_path(path, "%s/index/%.100s-%016llx%016llx.index", cache_dir,
                        dt_file_base(shard), (unsigned long long)hash.high64,
                        (unsigned long long)hash.low64);
}

static uint64_t hash_file(const char *data, size_t bytes)
{
    return XXH64(data + sizeof(struct header), bytes - sizeof(struct header),
                 XXH64(data, offsetof(struct header, check), 0));
}

/* False if there is no such file, or it is of no use; a damaged one is logged. */
static bool load(struct dt_tar_index *index, const char *path, const struct header *now)
{
    struct header header = {0};
    size_t bytes = 0;
    if (!dt_file_exists(path))
        return false;
    const bool is_read = dt_file_load(&index->block, &bytes, path, MAX_BYTES) == DT_OK;
    if (is_read && bytes >= sizeof header)
        memcpy(&header, index->block, sizeof header);
    const bool is_intact = header.check &&
                           memcmp(header.magic, now->magic, sizeof now->magic) == 0 &&
                           header.check == hash_file(index->block, bytes);
    if (is_intact && memcmp(&header, now, offsetof(struct header, check)) == 0) {
        struct dt_block block = {.use = DT_BLOCK_READ, .at = index->block + sizeof header};
        use_index(&block, index);
        return true;
    }
    free(index->block);
    index->block = NULL;
    if (!is_intact)
        dt_log(DT_LOG_WARNING,
               "index cache %s is damaged or of another version and will be rebuilt", path);
    dt_error_clear();
    return false;
}

static dt_status write_file(struct dt_tar_index *index, const char *path,
                            const struct header *header, const char *cache_dir)
{
    struct dt_block block = {.use = DT_BLOCK_COUNT, .bytes = sizeof *header};
    char folder[DT_PATH_MAX], *data = NULL;
    DT_TRY(dt_file_path(folder, "%s/index", cache_dir));
    DT_TRY(dt_file_make_folder(folder));
    use_index(&block, index);
    const size_t bytes = block.bytes;
    if (bytes > MAX_BYTES)
        DT_FAIL(DT_ERR_CREATE, "%zu bytes are more than an index may have", bytes);
    DT_TRY(DT_NEW(data, bytes));
    block = (struct dt_block){.use = DT_BLOCK_WRITE, .at = data + sizeof *header};
    use_index(&block, index);
    memcpy(data, header, sizeof *header);
    const uint64_t check = hash_file(data, bytes);
    memcpy(data + offsetof(struct header, check), &check, sizeof check);
    const dt_status status = dt_file_save(path, data, bytes);
    free(data);
    return status;
}

dt_status dt_tar_index_open(struct dt_tar_index *index, const char *path, const char *label_key,
                            const char *cache_dir)
{
    struct header header = {0};
    char file[DT_PATH_MAX];
    if (!cache_dir || !cache_dir[0])
        return dt_tar_index_build(index, path, label_key);
    DT_TRY(find_file(file, &header, path, label_key, cache_dir));
    if (load(index, file, &header))
        return DT_OK;
    DT_TRY(dt_tar_index_build(index, path, label_key));
    /* A failure only costs time, or another rank was faster with the same file. */
    if (write_file(index, file, &header, cache_dir) != DT_OK) {
        dt_log(DT_LOG_DEBUG, "%s is not written: %s", file, dt_error_text());
        dt_error_clear();
    }
    return DT_OK;
}
