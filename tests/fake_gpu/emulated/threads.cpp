// Every thread of the GPU is an OS thread, so that ThreadSanitizer sees which accesses are ordered by
// the kernel's own counters and barriers, and which are not.
#include "fibers.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <pthread.h>
#include <sched.h>
#include <thread>
#include <vector>

namespace fibers {
namespace {

constexpr size_t SHARED = 64 << 10;
// Calls of these tests take seconds, also on a loaded machine.
constexpr std::chrono::minutes LONGEST{3};
constexpr int DEADLOCK = 3;

struct Block {
    pthread_barrier_t barrier;
    // By other barrier: threads that have ever arrived. A thread that only arrives must not be
    // ordered after earlier ones, so the count has no lock.
    std::atomic<uint64_t> arrived[BARRIERS] = {};
    std::unique_ptr<uint64_t[]> shared{new uint64_t[SHARED / 8]()};

    explicit Block(unsigned threads) { pthread_barrier_init(&barrier, nullptr, threads); }
    ~Block() { pthread_barrier_destroy(&barrier); }
};

struct Thread {
    Place place;
    Block* block;
    uint64_t random_state;
};

thread_local Thread* active = nullptr;

// Ends the program if the threads do not end. Nothing can end a thread that waits indefinitely.
class Watch {
  public:
    Watch() : thread([this] { watch(); }) {}

    ~Watch() {
        {
            std::lock_guard<std::mutex> lock(mutex);
            over = true;
        }
        changed.notify_one();
        thread.join();
    }

  private:
    void watch() {
        std::unique_lock<std::mutex> lock(mutex);
        auto end = std::chrono::steady_clock::now() + LONGEST;
        if (!changed.wait_until(lock, end, [this] { return over; })) _Exit(DEADLOCK);
    }

    std::mutex mutex;
    std::condition_variable changed;
    bool over = false;
    std::thread thread;
};

}

const Place& current() { return active->place; }

void await_block() { pthread_barrier_wait(&active->block->barrier); }

void await_some(unsigned barrier, unsigned fibers) {
    std::atomic<uint64_t>& arrived = active->block->arrived[barrier];
    uint64_t before = arrived.fetch_add(1, std::memory_order_release);
    uint64_t all = (before / fibers + 1) * fibers;
    while (arrived.load(std::memory_order_acquire) < all) sched_yield();
}

void arrive(unsigned barrier, unsigned) {
    active->block->arrived[barrier].fetch_add(1, std::memory_order_release);
}

void* shared_memory(size_t bytes) {
    if (bytes > SHARED) __builtin_trap();
    return active->block->shared.get();
}

uint64_t now() { return 0; }

void pause() { sched_yield(); }

void give_way() {
    uint64_t& state = active->random_state;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    if (state % 4 == 0) sched_yield();
}

void give_way_reading() { give_way(); }

bool run(unsigned blocks, unsigned threads, uint64_t seed, uint64_t,
         const std::function<void()>& kernel) {
    Watch watch;
    std::vector<std::unique_ptr<Block>> all_blocks;
    std::vector<Thread> all;
    for (unsigned b = 0; b < blocks; b++) {
        all_blocks.push_back(std::make_unique<Block>(threads));
        for (unsigned t = 0; t < threads; t++) {
            Place place{{t}, {b}, {threads}, {blocks}};
            uint64_t random_state = (seed * blocks + b) * 2654435761u + t + 88172645463325252ull;
            all.push_back(Thread{place, all_blocks.back().get(), random_state});
        }
    }
    std::vector<std::thread> started;
    for (Thread& thread : all) {
        started.emplace_back([&] {
            active = &thread;
            kernel();
        });
    }
    for (std::thread& thread : started) thread.join();
    return true;
}

}
