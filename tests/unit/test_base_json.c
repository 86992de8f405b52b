/* JSON: what must be refused and where the error points, what must be accepted, values and places,
 * and that everything the writer makes reads back the same. */

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>

#include "base/json.h"
#include "base/mem.h"
#include "test_dir.h"
#include "test_status.h"

static const struct {
    const char *text;
    size_t bytes; /* 0 = strlen */
    const char *error;
} traps[] = {
    {"", 0, "t:1:1: expected a value, but the text ends here"},
    {" \n\t ", 0, "t:2:3: expected a value, but the text ends here"},
    {"\xef\xbb\xbf{}", 0, "t:1:1: the text begins with a byte-order mark"},
    {"{} x", 0, "t:1:4: expected the end of the text, got 'x'"},
    {"{}{}", 0, "t:1:3: expected the end of the text"},
    {"1\0", 2, "t:1:2: expected the end of the text, got byte 0x00"},
    {"0x10", 0, "t:1:2: expected the end of the text, got 'x'"},
    {"01", 0, "t:1:1: number with a leading zero"},
    {"-01", 0, "t:1:1: number with a leading zero"},
    {"+1", 0, "t:1:1: expected a value, got '+'"},
    {".5", 0, "t:1:1: expected a value, got '.'"},
    {"1.", 0, "t:1:3: expected a digit after the decimal point"},
    {"1.e3", 0, "t:1:3: expected a digit after the decimal point, got 'e'"},
    {"1e", 0, "t:1:3: expected a digit in the exponent"},
    {"1e+", 0, "t:1:4: expected a digit in the exponent"},
    {"-", 0, "t:1:2: expected a digit"},
    {"1e999", 0, "t:1:1: number 1e999 is too large"},
    {"[-1e999]", 0, "t:1:2: number -1e999 is too large"},
    {"NaN", 0, "t:1:1: expected a value, got 'N'; JSON numbers look like"},
    {"Infinity", 0, "t:1:1: expected a value, got 'I'"},
    {"-Infinity", 0, "t:1:2: expected a digit, got 'I'"},
    {"1111111111111111111111111111111111111111111111111111111111111111", 0,
     "t:1:1: number of more than 63 characters"},
    {"tru", 0, "t:1:1: expected a value, got 't'"},
    {"True", 0, "t:1:1: expected a value, got 'T'"},
    {"truefalse", 0, "t:1:5: expected the end of the text"},
    {"{\"a\":1,}", 0, "t:1:8: comma before '}'"},
    {"[1,]", 0, "t:1:4: comma before ']'"},
    {"[,1]", 0, "t:1:2: expected a value, got ','"},
    {"[1 2]", 0, "t:1:4: expected ',' or ']', got '2'"},
    {"[1", 0, "t:1:1: '[' without its ']'"},
    {"{\n \"a\": 1", 0, "t:1:1: '{' without its '}'"},
    {"[1}", 0, "t:1:3: expected ',' or ']', got '}'"},
    {"{a:1}", 0, "t:1:2: expected a key in double quotes, got 'a'"},
    {"{'a':1}", 0, "t:1:2: expected a key in double quotes, got '''; JSON strings need"},
    {"{1:1}", 0, "t:1:2: expected a key in double quotes"},
    {"{\"a\" 1}", 0, "t:1:6: a: expected ':' after the key, got '1'"},
    {"{\"a\":}", 0, "t:1:6: a: expected a value, got '}'"},
    {"// c\n1", 0, "t:1:1: expected a value, got '/'; JSON has no comments"},
    {"{\n\"a\": 1 # c\n}", 0, "t:2:8: expected ',' or '}', got '#'; JSON has no comments"},
    {"{\"a\":1,\n \"b\":2,\n \"a\":3}", 0, "t:3:6: a: key appears twice in this object, first"},
    {"{\"a\":1,\"\\u0061\":2}", 0, "t:1:17: a: key appears twice"},
    {"[{\"x\":{\"k\":1,\"z\":2,\"k\":3}}]", 0, "x.k: key appears twice"},
    {"\"abc", 0, "t:1:1: string without a closing quote"},
    {"[\"abc\\", 0, "t:1:6: unknown escape"},
    {"\"a\nb\"", 0, "t:1:3: control character 0x0a in a string"},
    {"\"a\tb\"", 0, "t:1:3: control character 0x09 in a string"},
    {"\"a\0b\"", 5, "t:1:3: control character 0x00 in a string"},
    {"\"\\x41\"", 0, "t:1:2: unknown escape"},
    {"\"\\'\"", 0, "t:1:2: unknown escape"},
    {"\"\\u00g0\"", 0, "t:1:2: \\u needs four hexadecimal digits"},
    {"\"\\u12\"", 0, "t:1:2: \\u needs four hexadecimal digits"},
    {"\"\\u0000\"", 0, "t:1:2: \\u0000 in a string"},
    {"\"\\ud800\"", 0, "t:1:2: half of a surrogate pair"},
    {"\"\\ud800\\u0041\"", 0, "t:1:2: half of a surrogate pair"},
    {"\"\\udc00\\ud800\"", 0, "t:1:2: half of a surrogate pair"},
    {"\"\x80\"", 0, "t:1:2: byte 0x80 is not UTF-8"},
    {"\"\xc0\xaf\"", 0, "t:1:2: byte 0xc0 is not UTF-8"},
    {"\"\xe0\x80\xaf\"", 0, "byte 0xe0 is not UTF-8"},
    {"\"\xed\xa0\x80\"", 0, "byte 0xed is not UTF-8"},
    {"\"\xf0\x80\x80\x80\"", 0, "byte 0xf0 is not UTF-8"},
    {"\"\xf4\x90\x80\x80\"", 0, "byte 0xf4 is not UTF-8"},
    {"\"\xf8\x88\x80\x80\x80\"", 0, "byte 0xf8 is not UTF-8"},
    {"\"ok \xe2\x82\"", 0, "t:1:5: byte 0xe2 is not UTF-8"},
    {"{\"\xff\":1}", 0, "t:1:3: byte 0xff is not UTF-8"},
    {"\xff\xfe[\0]\0", 6, "t:1:1: expected a value, got byte 0xff"},
    {"[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]", 0, "t:1:17: nested more than 16 deep"},
};

TEST(traps)
{
    for (size_t i = 0; i < DT_COUNT(traps); i++) {
        struct dt_json_doc *doc = NULL;
        size_t bytes = traps[i].bytes ? traps[i].bytes : strlen(traps[i].text);
        dt_status status = dt_json_parse(&doc, traps[i].text, bytes, "t", NULL);
        if (status != DT_ERR_DATA || doc || !strstr(dt_error_text(), traps[i].error))
            fail_msg("trap %zu: status %d, \"%s\" lacks \"%s\"", i, status, dt_error_text(),
                     traps[i].error);
    }
}

static struct dt_json_doc *parse(const char *text)
{
    struct dt_json_doc *doc = NULL;
    assert_ok(dt_json_parse(&doc, text, strlen(text), "t", NULL));
    return doc;
}

TEST(numbers)
{
    static const struct {
        const char *text;
        double value;
    } rows[] = {{"0", 0},
                {"-0", -0.0},
                {"1", 1},
                {"-1.5e-3", -0.0015},
                {"1E+2", 100},
                {"9007199254740992", 9007199254740992.0},
                {"0.1", 0.1},
                {"1e-400", 0},
                {"2.2250738585072014e-308", DBL_MIN},
                {" 7 ", 7},
                {"1e308", 1e308}};
    for (size_t i = 0; i < DT_COUNT(rows); i++) {
        struct dt_json_doc *doc = parse(rows[i].text);
        assert_int_equal(dt_json_root(doc)->type, DT_JSON_NUMBER);
        assert_true(dt_json_root(doc)->number == rows[i].value);
        dt_json_destroy(doc);
    }
}

TEST(strings)
{
    static const struct {
        const char *text, *value;
    } rows[] = {{"\"\"", ""},
                {"\"\\u00e9\\n\\\\\\/\\\"\\t\"", "\xc3\xa9\n\\/\"\t"},
                {"\"\\ud83d\\ude00\"", "\xf0\x9f\x98\x80"},
                {"\"\xf4\x8f\xbf\xbf \xed\x9f\xbf\"", "\xf4\x8f\xbf\xbf \xed\x9f\xbf"},
                {"\"\x7f\"", "\x7f"}};
    for (size_t i = 0; i < DT_COUNT(rows); i++) {
        struct dt_json_doc *doc = parse(rows[i].text);
        assert_int_equal(dt_json_root(doc)->type, DT_JSON_STRING);
        assert_string_equal(dt_json_root(doc)->string, rows[i].value);
        dt_json_destroy(doc);
    }
}

static void check_place(const struct dt_json *value, enum dt_json_type type, int line, int column)
{
    assert_non_null(value);
    assert_int_equal(value->type, type);
    assert_int_equal(value->line, line);
    assert_int_equal(value->column, column);
}

TEST(tree_and_places)
{
    struct dt_json_doc *doc = parse("{\n  \"a\": [1, {\"\xc3\xa9\": true}, []],\r\n"
                                    "  \"A\": null, \"b\": \"x\",\n\n \"c\": {\"d\": false} }\n");
    const struct dt_json *root = dt_json_root(doc), *a = dt_json_get(root, "a");
    check_place(root, DT_JSON_OBJECT, 1, 1);
    assert_int_equal(root->n_children, 4);
    assert_null(root->next);
    check_place(a, DT_JSON_ARRAY, 2, 8);
    assert_int_equal(a->n_children, 3);
    check_place(a->child, DT_JSON_NUMBER, 2, 9);
    check_place(a->child->next, DT_JSON_OBJECT, 2, 12);
    check_place(dt_json_get(a->child->next, "\xc3\xa9"), DT_JSON_BOOL, 2, 19);
    assert_true(a->child->next->child->boolean);
    check_place(a->child->next->next, DT_JSON_ARRAY, 2, 26);
    assert_null(a->child->next->next->child);
    assert_null(a->child->next->next->next);
    assert_ptr_equal(a->next, dt_json_get(root, "A"));
    check_place(dt_json_get(root, "A"), DT_JSON_NULL, 3, 8);
    check_place(dt_json_get(root, "b"), DT_JSON_STRING, 3, 19);
    check_place(dt_json_get(dt_json_get(root, "c"), "d"), DT_JSON_BOOL, 5, 13);
    assert_false(dt_json_get(dt_json_get(root, "c"), "d")->boolean);
    assert_null(dt_json_get(root, "B"));
    assert_null(dt_json_get(a, "a"));
    assert_null(dt_json_get(NULL, "a"));
    assert_true(isnan(dt_json_number(root, "b")) && isnan(dt_json_number(root, "B")));
    dt_json_destroy(doc);
    dt_json_destroy(NULL);
}

TEST(integer)
{
    static const struct {
        const char *text;
        int64_t min, max;
        bool fits;
    } rows[] = {{"3", 0, 3, true},
                {"4", 0, 3, false},
                {"-1", 0, 3, false},
                {"2.5", 0, 3, false},
                {"2.0", 0, 3, true},
                {"1e2", 0, 100, true},
                {"\"3\"", 0, 3, false},
                {"true", 0, 3, false},
                {"3000000000", 0, INT64_MAX, true},
                {"9007199254740991", 0, INT64_MAX, true},
                {"9007199254740993", 0, INT64_MAX, false}, /* read as 2^53 */
                {"1e300", INT64_MIN, INT64_MAX, false},
                {"-9007199254740991", INT64_MIN, 0, true}};
    for (size_t i = 0; i < DT_COUNT(rows); i++) {
        struct dt_json_doc *doc = parse(rows[i].text);
        int64_t out = 77;
        assert_int_equal(dt_json_integer(dt_json_root(doc), rows[i].min, rows[i].max, &out),
                         rows[i].fits);
        assert_int_equal(out, rows[i].fits ? (int64_t)dt_json_root(doc)->number : 77);
        dt_json_destroy(doc);
    }
    assert_false(dt_json_integer(NULL, 0, 1, &(int64_t){0}));
}

TEST(limits)
{
    struct dt_json_doc *doc = NULL;
    const struct dt_json_limits three = {.bytes = 16, .n_values = 3};
    assert_int_equal(dt_json_parse(&doc, "[1,2]", 5, "t", &three), DT_OK);
    dt_json_destroy(doc);
    assert_error(dt_json_parse(&doc, "[1,2,3]", 7, "t", &three), DT_ERR_DATA,
                 "t:1:6: more than 3 values");
    assert_int_equal(dt_json_parse(&doc, "[               ]", 17, "t", &three), DT_ERR_DATA);
    assert_non_null(strstr(dt_error_text(), "t: 17 bytes of JSON; at most 16"));

    char *text = calloc(1, 5000);
    assert_non_null(text);
    memset(text, 'a', 4098);
    text[0] = text[4097] = '"'; /* exactly 4096 bytes */
    assert_int_equal(dt_json_parse(&doc, text, 4098, "t", NULL), DT_OK);
    dt_json_destroy(doc);
    text[4097] = 'a';
    text[4098] = '"';
    assert_error(dt_json_parse(&doc, text, 4099, "t", NULL), DT_ERR_DATA,
                 "t:1:1: string of more than 4096 bytes");
    free(text);
    doc = parse("[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]"); /* 16 deep */
    dt_json_destroy(doc);
}

/* Every cut and every changed byte of a good text either parses or gives an error with a place; the
 * sanitizers watch the memory. */
TEST(mutations)
{
    static const char good[] = "{\"a\": [1, -2.5e3, true, null, \"x\\u00e9\\ud83d\\ude00\\n\"], "
                               "\"b\": {\"c\": {}}, \"d\": \"\xe2\x82\xac\"}";
    int n_ok = 0, n_bad = 0;
    for (size_t i = 0; i < sizeof(good) - 1; i++) {
        for (int byte = 0; byte < 256; byte += 1) {
            struct dt_json_doc *doc = NULL;
            char *text = malloc(sizeof(good) - 1); /* exact size, so overreads are seen */
            assert_non_null(text);
            memcpy(text, good, sizeof(good) - 1);
            text[i] = (char)byte;
            size_t bytes = byte == 0 ? i : sizeof(good) - 1;
            dt_status status = dt_json_parse(&doc, text, bytes, "t", NULL);
            free(text);
            if (status == DT_OK) {
                n_ok++;
                assert_int_equal(dt_json_root(doc)->type, DT_JSON_OBJECT);
            } else {
                n_bad++;
                assert_int_equal(status, DT_ERR_DATA);
                int line = 0, column = 0;
                assert_int_equal(sscanf(dt_error_text(), "t:%d:%d: ", &line, &column), 2);
                assert_true(line >= 1 && line <= 2 && column >= 1);
            }
            dt_json_destroy(doc);
        }
    }
    assert_true(n_ok > 500 && n_bad > 5000);
}

TEST(load)
{
    struct dt_json_doc *doc = NULL;
    const char *path = at("a.json");
    write_text("a.json", "{\"a\": 1}\n");
    assert_int_equal(dt_json_load(&doc, path, NULL), DT_OK);
    assert_true(dt_json_get(dt_json_root(doc), "a")->number == 1);
    dt_json_destroy(doc);
    write_text("a.json", "{\"a\": 1}\nx");
    char expected[128];
    snprintf(expected, sizeof(expected), "%s:2:1: expected the end of the text", path);
    assert_error(dt_json_load(&doc, path, NULL), DT_ERR_DATA, expected);
    assert_int_equal(dt_json_load(&doc, path, &(struct dt_json_limits){4, 10}), DT_ERR_DATA);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(dt_json_load(&doc, path, NULL), DT_ERR_NO_INPUT);
    assert_int_equal(dt_json_load(&doc, "/tmp", NULL), DT_ERR_NO_INPUT);
}

TEST(writer)
{
    for (int pretty = 0; pretty < 2; pretty++) {
        struct dt_jsonw w = {.pretty = pretty != 0};
        dt_jsonw_add(&w, "{s: %s, i: %" PRId64 ", nan: %g", "a\"\\\n\x01\xc3\xa9\xff", INT64_MIN,
                     NAN);
        dt_jsonw_add(&w, "list: [%g, {b: %hhd}, %d, %u, %zu], e: {}", 0.1, true, -1, UINT32_MAX,
                     SIZE_MAX / 2);
        dt_jsonw_raw(&w, "raw", "{ \"k y\" :\n [ 1 , \"a \\\" b\" ] }");
        dt_jsonw_close(&w, '}');
        assert_int_equal(dt_jsonw_end(&w), DT_OK);
        assert_string_equal(
            w.text, pretty
                        ? "{\n  \"s\": \"a\\\"\\\\\\n\\u0001\xc3\xa9\xef\xbf\xbd\",\n"
                          "  \"i\": -9223372036854775808,\n  \"nan\": null,\n"
                          "  \"list\": [0.1, {\"b\": true}, -1, 4294967295, "
                          "9223372036854775807],\n  \"e\": {},\n"
                          "  \"raw\": {\"k y\":[1,\"a \\\" b\"]}\n}\n"
                        : "{\"s\":\"a\\\"\\\\\\n\\u0001\xc3\xa9\xef\xbf\xbd\","
                          "\"i\":-9223372036854775808,\"nan\":null,"
                          "\"list\":[0.1,{\"b\":true},-1,4294967295,9223372036854775807],\"e\":{},"
                          "\"raw\":{\"k y\":[1,\"a \\\" b\"]}}");
        assert_int_equal(w.bytes, strlen(w.text));
        dt_json_destroy(parse(w.text));
        dt_jsonw_reset(&w);
        assert_null(w.text);
    }
    struct dt_jsonw w = {0};
    dt_jsonw_begin(&w, NULL, '[');
    assert_int_equal(dt_jsonw_end(&w), DT_ERR_INTERNAL);
    dt_jsonw_reset(&w);
}

TEST(number_round_trip)
{
    static const struct {
        double value;
        const char *text;
    } rows[] = {{0, "0"},
                {100, "100"},
                {0.1, "0.1"},
                {-2.5, "-2.5"},
                {1e-4, "0.0001"},
                {1.0 / 32768, "3.0517578125e-05"},
                {1.0 / 3, "0.3333333333333333"},
                {0.1f, "0.10000000149011612"},
                {9007199254740992.0, "9007199254740992"},
                {1e22, "1e+22"},
                {DBL_MAX, "1.7976931348623157e+308"}};
    for (size_t i = 0; i < DT_COUNT(rows); i++) {
        struct dt_jsonw w = {0};
        dt_jsonw_number(&w, NULL, rows[i].value);
        assert_int_equal(dt_jsonw_end(&w), DT_OK);
        assert_string_equal(w.text, rows[i].text);
        dt_jsonw_reset(&w);
    }
    uint64_t bits = 88172645463325252u; /* xorshift64 */
    for (int i = 0; i < 20000; i++) {
        double value;
        struct dt_jsonw w = {0};
        bits ^= bits << 13, bits ^= bits >> 7, bits ^= bits << 17;
        memcpy(&value, &bits, sizeof(value));
        dt_jsonw_number(&w, NULL, value);
        assert_int_equal(dt_jsonw_end(&w), DT_OK);
        struct dt_json_doc *doc = parse(w.text);
        if (isfinite(value))
            assert_true(dt_json_root(doc)->number == value);
        else
            assert_int_equal(dt_json_root(doc)->type, DT_JSON_NULL);
        dt_json_destroy(doc);
        dt_jsonw_reset(&w);
    }
}

TEST_MAIN(make_test_dir, remove_test_dir)
