/* A thread's current activity, published with atomics for the watchdog: the section of the run, the
 * step, whether it waits for other ranks, and a counter that grows with every move. The main thread
 * has one pulse, the thread that writes checkpoints another. A call costs a few stores. */
#ifndef DTRAIN_BASE_PULSE_H
#define DTRAIN_BASE_PULSE_H

#include <stdint.h>

enum dt_section {
    DT_SECTION_NONE, /* nothing to watch: no time limit */
    DT_SECTION_INIT,
    DT_SECTION_DATA,    /* waiting for a batch */
    DT_SECTION_COMPUTE, /* forward, backward, update */
    DT_SECTION_REDUCE,  /* waiting for reduced gradients */
    DT_SECTION_EVAL,
    DT_SECTION_SAVE,
    DT_N_SECTIONS
};
const char *dt_section_name(enum dt_section section); /* "data" */

struct dt_pulse;
extern struct dt_pulse dt_pulse_main, dt_pulse_writer;

/* Called by the thread that owns the pulse; beat also by those it waits for. enter returns the
 * previous section, so that the caller can return to it. Each of these calls counts as a move. */
enum dt_section dt_pulse_enter(struct dt_pulse *pulse, enum dt_section section);
void dt_pulse_step(struct dt_pulse *pulse, int64_t step); /* updates done */
void dt_pulse_beat(struct dt_pulse *pulse);               /* progress within the section */
/* Wrapped around a blocking call that returns only when other ranks make theirs (`what`: a
 * literal). */
void dt_pulse_wait(struct dt_pulse *pulse, const char *what);
void dt_pulse_go_on(struct dt_pulse *pulse);

/* Called by any thread. */
struct dt_pulse_state {
    enum dt_section section;
    int64_t step;
    const char *waits_for; /* NULL = not waiting */
    uint64_t n_moves;
};
void dt_pulse_read(const struct dt_pulse *pulse, struct dt_pulse_state *out);

/* The last moves that were not beats, oldest first; at most DT_PULSE_EVENTS. The owner may be
 * writing meanwhile and the newest one may be torn, so use them only to inform people. */
enum { DT_PULSE_EVENTS = 64 };
struct dt_pulse_event {
    double at_s; /* dt_clock_s */
    enum dt_section section;
    int64_t step;
    const char *waits_for;
};
int dt_pulse_history(const struct dt_pulse *pulse, struct dt_pulse_event *out);

#endif
