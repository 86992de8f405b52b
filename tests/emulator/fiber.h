// Fibers: own stacks that hand over to each other by hand.
#ifndef DTRAIN_EMULATOR_FIBER_H
#define DTRAIN_EMULATOR_FIBER_H

namespace emu
{

struct fiber;

// main never returns; it runs at the first enter. Fibers are never destroyed.
fiber *fiber_create(void (*main)(fiber *self));
void fiber_enter(fiber *f);    // from outside; returns when f leaves
void fiber_leave(fiber *self); // from inside; returns when somebody enters again
fiber *fiber_current();

} // namespace emu

#endif
