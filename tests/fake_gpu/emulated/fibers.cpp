#include "fiber.h"

#include <ctime>

namespace fibers {
namespace {

constexpr size_t STACK = 64 << 10;

thread_local Scheduler* active_scheduler = nullptr;
thread_local uint64_t turn_count = 0;
thread_local std::vector<std::unique_ptr<char[]>> spare_stacks;

void leave(Event event) {
    Scheduler& scheduler = *active_scheduler;
    scheduler.last = event;
    if (_setjmp(scheduler.active->point) == 0) _longjmp(scheduler.point, 1);
}

void open_barrier(Block& block) {
    block.waiting = 0;
    for (Fiber* fiber : block.fibers) {
        if (fiber->state == State::AtBarrier) fiber->state = State::Ready;
    }
}

void entry() {
    (*active_scheduler->body)();
    Fiber& fiber = *active_scheduler->active;
    fiber.state = State::Ended;
    Block& block = *fiber.block;
    block.alive -= 1;
    if (block.alive > 0 && block.waiting == block.alive) open_barrier(block);
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

void await_block() {
    Fiber& fiber = *active_scheduler->active;
    Block& block = *fiber.block;
    block.waiting += 1;
    if (block.waiting == block.alive) {
        open_barrier(block);
    } else {
        fiber.state = State::AtBarrier;
    }
    leave(Event::Progress);
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
