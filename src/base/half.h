/* fp16 and bf16 on the host, as bits: exact to fp32, rounded to nearest even from fp32. A NaN stays
 * a NaN and becomes quiet; values that are too large become infinite. */
#ifndef DTRAIN_BASE_HALF_H
#define DTRAIN_BASE_HALF_H

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

/* By mask: with branches compilers would not vectorise loops of the functions below. */
static inline uint32_t dt_bits_if(_Bool is, uint32_t then, uint32_t otherwise)
{
    const uint32_t mask = 0u - (uint32_t)is;
    return (then & mask) | (otherwise & ~mask);
}

static inline float dt_bf16_to_float(uint16_t half)
{
    return dt_bits_float((uint32_t)half << 16);
}

static inline uint16_t dt_float_to_bf16(float value)
{
    uint32_t bits = dt_float_bits(value);
    uint32_t quiet = bits >> 16 | 0x40u, rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return (uint16_t)dt_bits_if((bits & 0x7fffffffu) > 0x7f800000u, quiet, rounded);
}

static inline float dt_fp16_to_float(uint16_t half)
{
    uint32_t sign = (half & 0x8000u) << 16, magnitude = half & 0x7fffu;
    uint32_t subnormal = dt_float_bits((float)(int32_t)magnitude * 0x1p-24f); /* exact in fp32 */
    uint32_t normal = (magnitude << 13) + (112u << 23);
    uint32_t special =
        0x7f800000u | magnitude << 13 | dt_bits_if(magnitude > 0x7c00u, 0x400000u, 0);
    uint32_t finite = dt_bits_if(magnitude < 0x400u, subnormal, normal);
    return dt_bits_float(sign | dt_bits_if(magnitude >= 0x7c00u, special, finite));
}

static inline uint16_t dt_float_to_fp16(float value)
{
    uint32_t bits = dt_float_bits(value), sign = bits >> 16 & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu, shifted = magnitude - (112u << 23);
    uint32_t normal = (shifted + 0xfffu + (shifted >> 13 & 1u)) >> 13;
    /* Below 2^-14, multiples of 2^-24: as 0.5 has that as its last bit, the addition rounds. */
    uint32_t subnormal = dt_float_bits(dt_bits_float(magnitude) + 0.5f) - 0x3f000000u;
    uint32_t finite = dt_bits_if(magnitude < 0x38800000u, subnormal, normal);
    /* 65520 is halfway between the largest value and the next would-be value. */
    uint32_t large = dt_bits_if(magnitude >= 0x477ff000u, 0x7c00u, finite);
    uint32_t quiet = 0x7e00u | (magnitude >> 13 & 0x3ffu);
    return (uint16_t)(sign | dt_bits_if(magnitude > 0x7f800000u, quiet, large));
}

#endif
