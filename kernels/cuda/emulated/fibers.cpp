#include "fibers.h"

#include <memory>
#include <ucontext.h>
#include <vector>

namespace fibers {
namespace {

constexpr size_t STACK = 64 << 10;
constexpr size_t SHARED = 64 << 10;

struct Block {
    std::vector<struct Fiber*> fibers;
    std::unique_ptr<uint64_t[]> shared{new uint64_t[SHARED / 8]()};
    unsigned alive = 0;
    unsigned waiting = 0;
    // Of so many turns the block takes one: blocks of a GPU do not keep pace with each other.
    unsigned slowness = 1;
};

enum class State { Ready, AtBarrier, Ended };

struct Fiber {
    ucontext_t context;
    Place place;
    Block* block;
    State state = State::Ready;
    std::unique_ptr<char[]> stack{new char[STACK]};
};

// What happened while a fiber ran.
enum class Event { Progress, Looked };

ucontext_t scheduler;
Fiber* active;
Event last;
const std::function<void()>* body;
uint64_t random_state;
uint64_t turns;

uint64_t random_number() {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

void leave(Event event) {
    last = event;
    swapcontext(&active->context, &scheduler);
}

void open_barrier(Block& block) {
    block.waiting = 0;
    for (Fiber* fiber : block.fibers) {
        if (fiber->state == State::AtBarrier) fiber->state = State::Ready;
    }
}

void entry() {
    (*body)();
    active->state = State::Ended;
    Block& block = *active->block;
    block.alive -= 1;
    if (block.alive > 0 && block.waiting == block.alive) open_barrier(block);
    leave(Event::Progress);
}

std::unique_ptr<Fiber> make_fiber(Block& block, Place place) {
    auto fiber = std::make_unique<Fiber>();
    fiber->place = place;
    fiber->block = &block;
    block.fibers.push_back(fiber.get());
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack.get();
    fiber->context.uc_stack.ss_size = STACK;
    fiber->context.uc_link = nullptr;
    makecontext(&fiber->context, entry, 0);
    return fiber;
}

}

const Place& current() { return active->place; }

void await_block() {
    Block& block = *active->block;
    block.waiting += 1;
    if (block.waiting == block.alive) {
        open_barrier(block);
    } else {
        active->state = State::AtBarrier;
    }
    leave(Event::Progress);
}

void* shared_memory(size_t bytes) {
    if (bytes > SHARED) __builtin_trap();
    return active->block->shared.get();
}

uint64_t now() { return turns; }

void pause() { leave(Event::Looked); }

void give_way() {
    if (random_number() % 4 == 0) leave(Event::Progress);
}

bool run(unsigned blocks, unsigned threads, uint64_t seed, uint64_t patience,
         const std::function<void()>& kernel) {
    std::vector<std::unique_ptr<Block>> all_blocks;
    std::vector<std::unique_ptr<Fiber>> all;
    body = &kernel;
    random_state = seed * 2654435761u + 88172645463325252ull;
    for (unsigned b = 0; b < blocks; b++) {
        all_blocks.push_back(std::make_unique<Block>());
        Block& block = *all_blocks.back();
        block.alive = threads;
        block.slowness = random_number() % 3 == 0 ? 16 : 1;
        for (unsigned t = 0; t < threads; t++) {
            all.push_back(make_fiber(block, Place{{t}, {b}, {threads}}));
        }
    }
    std::vector<Fiber*> ready;
    uint64_t idle = 0;
    for (;;) {
        ready.clear();
        size_t ended = 0;
        for (auto& fiber : all) {
            if (fiber->state == State::Ready) ready.push_back(fiber.get());
            ended += fiber->state == State::Ended;
        }
        if (ended == all.size()) return true;
        if (ready.empty() || idle > patience) return false;
        // A batch of turns, so that the list is made rarely. A fiber that is no longer ready is
        // passed over.
        for (size_t turn = 0; turn < ready.size(); turn++) {
            Fiber* fiber = ready[random_number() % ready.size()];
            if (fiber->state != State::Ready) continue;
            if (random_number() % fiber->block->slowness != 0) continue;
            turns += 1;
            active = fiber;
            swapcontext(&scheduler, &fiber->context);
            idle = last == Event::Looked ? idle + 1 : 0;
        }
    }
}

}
