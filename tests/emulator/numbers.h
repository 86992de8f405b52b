// Number types of the emulated libraries: fp32, fp16 or bf16 in memory, fp32 in computations.
#ifndef DTRAIN_EMULATOR_NUMBERS_H
#define DTRAIN_EMULATOR_NUMBERS_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

namespace emu
{

enum class number { f32, f16, bf16 };

inline size_t bytes_of(number type)
{
    return type == number::f32 ? 4 : 2;
}

// The value of an fp32 input in a tensor core: 10 bits of mantissa, rounded to nearest even.
inline float round_tf32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7F800000u) != 0x7F800000u) // infinities and NaNs are kept
        bits = (bits + 0xFFFu + (bits >> 13 & 1u)) & ~0x1FFFu;
    memcpy(&x, &bits, sizeof x);
    return x;
}

inline float load_number(const void *from, number type, size_t i)
{
    switch (type) {
    case number::f16:
        return __half2float(static_cast<const __half *>(from)[i]);
    case number::bf16:
        return __bfloat162float(static_cast<const __nv_bfloat16 *>(from)[i]);
    default:
        return static_cast<const float *>(from)[i];
    }
}

inline void store_number(void *to, number type, size_t i, float value)
{
    switch (type) {
    case number::f16:
        static_cast<__half *>(to)[i] = __float2half_rn(value);
        break;
    case number::bf16:
        static_cast<__nv_bfloat16 *>(to)[i] = __float2bfloat16_rn(value);
        break;
    default:
        static_cast<float *>(to)[i] = value;
    }
}

inline bool is_aligned(const void *address, uint64_t alignment)
{
    return alignment == 0 || reinterpret_cast<uintptr_t>(address) % alignment == 0;
}

// A piece of memory that a call reads or writes.
struct region {
    const void *begin;
    size_t bytes;
};

inline bool overlap(const region &a, const region &b)
{
    const char *p = static_cast<const char *>(a.begin), *q = static_cast<const char *>(b.begin);
    return a.bytes > 0 && b.bytes > 0 && p < q + b.bytes && q < p + a.bytes;
}

} // namespace emu

#endif
