/* Names from outside in messages: nothing in them may steer the terminal or break the line. */
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/text.h"
#include "capture.h"

static const struct {
    const char *text, *escaped;
} cases[] = {
    {"plain name.jpg", "plain name.jpg"},
    {"caf\xc3\xa9 \xe4\xb8\xad \xf0\x9f\x98\x80", "caf\xc3\xa9 \xe4\xb8\xad \xf0\x9f\x98\x80"},
    {"two\ndtrain: lines\n", "two?dtrain: lines?"},
    {"two\n    lines", "two\n    lines"}, /* of our own texts */
    {"\x1b[2J\x1b]0;title\x07", "?[2J?]0;title?"},
    {"a\rb\tc\bd\x7f", "a?b?c?d?"},
    {"\xc2\x9b"
     "31m \xc2\xa0",
     "??31m \xc2\xa0"}, /* the same commands as one character, U+009B */
    {"\x9b"
     "31m",
     "?31m"},
    {"\xff\xfe cut \xe4\xb8", "?? cut ??"},
    {"\xc0\xaf \xed\xa0\x80", "?? ???"},
};

TEST(texts)
{
    char text[256];
    for (size_t i = 0; i < DT_COUNT(cases); i++) {
        snprintf(text, sizeof text, "%s", cases[i].text);
        dt_utf8_escape(text);
        assert_string_equal(text, cases[i].escaped);
        assert_int_equal(DT_ERROR(DT_ERR_DATA, "file %s", cases[i].text), DT_ERR_DATA);
        assert_string_equal(dt_error_text() + strlen("file "), cases[i].escaped);
    }
}

TEST(log)
{
    char got[512];
    struct capture capture = capture_begin(stderr);
    dt_log(DT_LOG_WARNING, "bad \x1b[31m\xff");
    capture_end(&capture, got, sizeof got);
    assert_string_equal(got, "dtrain: warning: bad ?[31m?\n");
}

TEST_MAIN(NULL, NULL)
