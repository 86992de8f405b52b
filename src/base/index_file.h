/* Files in cache_dir/index that keep between runs what has been learned from an input file. */
#ifndef DTRAIN_BASE_INDEX_FILE_H
#define DTRAIN_BASE_INDEX_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/file.h"

enum { DT_INDEX_MAX_BYTES = 1 << 30 };

struct dt_index_file {
    char path[DT_PATH_MAX];
    struct dt_index_stamp {
        char magic[8]; /* of the format of the contents */
        uint64_t bytes;
        int64_t time_ns;
    } stamp; /* of the input file as it is now */
};

/* cache_dir/index/<name of the input>-<hash of its full path>.index. DT_ERR_NO_INPUT or the like if
 * there is no such input. */
dt_status dt_index_file_of(struct dt_index_file *file, const char *input, const char *cache_dir,
                           const char magic[8]);
/* The contents, to be freed with free(); NULL if there is no such file, or it is damaged or of
 * another version (which is logged), or it belongs to another state of the input. */
char *dt_index_file_load(const struct dt_index_file *file, size_t *bytes);
/* Says that the contents are not what they should be. */
void dt_index_file_refuse(const struct dt_index_file *file);

/* The contents are these, one after the other. */
struct dt_index_part {
    void *data;
    size_t bytes;
};
/* Writes the file atomically. A failure is logged and forgotten: it only costs time, or another
 * rank was faster with the same file. */
void dt_index_file_save(const struct dt_index_file *file, const char *cache_dir,
                        const struct dt_index_part *parts, size_t n_parts);

#endif
