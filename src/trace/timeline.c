/* Every rank writes its own spans as JSON; rank 0 receives the parts one after the other and
 * compresses them. */
#include "trace/timeline.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/build.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "base/trace.h"

enum {
    MAX_SPANS = 1 << 19, /* per rank: 48 MB, of which only what is used is touched */
    ROW_IDS = 1000,      /* thread ids per kind of row */
    GZIP = MAX_WBITS + 16,
    MEMORY_LEVEL = 8, /* zlib's default */
};

/* One rank's part of the file. */
struct part {
    FILE *out; /* writes the text */
    char *text;
    size_t bytes;
    int rank;
    double offset_s;            /* from dt_clock_s to the time of the file */
    double error_s;             /* of all ranks: the largest error of a clock */
    int64_t n_spans, n_dropped; /* of all ranks */
    bool is_named[DT_N_TRACE_ROWS][ROW_IDS];
};

/* --- Events --- */

static const struct {
    const char *name;
    bool is_numbered;
} rows[] = {
#define ONE(id, name)     {name, false},
#define SEVERAL(id, name) {name, true},
    DT_TRACE_ROW_LIST(ONE, SEVERAL)
#undef ONE
#undef SEVERAL
};

/* Names a process (thread id 0) or one of its threads, and orders them by id. */
static void put_name(struct part *part, const char *kind, int thread, const char *name)
{
    int process = part->rank + 1;
    fprintf(part->out,
            "{\"name\":\"%s_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}"
            "},\n{\"name\":\"%s_sort_index\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{"
            "\"sort_index\":%d}}",
            kind, process, thread, name, kind, process, thread, thread ? thread : process);
}

/* Microseconds with three decimals, from nanoseconds: spans that nest in the clock nest in the
 * file. */
static void put_span(void *context, const struct dt_trace_span *span)
{
    struct part *part = context;
    const int index = span->index % ROW_IDS, thread = 1 + (int)span->row * ROW_IDS + index;
    char number[16] = "", name[64];
    int64_t begin = llround((span->begin_s + part->offset_s) * 1e9);
    int64_t length = llround((span->end_s + part->offset_s) * 1e9) - begin;
    if (!part->is_named[span->row][index]) {
        if (rows[span->row].is_numbered)
            snprintf(number, sizeof number, " %d", index);
        snprintf(name, sizeof name, "%s%s", rows[span->row].name, number);
        fprintf(part->out, ",\n");
        put_name(part, "thread", thread, name);
        part->is_named[span->row][index] = true;
    }
    fprintf(part->out,
            ",\n{\"name\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%" PRId64
            ".%03d,\"dur\":%" PRId64 ".%03d",
            span->name, part->rank + 1, thread, begin / 1000, (int)(begin % 1000), length / 1000,
            (int)(length % 1000));
    if (span->key)
        fprintf(part->out, ",\"args\":{\"%s\":\"%s\"}", span->key, span->value);
    fprintf(part->out, "}");
}

/* --- The parts --- */

static dt_status make_part(struct part *part, const struct dt_timeline *t)
{
    part->rank = dt_comm_rank(t->comm);
    part->out = open_memstream(&part->text, &part->bytes);
    if (part->out) {
        char host[DT_HOST_MAX], name[DT_HOST_MAX + 32];
        dt_host_name(host);
        for (char *c = host; *c; c++)
            if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ')
                *c = '?';
        snprintf(name, sizeof name, "rank %d (%s)", part->rank, host);
        if (part->rank == 0) {
            fprintf(part->out,
                    "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"dtrain\":\"%s\",\"ranks\":%d,"
                    "\"first_step\":%" PRId64 ",\"last_step\":%" PRId64 ",\"clock_error_us\":%.1f,"
                    "\"dropped_spans\":%" PRId64,
                    dt_version, dt_comm_size(t->comm), t->first, t->last, 1e6 * part->error_s,
                    part->n_dropped);
            if (!isnan(t->overlap))
                fprintf(part->out, ",\"comm_overlap_share\":%.4f", t->overlap);
            fprintf(part->out, "},\n\"traceEvents\":[\n");
        } else {
            fprintf(part->out, ",\n");
        }
        put_name(part, "process", 0, name);
        dt_trace_list(put_span, part);
        if (part->rank == dt_comm_size(t->comm) - 1)
            fprintf(part->out, "\n]}\n");
    }
    bool has_failed = !part->out || ferror(part->out);
    if ((part->out && fclose(part->out) != 0) || has_failed)
        DT_FAIL(DT_ERR_MEMORY, "out of memory for the timeline");
    return DT_OK;
}

static dt_status compress_text(struct dt_new_file *file, z_stream *z, char *text, size_t bytes,
                               int flush)
{
    unsigned char out[1 << 14];
    z->next_in = (Bytef *)text;
    z->avail_in = (uInt)bytes;
    do {
        z->next_out = out;
        z->avail_out = sizeof out;
        (void)deflate(z, flush); /* cannot fail with valid arguments */
        DT_TRY(dt_file_write(file->fd, out, sizeof out - z->avail_out, file->path));
    } while (z->avail_out == 0);
    return DT_OK;
}

/* Rank 0 receives the parts into its own, which is large enough. A file that cannot be written
 * does not keep the others from sending. */
static dt_status put_together(struct dt_new_file *file, z_stream *z, struct part *part,
                              struct dt_comm *comm, const uint64_t *sizes)
{
    const int n = dt_comm_size(comm);
    dt_status status = DT_OK;
    for (int r = 0; r < n; r++) {
        DT_TRY(dt_comm_copy(comm, part->text, sizes[r], r, 0));
        if (part->rank == 0 && status == DT_OK)
            status =
                compress_text(file, z, part->text, sizes[r], r == n - 1 ? Z_FINISH : Z_NO_FLUSH);
    }
    return status;
}

static dt_status begin_file(struct dt_new_file *file, z_stream *z, struct part *part,
                            const char *path, size_t max)
{
    DT_TRY(DT_GROW(part->text, part->bytes, max - 1, "the timeline"));
    if (deflateInit2(z, Z_BEST_SPEED, Z_DEFLATED, GZIP, MEMORY_LEVEL, Z_DEFAULT_STRATEGY) != Z_OK)
        DT_FAIL(DT_ERR_MEMORY, "out of memory: compressing the timeline");
    return dt_file_begin(file, path);
}

/* Called by all ranks. Each agrees twice before a message: a rank without memory for its part, or
 * rank 0 without a file, must not leave the others in the exchange. Later errors of the file are
 * rank 0's own, which receives the parts all the same. */
static dt_status save(struct part *part, const struct dt_timeline *t)
{
    struct dt_comm *comm = t->comm;
    struct dt_new_file file = {.fd = -1};
    z_stream z = {0};
    uint64_t *sizes = NULL, max = 0;
    dt_status status = make_part(part, t);
    if (status == DT_OK)
        status = DT_NEW(sizes, (size_t)dt_comm_size(comm));
    DT_TRY_OUT(dt_comm_agree(comm, status));
    uint64_t own = part->bytes;
    DT_TRY_OUT(dt_comm_gather(comm, sizes, &own, sizeof own));
    for (int r = 0; r < dt_comm_size(comm); r++)
        max = sizes[r] > max ? sizes[r] : max;
    if (part->rank == 0)
        status = begin_file(&file, &z, part, t->path, max);
    DT_TRY_OUT(dt_comm_agree(comm, status));
    status = put_together(&file, &z, part, comm, sizes);
out:
    free(sizes);
    deflateEnd(&z);
    return dt_file_end(&file, status);
}

/* --- Beginning and end --- */

/* Sets t->overlap, of all ranks together. The file's time begins with the first of them. */
static dt_status collect(struct dt_timeline *t, struct part *part)
{
    struct dt_overlap own;
    double max[2]; /* of the ranks: minus their beginning, error of the clock */
    int64_t counts[2];
    dt_trace_count(&counts[0], &counts[1]);
    DT_TRY(dt_comm_clock(t->comm, &part->offset_s, &max[1]));
    max[0] = -(dt_trace_begin_s() + part->offset_s);
    DT_TRY(dt_comm_max_f64(t->comm, max, 2));
    DT_TRY(dt_comm_sum_i64(t->comm, counts, 2));
    part->offset_s += max[0];
    DT_TRY(dt_comm_agree(t->comm, dt_overlap_find(&own)));
    double sums[] = {own.sums_s, own.computed_s};
    DT_TRY(dt_comm_sum_f64(t->comm, sums, DT_COUNT(sums)));
    t->overlap = sums[0] > 0 ? sums[1] / sums[0] : NAN;
    part->error_s = max[1];
    part->n_spans = counts[0];
    part->n_dropped = counts[1];
    DT_TRY(save(part, t));
    if (part->rank == 0)
        dt_log(DT_LOG_INFO,
               "timeline of steps %" PRId64 " to %" PRId64 " in %s: %" PRId64 " spans, %" PRId64
               " dropped; open it in https://ui.perfetto.dev",
               t->first, t->last, t->path, part->n_spans, part->n_dropped);
    return DT_OK;
}

static void warn(const struct dt_timeline *t)
{
    if (dt_comm_rank(t->comm) == 0)
        dt_log(DT_LOG_WARNING, "no timeline is written: %s", dt_error_text());
    dt_error_clear();
}

/* The range may be longer than the run. */
static void end(struct dt_timeline *t)
{
    struct part *part = NULL;
    t->last = t->now;
    enum dt_section before = dt_pulse_enter(&dt_pulse_main, DT_SECTION_SAVE);
    dt_trace_end();
    dt_status status = dt_comm_agree(t->comm, DT_NEW(part, 1));
    if (status == DT_OK)
        status = collect(t, part);
    if (status != DT_OK)
        warn(t);
    if (part)
        free(part->text);
    free(part);
    dt_pulse_enter(&dt_pulse_main, before);
    t->is_on = false;
    t->last = 0;
}

dt_status dt_timeline_init(struct dt_timeline *t, struct dt_comm *comm, const char *range)
{
    int used = 0;
    *t = (struct dt_timeline){.comm = comm, .overlap = NAN};
    if (!range)
        return DT_OK;
    int n = sscanf(range, "%9" SCNd64 "%n-%9" SCNd64 "%n", &t->first, &used, &t->last, &used);
    if (n == 1)
        t->last = t->first;
    if (n < 1 || range[used] || t->first < 1 || t->last < t->first)
        DT_FAIL_ON_ALL_RANKS(DT_ERR_USAGE,
                             "--trace: \"%s\" is not a range of steps such as 100-120", range);
    return DT_OK;
}

dt_status dt_timeline_init_all(struct dt_timeline *t, struct dt_comm *comm, int64_t n_steps,
                               const char *path)
{
    *t = (struct dt_timeline){.comm = comm, .first = 1, .last = n_steps, .overlap = NAN};
    return dt_file_path(t->path, "%s", path);
}

/* Who starts a run again gives the same range. */
dt_status dt_timeline_check(struct dt_timeline *t, int64_t step, int64_t last_step)
{
    if (t->last > 0 && t->last <= step) {
        dt_log(DT_LOG_NOTICE,
               "no timeline is written: the run goes on after step %" PRId64
               ", and --trace names steps %" PRId64 " to %" PRId64,
               step, t->first, t->last);
        t->last = 0;
    }
    if (t->last == 0 || t->first <= last_step)
        return DT_OK;
    DT_FAIL_ON_ALL_RANKS(DT_ERR_USAGE,
                         "--trace: steps %" PRId64 " to %" PRId64
                         " are none of this run's, which makes "
                         "steps %" PRId64 " to %" PRId64,
                         t->first, t->last, step + 1, last_step);
}

void dt_timeline_step(struct dt_timeline *t, int64_t step)
{
    bool is_in = step >= t->first && step <= t->last;
    if (is_in && !t->is_on) {
        t->first = step; /* a resumed run may begin within the range */
        t->is_on = dt_comm_agree(t->comm, dt_trace_begin(MAX_SPANS)) == DT_OK;
        if (!t->is_on) {
            warn(t);
            t->last = 0;
        }
    } else if (!is_in && t->is_on) {
        end(t);
    } else if (step == INT64_MAX && t->last > 0 && dt_comm_rank(t->comm) == 0) {
        dt_log(DT_LOG_WARNING, "no timeline is written: step %" PRId64 " was not reached",
               t->first);
    }
    t->now = step;
}

void dt_timeline_add(int64_t step, double begin_s)
{
    char number[24];
    if (!dt_trace_is_on())
        return;
    snprintf(number, sizeof number, "%" PRId64, step);
    dt_trace_span("step", "number", number, begin_s, dt_trace_now());
}
