/* The alpha-beta model of a training step. */
#include "bench/forecast.h"

#include <math.h>

static double ring_s(double bytes, double n, const struct dt_link *link)
{
    return 2 * (n - 1) * (link->latency_s + bytes / n / link->bytes_per_s);
}

/* Pieces follow each other through the levels; more of them fill the pipe but cost latency. */
static double tree_s(double bytes, double n, const struct dt_link *link)
{
    double levels = ceil(log2(n)), whole_s = bytes / link->bytes_per_s;
    if (link->latency_s <= 0)
        return 2 * whole_s;
    double pieces = fmax(sqrt((levels - 1) * whole_s / link->latency_s), 1);
    return 2 * (levels - 1 + pieces) * (link->latency_s + whole_s / pieces);
}

double dt_forecast_sum_s(double bytes, int n, const struct dt_link *link, bool has_trees)
{
    if (n <= 1)
        return 0;
    double s = ring_s(bytes, n, link);
    return has_trees ? fmin(s, tree_s(bytes, n, link)) : s;
}

double dt_forecast_reduce_s(double bytes, int n_ranks, const struct dt_forecast_network *network)
{
    int on_node = n_ranks < network->ranks_per_node ? n_ranks : network->ranks_per_node;
    int n_nodes = (n_ranks + on_node - 1) / on_node;
    bool trees = n_ranks > network->ring_ranks;
    if (n_ranks <= 1)
        return 0;
    double one_ring_s = ring_s(bytes, n_ranks, n_nodes > 1 ? &network->link : &network->local);
    if (!trees)
        return one_ring_s;
    return fmin(one_ring_s, dt_forecast_sum_s(bytes, on_node, &network->local, trees) +
                                dt_forecast_sum_s(bytes, n_nodes, &network->link, trees));
}

void dt_forecast_sort(struct dt_forecast_bucket *buckets, int n)
{
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && buckets[j].ready_s < buckets[j - 1].ready_s; j--) {
            struct dt_forecast_bucket later = buckets[j - 1];
            buckets[j - 1] = buckets[j];
            buckets[j] = later;
        }
}

double dt_forecast_exposed_s(const struct dt_forecast_step *step, int n_ranks,
                             const struct dt_forecast_network *network)
{
    double end_s = step->overlaps ? 0 : step->compute_s;
    for (int i = 0; i < step->n_buckets; i++)
        end_s = fmax(end_s, step->overlaps ? step->buckets[i].ready_s : 0) +
                dt_forecast_reduce_s(step->buckets[i].bytes, n_ranks, network);
    return n_ranks > 1 ? fmax(end_s - step->compute_s, 0) : 0;
}

double dt_forecast_step_s(const struct dt_forecast_step *step, int n_ranks,
                          const struct dt_forecast_network *network)
{
    return step->compute_s + dt_forecast_exposed_s(step, n_ranks, network) + step->rest_s;
}

double dt_forecast_efficiency(const struct dt_forecast_step *step, int n_ranks,
                              const struct dt_forecast_network *network)
{
    return dt_forecast_step_s(step, 1, network) / dt_forecast_step_s(step, n_ranks, network);
}

int dt_forecast_limit(const struct dt_forecast_step *step, double efficiency,
                      const struct dt_forecast_network *network)
{
    enum { MAX = 1 << 20 };
    for (int n = network->ranks_per_node; n <= MAX; n *= 2)
        if (dt_forecast_efficiency(step, n, network) < efficiency)
            return n;
    return 0;
}

/* Weighted least squares for s = fixed + slope * bytes, with weights 1 / s^2. */
struct dt_link dt_forecast_fit(const double *bytes, const double *s, int n, int n_ranks)
{
    double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0, messages = 2.0 * (n_ranks - 1);
    for (int i = 0; i < n; i++) {
        double weight = 1 / (s[i] * s[i]);
        w += weight;
        wx += weight * bytes[i];
        wy += weight * s[i];
        wxx += weight * bytes[i] * bytes[i];
        wxy += weight * bytes[i] * s[i];
    }
    double slope = fmax((w * wxy - wx * wy) / (w * wxx - wx * wx), 1e-15); /* noise */
    double fixed = (wy - slope * wx) / w;
    return (struct dt_link){.bytes_per_s = messages / n_ranks / slope,
                            .latency_s = fmax(fixed / messages, 0)};
}
