/* `dtrain bench --input` between its halves: input.c measures, input_report.c prints. */
#ifndef DTRAIN_BENCH_INPUT_H
#define DTRAIN_BENCH_INPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* What one thread does for an image. */
enum dt_input_stage {
    DT_INPUT_READ_COLD,
    DT_INPUT_READ_WARM,
    DT_INPUT_ENTROPY,
    DT_INPUT_TRANSFORM,
    DT_INPUT_RESIZE,
    DT_N_INPUT_STAGES
};

/* The loader alone with so many workers. */
struct dt_input_point {
    int workers;
    bool is_cold;
    double images_per_s, bytes_per_s;            /* of all ranks, median of the rounds */
    double slowest, fastest;                     /* round: images/s */
    double read_share, decode_share, wait_share; /* of the workers' time */
};

/* Powers of two of workers, what is given, and the CPUs; cold and warm. */
enum { DT_INPUT_POINTS_MOST = 80 };

struct dt_input_result {
    const char *path; /* of the data, borrowed */
    bool is_raw;      /* synthetic: nothing is read or decoded, all points are warm */
    uint32_t n_images;
    int image_size, resize; /* resize: shorter side that is enough for image_size */
    int n_ranks, cpus;      /* cpus: that every rank has */
    int n_rounds;
    double round_s;                    /* that a round takes at least */
    double stage_s[DT_N_INPUT_STAGES]; /* per image: medians of the rounds, mean over the ranks */
    double stage_images, stage_bytes;  /* measured warm, of all ranks */
    struct dt_input_point points[DT_INPUT_POINTS_MOST];
    int n_points;
    int workers; /* the verdict is about so many; there are points for them */
};

/* Tables and verdict on stdout and, if json_path is not NULL, as JSON. */
dt_status dt_input_result_report(const struct dt_input_result *result, const char *json_path);

#endif
