/* The inner loops of Winograd's algorithm (winograd.c).
 *
 * Activations are N x blocks x H x W x DT_WINO_BLOCK values (real.h), as oneDNN prefers them on
 * this instruction set; a block of channels is one vector. A tile is 4x4 pixels of the
 * convolution's result, and depends on a patch of 6x6 pixels of its source that overlaps the
 * neighbours'. Tiles are numbered by image, then down, then across. Transformed, both have 36
 * positions.
 *
 * With stride 2 the larger image has four phases, the pixels with even or odd rows and columns;
 * each phase is convolved with those of the 3x3 weights that meet it: 2 in an odd direction, 1 in
 * an even one. A patch is 5x5 pixels of a phase (for the gradient of the data, whose result has the
 * phases, of the smaller image), and there are 25 positions; in an even direction the last one is
 * not used, and the patch has 4 pixels. */
#ifndef DTRAIN_CPU_WINOGRAD_H
#define DTRAIN_CPU_WINOGRAD_H

#include <stdbool.h>
#include <stddef.h>

#include "cpu/isa.h"
#include "cpu/simd.h"

enum {
    DT_WINO_BLOCK = WIDTH,
#if defined(__AVX512F__)
    DT_WINO_STEP = 12, /* `product` computes this many tiles at a time, in registers */
    DT_WINO_SIDE = 8,  /* and `outer` this many channels */
#else
    DT_WINO_STEP = 6,
    DT_WINO_SIDE = 4,
#endif
    DT_WINO_WIDE = 2, /* both for up to this many blocks of the result's channels */
    DT_WINO_TILE = 4,
    DT_WINO_TAPS = 9,
    /* Even-odd, odd-odd, odd-even, even-even: vertically, horizontally. In this order those that
     * use a position are adjacent. */
    DT_WINO_PHASES = 4,
    DT_WINO_PHASE_PATCH = 5,
};

struct dt_wino_image {
    int n, channels, blocks, height, width;
    int phases;       /* 1 or DT_WINO_PHASES */
    int down, across; /* number of tiles, in each phase */
};

/* Some tiles, transformed: value [position][phase][block][tile] is a vector. */
struct dt_wino_chunk {
    int first, n; /* tiles */
    int room;     /* tiles for which there is memory, at least DT_WINO_STEP */
    size_t plane; /* floats from one position to the next */
};

struct dt_wino_loops {
    size_t positions;
    /* B'dB of the patches of all phases and blocks; pixels outside of the image are 0. */
    void (*patches)(float *v, const struct dt_wino_chunk *chunk, const real *src,
                    const struct dt_wino_image *image);
    /* AdA' of the tiles of all blocks. */
    void (*tiles)(float *v, const struct dt_wino_chunk *chunk, const real *src,
                  const struct dt_wino_image *image);
    /* GgG' of a pair of blocks of weights w[tap][input][output]: a vector of outputs for
     * [position][input], with positions `plane` and phases `u_phase` floats apart. With `rotated`
     * the taps are in reverse order, and inputs and outputs exchanged. */
    void (*weights)(float *u, size_t plane, size_t u_phase, const real *w, bool rotated);
    /* One position: m[k][tile] = sum over the channels c of n_blocks blocks of v[c][tile] *
     * u[k][c], for `wide` blocks k of the result, which are m_block and u_block floats apart. */
    void (*product)(float *m, size_t m_block, const float *v, const struct dt_wino_chunk *chunk,
                    int n_blocks, const float *u, size_t u_block, int wide);
    /* A'mA + bias of one phase and block, then ReLU if `relu`; bias has a value for every lane. */
    void (*output)(real *dst, const struct dt_wino_image *image, int phase, int block,
                   const float *m, const struct dt_wino_chunk *chunk, const float *bias, bool relu);
    /* One position and block of inputs: sum[k][c] (+)= sum over n tiles of v[tile][c] * y[k][tile];
     * `first`: without what sum held. */
    void (*outer)(float *sum, size_t sum_block, const float *v, const float *y, size_t y_block,
                  int n, int wide, bool first);
    /* G'mG of a pair of blocks m[phase][position][input]: w[tap][input][output]. */
    void (*gradient)(float *w, const float *m);
    /* total[lane] += the values of one block of one image. */
    void (*add)(double *total, const real *src, const struct dt_wino_image *image);
};

#define dt_wino DT_ISA_NAME(dt_wino)
extern const struct dt_wino_loops dt_wino[2]; /* of stride 1 and 2 */

#endif
