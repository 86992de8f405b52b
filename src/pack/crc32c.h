/* CRC-32C (Castagnoli, RFC 3720 appendix B.4) as TFRecord files have it. */
#ifndef DTRAIN_PACK_CRC32C_H
#define DTRAIN_PACK_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t dt_crc32c(const void *data, size_t bytes);
/* Rotated and shifted, so that the sum of data with sums in them is not trivial (TFRecord). */
uint32_t dt_crc32c_masked(const void *data, size_t bytes);

#endif
