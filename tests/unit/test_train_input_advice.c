/* The input line at the end of an epoch, from made-up numbers. */
#include <string.h>

#include "test.h"
#include "train/input_advice.h"

#define MB           1e6
#define GB           1e9
#define BOUND(share) "input-bound: ranks wait " share " % of the step for data; "

/* A GPU rank with 16 CPUs and photos of 110 KB, half of what it takes decoded. */
static const struct dt_input_case gpu = {
    .wait_share = 0.31,
    .read_s = 10,
    .work_s = 990,
    .capacity = 1000,
    .demand = 2000,
    .workers = 5,
    .prefetch = 3,
    .cpus = 16,
    .threads = 1,
    .mean_bytes = 110e3,
    .resize = 256,
    .set_bytes = 140 * GB,
    .free_bytes = 400 * GB,
};

/* The same except for some numbers, and the expected line. */
struct row {
    struct dt_input_case c;
    const char *text;
};

static void check(const struct row *rows, size_t n)
{
    char text[DT_INPUT_TEXT];
    for (size_t i = 0; i < n; i++) {
        memset(text, 'x', sizeof text);
        dt_input_diagnosis(text, &rows[i].c);
        assert_string_equal(text, rows[i].text);
    }
}

static struct dt_input_case share(double wait_share)
{
    struct dt_input_case c = gpu;
    c.wait_share = wait_share;
    return c;
}

TEST(calm)
{
    const struct row rows[] = {
        {share(0), "input: ranks wait 0.0 % of the step for data"},
        {share(0.003), "input: ranks wait 0.3 % of the step for data"},
        {share(0.05), "input: ranks wait 5.0 % of the step for data"},
    };
    check(rows, sizeof rows / sizeof rows[0]);
}

TEST(decoding)
{
    struct dt_input_case small = gpu, crowded = gpu, tight = gpu, full = gpu, unknown = gpu;
    small.mean_bytes = 30e3;
    crowded.cpus = 8; /* 11 workers are needed, 7 fit */
    tight.cpus = 8;
    tight.mean_bytes = 30e3;
    full = tight;
    full.workers = 7; /* 16 needed */
    unknown.capacity = 0;
    const struct row rows[] = {
        {gpu, BOUND("31") "decoding is the limit; try data.workers=11 or shards resized to 256 "
                          "(dtrain shard --resize-short 256)"},
        {share(0.0501), BOUND("5.0") "decoding is the limit; try data.workers=11 or shards resized "
                                     "to 256 (dtrain shard --resize-short 256)"},
        {small, BOUND("31") "decoding is the limit; try data.workers=11"},
        {crowded, BOUND("31") "decoding is the limit; try data.workers=7 or shards resized to 256 "
                              "(dtrain shard --resize-short 256) or more CPUs per rank (12 would "
                              "do)"},
        {tight, BOUND("31") "decoding is the limit; try data.workers=7 or more CPUs per rank (12 "
                            "would do)"},
        {full, BOUND("31") "decoding is the limit; try more CPUs per rank (17 would do)"},
        {unknown, "input-bound: ranks wait 31 % of the step for data"},
    };
    check(rows, sizeof rows / sizeof rows[0]);
}

/* Computing threads and workers share the CPUs: 8 CPUs, 8 threads, one worker, 4 needed for 8
 * threads. With 5 threads 3 are enough. */
TEST(cpu)
{
    struct dt_input_case c = gpu, one = gpu;
    c.on_cpu = true;
    c.mean_bytes = 30e3;
    c.cpus = c.threads = 8;
    c.workers = 1;
    c.capacity = 100;
    c.demand = 350;
    one = c;
    one.cpus = one.threads = 1;
    const struct row rows[] = {
        {c, BOUND("31") "decoding is the limit; try device.threads=5"},
        {one, BOUND("31") "decoding is the limit; try more CPUs per rank (5 would do)"},
    };
    check(rows, sizeof rows / sizeof rows[0]);
}

TEST(reading)
{
    struct dt_input_case all = gpu, part, little, cached;
    all.read_s = 900;
    all.work_s = 100;
    all.mean_bytes = 30e3;
    all.workers = 15;
    part = all;
    part.free_bytes = 100 * GB;
    little = all;
    little.free_bytes = 20 * GB;
    cached = all;
    cached.cache_bytes = 141 * GB;
    const struct row rows[] = {
        {all, BOUND("31") "reading is the limit; try data.cache_mb=140000 or a faster disk"},
        {part,
         BOUND("31") "reading is the limit; try data.cache_mb=50000 (36 % of the data set) or "
                     "a faster disk"},
        {little, BOUND("31") "reading is the limit; try a faster disk"},
        {cached, BOUND("31") "reading is the limit; try a faster disk"},
    };
    check(rows, sizeof rows / sizeof rows[0]);
}

TEST(others)
{
    struct dt_input_case bursts = gpu, raw = gpu;
    bursts.demand = 500;
    raw.is_raw = true;
    raw.mean_bytes = 150528;
    const struct row rows[] = {
        {bursts,
         BOUND("31") "the workers could produce 2.0 times the images used, but not when they "
                     "are needed; try data.prefetch=6"},
        {raw, BOUND("31") "generating the synthetic images is the limit; try data.workers=11"},
    };
    check(rows, sizeof rows / sizeof rows[0]);
}

TEST_MAIN(NULL, NULL)
