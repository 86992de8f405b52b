/* The type in which loops store activations and their gradients. The files of this folder with ops
 * and loops are compiled for fp32 and, with DT_REAL_BF16, for bf16 (CMakeLists.txt): arithmetic is
 * fp32 in both, and a stored value is rounded to nearest even. */
#ifndef DTRAIN_CPU_REAL_H
#define DTRAIN_CPU_REAL_H

#include "base/half.h"
#include "dtrain/dtype.h"

#ifdef DT_REAL_BF16
typedef uint16_t real;
#define DT_REAL DT_BF16

static inline float from_real(real x)
{
    return dt_bf16_to_float(x);
}

static inline real to_real(float x)
{
    return dt_float_to_bf16(x);
}
#else
typedef float real;
#define DT_REAL DT_F32

static inline float from_real(real x)
{
    return x;
}

static inline real to_real(float x)
{
    return x;
}
#endif

#endif
