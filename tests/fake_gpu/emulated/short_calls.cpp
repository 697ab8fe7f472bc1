// Runs short calls (`short.h`) on emulated GPUs and checks their results: seed, ranks, calls, and the number of
// a call that rank 1 makes in another way, or -1. Writes the kind of the last call, its numbers and whether it is in
// place, and the counts of all calls: bytes and lines that were read and written, and barriers.
//
// Exit codes: 0; 1 a result is wrong; 2 the arguments are; 3 all threads waited for one another; 4 a rank
// aborted, with the reason.

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
    // Threads that have ended each call, and that may continue.
    std::vector<u32> ended;
    std::vector<u32> free;
};

// What a call leaves: all inputs or blocks for the rank, combined or side by side.
enum Kind : u32 { REDUCE = 0, GATHER = 1, EXCHANGE = 2, REDUCE_BLOCKS = 3 };

// A call of all ranks on so many numbers: of a vector, or of a block.
struct Call {
    Kind kind;
    u32 count;
    bool in_place;
    // By rank.
    std::vector<std::vector<float>> input;
    std::vector<std::vector<float>> output;
    std::vector<std::vector<float>> before;

    // Where a rank's input begins.
    float* input_of(u32 rank) {
        if (!in_place) return input[rank].data();
        if (kind == REDUCE_BLOCKS) return input[rank].data();
        return output[rank].data() + (kind == GATHER ? count * rank : 0);
    }

    float* output_of(u32 rank) {
        if (!in_place || kind != REDUCE_BLOCKS) return output[rank].data();
        return input[rank].data() + count * rank;
    }

    bool combines() const { return kind == REDUCE || kind == REDUCE_BLOCKS; }
    bool has_blocks() const { return kind == EXCHANGE || kind == REDUCE_BLOCKS; }
};

Call make_call(Random& random, u32 ranks) {
    const u32 most = SHORT_BLOCKS * SHORT_THREADS * 2;
    u32 count = random.next() % 4 == 0 ? random.next() % 3 : 1 + random.next() % most;
    Kind kind = (Kind)(random.next() % 4);
    Call call{kind, count, random.next() % 2 == 0, {}, {}, {}};
    for (u32 rank = 0; rank < ranks; rank++) {
        std::vector<float> input(call.has_blocks() ? count * ranks : count);
        for (float& number : input) number = (float)random.next() / 7.0f;
        std::vector<float> output(call.combines() ? count : count * ranks);
        call.before.push_back(input);
        call.input.push_back(input);
        call.output.push_back(output);
        float* start = call.input_of(rank);
        for (u32 i = 0; i < input.size(); i++) start[i] = input[i];
    }
    return call;
}

// The expected element `i` of the result of `rank`.
float expected(const Call& call, u32 rank, u32 i) {
    if (call.kind == GATHER) return call.before[i / call.count][i % call.count];
    if (call.kind == EXCHANGE) return call.before[i / call.count][call.count * rank + i % call.count];
    u32 at = call.kind == REDUCE_BLOCKS ? call.count * rank + i : i;
    float sum = call.before[0][at];
    for (u32 other = 1; other < call.before.size(); other++) sum += call.before[other][at];
    return sum;
}

bool is_right(Call& call, u32 rank) {
    for (u32 i = 0; i < call.output[rank].size(); i++) {
        if (call.output_of(rank)[i] != expected(call, rank, i)) return false;
    }
    return true;
}

// The program that lowering makes of the call (`src/lower/exchange.rs`).
ShortProgram program_of(const Call& call, u32 ranks, u32 me) {
    ShortProgram program = {call.count * 4, ranks, me, 0, {}, {}};
    for (u32 rank = 0; rank < ranks; rank++) {
        bool begins = rank == 0 || !call.combines();
        bool is_there = call.in_place && rank == me;
        bool ends = !call.combines() ? !is_there : rank + 1 == ranks;
        program.begins |= (u32)begins << rank;
        program.from[rank] = call.has_blocks() ? rank * program.bytes : 0;
        program.into[rank] = !ends ? UNSTORED : call.combines() ? 0 : rank * program.bytes;
    }
    return program;
}

// Makes the part of a block of rank `me` in call `nth`.
void make_short(std::vector<Rank>& state, Call& call, u32 me, u32 block, u32 nth, bool is_other) {
    Rank& rank = state[me];
    ShortLaunch launch = {};
    for (u32 peer = 0; peer < state.size(); peer++) {
        launch.announced[peer] = state[peer].announced.data();
        launch.lines[peer] = state[peer].lines.data();
    }
    launch.counts = rank.counts.data();
    launch.input = (const u8*)call.input_of(me);
    launch.output = (u8*)call.output_of(me);
    launch.abort = &rank.abort;
    launch.report = &rank.report;
    launch.gone = &rank.gone;
    launch.failed = &rank.failed;
    launch.patience = ~0ull;
    launch.fingerprint = 1 + 2 * nth % 5 + (is_other ? 8 : 0);
    launch.number = nth;
    launch.program = program_of(call, (u32)state.size(), me);
    // Blocks without lines are not started.
    u64 used = call.count == 0 ? 1 : (call.count * 4 + 7) / 8;
    if (block * SHORT_THREADS < used) run_short<F32, Sum>(launch);
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
    for (Rank& rank : state) {
        rank.lines.resize(2ull * ranks * SHORT_BLOCKS * SHORT_THREADS * 2 + 2);
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
            make_short(state, call, me, block, nth, me == 1 && (long)nth == other);
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
    const Call& last = calls.back();
    printf("%u %u %u %llu %llu %llu %llu %llu", last.kind, last.count, last.in_place, tally.read, tally.written,
           tally.lines_read, tally.lines_written, tally.barriers);
    return 0;
}
