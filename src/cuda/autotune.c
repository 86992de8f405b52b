/* Chooses a plan for every convolution and a variant of every fusion of nodes: the cuDNN candidates
 * that the options allow, and then both variants of a fusion, are timed on the device (tune.h) and
 * the fastest is taken. Rank 0 chooses for all ranks, so that they compute the same, and keeps its
 * choices on disk. */
#include "cuda/cuda_conv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "cuda/fusion.h"
#include "cuda/tune.h"

/* --- Which candidates are usable --- */

struct dt_conv_rules dt_conv_rules(const struct dt_device_options *options)
{
    return (struct dt_conv_rules){
        .deterministic = options->deterministic,
        .tf32 = options->precision == DT_PRECISION_TF32,
        .winograd = options->winograd,
    };
}

#define NOTE(name) (1u << CUDNN_NUMERICAL_NOTE_##name)

bool dt_conv_allows(const struct dt_conv_rules *rules, enum dt_dtype type, unsigned numerical)
{
    /* Partial sums in 16 bits lose too much: the first layer's weight gradient has 3.2 million
     * terms at batch 256. Hopper's own engine for that layer does this, forward as well. */
    unsigned refused = NOTE(REDUCED_PRECISION_REDUCTION);
    if (rules->deterministic)
        refused |= NOTE(NONDETERMINISTIC);
    if (!rules->winograd)
        refused |= NOTE(WINOGRAD) | NOTE(WINOGRAD_TILE_4x4) | NOTE(WINOGRAD_TILE_6x6) |
                   NOTE(WINOGRAD_TILE_13x13);
    if (type == DT_F32)
        refused |= NOTE(DOWN_CONVERT_INPUTS);
    /* Tensor cores round fp32 to TF32. */
    if (type == DT_F32 && !rules->tf32)
        refused |= NOTE(TENSOR_CORE);
    return !(numerical & refused);
}

dt_status dt_conv_try(struct dt_dnn_exec *exec, const struct dt_dnn_target *target,
                      struct dt_dnn_configs *configs, const struct dt_conv_rules *rules,
                      enum dt_dtype type, int candidate)
{
    struct dt_dnn_engine engine;
    *exec = (struct dt_dnn_exec){0};
    DT_TRY(dt_dnn_engine(&engine, configs, candidate));
    if (!dt_conv_allows(rules, type, engine.numerical))
        DT_FAIL(DT_ERR_DEVICE, "engine %lld is not allowed (its notes: 0x%x)",
                (long long)engine.index, engine.numerical);
    DT_TRY(dt_dnn_exec_create(exec, target, configs, candidate));
    size_t bytes = exec->workspace_bytes;
    if (bytes > DT_CONV_MAX_WORKSPACE) {
        dt_dnn_exec_destroy(exec);
        DT_FAIL(DT_ERR_DEVICE, "engine %lld needs a workspace of %zu MB", (long long)engine.index,
                bytes / 1000000);
    }
    return DT_OK;
}

/* --- The choice for one problem --- */

static const double total_s = 120; /* the most time for all tasks */
static const double save_every_s = 5, tell_every_s = 20;

struct chooser {
    struct dt_device *dev;
    struct dt_dnn_target target;
    struct dt_conv_rules rules;
    struct dt_algo_cache *cache;
    struct dt_conv_timer timer;
    double end_s;    /* of all timing */
    bool told_stale; /* has warned of choices that no longer fit */
};

/* The tag of a choice where cuDNN offers nothing. */
static const char nothing[] = "none";

static bool is_kept_refusal(const struct dt_conv_problem *problem,
                            const struct dt_conv_choice *choice)
{
    return problem->task.extra != DT_CONV_PLAIN && strcmp(choice->tag, nothing) == 0;
}

static bool is_open(const struct dt_conv_problem *problem)
{
    return !problem->exec.plan && !problem->refused;
}

/* Applies a choice made elsewhere or earlier; DT_ERR_DEVICE if it does not fit. */
static dt_status take_choice(struct chooser *c, struct dt_conv_problem *problem,
                             const struct dt_conv_choice *choice)
{
    struct dt_dnn_configs *configs = NULL;
    struct dt_dnn_exec exec = {0};
    dt_status status = DT_OK;
    DT_TRY_OUT(dt_dnn_configs_create(&configs, &c->target, &problem->task));
    if (choice->candidate < 0 || choice->candidate >= configs->n_candidates)
        DT_TRY_OUT(DT_ERROR(DT_ERR_DEVICE, "cuDNN offers %d algorithms, not number %lld",
                            configs->n_candidates, (long long)choice->candidate));
    DT_TRY_OUT(dt_conv_try(&exec, &c->target, configs, &c->rules, problem->task.type,
                           (int)choice->candidate));
    if (strcmp(exec.tag, choice->tag) != 0)
        DT_TRY_OUT(DT_ERROR(DT_ERR_DEVICE, "algorithm %lld is %s, not %s",
                            (long long)choice->candidate, exec.tag, choice->tag));
    problem->exec = exec;
    problem->choice = *choice;
    exec = (struct dt_dnn_exec){0};
out:
    dt_dnn_exec_destroy(&exec);
    dt_dnn_configs_destroy(configs);
    return status;
}

/* The candidates for one task, as variants. */
struct trial {
    struct chooser *chooser;
    const struct dt_conv_task *task;
    struct dt_dnn_configs *configs;
    struct dt_dnn_exec *exec; /* per candidate, made when it is first timed */
};

static dt_status time_candidate(void *context, int i, int n, double *seconds)
{
    const struct trial *t = context;
    struct chooser *c = t->chooser;
    if (!t->exec[i].plan)
        DT_TRY(dt_conv_try(&t->exec[i], &c->target, t->configs, &c->rules, t->task->type, i));
    return dt_conv_timer_run(&c->timer, t->task, &t->exec[i], n, seconds);
}

static double host_clock(void *context)
{
    (void)context;
    return dt_clock_s();
}

/* `n_left` problems, this one included, share the time that is left. */
static dt_status find_fastest(struct chooser *c, struct dt_dnn_configs *configs,
                              struct dt_conv_problem *problem, int n_left)
{
    struct trial t = {.chooser = c, .task = &problem->task, .configs = configs};
    struct dt_tune_rank ranking[DT_TUNE_RANKING];
    dt_status status = DT_OK;
    DT_TRY(DT_NEW(t.exec, (size_t)configs->n_candidates + 1));
    const struct dt_tune_work work = {.n_variants = configs->n_candidates,
                                      .time = time_candidate,
                                      .clock_s = host_clock,
                                      .context = &t,
                                      .budget_s = dt_tune_budget(c->end_s - dt_clock_s(), n_left)};
    DT_TRY_OUT(dt_tune(ranking, &work));
    if (ranking[0].variant >= 0) {
        struct dt_conv_choice *choice = &problem->choice;
        struct dt_dnn_exec *best = &t.exec[ranking[0].variant];
        choice->candidate = ranking[0].variant;
        choice->seconds = ranking[0].seconds;
        snprintf(choice->tag, sizeof choice->tag, "%s", best->tag);
        if (ranking[1].variant >= 0) {
            choice->runner_up_s = ranking[1].seconds;
            snprintf(choice->runner_up, sizeof choice->runner_up, "%s",
                     t.exec[ranking[1].variant].tag);
        }
        problem->exec = *best;
        *best = (struct dt_dnn_exec){0};
    }
out:
    for (int i = 0; i < configs->n_candidates && !c->dev->hung; i++) /* else they may still run */
        dt_dnn_exec_destroy(&t.exec[i]);
    free(t.exec);
    return status;
}

/* Takes the first usable candidate from number `first` on, without timing. */
static void find_first(struct chooser *c, struct dt_dnn_configs *configs,
                       struct dt_conv_problem *problem, int first)
{
    for (int i = 0; i < configs->n_candidates; i++) {
        int candidate = (first + i) % configs->n_candidates;
        if (dt_conv_try(&problem->exec, &c->target, configs, &c->rules, problem->task.type,
                        candidate) != DT_OK)
            continue;
        problem->choice.candidate = candidate;
        snprintf(problem->choice.tag, sizeof problem->choice.tag, "%s", problem->exec.tag);
        return;
    }
}

/* Timings differ from run to run. If runs must be reproducible, or the options name a candidate,
 * nothing is timed; the first is the one that cuDNN's heuristics consider the fastest. */
static bool is_timed(const struct chooser *c)
{
    return !c->rules.deterministic && c->dev->options.conv_candidate == 0;
}

static dt_status find_choice(struct chooser *c, struct dt_conv_problem *problem, int n_left)
{
    struct dt_dnn_configs *configs = NULL;
    char text[DT_CONV_TEXT_MAX], why[512];
    dt_status status = DT_OK;
    const int first = c->dev->options.conv_candidate;
    problem->choice = (struct dt_conv_choice){.seconds = NAN, .runner_up_s = NAN};
    dt_error_clear();
    status = dt_dnn_configs_create(&configs, &c->target, &problem->task);
    if (status == DT_OK && is_timed(c))
        status = find_fastest(c, configs, problem, n_left);
    else if (status == DT_OK)
        find_first(c, configs, problem, first > 0 ? first - 1 : 0);
    if (status == DT_OK && configs->n_candidates == 0)
        snprintf(problem->choice.tag, sizeof problem->choice.tag, "%s", nothing);
    dt_dnn_configs_destroy(configs);
    if (status != DT_OK && status != DT_ERR_DEVICE)
        DT_TRY(status);
    problem->refused = !problem->exec.plan;
    if (problem->refused && problem->task.extra == DT_CONV_PLAIN) {
        snprintf(why, sizeof(why), "%s", dt_error_text());
        DT_FAIL(DT_ERR_DEVICE, "cuDNN %zu has no algorithm on %s for %s%s; the last try: %s",
                cudnnGetVersion(), c->dev->name, dt_conv_text(text, &problem->task),
                c->rules.deterministic ? " with train.deterministic" : "",
                why[0] ? why : "none was offered");
    }
    dt_error_clear();
    return DT_OK;
}

/* With too little memory for tasks with extras, the others are timed. */
static dt_status open_timer(struct chooser *c)
{
    if (c->timer.data || !is_timed(c))
        return DT_OK;
    dt_status status = dt_conv_timer_open(&c->timer, c->dev->problems);
    if (status != DT_ERR_MEMORY || c->timer.plain_only)
        return status;
    dt_conv_timer_close(&c->timer);
    c->timer.plain_only = true;
    dt_error_clear();
    return dt_conv_timer_open(&c->timer, c->dev->problems);
}

static dt_status choose_one(struct chooser *c, struct dt_conv_problem *problem, int n_left)
{
    char key[DT_CONV_TEXT_MAX + 32];
    struct dt_conv_choice kept;
    char text[DT_CONV_TEXT_MAX];
    snprintf(key, sizeof(key), "%s%s%s", dt_conv_text(text, &problem->task),
             c->rules.tf32 ? " tf32" : "", c->rules.winograd ? " winograd" : "");
    if (dt_algo_cache_get(c->cache, key, &kept)) {
        problem->refused = is_kept_refusal(problem, &kept);
        if (problem->refused)
            return DT_OK;
        if (take_choice(c, problem, &kept) == DT_OK)
            return DT_OK;
        /* A choice in the file that is another plan now; e.g. the file was edited. */
        if (!c->told_stale)
            dt_log(DT_LOG_WARNING, "the algorithm kept for %s does not fit: %s; it is chosen again",
                   key, dt_error_text());
        c->told_stale = true;
        dt_error_clear();
    }
    DT_TRY(open_timer(c));
    problem->refused = c->timer.plain_only && problem->task.extra != DT_CONV_PLAIN;
    if (!problem->refused)
        DT_TRY(find_choice(c, problem, n_left));
    if (problem->refused && !is_kept_refusal(problem, &problem->choice))
        return DT_OK; /* another start may succeed */
    return dt_algo_cache_put(c->cache, key, &problem->choice);
}

/* --- The choice for one fusion --- */

static const char *const variant_name[] = {
    [DT_FUSION_SEPARATE] = "apart", [DT_FUSION_FUSED] = "together"};

static void take_variant(struct dt_conv_choice *choice, const struct dt_tune_rank *ranking)
{
    choice->candidate = ranking[0].variant;
    choice->seconds = ranking[0].seconds;
    snprintf(choice->tag, sizeof choice->tag, "%s", variant_name[ranking[0].variant]);
    if (ranking[1].variant >= 0) {
        choice->runner_up_s = ranking[1].seconds;
        snprintf(choice->runner_up, sizeof choice->runner_up, "%s",
                 variant_name[ranking[1].variant]);
    }
}

static bool is_way_timed(const struct chooser *c)
{
    return is_timed(c) && c->dev->options.fusion == DT_FUSION_AUTO;
}

static dt_status time_variants(struct chooser *c, struct dt_cuda_fusion *fusion, int n_left)
{
    struct dt_fusion_timer *timer = NULL;
    struct dt_tune_rank ranking[DT_TUNE_RANKING];
    dt_status status = DT_OK;
    DT_TRY_OUT(dt_fusion_timer_open(&timer, c->dev, fusion));
    const struct dt_tune_work work = {.n_variants = DT_N_FUSION_VARIANTS,
                                      .time = dt_fusion_timer_run,
                                      .clock_s = host_clock,
                                      .context = timer,
                                      .budget_s = dt_tune_budget(c->end_s - dt_clock_s(), n_left)};
    DT_TRY_OUT(dt_tune(ranking, &work));
    if (ranking[0].variant >= 0)
        take_variant(&fusion->choice, ranking);
out:
    dt_fusion_timer_close(timer);
    return status;
}

static void take_untimed(struct dt_conv_choice *choice, enum dt_fusion_variant variant)
{
    const struct dt_tune_rank ranking[] = {{variant, NAN}, {-1, NAN}};
    *choice = (struct dt_conv_choice){.seconds = NAN, .runner_up_s = NAN};
    take_variant(choice, ranking);
}

static dt_status find_variant(struct chooser *c, struct dt_cuda_fusion *fusion, int n_left)
{
    /* A variant that is not measured, or cannot be for lack of memory: our own kernels only move
     * less if nodes run together, but cuDNN's may be slower. */
    const bool is_gain = !fusion->problem[0] || c->dev->options.fusion == DT_FUSION_ON;
    take_untimed(&fusion->choice, is_gain ? DT_FUSION_FUSED : DT_FUSION_SEPARATE);
    if (!is_way_timed(c))
        return DT_OK;
    dt_status status = time_variants(c, fusion, n_left);
    if (status != DT_OK && status != DT_ERR_DEVICE && status != DT_ERR_MEMORY)
        return status;
    dt_error_clear(); /* also of a variant that failed when it was timed */
    return DT_OK;
}

static dt_status choose_variant(struct chooser *c, struct dt_cuda_fusion *fusion, int n_left)
{
    const struct dt_fusion_task *task = fusion->task;
    struct dt_conv_choice *choice = &fusion->choice;
    if (!dt_fusion_is_possible(fusion)) {
        take_untimed(choice, DT_FUSION_SEPARATE);
        return DT_OK;
    }
    if (task->chosen) {
        *choice = task->choice;
        return DT_OK;
    }
    if (is_way_timed(c) && dt_algo_cache_get(c->cache, task->text, choice) &&
        choice->candidate < DT_N_FUSION_VARIANTS &&
        strcmp(choice->tag, variant_name[choice->candidate]) == 0)
        return DT_OK;
    DT_TRY(find_variant(c, fusion, n_left));
    if (isnan(choice->seconds))
        return DT_OK; /* another run may be able to time it */
    return dt_algo_cache_put(c->cache, task->text, choice);
}

static void apply_choice(struct dt_cuda_fusion *fusion)
{
    if (dt_fusion_is_possible(fusion)) {
        fusion->task->chosen = true;
        fusion->task->choice = fusion->choice;
    }
    dt_fusion_apply(fusion, (enum dt_fusion_variant)fusion->choice.candidate);
}

/* --- The choices for all ranks --- */

/* Rank 0's message to the others: its identity and a choice for each problem and then each fusion
 * that needs one. */
struct table {
    char gpu[64];
    int64_t cudnn;
    struct dt_conv_choice choice[];
};

/* On the console and, if it takes long, in the log. */
struct progress {
    int done, total;
    double start_s, told_s, saved_s;
};

static void show_progress(const struct dt_device *dev, struct progress *p)
{
    static const char what[] = "choosing convolution algorithms";
    char left[32];
    const double now_s = dt_clock_s();
    if (dev->options.progress)
        dev->options.progress(dev->options.context, what, p->done, p->total);
    if (now_s - p->told_s < tell_every_s || p->done == 0)
        return;
    p->told_s = now_s;
    dt_log(
        DT_LOG_INFO, "%s: %d of %d, about %s left", what, p->done, p->total,
        dt_clock_format(left, sizeof left, (now_s - p->start_s) * (p->total - p->done) / p->done));
}

/* Saving often leaves less to do after a first start, which takes long, was interrupted. */
static void keep(struct chooser *c, struct table *table, struct progress *p,
                 const struct dt_conv_choice *choice)
{
    table->choice[p->done++] = *choice;
    show_progress(c->dev, p);
    if (dt_clock_s() - p->saved_s > save_every_s) {
        dt_algo_cache_save(c->cache);
        p->saved_s = dt_clock_s();
    }
}

static dt_status choose_all(struct chooser *c, struct table *table, int n)
{
    struct dt_device *dev = c->dev;
    char scope[128];
    dt_status status = DT_OK;
    const double now_s = dt_clock_s();
    struct progress shown = {.total = n, .start_s = now_s, .told_s = now_s, .saved_s = now_s};
    c->end_s = now_s + total_s;
    snprintf(table->gpu, sizeof(table->gpu), "%s", dev->name);
    table->cudnn = (int64_t)cudnnGetVersion();
    snprintf(scope, sizeof(scope), "%s, cuDNN %lld", dev->name, (long long)table->cudnn);
    /* Choices made by timing are not what other runs want, nor the other way round. */
    DT_TRY(dt_algo_cache_open(&c->cache, is_timed(c) ? dev->cache_dir : "", scope));
    show_progress(dev, &shown);
    for (struct dt_conv_problem *p = dev->problems; p; p = p->next) {
        if (!is_open(p))
            continue;
        DT_TRY_OUT(choose_one(c, p, n - shown.done));
        keep(c, table, &shown, &p->choice);
    }
    dt_conv_timer_close(&c->timer);                      /* fusions need its memory */
    for (int kind = 0; kind < DT_N_FUSION_KINDS; kind++) /* a later one builds on others */
        for (struct dt_cuda_fusion *fusion = dev->fusions; fusion; fusion = fusion->next) {
            if (fusion->settled || (int)fusion->kind != kind)
                continue;
            DT_TRY_OUT(choose_variant(c, fusion, n - shown.done));
            apply_choice(fusion);
            keep(c, table, &shown, &fusion->choice);
        }
out:
    dt_algo_cache_save(c->cache); /* also after a failure, to keep what was timed */
    dt_algo_cache_close(c->cache);
    dt_conv_timer_close(&c->timer);
    return status;
}

static dt_status adopt_all(struct chooser *c, const struct table *table)
{
    char text[DT_CONV_TEXT_MAX], why[512];
    int i = 0;
    for (struct dt_conv_problem *p = c->dev->problems; p; p = p->next) {
        if (!is_open(p))
            continue;
        const struct dt_conv_choice *choice = &table->choice[i++];
        p->refused = choice->tag[0] == '\0' || is_kept_refusal(p, choice);
        if (p->refused || take_choice(c, p, choice) == DT_OK)
            continue;
        snprintf(why, sizeof(why), "%s", dt_error_text());
        DT_FAIL(DT_ERR_DISAGREE,
                "rank 0 (%.64s, cuDNN %lld) chose an algorithm for %s that this rank (%s, cuDNN "
                "%zu) does not have: %s; all ranks need the same GPU model and cuDNN version",
                table->gpu, (long long)table->cudnn, dt_conv_text(text, &p->task), c->dev->name,
                cudnnGetVersion(), why);
    }
    for (int kind = 0; kind < DT_N_FUSION_KINDS; kind++)
        for (struct dt_cuda_fusion *fusion = c->dev->fusions; fusion; fusion = fusion->next) {
            if (fusion->settled || (int)fusion->kind != kind)
                continue;
            fusion->choice = table->choice[i++];
            apply_choice(fusion);
        }
    return DT_OK;
}

/* Rank 0 chooses and shares its table; the others time nothing and adopt it. `prepared` is the
 * status of the steps before: a rank that failed in them must still take part in `share`, which is
 * collective and gives all ranks the same status, or the others would wait for it. */
dt_status dt_cuda_autotune(struct dt_device *dev, dt_status prepared)
{
    const struct dt_device_options *options = &dev->options;
    struct chooser c = {
        .dev = dev, .target.handle = dev->dnn, .rules = dt_conv_rules(options), .timer.dev = dev};
    struct table *table = NULL;
    dt_status status = prepared;
    int n = 0;
    for (const struct dt_conv_problem *p = dev->problems; p; p = p->next)
        n += is_open(p);
    for (const struct dt_cuda_fusion *fusion = dev->fusions; fusion; fusion = fusion->next)
        n += !fusion->settled;
    size_t bytes = sizeof *table + (size_t)n * sizeof table->choice[0];
    if (status == DT_OK) {
        table = dt_mem_alloc(bytes, 1, "choices of algorithms");
        status = table ? DT_OK : DT_ERR_MEMORY;
    }
    bool chooses = !options->share || options->rank == 0;
    if (status == DT_OK && chooses && n > 0)
        status = choose_all(&c, table, n);
    if (options->share)
        status = options->share(options->context, status, table, bytes);
    if (status == DT_OK && !chooses)
        status = adopt_all(&c, table);
    free(table);
    if (status != DT_OK)
        return dt_error_pass(status, __func__, __FILE__, __LINE__);
    return DT_OK;
}

static struct dt_choice describe(const struct dt_conv_choice *choice, const char *fusion)
{
    return (struct dt_choice){fusion, choice->tag, choice->runner_up, choice->seconds,
                              choice->runner_up_s};
}

bool dt_cuda_choice(const struct dt_device *dev, const struct dt_exec *exec, int i,
                    struct dt_choice *out)
{
    if (exec->problem && i-- == 0) {
        *out = describe(&dt_fusion_problem(exec)->choice, NULL);
        return true;
    }
    for (const struct dt_cuda_fusion *fusion = dev->fusions; fusion; fusion = fusion->next)
        if (fusion->exec[0] == exec && i-- == 0) {
            *out = describe(&fusion->choice, dt_fusion_name(fusion->kind));
            return true;
        }
    return false;
}
