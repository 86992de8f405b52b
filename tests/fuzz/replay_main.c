/* Runs a fuzz target without libFuzzer, so that hand-made cases, generated ones and the corpora are
 * part of the regular test suite and of its runs under sanitizers: replay_TARGET [FOLDER...] [-]
 *
 * "-" reads cases from standard input (cases.py writes them). Each is a line "BYTES<tab>EXPECTED
 * <tab>NAME" and its bytes. EXPECTED:
 *     any          nothing but what the target itself checks, as for the files of the folders
 *     ok, ok N     accepted, with N samples or tensors
 *     bad PATTERN  refused with one line of text; many PATTERN: with several lines
 * A pattern matches the beginning of the text, '*' in it any text, and '@' the path of the input.
 */
#include <dirent.h>
#include <sys/resource.h>
#include <time.h>

#include "fuzz.h"

/* Limits per input and for the process; sanitizers and slow machines need more than a plain build.
 */
enum { CPU_MS_MAX = 10000, RSS_KIB_MAX = 1 << 20 };

static int n_inputs, n_accepted, n_failed;
static double slowest_ms;

static double cpu_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static int matches(const char *text, const char *pattern)
{
    for (; *pattern; pattern++) {
        if (*pattern == '*') {
            while (!matches(text, pattern + 1))
                if (!*text++)
                    return 0;
            return 1;
        }
        const char *part = *pattern == '@' && fuzz_outcome.path ? fuzz_outcome.path : pattern;
        const size_t bytes = part == pattern ? 1 : strlen(part);
        if (strncmp(text, part, bytes) != 0)
            return 0;
        text += bytes;
    }
    return 1;
}

static int is_expected(const char *expected)
{
    const char *text = fuzz_outcome.refusal, *pattern = strchr(expected, ' ');
    if (strcmp(expected, "any") == 0)
        return 1;
    if (strncmp(expected, "ok", 2) == 0)
        return fuzz_outcome.is_settled && !text[0] &&
               (!pattern || strtoul(pattern, NULL, 10) == fuzz_outcome.n);
    FUZZ_CHECK(pattern && (expected[0] == 'b' || expected[0] == 'm'));
    return text[0] && matches(text, pattern + 1) && (expected[0] == 'm' || !strchr(text, '\n'));
}

/* Takes data of exactly this size, so that ASan detects any over-read. */
static void run(uint8_t *data, size_t bytes, const char *expected, const char *name)
{
    printf("%s\n", name);
    fflush(stdout); /* the last line names the culprit */
    fuzz_outcome = (struct fuzz_outcome){.is_replay = 1};
    dt_error_clear();
    const double begin = cpu_ms();
    LLVMFuzzerTestOneInput(data, bytes);
    const double ms = cpu_ms() - begin;
    slowest_ms = ms > slowest_ms ? ms : slowest_ms;
    free(data);
    n_inputs++;
    n_accepted += fuzz_outcome.is_settled && !fuzz_outcome.refusal[0];
    if (is_expected(expected) && ms <= CPU_MS_MAX)
        return;
    n_failed++;
    fprintf(stderr, "%s: expected %s, got \"%s\", n = %zu, %.0f ms\n", name, expected,
            fuzz_outcome.refusal, fuzz_outcome.n, ms);
}

static void run_file(const char *path)
{
    char *data = NULL;
    size_t bytes = 0;
    FUZZ_CHECK(dt_file_load(&data, &bytes, path, 1 << 20) == DT_OK);
    uint8_t *exact = malloc(bytes ? bytes : 1);
    FUZZ_CHECK(exact);
    memcpy(exact, data, bytes);
    free(data);
    run(exact, bytes, "any", path);
}

static void run_folder(const char *path)
{
    struct dirent **entries;
    char file[DT_PATH_MAX];
    int n = scandir(path, &entries, NULL, alphasort);
    FUZZ_CHECK(n > 0);
    for (int i = 0; i < n; i++) {
        if (entries[i]->d_name[0] != '.') {
            FUZZ_CHECK(dt_file_path(file, "%s/%s", path, entries[i]->d_name) == DT_OK);
            run_file(file);
        }
        free(entries[i]);
    }
    free(entries);
}

static void run_cases(void)
{
    char *line = NULL, *expected, *name;
    size_t capacity = 0;
    while (getline(&line, &capacity, stdin) > 0) {
        const size_t bytes = strtoul(line, &expected, 10);
        name = strchr(++expected, '\t');
        FUZZ_CHECK(name);
        *name++ = '\0';
        name[strcspn(name, "\n")] = '\0';
        uint8_t *data = malloc(bytes ? bytes : 1);
        FUZZ_CHECK(data && fread(data, 1, bytes, stdin) == bytes);
        run(data, bytes, expected, name);
    }
    free(line);
}

int main(int argc, char **argv)
{
    struct rusage usage;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "-") == 0)
            run_cases();
        else
            run_folder(argv[i]);
    getrusage(RUSAGE_SELF, &usage);
    printf(
        "%d inputs, %d accepted, %d failures; at most %.0f ms of CPU time each, %ld MiB resident\n",
        n_inputs, n_accepted, n_failed, slowest_ms, usage.ru_maxrss >> 10);
    /* Nothing read tests nothing. */
    return n_inputs == 0 || n_failed > 0 || usage.ru_maxrss > RSS_KIB_MAX;
}
