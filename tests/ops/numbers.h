/* Storage types in tests: rounding, packing and unpacking, written independently of the backends.
 * Round to nearest, ties to even; fp16 with subnormals. */
#ifndef DTRAIN_TESTS_NUMBERS_H
#define DTRAIN_TESTS_NUMBERS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "dtrain/dtype.h"

/* x with `bits` bits of mantissa (the leading one not counted) and exponents down to min_exponent.
 */
static inline double round_mantissa(double x, int bits, int min_exponent)
{
    int exponent;
    if (x == 0 || !isfinite(x))
        return x;
    frexp(x, &exponent); /* |x| in [0.5, 1) * 2^exponent */
    if (exponent - 1 < min_exponent)
        exponent = min_exponent + 1;
    double unit = ldexp(1.0, exponent - 1 - bits);
    return nearbyint(x / unit) * unit;
}

/* What a value becomes where matrices of a precision are stored or multiplied. */
static inline double round_to(enum dt_precision precision, double x)
{
    switch (precision) {
    case DT_PRECISION_TF32:
        return round_mantissa(x, 10, -126);
    case DT_PRECISION_BF16:
        return round_mantissa(x, 7, -126);
    case DT_PRECISION_FP16:
        x = round_mantissa(x, 10, -14);
        return fabs(x) > 65504 ? copysign(INFINITY, x) : x;
    default:
        return (float)x;
    }
}

/* Bits of a value that the type holds exactly. */
static inline uint16_t pack16(enum dt_dtype type, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (type == DT_BF16)
        return (uint16_t)(bits >> 16);
    uint32_t sign = bits >> 16 & 0x8000;
    double magnitude = fabs((double)value);
    if (isnan(value))
        return (uint16_t)(sign | 0x7e00);
    if (magnitude >= 65520)
        return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x1p-14)
        return (uint16_t)(sign | (uint32_t)nearbyint(magnitude * 0x1p24));
    int exponent;
    double mantissa = frexp(magnitude, &exponent); /* [0.5, 1) */
    return (uint16_t)(sign | (uint32_t)(exponent + 14) << 10 |
                      ((uint32_t)nearbyint(mantissa * 2048) & 0x3ff));
}

static inline float unpack16(enum dt_dtype type, uint16_t bits)
{
    float value;
    if (type == DT_BF16) {
        uint32_t wide = (uint32_t)bits << 16;
        memcpy(&value, &wide, sizeof value);
        return value;
    }
    int exponent = bits >> 10 & 31, mantissa = bits & 0x3ff;
    double magnitude = exponent == 31  ? (mantissa ? (double)NAN : (double)INFINITY)
                       : exponent == 0 ? ldexp(mantissa, -24)
                                       : ldexp(mantissa + 1024, exponent - 25);
    return (float)(bits & 0x8000 ? -magnitude : magnitude);
}

#endif
