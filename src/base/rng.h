/* Counter-based random numbers (Philox4x32-10 from Random123, Salmon et al., SC'11).
 *
 * A stream is a pure function of (seed, purpose, epoch, id): there is no state to save, and the
 * numbers do not depend on threads, ranks or call order. */
#ifndef DTRAIN_BASE_RNG_H
#define DTRAIN_BASE_RNG_H

#include <stdint.h>

enum dt_rng_purpose {
    DT_RNG_SHUFFLE = 1, /* sample order; id 0; turns of balanced classes; id 1 */
    DT_RNG_AUGMENT,     /* crop and flip; id = sample id */
    DT_RNG_INIT,        /* weights; id = hash of the parameter name */
    DT_RNG_DROPOUT,     /* epoch = step, id = dropout node's stream */
    DT_RNG_SYNTHETIC,   /* synthetic images; id = sample id */
    DT_RNG_COLOUR,      /* colour jitter and erasing; id = sample id */
    DT_RNG_MIX,         /* mixup and CutMix; id = sample id of the first of the pair */
};

struct dt_rng {
    uint64_t key;        /* the seed */
    uint32_t counter[4]; /* block number, id, epoch, purpose */
    uint32_t block[4];
    unsigned n_used; /* words of `block` already used */
};

void dt_rng_init(struct dt_rng *rng, uint64_t seed, enum dt_rng_purpose purpose, uint32_t epoch,
                 uint32_t id);
uint32_t dt_rng_u32(struct dt_rng *rng);
/* Uniform in [0, 1) with 32 bits, and without bias in 0 .. n-1 (n >= 1). */
double dt_rng_uniform(struct dt_rng *rng);
uint32_t dt_rng_below(struct dt_rng *rng, uint32_t n);
/* Standard normal (Box-Muller; two uniforms per call). */
double dt_rng_normal(struct dt_rng *rng);
/* Beta(alpha, alpha) in [0, 1], alpha > 0: mean 1/2, variance 1 / (8 alpha + 4). From two gamma
 * variates (Marsaglia and Tsang 2000), so the number of words used varies. */
double dt_rng_beta(struct dt_rng *rng, double alpha);
/* Words `first` .. `first + count - 1` of the stream (first a multiple of 4), for bulk use. A
 * stream repeats after 2^34 words. */
void dt_rng_fill(uint32_t *out, uint64_t count, uint64_t seed, enum dt_rng_purpose purpose,
                 uint32_t epoch, uint32_t id, uint64_t first);
/* 32-bit hash of a string for use as an id. */
uint32_t dt_rng_hash(const char *text);

#endif
