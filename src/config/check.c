/* Rules that involve several keys, section by section. They run once every key is valid by itself.
 * Of what is wrong with a key, only the first is reported. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "config/keys.h"

enum { WHAT_BYTES = 256, CANVAS_MULTIPLE = 32, MAX_CANVAS = 2048 };

struct checking {
    const struct dt_config *config;
    struct dt_config defaults;
    dt_config_report *report;
    void *context;
    const char *reported; /* key that was reported last */
};

static void wrong(struct checking *k, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void wrong(struct checking *k, const char *path, const char *format, ...)
{
    char what[WHAT_BYTES];
    va_list args;
    if (k->reported && strcmp(k->reported, path) == 0)
        return;
    k->reported = path;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    k->report(k->context, path, what);
}

static bool is_given(const struct checking *k, const char *path)
{
    return !dt_key_is_same(dt_key_find(path), k->config, &k->defaults);
}

/* Also keys that are for the other kind of network. */
static void check_model(struct checking *k)
{
    static const char *const of_classifiers[] = {
        "train.label_smoothing", "train.class_weights", "data.mixup", "data.cutmix", "eval.tta",
        "data.random_erasing",   "data.sampler"};
    const struct dt_config *c = k->config;
    const bool detects = dt_config_detects(c);
    for (size_t i = 0; i < DT_COUNT(of_classifiers) && detects; i++)
        if (is_given(k, of_classifiers[i]))
            wrong(k, "model.name",
                  "\"%s\" is a detector, but %s is given, which is for classifiers only",
                  c->model.name, of_classifiers[i]);
    for (size_t i = 0; i < dt_config_n_keys() && !detects; i++)
        if (dt_keys[i].of_detectors && is_given(k, dt_keys[i].path))
            wrong(k, "model.name",
                  "\"%s\" is a classifier, but %s is given, which is for detectors only",
                  c->model.name, dt_keys[i].path);
    static const char *const shares[] = {"model.dropout", "model.stochastic_depth"};
    for (size_t i = 0; i < DT_COUNT(shares); i++) {
        const double share = dt_key_get_number(dt_key_find(shares[i]), c);
        if (share < 0 && share != -1)
            wrong(k, shares[i], "expected a number from 0, below 1, or -1, got %g", share);
    }
    const struct dt_model *row = dt_model_find(c->model.name);
    if (row && row->stochastic_depth == 0 && c->model.stochastic_depth > 0)
        wrong(k, "model.stochastic_depth",
              "%g, but only EfficientNet and ConvNeXt have it, not \"%s\"; leave it out",
              c->model.stochastic_depth, c->model.name);
    if (c->model.num_classes == 1 && !detects)
        wrong(k, "model.num_classes",
              "1 class leaves nothing to learn; leave it out to follow the data");
    if (detects && is_given(k, "model.norm_eps") && !c->model.frozen_norm)
        wrong(k, "model.norm_eps", "%g is for model.frozen_norm, which is false",
              c->model.norm_eps);
}

static void check_data(struct checking *k)
{
    const struct dt_config *c = k->config;
    const struct dt_config_data *d = &c->data;
    const bool is_synthetic = dt_config_is_synthetic(c);
    const int batch = dt_config_batch_size(c, 1);
    if (d->source == DT_SOURCE_SYNTHETIC && d->train[0])
        wrong(k, "data.train",
              "given, but data.source \"synthetic\" trains on generated images; remove one of "
              "them");
    if (d->source != DT_SOURCE_SYNTHETIC && d->source != DT_SOURCE_AUTO && !d->train[0])
        wrong(k, "data.train",
              "empty, but data.source is \"%s\"; set it to a folder, or to shards such as "
              "train-{0000..0009}.tar",
              dt_key_find("data.source")->choices[d->source]);
    if (d->source == DT_SOURCE_SYNTHETIC && d->val[0])
        wrong(k, "data.val",
              "given, but data.source \"synthetic\" evaluates on generated images; remove one of "
              "them");
    if (d->val_fraction > 0 && d->val[0])
        wrong(k, "data.val_fraction",
              "%g of data.train, but data.val is given too; leave one of them out, or set this to "
              "0",
              d->val_fraction);
    if (d->val_fraction > 0 && is_synthetic)
        wrong(k, "data.val_fraction",
              "%g, but the images are generated; data.synthetic_val is their number",
              d->val_fraction);
    if (is_synthetic && d->synthetic_train < batch)
        wrong(k, "data.synthetic_train", "%d images are fewer than %s %d", d->synthetic_train,
              dt_config_batch_key(c), batch);
    if (d->val_resize != 0 && d->val_resize < c->model.image_size)
        wrong(k, "data.val_resize",
              "%d is smaller than model.image_size %d, so the centre crop does not fit",
              d->val_resize, c->model.image_size);
}

static void check_batches(struct checking *k)
{
    const struct dt_config *c = k->config;
    const struct dt_config_train *t = &c->train;
    if (t->batch_size_per_rank > 0 && t->global_batch_size > 0)
        wrong(k, "train.batch_size_per_rank",
              "train.global_batch_size %d is given too; leave one of them out, or set it to 0",
              t->global_batch_size);
    for (int i = 0; i < t->n_stages && dt_config_detects(c); i++)
        if (t->stages[i].image_size > 0)
            wrong(k, "train.stages",
                  "\"%s\" is a detector, whose sizes are model.canvases throughout", c->model.name);
    for (int i = 1; i < t->n_stages; i++)
        if (t->stages[i].epoch <= t->stages[i - 1].epoch)
            wrong(k, "train.stages", "epoch %d after %d is not in ascending order",
                  t->stages[i].epoch, t->stages[i - 1].epoch);
    if (t->deterministic && c->comm.algorithm == DT_ALGORITHM_LIBRARY)
        wrong(k, "train.deterministic", "comm.algorithm \"library\" adds in no fixed order");
}

/* Reports a metric that is not for this kind of network. */
static void check_metric(struct checking *k, const char *path, enum dt_metric metric)
{
    const struct dt_config *c = k->config;
    char names[WHAT_BYTES / 2];
    struct dt_text fitting = dt_text_in(names, sizeof names);
    if (metric == DT_METRIC_AUTO || dt_config_fits(c, metric))
        return;
    for (enum dt_metric m = 0; m < DT_N_METRICS; m++)
        if (dt_config_fits(c, m))
            dt_text_add(&fitting, "%s%s", fitting.used ? ", " : "", dt_metric_name(m));
    wrong(k, path, "\"%s\" is not for %s, whose metrics are %s", dt_metric_name(metric),
          dt_config_detects(c) ? "detectors" : "classifiers", names);
}

static void check_evaluation(struct checking *k)
{
    const struct dt_config *c = k->config;
    const double target = c->early_stop.target;
    const enum dt_metric goal = dt_config_goal_metric(c);
    const bool is_loss = dt_metric_gain(goal, 0, 1) < 0, is_blind = !dt_config_has_validation(c);
    /* Detectors have all metrics; the default is of classifiers. */
    const bool is_default = !is_given(k, "eval.metrics");
    char name[DT_CONFIG_NAME_MAX];
    const char *rest = k->config->eval.metrics;
    while (!is_default && (rest = dt_config_names_next(rest, name, sizeof name)))
        for (enum dt_metric m = 0; m < DT_N_METRICS; m++)
            if (strcmp(name, dt_metric_name(m)) == 0)
                check_metric(k, "eval.metrics", m);
    check_metric(k, "early_stop.metric", c->early_stop.metric);
    if (target > 0 && is_blind)
        wrong(k, "early_stop.target",
              "no validation data to measure %g on; set data.val or data.val_fraction", target);
    if (target > 0 && target <= 1 && dt_metric_is_percent(goal))
        wrong(k, "early_stop.target", "%g is in per cent; did you mean %g?", target, 100 * target);
    if (target > 1 && !dt_metric_is_percent(goal) && !is_loss)
        wrong(k, "early_stop.target", "%g, but %s lies between 0 and 1; did you mean %g?", target,
              dt_metric_name(goal), target / 100);
    if (c->early_stop.patience > 0 && is_blind)
        wrong(k, "early_stop.patience",
              "no validation data to measure on; set data.val or data.val_fraction");
    if (c->train.restore_best && is_blind)
        wrong(k, "train.restore_best",
              "no validation data to evaluate; set data.val or data.val_fraction");
    if (c->train.restore_best && !c->checkpoint.keep_best)
        wrong(k, "train.restore_best", "needs checkpoint.keep_best");
    if (c->train.loss_scale > 0 && c->train.precision != DT_PRECISION_FP16)
        wrong(k, "train.loss_scale", "%g applies to train.precision fp16 only; leave it at 0",
              c->train.loss_scale);
    if (c->eval.weights == DT_WEIGHTS_EMA && c->train.ema_decay <= 0)
        wrong(k, "eval.weights",
              "\"ema\", but there is no moving average; set train.ema_decay, such as 0.9999");
}

static void check_optim(struct checking *k)
{
    const struct dt_config_optim *o = &k->config->optim;
    const char *name = dt_optim_name(o->name);
    if (o->nesterov && o->momentum == 0)
        wrong(k, "optim.nesterov", "true needs optim.momentum above 0");
    if (o->nesterov && o->name != DT_OPTIM_SGD)
        wrong(k, "optim.nesterov", "only optim.name \"sgd\" has Nesterov momentum");
    if (o->beta2 > 0 && !dt_optim_has_square(o->name))
        wrong(k, "optim.beta2", "given, but optim.name \"%s\" keeps no squared gradients", name);
    if (o->eps > 0 && o->name == DT_OPTIM_SGD)
        wrong(k, "optim.eps", "given, but optim.name \"sgd\" has no denominators");
    if (o->trust_coefficient != dt_key_find("optim.trust_coefficient")->number &&
        o->name != DT_OPTIM_LARS)
        wrong(k, "optim.trust_coefficient",
              "given, but optim.name is \"%s\"; only \"lars\" uses it", name);
    if (o->clip_value > 0 && o->clip_norm > 0)
        wrong(k, "optim.clip_value", "optim.clip_norm %g is given too; set one of them to 0",
              o->clip_norm);
    if (o->unfreeze_epoch > 0 && !o->freeze[0])
        wrong(k, "optim.unfreeze_epoch", "%d, but optim.freeze lists nothing", o->unfreeze_epoch);
}

static void check_plateau(struct checking *k)
{
    const struct dt_config *c = k->config;
    const enum dt_metric metric = dt_config_plateau_metric(c);
    if (c->schedule.kind != DT_SCHEDULE_PLATEAU || metric == DT_METRIC_TRAIN_LOSS)
        return;
    if (!dt_config_has_validation(c))
        wrong(k, "schedule.kind",
              "\"plateau\" has no validation data to measure %s on; set data.val or "
              "data.val_fraction, or schedule.metric to \"train_loss\"",
              dt_metric_name(metric));
    if (c->eval.every_epochs == 0)
        wrong(k, "schedule.kind", "\"plateau\" follows evaluations, but eval.every_epochs is 0");
}

static void check_schedule(struct checking *k)
{
    const struct dt_config_schedule *s = &k->config->schedule;
    const bool is_piecewise = s->kind == DT_SCHEDULE_PIECEWISE;
    const int n = s->n_milestones, epochs = k->config->train.epochs;
    check_plateau(k);
    if (s->lr_base_size == 0 && s->lr_scaling != DT_LR_SCALING_NONE)
        wrong(k, "schedule.lr_base_size",
              "0 is no batch size; for a learning rate that does not follow the batch, set "
              "schedule.lr_scaling to \"none\"");
    if (s->warmup_epochs > epochs)
        wrong(k, "schedule.warmup_epochs", "a warm-up of %g epochs is longer than train.epochs %d",
              s->warmup_epochs, epochs);
    if (s->warmup_steps > 0 && s->warmup_epochs > 0)
        wrong(k, "schedule.warmup_steps",
              "schedule.warmup_epochs %g is given too; leave one of them out, or set it to 0",
              s->warmup_epochs);
    if ((is_piecewise || s->kind == DT_SCHEDULE_STEP) && n == 0)
        wrong(k, "schedule.milestones",
              "empty, but schedule.kind is \"%s\"; list the epochs or choose \"constant\"",
              dt_key_find("schedule.kind")->choices[s->kind]);
    for (int i = 1; i < n; i++)
        if (s->milestones[i] <= s->milestones[i - 1])
            wrong(k, "schedule.milestones", "%g after %g is not in ascending order",
                  s->milestones[i], s->milestones[i - 1]);
    if (is_piecewise && s->n_factors != n)
        wrong(k, "schedule.factors",
              "schedule.kind \"piecewise\" needs one for each of the %d schedule.milestones, not "
              "%d",
              n, s->n_factors);
    if ((dt_schedule_has_end(s->kind) || s->kind == DT_SCHEDULE_PLATEAU) && s->min_lr > s->lr)
        wrong(k, "schedule.min_lr", "%g is larger than schedule.lr %g", s->min_lr, s->lr);
    check_metric(k, "schedule.metric", s->metric);
}

static void check_mode(struct checking *k, bool is_16_bit)
{
    const struct dt_config *c = k->config;
    const char *name = dt_key_find("comm.mode")->choices[c->comm.mode];
    if (c->comm.mode == DT_MODE_ALLREDUCE)
        return;
    if (c->comm.backend == DT_COMM_NCCL)
        wrong(k, "comm.mode", "\"%s\" needs comm.backend \"mpi\"", name);
    if (is_16_bit)
        wrong(k, "comm.mode", "\"%s\" sends fp32 only; set comm.grad_dtype to auto", name);
    if (c->train.ema_decay > 0 || c->model.sync_bn != 0)
        wrong(k, "comm.mode", "\"%s\" has neither train.ema_decay nor model.sync_bn", name);
    if (c->comm.mode == DT_MODE_ASYNC && c->train.deterministic)
        wrong(k, "comm.mode", "\"async\" depends on who is first, but train.deterministic is true");
}

static void check_local(struct checking *k, bool is_16_bit)
{
    const struct dt_config *c = k->config;
    const bool is_local = dt_config_mode(c) == DT_MODE_LOCAL;
    const int every = c->train.sync_every;
    if (every > 1 && c->comm.mode == DT_MODE_CENTRAL)
        wrong(k, "train.sync_every", "%d, but comm.mode \"central\" updates in every step", every);
    if (is_local && (is_16_bit || c->comm.backend == DT_COMM_NCCL))
        wrong(k, "train.sync_every",
              "%d: weights are averaged in fp32 over MPI; set comm.grad_dtype and comm.backend to "
              "auto",
              every);
    if (is_local && (c->train.ema_decay > 0 || c->model.sync_bn != 0))
        wrong(k, "train.sync_every",
              "%d: ranks that train alone have neither train.ema_decay nor model.sync_bn", every);
    if (is_local && c->train.max_steps % every != 0)
        wrong(k, "train.sync_every",
              "train.max_steps %lld is not a multiple of %d: the last average would come early, "
              "and a later run with more steps would differ",
              (long long)c->train.max_steps, every);
    if (c->train.average_states && !is_local)
        wrong(k, "train.average_states",
              "true needs train.sync_every above 1 and comm.mode \"allreduce\"");
    if (c->train.outer_momentum > 0 && !is_local)
        wrong(k, "train.outer_momentum",
              "%g needs train.sync_every above 1 and comm.mode \"allreduce\"",
              c->train.outer_momentum);
}

/* Refuses settings that would make the slices depend on each other, or on the ranks. */
static void check_virtual(struct checking *k, bool is_16_bit)
{
    const struct dt_config *c = k->config;
    const int n = c->train.virtual_ranks;
    if (n == 0)
        return;
    if (!dt_config_sums(c))
        wrong(k, "train.virtual_ranks",
              "%d need gradients that all ranks sum in every step: comm.mode \"allreduce\" "
              "without train.sync_every",
              n);
    if (is_16_bit)
        wrong(k, "train.virtual_ranks", "%d are summed in fp32; set comm.grad_dtype to auto", n);
    if (n % dt_config_slice_group(c) != 0)
        wrong(k, "train.virtual_ranks", "%d cannot form groups of %d, which model.sync_bn asks", n,
              c->model.sync_bn);
    if (c->train.micro_batch_size != 0)
        wrong(k, "train.virtual_ranks", "%d make a micro-batch each; remove train.micro_batch_size",
              n);
    if (c->device.threads == 0)
        wrong(k, "train.virtual_ranks",
              "%d: the bits depend on device.threads, which is 0 (from the number of CPUs); set it "
              "to a number",
              n);
}

static void check_comm(struct checking *k)
{
    const struct dt_config *c = k->config;
    const bool fp16 = c->comm.grad_dtype == DT_GRAD_FP16, bf16 = c->comm.grad_dtype == DT_GRAD_BF16;
    if (c->comm.backend == DT_COMM_NCCL && c->device.kind == DT_DEVICE_CPU)
        wrong(k, "comm.backend", "\"nccl\" needs a GPU, but device.kind is \"cpu\"");
    if (bf16 && c->train.precision == DT_PRECISION_FP16)
        wrong(k, "comm.grad_dtype",
              "\"bf16\", but train.precision \"fp16\" computes in another 16-bit type; set it to "
              "\"auto\"");
    check_mode(k, fp16 || bf16);
    check_local(k, fp16 || bf16);
    check_virtual(k, fp16 || bf16);
}

static void check_detector(struct checking *k)
{
    const struct dt_config *c = k->config;
    const bool detects = dt_config_detects(c);
    const bool is_global = c->train.loss_normalizer != DT_NORMALIZER_IMAGE;
    if (detects && is_given(k, "train.box_loss_beta") && c->train.box_loss != DT_BOX_SMOOTH_L1)
        wrong(k, "train.box_loss_beta", "%g is for train.box_loss \"smooth_l1\"",
              c->train.box_loss_beta);
    if (detects && c->model.frozen_norm && c->model.zero_init_residual)
        wrong(k, "model.frozen_norm",
              "true, but model.zero_init_residual would leave the residual branches 0 for ever");
    if (detects && c->model.head_norm == DT_HEAD_NORM_GROUP && c->model.fpn_channels % 32 != 0)
        wrong(k, "model.head_norm",
              "\"group\" needs a multiple of 32 channels, but model.fpn_channels is %d",
              c->model.fpn_channels);
    if (is_global && !dt_config_sums(c))
        wrong(k, "train.loss_normalizer",
              "\"global\" needs gradients that all ranks sum in every step: comm.mode "
              "\"allreduce\" without train.sync_every");
    if (is_global && c->model.sync_bn > 1)
        wrong(k, "train.loss_normalizer",
              "\"global\" counts over all ranks, but model.sync_bn %d makes smaller groups; set "
              "that to true or false",
              c->model.sync_bn);
}

/* --- Canvases, and the sizes of images on them --- */

static bool is_side(int side)
{
    return side >= CANVAS_MULTIPLE && side <= MAX_CANVAS && side % CANVAS_MULTIPLE == 0;
}

static bool is_canvas(const char *text)
{
    struct dt_canvas c = {0, 0};
    int n = 0;
    return sscanf(text, "%4dx%4d%n", &c.width, &c.height, &n) == 2 && text[n] == '\0' &&
           is_side(c.width) && is_side(c.height);
}

static void check_canvases(struct checking *k)
{
    char text[DT_CONFIG_NAME_MAX], other[DT_CONFIG_NAME_MAX];
    const char *rest = k->config->model.canvases;
    for (int n = 0; (rest = dt_config_names_next(rest, text, sizeof text)); n++) {
        if (n == DT_MAX_CANVASES)
            wrong(k, "model.canvases",
                  "at most %d sizes are possible, as the network is built for each",
                  DT_MAX_CANVASES);
        if (!is_canvas(text))
            wrong(k, "model.canvases",
                  "\"%s\" is not a size WIDTHxHEIGHT, such as 1344x800, of multiples of %d up to "
                  "%d",
                  text, CANVAS_MULTIPLE, MAX_CANVAS);
        for (const char *more = rest; (more = dt_config_names_next(more, other, sizeof other));)
            if (strcmp(text, other) == 0)
                wrong(k, "model.canvases", "%s is listed twice", text);
    }
}

static void check_sides(struct checking *k)
{
    const struct dt_config *c = k->config;
    const int side = c->data.min_side, low = c->data.min_side_low, longest = c->data.max_side;
    const struct dt_canvases canvases = dt_config_canvases(c, c->model.image_size);
    int max = 0; /* the longest shorter side of a canvas */
    for (int i = 0; i < canvases.n; i++) {
        const struct dt_canvas size = canvases.size[i];
        const int shorter = size.width < size.height ? size.width : size.height;
        max = shorter > max ? shorter : max;
    }
    if (side > 0 && longest > 0 && longest < side)
        wrong(k, "data.min_side", "%d is more than data.max_side %d", side, longest);
    if (side > 0 && dt_config_detects(c) && side > max)
        wrong(k, "data.min_side",
              "no image can be that large: %d, but the shorter side of every canvas is at most %d; "
              "change %s",
              side, max, c->model.canvases[0] ? "model.canvases" : "model.image_size");
    if (low > 0 && side == 0)
        wrong(k, "data.min_side_low",
              "%d is the minimum of a range up to data.min_side, which is not given", low);
    if (low > side)
        wrong(k, "data.min_side_low", "%d is more than data.min_side %d", low, side);
    if (c->data.stretch && (side > 0 || longest > 0 || low > 0))
        wrong(k, "data.stretch",
              "true fills the canvas, so data.min_side, data.max_side and data.min_side_low have "
              "no effect; leave them out");
}

void dt_config_check(const struct dt_config *config, dt_config_report *report, void *context)
{
    struct checking k = {.config = config, .report = report, .context = context};
    dt_config_init(&k.defaults);
    check_model(&k);
    check_data(&k);
    check_batches(&k);
    check_evaluation(&k);
    check_optim(&k);
    check_schedule(&k);
    check_metric(&k, "checkpoint.best_metric", config->checkpoint.best_metric);
    check_comm(&k);
    check_detector(&k);
    check_canvases(&k);
    check_sides(&k);
}
