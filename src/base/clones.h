/* DT_CLONES before a function with a loop: compiled once more for AVX2, and the dynamic linker
 * takes what this CPU has. For loops whose bits do not depend on it; the ops of the CPU backend
 * have instruction sets of their own (cpu/isa.h). Sanitizers are not ready when the linker asks. */
#ifndef DTRAIN_BASE_CLONES_H
#define DTRAIN_BASE_CLONES_H

#include <features.h>

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define DT_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define DT_CLONES
#endif

#endif
