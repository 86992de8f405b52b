/* The trainer and its sub-commands. Functions that take a `comm` are collective over its ranks.
 *
 * On failure dt_error_origin (base/status.h) says which rank prints, and whether it must end the
 * job with dt_comm_abort because the others may wait in a collective call. */
#ifndef DTRAIN_TRAIN_H
#define DTRAIN_TRAIN_H

#include <stdbool.h>

#include "dtrain/comm.h"
#include "dtrain/config.h"

struct dt_train_options {
    const char *resume;       /* "auto", "must", "never" or a checkpoint folder */
    double max_time_s;        /* 0 = no limit */
    bool allow_config_change; /* resume even if the configuration makes it a different run */
    const char *trace;        /* "100-120": write a timeline of these steps; NULL = none */
};

/* From this call on, SIGUSR1, SIGUSR2, SIGTERM and SIGINT ask dt_train to stop instead of ending
 * the process; a second one, at least a second later, ends it at once. Call it before dt_comm_open,
 * so that no signal is missed. Ignores SIGPIPE and SIGXFSZ: the write fails instead. */
void dt_train_catch_signals(void);
/* dtrain train: runs config.train.epochs epochs from the newest checkpoint or from scratch. Stops
 * with a checkpoint and DT_STOPPED (no error text) on a signal (dt_train_catch_signals), after
 * max_time_s or before the end of the scheduler's allocation. A complete run says so and changes
 * nothing. */
dt_status dt_train(struct dt_comm *comm, const struct dt_config *config,
                   const struct dt_train_options *options);
/* --dry-run: prints the schedule and the memory; with print_plan also the list of actions. */
dt_status dt_dry_run(struct dt_comm *comm, const struct dt_config *config, bool print_plan);

struct dt_eval_options {
    const char *weights;     /* a safetensors file, a checkpoint folder or a run folder */
    bool per_class;          /* a table on stdout */
    const char *confusion;   /* file for the confusion matrix, .csv or .svg; NULL = none */
    const char *predictions; /* CSV file of all images; NULL = none */
};
/* dtrain eval: the metrics of weights on the validation set, as one JSON line at the end of stdout.
 * With the other options, eval.tta or others than loss, top1 and top5 in eval.metrics these are all
 * that are defined. */
dt_status dt_evaluate(struct dt_comm *comm, const struct dt_config *config,
                      const struct dt_eval_options *options);

struct dt_predict_options {
    const char *weights; /* as dt_eval_options */
    char *const *paths;  /* images, folders of images, or "-" for a list on standard input */
    int n_paths, top;    /* top: classes, or detections of an image; 0 = 5, or all */
    double min_score;    /* a detector's: only scores of at least that */
    const char *output;  /* a detector's: folder for pictures with boxes, NULL = none */
};
/* dtrain predict: the most probable classes of images, on stdout, with the preprocessing of an
 * evaluation; of a detector a line for each detection: image, class, score, x1, y1, x2 and y2 in
 * pixels, with tabs between. Images that cannot be read are warned of and lead to DT_ERR_DATA at
 * the end. One rank only. */
dt_status dt_predict(struct dt_comm *comm, const struct dt_config *config,
                     const struct dt_predict_options *options);

struct dt_average_options {
    char *const *paths; /* as dt_eval_options.weights */
    int n_paths;
    const char *out;   /* a safetensors file */
    bool recompute_bn; /* else config is not used */
    int64_t n_images;  /* training images for that, 0 = an epoch */
};
/* dtrain average: the mean of weights. With recompute_bn, batch norm's running statistics become
 * the mean of those of the batches in forward passes of training, as in PyTorch's update_bn; on any
 * number of ranks, with the same bits in every run. */
dt_status dt_average(struct dt_comm *comm, const struct dt_config *config,
                     const struct dt_average_options *options);

struct dt_bench_options {
    const char *json_path;   /* NULL = no file */
    bool profile;            /* also tables of the time of every op */
    bool real_data;          /* of the configuration, not synthetic */
    bool forward_only;       /* evaluation list instead of training */
    bool no_comm;            /* no gradients are summed */
    const char *batch_sizes; /* images per rank: "32,64,128" or "auto"; NULL = as configured */
    const char *compare;     /* JSON file of an earlier result, NULL = none */
    const char *tolerance;   /* "5%"; NULL: that */
    const char *trace;       /* file for a timeline of the measured steps, NULL = none */
};
/* dtrain bench: warm-up, rounds, images/s. With `compare`, DT_ERR_DISAGREE if it is slower than
 * before by more than the tolerance and by more than the noise of both. */
dt_status dt_bench(struct dt_comm *comm, const struct dt_config *config,
                   const struct dt_bench_options *options);

struct dt_allreduce_options {
    const char *json_path; /* NULL = no file */
    size_t min_bytes;
    size_t max_bytes; /* 0 = 256 MiB, or what memory allows */
};
/* dtrain bench --allreduce: time and bandwidth of sums over the ranks by size, of every data plane
 * that this build and these devices have and of MPI's own, as a table on stdout. DT_ERR_DEVICE if a
 * sum is wrong. */
dt_status dt_bench_allreduce(struct dt_comm *comm, const struct dt_config *config,
                             const struct dt_allreduce_options *options);

/* dtrain bench --input: how many images/s the input pipeline produces on its own, per stage and for
 * 1, 2, 4 ... workers, from disk and from memory, and what limits it; as text on stdout and, if
 * json_path is not NULL, as JSON. Reads only the data section, the image size and bench.rounds of
 * config. */
dt_status dt_bench_input(struct dt_comm *comm, const struct dt_config *config,
                         const char *json_path);

#endif
