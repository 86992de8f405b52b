/* Reading checkpoints: what is found in a folder and what is skipped, manifests that are valid but
 * do not match their files, and what users are told. */
#include <fcntl.h>

#include <xxhash.h>

#include "base/mem.h"
#include "base/pulse.h"
#include "capture.h"
#include "checkpoint/weights.h"
#include "checkpoint_rig.h"

/* --- Helpers --- */

static void save_text(const char *folder, const char *name, const char *text, size_t bytes)
{
    FILE *file = fopen(rig_path(folder, name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static void load_text(char **text, size_t *bytes, const char *folder, const char *name)
{
    ok(dt_file_load(text, bytes, rig_path(folder, name), 1 << 20));
}

/* Returns the stderr output of dt_checkpoint_find; the path it finds goes to `found`. */
static void find_and_listen(char *said, size_t bytes, char *found, const struct rig *r)
{
    struct dt_checkpoint state;
    struct capture capture = capture_begin(stderr);
    dt_status status = dt_checkpoint_find(found, &state, r->dir);
    capture_end(&capture, said, bytes);
    ok(status);
}

static void expect_in(const char *part, const char *text)
{
    if (!strstr(text, part))
        fail_msg("no \"%s\" in \"%s\"", part, text);
}

static void expect_bad(const char *path, const char *part)
{
    dt_status status = dt_checkpoint_verify(NULL, path);
    if (status != DT_ERR_DATA && status != DT_ERR_NO_INPUT)
        fail_msg("%s: %s", part, dt_status_name(status));
    expect_in(part, dt_error_text());
}

static void print_manifest(const struct dt_manifest *m, const char *folder)
{
    struct dt_jsonw w;
    ok(dt_manifest_print(&w, m));
    save_text(folder, dt_manifest_name, w.text, w.bytes);
    dt_jsonw_reset(&w);
}

/* A file with other contents, confirmed by the manifest. */
static void replace(const char *folder, int file, const char *text, size_t bytes)
{
    struct dt_manifest m;
    ok(dt_manifest_load(&m, folder));
    save_text(folder, m.files[file].name, text, bytes);
    XXH128_hash_t sum = XXH3_128bits(text, bytes);
    m.files[file].hash = (struct dt_hash){.low = sum.low64, .high = sum.high64};
    m.files[file].bytes = bytes;
    print_manifest(&m, folder);
    dt_manifest_reset(&m);
}

/* --- Folders --- */

RIG_TEST(list)
{
    static const char *const folders[] = {
        "step-000000020",  "step-000000003", "step-1000000000",     "step-20",
        "step-000000020x", "step--00000020", ".tmp-step-000000040", ".trash-step-000000050",
        "notes",           "step-0000000020"};
    int64_t *steps;
    int n_steps;
    ok(dt_checkpoint_list(&steps, &n_steps, r->dir));
    assert_int_equal(n_steps, 0);
    free(steps);
    for (size_t i = 0; i < DT_COUNT(folders); i++)
        ok(dt_file_make_folder(rig_path(r->dir, folders[i])));
    ok(dt_checkpoint_list(&steps, &n_steps, r->dir));
    assert_int_equal(n_steps, 3);
    assert_true(steps[0] == 1000000000 && steps[1] == 20 && steps[2] == 3);
    free(steps);
    /* A folder that cannot be listed must not look empty, or a run would begin from scratch. */
    save_text(r->dir, "step-000000020/file", "x", 1);
    const char *file = rig_path(r->dir, "step-000000020/file");
    assert_int_equal(dt_checkpoint_list(&steps, &n_steps, file), DT_ERR_NO_INPUT);
}

RIG_TEST(locate)
{
    char path[DT_PATH_MAX], dir[DT_PATH_MAX];
    bool is_one;
    ok(rig_save(r, path, 20));
    ok(dt_checkpoint_locate(dir, &is_one, r->parent));
    assert_false(is_one);
    assert_string_equal(dir, r->dir);
    ok(dt_checkpoint_locate(dir, &is_one, r->dir));
    assert_false(is_one);
    assert_string_equal(dir, r->dir);
    ok(dt_checkpoint_locate(dir, &is_one, path));
    assert_true(is_one);
    const char *copy = rig_path(r->parent, "best");
    assert_int_equal(rename(path, copy), 0);
    ok(dt_checkpoint_locate(dir, &is_one, copy));
    assert_true(is_one);
    ok(dt_checkpoint_verify(NULL, copy)); /* under a name that promises no step */
    copy = rig_path(r->parent, "best/state.json");
    assert_int_equal(dt_checkpoint_locate(dir, &is_one, copy), DT_ERR_NO_INPUT);
    assert_int_equal(dt_checkpoint_locate(dir, &is_one, rig_path(r->parent, "nowhere")),
                     DT_ERR_NO_INPUT);
}

/* --- The newest good one --- */

RIG_TEST(find)
{
    char path[3][DT_PATH_MAX], found[DT_PATH_MAX], said[4096];
    find_and_listen(said, sizeof said, found, r);
    assert_string_equal(found, "");
    assert_string_equal(said, "");
    for (int i = 0; i < 3; i++)
        ok(rig_save(r, path[i], 10 * (i + 1)));
    find_and_listen(said, sizeof said, found, r);
    assert_string_equal(found, path[2]);
    assert_string_equal(said, "");

    assert_int_equal(truncate(rig_path(path[2], "model.safetensors"), 100), 0);
    assert_int_equal(unlink(rig_path(path[1], "MANIFEST.json")), 0);
    find_and_listen(said, sizeof said, found, r);
    assert_string_equal(found, path[0]);
    expect_in("step-000000030 is not usable: model.safetensors has 100 bytes, the manifest says ",
              said);
    expect_in("; trying the previous one\n", said);
    expect_in("step-000000020 is not usable: MANIFEST.json is missing; trying the previous one\n",
              said);
    expect_in("latest points to step-000000030, but the newest good checkpoint is step-000000010\n",
              said);

    assert_int_equal(unlink(rig_path(path[0], "state.json")), 0);
    find_and_listen(said, sizeof said, found, r);
    assert_string_equal(found, "");
    expect_in("step-000000010 is not usable: state.json is missing; no earlier one exists\n", said);
    assert_null(strstr(said, "latest"));
}

/* Every checksum fits. */
RIG_TEST(find_impossible_state)
{
    char path[2][DT_PATH_MAX], found[DT_PATH_MAX], said[4096];
    struct dt_checkpoint at = rig_state(20);
    at.batch = at.n_train_images / at.global_batch_size;
    ok(rig_save(r, path[0], 10));
    ok(rig_save_state(r, path[1], &at));
    find_and_listen(said, sizeof said, found, r);
    assert_string_equal(found, path[0]);
    expect_in("state.json: members are missing or have wrong values; trying the previous", said);
}

/* A checkpoint that may not be read now is not a bad one. */
RIG_TEST(find_cannot_read)
{
    struct dt_checkpoint found;
    char path[2][DT_PATH_MAX], out[DT_PATH_MAX];
    ok(rig_save(r, path[0], 10));
    ok(rig_save(r, path[1], 20));
    const char *file = rig_path(path[1], "MANIFEST.json");
    rig_lock(r, file);
    dt_status status = dt_checkpoint_find(out, &found, r->dir);
    rig_unlock(file);
    assert_int_equal(status, DT_ERR_PERMISSION);
    assert_string_equal(out, "");
    expect_in(file, dt_error_text());
    ok(dt_checkpoint_find(out, &found, r->dir));
    assert_string_equal(out, path[1]);
}

RIG_TEST(latest_is_a_hint)
{
    char path[DT_PATH_MAX], found[DT_PATH_MAX], said[4096];
    static const char *const texts[] = {"step-000000010", "../../etc", "\x1b[2J"};
    ok(rig_save(r, path, 10));
    ok(rig_save(r, path, 20));
    for (size_t i = 0; i < DT_COUNT(texts); i++) {
        ok(dt_file_link(rig_path(r->dir, "latest"), texts[i]));
        find_and_listen(said, sizeof said, found, r);
        assert_string_equal(found, path);
        expect_in("but the newest good checkpoint is step-000000020", said);
        assert_null(strchr(said, '\x1b'));
    }
    unlink(rig_path(r->dir, "latest"));
    find_and_listen(said, sizeof said, found, r);
    assert_string_equal(found, path);
    assert_string_equal(said, "");
}

/* --- Valid manifests that do not match their files --- */

RIG_TEST(names_in_the_manifest)
{
    struct dt_manifest m;
    char path[DT_PATH_MAX];
    ok(rig_save(r, path, 20));
    ok(dt_manifest_load(&m, path));
    m.n_files = 3;
    print_manifest(&m, path);
    expect_bad(path, "the manifest does not name config.json");
    m.n_files = 4;
    snprintf(m.files[3].name, sizeof m.files[3].name, "notes.txt");
    print_manifest(&m, path);
    expect_bad(path, "the manifest names notes.txt, which is not a file of a checkpoint");
    dt_manifest_reset(&m);
}

RIG_TEST(tensors_in_the_manifest)
{
    struct dt_manifest m;
    char path[DT_PATH_MAX];
    ok(rig_save(r, path, 20));
    ok(dt_manifest_load(&m, path));
    struct dt_manifest_tensor *t = m.files[0].tensors, kept = t[0];
    t[0].hash ^= 1;
    print_manifest(&m, path);
    expect_bad(path, "tensor conv1.weight in model.safetensors is damaged: its checksum is ");
    t[0] = t[1];
    t[1] = kept;
    print_manifest(&m, path);
    expect_bad(path, "tensor 0 of model.safetensors is conv1.weight, the manifest says bn1.weight");
    t[1] = t[0];
    t[0] = kept;
    m.files[0].n_tensors--;
    print_manifest(&m, path);
    expect_bad(path, "model.safetensors has 8 tensors, the manifest says 7");
    m.files[0].n_tensors++;
    m.files[0].hash.high ^= 1;
    print_manifest(&m, path);
    expect_bad(path, "model.safetensors is damaged: its checksum is not the one in the manifest");
    m.files[0].hash.high ^= 1;
    print_manifest(&m, path);
    ok(dt_checkpoint_verify(NULL, path));
    m.files[3].tensors = t;
    m.files[3].n_tensors = 1;
    print_manifest(&m, path);
    expect_bad(path, "the manifest has tensors in config.json");
    m.files[3].n_tensors = 0;
    m.files[3].tensors = NULL;
    dt_manifest_reset(&m);
}

/* State and manifest of different moments, both intact. */
RIG_TEST(state_and_manifest)
{
    struct dt_checkpoint other;
    struct dt_jsonw w;
    char path[DT_PATH_MAX];
    ok(rig_save(r, path, 20));
    for (int i = 0; i < 5; i++) {
        other = rig_state(20);
        int64_t *const longs[] = {&other.step, &other.epoch, &other.batch};
        int *const ints[] = {&other.n_ranks, &other.global_batch_size};
        if (i < 3)
            ++*longs[i];
        else
            ++*ints[i - 3];
        ok(dt_checkpoint_state_print(&w, &other));
        replace(path, 2, w.text, w.bytes);
        dt_jsonw_reset(&w);
        expect_bad(path, "the manifest is of another state");
    }
    other = rig_state(20);
    ok(dt_checkpoint_state_print(&w, &other));
    replace(path, 2, w.text, w.bytes);
    dt_jsonw_reset(&w);
    ok(dt_checkpoint_verify(&other, path));
    assert_int_equal(other.step, 20);
    const char *renamed = rig_path(r->dir, "step-000000021");
    assert_int_equal(rename(path, renamed), 0);
    expect_bad(renamed, "its files are of step 20, but the folder is named step 21");
    expect_bad(rig_path(r->dir, "step-000000021/"), "but the folder is named step 21");
}

/* The states of other parameters, confirmed by the manifest. */
RIG_TEST(states_of_others)
{
    static const struct {
        const char *from, *to;
        int tensor; /* to rename in the manifest, -1: none */
        const char *state;
    } changes[] = {{"momentum.fc.bias", "momentum.fc.bijs", 4, "momentum"},
                   {"momentum.fc.bias", "momentun.fc.bias", 4, "momentum"},
                   {"square.fc.bias", "square.fc.bijs", 9, "square"},
                   {"[5,3,3,3]", "[3,5,3,3]", -1, "momentum"}};
    for (size_t i = 0; i < DT_COUNT(changes); i++) {
        struct dt_manifest m;
        char path[DT_PATH_MAX], expected[64], *text;
        size_t bytes;
        ok(rig_save(r, path, 20 + (int64_t)i));
        load_text(&text, &bytes, path, "optim.safetensors");
        char *at = memmem(text, bytes, changes[i].from, strlen(changes[i].from));
        assert_non_null(at);
        memcpy(at, changes[i].to, strlen(changes[i].to));
        replace(path, 1, text, bytes);
        free(text);
        if (changes[i].tensor >= 0) {
            ok(dt_manifest_load(&m, path));
            snprintf(m.files[1].tensors[changes[i].tensor].name, DT_ST_NAME_MAX, "%s",
                     changes[i].to);
            print_manifest(&m, path);
            dt_manifest_reset(&m);
        }
        snprintf(expected, sizeof expected, "optim.safetensors does not hold the %s of ",
                 changes[i].state);
        expect_bad(path, expected);
    }
}

/* --- state.json --- */

RIG_TEST(state_is_strict)
{
    static const char *const changes[][2] = {
        {"\"step\"", "\"stop\""},
        {"\"metric\": \"top5\"", "\"metric\": \"top2\""},
        {"\"goal_reference\"", "\"reference\""},
        {"\"goal_waits\": 2", "\"goal_waits\": -1"},
        {"\"waits\": 3", "\"waits\": 3.5"},
        {"\"factor\": 0.01", "\"factor\": 0"},
        {"\"micro_batch_size\"", "\"micro\""},
        {"\"ranks\": 4", "\"ranks\": 0"},
        {"\"ranks\": 4", "\"ranks\": 4294967296"},
        {"\"epoch\": 3", "\"epoch\": -1"},
        {"\"batch\": 7", "\"batch\": 7.5"},
        {"\"batch\": 7", "\"batch\": 15"}, /* of 15, from 0 */
        {"\"origin\": \"run step 5\"", "\"origin\": 5"},
        {"\"format\": 5", "\"format\": 4"},
        {"\"eval_due\": true", "\"eval_due\": 1"},
        {"\"value\": 12.625", "\"value\": null"},
        {"\"model\": \"hand\"", "\"model\": 5"},
        {"\"fp16\"", "\"fp17\""},
        {"fedcba9876543210", "fedcba987654321"},
        {"fedcba9876543210", "fedcba987654321X"},
        {"\"loss_scale\": 0.015625", "\"loss_scale\": -4"},
        {"\"loss_scale\": 0.015625", "\"loss_scale\": 1e9"},
        {"\"clean_steps\": 1999", "\"clean_steps\": \"1999\""},
    };
    struct dt_checkpoint at = rig_state(20), out;
    struct dt_jsonw w;
    char changed[4096];
    snprintf(at.origin, sizeof at.origin, "run step 5");
    ok(dt_file_make_folder(r->dir));
    ok(dt_checkpoint_state_print(&w, &at));
    for (size_t i = 0; i < DT_COUNT(changes); i++) {
        char *found = strstr(w.text, changes[i][0]);
        assert_non_null(found);
        int n = snprintf(changed, sizeof changed, "%.*s%s%s", (int)(found - w.text), w.text,
                         changes[i][1], found + strlen(changes[i][0]));
        save_text(r->dir, "state.json", changed, (size_t)n);
        if (dt_checkpoint_state_load(&out, r->dir) != DT_ERR_DATA)
            fail_msg("%s was accepted", changes[i][1]);
    }
    save_text(r->dir, "state.json", w.text, w.bytes);
    ok(dt_checkpoint_state_load(&out, r->dir));
    assert_string_equal(out.origin, at.origin);
    dt_jsonw_reset(&w);
    at.precision = -1;
    at.loss_scale.scale = 0;
    at.origin[0] = '\0';
    ok(dt_checkpoint_state_print(&w, &at));
    save_text(r->dir, "state.json", w.text, w.bytes);
    dt_jsonw_reset(&w);
    ok(dt_checkpoint_state_load(&out, r->dir));
    assert_int_equal(out.precision, -1);
    assert_string_equal(out.origin, "");
    assert_true(out.loss_scale.scale == 0);
}

/* --- Use --- */

RIG_TEST(config)
{
    struct dt_config config;
    char path[DT_PATH_MAX];
    r->target.config_json = "{\"train\": {\"seed\": 77}}";
    ok(rig_save(r, path, 20));
    ok(dt_checkpoint_config(&config, path));
    assert_int_equal(config.train.seed, 77);
    assert_int_equal(config.train.epochs, 90);
}

TEST(match)
{
    struct dt_checkpoint a = rig_state(1), b = rig_state(9);
    b.seed = 2; /* the configuration's business */
    b.global_batch_size = 128;
    ok(dt_checkpoint_match(&a, &b, "x"));
    b.n_train_images = 999;
    assert_error(dt_checkpoint_match(&a, &b, "x"), DT_ERR_CONFIG,
                 "1000 images with fingerprint fedcba9876543210 then, 999 with ");
    b = rig_state(9);
    b.fingerprint ^= 1;
    assert_error(dt_checkpoint_match(&a, &b, "x"), DT_ERR_CONFIG,
                 "fedcba9876543210 then, 1000 with fingerprint fedcba9876543211 now");
}

RIG_TEST(weights)
{
    char path[2][DT_PATH_MAX], out[DT_PATH_MAX], file[DT_PATH_MAX];
    ok(rig_save(r, path[0], 10));
    ok(rig_save(r, path[1], 20));
    /* rig_state says that step 10 was the best. */
    ok(dt_weights_find(out, r->dir));
    assert_string_equal(out, rig_path(path[0], "model.safetensors"));
    ok(dt_file_path(file, "%s@latest", r->dir));
    ok(dt_weights_find(out, file));
    const char *expected = rig_path(path[1], "model.safetensors");
    assert_string_equal(out, expected);
    ok(dt_weights_find(out, expected)); /* a file is taken as it is */
    assert_string_equal(out, expected);
    assert_int_equal(truncate(rig_path(path[1], "optim.safetensors"), 100), 0);
    assert_error(dt_weights_find(out, path[1]), DT_ERR_DATA, "optim.safetensors has 100 bytes");
    ok(dt_weights_find(out, r->dir));
    assert_string_equal(out, rig_path(path[0], "model.safetensors"));
    assert_int_equal(unlink(rig_path(path[0], "MANIFEST.json")), 0);
    assert_int_equal(dt_weights_find(out, path[0]), DT_ERR_NO_INPUT);
    assert_int_equal(dt_weights_find(out, r->dir), DT_ERR_NO_INPUT);
    /* From elsewhere: a model without the rest. */
    const char *elsewhere = rig_path(r->parent, "elsewhere");
    ok(dt_file_make_folder(elsewhere));
    save_text(elsewhere, "model.safetensors", "x", 1);
    ok(dt_weights_find(out, elsewhere));
    assert_string_equal(out, rig_path(elsewhere, "model.safetensors"));
    assert_int_equal(dt_weights_find(out, rig_path(r->parent, "nowhere")), DT_ERR_NO_INPUT);
}

static void count_bytes(void *context, uint64_t bytes)
{
    *(uint64_t *)context += bytes;
}

/* Long checks show progress: by the main thread's pulse or a callback. */
RIG_TEST(beats)
{
    struct dt_pulse_state before, after;
    uint64_t bytes = 0, expected = 0;
    struct dt_manifest m;
    char path[DT_PATH_MAX];
    ok(rig_save(r, path, 20));
    ok(dt_manifest_load(&m, path));
    for (int i = 0; i < m.n_files; i++)
        expected += m.files[i].bytes;
    dt_manifest_reset(&m);
    dt_pulse_read(&dt_pulse_main, &before);
    ok(dt_checkpoint_verify_with(NULL, path, count_bytes, &bytes));
    assert_int_equal(bytes, expected);
    dt_pulse_read(&dt_pulse_main, &after);
    assert_true(after.n_moves == before.n_moves);
    ok(dt_checkpoint_verify(NULL, path));
    dt_pulse_read(&dt_pulse_main, &after);
    assert_true(after.n_moves >= before.n_moves + 4);
}

TEST_MAIN(NULL, NULL)
