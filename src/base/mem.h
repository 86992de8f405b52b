/* Host memory. All memory is zeroed; running out is a dt_status, never an abort. */
#ifndef DTRAIN_BASE_MEM_H
#define DTRAIN_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* count * size bytes, overflow checked; NULL with the error recorded on failure. `what` names the
 * purpose for the message. Free with free(). A count of 0 gives a valid one-byte block. */
void *dt_mem_alloc(size_t count, size_t size, const char *what);
/* Same, aligned to 64 bytes (one cache line, one AVX-512 register). Free with free(). */
void *dt_mem_alloc_aligned(size_t bytes, const char *what);
/* DT_ERR_MEMORY if so much cannot be used: the system would kill this process. */
dt_status dt_mem_check(size_t bytes, const char *what);

/* DT_TRY(DT_NEW(pointer, count)): `pointer` may have any object type. */
#define DT_NEW(pointer, count) \
    (((pointer) = dt_mem_alloc((count), sizeof *(pointer), #pointer)) ? DT_OK : DT_ERR_MEMORY)

/* DT_TRY(DT_GROW(array, capacity, index, "what it is")): grows it so that the index fits; contents
 * are kept. */
#define DT_GROW(array, capacity, index, what) \
    dt_mem_grow(&(array), &(capacity), (index), sizeof *(array), (what))
/* Not to be called directly: `array` is the address of a pointer of any type. */
dt_status dt_mem_grow(void *array, size_t *capacity, size_t index, size_t size, const char *what);

/* A copy of the text. Free with free(). */
dt_status dt_mem_copy_text(char **copy, const char *text);

/* Memory that may be a mapping shared with other processes. Starts as {0}. */
struct dt_shared {
    void *data;
    size_t bytes; /* that are allocated or mapped */
    bool is_mapped;
};
void dt_shared_free(struct dt_shared *shared); /* sets it to {0} */

#define DT_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif
