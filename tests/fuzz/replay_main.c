/* Runs a fuzz target on every file of the given folders, without libFuzzer, so that the corpora are
 * part of the regular test suite and of its runs under sanitizers. */
#include <dirent.h>

#include "fuzz.h"

static void run_file(const char *path)
{
    char *data = NULL;
    size_t bytes = 0;
    FUZZ_CHECK(dt_file_load(&data, &bytes, path, 1 << 20) == DT_OK);
    uint8_t *exact = malloc(bytes ? bytes : 1); /* exact size, so that ASan detects any over-read */
    FUZZ_CHECK(exact);
    memcpy(exact, data, bytes);
    free(data);
    printf("%s\n", path);
    fflush(stdout); /* the last line names the culprit */
    LLVMFuzzerTestOneInput(exact, bytes);
    free(exact);
}

static int run_folder(const char *path)
{
    struct dirent **entries;
    char file[DT_PATH_MAX];
    int n_files = 0, n = scandir(path, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        if (entries[i]->d_name[0] != '.') {
            FUZZ_CHECK(dt_file_path(file, "%s/%s", path, entries[i]->d_name) == DT_OK);
            run_file(file);
            n_files++;
        }
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    return n_files;
}

int main(int argc, char **argv)
{
    int n_files = 0;
    for (int i = 1; i < argc; i++)
        n_files += run_folder(argv[i]);
    printf("%d files\n", n_files);
    return n_files == 0; /* an empty corpus tests nothing */
}
