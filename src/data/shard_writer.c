/* Packs class folders into WebDataset tars: plain ustar, members NNNNNN.cls and NNNNNN.jpg, samples
 * shuffled once, no times and owners, so that the same input and seed give the same bytes.
 *
 * All shards are written under temporary names and renamed together at the end; _info.json follows.
 * A folder may hold several prefixes (train, val): each is a split of the same _info.json. */
#include <archive.h>
#include <archive_entry.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/dataset.h"
#include "data/names.h"
#include "data/shard_info.h"
#include "dtrain/clock.h"
#include "dtrain/file.h"
#include "dtrain/json.h"
#include "dtrain/log.h"
#include "dtrain/mem.h"

enum { MAX_PREFIX = 64, MAX_CLASSES_BYTES = 64 << 20, TAR_RECORD = 10240 };

struct packing {
    struct dt_dataset *source;
    const char *dir, *prefix;
    uint32_t *order;
    uint32_t n, per_shard, n_shards;
    int shard_digits, sample_digits;
    double start_s, drawn_s;
};

static int n_digits(uint32_t value, int at_least)
{
    const int n = snprintf(NULL, 0, "%u", (unsigned)value);
    return n > at_least ? n : at_least;
}

static dt_status shard_path(char *out, const struct packing *packing, uint32_t shard,
                            const char *ending)
{
    return dt_file_path(out, "%s/%s-%0*u.tar%s", packing->dir, packing->prefix,
                        packing->shard_digits, (unsigned)shard, ending);
}

static uint32_t shard_length(const struct packing *packing, uint32_t shard)
{
    const uint32_t rest = packing->n - shard * packing->per_shard;
    return rest < packing->per_shard ? rest : packing->per_shard;
}

/* --- One shard --- */

static dt_status add_member(struct archive *archive, struct archive_entry *entry, const char *name,
                            const void *data, size_t bytes, const char *path)
{
    archive_entry_clear(entry);
    archive_entry_set_pathname(entry, name);
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0444);
    archive_entry_set_mtime(entry, 0, 0);
    archive_entry_set_uid(entry, 0);
    archive_entry_set_gid(entry, 0);
    archive_entry_set_size(entry, (la_int64_t)bytes);
    if (archive_write_header(archive, entry) != ARCHIVE_OK ||
        archive_write_data(archive, data, bytes) != (la_ssize_t)bytes)
        DT_FAIL(DT_ERR_IO, "cannot write member %s of %s: %s", name, path,
                archive_error_string(archive));
    return DT_OK;
}

static dt_status add_sample(struct packing *packing, struct archive *archive,
                            struct archive_entry *entry, uint32_t position,
                            struct dt_sample *sample, const char *path)
{
    const uint32_t id = packing->order[position];
    char name[32], label[16], text[128], left[32];

    DT_TRY(dt_dataset_read(packing->source, id, sample));
    const int n = snprintf(label, sizeof label, "%d", dt_dataset_label(packing->source, id));
    snprintf(name, sizeof name, "%0*u.cls", packing->sample_digits, (unsigned)position);
    DT_TRY(add_member(archive, entry, name, label, (size_t)n, path));
    snprintf(name, sizeof name, "%0*u.jpg", packing->sample_digits, (unsigned)position);
    DT_TRY(add_member(archive, entry, name, sample->data, sample->bytes, path));

    const double now_s = dt_clock_s();
    if (now_s - packing->drawn_s > 0.2) {
        const double done = position + 1.0;
        packing->drawn_s = now_s;
        dt_clock_format(left, sizeof left, (now_s - packing->start_s) / done * (packing->n - done));
        snprintf(text, sizeof text, "packing: %.0f of %u images, about %s left", done,
                 (unsigned)packing->n, left);
        dt_log_progress(text);
    }
    return DT_OK;
}

static dt_status write_members(struct packing *packing, struct archive *archive, uint32_t shard,
                               int fd, const char *path)
{
    dt_status status = DT_OK;
    struct dt_sample sample = {0};
    struct archive_entry *entry = archive_entry_new();
    const uint32_t first = shard * packing->per_shard;

    if (!entry)
        DT_TRY_OUT(DT_ERROR(DT_ERR_MEMORY, "out of memory: cannot write %s", path));
    if (archive_write_set_format_ustar(archive) != ARCHIVE_OK ||
        archive_write_set_bytes_per_block(archive, TAR_RECORD) != ARCHIVE_OK ||
        archive_write_set_bytes_in_last_block(archive, TAR_RECORD) != ARCHIVE_OK ||
        archive_write_open_fd(archive, fd) != ARCHIVE_OK)
        DT_TRY_OUT(DT_ERROR(DT_ERR_CREATE, "cannot begin to write %s: %s", path,
                            archive_error_string(archive)));
    for (uint32_t i = 0; i < shard_length(packing, shard); i++)
        DT_TRY_OUT(add_sample(packing, archive, entry, first + i, &sample, path));
    if (archive_write_close(archive) != ARCHIVE_OK)
        DT_TRY_OUT(
            DT_ERROR(DT_ERR_IO, "cannot finish %s: %s", path, archive_error_string(archive)));
out:
    archive_entry_free(entry);
    free(sample.data);
    return status;
}

static dt_status write_shard(struct packing *packing, uint32_t shard)
{
    dt_status status = DT_OK;
    struct archive *archive = NULL;
    char path[DT_PATH_MAX];
    int fd = -1;

    DT_TRY(shard_path(path, packing, shard, ".tmp"));
    DT_TRY(dt_file_remove(path)); /* of a run that was killed */
    DT_TRY(dt_file_create(&fd, path));
    archive = archive_write_new();
    if (!archive)
        DT_TRY_OUT(DT_ERROR(DT_ERR_MEMORY, "out of memory: cannot write %s", path));
    DT_TRY_OUT(write_members(packing, archive, shard, fd, path));
    DT_TRY_OUT(dt_file_finish(&fd, path));
out:
    if (archive)
        archive_write_free(archive);
    if (fd >= 0)
        close(fd);
    return status;
}

/* --- The folder --- */

/* Left-overs of another run would become part of the data set. */
static dt_status refuse_old_shards(const struct packing *packing)
{
    dt_status status = DT_OK;
    struct dt_names entries = {0};
    const size_t prefix_bytes = strlen(packing->prefix);

    DT_TRY_OUT(dt_names_list(&entries, packing->dir));
    for (size_t i = 0; i < entries.n; i++) {
        const char *name = dt_names_get(&entries, i), *dot = strrchr(name, '.');
        if (!strncmp(name, packing->prefix, prefix_bytes) && name[prefix_bytes] == '-' && dot &&
            !strcmp(dot, ".tar"))
            DT_TRY_OUT(DT_ERROR(
                DT_ERR_CREATE, "%s holds shards already (%s): remove them or choose another folder",
                packing->dir, name));
    }
out:
    dt_names_reset(&entries);
    return status;
}

static void put_split(struct dt_jsonw *json, const char *name, const struct dt_names *filenames,
                      const uint32_t *lengths, size_t first, size_t n)
{
    int64_t n_samples = 0;

    for (size_t i = 0; i < n; i++)
        n_samples += lengths[first + i];
    dt_jsonw_begin(json, name, '{');
    dt_jsonw_string(json, "name", name);
    dt_jsonw_integer(json, "num_samples", n_samples);
    dt_jsonw_begin(json, "filenames", '[');
    for (size_t i = 0; i < n; i++)
        dt_jsonw_string(json, NULL, dt_names_get(filenames, first + i));
    dt_jsonw_close(json, ']');
    dt_jsonw_begin(json, "shard_lengths", '[');
    for (size_t i = 0; i < n; i++)
        dt_jsonw_integer(json, NULL, lengths[first + i]);
    dt_jsonw_close(json, ']');
    dt_jsonw_close(json, '}');
}

/* Other splits of `info` are kept. */
static dt_status write_info(const struct packing *packing, const struct dt_shard_info *info)
{
    dt_status status = DT_OK;
    struct dt_names filenames = {0};
    struct dt_jsonw json;
    uint32_t *lengths = NULL;
    char path[DT_PATH_MAX];

    dt_jsonw_init(&json, true);
    DT_TRY_OUT(DT_NEW(lengths, packing->n_shards));
    for (uint32_t i = 0; i < packing->n_shards; i++) {
        DT_TRY_OUT(shard_path(path, packing, i, ""));
        const char *name = path + strlen(packing->dir) + 1;
        DT_TRY_OUT(dt_names_add(&filenames, name, strlen(name)));
        lengths[i] = shard_length(packing, i);
    }
    dt_jsonw_begin(&json, NULL, '{');
    dt_jsonw_begin(&json, "splits", '{');
    size_t first = 0;
    for (int split = 0; split < info->n_splits; split++) {
        const char *name = dt_names_get(&info->splits, (size_t)split);
        size_t n = 0;
        while (first + n < info->n_lengths && info->split[first + n] == (uint32_t)split)
            n++;
        if (strcmp(name, packing->prefix) != 0)
            put_split(&json, name, &info->filenames, info->lengths, first, n);
        first += n;
    }
    put_split(&json, packing->prefix, &filenames, lengths, 0, packing->n_shards);
    dt_jsonw_close(&json, '}');
    dt_jsonw_close(&json, '}');
    DT_TRY_OUT(dt_jsonw_end(&json));
    DT_TRY_OUT(dt_file_path(path, "%s/_info.json", packing->dir));
    DT_TRY_OUT(dt_file_save(path, json.text, json.bytes));
out:
    dt_jsonw_reset(&json);
    dt_names_reset(&filenames);
    free(lengths);
    return status;
}

/* One class name a line, in the order of the labels. The splits of a folder must agree on it. */
static dt_status write_classes(const struct packing *packing)
{
    dt_status status = DT_OK;
    struct dt_names text = {0};
    char *old = NULL, path[DT_PATH_MAX];
    size_t old_bytes = 0;

    for (int i = 0; i < dt_folder_n_classes(packing->source); i++) {
        const char *name = dt_folder_class(packing->source, i);
        DT_TRY_OUT(dt_names_add(&text, name, strlen(name)));
        text.text[text.bytes - 1] = '\n';
    }
    DT_TRY_OUT(dt_file_path(path, "%s/classes.txt", packing->dir));
    if (!dt_file_exists(path)) {
        DT_TRY_OUT(dt_file_save(path, text.text, text.bytes));
        goto out;
    }
    DT_TRY_OUT(dt_file_load(&old, &old_bytes, path, MAX_CLASSES_BYTES));
    if (old_bytes != text.bytes || memcmp(old, text.text, old_bytes) != 0)
        DT_TRY_OUT(DT_ERROR(DT_ERR_DATA,
                            "the class folders differ from those in %s, so labels would mean "
                            "different things: choose another folder",
                            path));
out:
    dt_names_reset(&text);
    free(old);
    return status;
}

static dt_status write_all(struct packing *packing)
{
    dt_status status = DT_OK;
    struct dt_shard_info info = {0};
    char from[DT_PATH_MAX], to[DT_PATH_MAX];
    uint32_t n_begun = 0;

    DT_TRY_OUT(dt_file_make_folder(packing->dir));
    DT_TRY_OUT(refuse_old_shards(packing));
    DT_TRY_OUT(dt_shard_info_load(&info, packing->dir));
    DT_TRY_OUT(write_classes(packing));
    while (n_begun < packing->n_shards)
        DT_TRY_OUT(write_shard(packing, n_begun++));
    for (uint32_t i = 0; i < packing->n_shards; i++) {
        DT_TRY_OUT(shard_path(from, packing, i, ".tmp"));
        DT_TRY_OUT(shard_path(to, packing, i, ""));
        DT_TRY_OUT(dt_file_rename(from, to));
    }
    DT_TRY_OUT(write_info(packing, &info));
    dt_log(DT_LOG_INFO, "packed %u images of %d classes into %u shards %s/%s-*.tar",
           (unsigned)packing->n, dt_folder_n_classes(packing->source), (unsigned)packing->n_shards,
           packing->dir, packing->prefix);
out:
    dt_log_progress("");
    for (uint32_t i = 0; status != DT_OK && i < n_begun; i++)
        if (shard_path(from, packing, i, ".tmp") == DT_OK)
            unlink(from); /* not dt_file_remove: the error to report is another one */
    dt_shard_info_reset(&info);
    return status;
}

dt_status dt_shard_write(const struct dt_shard_options *shard_options)
{
    dt_status status = DT_OK;
    const char *prefix = shard_options->prefix;
    const int per_shard = shard_options->per_shard;
    const struct dt_dataset_options options = {
        .source = DT_SOURCE_FOLDER, .path = shard_options->src, .num_classes = INT_MAX};
    struct packing packing = {.dir = shard_options->dst, .prefix = prefix, .start_s = dt_clock_s()};

    if (per_shard < 1)
        DT_FAIL(DT_ERR_USAGE, "a shard needs at least one sample, not %d", per_shard);
    if (!prefix[0] || strlen(prefix) > MAX_PREFIX || prefix[0] == '.' ||
        strpbrk(prefix, "/{},:") != NULL)
        DT_FAIL(DT_ERR_USAGE,
                "the prefix of shard names must have 1 to %d characters, none of / { } , : and no "
                "leading dot, not '%s'",
                MAX_PREFIX, prefix);
    DT_TRY(dt_dataset_open(&packing.source, &options));
    packing.n = dt_dataset_size(packing.source);
    packing.per_shard = (uint32_t)per_shard;
    packing.n_shards = (packing.n - 1) / packing.per_shard + 1;
    packing.shard_digits = n_digits(packing.n_shards - 1, 4);
    packing.sample_digits = n_digits(packing.n - 1, 6);
    DT_TRY_OUT(DT_NEW(packing.order, packing.n));
    dt_sampler_order(packing.order, packing.n, shard_options->seed, 0, true);
    DT_TRY_OUT(write_all(&packing));
out:
    free(packing.order);
    dt_dataset_close(packing.source);
    return status;
}
