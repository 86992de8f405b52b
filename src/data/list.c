/* A list of single files without labels, for dtrain predict. */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "data/files.h"
#include "data/names.h"

static dt_status open_list(struct dt_dataset *dataset, const struct dt_dataset_options *options)
{
    const struct dt_names **images;
    if (options->num_classes == 0 && (!options->classes || options->classes->n == 0))
        DT_FAIL(DT_ERR_CONFIG,
                "the weights hold no names of classes: set model.num_classes to their number");
    DT_TRY(DT_NEW(images, 1));
    *images = options->images;
    dataset->state = images;
    dataset->n = (uint32_t)options->images->n;
    dataset->n_classes = 1;
    return DT_OK;
}

static void close_list(struct dt_dataset *dataset)
{
    free(dataset->state);
}

static void name_list(const struct dt_dataset *dataset, uint32_t id, char *out, size_t bytes)
{
    snprintf(out, bytes, "%s", dt_names_get(*(const struct dt_names **)dataset->state, id));
}

static int label_list(const struct dt_dataset *dataset, uint32_t id)
{
    (void)dataset;
    (void)id;
    return 0;
}

const struct dt_dataset_kind dt_dataset_list = {.open = open_list,
                                                .read = dt_files_read,
                                                .label = label_list,
                                                .name = name_list,
                                                .close = close_list};
