/* "Did you mean": the nearest of a list of names by edit distance, where a swap of two neighbours
 * counts as one edit and upper or lower case does not count, or else a name with the same
 * beginning. */
#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "config/keys.h"

enum { NAME_MAX_BYTES = 96, MAX_DISTANCE = 2, PREFIX_MIN_BYTES = 3, MAX_NAMES = 256, FAR = 96 };

static int min3(int a, int b, int c)
{
    int low = a < b ? a : b;
    return low < c ? low : c;
}

/* Optimal string alignment distance; anything above MAX_DISTANCE may come out as FAR, and names
 * that are long always do. */
static int distance(const char *a, const char *b)
{
    int rows[3][NAME_MAX_BYTES + 1], least_above = 0;
    size_t n_a = strlen(a), n_b = strlen(b);
    size_t n_longer = n_a > n_b ? n_a : n_b, n_shorter = n_a > n_b ? n_b : n_a;
    if (n_longer > NAME_MAX_BYTES || n_longer > n_shorter + MAX_DISTANCE)
        return FAR;
    for (size_t j = 0; j <= n_b; j++)
        rows[0][j] = (int)j;
    for (size_t i = 1; i <= n_a; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
        int least = row[0] = (int)i;
        for (size_t j = 1; j <= n_b; j++) {
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            row[j] = min3(above[j] + 1, row[j - 1] + 1, above[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
                y == tolower((unsigned char)a[i - 2]) && above2[j - 2] + 1 < row[j])
                row[j] = above2[j - 2] + 1;
            least = row[j] < least ? row[j] : least;
        }
        if (least > MAX_DISTANCE && least_above > MAX_DISTANCE)
            return FAR; /* the rows below follow from these two */
        least_above = least;
    }
    return rows[n_a % 3][n_b];
}

const char *dt_config_nearest(const char *name, const char *const *names, size_t n_names)
{
    const char *best = NULL;
    size_t bytes = strlen(name);
    int best_distance = MAX_DISTANCE + 1;
    if (bytes <= MAX_DISTANCE) /* two edits would make any word out of it */
        best_distance = MAX_DISTANCE;
    for (size_t i = 0; i < n_names; i++) {
        int d = distance(name, names[i]);
        if (d < best_distance) {
            best_distance = d;
            best = names[i];
        }
    }
    for (size_t i = 0; i < n_names && !best && bytes >= PREFIX_MIN_BYTES; i++) {
        size_t other = strlen(names[i]);
        if (strncmp(name, names[i], bytes < other ? bytes : other) == 0 &&
            other >= PREFIX_MIN_BYTES)
            best = names[i];
    }
    return best;
}

/* "train has the keys epochs, max_steps, ...", for a path within a known section. */
static void list_section(char *out, size_t bytes, const char *path)
{
    size_t section = strcspn(path, "."), used = 0;
    for (size_t i = 0; i < dt_config_n_keys() && used < bytes; i++) {
        const char *known = dt_keys[i].path;
        if (strncmp(known, path, section + 1) != 0)
            continue;
        if (used == 0)
            used = (size_t)snprintf(out, bytes, "; %.*s has the keys ", (int)section, path);
        else
            used += (size_t)snprintf(out + used, bytes - used, ", ");
        if (used < bytes)
            used += (size_t)snprintf(out + used, bytes - used, "%s", known + section + 1);
    }
}

/* The first name a path could mean: a section when it has no dot, else a key, else the key of that
 * name in another section. */
static const char *nearest_name(char section[DT_CONFIG_NAME_MAX], const char *path)
{
    const char *names[MAX_NAMES] = {NULL}, *dot = strrchr(path, '.'), *near = NULL;
    size_t n = dt_config_n_keys();
    assert(n <= MAX_NAMES);
    for (size_t i = 0; i < n && !dot; i++) {
        const char *name = section;
        snprintf(section, DT_CONFIG_NAME_MAX, "%.*s", dt_key_section(&dt_keys[i]), dt_keys[i].path);
        if (dt_config_nearest(path, &name, 1))
            return section;
    }
    for (size_t i = 0; i < n; i++)
        names[i] = dt_keys[i].path;
    near = dt_config_nearest(path, names, n);
    if (near)
        return near;
    for (size_t i = 0; i < n; i++)
        names[i] = strchr(dt_keys[i].path, '.') + 1;
    near = dt_config_nearest(dot ? dot + 1 : path, names, n);
    for (size_t i = 0; i < n; i++)
        if (names[i] == near)
            return dt_keys[i].path;
    return NULL;
}

const char *dt_key_suggest(char *out, size_t bytes, const char *path)
{
    char section[DT_CONFIG_NAME_MAX];
    const char *near = nearest_name(section, path);
    out[0] = '\0';
    if (near)
        snprintf(out, bytes, "; did you mean %s?", near);
    else
        list_section(out, bytes, path);
    return out;
}
