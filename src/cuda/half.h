/* fp16 and bf16 on the host, as bits: exact to fp32, rounded to nearest even from fp32. A NaN stays
 * a NaN and becomes quiet; values that are too large become infinite. */
#ifndef DTRAIN_CUDA_HALF_H
#define DTRAIN_CUDA_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t dt_float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float dt_bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float dt_bf16_to_float(uint16_t half)
{
    return dt_bits_float((uint32_t)half << 16);
}

static inline uint16_t dt_float_to_bf16(float value)
{
    uint32_t bits = dt_float_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static inline float dt_fp16_to_float(uint16_t half)
{
    uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 31u, mantissa = half & 0x3ffu;
    if (exponent == 31)
        return dt_bits_float(sign | 0x7f800000u | mantissa << 13 | (mantissa ? 0x400000u : 0));
    if (exponent == 0) {
        float value = (float)mantissa * 0x1p-24f; /* subnormal: exact in fp32 */
        return dt_bits_float(dt_float_bits(value) | sign);
    }
    return dt_bits_float(sign | (exponent + 112) << 23 | mantissa << 13);
}

static inline uint16_t dt_float_to_fp16(float value)
{
    uint32_t bits = dt_float_bits(value), sign = bits >> 16 & 0x8000u,
             magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude >=
        0x477ff000u) /* 65520: halfway between the largest value and the next would-be value */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) { /* 2^-14: subnormal, a multiple of 2^-24 */
        /* 0.5 has 2^-24 as its last bit, so this addition does the rounding. */
        float rounded = dt_bits_float(magnitude) + 0.5f;
        return (uint16_t)(sign | (dt_float_bits(rounded) - 0x3f000000u));
    }
    uint32_t shifted = magnitude - (112u << 23);
    return (uint16_t)(sign | ((shifted + 0xfffu + (shifted >> 13 & 1u)) >> 13));
}

#endif
