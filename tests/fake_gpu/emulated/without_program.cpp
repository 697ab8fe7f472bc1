// Runs calls without programs on emulated GPUs and checks their results: "short" (`short.h`) or "direct"
// (`direct.h`), seed, ranks, calls, and the number of a call that rank 1 makes in another way, or -1.
//
// A rank that has ended a call changes its buffers, as a program may, so others must not read them then.
//
// Exit codes: 0; 1 a result is wrong; 2 the arguments are; 3 all threads waited for one another; 4 a rank
// aborted, with the reason.

#define EMULATED
#include <machine.h>
// The blocks of all ranks are one grid here.
#undef blockIdx
#undef gridDim
#define blockIdx (fibers::Dimension{fibers::current().block.x % SHORT_BLOCKS})
#define gridDim (fibers::Dimension{lanes_of_call})
static thread_local unsigned lanes_of_call = 0;
#include "walk.cu"
#undef blockIdx
#undef gridDim

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr uint64_t PATIENCE = 2000000;

// Of short calls alone.
constexpr DirectKind ALL_TO_ALL = (DirectKind)4;

struct Random {
    u64 state;

    u64 next() {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        return state >> 33;
    }
};

struct Rank {
    std::vector<u64> lines;
    std::vector<u64> words;
    std::vector<u64> announced;
    std::vector<u64> counts;
    u32 abort = 0;
    u64 report = OK;
    u64 gone = 0;
    u64 failed = OK;
    // Threads that have ended each call, and that may continue.
    std::vector<u32> ended;
    std::vector<u32> free;
};

// A call of all ranks on so many numbers: of a vector, or of a block.
struct Call {
    DirectKind kind;
    u32 count;
    u32 root;
    bool in_place;
    // By rank.
    std::vector<std::vector<float>> input;
    std::vector<std::vector<float>> output;
    std::vector<std::vector<float>> before;

    bool has_blocks() const { return kind == ALL_GATHER || kind == REDUCE_SCATTER; }

    // Where a rank's input and output begin.
    float* input_of(u32 rank) {
        if (!in_place) return input[rank].data();
        return output[rank].data() + (kind == ALL_GATHER ? count * rank : 0);
    }
    float* output_of(u32 rank) {
        bool is_part = in_place && kind == REDUCE_SCATTER;
        return output[rank].data() + (is_part ? count * rank : 0);
    }
};

Call make_call(Random& random, bool is_short, u32 ranks) {
    const u32 most = SHORT_BLOCKS * SHORT_THREADS * 2;
    u32 count = random.next() % 4 == 0 ? random.next() % 3 : 1 + random.next() % most;
    DirectKind kind = (DirectKind)(random.next() % (is_short ? 3 : 4));
    if (is_short && kind == REDUCE_SCATTER) kind = ALL_TO_ALL;
    Call call{kind, count, (u32)random.next() % ranks, random.next() % 2 == 0, {}, {}, {}};
    for (u32 rank = 0; rank < ranks; rank++) {
        bool has_blocks = kind == REDUCE_SCATTER || kind == ALL_TO_ALL;
        std::vector<float> input(has_blocks ? count * ranks : count);
        for (float& number : input) number = (float)random.next() / 7.0f;
        bool is_long = kind == ALL_GATHER || (call.in_place && has_blocks) || kind == ALL_TO_ALL;
        std::vector<float> output(is_long ? count * ranks : count);
        call.before.push_back(input);
        u32 start = kind == ALL_GATHER ? count * rank : 0;
        for (u32 i = 0; i < input.size() && call.in_place; i++) output[start + i] = input[i];
        call.input.push_back(input);
        call.output.push_back(output);
    }
    return call;
}

// The expected element `i` of the result of `rank`.
float expected(const Call& call, u32 rank, u32 i) {
    if (call.kind == ALL_GATHER) return call.before[i / call.count][i % call.count];
    if (call.kind == ALL_TO_ALL) return call.before[i / call.count][call.count * rank + i % call.count];
    if (call.kind == BROADCAST) return call.before[call.root][i];
    u32 at = call.kind == REDUCE_SCATTER ? call.count * rank + i : i;
    float sum = call.before[0][at];
    for (u32 other = 1; other < call.before.size(); other++) sum += call.before[other][at];
    return sum;
}

bool is_right(Call& call, u32 rank) {
    u32 count = call.kind == ALL_GATHER || call.kind == ALL_TO_ALL ? call.count * (u32)call.before.size() : call.count;
    for (u32 i = 0; i < count; i++) {
        if (call.output_of(rank)[i] != expected(call, rank, i)) return false;
    }
    return true;
}

// Common fields of launches of both kinds.
template <class L> L launch_of(std::vector<Rank>& state, Call& call, u32 me, u32 nth, bool is_other) {
    Rank& rank = state[me];
    L launch = {};
    for (u32 peer = 0; peer < state.size(); peer++) {
        launch.announced[peer] = state[peer].announced.data();
    }
    launch.counts = rank.counts.data();
    launch.input = (const u8*)call.input_of(me);
    launch.output = (u8*)call.output_of(me);
    launch.abort = &rank.abort;
    launch.report = &rank.report;
    launch.gone = &rank.gone;
    launch.failed = &rank.failed;
    launch.patience = ~0ull;
    launch.bytes = call.count * 4;
    launch.fingerprint = 1 + 2 * nth % 5 + (is_other ? 8 : 0);
    launch.ranks = (u32)state.size();
    launch.me = me;
    launch.number = nth;
    return launch;
}

void make_short(std::vector<Rank>& state, Call& call, u32 me, u32 block, u32 nth, bool is_other) {
    ShortLaunch launch = launch_of<ShortLaunch>(state, call, me, nth, is_other);
    for (u32 peer = 0; peer < state.size(); peer++) launch.lines[peer] = state[peer].lines.data();
    launch.kind = call.kind == ALL_GATHER ? GATHER : call.kind == ALL_TO_ALL ? EXCHANGE : COMBINE;
    // Blocks without lines are not started.
    u64 used = call.count == 0 ? 1 : (call.count * 4 + 7) / 8;
    if (block * SHORT_THREADS < used) run_short<F32, Sum>(launch);
}

void make_direct(std::vector<Rank>& state, Call& call, u32 me, u32 block, u32 nth, bool is_other) {
    DirectLaunch launch = launch_of<DirectLaunch>(state, call, me, nth, is_other);
    for (u32 peer = 0; peer < state.size(); peer++) {
        launch.words[peer] = state[peer].words.data();
        launch.fails[peer] = &state[peer].failed;
    }
    launch.kind = call.kind;
    launch.root = call.root;
    u32 lanes = 1 + call.count % SHORT_BLOCKS;
    lanes_of_call = lanes;
    if (block < lanes) run_direct<F32, Sum>(launch);
}

}

int main(int argc, char** argv) {
    if (argc != 6) return 2;
    bool is_short = strcmp(argv[1], "short") == 0;
    Random random{strtoull(argv[2], nullptr, 10)};
    u64 seed = random.state;
    u32 ranks = (u32)strtoul(argv[3], nullptr, 10);
    u32 count = (u32)strtoul(argv[4], nullptr, 10);
    long other = strtol(argv[5], nullptr, 10);
    std::vector<Call> calls;
    for (u32 nth = 0; nth < count; nth++) calls.push_back(make_call(random, is_short, ranks));
    std::vector<Rank> state(ranks);
    for (Rank& rank : state) {
        rank.lines.resize(2ull * ranks * SHORT_BLOCKS * SHORT_THREADS * 2 + 2);
        rank.words.resize(SHORT_BLOCKS * ranks * sizeof(Words) / 8);
        rank.announced.resize(ranks);
        rank.counts.resize(SHORT_BLOCKS);
        rank.ended.resize(count);
        rank.free.resize(count);
    }
    u32 threads = SHORT_BLOCKS * SHORT_THREADS;
    auto body = [&] {
        u32 me = fibers::current().block.x / SHORT_BLOCKS;
        u32 block = fibers::current().block.x % SHORT_BLOCKS;
        bool is_first = block == 0 && threadIdx.x == 0;
        Rank& rank = state[me];
        for (u32 nth = 0; nth < count; nth++) {
            Call& call = calls[nth];
            auto make = is_short ? make_short : make_direct;
            make(state, call, me, block, nth, me == 1 && (long)nth == other);
            // The next call of a rank begins when all threads have ended this one.
            __atomic_fetch_add(&rank.ended[nth], 1, __ATOMIC_RELAXED);
            while (__atomic_load_n(&rank.ended[nth], __ATOMIC_RELAXED) < threads) fibers::pause();
            if (is_first) {
                if (load_relaxed(&rank.failed) == OK && !is_right(call, me)) exit(1);
                for (float& number : call.input[me]) number = -1.0f;
                for (float& number : call.output[me]) number = -1.0f;
                __atomic_store_n(&rank.free[nth], 1, __ATOMIC_RELAXED);
            }
            while (__atomic_load_n(&rank.free[nth], __ATOMIC_RELAXED) == 0) fibers::pause();
        }
        // A rank that aborted has reported to its host, which aborts the others.
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
