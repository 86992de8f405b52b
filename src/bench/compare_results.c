/* `dtrain bench --compare`: this result and an earlier one. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"

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

static dt_status parse_tolerance(double *fraction, const char *given)
{
    const char *text = given ? given : "5%";
    char *end;
    *fraction = strtod(text, &end) / 100;
    bool is_number = end != text && *fraction >= 0 && *fraction < 1;
    if (!is_number || (strcmp(end, "%") != 0 && *end != '\0'))
        DT_FAIL(DT_ERR_USAGE, "--tolerance: \"%s\" is not a percentage such as 5%%", text);
    return DT_OK;
}

dt_status dt_bench_old_load(struct dt_bench_old *old, const struct dt_bench_options *options)
{
    static const struct dt_json_limits limits = {.bytes = 16 << 20, .n_values = 200000};
    DT_TRY(parse_tolerance(&old->tolerance, options->tolerance));
    DT_TRY(dt_json_load(&old->doc, options->compare, &limits));
    old->images_per_s = dt_json_number(dt_json_root(old->doc), "images_per_s");
    old->ci95 = fmax(dt_json_number(dt_json_root(old->doc), "images_per_s_ci95"), 0);
    if (!(old->images_per_s > 0))
        DT_FAIL(DT_ERR_DATA, "%s: not the result of one benchmark (dtrain bench --json FILE)",
                options->compare);
    return DT_OK;
}

/* The interval of a difference is as long as the hypotenuse of those of both. */
dt_status dt_bench_compare(const struct dt_bench *b)
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
