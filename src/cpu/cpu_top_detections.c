/* The best detections of a level. One pass over the logits, which are compared with the lowest one
 * that could still matter, so that a score is computed for few of them. The values of an image are
 * divided into chunks; each keeps its best, and the best of these are the image's. A detection's
 * key is its score and, below it, its place among the anchors: no two are equal, so the result does
 * not depend on chunks or threads. */
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu_internal.h"
#include "dtrain/box.h"

enum { CHUNKS = 32, GROUP = 64 };

/* The `keep` largest keys so far are among n < 2 * keep. */
struct best {
    uint64_t *key;
    int n, keep;
    uint64_t floor; /* only keys above it are added */
    float low;      /* logits below it have no such key */
};

struct level {
    const float *logits, *deltas;
    const int32_t *sizes;
    struct dt_cpu_rows rows; /* of the logits; the deltas have the same block */
    struct dt_level place;
    float min_score;
    int keep;
};

static dt_status prepare_top_detections(struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    struct dt_cpu_rows deltas;
    for (int i = 0; i < 2; i++) {
        dt_md md = NULL;
        struct dt_cpu_rows *rows = i ? &deltas : &exec->rows;
        DT_TRY(dt_cpu_rows_choose(rows, &md, exec, node->src[i],
                                  i ? exec->rows.tag : dnnl_format_tag_undef));
        dt_status status = dt_cpu_port_add(exec, md);
        dt_md_destroy(md);
        DT_TRY(status);
    }
    DT_TRY(dt_cpu_port_add_plain(exec));
    const int *dim = exec->graph->tensor[node->dst[0]].dim;
    const size_t each = sizeof(struct best) + 2 * (size_t)dim[1] * sizeof(uint64_t);
    exec->work_offset = dt_cpu_reserve(exec, (size_t)dim[0] * CHUNKS * each);
    return DT_OK;
}

static float score_of_key(uint64_t key)
{
    const uint32_t bits = (uint32_t)(key >> 32);
    float score;
    memcpy(&score, &bits, sizeof score);
    return score;
}

/* Moves the `keep` largest to the front, the smallest of them last: Hoare's selection. */
static void select_largest(uint64_t *key, int n, int keep)
{
    int first = 0, last = n - 1;
    while (first < last) {
        const uint64_t pivot = key[first + (last - first) / 2];
        int i = first, k = last;
        while (i <= k) {
            while (key[i] > pivot)
                i++;
            while (key[k] < pivot)
                k--;
            if (i <= k) {
                const uint64_t swap = key[i];
                key[i++] = key[k];
                key[k--] = swap;
            }
        }
        if (keep - 1 <= k)
            last = k;
        else if (keep - 1 >= i)
            first = i;
        else
            return;
    }
}

static void add_key(struct best *best, uint64_t key)
{
    if (key <= best->floor)
        return;
    best->key[best->n++] = key;
    if (best->n < 2 * best->keep)
        return;
    select_largest(best->key, best->n, best->keep);
    best->n = best->keep;
    best->floor = best->key[best->keep - 1];
    best->low = dt_box_logit_below(score_of_key(best->floor));
}

/* `at` counts the floats of an image. Channels beyond the last one are padding. */
static void add_logit(struct best *best, const struct level *level, size_t at, float logit)
{
    const struct dt_cpu_rows *rows = &level->rows;
    const size_t block = (size_t)rows->block, within = at % rows->row_elements;
    const size_t channel = at / rows->row_elements * block + within % block;
    const float score = dt_box_score(logit);
    uint32_t bits;
    if (channel >= (size_t)rows->channels || !(score > level->min_score))
        return;
    memcpy(&bits, &score, sizeof bits);
    const uint32_t number = (uint32_t)(within / block * (size_t)rows->channels + channel);
    add_key(best, (uint64_t)bits << 32 | (UINT32_MAX - number));
}

static bool any_from(float low, const float *logits, size_t n)
{
    int any = 0;
    for (size_t i = 0; i < n; i++)
        any |= logits[i] >= low;
    return any;
}

static void search_chunk(struct best *best, const struct level *level, int image, int chunk)
{
    const size_t count = (size_t)level->rows.n_blocks * level->rows.row_elements;
    const size_t end = count * (size_t)(chunk + 1) / CHUNKS;
    const float *logits = level->logits + (size_t)image * count;
    best->low = dt_box_logit_below(level->min_score);
    for (size_t at = count * (size_t)chunk / CHUNKS, n; at < end; at += n) {
        n = end - at < GROUP ? end - at : GROUP;
        if (n == GROUP && !any_from(best->low, logits + at, GROUP))
            continue;
        for (size_t i = 0; i < n; i++) {
            if (logits[at + i] >= best->low)
                add_logit(best, level, at + i, logits[at + i]);
        }
    }
}

static int by_key(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

static void get_deltas(float delta[4], const struct level *level, int image, int anchor)
{
    const int block = level->rows.block, n_blocks = (4 * DT_CELL_ANCHORS + block - 1) / block;
    const size_t area = (size_t)level->rows.height * (size_t)level->rows.width;
    for (int i = 0; i < 4; i++) {
        const int channel = anchor % DT_CELL_ANCHORS * 4 + i;
        const size_t row = (size_t)(image * n_blocks + channel / block) * area;
        delta[i] = level->deltas[(row + (size_t)(anchor / DT_CELL_ANCHORS)) * (size_t)block +
                                 (size_t)(channel % block)];
    }
}

static void write_rows(float *row, const struct best *best, const struct level *level, int image)
{
    const int classes = level->rows.channels / DT_CELL_ANCHORS;
    memset(row, 0, (size_t)level->keep * 6 * sizeof *row);
    for (int i = 0; i < best->n; i++, row += 6) {
        const int number = (int)(UINT32_MAX - (uint32_t)best->key[i]);
        float anchor[4], delta[4];
        dt_level_anchor(anchor, &level->place, number / classes);
        get_deltas(delta, level, image, number / classes);
        dt_box_decode(row, delta, anchor, level->sizes + 2 * image);
        row[4] = score_of_key(best->key[i]);
        row[5] = (float)(number % classes);
    }
}

static dt_status run_top_detections(struct dt_exec *exec)
{
    const struct dt_detect *detect = &exec->node->attr.detect;
    const struct level level = {.logits = dt_cpu_src(exec, DT_TOP_LOGITS),
                                .deltas = dt_cpu_src(exec, DT_TOP_DELTAS),
                                .sizes = dt_cpu_src(exec, DT_TOP_SIZES),
                                .rows = exec->rows,
                                .place = dt_level_of(&detect->anchors, detect->level),
                                .min_score = detect->min_score,
                                .keep = exec->graph->tensor[exec->node->dst[0]].dim[1]};
    const int n_chunks = level.rows.n * CHUNKS, keep = level.keep;
    float *dst = dt_cpu_dst(exec, DT_TOP_DST);
    int32_t *n_dst = dt_cpu_dst(exec, DT_TOP_N);
    struct best *best = exec->work;
    uint64_t *keys = (uint64_t *)(void *)(best + n_chunks);
#pragma omp parallel for schedule(dynamic)
    for (int c = 0; c < n_chunks; c++) {
        best[c] = (struct best){.key = keys + (size_t)c * 2 * (size_t)keep, .keep = keep};
        search_chunk(&best[c], &level, c / CHUNKS, c % CHUNKS);
    }
#pragma omp parallel for schedule(dynamic)
    for (int image = 0; image < level.rows.n; image++) {
        /* The best of all chunks, in order, in the place of the first. */
        struct best *all = best + (size_t)image * CHUNKS;
        for (int c = 1; c < CHUNKS; c++) {
            for (int i = 0; i < all[c].n; i++)
                add_key(all, all[c].key[i]);
        }
        qsort(all->key, (size_t)all->n, sizeof *all->key, by_key);
        all->n = all->n < all->keep ? all->n : all->keep;
        n_dst[image] = all->n;
        write_rows(dst + (size_t)image * (size_t)keep * 6, all, &level, image);
    }
    return DT_OK;
}

DT_CPU_OP(top_detections, prepare_top_detections, run_top_detections, false);
