/* Activation functions, with PyTorch's definitions, and their arithmetic for one value, which the
 * CPU loops and the CUDA kernels share. Plain C that nvcc compiles too.
 *
 * To add one, add a row and its two functions here, and its definition in tests/ops/activation.h.
 */
#ifndef DTRAIN_ACTIVATION_H
#define DTRAIN_ACTIVATION_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define DT_ACTIVATION_FUNCTION static __host__ __device__ inline
#else
#define DT_ACTIVATION_FUNCTION static inline __attribute__((always_inline))
#endif

/* X(NAME, name): with relu6(x) = min(max(x, 0), 6) and phi the normal distribution's function,
 *
 * - relu, which lets NaN through and stays first; relu6
 * - silu: x / (1 + exp(-x)); sigmoid: 1 / (1 + exp(-x))
 * - hard_sigmoid: relu6(x + 3) / 6; hard_swish: x times that
 * - gelu: x phi(x); gelu_tanh: x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 */
#define DT_ACTIVATION_LIST(X)     \
    X(RELU, relu)                 \
    X(RELU6, relu6)               \
    X(SILU, silu)                 \
    X(SIGMOID, sigmoid)           \
    X(HARD_SIGMOID, hard_sigmoid) \
    X(HARD_SWISH, hard_swish)     \
    X(GELU, gelu)                 \
    X(GELU_TANH, gelu_tanh)

enum dt_activation {
    DT_NO_ACTIVATION,
#define DT_ACTIVATION_VALUE(NAME, name) DT_##NAME,
    DT_ACTIVATION_LIST(DT_ACTIVATION_VALUE)
#undef DT_ACTIVATION_VALUE
};

/* exp(x) to 2 units in the last place, without a call, so that loops are vectorised; x beyond +-60
 * is taken for that: compilers also compute what follows from these limits for every value, and for
 * +-87 that would be subnormal products, which take Intel's CPUs a hundred cycles each. Cephes'
 * polynomial (Moshier, expf.c). */
DT_ACTIVATION_FUNCTION float dt_exp(float x)
{
#ifdef __CUDA_ARCH__
    return expf(x);
#else
    const float shift = 0x1.8p23f; /* adding it rounds to an integer */
    x = x < -60 ? -60 : x;
    x = x > 60 ? 60 : x;
    const float rounded = x * 1.44269504f + shift, whole = rounded - shift;
    const float r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    uint32_t bits; /* the whole number is in the lowest ones */
    memcpy(&bits, &rounded, sizeof bits);
    bits = (bits + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return (p * r * r + r + 1) * power;
#endif
}

DT_ACTIVATION_FUNCTION float dt_sigmoid(float x)
{
    return 1 / (1 + dt_exp(-x));
}

DT_ACTIVATION_FUNCTION float dt_clamp(float x, float low, float high)
{
    return x < low ? low : x > high ? high : x;
}

DT_ACTIVATION_FUNCTION float dt_relu(float x)
{
    return x <= 0 ? 0 : x;
}

DT_ACTIVATION_FUNCTION float dt_relu_slope(float x)
{
    return x <= 0 ? 0.0f : 1.0f;
}

DT_ACTIVATION_FUNCTION float dt_relu6(float x)
{
    return dt_clamp(x, 0, 6);
}

DT_ACTIVATION_FUNCTION float dt_relu6_slope(float x)
{
    return x <= 0 || x >= 6 ? 0 : 1;
}

DT_ACTIVATION_FUNCTION float dt_sigmoid_slope(float x)
{
    const float s = dt_sigmoid(x);
    return s * (1 - s);
}

DT_ACTIVATION_FUNCTION float dt_silu(float x)
{
    return x * dt_sigmoid(x);
}

DT_ACTIVATION_FUNCTION float dt_silu_slope(float x)
{
    const float s = dt_sigmoid(x);
    return s * (1 + x * (1 - s));
}

DT_ACTIVATION_FUNCTION float dt_hard_sigmoid(float x)
{
    return dt_clamp(x + 3, 0, 6) * (1 / 6.0f);
}

DT_ACTIVATION_FUNCTION float dt_hard_sigmoid_slope(float x)
{
    return x <= -3 || x >= 3 ? 0 : 1 / 6.0f;
}

DT_ACTIVATION_FUNCTION float dt_hard_swish(float x)
{
    return x * dt_hard_sigmoid(x);
}

DT_ACTIVATION_FUNCTION float dt_hard_swish_slope(float x)
{
    return x < -3 ? 0 : x > 3 ? 1 : x * (1 / 3.0f) + 0.5f;
}

/* phi(x) to 1e-7, from e = exp(-x^2 / 2): Abramowitz and Stegun, 7.1.26. */
DT_ACTIVATION_FUNCTION float dt_normal_cdf(float x, float e)
{
    const float z = (x < 0 ? -x : x) * 0.707106781f, t = 1 / (1 + 0.3275911f * z);
    float p = 1.061405429f;
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    const float tail = 0.5f * p * t * e;
    return x < 0 ? tail : 1 - tail;
}

DT_ACTIVATION_FUNCTION float dt_gelu(float x)
{
    return x * dt_normal_cdf(x, dt_exp(-0.5f * x * x));
}

DT_ACTIVATION_FUNCTION float dt_gelu_slope(float x)
{
    const float e = dt_exp(-0.5f * x * x);
    return dt_normal_cdf(x, e) + x * 0.398942280f * e;
}

/* (1 + tanh(u)) / 2 is the sigmoid of 2 u. */
DT_ACTIVATION_FUNCTION float dt_gelu_tanh(float x)
{
    return x * dt_sigmoid(1.59576912f * (x + 0.044715f * x * x * x));
}

DT_ACTIVATION_FUNCTION float dt_gelu_tanh_slope(float x)
{
    const float s = dt_sigmoid(1.59576912f * (x + 0.044715f * x * x * x));
    return s + x * s * (1 - s) * 1.59576912f * (1 + 3 * 0.044715f * x * x);
}

/* The value, and the derivative where the argument was x. With a constant kind only its formula
 * remains. */
DT_ACTIVATION_FUNCTION float dt_activate(enum dt_activation kind, float x)
{
    switch (kind) {
#define DT_ACTIVATE(NAME, name) \
    case DT_##NAME:             \
        return dt_##name(x);
        DT_ACTIVATION_LIST(DT_ACTIVATE)
#undef DT_ACTIVATE
    default:
        return x;
    }
}

DT_ACTIVATION_FUNCTION float dt_activation_slope(enum dt_activation kind, float x)
{
    switch (kind) {
#define DT_SLOPE(NAME, name) \
    case DT_##NAME:          \
        return dt_##name##_slope(x);
        DT_ACTIVATION_LIST(DT_SLOPE)
#undef DT_SLOPE
    default:
        return 1;
    }
}

/* diff times the slope at x; through ReLU nothing else may come, not even -0 or NaN. */
DT_ACTIVATION_FUNCTION float dt_through_activation(enum dt_activation kind, float diff, float x)
{
    return kind != DT_RELU ? diff * dt_activation_slope(kind, x) : x <= 0 ? 0 : diff;
}

#endif
