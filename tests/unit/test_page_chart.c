/* Charts: where the ticks are, and what is drawn, as well-formed XML. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "page/chart.h"
#include "test.h"

static void check_ticks(double low, double high, const char *expected)
{
    double ticks[DT_MAX_TICKS];
    char text[256] = "", *end = text;
    int n = dt_chart_ticks(ticks, low, high, 5);
    for (int i = 0; i < n; i++)
        end += snprintf(end, sizeof text - (size_t)(end - text), "%.10g ", ticks[i]);
    assert_string_equal(text, expected);
}

TEST(ticks)
{
    check_ticks(0, 1, "0 0.2 0.4 0.6 0.8 1 ");
    check_ticks(0.7, 2.6, "1 1.5 2 2.5 ");
    check_ticks(-3, 95, "0 20 40 60 80 ");
    check_ticks(59.99, 60.01, "59.99 59.995 60 60.005 60.01 ");
    check_ticks(1e-7, 5e-7, "1e-07 2e-07 3e-07 4e-07 5e-07 ");
}

/* Every tag is closed, every & begins a character reference. */
static void check_xml(const char *text)
{
    char open[64][16];
    int depth = 0;
    for (const char *at = text; (at = strpbrk(at, "<&")); at++) {
        char name[16] = "";
        const char *end = strchr(at, '>');
        if (*at == '&') {
            assert_true(at[1] == '#');
            continue;
        }
        assert_non_null(end);
        assert_int_equal(sscanf(at + 1, "%15[/a-z0-9]", name), 1);
        if (name[0] == '/')
            assert_true(depth > 0 && strcmp(open[--depth], name + 1) == 0);
        else if (end[-1] != '/')
            memcpy(open[depth++], name, sizeof name);
        assert_true(depth < 64);
        at = end;
    }
    assert_int_equal(depth, 0);
}

static int count(const char *text, const char *part)
{
    int n = 0;
    for (; (text = strstr(text, part)); text++)
        n++;
    return n;
}

static char *print(const struct dt_chart *chart, bool expected)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    bool is_drawn;
    assert_int_equal(dt_chart_print(out, chart, &is_drawn), DT_OK);
    assert_int_equal(is_drawn, expected);
    fclose(out);
    check_xml(text);
    return text;
}

TEST(large_numbers)
{
    const double x[] = {1, 2}, y[] = {0, 2e12};
    const struct dt_series series = {.name = "", .x = x, .y = y, .n = 2};
    const struct dt_chart chart = {
        .title = "t", .x = {"x"}, .y = {"y"}, .series = &series, .n_series = 1, .in_image = true};
    char *text = print(&chart, true);
    assert_true(count(text, ">1T<") == 1 && count(text, ">500G<") == 1);
    free(text);
}

TEST(chart)
{
    const double x[] = {1, 2, 4, 8}, y[] = {100, NAN, 390, 700}, ideal[] = {100, 200, 400, 800};
    const struct dt_point points[] = {{1, 0.5, 0, 0}, {2, 1, 0, 0}, {4, 1.5, 0, 0}, {8, 3, 0, 0}};
    const struct dt_series series[] = {
        {"a < b & \"c\"\x01\xff", x, y, .points = points, .n = 4, .has_dots = true},
        {"ideal", x, ideal, .points = points, .n = 4, .colour = 7, .dash = 1},
    };
    const struct dt_mark marks[] = {{4, "a <restart>"}, {NAN, "nowhere"}};
    struct dt_chart chart = {.title = "Scaling",
                             .x = {"ranks", .from_zero = false},
                             .y = {"images/s", .from_zero = true},
                             .series = series,
                             .n_series = 2,
                             .marks = marks,
                             .n_marks = 2,
                             .in_image = true};
    char *text = print(&chart, true);
    assert_int_equal(count(text, "class=\"dot\""), 3);
    assert_int_equal(count(text, "class=\"mark"), 1);
    assert_int_equal(count(text, "curve dash1"), 2); /* and in the legend */
    assert_non_null(strstr(text, "a &#60; b &#38; &#34;c&#34;??"));
    assert_null(strstr(text, "nan"));
    free(text);
    chart.in_image = false;
    text = print(&chart, true);
    assert_non_null(strstr(text, "\"step\":[1,3,4],\"ms\":[500,1000,1500],\"y\":[100,390,700]"));
    assert_non_null(strstr(text, "a \\u003c b \\u0026 \\\"c\\\""));
    free(text);
    chart.n_series = 0;
    text = print(&chart, false);
    assert_string_equal(text, "");
    free(text);
}

/* Whatever the values, coordinates are finite. */
TEST(extremes)
{
    static double x[1000], y[1000];
    const struct dt_series series = {.name = "s", .x = x, .y = y, .n = 1000};
    const double sizes[] = {0, 1e-300, 1, 1e12, 1e299};
    for (int s = 0; s < 5; s++) {
        for (int i = 0; i < 1000; i++) {
            x[i] = i;
            y[i] = sizes[s] * (i % 7 - 2);
        }
        struct dt_chart chart = {
            .title = "t", .x = {"step", true}, .y = {"y", false}, .in_image = true};
        chart.series = &series;
        chart.n_series = 1;
        char *text = print(&chart, true);
        assert_null(strstr(text, "nan"));
        assert_null(strstr(text, "inf"));
        free(text);
    }
}

TEST_MAIN(NULL, NULL)
