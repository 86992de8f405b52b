/* dtrain shard and dtrain demo-data. */
#include "cli/commands.h"
#include "pack/pack.h"

dt_status dt_cmd_shard(const struct dt_arguments *args)
{
    static struct dt_config config;
    DT_TRY(dt_arguments_config(&config, args));
    struct dt_shard_options options = {
        .src = args->operands[0],
        .dst = args->operands[1],
        .prefix = args->prefix,
        .labels = args->labels,
        .image_folder = args->image_folder,
        .data = &config.data,
        .image_key = args->image_key,
        .label_key = args->label_key,
        .per_shard = (int)args->per_shard,
        .resize_short = (int)args->resize_short,
        .quality = (int)args->quality,
        .label_offset = (int)args->label_offset,
        .threads = (int)args->threads,
        .skip_bad = args->skip_bad,
        .seed = (uint64_t)args->seed,
    };
    return dt_shard_write(&options);
}

dt_status dt_cmd_demo_data(const struct dt_arguments *args)
{
    return dt_shapes_write(args->operands[0], (int)args->images_per_class, (int)args->size,
                           (uint64_t)args->seed);
}
