/* A list of strings in one block, cheap for a million file names; sorting permutes the offsets. */
#include "base/names.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/mem.h"

dt_status dt_names_add(struct dt_names *names, const char *text, size_t bytes)
{
    if (names->bytes + bytes + 1 > UINT32_MAX)
        DT_FAIL(DT_ERR_DATA, "a list of file names exceeds 4 GiB");
    DT_TRY(DT_GROW(names->text, names->capacity, names->bytes + bytes, "file names"));
    DT_TRY(DT_GROW(names->offset, names->n_capacity, names->n, "offsets of file names"));
    memcpy(names->text + names->bytes, text, bytes);
    names->text[names->bytes + bytes] = 0;
    names->offset[names->n++] = (uint32_t)names->bytes;
    names->bytes += bytes + 1;
    return DT_OK;
}

dt_status dt_names_insert(struct dt_names *names, size_t index, const char *text, size_t bytes)
{
    DT_TRY(dt_names_add(names, text, bytes));
    uint32_t *place = names->offset + index, added = names->offset[names->n - 1];
    memmove(place + 1, place, (names->n - 1 - index) * sizeof *place);
    *place = added;
    return DT_OK;
}

dt_status dt_names_add_all(struct dt_names *names, const struct dt_names *from)
{
    for (size_t i = 0; i < from->n; i++) {
        const char *name = dt_names_get(from, i);
        DT_TRY(dt_names_add(names, name, strlen(name)));
    }
    return DT_OK;
}

const char *dt_names_get(const struct dt_names *names, size_t index)
{
    return names->text + names->offset[index];
}

static int compare_names(const void *a, const void *b, void *text)
{
    return strcmp((const char *)text + *(const uint32_t *)a,
                  (const char *)text + *(const uint32_t *)b);
}

void dt_names_sort(struct dt_names *names)
{
    if (names->n > 1)
        qsort_r(names->offset, names->n, sizeof *names->offset, compare_names, names->text);
}

dt_status dt_names_add_unique(struct dt_names *names, const struct dt_names *from)
{
    dt_status status = DT_OK;
    struct dt_names sorted = {0};

    DT_TRY_OUT(dt_names_add_all(&sorted, from));
    dt_names_sort(&sorted);
    for (size_t i = 0; i < sorted.n; i++) {
        const char *name = dt_names_get(&sorted, i);
        if (i == 0 || strcmp(dt_names_get(&sorted, i - 1), name) != 0)
            DT_TRY_OUT(dt_names_add(names, name, strlen(name)));
    }
out:
    dt_names_reset(&sorted);
    return status;
}

size_t dt_names_find(const struct dt_names *sorted, const char *name)
{
    size_t low = 0, high = sorted->n;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (strcmp(dt_names_get(sorted, middle), name) <= 0)
            low = middle;
        else
            high = middle;
    }
    return low;
}

dt_status dt_names_list(struct dt_names *names, const char *folder)
{
    dt_status status = DT_OK;
    struct dt_names found = {0};
    DIR *dir = opendir(folder);

    if (!dir)
        DT_FAIL(dt_file_input_status(errno), "cannot read folder %s: %s", folder, strerror(errno));
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry)
            break;
        if (entry->d_name[0] != '.')
            DT_TRY_OUT(dt_names_add(&found, entry->d_name, strlen(entry->d_name)));
    }
    if (errno)
        DT_TRY_OUT(DT_ERROR(DT_ERR_IO, "cannot read folder %s: %s", folder, strerror(errno)));
    dt_names_sort(&found);
    DT_TRY_OUT(dt_names_add_all(names, &found));
out:
    closedir(dir);
    dt_names_reset(&found);
    return status;
}

void dt_names_reset(struct dt_names *names)
{
    free(names->text);
    free(names->offset);
    *names = (struct dt_names){0};
}

bool dt_name_is_inside(const char *name)
{
    if (name[0] == '/')
        return false;
    for (const char *part = name; part; part = strchr(part, '/')) {
        part += *part == '/';
        if (!strncmp(part, "..", 2) && (part[2] == '/' || part[2] == 0))
            return false;
    }
    return true;
}

bool dt_name_has_control(const char *name)
{
    for (; *name; name++)
        if ((unsigned char)*name < 0x20 || *name == 0x7f)
            return true;
    return false;
}

bool dt_name_has_suffix(const char *name, const char *suffix)
{
    const char *dot = strrchr(name, '.');
    return dot && strcasecmp(dot, suffix) == 0;
}
