/* Philox4x32-10 streams. The counter is {block number, id, epoch, purpose}, the key is the seed. */
#include "base/rng.h"

#include <Random123/philox.h>
#include <math.h>
#include <string.h>

static void make_block(uint32_t out[4], uint64_t key, const uint32_t counter[4])
{
    philox4x32_ctr_t c = {{counter[0], counter[1], counter[2], counter[3]}};
    philox4x32_key_t k = {{(uint32_t)key, (uint32_t)(key >> 32)}};
    philox4x32_ctr_t r = philox4x32(c, k);
    memcpy(out, r.v, sizeof(r.v));
}

void dt_rng_init(struct dt_rng *rng, uint64_t seed, enum dt_rng_purpose purpose, uint32_t epoch,
                 uint32_t id)
{
    *rng = (struct dt_rng){.key = seed, .counter = {0, id, epoch, (uint32_t)purpose}, .n_used = 4};
}

uint32_t dt_rng_u32(struct dt_rng *rng)
{
    if (rng->n_used == 4) {
        make_block(rng->block, rng->key, rng->counter);
        rng->counter[0]++;
        rng->n_used = 0;
    }
    return rng->block[rng->n_used++];
}

double dt_rng_uniform(struct dt_rng *rng)
{
    return dt_rng_u32(rng) * 0x1p-32;
}

uint32_t dt_rng_below(struct dt_rng *rng, uint32_t n)
{
    /* Lemire's method: the high word of u * n, rejecting the few u that would bias it. */
    uint64_t product = (uint64_t)dt_rng_u32(rng) * n;
    if ((uint32_t)product < n) {
        uint32_t threshold = -n % n;
        while ((uint32_t)product < threshold)
            product = (uint64_t)dt_rng_u32(rng) * n;
    }
    return (uint32_t)(product >> 32);
}

/* Uniform in (0, 1], for logarithms. */
static double positive(struct dt_rng *rng)
{
    return (dt_rng_u32(rng) + 1.0) * 0x1p-32;
}

double dt_rng_normal(struct dt_rng *rng)
{
    double u = positive(rng);
    double v = dt_rng_u32(rng) * 0x1p-32;
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

/* Logarithm of a Gamma(shape, 1) variate, shape >= 1, by Marsaglia and Tsang's rejection. */
static double log_gamma_variate(struct dt_rng *rng, double shape)
{
    double d = shape - 1.0 / 3.0, c = 1.0 / sqrt(9.0 * d);
    for (;;) {
        double x = dt_rng_normal(rng);
        double v = (1.0 + c * x) * (1.0 + c * x) * (1.0 + c * x);
        double u = positive(rng);
        if (v > 0.0 && log(u) < 0.5 * x * x + d - d * v + d * log(v))
            return log(d) + log(v);
    }
}

double dt_rng_beta(struct dt_rng *rng, double alpha)
{
    /* For alpha < 1, Gamma(alpha) is Gamma(alpha + 1) * u^(1 / alpha), computed in logarithms
     * because the power underflows for small alpha. The difference is divided, not each term, to
     * avoid infinity - infinity. */
    double shape = alpha < 1.0 ? alpha + 1.0 : alpha;
    double log_odds = log_gamma_variate(rng, shape);
    log_odds -= log_gamma_variate(rng, shape);
    if (alpha < 1.0) {
        double log_u = log(positive(rng));
        log_odds += (log_u - log(positive(rng))) / alpha;
    }
    return 1.0 / (1.0 + exp(-log_odds));
}

void dt_rng_fill(uint32_t *out, uint64_t count, uint64_t seed, enum dt_rng_purpose purpose,
                 uint32_t epoch, uint32_t id, uint64_t first)
{
    uint32_t counter[4] = {(uint32_t)(first / 4), id, epoch, (uint32_t)purpose};
    uint32_t block[4];
    for (uint64_t i = 0; i < count; i += 4, counter[0]++) {
        make_block(block, seed, counter);
        memcpy(out + i, block, (count - i < 4 ? count - i : 4) * sizeof(uint32_t));
    }
}

uint32_t dt_rng_hash(const char *text)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    return hash;
}
