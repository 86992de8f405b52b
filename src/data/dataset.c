/* The public interface of data sets: a table of kinds and thin calls into the selected one. */
#include "data/dataset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/cache.h"

#define ROW(upper, lower) &dt_dataset_##lower,
static const struct dt_dataset_kind *const kinds[] = {DT_SOURCE_LIST(ROW)};

dt_status dt_dataset_open(struct dt_dataset **dataset, const struct dt_dataset_options *options)
{
    dt_status status = DT_OK;
    struct dt_dataset *made = NULL;
    enum dt_source source = options->data->source;

    *dataset = NULL;
    if (options->num_classes < 1)
        DT_FAIL(DT_ERR_CONFIG, "a data set needs at least one class, not %d", options->num_classes);
    if (source != DT_SOURCE_SYNTHETIC && (!options->path || !options->path[0]))
        DT_FAIL(DT_ERR_CONFIG, "the data set has no path: set data.train and data.val");
    DT_TRY(DT_NEW(made, 1));
    made->kind = kinds[source];
    DT_TRY_OUT(made->kind->open(made, options));
    if (made->n == 0)
        DT_TRY_OUT(DT_ERROR(DT_ERR_DATA, "data set %s holds no samples",
                            options->path ? options->path : "synthetic"));
    *dataset = made;
    return DT_OK;
out:
    dt_dataset_close(made);
    return status;
}

void dt_dataset_close(struct dt_dataset *dataset)
{
    if (!dataset)
        return;
    if (dataset->state)
        dataset->kind->close(dataset);
    dt_cache_destroy(dataset->cache);
    free(dataset);
}

uint32_t dt_dataset_size(const struct dt_dataset *dataset)
{
    return dataset->n;
}

uint64_t dt_dataset_fingerprint(const struct dt_dataset *dataset)
{
    return dataset->fingerprint;
}

int dt_dataset_label(const struct dt_dataset *dataset, uint32_t id)
{
    return dataset->kind->label(dataset, id);
}

const char *dt_dataset_name(const struct dt_dataset *dataset, uint32_t id, char *out, size_t bytes)
{
    if (id < dataset->n)
        dataset->kind->name(dataset, id, out, bytes);
    else
        snprintf(out, bytes, "sample %u of %u", (unsigned)id, (unsigned)dataset->n);
    for (char *c = strchr(out, '\n'); c; c = strchr(c, '\n'))
        *c = '?'; /* a newline in a name could forge a line of the log */
    return out;
}

bool dt_dataset_is_raw(const struct dt_dataset *dataset)
{
    return dataset->kind->raw;
}

static dt_status read_files(const struct dt_dataset *dataset, uint32_t id, struct dt_sample *sample)
{
    dt_status status = dataset->kind->read(dataset, id, sample);
    /* A file that has disappeared since the data set was opened is one bad sample. */
    if (status == DT_ERR_NO_INPUT || status == DT_ERR_PERMISSION)
        status = DT_ERR_DATA;
    DT_TRY(status);
    return DT_OK;
}

dt_status dt_dataset_read(const struct dt_dataset *dataset, uint32_t id, struct dt_sample *sample)
{
    bool found = false;
    if (id >= dataset->n)
        DT_FAIL(DT_ERR_INTERNAL, "sample %u of a data set of %u was requested", (unsigned)id,
                (unsigned)dataset->n);
    if (dataset->cache)
        DT_TRY(dt_cache_get(dataset->cache, id, sample, &found));
    if (found)
        return DT_OK;
    DT_TRY(read_files(dataset, id, sample));
    if (dataset->cache)
        dt_cache_put(dataset->cache, id, sample);
    return DT_OK;
}

dt_status dt_dataset_cache(struct dt_dataset *dataset, uint64_t bytes)
{
    if (bytes == 0 || dataset->kind->raw)
        return DT_OK;
    return dt_cache_create(&dataset->cache, dataset->n, bytes);
}

void dt_dataset_will_need(const struct dt_dataset *dataset, uint32_t id)
{
    if (dataset->kind->will_need && !(dataset->cache && dt_cache_has(dataset->cache, id)))
        dataset->kind->will_need(dataset, id);
}

void dt_dataset_forget(const struct dt_dataset *dataset)
{
    if (dataset->kind->forget)
        dataset->kind->forget(dataset);
}
