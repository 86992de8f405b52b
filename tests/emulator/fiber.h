// Fibers: separate stacks with explicit switches between them.
#ifndef DTRAIN_EMULATOR_FIBER_H
#define DTRAIN_EMULATOR_FIBER_H

namespace emu
{

struct fiber;

// main never returns; it starts at the first enter. Fibers are never destroyed.
fiber *fiber_create(void (*main)(fiber *self));
void fiber_enter(fiber *f);    // called from outside; returns when f leaves
void fiber_leave(fiber *self); // called from inside; returns at the next enter
fiber *fiber_current();

} // namespace emu

#endif
