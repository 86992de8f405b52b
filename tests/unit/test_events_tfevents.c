/* Records of an event file, byte by byte as TensorFlow's writer makes them, and their limits. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "events/tfevents.h"
#include "test.h"

static struct dt_proto record;

static void expect(const char *hexadecimal)
{
    char text[512] = "";
    assert_int_equal(dt_tfevents_end(&record), DT_OK);
    assert_true(2 * record.used < sizeof text);
    for (size_t i = 0; i < record.used; i++)
        snprintf(text + 2 * i, 3, "%02x", record.at[i]);
    assert_string_equal(text, hexadecimal);
}

TEST(version)
{
    dt_tfevents_begin(&record, 1700000000.0, 0);
    dt_tfevents_version(&record);
    expect("220000000000000078113dfd0900000040fc54d9411a0d627261696e2e4576656e743a3252080a066474"
           "7261696e962fdceb");
}

TEST(scalars)
{
    dt_tfevents_begin(&record, 1700000001.5, 100);
    size_t summary = dt_tfevents_open_summary(&record);
    dt_tfevents_scalar(&record, "train/loss", 6.9077554, NULL);
    dt_tfevents_scalar(&record, "train/top1", 0.125, NULL);
    dt_tfevents_close_summary(&record, summary);
    expect("33000000000000000ca720560900006040fc54d94110642a260a110a0a747261696e2f6c6f737315550c"
           "dd400a110a0a747261696e2f746f7031150000003e0316946f");
}

TEST(text)
{
    dt_tfevents_begin(&record, 1700000003.0, 0);
    size_t summary = dt_tfevents_open_summary(&record);
    dt_tfevents_text(&record, "config/text_summary", "{}");
    dt_tfevents_close_summary(&record, summary);
    expect("3c00000000000000c8b7a352090000c040fc54d9412a310a2f0a13636f6e6669672f746578745f73756d"
           "6d6172794a0a0a060a04746578742002420c080712041202080142027b7d404d1f65");
}

TEST(restart)
{
    dt_tfevents_begin(&record, 1700000004.0, 50);
    dt_tfevents_restart(&record);
    expect("0f000000000000006d532b090900000041fc54d94110323a02080113befe22");
}

/* Lengths of more than one byte go in front of what is there already. */
TEST(long_text)
{
    enum { N = 70000 };
    static char text[N + 1];
    memset(text, 'x', N);
    dt_tfevents_begin(&record, 0, 1);
    size_t summary = dt_tfevents_open_summary(&record);
    dt_tfevents_text(&record, "t", text);
    dt_tfevents_close_summary(&record, summary);
    assert_int_equal(dt_tfevents_end(&record), DT_OK);
    assert_memory_equal(record.at + record.used - 4 - N - 3, "\xf0\xa2\x04", 3);
    assert_memory_equal(record.at + record.used - 4 - N, text, N);
    assert_int_equal(record.at[0] | record.at[1] << 8 | record.at[2] << 16, record.used - 16);
}

/* As TensorBoard's summary_pb2 serializes it. */
TEST(image)
{
    dt_tfevents_begin(&record, 1700000003.0, 7);
    size_t summary = dt_tfevents_open_summary(&record);
    dt_tfevents_image(&record, "detections", 300, 200, (const uint8_t *)"\xff\xd8jpeg", 6);
    dt_tfevents_close_summary(&record, summary);
    expect("2d000000000000003c418afb090000c040fc54d94110072a200a1e0a0a646574656374696f6e73221008c80"
           "110ac02"
           "18032206ffd86a7065679638b183");
}

TEST(not_a_png)
{
    dt_tfevents_begin(&record, 0, 1);
    dt_tfevents_png(&record, "samples", (const uint8_t *)"GIF89a", 6);
    assert_int_equal(dt_tfevents_end(&record), DT_ERR_DATA);
    dt_tfevents_begin(&record, 1700000004.0, 50); /* the next record is not affected */
    dt_tfevents_restart(&record);
    assert_int_equal(dt_tfevents_end(&record), DT_OK);
}

static int release(void **state)
{
    (void)state;
    free(record.at);
    return 0;
}

TEST_MAIN(NULL, release)
