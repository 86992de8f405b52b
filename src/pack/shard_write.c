/* `dtrain shard`: the shards of a split and the files that describe them.
 *
 * Shards are written in parallel under temporary names and renamed together at the end;
 * checksums.xxh64 and _info.json follow. A folder may hold several prefixes (train, val): each is a
 * split of the same _info.json. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/names.h"
#include "base/thread.h"
#include "boxes/wds_boxes.h"
#include "data/shard_list.h"
#include "pack/pack.h"
#include "pack/shard.h"
#include "pack/sidecars.h"
#include "pack/source.h"

enum { MAX_PREFIX = 64, MAX_CLASSES_BYTES = 64 << 20, MAX_THREADS = 1024 };

static int n_digits(uint32_t value, int at_least)
{
    const int n = snprintf(NULL, 0, "%u", (unsigned)value);
    return n > at_least ? n : at_least;
}

/* The rest of a file name after "<prefix>-<number>", or NULL if it does not start that way. */
static const char *ending_of(const char *name, const char *prefix)
{
    const size_t bytes = strlen(prefix);
    if (strncmp(name, prefix, bytes) != 0 || name[bytes] != '-')
        return NULL;
    const char *number = name + bytes + 1;
    return number + strspn(number, "0123456789");
}

static bool is_shard_name(const char *name, const char *prefix)
{
    const char *ending = ending_of(name, prefix);
    return ending && strcmp(ending, ".tar") == 0;
}

/* The lock is held while *fd is open. File systems without flock are not locked. */
static dt_status lock_folder(int *fd, const char *dir)
{
    *fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0)
        DT_FAIL(dt_file_input_status(errno), "cannot open folder %s: %s", dir, strerror(errno));
    if (flock(*fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        DT_FAIL(DT_ERR_IN_USE,
                "another dtrain shard is writing to %s: wait for it, or choose another folder",
                dir);
    return DT_OK;
}

/* Shards left over from another run would become part of the data set. */
static dt_status refuse_old_shards(const struct dt_shard_options *options)
{
    dt_status status = DT_OK;
    struct dt_names entries = {0};
    DT_TRY_OUT(dt_names_list(&entries, options->dst));
    for (size_t i = 0; i < entries.n; i++)
        if (is_shard_name(dt_names_get(&entries, i), options->prefix))
            DT_TRY_OUT(DT_ERROR(
                DT_ERR_CREATE, "%s already holds shards (%s): remove them or choose another folder",
                options->dst, dt_names_get(&entries, i)));
out:
    dt_names_reset(&entries);
    return status;
}

/* --- classes.txt, categories.json --- */

/* The text of a file that describes the shards of all splits. */
struct description {
    char path[DT_PATH_MAX];
    char *text; /* NULL: none */
};

/* The splits of a folder must agree on the description. */
static dt_status compare_description(const struct description *description)
{
    const char *text = description->text, *path = description->path;
    dt_status status = DT_OK;
    char *old = NULL;
    size_t bytes = 0;
    if (!text || !dt_file_exists(path))
        return DT_OK;
    DT_TRY_OUT(dt_file_load(&old, &bytes, path, MAX_CLASSES_BYTES));
    if (bytes != strlen(text) || memcmp(old, text, bytes) != 0)
        DT_TRY_OUT(
            DT_ERROR(DT_ERR_DATA,
                     "the classes differ from those in %s, so the labels would mean different "
                     "things: choose another folder",
                     path));
out:
    free(old);
    return status;
}

/* Only shards with boxes have categories.json. */
static dt_status describe_categories(struct description *out, const struct dt_packing *packing,
                                     bool has_splits)
{
    struct dt_jsonw json;
    const char *dir = packing->options->dst;
    DT_TRY(dt_file_path(out->path, "%s/" DT_CATEGORIES_NAME, dir));
    if (has_splits && dt_file_exists(out->path) != (packing->coco != NULL))
        DT_FAIL(DT_ERR_DATA, "the shards in %s have %s, but %s has %s: choose another folder", dir,
                packing->coco ? "labels" : "boxes", packing->options->src,
                packing->coco ? "boxes" : "labels");
    if (!packing->coco)
        return DT_OK;
    const dt_status status = dt_wds_categories_write(&json, packing->coco);
    if (status == DT_OK)
        out->text = json.text;
    else
        dt_jsonw_reset(&json);
    DT_TRY(status);
    return compare_description(out);
}

/* --- _info.json and checksums.xxh64 --- */

static void put_split(struct dt_jsonw *json, const char *name, const struct dt_names *filenames,
                      const uint32_t *lengths, size_t first, size_t n)
{
    int64_t n_samples = 0;
    for (size_t i = 0; i < n; i++)
        n_samples += lengths[first + i];
    dt_jsonw_begin(json, name, '{');
    dt_jsonw_add(json, "name: %s, num_samples: %" PRId64 ", filenames: [", name, n_samples);
    for (size_t i = 0; i < n; i++)
        dt_jsonw_string(json, NULL, dt_names_get(filenames, first + i));
    dt_jsonw_add(json, "], shard_lengths: [");
    for (size_t i = 0; i < n; i++)
        dt_jsonw_integer(json, NULL, lengths[first + i]);
    dt_jsonw_add(json, "]}");
}

/* Other splits of `info` are kept. */
static dt_status write_info(const struct dt_packing *packing, const struct dt_names *names,
                            const struct dt_shard_info *info)
{
    struct dt_jsonw json = {.pretty = true};
    char path[DT_PATH_MAX];
    const char *prefix = packing->options->prefix;
    DT_TRY(dt_file_path(path, "%s/_info.json", packing->options->dst));
    dt_jsonw_add(&json, "{splits: {");
    size_t first = 0;
    for (int split = 0; split < info->n_splits; split++) {
        const char *name = dt_names_get(&info->splits, (size_t)split);
        size_t n = 0;
        while (first + n < info->n_lengths && info->split[first + n] == (uint32_t)split)
            n++;
        if (strcmp(name, prefix) != 0)
            put_split(&json, name, &info->filenames, info->lengths, first, n);
        first += n;
    }
    put_split(&json, prefix, names, packing->lengths, 0, names->n);
    dt_jsonw_add(&json, "}}");
    return dt_jsonw_save(&json, path);
}

/* Keeps the lines of other splits, but drops those of vanished shards of this prefix. */
static dt_status write_checksums(const struct dt_packing *packing, const struct dt_names *names,
                                 const struct dt_checksums *old)
{
    dt_status status = DT_OK;
    struct dt_checksums sums = {0};
    for (size_t i = 0; i < old->files.n; i++)
        if (!is_shard_name(dt_names_get(&old->files, i), packing->options->prefix))
            DT_TRY_OUT(dt_checksums_add(&sums, dt_names_get(&old->files, i), old->sums[i]));
    for (size_t i = 0; i < names->n; i++)
        DT_TRY_OUT(dt_checksums_add(&sums, dt_names_get(names, i), packing->sums[i]));
    DT_TRY_OUT(dt_checksums_save(&sums, packing->options->dst));
out:
    dt_checksums_reset(&sums);
    return status;
}

/* --- The folder --- */

/* Previous contents of the folder. */
struct before {
    struct dt_shard_info info;
    struct dt_checksums sums;
};

/* Removes temporary files of this run or of a killed one. Not with dt_file_remove, whose error
 * would replace the one to be reported. */
static void remove_temporary(const struct dt_shard_options *options)
{
    struct dt_names entries = {0};
    char path[DT_PATH_MAX];
    if (dt_names_list(&entries, options->dst) != DT_OK)
        return;
    for (size_t i = 0; i < entries.n; i++) {
        const char *name = dt_names_get(&entries, i), *ending = ending_of(name, options->prefix);
        const bool is_temporary = ending && (strcmp(ending, ".tar" DT_SHARD_TEMPORARY) == 0 ||
                                             strcmp(ending, ".idx" DT_SHARD_TEMPORARY) == 0);
        if (is_temporary && dt_file_path(path, "%s/%s", options->dst, name) == DT_OK)
            unlink(path);
    }
    dt_names_reset(&entries);
}

typedef dt_status (*path_of)(char *out, const struct dt_packing *packing, uint32_t shard,
                             const char *ending);
static const path_of paths[] = {dt_packing_index, dt_packing_tar};

/* The describing files come first: if the machine stops while shards are being renamed, they reveal
 * that some are missing. */
static dt_status publish(const struct dt_packing *packing, const struct before *before,
                         const struct description descriptions[2])
{
    dt_status status = DT_OK;
    struct dt_names names = {0}; /* of the new shards */
    char from[DT_PATH_MAX], to[DT_PATH_MAX];
    for (uint32_t i = 0; i < packing->n_shards; i++) {
        DT_TRY_OUT(dt_packing_tar(to, packing, i, ""));
        DT_TRY_OUT(dt_names_add(&names, dt_file_base(to), strlen(dt_file_base(to))));
    }
    for (const struct description *d = descriptions; d < descriptions + 2; d++)
        if (d->text)
            DT_TRY_OUT(dt_file_save(d->path, d->text, strlen(d->text)));
    DT_TRY_OUT(write_checksums(packing, &names, &before->sums));
    DT_TRY_OUT(write_info(packing, &names, &before->info));
    for (size_t k = 0; k < DT_COUNT(paths); k++)
        for (uint32_t i = 0; i < packing->n_shards; i++) {
            DT_TRY_OUT(paths[k](from, packing, i, DT_SHARD_TEMPORARY));
            DT_TRY_OUT(paths[k](to, packing, i, ""));
            DT_TRY_OUT(dt_file_rename(from, to));
        }
    DT_TRY_OUT(dt_file_sync_folder(packing->options->dst));
out:
    dt_names_reset(&names);
    return status;
}

static dt_status write_shards(struct dt_packing *packing)
{
    dt_status status = DT_OK;
    pthread_mutex_init(&packing->lock, NULL); /* cannot fail without attributes */
    packing->start_s = dt_clock_s();
    DT_TRY_OUT(DT_NEW(packing->converters, (size_t)packing->n_threads));
    for (int i = 0; i < packing->n_threads; i++)
        DT_TRY_OUT(dt_convert_create(&packing->converters[i], packing->options->resize_short,
                                     packing->options->quality, packing->source->kind == &dt_arrays,
                                     packing->options->data));
    DT_TRY_OUT(dt_parallel_run(packing->n_shards, packing->n_threads, dt_pack_shard, packing));
out:
    dt_log_progress("");
    pthread_mutex_destroy(&packing->lock);
    for (int i = 0; packing->converters && i < packing->n_threads; i++)
        dt_convert_destroy(packing->converters[i]);
    free(packing->converters);
    return status;
}

/* Prints the pattern to use as data.train. */
static void tell(const struct dt_packing *packing)
{
    const uint32_t *counts = packing->counts;
    const struct dt_names *names = dt_dataset_classes(packing->source);
    char classes[64] = "";
    if (packing->coco)
        snprintf(classes, sizeof classes, " with boxes of %d classes", packing->coco->n_categories);
    else if (names)
        snprintf(classes, sizeof classes, " of %d classes", (int)names->n);
    dt_log(DT_LOG_INFO,
           "packed %u images%s into %s/%s-{%0*u..%0*u}.tar (%u unchanged, %u converted, %u "
           "resized; %u bad ones skipped)",
           (unsigned)(packing->n - packing->n_bad), classes, packing->options->dst,
           packing->options->prefix, packing->shard_digits, 0u, packing->shard_digits,
           (unsigned)packing->n_shards - 1, (unsigned)counts[DT_KEPT],
           (unsigned)counts[DT_CONVERTED], (unsigned)counts[DT_REDUCED], (unsigned)packing->n_bad);
    if (packing->n_turned > 0)
        dt_log(DT_LOG_NOTICE, "%u of %u images have an EXIF orientation other than 1, %s",
               (unsigned)packing->n_turned, (unsigned)packing->n,
               packing->options->data->exif == DT_EXIF_APPLY
                   ? "and were turned upright"
                   : "and keep it; --exif apply turns them");
}

static dt_status write_all(struct dt_packing *packing)
{
    dt_status status = DT_OK;
    struct before before = {0};
    struct description descriptions[2] = {0};
    const char *dir = packing->options->dst;
    bool has_begun = false;
    int lock_fd = -1;
    DT_TRY_OUT(dt_file_make_folder(dir));
    DT_TRY_OUT(lock_folder(&lock_fd, dir));
    DT_TRY_OUT(refuse_old_shards(packing->options));
    DT_TRY_OUT(dt_shard_info_load(&before.info, dir));
    DT_TRY_OUT(dt_checksums_load(&before.sums, dir));
    if (before.sums.bad_line > 0)
        DT_TRY_OUT(DT_ERROR(DT_ERR_DATA,
                            "line %zu of %s/" DT_CHECKSUMS_NAME " is not a checksum: repair it or "
                            "choose another folder",
                            before.sums.bad_line, dir));
    DT_TRY_OUT(describe_categories(&descriptions[0], packing, before.info.n_splits > 0));
    DT_TRY_OUT(dt_file_path(descriptions[1].path, "%s/classes.txt", dir));
    DT_TRY_OUT(dt_classes_text(&descriptions[1].text, dt_dataset_classes(packing->source)));
    DT_TRY_OUT(compare_description(&descriptions[1]));
    has_begun = true;
    remove_temporary(packing->options);
    DT_TRY_OUT(write_shards(packing));
    if (packing->n_bad == packing->n)
        DT_TRY_OUT(DT_ERROR(DT_ERR_DATA, "none of the %u images of %s is usable",
                            (unsigned)packing->n, packing->options->src));
    DT_TRY_OUT(publish(packing, &before, descriptions));
    tell(packing);
out:
    if (status != DT_OK && has_begun)
        remove_temporary(packing->options);
    if (lock_fd >= 0)
        close(lock_fd);
    for (size_t i = 0; i < DT_COUNT(descriptions); i++)
        free(descriptions[i].text);
    dt_shard_info_reset(&before.info);
    dt_checksums_reset(&before.sums);
    return status;
}

static dt_status check_options(const struct dt_shard_options *options)
{
    const char *prefix = options->prefix;
    if (options->per_shard < 1)
        DT_FAIL(DT_ERR_USAGE, "a shard must hold at least one sample, not %d", options->per_shard);
    if (options->quality < 1 || options->quality > 100)
        DT_FAIL(DT_ERR_USAGE, "JPEG quality must be 1 to 100, not %d", options->quality);
    if (options->threads < 0 || options->threads > MAX_THREADS)
        DT_FAIL(DT_ERR_USAGE, "the number of threads must be 1 to %d, or 0 for one per CPU, not %d",
                MAX_THREADS, options->threads);
    if (!prefix[0] || strlen(prefix) > MAX_PREFIX || prefix[0] == '.' ||
        strpbrk(prefix, "/{},:") != NULL)
        DT_FAIL(DT_ERR_USAGE,
                "the prefix of shard names must have 1 to %d characters, none of / { } , :, and no "
                "leading dot; '%s' does not",
                MAX_PREFIX, prefix);
    return DT_OK;
}

dt_status dt_shard_write(const struct dt_shard_options *options)
{
    dt_status status = DT_OK;
    struct dt_packing packing = {.options = options};
    DT_TRY(check_options(options));
    DT_TRY(dt_source_open(&packing.source, options));
    packing.n = dt_dataset_size(packing.source);
    packing.n_shards = (packing.n - 1) / (uint32_t)options->per_shard + 1;
    packing.shard_digits = n_digits(packing.n_shards - 1, 4);
    packing.sample_digits = n_digits(packing.n - 1, 6);
    packing.n_threads = dt_parallel_threads(options->threads, packing.n_shards);
    DT_TRY_OUT(DT_NEW(packing.order, packing.n));
    DT_TRY_OUT(DT_NEW(packing.lengths, packing.n_shards));
    DT_TRY_OUT(DT_NEW(packing.sums, packing.n_shards));
    packing.coco = dt_coco_source_annotations(packing.source);
    dt_sampler_order(packing.order, packing.n, options->seed, 0, !packing.coco);
    DT_TRY_OUT(write_all(&packing));
out:
    free(packing.order);
    free(packing.lengths);
    free(packing.sums);
    dt_dataset_close(packing.source);
    return status;
}
