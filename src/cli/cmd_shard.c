/* dtrain shard and dtrain demo-data. */
#include "cli/commands.h"

dt_status dt_cmd_shard(const struct dt_arguments *args)
{
    static struct dt_config config;
    DT_TRY(dt_arguments_config(&config, args));
    struct dt_shard_options options = args->shard;
    options.src = args->operands[0];
    options.dst = args->operands[1];
    options.data = &config.data;
    return dt_shard_write(&options);
}

dt_status dt_cmd_demo_data(const struct dt_arguments *args)
{
    return dt_shapes_write(args->operands[0], (int)args->images_per_class, (int)args->size,
                           args->shard.seed);
}
