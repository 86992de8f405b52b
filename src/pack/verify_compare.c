/* Whether _info.json, checksums.xxh64 and the shards are consistent. */
#include "pack/shard_verify.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/wds_pair.h"

static bool is_present(const struct dt_verify *verify, const char *name)
{
    char path[DT_PATH_MAX];
    return dt_file_path(path, "%s/%s", verify->folder, name) == DT_OK && dt_file_exists(path);
}

static dt_status check_missing(struct dt_verify *verify)
{
    const struct dt_names *listed = &verify->info.filenames, *summed = &verify->sums.files;
    uint32_t length;

    for (size_t i = 0; i < listed->n; i++)
        if (!is_present(verify, dt_names_get(listed, i)))
            DT_TRY(dt_finding_add(&verify->findings, "%s: missing, but listed in _info.json",
                                  dt_names_get(listed, i)));
    for (size_t i = 0; i < summed->n; i++) {
        const char *name = dt_names_get(summed, i);
        if (!dt_shard_info_find(&verify->info, name, &length) && !is_present(verify, name))
            DT_TRY(dt_finding_add(&verify->findings,
                                  "%s: missing, but listed in " DT_CHECKSUMS_NAME, name));
    }
    return DT_OK;
}

static dt_status check_totals(struct dt_verify *verify)
{
    const struct dt_shard_info *info = &verify->info;

    size_t i = 0; /* the files of a split are adjacent */
    for (int split = 0; split < info->n_splits; split++) {
        int64_t total = 0;
        for (; i < info->n_lengths && info->split[i] == (uint32_t)split; i++)
            total += info->lengths[i];
        if (info->num_samples[split] >= 0 && info->num_samples[split] != total)
            DT_TRY(dt_finding_add(&verify->findings,
                                  "_info.json: num_samples of split %s is %" PRId64
                                  ", but its shard_lengths add up to %" PRId64,
                                  dt_names_get(&info->splits, (size_t)split),
                                  info->num_samples[split], total));
    }
    return DT_OK;
}

/* The shard and the name of key `at` of all. */
static struct dt_shard_check *find_key(struct dt_verify *verify, size_t at, const char **key)
{
    struct dt_shard_check *shard = verify->shards;
    for (; at >= shard->keys.n; shard++)
        at -= shard->keys.n;
    *key = dt_names_get(&shard->keys, at);
    return shard;
}

static dt_status report_key(void *context, size_t at, size_t before)
{
    const char *key, *unused;
    struct dt_shard_check *shard = find_key(context, at, &key);
    struct dt_shard_check *first = find_key(context, before, &unused);
    return dt_finding_add(&shard->findings, "%s: key %s occurs twice, %s%s", shard->base, key,
                          first == shard ? "not in adjacent members" : "also in ",
                          first == shard ? "" : first->base);
}

static dt_status check_keys(struct dt_verify *verify)
{
    uint64_t *hashes;
    size_t n = 0;

    for (uint32_t s = 0; s < verify->n; s++)
        n += verify->shards[s].keys.n;
    DT_TRY(DT_NEW(hashes, n));
    n = 0;
    for (uint32_t s = 0; s < verify->n; s++)
        for (size_t i = 0; i < verify->shards[s].keys.n; i++)
            hashes[n++] =
                dt_wds_hash(verify->shards[s].base, dt_names_get(&verify->shards[s].keys, i));
    dt_status status = dt_wds_find_repeated(hashes, n, report_key, verify);
    free(hashes);
    return status;
}

/* The shard and the id of image `at` of all. */
static struct dt_shard_check *find_image(struct dt_verify *verify, size_t at, int64_t *id)
{
    struct dt_shard_check *shard = verify->shards;
    for (; at >= shard->boxes.n; shard++)
        at -= shard->boxes.n;
    *id = shard->boxes.images[at].id;
    return shard;
}

static dt_status report_id(void *context, size_t at, size_t before)
{
    int64_t id;
    struct dt_shard_check *first = find_image(context, before, &id);
    struct dt_shard_check *shard = find_image(context, at, &id);
    return dt_finding_add(&shard->findings, "%s: the image id %" PRId64 " occurs twice%s%s",
                          shard->base, id, first == shard ? "" : ", also in ",
                          first == shard ? "" : first->base);
}

/* For a detector the ids of images are unique in their split. */
static dt_status check_ids(struct dt_verify *verify)
{
    uint64_t *hashes;
    size_t n = 0;
    char key[32];

    for (uint32_t s = 0; s < verify->n; s++)
        n += verify->shards[s].boxes.n;
    DT_TRY(DT_NEW(hashes, n));
    n = 0;
    for (uint32_t s = 0; s < verify->n; s++)
        for (size_t i = 0; i < verify->shards[s].boxes.n; i++) {
            snprintf(key, sizeof key, "%" PRId64, verify->shards[s].boxes.images[i].id);
            hashes[n++] = dt_wds_hash(verify->shards[s].base, key);
        }
    dt_status status = dt_wds_find_repeated(hashes, n, report_id, verify);
    free(hashes);
    return status;
}

dt_status dt_shards_compare(struct dt_verify *verify)
{
    uint32_t length = 0;
    for (uint32_t i = 0; i < verify->n; i++) {
        struct dt_shard_check *shard = &verify->shards[i];
        const bool is_listed = dt_shard_info_find(&verify->info, shard->base, &length);
        if (verify->info.n_splits > 0 && !is_listed)
            DT_TRY(
                dt_finding_add(&shard->findings, "%s: _info.json does not list it", shard->base));
        if (is_listed && shard->is_whole && length != shard->n_samples)
            DT_TRY(dt_finding_add(&shard->findings, "%s: holds %u samples, but _info.json says %u",
                                  shard->base, (unsigned)shard->n_samples, (unsigned)length));
        shard->first = verify->n_images;
        verify->n_images += shard->n;
        verify->n_samples += shard->n_samples;
        verify->bytes += shard->bytes;
    }
    if (verify->is_folder)
        DT_TRY(check_missing(verify));
    DT_TRY(check_totals(verify));
    DT_TRY(check_keys(verify));
    return check_ids(verify);
}
