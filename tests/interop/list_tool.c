/* Opens a data set and prints its samples, for comparison with other programs:
 *   list_tool PATH
 * Output: label, tab, name, NUL of every sample. The exit code is the status. */
#include <stdio.h>

#include "dtrain/data.h"

int main(int argc, char **argv)
{
    const struct dt_config_data data = {.source = DT_SOURCE_AUTO};
    const struct dt_dataset_options options = {.data = &data, .path = argc > 1 ? argv[1] : ""};
    struct dt_dataset *dataset;
    char name[2048];
    dt_status status = dt_dataset_open(&dataset, &options);
    if (status != DT_OK) {
        fprintf(stderr, "list_tool: %s\n", dt_error_text());
        return (int)status;
    }
    for (uint32_t id = 0; id < dt_dataset_size(dataset); id++)
        printf("%d\t%s%c", dt_dataset_label(dataset, id),
               dt_dataset_name(dataset, id, name, sizeof name), '\0');
    dt_dataset_close(dataset);
    return 0;
}
