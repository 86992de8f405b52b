/* The index of a tar shard. Accepted samples lie inside the file and have names. */
#include "base/log.h"
#include "data/tar_index.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct dt_tar_index index = {0};
    char name[2048];
    const char *path = fuzz_file(data, bytes);
    dt_log_init(DT_LOG_ERROR, 0, 1); /* no warnings about skipped members */
    dt_status status = dt_tar_index_build(&index, path);
    if (status != DT_OK)
        fuzz_check_refusal(status, DT_ERR_DATA);
    for (size_t i = 0; status == DT_OK && i < index.n; i++) {
        const struct dt_tar_entry *entry = &index.entries[i];
        FUZZ_CHECK(entry->offset <= bytes && entry->bytes <= bytes - entry->offset);
        FUZZ_CHECK(i == 0 || entry->offset > index.entries[i - 1].offset);
    }
    if (status == DT_OK && index.n > 0) {
        dt_tar_member_name(path, index.entries[0].offset, name, sizeof name);
        FUZZ_CHECK(strncmp(name, "byte ", 5) != 0 || strstr(name, ".j") || strstr(name, ".J"));
    }
    dt_tar_index_reset(&index);
    return 0;
}
