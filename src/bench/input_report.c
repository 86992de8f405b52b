/* `dtrain bench --input`: the results as tables, a diagnosis and JSON. */
#include "bench/input.h"

#include <math.h>
#include <stdio.h>

#include "base/build.h"
#include "base/host.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
#include "train/input_advice.h"

struct diagnosis {
    const char *limit;
    double per_rank_per_s; /* images; from the disk if reading is the limit */
    char text[512];
};

static double mean_bytes(const struct dt_input_result *r)
{
    return r->stage_bytes / r->stage_images;
}

/* --- Verdict --- */

static void say_decoding(struct diagnosis *found, const struct dt_input_result *r,
                         const struct dt_input_point *cold, const struct dt_input_point *warm)
{
    double n_ranks = r->n_ranks;
    char advice[160] = "";
    int resize = r->resize;
    if (dt_input_is_large(mean_bytes(r), resize))
        snprintf(advice, sizeof advice,
                 " Shards resized to %d (dtrain shard --resize-short %d) decode faster.", resize,
                 resize);
    found->limit = "decoding";
    found->per_rank_per_s = warm->images_per_s / n_ranks;
    snprintf(found->text, sizeof found->text,
             "Decoding is the limit: with %d worker%s a rank gets %.0f images/s (%.1f MB/s) from "
             "memory, %.0f from the disk. Training that needs more will wait for data: every 1000 "
             "images/s take %.1f workers.%s",
             warm->workers, DT_S(warm->workers), found->per_rank_per_s,
             warm->bytes_per_s / n_ranks / 1e6, cold->images_per_s / n_ranks,
             1e3 * warm->workers / found->per_rank_per_s, advice);
}

static void say_reading(struct diagnosis *found, const struct dt_input_result *r,
                        const struct dt_input_point *cold, const struct dt_input_point *warm)
{
    double n_ranks = r->n_ranks;
    double set_mb = mean_bytes(r) * r->n_images / 1e6;
    found->limit = "reading";
    found->per_rank_per_s = cold->images_per_s / n_ranks;
    snprintf(found->text, sizeof found->text,
             "Reading is the limit: with %d worker%s a rank gets %.0f images/s (%.1f MB/s) from "
             "the disk, %.0f from memory. Training that needs more will wait for data, unless the "
             "data set (%.0f MB) stays in the page cache or in data.cache_mb.",
             cold->workers, DT_S(cold->workers), found->per_rank_per_s,
             cold->bytes_per_s / n_ranks / 1e6, warm->images_per_s / n_ranks, ceil(set_mb));
}

static const struct dt_input_point *find_point(const struct dt_input_result *r, bool is_cold)
{
    for (int i = 0; i < r->n_points; i++)
        if (r->points[i].workers == r->workers && r->points[i].is_cold == is_cold)
            return &r->points[i];
    return NULL;
}

static void find_diagnosis(struct diagnosis *found, const struct dt_input_result *r)
{
    const struct dt_input_point *cold = find_point(r, true), *warm = find_point(r, false);
    if (cold && cold->read_share > cold->decode_share) {
        say_reading(found, r, cold, warm);
    } else if (cold) {
        say_decoding(found, r, cold, warm);
    } else {
        found->limit = "generating";
        found->per_rank_per_s = warm->images_per_s / r->n_ranks;
        snprintf(found->text, sizeof found->text,
                 "Synthetic images are neither read from a disk nor decoded: with %d worker%s a "
                 "rank gets %.0f images/s.",
                 warm->workers, DT_S(warm->workers), found->per_rank_per_s);
    }
}

/* --- Text --- */

struct stage_row {
    const char *name, *key;
    enum dt_input_stage stage;
};

static const struct stage_row stages_of_files[] = {
    {"read, cold", "read_cold_ms", DT_INPUT_READ_COLD},
    {"read, warm", "read_ms", DT_INPUT_READ_WARM},
    {"entropy decode", "entropy_ms", DT_INPUT_ENTROPY},
    {"transform", "transform_ms", DT_INPUT_TRANSFORM},
    {"resize", "resize_ms", DT_INPUT_RESIZE},
};
static const struct stage_row stages_of_raw[] = {
    {"generate", "read_ms", DT_INPUT_READ_WARM},
    {"copy", "resize_ms", DT_INPUT_RESIZE},
};

static const struct stage_row *list_stages(const struct dt_input_result *r, int *n)
{
    *n = r->is_raw ? DT_COUNT(stages_of_raw) : DT_COUNT(stages_of_files);
    return r->is_raw ? stages_of_raw : stages_of_files;
}

/* share < 0 is printed as "-" */
static void print_stage(const struct dt_input_result *r, const char *name, double s, double share)
{
    char text[16] = "-", rate[16] = "-";
    if (share >= 0)
        snprintf(text, sizeof text, "%.1f %%", 100 * share);
    if (s > 0)
        snprintf(rate, sizeof rate, "%.1f", mean_bytes(r) / 1e6 / s);
    printf("  %-16s %9.3f %9s %9s\n", name, 1e3 * s, text, rate);
}

static void print_stages(const struct dt_input_result *r)
{
    int n;
    const struct stage_row *rows = list_stages(r, &n);
    double sum = 0;
    for (int i = DT_INPUT_READ_WARM; i < DT_N_INPUT_STAGES; i++)
        sum += r->stage_s[i];
    printf("#\n# One thread, %.0f images: time per image by stage\n", r->stage_images);
    printf("# %-16s %9s %9s %9s\n", "stage", "ms/image", "share", "MB/s");
    for (int i = 0; i < n; i++) {
        double s = r->stage_s[rows[i].stage];
        print_stage(r, rows[i].name, s, rows[i].stage == DT_INPUT_READ_COLD ? -1 : s / sum);
    }
    print_stage(r, "total, warm", sum, 1);
}

static void print_points(const struct dt_input_result *r)
{
    printf("#\n# The loader alone, all ranks together: medians of %d round%s of at least %.1f s.\n"
           "# min and max: the slowest and the fastest round. read, decode and wait: shares of the "
           "workers' time;\n# wait: for a free row, or between rows.\n",
           r->n_rounds, DT_S(r->n_rounds), r->round_s);
    printf("# %7s %6s %10s %9s %9s %9s %11s %8s %8s %8s\n", "workers", "files", "images/s", "min",
           "max", "MB/s", "per worker", "read", "decode", "wait");
    for (int i = 0; i < r->n_points; i++) {
        const struct dt_input_point *p = &r->points[i];
        printf("  %7d %6s %10.1f %9.1f %9.1f %9.1f %11.1f %6.1f %% %6.1f %% %6.1f %%\n", p->workers,
               p->is_cold ? "cold" : "warm", p->images_per_s, p->slowest, p->fastest,
               p->bytes_per_s / 1e6, p->images_per_s / p->workers / r->n_ranks, 100 * p->read_share,
               100 * p->decode_share, 100 * p->wait_share);
    }
}

static dt_status save_json(const struct dt_input_result *r, const struct diagnosis *found,
                           const char *path)
{
    struct dt_jsonw w = {.pretty = true};
    int n;
    const struct stage_row *rows = list_stages(r, &n);
    dt_jsonw_add(&w, "{dtrain: %s, images: %u, mean_bytes: %g", dt_version, r->n_images,
                 mean_bytes(r));
    if (r->image_size > 0)
        dt_jsonw_integer(&w, "image_size", r->image_size);
    else
        dt_jsonw_string(&w, "canvases", r->sizes);
    dt_jsonw_add(&w, "ranks: %d, cpus_per_rank: %d, rounds: %d", r->n_ranks, r->cpus, r->n_rounds);
    dt_jsonw_add(&w, "stages: {images: %g", r->stage_images);
    for (int i = 0; i < n; i++)
        dt_jsonw_number(&w, rows[i].key, 1e3 * r->stage_s[rows[i].stage]);
    dt_jsonw_add(&w, "}, loader: [");
    for (const struct dt_input_point *p = r->points; p < r->points + r->n_points; p++)
        dt_jsonw_add(&w,
                     "{workers: %d, cold: %hhd, images_per_s: %g, images_per_s_slowest: %g, "
                     "images_per_s_fastest: %g, mb_per_s: %g, images_per_s_per_worker: %g, "
                     "read_share: %g, decode_share: %g, wait_share: %g}",
                     p->workers, p->is_cold, p->images_per_s, p->slowest, p->fastest,
                     p->bytes_per_s / 1e6, p->images_per_s / p->workers / r->n_ranks, p->read_share,
                     p->decode_share, p->wait_share);
    dt_jsonw_add(&w, "], limit: %s, workers: %d, images_per_s_per_rank: %g, verdict: %s}",
                 found->limit, r->workers, found->per_rank_per_s, found->text);
    return dt_jsonw_save(&w, path);
}

dt_status dt_input_result_report(const struct dt_input_result *result, const char *json_path)
{
    struct diagnosis diagnosis;
    double spread = 1; /* the largest ratio of the fastest to the slowest round of a point */
    for (int i = 0; i < result->n_points; i++)
        spread = fmax(spread, result->points[i].fastest / result->points[i].slowest);
    find_diagnosis(&diagnosis, result);
    double n = result->n_images;
    char bytes[32];
    printf("# dtrain bench --input: throughput of the input pipeline without training\n");
    printf("# data     %.0f images, %.1f KB each, %s in total: %s\n", n, mean_bytes(result) / 1e3,
           dt_memory_format(bytes, sizeof bytes, (uint64_t)(n * mean_bytes(result))),
           result->is_raw ? "synthetic" : result->path);
    printf("# rows     %s pixels\n", result->sizes);
    printf("# ranks    %d, each with %d CPU%s\n", result->n_ranks, result->cpus,
           DT_S(result->cpus));
    printf("# MB/s counts encoded bytes. cold: the page cache was dropped first, if the file "
           "system allows it.\n");
    print_stages(result);
    print_points(result);
    if (spread > 1.5)
        printf(
            "#\n# The rounds differ by up to a factor of %.1f: the machine is busy with something "
            "else,\n# so the figures are too low.\n",
            spread);
    printf("#\n# %s\n", diagnosis.text);
    if (fflush(stdout) != 0)
        DT_FAIL(DT_ERR_IO, "cannot write the result to standard output");
    return json_path ? save_json(result, &diagnosis, json_path) : DT_OK;
}
