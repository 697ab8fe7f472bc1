// Runs short calls (`short.h`) on emulated GPUs and checks their results: seed, ranks, calls, and the
// number of a call that rank 1 makes in another way, or -1.
//
// Exit codes: 0; 1 a result is wrong; 2 the arguments are; 3 all threads waited for one another; 4 a rank
// gave up, for the reason that is printed.

#define EMULATED
#include <machine.h>
// The blocks of all ranks are one grid here.
#undef blockIdx
#define blockIdx (fibers::Dimension{fibers::current().block.x % SHORT_BLOCKS})
#include "walk.cu"
#undef blockIdx

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr uint64_t PATIENCE = 2000000;

struct Random {
    u64 state;

    u64 next() {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        return state >> 33;
    }
};

struct Rank {
    std::vector<u64> lines;
    std::vector<u64> announced;
    std::vector<u64> counts;
    u32 abort = 0;
    u64 report = OK;
    u64 gone = 0;
    u64 failed = OK;
    // Threads that have ended each call.
    std::vector<u32> ended;
};

// A call of all ranks: so many numbers of each, combined or side by side.
struct Call {
    u32 count;
    bool gathers;
    bool in_place;
    // By rank.
    std::vector<std::vector<float>> input;
    std::vector<std::vector<float>> output;
};

Call make_call(Random& random, u32 ranks) {
    const u32 most = SHORT_BLOCKS * SHORT_THREADS * 2;
    u32 count = random.next() % 4 == 0 ? random.next() % 3 : 1 + random.next() % most;
    Call call{count, random.next() % 3 == 0, random.next() % 2 == 0, {}, {}};
    for (u32 rank = 0; rank < ranks; rank++) {
        std::vector<float> input(count);
        for (float& number : input) number = (float)random.next() / 7.0f;
        std::vector<float> output(call.gathers ? count * ranks : count);
        u32 start = call.gathers ? count * rank : 0;
        for (u32 i = 0; i < count && call.in_place; i++) output[start + i] = input[i];
        call.input.push_back(input);
        call.output.push_back(output);
    }
    return call;
}

bool is_right(const Call& call, u32 rank) {
    for (u32 i = 0; i < call.output[rank].size(); i++) {
        float expected = call.input[0][i % (call.count ? call.count : 1)];
        if (call.gathers) {
            expected = call.input[i / call.count][i % call.count];
        } else {
            for (u32 other = 1; other < call.input.size(); other++) expected += call.input[other][i];
        }
        if (call.output[rank][i] != expected) return false;
    }
    return true;
}

}

int main(int argc, char** argv) {
    if (argc != 5) return 2;
    Random random{strtoull(argv[1], nullptr, 10)};
    u64 seed = random.state;
    u32 ranks = (u32)strtoul(argv[2], nullptr, 10);
    u32 count = (u32)strtoul(argv[3], nullptr, 10);
    long other = strtol(argv[4], nullptr, 10);
    std::vector<Call> calls;
    for (u32 nth = 0; nth < count; nth++) calls.push_back(make_call(random, ranks));
    std::vector<Rank> state(ranks);
    u64 lines = 2ull * ranks * SHORT_BLOCKS * SHORT_THREADS * 2;
    for (Rank& rank : state) {
        rank.lines.resize(lines + 2);
        rank.announced.resize(ranks);
        rank.counts.resize(SHORT_BLOCKS);
        rank.ended.resize(count);
    }
    u32 threads = SHORT_BLOCKS * SHORT_THREADS;
    auto body = [&] {
        u32 me = fibers::current().block.x / SHORT_BLOCKS;
        u32 block = fibers::current().block.x % SHORT_BLOCKS;
        Rank& rank = state[me];
        for (u32 nth = 0; nth < count; nth++) {
            Call& call = calls[nth];
            float* output = call.output[me].data();
            float* own = call.gathers ? output + call.count * me : output;
            ShortLaunch launch = {};
            for (u32 peer = 0; peer < ranks; peer++) {
                launch.lines[peer] = state[peer].lines.data();
                launch.announced[peer] = state[peer].announced.data();
            }
            launch.counts = rank.counts.data();
            launch.input = (const u8*)(call.in_place ? own : call.input[me].data());
            launch.output = (u8*)output;
            launch.abort = &rank.abort;
            launch.report = &rank.report;
            launch.gone = &rank.gone;
            launch.failed = &rank.failed;
            launch.patience = ~0ull;
            launch.bytes = call.count * 4;
            launch.fingerprint = 1 + 2 * nth % 5 + (me == 1 && (long)nth == other ? 8 : 0);
            launch.ranks = ranks;
            launch.me = me;
            launch.number = nth;
            launch.gathers = call.gathers;
            // Blocks without lines are not started.
            u64 used = call.count == 0 ? 1 : (call.count * 4 + 7) / 8;
            if (block * SHORT_THREADS < used) run_short<F32, Sum>(launch);
            // The next call of a rank begins when all threads have ended this one.
            __atomic_fetch_add(&rank.ended[nth], 1, __ATOMIC_RELAXED);
            while (__atomic_load_n(&rank.ended[nth], __ATOMIC_RELAXED) < threads) fibers::pause();
            if (load_relaxed(&rank.failed) == OK && threadIdx.x == 0 && block == 0) {
                if (!is_right(call, me)) exit(1);
            }
        }
        // A rank that gave up has told its host, which tells the others.
        if (load_relaxed(&rank.failed) == OK) return;
        for (Rank& peer : state) store_relaxed(&peer.abort, 1);
    };
    if (!fibers::run(ranks * SHORT_BLOCKS, SHORT_THREADS, seed, PATIENCE, body)) return 3;
    for (Rank& rank : state) {
        if (rank.report == OK) continue;
        fprintf(stderr, "%llu", rank.report);
        return 4;
    }
    return 0;
}
