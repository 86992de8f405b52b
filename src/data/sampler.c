/* The order of an epoch: a Fisher-Yates shuffle of all sample ids, drawn from (seed, epoch) alone,
 * and its global batches. */
#include <string.h>

#include "base/rng.h"
#include "dtrain/data.h"

void dt_sampler_order(uint32_t *order, uint32_t n, uint64_t seed, uint32_t epoch, bool shuffle)
{
    struct dt_rng rng;
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    if (!shuffle)
        return;
    dt_rng_init(&rng, seed, DT_RNG_SHUFFLE, epoch, 0);
    for (uint32_t i = n; i > 1; i--) {
        const uint32_t j = dt_rng_below(&rng, i);
        const uint32_t swapped = order[i - 1];
        order[i - 1] = order[j];
        order[j] = swapped;
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
