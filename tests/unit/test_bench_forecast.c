/* The model of dtrain forecast: cases by hand, bounds, and published runs on many GPUs. */
#include <limits.h>
#include <math.h>

#include "base/mem.h"
#include "bench/forecast.h"
#include "test.h"

static const struct dt_forecast_bucket buckets[] = {{8e6, 0.06}, {8e6, 0.08}, {4e6, 0.1}};
static const struct dt_forecast_step step = {buckets, 3, 0.1, 0.01, true};

static struct dt_forecast_network flat(double bytes_per_s, double latency_s)
{
    return (struct dt_forecast_network){
        .link = {bytes_per_s, latency_s}, .ranks_per_node = 1, .ring_ranks = INT_MAX};
}

static void assert_close(double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * fabs(want)))
        fail_msg("%.12g instead of %.12g", got, want);
}

TEST(hand_computed)
{
    struct dt_forecast_network network = flat(1e9, 1e-3);
    /* 4 ranks: 6 messages of 2 MB and 1 ms = 18 ms, of 1 MB: 12 ms. Starts at 60, 80, 100 ms. */
    assert_close(dt_forecast_reduce_s(8e6, 4, &network), 0.018);
    assert_close(dt_forecast_exposed_s(&step, 4, &network), 0.012);
    assert_close(dt_forecast_step_s(&step, 4, &network), 0.122);
    assert_close(dt_forecast_efficiency(&step, 4, &network), 0.11 / 0.122);
    /* A link of a third: 42, 42 and 24 ms; 60 to 102, to 144, to 168 ms. */
    network = flat(1e9 / 3, 1e-3);
    assert_close(dt_forecast_exposed_s(&step, 4, &network), 0.068);
    struct dt_forecast_step on_cpu = step;
    on_cpu.overlaps = false;
    assert_close(dt_forecast_exposed_s(&on_cpu, 4, &network), 0.108);
    /* 2 nodes of 4 ranks: 14 messages of 1 MB at 1 GB/s, or 6 of 2 MB at 10 GB/s and then 2 of 4 MB
     * at 1 GB/s. */
    network = flat(1e9, 1e-3);
    network.ranks_per_node = 4;
    network.local = (struct dt_link){1e10, 1e-4};
    assert_close(dt_forecast_reduce_s(8e6, 4, &network), 6 * (1e-4 + 2e-4));
    assert_close(dt_forecast_reduce_s(8e6, 8, &network), 14 * (1e-3 + 1e-3));
    network.ring_ranks = 0;
    assert_close(dt_forecast_reduce_s(8e6, 8, &network), 6 * (1e-4 + 2e-4) + 2 * (1e-3 + 4e-3));
    /* Tree of 8 ranks, 3 levels: one piece is best if latency is all; else sqrt(2 * 8 / 1) = 4. */
    assert_close(dt_forecast_sum_s(1e3, 8, &(struct dt_link){1e9, 1e-3}, true), 6 * (1e-3 + 1e-6));
    assert_close(dt_forecast_sum_s(8e6, 8, &(struct dt_link){1e9, 1e-3}, true),
                 fmin(14 * 2e-3, 12 * 3e-3));
}

TEST(order)
{
    struct dt_forecast_network network = flat(1e9, 1e-3);
    struct dt_forecast_bucket mixed[] = {buckets[2], buckets[0], buckets[1]};
    struct dt_forecast_step same = step;
    same.buckets = mixed;
    dt_forecast_sort(mixed, 3);
    for (int i = 0; i < 3; i++)
        assert_close(mixed[i].ready_s, buckets[i].ready_s);
    assert_close(dt_forecast_exposed_s(&same, 4, &network), 0.012);
}

TEST(bounds)
{
    static const struct dt_forecast_bucket one = {20e6, 0.1};
    struct dt_forecast_step single = step;
    single.buckets = &one;
    single.n_buckets = 1;
    for (int trees = 0; trees < 2; trees++) {
        struct dt_forecast_network network = flat(1e9, 1e-5), ideal = flat(INFINITY, 0);
        network.ring_ranks = ideal.ring_ranks = trees ? 0 : INT_MAX;
        assert_true(dt_forecast_exposed_s(&step, 1, &network) == 0);
        assert_true(dt_forecast_efficiency(&step, 1, &network) == 1);
        assert_true(dt_forecast_exposed_s(&step, 512, &ideal) == 0);
        assert_int_equal(dt_forecast_limit(&step, 0.9, &ideal), 0);
        assert_close(dt_forecast_exposed_s(&single, 8, &network),
                     dt_forecast_reduce_s(20e6, 8, &network));
        double before = 0;
        for (int n = 1; n <= 4096; n *= 2) { /* more ranks, a slower link: never faster */
            struct dt_forecast_network slow = network;
            slow.link.bytes_per_s /= 2;
            double s = dt_forecast_step_s(&step, n, &network);
            assert_true(s >= before && dt_forecast_step_s(&step, n, &slow) >= s);
            before = s;
        }
        network.link.bytes_per_s = 2e8;
        int limit = dt_forecast_limit(&step, 0.5, &network);
        assert_true(limit > 1 && dt_forecast_efficiency(&step, limit, &network) < 0.5 &&
                    dt_forecast_efficiency(&step, limit / 2, &network) >= 0.5);
    }
}

TEST(fit)
{
    static const double bytes[] = {4096, 65536, 1 << 20, 1 << 24};
    const struct dt_link link = {3e9, 7e-6};
    double s[4];
    for (int n = 2; n <= 5; n++) {
        for (int i = 0; i < 4; i++)
            s[i] = dt_forecast_sum_s(bytes[i], n, &link, false);
        struct dt_link found = dt_forecast_fit(bytes, s, 4, n);
        assert_true(fabs(found.bytes_per_s / link.bytes_per_s - 1) < 1e-6);
        assert_true(fabs(found.latency_s / link.latency_s - 1) < 1e-6);
    }
}

/* ResNet-50 with MXNet and Horovod, fp16: 51.1 MB of gradients in one group after the backward
 * pass. MLPerf Training, closed division, logged throughput; NVIDIA DeepLearningExamples (DLE).
 * Links: as the systems are described, a node's in one direction; within nodes 80 % of NVLink's
 * rate, which is an assumption, as are the latencies. The speed of a GPU is that of the smaller
 * run. */
static const struct {
    const char *what;
    int batch, from, to, per_node;
    double from_images_per_s, images_per_s;
    double node_gb_per_s, local_gb_per_s;
} published[] = {
    {"MLPerf 2.0 XE8545 A100-40", 204, 4, 8, 4, 12119, 22633, 50, 240},
    {"MLPerf 2.0 XE8545 A100-40", 204, 4, 16, 4, 12119, 45006, 50, 240},
    {"MLPerf 2.0 XE8545 A100-40", 204, 4, 64, 4, 12119, 174962, 50, 240},
    {"MLPerf 2.1 A100-80", 408, 4, 8, 8, 13896, 27217, 50, 240},
    {"MLPerf 4.0 H100", 400, 4, 8, 8, 28623, 57284, 50, 360},
    {"DLE A100-80", 512, 1, 8, 8, 3411, 26674, 50, 240},
    {"DLE DGX-1 V100-16", 192, 1, 8, 8, 1376, 10723, 50, 120},
    {"DLE DGX-2 V100-32", 256, 1, 8, 16, 1492, 11368, 50, 120},
};

TEST(published)
{
    for (size_t i = 0; i < DT_COUNT(published); i++) {
        const struct dt_forecast_network network = {
            .link = {1e9 * published[i].node_gb_per_s, 5e-6},
            .local = {1e9 * published[i].local_gb_per_s, 3e-6},
            .ranks_per_node = published[i].per_node,
        };
        double from_s = published[i].from * published[i].batch / published[i].from_images_per_s;
        double compute_s = from_s - dt_forecast_reduce_s(51.1e6, published[i].from, &network);
        const struct dt_forecast_bucket all = {51.1e6, compute_s};
        const struct dt_forecast_step theirs = {&all, 1, compute_s, 0, true};
        double forecast = published[i].to * published[i].batch /
                          dt_forecast_step_s(&theirs, published[i].to, &network);
        double error = forecast / published[i].images_per_s - 1;
        print_message(
            "%-28s %2d -> %2d GPUs: published %7.0f, forecast %7.0f images/s (%+.1f %%)\n",
            published[i].what, published[i].from, published[i].to, published[i].images_per_s,
            forecast, 100 * error);
        assert_true(fabs(error) <= 0.1);
    }
}

TEST_MAIN(NULL, NULL)
