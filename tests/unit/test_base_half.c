/* fp16 and bf16 on the host: all 65536 values there and back, and rounding against a reference that
 * searches the nearest by its distance. */
#include <math.h>
#include <stdbool.h>

#include "base/half.h"
#include "test.h"

struct kind {
    float (*widen)(uint16_t half);
    uint16_t (*round)(float value);
    int mantissa_bits, exponent_bits;
};

static const struct kind FP16 = {dt_fp16_to_float, dt_float_to_fp16, 10, 5};
static const struct kind BF16 = {dt_bf16_to_float, dt_float_to_bf16, 7, 8};

static uint16_t infinity_of(const struct kind *kind)
{
    return (uint16_t)(((1 << kind->exponent_bits) - 1) << kind->mantissa_bits);
}

/* Sign, exponent and mantissa put together with ldexp. */
static double value_of(const struct kind *kind, uint16_t half)
{
    int bias = (1 << (kind->exponent_bits - 1)) - 1, one = 1 << kind->mantissa_bits;
    int exponent = (half & 0x7fff) >> kind->mantissa_bits, mantissa = half & (one - 1);
    double value = exponent == 0 ? ldexp(mantissa, 1 - bias - kind->mantissa_bits)
                                 : ldexp(one + mantissa, exponent - bias - kind->mantissa_bits);
    return half & 0x8000 ? -value : value;
}

static void check_all(const struct kind *kind)
{
    uint16_t infinity = infinity_of(kind);
    for (uint32_t i = 0; i < 65536; i++) {
        uint16_t half = (uint16_t)i, magnitude = half & 0x7fff;
        float wide = kind->widen(half);
        if (magnitude > infinity) {
            assert_true(isnan(wide));
            assert_true((kind->round(wide) & 0x7fff) > infinity);
            assert_int_equal(kind->round(wide) & 0x8000, half & 0x8000);
            continue;
        }
        if (magnitude == infinity)
            assert_true(isinf(wide) && (wide < 0) == (half >= 0x8000));
        else
            assert_true((double)wide == value_of(kind, half));
        assert_int_equal(kind->round(wide), half);
    }
}

/* The nearer of the neighbours `lower` and `lower + 1`, or the even one. The neighbour above the
 * largest value counts as if there were one more exponent. */
static uint16_t nearest(const struct kind *kind, uint16_t lower, double value)
{
    double down = value - value_of(kind, lower), up = value_of(kind, (uint16_t)(lower + 1)) - value;
    if (down == up)
        return (uint16_t)(lower + (lower & 1));
    return (uint16_t)(lower + (down > up));
}

/* For every interval between neighbours: just outside it, its middle, and just off the middle. */
static void check_rounding(const struct kind *kind)
{
    for (uint16_t half = 0; half < infinity_of(kind); half++) {
        float low = kind->widen(half);
        float middle = (float)((value_of(kind, half) + value_of(kind, (uint16_t)(half + 1))) / 2);
        const float values[] = {low, nextafterf(low, INFINITY), nextafterf(middle, 0), middle,
                                nextafterf(middle, INFINITY)};
        for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
            if (isinf(values[i]))
                continue;
            uint16_t expected = nearest(kind, half, (double)values[i]);
            assert_int_equal(kind->round(values[i]), expected);
            assert_int_equal(kind->round(-values[i]), expected | 0x8000);
        }
    }
}

TEST(there_and_back)
{
    check_all(&FP16);
    check_all(&BF16);
}

TEST(rounding)
{
    check_rounding(&FP16);
    check_rounding(&BF16);
}

TEST(special_values)
{
    assert_int_equal(dt_float_to_fp16(65504.0f), 0x7bff);
    assert_int_equal(dt_float_to_fp16(65519.996f), 0x7bff);
    assert_int_equal(dt_float_to_fp16(65520.0f), 0x7c00);
    assert_int_equal(dt_float_to_fp16(3e38f), 0x7c00);
    assert_int_equal(dt_float_to_fp16(-INFINITY), 0xfc00);
    assert_int_equal(dt_float_to_fp16(0x1p-24f), 1);
    assert_int_equal(dt_float_to_fp16(0x1p-25f), 0);
    assert_int_equal(dt_float_to_fp16(0x1.8p-25f), 1);
    assert_int_equal(dt_float_to_fp16(-0x1p-149f), 0x8000);
    assert_int_equal(dt_float_to_bf16(3.3895e38f), 0x7f7f);
    assert_int_equal(dt_float_to_bf16(3.4028235e38f), 0x7f80);
    assert_int_equal(dt_float_to_bf16(-INFINITY), 0xff80);
    /* A NaN whose upper mantissa bits are all zero must not become infinite. */
    assert_true((dt_float_to_bf16(dt_bits_float(0x7f800001u)) & 0x7fff) > 0x7f80);
    assert_true((dt_float_to_fp16(dt_bits_float(0xff800001u)) & 0x7fff) > 0x7c00);
}

TEST_MAIN(NULL, NULL)
