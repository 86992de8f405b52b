/* CRC-32C (Castagnoli, RFC 3720 appendix B.4) as used in TFRecord files. */
#ifndef DTRAIN_BASE_CRC32C_H
#define DTRAIN_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t dt_crc32c(const void *data, size_t bytes);
/* TFRecord's masked CRC: rotated and offset, because the CRC of data that contain their own CRC
 * is trivial. */
uint32_t dt_crc32c_masked(const void *data, size_t bytes);

#endif
