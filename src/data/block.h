/* The state of a data set as one block of bytes: for the ranks that share what one of them has
 * read, and for the files in which indices of shards are cached (tar_index.c). For each state one
 * function names its values and arrays, and `use` says what happens to them. This program has made
 * the block, so its contents are not checked. */
#ifndef DTRAIN_DATA_BLOCK_H
#define DTRAIN_DATA_BLOCK_H

#include <stddef.h>

#include "base/names.h"

struct dt_block {
    enum {
        DT_BLOCK_COUNT, /* adds up `bytes` */
        DT_BLOCK_WRITE, /* copies to `at` */
        DT_BLOCK_READ,  /* values are copied, arrays stay in the block */
        DT_BLOCK_LEAVE, /* sets arrays to NULL, so that they are not freed */
    } use;
    char *at;
    size_t bytes;
};

void dt_block_value(struct dt_block *block, void *value, size_t bytes);
/* `array`: the address of a pointer of any type. */
void dt_block_array(struct dt_block *block, void *array, size_t count, size_t size);
void dt_block_names(struct dt_block *block, struct dt_names *names);

#define DT_BLOCK_VALUE(block, value) dt_block_value((block), &(value), sizeof(value))
#define DT_BLOCK_ARRAY(block, array, count) \
    dt_block_array((block), &(array), (count), sizeof *(array))

#endif
