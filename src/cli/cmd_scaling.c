/* dtrain scaling: sums up the measurements of scripts/scaling.sh. */
#include "cli/commands.h"
#include "page/scaling.h"

dt_status dt_cmd_scaling(const struct dt_arguments *args)
{
    return dt_scaling(args->operands[0]);
}
