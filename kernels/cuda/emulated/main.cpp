// Runs calls on emulated GPUs: reads them from standard input, writes the memory of every rank to
// standard output. `tests/emulated_gpu/` writes the input. All numbers are 64 bits, little endian.
//
//   type operation seed ranks lanes threads slots slot_bytes protocol calls
//   publications and calls of every rank before the first call, and `tells_late`
//   for each call:
//     for each rank: a fingerprint, bytes of the program, the program,
//                    where input and output begin in the memory, bytes of the memory, the memory,
//                    bytes of scratch
//
// Exit codes: 0; 2 the input is wrong; 3 all threads waited for one another; 4 a rank gave up.

#define EMULATED
#include "../walk.cu"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

namespace {

// Looks in a row, by all fibers together, after which nothing can come any more.
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
    u64 report = OK;
    u64 failed = OK;
};

struct Call {
    u64 fingerprint;
    Memory program;
    u64 input;
    u64 output;
    Memory memory;
    Memory scratch;
};

Call read_call() {
    u64 fingerprint = read_number();
    Memory program = read_memory();
    u64 input = read_number();
    u64 output = read_number();
    Memory memory = read_memory();
    Memory scratch(read_number());
    return Call{fingerprint, std::move(program), input, output, std::move(memory), std::move(scratch)};
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
    if (!kernel || ranks == 0 || ranks > MOST_LAUNCHES || lanes == 0 || threads == 0) return 2;
    if (slots == 0 || slots > MOST_SLOTS) return 2;

    std::vector<Rank> state;
    std::vector<Mailbox> mailboxes;
    for (u32 rank = 0; rank < ranks; rank++) {
        std::vector<u64> arrived((u64)ranks * lanes * slots);
        std::vector<u64> consumed((u64)ranks * lanes, before);
        std::vector<u64> published((u64)(ranks + 2) * lanes, before);
        for (u32 lane = 0; lane < lanes; lane++) published[(lane + 1) * (ranks + 2) - 1] = 0;
        std::vector<u64> audiences((u64)lanes * slots);
        state.push_back(Rank{Memory(slots * slot_bytes), arrived, consumed,
                             std::vector<u64>(ranks), published, audiences});
    }
    for (Rank& rank : state) {
        mailboxes.push_back(Mailbox{rank.slots.start(), rank.arrived.data(), rank.consumed.data(),
                                    rank.announced.data()});
    }
    u32 abort = 0;
    std::vector<std::vector<Call>> made(calls);
    std::vector<Launches> launches(calls, Launches{lanes, 0, {}});
    for (u64 number = 0; number < calls; number++) {
        for (u32 rank = 0; rank < ranks; rank++) made[number].push_back(read_call());
        for (u32 rank = 0; rank < ranks; rank++) {
            Call& call = made[number][rank];
            const Program* program = (const Program*)call.program.start();
            launches[number].of[rank] = Launch{
                program, mailboxes.data(), mailboxes[rank], state[rank].published.data(),
                state[rank].audiences.data(), call.memory.start() + call.input,
                call.memory.start() + call.output, call.scratch.start(), &abort,
                &state[rank].report, &state[rank].failed, ~0ull, slot_bytes, slots, protocol, (u32)call.fingerprint,
                (u32)call.program.bytes, ranks, rank, program->element ? program->element : 1,
                EACH, (u32)tells_late, (u32)number};
        }
    }
    // A lane begins its next call while others, of this rank and of others, are in an earlier one.
    auto body = [&] {
        for (Launches& call : launches) {
            kernel(call);
            fibers::await_block();
        }
    };
    if (!fibers::run(ranks * lanes, threads, seed, PATIENCE, body)) return 3;
    u64 report = OK;
    for (Rank& rank : state) {
        // The word that ends waits is one for all ranks, so most reports are consequences of the first.
        bool says_more = report == OK || (u16)report == ABORTED;
        if (rank.report != OK && says_more) report = rank.report;
    }
    if (report != OK) {
        fprintf(stderr, "%llu", report);
        return 4;
    }
    for (std::vector<Call>& ranks_of_call : made) {
        for (Call& call : ranks_of_call) fwrite(call.memory.start(), 1, call.memory.bytes, stdout);
    }
    return fflush(stdout) == 0 ? 0 : 2;
}
