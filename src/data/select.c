#include "data/select.h"

#include <stdlib.h>
#include <string.h>

/* --- Orders --- */

#define ORDER(a, b) (((a) > (b)) - ((a) < (b)))

static int compare_ids(const void *a, const void *b)
{
    const struct dt_pick *x = a, *y = b;
    return ORDER(x->id, y->id);
}

static int compare_keys(const struct dt_pick *x, const struct dt_pick *y)
{
    return x->key == y->key ? ORDER(x->id, y->id) : ORDER(x->key, y->key);
}

static int compare_in_classes(const void *a, const void *b)
{
    const struct dt_pick *x = a, *y = b;
    return x->label == y->label ? compare_keys(x, y) : ORDER(x->label, y->label);
}

static int compare_places(const void *a, const void *b)
{
    const struct dt_pick *x = a, *y = b;
    return x->place == y->place ? compare_keys(x, y) : ORDER(x->place, y->place);
}

/* --- Choice --- */

static size_t class_end(const struct dt_pick *picks, size_t begin, size_t n)
{
    size_t end = begin;
    while (end < n && picks[end].label == picks[begin].label)
        end++;
    return end;
}

/* How many of the n samples of a class, the first of them, are for validation. */
static size_t count_val(const struct dt_pick *picks, size_t n, double fraction, bool by_class)
{
    size_t n_val = 0;
    if (fraction == 0 || (by_class && n < 2))
        return 0;
    const size_t max_val = by_class ? n - 1 : n;
    while (n_val < max_val && (double)picks[n_val].key < fraction * 0x1p64)
        n_val++;
    return n_val > 0 || !by_class ? n_val : 1;
}

/* Keeps one side of every class, sorted by class and key. */
static size_t keep_side(struct dt_pick *picks, size_t n, double fraction, bool by_class, bool train)
{
    size_t n_kept = 0;
    qsort(picks, n, sizeof *picks, compare_in_classes);
    for (size_t begin = 0, end; begin < n; begin = end) {
        end = class_end(picks, begin, n);
        const size_t middle = begin + count_val(picks + begin, end - begin, fraction, by_class);
        const size_t from = train ? middle : begin, to = train ? end : middle;
        memmove(picks + n_kept, picks + from, (to - from) * sizeof *picks);
        n_kept += to - from;
    }
    return n_kept;
}

size_t dt_select_train(struct dt_pick *picks, size_t n, double val_fraction, bool by_class,
                       size_t max)
{
    n = keep_side(picks, n, val_fraction, by_class, true);
    if (max > 0 && n > max) {
        for (size_t begin = 0, end; begin < n; begin = end) {
            end = class_end(picks, begin, n);
            for (size_t i = begin; i < end; i++)
                picks[i].place = ((double)(i - begin) + 0.5) / (double)(end - begin);
        }
        qsort(picks, n, sizeof *picks, compare_places);
        n = max;
    }
    qsort(picks, n, sizeof *picks, compare_ids);
    return n;
}

size_t dt_select_val(struct dt_pick *picks, size_t n, double val_fraction, bool by_class)
{
    n = keep_side(picks, n, val_fraction, by_class, false);
    qsort(picks, n, sizeof *picks, compare_ids);
    return n;
}
