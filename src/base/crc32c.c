/* Eight bytes at a time with eight tables ("slicing by 8"). */
#include "base/crc32c.h"

#include <pthread.h>

static uint32_t tables[8][256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void fill_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t sum = i;
        for (int bit = 0; bit < 8; bit++)
            sum = sum & 1 ? sum >> 1 ^ 0x82f63b78u : sum >> 1;
        tables[0][i] = sum;
    }
    for (int t = 1; t < 8; t++)
        for (uint32_t i = 0; i < 256; i++)
            tables[t][i] = tables[t - 1][i] >> 8 ^ tables[0][tables[t - 1][i] & 0xff];
}

uint32_t dt_crc32c(const void *data, size_t bytes)
{
    const uint8_t *at = data;
    uint32_t sum = 0xffffffffu;
    pthread_once(&once, fill_tables);
    for (; bytes >= 8; bytes -= 8, at += 8) {
        uint32_t next = 0;
        for (int i = 0; i < 4; i++)
            next ^= tables[7 - i][(sum >> 8 * i & 0xff) ^ at[i]] ^ tables[3 - i][at[4 + i]];
        sum = next;
    }
    for (; bytes > 0; bytes--, at++)
        sum = sum >> 8 ^ tables[0][(sum ^ *at) & 0xff];
    return ~sum;
}

uint32_t dt_crc32c_masked(const void *data, size_t bytes)
{
    const uint32_t sum = dt_crc32c(data, bytes);
    return (sum >> 15 | sum << 17) + 0xa282ead8u;
}
