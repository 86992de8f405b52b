// Convolutions on the CPU as the engines of the emulated cuDNN compute them: NHWC, weights K R S C,
// sums in fp32.
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
    size_t pad[2]; // at the start; positions beyond the end count as zero, too
    size_t dilation, groups;
    size_t x_size() const
    {
        return n * h * w * c;
    }
    size_t w_size() const
    {
        return k * r * s * c / groups;
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

// Outputs `begin` to `end` of a row, for all of which the tap (r * S + s) is inside the image, and
// the offsets of their pixels in x: from `pixel` in steps of `step`.
struct conv_taps {
    size_t tap, begin, end, pixel, step;
};

inline size_t divide_up(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

// Calls visit(conv_taps) for the taps of row i of the outputs; for bwd_data from right to left, so
// that the terms of each pixel of x are added in output order.
template <typename F> void for_taps(const conv_shape &v, size_t image, size_t i, F visit)
{
    const size_t stride = v.stride[1], pad = v.pad[1];
    for (size_t r = 0; r < v.r; r++) {
        const size_t y = i * v.stride[0] + r * v.dilation; // in padded coordinates
        if (y < v.pad[0] || y - v.pad[0] >= v.h)
            continue;
        const size_t row = (image * v.h + y - v.pad[0]) * v.w;
        for (size_t n = 0; n < v.s; n++) {
            const size_t s = v.kind == conv_kind::bwd_data ? v.s - 1 - n : n, at = s * v.dilation;
            if (at >= v.w + pad)
                continue;
            const size_t begin = at < pad ? divide_up(pad - at, stride) : 0;
            const size_t end = std::min(v.q, divide_up(v.w + pad - at, stride));
            if (begin < end)
                visit(conv_taps{r * v.s + s, begin, end, (row + begin * stride + at - pad) * v.c,
                                stride * v.c});
        }
    }
}

// `first`: the term with which a sum begins; a different one rounds differently. Each row of
// weights is used for a whole row of outputs while it is in the cache.
inline void conv_forward(const conv_shape &v, const float *x, const float *w, float *y,
                         size_t first)
{
    const size_t n_taps = v.r * v.s;
    std::vector<float> turned(v.w_size()); // tap, c, k: rows of outputs
    for (size_t k = 0; k < v.k; k++)
        for (size_t t = 0; t < n_taps; t++)
            for (size_t c = 0; c < v.c; c++)
                turned[(t * v.c + c) * v.k + k] = w[(k * n_taps + t) * v.c + c];
    for (size_t row = 0; row < v.n * v.p; row++, y += v.q * v.k)
        for_taps(v, row / v.p, row % v.p, [&](const conv_taps &t) {
            for (size_t l = 0; l < v.c; l++) {
                const size_t c = (l + first) % v.c;
                const float *from = x + t.pixel + c;
                for (size_t j = t.begin; j < t.end; j++, from += t.step)
                    add_scaled(y + j * v.k, &turned[(t.tap * v.c + c) * v.k], *from, v.k);
            }
        });
}

inline void conv_bwd_data(const conv_shape &v, float *dx, const float *w, const float *dy,
                          size_t first)
{
    const size_t n_taps = v.r * v.s;
    for (size_t row = 0; row < v.n * v.p; row++, dy += v.q * v.k)
        for_taps(v, row / v.p, row % v.p, [&](const conv_taps &t) {
            for (size_t l = 0; l < v.k; l++) {
                const size_t k = (l + first) % v.k;
                float *to = dx + t.pixel;
                for (size_t j = t.begin; j < t.end; j++, to += t.step)
                    add_scaled(to, w + (k * n_taps + t.tap) * v.c, dy[j * v.k + k], v.c);
            }
        });
}

// Each row of the output is summed separately first, so that long sums lose little precision.
inline void conv_bwd_filter(const conv_shape &v, const float *x, float *dw, const float *dy,
                            size_t first)
{
    const size_t n_taps = v.r * v.s, n_rows = v.n * v.p;
    std::vector<float> part(v.c);
    for (size_t l = 0; l < n_rows; l++) {
        const size_t row = (l + first) % n_rows;
        for_taps(v, row / v.p, row % v.p, [&](const conv_taps &t) {
            for (size_t k = 0; k < v.k; k++) {
                const float *from = x + t.pixel;
                std::fill(part.begin(), part.end(), 0.0f);
                for (size_t j = t.begin; j < t.end; j++, from += t.step)
                    add_scaled(part.data(), from, dy[(row * v.q + j) * v.k + k], v.c);
                add_scaled(dw + (k * n_taps + t.tap) * v.c, part.data(), 1.0f, v.c);
            }
        });
    }
}

#pragma GCC pop_options

// One run: computes the tensor that `kind` produces from the other two.
struct conv_run {
    conv_shape shape;
    number type;
    bool is_short; // sums the even and the odd elements of an input separately, and rounds each sum
    size_t first;
};

// x, w and y of one group; adds to the one that the kind produces.
inline void add_group(const conv_run &run, std::vector<float> *values)
{
    const conv_shape &v = run.shape;
    float *x = values[0].data(), *w = values[1].data(), *y = values[2].data();
    if (v.kind == conv_kind::forward)
        conv_forward(v, x, w, y, run.first);
    else if (v.kind == conv_kind::bwd_data)
        conv_bwd_data(v, x, w, y, run.first);
    else
        conv_bwd_filter(v, x, w, y, run.first);
}

// Copies part `group` of every row between all groups and one; a row of weights belongs to one
// group.
inline void copy_group(std::vector<float> &all, std::vector<float> &own, size_t row, size_t groups,
                       size_t group, bool to_own)
{
    const size_t part = row / groups;
    for (size_t i = 0; i < all.size() / row; i++)
        for (size_t k = 0; k < part; k++) {
            float &a = all[i * row + group * part + k], &b = own[i * part + k];
            (to_own ? b : a) = to_own ? a : b;
        }
}

inline void add_convolution(const conv_run &run, std::vector<float> *values)
{
    const conv_shape &v = run.shape;
    if (v.groups == 1)
        return add_group(run, values);
    conv_run one = run;
    one.shape.c = v.c / v.groups;
    one.shape.k = v.k / v.groups;
    one.shape.groups = 1;
    const size_t rows[] = {v.c, v.w_size(), v.k};
    std::vector<float> own[3];
    for (size_t group = 0; group < v.groups; group++) {
        for (int i = 0; i < 3; i++) {
            own[i].resize(values[i].size() / v.groups);
            copy_group(values[i], own[i], rows[i], v.groups, group, true);
        }
        add_group(one, own);
        for (int i = 0; i < 3; i++)
            copy_group(values[i], own[i], rows[i], v.groups, group, false);
    }
}

// Adds the products with every second element of an input at a time.
inline void add_halves(const conv_run &run, std::vector<float> *values, int in, int out)
{
    const std::vector<float> whole = values[in];
    std::vector<float> sum(values[out].size());
    for (size_t half = 0; half < 2; half++) {
        for (size_t i = 0; i < whole.size(); i++)
            values[in][i] = i % 2 == half ? whole[i] : 0;
        std::fill(values[out].begin(), values[out].end(), 0.0f);
        add_convolution(run, values);
        for (size_t i = 0; i < sum.size(); i++) {
            float rounded; // of a size for any type
            store_number(&rounded, run.type, 0, values[out][i]);
            sum[i] += load_number(&rounded, run.type, 0);
        }
    }
    values[out] = sum;
}

// values: x, w and y.
inline void run_convolution(const conv_run &run, std::vector<float> *values)
{
    const conv_shape &v = run.shape;
    const bool to_y = v.kind == conv_kind::forward, to_x = v.kind == conv_kind::bwd_data;
    const size_t sizes[] = {v.x_size(), v.w_size(), v.y_size()};
    const int out = to_x ? 0 : to_y ? 2 : 1;
    values[out].assign(sizes[out], 0.0f);
    if (run.is_short)
        add_halves(run, values, to_y ? 0 : 2, out);
    else
        add_convolution(run, values);
}

} // namespace emu

#endif
