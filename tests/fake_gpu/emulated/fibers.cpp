#include "fiber.h"

#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace fibers {
namespace {

constexpr size_t STACK = 64 << 10;
constexpr int MISUSED_BARRIER = 7;

thread_local Scheduler* active_scheduler = nullptr;
thread_local uint64_t turn_count = 0;
thread_local std::vector<std::unique_ptr<char[]>> spare_stacks;

void leave(Event event) {
    Scheduler& scheduler = *active_scheduler;
    scheduler.last = event;
    if (_setjmp(scheduler.active->point) == 0) _longjmp(scheduler.point, 1);
}

// A mistake of the kernel that a GPU would not report.
[[noreturn]] void complain(const char* what, unsigned barrier) {
    fprintf(stderr, "%s barrier %u\n", what, barrier);
    _Exit(MISUSED_BARRIER);
}

void open_barrier(Block& block, unsigned number) {
    Barrier& barrier = block.barriers[number];
    barrier.arrived = 0;
    barrier.opened += 1;
    for (Fiber* fiber : block.fibers) {
        bool is_there = fiber->state == State::AtBarrier && fiber->barrier == number;
        if (is_there) fiber->state = State::Ready;
    }
}

// The active fiber is at a barrier for so many. True if it was the last one.
bool come_to(unsigned number, unsigned fibers) {
    Fiber& fiber = *active_scheduler->active;
    Barrier& barrier = fiber.block->barriers[number];
    if (fiber.last_at[number] == barrier.opened + 1) complain("a thread is twice at", number);
    fiber.last_at[number] = barrier.opened + 1;
    barrier.arrived += 1;
    if (barrier.arrived != fibers) return false;
    open_barrier(*fiber.block, number);
    return true;
}

void wait_in(unsigned number, unsigned fibers) {
    if (!come_to(number, fibers)) {
        Fiber& fiber = *active_scheduler->active;
        fiber.state = State::AtBarrier;
        fiber.barrier = number;
    }
    leave(Event::Progress);
}

void entry() {
    (*active_scheduler->body)();
    Fiber& fiber = *active_scheduler->active;
    fiber.state = State::Ended;
    Block& block = *fiber.block;
    block.alive -= 1;
    if (block.alive > 0 && block.barriers[0].arrived == block.alive) open_barrier(block, 0);
    for (unsigned number = 1; number < BARRIERS && block.alive == 0; number++) {
        if (block.barriers[number].arrived > 0) complain("a block ends with threads at", number);
    }
    leave(Event::Progress);
}

}

Stack::Stack() {
    if (spare_stacks.empty()) {
        memory.reset(new char[STACK]);
    } else {
        memory = std::move(spare_stacks.back());
        spare_stacks.pop_back();
    }
}

Stack::~Stack() { spare_stacks.push_back(std::move(memory)); }

void Stack::lend_to(ucontext_t& context) {
    context.uc_stack.ss_sp = memory.get();
    context.uc_stack.ss_size = STACK;
}

std::unique_ptr<Fiber> make_fiber(Block& block, Place place) {
    auto fiber = std::make_unique<Fiber>();
    fiber->place = place;
    fiber->block = &block;
    block.fibers.push_back(fiber.get());
    getcontext(&fiber->beginning);
    fiber->stack.lend_to(fiber->beginning);
    fiber->beginning.uc_link = nullptr;
    makecontext(&fiber->beginning, entry, 0);
    return fiber;
}

Scheduler::Scheduler(const std::function<void()>& body, uint64_t seed, bool among_threads)
    : body(&body),
      random_state(seed * 2654435761u + 88172645463325252ull),
      among_threads(among_threads) {
    active_scheduler = this;
}

Scheduler::~Scheduler() { active_scheduler = nullptr; }

uint64_t Scheduler::random_number() {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

void Scheduler::resume(Fiber& fiber) {
    turn_count += 1;
    active = &fiber;
    if (_setjmp(point) != 0) return;
    if (fiber.has_begun) _longjmp(fiber.point, 1);
    fiber.has_begun = true;
    setcontext(&fiber.beginning);
}

const Place& current() { return active_scheduler->active->place; }

void await_block() { wait_in(0, active_scheduler->active->block->alive); }

void await_some(unsigned barrier, unsigned fibers) { wait_in(barrier, fibers); }

void arrive(unsigned barrier, unsigned fibers) {
    come_to(barrier, fibers);
    give_way();
}

void* shared_memory(size_t bytes) {
    if (bytes > SHARED) __builtin_trap();
    return active_scheduler->active->block->shared.get();
}

uint64_t now() {
    if (!active_scheduler->among_threads) return turn_count;
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

void pause() { leave(Event::Looked); }

void give_way() {
    if (active_scheduler->random_number() % 4 == 0) leave(Event::Progress);
}

void give_way_reading() {
    if (active_scheduler->random_number() % 4 == 0) pause();
}

}
