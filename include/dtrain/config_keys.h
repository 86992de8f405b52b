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
 * help is one sentence without its full stop; DETECTORS(help): classifiers do not have the key.
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
      DETECTORS("up to 4 sizes \"WIDTHxHEIGHT\", multiples of 32, in whose upper left corner an "
                "image lies; each takes the smallest that it fits into, and all images of a global "
                "batch have the same; empty: the square of image_size"))
BOOL(model, zero_init_residual, false,
     "ResNets: initialise the last batch norm scale of each residual block to 0")
INT(model, sync_bn, 0, 2, 1 << 20,
    "Synchronise batch norm statistics over all ranks (true) or over groups of N consecutive ranks "
    "(N), with train.virtual_ranks of these; false: each has its own",
    .or_bool = true)
REAL(model, dropout, -1, -1, 1,
     "Dropout in the classifier; -1: the network's own (VGG, AlexNet and SqueezeNet 0.5, MobileNet "
     "0.2, EfficientNet 0.2 or 0.3), where it has any",
     .below_max = true)
REAL(model, stochastic_depth, -1, -1, 1,
     "Share of the images for which the last residual branch is skipped in training, less for "
     "those before it; -1: the network's own (EfficientNet 0.2, ConvNeXt 0.1 to 0.5)",
     .below_max = true)
TEXT(model, initial_checkpoint, DT_PATH_MAX, "", 0,
     "Safetensors file with the initial weights; empty: random weights", FREE)
INT(model, fpn_channels, 256, 1, 4096,
    DETECTORS("channels of the feature pyramid and of the heads"))
INT(model, anchor_base, 32, 2, 512,
    DETECTORS("side of the smallest anchor in pixels; every level of the pyramid doubles it"))
INT(model, trainable_layers, 5, 0, 5,
    DETECTORS("stages of the backbone that are trained, from the last; 5: all, as random weights "
              "need it, where torchvision trains 3 of a pretrained backbone. The batch norms of "
              "the others use the running statistics"))
BOOL(model, frozen_norm, false,
     DETECTORS("constants from the initial weights as batch norm of the backbone, for batches of "
               "few images per rank"))
REAL(model, norm_eps, 1e-5, 0, 1,
     DETECTORS("added to the variance by frozen_norm; 0 for torchvision's published weights of "
               "retinanet_resnet50_fpn"))
CHOICE(model, p6_from, enum dt_p6_from, DT_P6_FROM_P5, WORDS("p5", "c5", NULL),
       DETECTORS("level 6 is computed from level 5 of the pyramid (p5), or from the last stage of "
                 "the backbone (c5: the paper, and torchvision's version 2)"))
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
TEXT(data, val, DT_PATH_MAX, "", 0,
     "Validation data, specified in the same way; empty: data.val_fraction, or no evaluation", EVAL)
TEXT(data, train_images, DT_PATH_MAX, "", 0,
     DETECTORS("folder of the images of a .json file of data.train; empty: ../X for "
               "instances_X.json, otherwise the folder of the file"),
     FREE)
TEXT(data, val_images, DT_PATH_MAX, "", 0, DETECTORS("the same for data.val"), EVAL)
FRACTION(data, val_fraction, 0,
         "Fraction of the images of every class in data.train that is kept for validation, chosen "
         "by file name and seed; 0: none")
INT(data, max_train, 0, 0, 1 << 30,
    "Training images used, of every class the same fraction, for quick trials; 0: all")
INT(data, synthetic_train, 12800, 1, 1 << 30, "Training images of the synthetic source")
INT(data, synthetic_val, 1280, 0, 1 << 30, "Validation images of the synthetic source", EVAL)
INT(data, workers, 0, 0, 256,
    "Decoding threads per rank; 0: one per CPU that computing leaves free, at least 1", FREE)
INT(data, prefetch, 3, 1, 64, "Batches prefetched per rank", FREE)
INT(data, cache_mb, 0, 0, 1 << 24, "MB of encoded training images kept in memory per rank; 0: none",
    FREE)
CHOICE(data, upsampling, enum dt_upsampling, DT_UPSAMPLING_FANCY, WORDS("fancy", "plain", NULL),
       "JPEG chroma upsampling: interpolation as in Pillow (fancy) or repetition (plain)")
CHOICE(data, dct, enum dt_dct, DT_DCT_ACCURATE, WORDS("accurate", "fast", NULL),
       "JPEG inverse DCT: libjpeg's accurate one or its faster, less exact one")
CHOICE(data, scaled_decode, enum dt_scaled_decode, DT_SCALED_TRAIN,
       WORDS("never", "train", "always", NULL),
       "JPEG: decode at 1/2, 1/4 or 1/8 of the size if the crop stays large enough")
CHOICE(data, exif, enum dt_exif, DT_EXIF_AUTO, WORDS("auto", "ignore", "apply", NULL),
       "EXIF orientation of photos: pixels as stored, like PIL and torchvision (ignore), or "
       "upright (apply); auto: ignore, but boxes on such photos are refused")
INT(data, max_pixels, DT_MAX_PIXELS, 1, 1 << 30,
    "Most pixels of a decoded image, 3 bytes each per worker; larger JPEG files are decoded at "
    "1/2, 1/4 or 1/8 of their size, larger PNG files are unreadable")
CHOICE(data, augment, enum dt_augment, DT_AUGMENT_IMAGENET,
       WORDS("none", "imagenet", "cifar", NULL),
       "Random resized crop and flip (imagenet), or shift by up to 4 pixels and flip (cifar); "
       "detectors only flip")
REAL(data, color_jitter, 0, 0, 1,
     "Jitter brightness, contrast and saturation by up to this fraction; 0: off")
REAL(data, random_erasing, 0, 0, 1, "Probability of erasing a rectangle of an image")
REAL(data, mixup, 0, 0, 100,
     "Alpha of mixup, which blends pairs of images; needs an even micro-batch size; 0: off")
REAL(data, cutmix, 0, 0, 100,
     "Alpha of CutMix, which swaps rectangles between pairs of images; 0: off")
INT(data, min_side, 0, 0, 4096,
    DETECTORS("the shorter side of an image is resized to this, unless the longer one would exceed "
              "max_side; 0: as large as fits on the canvas"))
INT(data, max_side, 0, 0, 4096,
    DETECTORS("most pixels of the longer side; 0: as many as fit on the canvas"))
INT(data, min_side_low, 0, 0, 4096,
    "Detectors, training: the shorter side is drawn from this, this + 32, ... min_side "
    "(torchvision's multiscale: 480); 0: always min_side",
    .of_detectors = true)
BOOL(data, stretch, false, DETECTORS("images fill the canvas, whatever their proportions"))
REAL(data, rotate, 0, 0, 3.1416, "Detectors, training: rotate by up to this angle in radians",
     .of_detectors = true)
REAL(data, shear, 0, 0, 1.5, "Detectors, training: shear by up to this angle in radians",
     .of_detectors = true)
REAL(data, translate, 0, 0, 1,
     "Detectors, training: move by up to this fraction of width and height", .of_detectors = true)
FRACTION(data, scale, 0, "Detectors, training: scale width and height by up to this fraction each",
         .of_detectors = true)
INT(data, val_resize, 0, 0, 4096,
    "Evaluation: shorter side before the centre crop; 0: image_size * 256 / 224")
RGB(data, mean, NUMBERS(0.485, 0.456, 0.406), "Mean of R, G, B for pixels in 0..1")
RGB(data, std, NUMBERS(0.229, 0.224, 0.225), "Standard deviation of R, G, B", .above_min = true)
INT(data, label_offset, 0, 0, 1000000, "Subtracted from every label in the files")
TEXT(data, label_key, 256, "label", 1,
     "Shards whose samples have no .cls member: the key of the class, an integer, in their .json "
     "members")
TEXT(data, class_map, DT_PATH_MAX, "", 0,
     "File with one class name per line, in the order of labels: other classes are skipped; empty: "
     "the classes of the training data",
     FREE)
REAL(data, max_bad_fraction, 0.001, 0, 1,
     "Fraction of unusable images, or rows of a COCO file, above which the run ends", FREE)
INT(data, check_images, 5000, 0, INT32_MAX,
    "Data sets of at most this many images are decoded whole before the first step, and all "
    "unreadable images named; of larger ones each rank tries 8",
    FREE)
CHOICE(data, check, enum dt_check, DT_CHECK_QUICK, WORDS("quick", "full", NULL),
       "On several machines, one rank of each compares its files with rank 0's at the start: "
       "names, sizes, labels and 64 pieces of up to 64 KiB per data set, at most 4 MiB (quick), or "
       "every byte of every file (full), which also decodes all images and tells of equal ones",
       FREE)
END(data)

SECTION(train)
INT(train, epochs, 90, 1, 100000, "Passes over the training data", LENGTH)
INT64(train, max_steps, 0, "Last step of the run; 0: no limit", FREE)
INT(train, global_batch_size, 0, 0, 1 << 20,
    "Images per update, over all ranks; 0: batch_size_per_rank * ranks, or else 256")
INT(train, batch_size_per_rank, 0, 0, 1 << 15,
    "Images per update and rank, so that the global batch grows with the ranks; 0: "
    "global_batch_size / ranks (dtrain bench without either: 32)")
INT(train, micro_batch_size, 0, 0, 1 << 16,
    "Most images per rank and micro-batch, of which batch norm sees one at a time; 0: all of a "
    "rank's; auto: as many as fit into the memory of the ranks' devices",
    INEXACT, .choices = WORDS("auto", NULL))
TABLE(train, stages, struct dt_train_stage, DT_MAX_STAGES, stage_columns,
      "From which epoch on training takes images of another size, or another global batch; "
      "evaluation stays at model.image_size")
UINT64(train, seed, 1, "Seed of initial weights, data order and augmentation")
CHOICE(train, precision, enum dt_precision, DT_PRECISION_AUTO, WORDS(DT_PRECISION_NAMES, NULL),
       "Precision of the network's arithmetic; auto: fp16 on GPUs of compute capability 7.0 or "
       "later, otherwise fp32; a resumed run keeps what it has if the device allows",
       INEXACT)
REAL(train, loss_scale, 0, 0, 16777216,
     "fp16: factor on the loss that keeps small gradients from underflowing; 0: dynamic", INEXACT)
BOOL(train, deterministic, false, "Bit-identical results in every run on the same number of ranks",
     INEXACT)
FRACTION(train, label_smoothing, 0, "Fraction of the target distributed over all classes")
LIST(train, class_weights, DT_MAX_CLASS_WEIGHTS, 1e6,
     "Factors on the loss, one per class; balanced: images / (classes * images of the class)",
     .min = 1e-6, .min_length = 1, .choices = WORDS("none", "balanced", NULL))
BOOL(train, restore_best, false,
     "Make RUN/model.safetensors the best checkpoint's model instead of the last", FREE)
INT(train, virtual_ranks, 0, 0, 4096,
    "Slices of the global batch, each computed as by a rank of so many and added in a fixed order, "
    "so that any number of ranks gives the same bits; 0: none")
INT64(train, replica_check_every, 500,
      "Steps between comparisons of the ranks' weights; 0: only before checkpoints", FREE)
FRACTION(train, ema_decay, 0,
         "Decay of an exponential moving average of weights and batch norm statistics, such as "
         "0.9999; it grows to that as 1 - (1 + step)^(-2/3), as in timm; 0: no average")
INT(train, sync_every, 0, 0, 100000,
    "Local SGD: every rank trains on its own, and every so many steps the weights are averaged; "
    "async: steps between two meetings; 0: 1, async: 32")
BOOL(train, average_states, false,
     "Local SGD: average the optimizer's states as well, which a resumed run needs in order to be "
     "bit-identical if there is momentum")
FRACTION(train, outer_momentum, 0, "Local SGD: momentum of the averaged weights; 0: off")
CHOICE(train, box_loss, enum dt_box_loss, DT_BOX_L1, WORDS("l1", "smooth_l1", "giou", NULL),
       DETECTORS("loss of the boxes; giou: of the decoded boxes (torchvision's version 2), "
                 "otherwise of the four deltas"))
POSITIVE(train, box_loss_beta, 1, 100,
         "Detectors, smooth_l1: difference from which on it is linear (keras-retinanet: 0.111)",
         .of_detectors = true)
REAL(train, focal_alpha, 0.25, 0, 1,
     DETECTORS("weight of an anchor's own class in the focal loss; the others have 1 - alpha"))
REAL(train, focal_gamma, 2, 0, 10, DETECTORS("exponent of the focal loss; 0: cross entropy"))
CHOICE(
    train, loss_normalizer, enum dt_loss_normalizer, DT_NORMALIZER_IMAGE,
    WORDS("image", "global", NULL),
    DETECTORS("losses are divided by the foreground anchors of each image, then averaged over the "
              "images (torchvision), or divided by the foreground anchors of the step (global)"))
END(train)

SECTION(eval)
INT(eval, every_epochs, 1, 0, 100000,
    "Epochs between evaluations; 0: only after the last. One at the end of a run that "
    "train.max_steps ends sooner, unless it is due anyway, is only reported: it does not count for "
    "early_stop, plateau and the best checkpoint",
    EVAL)
INT(eval, batch_size_per_rank, 32, 1, 1 << 16, "Images per rank and micro-batch in evaluation",
    FREE)
NAMES(eval, metrics, 256, "loss\ntop1\ntop5\n",
      "Metrics to report of every evaluation of a classifier", FREE,
      .choices = WORDS(DT_METRIC_LIST(NAME) NULL))
CHOICE(eval, tta, enum dt_tta, DT_TTA_NONE, WORDS("none", "flip", NULL),
       "Test-time augmentation; flip: mean of the probabilities of an image and its mirror", EVAL)
CHOICE(eval, weights, enum dt_weights, DT_WEIGHTS_BOTH, WORDS("both", "raw", "ema", NULL),
       "Weights that a run with train.ema_decay evaluates. With ema and both the moving average is "
       "the result and selects the best checkpoint; both also reports the raw weights as top1_raw "
       "and so on. Where a run, a checkpoint or RUN@best is given, dtrain eval, predict and "
       "average and model.initial_checkpoint take the weights that decided in that run",
       EVAL)
FRACTION(eval, score_threshold, 0.05, "Detections: only scores above it", EVAL,
         .of_detectors = true)
REAL(eval, nms_iou, 0.5, 0, 1,
     "Detections: NMS drops one whose IoU with a better one of its class exceeds this", EVAL,
     .of_detectors = true)
INT(eval, max_detections, 300, 1, 10000, "Detections: most of them per image", EVAL,
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
     "Least difference from the best value so far that counts as better, for patience", FREE)
END(early_stop)

SECTION(optim)
CHOICE(optim, name, enum dt_optim, DT_OPTIM_SGD, WORDS(DT_OPTIM_LIST(NAME) NULL),
       "Optimizer; lars and lamb are for large batches (include/dtrain/optim.h has the formulas)")
FRACTION(optim, momentum, 0.9, "Momentum; beta1 of adam, adamw and lamb")
REAL(optim, weight_decay, 1e-4, 0, 1,
     "Weight decay: L2 penalty added to the gradient; adamw and lamb: to the direction")
BOOL(optim, nesterov, false, "Nesterov momentum (sgd)")
FRACTION(optim, beta2, 0,
         "Smoothing of the squared gradient; 0: the optimizer's own (include/dtrain/optim.h)")
REAL(optim, eps, 0, 0, 1, "Added to denominators; 0: the optimizer's own")
POSITIVE(optim, trust_coefficient, 0.001, 10,
         "lars: factor on the ratio of the norms of weights and gradient")
REAL(optim, clip_norm, 0, 0, 1e9,
     "Largest norm of all gradients together, after their sum over the ranks; 0: no limit")
REAL(optim, clip_value, 0, 0, 1e9, "Largest absolute value of a gradient; 0: no limit")
BOOL(optim, decay_norm_bias, false,
     "Weight decay on the parameters of norms, on biases and layer scales too")
NAMES(optim, freeze, 4096, "",
      "Modules that are not trained, such as conv1 or layer1 (with all in it); their batch norms "
      "use the running statistics")
INT(optim, unfreeze_epoch, 0, 0, 100000,
    "Epochs after which everything is trained; 0: freeze always applies")
POSITIVE(optim, head_lr_factor, 1, 1000, "Factor on the classifier's learning rate")
END(optim)

SECTION(schedule)
CHOICE(schedule, kind, enum dt_schedule_kind, DT_SCHEDULE_STEP, WORDS(DT_SCHEDULE_LIST(NAME) NULL),
       "Learning rate schedule after warm-up (src/engine/schedule.h has the formulas)")
POSITIVE(schedule, lr, 0.1, 1000,
         "Peak learning rate; unless given, the optimizer's own: adam, adamw, rmsprop 0.001, lamb "
         "0.005, sgd and lars the default here")
CHOICE(schedule, lr_scaling, enum dt_lr_scaling, DT_LR_SCALING_LINEAR,
       WORDS("linear", "sqrt", "none", NULL),
       "How lr and min_lr follow the batch: both are multiplied by global batch / lr_base_size "
       "(linear), by its square root (sqrt), or taken as they are (none)")
INT(schedule, lr_base_size, 256, 0, 1 << 20, "Images per update that lr and min_lr are for")
REAL(schedule, warmup_epochs, 5, 0, 100000,
     "Length of the warm-up in epochs; 0 unless given if warmup_steps is")
INT64(schedule, warmup_steps, 0,
      "Length of the warm-up in steps, instead of warmup_epochs; 0: warmup_epochs",
      .instead_of = "schedule.warmup_epochs")
REAL(schedule, warmup_start, 0, 0, 1, "Fraction of lr at which warm-up starts")
LIST(schedule, milestones, DT_MAX_MILESTONES, 100000,
     "Kind step: epochs, ascending, at which the learning rate is multiplied by gamma; piecewise: "
     "from which on it is lr times the factor in the same place",
     .items = NUMBERS(30, 60, 80), .n_items = 3, .above_min = true)
LIST(schedule, factors, DT_MAX_MILESTONES, 1000,
     "Kind piecewise: factor on lr from each milestone on")
POSITIVE(schedule, gamma, 0.1, 1,
         "Kind step: factor at each milestone; exponential: per epoch; plateau: per reduction")
POSITIVE(schedule, power, 2, 10, "Kind poly: exponent")
REAL(schedule, min_lr, 0, 0, 1000,
     "Final learning rate of kinds cosine, poly, linear, wsd and one_cycle, the lowest of plateau; "
     "scaled like lr")
POSITIVE(schedule, decay_fraction, 0.2, 1, "Kind wsd: fraction of all steps in the final decay")
CHOICE(schedule, metric, enum dt_metric, DT_METRIC_AUTO, WORDS(DT_METRIC_LIST(NAME) "auto", NULL),
       "Kind plateau: metric of the evaluations, or train_loss, the mean of an epoch; auto: loss, "
       "or train_loss for a detector")
INT(schedule, patience, 10, 0, 100000,
    "Kind plateau: evaluations, or epochs, without a better value before the rate is reduced")
FRACTION(schedule, threshold, 1e-4,
         "Kind plateau: least improvement that counts, as a fraction of the best value")
END(schedule)

SECTION(device)
CHOICE(device, kind, enum dt_device_kind, DT_DEVICE_AUTO, WORDS("auto", "cpu", "cuda", NULL),
       "Device that the network runs on", INEXACT)
INT(device, threads, 0, 0, 1024, "Compute threads per rank; 0: available CPUs / ranks on the node",
    INEXACT)
BOOL(device, winograd, true,
     "Winograd's algorithm for most 3x3 convolutions: faster, slightly larger rounding errors",
     INEXACT)
CHOICE(device, layout, enum dt_tensor_layout, DT_LAYOUT_AUTO, WORDS(DT_LAYOUT_NAMES, NULL),
       "CPU: how activations are stored. nhwc: channels innermost; blocked: in blocks of 8 or 16 "
       "channels; auto: nhwc where bf16 is multiplied by AMX, which needs it",
       INEXACT)
BOOL(device, cuda_graph, true, "GPU: record the training step once and replay it as a CUDA graph",
     FREE)
BOOL(device, numa_bind, true,
     "GPU: run each rank on the CPUs of its GPU's NUMA node, unless it is bound already", FREE)
BOOL(device, allow_shared_gpu, false, "GPU: several ranks may share one, for tests; slow", FREE)
REAL(device, timeout_s, 300, 0, 86400,
     "GPU: seconds after which unfinished work is an error; 0: no limit", FREE)
TEXT(device, cache_dir, DT_PATH_MAX, "", 0,
     "GPU: folder that caches chosen convolution algorithms; empty: ~/.cache/dtrain", FREE)
INT(device, conv_candidate, 0, 0, 128,
    "GPU, for tests: number of the algorithm in cuDNN's list that every convolution takes, if it "
    "can be used, else one after it; 0: the fastest",
    INEXACT)
CHOICE(device, fusion, enum dt_fusion_mode, DT_FUSION_AUTO, WORDS("auto", "on", "off", NULL),
       "GPU: compute a layer together with the next in fewer passes over memory; auto: where that "
       "is faster",
       INEXACT)
END(device)

SECTION(comm)
CHOICE(comm, backend, enum dt_comm_kind, DT_COMM_AUTO, WORDS("auto", "mpi", "nccl", NULL),
       "Library that sums the gradients", INEXACT)
CHOICE(comm, mode, enum dt_comm_mode, DT_MODE_ALLREDUCE,
       WORDS("allreduce", "central", "async", NULL),
       "allreduce: gradients are summed over the ranks; central: on rank 0, which updates and "
       "sends the weights; async: rank 0 updates whenever one of the others has gradients. The "
       "last two are for comparison, on CPUs")
INT(comm, max_staleness, 0, 0, 1000000,
    "async: most updates between the weights that a gradient belongs to and those it changes; 0: "
    "twice the number of ranks that compute",
    INEXACT)
CHOICE(comm, algorithm, enum dt_comm_algorithm, DT_ALGORITHM_AUTO,
       WORDS("ring", "auto", "library", "hierarchical", "halving", "tree", NULL),
       "How gradients are summed. ring: in an order that depends on nothing but the number of "
       "ranks; library: as NCCL or MPI chooses. On CPUs, in an order that also depends on which "
       "ranks share a node: hierarchical: in the memory of each node, and in rings between nodes; "
       "halving, tree: for comparison. auto: with train.deterministic ring; on CPUs hierarchical, "
       "with what is fastest between nodes; on GPUs ring on up to 32 ranks, else library",
       INEXACT)
CHOICE(comm, grad_dtype, enum dt_grad_dtype, DT_GRAD_AUTO,
       WORDS("auto", "fp32", "fp16", "bf16", NULL),
       "Data type of gradients sent between ranks; auto: as computed, on GPUs 16 bits in bf16 and "
       "fp16. On CPUs fp16 and bf16 halve the messages; fp16 sends what rounding loses in the next "
       "step",
       INEXACT)
POSITIVE(comm, bucket_cap_mb, 4, 4096, "Size in MiB of the buckets in which gradients are summed",
         INEXACT)
POSITIVE(comm, last_bucket_cap_mb, 1, 4096,
         "Largest size in MiB of the last bucket, whose sum is not overlapped", INEXACT)
END(comm)

SECTION(output)
TEXT(output, dir, DT_PATH_MAX, "runs/default", 1, "Run folder", FREE)
INT(output, log_every, 20, 1, 1000000, "Maximum steps between progress lines", FREE)
REAL(output, log_every_s, 10, 0, 1e6, "Maximum seconds between progress lines; 0: no limit", FREE)
NAMES(output, sinks, 128, "console\njsonl\ntensorboard\n", "Where progress and results are written",
      FREE, .choices = WORDS(DT_SINK_LIST(SINK_NAME) NULL))
BOOL(output, rank_logs, true, "Keep a log file of each rank in the run folder, logs/rank-0000.log",
     FREE)
BOOL(output, shared, true,
     "All ranks must see the run folder; false: rank 0 alone uses it, the others keep no logs "
     "there, and a hang on another node is named less precisely",
     FREE)
REAL(output, telemetry_s, 10, 0, 1e6,
     "Seconds between events about the host's memory and the GPU's sensors; 0: none", FREE)
END(output)

SECTION(checkpoint)
INT(checkpoint, every_epochs, 1, 0, 100000, "Epochs between checkpoints; 0: only at the end", FREE)
INT64(checkpoint, every_steps, 0, "Steps between checkpoints within an epoch; 0: none", FREE)
REAL(checkpoint, every_seconds, 600, 0, 1e6,
     "Seconds between checkpoints, more if saving would take over 1 % of the time; 0: off", FREE)
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
REAL(watchdog, init_timeout_s, 300, 0, 1e6,
     "Seconds without progress that abort the start; 0: no limit. While MPI starts, each rank "
     "takes its own --set and --config, or the default where it cannot read them",
     FREE)
REAL(watchdog, step_timeout_s, 60, 0, 1e6,
     "Seconds without progress that abort a step, at least 10 x its median; 0: no limit", FREE)
REAL(watchdog, save_timeout_s, 600, 0, 1e6,
     "Seconds without progress that abort a save; 0: no limit", FREE)
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
