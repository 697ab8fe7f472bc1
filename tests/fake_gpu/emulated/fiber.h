// A fiber, its block and the scheduler that it returns to. For the files that choose which fiber
// is next.
#pragma once
#include "fibers.h"

#include <csetjmp>
#include <memory>
#include <ucontext.h>
#include <vector>

namespace fibers {

constexpr size_t SHARED = 64 << 10;

struct Fiber;

// A barrier of a block.
struct Barrier {
    // Fibers that have arrived, and how often the barrier has opened.
    unsigned arrived = 0;
    uint64_t opened = 0;
};

struct Block {
    std::vector<Fiber*> fibers;
    std::unique_ptr<uint64_t[]> shared{new uint64_t[SHARED / 8]()};
    unsigned alive = 0;
    // The first one is that of all fibers.
    Barrier barriers[BARRIERS];
    // Of so many turns the block takes one: blocks of a GPU do not keep pace with each other.
    unsigned slowness = 1;
};

enum class State { Ready, AtBarrier, Ended };

// A stack for a fiber. Stacks of fibers that have ended are used again by the same OS thread.
class Stack {
  public:
    Stack();
    ~Stack();
    void lend_to(ucontext_t& context);

  private:
    std::unique_ptr<char[]> memory;
};

struct Fiber {
    // Where the fiber begins, and where it continues. Later switches are jumps, because a switch of
    // contexts makes a system call for the signals each time.
    ucontext_t beginning;
    jmp_buf point;
    bool has_begun = false;
    Place place;
    Block* block;
    State state = State::Ready;
    // Where it waits, if it does.
    unsigned barrier = 0;
    // By barrier: how often it had opened when the fiber was there last, counted from one.
    uint64_t last_at[BARRIERS] = {};
    Stack stack;
};

// The kind of a fiber's turn: progress, or only polls.
enum class Event { Progress, Looked };

// Runs the fibers of the OS thread that made it.
struct Scheduler {
    jmp_buf point;
    Fiber* active = nullptr;
    Event last = Event::Progress;
    const std::function<void()>* body;
    uint64_t random_state;
    bool among_threads;

    Scheduler(const std::function<void()>& body, uint64_t seed, bool among_threads);
    ~Scheduler();
    uint64_t random_number();
    // Runs a fiber until it leaves.
    void resume(Fiber& fiber);
};

std::unique_ptr<Fiber> make_fiber(Block& block, Place place);

}
