/* The pull parser: the same texts are accepted and refused as by base/json.h, at any position
 * relative to the blocks in which the file is read; numbers are those of strtod. */
#include "base/json_stream.h"
#include "base/json_token.h"
#include "base/mem.h"
#include "base/rng.h"
#include "data_files.h"

static dt_status open_text(struct dt_json_stream **stream, const char *text, size_t bytes)
{
    static char path[512];
    snprintf(path, sizeof path, "%s", at("t.json"));
    write_bytes("t.json", text, bytes);
    return dt_json_stream_open(stream, path);
}

static dt_status skip_all(const char *text, size_t bytes)
{
    struct dt_json_stream *stream;
    dt_status status = open_text(&stream, text, bytes);
    if (status == DT_OK)
        status = dt_json_stream_skip(stream);
    if (status == DT_OK)
        status = dt_json_stream_end(stream);
    dt_json_stream_close(stream);
    return status;
}

static const struct {
    const char *text;
    const char *error; /* what follows the path; NULL: accepted */
    size_t bytes;      /* 0 = strlen */
} texts[] = {
    {"{\"a\": [1, -2.5e+3, \"\\u00e9\\n\", true, false, null, {}], \"b\": {\"c\": []}}", NULL, 0},
    {" \n[1,2 , 3,\t4.25, -0, 0.5,\n-6.75,7]\r\n", NULL, 0},
    {"[[1.5,2,3.25], [4], [], [-0.0,1E2,3]]", NULL, 0},
    {"\"\xf4\x8f\xbf\xbf \xed\x9f\xbf\\ud83d\\ude00\x7f\"", NULL, 0},
    {"7", NULL, 0},
    {"[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]", NULL, 0},
    {"", ":1:1: expected a value, but the file ends here", 0},
    {" \n\t ", ":2:3: expected a value, but the file ends here", 0},
    {"\xef\xbb\xbf{}", ":1:1: the text begins with a byte-order mark", 0},
    {"{} x", ":1:4: expected the end of the text, got 'x'", 0},
    {"{}{}", ":1:3: expected the end of the text", 0},
    {"1\0", ":1:2: expected the end of the text, got byte 0x00", 2},
    {"[1\0]", ":1:3: expected ',' or ']', got byte 0x00", 4},
    {"01", ":1:1: number with a leading zero", 0},
    {"[-01,2]", ":1:2: number with a leading zero", 0},
    {"[1,00]", ":1:4: number with a leading zero", 0},
    {"+1", ":1:1: expected a value, got '+'", 0},
    {"[.5]", ":1:2: expected a value, got '.'", 0},
    {"[1,2.,3]", ":1:6: expected a digit after the decimal point", 0},
    {"[1.e3]", ":1:4: expected a digit after the decimal point, got 'e'", 0},
    {"1e", ":1:3: expected a digit in the exponent", 0},
    {"1e+", ":1:4: expected a digit in the exponent", 0},
    {"[1,-]", ":1:5: expected a digit", 0},
    {"1e999", ":1:1: number 1e999 is too large", 0},
    {"[1,NaN]", ":1:4: expected a value, got 'N'; JSON numbers look like", 0},
    {"[Infinity]", ":1:2: expected a value, got 'I'", 0},
    {"[-Infinity]", ":1:3: expected a digit, got 'I'", 0},
    {"[1,1111111111111111111111111111111111111111111111111111111111111111,2]",
     ":1:4: number of more than 63 characters", 0},
    {"tru", ":1:1: expected a value, got 't'", 0},
    {"truefalse", ":1:5: expected the end of the text", 0},
    {"{\"a\":1,}", ":1:8: comma before '}'", 0},
    {"[1,]", ":1:4: comma before ']'", 0},
    {"[1, ]", ":1:5: comma before ']'", 0},
    {"[,1]", ":1:2: expected a value, got ','", 0},
    {"[1,,2]", ":1:4: expected a value, got ','", 0},
    {"[1 2]", ":1:4: expected ',' or ']', got '2'", 0},
    {"[1", ":1:1: '[' without its ']'", 0},
    {"[1,", ":1:4: expected a value, but the file ends here", 0},
    {"{\n \"a\": 1", ":1:1: '{' without its '}'", 0},
    {"{", ":1:2: expected a key in double quotes, but the file ends here", 0},
    {"[1}", ":1:3: expected ',' or ']', got '}'", 0},
    {"{a:1}", ":1:2: expected a key in double quotes, got 'a'", 0},
    {"{\"a\" 1}", ":1:6: a: expected ':' after the key, got '1'", 0},
    {"{\"a\":}", ":1:6: a: expected a value, got '}'", 0},
    {"\"abc", ":1:1: string without a closing quote", 0},
    {"{\"abc", ":1:2: string without a closing quote", 0},
    {"[\"abc\\", ":1:6: unknown escape", 0},
    {"\"a\nb\"", ":1:3: control character 0x0a in a string", 0},
    {"\"a\0b\"", ":1:3: control character 0x00 in a string", 5},
    {"\"\\x41\"", ":1:2: unknown escape", 0},
    {"\"\\u00g0\"", ":1:2: \\u needs four hexadecimal digits", 0},
    {"\"\\u12", ":1:2: \\u needs four hexadecimal digits", 0},
    {"\"\\u0000\"", ":1:2: \\u0000 in a string", 0},
    {"\"\\ud800\"", ":1:2: half of a surrogate pair", 0},
    {"\"\\ud800\\u0041\"", ":1:2: half of a surrogate pair", 0},
    {"\"\\udc00\\ud800\"", ":1:2: half of a surrogate pair", 0},
    {"\"\xc0\xaf\"", ":1:2: byte 0xc0 is not UTF-8", 0},
    {"\"ok \xe2\x82", ":1:5: byte 0xe2 is not UTF-8", 0},
    {"{\"\xff\":1}", ":1:3: byte 0xff is not UTF-8", 0},
    {"[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]", ":1:17: nested more than 16 deep", 0},
};

TEST(texts)
{
    for (size_t i = 0; i < DT_COUNT(texts); i++) {
        const size_t bytes = texts[i].bytes ? texts[i].bytes : strlen(texts[i].text);
        const dt_status status = skip_all(texts[i].text, bytes);
        if (texts[i].error ? status != DT_ERR_DATA || !strstr(dt_error_text(), texts[i].error)
                           : status != DT_OK)
            fail_msg("text %zu: status %d, \"%s\" lacks \"%s\"", i, status, dt_error_text(),
                     texts[i].error);
    }
}

/* The accepted texts again behind so much that they lie across the end of a block of 256 KiB:
 * behind spaces, and as the last item of a list of numbers. */
TEST(block_edges)
{
    const size_t edge = (size_t)1 << 18;
    char *whole = malloc(edge + 256);
    assert_non_null(whole);
    for (size_t i = 0; i < 5; i++) {
        const size_t bytes = strlen(texts[i].text);
        for (size_t before = edge - bytes; before <= edge; before++) {
            memset(whole, ' ', before);
            memcpy(whole + before, texts[i].text, bytes);
            assert_int_equal(skip_all(whole, before + bytes), DT_OK);
            for (size_t k = 0; k < before; k++)
                whole[before - 1 - k] = ",5.1"[k % 4];
            memset(whole, ' ', (before + 3) % 4);
            whole[(before + 3) % 4] = '[';
            whole[before + bytes] = ']';
            if (skip_all(whole, before + bytes + 1) != DT_OK)
                fail_msg("text %zu: %s", i, dt_error_text());
        }
    }
    free(whole);
}

TEST(long_strings)
{
    const size_t bytes = (size_t)3 << 18;
    const char *text;
    size_t length;
    struct dt_json_stream *stream;
    char *string = malloc(bytes + 2);
    assert_non_null(string);
    for (size_t i = 0; i < bytes; i += 3)
        memcpy(string + i, "\xe2\x82\xac", 3);
    string[0] = '"';
    string[1] = string[2] = 'x';
    string[bytes] = '"';
    assert_int_equal(skip_all(string, bytes + 1), DT_OK);
    assert_error(skip_all(string, bytes), DT_ERR_DATA, ":1:1: string without a closing quote");
    assert_int_equal(open_text(&stream, string, bytes + 1), DT_OK);
    assert_error(dt_json_stream_string(stream, &text, &length), DT_ERR_DATA,
                 ":1:1: string of more than 4096 bytes");
    dt_json_stream_close(stream);
    memset(string, 'x', bytes); /* one more byte than fits, as part of a character of four */
    memcpy(string + DT_JSON_STRING_MAX - 1, "\xf0\x9f\x98\x80\"", 5);
    for (int extra = 0; extra < 5; extra++) {
        string[extra] = '"';
        assert_int_equal(open_text(&stream, string + extra, DT_JSON_STRING_MAX + 4 - (size_t)extra),
                         DT_OK);
        assert_int_equal(dt_json_stream_string(stream, &text, &length),
                         extra < 2 ? DT_ERR_DATA : DT_OK);
        dt_json_stream_close(stream);
    }
    free(string);
}

/* With escapes a string is up to six times as long in the file, and may cross the end of a block.
 */
TEST(long_escapes)
{
    const size_t edge = (size_t)1 << 18, bytes = edge + 6 * DT_JSON_STRING_MAX;
    struct dt_json_stream *stream;
    const char *text;
    size_t length;
    char *whole = malloc(bytes);
    assert_non_null(whole);
    memset(whole, ' ', edge);
    for (size_t i = 0; i < DT_JSON_STRING_MAX; i++)
        memcpy(whole + bytes - 1 - 6 * (i + 1), "\\u0041", 6);
    whole[edge - 2] = whole[bytes - 1] = '"';
    assert_int_equal(open_text(&stream, whole, bytes), DT_OK);
    assert_ok(dt_json_stream_string(stream, &text, &length));
    assert_int_equal(strspn(text, "A"), DT_JSON_STRING_MAX);
    dt_json_stream_close(stream);
    free(whole);
}

TEST(values)
{
    static const char text[] =
        "{\"a\\u0062\": [1, -2.5, 9007199254740991, 1.0, 0.5],\n \"s\": \"\\u00e9\\ud83d\\ude00"
        "\\\"\\\\\\/\\b\\f\\n\\r\\t\xc3\xa4\",\n"
        " \"b\": [true, false, 0, 1], \"skipped\": {\"a\": [1, [2]]}, \"end\": 3}";
    static const int64_t integers[] = {1, 0, INT64_C(9007199254740991), 1};
    struct dt_json_stream *stream;
    const char *key, *string;
    size_t bytes;
    bool more, flag;
    int64_t integer;
    double number;
    assert_int_equal(open_text(&stream, text, strlen(text)), DT_OK);
    assert_int_equal(dt_json_stream_bytes(stream), strlen(text));
    assert_int_equal(dt_json_stream_enter(stream, DT_JSON_OBJECT), DT_OK);
    assert_int_equal(dt_json_stream_member(stream, &key), DT_OK);
    assert_string_equal(key, "ab");
    assert_int_equal(dt_json_stream_enter(stream, DT_JSON_ARRAY), DT_OK);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(dt_json_stream_item(stream, &more), DT_OK);
        assert_true(more);
        if (i == 1) {
            assert_int_equal(dt_json_stream_number(stream, &number), DT_OK);
            assert_true(number == -2.5);
        } else {
            assert_int_equal(dt_json_stream_integer(stream, &integer), DT_OK);
            assert_int_equal(integer, integers[i]);
        }
    }
    assert_int_equal(dt_json_stream_item(stream, &more), DT_OK);
    assert_int_equal(dt_json_stream_skip(stream), DT_OK);
    assert_int_equal(dt_json_stream_item(stream, &more), DT_OK);
    assert_false(more);
    assert_int_equal(dt_json_stream_offset(stream), 12);
    assert_int_equal(dt_json_stream_member(stream, &key), DT_OK);
    assert_int_equal(dt_json_stream_string(stream, &string, &bytes), DT_OK);
    assert_string_equal(string, "\xc3\xa9\xf0\x9f\x98\x80\"\\/\b\f\n\r\t\xc3\xa4");
    assert_int_equal(bytes, strlen(string));
    assert_int_equal(dt_json_stream_member(stream, &key), DT_OK);
    assert_int_equal(dt_json_stream_enter(stream, DT_JSON_ARRAY), DT_OK);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(dt_json_stream_item(stream, &more), DT_OK);
        assert_int_equal(dt_json_stream_bool(stream, &flag), DT_OK);
        assert_int_equal(flag, i == 0 || i == 3);
    }
    assert_int_equal(dt_json_stream_item(stream, &more), DT_OK);
    assert_int_equal(dt_json_stream_member(stream, &key), DT_OK);
    assert_int_equal(dt_json_stream_skip(stream), DT_OK);
    assert_error(dt_json_stream_fail(stream, 14, "earlier %d", 1), DT_ERR_DATA,
                 "t.json:1:15: earlier 1");
    assert_int_equal(dt_json_stream_fail(stream, dt_json_stream_offset(stream), "here"),
                     DT_ERR_DATA);
    assert_non_null(strstr(dt_error_text(), "t.json:3:39: here"));
    assert_int_equal(dt_json_stream_member(stream, &key), DT_OK);
    assert_string_equal(key, "end");
    assert_int_equal(dt_json_stream_integer(stream, &integer), DT_OK);
    assert_int_equal(dt_json_stream_member(stream, &key), DT_OK);
    assert_null(key);
    assert_int_equal(dt_json_stream_end(stream), DT_OK);
    dt_json_stream_close(stream);
}

TEST(wrong_types)
{
    struct dt_json_stream *stream;
    double number;
    int64_t integer;
    bool flag;
    const char *text;
    size_t bytes;
    static const struct {
        const char *text, *error;
        int call;
    } cases[] = {{"\"1\"", "expected a number, got '\"'", 0},
                 {"1.5", "1.5 is not an integer below 2^53", 1},
                 {"9007199254740993", "9007199254740992 is not an integer below 2^53", 1},
                 {"2", "2 is neither 0 nor 1", 2},
                 {"null", "expected 0, 1, false or true, got 'n'", 2},
                 {"1", "expected a string in double quotes, got '1'", 3},
                 {"[]", "expected an object, '{', got '['", 4},
                 {"{}", "expected an array, '[', got '{'", 5}};
    for (size_t i = 0; i < DT_COUNT(cases); i++) {
        assert_int_equal(open_text(&stream, cases[i].text, strlen(cases[i].text)), DT_OK);
        const dt_status status =
            cases[i].call == 0   ? dt_json_stream_number(stream, &number)
            : cases[i].call == 1 ? dt_json_stream_integer(stream, &integer)
            : cases[i].call == 2 ? dt_json_stream_bool(stream, &flag)
            : cases[i].call == 3
                ? dt_json_stream_string(stream, &text, &bytes)
                : dt_json_stream_enter(stream, cases[i].call == 4 ? DT_JSON_OBJECT : DT_JSON_ARRAY);
        assert_error(status, DT_ERR_DATA, cases[i].error);
        dt_json_stream_close(stream);
    }
    assert_int_equal(dt_json_stream_open(&stream, at("missing.json")), DT_ERR_NO_INPUT);
    assert_null(stream);
}

/* A random decimal: digits, perhaps a point, perhaps an exponent. */
static void draw_number(char *text, size_t bytes, struct dt_rng *rng)
{
    char digits[32] = "";
    const int n = 1 + (int)dt_rng_below(rng, 19), point = (int)dt_rng_below(rng, (uint32_t)n);
    for (int i = 0; i < n; i++)
        digits[i] = (char)('0' + dt_rng_below(rng, 10));
    if (point > 0 && digits[0] == '0')
        digits[0] = '3';
    snprintf(text, bytes, "%s%.*s.%s", dt_rng_below(rng, 2) ? "-" : "", point + 1, digits,
             point + 1 < n ? digits + point + 1 : "0");
    if (dt_rng_below(rng, 4) == 0)
        snprintf(text + strlen(text), bytes - strlen(text), "e%d", (int)dt_rng_below(rng, 40) - 20);
}

TEST(numbers_are_exact)
{
    enum { N = 200000, MAX = 48 };
    struct dt_json_stream *stream;
    struct dt_rng rng;
    bool more;
    double number;
    char(*numbers)[MAX] = calloc(N, MAX), *all = malloc((size_t)N * MAX);
    size_t bytes = 0;
    assert_non_null(numbers);
    assert_non_null(all);
    dt_rng_init(&rng, 7, DT_RNG_SYNTHETIC, 0, 0);
    for (int i = 0; i < N; i++) {
        draw_number(numbers[i], MAX, &rng);
        bytes += (size_t)snprintf(all + bytes, MAX, "%c%s", i ? ',' : '[', numbers[i]);
    }
    all[bytes++] = ']';
    assert_int_equal(open_text(&stream, all, bytes), DT_OK);
    assert_int_equal(dt_json_stream_enter(stream, DT_JSON_ARRAY), DT_OK);
    for (int i = 0; i < N; i++) {
        const double expected = strtod(numbers[i], NULL);
        assert_int_equal(dt_json_stream_item(stream, &more), DT_OK);
        assert_int_equal(dt_json_stream_number(stream, &number), DT_OK);
        if (memcmp(&number, &expected, sizeof number) != 0)
            fail_msg("%s is read as %.17g", numbers[i], number);
    }
    dt_json_stream_close(stream);
    free(numbers);
    free(all);
}

TEST_MAIN(make_test_dir, remove_test_dir)
