/* The statistics and the coefficients of one block of channels. */
#include "cpu/norm_block.h"

#include <math.h>
#include <string.h>

void dt_bn_load_channels(double out[LANES], const float *values, const struct bn *bn, int block)
{
    const struct dt_cpu_rows *rows = bn->rows;
    for (int i = 0; i < LANES; i++) {
        int channel = block * rows->block + i % rows->block;
        out[i] = values && channel < rows->channels ? (double)values[channel] : 0;
    }
}

/* --- Forward --- */

/* A slot ends with the number of lines of its rank, however that divides its images. */
static float *slot_of(const struct bn *bn, int rank)
{
    return bn->slots + (size_t)rank * dt_cpu_slot_floats(bn->rows);
}

static double n_lines_of(const struct bn *bn, int rank)
{
    return (double)slot_of(bn, rank)[2 * bn->rows->channels];
}

static int first_rank(const struct bn *bn)
{
    return bn->slot / bn->n_ranks * bn->n_ranks;
}

/* Values over which the statistics are taken: of this rank, or in the second half of its group. */
static double n_values(const struct bn *bn)
{
    double n_lines = bn->half == SECOND ? 0 : (double)bn->rows->n * bn->rows->height;
    for (int i = 0; bn->half == SECOND && i < bn->n_ranks; i++)
        n_lines += n_lines_of(bn, first_rank(bn) + i);
    return n_lines * bn->rows->width;
}

/* Puts the sums of a block into this pass's slot. */
static void share_sums(const struct bn *bn, int block, const double first[LANES],
                       const double second[LANES])
{
    const struct dt_cpu_rows *rows = bn->rows;
    float *slot = slot_of(bn, bn->slot);
    for (int i = 0; i < rows->block && block * rows->block + i < rows->channels; i++) {
        slot[block * rows->block + i] = (float)first[i];
        slot[rows->channels + block * rows->block + i] = (float)second[i];
    }
    if (block == 0)
        slot[2 * rows->channels] = (float)(rows->n * rows->height);
}

static void load_sums(double first[LANES], double second[LANES], const struct bn *bn, int block,
                      int rank)
{
    const float *slot = slot_of(bn, rank);
    dt_bn_load_channels(first, slot, bn, block);
    dt_bn_load_channels(second, slot + bn->rows->channels, bn, block);
}

/* Adds the moments of n more values to those of *count (Chan et al.). m2: sums of squared
 * deviations. */
static void add_moments(double *count, double *mean, double *m2, double n, double n_mean,
                        double n_m2)
{
    double total = *count + n;
    double weight = total > 0 ? n / total : 0;
    double delta = n_mean - *mean;
    *mean += delta * weight;
    *m2 += n_m2 + delta * delta * *count * weight;
    *count = total;
}

/* Combines the moments of lanes that hold the same channel if a block has fewer channels than
 * lanes. */
static void fold_lanes(struct statistics *s, double m2[LANES], const struct bn *bn)
{
    int block = bn->rows->block;
    double count[LANES];

    for (int i = 0; i < LANES; i++)
        count[i] = bn->rows->n * dt_lane_count(dt_cpu_block_elements(bn->rows), i);
    for (int i = block; i < LANES; i++) {
        int c = i % block;
        add_moments(&count[c], &s->mean[c], &m2[c], count[i], s->mean[i], m2[i]);
    }
    for (int i = block; i < LANES; i++) {
        s->mean[i] = s->mean[i % block];
        m2[i] = m2[i % block];
    }
}

/* Combines the rows of a block. A lane has the same number of values in each row, so all row means
 * have the same weight. */
static void combine_rows(struct statistics *s, double m2[LANES], const struct bn *bn, int block)
{
    const struct dt_cpu_rows *rows = bn->rows;
    double count[LANES], inverse = 1 / (double)rows->n;

    *s = (struct statistics){0};
    memset(m2, 0, LANES * sizeof *m2);
    for (int image = 0; image < rows->n; image++) {
        const struct dt_norm_sums *sums = dt_bn_sums(bn, image, block);
        for (int i = 0; i < LANES; i++)
            s->mean[i] += (double)sums->first[i];
    }
    for (int i = 0; i < LANES; i++) {
        s->mean[i] *= inverse;
        count[i] = dt_lane_count(dt_cpu_block_elements(rows), i);
    }
    for (int image = 0; image < rows->n; image++) {
        const struct dt_norm_sums *sums = dt_bn_sums(bn, image, block);
        for (int i = 0; i < LANES; i++) {
            double delta = (double)sums->first[i] - s->mean[i];
            m2[i] += (double)sums->second[i] + delta * delta * count[i];
        }
    }
    if (rows->block < LANES)
        fold_lanes(s, m2, bn);
}

/* Combines the ranks of the group. */
static void combine_ranks(struct statistics *s, double m2[LANES], const struct bn *bn, int block)
{
    const int first = first_rank(bn);
    double count[LANES] = {0}, mean[LANES], more[LANES];

    *s = (struct statistics){0};
    memset(m2, 0, LANES * sizeof *m2);
    for (int rank = first; rank < first + bn->n_ranks; rank++) {
        const double n = n_lines_of(bn, rank) * bn->rows->width;
        load_sums(mean, more, bn, block, rank);
        for (int i = 0; i < LANES; i++)
            add_moments(&count[i], &s->mean[i], &m2[i], n, mean[i], more[i]);
    }
}

void dt_bn_forward_coefs(struct dt_norm_coefs *k, const struct bn *bn, int block,
                         const struct statistics *s)
{
    const struct dt_cpu_rows *rows = bn->rows;
    double scale[LANES], shift[LANES];
    dt_bn_load_channels(scale, bn->scale, bn, block);
    dt_bn_load_channels(shift, bn->shift, bn, block);
    for (int i = 0; i < LANES; i++) {
        const bool is_padding = block * rows->block + i % rows->block >= rows->channels;
        const double a = is_padding ? 0 : scale[i] / sqrt(s->variance[i] + (double)bn->eps);
        k->a[i] = (float)a;
        k->b[i] = (float)(shift[i] - s->mean[i] * a);
    }
}

void dt_bn_forward_block(const struct bn *bn, int block)
{
    struct statistics s;
    double m2[LANES];
    const double total = n_values(bn);
    (bn->half == SECOND ? combine_ranks : combine_rows)(&s, m2, bn, block);
    if (bn->half == FIRST) {
        share_sums(bn, block, s.mean, m2);
        return;
    }
    for (int i = 0; i < LANES; i++)
        s.variance[i] = m2[i] / total;
    dt_bn_forward_coefs(&bn->coefs[block], bn, block, &s);
    /* Saves the statistics of a block for the backward pass and updates the running ones, except in
     * channels where those would not be finite: they would never recover. */
    const struct dt_cpu_rows *rows = bn->rows;
    double unbiased = total > 1 ? total / (total - 1) : 1, momentum = (double)bn->momentum;

    for (int i = 0; i < rows->block && block * rows->block + i < rows->channels; i++) {
        int c = block * rows->block + i;
        bn->mean[c] = (float)s.mean[i];
        bn->variance[c] = (float)s.variance[i];
        float mean = (float)((1 - momentum) * (double)bn->running_mean[c] + momentum * s.mean[i]);
        float variance = (float)((1 - momentum) * (double)bn->running_var[c] +
                                 momentum * s.variance[i] * unbiased);
        if (!isfinite(mean) || !isfinite(variance))
            continue;
        bn->running_mean[c] = mean;
        bn->running_var[c] = variance;
    }
}

/* --- Backward --- */

static void bwd_add_rows(double s1[LANES], double s2[LANES], const struct bn *bn, int block)
{
    const struct dt_cpu_rows *rows = bn->rows;

    for (int image = 0; image < rows->n; image++) {
        const struct dt_norm_sums *sums = dt_bn_sums(bn, image, block);
        for (int i = 0; i < LANES; i++) {
            s1[i] += (double)sums->first[i];
            s2[i] += (double)sums->second[i];
        }
    }
    for (int i = rows->block; i < LANES; i++) {
        s1[i % rows->block] += s1[i];
        s2[i % rows->block] += s2[i];
    }
    for (int i = rows->block; i < LANES; i++) {
        s1[i] = s1[i % rows->block];
        s2[i] = s2[i % rows->block];
    }
}

static void bwd_add_ranks(double s1[LANES], double s2[LANES], const struct bn *bn, int block)
{
    const int first = first_rank(bn);
    double more1[LANES], more2[LANES];

    for (int rank = first; rank < first + bn->n_ranks; rank++) {
        load_sums(more1, more2, bn, block, rank);
        for (int i = 0; i < LANES; i++) {
            s1[i] += more1[i];
            s2[i] += more2[i];
        }
    }
}

void dt_bn_bwd_block(const struct bn *bn, int block)
{
    double s1[LANES] = {0}, s2[LANES] = {0};
    (bn->half == SECOND ? bwd_add_ranks : bwd_add_rows)(s1, s2, bn, block);
    if (bn->half != SECOND) {
        /* This rank's share: the reduction of the gradients adds those of the other ranks. */
        const struct dt_cpu_rows *rows = bn->rows;
        for (int i = 0; i < rows->block && block * rows->block + i < rows->channels; i++) {
            int c = block * rows->block + i;
            bn->diff_scale[c] =
                (float)(s2[i] * (1 / sqrt((double)bn->variance[c] + (double)bn->eps)));
            bn->diff_shift[c] = (float)s1[i];
        }
    }
    if (bn->half == FIRST)
        share_sums(bn, block, s1, s2);
    else {
        /* With S1 = sum of dy and S2 = sum of dy * (x - mean) over the n values of a channel:
         * dx = a * (dy - b - c * (x - mean)), a = scale / std, b = S1 / n, c = S2 / (n * var). */
        struct dt_norm_coefs *k = &bn->coefs[block];
        double inverse_n = 1 / n_values(bn), scale[LANES], mean[LANES], variance[LANES];

        dt_bn_load_channels(scale, bn->scale, bn, block);
        dt_bn_load_channels(mean, bn->mean, bn, block);
        dt_bn_load_channels(variance, bn->variance, bn, block);
        for (int i = 0; i < LANES; i++) {
            double inverse_std = 1 / sqrt(variance[i] + (double)bn->eps);
            k->mean[i] = (float)mean[i];
            k->a[i] = (float)(scale[i] * inverse_std);
            k->b[i] = (float)(s1[i] * inverse_n);
            k->c[i] = (float)(s2[i] * inverse_std * inverse_std * inverse_n);
        }
    }
}
