/* A struct to JSON and back by its rows; values that a row does not take. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/member.h"
#include "test_status.h"

enum colour { RED, GREEN };
struct thing {
    bool is_new;
    int count;
    int64_t step;
    uint64_t seed, hash;
    double share;
    float scale;
    enum colour colour;
    char name[8];
    int spare;
};

static const char *const colours[] = {"red", "green", NULL};
#define ROW(...) DT_MEMBER(struct thing, __VA_ARGS__)
static const struct dt_member rows[] = {
    ROW(BOOL, is_new, "new"),
    ROW(INT, count, "count", .min = 1, .max = 9),
    ROW(INT64, step, "step", .min = -1),
    ROW(UINT64, seed, "seed"),
    ROW(HASH, hash, "hash"),
    ROW(REAL, share, "share", .max = 1),
    ROW(FLOAT, scale, "scale", .min = -INFINITY),
    ROW(CHOICE, colour, "colour", .choices = colours),
    ROW(TEXT, name, "name"),
    ROW(INT, spare, "spare", .is_optional = true),
};

static const char text[] = "{\"new\":true,\"count\":3,\"step\":9007199254740991,\"seed\":7,"
                           "\"hash\":\"00fedcba98765432\",\"share\":0.1,\"scale\":-0.5,"
                           "\"colour\":\"green\",\"name\":\"seven_7\",\"spare\":2}";

static bool read(struct thing *out, const char *from)
{
    struct dt_json_doc *doc;
    assert_ok(dt_json_parse(&doc, from, strlen(from), "test", NULL));
    const bool is_read = dt_members_read(out, rows, DT_COUNT(rows), dt_json_root(doc));
    dt_json_destroy(doc);
    return is_read;
}

TEST(there_and_back)
{
    struct thing thing = {0};
    struct dt_jsonw w = {0};
    assert_true(read(&thing, text));
    assert_true(thing.is_new && thing.count == 3 && thing.step == (INT64_C(1) << 53) - 1);
    assert_true(thing.seed == 7 && thing.hash == UINT64_C(0xfedcba98765432));
    assert_true(thing.share == 0.1 && thing.scale == -0.5F && thing.colour == GREEN);
    assert_string_equal(thing.name, "seven_7");
    assert_true(dt_member_number(DT_MEMBER_CHOICE, &thing.colour) == GREEN);
    dt_jsonw_begin(&w, NULL, '{');
    dt_members_write(&w, rows, DT_COUNT(rows), &thing);
    dt_jsonw_close(&w, '}');
    assert_ok(dt_jsonw_end(&w));
    assert_string_equal(w.text, text);
    dt_jsonw_reset(&w);
    thing.spare = 0;
    w = (struct dt_jsonw){0};
    dt_jsonw_begin(&w, NULL, '{');
    dt_members_write(&w, rows, DT_COUNT(rows), &thing);
    assert_null(strstr(w.text, "spare"));
    dt_jsonw_reset(&w);
}

TEST(refused)
{
    static const char *const changes[][2] = {
        {"true", "1"},
        {"\"count\":3", "\"count\":0"},
        {"\"count\":3", "\"count\":10"},
        {":3,", ":3.5,"},
        {"9007199254740991", "-2"},
        {"\"seed\":7", "\"seed\":-7"},
        {"00fed", "00FED"},
        {"00fed", "000fed"},
        {"0.1", "1.1"},
        {"0.1", "\"0.1\""},
        {"-0.5", "null"},
        {"green", "blue"},
        {"seven_7", "seven_77"},
        {"\"seed\"", "\"sead\""},
        {"\"spare\":2", "\"spare\":[]"},
    };
    struct thing thing = {.spare = 5};
    char changed[sizeof text + 32];
    for (size_t i = 0; i < DT_COUNT(changes); i++) {
        const char *at = strstr(text, changes[i][0]);
        assert_non_null(at);
        snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, changes[i][1],
                 at + strlen(changes[i][0]));
        if (read(&thing, changed))
            fail_msg("%s was accepted", changes[i][1]);
    }
    thing.spare = 5;
    snprintf(changed, sizeof changed, "%.*s}", (int)(strstr(text, ",\"spare") - text), text);
    assert_true(read(&thing, changed) && thing.spare == 5);
}

TEST_MAIN(NULL, NULL)
