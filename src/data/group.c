/* data.group: which images belong together, by a column of a table or by their names. */
#include <regex.h>
#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "data/dataset.h"
#include "data/select.h"

/* The name of the file alone, without the shard that it is in, unless the pattern has a slash. */
static const char *name_to_match(const char *name, bool is_whole)
{
    const char *member = strstr(name, ".tar: ");
    const char *base = member ? member + strlen(".tar: ") : name;
    const char *slash = is_whole ? NULL : strrchr(base, '/');
    return slash ? slash + 1 : base;
}

static dt_status match_names(struct dt_pick *picks, size_t n, const struct dt_dataset *dataset,
                             const regex_t *pattern, const char *text, uint64_t seed)
{
    const bool is_whole = strchr(text, '/') != NULL;
    regmatch_t found[2];
    char name[2 * DT_PATH_MAX];
    if (pattern->re_nsub == 0)
        DT_FAIL(DT_ERR_CONFIG, "data.group: the pattern %s has no parentheses around a group",
                text);
    for (size_t i = 0; i < n; i++) {
        dataset->kind->name(dataset, picks[i].id, name, sizeof name);
        const char *part = name_to_match(name, is_whole);
        if (regexec(pattern, part, 2, found, 0) != 0 || found[1].rm_so < 0)
            DT_FAIL(DT_ERR_DATA, "data.group: the pattern %s does not match %s", text, part);
        picks[i].key =
            XXH64(part + found[1].rm_so, (size_t)(found[1].rm_eo - found[1].rm_so), seed);
    }
    return DT_OK;
}

static dt_status use_pattern(struct dt_pick *picks, size_t n, const struct dt_dataset *dataset,
                             const char *text, uint64_t seed)
{
    regex_t pattern;
    char reason[128];
    if (dataset->kind == &dt_dataset_shards)
        DT_FAIL(DT_ERR_CONFIG, "data.group: shards have no names of files to match; use the folder "
                               "or the table that they were packed from");
    const int code = regcomp(&pattern, text, REG_EXTENDED);
    if (code != 0) {
        regerror(code, &pattern, reason, sizeof reason);
        DT_FAIL(DT_ERR_CONFIG, "data.group: %s: %s", text, reason);
    }
    const dt_status status = match_names(picks, n, dataset, &pattern, text, seed);
    regfree(&pattern);
    return status;
}

static dt_status use_column(struct dt_pick *picks, size_t n, const struct dt_dataset *dataset,
                            const char *column, uint64_t seed)
{
    if (!dataset->kind->group)
        DT_FAIL(DT_ERR_CONFIG,
                "data.group: \"%s\" is a column of a CSV table; for other data give a pattern "
                "of file names with parentheses, such as ^(patient[0-9]+)_",
                column);
    for (size_t i = 0; i < n; i++) {
        const uint64_t own = dataset->kind->group(dataset, picks[i].id);
        picks[i].key = XXH64(&own, sizeof own, seed);
    }
    return DT_OK;
}

/* Neither side is empty: if need be the group with the smallest key is for validation, or that with
 * the largest for training. */
static void keep_both_sides(struct dt_pick *picks, size_t n, double val_fraction)
{
    uint64_t first = UINT64_MAX, last = 0;
    for (size_t i = 0; i < n; i++) {
        first = picks[i].key < first ? picks[i].key : first;
        last = picks[i].key > last ? picks[i].key : last;
    }
    for (size_t i = 0; i < n; i++)
        if (picks[i].key == last && (double)last < val_fraction * 0x1p64)
            picks[i].key = UINT64_MAX;
        else if (picks[i].key == first && (double)first >= val_fraction * 0x1p64)
            picks[i].key = 0;
}

dt_status dt_group_picks(struct dt_pick *picks, size_t n, const struct dt_dataset *dataset,
                         const struct dt_config_data *data, uint64_t seed)
{
    DT_TRY((strchr(data->group, '(') ? use_pattern : use_column)(picks, n, dataset, data->group,
                                                                 seed));
    keep_both_sides(picks, n, data->val_fraction);
    return DT_OK;
}
