/* Rules that involve several keys. Each is a function that describes the violation; the table names
 * the key to blame. They run once every key is valid by itself. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "config/keys.h"

#define WRONG(...) return snprintf(what, DT_WHAT_BYTES, __VA_ARGS__) > 0

static bool is_local_sgd(const struct dt_config *c)
{
    return dt_config_mode(c) == DT_MODE_LOCAL;
}

static bool is_given(const struct dt_config *c, const struct dt_key *key)
{
    int n = 0;
    if (key->type == DT_KEY_STRING || key->type == DT_KEY_NAMES)
        return strcmp(dt_key_get_string(key, c), key->text) != 0;
    if (key->type != DT_KEY_LIST)
        return dt_key_get_number(key, c) != key->number;
    dt_key_get_list(key, c, &n);
    return n != 0;
}

/* Keys that are for the other kind of network. */
static bool name(const struct dt_config *c, char *what)
{
    static const char *const of_classifiers[] = {
        "train.label_smoothing", "train.class_weights", "data.mixup", "data.cutmix", "eval.tta",
        "data.random_erasing"};
    for (size_t i = 0; i < DT_COUNT(of_classifiers) && dt_config_detects(c); i++)
        if (is_given(c, dt_key_find(of_classifiers[i])))
            WRONG("\"%s\" is a detector, but %s is given, which is for classifiers only",
                  c->model.name, of_classifiers[i]);
    for (size_t i = 0; i < dt_config_n_keys() && !dt_config_detects(c); i++)
        if (dt_keys[i].of_detectors && is_given(c, &dt_keys[i]))
            WRONG("\"%s\" is a classifier, but %s is given, which is for detectors only",
                  c->model.name, dt_keys[i].path);
    return false;
}

static bool norm_eps(const struct dt_config *c, char *what)
{
    if (dt_config_detects(c) && is_given(c, dt_key_find("model.norm_eps")) && !c->model.frozen_norm)
        WRONG("%g is for model.frozen_norm, which is false", c->model.norm_eps);
    return false;
}

static bool box_loss_beta(const struct dt_config *c, char *what)
{
    if (dt_config_detects(c) && is_given(c, dt_key_find("train.box_loss_beta")) &&
        c->train.box_loss != DT_BOX_SMOOTH_L1)
        WRONG("%g is for train.box_loss \"smooth_l1\"", c->train.box_loss_beta);
    return false;
}

static bool num_classes(const struct dt_config *c, char *what)
{
    if (c->model.num_classes == 1 && !dt_config_detects(c))
        WRONG("1 class leaves nothing to learn; leave it out to follow the data");
    return false;
}

static bool train_data(const struct dt_config *c, char *what)
{
    enum dt_source source = c->data.source;
    if (source == DT_SOURCE_SYNTHETIC && c->data.train[0])
        WRONG("given, but data.source \"synthetic\" trains on generated images; leave out one of "
              "them");
    if (source != DT_SOURCE_SYNTHETIC && source != DT_SOURCE_AUTO && !c->data.train[0])
        WRONG("empty, but data.source is \"%s\"; set it to a folder, or to shards such as "
              "train-{0000..0009}.tar",
              dt_key_find("data.source")->choices[c->data.source]);
    return false;
}

static bool val_data(const struct dt_config *c, char *what)
{
    if (c->data.source == DT_SOURCE_SYNTHETIC && c->data.val[0])
        WRONG("given, but data.source \"synthetic\" evaluates on generated images; leave out one "
              "of them");
    return false;
}

static bool val_fraction(const struct dt_config *c, char *what)
{
    if (c->data.val_fraction > 0 && c->data.val[0])
        WRONG(
            "%g of data.train, but data.val is given too; leave one of them out, or set this to 0",
            c->data.val_fraction);
    if (c->data.val_fraction > 0 && dt_config_is_synthetic(c))
        WRONG("%g, but the images are generated; data.synthetic_val is their number",
              c->data.val_fraction);
    return false;
}

static bool synthetic_train(const struct dt_config *c, char *what)
{
    int batch = dt_config_batch_size(c, 1);
    if (dt_config_is_synthetic(c) && c->data.synthetic_train < batch)
        WRONG("%d images are fewer than %s %d", c->data.synthetic_train, dt_config_batch_key(c),
              batch);
    return false;
}

static bool val_resize(const struct dt_config *c, char *what)
{
    if (c->data.val_resize != 0 && c->data.val_resize < c->model.image_size)
        WRONG("%d is smaller than model.image_size %d, so the centre crop does not fit",
              c->data.val_resize, c->model.image_size);
    return false;
}

static bool batch_size_per_rank(const struct dt_config *c, char *what)
{
    if (c->train.batch_size_per_rank > 0 && c->train.global_batch_size > 0)
        WRONG("train.global_batch_size %d is given too; leave one of them out, or set it to 0",
              c->train.global_batch_size);
    return false;
}

static bool micro_batch_size(const struct dt_config *c, char *what)
{
    int batch = dt_config_batch_size(c, 1);
    if (c->train.micro_batch_size > 0 && batch % c->train.micro_batch_size != 0)
        WRONG("%s %d is not a multiple of %d", dt_config_batch_key(c), batch,
              c->train.micro_batch_size);
    return false;
}

static bool stages(const struct dt_config *c, char *what)
{
    for (int i = 0; i < c->train.n_stages && dt_config_detects(c); i++)
        if (c->train.stages[i].image_size > 0)
            WRONG("\"%s\" is a detector, whose sizes are model.canvases throughout", c->model.name);
    for (int i = 1; i < c->train.n_stages; i++)
        if (c->train.stages[i].epoch <= c->train.stages[i - 1].epoch)
            WRONG("epoch %d after %d is not in ascending order", c->train.stages[i].epoch,
                  c->train.stages[i - 1].epoch);
    return false;
}

static bool deterministic(const struct dt_config *c, char *what)
{
    if (c->train.deterministic && c->comm.algorithm != DT_ALGORITHM_RING)
        WRONG("only comm.algorithm \"ring\" adds in a fixed order");
    return false;
}

/* `metric` is for the other kind of network. */
static bool is_foreign(const struct dt_config *c, enum dt_metric metric, char *what)
{
    char names[DT_WHAT_BYTES / 2];
    struct dt_text fitting = dt_text_in(names, sizeof names);
    if (metric == DT_METRIC_AUTO || dt_config_fits(c, metric))
        return false;
    for (enum dt_metric m = 0; m < DT_N_METRICS; m++)
        if (dt_config_fits(c, m))
            dt_text_add(&fitting, "%s%s", fitting.used ? ", " : "", dt_metric_name(m));
    WRONG("\"%s\" is not for %s, which are judged by %s", dt_metric_name(metric),
          dt_config_detects(c) ? "detectors" : "classifiers", names);
}

static bool early_stop_metric(const struct dt_config *c, char *what)
{
    return is_foreign(c, c->early_stop.metric, what);
}

static bool schedule_metric(const struct dt_config *c, char *what)
{
    return is_foreign(c, c->schedule.metric, what);
}

static bool best_metric(const struct dt_config *c, char *what)
{
    return is_foreign(c, c->checkpoint.best_metric, what);
}

/* Detectors have them all; the default is of classifiers. */
static bool eval_metrics(const struct dt_config *c, char *what)
{
    const bool is_default = !is_given(c, dt_key_find("eval.metrics"));
    char name[DT_CONFIG_NAME_MAX];
    const char *rest = c->eval.metrics;
    while (!is_default && (rest = dt_config_names_next(rest, name, sizeof name)))
        for (enum dt_metric m = 0; m < DT_N_METRICS; m++)
            if (strcmp(name, dt_metric_name(m)) == 0 && is_foreign(c, m, what))
                return true;
    return false;
}

static bool early_stop_target(const struct dt_config *c, char *what)
{
    const double target = c->early_stop.target;
    const enum dt_metric metric = dt_config_goal_metric(c);
    const bool is_loss = dt_metric_gain(metric, 0, 1) < 0;
    if (target > 0 && !dt_config_has_validation(c))
        WRONG("no validation data to measure %g on; set data.val or data.val_fraction", target);
    if (target > 0 && target <= 1 && dt_metric_is_percent(metric))
        WRONG("%g is in per cent; did you mean %g?", target, 100 * target);
    if (target > 1 && !dt_metric_is_percent(metric) && !is_loss)
        WRONG("%g, but %s lies between 0 and 1; did you mean %g?", target, dt_metric_name(metric),
              target / 100);
    return false;
}

static bool early_stop_patience(const struct dt_config *c, char *what)
{
    if (c->early_stop.patience > 0 && !dt_config_has_validation(c))
        WRONG("no validation data to measure on; set data.val or data.val_fraction");
    return false;
}

static bool restore_best(const struct dt_config *c, char *what)
{
    if (c->train.restore_best && !dt_config_has_validation(c))
        WRONG("no validation data to judge by; set data.val or data.val_fraction");
    if (c->train.restore_best && !c->checkpoint.keep_best)
        WRONG("needs checkpoint.keep_best");
    return false;
}

static bool loss_scale(const struct dt_config *c, char *what)
{
    if (c->train.loss_scale > 0 && c->train.precision != DT_PRECISION_FP16)
        WRONG("%g applies to train.precision fp16 only; leave it at 0", c->train.loss_scale);
    return false;
}

static bool eval_weights(const struct dt_config *c, char *what)
{
    if (c->eval.weights == DT_WEIGHTS_EMA && c->train.ema_decay <= 0)
        WRONG("\"ema\", but there is no moving average; set train.ema_decay, such as 0.9999");
    return false;
}

static bool nesterov(const struct dt_config *c, char *what)
{
    if (c->optim.nesterov && c->optim.momentum == 0)
        WRONG("true needs optim.momentum above 0");
    if (c->optim.nesterov && c->optim.name != DT_OPTIM_SGD)
        WRONG("only optim.name \"sgd\" has Nesterov momentum");
    return false;
}

static bool beta2(const struct dt_config *c, char *what)
{
    if (c->optim.beta2 > 0 && !dt_optim_has_square(c->optim.name))
        WRONG("given, but optim.name \"%s\" keeps no squared gradients",
              dt_optim_name(c->optim.name));
    return false;
}

static bool eps(const struct dt_config *c, char *what)
{
    if (c->optim.eps > 0 && c->optim.name == DT_OPTIM_SGD)
        WRONG("given, but optim.name \"sgd\" has no denominators");
    return false;
}

static bool trust_coefficient(const struct dt_config *c, char *what)
{
    const double unset = dt_key_find("optim.trust_coefficient")->number;
    if (c->optim.trust_coefficient != unset && c->optim.name != DT_OPTIM_LARS)
        WRONG("given, but optim.name is \"%s\"; only \"lars\" uses it",
              dt_optim_name(c->optim.name));
    return false;
}

static bool clip_value(const struct dt_config *c, char *what)
{
    if (c->optim.clip_value > 0 && c->optim.clip_norm > 0)
        WRONG("optim.clip_norm %g is given too; set one of them to 0", c->optim.clip_norm);
    return false;
}

static bool unfreeze_epoch(const struct dt_config *c, char *what)
{
    if (c->optim.unfreeze_epoch > 0 && !c->optim.freeze[0])
        WRONG("%d, but optim.freeze lists nothing", c->optim.unfreeze_epoch);
    return false;
}

static bool schedule_kind(const struct dt_config *c, char *what)
{
    const enum dt_metric metric = dt_config_plateau_metric(c);
    if (c->schedule.kind != DT_SCHEDULE_PLATEAU || metric == DT_METRIC_TRAIN_LOSS)
        return false;
    if (!dt_config_has_validation(c))
        WRONG("\"plateau\" has no validation data to measure %s on; set data.val or "
              "data.val_fraction, or schedule.metric to \"train_loss\"",
              dt_metric_name(metric));
    if (c->eval.every_epochs == 0)
        WRONG("\"plateau\" follows evaluations, but eval.every_epochs is 0");
    return false;
}

static bool lr_base_size(const struct dt_config *c, char *what)
{
    if (c->schedule.lr_base_size == 0 && c->schedule.lr_scaling != DT_LR_SCALING_NONE)
        WRONG("0 is no batch size; for a learning rate that does not follow the batch, set "
              "schedule.lr_scaling to \"none\"");
    return false;
}

static bool warmup_steps(const struct dt_config *c, char *what)
{
    if (c->schedule.warmup_steps > 0 && c->schedule.warmup_epochs > 0)
        WRONG("schedule.warmup_epochs %g is given too; leave one of them out, or set it to 0",
              c->schedule.warmup_epochs);
    return false;
}

static bool warmup_epochs(const struct dt_config *c, char *what)
{
    if (c->schedule.warmup_epochs > c->train.epochs)
        WRONG("a warm-up of %g epochs is longer than train.epochs %d", c->schedule.warmup_epochs,
              c->train.epochs);
    return false;
}

static bool milestones(const struct dt_config *c, char *what)
{
    const double *at = c->schedule.milestones;
    bool used = c->schedule.kind == DT_SCHEDULE_STEP || c->schedule.kind == DT_SCHEDULE_PIECEWISE;
    if (used && c->schedule.n_milestones == 0)
        WRONG("empty, but schedule.kind is \"%s\"; list the epochs or choose \"constant\"",
              dt_key_find("schedule.kind")->choices[c->schedule.kind]);
    for (int i = 1; i < c->schedule.n_milestones; i++)
        if (at[i] <= at[i - 1])
            WRONG("%g after %g is not in ascending order", at[i], at[i - 1]);
    return false;
}

static bool factors(const struct dt_config *c, char *what)
{
    int n = c->schedule.n_milestones;
    if (c->schedule.kind == DT_SCHEDULE_PIECEWISE && c->schedule.n_factors != n)
        WRONG(
            "schedule.kind \"piecewise\" needs one for each of the %d schedule.milestones, not %d",
            n, c->schedule.n_factors);
    return false;
}

static bool min_lr(const struct dt_config *c, char *what)
{
    enum dt_schedule_kind kind = c->schedule.kind;
    bool used = dt_schedule_has_end(kind) || kind == DT_SCHEDULE_PLATEAU;
    if (used && c->schedule.min_lr > c->schedule.lr)
        WRONG("%g is larger than schedule.lr %g", c->schedule.min_lr, c->schedule.lr);
    return false;
}

static bool comm_backend(const struct dt_config *c, char *what)
{
    if (c->comm.backend == DT_COMM_NCCL && c->device.kind == DT_DEVICE_CPU)
        WRONG("\"nccl\" needs a GPU, but device.kind is \"cpu\"");
    return false;
}

static bool grad_dtype(const struct dt_config *c, char *what)
{
    bool fp16 = c->comm.grad_dtype == DT_GRAD_FP16, bf16 = c->comm.grad_dtype == DT_GRAD_BF16;
    if ((fp16 && c->train.precision == DT_PRECISION_BF16) ||
        (bf16 && c->train.precision == DT_PRECISION_FP16))
        WRONG("\"%s\", but train.precision \"%s\" computes them in another 16-bit type; \"auto\" "
              "sends them in that",
              fp16 ? "fp16" : "bf16", dt_precision_name(c->train.precision));
    if ((fp16 || bf16) && c->comm.algorithm != DT_ALGORITHM_RING &&
        c->train.precision == DT_PRECISION_FP32)
        WRONG("only comm.algorithm \"ring\" rounds gradients of train.precision \"fp32\"");
    return false;
}

static bool mode(const struct dt_config *c, char *what)
{
    const char *name = dt_key_find("comm.mode")->choices[c->comm.mode];
    bool narrow = c->comm.grad_dtype == DT_GRAD_FP16 || c->comm.grad_dtype == DT_GRAD_BF16;
    if (c->comm.mode == DT_MODE_ALLREDUCE)
        return false;
    if (c->comm.backend == DT_COMM_NCCL)
        WRONG("\"%s\" needs comm.backend \"mpi\"", name);
    if (narrow)
        WRONG("\"%s\" sends fp32 only; set comm.grad_dtype to auto", name);
    if (c->train.ema_decay > 0 || c->model.sync_bn != 0)
        WRONG("\"%s\" has neither train.ema_decay nor model.sync_bn", name);
    if (c->comm.mode == DT_MODE_ASYNC && c->train.deterministic)
        WRONG("\"async\" depends on who is first, but train.deterministic is true");
    return false;
}

static bool sync_every(const struct dt_config *c, char *what)
{
    bool narrow = c->comm.grad_dtype == DT_GRAD_FP16 || c->comm.grad_dtype == DT_GRAD_BF16;
    int every = c->train.sync_every;
    if (every > 1 && c->comm.mode == DT_MODE_CENTRAL)
        WRONG("%d, but comm.mode \"central\" updates in every step", every);
    if (is_local_sgd(c) && (narrow || c->comm.backend == DT_COMM_NCCL))
        WRONG("%d: weights are averaged in fp32 over MPI; set comm.grad_dtype and comm.backend to "
              "auto",
              every);
    if (is_local_sgd(c) && (c->train.ema_decay > 0 || c->model.sync_bn != 0))
        WRONG("%d: ranks that train alone have neither train.ema_decay nor model.sync_bn", every);
    if (is_local_sgd(c) && c->train.max_steps % every != 0)
        WRONG(
            "train.max_steps %lld is not a multiple of %d: the last average would come early, and "
            "a later run with more steps would differ",
            (long long)c->train.max_steps, every);
    return false;
}

static bool average_states(const struct dt_config *c, char *what)
{
    if (c->train.average_states && !is_local_sgd(c))
        WRONG("true needs train.sync_every above 1 and comm.mode \"allreduce\"");
    return false;
}

static bool outer_momentum(const struct dt_config *c, char *what)
{
    if (c->train.outer_momentum > 0 && !is_local_sgd(c))
        WRONG("%g needs train.sync_every above 1 and comm.mode \"allreduce\"",
              c->train.outer_momentum);
    return false;
}

static const struct dt_rule rules[] = {
    {"model.name", name},
    {"model.num_classes", num_classes},
    {"model.norm_eps", norm_eps},
    {"data.train", train_data},
    {"data.val", val_data},
    {"data.val_fraction", val_fraction},
    {"data.synthetic_train", synthetic_train},
    {"data.val_resize", val_resize},
    {"train.batch_size_per_rank", batch_size_per_rank},
    {"train.micro_batch_size", micro_batch_size},
    {"train.stages", stages},
    {"train.deterministic", deterministic},
    {"eval.metrics", eval_metrics},
    {"early_stop.metric", early_stop_metric},
    {"early_stop.target", early_stop_target},
    {"early_stop.patience", early_stop_patience},
    {"train.restore_best", restore_best},
    {"train.loss_scale", loss_scale},
    {"eval.weights", eval_weights},
    {"optim.nesterov", nesterov},
    {"optim.beta2", beta2},
    {"optim.eps", eps},
    {"optim.trust_coefficient", trust_coefficient},
    {"optim.clip_value", clip_value},
    {"optim.unfreeze_epoch", unfreeze_epoch},
    {"schedule.kind", schedule_kind},
    {"schedule.lr_base_size", lr_base_size},
    {"schedule.warmup_epochs", warmup_epochs},
    {"schedule.warmup_steps", warmup_steps},
    {"schedule.milestones", milestones},
    {"schedule.factors", factors},
    {"schedule.min_lr", min_lr},
    {"schedule.metric", schedule_metric},
    {"checkpoint.best_metric", best_metric},
    {"comm.backend", comm_backend},
    {"comm.grad_dtype", grad_dtype},
    {"comm.mode", mode},
    {"train.sync_every", sync_every},
    {"train.average_states", average_states},
    {"train.outer_momentum", outer_momentum},
    {"train.box_loss_beta", box_loss_beta},
    {0},
};

static void check_all(const struct dt_rule *rule, const struct dt_config *config,
                      dt_config_report *report, void *context)
{
    char what[DT_WHAT_BYTES];
    for (; rule->path; rule++)
        if (rule->is_broken(config, what))
            report(context, rule->path, what);
}

void dt_config_check(const struct dt_config *config, dt_config_report *report, void *context)
{
    check_all(rules, config, report, context);
    check_all(dt_detector_rules, config, report, context);
}
