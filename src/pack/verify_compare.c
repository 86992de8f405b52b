/* Whether _info.json, checksums.xxh64 and the shards are consistent. */
#include "pack/verify.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/mem.h"

static dt_status check_listed(struct dt_verify *verify, struct dt_shard_check *shard)
{
    uint32_t length;

    if (verify->info.n_splits == 0)
        return DT_OK;
    if (!dt_shard_info_find(&verify->info, shard->base, &length))
        return dt_finding_add(&shard->findings, "%s: _info.json does not list it", shard->base);
    if (shard->is_whole && length != shard->n_samples)
        return dt_finding_add(&shard->findings, "%s: holds %u samples, but _info.json says %u",
                              shard->base, (unsigned)shard->n_samples, (unsigned)length);
    return DT_OK;
}

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

/* A sample's key, hashed together with its split, the shard's name up to the last '-'. */
struct key {
    uint64_t hash;
    uint32_t shard, at;
};

static int compare_keys(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    if (x->shard != y->shard)
        return x->shard < y->shard ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

static size_t list_keys(struct key *keys, const struct dt_verify *verify)
{
    size_t n = 0;

    for (uint32_t s = 0; s < verify->n; s++) {
        const struct dt_shard_check *shard = &verify->shards[s];
        const char *dash = strrchr(shard->base, '-');
        const uint64_t split = XXH64(shard->base, dash ? (size_t)(dash - shard->base) : 0, 0);
        for (uint32_t i = 0; i < shard->keys.n; i++) {
            const char *key = dt_names_get(&shard->keys, i);
            keys[n++] = (struct key){XXH64(key, strlen(key), split), s, i};
        }
    }
    return n;
}

static dt_status check_keys(struct dt_verify *verify)
{
    dt_status status = DT_OK;
    struct key *keys = NULL;
    size_t n = 0;

    for (uint32_t s = 0; s < verify->n; s++)
        n += verify->shards[s].keys.n;
    DT_TRY_OUT(DT_NEW(keys, n));
    n = list_keys(keys, verify);
    qsort(keys, n, sizeof *keys, compare_keys);
    for (size_t i = 1; i < n; i++) {
        struct dt_shard_check *before = &verify->shards[keys[i - 1].shard];
        struct dt_shard_check *shard = &verify->shards[keys[i].shard];
        const char *key = dt_names_get(&shard->keys, keys[i].at);
        if (keys[i].hash != keys[i - 1].hash)
            continue;
        DT_TRY_OUT(dt_finding_add(&shard->findings, "%s: key %s occurs twice, %s%s", shard->base,
                                  key, before == shard ? "not in adjacent members" : "also in ",
                                  before == shard ? "" : before->base));
    }
out:
    free(keys);
    return status;
}

dt_status dt_shards_compare(struct dt_verify *verify)
{
    for (uint32_t i = 0; i < verify->n; i++) {
        struct dt_shard_check *shard = &verify->shards[i];
        DT_TRY(check_listed(verify, shard));
        shard->first = verify->n_images;
        verify->n_images += shard->n;
        verify->n_samples += shard->n_samples;
        verify->bytes += shard->bytes;
    }
    if (verify->is_folder)
        DT_TRY(check_missing(verify));
    DT_TRY(check_totals(verify));
    return check_keys(verify);
}
