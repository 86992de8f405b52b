/* What a backend does besides ops: update and accumulate over plain arenas. */
#ifndef DTRAIN_TESTS_ARENA_CASES_H
#define DTRAIN_TESTS_ARENA_CASES_H

#include "op_cases.h"
#include "optim.h"

enum { PARAMS, MOMENTUM, SQUARE, GRADS, SHADOW, N_ARENAS };

static const char *const arena_names[N_ARENAS] = {"params", "momentum", "square", "grads",
                                                  "shadow"};

struct arenas {
    struct dt_graph *g;
    struct rig rig;
    size_t count;                   /* elements in each */
    enum dt_dtype type, grads_type; /* of the shadow, of grads; the others are fp32 */
    float *host[N_ARENAS];          /* what they should hold; of the shadow nothing */
    void *block[N_ARENAS];          /* shadow: NULL in fp32 */
    size_t block_bytes[N_ARENAS];
    double *norms; /* on the device */
    int t;         /* updates */
};

enum { NORMS_BYTES = 4096 };

static enum dt_dtype arena_type(const struct arenas *a, int i)
{
    return i == SHADOW ? a->type : i == GRADS ? a->grads_type : DT_F32;
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
    if (a->norms)
        a->rig.backend->free(a->rig.dev, a->norms, NORMS_BYTES);
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
        return a->rig.backend->read(a->rig.dev, *out, arena_at(a, i, 0), rig_round(bytes));
    DT_TRY_OUT(DT_NEW(raw, rig_round(bytes) / sizeof *raw));
    DT_TRY_OUT(a->rig.backend->read(a->rig.dev, raw, arena_at(a, i, 0), rig_round(bytes)));
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
    a->grads_type = suite->backend == &dt_backend_cpu ? DT_F32 : a->type;
    DT_TRY(dt_graph_create(&a->g));
    DT_TRY(dt_graph_check(a->g));
    DT_TRY(rig_open(&a->rig, suite->backend, &suite->options, a->g, NULL));
    void *norms;
    DT_TRY(suite->backend->alloc(a->rig.dev, &norms, NORMS_BYTES));
    a->norms = norms;
    for (int i = 0; i < (a->type == DT_F32 ? SHADOW : N_ARENAS); i++) {
        struct dt_rng rng;
        dt_rng_init(&rng, 7, DT_RNG_SYNTHETIC, 0, (uint32_t)i);
        DT_TRY(DT_NEW(a->host[i], count));
        for (size_t j = 0; j < count; j++) {
            double value = (i == SQUARE ? 1 : 2) * dt_rng_uniform(&rng) - (i == SQUARE ? 0 : 1);
            a->host[i][j] =
                (float)(arena_type(a, i) == DT_F32 ? value : round_to(precision, value));
        }
        DT_TRY(rig_alloc(&a->rig, &a->block[i], &a->block_bytes[i], arena_bytes(a, i), 0));
        DT_TRY(arena_upload(a, i));
    }
    return DT_OK;
}

/* params, states and grads against the host copies. */
static dt_status arenas_check(struct arenas *a, double bound)
{
    for (int i = 0; i < SHADOW; i++) {
        float *got = NULL;
        dt_status status = arena_download(a, i, &got);
        for (size_t j = 0; status == DT_OK && j < a->count; j++) {
            double want = (double)a->host[i][j];
            if (!(fabs((double)got[j] - want) <= bound * fmax(1, fabs(want))))
                status = DT_ERROR(DT_ERR_NUMERICAL, "%s[%zu] is %.9g, should be %.9g",
                                  arena_names[i], j, (double)got[j], want);
        }
        free(got);
        DT_TRY(status);
    }
    return DT_OK;
}

/* Starts and ends anywhere between vectors, gaps between; the last one is for the threads and has
 * several tiles. */
static const struct dt_segment arena_segments[] = {
    {0, 32, 1, 1, 0, true},    {48, 16, 0, 3, 1, false},        {64, 16, 1, 1, 2, true},
    {96, 976, 0, 1, 3, false}, {1088, 64 * 33, 1, 10, 4, true}, {3200, 40000, 1, 1, 5, true},
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

/* With gradients times `factor`; has the device's rounding of states between steps. */
static dt_status update_on_host(struct arenas *a, enum dt_optim optim, const struct dt_scalars *s,
                                double factor)
{
    double *values[GRADS + 1] = {NULL};
    dt_status status = DT_OK;
    a->t++;
    for (int k = 0; k <= GRADS; k++) {
        DT_TRY_OUT(DT_NEW(values[k], a->count));
        for (size_t j = 0; j < a->count; j++)
            values[k][j] = (double)a->host[k][j] * (k == GRADS ? factor : 1);
    }
    for (size_t j = 0; j < a->count && s->optim.clip_value > 0; j++)
        values[GRADS][j] =
            fmin(fmax(values[GRADS][j], -(double)s->optim.clip_value), (double)s->optim.clip_value);
    for (size_t i = 0; i < DT_COUNT(arena_segments); i++) {
        const struct dt_segment *segment = &arena_segments[i];
        const struct optim_case c = {.w = values[PARAMS] + segment->first,
                                     .m = values[MOMENTUM] + segment->first,
                                     .v = values[SQUARE] + segment->first,
                                     .g = values[GRADS] + segment->first,
                                     .n = segment->count,
                                     .lr = (double)s->lr * (double)segment->rate,
                                     .decay =
                                         (double)s->optim.weight_decay * (double)segment->decay,
                                     .momentum = s->optim.momentum,
                                     .beta2 = s->optim.beta2,
                                     .eps = (double)s->optim.eps,
                                     .trust = (double)s->optim.trust,
                                     .nesterov = s->optim.nesterov,
                                     .has_trust = segment->has_trust,
                                     .t = a->t};
        references[optim].update(&c);
    }
    for (int k = 0; k < GRADS; k++)
        for (size_t j = 0; j < a->count; j++)
            a->host[k][j] = (float)values[k][j];
out:
    for (int k = 0; k <= GRADS; k++)
        free(values[k]);
    return status;
}

static dt_status update_on_device(struct suite *suite, struct arenas *a, enum dt_optim optim,
                                  const struct dt_scalars *s)
{
    const struct dt_update update = {
        .optim = optim,
        .params = arena_at(a, PARAMS, 0),
        .momentum = arena_at(a, MOMENTUM, 0),
        .square = dt_optim_has_square(optim) ? arena_at(a, SQUARE, 0) : NULL,
        .norms = a->norms,
        .shadow = arena_at(a, SHADOW, 0),
        .grads = arena_at(a, GRADS, 0),
        .grads_type = a->grads_type,
        .segments = arena_segments,
        .n_segments = (int)DT_COUNT(arena_segments),
    };
    DT_TRY(suite->backend->set_scalars(a->rig.dev, s));
    return suite->backend->update(a->rig.dev, &update);
}

static struct dt_scalars scalars_of(enum dt_optim optim)
{
    return (struct dt_scalars){.lr = 0.1f,
                               .optim = {.momentum = 0.9,
                                         .beta2 = references[optim].beta2,
                                         .eps = (float)references[optim].eps,
                                         .weight_decay = 0.01f,
                                         .trust = 0.02f}};
}

static dt_status run_update(struct suite *suite, struct arenas *a, enum dt_optim optim,
                            struct dt_scalars s)
{
    for (int step = 0; step < 3; step++) {
        DT_TRY(update_on_device(suite, a, optim, &s));
        DT_TRY(suite->backend->end_step(a->rig.dev));
        DT_TRY(update_on_host(a, optim, &s, 1));
        s.lr /= 2;
    }
    DT_TRY(arenas_check(a, 3e-6));
    DT_TRY(check_shadow(a, suite->options.precision, true));
    return DT_OK;
}

/* Gradients are limited without the loss scale; a limit that none reaches changes nothing. */
static dt_status run_clip(struct suite *suite, struct arenas *a, float clip_norm)
{
    const struct dt_backend *backend = suite->backend;
    const bool scales = suite->options.precision == DT_PRECISION_FP16;
    const struct dt_loss_scale scale = {.scale = 8};
    struct dt_scalars s = scalars_of(DT_OPTIM_SGD);
    double sum = 0, factor = scales ? 0.125 : 1;
    s.optim.clip_norm = clip_norm;
    if (scales)
        DT_TRY(backend->set_loss_scale(a->rig.dev, &scale));
    for (size_t j = 0; j < a->count; j++)
        sum += (double)a->host[GRADS][j] * (double)a->host[GRADS][j] * factor * factor;
    DT_TRY(backend->set_scalars(a->rig.dev, &s));
    DT_TRY(backend->check(a->rig.dev, arena_at(a, GRADS, 0), a->grads_type, a->count, a->norms));
    DT_TRY(backend->clip(a->rig.dev, a->norms, dt_tiles(a->count)));
    DT_TRY(update_on_device(suite, a, DT_OPTIM_SGD, &s));
    DT_TRY(backend->end_step(a->rig.dev));
    DT_TRY(update_on_host(a, DT_OPTIM_SGD, &s,
                          factor * fmin(1, (double)clip_norm / (sqrt(sum) + 1e-6))));
    DT_TRY(update_on_device(suite, a, DT_OPTIM_SGD, &s)); /* the next step is not clipped */
    DT_TRY(update_on_host(a, DT_OPTIM_SGD, &s, factor));
    return arenas_check(a, 3e-6);
}

static dt_status run_accumulate(struct suite *suite, struct arenas *a)
{
    static const size_t counts[] = {16, 32, 48, 1008};
    for (int first = 1; first >= 0; first--) {
        DT_TRY(suite->backend->accumulate(a->rig.dev, arena_at(a, PARAMS, 0), arena_at(a, GRADS, 0),
                                          a->grads_type, a->count, first));
        for (size_t j = 0; j < a->count; j++)
            a->host[PARAMS][j] = a->host[GRADS][j] + (first ? 0 : a->host[PARAMS][j]);
    }
    for (size_t i = 0; i < DT_COUNT(counts); i++) {
        DT_TRY(suite->backend->accumulate(a->rig.dev, arena_at(a, PARAMS, 16 * i),
                                          arena_at(a, GRADS, 16 * i), a->grads_type, counts[i],
                                          false));
        for (size_t j = 16 * i; j < 16 * i + counts[i]; j++)
            a->host[PARAMS][j] += a->host[GRADS][j];
    }
    DT_TRY(arenas_check(a, 0));
    return DT_OK;
}

static dt_status lerp(struct suite *suite, struct arenas *a, float weight)
{
    const struct dt_scalars s = {.ema_weight = weight};
    DT_TRY(suite->backend->set_scalars(a->rig.dev, &s));
    return suite->backend->lerp(a->rig.dev, arena_at(a, MOMENTUM, 0), arena_at(a, PARAMS, 0),
                                a->count);
}

/* A weight of 1 is a copy; a step that is skipped changes nothing. */
static dt_status run_lerp(struct suite *suite, struct arenas *a)
{
    static const float weights[] = {1, 0.75f, 0.25f, 1e-4f, 0};
    for (size_t i = 0; i < DT_COUNT(weights); i++) {
        const double weight = (double)weights[i];
        DT_TRY(lerp(suite, a, weights[i]));
        for (size_t j = 0; j < a->count; j++)
            a->host[MOMENTUM][j] = (float)((1 - weight) * (double)a->host[MOMENTUM][j] +
                                           weight * (double)a->host[PARAMS][j]);
        DT_TRY(arenas_check(a, i == 0 ? 0 : 1e-6));
        a->host[PARAMS][i] += 1;
        DT_TRY(arena_upload(a, PARAMS));
    }
    a->host[GRADS][5] = INFINITY;
    DT_TRY(arena_upload(a, GRADS));
    DT_TRY(suite->backend->check(a->rig.dev, arena_at(a, GRADS, 0), a->grads_type, a->count, NULL));
    DT_TRY(lerp(suite, a, 1));
    a->host[GRADS][5] = 0;
    DT_TRY(arena_upload(a, GRADS));
    return arenas_check(a, 1e-6);
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
static dt_status take_step(struct suite *suite, struct arenas *a, enum dt_optim optim,
                           const struct dt_scalars *s)
{
    size_t half = a->count / 32 * 16; /* checked in two pieces: what was found stays found */
    const struct dt_backend *backend = suite->backend;
    DT_TRY(backend->check(a->rig.dev, arena_at(a, GRADS, 0), a->grads_type, half, NULL));
    DT_TRY(backend->check(a->rig.dev, arena_at(a, GRADS, half), a->grads_type, a->count - half,
                          a->norms));
    DT_TRY(update_on_device(suite, a, optim, s));
    return backend->end_step(a->rig.dev);
}

/* One value that is not finite, wherever it is, leaves the step out, and in fp16 halves the scale.
 */
static dt_status run_overflow(struct suite *suite, struct arenas *a, enum dt_optim optim)
{
    const struct dt_scalars s = scalars_of(optim);
    const size_t places[] = {0, 7, 4099, a->count - 1};
    const float values[] = {INFINITY, NAN, -INFINITY, NAN};
    const bool scales = suite->options.precision == DT_PRECISION_FP16;
    const struct dt_loss_scale start = {.scale = 8, .n_clean = 5};
    int64_t n_updates;
    if (scales)
        DT_TRY(suite->backend->set_loss_scale(a->rig.dev, &start));
    for (size_t i = 0; i < DT_COUNT(places); i++) {
        float saved = a->host[GRADS][places[i]];
        a->host[GRADS][places[i]] = values[i];
        DT_TRY(arena_upload(a, GRADS));
        DT_TRY(take_step(suite, a, optim, &s));
        a->host[GRADS][places[i]] = saved;
        DT_TRY(arena_upload(a, GRADS));
        DT_TRY(arenas_check(a, 0));
        DT_TRY(check_shadow(a, suite->options.precision, false));
        DT_TRY(check_scale(suite, a, ldexp(8, -(int)i - 1), 0));
    }
    DT_TRY(check_skipped(suite, a, DT_COUNT(places), DT_COUNT(places)));
    DT_TRY(check_skipped(suite, a, 0, 0));
    DT_TRY(take_step(suite, a, optim, &s));
    DT_TRY(update_on_host(a, optim, &s, scales ? 2 : 1)); /* as the first update */
    DT_TRY(arenas_check(a, 3e-6));
    DT_TRY(suite->backend->get_updates(a->rig.dev, &n_updates));
    if (n_updates != 1)
        DT_FAIL(DT_ERR_NUMERICAL, "%lld updates, should be 1", (long long)n_updates);
    DT_TRY(check_scale(suite, a, 0.5, 1));
    return check_skipped(suite, a, 0, 0);
}

static void test_update(void **state)
{
    for (enum dt_optim optim = 0; optim < DT_COUNT(references); optim++) {
        for (int variant = 0; variant < (optim == DT_OPTIM_SGD ? 3 : 1); variant++) {
            struct arenas a;
            struct dt_scalars s = scalars_of(optim);
            s.optim.nesterov = variant == 1;
            s.optim.clip_value = variant == 2 ? 0.5f : 0;
            dt_status status = arenas_open(&a, *state, 43216);
            if (status == DT_OK)
                status = run_update(*state, &a, optim, s);
            arenas_close(&a);
            report(*state, references[optim].name, status);
        }
    }
}

static void test_clip(void **state)
{
    static const float limits[] = {1, 1e6f};
    for (size_t i = 0; i < DT_COUNT(limits); i++) {
        struct arenas a;
        dt_status status = arenas_open(&a, *state, 43216);
        if (status == DT_OK)
            status = run_clip(*state, &a, limits[i]);
        arenas_close(&a);
        report(*state, "clip_norm", status);
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

static void test_lerp(void **state)
{
    struct arenas a;
    dt_status status = arenas_open(&a, *state, 43216);
    if (status == DT_OK)
        status = run_lerp(*state, &a);
    arenas_close(&a);
    report(*state, "lerp", status);
}

static void test_overflow(void **state)
{
    struct suite *suite = *state;
    const double fixed = suite->options.loss_scale;
    suite->options.loss_scale = 0; /* dynamic */
    for (enum dt_optim optim = 0; optim < DT_COUNT(references); optim++) {
        struct arenas a;
        dt_status status = arenas_open(&a, suite, 43216);
        if (status == DT_OK)
            status = run_overflow(suite, &a, optim);
        arenas_close(&a);
        report(suite, references[optim].name, status);
    }
    suite->options.loss_scale = fixed;
}

#endif
