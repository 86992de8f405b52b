/* Weights in bf16 as oneDNN's convolutions multiply them: pairs of channels next to each other,
 * since an instruction adds two products. The stored format is blocks [input 16][output 16] of
 * every pair of blocks and tap; its copies are made once per use, for which oneDNN takes five times
 * as long. */
#include <string.h>

#include "cpu/cpu_internal.h"

enum { SIDE = 16, BLOCK = SIDE * SIDE, PAIRS = SIDE / 2 };

/* [input / 2][output][input % 2] */
static void pair_inputs(uint32_t *dst, const uint16_t *src)
{
    for (int k = 0; k < PAIRS; k++, dst += SIDE, src += 2 * SIDE) {
#pragma omp simd
        for (int o = 0; o < SIDE; o++)
            dst[o] = src[o] | (uint32_t)src[SIDE + o] << 16;
    }
}

/* [output / 2][input][output % 2] */
static void pair_outputs(uint32_t *dst, const uint16_t *src)
{
    uint32_t pairs[BLOCK / 2];
    memcpy(pairs, src, sizeof pairs);
    for (int k = 0; k < PAIRS; k++)
        for (int i = 0; i < SIDE; i++)
            dst[k * SIDE + i] = pairs[i * PAIRS + k];
}

dt_status dt_cpu_pair_weights(uint16_t *dst, const uint16_t *src, const struct dt_cpu_pairing *p)
{
#pragma omp parallel for schedule(static)
    for (int i = 0; i < p->outputs * p->inputs; i++) {
        const int out = p->inputs_first ? i % p->outputs : i / p->inputs;
        const int in = p->inputs_first ? i / p->outputs : i % p->inputs;
        const uint16_t *from = src + (size_t)((out * p->inputs + in) * p->taps) * BLOCK;
        uint16_t *to = dst + (size_t)(i * p->taps) * BLOCK;
        for (int tap = 0; tap < p->taps; tap++, from += BLOCK, to += BLOCK)
            (p->of_outputs ? pair_outputs : pair_inputs)((uint32_t *)(void *)to, from);
    }
    return DT_OK;
}
