/* Every rank writes its own spans as JSON and compresses them; rank 0 puts the parts together,
 * which takes no more memory than one part.
 *
 * Deflated parts that end on a byte boundary can follow one another, and the checksum of the whole
 * follows from theirs, so the file is one ordinary gzip file. */
#include "train/timeline.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "base/trace.h"

enum {
    MAX_SPANS = 1 << 19, /* per rank: 48 MB, of which only what is used is touched */
    LANE_IDS = 1000,     /* thread ids per kind of lane */
    RAW = -MAX_WBITS,    /* deflate without header and checksum */
    MEMORY_LEVEL = 8,    /* zlib's default */
    LINE_BYTES = 512,
};

/* About all ranks. */
struct heading {
    double error_s; /* largest error of a clock */
    int64_t n_spans, n_dropped;
};

/* One rank's part of the file. */
struct part {
    z_stream stream;
    unsigned char *data;
    size_t bytes, capacity;
    uLong checksum;
    int64_t n_text; /* bytes before compression */
    int rank;
    double offset_s; /* from dt_clock_s to the time of the file */
    bool is_named[DT_N_TRACE_LANES][LANE_IDS];
    bool has_failed;
};

/* --- Compression --- */

static void put(struct part *part, const char *text, size_t bytes, int flush)
{
    z_stream *z = &part->stream;
    part->checksum = crc32(part->checksum, (const Bytef *)text, (uInt)bytes);
    part->n_text += (int64_t)bytes;
    z->next_in = (Bytef *)text;
    z->avail_in = (uInt)bytes;
    do {
        if (part->has_failed || dt_mem_grow((void **)&part->data, &part->capacity,
                                            part->bytes + LINE_BYTES, 1, "the timeline") != DT_OK) {
            part->has_failed = true;
            return;
        }
        size_t space = part->capacity - part->bytes;
        z->next_out = part->data + part->bytes;
        z->avail_out = (uInt)space;
        (void)deflate(z, flush); /* cannot fail with valid arguments */
        part->bytes += space - z->avail_out;
    } while (z->avail_out == 0);
}

static void put_format(struct part *part, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void put_format(struct part *part, const char *format, ...)
{
    char line[LINE_BYTES];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    put(part, line, n < LINE_BYTES ? (size_t)n : LINE_BYTES - 1, Z_NO_FLUSH);
}

/* --- Events --- */

static const struct {
    const char *name;
    bool is_numbered;
} lanes[] = {
#define ONE(id, name)     {name, false},
#define SEVERAL(id, name) {name, true},
    DT_TRACE_LANE_LIST(ONE, SEVERAL)
#undef ONE
#undef SEVERAL
};

/* Names a process (thread id 0) or one of its threads, and orders them by id. */
static void put_name(struct part *part, const char *kind, int thread, const char *name)
{
    int process = part->rank + 1;
    put_format(part,
               "{\"name\":\"%s_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}"
               "},\n{\"name\":\"%s_sort_index\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{"
               "\"sort_index\":%d}}",
               kind, process, thread, name, kind, process, thread, thread ? thread : process);
}

static int thread_of(enum dt_trace_lane lane, int index)
{
    return 1 + (int)lane * LANE_IDS + index;
}

static void name_lane(struct part *part, enum dt_trace_lane lane, int index)
{
    char number[16] = "", name[64];
    if (lanes[lane].is_numbered)
        snprintf(number, sizeof number, " %d", index);
    snprintf(name, sizeof name, "%s%s", lanes[lane].name, number);
    put_format(part, ",\n");
    put_name(part, "thread", thread_of(lane, index), name);
    part->is_named[lane][index] = true;
}

/* Microseconds with three decimals, from nanoseconds: what nests in the clock nests in the file. */
static void put_span(void *context, const struct dt_trace_span *span)
{
    struct part *part = context;
    int index = span->index % LANE_IDS, thread = thread_of(span->lane, index);
    int64_t begin = llround((span->begin_s + part->offset_s) * 1e9);
    int64_t length = llround((span->end_s + part->offset_s) * 1e9) - begin;
    if (!part->is_named[span->lane][index])
        name_lane(part, span->lane, index);
    put_format(part,
               ",\n{\"name\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%" PRId64
               ".%03d,\"dur\":%" PRId64 ".%03d",
               span->name, part->rank + 1, thread, begin / 1000, (int)(begin % 1000), length / 1000,
               (int)(length % 1000));
    if (span->key)
        put_format(part, ",\"args\":{\"%s\":\"%s\"}", span->key, span->value);
    put_format(part, "}");
}

/* --- The parts --- */

static void put_heading(struct part *part, const struct dt_timeline *t,
                        const struct heading *heading)
{
    put_format(part,
               "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"dtrain\":\"%s\",\"ranks\":%d,"
               "\"first_step\":%" PRId64 ",\"last_step\":%" PRId64 ",\"clock_error_us\":%.1f,"
               "\"dropped_spans\":%" PRId64 "},\n\"traceEvents\":[\n",
               DTRAIN_VERSION, dt_comm_size(t->comm), t->first, t->last, 1e6 * heading->error_s,
               heading->n_dropped);
}

static dt_status make_part(struct part *part, const struct dt_timeline *t,
                           const struct heading *heading)
{
    char host[DT_HOST_MAX], name[DT_HOST_MAX + 32];
    part->rank = dt_comm_rank(t->comm);
    part->checksum = crc32(0, NULL, 0);
    if (deflateInit2(&part->stream, Z_BEST_SPEED, Z_DEFLATED, RAW, MEMORY_LEVEL,
                     Z_DEFAULT_STRATEGY) != Z_OK)
        DT_FAIL(DT_ERR_MEMORY, "out of memory: compressing the timeline");
    dt_host_name(host);
    for (char *c = host; *c; c++)
        if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ')
            *c = '?';
    snprintf(name, sizeof name, "rank %d (%s)", part->rank, host);
    if (part->rank == 0)
        put_heading(part, t, heading);
    else
        put_format(part, ",\n");
    put_name(part, "process", 0, name);
    dt_trace_list(put_span, part);
    if (part->rank == dt_comm_size(t->comm) - 1)
        put_format(part, "\n]}\n");
    put(part, "", 0, Z_FULL_FLUSH);
    deflateEnd(&part->stream);
    return part->has_failed ? DT_ERR_MEMORY : DT_OK;
}

/* What rank 0 must know of a part. */
struct size {
    uint64_t bytes, checksum;
    int64_t n_text;
};

static dt_status write_end(int fd, const char *path, const struct size *sizes, int n)
{
    uint64_t n_text = 0;
    uLong checksum = crc32(0, NULL, 0);
    for (int r = 0; r < n; r++) {
        checksum = crc32_combine(checksum, (uLong)sizes[r].checksum, (z_off_t)sizes[r].n_text);
        n_text += (uint64_t)sizes[r].n_text;
    }
    unsigned char end[2 + 8] = {3, 0}; /* an empty last block */
    for (int i = 0; i < 4; i++) {
        end[2 + i] = (unsigned char)(checksum >> 8 * i);
        end[6 + i] = (unsigned char)(n_text >> 8 * i);
    }
    return dt_file_write(fd, end, sizeof end, path);
}

/* Rank 0 receives the parts into its own, which is large enough. A file that cannot be written
 * does not keep the others from sending. */
static dt_status put_together(struct dt_new_file *file, struct part *part, struct dt_comm *comm,
                              const struct size *sizes)
{
    static const unsigned char begin[] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff};
    const int n = dt_comm_size(comm);
    dt_status status = DT_OK;
    if (part->rank == 0)
        status = dt_file_write(file->fd, begin, sizeof begin, file->path);
    for (int r = 0; r < n; r++) {
        DT_TRY(dt_comm_copy(comm, part->data, sizes[r].bytes, r, 0));
        if (part->rank == 0 && status == DT_OK)
            status = dt_file_write(file->fd, part->data, sizes[r].bytes, file->path);
    }
    if (part->rank == 0 && status == DT_OK)
        status = write_end(file->fd, file->path, sizes, n);
    return status;
}

static dt_status save(struct part *part, const struct dt_timeline *t, const struct heading *heading)
{
    struct dt_comm *comm = t->comm;
    struct dt_new_file file = {.fd = -1};
    struct size *sizes = NULL;
    size_t most = 0;
    dt_status status = make_part(part, t, heading);
    if (status == DT_OK)
        status = DT_NEW(sizes, (size_t)dt_comm_size(comm));
    DT_TRY_OUT(dt_comm_agree(comm, status));
    struct size own = {part->bytes, part->checksum, part->n_text};
    DT_TRY_OUT(dt_comm_gather(comm, sizes, &own, sizeof own));
    for (int r = 0; r < dt_comm_size(comm); r++)
        most = sizes[r].bytes > most ? sizes[r].bytes : most;
    if (part->rank == 0)
        status = dt_mem_grow((void **)&part->data, &part->capacity, most, 1, "the timeline");
    if (part->rank == 0 && status == DT_OK)
        status = dt_file_begin(&file, t->path);
    DT_TRY_OUT(dt_comm_agree(comm, status));
    status = put_together(&file, part, comm, sizes);
out:
    free(sizes);
    return dt_file_end(&file, status);
}

/* --- Beginning and end --- */

static dt_status find_heading(struct heading *heading, struct part *part, struct dt_comm *comm)
{
    double most[2]; /* of the ranks: minus their beginning, error of the clock */
    int64_t counts[2];
    dt_trace_count(&counts[0], &counts[1]);
    DT_TRY(dt_comm_clock(comm, &part->offset_s, &most[1]));
    most[0] = -(dt_trace_begin_s() + part->offset_s);
    DT_TRY(dt_comm_max_f64(comm, most, 2));
    DT_TRY(dt_comm_sum_i64(comm, counts, 2));
    part->offset_s += most[0];
    *heading = (struct heading){most[1], counts[0], counts[1]};
    return DT_OK;
}

static dt_status collect(const struct dt_timeline *t, struct part *part)
{
    struct heading heading;
    DT_TRY(find_heading(&heading, part, t->comm));
    DT_TRY(save(part, t, &heading));
    if (part->rank == 0)
        dt_log(DT_LOG_INFO,
               "timeline of steps %" PRId64 " to %" PRId64 " in %s: %" PRId64 " spans, %" PRId64
               " dropped; open it in https://ui.perfetto.dev",
               t->first, t->last, t->path, heading.n_spans, heading.n_dropped);
    return DT_OK;
}

static void warn(const struct dt_timeline *t)
{
    if (dt_comm_rank(t->comm) == 0)
        dt_log(DT_LOG_WARNING, "no timeline is written: %s", dt_error_text());
    dt_error_clear();
}

/* A resumed run may begin within the range. */
static void begin(struct dt_timeline *t, int64_t step)
{
    t->first = step;
    t->is_on = dt_comm_agree(t->comm, dt_trace_begin(MAX_SPANS)) == DT_OK;
    if (t->is_on)
        return;
    warn(t);
    t->last = 0;
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
        free(part->data);
    free(part);
    dt_pulse_enter(&dt_pulse_main, before);
    t->is_on = false;
    t->last = 0;
}

dt_status dt_timeline_init(struct dt_timeline *t, struct dt_comm *comm, const char *range)
{
    int used = 0;
    *t = (struct dt_timeline){.comm = comm};
    if (!range)
        return DT_OK;
    int n = sscanf(range, "%9" SCNd64 "%n-%9" SCNd64 "%n", &t->first, &used, &t->last, &used);
    if (n == 1)
        t->last = t->first;
    if (n < 1 || range[used] || t->first < 1 || t->last < t->first)
        DT_FAIL_ALIKE(DT_ERR_USAGE, "--trace: \"%s\" is not a range of steps such as 100-120",
                      range);
    return DT_OK;
}

dt_status dt_timeline_init_all(struct dt_timeline *t, struct dt_comm *comm, int64_t n_steps,
                               const char *path)
{
    *t = (struct dt_timeline){.comm = comm, .first = 1, .last = n_steps};
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
    DT_FAIL_ALIKE(DT_ERR_USAGE,
                  "--trace: steps %" PRId64 " to %" PRId64 " are none of this run's, which makes "
                  "steps %" PRId64 " to %" PRId64,
                  t->first, t->last, step + 1, last_step);
}

void dt_timeline_step(struct dt_timeline *t, int64_t step)
{
    bool is_in = step >= t->first && step <= t->last;
    if (is_in && !t->is_on)
        begin(t, step);
    else if (!is_in && t->is_on)
        end(t);
    else if (step == INT64_MAX && t->last > 0 && dt_comm_rank(t->comm) == 0)
        dt_log(DT_LOG_WARNING, "no timeline is written: step %" PRId64 " was not reached",
               t->first);
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
