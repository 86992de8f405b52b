/* The rules that produce the input line at the end of an epoch. */
#include "train/input_advice.h"

#include <math.h>

#include "base/text.h"
#include "image/convert.h"

static const double reserve = 1.1;    /* workers do not share the load evenly */
static const double min_cached = 0.1; /* of the data set; less is not worth its memory */
enum { MAX_ADVICE = 3 };

struct line {
    struct dt_text text;
    int n_advice;
};

/* Whether there is room for one more piece of advice; begins it. */
static bool begin_advice(struct line *line)
{
    if (line->n_advice == MAX_ADVICE)
        return false;
    dt_text_add(&line->text, "%s", line->n_advice++ ? " or " : "; try ");
    return true;
}

bool dt_input_is_large(double mean_bytes, int resize)
{
    return resize >= DT_MIN_RESIZE_SHORT && mean_bytes > (double)resize * resize;
}

static int workers_needed(const struct dt_input_case *c)
{
    return (int)fmin(ceil(reserve * c->workers * c->demand / c->capacity), 1e6);
}

static void advise_cache(struct line *line, const struct dt_input_case *c)
{
    double bytes = fmin(c->set_bytes, c->free_bytes / 2);
    if (c->is_raw || c->cache_bytes >= bytes || bytes < min_cached * c->set_bytes)
        return;
    if (!begin_advice(line))
        return;
    dt_text_add(&line->text, "data.cache_mb=%.0f", ceil(bytes / 1e6));
    if (bytes < c->set_bytes)
        dt_text_add(&line->text, " (%.0f %% of the data set)", 100 * bytes / c->set_bytes);
}

/* Gives advice when the CPUs do not suffice for both the workers needed and computing. With fewer
 * computing threads proportionally fewer workers are needed. */
static void advise_cpus(struct line *line, const struct dt_input_case *c)
{
    int needed = workers_needed(c);
    int threads = (int)((double)c->cpus * c->threads / (c->threads + needed));
    if (threads < 1)
        threads = 1;
    if (needed <= c->cpus - c->threads)
        return;
    if (c->on_cpu && threads < c->threads && begin_advice(line))
        dt_text_add(&line->text, "device.threads=%d", threads);
    else if (begin_advice(line))
        dt_text_add(&line->text, "more CPUs per rank (%d would do)", needed + c->threads);
}

void dt_input_diagnosis(char out[DT_INPUT_TEXT], const struct dt_input_case *c)
{
    struct line line = {.text = dt_text_in(out, DT_INPUT_TEXT)};
    const int room = c->cpus - c->threads;
    bool reading = !c->is_raw && c->read_s > c->work_s;
    dt_text_add(&line.text, "%s: ranks wait %.*f %% of the step for data",
                c->wait_share > DT_INPUT_BOUND ? "input-bound" : "input", c->wait_share < 0.0995,
                100 * c->wait_share);
    if (c->wait_share <= DT_INPUT_BOUND || !(c->capacity > 0))
        return;
    const int needed = workers_needed(c), workers = needed < room ? needed : room;
    if (needed <= c->workers) {
        dt_text_add(
            &line.text,
            "; the workers could produce %.1f times the images used, but not when they are needed; "
            "try data.prefetch=%d",
            c->capacity / c->demand, 2 * c->prefetch);
        return;
    }
    dt_text_add(&line.text, "; %s is the limit",
                c->is_raw ? "generating the synthetic images"
                : reading ? "reading"
                          : "decoding");
    if (reading)
        advise_cache(&line, c);
    if (workers > c->workers && begin_advice(&line))
        dt_text_add(&line.text, "data.workers=%d", workers);
    if (!c->is_raw && dt_input_is_large(c->mean_bytes, c->resize) && begin_advice(&line))
        dt_text_add(&line.text, "shards resized to %d (dtrain shard --resize-short %d)", c->resize,
                    c->resize);
    if (!reading)
        advise_cpus(&line, c);
    else if (begin_advice(&line))
        dt_text_add(&line.text, "a faster disk");
}
