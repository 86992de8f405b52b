/* The device's convolutions: their nodes, and the choice of a plan for each distinct task. */
#ifndef DTRAIN_CUDA_CUDA_CONV_H
#define DTRAIN_CUDA_CUDA_CONV_H

#include <cuda_runtime_api.h>

#include "cuda/dnn_graph.h"
#include "dtrain/backend.h"

/* The addresses of x, w and y of a bound node, without a workspace. */
struct dt_dnn_memory dt_conv_memory(const struct dt_exec *exec);
/* Adds what normalises x in bn_conv, and bn's src as x; bn may be NULL. */
void dt_conv_place_factors(struct dt_dnn_memory *memory, const struct dt_exec *bn);

/* Gives a node that runs a convolution the memory for it, kept as its exec->own, and frees that. */
dt_status dt_conv_bind(struct dt_device *dev, struct dt_exec *exec,
                       const struct dt_dnn_memory *memory);
void dt_conv_release(struct dt_device *dev, struct dt_exec *exec);
/* Whether a bn of its fusion does the work of a convolution. */
bool dt_conv_runs_elsewhere(const struct dt_exec *exec);

/* --- Candidates (autotune.c) --- */

#define DT_CONV_MAX_WORKSPACE ((size_t)1 << 30)

/* Which candidates the options of a run allow. */
struct dt_conv_rules {
    bool deterministic, tf32, winograd;
};
struct dt_conv_rules dt_conv_rules(const struct dt_device_options *options);
/* Whether an engine with these numerical notes may compute in `type`. */
bool dt_conv_allows(const struct dt_conv_rules *rules, enum dt_dtype type, unsigned numerical);
/* Creates a plan for a candidate if it is allowed, can be made and is not too large; otherwise
 * *plan stays empty and the error text says why. Errors are those of memory. */
dt_status dt_conv_try(struct dt_dnn_exec *exec, const struct dt_dnn_target *target,
                      struct dt_dnn_configs *configs, const struct dt_conv_rules *rules,
                      enum dt_dtype type, int candidate);

/* --- The time that plans take (conv_timer.c) --- */

struct dt_conv_timer {
    struct dt_device *dev; /* set by the caller */
    bool plain_only;       /* likewise: no tasks with extras will be timed */
    char *data, *workspace;
    size_t input_bytes, output_bytes, workspace_bytes;
    cudaEvent_t begin, end;
};
/* Allocates memory for the largest of the problems that still need a plan, and fills it. */
dt_status dt_conv_timer_open(struct dt_conv_timer *timer, const struct dt_conv_problem *problems);
/* Seconds per run over n runs, excluding the host's launch time: an extra run comes first, and
 * while the device is busy with it the others are queued. It also loads the kernels of a new plan.
 */
dt_status dt_conv_timer_run(struct dt_conv_timer *timer, const struct dt_conv_task *task,
                            const struct dt_dnn_exec *exec, int n, double *seconds);
/* Fills memory with random numbers of magnitude 2^-7 to 2^-3 and either sign: the numbers
 * multiplied determine a GPU's power and thus its clock. (An fp32 vector among 16-bit tensors gets
 * pairs of such numbers, which are small, too.) */
dt_status dt_conv_timer_fill(struct dt_device *dev, char *memory, enum dt_dtype type, size_t bytes);
/* Accepts a timer that was never opened, or failed to open. */
void dt_conv_timer_close(struct dt_conv_timer *timer);

/* --- Choices of earlier runs (algo_cache.c): a JSON file that jobs may share. --- */

struct dt_algo_cache;
/* Reads the file in `folder` ("": a cache that keeps nothing). A missing file is an empty cache,
 * and so is a damaged one, with a warning. `scope` is what the choices depend on besides the key:
 * GPU and cuDNN version. */
dt_status dt_algo_cache_open(struct dt_algo_cache **cache, const char *folder, const char *scope);
bool dt_algo_cache_get(const struct dt_algo_cache *cache, const char *key,
                       struct dt_conv_choice *out);
dt_status dt_algo_cache_put(struct dt_algo_cache *cache, const char *key,
                            const struct dt_conv_choice *choice);
/* Writes new entries together with those that other jobs have written meanwhile; may be called
 * repeatedly. A failure gives one warning, after which nothing is kept. */
void dt_algo_cache_save(struct dt_algo_cache *cache);
void dt_algo_cache_close(struct dt_algo_cache *cache); /* accepts NULL */

#endif
