/* Class folders: root/<class>/[.../]<file> of an image. Labels are the positions of the
 * class folders in byte-sorted order. The samples have the order of torchvision's ImageFolder: by
 * class, folder below it, and file, each sorted by bytes. Names are stored in one block of memory,
 * about 25 bytes per sample. Symbolic links are followed, hidden files and folders skipped. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/names.h"
#include "base/pulse.h"
#include "base/sort.h"
#include "base/text.h"
#include "data/dataset.h"
#include "data/shard_list.h"

enum { MAX_KINDS = 8, SUFFIX_BYTES = 16 };

struct folder {
    char root[DT_PATH_MAX];
    struct dt_names classes, files; /* files: relative to their class folder */
    uint32_t *first;                /* first[c] .. first[c + 1] - 1 are the samples of class c */
    size_t n_loose;                 /* images next to the class folders, which are not used */
    struct left_out {
        char suffix[SUFFIX_BYTES]; /* ".gif"; "" of the last: all others */
        size_t n;
    } left_out[MAX_KINDS];
};

/* The state of listing one class. */
struct scan {
    struct folder *folder;
    uint64_t *hash;
    char path[DT_PATH_MAX]; /* of the folder that is being listed */
    int dir;
    struct dt_names folders; /* relative to the class folder, which is "", and sorted by bytes */
    size_t at, next;         /* the one that is being listed; the place of those found in it */
};

/* --- Files that are not images --- */

static void leave_out(struct folder *folder, const char *name)
{
    const char *dot = strrchr(name, '.');
    char suffix[SUFFIX_BYTES] = "";
    struct left_out *kind = folder->left_out;
    if (dot && strlen(dot) < sizeof suffix)
        for (size_t i = 0; dot[i]; i++)
            suffix[i] = (char)tolower((unsigned char)dot[i]);
    while (kind < &folder->left_out[MAX_KINDS - 1] && kind->n > 0 &&
           strcmp(kind->suffix, suffix) != 0)
        kind++;
    if (kind < &folder->left_out[MAX_KINDS - 1])
        memcpy(kind->suffix, suffix, sizeof suffix);
    kind->n++;
}

static const char *const other_images[] = {".heic", ".heif", ".avif"};

static void tell_left_out(const struct folder *folder)
{
    char list[MAX_KINDS * 80] = "";
    struct dt_text text = dt_text_in(list, sizeof list);
    bool has_images = false;
    for (const struct left_out *kind = folder->left_out; kind < &folder->left_out[MAX_KINDS];
         kind++) {
        for (size_t i = 0; i < DT_COUNT(other_images); i++)
            has_images = has_images || strcmp(kind->suffix, other_images[i]) == 0;
        const char *library = dt_suffix_needs(kind->suffix + (kind->suffix[0] == '.'));
        has_images = has_images || library;
        if (kind->n > 0)
            dt_text_add(&text, "%s%zu %s%s%s%s", text.used ? ", " : "", kind->n,
                        kind->suffix[0] ? kind->suffix : "other",
                        library ? " (dtrain was built without the package " : "",
                        library ? library : "", library ? ")" : "");
    }
    if (text.used)
        dt_log(DT_LOG_NOTICE, "skipped under %s, by suffix: %s%s", folder->root, list,
               has_images ? "; to use the images, convert them: mogrify -format jpg FILE..." : "");
}

/* --- Listing --- */

static dt_status find_classes(struct folder *folder)
{
    dt_status status = DT_OK;
    struct dt_names entries = {0};
    char path[DT_PATH_MAX];
    struct stat info;
    DT_TRY_OUT(dt_names_list(&entries, folder->root));
    for (size_t i = 0; i < entries.n; i++) {
        const char *name = dt_names_get(&entries, i);
        DT_TRY_OUT(dt_file_path(path, "%s/%s", folder->root, name));
        if (stat(path, &info))
            DT_TRY_OUT(
                DT_ERROR(dt_file_input_status(errno), "cannot stat %s: %s", path, strerror(errno)));
        if (S_ISDIR(info.st_mode))
            DT_TRY_OUT(dt_names_add(&folder->classes, name, strlen(name)));
        folder->n_loose += !S_ISDIR(info.st_mode) && dt_files_is_image(name);
    }
out:
    dt_names_reset(&entries);
    return status;
}

static dt_status add_folder(struct scan *scan, const char *name, const char *below,
                            const struct stat *info)
{
    char above[DT_PATH_MAX];
    struct stat other;
    /* Following a link to a folder above it would never end. */
    memcpy(above, scan->path, sizeof above);
    for (char *end = above + strlen(above); end && end >= above + strlen(scan->folder->root);
         end = strrchr(above, '/')) {
        *end = '\0';
        if (!stat(above, &other) && other.st_dev == info->st_dev && other.st_ino == info->st_ino)
            DT_FAIL(DT_ERR_DATA, "%s/%s leads back to %s, so listing it would never end; remove it",
                    scan->path, name, above);
    }
    while (scan->next < scan->folders.n &&
           strcmp(dt_names_get(&scan->folders, scan->next), below) < 0)
        scan->next++;
    return dt_names_insert(&scan->folders, scan->next, below, strlen(below));
}

static dt_status add_entry(struct scan *scan, const char *name)
{
    struct folder *folder = scan->folder;
    const char *above = dt_names_get(&scan->folders, scan->at);
    char below[DT_PATH_MAX];
    struct stat info;
    const int error = fstatat(scan->dir, name, &info, 0) ? errno : 0;
    DT_TRY(dt_file_path(below, "%s%s%s", above, above[0] ? "/" : "", name));
    if (!error && S_ISDIR(info.st_mode))
        return add_folder(scan, name, below, &info);
    if (!dt_files_is_image(name)) {
        leave_out(folder, name);
        return DT_OK;
    }
    if (error)
        DT_FAIL(dt_file_input_status(error), "cannot stat %s/%s: %s", scan->path, name,
                strerror(error));
    if (!S_ISREG(info.st_mode))
        DT_FAIL(DT_ERR_DATA, "%s/%s has the name of an image but is not a regular file", scan->path,
                name);
    if (folder->files.n >= DT_MAX_SAMPLES)
        DT_FAIL(DT_ERR_DATA, "folder %s holds more than %d images", folder->root, DT_MAX_SAMPLES);
    const uint64_t size = (uint64_t)info.st_size;
    *scan->hash = XXH64(below, strlen(below), *scan->hash);
    *scan->hash = XXH64(&size, sizeof size, *scan->hash);
    return dt_names_add(&folder->files, below, strlen(below));
}

static dt_status list_folder(struct scan *scan, const char *class)
{
    dt_status status = DT_OK;
    struct dt_names entries = {0};
    const char *below = dt_names_get(&scan->folders, scan->at);
    scan->dir = -1;
    DT_TRY(dt_file_path(scan->path, "%s/%s%s%s", scan->folder->root, class, below[0] ? "/" : "",
                        below));
    DT_TRY_OUT(dt_names_list(&entries, scan->path));
    scan->dir = open(scan->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (scan->dir < 0)
        DT_TRY_OUT(DT_ERROR(dt_file_input_status(errno), "cannot open folder %s: %s", scan->path,
                            strerror(errno)));
    scan->next = scan->at + 1;
    for (size_t i = 0; i < entries.n; i++) {
        DT_TRY_OUT(add_entry(scan, dt_names_get(&entries, i)));
        dt_pulse_beat(&dt_pulse_main);
    }
out:
    if (scan->dir >= 0)
        close(scan->dir);
    dt_names_reset(&entries);
    return status;
}

static dt_status scan_class(struct folder *folder, uint64_t *hash, size_t label)
{
    dt_status status = DT_OK;
    struct scan scan = {.folder = folder, .hash = hash};
    const char *class = dt_names_get(&folder->classes, label);
    *hash = XXH64(class, strlen(class), *hash);
    DT_TRY_OUT(dt_names_add(&scan.folders, "", 0));
    for (; scan.at < scan.folders.n; scan.at++)
        DT_TRY_OUT(list_folder(&scan, class));
    folder->first[label + 1] = (uint32_t)folder->files.n;
out:
    dt_names_reset(&scan.folders);
    return status;
}

/* A folder without images is no class. */
static void leave_out_class(struct folder *folder, size_t label)
{
    dt_log(DT_LOG_NOTICE, "folder %s/%s holds no images, so it is no class", folder->root,
           dt_names_get(&folder->classes, label));
    dt_names_remove(&folder->classes, label);
}

/* Says what the folder is, if not one of class folders. */
static dt_status refuse_root(const struct folder *folder)
{
    if (dt_shards_found(folder->root))
        DT_FAIL(DT_ERR_DATA, "folder %s holds shards, not class folders: set data.source=shards",
                folder->root);
    if (folder->n_loose > 0)
        DT_FAIL(DT_ERR_DATA,
                "folder %s holds %zu images, but no class folders: move the images of each class "
                "into a folder of its own, or list them with their labels in a CSV file",
                folder->root, folder->n_loose);
    DT_FAIL(DT_ERR_DATA, "folder %s holds no class folders with images", folder->root);
}

/* Since folders may be nested, the folder above train/ and val/ looks like two classes. */
static dt_status check_splits(const struct folder *folder)
{
    static const char *const others[] = {"val", "valid", "validation", "test"};
    const bool has_train = dt_classes_find(&folder->classes, "train") >= 0;
    for (size_t i = 0; has_train && i < DT_COUNT(others); i++)
        if (dt_classes_find(&folder->classes, others[i]) >= 0)
            DT_FAIL(DT_ERR_DATA,
                    "folder %s holds train and %s, which are no classes: set data.train=%s/train "
                    "and data.val=%s/%s",
                    folder->root, others[i], folder->root, folder->root, others[i]);
    return DT_OK;
}

static dt_status open_folder(struct dt_dataset *dataset, const struct dt_dataset_options *options)
{
    struct folder *folder;
    const double start_s = dt_clock_s();
    DT_TRY(DT_NEW(folder, 1));
    dataset->state = folder;
    dataset->classes = &folder->classes;
    DT_TRY(dt_file_path(folder->root, "%s", options->path));
    DT_TRY(find_classes(folder));
    if (folder->classes.n == 0)
        return refuse_root(folder);
    DT_TRY(check_splits(folder));
    DT_TRY(DT_NEW(folder->first, folder->classes.n + 1));
    for (size_t label = 0; label < folder->classes.n;) {
        DT_TRY(scan_class(folder, &dataset->fingerprint, label));
        if (folder->first[label + 1] > folder->first[label])
            label++;
        else
            leave_out_class(folder, label);
        dt_log_progress_of("listing", label, folder->classes.n, "classes", start_s);
    }
    dt_log_progress("");
    tell_left_out(folder);
    dataset->n = dataset->n_files = (uint32_t)folder->files.n;
    dataset->n_classes = (int)folder->classes.n;
    return folder->classes.n > 0 ? DT_OK : refuse_root(folder);
}

static dt_status share_folder(struct dt_block *block, struct dt_dataset *dataset)
{
    struct folder *folder = dataset->state;
    dataset->classes = &folder->classes;
    DT_BLOCK_VALUE(block, folder->root);
    dt_block_names(block, &folder->classes);
    dt_block_names(block, &folder->files);
    DT_BLOCK_ARRAY(block, folder->first, folder->classes.n + 1);
    return DT_OK;
}

static void close_folder(struct dt_dataset *dataset)
{
    struct folder *folder = dataset->state;
    dt_names_reset(&folder->classes);
    dt_names_reset(&folder->files);
    free(folder->first);
    free(folder);
}

static int label_folder(const struct dt_dataset *dataset, uint32_t id)
{
    const struct folder *folder = dataset->state;
    return (int)dt_find_last(folder->first, folder->classes.n, id);
}

static void name_folder(const struct dt_dataset *dataset, uint32_t id, char *out, size_t bytes)
{
    const struct folder *folder = dataset->state;
    snprintf(out, bytes, "%s/%s/%s", folder->root,
             dt_names_get(&folder->classes, (size_t)label_folder(dataset, id)),
             dt_names_get(&folder->files, id));
}

static uint64_t key_folder(const struct dt_dataset *dataset, uint32_t id, uint64_t seed)
{
    const struct folder *folder = dataset->state;
    const char *class = dt_names_get(&folder->classes, (size_t)label_folder(dataset, id));
    const char *file = dt_names_get(&folder->files, id);
    return XXH64(file, strlen(file), XXH64(class, strlen(class), seed));
}

const struct dt_dataset_kind dt_dataset_folder = {
    .recognises = dt_file_is_folder,
    .open = open_folder,
    .read = dt_files_read,
    .label = label_folder,
    .name = name_folder,
    .file = name_folder,
    .key = key_folder,
    .forget = dt_files_forget,
    .share = share_folder,
    .state_bytes = sizeof(struct folder),
    .close = close_folder,
};
