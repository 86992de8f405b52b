/* gethostname, which need not NUL-terminate a name it truncates. */
#include "base/host.h"

#include <string.h>
#include <unistd.h>

void dt_host_name(char out[DT_HOST_MAX])
{
    static const char unknown[] = "unknown host";
    memset(out, 0, DT_HOST_MAX);
    if (gethostname(out, DT_HOST_MAX - 1) != 0)
        memcpy(out, unknown, sizeof unknown);
}
