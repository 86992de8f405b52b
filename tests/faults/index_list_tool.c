/* Opens every tar named on standard input, one per line, as a data set of 10 classes, and prints a
 * line for each: status, number of samples, error text. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "dtrain/data.h"

static const struct dt_config_data shards_data = {.source = DT_SOURCE_SHARDS};

int main(void)
{
    char path[DT_PATH_MAX];
    dt_log_init(DT_LOG_ERROR, 0, 1);
    while (fgets(path, sizeof path, stdin)) {
        struct dt_dataset *dataset = NULL;
        path[strcspn(path, "\n")] = '\0';
        const struct dt_dataset_options options = {
            .data = &shards_data, .path = path, .num_classes = 10};
        dt_status status = dt_dataset_open(&dataset, &options);
        printf("%d\t%u\t%s\n", (int)status,
               status == DT_OK ? (unsigned)dt_dataset_size(dataset) : 0,
               status == DT_OK ? "" : dt_error_text());
        fflush(stdout); /* so that the output shows which file caused a crash */
        dt_dataset_close(dataset);
    }
    return 0;
}
