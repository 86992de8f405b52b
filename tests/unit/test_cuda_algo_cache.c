/* The file of chosen algorithms: kept, shared between jobs, damaged, out of reach. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include "algo_cache_folder.h"
#include "base/json.h"
#include "base/mem.h"
#include "cuda/cuda_conv.h"
#include "test_status.h"

static const char scope[] = "NVIDIA H200, cuDNN 91900";

static struct dt_algo_cache *open_cache(const char *where, const char *scope_text)
{
    struct dt_algo_cache *cache = NULL;
    assert_ok(dt_algo_cache_open(&cache, where, scope_text));
    assert_non_null(cache);
    return cache;
}

/* Only even engines have a runner-up. */
static struct dt_conv_choice make_choice(int64_t candidate, int engine)
{
    struct dt_conv_choice choice = {
        .candidate = candidate, .seconds = 1e-6 * engine, .runner_up_s = NAN};
    snprintf(choice.tag, sizeof choice.tag, "eng%d_k2=1", engine);
    if (engine % 2 == 0) {
        snprintf(choice.runner_up, sizeof choice.runner_up, "eng%d", engine + 1);
        choice.runner_up_s = 1.5e-6 * engine;
    }
    return choice;
}

static void put(struct dt_algo_cache *cache, const char *key, int64_t candidate, int engine)
{
    const struct dt_conv_choice choice = make_choice(candidate, engine);
    assert_ok(dt_algo_cache_put(cache, key, &choice));
}

static void check(const struct dt_algo_cache *cache, const char *key, int64_t candidate, int engine)
{
    const struct dt_conv_choice expected = make_choice(candidate, engine);
    struct dt_conv_choice choice = {.candidate = -1};
    assert_true(dt_algo_cache_get(cache, key, &choice));
    assert_int_equal(choice.candidate, candidate);
    assert_string_equal(choice.tag, expected.tag);
    assert_string_equal(choice.runner_up, expected.runner_up);
    assert_true(fabs(choice.seconds - expected.seconds) < 1e-12);
    assert_int_equal(isnan(choice.runner_up_s), isnan(expected.runner_up_s));
    assert_false(fabs(choice.runner_up_s - expected.runner_up_s) > 1e-12);
}

static void check_absent(const struct dt_algo_cache *cache, const char *key)
{
    struct dt_conv_choice choice;
    assert_false(dt_algo_cache_get(cache, key, &choice));
}

static void save_and_close(struct dt_algo_cache *cache)
{
    dt_algo_cache_save(cache);
    assert_string_equal(dt_error_text(), "");
    dt_algo_cache_close(cache);
}

/* Lines that opening a cache writes to stderr. */
static int count_warnings(void)
{
    char name[DT_PATH_MAX], *text = NULL;
    size_t bytes = 0;
    int n = 0, old = dup(STDERR_FILENO);
    assert_ok(dt_file_path(name, "%s/stderr", base));
    assert_non_null(freopen(name, "w", stderr));
    struct dt_algo_cache *cache = open_cache(folder, scope);
    fflush(stderr);
    assert_int_equal(dup2(old, STDERR_FILENO), STDERR_FILENO);
    close(old);
    dt_algo_cache_close(cache);
    assert_ok(dt_file_load(&text, &bytes, name, 1 << 20));
    for (const char *p = text; (p = strstr(p, "warning")); p++)
        n++;
    free(text);
    return n;
}

TEST_WITH(keeps, set_up, NULL)
{
    struct dt_algo_cache *cache = open_cache(folder, scope);
    check_absent(cache, "conv a");
    dt_algo_cache_save(cache);
    assert_false(dt_file_exists(folder)); /* nothing to keep, nothing is written */
    put(cache, "conv a", 3, 45);
    put(cache, "conv b", 0, 0);
    put(cache, "conv a", 7, 46); /* the later one counts */
    check(cache, "conv a", 7, 46);
    save_and_close(cache);

    assert_int_equal(count_warnings(), 0);
    cache = open_cache(folder, scope);
    check(cache, "conv a", 7, 46);
    check(cache, "conv b", 0, 0);
    check_absent(cache, "conv");
    dt_algo_cache_close(cache);
    cache = open_cache(folder, "NVIDIA H100, cuDNN 91900"); /* what another GPU chose is no use */
    check_absent(cache, "conv a");
    put(cache, "conv a", 1, 2);
    save_and_close(cache);
    cache = open_cache(folder, scope);
    check(cache, "conv a", 7, 46);
    dt_algo_cache_close(cache);
}

TEST_WITH(no_folder, set_up, NULL)
{
    struct dt_algo_cache *cache = open_cache("", scope);
    put(cache, "conv a", 3, 45);
    check(cache, "conv a", 3, 45);
    save_and_close(cache);
}

/* Jobs that began with the same file do not lose each other's choices. */
TEST_WITH(merges, set_up, NULL)
{
    struct dt_algo_cache *first = open_cache(folder, scope), *second = open_cache(folder, scope);
    put(first, "conv a", 1, 10);
    put(first, "conv c", 1, 10);
    put(second, "conv b", 2, 20);
    put(second, "conv c", 2, 20);
    save_and_close(first);
    save_and_close(second);
    struct dt_algo_cache *cache = open_cache(folder, scope);
    check(cache, "conv a", 1, 10);
    check(cache, "conv b", 2, 20);
    check(cache, "conv c", 2, 20);
    dt_algo_cache_close(cache);
}

TEST_WITH(damaged, set_up, NULL)
{
    static const char *const texts[] = {
        "",
        "{\"version\": 2, \"plans\": {\"x\": {\"candidate\": 1, \"pl",
        "[]",
        "{\"plans\": {}}",
        "{\"version\": 1, \"plans\": {\"x\": {\"candidate\": 1, \"engine\": 2}}}", /* older */
        "{\"version\": 3, \"plans\": {}}",
        "{\"version\": 2, \"plans\": 3}",
        "{\"version\": 2, \"plans\": {\"x\": 3}}",
        "{\"version\": 2, \"plans\": {\"x\": {\"candidate\": -1, \"plan\": \"eng2\"}}}",
        "{\"version\": 2, \"plans\": {\"x\": {\"candidate\": 1000, \"plan\": \"eng2\"}}}",
        "{\"version\": 2, \"plans\": {\"x\": {\"candidate\": 1.5, \"plan\": \"eng2\"}}}",
        "{\"version\": 2, \"plans\": {\"x\": {\"candidate\": 1, \"engine\": 2}}}",
        "{\"version\": 2, \"plans\": {\"x\": {\"candidate\": 1, \"plan\": 2}}}",
        "{\"version\": 2, \"plans\": {\"x\": {\"candidate\": 1, \"plan\": \"\"}}}",
        "{\"version\": 2, \"plans\": {\"x\": {\"candidate\": 1, \"plan\": \"eng2\", "
        "\"runner_up\": 7}}}",
    };
    assert_ok(dt_file_make_folder(folder));
    for (size_t i = 0; i < DT_COUNT(texts); i++) {
        assert_ok(dt_file_save(path, texts[i], strlen(texts[i])));
        assert_int_equal(count_warnings(), 1);
        assert_string_equal(dt_error_text(), "");
        struct dt_algo_cache *cache = open_cache(folder, scope);
        put(cache, "conv a", 1, 2);
        save_and_close(cache);
        assert_int_equal(count_warnings(), 0);
        cache = open_cache(folder, scope);
        check(cache, "conv a", 1, 2);
        dt_algo_cache_close(cache);
    }
}

/* The folder cannot be made: a warning, and training continues. */
TEST_WITH(out_of_reach, set_up, NULL)
{
    char file[DT_PATH_MAX], below[DT_PATH_MAX];
    assert_ok(dt_file_path(file, "%s/file", base));
    assert_ok(dt_file_path(below, "%s/file/cache", base));
    assert_ok(dt_file_save(file, "", 0));
    struct dt_algo_cache *cache = open_cache(below, scope);
    put(cache, "conv a", 3, 45);
    save_and_close(cache);
    assert_false(dt_file_exists(below));
}

enum { N_JOBS = 6, N_SAVES = 15 };

static int job(int number)
{
    for (int i = 0; i < N_SAVES; i++) {
        struct dt_algo_cache *cache = NULL;
        char key[64];
        if (dt_algo_cache_open(&cache, folder, scope) != DT_OK)
            return 1;
        for (int k = 0; k < 40; k++) {
            const struct dt_conv_choice choice = make_choice(number, i);
            snprintf(key, sizeof(key), "conv of job %d, number %d", number, k);
            if (dt_algo_cache_put(cache, key, &choice) != DT_OK)
                return 1;
        }
        dt_algo_cache_save(cache);
        dt_algo_cache_close(cache);
    }
    return 0;
}

static int count_files(void)
{
    int n = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir));)
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

/* Jobs write while others read: every state of the file is complete. */
TEST_WITH(many_jobs, set_up, NULL)
{
    pid_t pids[N_JOBS];
    int n_running = N_JOBS, n_read = 0;
    for (int i = 0; i < N_JOBS; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0)
            _exit(job(i));
    }
    while (n_running > 0) {
        struct dt_json_doc *doc = NULL;
        int result;
        if (dt_file_exists(path)) {
            assert_ok(dt_json_load(&doc, path, NULL));
            dt_json_destroy(doc);
            n_read++;
        }
        if (waitpid(-1, &result, WNOHANG) > 0) {
            assert_int_equal(result, 0);
            n_running--;
        }
    }
    assert_true(n_read > 0);
    assert_int_equal(count_files(), 1);
    assert_int_equal(count_warnings(), 0);
}

TEST_MAIN(make_base, remove_base)
