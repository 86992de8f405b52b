/* One shard: samples are read, converted and passed to libarchive, whose output is hashed and
 * written to the file. */
#include "pack/shard.h"

#include <archive.h>
#include <archive_entry.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "boxes/wds_boxes.h"
#include "data/wds_pair.h"
#include "image/image_file.h"
#include "pack/sidecars.h"
#include "pack/source.h"

enum { TAR_BLOCK = 512, TAR_RECORD = 10240, WRITE_BYTES = 1 << 20 };

/* The shard being written. */
struct output {
    struct dt_packing *packing;
    struct dt_convert *convert;
    char path[DT_PATH_MAX];
    int fd;
    dt_status status; /* first error of writing to the file */
    bool is_given_up; /* nothing more is written, and the first error is kept */
    struct archive *archive;
    struct archive_entry *entry;
    XXH64_state_t *sum;
    uint64_t position; /* offset of the next header in the tar */
    struct dt_wds_index index;
    struct dt_sample sample;
    uint32_t n; /* samples written */
};

dt_status dt_packing_tar(char *out, const struct dt_packing *packing, uint32_t shard,
                         const char *ending)
{
    return dt_file_path(out, "%s/%s-%0*u.tar%s", packing->options->dst, packing->options->prefix,
                        packing->shard_digits, (unsigned)shard, ending);
}

dt_status dt_packing_index(char *out, const struct dt_packing *packing, uint32_t shard,
                           const char *ending)
{
    char tar[DT_PATH_MAX], index[DT_PATH_MAX];
    DT_TRY(dt_packing_tar(tar, packing, shard, ""));
    DT_TRY(dt_wds_index_path(index, tar));
    return dt_file_path(out, "%s%s", index, ending);
}

/* --- The tar --- */

static la_ssize_t write_out(struct archive *archive, void *context, const void *data, size_t bytes)
{
    struct output *output = context;
    (void)archive;
    if (output->is_given_up)
        return (la_ssize_t)bytes;
    XXH64_update(output->sum, data, bytes);
    output->status = dt_file_write(output->fd, data, bytes, output->path);
    return output->status == DT_OK ? (la_ssize_t)bytes : -1;
}

/* An error reported by libarchive may originate in write_out. */
static dt_status archive_failure(const struct output *output, const char *what)
{
    DT_TRY(output->status);
    DT_FAIL(DT_ERR_IO, "cannot write %s of %s: %s", what, output->path,
            archive_error_string(output->archive));
}

static dt_status begin_archive(struct output *output)
{
    struct archive *archive = output->archive = archive_write_new();
    output->entry = archive_entry_new();
    output->sum = XXH64_createState();
    if (!archive || !output->entry || !output->sum)
        DT_FAIL(DT_ERR_MEMORY, "out of memory: cannot write %s", output->path);
    XXH64_reset(output->sum, 0);
    if (archive_write_set_format_ustar(archive) != ARCHIVE_OK ||
        archive_write_set_bytes_per_block(archive, WRITE_BYTES) != ARCHIVE_OK ||
        archive_write_set_bytes_in_last_block(archive, TAR_RECORD) != ARCHIVE_OK ||
        archive_write_open(archive, output, NULL, write_out, NULL) != ARCHIVE_OK)
        return archive_failure(output, "the start");
    return DT_OK;
}

/* A ustar header takes one block, and data are padded to whole blocks. */
static dt_status add_member(struct output *output, const char *name, const void *data, size_t bytes)
{
    struct archive_entry *entry = output->entry;
    archive_entry_clear(entry);
    archive_entry_set_pathname(entry, name);
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0444);
    archive_entry_set_mtime(entry, 0, 0);
    archive_entry_set_uid(entry, 0);
    archive_entry_set_gid(entry, 0);
    archive_entry_set_size(entry, (la_int64_t)bytes);
    if (archive_write_header(output->archive, entry) != ARCHIVE_OK ||
        archive_write_data(output->archive, data, bytes) != (la_ssize_t)bytes)
        return archive_failure(output, name);
    DT_TRY(dt_wds_index_add(&output->index, name, output->position + TAR_BLOCK, bytes));
    output->position += TAR_BLOCK + (bytes + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
    return DT_OK;
}

/* --- Samples --- */

static void count_done(struct dt_packing *packing, uint32_t *counter, bool is_turned)
{
    pthread_mutex_lock(&packing->lock);
    packing->n_turned += is_turned;
    ++*counter;
    dt_log_progress_of("packing", ++packing->n_done, packing->n, "images", packing->start_s);
    pthread_mutex_unlock(&packing->lock);
}

/* The members of a sample: its boxes or its label, then the image. */
static dt_status write_sample(struct output *output, uint32_t position, const uint8_t *data,
                              size_t bytes)
{
    const struct dt_packing *packing = output->packing;
    const uint32_t id = packing->order[position];
    char key[DT_WDS_KEY_MAX - 8], name[DT_WDS_KEY_MAX], label[16];
    struct dt_jsonw json = {0};
    if (packing->coco) {
        snprintf(key, sizeof key, "%s", dt_coco_source_key(packing->source, id));
        snprintf(name, sizeof name, "%s.json", key);
        dt_status status = dt_wds_boxes_write(&json, packing->coco, id);
        if (status == DT_OK)
            status = add_member(output, name, json.text, json.bytes);
        dt_jsonw_reset(&json);
        DT_TRY(status);
    } else {
        const int n = snprintf(label, sizeof label, "%d", dt_dataset_label(packing->source, id));
        snprintf(key, sizeof key, "%0*u", packing->sample_digits, (unsigned)position);
        snprintf(name, sizeof name, "%s.cls", key);
        DT_TRY(add_member(output, name, label, (size_t)n));
    }
    snprintf(name, sizeof name, "%s.%s", key, dt_image_format_of_data(data, bytes) ? "png" : "jpg");
    return add_member(output, name, data, bytes);
}

static dt_status add_sample(struct output *output, uint32_t position)
{
    struct dt_packing *packing = output->packing;
    const struct dt_dataset *source = packing->source;
    const uint32_t id = packing->order[position];
    char name[2 * DT_PATH_MAX];
    const uint8_t *data;
    size_t bytes;
    enum dt_conversion done;
    /* Not dt_dataset_read, which would count a file without read permission as a bad sample. */
    dt_status status = source->kind->read(source, id, &output->sample);
    if (status == DT_OK)
        status = dt_convert_run(output->convert, &done, &data, &bytes, output->sample.data,
                                output->sample.bytes);
    const struct dt_coco_image *image = packing->coco ? &packing->coco->images[id] : NULL;
    if (status == DT_OK && image)
        status =
            dt_decoder_expect(dt_convert_decoder(output->convert), image->width, image->height);
    if (status == DT_OK) {
        DT_TRY(write_sample(output, position, data, bytes));
        output->n++;
        count_done(packing, &packing->counts[done],
                   dt_decoder_orientation(dt_convert_decoder(output->convert)) > 1);
        return DT_OK;
    }
    if (status != DT_ERR_DATA)
        return status;
    dt_dataset_name(source, id, name, sizeof name);
    if (!packing->options->skip_bad)
        DT_FAIL(DT_ERR_DATA,
                "%s cannot be packed: %s; remove it, or skip such images with --skip-bad", name,
                dt_error_text());
    dt_log(DT_LOG_WARNING, "%s is skipped: %s", name, dt_error_text());
    dt_error_clear();
    count_done(packing, &packing->n_bad, false);
    return DT_OK;
}

/* --- Files --- */

static dt_status create_file(int *fd, const char *path)
{
    DT_TRY(dt_file_remove(path)); /* left over from a killed run */
    return dt_file_create(fd, path);
}

static dt_status write_index(const struct output *output, uint32_t shard)
{
    dt_status status = DT_OK;
    char path[DT_PATH_MAX], *text = NULL;
    size_t bytes;
    int fd = -1;
    DT_TRY(dt_wds_index_finish(&output->index, &text, &bytes));
    DT_TRY_OUT(dt_packing_index(path, output->packing, shard, DT_SHARD_TEMPORARY));
    DT_TRY_OUT(create_file(&fd, path));
    DT_TRY_OUT(dt_file_write(fd, text, bytes, path));
    DT_TRY_OUT(dt_file_finish(&fd, path));
out:
    if (fd >= 0)
        close(fd);
    free(text);
    return status;
}

dt_status dt_pack_shard(void *context, uint32_t shard, int thread)
{
    dt_status status = DT_OK;
    struct dt_packing *packing = context;
    const uint32_t per_shard = (uint32_t)packing->options->per_shard, first = shard * per_shard;
    struct output output = {.packing = packing, .convert = packing->converters[thread], .fd = -1};
    DT_TRY(dt_packing_tar(output.path, packing, shard, DT_SHARD_TEMPORARY));
    DT_TRY_OUT(create_file(&output.fd, output.path));
    DT_TRY_OUT(begin_archive(&output));
    for (uint32_t i = 0; i < per_shard && i < packing->n - first; i++)
        DT_TRY_OUT(add_sample(&output, first + i));
    if (archive_write_close(output.archive) != ARCHIVE_OK)
        DT_TRY_OUT(archive_failure(&output, "the end"));
    DT_TRY_OUT(dt_file_finish(&output.fd, output.path));
    DT_TRY_OUT(write_index(&output, shard));
    packing->lengths[shard] = output.n;
    packing->sums[shard] = XXH64_digest(output.sum);
out:
    output.is_given_up = status != DT_OK;
    archive_write_free(output.archive); /* flushes the rest */
    archive_entry_free(output.entry);
    XXH64_freeState(output.sum);
    if (output.fd >= 0)
        close(output.fd);
    dt_wds_index_reset(&output.index);
    free(output.sample.data);
    return status;
}
