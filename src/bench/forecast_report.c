/* `dtrain plan`: the forecast as a table, in sentences and as JSON. */
#include <stdio.h>

#include "base/json.h"
#include "bench/forecast_run.h"

static double images_per_s(const struct dt_forecast_result *f, int n_ranks)
{
    return (double)n_ranks * f->images / dt_forecast_step_s(&f->step, n_ranks, &f->network);
}

static void print_limit(const struct dt_forecast_result *f, double efficiency)
{
    int n = dt_forecast_limit(&f->step, efficiency, &f->network);
    if (n > 0)
        printf("Efficiency falls below %.0f %% at %d ranks.\n", 100 * efficiency, n);
    else
        printf("Efficiency stays above %.0f %% up to a million ranks.\n", 100 * efficiency);
}

static void print_head(const struct dt_forecast_result *f, const struct dt_forecast_options *o)
{
    const struct dt_forecast_network *network = &f->network;
    double bytes = 0;
    for (int i = 0; i < f->step.n_buckets; i++)
        bytes += f->step.buckets[i].bytes;
    printf("%s, %d images per rank: %.2f ms without communication (%s), gradients of %.1f MB in %d "
           "bucket(s)\n",
           f->model, f->images, 1e3 * dt_forecast_step_s(&f->step, 1, network),
           f->measured_s > 0 ? "measured" : "given", bytes / 1e6, f->step.n_buckets);
    printf("Link: %.3g GB/s, %.3g us%s", network->link.bytes_per_s / 1e9,
           1e6 * network->link.latency_s, o->measure_link ? " (measured)" : "");
    if (network->ranks_per_node > 1)
        printf("; between the %d ranks of a node: %.3g GB/s, %.3g us", network->ranks_per_node,
               network->local.bytes_per_s / 1e9, 1e6 * network->local.latency_s);
    printf("\n%s\n\n", f->step.overlaps
                           ? "Sums overlap the backward pass."
                           : "Sums take the time of the CPUs that compute: none is hidden.");
}

static void print_table(const struct dt_forecast_result *f, const struct dt_forecast_options *o)
{
    printf("%8s %10s %12s %12s %11s\n", "ranks", "step ms", "exposed ms", "images/s", "efficiency");
    for (int i = 0; i < o->n_ranks; i++)
        printf("%8d %10.2f %12.3f %12.0f %9.1f %%\n", o->ranks[i],
               1e3 * dt_forecast_step_s(&f->step, o->ranks[i], &f->network),
               1e3 * dt_forecast_exposed_s(&f->step, o->ranks[i], &f->network),
               images_per_s(f, o->ranks[i]),
               100 * dt_forecast_efficiency(&f->step, o->ranks[i], &f->network));
    printf("\n");
}

static void print_advice(const struct dt_forecast_result *f)
{
    int n = f->n_ranks;
    print_limit(f, 0.9);
    print_limit(f, 0.5);
    printf("On the most ranks comm.bucket_cap_mb %g is best: %.2f ms per step", f->best_cap_mb,
           1e3 * f->best_s);
    printf(f->best_cap_mb == f->cap_mb ? ", as configured.\n" : " (configured: %g).\n", f->cap_mb);
    if (f->measured_s > 0 && n > 1)
        printf("Check on these %d ranks: measured %.2f ms, forecast %.2f ms (%+.1f %%).\n", n,
               1e3 * f->measured_s, 1e3 * dt_forecast_step_s(&f->step, n, &f->network),
               100 * (dt_forecast_step_s(&f->step, n, &f->network) / f->measured_s - 1));
    printf("Not in the model: more ranks to wait for than measured, and ranks that share memory "
           "bandwidth or a CPU.\n");
}

static void write_points(const struct dt_forecast_result *f, const struct dt_forecast_options *o,
                         struct dt_jsonw *w)
{
    dt_jsonw_begin(w, "forecast", '[');
    for (int i = 0; i < o->n_ranks; i++) {
        int n = o->ranks[i];
        dt_jsonw_begin(w, NULL, '{');
        dt_jsonw_integer(w, "ranks", n);
        dt_jsonw_number(w, "step_s", dt_forecast_step_s(&f->step, n, &f->network));
        dt_jsonw_number(w, "exposed_comm_s", dt_forecast_exposed_s(&f->step, n, &f->network));
        dt_jsonw_number(w, "images_per_s", images_per_s(f, n));
        dt_jsonw_number(w, "efficiency", dt_forecast_efficiency(&f->step, n, &f->network));
        dt_jsonw_close(w, '}');
    }
    dt_jsonw_close(w, ']');
}

static dt_status save_json(const struct dt_forecast_result *f, const struct dt_forecast_options *o)
{
    struct dt_jsonw w;
    dt_jsonw_init(&w, true);
    dt_jsonw_begin(&w, NULL, '{');
    dt_jsonw_string(&w, "dtrain", DTRAIN_VERSION);
    dt_jsonw_string(&w, "model", f->model);
    dt_jsonw_integer(&w, "images_per_rank", f->images);
    dt_jsonw_number(&w, "link_bytes_per_s", f->network.link.bytes_per_s);
    dt_jsonw_number(&w, "link_latency_s", f->network.link.latency_s);
    dt_jsonw_bool(&w, "overlaps", f->step.overlaps);
    if (f->measured_s > 0) {
        dt_jsonw_integer(&w, "measured_ranks", f->n_ranks);
        dt_jsonw_number(&w, "measured_step_s", f->measured_s);
    }
    write_points(f, o, &w);
    dt_jsonw_integer(&w, "below_90_percent", dt_forecast_limit(&f->step, 0.9, &f->network));
    dt_jsonw_integer(&w, "below_50_percent", dt_forecast_limit(&f->step, 0.5, &f->network));
    dt_jsonw_number(&w, "best_bucket_cap_mb", f->best_cap_mb);
    dt_jsonw_close(&w, '}');
    return dt_jsonw_save(&w, o->json_path);
}

dt_status dt_forecast_report(const struct dt_forecast_result *f,
                             const struct dt_forecast_options *o)
{
    print_head(f, o);
    print_table(f, o);
    print_advice(f);
    if (fflush(stdout) != 0)
        DT_FAIL(DT_ERR_IO, "cannot write the forecast to standard output");
    return o->json_path ? save_json(f, o) : DT_OK;
}
