/* Damaged checkpoints: a run has three. The newest is damaged in every way below and must be
 * rejected each time in favour of the one before it. A damaged one that loads is a silent error.
 * DTRAIN_LONG=1: every bit instead of one per byte, more random bits, every case loaded. */
#include <sys/stat.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "checkpoint_rig.h"
#include "test.h"

enum { MODEL, OPTIM, STATE, CONFIG, MANIFEST, N_FILES };
static const char *const names[N_FILES] = {"model.safetensors", "optim.safetensors", "state.json",
                                           "config.json", "MANIFEST.json"};
static const int64_t steps[] = {30, 20, 10}; /* newest first */
enum { NEWEST, BEFORE, OLDEST, N_STEPS };

/* The original contents of a file. */
struct image {
    char path[DT_PATH_MAX], *bytes;
    size_t n, n_header; /* n_header: safetensors only, including its length; else 0 */
};

struct campaign {
    struct rig *rig;
    char folder[N_STEPS][DT_PATH_MAX];
    struct image image[N_STEPS][N_FILES];
    struct dt_rng rng;
    bool is_long;
    int n_cases, n_loaded; /* in the current class */
};

/* --- Files --- */

static void write_bytes(const char *path, const char *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static void write_at(const struct image *image, size_t at, const char *bytes, size_t n)
{
    FILE *file = fopen(image->path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)at, SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static void restore(const struct image *image)
{
    write_bytes(image->path, image->bytes, image->n);
}

static void read_image(struct image *image, const char *folder, int file)
{
    uint64_t header = 0;
    ok(dt_file_path(image->path, "%s/%s", folder, names[file]));
    ok(dt_file_load(&image->bytes, &image->n, image->path, 1 << 20));
    if (file != MODEL && file != OPTIM)
        return;
    memcpy(&header, image->bytes, sizeof header);
    image->n_header = sizeof header + (size_t)header;
    assert_true(image->n_header < image->n);
}

/* --- One case --- */

/* The answer depends on the files only, so it is the same for every caller. */
static void expect_refused(struct campaign *c, const char *what)
{
    struct dt_checkpoint state;
    char found[DT_PATH_MAX];
    ok(dt_checkpoint_find(found, &state, c->rig->dir));
    if (strcmp(found, c->folder[BEFORE]) != 0 || state.step != steps[BEFORE])
        fail_msg("%s: %s was taken", what, found[0] ? found : "none");
    if (c->is_long || c->n_cases % 16 == 0) {
        rig_visit(c->rig, -1, false);
        ok(dt_checkpoint_load(c->rig->plan, found, true));
        rig_visit(c->rig, (float)steps[BEFORE], true);
        c->n_loaded++;
    }
    c->n_cases++;
}

static void end_class(struct campaign *c, const char *what)
{
    struct dt_checkpoint state;
    char found[DT_PATH_MAX];
    static int sum;
    ok(dt_checkpoint_find(found, &state, c->rig->dir));
    assert_string_equal(found, c->folder[NEWEST]); /* everything is restored */
    sum += c->n_cases;
    printf("%-28s %6d cases, 0 silent; the older one loaded and compared %d times (%d in all)\n",
           what, c->n_cases, c->n_loaded, sum);
    c->n_cases = c->n_loaded = 0;
}

/* --- Classes --- */

/* The parsers also read the damaged text: they may accept or reject it, but must not crash. */
static void try_parsers(const struct campaign *c)
{
    struct dt_checkpoint state;
    struct dt_config config;
    (void)dt_checkpoint_state_load(&state, c->folder[NEWEST]);
    (void)dt_checkpoint_config(&config, c->folder[NEWEST]);
}

static void flip(struct campaign *c, int file, size_t byte, int bit)
{
    const struct image *image = &c->image[NEWEST][file];
    char flipped = (char)(image->bytes[byte] ^ 1 << bit), what[64];
    snprintf(what, sizeof what, "%s, byte %zu, bit %d", names[file], byte, bit);
    write_at(image, byte, &flipped, 1);
    expect_refused(c, what);
    if (file == STATE || file == CONFIG)
        try_parsers(c);
    write_at(image, byte, &image->bytes[byte], 1);
}

static void flip_every_byte(struct campaign *c, int file, size_t n)
{
    for (size_t byte = 0; byte < n; byte++) {
        int one = (int)dt_rng_below(&c->rng, 8);
        for (int bit = 0; bit < 8; bit++)
            if (c->is_long || bit == one)
                flip(c, file, byte, bit);
    }
}

TEST(texts)
{
    struct campaign *c = *state;
    for (int file = STATE; file < N_FILES; file++) {
        flip_every_byte(c, file, c->image[NEWEST][file].n);
        end_class(c, names[file]);
    }
}

TEST(headers)
{
    struct campaign *c = *state;
    for (int file = MODEL; file <= OPTIM; file++) {
        flip_every_byte(c, file, c->image[NEWEST][file].n_header);
        end_class(c, file == MODEL ? "header of the model" : "header of the momentum");
    }
}

TEST(tensor_data)
{
    struct campaign *c = *state;
    int n = c->is_long ? 20000 : 5000;
    for (int i = 0; i < n; i++) {
        int file = (int)dt_rng_below(&c->rng, 2);
        const struct image *image = &c->image[NEWEST][file];
        size_t byte =
            image->n_header + dt_rng_below(&c->rng, (uint32_t)(image->n - image->n_header));
        flip(c, file, byte, (int)dt_rng_below(&c->rng, 8));
    }
    end_class(c, "random bits of tensor data");
}

static void cut(struct campaign *c, int file, size_t n)
{
    const struct image *image = &c->image[NEWEST][file];
    char what[64];
    snprintf(what, sizeof what, "%s cut at %zu", names[file], n);
    if (n >= image->n)
        return;
    write_bytes(image->path, image->bytes, n);
    expect_refused(c, what);
}

static void extend(struct campaign *c, int file, size_t n, char with)
{
    const struct image *image = &c->image[NEWEST][file];
    static char more[4096];
    memset(more, with, sizeof more);
    restore(image);
    FILE *out = fopen(image->path, "ab");
    assert_non_null(out);
    assert_int_equal(fwrite(more, 1, n, out), n);
    assert_int_equal(fclose(out), 0);
    expect_refused(c, "extended");
}

TEST(lengths)
{
    struct campaign *c = *state;
    enum { EVEN_POINTS = 64 };
    for (int file = 0; file < N_FILES; file++) {
        const struct image *image = &c->image[NEWEST][file];
        const size_t at[] = {
            0, 1, 7, 8, 9, image->n_header - 1, image->n_header, image->n_header + 1, image->n - 1};
        for (size_t i = 0; i < DT_COUNT(at); i++)
            cut(c, file, at[i]);
        for (size_t i = 1; i <= EVEN_POINTS; i++)
            cut(c, file, image->n * i / (EVEN_POINTS + 1));
        for (size_t i = 0; i < 3; i++) {
            extend(c, file, 1, "\0\n "[i]);
            extend(c, file, 4096, "\0\n "[i]);
        }
        restore(image);
    }
    end_class(c, "cut and extended files");
}

/* Location of a tensor's bytes. */
struct place {
    int file;
    size_t at, n;
};

static int list_tensors(const struct campaign *c, struct place places[64])
{
    int n = 0;
    for (int file = MODEL; file <= OPTIM; file++) {
        const struct image *image = &c->image[NEWEST][file];
        struct dt_st_reader *reader;
        ok(dt_st_open(&reader, image->path));
        for (size_t i = 0; i < dt_st_count(reader); i++) {
            const struct dt_st_tensor *t = dt_st_get(reader, i);
            assert_true(n < 64);
            places[n++] = (struct place){file, image->n_header + t->offset, t->bytes};
        }
        dt_st_close(reader);
    }
    return n;
}

/* Swaps as many bytes as both have, so that all sizes stay the same. */
static void swap(struct campaign *c, const struct place *a, const struct place *b)
{
    const struct image *x = &c->image[NEWEST][a->file], *y = &c->image[NEWEST][b->file];
    size_t n = a->n < b->n ? a->n : b->n;
    assert_memory_not_equal(x->bytes + a->at, y->bytes + b->at, n);
    write_at(x, a->at, y->bytes + b->at, n);
    write_at(y, b->at, x->bytes + a->at, n);
    expect_refused(c, "swapped tensors");
    restore(x);
    restore(y);
}

TEST(swapped_tensors)
{
    struct campaign *c = *state;
    struct place places[64];
    int n = list_tensors(c, places);
    for (int i = 0; i < n; i++)
        for (int k = i + 1; k < n; k++)
            swap(c, &places[i], &places[k]);
    for (int i = 0; i < n; i++)
        for (int step = BEFORE; step < N_STEPS; step++) {
            const struct place *p = &places[i];
            const struct image *image = &c->image[NEWEST][p->file];
            write_at(image, p->at, c->image[step][p->file].bytes + p->at, p->n);
            expect_refused(c, "tensor of another step");
            restore(image);
        }
    assert_true(c->n_cases >= 100);
    end_class(c, "swapped tensors");
}

/* Takes every subset of the files, including all five, from each of the older checkpoints. */
TEST(mixed_steps)
{
    struct campaign *c = *state;
    for (int step = BEFORE; step < N_STEPS; step++)
        for (unsigned choice = 1; choice < 1U << N_FILES; choice++) {
            for (int file = 0; file < N_FILES; file++)
                if (choice >> file & 1U)
                    write_bytes(c->image[NEWEST][file].path, c->image[step][file].bytes,
                                c->image[step][file].n);
            expect_refused(c, "mixed steps");
            for (int file = 0; file < N_FILES; file++)
                restore(&c->image[NEWEST][file]);
        }
    assert_true(c->n_cases >= 50);
    end_class(c, "files of other steps");
}

/* --- Missing and special files --- */

TEST(other_things)
{
    static const struct {
        const char *what;
        char type;          /* of the file, as in find; 0: none */
        const char *target; /* of a link; NULL: the file set aside */
    } things[] = {
        {"missing", 0, NULL},
        {"a folder", 'd', NULL},
        {"a FIFO", 'p', NULL},
        {"a link to the file", 'l', NULL},
        {"a loose link", 'l', "nowhere"},
        {"a link to a device", 'l', "/dev/zero"},
    };
    struct campaign *c = *state;
    char aside[DT_PATH_MAX];
    for (int file = 0; file < N_FILES; file++)
        for (size_t i = 0; i < DT_COUNT(things); i++) {
            const char *path = c->image[NEWEST][file].path;
            ok(dt_file_path(aside, "%s.aside", path));
            assert_int_equal(rename(path, aside), 0);
            const char *target = things[i].target ? things[i].target : aside;
            assert_int_equal(things[i].type == 'd'   ? mkdir(path, 0755)
                             : things[i].type == 'p' ? mkfifo(path, 0644)
                             : things[i].type == 'l' ? symlink(target, path)
                                                     : 0,
                             0);
            expect_refused(c, things[i].what);
            remove(path);
            assert_int_equal(rename(aside, path), 0);
        }
    end_class(c, "missing, folder, FIFO, link");
}

/* --- Setup and teardown --- */

static int setup(void **state)
{
    static const char *const configs[] = {
        "{\"train\": {\"seed\": 3}}", "{\"train\": {\"seed\": 2}}", "{\"train\": {\"seed\": 1}}"};
    struct campaign *c = calloc(1, sizeof *c);
    const char *value = getenv("DTRAIN_LONG");
    void *rig = NULL;
    assert_non_null(c);
    rig_setup(&rig);
    c->rig = rig;
    c->is_long = value && strcmp(value, "0") != 0;
    dt_rng_init(&c->rng, 4, DT_RNG_SHUFFLE, 0, 0);
    dt_log_init(DT_LOG_ERROR, 0, 1); /* a warning per case would flood the log */
    for (int step = N_STEPS - 1; step >= 0; step--) {
        c->rig->target.config_json = configs[step];
        ok(rig_save(c->rig, c->folder[step], steps[step]));
    }
    for (int step = 0; step < N_STEPS; step++)
        for (int file = 0; file < N_FILES; file++)
            read_image(&c->image[step][file], c->folder[step], file);
    *state = c;
    return 0;
}

static int teardown(void **state)
{
    struct campaign *c = *state;
    void *rig = c->rig;
    for (int step = 0; step < N_STEPS; step++)
        for (int file = 0; file < N_FILES; file++)
            free(c->image[step][file].bytes);
    free(c);
    return rig_teardown(&rig);
}

TEST_MAIN(setup, teardown)
