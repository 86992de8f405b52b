#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include "launch/launcher.h"

enum { SLOTS_MAX = 65536, TEXT_MAX = 1 << 20 };
static const char name_characters[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._@+";

/* --- Which --- */

static dt_status add_host(struct dt_launch_hosts *out, const char *name, size_t bytes, int slots)
{
    for (int i = 0; i < out->n; i++)
        if (strlen(out->list[i].name) == bytes && memcmp(out->list[i].name, name, bytes) == 0) {
            out->list[i].slots += slots;
            return DT_OK;
        }
    struct dt_launch_host *list = realloc(out->list, ((size_t)out->n + 1) * sizeof *list);
    if (!list)
        DT_FAIL(DT_ERR_MEMORY, "out of memory for the hosts");
    out->list = list;
    list[out->n] = (struct dt_launch_host){.slots = slots};
    snprintf(list[out->n++].name, sizeof list->name, "%.*s", (int)bytes, name);
    return DT_OK;
}

/* One entry, which is changed: "a", "a:8", "a slots=8 max_slots=8", "a slots = 8". */
static dt_status take_entry(struct dt_launch_hosts *out, char *entry, const char *source)
{
    entry[strcspn(entry, "#")] = '\0';
    for (size_t n = strlen(entry); n > 0 && strchr(" \t\r", entry[n - 1]);)
        entry[--n] = '\0';
    entry += strspn(entry, " \t");
    const size_t bytes = strcspn(entry, " \t:");
    const char *rest = entry + bytes + strspn(entry + bytes, " \t:");
    char *end = NULL;
    long slots = 1;
    if (bytes == 0 && !*rest)
        return DT_OK;
    const bool has_word = strncasecmp(rest, "slots", 5) == 0;
    if (has_word)
        rest += 5 + strspn(rest + 5, " \t=");
    if (*rest || has_word)
        slots = strtol(rest, &end, 10);
    /* The name becomes a word of ssh's and of the launcher's command line. */
    if (bytes == 0 || bytes >= DT_HOST_MAX || entry[0] == '-' || slots < 1 || slots > SLOTS_MAX ||
        strspn(entry, name_characters) < bytes || (end && (end == rest || !strchr(" \t", *end))))
        DT_FAIL(DT_ERR_USAGE, "%s: \"%s\" is not a host such as node1, node1:8 or node1 slots=8",
                source, entry);
    return add_host(out, entry, bytes, (int)slots);
}

/* Lines of a file have numbers, and may follow a byte order mark. */
static dt_status take_all(struct dt_launch_hosts *out, char *text, const char *separators,
                          const char *source)
{
    char place[DT_PATH_MAX];
    int n = 0;
    text += strncmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    for (char *entry; (entry = strsep(&text, separators));) {
        snprintf(place, sizeof place, "%s:%d", source, ++n);
        DT_TRY(take_entry(out, entry, *separators == '\n' ? place : source));
    }
    if (out->n == 0)
        DT_FAIL(DT_ERR_USAGE, "%s names no host", source);
    return DT_OK;
}

/* "8(x3),4" are the slots of four hosts. */
static void take_slots(struct dt_launch_hosts *out, const char *text)
{
    for (int i = 0; i < out->n && isdigit((unsigned char)*text);) {
        char *end;
        const long slots = strtol(text, &end, 10);
        const long n = strncmp(end, "(x", 2) == 0 ? strtol(end + 2, NULL, 10) : 1;
        for (long k = 0; k < n && i < out->n && slots > 0 && slots <= SLOTS_MAX; k++)
            out->list[i++].slots = (int)slots;
        text = end + strcspn(end, ",");
        text += *text == ',';
    }
}

/* The nodes of the job of Slurm; none if it does not say. */
static dt_status ask_slurm(struct dt_launch_hosts *out)
{
    static const double patience_s = 30;
    const char *slots = getenv("SLURM_TASKS_PER_NODE");
    struct dt_words words = {0};
    char *text = NULL;
    dt_status status = dt_words_split(&words, "scontrol show hostnames");
    if (status == DT_OK)
        status = DT_NEW(text, TEXT_MAX);
    if (status == DT_OK && dt_process_ask(text, TEXT_MAX, &words, patience_s) == 0 && text[0]) {
        status = take_all(out, text, "\n", "scontrol");
        take_slots(out, slots ? slots : "");
    }
    dt_words_reset(&words);
    free(text);
    return status;
}

dt_status dt_launch_hosts_find(struct dt_launch_hosts *out, const char *hosts, const char *hostfile)
{
    static const char *const files[] = {"PBS_NODEFILE", "LSB_DJOB_HOSTFILE",
                                        "OMPI_MCA_orte_default_hostfile"};
    char *text = NULL;
    size_t bytes;
    *out = (struct dt_launch_hosts){0};
    for (size_t i = 0; i < DT_COUNT(files) && !hosts && !(hostfile && hostfile[0]); i++)
        hostfile = getenv(files[i]);
    if (!hosts && !(hostfile && hostfile[0]))
        return getenv("SLURM_JOB_NODELIST") ? ask_slurm(out) : DT_OK;
    if (hosts && !(text = strdup(hosts)))
        DT_FAIL(DT_ERR_MEMORY, "out of memory for the hosts");
    if (!hosts)
        DT_TRY(dt_file_load(&text, &bytes, hostfile, TEXT_MAX));
    dt_status status = take_all(out, text, hosts ? "," : "\n", hosts ? "--hosts" : hostfile);
    free(text);
    return status;
}

int dt_launch_slots(const struct dt_launch_hosts *hosts)
{
    int n = 0;
    for (int i = 0; i < hosts->n; i++)
        n += hosts->list[i].is_gone ? 0 : hosts->list[i].slots;
    return n;
}

/* --- Which answer --- */

static bool is_here(const char *name)
{
    char own[DT_HOST_MAX];
    dt_host_name(own);
    const size_t bytes = strcspn(own, ".");
    return strcmp(name, "localhost") == 0 ||
           (strncmp(name, own, bytes) == 0 && (name[bytes] == '\0' || name[bytes] == '.'));
}

/* Runs `script` there, or here if name is NULL. */
static pid_t start_shell(const char *name, const char *script)
{
    const char *agent = getenv("OMPI_MCA_plm_rsh_agent");
    const bool is_slurm = getenv("SLURM_JOB_ID") != NULL;
    if (is_slurm)
        agent = "srun --overlap --immediate=8 --mpi=none --cpu-bind=none -N1 -n1 -w";
    else if (!agent || !agent[0] || strcmp(agent, "ssh") == 0)
        agent = "ssh -o BatchMode=yes -o ConnectTimeout=5";
    struct dt_words words = {0};
    pid_t pid = -1;
    dt_status status = name ? dt_words_split(&words, agent) : DT_OK;
    if (status == DT_OK && name)
        status = dt_words_add(&words, "%s", name);
    if (status == DT_OK && (is_slurm || !name))
        status = dt_words_split(&words, "sh -c");
    if (status == DT_OK) /* ssh gives it to another shell, which may be csh */
        status = dt_words_add(&words, is_slurm || !name ? "%s" : "sh -c '%s'", script);
    if (status == DT_OK)
        status = dt_process_start(&pid, &words, DT_PROCESS_CLEANER, -1);
    dt_words_reset(&words);
    return status == DT_OK ? pid : -1;
}

/* Whether it ended well in time. */
static bool has_worked(pid_t pid, double until_s)
{
    int code = 1;
    if (pid < 0)
        return false;
    const bool in_time = dt_process_has_ended(pid, until_s, &code);
    if (!in_time)
        dt_process_end(pid);
    return in_time && code == 0;
}

/* Kills the processes of a start. Then removes memory that Open MPI's ranks left when they were
 * killed: of this user, at least 12 s old, and no process has it open or, looked at later, mapped.
 * No quotes and no exclamation marks, for csh. */
static const char cleaning[] =
    "for f in /proc/[0-9]*/environ; do if grep -qzx DTRAIN_LAUNCH=%s $f; then "
    "f=${f%%/*}; kill -9 ${f##*/}; fi; done 2> /dev/null; "
    "s=$(find /dev/shm/vader_segment.* /dev/shm/sm_segment.* -user $(id -u) -mmin +0.2); "
    "test \"$s\" && u=$( (ls -l /proc/[0-9]*/fd; cat /proc/[0-9]*/maps) | grep /dev/shm/); "
    "for f in $s; do case \"$u\" in *$f*) ;; *) rm -f $f ;; esac; done; true";

void dt_launch_hosts_clean(struct dt_launch_hosts *hosts, const char *id, char *silent, int bytes)
{
    static const double patience_s = 10;
    struct dt_text names = dt_text_in(silent, (size_t)bytes);
    char script[sizeof cleaning + 32];
    pid_t *pids = malloc(((size_t)hosts->n + 1) * sizeof *pids);
    if (id)
        snprintf(script, sizeof script, cleaning, id);
    else
        snprintf(script, sizeof script, "true");
    silent[0] = '\0';
    if (!pids)
        return;
    for (int i = 0; i <= hosts->n; i++) { /* the last is this machine */
        const char *name = i < hosts->n ? hosts->list[i].name : NULL;
        pids[i] = start_shell(name && is_here(name) ? NULL : name, script);
    }
    const double until_s = dt_clock_s() + patience_s;
    for (int i = 0; i <= hosts->n; i++) {
        const bool answers = has_worked(pids[i], until_s);
        if (i == hosts->n)
            break;
        struct dt_launch_host *host = &hosts->list[i];
        host->is_gone = !answers && (host->answers || host->is_gone);
        host->answers = answers;
        if (!answers)
            dt_text_add(&names, "%s%s", names.used ? ", " : "", host->name);
    }
    free(pids);
}
