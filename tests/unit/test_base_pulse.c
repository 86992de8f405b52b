/* Pulses: a reader gets what the owner publishes, also while the owner publishes more; faults fire
 * where they should. */
#include <string.h>

#include <pthread.h>
#include <unistd.h>

#include "base/pulse.h"
#include "test.h"

TEST(names)
{
    static const char *const names[DT_N_SECTIONS] = {"none",   "init", "data", "compute",
                                                     "reduce", "eval", "save"};
    for (int i = 0; i < DT_N_SECTIONS; i++)
        assert_string_equal(dt_section_name((enum dt_section)i), names[i]);
}

TEST(moves_are_seen)
{
    struct dt_pulse_state was, is;
    dt_pulse_read(&dt_pulse_main, &was);
    assert_int_equal(dt_pulse_enter(&dt_pulse_main, DT_SECTION_DATA), was.section);
    assert_int_equal(dt_pulse_enter(&dt_pulse_main, DT_SECTION_COMPUTE), DT_SECTION_DATA);
    dt_pulse_step(&dt_pulse_main, 57);
    dt_pulse_beat(&dt_pulse_main);
    dt_pulse_wait(&dt_pulse_main, "sum");
    dt_pulse_read(&dt_pulse_main, &is);
    assert_int_equal(is.section, DT_SECTION_COMPUTE);
    assert_int_equal(is.step, 57);
    assert_string_equal(is.waits_for, "sum");
    assert_int_equal(is.n_moves - was.n_moves, 5);
    dt_pulse_go_on(&dt_pulse_main);
    dt_pulse_read(&dt_pulse_main, &is);
    assert_null(is.waits_for);
    assert_int_equal(is.n_moves - was.n_moves, 6);
}

TEST(history_keeps_the_last)
{
    struct dt_pulse_event events[DT_PULSE_EVENTS];
    for (int i = 0; i < 3 * DT_PULSE_EVENTS + 5; i++) {
        dt_pulse_step(&dt_pulse_main, i);
        dt_pulse_beat(&dt_pulse_main); /* not an event */
    }
    assert_int_equal(dt_pulse_history(&dt_pulse_main, events), DT_PULSE_EVENTS);
    for (int i = 0; i < DT_PULSE_EVENTS; i++) {
        assert_int_equal(events[i].step, 2 * DT_PULSE_EVENTS + 5 + i);
        assert_true(i == 0 || events[i].at_s >= events[i - 1].at_s);
    }
}

TEST(pulses_are_apart)
{
    struct dt_pulse_state was, is;
    struct dt_pulse_event events[DT_PULSE_EVENTS];
    dt_pulse_read(&dt_pulse_writer, &was);
    dt_pulse_step(&dt_pulse_main, 1);
    dt_pulse_read(&dt_pulse_writer, &is);
    assert_int_equal(is.n_moves, was.n_moves);
    assert_int_equal(dt_pulse_history(&dt_pulse_writer, events), 0);
}

/* The owner keeps the step equal to the moves made: a reader that has seen n moves must not see an
 * older step. */
static void *own(void *arg)
{
    (void)arg;
    for (int64_t i = 1; i <= 200000; i++)
        dt_pulse_step(&dt_pulse_writer, i);
    return NULL;
}

TEST(reader_during_publishing)
{
    struct dt_pulse_state start, is;
    struct dt_pulse_event events[DT_PULSE_EVENTS];
    dt_pulse_read(&dt_pulse_writer, &start);
    pthread_t owner;
    assert_int_equal(pthread_create(&owner, NULL, own, NULL), 0);
    do {
        dt_pulse_read(&dt_pulse_writer, &is);
        assert_true(is.step >= (int64_t)(is.n_moves - start.n_moves));
        dt_pulse_history(&dt_pulse_writer, events);
    } while (is.step < 200000);
    pthread_join(owner, NULL);
}

TEST_MAIN(NULL, NULL)
