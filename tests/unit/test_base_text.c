/* A growing text: what fits, what is cut, what is left as it was. */
#include <string.h>

#include "base/text.h"
#include "test.h"

TEST(parts)
{
    char buffer[16];
    struct dt_text text = dt_text_in(buffer, sizeof buffer);
    assert_string_equal(buffer, "");
    dt_text_add(&text, "%s%d", "rank ", 7);
    assert_true(dt_text_add_whole(&text, "%s", ", pid"));
    assert_string_equal(buffer, "rank 7, pid");
    assert_int_equal(text.used, 11);
}

/* Every length around the end of the buffer; the byte after it stays. */
TEST(end)
{
    for (size_t bytes = 1; bytes <= 8; bytes++)
        for (int length = 0; length <= 8; length++) {
            char cut[9] = "########", whole[9] = "########";
            struct dt_text text = dt_text_in(cut, bytes), all = dt_text_in(whole, bytes);
            size_t kept = (size_t)length < bytes ? (size_t)length : bytes - 1;
            dt_text_add(&text, "%.*s", length, "abcdefgh");
            assert_int_equal(text.used, kept);
            assert_memory_equal(cut, "abcdefgh", kept);
            assert_true(dt_text_add_whole(&all, "%.*s", length, "abcdefgh") ==
                        ((size_t)length < bytes));
            assert_int_equal(all.used, (size_t)length < bytes ? length : 0);
            assert_true(cut[text.used] == '\0' && whole[all.used] == '\0');
            assert_true(bytes == 8 || (cut[bytes] == '#' && whole[bytes] == '#'));
        }
}

TEST(full)
{
    char buffer[4];
    struct dt_text text = dt_text_in(buffer, sizeof buffer);
    dt_text_add(&text, "abcdef");
    dt_text_add(&text, "g");
    assert_false(dt_text_add_whole(&text, "h"));
    assert_true(dt_text_add_whole(&text, "%s", ""));
    assert_string_equal(buffer, "abc");
}

TEST(integers)
{
    static const char *const wrong[] = {"",  ",",  "8,",  ",8", "8,,9",
                                        "0", "-1", "101", "8x", "1,2,3,4"};
    int n[3] = {0};
    assert_int_equal(dt_text_integers(n, 3, 100, "8,64,100"), 3);
    assert_true(n[0] == 8 && n[1] == 64 && n[2] == 100);
    assert_int_equal(dt_text_integers(n, 3, 100, "7"), 1);
    assert_int_equal(n[0], 7);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(dt_text_integers(n, 3, 100, wrong[i]), 0);
}

TEST_MAIN(NULL, NULL)
