/* `dtrain bench`: one measurement, which --compare sets against an earlier one, or one for each of
 * several batch sizes with a table of all. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/host.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sort.h"
#include "base/text.h"
#include "bench/bench.h"

enum { MAX_SIZES = 16, MAX_PER_RANK = 65536, MIN_AUTO = 8, MAX_AUTO = 4096 };

struct sizes {
    struct dt_comm *comm;
    const struct dt_config *config;
    const struct dt_bench_options *options;
    struct dt_bench bench; /* the current one */
    int n, per_rank[MAX_SIZES];
    struct dt_jsonw json;
};

/* --- Comparison with an earlier result --- */

static const char *text_of(const struct dt_json *value, char number[32])
{
    snprintf(number, 32, "%.0f", value->number);
    return value->type == DT_JSON_STRING ? value->string : number;
}

/* `own`: the identity of this result. What an older dtrain did not write is not compared. */
static dt_status check_members(const struct dt_json *old, const struct dt_json *own,
                               const char *path)
{
    char number[2][32];
    for (const struct dt_json *own_value = own->child; own_value; own_value = own_value->next) {
        const struct dt_json *old_value = dt_json_get(old, own_value->key);
        if (old_value && strcmp(text_of(old_value, number[0]), text_of(own_value, number[1])) != 0)
            DT_FAIL(DT_ERR_CONFIG,
                    "%s: measured with %s %s, not %s; only results of the same benchmark can be "
                    "compared",
                    path, own_value->key, text_of(old_value, number[0]),
                    text_of(own_value, number[1]));
    }
    return DT_OK;
}

dt_status dt_bench_check_old(const struct dt_bench *b)
{
    struct dt_json_doc *doc = NULL;
    struct dt_jsonw w = {0};
    dt_jsonw_begin(&w, NULL, '{');
    dt_bench_write_identity(b, &w);
    dt_jsonw_close(&w, '}');
    dt_status status = dt_jsonw_end(&w);
    if (status == DT_OK)
        status = dt_json_parse(&doc, w.text, w.bytes, "this result", NULL);
    if (status == DT_OK)
        status = check_members(dt_json_root(b->old->doc), dt_json_root(doc), b->options->compare);
    dt_json_destroy(doc);
    dt_jsonw_reset(&w);
    return status;
}

static dt_status load_old(struct dt_bench_old *old, const struct dt_bench_options *options)
{
    static const struct dt_json_limits limits = {.bytes = 16 << 20, .n_values = 200000};
    const char *text = options->tolerance ? options->tolerance : "5%";
    char *end;
    old->tolerance = strtod(text, &end) / 100;
    const bool is_number = end != text && old->tolerance >= 0 && old->tolerance < 1;
    if (!is_number || (strcmp(end, "%") != 0 && *end != '\0'))
        DT_FAIL(DT_ERR_USAGE, "--tolerance: \"%s\" is not a percentage such as 5%%", text);
    DT_TRY(dt_json_load(&old->doc, options->compare, &limits));
    old->images_per_s = dt_json_number(dt_json_root(old->doc), "images_per_s");
    old->ci95 = fmax(dt_json_number(dt_json_root(old->doc), "images_per_s_ci95"), 0);
    if (!(old->images_per_s > 0))
        DT_FAIL(DT_ERR_DATA, "%s: not the result of one benchmark (dtrain bench --json FILE)",
                options->compare);
    return DT_OK;
}

/* The interval of a difference is as long as the hypotenuse of those of both. */
static dt_status compare(const struct dt_bench *b)
{
    const struct dt_bench_old *old = b->old;
    const double n = b->engine.ranks.n_ranks, own = b->mean * n;
    const double ci95 = isfinite(b->ci95) ? b->ci95 * n : 0;
    const double slower = 1 - own / old->images_per_s;
    const double noise = hypot(ci95, old->ci95) / old->images_per_s;
    char text[1024];
    snprintf(text, sizeof text,
             "%.1f +-%.1f img/sec is %.1f %% %s than the %.1f +-%.1f of %s; accepted: %.3g %%, "
             "or the noise of both, %.1f %%",
             own, ci95, 100 * fabs(slower), slower > 0 ? "slower" : "faster", old->images_per_s,
             old->ci95, b->options->compare, 100 * old->tolerance, 100 * noise);
    if (slower > old->tolerance && slower > noise)
        DT_FAIL(DT_ERR_DISAGREE, "--compare: %s", text);
    printf("Compared: %s\n", text);
    return DT_OK;
}

/* --- The largest batch that fits --- */

struct fit {
    double bytes, max_bytes;
    int max; /* images per rank in the data */
};

/* Lays out the plan without its memory. */
static dt_status lay_out(struct sizes *z, int per_rank, struct fit *fit)
{
    struct dt_bench *b = &z->bench;
    DT_TRY(dt_bench_begin(b, z->comm, z->config, z->options, per_rank));
    dt_status status = dt_bench_open(b, true);
    if (status == DT_OK) {
        const struct dt_dataset *set = b->phase == DT_TRAIN ? b->sets.train_set : b->sets.val_set;
        const bool is_limited = z->options->real_data && set;
        fit->bytes = (double)dt_plan_bytes(b->engine.plan);
        fit->max_bytes = dt_engine_room(&b->engine);
        fit->max = is_limited ? (int)dt_bench_max_images(&b->sets, set) / b->engine.ranks.n_ranks
                              : MAX_AUTO;
    }
    dt_bench_end(b, status);
    return status;
}

/* A plan grows nearly linearly with the batch: two layouts predict the answer, others check it. A
 * multiple of 8, or less than 8. */
static dt_status choose_size(struct sizes *z, int *per_rank)
{
    char plan_text[32], max_text[32];
    struct fit first, fit;
    dt_log_progress("bench: looking for the largest batch size");
    DT_TRY(lay_out(z, MIN_AUTO, &first));
    fit = first;
    const int max = first.max < MAX_AUTO ? first.max : MAX_AUTO;
    int n = MIN_AUTO;
    if (max >= 2 * MIN_AUTO) {
        DT_TRY(lay_out(z, 2 * MIN_AUTO, &fit));
        double each = fmax(fit.bytes - first.bytes, 1) / MIN_AUTO;
        double room = MIN_AUTO + (first.max_bytes - first.bytes) / each;
        n = (int)fmin(fmax(room, 1), max);
        n = n < MIN_AUTO ? n : n / MIN_AUTO * MIN_AUTO;
        DT_TRY(lay_out(z, n, &fit));
    }
    while (n > MIN_AUTO && fit.bytes > fit.max_bytes) {
        n -= MIN_AUTO * (1 + n / (16 * MIN_AUTO));
        DT_TRY(lay_out(z, n, &fit));
    }
    *per_rank = n;
    if (dt_comm_rank(z->comm) != 0)
        return DT_OK;
    dt_log_progress("");
    printf("Batch size auto: %d images per rank, which take %s of %s%s\n\n", n,
           dt_memory_format(plan_text, sizeof plan_text, (uint64_t)fit.bytes),
           dt_memory_format(max_text, sizeof max_text, (uint64_t)fit.max_bytes),
           n + MIN_AUTO > MAX_AUTO  ? "; more are not tried"
           : n + MIN_AUTO > fit.max ? "; the data have no more"
                                    : "");
    return DT_OK;
}

/* --- Several sizes --- */

/* "32,64,128" or "auto"; without the option one size, 0. */
static dt_status list_sizes(struct sizes *z)
{
    const char *text = z->options->batch_sizes;
    z->n = 1;
    if (!text)
        return DT_OK;
    if (strcmp(text, "auto") == 0)
        return choose_size(z, &z->per_rank[0]);
    z->n = dt_text_integers(z->per_rank, MAX_SIZES, MAX_PER_RANK, text);
    if (z->n == 0)
        DT_FAIL_ON_ALL_RANKS(
            DT_ERR_USAGE,
            "--batch-size-per-rank: \"%s\" is neither auto nor a list of up to %d integers in "
            "1..%d, such as 32,64,128",
            text, MAX_SIZES, MAX_PER_RANK);
    if (z->n > 1 && (z->options->compare || z->options->trace))
        DT_FAIL_ON_ALL_RANKS(DT_ERR_USAGE, "--%s: give one batch size, not %d",
                             z->options->compare ? "compare" : "trace", z->n);
    return DT_OK;
}

/* "-" if it is unknown. */
static const char *cell(char out[32], double value)
{
    snprintf(out, 32, isfinite(value) ? "%.1f" : "-", value);
    return out;
}

/* With several sizes, one that does not fit is left out, unless only some ranks know of it. */
static dt_status run_size(struct sizes *z, int per_rank, struct dt_text *table)
{
    struct dt_bench *b = &z->bench;
    const int rank = dt_comm_rank(z->comm);
    char ci95[32], mfu[32], plan[32];
    DT_TRY(dt_bench_begin(b, z->comm, z->config, z->options, per_rank));
    dt_status status = dt_bench_measure(b, &z->json);
    if (status == DT_OK && rank == 0) {
        const double n = b->engine.ranks.n_ranks;
        const double p50_s = dt_percentile_f64(b->step_s, (size_t)b->n_steps, 0.5);
        dt_memory_format(plan, sizeof plan, dt_plan_bytes(b->engine.plan));
        dt_text_add(table, "%10.7g %12.1f %10s %12.1f %8s %12s\n", b->images, b->mean * n,
                    cell(ci95, b->ci95 * n), 1e3 * p50_s, cell(mfu, 100 * b->mfu), plan);
    }
    const bool is_skipped =
        status == DT_ERR_MEMORY && z->n > 1 && dt_error_origin() != DT_ORIGIN_LOCAL;
    if (is_skipped && rank == 0)
        printf("Batch size %d per rank is skipped: %s\n", per_rank, dt_error_text());
    if (is_skipped)
        dt_text_add(table, "%10d %12s\n", per_rank, "too large");
    dt_bench_end(b, status);
    if (is_skipped)
        dt_error_clear();
    return is_skipped ? DT_OK : status;
}

static dt_status run_sizes(struct sizes *z)
{
    char lines[MAX_SIZES * 96];
    struct dt_text table = dt_text_in(lines, sizeof lines);
    const bool is_first = dt_comm_rank(z->comm) == 0;
    if (z->n > 1)
        dt_jsonw_begin(&z->json, NULL, '[');
    for (int i = 0; i < z->n; i++) {
        if (i > 0 && is_first)
            printf("\n");
        DT_TRY(run_size(z, z->per_rank[i], &table));
    }
    if (z->n > 1)
        dt_jsonw_close(&z->json, ']');
    if (z->n > 1 && is_first)
        printf("\n%10s %12s %10s %12s %8s %12s\n%s", "per rank", "img/sec", "+-95 %", "p50 in ms",
               "MFU, %", "plan", lines);
    return DT_OK;
}

/* --- Together --- */

/* Rank 0. The file is written even if the comparison fails. */
static dt_status finish(struct sizes *z)
{
    if (z->options->json_path)
        DT_TRY(dt_jsonw_save(&z->json, z->options->json_path));
    if (z->options->compare)
        DT_TRY(compare(&z->bench));
    if (fflush(stdout) != 0)
        DT_FAIL(DT_ERR_IO, "cannot write the result to standard output");
    return DT_OK;
}

dt_status dt_bench(struct dt_comm *comm, const struct dt_config *config,
                   const struct dt_bench_options *options)
{
    const bool compares = options->compare && dt_comm_rank(comm) == 0;
    struct sizes *z = NULL;
    struct dt_bench_old old = {0};
    DT_TRY(DT_NEW(z, 1));
    z->comm = comm;
    z->config = config;
    z->options = options;
    z->json.pretty = true;
    dt_status status = dt_comm_agree(comm, compares ? load_old(&old, options) : DT_OK);
    DT_TRY_OUT(status);
    z->bench.old = compares ? &old : NULL;
    DT_TRY_OUT(list_sizes(z));
    DT_TRY_OUT(run_sizes(z));
    status = dt_comm_agree(comm, dt_comm_rank(comm) == 0 ? finish(z) : DT_OK);
out:
    dt_jsonw_reset(&z->json);
    dt_json_destroy(old.doc);
    free(z);
    return status;
}
