/* A list of strings in one block, cheap for a million file names; sorting permutes the offsets. */
#include "base/names.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"

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

void dt_names_remove(struct dt_names *names, size_t index)
{
    uint32_t *place = names->offset + index;
    memmove(place, place + 1, (--names->n - index) * sizeof *place);
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

/* Hidden, or made by macOS, Synology, Windows, Linux's file systems. */
static bool is_not_listed(const char *name)
{
    static const char *const made[] = {
        "__MACOSX",    "@eaDir",     "#recycle",     "Thumbs.db",
        "desktop.ini", "lost+found", "$RECYCLE.BIN", "System Volume Information"};
    for (size_t i = 0; i < DT_COUNT(made); i++)
        if (strcasecmp(name, made[i]) == 0)
            return true;
    return name[0] == '.';
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
        if (!is_not_listed(entry->d_name))
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

/* --- Classes --- */

/* Two data sets mean the same by a label only if their classes have the same names in the same
 * order, so the validation set's labels are mapped by name to those of the training set. */

enum { MAX_CLASSES_BYTES = 64 << 20, LIST_BYTES = 1024, LIST_NAMES = 8 };

/* Looks at `first` first: two lists usually have the same order. */
static int find_from(const struct dt_names *classes, size_t first, const char *name)
{
    for (size_t i = 0; i < classes->n; i++) {
        size_t at = (first + i) % classes->n;
        if (strcmp(dt_names_get(classes, at), name) == 0)
            return (int)at;
    }
    return -1;
}

int dt_classes_find(const struct dt_names *classes, const char *name)
{
    return find_from(classes, 0, name);
}

/* Sorts a copy, as there may be a million names. */
static dt_status check_unique(const struct dt_names *classes, const char *what)
{
    dt_status status = DT_OK;
    struct dt_names sorted = {0};
    DT_TRY_OUT(dt_names_add_all(&sorted, classes));
    dt_names_sort(&sorted);
    for (size_t i = 1; i < sorted.n; i++)
        if (strcmp(dt_names_get(&sorted, i - 1), dt_names_get(&sorted, i)) == 0)
            DT_TRY_OUT(
                DT_ERROR(DT_ERR_DATA, "%s lists class %s twice", what, dt_names_get(&sorted, i)));
out:
    dt_names_reset(&sorted);
    return status;
}

dt_status dt_classes_parse(struct dt_names *classes, const char *text, const char *what)
{
    for (const char *line = text; *line;) {
        size_t bytes = strcspn(line, "\n"), n = bytes;
        while (n > 0 && line[n - 1] == '\r')
            n--;
        if (n == 0)
            DT_FAIL(DT_ERR_DATA, "%s:%zu: an empty line instead of a class name", what,
                    classes->n + 1);
        DT_TRY(dt_names_add(classes, line, n));
        line += bytes + (line[bytes] == '\n');
    }
    return check_unique(classes, what);
}

dt_status dt_classes_load(struct dt_names *classes, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    DT_TRY(dt_file_load(&text, &bytes, path, MAX_CLASSES_BYTES));
    dt_status status = DT_OK;
    if (bytes == 0 || strlen(text) != bytes)
        status = DT_ERROR(DT_ERR_DATA, "%s is not a list of class names, one per line", path);
    else
        status = dt_classes_parse(classes, text, path);
    free(text);
    return status;
}

dt_status dt_classes_text(char **text, const struct dt_names *classes)
{
    *text = NULL;
    if (!classes || classes->n == 0)
        return DT_OK;
    for (size_t i = 0; i < classes->n; i++)
        if (strchr(dt_names_get(classes, i), '\n'))
            DT_FAIL(DT_ERR_DATA, "the name of class %zu contains a line break: rename it", i);
    DT_TRY(DT_NEW(*text, classes->bytes + 1));
    char *end = *text;
    for (size_t i = 0; i < classes->n; i++) {
        const char *name = dt_names_get(classes, i);
        memcpy(end, name, strlen(name));
        end += strlen(name);
        *end++ = '\n';
    }
    return DT_OK;
}

/* The number of names and the first few of them. */
struct difference {
    size_t n;
    struct dt_text text;
    char buffer[LIST_BYTES];
};

static void add_name(struct difference *d, const char *name)
{
    const char *before = d->n++ > 0 ? ", " : "";
    if (d->n <= LIST_NAMES)
        dt_text_add(&d->text, "%s%s", before, name);
    else if (d->n == LIST_NAMES + 1)
        dt_text_add(&d->text, ", ...");
}

dt_status dt_classes_map(int *map, const struct dt_names *own, const struct dt_names *classes,
                         bool subset, bool all, const char *path)
{
    struct difference unknown = {0}, missing = {0};
    unknown.text = dt_text_in(unknown.buffer, LIST_BYTES);
    missing.text = dt_text_in(missing.buffer, LIST_BYTES);
    for (size_t i = 0; i < own->n; i++) {
        map[i] = find_from(classes, i, dt_names_get(own, i));
        if (map[i] < 0)
            add_name(&unknown, dt_names_get(own, i));
    }
    for (size_t i = 0; i < classes->n; i++)
        if (find_from(own, i, dt_names_get(classes, i)) < 0 &&
            strncmp(dt_names_get(classes, i), DT_CLASSES_GAP, strlen(DT_CLASSES_GAP)) != 0)
            add_name(&missing, dt_names_get(classes, i));
    if (unknown.n == own->n)
        DT_FAIL(DT_ERR_DATA, "%s holds none of the %zu classes, which begin with %s; it has %s",
                path, classes->n, dt_names_get(classes, 0), unknown.text.at);
    if (unknown.n > 0 && !subset)
        DT_FAIL(DT_ERR_DATA,
                "%s holds %zu class(es) that the model is not trained for: %s; remove or rename "
                "them, or choose classes with data.class_map",
                path, unknown.n, unknown.text.at);
    if (missing.n > 0 && all)
        DT_FAIL(DT_ERR_DATA, "data.class_map lists %zu class(es) that %s lacks: %s", missing.n,
                path, missing.text.at);
    if (missing.n > 0)
        dt_log(DT_LOG_NOTICE, "%s lacks %zu of %zu classes: %s", path, missing.n, classes->n,
               missing.text.at);
    return DT_OK;
}
