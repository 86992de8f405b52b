/* A preloaded library that simulates power loss for one process: at the N-th call that changes
 * files below a folder, it puts the folder into a state that a disk could have after power loss,
 * and kills the process with SIGKILL.
 *
 *   LD_PRELOAD=.../power_loss.so POWER_LOSS_DIR=work POWER_LOSS_AT=17 dtrain --out work/run ...
 *
 *   POWER_LOSS_DIR      the folder; must exist, must not be a mount point, and is changed by this
 *                       process only (in an MPI job by rank 0: other ranks are not affected)
 *   POWER_LOSS_AT       lose power instead of the N-th counted call, from 1; absent: never
 *   POWER_LOSS_MODE     "all" (default): only synced changes survive;
 *                       "some": a random part of the unsynced changes survives, too
 *   POWER_LOSS_SEED     seed for that part, default 1
 *   POWER_LOSS_IGNORE   file names, separated by colons, whose calls are not counted, because they
 *                       occur at random times (heartbeat.bin:metrics.jsonl)
 *   POWER_LOSS_REPORT   file for one line: "calls 123" if the process ends by itself, else
 *                       "lost at call 17: rename step-000000010, 3 of 5 changes of names dropped"
 *
 * The model. The contents of the folder when the process first changes it are on disk. Data of a
 * file is on disk after fsync or fdatasync of the file. A change of names (create, link, rename,
 * unlink, mkdir, rmdir) is on disk after fsync of its folder, together with earlier changes of the
 * same names; a rename survives completely or not at all. Syncing a file does not make its name
 * durable, nor does a rename make the data durable. With "some", each unsynced change of names
 * survives with probability 1/2, in any order except for changes of the same name; an unsynced file
 * has its durable content, or the newest, or the newest truncated at a random length, or a mixture
 * of both by pages of 4 KiB (zeros where nothing was durable).
 *
 * Not intercepted: stdio, mmap, io_uring, writev, truncate by path. Files they create are lost, and
 * changes by mmap survive. The old content is kept as hard links in the folder
 * POWER_LOSS_DIR.power-loss-PID, which is removed at exit and remains only after a foreign SIGKILL.
 * Programs built with sanitizers do not start with this library.
 *
 * System calls are made directly, so that this file does not intercept its own calls. */
#undef _FORTIFY_SOURCE /* it would redefine some of the functions below */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NAME_BYTES = 256, PAGE = 4096, MAX_NODES = 65536, MAX_CHANGES = 65536 };

/* A file or folder. The files have a hard link with their number in the shadow folder. */
struct node {
    ino_t inode; /* 0 = a folder that was removed */
    bool is_dir;
    char name[NAME_BYTES]; /* the latest name, for messages */
    /* Files only: which part is on disk. */
    bool dirty, has_copy; /* has_copy: the file <number>.copy has the durable content */
    off_t durable_bytes;
};

/* From now on (folder, name) is `node`, or does not exist. */
struct change {
    int dir, node; /* node -1 = nothing */
    char name[NAME_BYTES];
};

/* Changes of names that survive together. */
struct operation {
    int n;
    struct change change[2];
    bool marked;
};

static struct {
    pthread_mutex_t lock;
    bool enabled, ready, some;
    char root[PATH_MAX], shadow[PATH_MAX];
    dev_t device;
    pid_t pid;
    long at, n_calls;
    uint64_t random;
    const char *ignore, *report;
    struct node *nodes; /* node 0 is the folder itself */
    int n_nodes;
    struct change *durable; /* the names on disk */
    int n_durable;
    struct operation *pending;
    int n_pending;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void give_up(const char *what)
{
    fprintf(stderr, "power_loss: %s: %s\n", what, strerror(errno));
    abort();
}

static void must(long result, const char *what)
{
    if (result < 0)
        give_up(what);
}

static void shadow_path(char *out, int node, const char *ending)
{
    if (snprintf(out, PATH_MAX, "%s/%d%s", state.shadow, node, ending) >= PATH_MAX)
        give_up("path too long");
}

static void join(char *out, const char *dir, const char *name)
{
    if (snprintf(out, PATH_MAX, "%s/%s", dir, name) >= PATH_MAX)
        give_up("path too long");
}

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* --- The model --- */

static int find_node(ino_t inode)
{
    for (int i = 0; i < state.n_nodes; i++)
        if (state.nodes[i].inode == inode)
            return i;
    return -1;
}

static int add_node(const struct stat *info, const char *path, const char *name)
{
    char link[PATH_MAX];
    const int i = state.n_nodes++;
    if (i == MAX_NODES)
        give_up("too many files");
    struct node *node = &state.nodes[i];
    node->inode = info->st_ino;
    node->is_dir = S_ISDIR(info->st_mode);
    node->durable_bytes = info->st_size;
    snprintf(node->name, sizeof node->name, "%s", name);
    shadow_path(link, i, "");
    if (!node->is_dir)
        must(syscall(SYS_linkat, AT_FDCWD, path, AT_FDCWD, link, 0), "link into the shadow");
    return i;
}

static bool same_name(const struct change *a, const struct change *b)
{
    return a->dir == b->dir && strcmp(a->name, b->name) == 0;
}

static bool share_a_name(const struct operation *a, const struct operation *b)
{
    for (int i = 0; i < a->n; i++)
        for (int j = 0; j < b->n; j++)
            if (same_name(&a->change[i], &b->change[j]))
                return true;
    return false;
}

static void set_durable(const struct change *change)
{
    int i = 0;
    while (i < state.n_durable && !same_name(&state.durable[i], change))
        i++;
    if (i == MAX_CHANGES)
        give_up("too many names");
    if (i == state.n_durable)
        state.n_durable++;
    state.durable[i] = *change;
    if (change->node < 0)
        state.durable[i] = state.durable[--state.n_durable];
}

static struct change make_change(int dir, const char *name, int node)
{
    struct change change = {.dir = dir, .node = node};
    snprintf(change.name, sizeof change.name, "%s", name);
    return change;
}

static void add_operation(int n, struct change first, struct change second)
{
    if (state.n_pending == MAX_CHANGES)
        give_up("too many changes");
    state.pending[state.n_pending++] = (struct operation){.n = n, .change = {first, second}};
}

static void add_change(int dir, const char *name, int node)
{
    add_operation(1, make_change(dir, name, node), (struct change){0});
}

/* The folder was synced: its changes are on disk, as are those that they depend on. */
static void commit(int dir)
{
    int kept = 0;
    for (int i = state.n_pending - 1; i >= 0; i--) {
        struct operation *op = &state.pending[i];
        op->marked = op->change[0].dir == dir || (op->n == 2 && op->change[1].dir == dir);
        for (int later = i + 1; later < state.n_pending && !op->marked; later++)
            op->marked = state.pending[later].marked && share_a_name(op, &state.pending[later]);
    }
    for (int i = 0; i < state.n_pending; i++) {
        for (int k = 0; k < state.pending[i].n && state.pending[i].marked; k++)
            set_durable(&state.pending[i].change[k]);
        if (!state.pending[i].marked)
            state.pending[kept++] = state.pending[i];
    }
    state.n_pending = kept;
}

/* --- Data of files --- */

static void copy_range(int to, int from, off_t offset, off_t end)
{
    static char block[1 << 16];
    while (offset < end) {
        const size_t rest = (size_t)(end - offset);
        const ssize_t n = pread(from, block, rest < sizeof block ? rest : sizeof block, offset);
        must(n, "read");
        if (n == 0)
            return;
        must(syscall(SYS_pwrite64, to, block, (size_t)n, offset), "write");
        offset += n;
    }
}

static int open_shadow(int node, const char *ending, int flags)
{
    char path[PATH_MAX];
    shadow_path(path, node, ending);
    const int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0666);
    must(fd, path);
    return fd;
}

/* Called before data from `offset` on changes: saves the durable content. */
static void will_change(int i, off_t offset)
{
    struct node *node = &state.nodes[i];
    if (!node->has_copy && offset < node->durable_bytes) {
        const int from = open_shadow(i, "", O_RDONLY);
        const int to = open_shadow(i, ".copy", O_WRONLY | O_CREAT | O_TRUNC);
        copy_range(to, from, 0, node->durable_bytes);
        syscall(SYS_close, to);
        syscall(SYS_close, from);
        node->has_copy = true;
    }
    node->dirty = true;
}

static void was_synced(int i, off_t bytes)
{
    struct node *node = &state.nodes[i];
    char path[PATH_MAX];
    shadow_path(path, i, ".copy");
    if (node->has_copy)
        syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    node->has_copy = node->dirty = false;
    node->durable_bytes = bytes;
}

static uint64_t random_below(uint64_t n)
{
    uint64_t x = state.random += 0x9e3779b97f4a7c15u; /* splitmix64 */
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (x ^ x >> 31) % n;
}

/* Reverts a page to its durable content: from the copy if there is one, else it has not changed;
 * zeros beyond the durable length. */
static void revert_page(int fd, int copy, off_t page, off_t bytes, off_t durable_bytes)
{
    static const char zeros[PAGE];
    const off_t end = page + PAGE < bytes ? page + PAGE : bytes;
    off_t from = page < durable_bytes ? durable_bytes : page;
    if (from > end)
        from = end;
    if (copy >= 0)
        copy_range(fd, copy, page, from);
    if (from < end)
        must(syscall(SYS_pwrite64, fd, zeros, (size_t)(end - from), from), "write");
}

static void cut(int fd, off_t bytes)
{
    must(syscall(SYS_ftruncate, fd, bytes), "truncate");
}

/* Turns the file into what a disk would hold. */
static void lose_data(int i)
{
    const struct node *node = &state.nodes[i];
    struct stat info;
    const int fd = open_shadow(i, "", O_RDWR);
    const int copy = node->has_copy ? open_shadow(i, ".copy", O_RDONLY) : -1;
    must(fstat(fd, &info), "fstat");
    const off_t bytes = info.st_size, kept = node->durable_bytes;
    switch (state.some ? random_below(4) : 0) {
    case 0:
        if (copy >= 0)
            copy_range(fd, copy, 0, kept);
        cut(fd, kept);
        break;
    case 1: /* written back by chance */
        break;
    case 2:
        if (bytes > kept)
            cut(fd, kept + (off_t)random_below((uint64_t)(bytes - kept) + 1));
        break;
    default:
        for (off_t page = 0; page < bytes; page += PAGE)
            if (random_below(2))
                revert_page(fd, copy, page, bytes, kept);
    }
    syscall(SYS_close, fd);
    if (copy >= 0)
        syscall(SYS_close, copy);
}

/* --- The loss --- */

static void build(int dir, const char *path)
{
    char to[PATH_MAX], from[PATH_MAX];
    must(syscall(SYS_mkdirat, AT_FDCWD, path, 0777), path);
    for (int i = 0; i < state.n_durable; i++) {
        const struct change *entry = &state.durable[i];
        if (entry->dir != dir)
            continue;
        join(to, path, entry->name);
        shadow_path(from, entry->node, "");
        if (state.nodes[entry->node].is_dir)
            build(entry->node, to);
        else
            must(syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0), to);
    }
}

static void remove_tree(const char *path)
{
    char inside[PATH_MAX];
    DIR *entries = opendir(path);
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        if (is_dots(entry->d_name))
            continue;
        join(inside, path, entry->d_name);
        if (syscall(SYS_unlinkat, AT_FDCWD, inside, 0) != 0)
            remove_tree(inside);
    }
    if (entries)
        closedir(entries);
    syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR);
}

__attribute__((format(printf, 1, 2))) static void report(const char *format, ...)
{
    char text[2 * NAME_BYTES];
    va_list args;
    if (!state.report)
        return;
    va_start(args, format);
    const int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const int fd = (int)syscall(SYS_openat, AT_FDCWD, state.report,
                                O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    must(fd, state.report);
    must(syscall(SYS_write, fd, text, (size_t)n), state.report);
    syscall(SYS_close, fd);
}

/* Drops some changes of names and makes the others durable; returns the number dropped. */
static int drop_names(void)
{
    int n_dropped = 0;
    for (int i = 0; i < state.n_pending; i++) {
        struct operation *op = &state.pending[i];
        op->marked = !state.some || random_below(2);
        for (int before = 0; before < i && !op->marked; before++)
            op->marked = state.pending[before].marked && share_a_name(op, &state.pending[before]);
        n_dropped += op->marked;
        for (int k = 0; k < op->n && !op->marked; k++)
            set_durable(&op->change[k]);
    }
    return n_dropped;
}

static void lose_power(const char *call, const char *name)
{
    char fresh[PATH_MAX], old[PATH_MAX];
    const int n_dropped = drop_names();
    for (int i = 0; i < state.n_nodes; i++)
        if (state.nodes[i].dirty)
            lose_data(i);
    join(fresh, state.shadow, "new");
    join(old, state.shadow, "old");
    build(0, fresh);
    must(syscall(SYS_renameat2, AT_FDCWD, state.root, AT_FDCWD, old, 0), state.root);
    must(syscall(SYS_renameat2, AT_FDCWD, fresh, AT_FDCWD, state.root, 0), fresh);
    report("lost at call %ld: %s %s, %d of %d changes of names dropped\n", state.n_calls, call,
           name, n_dropped, state.n_pending);
    remove_tree(state.shadow);
    for (;;)
        kill(getpid(), SIGKILL);
}

/* --- Start and end --- */

static void scan(int dir, const char *path)
{
    char inside[PATH_MAX];
    struct stat info;
    DIR *entries = opendir(path);
    if (!entries)
        give_up(path);
    for (struct dirent *entry; (entry = readdir(entries));) {
        if (is_dots(entry->d_name))
            continue;
        join(inside, path, entry->d_name);
        must(lstat(inside, &info), inside);
        const int node = add_node(&info, inside, entry->d_name);
        const struct change change = make_change(dir, entry->d_name, node);
        set_durable(&change);
        if (S_ISDIR(info.st_mode))
            scan(node, inside);
    }
    closedir(entries);
}

static void begin(void)
{
    struct stat info;
    state.ready = true;
    state.pid = getpid();
    state.nodes = calloc(MAX_NODES, sizeof *state.nodes);
    state.durable = calloc(MAX_CHANGES, sizeof *state.durable);
    state.pending = calloc(MAX_CHANGES, sizeof *state.pending);
    if (!state.nodes || !state.durable || !state.pending)
        give_up("memory");
    if (snprintf(state.shadow, sizeof state.shadow, "%s.power-loss-%ld", state.root,
                 (long)getpid()) >= (int)sizeof state.shadow)
        give_up("path too long");
    remove_tree(state.shadow);
    must(syscall(SYS_mkdirat, AT_FDCWD, state.shadow, 0777), state.shadow);
    must(stat(state.root, &info), state.root);
    add_node(&info, state.root, ".");
    scan(0, state.root);
}

__attribute__((constructor)) static void load(void)
{
    const char *dir = getenv("POWER_LOSS_DIR"), *at = getenv("POWER_LOSS_AT");
    const char *mode = getenv("POWER_LOSS_MODE"), *seed = getenv("POWER_LOSS_SEED");
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    struct stat info;
    if (!dir || (rank && strcmp(rank, "0") != 0))
        return;
    if (!realpath(dir, state.root) || stat(state.root, &info) != 0)
        give_up(dir);
    state.device = info.st_dev;
    state.at = at ? strtol(at, NULL, 10) : 0;
    state.some = mode && strcmp(mode, "some") == 0;
    if (mode && !state.some && strcmp(mode, "all") != 0)
        give_up("POWER_LOSS_MODE is neither all nor some");
    state.random = (seed ? strtoull(seed, NULL, 10) : 1) * 1000003 + (uint64_t)state.at;
    state.ignore = getenv("POWER_LOSS_IGNORE");
    state.report = getenv("POWER_LOSS_REPORT");
    state.enabled = true;
}

__attribute__((destructor)) static void unload(void)
{
    if (!state.ready || state.pid != getpid())
        return;
    report("calls %ld\n", state.n_calls);
    remove_tree(state.shadow);
    state.enabled = false;
}

/* --- Arguments of calls --- */

static bool is_below_root(const char *path)
{
    const size_t n = strlen(state.root);
    return strncmp(path, state.root, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* Number of the file or folder of a descriptor, -1 if it is not below our folder. */
static int node_of_fd(int fd)
{
    struct stat info;
    char link[64], path[PATH_MAX];
    if (!state.enabled || fstat(fd, &info) != 0 || info.st_dev != state.device ||
        (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)))
        return -1;
    if (!state.ready) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        const ssize_t n = readlink(link, path, sizeof path - 1);
        path[n > 0 ? n : 0] = '\0';
        if (!is_below_root(path))
            return -1;
        begin();
    }
    return find_node(info.st_ino);
}

struct place {
    int dir, node; /* node -1 = does not exist */
    char name[NAME_BYTES];
};

/* False if the parent folder of `path` is not ours. Does not follow a final link. */
static bool find_place(struct place *place, int at, const char *path)
{
    char parent[PATH_MAX], real[PATH_MAX];
    struct stat info;
    size_t n = strlen(path);
    if (!state.enabled || n == 0 || n >= sizeof parent)
        return false;
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t start = n;
    while (start > 0 && path[start - 1] != '/')
        start--;
    if (n - start >= NAME_BYTES)
        return false;
    snprintf(place->name, NAME_BYTES, "%.*s", (int)(n - start), path + start);
    snprintf(parent, sizeof parent, "%.*s", start ? (int)start : 1, start ? path : ".");
    if (fstatat(at, parent, &info, 0) != 0 || info.st_dev != state.device)
        return false;
    if (!state.ready) {
        char full[PATH_MAX + 32];
        snprintf(full, sizeof full, "/proc/self/fd/%d/%s", at, parent);
        if (!realpath(at == AT_FDCWD || parent[0] == '/' ? parent : full, real) ||
            !is_below_root(real))
            return false;
        begin();
    }
    place->dir = find_node(info.st_ino);
    if (place->dir < 0)
        return false;
    place->node = -1;
    if (fstatat(at, path, &info, AT_SYMLINK_NOFOLLOW) == 0) {
        place->node = find_node(info.st_ino);
        errno = ENOTSUP;
        if (place->node < 0)
            give_up("a file was created by a call that is not intercepted");
    }
    return true;
}

static bool is_ignored(const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = state.ignore; at && *at; at += strcspn(at, ":"), at += *at == ':')
        if (strcspn(at, ":") == n && strncmp(at, name, n) == 0)
            return true;
    return false;
}

static void count(const char *call, const char *name)
{
    if (!is_ignored(name) && ++state.n_calls == state.at)
        lose_power(call, name);
}

static void count_fd(const char *call, int node)
{
    if (node >= 0)
        count(call, state.nodes[node].name);
}

static void lock(void)
{
    pthread_mutex_lock(&state.lock);
}

/* The result of a system call; sets errno. */
static long unlock(long result, int error)
{
    pthread_mutex_unlock(&state.lock);
    errno = error;
    return result;
}

/* --- The calls, by their names in the C library --- */

static void was_created(const struct place *place, int at, const char *path)
{
    struct stat info;
    char full[PATH_MAX + 32];
    must(fstatat(at, path, &info, AT_SYMLINK_NOFOLLOW), path);
    snprintf(full, sizeof full, "/proc/self/fd/%d/%s", at, path);
    const int node = add_node(&info, at == AT_FDCWD || path[0] == '/' ? path : full, place->name);
    add_change(place->dir, place->name, node);
    state.nodes[node].durable_bytes = 0;
}

static int any_open(int at, const char *path, int flags, mode_t mode)
{
    struct place place;
    lock();
    const bool ours = (flags & (O_CREAT | O_TRUNC)) && find_place(&place, at, path);
    const bool creates = ours && place.node < 0 && (flags & O_CREAT);
    const bool cuts = ours && place.node >= 0 && (flags & O_TRUNC) && !(flags & O_EXCL) &&
                      !state.nodes[place.node].is_dir;
    if (creates || cuts)
        count(creates ? "create" : "truncate", place.name);
    if (cuts)
        will_change(place.node, 0);
    const int fd = (int)syscall(SYS_openat, at, path, flags, mode), error = errno;
    if (fd >= 0 && creates)
        was_created(&place, at, path);
    return (int)unlock(fd, error);
}

static mode_t mode_of(int flags, va_list args)
{
    const bool has_mode = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
    return has_mode ? va_arg(args, mode_t) : 0;
}

int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const mode_t mode = mode_of(flags, args);
    va_end(args);
    return any_open(AT_FDCWD, path, flags, mode);
}

int openat(int at, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const mode_t mode = mode_of(flags, args);
    va_end(args);
    return any_open(at, path, flags, mode);
}

/* With _FORTIFY_SOURCE. */
int __open_2(const char *path, int flags);
int __open_2(const char *path, int flags)
{
    return any_open(AT_FDCWD, path, flags, 0);
}

int __openat_2(int at, const char *path, int flags);
int __openat_2(int at, const char *path, int flags)
{
    return any_open(at, path, flags, 0);
}

int creat(const char *path, mode_t mode)
{
    return any_open(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode);
}

static ssize_t any_write(int fd, const void *data, size_t bytes, off_t offset)
{
    lock();
    const int node = node_of_fd(fd);
    count_fd("write", node);
    if (node >= 0) {
        struct stat info;
        const bool appends = offset < 0 && (fcntl(fd, F_GETFL) & O_APPEND);
        const off_t at = offset >= 0 ? offset : lseek(fd, 0, SEEK_CUR);
        must(fstat(fd, &info), "fstat");
        will_change(node, appends ? info.st_size : at);
    }
    const long n = offset < 0 ? syscall(SYS_write, fd, data, bytes)
                              : syscall(SYS_pwrite64, fd, data, bytes, offset);
    return unlock(n, errno);
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    return any_write(fd, data, bytes, -1);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    return any_write(fd, data, bytes, offset);
}

int ftruncate(int fd, off_t bytes)
{
    lock();
    const int node = node_of_fd(fd);
    count_fd("ftruncate", node);
    if (node >= 0)
        will_change(node, bytes);
    const long result = syscall(SYS_ftruncate, fd, bytes);
    return (int)unlock(result, errno);
}

static int any_sync(int fd, long number)
{
    lock();
    const int node = node_of_fd(fd);
    count_fd("fsync", node);
    const long result = syscall(number, fd);
    const int error = errno;
    struct stat info;
    if (node >= 0 && result == 0 && state.nodes[node].is_dir)
        commit(node);
    else if (node >= 0 && result == 0 && fstat(fd, &info) == 0)
        was_synced(node, info.st_size);
    return (int)unlock(result, error);
}

int fsync(int fd)
{
    return any_sync(fd, SYS_fsync);
}

int fdatasync(int fd)
{
    return any_sync(fd, SYS_fdatasync);
}

/* Closing changes nothing, but power may fail at that point. */
int close(int fd)
{
    lock();
    const int flags = state.ready ? fcntl(fd, F_GETFL) : -1;
    if (flags >= 0 && (flags & O_ACCMODE) != O_RDONLY)
        count_fd("close", node_of_fd(fd));
    const long result = syscall(SYS_close, fd);
    return (int)unlock(result, errno);
}

int renameat(int at1, const char *from, int at2, const char *to)
{
    struct place a, b;
    lock();
    const bool ours = find_place(&a, at1, from);
    if (ours != find_place(&b, at2, to)) {
        errno = EXDEV;
        give_up("a rename into the folder or out of it");
    }
    if (ours)
        count("rename", b.name);
    const long result = syscall(SYS_renameat2, at1, from, at2, to, 0);
    const int error = errno;
    if (ours && result == 0 && a.node != b.node) { /* names of the same file stay both */
        add_operation(2, make_change(a.dir, a.name, -1), make_change(b.dir, b.name, a.node));
        snprintf(state.nodes[a.node].name, NAME_BYTES, "%s", b.name);
        if (b.node >= 0 && state.nodes[b.node].is_dir)
            state.nodes[b.node].inode = 0;
    }
    return (int)unlock(result, error);
}

int rename(const char *from, const char *to)
{
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int unlinkat(int at, const char *path, int flags)
{
    struct place place;
    lock();
    const bool ours = find_place(&place, at, path);
    if (ours)
        count(flags & AT_REMOVEDIR ? "rmdir" : "unlink", place.name);
    const long result = syscall(SYS_unlinkat, at, path, flags);
    const int error = errno;
    if (ours && result == 0) {
        add_change(place.dir, place.name, -1);
        if (flags & AT_REMOVEDIR)
            state.nodes[place.node].inode = 0; /* a later file may reuse its inode number */
    }
    return (int)unlock(result, error);
}

int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}

int rmdir(const char *path)
{
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

/* A link to `target`, or a folder. */
static int make_link_or_folder(const char *target, int at, const char *path, mode_t mode)
{
    struct place place;
    lock();
    const bool ours = find_place(&place, at, path);
    if (ours)
        count(target ? "symlink" : "mkdir", place.name);
    const long result =
        target ? syscall(SYS_symlinkat, target, at, path) : syscall(SYS_mkdirat, at, path, mode);
    const int error = errno;
    if (ours && result == 0)
        was_created(&place, at, path);
    return (int)unlock(result, error);
}

int mkdirat(int at, const char *path, mode_t mode)
{
    return make_link_or_folder(NULL, at, path, mode);
}

int mkdir(const char *path, mode_t mode)
{
    return mkdirat(AT_FDCWD, path, mode);
}

int symlinkat(const char *target, int at, const char *path)
{
    return make_link_or_folder(target, at, path, 0);
}

int symlink(const char *target, const char *path)
{
    return symlinkat(target, AT_FDCWD, path);
}

int linkat(int at1, const char *from, int at2, const char *to, int flags)
{
    struct place a, b;
    lock();
    const bool ours = find_place(&a, at1, from) && find_place(&b, at2, to);
    if (ours)
        count("link", b.name);
    const long result = syscall(SYS_linkat, at1, from, at2, to, flags);
    const int error = errno;
    if (ours && result == 0)
        add_change(b.dir, b.name, a.node);
    return (int)unlock(result, error);
}

int link(const char *from, const char *to)
{
    return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

/* off_t and off64_t are the same type here. */
#define SAME_AS(name) __attribute__((alias(#name)))
int open64(const char *path, int flags, ...) SAME_AS(open);
int openat64(int at, const char *path, int flags, ...) SAME_AS(openat);
int __open64_2(const char *path, int flags) SAME_AS(__open_2);
int __openat64_2(int at, const char *path, int flags) SAME_AS(__openat_2);
int creat64(const char *path, mode_t mode) SAME_AS(creat);
ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t offset) SAME_AS(pwrite);
int ftruncate64(int fd, off64_t bytes) SAME_AS(ftruncate);
