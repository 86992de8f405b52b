/* Zeroed host memory; failures become an error text instead of a crash. */
#include "base/mem.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/host.h"

static void set_out_of_memory(size_t bytes, const char *what)
{
    DT_ERROR(DT_ERR_MEMORY, "out of memory: requested %zu bytes for %s", bytes, what);
}

void *dt_mem_alloc(size_t count, size_t size, const char *what)
{
    void *block = calloc(count ? count : 1, size);
    if (!block)
        set_out_of_memory(size && count > SIZE_MAX / size ? SIZE_MAX : count * size, what);
    return block;
}

dt_status dt_mem_check(size_t bytes, const char *what)
{
    enum { LARGE_BYTES = 1 << 24 };
    const uint64_t left = bytes >= LARGE_BYTES ? dt_memory_available("") : UINT64_MAX;
    char text[3][64];
    if (bytes <= left)
        return DT_OK;
    return DT_ERROR(DT_ERR_MEMORY, "out of memory: %s for %s, but only %s are available%s",
                    dt_memory_format(text[0], sizeof text[0], bytes), what,
                    dt_memory_format(text[1], sizeof text[1], left),
                    dt_memory_limit_text(text[2], sizeof text[2], ""));
}

void *dt_mem_alloc_aligned(size_t bytes, const char *what)
{
    void *block = NULL;
    if (dt_mem_check(bytes, what) != DT_OK)
        return NULL;
    if (posix_memalign(&block, 64, bytes ? bytes : 1) != 0) {
        set_out_of_memory(bytes, what);
        return NULL;
    }
    memset(block, 0, bytes);
    return block;
}

dt_status dt_mem_grow(void *array, size_t *capacity, size_t index, size_t size, const char *what)
{
    void *block;
    if (index < *capacity)
        return DT_OK;
    size_t next = *capacity ? *capacity * 2 : 16;
    if (next <= index)
        next = index + 1;
    memcpy(&block, array, sizeof block);
    block = next > SIZE_MAX / size ? NULL : realloc(block, next * size);
    if (!block) {
        set_out_of_memory(next > SIZE_MAX / size ? SIZE_MAX : next * size, what);
        return DT_ERR_MEMORY;
    }
    memset((char *)block + *capacity * size, 0, (next - *capacity) * size);
    memcpy(array, &block, sizeof block);
    *capacity = next;
    return DT_OK;
}

dt_status dt_mem_copy_text(char **copy, const char *text)
{
    DT_TRY(DT_NEW(*copy, strlen(text) + 1));
    memcpy(*copy, text, strlen(text));
    return DT_OK;
}

void dt_shared_free(struct dt_shared *shared)
{
    if (shared->is_mapped && shared->data)
        munmap(shared->data, shared->bytes);
    else
        free(shared->data);
    *shared = (struct dt_shared){0};
}
