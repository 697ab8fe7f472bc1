// Fibers among other OS threads and processes, which they may wait for. Not all waits are visible
// here, so deadlocks are not detected: the kernel's own timeout ends every wait.
#include "fiber.h"

#include <ctime>
#include <sched.h>

namespace fibers {
namespace {

// Passes without progress before the OS thread sleeps: another one may need the core.
constexpr unsigned EAGER_PASSES = 300;
constexpr long SLEEP_NANOSECONDS = 20000;

// The blocks of a grid that have begun and not ended.
class Residents {
  public:
    Residents(const Grid& grid, Seats& seats, Scheduler& scheduler)
        : grid(grid), seats(seats), scheduler(scheduler) {}

    // Begins blocks while there are seats. True if all blocks have ended.
    bool admit() {
        while (begun < grid.blocks && seats.take(grid.together ? grid.blocks : 1)) {
            begin();
            while (grid.together && begun < grid.blocks) begin();
        }
        return begun == grid.blocks && residents.empty();
    }

    // Gives every fiber that can run a turn. True if one of them did more than poll.
    bool pass() {
        bool progress = false;
        for (size_t at = 0; at < residents.size();) {
            progress |= run_block(residents[at]);
            if (residents[at].block->alive > 0) {
                at += 1;
                continue;
            }
            residents.erase(residents.begin() + (long)at);
            seats.give();
        }
        return progress;
    }

  private:
    struct Resident {
        std::unique_ptr<Block> block;
        std::vector<std::unique_ptr<Fiber>> fibers;
    };

    void begin() {
        Resident resident{std::make_unique<Block>(), {}};
        resident.block->alive = grid.threads;
        for (unsigned t = 0; t < grid.threads; t++) {
            Place place{{t}, {begun}, {grid.threads}, {grid.blocks}};
            resident.fibers.push_back(make_fiber(*resident.block, place));
        }
        residents.push_back(std::move(resident));
        begun += 1;
    }

    bool run_block(Resident& resident) {
        bool progress = false;
        for (auto& fiber : resident.fibers) {
            if (fiber->state != State::Ready) continue;
            scheduler.resume(*fiber);
            progress |= scheduler.last == Event::Progress;
        }
        return progress;
    }

    const Grid& grid;
    Seats& seats;
    Scheduler& scheduler;
    std::vector<Resident> residents;
    unsigned begun = 0;
};

void rest(unsigned passes) {
    if (passes < EAGER_PASSES) {
        sched_yield();
        return;
    }
    timespec time{0, SLEEP_NANOSECONDS};
    nanosleep(&time, nullptr);
}

}

void run_among_threads(const Grid& grid, Seats& seats, const std::function<void()>& kernel) {
    Scheduler scheduler(kernel, grid.seed, true);
    Residents residents(grid, seats, scheduler);
    unsigned idle = 0;
    while (!residents.admit()) {
        if (residents.pass()) {
            idle = 0;
        } else {
            idle += 1;
            rest(idle);
        }
    }
}

void run_in_turn(const Grid& grid, const std::function<void()>& kernel) {
    Scheduler scheduler(kernel, grid.seed, true);
    Fiber fiber;
    scheduler.active = &fiber;
    for (unsigned b = 0; b < grid.blocks; b++) {
        for (unsigned t = 0; t < grid.threads; t++) {
            fiber.place = Place{{t}, {b}, {grid.threads}, {grid.blocks}};
            kernel();
        }
    }
}

}
