/* `dtrain verify` for shards. The first pass walks all headers in parallel. The second verifies
 * checksum and images of each shard together, so that the images are read from the page cache.
 * Lines are printed in shard order. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/thread.h"
#include "data/shard_list.h"
#include "image/decode.h"
#include "image/image_file.h"
#include "pack/pack.h"
#include "pack/shard_verify.h"

enum { BLOCK = 1 << 20 };

static void print_lines(struct dt_verify *verify, const struct dt_names *lines)
{
    for (size_t i = 0; i < lines->n; i++)
        fprintf(verify->out, "!!  %s\n", dt_names_get(lines, i));
    verify->n_findings += lines->n;
    if (lines->n > 0)
        fflush(verify->out);
}

/* --- Contents --- */

static dt_status hash_file(uint64_t *out, const char *path)
{
    dt_status status = DT_OK;
    XXH64_state_t *state = XXH64_createState();
    char *block = NULL;
    uint64_t bytes;
    int fd = -1;
    if (!state)
        DT_FAIL(DT_ERR_MEMORY, "out of memory: cannot hash %s", path);
    XXH64_reset(state, 0);
    DT_TRY_OUT(DT_NEW(block, BLOCK));
    DT_TRY_OUT(dt_file_open(&fd, &bytes, path));
    for (uint64_t at = 0; at < bytes; at += BLOCK) {
        const size_t n = bytes - at < BLOCK ? (size_t)(bytes - at) : BLOCK;
        DT_TRY_OUT(dt_file_pread(fd, block, n, at, path));
        XXH64_update(state, block, n);
    }
    *out = XXH64_digest(state);
out:
    if (fd >= 0)
        close(fd);
    free(block);
    XXH64_freeState(state);
    return status;
}

static dt_status check_checksum(const struct dt_verify *verify, struct dt_shard_check *shard)
{
    uint64_t want, have = 0;
    if (!verify->sums.found)
        return DT_OK;
    if (!dt_checksums_find(&verify->sums, shard->base, &want))
        return dt_finding_add(&shard->findings, "%s: " DT_CHECKSUMS_NAME " has no line for it",
                              shard->base);
    const dt_status status = hash_file(&have, shard->path);
    if (status != DT_OK)
        return dt_finding_of(&shard->findings, shard->base, status);
    if (have != want)
        return dt_finding_add(&shard->findings,
                              "%s: its checksum is %016" PRIx64 ", but " DT_CHECKSUMS_NAME
                              " says %016" PRIx64,
                              shard->base, have, want);
    return DT_OK;
}

static dt_status decode_image(uint64_t *hash, struct dt_verify_tool *tool, int fd,
                              const struct dt_shard_image *image, const char *name,
                              const char *path)
{
    const struct dt_image_format *png = dt_image_format_of_suffix("png");
    int width, height;
    DT_TRY(dt_sample_read(&tool->sample, fd, image->offset, image->bytes, path));
    *hash = XXH3_64bits(tool->sample.data, tool->sample.bytes);
    if (dt_image_format_of_data(tool->sample.data, tool->sample.bytes) == png &&
        !dt_name_has_suffix(name, ".png"))
        DT_FAIL(DT_ERR_DATA, "a PNG file under another name");
    DT_TRY(dt_decoder_open(tool->decoder, &width, &height, tool->sample.data, tool->sample.bytes));
    if (dt_decoder_jpeg(tool->decoder) && dt_jpeg_components(dt_decoder_jpeg(tool->decoder)) == 4)
        DT_FAIL(DT_ERR_DATA, "a CMYK JPEG file, which many programs show in wrong colours; dtrain "
                             "shard converts it to RGB");
    DT_TRY(dt_decoder_skim(tool->decoder, 0, height));
    return image->width > 0 ? dt_decoder_expect(tool->decoder, image->width, image->height) : DT_OK;
}

/* `decoder`: of image `id`, or NULL. */
static void count_contents(struct dt_verify *verify, uint64_t bytes,
                           const struct dt_decoder *decoder, uint64_t id)
{
    pthread_mutex_lock(&verify->lock);
    verify->bytes_done += bytes;
    if (decoder) {
        verify->notes.n++;
        dt_image_notes_add(&verify->notes, decoder, (int64_t)id);
    }
    dt_log_progress_of("verifying", 1 + (size_t)(verify->bytes_done >> 20),
                       1 + (size_t)(verify->bytes >> 20), "MiB", verify->start_s);
    pthread_mutex_unlock(&verify->lock);
}

/* Selects n_decode of n_images, evenly spread. */
static bool is_chosen(const struct dt_verify *verify, uint64_t id)
{
    if (verify->n_decode < 0 || (uint64_t)verify->n_decode >= verify->n_images)
        return true;
    const uint64_t n = (uint64_t)verify->n_decode;
    return (id + 1) * n / verify->n_images > id * n / verify->n_images;
}

static dt_status decode_images(struct dt_verify *verify, struct dt_shard_check *shard,
                               struct dt_verify_tool *tool, int fd)
{
    for (size_t i = 0; i < shard->n; i++) {
        const struct dt_shard_image *image = &shard->images[i];
        const char *name = dt_names_get(&shard->names, image->name);
        char what[2 * DT_PATH_MAX];
        const uint64_t id = shard->first + i;
        if (!is_chosen(verify, id))
            continue;
        snprintf(what, sizeof what, "%s: member %s", shard->base, name);
        DT_TRY(
            dt_finding_of(&shard->findings, what,
                          decode_image(verify->hashes + id, tool, fd, image, name, shard->path)));
        count_contents(verify, image->bytes, tool->decoder, id);
    }
    return DT_OK;
}

static dt_status read_shard(void *context, uint32_t index, int thread)
{
    struct dt_verify *verify = context;
    struct dt_shard_check *shard = &verify->shards[index];
    uint64_t bytes, rest = shard->bytes;
    int fd = -1;
    DT_TRY(check_checksum(verify, shard));
    dt_status status = shard->n > 0 ? dt_file_open(&fd, &bytes, shard->path) : DT_OK;
    if (fd >= 0) {
        status = decode_images(verify, shard, &verify->tools[thread], fd);
        close(fd);
    }
    DT_TRY(dt_finding_of(&shard->findings, shard->base, status));
    for (size_t i = 0; i < shard->n; i++)
        rest -= is_chosen(verify, shard->first + i) ? shard->images[i].bytes : 0;
    count_contents(verify, rest, NULL, 0);
    pthread_mutex_lock(&verify->lock);
    shard->is_done = true; /* whoever ends prints all shards in a row that have ended */
    while (verify->n_printed < verify->n && verify->shards[verify->n_printed].is_done)
        print_lines(verify, &verify->shards[verify->n_printed++].findings);
    pthread_mutex_unlock(&verify->lock);
    return DT_OK;
}

/* --- Start and end --- */

static dt_status open_shards(struct dt_verify *verify)
{
    char index[DT_PATH_MAX];
    const char *path = verify->path;
    if (!dt_file_exists(path))
        DT_FAIL(dt_file_input_status(errno), "cannot open %s: %s", path, strerror(errno));
    verify->is_folder = dt_file_is_folder(path);
    DT_TRY(dt_file_folder(verify->folder, path));
    DT_TRY(verify->is_folder ? dt_names_list_tars(&verify->paths, verify->folder)
                             : dt_names_add(&verify->paths, path, strlen(path)));
    verify->n = (uint32_t)verify->paths.n;
    DT_TRY(DT_NEW(verify->shards, verify->n));
    for (uint32_t i = 0; i < verify->n; i++) {
        struct dt_shard_check *shard = &verify->shards[i];
        shard->path = dt_names_get(&verify->paths, i);
        shard->base = dt_file_base(shard->path);
        DT_TRY(dt_wds_index_path(index, shard->path));
        verify->has_indices = verify->has_indices || dt_file_exists(index);
    }
    return DT_OK;
}

static dt_status count_classes(struct dt_verify *verify)
{
    struct dt_names classes = {0};
    char path[DT_PATH_MAX];
    verify->n_classes = -1;
    DT_TRY(dt_file_path(path, "%s/classes.txt", verify->folder));
    if (!dt_file_exists(path))
        return DT_OK;
    const dt_status status = dt_classes_load(&classes, path);
    if (status == DT_OK)
        verify->n_classes = (int)classes.n;
    dt_names_reset(&classes);
    return status;
}

/* Loads the files that accompany the shards; an unreadable one is recorded as a fault and skipped.
 */
static dt_status open_sidecars(struct dt_verify *verify)
{
    char path[DT_PATH_MAX];
    DT_TRY(dt_file_path(path, "%s/" DT_CATEGORIES_NAME, verify->folder));
    verify->label = dt_file_exists(path) ? DT_WDS_BOXES : DT_WDS_LABEL;
    dt_status status = dt_shard_info_load(&verify->info, verify->folder);
    if (status != DT_OK)
        dt_shard_info_reset(&verify->info);
    DT_TRY(dt_finding_of(&verify->findings, "_info.json", status));
    status = dt_checksums_load(&verify->sums, verify->folder);
    DT_TRY(dt_finding_of(&verify->findings, DT_CHECKSUMS_NAME, status));
    if (verify->sums.bad_line > 0)
        DT_TRY(dt_finding_add(&verify->findings, DT_CHECKSUMS_NAME ": line %zu is not a checksum",
                              verify->sums.bad_line));
    status = verify->label == DT_WDS_BOXES ? dt_wds_categories_load(&verify->coco, path) : DT_OK;
    DT_TRY(dt_finding_of(&verify->findings, DT_CATEGORIES_NAME, status));
    return dt_finding_of(&verify->findings, "classes.txt", count_classes(verify));
}

static void close_all(struct dt_verify *verify)
{
    for (uint32_t i = 0; verify->shards && i < verify->n; i++) {
        struct dt_shard_check *shard = &verify->shards[i];
        dt_names_reset(&shard->findings);
        dt_names_reset(&shard->names);
        dt_names_reset(&shard->keys);
        dt_wds_index_reset(&shard->index);
        dt_wds_boxes_reset(&shard->boxes);
        free(shard->images);
        free(shard->json.data);
    }
    for (int i = 0; verify->tools && i < verify->n_threads; i++) {
        dt_decoder_destroy(verify->tools[i].decoder);
        free(verify->tools[i].sample.data);
    }
    free(verify->shards);
    free(verify->tools);
    free(verify->hashes);
    dt_names_reset(&verify->paths);
    dt_names_reset(&verify->findings);
    dt_coco_reset(&verify->coco);
    dt_shard_info_reset(&verify->info);
    dt_checksums_reset(&verify->sums);
}

static void name_image(const struct dt_dataset *set, uint32_t id, char *out, size_t bytes)
{
    const struct dt_verify *verify = set->state;
    const struct dt_shard_check *shard = verify->shards + verify->n - 1;
    while (shard->first > id)
        shard--;
    snprintf(out, bytes, "%s: %s", shard->base,
             dt_names_get(&shard->names, shard->images[id - shard->first].name));
}

static dt_status tell(struct dt_verify *verify)
{
    static const struct dt_dataset_kind kind = {.name = name_image};
    const struct dt_dataset set = {
        .kind = &kind,
        .state = verify,
        .n = (uint32_t)verify->n_images,
        .exif = dt_exif_of(verify->data, verify->label == DT_WDS_BOXES),
    };
    DT_TRY(dt_dataset_twins(verify->hashes, (const struct dt_dataset *const[]){&set, NULL}));
    return dt_dataset_tell(&set, &verify->notes, verify->path);
}

dt_status dt_shards_verify(const char *path, const struct dt_config_data *data, int64_t n_decode,
                           int threads, FILE *out)
{
    dt_status status = DT_OK;
    const double begin_s = dt_clock_s();
    struct dt_verify v = {
        .path = path, .data = data, .n_decode = n_decode, .out = out, .start_s = begin_s};
    char line[2 * DT_PATH_MAX], took[32];
    pthread_mutex_init(&v.lock, NULL); /* cannot fail without attributes */
    DT_TRY_OUT(open_shards(&v));
    DT_TRY_OUT(open_sidecars(&v));
    v.n_threads = dt_parallel_threads(threads, v.n);
    DT_TRY_OUT(DT_NEW(v.tools, (size_t)v.n_threads));
    for (int i = 0; i < v.n_threads; i++)
        DT_TRY_OUT(dt_decoder_create(&v.tools[i].decoder, data));
    DT_TRY_OUT(dt_parallel_run(v.n, v.n_threads, dt_shard_walk, &v));
    DT_TRY_OUT(dt_shards_compare(&v));
    if (v.n_samples == 0)
        DT_TRY_OUT(dt_finding_add(&v.findings, "no samples in %s", path));
    print_lines(&v, &v.findings);
    DT_TRY_OUT(DT_NEW(v.hashes, v.n_images));
    v.start_s = dt_clock_s();
    DT_TRY_OUT(dt_parallel_run(v.n, v.n_threads, read_shard, &v));
    dt_log_progress("");
    dt_clock_format(took, sizeof took, dt_clock_s() - begin_s);
    snprintf(line, sizeof line,
             "%s  %s  %u shards, %" PRIu64 " samples, %.1f MB, %" PRId64 " images decoded, %" PRIu64
             " faults%s, %s",
             v.n_findings ? "!!" : "ok", path, (unsigned)v.n, v.n_samples, (double)v.bytes / 1e6,
             v.notes.n, v.n_findings,
             v.sums.found ? "" : " (no " DT_CHECKSUMS_NAME " to compare with)", took);
    dt_utf8_escape(line);
    fprintf(out, "%s\n", line);
    if (v.n_findings > 0)
        status =
            DT_ERROR(DT_ERR_DATA, "the shards in %s have %" PRIu64 " faults", path, v.n_findings);
    else
        status = tell(&v);
out:
    dt_log_progress("");
    pthread_mutex_destroy(&v.lock);
    close_all(&v);
    return status;
}
