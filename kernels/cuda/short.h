// Calls of few bytes whose program is one exchange (`src/lower/exchange.rs`): every rank publishes for every
// other one, and folds what it reads of each. Each thread has eight bytes of every publication. It writes them
// as a line for their reader, reads one line from each rank, and makes the folds of these.
//
// Lines lie in the memory of the rank that reads them, in two halves that calls take in turn. Whoever has
// a line of call n from every rank knows that all of them have ended call n - 1, so the half of call n - 1
// is free for call n + 1. So nobody counts what was read.
//
// A block does this for itself, with those of its number on other ranks: it has its own lines, and counts
// its own calls. Calls of one rank run one after the other (`transports/src/cuda/order.rs`).
#pragma once
#include "fold.h"

// What the threads of a block share.
struct ShortCall {
    ShortLaunch launch;
    // The number of earlier calls of the block.
    u64 calls;
    // Why the rank has failed before, if it has.
    u64 failed;
    // Why the block gives up.
    u64 report;
};

// What a wait of such a call asks. A lane has its own answers.
DEVICE u32 rank_of(const ShortCall&, u32 peer) { return peer; }

DEVICE bool is_other_call(const ShortCall& self, u32 peer) {
    u64 told = load_relaxed(self.launch.announced[self.launch.program.me] + peer);
    return is_other(told, self.launch.number, self.launch.fingerprint);
}

DEVICE u64 report_of(const ShortCall& self, u32 peer, u32 status) {
    return (u64)self.launch.number << 32 | peer << 16 | status;
}

// The lines that `writer` writes for `reader` in this call.
DEVICE u64* lines_of(const ShortCall& self, u32 reader, u32 writer) {
    u64 nth = (self.calls & 1) * self.launch.program.ranks + writer;
    return self.launch.lines[reader] + nth * (SHORT_BLOCKS * SHORT_THREADS * 2);
}

// The elements of `T` from byte `at` on, at most eight bytes.
template <class T> DEVICE u32 elements_from(u64 at, u64 bytes) {
    u64 left = at < bytes ? bytes - at : 0;
    return (u32)((left < 8 ? left : 8) / sizeof(typename T::Stored));
}

// Removes the flags of lines that this call does not write, before they are as old as a period of flags:
// a reader would take one for new.
DEVICE void wipe_unused(const ShortCall& self, u64 lines) {
    if (!begins_half(self.calls, 2)) return;
    for (u32 peer = 0; peer < self.launch.program.ranks; peer++) {
        u64 first = (u64)blockIdx.x * SHORT_THREADS;
        for (u64 at = threadIdx.x; at < SHORT_THREADS; at += blockDim.x) {
            u64* line = lines_of(self, peer, self.launch.program.me) + (first + at) * 2;
            if (first + at >= lines) store_line(line, 0, 0);
        }
    }
}

// Line `nth` of each rank for this one.
struct LinesHere {
    const ShortCall& self;
    u64 nth;
    u32 marked;

    DEVICE const u64* place(u32 peer) const {
        return lines_of(self, self.launch.program.me, peer) + nth * 2;
    }
    DEVICE u32 flag(u32) const { return marked; }
    DEVICE u32 peer(u32 peer) const { return peer; }
};

// The eight bytes of line `nth` of what this rank has for `peer`.
template <class T> DEVICE Piece<T, 8> mine_for(const ShortLaunch& launch, u32 peer, u64 nth) {
    const ShortProgram& program = launch.program;
    u32 count = elements_from<T>(nth * 8, program.bytes);
    return load_piece<T>(launch.input + program.from[peer] + nth * 8, count);
}

// Folds the eight bytes of all ranks from `at` on.
template <class T, class Op>
DEVICE void leave_line(const ShortLaunch& launch, u64 at, const Piece<T, 8>& mine,
                       const u64 (&eights)[MOST_SHORT_RANKS]) {
    const ShortProgram& program = launch.program;
    u32 count = elements_from<T>(at, program.bytes);
    Piece<T, 8> sum, next;
    sum.bits = 0;
    UNROLL for (u32 peer = 0; peer < MOST_SHORT_RANKS; peer++) {
        if (peer >= program.ranks) continue;
        next.bits = eights[peer];
        if (peer == program.me) next = mine;
        if (program.begins >> peer & 1) {
            sum = next;
        } else {
            combine<T, Op, 8>(sum, next, count);
        }
        u32 into = program.into[peer];
        if (into != UNSTORED) store_piece<T>(launch.output + into + at, sum, count);
    }
}

// Writes line `nth` for all other ranks, reads theirs, and leaves the result. `mine` is this rank's for itself.
template <class T, class Op>
DEVICE u64 exchange_line(const ShortCall& self, u64 nth, u32 flag, const Piece<T, 8>& mine) {
    const ShortProgram& program = self.launch.program;
    u32 me = program.me;
    for (u32 hop = 1; hop < program.ranks; hop++) {
        u32 peer = (me + hop) % program.ranks;
        Piece<T, 8> theirs = mine;
        if (program.from[peer] != program.from[me]) theirs = mine_for<T>(self.launch, peer, nth);
        store_eight(lines_of(self, peer, me) + nth * 2, theirs.bits, flag);
    }
    u64 eights[MOST_SHORT_RANKS] = {};
    u32 others = ((1u << program.ranks) - 1) & ~(1u << me);
    u64 report = await_lines(self, LinesHere{self, nth, flag}, others, eights);
    if (report == OK) leave_line<T, Op>(self.launch, nth * 8, mine, eights);
    return report;
}

// Makes the call, each block its lines.
template <class T, class Op> DEVICE void run_short(const ShortLaunch& launch) {
    SHARED(ShortCall, self);
    const ShortProgram& program = launch.program;
    u64 lines = program.bytes == 0 ? 1 : ((u64)program.bytes + 7) / 8;
    u64 nth = (u64)blockIdx.x * SHORT_THREADS + threadIdx.x;
    // What is loaded here is on its way at the same time.
    Piece<T, 8> mine = mine_for<T>(launch, program.me, nth);
    if (threadIdx.x == 0) {
        self.failed = load_relaxed(launch.failed);
        self.calls = launch.counts[blockIdx.x];
        self.launch = launch;
        self.report = OK;
    }
    __syncthreads();
    if (self.failed != OK) {
        if (threadIdx.x == 0) store_relaxed(launch.report, self.failed);
        return;
    }
    if (threadIdx.x < program.ranks && blockIdx.x == 0) {
        u64 call = announcement(launch.number, launch.fingerprint);
        store_relaxed(launch.announced[threadIdx.x] + program.me, call);
    }
    u32 flag = flag_of(mark_of(launch.fingerprint, launch.number, self.calls), self.calls);
    wipe_unused(self, lines);
    // Whoever has passed a barrier sees what the others did before it.
    if (program.bytes == 0) release();
    u64 report = nth < lines ? exchange_line<T, Op>(self, nth, flag, mine) : (u64)OK;
    if (program.bytes == 0) release();
    if (report != OK) self.report = report;
    __syncthreads();
    if (threadIdx.x != 0) return;
    if (self.report == OK) {
        launch.counts[blockIdx.x] = self.calls + 1;
    } else {
        give_up(launch, self.report);
    }
}
