/* The order of an epoch: a Fisher-Yates shuffle of all sample ids, drawn from (seed, epoch) alone.
 */
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
