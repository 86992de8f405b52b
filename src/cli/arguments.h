/* The parsed command line, for the sub-commands. */
#ifndef DTRAIN_CLI_ARGUMENTS_H
#define DTRAIN_CLI_ARGUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dt_command;

/* Texts point into argv. */
struct dt_arguments {
    const struct dt_command *command;
    bool named; /* the command was named, not assumed by default */
    const char *config, *resume, *out, *weights, *json, *prefix, *devkit, *image_folder, *confusion,
        *predictions, *output, *trace, *data, *batch_sizes, *compare, *tolerance;
    const char **sets;
    size_t n_sets;
    double max_time_s, min_score;
    int64_t per_shard, images_per_class, size, seed, resize_short, quality, label_offset, threads,
        top, count, n_images, max_detections;
    int64_t decode;      /* -1 = all */
    const char *dry_run; /* NULL = no; "" or "plan" */
    const char *ranks, *link, *local_link, *step_time;
    int64_t ranks_per_node, min_bytes, max_bytes;
    bool allow_config_change, profile, input, allreduce, forward_only, no_comm, skip_bad, per_class,
        tee, recompute_bn, help, version;
    char **operands;
    int n_operands;
};

#endif
