/* Suggestions for a name that is not a key: first from a table of names used by other programs and
 * earlier versions, then by edit distance. */
#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/nearest.h"
#include "base/text.h"
#include "config/keys.h"

enum { MAX_NAMES = 256 };

const struct dt_hint dt_hints[] = {
    {"eval.batch_size val.batch_size test.batch_size eval_batch eval_batch_size val_batch_size "
     "validation_batch_size test_batch_size",
     "eval.batch_size_per_rank", NULL, NULL},
    {"b bs batch batch_size global_batch total_batch_size", "train.global_batch_size", NULL, NULL},
    {"batch_size_per_device batch_size_per_gpu batch_per_gpu imgs_per_gpu local_batch_size "
     "per_device_train_batch_size samples_per_gpu",
     "train.batch_size_per_rank", NULL, NULL},
    {"micro_batch microbatch microbatch_size "
     "accum_iter accumulation_steps grad_accum grad_accum_steps gradient_accumulation_steps",
     "train.micro_batch_size", NULL, NULL},
    {"max_epochs n_epochs num_epochs num_train_epochs", "train.epochs", NULL, NULL},
    {"eval_every eval_interval val_every", "eval.every_epochs", NULL, NULL},
    {"check_every", "train.replica_check_every", NULL, NULL},
    {"stop_top1", "early_stop.target", NULL, NULL},
    {"smoothing", "train.label_smoothing", NULL, NULL},
    {"class_weight loss_weights weight pos_weight", "train.class_weights", "balanced", NULL},
    {"amp mixed_precision native_amp use_amp", "train.precision", "fp16 (or bf16)", NULL},
    {"fp16 half use_fp16", "train.precision", "fp16", NULL},
    {"bf16 bfloat16", "train.precision", "bf16", NULL},
    {"tf32 allow_tf32", "train.precision", "tf32", NULL},
    {"amp_dtype dtype", "train.precision", NULL, NULL},
    {"a arch architecture backbone model_name net network", "model.name", NULL, NULL},
    {"finetune init_checkpoint init_from pretrained pretrained_weights", "model.initial_checkpoint",
     "FILE", NULL},
    {"classes n_classes nb_classes", "model.num_classes", NULL, NULL},
    {"crop_size img_size imgsz input_size resolution train_crop_size", "model.image_size", NULL,
     NULL},
    {"zero_gamma", "model.zero_init_residual", NULL, NULL},
    {"convert_sync_batchnorm sync_batchnorm sync_batch_norm syncbn", "model.sync_bn", "true", NULL},
    {"drop drop_rate", "model.dropout", NULL, NULL},
    {"drop_path drop_path_rate stochastic_depth_prob", "model.stochastic_depth", NULL, NULL},
    {"data_dir data_path dataset train_dir traindir", "data.train", NULL, NULL},
    {"val_dir valdir validation", "data.val", NULL, NULL},
    {"ann_file annotation_file annotations coco_path train_annotations", "data.train",
     "annotations/instances_train2017.json", NULL},
    {"val_ann_file val_annotations", "data.val", "annotations/instances_val2017.json", NULL},
    {"image_dir image_folder images_dir img_dir img_folder", "data.train_images", NULL, NULL},
    {"image_min_side min_size", "data.min_side", NULL, NULL},
    {"image_max_side max_size", "data.max_side", NULL, NULL},
    {"holdout test_size val_percent val_ratio val_split validation_split", "data.val_fraction",
     "0.1", NULL},
    {"limit_train_batches max_samples max_train_samples train_subset", "data.max_train", NULL,
     NULL},
    {"j nthreads num_workers", "data.workers", NULL, NULL},
    {"prefetch_factor", "data.prefetch", NULL, NULL},
    {"jitter", "data.color_jitter", NULL, NULL},
    {"erasing reprob", "data.random_erasing", NULL, NULL},
    {"mixup_alpha", "data.mixup", NULL, NULL},
    {"cutmix_alpha", "data.cutmix", NULL, NULL},
    {"resize val_resize_size", "data.val_resize", NULL, NULL},
    {"base_lr initial_lr learning_rate", "schedule.lr", NULL, NULL},
    {"end_lr eta_min final_lr lr_min", "schedule.min_lr", NULL, NULL},
    {"lr_unit", "schedule.lr_base_size", "256", NULL},
    {"auto_lr lr_base_scale scale_lr", "schedule.lr_scaling", NULL, NULL},
    {"num_warmup_steps warmup warmup_iters", "schedule.warmup_steps", NULL, NULL},
    {"lr_patience patience_epochs plateau_patience", "schedule.patience", NULL, NULL},
    {"lr_policy lr_scheduler sched scheduler", "schedule.kind", NULL, NULL},
    {"lr_steps lr_step_epochs steps", "schedule.milestones", NULL, NULL},
    {"decay_rate lr_decay lr_gamma", "schedule.gamma", NULL, NULL},
    {"l2 wd", "optim.weight_decay", NULL, NULL},
    {"freeze_layers freeze_modules frozen frozen_layers", "optim.freeze", "[\"conv1\",...]", NULL},
    {"classifier_lr_factor head_lr head_lr_mult lr_mult", "optim.head_lr_factor", NULL, NULL},
    {"compute_device", "device.kind", NULL, NULL},
    {"cuda gpu use_cuda", "device.kind", "cuda", NULL},
    {"record", "device.cuda_graph", NULL, NULL},
    {"share", "device.allow_shared_gpu", NULL, NULL},
    {"bind", "device.numa_bind", NULL, NULL},
    {"num_threads omp_num_threads", "device.threads", NULL, NULL},
    {"dist_backend", "comm.backend", NULL, NULL},
    {"wire fp16_allreduce", "comm.grad_dtype", NULL, NULL},
    {"bucket_mb", "comm.bucket_cap_mb", NULL, NULL},
    {"last_bucket_mb", "comm.last_bucket_cap_mb", NULL, NULL},
    {"log_dir output_dir save_dir work_dir", "output.dir", NULL, NULL},
    {"log_freq log_interval p print_freq", "output.log_every", NULL, NULL},
    {"loggers report_to tensorboard", "output.sinks", NULL, NULL},
    {"save_every save_freq save_interval", "checkpoint.every_epochs", NULL, NULL},
    {"keep_last max_to_keep save_total_limit", "checkpoint.keep", NULL, NULL},
    {"init_s", "watchdog.init_timeout_s", NULL, NULL},
    {"step_s", "watchdog.step_timeout_s", NULL, NULL},
    {"save_s", "watchdog.save_timeout_s", NULL, NULL},
    {"devices gpus n_gpus ngpus nproc num_gpus world_size", NULL, NULL,
     "start one rank per GPU: mpirun -np GPUS dtrain ..."},
    {"resume resume_from", NULL, NULL, "it is an option of dtrain train: --resume RULE"},
    {NULL, NULL, NULL, NULL},
};

static bool is_word(const char *word, size_t bytes, const char *name)
{
    for (size_t i = 0; i < bytes; i++) {
        const char a = word[i] == '-' ? '_' : word[i], b = name[i] == '-' ? '_' : name[i];
        if (tolower((unsigned char)a) !=
            tolower((unsigned char)b)) /* also if the name is shorter */
            return false;
    }
    return name[bytes] == '\0';
}

static const char *leaf_of(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

static const struct dt_hint *find_hint(const char *path)
{
    for (const struct dt_hint *hint = dt_hints; hint->names; hint++)
        for (const char *word = hint->names; *word; word += strspn(word, " ")) {
            size_t bytes = strcspn(word, " ");
            if (is_word(word, bytes, path) || is_word(word, bytes, leaf_of(path)))
                return hint;
            word += bytes;
        }
    return NULL;
}

/* "; train has the keys epochs, max_steps, ...", for a path in a known section. */
static void list_section(char *out, size_t bytes, const char *path)
{
    size_t section = strcspn(path, ".");
    struct dt_text text = dt_text_in(out, bytes);
    for (size_t i = 0; i < dt_config_n_keys(); i++) {
        const char *known = dt_keys[i].path;
        if (strncmp(known, path, section + 1) != 0)
            continue;
        if (text.used == 0)
            dt_text_add(&text, "; %.*s has the keys ", (int)section, path);
        else
            dt_text_add(&text, ", ");
        dt_text_add(&text, "%s", known + section + 1);
    }
}

/* The nearest name to a path: a section if the path has no dot, else a key, else a key with a
 * similar name in another section. */
static const char *nearest_name(char section[DT_CONFIG_NAME_MAX], const char *path)
{
    const char *names[MAX_NAMES] = {NULL}, *dot = strrchr(path, '.'), *near = NULL;
    size_t n = dt_config_n_keys();
    assert(n <= MAX_NAMES);
    for (size_t i = 0; i < n && !dot; i++) {
        const char *name = section;
        snprintf(section, DT_CONFIG_NAME_MAX, "%.*s", dt_key_section(&dt_keys[i]), dt_keys[i].path);
        if (dt_nearest(path, &name, 1))
            return section;
    }
    for (size_t i = 0; i < n; i++)
        names[i] = dt_keys[i].path;
    near = dt_nearest(path, names, n);
    if (near)
        return near;
    for (size_t i = 0; i < n; i++)
        names[i] = strchr(dt_keys[i].path, '.') + 1;
    near = dt_nearest(dot ? dot + 1 : path, names, n);
    for (size_t i = 0; i < n; i++)
        if (names[i] == near)
            return dt_keys[i].path;
    return NULL;
}

const char *dt_key_suggest(char *out, size_t bytes, const char *path)
{
    const struct dt_hint *hint = find_hint(path);
    char section[DT_CONFIG_NAME_MAX];
    const char *near = hint ? hint->key : nearest_name(section, path);
    out[0] = '\0';
    if (hint && hint->advice)
        snprintf(out, bytes, "; %s", hint->advice);
    else if (hint && hint->value)
        snprintf(out, bytes, "; use %s=%s", hint->key, hint->value);
    else if (near)
        snprintf(out, bytes, "; did you mean %s?", near);
    else
        list_section(out, bytes, path);
    return out;
}

bool dt_config_option_hint(char *out, size_t bytes, const char *name)
{
    const struct dt_hint *hint = find_hint(name);
    const char *key = hint ? hint->key : NULL;
    for (size_t i = 0; !hint && !key && i < dt_config_n_keys(); i++) {
        const char *leaf = leaf_of(dt_keys[i].path);
        key = is_word(leaf, strlen(leaf), name) ? dt_keys[i].path : NULL;
    }
    if (hint && hint->advice)
        snprintf(out, bytes, "%s", hint->advice);
    else if (key)
        snprintf(out, bytes, "use --set %s=%s", key, hint && hint->value ? hint->value : "...");
    return key || hint;
}
