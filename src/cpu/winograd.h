/* The inner loops of Winograd's algorithm (winograd.c).
 *
 * Activations are N x blocks x H x W x DT_WINO_BLOCK floats, as oneDNN prefers them on this
 * instruction set; a block of channels is one vector. A tile is 4x4 pixels of the convolution's
 * result, and depends on a patch of 6x6 pixels of its source that overlaps the neighbours'. Tiles
 * are numbered by image, then down, then across. Transformed, both have 36 positions. */
#ifndef DTRAIN_CPU_WINOGRAD_H
#define DTRAIN_CPU_WINOGRAD_H

#include <stdbool.h>
#include <stddef.h>

#include "cpu/group.h"
#include "cpu/isa.h"

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
    DT_WINO_PATCH = 6,
    DT_WINO_POSITIONS = DT_WINO_PATCH * DT_WINO_PATCH,
    DT_WINO_TAPS = 9,
};

struct dt_wino_image {
    int n, blocks, height, width;
    int down, across; /* number of tiles */
};

/* Some tiles, transformed: value [position][block][tile] is a vector. */
struct dt_wino_chunk {
    int first, n; /* tiles */
    int room;     /* tiles for which there is memory, at least DT_WINO_STEP */
    size_t plane; /* floats from one position to the next */
};

/* A block of at most out x in plain weights w[o * out_stride + i * in_stride + tap]; channels that
 * it does not have count as 0. */
struct dt_wino_weights {
    size_t out_stride, in_stride;
    int out, in;
    bool rotated; /* the taps in reverse order */
};

struct dt_wino_loops {
    /* B'dB of the patches of all blocks; pixels outside of the image are 0. */
    void (*patches)(float *v, const struct dt_wino_chunk *chunk, const float *src,
                    const struct dt_wino_image *image);
    /* AdA' of the tiles of all blocks. */
    void (*tiles)(float *v, const struct dt_wino_chunk *chunk, const float *src,
                  const struct dt_wino_image *image);
    /* GgG' of a block of weights: a vector of outputs for [position][input], with positions `plane`
     * floats apart. */
    void (*weights)(float *u, size_t plane, const float *w, const struct dt_wino_weights *layout);
    /* One position: m[k][tile] = sum over the channels c of n_blocks blocks of v[c][tile] *
     * u[k][c], for `wide` blocks k of the result, which are m_block and u_block floats apart. */
    void (*product)(float *m, size_t m_block, const float *v, const struct dt_wino_chunk *chunk,
                    int n_blocks, const float *u, size_t u_block, int wide);
    /* A'mA + bias of one block, then ReLU if `relu`; bias has a value for every lane. */
    void (*output)(float *dst, const struct dt_wino_image *image, int block, const float *m,
                   const struct dt_wino_chunk *chunk, const float *bias, bool relu);
    /* One position and block of inputs: sum[k][c] (+)= sum over n tiles of v[tile][c] * y[k][tile];
     * `first`: without what sum held. */
    void (*outer)(float *sum, size_t sum_block, const float *v, const float *y, size_t y_block,
                  int n, int wide, bool first);
    /* G'mG of a block m[position][input]. */
    void (*gradient)(float *w, const struct dt_wino_weights *layout, const float *m);
    /* total[lane] += the values of one block of one image. */
    void (*add)(double *total, const float *src, const struct dt_wino_image *image);
};

#define dt_wino DT_ISA_NAME(dt_wino)
extern const struct dt_wino_loops dt_wino;

#endif
