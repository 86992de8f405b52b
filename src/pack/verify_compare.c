/* Whether _info.json, checksums.xxh64 and the shards are consistent. */
#include "pack/shard_verify.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/sort.h"
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

/* The names that must be unique in a split: keys of samples, or for a detector the ids of its
 * images. */
static size_t n_names(const struct dt_shard_check *shard, bool is_id)
{
    return is_id ? shard->boxes.n : shard->keys.n;
}

static const char *name_at(const struct dt_shard_check *shard, bool is_id, size_t at, char id[32])
{
    if (!is_id)
        return dt_names_get(&shard->keys, at);
    snprintf(id, 32, "%" PRId64, shard->boxes.images[at].id);
    return id;
}

static dt_status report(struct dt_shard_check *shard, bool is_id, size_t at,
                        const struct dt_shard_check *first)
{
    char id[32];
    return dt_finding_add(&shard->findings, "%s: %s %s occurs twice, %s%s", shard->base,
                          is_id ? "the image id" : "key", name_at(shard, is_id, at, id),
                          first == shard ? "not in adjacent members" : "also in ",
                          first == shard ? "" : first->base);
}

static dt_status check_unique(struct dt_verify *verify, bool is_id)
{
    struct dt_shard_check *const end = verify->shards + verify->n, **shards = NULL;
    uint64_t *hashes = NULL;
    uint32_t *first = NULL;
    dt_status status = DT_OK;
    size_t n = 0;
    char id[32];
    for (struct dt_shard_check *shard = verify->shards; shard < end; shard++)
        n += n_names(shard, is_id);
    DT_TRY_OUT(DT_NEW(hashes, n));
    DT_TRY_OUT(DT_NEW(shards, n));
    n = 0;
    for (struct dt_shard_check *shard = verify->shards; shard < end; shard++)
        for (size_t i = 0; i < n_names(shard, is_id); i++) {
            hashes[n] = dt_wds_hash(shard->base, name_at(shard, is_id, i, id));
            shards[n++] = shard;
        }
    DT_TRY_OUT(dt_find_repeated(&first, hashes, n));
    for (size_t i = 0, at = 0; first && i < n; i++) {
        at = i > 0 && shards[i] == shards[i - 1] ? at + 1 : 0;
        if (first[i] < i)
            DT_TRY_OUT(report(shards[i], is_id, at, shards[first[i]]));
    }
out:
    free(hashes);
    free(shards);
    free(first);
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
    DT_TRY(check_unique(verify, false));
    return check_unique(verify, true);
}
