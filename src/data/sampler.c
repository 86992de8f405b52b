/* The order of an epoch: a Fisher-Yates shuffle of all sample ids, drawn from (seed, epoch) alone,
 * and its global batches. */
#include <string.h>

#include "base/rng.h"
#include "dtrain/data.h"

static void shuffle(uint32_t *numbers, uint32_t n, struct dt_rng *rng)
{
    for (uint32_t i = n; i > 1; i--) {
        const uint32_t j = dt_rng_below(rng, i);
        const uint32_t swapped = numbers[i - 1];
        numbers[i - 1] = numbers[j];
        numbers[j] = swapped;
    }
}

void dt_sampler_order(uint32_t *order, uint32_t n, uint64_t seed, uint32_t epoch, bool is_shuffled)
{
    struct dt_rng rng;
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    dt_rng_init(&rng, seed, DT_RNG_SHUFFLE, epoch, 0);
    if (is_shuffled)
        shuffle(order, n, &rng);
}

void dt_sampler_balance(uint32_t *order, uint32_t n, const int32_t *labels, int n_classes,
                        uint64_t seed, uint32_t epoch, uint32_t *memory)
{
    uint32_t *sorted = memory, *first = memory + n, *end = first + n_classes;
    uint32_t *turn = end + n_classes, n_used = 0;
    struct dt_rng rng;
    dt_rng_init(&rng, seed, DT_RNG_SHUFFLE, epoch, 1);
    memset(end, 0, (size_t)n_classes * sizeof *end);
    for (uint32_t i = 0; i < n; i++)
        end[labels[i]]++;
    for (int c = 0; c < n_classes; c++) {
        first[c] = c > 0 ? end[c - 1] : 0;
        if (end[c] > 0)
            turn[n_used++] = (uint32_t)c;
        end[c] += first[c];
    }
    for (uint32_t i = 0; i < n; i++)
        sorted[first[labels[order[i]]]++] = order[i];
    /* first[c] is at the end of its samples now, so that each class begins with its first one. */
    for (uint32_t i = 0; i < n; i++) {
        if (i % n_used == 0)
            shuffle(turn, n_used, &rng);
        const uint32_t c = turn[i % n_used];
        if (first[c] == end[c])
            first[c] = c > 0 ? end[c - 1] : 0;
        order[i] = sorted[first[c]++];
    }
}

/* Moves the samples that wait for a canvas into the order from `first` on. */
static struct dt_sampler_batch take(uint32_t *order, uint32_t first, int canvas,
                                    uint32_t *n_waiting, const uint32_t *waiting)
{
    const uint32_t n = n_waiting[canvas];
    memcpy(order + first, waiting, n * sizeof *order);
    n_waiting[canvas] = 0;
    return (struct dt_sampler_batch){first, n, canvas};
}

/* Works in place: what is put back is never more than what has been read before. */
uint64_t dt_sampler_batches(struct dt_sampler_batch *batches, uint32_t *order, uint32_t n,
                            uint32_t size, const uint8_t *canvas_of, int n_canvases, bool keep_rest,
                            uint32_t *waiting)
{
    uint32_t n_waiting[DT_MAX_CANVASES] = {0}, first = 0;
    uint64_t n_batches = 0;
    for (uint32_t i = 0; i < n; i++) {
        const int canvas = canvas_of ? canvas_of[order[i]] : 0;
        uint32_t *own = waiting + (size_t)canvas * size;
        own[n_waiting[canvas]++] = order[i];
        if (n_waiting[canvas] < size)
            continue;
        batches[n_batches++] = take(order, first, canvas, n_waiting, own);
        first += size;
    }
    for (int canvas = 0; canvas < n_canvases; canvas++) {
        const struct dt_sampler_batch rest =
            take(order, first, canvas, n_waiting, waiting + (size_t)canvas * size);
        if (rest.n > 0 && keep_rest)
            batches[n_batches++] = rest;
        first += rest.n;
    }
    return n_batches;
}
