/* `dtrain bench --input`: interface between input.c, which measures, and input_report.c. */
#ifndef DTRAIN_BENCH_INPUT_H
#define DTRAIN_BENCH_INPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/engine.h"

/* The stages in which one thread processes an image. */
enum dt_input_stage {
    DT_INPUT_READ_COLD,
    DT_INPUT_READ_WARM,
    DT_INPUT_ENTROPY,
    DT_INPUT_TRANSFORM,
    DT_INPUT_RESIZE,
    DT_N_INPUT_STAGES
};

/* The loader alone, with a given number of workers. */
struct dt_input_point {
    int workers;
    bool is_cold;
    double images_per_s, bytes_per_s;            /* sum over ranks, median of the rounds */
    double slowest, fastest;                     /* round, in images/s */
    double read_share, decode_share, wait_share; /* fractions of the workers' time */
};

/* Workers: powers of two, the configured number and the number of CPUs; each cold and warm. */
enum { DT_MAX_INPUT_POINTS = 80 };

struct dt_input_result {
    const char *path; /* data set, borrowed */
    bool is_raw;      /* synthetic: nothing is read or decoded, all points are warm */
    uint32_t n_images;
    int image_size;            /* 0 = of a detector */
    char sizes[DT_SIZES_TEXT]; /* dt_sets_sizes */
    int resize;                /* shorter side that suffices for them; 0 = of a detector */
    int n_ranks, cpus;         /* cpus: available to every rank */
    int n_rounds;
    double round_s;                    /* minimum duration of a round */
    double stage_s[DT_N_INPUT_STAGES]; /* per image: median of the rounds, mean over the ranks */
    double stage_images, stage_bytes;  /* measured warm, sum over the ranks */
    struct dt_input_point points[DT_MAX_INPUT_POINTS];
    int n_points;
    int workers; /* number that the diagnosis is about; it has been measured */
};

/* Prints tables and diagnosis on stdout and, if json_path is not NULL, writes them as JSON. */
dt_status dt_input_result_report(const struct dt_input_result *result, const char *json_path);

#endif
