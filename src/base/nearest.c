/* Edit distance between names. */
#include "base/nearest.h"

#include <ctype.h>
#include <string.h>

enum { NAME_MAX_BYTES = 96, MAX_DISTANCE = 2, BYTES_PER_EDIT = 3, PREFIX_MIN_BYTES = 3, FAR = 96 };

static int min3(int a, int b, int c)
{
    int low = a < b ? a : b;
    return low < c ? low : c;
}

/* Optimal string alignment distance; anything above MAX_DISTANCE may be returned as FAR, and long
 * names always are. */
static int distance(const char *a, const char *b)
{
    int rows[3][NAME_MAX_BYTES + 1], min_above = 0;
    size_t n_a = strlen(a), n_b = strlen(b);
    size_t n_longer = n_a > n_b ? n_a : n_b, n_shorter = n_a > n_b ? n_b : n_a;
    if (n_longer > NAME_MAX_BYTES || n_longer > n_shorter + MAX_DISTANCE)
        return FAR;
    for (size_t j = 0; j <= n_b; j++)
        rows[0][j] = (int)j;
    for (size_t i = 1; i <= n_a; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
        int min = row[0] = (int)i;
        for (size_t j = 1; j <= n_b; j++) {
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            row[j] = min3(above[j] + 1, row[j - 1] + 1, above[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
                y == tolower((unsigned char)a[i - 2]) && above2[j - 2] + 1 < row[j])
                row[j] = above2[j - 2] + 1;
            min = row[j] < min ? row[j] : min;
        }
        if (min > MAX_DISTANCE && min_above > MAX_DISTANCE)
            return FAR; /* later rows depend on these two only */
        min_above = min;
    }
    return rows[n_a % 3][n_b];
}

const char *dt_nearest(const char *name, const char *const *names, size_t n_names)
{
    const char *best = NULL;
    size_t bytes = strlen(name);
    int best_distance = MAX_DISTANCE + 1;
    if (bytes < MAX_DISTANCE * BYTES_PER_EDIT) /* two edits could turn it into any word */
        best_distance = (int)bytes / BYTES_PER_EDIT + 1;
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
