/* What a backend does besides ops: update and accumulate over plain arenas. */
#ifndef DTRAIN_TESTS_ARENA_CASES_H
#define DTRAIN_TESTS_ARENA_CASES_H

#include "op_cases.h"

enum { PARAMS, MOMENTUM, GRADS, SHADOW, N_ARENAS };

static const char *const arena_names[N_ARENAS] = {"params", "momentum", "grads", "shadow"};

struct arenas {
    struct dt_graph *g;
    struct rig rig;
    size_t count;          /* elements in each */
    enum dt_dtype type;    /* of grads and shadow; the others are fp32 */
    float *host[N_ARENAS]; /* what they should hold; of the shadow nothing */
    void *block[N_ARENAS]; /* shadow: NULL in fp32 */
    size_t block_bytes[N_ARENAS];
};

static enum dt_dtype arena_type(const struct arenas *a, int i)
{
    return i == GRADS || i == SHADOW ? a->type : DT_F32;
}

static size_t arena_bytes(const struct arenas *a, int i)
{
    return a->count * dt_dtype_bytes(arena_type(a, i));
}

/* Element `first` of an arena. */
static void *arena_at(const struct arenas *a, int i, size_t first)
{
    if (!a->block[i])
        return NULL;
    return (char *)a->block[i] + RIG_CHUNK + first * dt_dtype_bytes(arena_type(a, i));
}

static void arenas_close(struct arenas *a)
{
    for (int i = 0; i < N_ARENAS; i++) {
        if (a->block[i])
            a->rig.backend->free(a->rig.dev, a->block[i], a->block_bytes[i]);
        free(a->host[i]);
    }
    if (a->rig.backend)
        rig_close(&a->rig);
    dt_graph_destroy(a->g);
}

static dt_status arena_upload(struct arenas *a, int i)
{
    if (arena_type(a, i) == DT_F32)
        return a->rig.backend->upload(a->rig.dev, arena_at(a, i, 0), a->host[i], arena_bytes(a, i));
    uint16_t *packed;
    DT_TRY(DT_NEW(packed, a->count));
    for (size_t j = 0; j < a->count; j++)
        packed[j] = pack16(a->type, a->host[i][j]);
    dt_status status =
        a->rig.backend->upload(a->rig.dev, arena_at(a, i, 0), packed, arena_bytes(a, i));
    free(packed);
    return status;
}

/* The contents as floats, guards checked; the caller frees them. */
static dt_status arena_download(struct arenas *a, int i, float **out)
{
    size_t bytes = arena_bytes(a, i);
    uint16_t *raw = NULL;
    dt_status status = DT_OK;
    DT_TRY(rig_check_block(&a->rig, a->block[i], a->block_bytes[i], bytes, arena_names[i]));
    DT_TRY(DT_NEW(*out, rig_round(a->count * sizeof(float)) / sizeof(float)));
    if (arena_type(a, i) == DT_F32)
        return rig_read(&a->rig, *out, arena_at(a, i, 0), rig_round(bytes));
    DT_TRY_OUT(DT_NEW(raw, rig_round(bytes) / sizeof *raw));
    DT_TRY_OUT(rig_read(&a->rig, raw, arena_at(a, i, 0), rig_round(bytes)));
    for (size_t j = 0; j < a->count; j++)
        (*out)[j] = unpack16(a->type, raw[j]);
out:
    free(raw);
    return status;
}

static dt_status arenas_open(struct arenas *a, struct suite *suite, size_t count)
{
    enum dt_precision precision = suite->options.precision;
    *a = (struct arenas){.count = count,
                         .type = precision == DT_PRECISION_FP16   ? DT_F16
                                 : precision == DT_PRECISION_BF16 ? DT_BF16
                                                                  : DT_F32};
    DT_TRY(dt_graph_create(&a->g));
    rig_add_readers(a->g);
    DT_TRY(dt_graph_check(a->g));
    DT_TRY(rig_open(&a->rig, suite->backend, &suite->options, a->g, NULL));
    for (int i = 0; i < (a->type == DT_F32 ? SHADOW : N_ARENAS); i++) {
        struct dt_rng rng;
        dt_rng_init(&rng, 7, DT_RNG_SYNTHETIC, 0, (uint32_t)i);
        DT_TRY(DT_NEW(a->host[i], count));
        for (size_t j = 0; j < count; j++) {
            double value = 2 * dt_rng_uniform(&rng) - 1;
            a->host[i][j] =
                (float)(arena_type(a, i) == DT_F32 ? value : round_to(precision, value));
        }
        DT_TRY(rig_alloc(&a->rig, &a->block[i], &a->block_bytes[i], arena_bytes(a, i), 0));
        DT_TRY(arena_upload(a, i));
    }
    return DT_OK;
}

/* params, momentum and grads against the host copies. */
static dt_status arenas_check(struct arenas *a, double bound)
{
    for (int i = 0; i < SHADOW; i++) {
        float *got = NULL;
        dt_status status = arena_download(a, i, &got);
        for (size_t j = 0; status == DT_OK && j < a->count; j++) {
            double want = (double)a->host[i][j];
            if (!(fabs((double)got[j] - want) <= bound))
                status = DT_ERROR(DT_ERR_NUMERICAL, "%s[%zu] is %.9g, should be %.9g",
                                  arena_names[i], j, (double)got[j], want);
        }
        free(got);
        DT_TRY(status);
    }
    return DT_OK;
}

/* Starts and ends anywhere between vectors, gaps between; the last one is for the threads. */
static const struct dt_segment arena_segments[] = {
    {0, 32, 1, 1},   {48, 16, 0, 3},         {64, 16, 1, 1},
    {96, 976, 0, 1}, {1088, 64 * 33, 1, 10}, {3200, 40000, 1, 1},
};

static bool in_segment(size_t j)
{
    for (size_t i = 0; i < DT_COUNT(arena_segments); i++)
        if (j >= arena_segments[i].first && j < arena_segments[i].first + arena_segments[i].count)
            return true;
    return false;
}

/* Where there was an update the shadow is the rounded parameter, elsewhere as it was. */
static dt_status check_shadow(struct arenas *a, enum dt_precision precision, bool updated)
{
    float *params = NULL, *shadow = NULL;
    dt_status status = DT_OK;
    if (a->type == DT_F32)
        return DT_OK;
    DT_TRY_OUT(arena_download(a, PARAMS, &params));
    DT_TRY_OUT(arena_download(a, SHADOW, &shadow));
    for (size_t j = 0; j < a->count && status == DT_OK; j++) {
        double want = updated && in_segment(j) ? round_to(precision, (double)params[j])
                                               : (double)a->host[SHADOW][j];
        if ((double)shadow[j] != want)
            status = DT_ERROR(DT_ERR_NUMERICAL, "shadow[%zu] is %.9g, should be %.9g", j,
                              (double)shadow[j], want);
    }
out:
    free(params);
    free(shadow);
    return status;
}

static void update_on_host(struct arenas *a, const struct dt_scalars *s, double loss_scale)
{
    for (size_t i = 0; i < DT_COUNT(arena_segments); i++) {
        const struct dt_segment *segment = &arena_segments[i];
        for (size_t j = segment->first; j < segment->first + segment->count; j++) {
            double w = (double)a->host[PARAMS][j];
            double g = (double)a->host[GRADS][j] / loss_scale +
                       (double)segment->decay * (double)s->weight_decay * w;
            double m = (double)s->momentum * (double)a->host[MOMENTUM][j] + g;
            a->host[MOMENTUM][j] = (float)m;
            double step = s->nesterov ? g + (double)s->momentum * m : m;
            a->host[PARAMS][j] = (float)(w - (double)segment->rate * (double)s->lr * step);
        }
    }
}

static dt_status update_on_device(struct suite *suite, struct arenas *a, const struct dt_scalars *s)
{
    const struct dt_update update = {
        .params = arena_at(a, PARAMS, 0),
        .momentum = arena_at(a, MOMENTUM, 0),
        .shadow = arena_at(a, SHADOW, 0),
        .grads = arena_at(a, GRADS, 0),
        .grads_type = a->type,
        .segments = arena_segments,
        .n_segments = (int)DT_COUNT(arena_segments),
    };
    DT_TRY(suite->backend->set_scalars(a->rig.dev, s));
    return suite->backend->update(a->rig.dev, &update);
}

static dt_status run_update(struct suite *suite, struct arenas *a, bool nesterov)
{
    struct dt_scalars s = {
        .lr = 0.1f, .momentum = 0.9f, .weight_decay = 0.01f, .nesterov = nesterov};
    for (int step = 0; step < 3; step++) {
        DT_TRY(update_on_device(suite, a, &s));
        update_on_host(a, &s, 1);
        s.lr /= 2;
    }
    DT_TRY(arenas_check(a, 1e-5));
    DT_TRY(check_shadow(a, suite->options.precision, true));
    return DT_OK;
}

static dt_status run_accumulate(struct suite *suite, struct arenas *a)
{
    static const size_t counts[] = {16, 32, 48, 1008};
    for (int first = 1; first >= 0; first--) {
        DT_TRY(suite->backend->accumulate(a->rig.dev, arena_at(a, PARAMS, 0), arena_at(a, GRADS, 0),
                                          a->type, a->count, first));
        for (size_t j = 0; j < a->count; j++)
            a->host[PARAMS][j] = a->host[GRADS][j] + (first ? 0 : a->host[PARAMS][j]);
    }
    for (size_t i = 0; i < DT_COUNT(counts); i++) {
        DT_TRY(suite->backend->accumulate(a->rig.dev, arena_at(a, PARAMS, 16 * i),
                                          arena_at(a, GRADS, 16 * i), a->type, counts[i], false));
        for (size_t j = 16 * i; j < 16 * i + counts[i]; j++)
            a->host[PARAMS][j] += a->host[GRADS][j];
    }
    DT_TRY(arenas_check(a, 0));
    return DT_OK;
}

static dt_status check_skipped(struct suite *suite, struct arenas *a, int64_t n, int64_t in_a_row)
{
    struct dt_counters got;
    DT_TRY(suite->backend->download(a->rig.dev, &got));
    if (got.n_skipped != n || got.n_in_a_row != in_a_row)
        DT_FAIL(DT_ERR_NUMERICAL, "%lld steps left out, %lld in a row, should be %lld and %lld",
                (long long)got.n_skipped, (long long)got.n_in_a_row, (long long)n,
                (long long)in_a_row);
    return DT_OK;
}

/* fp16 only. */
static dt_status check_scale(struct suite *suite, struct arenas *a, double scale, int n_clean)
{
    struct dt_loss_scale got;
    if (suite->options.precision != DT_PRECISION_FP16)
        return DT_OK;
    DT_TRY(suite->backend->get_loss_scale(a->rig.dev, &got));
    if ((double)got.scale != scale || got.n_clean != n_clean)
        DT_FAIL(DT_ERR_NUMERICAL, "the loss scale is %g after %d clean steps, should be %g and %d",
                (double)got.scale, got.n_clean, scale, n_clean);
    return DT_OK;
}

/* What the plan does after the backward part. */
static dt_status take_step(struct suite *suite, struct arenas *a, const struct dt_scalars *s)
{
    size_t half = a->count / 32 * 16; /* checked in two pieces: what was found stays found */
    const struct dt_backend *backend = suite->backend;
    DT_TRY(backend->check(a->rig.dev, arena_at(a, GRADS, 0), a->type, half));
    DT_TRY(backend->check(a->rig.dev, arena_at(a, GRADS, half), a->type, a->count - half));
    DT_TRY(update_on_device(suite, a, s));
    return backend->settle(a->rig.dev);
}

/* One value that is not finite, wherever it is, leaves the step out, and in fp16 halves the scale.
 */
static dt_status run_overflow(struct suite *suite, struct arenas *a)
{
    const struct dt_scalars s = {.lr = 0.1f, .momentum = 0.9f};
    const size_t places[] = {0, 7, 4099, a->count - 1};
    const float values[] = {INFINITY, NAN, -INFINITY, NAN};
    const bool scales = suite->options.precision == DT_PRECISION_FP16;
    const struct dt_loss_scale start = {.scale = 8, .n_clean = 5};
    if (scales)
        DT_TRY(suite->backend->set_loss_scale(a->rig.dev, &start));
    for (size_t i = 0; i < DT_COUNT(places); i++) {
        float saved = a->host[GRADS][places[i]];
        a->host[GRADS][places[i]] = values[i];
        DT_TRY(arena_upload(a, GRADS));
        DT_TRY(take_step(suite, a, &s));
        a->host[GRADS][places[i]] = saved;
        DT_TRY(arena_upload(a, GRADS));
        DT_TRY(arenas_check(a, 0));
        DT_TRY(check_shadow(a, suite->options.precision, false));
        DT_TRY(check_scale(suite, a, ldexp(8, -(int)i - 1), 0));
    }
    DT_TRY(check_skipped(suite, a, DT_COUNT(places), DT_COUNT(places)));
    DT_TRY(check_skipped(suite, a, 0, 0));
    DT_TRY(take_step(suite, a, &s));
    update_on_host(a, &s, scales ? 0.5 : 1);
    DT_TRY(arenas_check(a, 1e-5));
    DT_TRY(check_scale(suite, a, 0.5, 1));
    return check_skipped(suite, a, 0, 0);
}

static void test_update(void **state)
{
    for (int nesterov = 0; nesterov < 2; nesterov++) {
        struct arenas a;
        dt_status status = arenas_open(&a, *state, 43216);
        if (status == DT_OK)
            status = run_update(*state, &a, nesterov);
        arenas_close(&a);
        report(*state, nesterov ? "update, Nesterov" : "update", status);
    }
}

static void test_accumulate(void **state)
{
    struct arenas a;
    dt_status status = arenas_open(&a, *state, 43216);
    if (status == DT_OK)
        status = run_accumulate(*state, &a);
    arenas_close(&a);
    report(*state, "accumulate", status);
}

static void test_overflow(void **state)
{
    struct suite *suite = *state;
    struct arenas a;
    const double fixed = suite->options.loss_scale;
    suite->options.loss_scale = 0; /* dynamic */
    dt_status status = arenas_open(&a, suite, 43216);
    if (status == DT_OK)
        status = run_overflow(suite, &a);
    arenas_close(&a);
    suite->options.loss_scale = fixed;
    report(suite, "overflow", status);
}

#endif
