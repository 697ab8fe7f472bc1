// Runs calls on emulated GPUs: reads them from standard input, writes the memory of every rank to
// standard output. `tests/fake_gpu/kernel/` writes the input. All numbers are 64 bits, little endian.
//
//   type operation seed ranks lanes threads slots slot_bytes protocol calls
//   publications and calls of every rank before the first call, and `tells_late`
//   whether all calls of a rank run at the same time, whether the hosts have ended all walks before,
//   the rank that its host aborts, and after how many polls; `ranks` if none
//   for each call:
//     for each rank: a fingerprint, whether the call is a barrier,
//                    bytes of the program, the program,
//                    where input and output begin in the memory, bytes of the memory, the memory,
//                    bytes of scratch
//
// Writes for each call and rank: whether the rank's host would take the call for done when its kernel has
// ended, and the memory. At the end: the counts of `machine.h`.
//
// Exit codes: 0; 2 the input is wrong; 3 deadlock of all threads; 4 a rank aborted; 5 a rank ended a
// barrier before another one began it; 6 a rank aborted first, without a reason; 7 the threads of a
// block violate the rules of a barrier.

#define EMULATED
#include "walk.cu"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

namespace {

// Polls in a row, by all fibers together, after which no event can follow.
constexpr uint64_t PATIENCE = 2000000;

typedef void (*Walk)(const Launches&);

#ifndef ONE_KERNEL
template <class T> Walk of_number(u64 operation) {
    switch (operation) {
        case 0: return walk<T, Sum>;
        case 1: return walk<T, Product>;
        case 2: return walk<T, Min>;
        case 3: return walk<T, Max>;
        default: return nullptr;
    }
}

template <class T> Walk of_integer(u64 operation) {
    switch (operation) {
        case 4: return walk<T, And>;
        case 5: return walk<T, Or>;
        case 6: return walk<T, Xor>;
        default: return of_number<T>(operation);
    }
}

#endif

// In the order of `DataType` and `BinaryOp`. With `ONE_KERNEL`, only sums of f32.
Walk find(u64 type, u64 operation) {
#ifdef ONE_KERNEL
    return type == 2 && operation == 0 ? walk<F32, Sum> : nullptr;
#else
    switch (type) {
        case 0: return of_number<F16>(operation);
        case 1: return of_number<BF16>(operation);
        case 2: return of_number<F32>(operation);
        case 3: return of_number<F64>(operation);
        case 4: return of_integer<I8>(operation);
        case 5: return of_integer<I16>(operation);
        case 6: return of_integer<I32>(operation);
        case 7: return of_integer<I64>(operation);
        case 8: return of_integer<U8>(operation);
        case 9: return of_integer<U16>(operation);
        case 10: return of_integer<U32>(operation);
        case 11: return of_integer<U64>(operation);
        default: return nullptr;
    }
#endif
}

void read(void* into, size_t bytes) {
    if (bytes > 0 && fread(into, 1, bytes, stdin) != bytes) exit(2);
}

u64 read_number() {
    u64 number;
    read(&number, sizeof number);
    return number;
}

// Bytes at a multiple of 16, as device memory begins.
struct Memory {
    std::vector<u64> words;
    u64 bytes = 0;

    explicit Memory(u64 bytes) : words(bytes / 8 + 3), bytes(bytes) {}

    u8* start() {
        u64 address = (u64)words.data();
        return (u8*)words.data() + (16 - address % 16) % 16;
    }
};

Memory read_memory() {
    Memory memory(read_number());
    read(memory.start(), memory.bytes);
    return memory;
}

struct Rank {
    Memory slots;
    std::vector<u64> arrived;
    std::vector<u64> consumed;
    std::vector<u64> announced;
    std::vector<u64> published;
    std::vector<u64> audiences;
    u32 abort = 0;
    u64 report = OK;
    u64 gone = 0;
    u64 failed = OK;
    // The report that its host has seen first.
    u64 seen = OK;
};

struct Call {
    u64 fingerprint;
    u64 is_barrier;
    Memory program;
    u64 input;
    u64 output;
    Memory memory;
    Memory scratch;
    // Lanes that have ended, and points in time: when the first lane began, and when the last one ended.
    u32 ended = 0;
    u64 begin = 0;
    u64 end = 0;
    // The report of the rank, and the memory, when the last lane ended.
    u64 report = OK;
    std::vector<u8> left = {};

    void keep() { left.assign(memory.start(), memory.start() + memory.bytes); }
};

Call read_call() {
    u64 fingerprint = read_number();
    u64 is_barrier = read_number();
    Memory program = read_memory();
    u64 input = read_number();
    u64 output = read_number();
    Memory memory = read_memory();
    Memory scratch(read_number());
    return Call{fingerprint, is_barrier, std::move(program), input, output, std::move(memory), std::move(scratch)};
}

// Calls and ranks, from the view of the threads of the GPUs and their hosts. Nothing here orders
// the kernels of two lanes.
struct World {
    std::vector<Rank> ranks;
    // By call and rank.
    std::vector<std::vector<Call>> calls;
    u32 lanes;
    u64 time = 0;
    u64 running = 0;

    u64 tick() { return __atomic_add_fetch(&time, 1, __ATOMIC_RELAXED); }

    // All threads of a lane begin the call.
    void begin(Call& call, u32 lane) {
        if (threadIdx.x == 0 && lane == 0) call.begin = tick();
        fibers::await_block();
    }

    // All threads of a lane have ended the call of `rank`.
    void end(Call& call, Rank& rank) {
        fibers::await_block();
        if (threadIdx.x != 0) return;
        if (__atomic_add_fetch(&call.ended, 1, __ATOMIC_RELAXED) != lanes) return;
        call.end = tick();
        call.report = load_relaxed(&rank.report);
#ifndef WATCHED
        // Nobody else reads the buffers of a call that is done, so the program may change them.
        call.keep();
        memset(call.memory.start(), 0x5a, call.memory.bytes);
#endif
    }

    // True if all lanes of the first call of `rank` hold their locks, or have ended.
    bool has_begun(u32 rank) {
        if (__atomic_load_n(&calls[0][rank].ended, __ATOMIC_RELAXED) == lanes) return true;
        u64 words = ranks.size() + 2;
        for (u32 lane = 0; lane < lanes; lane++) {
            if (load_relaxed(&ranks[rank].published[(lane + 1) * words - 1]) == 0) return false;
        }
        return true;
    }

    // True if the last call of `rank` has ended.
    bool has_ended(u64 rank) {
        return __atomic_load_n(&calls.back()[rank].ended, __ATOMIC_RELAXED) == lanes;
    }

    void leave() { __atomic_fetch_sub(&running, 1, __ATOMIC_RELAXED); }

    bool is_running() { return __atomic_load_n(&running, __ATOMIC_RELAXED) > 0; }
};

// The hosts' part: they abort one rank, and all of them some time after a rank has reported.
struct Hosts {
    World& world;
    u64 asked;
    u64 asked_after;
    u64 told_after;
    bool have_asked = false;

    void look() {
        for (Rank& rank : world.ranks) {
            if (rank.seen == OK) rank.seen = load_relaxed(&rank.report);
        }
    }

    bool has_report() {
        for (Rank& rank : world.ranks) {
            if (rank.seen != OK) return true;
        }
        return false;
    }

    void ask(Rank& rank) {
        have_asked = true;
        store_relaxed(&rank.abort, 1);
    }

    void watch() {
        u64 late = 0;
        for (u64 looks = 0; world.is_running(); looks++) {
            if (asked < world.ranks.size() && looks == asked_after) ask(world.ranks[asked]);
            look();
            if (has_report() && late++ == told_after) {
                for (Rank& rank : world.ranks) ask(rank);
            }
            fibers::pause();
        }
    }
};

// True if some rank has ended the barrier before another one began it.
bool is_passed_early(const std::vector<Call>& barrier) {
    u64 begin = 0;
    for (const Call& call : barrier) begin = call.begin > begin ? call.begin : begin;
    for (const Call& call : barrier) {
        if (call.is_barrier && call.report == OK && call.end < begin) return true;
    }
    return false;
}

}

int main() {
    u64 type = read_number();
    Walk kernel = find(type, read_number());
    u64 seed = read_number();
    u32 ranks = (u32)read_number();
    u32 lanes = (u32)read_number();
    u32 threads = (u32)read_number();
    u32 slots = (u32)read_number();
    u64 slot_bytes = read_number();
    u32 protocol = (u32)read_number();
    u64 calls = read_number();
    u64 before = read_number();
    u64 tells_late = read_number();
    bool at_once = read_number() != 0;
    u64 failed = read_number();
    u64 asked = read_number();
    u64 asked_after = read_number();
    if (!kernel || ranks == 0 || ranks > MOST_LAUNCHES || lanes == 0 || threads <= POSTERS) return 2;
    if (slots == 0 || slots > MOST_SLOTS) return 2;
    if (at_once && calls * ranks > MOST_LAUNCHES) return 2;

    World world{{}, {}, lanes};
    std::vector<Rank>& state = world.ranks;
    std::vector<Mailbox> mailboxes;
    for (u32 rank = 0; rank < ranks; rank++) {
        std::vector<u64> arrived((u64)ranks * lanes * slots);
        std::vector<u64> consumed((u64)ranks * lanes, before);
        std::vector<u64> published((u64)(ranks + 2) * lanes, before);
        for (u32 lane = 0; lane < lanes; lane++) published[(lane + 1) * (ranks + 2) - 1] = 0;
        std::vector<u64> audiences((u64)lanes * slots);
        state.push_back(Rank{Memory(slots * slot_bytes), arrived, consumed, std::vector<u64>(ranks),
                             published, audiences});
        state.back().failed = failed;
    }
    for (Rank& rank : state) {
        mailboxes.push_back(Mailbox{rank.slots.start(), rank.arrived.data(), rank.consumed.data(),
                                    rank.announced.data()});
    }
    // Of calls that run at the same time, the first one has all.
    u32 blocks = ranks * lanes * (u32)(at_once ? calls : 1);
    std::vector<Launches> launches(at_once ? 1 : calls, Launches{ranks * (u32)(at_once ? calls : 1), 0, {}});
    std::vector<std::vector<Call>>& made = world.calls;
    made.resize(calls);
    for (u64 number = 0; number < calls; number++) {
        for (u32 rank = 0; rank < ranks; rank++) made[number].push_back(read_call());
        for (u32 rank = 0; rank < ranks; rank++) {
            Call& call = made[number][rank];
            const Program* program = (const Program*)call.program.start();
            u32 nth = at_once ? (u32)number * ranks + rank : rank;
            Launch& launch = launches[at_once ? 0 : number].of[nth];
            // Calls have different numbers of lanes, equal on all ranks.
            u32 used = at_once ? lanes : 1 + (u32)(number + seed) % lanes;
            launch = Launch{
                program, mailboxes.data(), mailboxes[rank], state[rank].published.data(),
                state[rank].audiences.data(), call.memory.start() + call.input,
                call.memory.start() + call.output, call.scratch.start(), &state[rank].abort,
                &state[rank].report, &state[rank].gone, &state[rank].failed, ~0ull, slot_bytes, slots,
                protocol, (u32)call.fingerprint, (u32)call.program.bytes, ranks, rank,
                used, lanes, nth * lanes, EACH, (u32)tells_late, (u32)number};
        }
    }
    Hosts hosts{world, asked, asked_after, seed * 7919 % 3000, failed != OK};
    world.running = (u64)blocks * threads;
    // A lane begins its next call while others, of this rank and of others, are in an earlier one.
    auto body = [&] {
        if (blockIdx.x == blocks) {
            if (threadIdx.x == 0) hosts.watch();
            return;
        }
        u32 rank = blockIdx.x / lanes % ranks;
        if (blockIdx.x >= ranks * lanes) {
            // Of calls that run at the same time, this one begins later on all ranks.
            while (!world.has_begun(rank)) fibers::pause();
            for (u64 turn = 0; turn < seed % 60 * 7; turn++) fibers::pause();
        }
        // Others arrive when the aborted rank has started all its calls.
        bool is_late = asked < ranks && rank != asked && seed % 4 > 1;
        while (is_late && !world.has_ended(asked)) fibers::pause();
        for (u64 nth = 0; nth < launches.size(); nth++) {
            Call& call = made[at_once ? blockIdx.x / lanes / ranks : nth][rank];
            world.begin(call, blockIdx.x % lanes);
            kernel(launches[nth]);
            world.end(call, state[rank]);
        }
        world.leave();
    };
    if (!fibers::run(blocks + 1, threads, seed, PATIENCE, body)) return 3;
    u64 report = OK;
    for (Rank& rank : state) {
        // A rank that was aborted by its host reports less than the rank that was the cause.
        bool says_more = report == OK || (u16)report == ABORTED;
        if (rank.report != OK && says_more) report = rank.report;
        if (rank.seen != OK && rank.seen != rank.report) return 6;
        if ((u16)rank.report == ABORTED && !hosts.have_asked) return 6;
    }
    for (std::vector<Call>& ranks_of_call : made) {
        if (is_passed_early(ranks_of_call)) return 5;
        for (Call& call : ranks_of_call) {
            u64 is_done = call.report == OK;
            fwrite(&is_done, sizeof is_done, 1, stdout);
            if (call.left.empty()) call.keep();
            fwrite(call.left.data(), 1, call.left.size(), stdout);
        }
    }
    fwrite(&tally, sizeof tally, 1, stdout);
    if (fflush(stdout) != 0) return 2;
    if (report == OK) return 0;
    fprintf(stderr, "%llu", report);
    return 4;
}
