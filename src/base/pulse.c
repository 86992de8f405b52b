/* Pulses: written with relaxed stores, read by the watchdog. The counter is stored
 * last and loaded first, so a reader never pairs a new counter with an old section. */
#include "base/pulse.h"

#include <stdatomic.h>
#include <stddef.h>

#include "base/clock.h"

struct event {
    _Atomic double at_s;
    _Atomic int section;
    _Atomic int64_t step;
    const char *_Atomic waits_for;
};

struct dt_pulse {
    _Atomic int section;
    _Atomic int64_t step;
    const char *_Atomic waits_for;
    _Atomic uint64_t n_moves;
    _Atomic uint64_t n_events;
    struct event events[DT_PULSE_EVENTS]; /* a ring */
};

struct dt_pulse dt_pulse_main, dt_pulse_writer;

static const char *const names[DT_N_SECTIONS] = {
    [DT_SECTION_NONE] = "none",       [DT_SECTION_INIT] = "init",     [DT_SECTION_DATA] = "data",
    [DT_SECTION_COMPUTE] = "compute", [DT_SECTION_REDUCE] = "reduce", [DT_SECTION_EVAL] = "eval",
    [DT_SECTION_SAVE] = "save",
};

const char *dt_section_name(enum dt_section section)
{
    return (size_t)section < DT_N_SECTIONS ? names[section] : "unknown";
}

#define LOAD(field)         atomic_load_explicit(&(field), memory_order_relaxed)
#define STORE(field, value) atomic_store_explicit(&(field), (value), memory_order_relaxed)

void dt_pulse_beat(struct dt_pulse *pulse)
{
    atomic_fetch_add_explicit(&pulse->n_moves, 1, memory_order_release);
}

static void move(struct dt_pulse *pulse)
{
    uint64_t n = LOAD(pulse->n_events);
    struct event *event = &pulse->events[n % DT_PULSE_EVENTS];
    STORE(event->at_s, dt_clock_s());
    STORE(event->section, LOAD(pulse->section));
    STORE(event->step, LOAD(pulse->step));
    STORE(event->waits_for, LOAD(pulse->waits_for));
    atomic_store_explicit(&pulse->n_events, n + 1, memory_order_release);
    dt_pulse_beat(pulse);
}

enum dt_section dt_pulse_enter(struct dt_pulse *pulse, enum dt_section section)
{
    enum dt_section before = (enum dt_section)LOAD(pulse->section);
    STORE(pulse->section, (int)section);
    move(pulse);
    return before;
}

void dt_pulse_step(struct dt_pulse *pulse, int64_t step)
{
    STORE(pulse->step, step);
    move(pulse);
}

void dt_pulse_wait(struct dt_pulse *pulse, const char *what)
{
    STORE(pulse->waits_for, what);
    move(pulse);
}

void dt_pulse_go_on(struct dt_pulse *pulse)
{
    STORE(pulse->waits_for, NULL);
    move(pulse);
}

void dt_pulse_read(const struct dt_pulse *pulse, struct dt_pulse_state *out)
{
    out->n_moves = atomic_load_explicit(&pulse->n_moves, memory_order_acquire);
    out->section = (enum dt_section)LOAD(pulse->section);
    out->step = LOAD(pulse->step);
    out->waits_for = LOAD(pulse->waits_for);
}

int dt_pulse_history(const struct dt_pulse *pulse, struct dt_pulse_event *out)
{
    uint64_t n = atomic_load_explicit(&pulse->n_events, memory_order_acquire);
    int count = n < DT_PULSE_EVENTS ? (int)n : DT_PULSE_EVENTS;
    for (int i = 0; i < count; i++) {
        const struct event *event = &pulse->events[(n - (uint64_t)(count - i)) % DT_PULSE_EVENTS];
        out[i] = (struct dt_pulse_event){
            .at_s = LOAD(event->at_s),
            .section = (enum dt_section)LOAD(event->section),
            .step = LOAD(event->step),
            .waits_for = LOAD(event->waits_for),
        };
    }
    return count;
}
