/* Copies of weights in bf16 as oneDNN's convolutions want them, for which it takes several times as
 * long. The stored format is blocks [input][output] of every pair of blocks and tap.
 *
 * Convolutions in bf16 take pairs of channels next to each other, since an instruction adds two
 * products; those in fp32 on AVX2 take the blocks transposed for the gradient of the data. */
#include <string.h>

#include "cpu/cpu_internal.h"

enum { SIDE = 16, PAIRS = SIDE / 2 };

/* [input / 2][output][input % 2] */
static void pair_inputs(uint32_t *dst, const uint16_t *src, int wide)
{
    for (int k = 0; k < PAIRS; k++, dst += wide, src += 2 * SIDE) {
#pragma omp simd
        for (int o = 0; o < SIDE; o++)
            dst[o] = src[o] | (uint32_t)src[SIDE + o] << 16;
    }
}

/* [output / 2][input][output % 2] */
static void pair_outputs(uint32_t *dst, const uint16_t *src, int wide)
{
    uint32_t pairs[SIDE * PAIRS];
    memcpy(pairs, src, sizeof pairs);
    for (int k = 0; k < PAIRS; k++)
        for (int i = 0; i < SIDE; i++)
            dst[k * wide + i] = pairs[i * PAIRS + k];
}

/* [output][input] in fp32 */
static void transpose(float *dst, const uint16_t *src)
{
    enum { SIDE8 = 8 };
    float wide[SIDE8 * SIDE8];
#pragma omp simd
    for (int i = 0; i < SIDE8 * SIDE8; i++)
        wide[i] = dt_bf16_to_float(src[i]);
    for (int o = 0; o < SIDE8; o++)
        for (int i = 0; i < SIDE8; i++)
            dst[o * SIDE8 + i] = wide[i * SIDE8 + o];
}

static void copy_block(void *dst, const uint16_t *src, const struct dt_cpu_relayout *r)
{
    const int wide = r->wide ? r->wide : SIDE;
    if (r->to == DT_CPU_PAIRS_OF_INPUTS)
        pair_inputs(dst, src, wide);
    else if (r->to == DT_CPU_PAIRS_OF_OUTPUTS)
        pair_outputs(dst, src, wide);
    else
        transpose(dst, src);
}

/* Offset of a tap of a block, in pairs. */
static size_t wide_place(const struct dt_cpu_relayout *r, int out, int in, int tap)
{
    const bool of_outputs = r->to == DT_CPU_PAIRS_OF_OUTPUTS;
    const int paired = of_outputs ? out : in, pairs = (of_outputs ? r->outputs : r->inputs) * PAIRS;
    const int other = (of_outputs ? in : out) * SIDE;
    const int first =
        (other / r->wide * r->taps + (r->mirrored ? r->taps - 1 - tap : tap)) * pairs +
        paired * PAIRS;
    return (size_t)first * (size_t)r->wide + (size_t)(other % r->wide);
}

dt_status dt_cpu_relayout_weights(void *dst, const uint16_t *src, const struct dt_cpu_relayout *r)
{
    const size_t block = (size_t)(r->side * r->side);
    const size_t bytes = block * (r->to == DT_CPU_TRANSPOSED ? sizeof(float) : sizeof(uint16_t));
#pragma omp parallel for schedule(static)
    for (int i = 0; i < r->outputs * r->inputs; i++) {
        const int out = r->inputs_first ? i % r->outputs : i / r->inputs;
        const int in = r->inputs_first ? i / r->outputs : i % r->inputs;
        const uint16_t *from = src + (size_t)((out * r->inputs + in) * r->taps) * block;
        char *to = (char *)dst + (size_t)(i * r->taps) * bytes;
        for (int tap = 0; tap < r->taps; tap++, from += block, to += bytes)
            copy_block(r->wide ? (uint32_t *)dst + wide_place(r, out, in, tap) : (void *)to, from,
                       r);
    }
    return DT_OK;
}
