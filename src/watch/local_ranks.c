/* /proc, and what launchers write where it can be seen. */
#include "watch/diagnosis.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"

static FILE *open_proc(const char *pid, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%.16s/%s", pid, name);
    return fopen(path, "re");
}

/* Fields 3, 4 and 22 of its stat: state, parent and start time. */
static bool read_stat(const char *pid, char *state, int *parent, unsigned long long *begin)
{
    char line[1024] = "";
    FILE *file = open_proc(pid, "stat");
    if (!file)
        return false;
    const char *at = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
    fclose(file);
    return at && sscanf(at + 1,
                        " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
                        "%*d %llu",
                        state, parent, begin) == 3;
}

/* -1 if it has none. */
static int read_rank(const char *pid, const char *variable)
{
    char *entry = NULL;
    size_t capacity = 0, n = strlen(variable);
    int rank = -1;
    FILE *file = open_proc(pid, "environ");
    while (rank < 0 && file && getdelim(&entry, &capacity, '\0', file) > 0)
        if (strncmp(entry, variable, n) == 0 && entry[n] == '=')
            rank = (int)strtol(entry + n + 1, NULL, 10);
    free(entry);
    if (file)
        fclose(file);
    return rank;
}

/* Calls `see` for every living process of the same parent. */
static void visit(void (*see)(void *context, const char *pid, char state), void *context)
{
    DIR *folder = opendir("/proc");
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        unsigned long long begin;
        char state;
        int parent;
        if (isdigit((unsigned char)entry->d_name[0]) &&
            read_stat(entry->d_name, &state, &parent, &begin) && parent == (int)getppid() &&
            state != 'Z')
            see(context, entry->d_name, state);
    }
    if (folder)
        closedir(folder);
}

struct search {
    struct dt_local_rank *by_rank;
    int n_ranks;
    const char *variable;
};

static void take_rank(void *context, const char *pid, char state)
{
    const struct search *s = context;
    int rank = read_rank(pid, s->variable);
    if (rank >= 0 && rank < s->n_ranks)
        s->by_rank[rank] = (struct dt_local_rank){(int32_t)strtol(pid, NULL, 10), state};
}

void dt_local_ranks_find(struct dt_local_rank *by_rank, int n_ranks, const char *variable)
{
    struct search search = {by_rank, n_ranks, variable};
    memset(by_rank, 0, (size_t)n_ranks * sizeof *by_rank);
    if (variable[0])
        visit(take_rank, &search);
}

/* --- Nodes --- */

struct nodes {
    struct dt_text text;
    const char *own;
};

static void add_node(struct nodes *nodes, const char *name)
{
    size_t n = strcspn(name, ".");
    if (n == strcspn(nodes->own, ".") && strncmp(name, nodes->own, n) == 0)
        return;
    dt_text_add_whole(&nodes->text, "%s%s", nodes->text.used ? " or " : "", name);
}

/* "1-3,7]...": prefix and suffix are those of every name. Returns what follows the suffix. */
static const char *add_range(struct nodes *nodes, int prefix_bytes, const char *prefix,
                             const char *at)
{
    const char *suffix = at + strcspn(at, "]");
    suffix += *suffix == ']';
    int suffix_bytes = (int)strcspn(suffix, ",@"), width = 0;
    if (at[strspn(at, "0123456789")] == ':') {
        width = (int)strtol(at, (char **)&at, 10);
        at++;
    }
    for (bool more = true; more; at++) {
        char *end, name[128];
        unsigned long first = strtoul(at, &end, 10), last = first;
        int digits = width ? width : (int)(end - at);
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        for (unsigned long i = first; i <= last && i - first < 64; i++) {
            snprintf(name, sizeof name, "%.*s%0*lu%.*s", prefix_bytes, prefix, digits, i,
                     suffix_bytes, suffix);
            add_node(nodes, name);
        }
        at = end;
        more = *at == ',';
    }
    return suffix + suffix_bytes;
}

void dt_local_ranks_expand(char *out, size_t bytes, const char *list, const char *own)
{
    struct nodes nodes = {dt_text_in(out, bytes), own};
    while (*list && *list != '@') {
        int n = (int)strcspn(list, "[,@");
        char name[128];
        snprintf(name, sizeof name, "%.*s", n, list);
        if (list[n] == '[')
            list = add_range(&nodes, n, list, list + n + 1);
        else {
            add_node(&nodes, name);
            list += n;
        }
        list += *list == ',';
    }
}

/* mpirun gives its daemons the list of nodes, but not to the ranks of its own node. */
static void find_list(void *context, const char *pid, char state)
{
    static const char option[] = "orte_node_regex";
    char text[4096], *list = context;
    FILE *file = open_proc(pid, "cmdline");
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    (void)state;
    text[n] = '\0';
    for (size_t i = 0; i < n; i++)
        if (strchr(" \"", text[i]) || !text[i])
            text[i] = '\n';
    char *at = strstr(text, option);
    if (at)
        sscanf(at + sizeof option, " %1023s", list);
    if (file)
        fclose(file);
}

void dt_local_ranks_nodes(char *out, size_t bytes, const char *own)
{
    static const char *const names[] = {"OMPI_MCA_orte_node_regex", "SLURM_STEP_NODELIST",
                                        "SLURM_JOB_NODELIST"};
    char list[1024] = "";
    for (size_t i = 0; i < DT_COUNT(names) && !list[0]; i++)
        snprintf(list, sizeof list, "%s", getenv(names[i]) ? getenv(names[i]) : "");
    if (!list[0])
        visit(find_list, list);
    dt_local_ranks_expand(out, bytes, list, own);
}

/* Others can guess the name, so a file of theirs is not used, and nobody may write to this one. */
dt_status dt_local_ranks_path(char *out, int i, const char *name)
{
    const char *dir = getenv("PMIX_SERVER_TMPDIR"), *job = getenv("PMIX_NAMESPACE");
    char parent[16], state;
    unsigned long long begin;
    int unused;
    struct stat info;
    snprintf(parent, sizeof parent, "%d", (int)getppid());
    if (i == 0 && dir && job)
        DT_TRY(dt_file_path(out, "%s/dtrain-%s.%s", dir, job, name));
    else if (i > 0 && read_stat(parent, &state, &unused, &begin))
        DT_TRY(dt_file_path(out, "/dev/shm/dtrain-%s-%llu.%s", parent, begin, name));
    else
        DT_FAIL(DT_ERR_NO_INPUT, "nothing identifies the launcher");
    int fd = open(out, O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    bool is_own = fd >= 0 && fstat(fd, &info) == 0 && info.st_uid == geteuid();
    if (fd >= 0)
        close(fd);
    if (!is_own)
        DT_FAIL(DT_ERR_PERMISSION, "cannot use %s", out);
    return DT_OK;
}
