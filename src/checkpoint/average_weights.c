/* The mean of saved weights. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/weights.h"

struct source {
    char path[DT_PATH_MAX];
    struct dt_st_reader *file;
};

static dt_status compare(const struct source *a, const struct source *b)
{
    const char *classes[] = {dt_st_classes(a->file), dt_st_classes(b->file)};
    for (size_t i = 0; i < dt_st_count(a->file); i++) {
        const struct dt_st_tensor *t = dt_st_get(a->file, i);
        const struct dt_st_tensor *u = dt_st_find(b->file, t->name);
        if (!u || (t->dtype == DT_ST_I64) != (u->dtype == DT_ST_I64) || t->n_dims != u->n_dims ||
            memcmp(t->dim, u->dim, sizeof t->dim) != 0)
            DT_FAIL(DT_ERR_CONFIG,
                    "%s and %s cannot be averaged: tensor %s of the first is missing in the second "
                    "or has another shape there; give weights of the same model",
                    a->path, b->path, t->name);
    }
    if (dt_st_count(a->file) != dt_st_count(b->file))
        DT_FAIL(DT_ERR_CONFIG,
                "%s and %s cannot be averaged: they have %zu and %zu tensors; give weights of the "
                "same model",
                a->path, b->path, dt_st_count(a->file), dt_st_count(b->file));
    if (classes[0] && classes[1] && strcmp(classes[0], classes[1]) != 0)
        DT_FAIL(DT_ERR_CONFIG, "%s and %s cannot be averaged: they were trained for other classes",
                a->path, b->path);
    return DT_OK;
}

/* The tensors of the last source, and room for their data. */
static dt_status lay_out(struct dt_average *average, const struct source *last)
{
    uint64_t bytes = 0;
    average->n_tensors = dt_st_count(last->file);
    DT_TRY(DT_NEW(average->tensors, average->n_tensors));
    for (size_t i = 0; i < average->n_tensors; i++) {
        struct dt_st_tensor *t = &average->tensors[i];
        *t = *dt_st_get(last->file, i);
        t->dtype = t->dtype == DT_ST_I64 ? DT_ST_I64 : DT_ST_F32;
    }
    DT_TRY(dt_st_place(average->tensors, average->n_tensors));
    for (size_t i = 0; i < average->n_tensors; i++)
        bytes += average->tensors[i].bytes;
    average->data = dt_mem_alloc_aligned(bytes, "the averaged weights");
    if (!average->data)
        return DT_ERR_MEMORY;
    if (dt_st_classes(last->file))
        DT_TRY(dt_mem_copy_text(&average->classes, dt_st_classes(last->file)));
    return DT_OK;
}

static dt_status average_tensor(char *out, const struct dt_st_tensor *t,
                                const struct source *sources, int n)
{
    const struct source *last = &sources[n - 1];
    double *sum = NULL;
    float *values = NULL;
    dt_status status = DT_OK;
    if (t->dtype == DT_ST_I64)
        return dt_st_read_i64(last->file, dt_st_find(last->file, t->name), out);
    DT_TRY_OUT(DT_NEW(sum, (size_t)t->elements));
    DT_TRY_OUT(DT_NEW(values, (size_t)t->elements));
    for (int s = 0; s < n; s++) {
        struct dt_st_reader *file = sources[s].file;
        DT_TRY_OUT(dt_st_read_f32(file, dt_st_find(file, t->name), values));
        for (uint64_t i = 0; i < t->elements; i++)
            sum[i] += (double)values[i];
    }
    for (uint64_t i = 0; i < t->elements; i++)
        values[i] = (float)(sum[i] / n);
    memcpy(out, values, (size_t)t->bytes);
out:
    free(sum);
    free(values);
    return status;
}

/* Finds the configuration of the run that the weights belong to; checkpoints may be removed, so
 * theirs is that of the run. */
static dt_status find_config(struct dt_average *average, const struct source *source)
{
    static const char in_run[] = "/checkpoints/step-";
    char path[DT_PATH_MAX], real[PATH_MAX], run[DT_PATH_MAX];
    const char *known = dt_st_config(source->file);
    if (known)
        return dt_mem_copy_text(&average->config, known);
    if (dt_weights_config(path, source->path) != DT_OK || !realpath(path, real)) {
        dt_error_clear();
        return DT_OK;
    }
    const char *step = strstr(real, in_run);
    if (step)
        DT_TRY(dt_file_path(run, "%.*s/config.json", (int)(step - real), real));
    return dt_mem_copy_text(&average->config, step && dt_file_exists(run) ? run : real);
}

dt_status dt_average_read(struct dt_average *average, char *const *paths, int n)
{
    struct source *sources = NULL;
    dt_status status = DT_OK;
    *average = (struct dt_average){0};
    DT_TRY(DT_NEW(sources, (size_t)n));
    for (int i = 0; i < n; i++) {
        DT_TRY_OUT(dt_weights_find(sources[i].path, paths[i]));
        DT_TRY_OUT(dt_st_open(&sources[i].file, sources[i].path));
        if (i > 0)
            DT_TRY_OUT(compare(&sources[0], &sources[i]));
        for (int k = 0; k < i; k++)
            if (strcmp(sources[k].path, sources[i].path) == 0)
                dt_log(DT_LOG_WARNING,
                       "%s and %s are the same weights, which count twice in the mean", paths[k],
                       paths[i]);
    }
    DT_TRY_OUT(lay_out(average, &sources[n - 1]));
    DT_TRY_OUT(find_config(average, &sources[n - 1]));
    for (size_t i = 0; i < average->n_tensors; i++) {
        const struct dt_st_tensor *t = &average->tensors[i];
        DT_TRY_OUT(average_tensor(average->data + t->offset, t, sources, n));
    }
out:
    for (int i = 0; i < n; i++)
        dt_st_close(sources[i].file);
    free(sources);
    return status;
}

dt_status dt_average_write(const struct dt_average *average, const struct dt_new_file *file)
{
    char *head = NULL;
    size_t bytes = 0, data_bytes = 0;
    dt_status status = DT_OK;
    for (size_t i = 0; i < average->n_tensors; i++)
        data_bytes += (size_t)average->tensors[i].bytes;
    DT_TRY(dt_st_head(&head, &bytes, average->tensors, average->n_tensors, average->classes,
                      average->config));
    if (lseek(file->fd, 0, SEEK_SET) != 0)
        DT_TRY_OUT(DT_ERROR(DT_ERR_IO, "cannot rewind %s: %s", file->path, strerror(errno)));
    DT_TRY_OUT(dt_file_write(file->fd, head, bytes, file->path));
    DT_TRY_OUT(dt_file_write(file->fd, average->data, data_bytes, file->path));
out:
    free(head);
    return status;
}

void dt_average_reset(struct dt_average *average)
{
    free(average->tensors);
    free(average->data);
    free(average->classes);
    free(average->config);
}
