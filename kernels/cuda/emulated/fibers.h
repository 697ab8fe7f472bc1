// Fibers that stand for the threads of a GPU. One runs at a time, and a seed draws which is next, so
// a run can be repeated. Waits of all fibers at once are a deadlock, and are found exactly.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>

namespace fibers {

struct Dimension {
    unsigned x;
};

// Where a fiber stands in its grid.
struct Place {
    Dimension thread;
    Dimension block;
    Dimension threads;
};

// The place of the fiber that runs.
const Place& current();

// The barrier of a block.
void await_block();

// What all fibers of the block share, zeroed at first.
void* shared_memory(size_t bytes);

// The fiber has looked for something that is not there yet: any other fiber may run.
void pause();

// Another fiber may run, but nothing is awaited.
void give_way();

// Turns of all fibers so far: the clock of the machine.
uint64_t now();

// Runs `kernel` on `blocks` blocks of `threads` threads. Returns false if all fibers waited for one
// another `patience` times in a row.
bool run(unsigned blocks, unsigned threads, uint64_t seed, uint64_t patience,
         const std::function<void()>& kernel);

}
