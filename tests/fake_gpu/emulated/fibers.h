// Fibers that represent the threads of a GPU. Those of one OS thread run one at a time. Two ways to
// choose which is next: `run` draws it from a seed, so a run can be repeated, and finds deadlocks
// exactly; `run_among_threads` shares a machine with other OS threads and processes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>

namespace fibers {

struct Dimension {
    unsigned x;
};

// Where a fiber stands in its grid, and the size of the grid.
struct Place {
    Dimension thread;
    Dimension block;
    Dimension threads;
    Dimension blocks;
};

// The place of the fiber that runs.
const Place& current();

// The barrier of a block.
void await_block();

// Other barriers of a block, numbered from one, for so many of its fibers: those that wait there, and
// those that only arrive.
constexpr unsigned BARRIERS = 16;
void await_some(unsigned barrier, unsigned fibers);
void arrive(unsigned barrier, unsigned fibers);

// Shared memory of all fibers of the block, zeroed at first.
void* shared_memory(size_t bytes);

// The fiber has polled without success: any other fiber may run.
void pause();

// Another fiber may run, but nothing is awaited.
void give_way();

// As `give_way`, between two reads: if the fiber repeats them, it may wait for a change.
void give_way_reading();

// The clock of the machine: turns of all fibers so far in `run`, nanoseconds among threads.
uint64_t now();

// Runs `kernel` on `blocks` blocks of `threads` threads. Returns false if all fibers waited for
// one another `patience` times in a row.
bool run(unsigned blocks, unsigned threads, uint64_t seed, uint64_t patience,
         const std::function<void()>& kernel);

// Seats that the blocks of all running grids of a device occupy together.
class Seats {
  public:
    virtual ~Seats() = default;
    // Occupies the room of `blocks` more blocks, or returns false.
    virtual bool take(unsigned blocks) = 0;
    // Frees the room of a block that has ended.
    virtual void give() = 0;
};

// How a grid runs among other OS threads.
struct Grid {
    unsigned blocks;
    unsigned threads;
    // Draws when a fiber gives way.
    uint64_t seed;
    // All blocks begin together or none does.
    bool together;
};

// Runs `kernel` on the calling OS thread. A block begins when a seat is free. Only the kernel
// itself ends a wait: fibers may wait for other OS threads and processes.
void run_among_threads(const Grid& grid, Seats& seats, const std::function<void()>& kernel);

// The same for a kernel whose threads never wait: each runs to its end, one after the other.
void run_in_turn(const Grid& grid, const std::function<void()>& kernel);

}
