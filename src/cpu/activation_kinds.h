/* Loops that are compiled once for every kind of activation, so that the compiler sees one formula
 * in each: a CONSTANT_KIND function has the loop, and FOR_KIND calls it as the macro LOOP_OF(kind)
 * says. */
#ifndef DTRAIN_CPU_ACTIVATION_KINDS_H
#define DTRAIN_CPU_ACTIVATION_KINDS_H

#include "dtrain/activation.h"

#ifdef __SANITIZE_ADDRESS__ /* would take five times as long to compile; the kind is a variable */
#define CONSTANT_KIND static
#else
#define CONSTANT_KIND static inline __attribute__((always_inline))
#endif

#define CASE_OF_KIND(NAME, name) \
    case DT_##NAME:              \
        LOOP_OF(DT_##NAME);      \
        break;
#define FOR_KIND(kind)                   \
    switch (kind) {                      \
        DT_ACTIVATION_LIST(CASE_OF_KIND) \
    default:                             \
        LOOP_OF(DT_NO_ACTIVATION);       \
    }

#endif
