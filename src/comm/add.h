/* sum += values, in blocks of a known length, which compilers vectorise at -O2 too: otherwise
 * adding takes longer than receiving. */
#ifndef DTRAIN_COMM_ADD_H
#define DTRAIN_COMM_ADD_H

enum { DT_ADD_BLOCK = 16 };

static inline void dt_sum_add(float *restrict sum, const float *restrict values, int count)
{
    int i = 0;
    for (; i + DT_ADD_BLOCK <= count; i += DT_ADD_BLOCK)
        for (int k = 0; k < DT_ADD_BLOCK; k++)
            sum[i + k] += values[i + k];
    for (; i < count; i++)
        sum[i] += values[i];
}

#endif
