// Fibers by switching the stack pointer, or by ucontext (slower: two system calls per switch) on
// other architectures. Sanitizers are told of each switch.
#include "fiber.h"

#include <sys/mman.h>
#include <ucontext.h>

#include "emulator.h"

#if defined(__SANITIZE_ADDRESS__)
#include <pthread.h>
#include <sanitizer/common_interface_defs.h>
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace emu
{

namespace
{

constexpr size_t stack_bytes = 256 * 1024, guard_bytes = 4096;

// One side of a switch, as the sanitizers see it.
struct side {
#if defined(__SANITIZE_ADDRESS__)
    const void *bottom;
    size_t bytes;
    void *fake;
#elif defined(__SANITIZE_THREAD__)
    void *tsan;
#endif
};

} // namespace

struct fiber {
    void (*main)(fiber *self);
    char *stack;
    side inside, outside;
#if defined(__x86_64__)
    void *sp, *outside_sp;
#else
    ucontext_t context, outside_context;
#endif
};

namespace
{

fiber *current; // fibers run under the emulator's lock, so one is enough

void before_switch([[maybe_unused]] side *from, [[maybe_unused]] side *to)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&from->fake, to->bottom, to->bytes);
#elif defined(__SANITIZE_THREAD__)
    from->tsan = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(to->tsan, 0);
#endif
}

void after_switch([[maybe_unused]] side *here, [[maybe_unused]] side *from)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(here->fake, &from->bottom, &from->bytes);
#endif
}

void entry()
{
    fiber *self = current;
    after_switch(&self->inside, &self->outside);
    self->main(self);
    emu_fail("a fiber ended");
}

} // namespace

#if defined(__x86_64__)

// Saves the callee-saved registers, stores the stack pointer in *save and continues with `to`.
extern "C" void emu_switch_stack(void **save, void *to);
asm(R"(
    .text
    .globl emu_switch_stack
    .type emu_switch_stack, @function
emu_switch_stack:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size emu_switch_stack, .-emu_switch_stack
)");

static void prepare(fiber *f)
{
    // Six registers and the return address; at function entry the stack is off by 8 from a multiple
    // of 16.
    auto top = reinterpret_cast<void **>(f->stack + stack_bytes - 16);
    top[-1] = nullptr;
    top[-2] = reinterpret_cast<void *>(entry);
    f->sp = top - 8;
}

static void go_in(fiber *f)
{
    emu_switch_stack(&f->outside_sp, f->sp);
}

static void go_out(fiber *f)
{
    emu_switch_stack(&f->sp, f->outside_sp);
}

#else

static void prepare(fiber *f)
{
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = stack_bytes;
    f->context.uc_link = nullptr;
    makecontext(&f->context, entry, 0);
}

static void go_in(fiber *f)
{
    swapcontext(&f->outside_context, &f->context);
}

static void go_out(fiber *f)
{
    swapcontext(&f->context, &f->outside_context);
}

#endif

fiber *fiber_create(void (*main)(fiber *self))
{
    void *memory = mmap(nullptr, guard_bytes + stack_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, guard_bytes, PROT_NONE) != 0)
        emu_fail("no memory for the stack of a thread");
    auto f = new fiber{};
    f->main = main;
    f->stack = static_cast<char *>(memory) + guard_bytes;
#if defined(__SANITIZE_ADDRESS__)
    f->inside.bottom = f->stack;
    f->inside.bytes = stack_bytes;
#elif defined(__SANITIZE_THREAD__)
    f->inside.tsan = __tsan_create_fiber(0);
#endif
    prepare(f);
    return f;
}

void fiber_enter(fiber *f)
{
    fiber *before = current;
    current = f;
    before_switch(&f->outside, &f->inside);
    go_in(f);
    after_switch(&f->outside, &f->inside);
    current = before;
}

void fiber_leave(fiber *self)
{
    before_switch(&self->inside, &self->outside);
    go_out(self);
    after_switch(&self->inside, &self->outside);
}

fiber *fiber_current()
{
    return current;
}

} // namespace emu
