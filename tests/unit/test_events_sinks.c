/* Events as they arrive in metrics.jsonl and on the console: as plain lines, on a pseudo terminal,
 * in a resumed run with a torn last line, and on a full disk. */

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <termios.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "capture.h"
#include "dtrain/config.h"
#include "dtrain/events.h"
#include "events/events_internal.h"
#include "test_dir.h"

static struct dt_config settings;
static int saved_stderr = -1;

/* stderr goes to `fd` until restore_stderr. */
static void redirect_stderr(int fd)
{
    saved_stderr = dup(STDERR_FILENO);
    assert_true(saved_stderr >= 0 && dup2(fd, STDERR_FILENO) >= 0);
}

static void restore_stderr(void)
{
    assert_true(dup2(saved_stderr, STDERR_FILENO) >= 0);
    close(saved_stderr);
}

static void send_run(struct dt_events *report)
{
    const struct dt_field start[] = {DT_JSONV("config", "{\n  \"a b\": [1, 2]\n}"),
                                     DT_INT("ranks", 2),
                                     DT_TEXT("device", "cpu"),
                                     DT_INT("global_batch_size", 256),
                                     DT_INT("passes", 4),
                                     DT_NUM("lr", 0.256),
                                     DT_INT("steps_per_epoch", 5004),
                                     DT_INT("epochs", 90),
                                     DT_INT("parameters", 25557032),
                                     DT_INT("train_images", 1281167),
                                     DT_INT("val_images", 50000),
                                     DT_INT("start_step", 120)};
    const struct dt_field step[] = {DT_INT("step", 140),          DT_INT("total_steps", 450360),
                                    DT_INT("epoch", 0),           DT_NUM("loss", 6.91234),
                                    DT_NUM("top1", 0.1),          DT_NUM("top5", 0.5),
                                    DT_NUM("lr", 0.01),           DT_NUM("images_per_s", 1234.56),
                                    DT_NUM("data_wait_s", 0.002), DT_NUM("comm_s", NAN),
                                    DT_NUM("eta_s", 7620)};
    const struct dt_field eval[] = {DT_INT("epoch", 3),      DT_INT("step", 500),
                                    DT_INT("images", 10000), DT_NUM("loss", 1.0321),
                                    DT_NUM("top1", 75.9),    DT_NUM("top5", 92.7)};
    const struct dt_field saved[] = {DT_INT("step", 500), DT_TEXT("path", "runs/\x1b[2J\"x\""),
                                     DT_NUM("seconds", 1.25)};
    const struct dt_field warning[] = {DT_TEXT("text", "one bad image")};
    const struct dt_field end[] = {DT_TEXT("status", "OK"), DT_INT("exit_code", 0),
                                   DT_INT("steps", 500), DT_NUM("seconds", 12.0),
                                   DT_NUM("top1", -INFINITY)};
    dt_events_emit(report, "run_start", start, DT_COUNT(start));
    dt_events_emit(report, "step", step, DT_COUNT(step));
    dt_events_emit(report, "eval", eval, DT_COUNT(eval));
    dt_events_emit(report, "checkpoint", saved, DT_COUNT(saved));
    dt_events_emit(report, "warning", warning, DT_COUNT(warning));
    dt_events_emit(report, "something_new", NULL, 0);
    dt_events_emit(report, "run_end", end, DT_COUNT(end));
}

/* A whole run; returns what it wrote to stderr, a file. */
static char *run(const struct dt_events_options *options)
{
    struct dt_events *report = NULL;
    char *text = NULL;
    size_t bytes = 0;
    int fd = open(at("stderr"), O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    redirect_stderr(fd);
    dt_status status = dt_events_open(&report, options);
    if (status == DT_OK) {
        send_run(report);
        dt_events_progress(report, "evaluation", 1, 2);
    }
    dt_events_close(report);
    restore_stderr();
    close(fd);
    assert_int_equal(status, DT_OK);
    assert_int_equal(dt_file_load(&text, &bytes, at("stderr"), 1 << 20), DT_OK);
    return text;
}

TEST(plain_console)
{
    static const char *const lines[] = {
        "dtrain: epoch 0 step 140/450360 (0 %):  loss 6.9123  top1 0.10  ETA 2 h 07 min  1234.6 "
        "images/s  lr 0.01\n",
        "dtrain:  * epoch 3: loss 1.0321 top1 75.9 top5 92.7 (10000 images)\n",
        "dtrain: checkpoint of step 500 in runs/?[2J\"x\" (1.2 s)\n",
        "dtrain: warning: one bad image\n",
    };
    char *text = run(&(struct dt_events_options){0}), *rest = text;
    for (size_t i = 0; i < DT_COUNT(lines); i++) {
        if (strncmp(rest, lines[i], strlen(lines[i])) != 0)
            fail_msg("line %zu of\n%sis not\n%s", i, text, lines[i]);
        rest += strlen(lines[i]);
    }
    assert_int_equal(strncmp(rest, "dtrain: end: OK after 500 steps, 12 s", 37), 0);
    assert_null(strchr(text, '\r')); /* nothing is redrawn in a log */
    assert_null(strstr(text, "evaluation"));
    free(text);
    assert_false(dt_file_exists(at("metrics.jsonl")));
}

/* Short epochs do not repeat it. */
TEST(slow_input)
{
    const struct dt_field slow[] = {DT_NUM("wait_share", 0.2), DT_TEXT("text", "input-bound")};
    struct dt_events *report = NULL;
    char said[256];
    struct capture capture = capture_begin(stderr);
    assert_int_equal(dt_events_open(&report, &(struct dt_events_options){0}), DT_OK);
    for (int i = 0; i < 3; i++)
        dt_events_emit(report, "input", slow, DT_COUNT(slow));
    dt_events_close(report);
    capture_end(&capture, said, sizeof said);
    assert_string_equal(said, "dtrain: input-bound\n");
}

/* Parses line `index` of metrics.jsonl; NULL after the last one. */
static struct dt_json_doc *read_line(int index)
{
    char *text = NULL, *line;
    size_t bytes = 0;
    struct dt_json_doc *doc = NULL;
    assert_int_equal(dt_file_load(&text, &bytes, at("metrics.jsonl"), 1 << 20), DT_OK);
    assert_true(bytes > 0 && text[bytes - 1] == '\n');
    for (line = text; index > 0 && *line; index--)
        line = strchr(line, '\n') + 1;
    if (*line && dt_json_parse(&doc, line, strcspn(line, "\n"), "line", NULL) != DT_OK)
        fail_msg("%s in %s", dt_error_text(), line);
    free(text);
    return doc;
}

static void check_event(int index, const char *event)
{
    struct dt_json_doc *doc = read_line(index);
    if (!doc)
        fail_msg("no line %d", index);
    const struct dt_json *ts = dt_json_root(doc)->child;
    int y, mo, d, h, mi, s, ms, n = 0;
    assert_string_equal(ts->key, "ts");
    assert_int_equal(
        sscanf(ts->string, "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ%n", &y, &mo, &d, &h, &mi, &s, &ms, &n), 7);
    assert_true(n == 24 && ts->string[24] == '\0' && y >= 2024);
    assert_string_equal(ts->next->key, "event");
    assert_string_equal(ts->next->string, event);
    dt_json_destroy(doc);
}

static const char *const events[] = {"run_start", "step",          "eval",   "checkpoint",
                                     "warning",   "something_new", "run_end"};

TEST(metrics_file)
{
    free(run(&(struct dt_events_options){.config = &settings, .dir = test_dir}));
    for (size_t i = 0; i < DT_COUNT(events); i++)
        check_event((int)i, events[i]);
    assert_null(read_line(DT_COUNT(events)));

    struct dt_json_doc *doc = read_line(0);
    const struct dt_json *config = dt_json_get(dt_json_root(doc), "config");
    assert_true(dt_json_get(config, "a b")->child->next->number == 2);
    assert_true(dt_json_get(dt_json_root(doc), "parameters")->number == 25557032);
    dt_json_destroy(doc);
    doc = read_line(1);
    assert_true(dt_json_get(dt_json_root(doc), "loss")->number == 6.91234);
    assert_int_equal(dt_json_get(dt_json_root(doc), "comm_s")->type, DT_JSON_NULL);
    dt_json_destroy(doc);
    doc = read_line(3);
    assert_string_equal(dt_json_get(dt_json_root(doc), "path")->string, "runs/\x1b[2J\"x\"");
    dt_json_destroy(doc);
}

static void append_text(const char *text, size_t bytes)
{
    int fd = open(at("metrics.jsonl"), O_WRONLY | O_APPEND);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, bytes), bytes);
    close(fd);
}

TEST(append_and_new_run)
{
    static char torn[9000];
    const int n = DT_COUNT(events);
    free(run(&(struct dt_events_options){.config = &settings, .dir = test_dir}));
    memset(torn, 'x', sizeof(torn)); /* longer than one block of the search */
    torn[0] = '{';
    append_text(torn, sizeof(torn));
    free(run(&(struct dt_events_options){.config = &settings, .dir = test_dir, .append = true}));
    for (int i = 0; i < 2 * n; i++)
        check_event(i, events[i % n]);
    assert_null(read_line(2 * n));
    free(run(&(struct dt_events_options){
        .config = &settings, .dir = test_dir, .append = true})); /* nothing to cut */
    check_event(3 * n - 1, events[n - 1]);
    assert_null(read_line(3 * n));
    free(run(&(struct dt_events_options){.config = &settings,
                                         .dir = test_dir})); /* a new run starts the file anew */
    assert_null(read_line(n));
}

/* Memory of this process, which cannot be read at address 0, stands for a bad disk. */
TEST(cannot_read)
{
    struct dt_append file;
    assert_int_equal(dt_append_open(&file, "/proc/self", "mem", true), DT_OK);
    assert_int_equal(dt_append_cut(&file, NULL, NULL), DT_ERR_IO);
    assert_non_null(strstr(dt_error_text(), "cannot read /proc/self/mem"));
    dt_append_close(&file);
}

TEST(damaged_lines)
{
    free(run(&(struct dt_events_options){.config = &settings, .dir = test_dir}));
    append_text("}{\n\0\n", 5);
    char *said =
        run(&(struct dt_events_options){.config = &settings, .dir = test_dir, .append = true});
    assert_non_null(strstr(said, "metrics.jsonl has 2 damaged lines, "));
    free(said);
}

TEST(only_torn_line)
{
    free(run(&(struct dt_events_options){.config = &settings, .dir = test_dir}));
    assert_int_equal(truncate(at("metrics.jsonl"), 20), 0);
    free(run(&(struct dt_events_options){.config = &settings, .dir = test_dir, .append = true}));
    check_event(0, events[0]);
    assert_null(read_line(DT_COUNT(events)));
}

/* Neither the run nor an error that is being reported depends on a sink. */
TEST(cannot_open)
{
    (void)DT_ERROR(DT_ERR_DATA, "the error of the run");
    char *text = run(
        &(struct dt_events_options){.config = &settings, .dir = at("stderr/x")}); /* below a file */
    const char *first = strstr(text, "warning: no events are written to metrics.jsonl: cannot ");
    assert_true(first && strstr(first, test_dir) && strstr(first, "end: OK"));
    assert_string_equal(dt_error_text(), "the error of the run");
    free(text);
    dt_events_close(NULL);
    dt_events_emit(NULL, "step", NULL, 0);
    dt_events_progress(NULL, "x", 0, 1);
}

/* Only what output.sinks lists. */
TEST(choice_of_sinks)
{
    struct dt_config none = settings;
    none.output.sinks[0] = '\0';
    unlink(at("metrics.jsonl"));
    char *text = run(&(struct dt_events_options){.config = &none, .dir = test_dir});
    assert_string_equal(text, "");
    assert_false(dt_file_exists(at("metrics.jsonl")));
    free(text);
}

/* A long path whose label is truncated at a quotation mark, as many measurements as there may be,
 * and a loss that is no longer known. */
TEST(prometheus)
{
    enum { LABEL = 319, N_FIELDS = 64 };
    struct dt_config config = settings;
    struct dt_events *report = NULL;
    struct dt_field fields[N_FIELDS];
    char parent[256], dir[640], path[672], keys[N_FIELDS][8], *text;
    size_t bytes;
    snprintf(config.output.sinks, sizeof config.output.sinks, "prometheus\n");
    int n = snprintf(parent, sizeof parent, "%s/%0200d", test_dir, 0);
    snprintf(dir, sizeof dir, "%s/%0*d\"", parent, LABEL - n - 2, 0);
    struct dt_events_options options = {.config = &config, .dir = dir};
    assert_true(mkdir(parent, 0700) == 0 && mkdir(dir, 0700) == 0);
    assert_int_equal(dt_events_open(&report, &options), DT_OK);
    dt_events_emit(report, "step", &(struct dt_field)DT_NUM("loss", 2.5), 1);
    dt_events_emit(report, "step", &(struct dt_field)DT_NUM("loss", NAN), 1);
    for (int i = 0; i < N_FIELDS; i++) {
        snprintf(keys[i], sizeof keys[i], "f%d", i);
        fields[i] = (struct dt_field)DT_NUM(keys[i], i);
    }
    dt_events_emit(report, "telemetry", fields, N_FIELDS);
    dt_events_close(report);
    snprintf(path, sizeof path, "%s/dtrain.prom", dir);
    assert_int_equal(dt_file_load(&text, &bytes, path, 1 << 20), DT_OK);
    assert_non_null(strstr(text, "0\",ranks="));
    assert_null(strchr(text, '\\'));
    assert_null(strstr(text, "loss"));
    assert_non_null(strstr(text, "\ndtrain_telemetry_f63{"));
    assert_non_null(strstr(text, "\ndtrain_last_report_timestamp_seconds{"));
    free(text);
    assert_true(unlink(path) == 0 && rmdir(dir) == 0 && rmdir(parent) == 0);
}

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static int count(const char *text, const char *part)
{
    int n = 0;
    for (; (text = strstr(text, part)); text++)
        n++;
    return n;
}

enum { N_LARGE = 12, LARGE_BYTES = 100000 };

/* A limit stands for the full disk: first it cuts a record short, then no file can be written for
 * so long that only ten of the large records are kept. Returns whether the first left whole
 * records. */
static bool send_without_room(struct dt_events *report)
{
    static char large[LARGE_BYTES + 1];
    const struct dt_field field = DT_TEXT("text", large);
    struct stat before, after;
    memset(large, 'x', LARGE_BYTES);
    signal(SIGXFSZ, SIG_IGN);
    send_run(report);
    bool is_whole = stat(at("metrics.jsonl"), &before) == 0;
    limit_files((rlim_t)before.st_size + 10);
    send_run(report);
    is_whole =
        is_whole && stat(at("metrics.jsonl"), &after) == 0 && after.st_size == before.st_size;
    limit_files(RLIM_INFINITY);
    send_run(report);
    limit_files(1);
    for (int i = 0; i < N_LARGE; i++)
        dt_events_emit(report, "something_new", &field, 1);
    limit_files(RLIM_INFINITY);
    send_run(report);
    return is_whole;
}

TEST(sink_that_cannot_write)
{
    const int n_lines = 4 * (int)DT_COUNT(events) + N_LARGE - 2;
    static char text[8192];
    struct dt_config config = settings;
    struct dt_events *report = NULL;
    int ends[2];
    char *lines;
    size_t bytes;
    snprintf(config.output.sinks, sizeof config.output.sinks, "jsonl\nprometheus\n");
    assert_int_equal(pipe(ends), 0);
    redirect_stderr(ends[1]);
    dt_status status =
        dt_events_open(&report, &(struct dt_events_options){.config = &config, .dir = test_dir});
    const bool is_whole = status == DT_OK && send_without_room(report);
    dt_events_close(report);
    restore_stderr();
    close(ends[1]);
    assert_true(is_whole);
    assert_true(read(ends[0], text, sizeof(text) - 1) > 0);
    close(ends[0]);
    assert_int_equal(count(text, "no events are written to metrics.jsonl until"), 2);
    assert_int_equal(count(text, "events are written to metrics.jsonl again"), 2);
    assert_int_equal(count(text, "no events are written to dtrain.prom until"), 2);
    assert_int_equal(count(text, "events are written to dtrain.prom again"), 2);
    assert_int_equal(count(text, "warning: 2 records could not be written to "), 1);
    assert_int_equal(dt_file_load(&lines, &bytes, at("metrics.jsonl"), 1 << 22), DT_OK);
    assert_int_equal(count(lines, "\n"), n_lines);
    assert_int_equal(count(lines, "}\n"), n_lines);
    free(lines);
    assert_int_equal(unlink(at("dtrain.prom")), 0);
}

/* A terminal hands over what was written to it in pieces. */
static void read_until(int fd, char *text, size_t bytes, const char *last)
{
    size_t used = 0;
    while (used + 1 < bytes && !strstr(text, last)) {
        ssize_t n = read(fd, text + used, bytes - 1 - used);
        assert_true(n > 0);
        used += (size_t)n;
        text[used] = '\0';
    }
}

TEST(terminal)
{
    struct dt_events *report = NULL;
    struct winsize size = {.ws_row = 24, .ws_col = 60};
    struct termios raw;
    char text[8192] = "";
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0)
        skip();
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    assert_true(slave >= 0);
    assert_int_equal(ioctl(slave, TIOCSWINSZ, &size), 0);
    assert_int_equal(tcgetattr(slave, &raw), 0);
    raw.c_oflag &= ~(tcflag_t)OPOST;
    assert_int_equal(tcsetattr(slave, TCSANOW, &raw), 0);
    assert_int_equal(setenv("TERM", "xterm", 1), 0);
    redirect_stderr(slave);
    dt_status status = dt_events_open(&report, &(struct dt_events_options){0});
    if (status == DT_OK) {
        send_run(report);
        dt_events_progress(report, "evaluation", 30, 120);
    }
    dt_events_close(report);
    restore_stderr();
    assert_int_equal(status, DT_OK);
    read_until(master, text, sizeof(text), "(25 %)\r\033[K");
    close(slave);
    close(master);
    const char *step = strstr(text, "\r\033[Kepoch 0 step 140/450360 (0 %):  loss 6.9123");
    assert_non_null(step);
    assert_null(memchr(step, '\n', 54)); /* parts that fit 59, then rewritten by the next line */
    assert_memory_equal(step + 4 + 54, "\r\033[Kdtrain:  * epoch 3", 22);
    assert_non_null(strstr(text, "\r\033[Kevaluation: 30/120 (25 %)\r\033[K"));
}

static int set_up(void **state)
{
    dt_config_init(&settings);
    snprintf(settings.output.sinks, sizeof settings.output.sinks, "console\njsonl\n");
    return make_test_dir(state);
}

static int tear_down(void **state)
{
    (void)state;
    unlink(at("stderr"));
    unlink(at("metrics.jsonl"));
    return rmdir(test_dir); /* there is nothing else in it */
}

TEST_MAIN(set_up, tear_down)
