/* The keys of the configuration, one row for each. struct dt_config (dtrain/config.h) and the table
 * behind loading, overrides, help, JSON Schema and the dump (config/keys.c) are made of them: both
 * define the macros of the rows, include this file, which has no guard, and lose them at its end.
 *
 *   INT(section, member, default, least, most, help, ...)   REAL, POSITIVE, FRACTION (0 <= x < 1)
 *   INT64(section, member, default, help, ...)              UINT64, BOOL
 *   CHOICE(section, member, type, default, WORDS(...), help, ...)     the names of the enum
 *   TEXT(section, member, bytes, default, shortest, help, ...)
 *   NAMES(section, member, bytes, default, help, ...)       a newline after each
 *   LIST(section, member, longest, most, help, ...)         with n_member; RGB: always 3
 *   TABLE(section, member, type, longest, columns, help)    with n_member
 *
 * help ends without a full stop; DETECTORS(help): classifiers do not have the key.
 * Further members of struct dt_key may follow it, such as the effect of a change on resuming,
 * unless that makes it another run. */

/* Why a change on resuming is harmless (FREE) or changes rounding only (INEXACT):
 *
 *   model.initial_checkpoint    only the first start uses it
 *   model.num_classes, data.source, train, class_map    the fingerprint and the list of classes
 *                               identify the data, not their path
 *   data.val, synthetic_val, eval.*       evaluation only reports, except to schedule plateau
 *   data.workers, prefetch, cache_mb      order and augmentation do not depend on them
 *   data.max_bad_fraction, check*, train.max_steps, early_stop.*    decide only when training ends
 *   train.replica_check_every, restore_best     compares the ranks; chooses a checkpoint
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

SECTION(model)
TEXT(model, name, DT_CONFIG_NAME_MAX, "resnet50", 1,
     "Network architecture, such as resnet50, vgg16_bn, alexnet or resnet20")
INT(model, num_classes, 0, 0, 1000000,
    "Number of classes; 0: as many as the data have (synthetic: 1000)", FREE)
INT(model, image_size, 224, 8, 2048, "Height and width of the training crop in pixels")
NAMES(model, canvases, 128, "",
      DETECTORS("up to 4 canvas sizes \"WIDTHxHEIGHT\", multiples of 32. Each image is placed "
                "top-left on the smallest canvas it fits; all images of a global batch share one "
                "size; empty: the square of image_size"))
BOOL(model, zero_init_residual, false,
     "ResNets: initialise the last batch norm scale of each residual block to 0")
INT(model, sync_bn, 0, 2, 1 << 20,
    "Synchronise batch norm statistics over all ranks (true) or over groups of N consecutive ranks "
    "(with train.virtual_ranks: N virtual ranks); false: every rank uses its own statistics",
    .or_bool = true)
REAL(model, dropout, -1, -1, 1,
     "Dropout in the classifier; -1: the network's default (VGG, AlexNet and SqueezeNet 0.5, "
     "MobileNet 0.2, EfficientNet 0.2 or 0.3; others have none)",
     .below_max = true)
REAL(model, stochastic_depth, -1, -1, 1,
     "Probability of skipping the last residual branch in training; it decreases linearly towards "
     "the first branch; -1: the network's default (EfficientNet 0.2, ConvNeXt 0.1 to 0.5)",
     .below_max = true)
TEXT(model, initial_checkpoint, DT_PATH_MAX, "", 0,
     "Safetensors file with the initial weights; empty: random weights", FREE)
INT(model, fpn_channels, 256, 1, 4096,
    DETECTORS("channels of the feature pyramid and of the heads"))
INT(model, anchor_base, 32, 2, 512,
    DETECTORS("side of the smallest anchor in pixels; every level of the pyramid doubles it"))
INT(model, trainable_layers, 5, 0, 5,
    DETECTORS("number of backbone stages that are trained, counted from the last; 5: all, for "
              "random weights (torchvision trains 3 of a pretrained backbone). The batch norms of "
              "frozen stages use the running statistics"))
BOOL(model, frozen_norm, false,
     DETECTORS("replace the batch norms of the backbone by constants from the initial weights, for "
               "batches of few images per rank"))
REAL(model, norm_eps, 1e-5, 0, 1,
     DETECTORS("epsilon added to the variance with frozen_norm; 0 for torchvision's published "
               "weights of retinanet_resnet50_fpn"))
CHOICE(model, p6_from, enum dt_p6_from, DT_P6_FROM_P5, WORDS("p5", "c5", NULL),
       DETECTORS("level 6 of the pyramid is computed from level 5 (p5), or from the last stage of "
                 "the backbone (c5: as in the paper and torchvision's version 2)"))
CHOICE(model, head_norm, enum dt_head_norm, DT_HEAD_NORM_NONE, WORDS("none", "group", NULL),
       DETECTORS("norm in the heads; group: 32 groups, as in torchvision's version 2"))
END(model)

SECTION(data)
CHOICE(data, source, enum dt_source, DT_SOURCE_AUTO,
       WORDS(DT_SOURCE_LIST(SOURCE_NAME) "auto", NULL),
       "Format of data.train and data.val; auto: recognised by the paths" SOURCES_HELP, FREE)
TEXT(data, train, DT_PATH_MAX, "", 0,
     "Training data: shards such as train-{0000..0009}.tar, a folder or a file, see data.source",
     FREE)
TEXT(
    data, val, DT_PATH_MAX, "", 0,
    "Validation data, in the same format as data.train; empty: data.val_fraction, or no evaluation",
    EVAL)
TEXT(data, train_images, DT_PATH_MAX, "", 0,
     DETECTORS("folder of the images of a .json file of data.train; empty: ../X for "
               "instances_X.json, otherwise the folder of the file"),
     FREE)
TEXT(data, val_images, DT_PATH_MAX, "", 0,
     DETECTORS("folder of the images of a .json file of data.val, like data.train_images"), EVAL)
FRACTION(data, val_fraction, 0,
         "Fraction of the images of every class in data.train that is kept for validation, chosen "
         "by file name and seed; 0: none")
TEXT(
    data, group, 256, "", 0,
    "Keeps the images of a group, such as a patient, on one side of data.val_fraction: a column of "
    "a CSV table, or a regular expression (POSIX, extended) of file names, or with a slash of "
    "paths, with parentheses around the group, such as ^(patient[0-9]+)_; empty: no groups")
CHOICE(data, sampler, enum dt_sampling, DT_SAMPLING_SHUFFLED, WORDS("shuffled", "balanced", NULL),
       "Training images of an epoch. shuffled: each once; balanced: as many, but equally many of "
       "each class, so that images of rare classes occur several times")
INT(data, max_train, 0, 0, 1 << 30,
    "Use only this many training images, the same fraction of every class, for quick trials; 0: "
    "all")
INT(data, synthetic_train, 12800, 1, 1 << 30, "Number of training images of the synthetic source")
INT(data, synthetic_val, 1280, 0, 1 << 30, "Number of validation images of the synthetic source",
    EVAL)
INT(data, workers, 0, 0, 256,
    "Decoding threads per rank; 0: one per CPU that is not used for computing, at least 1", FREE)
INT(data, prefetch, 3, 1, 64, "Micro-batches that a rank prepares ahead, at least 2", FREE)
INT(data, cache_mb, 0, 0, 1 << 24, "MB of encoded training images kept in memory per rank; 0: none",
    FREE)
CHOICE(data, upsampling, enum dt_upsampling, DT_UPSAMPLING_FANCY, WORDS("fancy", "plain", NULL),
       "JPEG chroma upsampling: interpolation as in Pillow (fancy) or repetition (plain)")
CHOICE(data, dct, enum dt_dct, DT_DCT_ACCURATE, WORDS("accurate", "fast", NULL),
       "JPEG inverse DCT: libjpeg's accurate one or its faster, less exact one")
CHOICE(data, scaled_decode, enum dt_scaled_decode, DT_SCALED_TRAIN,
       WORDS("never", "train", "always", NULL),
       "JPEG: decode at 1/2, 1/4 or 1/8 of the size if the crop stays large enough")
CHOICE(
    data, exif, enum dt_exif, DT_EXIF_AUTO, WORDS("auto", "ignore", "apply", NULL),
    "EXIF orientation of photos; ignore: keep the stored orientation, like PIL and torchvision; "
    "apply: rotate to upright; auto: ignore, but refuse boxes on photos with another orientation")
INT(data, max_pixels, DT_MAX_PIXELS, 1, 1 << 30,
    "Maximum pixels of a decoded image (3 bytes per pixel and worker); larger JPEG files are "
    "decoded at 1/2, 1/4 or 1/8 of their size, larger files of other formats are rejected")
CHOICE(data, augment, enum dt_augment, DT_AUGMENT_IMAGENET,
       WORDS("none", "imagenet", "cifar", NULL),
       "imagenet: random resized crop and horizontal flip; cifar: shift by up to 4 pixels and "
       "flip; detectors only flip")
REAL(data, color_jitter, 0, 0, 1,
     "Jitter brightness, contrast and saturation by up to this fraction; 0: off")
REAL(data, random_erasing, 0, 0, 1, "Probability of erasing a rectangle of an image")
REAL(data, mixup, 0, 0, 100,
     "Alpha of mixup, which blends pairs of images; needs an even global batch; 0: off")
REAL(data, cutmix, 0, 0, 100,
     "Alpha of CutMix, which swaps rectangles between pairs of images; needs an even "
     "global batch; 0: off")
INT(data, min_side, 0, 0, 4096,
    DETECTORS("resize the shorter side of an image to this, unless the longer one would exceed "
              "max_side; 0: as large as fits on the canvas"))
INT(data, max_side, 0, 0, 4096,
    DETECTORS("maximum pixels of the longer side; 0: as many as fit on the canvas"))
INT(data, min_side_low, 0, 0, 4096,
    "Detectors, training: draw the shorter side from this, this + 32, ... min_side (multi-scale "
    "training as in "
    "torchvision: 480); 0: always min_side",
    .of_detectors = true)
BOOL(data, stretch, false,
     DETECTORS("resize images to the size of the canvas without keeping their aspect ratio"))
REAL(data, rotate, 0, 0, 3.1416, "Detectors, training: rotate by up to this angle in radians",
     .of_detectors = true)
REAL(data, shear, 0, 0, 1.5, "Detectors, training: shear by up to this angle in radians",
     .of_detectors = true)
REAL(data, translate, 0, 0, 1,
     "Detectors, training: shift by up to this fraction of width and height", .of_detectors = true)
FRACTION(data, scale, 0, "Detectors, training: scale width and height by up to this fraction each",
         .of_detectors = true)
INT(data, val_resize, 0, 0, 4096,
    "Evaluation: resize the shorter side to this before the centre crop; 0: image_size * 256 / 224")
RGB(data, mean, NUMBERS(0.485, 0.456, 0.406), "Mean of R, G, B for pixels in 0..1")
RGB(data, std, NUMBERS(0.229, 0.224, 0.225), "Standard deviation of R, G, B", .above_min = true)
INT(data, label_offset, 0, 0, 1000000, "Subtracted from every label in the files")
TEXT(data, label_key, 256, "label", 1,
     "Shards without .cls members: key of the integer class label in the .json members")
TEXT(data, class_map, DT_PATH_MAX, "", 0,
     "File with one class name per line, in the order of labels; images of other classes are "
     "skipped; empty: the classes of the training data",
     FREE)
REAL(data, max_bad_fraction, 0.001, 0, 1,
     "End the run if a larger fraction of the images, or of the rows of a COCO file, is unusable",
     FREE)
INT(data, check_images, 5000, 0, INT32_MAX,
    "Decode data sets of up to this many images completely before the first step and report every "
    "unreadable image; of larger data sets each rank decodes 8 images",
    FREE)
CHOICE(data, check, enum dt_check, DT_CHECK_QUICK, WORDS("quick", "full", NULL),
       "On several machines, one rank per machine compares its files with rank 0's at the start. "
       "quick: names, sizes, labels and 64 pieces of up to 64 KiB per data set (at most 4 MiB); "
       "full: every byte of every file; it also decodes all images and reports duplicates",
       FREE)
END(data)

SECTION(train)
INT(train, epochs, 90, 1, 100000, "Passes over the training data", LENGTH)
INT64(train, max_steps, 0, "End the run after this step; 0: no limit", FREE)
INT(train, global_batch_size, 0, 0, 1 << 20,
    "Images per update, over all ranks; 0: batch_size_per_rank * ranks, or else 256")
INT(train, batch_size_per_rank, 0, 0, 1 << 15,
    "Images per update and rank, so that the global batch grows with the number of ranks; 0: "
    "global_batch_size / ranks (dtrain bench without either: 32)")
INT(train, micro_batch_size, 0, 0, 1 << 16,
    "Maximum images per rank and micro-batch (gradient accumulation); batch norm sees one "
    "micro-batch at a time; 0: all images of a rank at once; auto: as many as fit into memory",
    INEXACT, .choices = WORDS("auto", NULL))
TABLE(train, stages, struct dt_train_stage, DT_MAX_STAGES, stage_columns,
      "Change the size of training images or the global batch from an epoch on; evaluation always "
      "uses model.image_size")
UINT64(train, seed, 1, "Seed of initial weights, data order and augmentation")
CHOICE(train, precision, enum dt_precision, DT_PRECISION_AUTO, WORDS(DT_PRECISION_NAMES, NULL),
       "Precision of the network's arithmetic (mixed precision: weights stay fp32); auto: fp16 on "
       "GPUs of compute capability 7.0 or later, otherwise fp32; a resumed run keeps its precision "
       "if the device supports it",
       INEXACT)
REAL(train, loss_scale, 0, 0, 16777216,
     "fp16: factor on the loss that keeps small gradients from underflowing; 0: dynamic", INEXACT)
BOOL(train, deterministic, false, "Bit-identical results in every run on the same number of ranks",
     INEXACT)
FRACTION(train, label_smoothing, 0, "Fraction of the target distributed over all classes")
LIST(train, class_weights, DT_MAX_CLASS_WEIGHTS, 1e6,
     "Weights of the classes in the loss, one number per class; balanced: images / (classes * "
     "images of the class)",
     .min = 1e-6, .min_length = 1, .choices = WORDS("none", "balanced", NULL))
BOOL(train, restore_best, false,
     "At the end, save the weights of the best checkpoint, instead of the last ones, as "
     "RUN/model.safetensors",
     FREE)
INT(train, virtual_ranks, 0, 0, 4096,
    "Divide the global batch into this many slices, computed separately and added in a fixed "
    "order, so that any number of ranks gives bit-identical results; 0: off")
INT64(train, replica_check_every, 500,
      "Steps between comparisons of the ranks' weights; 0: only before checkpoints", FREE)
FRACTION(train, ema_decay, 0,
         "Decay of an exponential moving average of weights and batch norm statistics, such as "
         "0.9999; during warm-up it is 1 - (1 + step)^(-2/3), as in timm; 0: no moving average")
INT(train, sync_every, 0, 0, 100000,
    "Local SGD: every rank trains on its own, and the weights are averaged every this many steps; "
    "async: steps between synchronisations; 0: 1 (async: 32)")
BOOL(train, average_states, false,
     "Local SGD: also average the states of the optimizer; with momentum, only then is a resumed "
     "run bit-identical")
FRACTION(train, outer_momentum, 0,
         "Local SGD: momentum of the updates of the averaged weights; 0: off")
CHOICE(train, box_loss, enum dt_box_loss, DT_BOX_L1, WORDS("l1", "smooth_l1", "giou", NULL),
       DETECTORS("loss of the boxes; l1, smooth_l1: of the four box deltas; giou: of the decoded "
                 "boxes (torchvision's version 2)"))
POSITIVE(train, box_loss_beta, 1, 100,
         "Detectors, smooth_l1: absolute difference above which the loss is linear "
         "(keras-retinanet: 0.111)",
         .of_detectors = true)
REAL(train, focal_alpha, 0.25, 0, 1,
     DETECTORS("weight of an anchor's own class in the focal loss; the other classes have weight 1 "
               "- alpha"))
REAL(train, focal_gamma, 2, 0, 10, DETECTORS("exponent of the focal loss; 0: cross entropy"))
CHOICE(train, loss_normalizer, enum dt_loss_normalizer, DT_NORMALIZER_IMAGE,
       WORDS("image", "global", NULL),
       DETECTORS(
           "image: divide the losses by the foreground anchors of each image and average over the "
           "images (torchvision); global: divide by the foreground anchors of the whole step"))
END(train)

SECTION(eval)
INT(eval, every_epochs, 1, 0, 100000,
    "Epochs between evaluations; 0: only after the last epoch. A final evaluation forced by "
    "train.max_steps is only reported; it does not affect early stopping, plateau or the best "
    "checkpoint",
    EVAL)
INT(eval, batch_size_per_rank, 32, 1, 1 << 16, "Images per rank and micro-batch in evaluation",
    FREE)
NAMES(eval, metrics, 256, "loss\ntop1\ntop5\n",
      "Metrics that every evaluation of a classifier reports", FREE,
      .choices = WORDS(DT_METRIC_LIST(NAME) NULL))
CHOICE(eval, tta, enum dt_tta, DT_TTA_NONE, WORDS("none", "flip", NULL),
       "Test-time augmentation; flip: average the probabilities of an image and its mirror image",
       EVAL)
CHOICE(eval, weights, enum dt_weights, DT_WEIGHTS_BOTH, WORDS("both", "raw", "ema", NULL),
       "Weights that a run with train.ema_decay evaluates. ema: the moving average; raw: the "
       "weights themselves; both: the moving average and, reported as top1_raw and so on, the raw "
       "weights. With ema or both, the moving average is the result of the run and selects the "
       "best checkpoint. dtrain eval, predict, average and model.initial_checkpoint also load it, "
       "with raw the weights themselves",
       EVAL)
FRACTION(eval, score_threshold, 0.05, "Detections: drop those with a score up to this", EVAL,
         .of_detectors = true)
REAL(eval, nms_iou, 0.5, 0, 1,
     "Detections: NMS drops a detection whose IoU with a better one of its class exceeds this",
     EVAL, .of_detectors = true)
INT(eval, max_detections, 300, 1, 10000, "Detections: maximum number per image", EVAL,
    .of_detectors = true)
END(eval)

SECTION(early_stop)
CHOICE(early_stop, metric, enum dt_metric, DT_METRIC_AUTO, WORDS(DT_METRIC_LIST(NAME) "auto", NULL),
       "Metric that decides when to stop early; auto: top1, or ap of a detector", FREE)
REAL(early_stop, target, 0, 0, 100,
     "Stop when the metric reaches this value (accuracies in per cent); 0: off", FREE)
INT(early_stop, patience, 0, 0, 100000,
    "Stop after this many evaluations without a better value of the metric; 0: never", FREE)
REAL(early_stop, min_delta, 0, 0, 100,
     "Minimum improvement over the best value that resets patience", FREE)
END(early_stop)

SECTION(optim)
CHOICE(optim, name, enum dt_optim, DT_OPTIM_SGD, WORDS(DT_OPTIM_LIST(NAME) NULL),
       "Optimizer; lars and lamb are for large batches (include/dtrain/optim.h has the formulas)")
FRACTION(optim, momentum, 0.9, "Momentum; beta1 of adam, adamw and lamb")
REAL(optim, weight_decay, 1e-4, 0, 1,
     "Weight decay: L2 penalty added to the gradient; adamw and lamb: decoupled")
BOOL(optim, nesterov, false, "Nesterov momentum (sgd)")
FRACTION(optim, beta2, 0,
         "Decay of the average of squared gradients; 0: the optimizer's default "
         "(include/dtrain/optim.h)")
REAL(optim, eps, 0, 0, 1, "Epsilon in the denominators; 0: the optimizer's default")
POSITIVE(optim, trust_coefficient, 0.001, 10,
         "lars: factor on the ratio of the norms of weights and gradient (trust ratio)")
REAL(
    optim, clip_norm, 0, 0, 1e9,
    "Gradient clipping: maximum norm of all gradients, after their sum over the ranks; 0: no limit")
REAL(optim, clip_value, 0, 0, 1e9,
     "Gradient clipping: maximum absolute value of an element; 0: no limit")
BOOL(optim, decay_norm_bias, false,
     "Apply weight decay to the parameters of norms, to biases and layer scales too")
NAMES(optim, freeze, 4096, "",
      "Modules that are not trained, such as conv1 or layer1 (including submodules); their batch "
      "norms use the running statistics")
INT(optim, unfreeze_epoch, 0, 0, 100000,
    "Train everything after this many epochs; 0: keep frozen until the end")
POSITIVE(optim, head_lr_factor, 1, 1000, "Factor on the learning rate of the classifier")
END(optim)

SECTION(schedule)
CHOICE(schedule, kind, enum dt_schedule_kind, DT_SCHEDULE_STEP, WORDS(DT_SCHEDULE_LIST(NAME) NULL),
       "Learning rate schedule after warm-up (src/engine/schedule.h has the formulas)")
POSITIVE(schedule, lr, 0.1, 1000,
         "Peak learning rate; default: the optimizer's own (adam, adamw, rmsprop 0.001, lamb "
         "0.005, sgd and lars 0.1)")
CHOICE(schedule, lr_scaling, enum dt_lr_scaling, DT_LR_SCALING_LINEAR,
       WORDS("linear", "sqrt", "none", NULL),
       "Scale lr and min_lr with the batch: multiply by global batch / lr_base_size (linear), by "
       "its square root (sqrt), or not at all (none)")
INT(schedule, lr_base_size, 256, 0, 1 << 20, "Global batch size that lr and min_lr are given for")
REAL(schedule, warmup_epochs, 5, 0, 100000,
     "Length of the warm-up in epochs; 0 if only warmup_steps is given")
INT64(schedule, warmup_steps, 0,
      "Length of the warm-up in steps, instead of warmup_epochs; 0: use warmup_epochs",
      .instead_of = "schedule.warmup_epochs")
REAL(schedule, warmup_start, 0, 0, 1, "Fraction of lr at which warm-up starts")
LIST(schedule, milestones, DT_MAX_MILESTONES, 100000,
     "Kind step: ascending epochs at which the learning rate is multiplied by gamma; kind "
     "piecewise: epochs from which the corresponding element of factors applies",
     .items = NUMBERS(30, 60, 80), .n_items = 3, .above_min = true)
LIST(schedule, factors, DT_MAX_MILESTONES, 1000,
     "Kind piecewise: factor on lr from each milestone on")
POSITIVE(schedule, gamma, 0.1, 1,
         "Kind step: factor at each milestone; exponential: per epoch; plateau: per reduction")
POSITIVE(schedule, power, 2, 10, "Kind poly: exponent")
REAL(schedule, min_lr, 0, 0, 1000,
     "Final learning rate of kinds cosine, poly, linear, wsd and one_cycle, minimum of plateau; "
     "scaled like lr")
POSITIVE(schedule, decay_fraction, 0.2, 1,
         "Kind wsd: fraction of all steps that the final decay takes")
CHOICE(schedule, metric, enum dt_metric, DT_METRIC_AUTO, WORDS(DT_METRIC_LIST(NAME) "auto", NULL),
       "Kind plateau: metric of the evaluations, or train_loss (mean of an epoch); auto: loss, or "
       "train_loss for a detector")
INT(schedule, patience, 10, 0, 100000,
    "Kind plateau: evaluations (train_loss: epochs) without a better value before the learning "
    "rate is reduced")
FRACTION(schedule, threshold, 1e-4,
         "Kind plateau: minimum improvement that counts, as a fraction of the best value")
END(schedule)

SECTION(device)
CHOICE(device, kind, enum dt_device_kind, DT_DEVICE_AUTO, WORDS("auto", "cpu", "cuda", NULL),
       "Device that the network runs on", INEXACT)
INT(device, threads, 0, 0, 1024, "Compute threads per rank; 0: available CPUs / ranks on the node",
    INEXACT)
BOOL(device, winograd, true,
     "Use Winograd's algorithm for most 3x3 convolutions: faster, with slightly larger rounding "
     "errors",
     INEXACT)
CHOICE(device, layout, enum dt_tensor_layout, DT_LAYOUT_AUTO, WORDS(DT_LAYOUT_NAMES, NULL),
       "CPU: memory layout of activations. nhwc: channels innermost; blocked: blocks of 8 or 16 "
       "channels; auto: nhwc for bf16 on CPUs with AMX, which needs it, otherwise blocked",
       INEXACT)
BOOL(device, cuda_graph, true, "GPU: record the training step once and replay it as a CUDA graph",
     FREE)
BOOL(device, numa_bind, true,
     "GPU: run each rank on the CPUs of the NUMA node of its GPU, unless it is already bound", FREE)
BOOL(device, allow_shared_gpu, false, "GPU: allow several ranks per GPU, for tests; slow", FREE)
REAL(device, timeout_s, 300, 0, 86400,
     "GPU: seconds after which unfinished work counts as an error; 0: no limit", FREE)
TEXT(device, cache_dir, DT_PATH_MAX, "", 0,
     "GPU: folder in which the chosen convolution algorithms are cached; empty: ~/.cache/dtrain",
     FREE)
INT(device, conv_candidate, 0, 0, 128,
    "GPU, for tests: use this entry of cuDNN's list of algorithms for every convolution, or the "
    "next one that works; 0: the fastest",
    INEXACT)
CHOICE(device, fusion, enum dt_fusion_mode, DT_FUSION_AUTO, WORDS("auto", "on", "off", NULL),
       "GPU: fuse layers to save passes over memory; auto: where that is faster", INEXACT)
END(device)

SECTION(comm)
CHOICE(comm, backend, enum dt_comm_kind, DT_COMM_AUTO, WORDS("auto", "mpi", "nccl", NULL),
       "Library that sums the gradients", INEXACT)
CHOICE(comm, mode, enum dt_comm_mode, DT_MODE_ALLREDUCE,
       WORDS("allreduce", "central", "async", NULL),
       "allreduce: gradients are summed over the ranks; central: rank 0 sums the gradients, "
       "updates and sends the weights to all; async: rank 0 updates whenever another rank sends "
       "gradients. central and async are for comparison, on CPUs")
INT(comm, max_staleness, 0, 0, 1000000,
    "async: maximum staleness of a gradient, in updates; 0: twice the number of computing ranks",
    INEXACT)
CHOICE(
    comm, algorithm, enum dt_comm_algorithm, DT_ALGORITHM_AUTO,
    WORDS("ring", "auto", "library", "hierarchical", "halving", "tree", NULL),
    "All-reduce algorithm for gradients. ring: the summation order depends only on the number of "
    "ranks; library: chosen by NCCL or MPI; hierarchical (CPUs): shared memory within a node, then "
    "rings between nodes, so the order also depends on which ranks share a node; halving, tree "
    "(CPUs): for comparison. auto: ring with train.deterministic; otherwise hierarchical on CPUs, "
    "with the fastest algorithm between nodes, and on GPUs ring for up to 32 ranks, else library",
    INEXACT)
CHOICE(comm, grad_dtype, enum dt_grad_dtype, DT_GRAD_AUTO,
       WORDS("auto", "fp32", "fp16", "bf16", NULL),
       "Data type of the gradients sent between ranks; auto: as computed (on GPUs 16 bits in bf16 "
       "and fp16). On CPUs fp16 and bf16 halve the messages; with fp16 the rounding error is added "
       "to the gradient of the next step",
       INEXACT)
POSITIVE(comm, bucket_cap_mb, 4, 4096,
         "A gradient bucket is closed once it has this many MiB; a large parameter makes it larger",
         INEXACT)
POSITIVE(comm, last_bucket_cap_mb, 1, 4096,
         "The same for the last bucket, whose sum cannot overlap with the backward pass", INEXACT)
END(comm)

SECTION(output)
TEXT(output, dir, DT_PATH_MAX, "runs/default", 1, "Run folder", FREE)
INT(output, log_every, 20, 1, 1000000, "Maximum steps between progress lines", FREE)
REAL(output, log_every_s, 10, 0, 1e6, "Maximum seconds between progress lines; 0: no limit", FREE)
NAMES(output, sinks, 128, "console\njsonl\ntensorboard\n", "Outputs that get progress and results",
      FREE, .choices = WORDS(DT_SINK_LIST(SINK_NAME) NULL))
BOOL(output, rank_logs, true, "Keep a log file of each rank in the run folder, logs/rank-0000.log",
     FREE)
BOOL(output, shared, true,
     "All ranks must see the run folder; false: only rank 0 uses it, the other ranks keep no log "
     "files, and a hang on another node is located less precisely",
     FREE)
REAL(output, telemetry_s, 10, 0, 1e6,
     "Seconds between events about the host's memory and the GPU's sensors; 0: none", FREE)
END(output)

SECTION(checkpoint)
INT(checkpoint, every_epochs, 1, 0, 100000, "Epochs between checkpoints; 0: only at the end", FREE)
INT64(checkpoint, every_steps, 0, "Steps between checkpoints within an epoch; 0: none", FREE)
REAL(checkpoint, every_seconds, 600, 0, 1e6,
     "Seconds between checkpoints, longer if saving would take over 1 % of the time; 0: off", FREE)
INT(checkpoint, keep, 3, 1, 1000000, "Number of newest checkpoints to keep", FREE)
BOOL(checkpoint, keep_best, true, "Also keep the checkpoint with the best validation metric", FREE)
CHOICE(checkpoint, best_metric, enum dt_metric, DT_METRIC_AUTO,
       WORDS(DT_METRIC_LIST(NAME) "auto", NULL),
       "Metric by which checkpoints are compared; auto: early_stop.metric", FREE)
INT64(checkpoint, keep_every, 0, "Also keep checkpoints whose step is a multiple of this; 0: none",
      FREE)
POSITIVE(checkpoint, retry_s, 60, 86400, "Seconds until a failed save is retried", FREE)
END(checkpoint)

SECTION(watchdog)
REAL(
    watchdog, init_timeout_s, 300, 0, 1e6,
    "End the run if the start takes this many seconds without progress; 0: no limit. Until MPI has "
    "started, each rank uses its own --set and --config, or the default if it cannot read them",
    FREE)
REAL(watchdog, step_timeout_s, 60, 0, 1e6,
     "End the run if a step takes this many seconds without progress, at least 10 times the median "
     "step; 0: no limit",
     FREE)
REAL(watchdog, save_timeout_s, 600, 0, 1e6,
     "End the run if a save takes this many seconds without progress; 0: no limit", FREE)
END(watchdog)

SECTION(bench)
INT(bench, warmup_steps, 5, 0, 1000000, "Warm-up steps before dtrain bench measures", FREE)
INT(bench, rounds, 10, 1, 100000, "Number of measured rounds", FREE)
INT(bench, steps_per_round, 10, 1, 100000, "Steps per round", FREE)
END(bench)

#undef SECTION
#undef END
#undef BOOL
#undef INT
#undef INT64
#undef UINT64
#undef REAL
#undef POSITIVE
#undef FRACTION
#undef CHOICE
#undef TEXT
#undef NAMES
#undef RGB
#undef LIST
#undef TABLE
