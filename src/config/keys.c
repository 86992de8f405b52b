/* The key table: one row for each key of the configuration. Loading, overrides, help, JSON Schema,
 * the dump and the tests all iterate over it. The path of a key is the name of its field. */
#include "config/keys.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"

static_assert(sizeof(enum dt_source) == sizeof(int), "choices are stored as int");

#define SOURCE_NAME(upper, lower, help) #lower,
#define SOURCE_HELP(upper, lower, help) "; " #lower ": " help
#define SOURCES_HELP                    DT_SOURCE_LIST(SOURCE_HELP)
static const char *const sources[] = {DT_SOURCE_LIST(SOURCE_NAME) "auto", NULL};
static const char *const augments[] = {"none", "imagenet", "cifar", NULL};
static const char *const upsamplings[] = {"fancy", "plain", NULL};
static const char *const dcts[] = {"accurate", "fast", NULL};
static const char *const scaled_decodes[] = {"never", "train", "always", NULL};
static const char *const exifs[] = {"auto", "ignore", "apply", NULL};
static const char *const micro_batches[] = {"auto", NULL};
static const char *const precisions[] = {DT_PRECISION_NAMES, NULL};
static const char *const layouts[] = {DT_LAYOUT_NAMES, NULL};
#define SCHEDULE_NAME(upper, name, ...) #name,
static const char *const schedules[] = {DT_SCHEDULE_LIST(SCHEDULE_NAME) NULL};
static const char *const scalings[] = {"linear", "sqrt", "none", NULL};
static const char *const devices[] = {"auto", "cpu", "cuda", NULL};
static const char *const fusions[] = {"auto", "on", "off", NULL};
static const char *const backends[] = {"auto", "mpi", "nccl", NULL};
static const char *const modes[] = {"allreduce", "central", "async", NULL};
static const char *const algorithms[] = {"ring",    "auto", "library", "hierarchical",
                                         "halving", "tree", NULL};
#define METRIC_NAME(upper, name, ...) #name,
static const char *const metrics[] = {DT_METRIC_LIST(METRIC_NAME) NULL};
static const char *const deciding_metrics[] = {DT_METRIC_LIST(METRIC_NAME) "auto", NULL};
static const char *const checks[] = {"quick", "full", NULL};
static const char *const weights[] = {"both", "raw", "ema", NULL};
static const char *const ttas[] = {"none", "flip", NULL};
static const char *const class_weightings[] = {"none", "balanced", NULL};
#define SINK_NAME(name) #name,
static const char *const sinks[] = {DT_SINK_LIST(SINK_NAME) NULL};
#define OPTIM_NAME(NAME, name, ...) #name,
static const char *const optims[] = {DT_OPTIM_LIST(OPTIM_NAME) NULL};
static const char *const p6_sources[] = {"p5", "c5", NULL};
static const char *const head_norms[] = {"none", "group", NULL};
static const char *const box_losses[] = {"l1", "smooth_l1", "giou", NULL};
static const char *const normalizers[] = {"image", "global", NULL};
static const char *const grad_dtypes[] = {"auto", "fp32", "fp16", "bf16", NULL};

static const double imagenet_mean[] = {0.485, 0.456, 0.406};
static const double imagenet_std[] = {0.229, 0.224, 0.225};
static const double classic_milestones[] = {30, 60, 80};

static const struct dt_column stage_columns[] = {
    {"epoch", 0, 100000, true}, {"image_size", 8, 2048, false}, {"batch", 1, 1 << 20, false}};
static_assert(sizeof(struct dt_train_stage) == DT_COUNT(stage_columns) * sizeof(int), "as stored");

#define MAX_EXACT 9007199254740991.0 /* 2^53 - 1: integers up to here survive JSON */

/* A row ends with the help sentence and, unless a change makes it another run, with the effect of a
 * change on resuming. */
#define FREE    .effect = DT_KEY_FREE
#define INEXACT .effect = DT_KEY_INEXACT
#define LENGTH  .effect = DT_KEY_LENGTH
#define EVAL    .effect = DT_KEY_EVAL

#define DETECTORS .of_detectors = true

#define FIELD(member) .path = #member, .offset = offsetof(struct dt_config, member)
#define NUMBER(member, kind, value, low, high, ...)                                    \
    {                                                                                  \
        FIELD(member), .type = (kind), .number = (value), .min = (low), .max = (high), \
                       .help = __VA_ARGS__                                             \
    }
#define INT(member, value, low, high, ...) NUMBER(member, DT_KEY_INT, value, low, high, __VA_ARGS__)
#define REAL(member, value, low, high, ...) \
    NUMBER(member, DT_KEY_REAL, value, low, high, __VA_ARGS__)
#define POSITIVE(member, value, high, ...) \
    NUMBER(member, DT_KEY_REAL, value, 0, high, __VA_ARGS__, .above_min = true)
#define FRACTION(member, value, ...) /* 0 <= x < 1 */ \
    NUMBER(member, DT_KEY_REAL, value, 0, 1, __VA_ARGS__, .below_max = true)
#define BOOL(member, value, ...) NUMBER(member, DT_KEY_BOOL, value, 0, 1, __VA_ARGS__)
#define CHOICE(member, value, names, ...)                                                          \
    {                                                                                              \
        FIELD(member), .type = DT_KEY_CHOICE, .number = (value),                                   \
                       .max = (double)DT_COUNT(names) - 2, .choices = (names), .help = __VA_ARGS__ \
    }
#define STRING(member, value, shortest, ...)                                             \
    {                                                                                    \
        FIELD(member), .type = DT_KEY_STRING, .text = (value), .min_length = (shortest), \
                       .max_length = (int)sizeof(((struct dt_config *)0)->member) - 1,   \
                       .help = __VA_ARGS__                                               \
    }
#define NAMES(member, value, names, ...) /* value: each name and a newline */          \
    {                                                                                  \
        FIELD(member), .type = DT_KEY_NAMES, .text = (value), .choices = (names),      \
                       .max_length = (int)sizeof(((struct dt_config *)0)->member) - 1, \
                       .help = __VA_ARGS__                                             \
    }
#define LIST(member, values, shortest, longest, count, low, above, high, ...)                      \
    {                                                                                              \
        FIELD(member), .type = DT_KEY_LIST, .items = (values), .n_items = DT_COUNT(values),        \
                       .min_length = (shortest), .max_length = (longest), .count_offset = (count), \
                       .min = (low), .above_min = (above), .max = (high), .help = __VA_ARGS__      \
    }

/* Why a change on resuming is harmless (FREE) or changes rounding only (INEXACT):
 *
 *   model.initial_checkpoint    only the first start uses it
 *   model.num_classes, data.source, train, class_map    the fingerprint and the list of classes
 *                               identify the data, not their path
 *   data.val, synthetic_val, eval.*       evaluation only reports, except to schedule plateau
 *   data.workers, prefetch, cache_mb      order and augmentation do not depend on them
 *   data.max_bad_fraction, check*, train.max_steps, early_stop.*   determine only when training
 * ends train.replica_check_every, restore_best     compares the ranks; chooses a checkpoint
 *   train.epochs                the run length; some schedules depend on it
 *   train.micro_batch_size      other partial sums; other batches for batch norm
 *   train.precision, loss_scale, deterministic      weights and momentum are always fp32
 *   device.kind, threads, winograd, layout, conv_candidate, fusion, comm.* but mode     the same
 *                               sums in another order, or rounded
 *   device.cuda_graph, numa_bind, allow_shared_gpu, timeout_s   the same kernels and numbers
 *   device.cache_dir            deterministic runs do not read algorithms from it
 *   output.*, checkpoint.*, watchdog.*, bench.*     have no part in training
 *
 * Changing any other key makes it a different run. model.zero_init_residual affects the initial
 * weights only, but a resumed run started from them. */
const struct dt_key dt_keys[] = {
    STRING(model.name, "resnet50", 1,
           "Network architecture, such as resnet50, vgg16_bn, alexnet or resnet20"),
    INT(model.num_classes, 0, 0, 1000000,
        "Number of classes; 0: as many as the data have (synthetic: 1000)", FREE),
    INT(model.image_size, 224, 8, 2048, "Height and width of the training crop in pixels"),
    NAMES(model.canvases, "", NULL,
          "Detectors: up to 4 sizes \"WIDTHxHEIGHT\", multiples of 32, in whose upper left corner "
          "an image lies; each takes the smallest that it fits into, and all images of a global "
          "batch have the same; empty: the square of image_size",
          DETECTORS),
    BOOL(model.zero_init_residual, false,
         "ResNets: initialise the last batch norm scale of each residual block to 0"),
    INT(model.sync_bn, 0, 2, 1 << 20,
        "Synchronise batch norm statistics over all ranks (true) or over groups of N consecutive "
        "ranks (N), with train.virtual_ranks of these; false: each has its own",
        .or_bool = true),
    NUMBER(model.dropout, DT_KEY_REAL, -1, -1, 1,
           "Dropout in the classifier; -1: the network's own (VGG, AlexNet and SqueezeNet 0.5, "
           "MobileNet 0.2, EfficientNet 0.2 or 0.3), where it has any",
           .below_max = true),
    NUMBER(
        model.stochastic_depth, DT_KEY_REAL, -1, -1, 1,
        "Share of the images for which the last residual branch is skipped in training, less for "
        "those before it; -1: the network's own (EfficientNet 0.2, ConvNeXt 0.1 to 0.5)",
        .below_max = true),
    STRING(model.initial_checkpoint, "", 0,
           "Safetensors file with the initial weights; empty: random weights", FREE),
    INT(model.fpn_channels, 256, 1, 4096,
        "Detectors: channels of the feature pyramid and of the heads", DETECTORS),
    INT(model.anchor_base, 32, 2, 512,
        "Detectors: side of the smallest anchor in pixels; every level of the pyramid doubles it",
        DETECTORS),
    INT(model.trainable_layers, 5, 0, 5,
        "Detectors: stages of the backbone that are trained, from the last; 5: all, "
        "as random weights need it, where torchvision trains 3 of a pretrained backbone. The batch "
        "norms of the others use the running statistics",
        DETECTORS),
    BOOL(model.frozen_norm, false,
         "Detectors: constants from the initial weights as batch norm of the backbone, for batches "
         "of few images per rank",
         DETECTORS),
    REAL(model.norm_eps, 1e-5, 0, 1,
         "Detectors: added to the variance by frozen_norm; 0 for torchvision's published weights "
         "of retinanet_resnet50_fpn",
         DETECTORS),
    CHOICE(
        model.p6_from, DT_P6_FROM_P5, p6_sources,
        "Detectors: level 6 is computed from level 5 of the pyramid (p5), or from the last stage "
        "of the backbone (c5: the paper, and torchvision's version 2)",
        DETECTORS),
    CHOICE(model.head_norm, DT_HEAD_NORM_NONE, head_norms,
           "Detectors: norm in the heads; group: 32 groups, as in torchvision's version 2",
           DETECTORS),

    CHOICE(data.source, DT_SOURCE_AUTO, sources,
           "Format of data.train and data.val; auto: recognised by the paths" SOURCES_HELP, FREE),
    STRING(data.train, "", 0,
           "Training data: shards such as train-{0000..0009}.tar, a folder or a file, see "
           "data.source",
           FREE),
    STRING(data.val, "", 0,
           "Validation data, specified in the same way; empty: data.val_fraction, or no evaluation",
           EVAL),
    STRING(data.train_images, "", 0,
           "Detectors: folder of the images of a .json file of data.train; empty: ../X for "
           "instances_X.json, otherwise the folder of the file",
           FREE, DETECTORS),
    STRING(data.val_images, "", 0, "Detectors: the same for data.val", EVAL, DETECTORS),
    FRACTION(data.val_fraction, 0,
             "Fraction of the images of every class in data.train that is kept for validation, "
             "chosen by file name and seed; 0: none"),
    INT(data.max_train, 0, 0, 1 << 30,
        "Training images used, of every class the same fraction, for quick trials; 0: all"),
    INT(data.synthetic_train, 12800, 1, 1 << 30, "Training images of the synthetic source"),
    INT(data.synthetic_val, 1280, 0, 1 << 30, "Validation images of the synthetic source", EVAL),
    INT(data.workers, 0, 0, 256,
        "Decoding threads per rank; 0: one per CPU that computing leaves free, at least 1", FREE),
    INT(data.prefetch, 3, 1, 64, "Batches prefetched per rank", FREE),
    INT(data.cache_mb, 0, 0, 1 << 24,
        "MB of encoded training images kept in memory per rank; 0: none", FREE),
    CHOICE(data.upsampling, DT_UPSAMPLING_FANCY, upsamplings,
           "JPEG chroma upsampling: interpolation as in Pillow (fancy) or repetition (plain)"),
    CHOICE(data.dct, DT_DCT_ACCURATE, dcts,
           "JPEG inverse DCT: libjpeg's accurate one or its faster, less exact one"),
    CHOICE(data.scaled_decode, DT_SCALED_TRAIN, scaled_decodes,
           "JPEG: decode at 1/2, 1/4 or 1/8 of the size if the crop stays large enough"),
    CHOICE(data.exif, DT_EXIF_AUTO, exifs,
           "EXIF orientation of photos: pixels as stored, like PIL and torchvision (ignore), or "
           "upright (apply); auto: ignore, but boxes on such photos are refused"),
    INT(data.max_pixels, DT_MAX_PIXELS, 1, 1 << 30,
        "Most pixels of a decoded image, 3 bytes each per worker; larger JPEG files are decoded at "
        "1/2, 1/4 or 1/8 of their size, larger PNG files are unreadable"),
    CHOICE(data.augment, DT_AUGMENT_IMAGENET, augments,
           "Random resized crop and flip (imagenet), or shift by up to 4 pixels and flip (cifar); "
           "detectors only flip"),
    REAL(data.color_jitter, 0, 0, 1,
         "Jitter brightness, contrast and saturation by up to this fraction; 0: off"),
    REAL(data.random_erasing, 0, 0, 1, "Probability of erasing a rectangle of an image"),
    REAL(data.mixup, 0, 0, 100,
         "Alpha of mixup, which blends pairs of images; needs an even micro-batch size; 0: off"),
    REAL(data.cutmix, 0, 0, 100,
         "Alpha of CutMix, which swaps rectangles between pairs of images; 0: off"),
    INT(data.min_side, 0, 0, 4096,
        "Detectors: the shorter side of an image is resized to this, unless the longer one would "
        "exceed max_side; 0: as large as fits on the canvas",
        DETECTORS),
    INT(data.max_side, 0, 0, 4096,
        "Detectors: most pixels of the longer side; 0: as many as fit on the canvas", DETECTORS),
    INT(data.min_side_low, 0, 0, 4096,
        "Detectors, training: the shorter side is drawn from this, this + 32, ... min_side "
        "(torchvision's multiscale: 480); 0: always min_side",
        DETECTORS),
    BOOL(data.stretch, false, "Detectors: images fill the canvas, whatever their proportions",
         DETECTORS),
    REAL(data.rotate, 0, 0, 3.1416, "Detectors, training: rotate by up to this angle in radians",
         DETECTORS),
    REAL(data.shear, 0, 0, 1.5, "Detectors, training: shear by up to this angle in radians",
         DETECTORS),
    REAL(data.translate, 0, 0, 1,
         "Detectors, training: move by up to this fraction of width and height", DETECTORS),
    FRACTION(data.scale, 0,
             "Detectors, training: scale width and height by up to this fraction each", DETECTORS),
    INT(data.val_resize, 0, 0, 4096,
        "Evaluation: shorter side before the centre crop; 0: image_size * 256 / 224"),
    LIST(data.mean, imagenet_mean, 3, 3, 0, 0, false, 1, "Mean of R, G, B for pixels in 0..1"),
    LIST(data.std, imagenet_std, 3, 3, 0, 0, true, 1, "Standard deviation of R, G, B"),
    INT(data.label_offset, 0, 0, 1000000, "Subtracted from every label in the files"),
    STRING(data.label_key, "label", 1,
           "Shards whose samples have no .cls member: the key of the class, an integer, in their "
           ".json members"),
    STRING(data.class_map, "", 0,
           "File with one class name per line, in the order of labels: other classes are skipped; "
           "empty: the classes of the training data",
           FREE),
    REAL(data.max_bad_fraction, 0.001, 0, 1,
         "Fraction of unusable images, or rows of a COCO file, above which the run ends", FREE),
    INT(data.check_images, 5000, 0, INT32_MAX,
        "Data sets of at most this many images are decoded whole before the first step, and all "
        "unreadable images named; of larger ones each rank tries 8",
        FREE),
    CHOICE(
        data.check, DT_CHECK_QUICK, checks,
        "On several machines, one rank of each compares its files with rank 0's at the "
        "start: names, sizes, labels and 64 pieces of up to 64 KiB per data set, at most 4 MiB "
        "(quick), or every byte of every file (full), which also decodes all images and tells of "
        "equal ones",
        FREE),

    INT(train.epochs, 90, 1, 100000, "Passes over the training data", LENGTH),
    NUMBER(train.max_steps, DT_KEY_INT64, 0, 0, MAX_EXACT, "Last step of the run; 0: no limit",
           FREE),
    INT(train.global_batch_size, 0, 0, 1 << 20,
        "Images per update, over all ranks; 0: batch_size_per_rank * ranks, or else 256"),
    INT(train.batch_size_per_rank, 0, 0, 1 << 15,
        "Images per update and rank, so that the global batch grows with the ranks; 0: "
        "global_batch_size / ranks (dtrain bench without either: 32)"),
    INT(train.micro_batch_size, 0, 0, 1 << 16,
        "Most images per rank and micro-batch, of which batch norm sees one at a time; 0: all of a "
        "rank's; auto: as many as fit into the memory of the ranks' devices",
        INEXACT, .choices = micro_batches),
    {FIELD(train.stages), .type = DT_KEY_TABLE, .columns = stage_columns,
     .n_columns = DT_COUNT(stage_columns), .max_length = DT_MAX_STAGES,
     .count_offset = offsetof(struct dt_config, train.n_stages),
     .help = "From which epoch on training takes images of another size, or another global batch; "
             "evaluation stays at model.image_size"},
    NUMBER(train.seed, DT_KEY_UINT64, 1, 0, MAX_EXACT,
           "Seed of initial weights, data order and augmentation"),
    CHOICE(train.precision, DT_PRECISION_AUTO, precisions,
           "Precision of the network's arithmetic; auto: fp16 on GPUs of compute capability 7.0 or "
           "later, otherwise fp32; a resumed run keeps what it has if the device allows",
           INEXACT),
    REAL(train.loss_scale, 0, 0, 16777216,
         "fp16: factor on the loss that keeps small gradients from underflowing; 0: dynamic",
         INEXACT),
    BOOL(train.deterministic, false,
         "Bit-identical results in every run on the same number of ranks", INEXACT),
    FRACTION(train.label_smoothing, 0, "Fraction of the target distributed over all classes"),
    {FIELD(train.class_weights), .type = DT_KEY_LIST, .choices = class_weightings, .min_length = 1,
     .max_length = DT_MAX_CLASS_WEIGHTS,
     .count_offset = offsetof(struct dt_config, train.n_class_weights), .min = 1e-6, .max = 1e6,
     .help =
         "Factors on the loss, one per class; balanced: images / (classes * images of the class)"},
    BOOL(train.restore_best, false,
         "Make RUN/model.safetensors the best checkpoint's model instead of the last", FREE),
    INT(train.virtual_ranks, 0, 0, 4096,
        "Slices of the global batch, each computed as by a rank of so many and added in a fixed "
        "order, so that any number of ranks gives the same bits; 0: none"),
    NUMBER(train.replica_check_every, DT_KEY_INT64, 500, 0, MAX_EXACT,
           "Steps between comparisons of the ranks' weights; 0: only before checkpoints", FREE),
    FRACTION(train.ema_decay, 0,
             "Decay of an exponential moving average of weights and batch norm statistics, such as "
             "0.9999; it grows to that as 1 - (1 + step)^(-2/3), as in timm; 0: no average"),
    INT(train.sync_every, 0, 0, 100000,
        "Local SGD: every rank trains on its own, and every so many steps the weights are "
        "averaged; async: steps between two meetings; 0: 1, async: 32"),
    BOOL(train.average_states, false,
         "Local SGD: average the optimizer's states as well, which a resumed run needs in order to "
         "be bit-identical if there is momentum"),
    FRACTION(train.outer_momentum, 0, "Local SGD: momentum of the averaged weights; 0: off"),
    CHOICE(train.box_loss, DT_BOX_L1, box_losses,
           "Detectors: loss of the boxes; giou: of the decoded boxes (torchvision's version 2), "
           "otherwise of the four deltas",
           DETECTORS),
    POSITIVE(train.box_loss_beta, 1, 100,
             "Detectors, smooth_l1: difference from which on it is linear (keras-retinanet: 0.111)",
             DETECTORS),
    REAL(train.focal_alpha, 0.25, 0, 1,
         "Detectors: weight of an anchor's own class in the focal loss; the others have 1 - alpha",
         DETECTORS),
    REAL(train.focal_gamma, 2, 0, 10, "Detectors: exponent of the focal loss; 0: cross entropy",
         DETECTORS),
    CHOICE(
        train.loss_normalizer, DT_NORMALIZER_IMAGE, normalizers,
        "Detectors: losses are divided by the foreground anchors of each image, then averaged "
        "over the images (torchvision), or divided by the foreground anchors of the step (global)",
        DETECTORS),

    INT(eval.every_epochs, 1, 0, 100000,
        "Epochs between evaluations; 0: only after the last. One at the end of a run that "
        "train.max_steps ends sooner, unless it is due anyway, is only reported: it does not count "
        "for early_stop, plateau and the best checkpoint",
        EVAL),
    INT(eval.batch_size_per_rank, 32, 1, 1 << 16, "Images per rank and micro-batch in evaluation",
        FREE),
    NAMES(eval.metrics, "loss\ntop1\ntop5\n", metrics,
          "Metrics to report of every evaluation of a classifier", FREE),
    CHOICE(eval.tta, DT_TTA_NONE, ttas,
           "Test-time augmentation; flip: mean of the probabilities of an image and its mirror",
           EVAL),
    CHOICE(
        eval.weights, DT_WEIGHTS_BOTH, weights,
        "Weights that a run with train.ema_decay evaluates. With ema and both the moving average "
        "is the result and selects the best checkpoint; both also reports the raw weights as "
        "top1_raw and so on. Where a run, a checkpoint or RUN@best is given, dtrain eval, predict "
        "and average and model.initial_checkpoint take the weights that decided in that run",
        EVAL),
    FRACTION(eval.score_threshold, 0.05, "Detections: only scores above it", EVAL, DETECTORS),
    REAL(eval.nms_iou, 0.5, 0, 1,
         "Detections: NMS drops one whose IoU with a better one of its class exceeds this", EVAL,
         DETECTORS),
    INT(eval.max_detections, 300, 1, 10000, "Detections: most of them per image", EVAL, DETECTORS),

    CHOICE(early_stop.metric, DT_METRIC_AUTO, deciding_metrics,
           "Metric that decides when to stop early; auto: top1, or ap of a detector", FREE),
    REAL(early_stop.target, 0, 0, 100,
         "Stop when the metric reaches this value (accuracies in per cent); 0: off", FREE),
    INT(early_stop.patience, 0, 0, 100000,
        "Stop after this many evaluations without a better value of the metric; 0: never", FREE),
    REAL(early_stop.min_delta, 0, 0, 100,
         "Least difference from the best value so far that counts as better, for patience", FREE),

    CHOICE(
        optim.name, DT_OPTIM_SGD, optims,
        "Optimizer; lars and lamb are for large batches (include/dtrain/optim.h has the formulas)"),
    FRACTION(optim.momentum, 0.9, "Momentum; beta1 of adam, adamw and lamb"),
    REAL(optim.weight_decay, 1e-4, 0, 1,
         "Weight decay: L2 penalty added to the gradient; adamw and lamb: to the direction"),
    BOOL(optim.nesterov, false, "Nesterov momentum (sgd)"),
    FRACTION(optim.beta2, 0,
             "Smoothing of the squared gradient; 0: the optimizer's own (include/dtrain/optim.h)"),
    REAL(optim.eps, 0, 0, 1, "Added to denominators; 0: the optimizer's own"),
    POSITIVE(optim.trust_coefficient, 0.001, 10,
             "lars: factor on the ratio of the norms of weights and gradient"),
    REAL(optim.clip_norm, 0, 0, 1e9,
         "Largest norm of all gradients together, after their sum over the ranks; 0: no limit"),
    REAL(optim.clip_value, 0, 0, 1e9, "Largest absolute value of a gradient; 0: no limit"),
    BOOL(optim.decay_norm_bias, false,
         "Weight decay on the parameters of norms, on biases and layer scales too"),
    NAMES(
        optim.freeze, "", NULL,
        "Modules that are not trained, such as conv1 or layer1 (with all in it); their batch norms "
        "use the running statistics"),
    INT(optim.unfreeze_epoch, 0, 0, 100000,
        "Epochs after which everything is trained; 0: freeze always applies"),
    POSITIVE(optim.head_lr_factor, 1, 1000, "Factor on the classifier's learning rate"),

    CHOICE(schedule.kind, DT_SCHEDULE_STEP, schedules,
           "Learning rate schedule after warm-up (src/engine/schedule.h has the formulas)"),
    POSITIVE(schedule.lr, 0.1, 1000,
             "Peak learning rate; unless given, the optimizer's own: adam, adamw, rmsprop 0.001, "
             "lamb 0.005, sgd and lars the "
             "default here"),
    CHOICE(schedule.lr_scaling, DT_LR_SCALING_LINEAR, scalings,
           "How lr and min_lr follow the batch: both are multiplied by global batch / lr_base_size "
           "(linear), by its square root (sqrt), or taken as they are (none)"),
    INT(schedule.lr_base_size, 256, 0, 1 << 20, "Images per update that lr and min_lr are for"),
    REAL(schedule.warmup_epochs, 5, 0, 100000,
         "Length of the warm-up in epochs; 0 unless given if warmup_steps is"),
    {FIELD(schedule.warmup_steps), .type = DT_KEY_INT64, .max = MAX_EXACT,
     .instead_of = "schedule.warmup_epochs",
     .help = "Length of the warm-up in steps, instead of warmup_epochs; 0: warmup_epochs"},
    REAL(schedule.warmup_start, 0, 0, 1, "Fraction of lr at which warm-up starts"),
    LIST(schedule.milestones, classic_milestones, 0, DT_MAX_MILESTONES,
         offsetof(struct dt_config, schedule.n_milestones), 0, true, 100000,
         "Kind step: epochs, ascending, at which the learning rate is multiplied by gamma; "
         "piecewise: from which on it is lr times the factor in the same place"),
    {FIELD(schedule.factors), .type = DT_KEY_LIST, .max_length = DT_MAX_MILESTONES,
     .count_offset = offsetof(struct dt_config, schedule.n_factors), .max = 1000,
     .help = "Kind piecewise: factor on lr from each milestone on"},
    POSITIVE(schedule.gamma, 0.1, 1,
             "Kind step: factor at each milestone; exponential: per epoch; plateau: per reduction"),
    POSITIVE(schedule.power, 2, 10, "Kind poly: exponent"),
    REAL(schedule.min_lr, 0, 0, 1000,
         "Final learning rate of kinds cosine, poly, linear, wsd and one_cycle, the lowest of "
         "plateau; scaled like lr"),
    POSITIVE(schedule.decay_fraction, 0.2, 1, "Kind wsd: fraction of all steps in the final decay"),
    CHOICE(schedule.metric, DT_METRIC_AUTO, deciding_metrics,
           "Kind plateau: metric of the evaluations, or train_loss, the mean of an epoch; auto: "
           "loss, or train_loss for a detector"),
    INT(schedule.patience, 10, 0, 100000,
        "Kind plateau: evaluations, or epochs, without a better value before the rate is reduced"),
    FRACTION(schedule.threshold, 1e-4,
             "Kind plateau: least improvement that counts, as a fraction of the best value"),

    CHOICE(device.kind, DT_DEVICE_AUTO, devices, "Device that the network runs on", INEXACT),
    INT(device.threads, 0, 0, 1024,
        "Compute threads per rank; 0: available CPUs / ranks on the node", INEXACT),
    BOOL(device.winograd, true,
         "Winograd's algorithm for most 3x3 convolutions: faster, slightly larger rounding errors",
         INEXACT),
    CHOICE(
        device.layout, DT_LAYOUT_AUTO, layouts,
        "CPU: how activations are stored. nhwc: channels innermost; blocked: in blocks of 8 or 16 "
        "channels; auto: nhwc where bf16 is multiplied by AMX, which needs it",
        INEXACT),
    BOOL(device.cuda_graph, true,
         "GPU: record the training step once and replay it as a CUDA graph", FREE),
    BOOL(device.numa_bind, true,
         "GPU: run each rank on the CPUs of its GPU's NUMA node, unless it is bound already", FREE),
    BOOL(device.allow_shared_gpu, false, "GPU: several ranks may share one, for tests; slow", FREE),
    REAL(device.timeout_s, 300, 0, 86400,
         "GPU: seconds after which unfinished work is an error; 0: no limit", FREE),
    STRING(device.cache_dir, "", 0,
           "GPU: folder that caches chosen convolution algorithms; empty: ~/.cache/dtrain", FREE),
    INT(device.conv_candidate, 0, 0, 128,
        "GPU, for tests: number of the algorithm in cuDNN's list that every convolution takes, if "
        "it can be used, else one after it; 0: the fastest",
        INEXACT),
    CHOICE(device.fusion, DT_FUSION_AUTO, fusions,
           "GPU: compute a layer together with the next in fewer passes over memory; auto: where "
           "that is faster",
           INEXACT),

    CHOICE(comm.backend, DT_COMM_AUTO, backends, "Library that sums the gradients", INEXACT),
    CHOICE(comm.mode, DT_MODE_ALLREDUCE, modes,
           "allreduce: gradients are summed over the ranks; central: on rank 0, which updates and "
           "sends the weights; async: rank 0 updates whenever one of the others has gradients. "
           "The last two are for comparison, on CPUs"),
    INT(comm.max_staleness, 0, 0, 1000000,
        "async: most updates between the weights that a gradient belongs to and those it changes; "
        "0: twice the number of ranks that compute",
        INEXACT),
    CHOICE(comm.algorithm, DT_ALGORITHM_AUTO, algorithms,
           "How gradients are summed. ring: in an order that depends on nothing but the number of "
           "ranks; library: as NCCL or MPI chooses. On CPUs, in an order that also depends on "
           "which ranks share a node: hierarchical: in the memory of each node, and in rings "
           "between nodes; halving, tree: for comparison. auto: with train.deterministic ring; on "
           "CPUs hierarchical, with what is fastest between nodes; on GPUs ring on up to 32 ranks, "
           "else library",
           INEXACT),
    CHOICE(
        comm.grad_dtype, DT_GRAD_AUTO, grad_dtypes,
        "Data type of gradients sent between ranks; auto: as computed, on GPUs 16 bits in bf16 and "
        "fp16. On CPUs fp16 and bf16 halve the messages; fp16 sends what rounding loses in the "
        "next step",
        INEXACT),
    POSITIVE(comm.bucket_cap_mb, 4, 4096,
             "Size in MiB of the buckets in which gradients are summed", INEXACT),
    POSITIVE(comm.last_bucket_cap_mb, 1, 4096,
             "Largest size in MiB of the last bucket, whose sum is not overlapped", INEXACT),

    STRING(output.dir, "runs/default", 1, "Run folder", FREE),
    INT(output.log_every, 20, 1, 1000000, "Maximum steps between progress lines", FREE),
    REAL(output.log_every_s, 10, 0, 1e6, "Maximum seconds between progress lines; 0: no limit",
         FREE),
    NAMES(output.sinks, "console\njsonl\ntensorboard\n", sinks,
          "Where progress and results are written", FREE),
    BOOL(output.rank_logs, true,
         "Keep a log file of each rank in the run folder, logs/rank-0000.log", FREE),
    BOOL(output.shared, true,
         "All ranks must see the run folder; false: rank 0 alone uses it, the others keep no logs "
         "there, and a hang on another node is named less precisely",
         FREE),
    REAL(output.telemetry_s, 10, 0, 1e6,
         "Seconds between events about the host's memory and the GPU's sensors; 0: none", FREE),

    INT(checkpoint.every_epochs, 1, 0, 100000, "Epochs between checkpoints; 0: only at the end",
        FREE),
    NUMBER(checkpoint.every_steps, DT_KEY_INT64, 0, 0, MAX_EXACT,
           "Steps between checkpoints within an epoch; 0: none", FREE),
    REAL(checkpoint.every_seconds, 600, 0, 1e6,
         "Seconds between checkpoints, more if saving would take over 1 % of the time; 0: off",
         FREE),
    INT(checkpoint.keep, 3, 1, 1000000, "Number of newest checkpoints to keep", FREE),
    BOOL(checkpoint.keep_best, true, "Also keep the checkpoint with the best validation metric",
         FREE),
    CHOICE(checkpoint.best_metric, DT_METRIC_AUTO, deciding_metrics,
           "Metric by which checkpoints are compared; auto: early_stop.metric", FREE),
    NUMBER(checkpoint.keep_every, DT_KEY_INT64, 0, 0, MAX_EXACT,
           "Also keep checkpoints whose step is a multiple of this; 0: none", FREE),
    POSITIVE(checkpoint.retry_s, 60, 86400, "Seconds until a failed save is retried", FREE),

    REAL(watchdog.init_timeout_s, 300, 0, 1e6,
         "Seconds without progress that abort the start; 0: no limit. While MPI starts, each rank "
         "takes its own --set and --config, or the default where it cannot read them",
         FREE),
    REAL(watchdog.step_timeout_s, 60, 0, 1e6,
         "Seconds without progress that abort a step, at least 10 x its median; 0: no limit", FREE),
    REAL(watchdog.save_timeout_s, 600, 0, 1e6,
         "Seconds without progress that abort a save; 0: no limit", FREE),

    INT(bench.warmup_steps, 5, 0, 1000000, "Warm-up steps before dtrain bench measures", FREE),
    INT(bench.rounds, 10, 1, 100000, "Number of measured rounds", FREE),
    INT(bench.steps_per_round, 10, 1, 100000, "Steps per round", FREE),
};

size_t dt_config_n_keys(void)
{
    return DT_COUNT(dt_keys);
}

const struct dt_key *dt_key_find(const char *path)
{
    for (size_t i = 0; i < DT_COUNT(dt_keys); i++)
        if (strcmp(dt_keys[i].path, path) == 0)
            return &dt_keys[i];
    return NULL;
}

int dt_key_section(const struct dt_key *key)
{
    return (int)strcspn(key->path, ".");
}

bool dt_key_begins_section(const struct dt_key *key)
{
    size_t bytes = (size_t)dt_key_section(key) + 1;
    return key == dt_keys || strncmp(key->path, key[-1].path, bytes) != 0;
}

bool dt_key_is_section(const char *name)
{
    size_t bytes = strlen(name);
    for (size_t i = 0; i < DT_COUNT(dt_keys); i++)
        if ((size_t)dt_key_section(&dt_keys[i]) == bytes &&
            strncmp(dt_keys[i].path, name, bytes) == 0)
            return true;
    return false;
}

double dt_key_get_number(const struct dt_key *key, const struct dt_config *config)
{
    const void *field = (const char *)config + key->offset;
    switch (key->type) {
    case DT_KEY_BOOL:
        return *(const bool *)field;
    case DT_KEY_INT:
    case DT_KEY_CHOICE:
        return *(const int *)field;
    case DT_KEY_INT64:
        return (double)*(const int64_t *)field;
    case DT_KEY_UINT64:
        return (double)*(const uint64_t *)field;
    default:
        return *(const double *)field;
    }
}

void dt_key_set_number(const struct dt_key *key, struct dt_config *config, double value)
{
    void *field = (char *)config + key->offset;
    switch (key->type) {
    case DT_KEY_BOOL:
        *(bool *)field = value != 0;
        break;
    case DT_KEY_INT:
    case DT_KEY_CHOICE:
        *(int *)field = (int)value;
        break;
    case DT_KEY_INT64:
        *(int64_t *)field = (int64_t)value;
        break;
    case DT_KEY_UINT64:
        *(uint64_t *)field = (uint64_t)value;
        break;
    default:
        *(double *)field = value;
    }
}

const char *dt_key_get_string(const struct dt_key *key, const struct dt_config *config)
{
    return (const char *)config + key->offset;
}

const double *dt_key_get_list(const struct dt_key *key, const struct dt_config *config,
                              int *n_items)
{
    const char *base = (const char *)config;
    *n_items = key->count_offset ? *(const int *)(base + key->count_offset) : key->max_length;
    return (const double *)(base + key->offset);
}

void dt_key_set_list(const struct dt_key *key, struct dt_config *config, const double *items,
                     int n_items)
{
    char *base = (char *)config;
    memset(base + key->offset, 0, (size_t)key->max_length * sizeof(double));
    if (n_items > 0)
        memcpy(base + key->offset, items, (size_t)n_items * sizeof(double));
    if (key->count_offset)
        *(int *)(base + key->count_offset) = n_items;
}

int *dt_key_table(const struct dt_key *key, const struct dt_config *config, int *n_rows)
{
    const char *base = (const char *)config;
    *n_rows = *(const int *)(base + key->count_offset);
    return (int *)(base + key->offset);
}

const struct dt_column *dt_key_column(const struct dt_key *key, const char *name)
{
    for (int i = 0; name && i < key->n_columns; i++)
        if (strcmp(key->columns[i].name, name) == 0)
            return &key->columns[i];
    return NULL;
}

void dt_config_init(struct dt_config *config)
{
    memset(config, 0, sizeof(*config)); /* padding too: ranks compare the bytes */
    for (const struct dt_key *key = dt_keys; key < dt_keys + DT_COUNT(dt_keys); key++) {
        if (key->type == DT_KEY_STRING || key->type == DT_KEY_NAMES)
            snprintf((char *)config + key->offset, (size_t)key->max_length + 1, "%s", key->text);
        else if (key->type == DT_KEY_LIST)
            dt_key_set_list(key, config, key->items, key->n_items);
        else if (key->type != DT_KEY_TABLE) /* empty */
            dt_key_set_number(key, config, key->number);
    }
}

const char *dt_key_format(char out[32], double value)
{
    if (value == trunc(value) && fabs(value) < 1e17)
        snprintf(out, 32, "%.0f", value);
    else
        snprintf(out, 32, "%.9g", value);
    return out;
}

/* "from 0 to 1", "above 0, up to 1", "from 0, below 1". */
static void format_range(char *out, size_t bytes, const struct dt_key *key)
{
    char min[32], max[32];
    bool open = key->above_min || key->below_max;
    snprintf(out, bytes, "%s %s%s%s %s", key->above_min ? "above" : "from",
             dt_key_format(min, key->min), open ? "," : "",
             key->below_max ? " below"
             : open         ? " up to"
                            : " to",
             dt_key_format(max, key->max));
}

static void format_choices(struct dt_text *text, const struct dt_key *key, const char *what)
{
    dt_text_add(text, "%s", what);
    for (const char *const *name = key->choices; *name; name++)
        dt_text_add(text, " \"%s\"%s", *name, name[1] ? "," : "");
}

const char *dt_column_expects(char *out, size_t bytes, const struct dt_column *column)
{
    snprintf(out, bytes, "an integer from %d to %d", column->min, column->max);
    return out;
}

static void format_columns(struct dt_text *text, const struct dt_key *key)
{
    char range[64];
    dt_text_add(text, "a list of at most %d objects with", key->max_length);
    for (int i = 0; i < key->n_columns; i++)
        dt_text_add(text, "%s \"%s\" (%s%s)", i > 0 ? "," : "", key->columns[i].name,
                    dt_column_expects(range, sizeof range, &key->columns[i]),
                    key->columns[i].required ? "" : ", optional");
}

const char *dt_key_expects(char *out, size_t bytes, const struct dt_key *key)
{
    char range[96];
    struct dt_text text = dt_text_in(out, bytes);
    format_range(range, sizeof(range), key);
    switch (key->type) {
    case DT_KEY_BOOL:
        dt_text_add(&text, "true or false");
        break;
    case DT_KEY_REAL:
        dt_text_add(&text, "a number %s", range);
        break;
    case DT_KEY_CHOICE:
        format_choices(&text, key, "one of");
        break;
    case DT_KEY_STRING:
        dt_text_add(&text, "a string of %s%d bytes", key->min_length ? "1 to " : "at most ",
                    key->max_length);
        break;
    case DT_KEY_NAMES:
        if (key->choices)
            format_choices(&text, key, "a list of some of");
        else
            dt_text_add(&text, "a list of strings of at most %d bytes together", key->max_length);
        break;
    case DT_KEY_TABLE:
        format_columns(&text, key);
        break;
    case DT_KEY_LIST:
        if (key->choices)
            format_choices(&text, key, "one of");
        dt_text_add(&text, "%sa list of %s%d numbers %s", key->choices ? ", or " : "",
                    key->count_offset ? "at most " : "", key->max_length, range);
        break;
    default:
        for (const char *const *name = key->choices; name && *name; name++)
            dt_text_add(&text, "\"%s\" or ", *name);
        dt_text_add(&text, "%san integer %s", key->or_bool ? "true, false or " : "", range);
    }
    return out;
}
