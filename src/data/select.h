/* Which samples of a data set are used: one side of data.val_fraction, and of training samples at
 * most data.max_train. Both follow the samples' keys, hashes of their names, so the choice is the
 * same on every rank and nearly the same for a data set that has grown:
 *   - A sample is for validation if its key, as a fraction of the largest one, is below
 *     val_fraction, whatever the other samples are. Of every class with two or more samples at
 * least one is for validation, that with the smallest key, and at least one for training, that with
 *     the largest: only in classes so small can a new sample change the side of another.
 *   - max_train keeps of every class the same fraction, rounded, of its samples: those with the
 *     smallest keys. A larger max_train keeps all that a smaller one keeps. */
#ifndef DTRAIN_DATA_SELECT_H
#define DTRAIN_DATA_SELECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct dt_pick {
    uint64_t key;
    double place; /* set here: in its class, 0 .. 1 */
    uint32_t id;
    int32_t label;
};

/* group.c: gives the picks of a group the same key, so that one side has all of them, and neither
 * side is empty. DT_ERR_DATA for a name that the pattern does not match. */
struct dt_dataset;
struct dt_config_data;
dt_status dt_group_picks(struct dt_pick *picks, size_t n, const struct dt_dataset *dataset,
                         const struct dt_config_data *data, uint64_t seed);

/* Sort `picks` and keep the first of them; return how many. The samples for training, at most
 * `max` of them (0 = all), and those for validation, all sorted by id. by_class:
 * every class has samples on both sides, else the keys alone decide, as groups need it. */
size_t dt_select_train(struct dt_pick *picks, size_t n, double val_fraction, bool by_class,
                       size_t max);
size_t dt_select_val(struct dt_pick *picks, size_t n, double val_fraction, bool by_class);

#endif
