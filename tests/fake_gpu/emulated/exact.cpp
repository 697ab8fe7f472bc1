// One OS thread for the whole machine: a seed draws which fiber is next, and a wait of all fibers
// is a deadlock, which is detected exactly.
#include "fiber.h"

namespace fibers {

bool run(unsigned blocks, unsigned threads, uint64_t seed, uint64_t patience,
         const std::function<void()>& kernel) {
    Scheduler scheduler(kernel, seed, false);
    std::vector<std::unique_ptr<Block>> all_blocks;
    std::vector<std::unique_ptr<Fiber>> all;
    for (unsigned b = 0; b < blocks; b++) {
        all_blocks.push_back(std::make_unique<Block>());
        Block& block = *all_blocks.back();
        block.alive = threads;
        block.slowness = scheduler.random_number() % 3 == 0 ? 16 : 1;
        for (unsigned t = 0; t < threads; t++) {
            all.push_back(make_fiber(block, Place{{t}, {b}, {threads}, {blocks}}));
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
            Fiber* fiber = ready[scheduler.random_number() % ready.size()];
            if (fiber->state != State::Ready) continue;
            if (scheduler.random_number() % fiber->block->slowness != 0) continue;
            scheduler.resume(*fiber);
            idle = scheduler.last == Event::Looked ? idle + 1 : 0;
        }
    }
}

}
