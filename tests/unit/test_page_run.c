/* metrics.jsonl as a run: curves in bounded memory, a killed and resumed run, a live one, broken
 * files. */

#include <math.h>

#include "capture.h"
#include "page/page.h"
#include "page/page_run.h"
#include "test_dir.h"

#define AT(second) "{\"ts\":\"2026-01-31T12:00:" second ".500Z\",\"event\":"
#define START(second, step)                                                          \
    AT(second)                                                                       \
    "\"run_start\",\"config\":{\"schedule\":{\"lr\":0.5}},\"global_batch_size\":10," \
    "\"steps_per_epoch\":10,\"start_step\":" step                                    \
    ",\"stages\":[{\"epoch\":0,\"step\":0,\"steps_per_epoch\":10},"                  \
    "{\"epoch\":2,\"step\":20,\"steps_per_epoch\":5}]}\n"
#define STEP(second, step, loss)                            \
    AT(second)                                              \
    "\"step\",\"step\":" step ",\"epoch\":1,\"loss\":" loss \
    ",\"images_per_s\":100,\"step_s\":0.1,\"data_wait_s\":0.02,\"total_steps\":40}\n"
#define EVAL(second, step, top1) AT(second) "\"eval\",\"step\":" step ",\"top1\":" top1 "}\n"

static dt_status load(struct dt_run *run, const char *text)
{
    write_text("metrics.jsonl", text);
    return dt_run_load(run, test_dir);
}

static size_t points(struct dt_point out[DT_CURVE_POINTS], const struct dt_run *run,
                     const char *name)
{
    assert_non_null(dt_run_curve(run, name));
    return dt_curve_points(dt_run_curve(run, name), out);
}

static bool is_near(double a, double b, double max)
{
    return fabs(a - b) <= max;
}

TEST(restart)
{
    struct dt_run run;
    struct dt_point p[DT_CURVE_POINTS];
    assert_int_equal(load(&run, START("00", "0") STEP("02", "10", "3") EVAL("03", "10", "20")
                                    STEP("04", "20", "2") EVAL("05", "20", "50")
                                        STEP("06", "26", "9") START("30", "10")
                                            AT("31") "\"warning\",\"text\":\"<hot>\"}\n" STEP(
                                                "33", "20", "1") STEP("34", "30", "null")),
                     DT_OK);
    assert_int_equal(points(p, &run, "step.loss"), 2);
    assert_int_equal(p[1].step, 20);
    assert_true(is_near(p[1].value, 1, 0));
    assert_true(is_near(p[1].elapsed_s, 6 + 3, 1e-6)); /* 24 s of pause are not in it */
    assert_int_equal(points(p, &run, "eval.top1"), 1);
    assert_true(p[0].value == 20);
    assert_int_equal(points(p, &run, "step.data wait"), 3);
    assert_true(is_near(p[0].value, 20, 1e-9));
    assert_true(is_near(run.median_images_per_s, 100, 0));
    assert_true(is_near(run.elapsed_s, 10, 1e-6));
    assert_true(is_near(dt_run_epochs(&run, 15), 1.5, 0) &&
                is_near(dt_run_epochs(&run, run.step), 4, 0));
    assert_int_equal(run.n_notes, 2);
    assert_int_equal(run.n_restarts, 1);
    assert_true(run.notes[0].is_restart && run.notes[0].step == 10);
    assert_non_null(strstr(run.notes[0].text, "16 steps repeated: the run had been killed"));
    assert_string_equal(run.notes[1].text, "<hot>");
    assert_null(run.end);
    dt_run_reset(&run);
}

TEST(results)
{
    struct dt_run run;
    struct dt_table table;
    assert_int_equal(load(&run, START("00", "0") EVAL("10", "10", "40") EVAL("20", "20", "61") EVAL(
                                    "30", "30", "80") EVAL("40", "40", "90,\"reported_only\":true")
                                    AT("41") "\"run_end\",\"status\":\"OK\",\"warnings\":2}\n"),
                     DT_OK);
    assert_int_equal(dt_facts_results(&table, &run, 1), DT_OK);
    static const char *const expected[][2] = {
        {"status", "finished"},
        {"best top1", "80.00 %, epoch 4"},
        {"last top1", "90.00 %"},
        {"time to 60.0 % (75 % of best)", "20 s, epoch 2"},
        {"time to 72.0 % (90 % of best)", "30 s, epoch 4"},
        {"wall time", "41 s"},
        {"restarts, warnings", "0, 2"},
    };
    size_t row = 0;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        while (strcmp(dt_table_cell(&table, row, 0), expected[i][0]) != 0)
            assert_true(++row < dt_table_rows(&table));
        assert_string_equal(dt_table_cell(&table, row, 1), expected[i][1]);
    }
    free(table.cells);
    struct dt_run both[2] = {run};
    assert_int_equal(load(&both[1], START("00", "0") STEP("10", "10", "3")), DT_OK);
    assert_int_equal(dt_facts_results(&table, both, 2), DT_OK);
    for (row = 0; strncmp(dt_table_cell(&table, row, 0), "time to", 7) != 0;)
        row++;
    assert_string_equal(dt_table_cell(&table, row, 2), ""); /* it was not evaluated */
    free(table.cells);
    dt_run_reset(&both[1]);
    assert_int_equal(dt_facts_config(&table, &run, 1), DT_OK); /* against the defaults */
    assert_int_equal(dt_table_rows(&table) > 1, true);
    free(table.cells);
    dt_run_reset(&run);
}

/* Of a detector: fractions instead of per cents. */
TEST(detector)
{
    struct dt_run run;
    struct dt_table table;
    char *page = NULL;
    size_t bytes = 0, row = 0;
    assert_int_equal(load(&run, START("00", "0") STEP("05", "5", "2") AT(
                                    "10") "\"eval\",\"step\":10,\"ap\":0.1,\"ap50\":0.3,"
                                          "\"ap75\":0.05}\n" AT(
                                              "20") "\"eval\",\"step\":20,"
                                                    "\"ap\":0.4,\"ap50\":0.6,"
                                                    "\"ap75\":0.45,\"ap_small\":0.1,\"ap_medium\":"
                                                    "0.3,\"ap_large\":0.5,\"ar1\":0.2}\n"),
                     DT_OK);
    assert_int_equal(dt_facts_results(&table, &run, 1), DT_OK);
    static const char *const expected[][2] = {
        {"best ap", "0.4000, epoch 2"},
        {"last ap50", "0.6000"},
        {"time to 0.300 (75 % of best)", "20 s, epoch 2"},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        while (strcmp(dt_table_cell(&table, row, 0), expected[i][0]) != 0)
            assert_true(++row < dt_table_rows(&table));
        assert_string_equal(dt_table_cell(&table, row, 1), expected[i][1]);
    }
    free(table.cells);
    FILE *out = open_memstream(&page, &bytes);
    assert_non_null(out);
    assert_int_equal(dt_curves_print(out, &run, 1), DT_OK);
    fclose(out);
    assert_non_null(strstr(page, "Average precision (COCO)"));
    assert_non_null(strstr(page, "ap75")); /* two lines with names of their own */
    assert_non_null(strstr(page, "ap small"));
    assert_non_null(strstr(page, "Average recall"));
    assert_null(strstr(page, "Other measurements"));
    free(page);
    dt_run_reset(&run);
}

/* The rest of the run is read, and one warning counts the lines. */
static void check_damaged(const char *text, const char *warning)
{
    struct dt_run run;
    char said[1024];
    struct capture capture = capture_begin(stderr);
    assert_int_equal(load(&run, text), DT_OK);
    capture_end(&capture, said, sizeof said);
    assert_non_null(strstr(said, warning));
    assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1);
    assert_int_equal(run.step, 2);
    dt_run_reset(&run);
}

TEST(broken)
{
    struct dt_run run;
    struct dt_table table;
    check_damaged(START("00", "0") STEP("01", "1", "1") "gar bage\n{\n" STEP("02", "2", "1"),
                  "2 damaged lines skipped, the first: ");
    check_damaged(START("00", "0") STEP("01", "1", "1") "gar bage\n" STEP("02", "2", "1"),
                  "metrics.jsonl:3:1: ");
    check_damaged(START("00", "0") "[1]\n" STEP("02", "2", "1"),
                  "metrics.jsonl:2: not an event of a run");
    check_damaged(START("00", "0") AT("01") "\"eval\",\"step\":-1}\n" STEP("02", "2", "1"),
                  "1 damaged line skipped, the first: ");
    assert_int_equal(load(&run, ""), DT_ERR_DATA);
    assert_non_null(strstr(dt_error_text(), "no run has started"));
    dt_run_reset(&run);
    assert_int_equal(load(&run, START("00", "0") "{\"half\":"), DT_OK);
    dt_run_reset(&run);
    assert_int_equal(load(&run, "{\"event\":\"run_start\",\"config\":[1,{\"a\":2}]}\n"), DT_OK);
    assert_int_equal(dt_facts_config(&table, &run, 1), DT_OK);
    free(table.cells);
    dt_run_reset(&run);
    unlink(at("metrics.jsonl"));
    assert_int_equal(dt_run_load(&run, test_dir), DT_ERR_NO_INPUT);
    dt_run_reset(&run);
}

/* 200,000 lines: the extremes survive, and the memory of a curve does not grow. */
TEST(long)
{
    struct dt_run run;
    static struct dt_point p[DT_CURVE_POINTS];
    double low = INFINITY, high = -INFINITY;
    FILE *file = fopen(at("metrics.jsonl"), "w");
    assert_non_null(file);
    fputs(START("00", "0"), file);
    for (int i = 1; i <= 200000; i++) {
        double loss = i == 123457 ? 1e6 : i == 77777 ? -5 : sin(i);
        fprintf(file, "{\"event\":\"step\",\"step\":%d,\"loss\":%.6f,\"images_per_s\":%d}\n", i,
                loss, i);
    }
    fclose(file);
    assert_int_equal(dt_run_load(&run, at("metrics.jsonl")), DT_OK);
    size_t n = points(p, &run, "step.loss");
    assert_in_range(n, DT_CURVE_POINTS / 2, DT_CURVE_POINTS);
    for (size_t i = 0; i < n; i++) {
        assert_true(i == 0 || p[i].step > p[i - 1].step);
        low = fmin(low, p[i].value);
        high = fmax(high, p[i].value);
    }
    assert_true(low == -5 && high == 1e6);
    assert_true(is_near(run.median_images_per_s, 1e5, 10));
    assert_int_equal(run.n_curves, 2);
    dt_run_reset(&run);
}

TEST_MAIN(make_test_dir, remove_test_dir)
