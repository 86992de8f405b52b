/* Checkpoints of a small hand-made network as they are written: what is in the folder, which ones
 * are kept, what is never overwritten, and what failures leave. */
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>

#include <xxhash.h>

#include "base/mem.h"
#include "base/pulse.h"
#include "checkpoint_rig.h"

/* Entries of a folder but for . and .. */
static int count_entries(const char *path)
{
    int n = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n - 2;
}

static void load(char **text, size_t *bytes, const char *folder, const char *name)
{
    ok(dt_file_load(text, bytes, rig_path(folder, name), 1 << 20));
}

static void save(const char *folder, const char *name, const char *text)
{
    ok(dt_file_make_folder(folder));
    ok(dt_file_save(rig_path(folder, name), text, strlen(text)));
}

static struct stat status_of(const char *path)
{
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return info;
}

static void assert_latest(const struct rig *r, const char *expected)
{
    char target[64] = "";
    assert_true(readlink(rig_path(r->dir, "latest"), target, sizeof target - 1) > 0);
    assert_string_equal(target, expected);
}

/* --- What is written --- */

RIG_TEST(round_trip)
{
    const struct dt_checkpoint in = rig_state(42);
    struct dt_checkpoint out;
    char path[DT_PATH_MAX], found[DT_PATH_MAX];
    ok(rig_save(r, path, 42));
    assert_string_equal(strrchr(path, '/'), "/step-000000042");
    rig_check(r, path, 42);
    ok(dt_checkpoint_find(found, &out, r->dir));
    assert_string_equal(found, path);
    assert_string_equal(in.model, out.model);
    assert_true(in.epoch == out.epoch && in.batch == out.batch && out.eval_due);
    assert_true(in.n_passes == out.n_passes && in.best.value == out.best.value);
    assert_true(in.best.step == out.best.step && in.best.metric == out.best.metric);
    assert_true(in.goal.epoch == out.goal.epoch && in.goal_waits == out.goal_waits);
    assert_true(in.plateau.best == out.plateau.best && in.plateau.waits == out.plateau.waits &&
                in.plateau.factor == out.plateau.factor);
    assert_memory_equal(&in.epoch_loss, &out.epoch_loss, sizeof in.epoch_loss);
    assert_true(in.goal_reference == out.goal_reference &&
                in.micro_batch_size == out.micro_batch_size && in.n_parts == out.n_parts);
    assert_true(in.seed == out.seed && in.fingerprint == out.fingerprint);
    assert_true(in.n_ranks == out.n_ranks && in.n_train_images == out.n_train_images);
    assert_true(in.precision == out.precision && in.loss_scale.scale == out.loss_scale.scale);
    assert_int_equal(r->n_commits, 1);
    assert_latest(r, "step-000000042");
    assert_int_equal(count_entries(r->dir), 2);
}

RIG_TEST(files_and_manifest)
{
    static const char *const names[] = {"model.safetensors", "optim.safetensors", "state.json",
                                        "config.json"};
    struct dt_manifest m;
    char path[DT_PATH_MAX], *text;
    size_t bytes;
    ok(rig_save(r, path, 42));
    assert_int_equal(count_entries(path), 5);
    ok(dt_manifest_load(&m, path));
    assert_true(m.step == 42 && m.epoch == 3 && m.batch == 7 && m.incarnation == 7);
    assert_true(m.n_ranks == 4 && m.global_batch_size == 64);
    assert_true(m.config_hash == r->target.config_hash);
    assert_string_equal(m.run_id, r->target.run_id);
    assert_string_equal(m.build_id, r->target.build_id);
    assert_string_equal(m.repro, r->target.repro);
    assert_int_equal(m.n_files, 4);
    for (int i = 0; i < m.n_files; i++) {
        assert_string_equal(m.files[i].name, names[i]);
        load(&text, &bytes, path, names[i]);
        XXH128_hash_t sum = XXH3_128bits(text, bytes);
        assert_int_equal(m.files[i].bytes, bytes);
        assert_true(m.files[i].hash.low == sum.low64 && m.files[i].hash.high == sum.high64);
        free(text);
    }
    load(&text, &bytes, path, "config.json");
    assert_string_equal(text, r->target.config_json);
    free(text);
    dt_manifest_reset(&m);
}

RIG_TEST(tensors)
{
    char path[DT_PATH_MAX];
    struct dt_manifest m;
    struct dt_st_reader *reader;
    char *text;
    size_t bytes;
    uint64_t length;
    int64_t tracked;
    float bias[3];
    ok(rig_save(r, path, 5));
    ok(dt_st_open(&reader, rig_path(path, "model.safetensors")));
    assert_int_equal(dt_st_count(reader), 8);
    load(&text, &bytes, path, "model.safetensors");
    memcpy(&length, text, sizeof length);
    const struct dt_st_tensor *counter = dt_st_find(reader, "bn1.num_batches_tracked");
    memcpy(&tracked, text + sizeof length + length + counter->offset, sizeof tracked);
    free(text);
    assert_int_equal(tracked, 10);
    ok(dt_st_read_f32(reader, dt_st_find(reader, "fc.bias"), bias));
    dt_st_close(reader);
    ok(dt_manifest_load(&m, path));
    assert_int_equal(m.files[0].n_tensors, 8);
    assert_int_equal(m.files[1].n_tensors, 10);
    assert_int_equal(m.files[2].n_tensors, 0);
    assert_string_equal(m.files[0].tensors[7].name, "fc.bias");
    assert_true(m.files[0].tensors[7].hash == XXH3_64bits(bias, sizeof bias));
    assert_string_equal(m.files[1].tensors[4].name, "momentum.fc.bias");
    dt_manifest_reset(&m);
}

/* New files get the mode that the umask allows, and the pulse is left as it was. */
RIG_TEST(mode_and_pulse)
{
    char path[DT_PATH_MAX];
    struct dt_pulse_state before, after;
    dt_pulse_read(&dt_pulse_writer, &before);
    mode_t mask = umask(022);
    ok(rig_save(r, path, 6));
    umask(mask);
    assert_int_equal(status_of(rig_path(path, "model.safetensors")).st_mode & 0777, 0644);
    assert_int_equal(status_of(path).st_mode & 0777, 0755);
    dt_pulse_read(&dt_pulse_writer, &after);
    assert_int_equal(after.section, DT_SECTION_NONE);
    assert_int_equal(after.step, 6);
    assert_true(after.n_moves >= before.n_moves + 10);
}

/* --- Which ones are kept --- */

static void save_steps(struct rig *r, int64_t last)
{
    char path[DT_PATH_MAX];
    for (int64_t step = 10; step <= last; step += 10)
        ok(rig_save(r, path, step));
}

static bool has_link(const struct rig *r, const char *name)
{
    struct stat info;
    return lstat(rig_path(r->dir, name), &info) == 0;
}

/* Steps 10, 20, ... : '1' for each that must be there. */
static void assert_steps(const struct rig *r, const char *expected)
{
    int n = 1 + has_link(r, "best"); /* and latest */
    for (int i = 0; expected[i]; i++) {
        bool is_there = rig_has(r, 10 * (i + 1));
        if (is_there != (expected[i] == '1'))
            fail_msg("step %d %s", 10 * (i + 1), is_there ? "is there" : "is missing");
        n += is_there;
    }
    assert_int_equal(count_entries(r->dir), n);
}

RIG_TEST(keep_newest)
{
    r->target.config.keep = 2;
    save_steps(r, 50);
    assert_steps(r, "00011");
    assert_latest(r, "step-000000050");
    r->target.config.keep = 1;
    save_steps(r, 60);
    assert_steps(r, "000001");
}

RIG_TEST(keep_best_and_every)
{
    r->target.config.keep = 2;
    r->target.config.keep_best = true; /* step 10 in rig_state */
    save_steps(r, 50);
    assert_steps(r, "10011");
    r->target.config.keep_every = 40;
    save_steps(r, 70);
    assert_steps(r, "1001011");
    r->target.config.keep_best = false;
    save_steps(r, 80);
    assert_steps(r, "00010011");
}

static void save_best(struct rig *r, int64_t step, int64_t best_step)
{
    char path[DT_PATH_MAX];
    struct dt_checkpoint at = rig_state(step);
    at.best.step = best_step;
    ok(rig_save_state(r, path, &at));
}

/* There is no best before the first evaluation. */
RIG_TEST(no_best_yet)
{
    r->target.config.keep = 1;
    r->target.config.keep_best = true;
    save_best(r, 10, -1);
    save_best(r, 20, -1);
    assert_steps(r, "01");
}

/* The save of the best may fail: the previous best is kept until a better one is saved. */
RIG_TEST(best_is_missing)
{
    r->target.config.keep = 1;
    r->target.config.keep_best = true;
    save_best(r, 10, 10);
    save_best(r, 20, 10);
    save_best(r, 30, 25);
    assert_steps(r, "101");
    save_best(r, 40, 25);
    assert_steps(r, "1001");
    save_best(r, 50, 50);
    save_best(r, 60, 50);
    assert_steps(r, "000011");
}

/* A checkpoint rejected when the run began does not count, and is removed by the next save. */
RIG_TEST(keeps_what_it_resumed_from)
{
    char path[4][DT_PATH_MAX];
    for (int i = 0; i < 4; i++)
        ok(rig_save(r, path[i], 10 * (i + 1)));
    assert_steps(r, "0111");
    assert_int_equal(truncate(rig_path(path[2], "optim.safetensors"), 100), 0);
    assert_int_equal(truncate(rig_path(path[3], "MANIFEST.json"), 100), 0);
    r->target.incarnation++;
    r->target.resumed_step = 20;
    ok(rig_save(r, path[0], 45));
    assert_true(rig_has(r, 20) && rig_has(r, 45));
    assert_false(rig_has(r, 30) || rig_has(r, 40));
    ok(rig_save(r, path[0], 50));
    assert_true(rig_has(r, 20));
    ok(rig_save(r, path[0], 60));
    assert_false(rig_has(r, 20));
    assert_true(rig_has(r, 45) && rig_has(r, 50) && rig_has(r, 60));
}

/* One that could not be read when the run began neither counts nor is removed, unless it verifies
 * now. */
RIG_TEST(keeps_what_it_cannot_read)
{
    const char *file = rig_path(r->dir, "step-000000030/state.json");
    char path[DT_PATH_MAX];
    save_steps(r, 30);
    r->target.incarnation++;
    r->target.resumed_step = 20;
    r->target.config.keep = 2;
    assert_int_equal(chmod(r->dir, 0777), 0);
    rig_lock(r, file);
    dt_status status = rig_save(r, path, 40);
    rig_unlock(file);
    ok(status);
    assert_true(rig_has(r, 20) && rig_has(r, 30) && rig_has(r, 40));
    ok(rig_save(r, path, 50));
    assert_true(rig_has(r, 40) && rig_has(r, 50));
    assert_false(rig_has(r, 20) || rig_has(r, 30));
}

/* A checkpoint of a later step was rejected when the run began: it does not count towards keep. */
RIG_TEST(later_steps_do_not_count)
{
    char path[DT_PATH_MAX];
    save_steps(r, 40);
    assert_steps(r, "0111");
    r->target.config.keep = 2;
    ok(rig_save(r, path, 35));
    assert_true(rig_has(r, 30) && rig_has(r, 35) && rig_has(r, 40));
    assert_false(rig_has(r, 20));
}

/* --- Existing checkpoints of the same step --- */

RIG_TEST(never_overwrites)
{
    struct dt_checkpoint at = rig_state(20);
    char path[DT_PATH_MAX], again[DT_PATH_MAX];
    ok(rig_save(r, path, 20));
    const ino_t before = status_of(path).st_ino;
    rig_visit(r, 777, false);
    ok(dt_snapshot_take(r->snapshot, &at));
    ok(dt_checkpoint_write(again, &r->target, r->snapshot));
    assert_string_equal(again, path);
    assert_int_equal(status_of(path).st_ino, before);
    rig_check(r, path, 20);
    assert_int_equal(count_entries(r->dir), 2);
}

/* A stop cuts an evaluation short; after the next start the step is saved with its result. */
RIG_TEST(replaces_other_state)
{
    struct dt_checkpoint at = rig_state(20), found;
    char path[DT_PATH_MAX];
    ok(rig_save_state(r, path, &at));
    ino_t first = status_of(path).st_ino;
    at.eval_due = false;
    at.best.value = 100.0 / 3;
    at.best.step = 20;
    r->commit_status = DT_ERR_IN_USE;
    assert_int_equal(rig_save_state(r, path, &at), DT_ERR_IN_USE);
    assert_true(status_of(path).st_ino == first);
    assert_int_equal(count_entries(r->dir), 2);
    r->commit_status = DT_OK;
    ok(rig_save_state(r, path, &at));
    ino_t second = status_of(path).st_ino;
    assert_true(second != first);
    assert_int_equal(count_entries(r->dir), 2);
    rig_check(r, path, 20);
    ok(dt_checkpoint_verify(&found, path));
    assert_false(found.eval_due);
    assert_true(found.best.value == at.best.value && found.best.step == 20);
    ok(rig_save_state(r, path, &at));
    assert_true(status_of(path).st_ino == second);
    at.loss_scale.n_clean++;
    ok(rig_save_state(r, path, &at));
    assert_true(status_of(path).st_ino != second);
}

/* It may be good. */
RIG_TEST(leaves_what_it_cannot_read)
{
    char path[DT_PATH_MAX];
    ok(rig_save(r, path, 20));
    const char *file = rig_path(path, "optim.safetensors");
    rig_lock(r, file);
    dt_status status = rig_save(r, path, 20);
    rig_unlock(file);
    assert_int_equal(status, DT_ERR_PERMISSION);
    rig_check(r, path, 20);
    assert_int_equal(count_entries(r->dir), 2);
}

RIG_TEST(replaces_damaged)
{
    static const char *const names[] = {"model.safetensors", "optim.safetensors", "state.json",
                                        "config.json", "MANIFEST.json"};
    char path[DT_PATH_MAX];
    for (size_t i = 0; i < DT_COUNT(names); i++) {
        ok(rig_save(r, path, 20));
        assert_int_equal(truncate(rig_path(path, names[i]), 20), 0);
        assert_int_not_equal(dt_checkpoint_verify(NULL, path), DT_OK);
        ok(rig_save(r, path, 20));
        rig_check(r, path, 20);
        assert_int_equal(count_entries(r->dir), 2);
    }
    ok(dt_file_remove_folder(path)); /* an empty folder of that name */
    ok(dt_file_make_folder(path));
    ok(rig_save(r, path, 20));
    rig_check(r, path, 20);
}

/* Leftovers of crashes do not disturb a save, and are removed. */
RIG_TEST(leftovers)
{
    char tmp[DT_PATH_MAX], other[DT_PATH_MAX], trash[DT_PATH_MAX], path[DT_PATH_MAX];
    ok(dt_file_path(tmp, "%s/.tmp-step-000000030-7", r->dir));
    ok(dt_file_path(other, "%s/.tmp-step-000000099-1", r->dir));
    ok(dt_file_path(trash, "%s/.trash-step-000000020", r->dir));
    r->target.config.keep = 1;
    save_steps(r, 20);
    save(tmp, "model.safetensors", "half of a mod");
    save(tmp, "MANIFEST.json", "{}");
    save(other, "optim.safetensors", "");
    save(trash, "state.json", "old");
    ok(rig_save(r, path, 30));
    rig_check(r, path, 30);
    assert_false(dt_file_exists(tmp) || dt_file_exists(trash));
    save(trash, "state.json", "old");
    save(r->dir, ".tmp-latest-0123456789abcdef",
         "step-0"); /* of the helper that writes small files */
    static const char *const foreign[] = {"notes.txt",   ".tmp-notes",   ".tmp-step-000000001-1x",
                                          ".tmp-step-1", ".trash-step-", ".tmp-latest-0123"};
    for (size_t i = 0; i < DT_COUNT(foreign); i++)
        save(r->dir, foreign[i], "mine");
    dt_checkpoint_clean(r->dir);
    assert_false(dt_file_exists(other) || dt_file_exists(trash));
    assert_int_equal(count_entries(r->dir), 2 + (int)DT_COUNT(foreign)); /* step, latest */
    rig_check(r, path, 30);
    dt_checkpoint_clean(rig_path(r->parent, "nowhere"));
}

/* A link in the place of the temporary folder leads nowhere. */
RIG_TEST(link_is_not_followed)
{
    const char *tmp = rig_path(r->dir, ".tmp-step-000000030-7");
    const char *elsewhere = rig_path(r->parent, "elsewhere");
    char path[DT_PATH_MAX];
    ok(dt_file_make_folder(r->dir));
    save(elsewhere, "precious", "x");
    assert_int_equal(symlink(elsewhere, tmp), 0);
    ok(rig_save(r, path, 30));
    rig_check(r, path, 30);
    assert_int_equal(count_entries(elsewhere), 1);
    assert_int_equal(symlink(elsewhere, tmp), 0);
    dt_checkpoint_clean(r->dir);
    assert_int_equal(count_entries(elsewhere), 1);
}

/* --- Failures --- */

static void assert_failed(struct rig *r, dt_status status, dt_status expected, const char *text)
{
    const char *const parts[] = {"cannot save the checkpoint of step 30 in ", r->dir, text,
                                 "; older checkpoints are intact"};
    assert_int_equal(status, expected);
    for (size_t i = 0; i < DT_COUNT(parts); i++)
        if (!strstr(dt_error_text(), parts[i]))
            fail_msg("\"%s\" is not in \"%s\"", parts[i], dt_error_text());
    rig_check(r, rig_path(r->dir, "step-000000020"), 20);
    assert_steps(r, "11");
    assert_latest(r, "step-000000020");
}

RIG_TEST(may_not_commit)
{
    char path[DT_PATH_MAX];
    save_steps(r, 20);
    r->target.config.keep = 1;
    r->commit_status = DT_ERR_IN_USE;
    assert_failed(r, rig_save(r, path, 30), DT_ERR_IN_USE, "another run has taken over");
    r->commit_status = DT_OK;
    ok(rig_save(r, path, 30));
    rig_check(r, path, 30);
}

/* A limit on the size of files: write(2) fails in the middle of a file. */
RIG_TEST(file_too_large)
{
    char path[DT_PATH_MAX];
    struct rlimit kept, small;
    save_steps(r, 20);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &kept), 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    small = (struct rlimit){.rlim_cur = 1000, .rlim_max = kept.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    dt_status status = rig_save(r, path, 30);
    setrlimit(RLIMIT_FSIZE, &kept);
    signal(SIGXFSZ, handler);
    assert_failed(r, status, DT_ERR_IO, "ulimit -f");
}

RIG_TEST(no_folder)
{
    char path[DT_PATH_MAX];
    save(r->parent, "checkpoints", "a file");
    assert_error(rig_save(r, path, 30), DT_ERR_CREATE, "cannot save the checkpoint of step 30 in ");
    struct dt_checkpoint_target target = r->target;
    target.dir = "/proc/self/checkpoints"; /* no one may create files there, not even root */
    assert_int_equal(dt_checkpoint_write(path, &target, r->snapshot), DT_ERR_CREATE);
}

TEST_MAIN(NULL, NULL)
