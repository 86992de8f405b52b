#include "data/block.h"

#include <string.h>

/* The place of the next bytes, which begin at a multiple of 64. */
static char *take(struct dt_block *block, size_t bytes)
{
    char *at = block->at;
    bytes = (bytes + 63) / 64 * 64;
    block->bytes += bytes;
    if (at)
        block->at += bytes;
    return at;
}

void dt_block_value(struct dt_block *block, void *value, size_t bytes)
{
    char *at = take(block, bytes);
    if (block->use == DT_BLOCK_WRITE)
        memcpy(at, value, bytes);
    else if (block->use == DT_BLOCK_READ)
        memcpy(value, at, bytes);
}

void dt_block_array(struct dt_block *block, void *array, size_t count, size_t size)
{
    void *now;
    char *at = take(block, count * size);
    memcpy(&now, array, sizeof now);
    if (block->use == DT_BLOCK_WRITE && count > 0)
        memcpy(at, now, count * size);
    now = block->use == DT_BLOCK_READ && count > 0 ? at : NULL;
    if (block->use == DT_BLOCK_READ || block->use == DT_BLOCK_LEAVE)
        memcpy(array, &now, sizeof now);
}

void dt_block_names(struct dt_block *block, struct dt_names *names)
{
    DT_BLOCK_VALUE(block, names->n);
    DT_BLOCK_VALUE(block, names->bytes);
    DT_BLOCK_ARRAY(block, names->text, names->bytes);
    DT_BLOCK_ARRAY(block, names->offset, names->n);
}
