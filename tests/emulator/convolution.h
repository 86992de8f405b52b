// Convolutions on the CPU as the engines of the emulated cuDNN compute them: NHWC, weights K R S C,
// sums in fp32. Included by cudnn.cpp only.
#ifndef DTRAIN_EMULATOR_CONVOLUTION_H
#define DTRAIN_EMULATOR_CONVOLUTION_H

#include <algorithm>
#include <vector>

#include "numbers.h"

namespace emu
{

enum class conv_kind { forward, bwd_data, bwd_filter };

struct conv_shape {
    conv_kind kind;
    size_t n, c, h, w, k, r, s, p, q; // x: n h w c, weights: k r s c, y: n p q k
    size_t stride[2];
    size_t pad[2]; // before; what lies beyond the end counts as zero, too
    size_t x_size() const
    {
        return n * h * w * c;
    }
    size_t w_size() const
    {
        return k * r * s * c;
    }
    size_t y_size() const
    {
        return n * p * q * k;
    }
};

#pragma GCC push_options
#pragma GCC optimize("O3")

inline void add_scaled(float *to, const float *from, float factor, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] += factor * from[i];
}

// Calls visit(offset of the pixel in x, tap) for the taps of output (i, j) that lie inside of the
// image; tap = r * S + s.
template <typename F> void for_taps(const conv_shape &v, size_t image, size_t i, size_t j, F visit)
{
    for (size_t r = 0; r < v.r; r++) {
        const size_t y = i * v.stride[0] + r; // in padded coordinates
        if (y < v.pad[0] || y - v.pad[0] >= v.h)
            continue;
        for (size_t s = 0; s < v.s; s++) {
            const size_t x = j * v.stride[1] + s;
            if (x < v.pad[1] || x - v.pad[1] >= v.w)
                continue;
            visit(((image * v.h + y - v.pad[0]) * v.w + x - v.pad[1]) * v.c, r * v.s + s);
        }
    }
}

// `first`: where in their order the terms of a sum begin; another one rounds otherwise.
inline void conv_forward(const conv_shape &v, const float *x, const float *w, float *y,
                         size_t first)
{
    const size_t n_taps = v.r * v.s;
    std::vector<float> turned(v.w_size()); // tap, c, k: rows of outputs
    for (size_t k = 0; k < v.k; k++)
        for (size_t t = 0; t < n_taps; t++)
            for (size_t c = 0; c < v.c; c++)
                turned[(t * v.c + c) * v.k + k] = w[(k * n_taps + t) * v.c + c];
    float *sums = y;
    for (size_t image = 0; image < v.n; image++)
        for (size_t i = 0; i < v.p; i++)
            for (size_t j = 0; j < v.q; j++, sums += v.k)
                for_taps(v, image, i, j, [&](size_t pixel, size_t tap) {
                    for (size_t l = 0; l < v.c; l++) {
                        const size_t c = (l + first) % v.c;
                        add_scaled(sums, &turned[(tap * v.c + c) * v.k], x[pixel + c], v.k);
                    }
                });
}

inline void conv_bwd_data(const conv_shape &v, float *dx, const float *w, const float *dy,
                          size_t first)
{
    const size_t n_taps = v.r * v.s;
    for (size_t image = 0; image < v.n; image++)
        for (size_t i = 0; i < v.p; i++)
            for (size_t j = 0; j < v.q; j++, dy += v.k)
                for_taps(v, image, i, j, [&](size_t pixel, size_t tap) {
                    for (size_t l = 0; l < v.k; l++) {
                        const size_t k = (l + first) % v.k;
                        add_scaled(dx + pixel, w + (k * n_taps + tap) * v.c, dy[k], v.c);
                    }
                });
}

// Rows of the output are summed on their own first: long sums lose little that way.
inline void conv_bwd_filter(const conv_shape &v, const float *x, float *dw, const float *dy,
                            size_t first)
{
    const size_t n_taps = v.r * v.s, n_rows = v.n * v.p;
    std::vector<float> part(v.w_size());
    for (size_t l = 0; l < n_rows; l++) {
        const size_t row = (l + first) % n_rows;
        std::fill(part.begin(), part.end(), 0.0f);
        const float *from = dy + row * v.q * v.k;
        for (size_t j = 0; j < v.q; j++, from += v.k)
            for_taps(v, row / v.p, row % v.p, j, [&](size_t pixel, size_t tap) {
                for (size_t k = 0; k < v.k; k++)
                    add_scaled(&part[(k * n_taps + tap) * v.c], x + pixel, from[k], v.c);
            });
        add_scaled(dw, part.data(), 1.0f, v.w_size());
    }
}

#pragma GCC pop_options

// One run: the tensor that `kind` produces is written (or added to), the other two are read.
struct conv_run {
    conv_shape shape;
    number type;
    bool tf32, accumulate;
    size_t first;
    void *x, *w, *y;
};

inline std::vector<float> load_tensor(const void *data, number type, size_t n, bool tf32)
{
    std::vector<float> out(n);
    for (size_t i = 0; i < n; i++) {
        const float v = load_number(data, type, i);
        out[i] = tf32 ? round_tf32(v) : v;
    }
    return out;
}

inline void run_convolution(const conv_run &run)
{
    const conv_shape &v = run.shape;
    const bool to_y = v.kind == conv_kind::forward, to_x = v.kind == conv_kind::bwd_data;
    const size_t sizes[] = {v.x_size(), v.w_size(), v.y_size()};
    void *const data[] = {run.x, run.w, run.y};
    const int out = to_x ? 0 : to_y ? 2 : 1;
    std::vector<float> values[3];
    for (int i = 0; i < 3; i++)
        values[i] = i == out ? std::vector<float>(sizes[i])
                             : load_tensor(data[i], run.type, sizes[i], run.tf32);
    float *x = values[0].data(), *w = values[1].data(), *y = values[2].data();
    if (to_y)
        conv_forward(v, x, w, y, run.first);
    else if (to_x)
        conv_bwd_data(v, x, w, y, run.first);
    else
        conv_bwd_filter(v, x, w, y, run.first);
    for (size_t i = 0; i < sizes[out]; i++) {
        float sum = values[out][i];
        if (run.accumulate)
            sum += load_number(data[out], run.type, i);
        store_number(data[out], run.type, i, sum);
    }
}

} // namespace emu

#endif
