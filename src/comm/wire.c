/* The functions of a 16-bit wire for each type (struct dt_wire). */
#include "base/clones.h"
#include "base/half.h"
#include "comm/add.h"
#include "comm/comm_internal.h"

/* In blocks of a known length, which compilers vectorise at -O2 too. */
#define FOR_EACH(at, statement)                                  \
    int first = 0;                                               \
    for (; first + DT_ADD_BLOCK <= count; first += DT_ADD_BLOCK) \
        for (int k = 0; k < DT_ADD_BLOCK; k++) {                 \
            const int at = first + k;                            \
            statement;                                           \
        }                                                        \
    for (int at = first; at < count; at++)                       \
    statement

/* A value that overflows loses nothing that could be sent later. */
static inline float finite_or_zero(float value)
{
    const uint32_t bits = dt_float_bits(value);
    return dt_bits_float(dt_bits_if((bits & 0x7f800000u) == 0x7f800000u, 0, bits));
}

#define WIRE(type, to_wire, from_wire, keeps)                                                      \
    DT_CLONES static void pack_##type(uint16_t *restrict out, const float *restrict in, int count) \
    {                                                                                              \
        FOR_EACH(i, out[i] = to_wire(in[i]));                                                      \
    }                                                                                              \
    DT_CLONES static void keep_##type(uint16_t *restrict out, const float *restrict in,            \
                                      float *restrict kept, int count)                             \
    {                                                                                              \
        FOR_EACH(i, {                                                                              \
            const float wanted = in[i] + kept[i];                                                  \
            out[i] = to_wire(wanted);                                                              \
            kept[i] = finite_or_zero(wanted - from_wire(out[i]));                                  \
        });                                                                                        \
    }                                                                                              \
    DT_CLONES static void unpack_##type(float *restrict out, const uint16_t *restrict in,          \
                                        int count)                                                 \
    {                                                                                              \
        FOR_EACH(i, out[i] = from_wire(in[i]));                                                    \
    }                                                                                              \
    DT_CLONES static void add_##type(float *restrict sum, const uint16_t *restrict in, int count)  \
    {                                                                                              \
        FOR_EACH(i, sum[i] += from_wire(in[i]));                                                   \
    }                                                                                              \
    static const struct dt_wire type = {pack_##type, keep_##type, unpack_##type, add_##type, keeps};

WIRE(bf16, dt_float_to_bf16, dt_bf16_to_float, false)
WIRE(fp16, dt_float_to_fp16, dt_fp16_to_float, true)

const struct dt_wire *dt_wire_find(enum dt_dtype type)
{
    return type == DT_BF16 ? &bf16 : type == DT_F16 ? &fp16 : NULL;
}
