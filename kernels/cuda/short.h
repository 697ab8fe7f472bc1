// Calls of few bytes in which every rank reads what every rank has: all-reduce, all-gather and barrier.
// No program is walked: each thread has eight bytes, writes them as a line for every other rank, and
// reads one line from each.
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

// What a wait of a call without a program asks, here and in `direct.h`. A lane has its own answers.
template <class Call> DEVICE u32 rank_of(const Call&, u32 peer) { return peer; }

template <class Call> DEVICE bool is_other_call(const Call& self, u32 peer) {
    u64 told = load_relaxed(self.launch.announced[self.launch.me] + peer);
    return is_other(told, self.launch.number, self.launch.fingerprint);
}

template <class Call> DEVICE u64 report_of(const Call& self, u32 peer, u32 status) {
    return (u64)self.launch.number << 32 | peer << 16 | status;
}

// The lines that `writer` writes for `reader` in this call.
DEVICE u64* lines_of(const ShortCall& self, u32 reader, u32 writer) {
    u64 nth = (self.calls & 1) * self.launch.ranks + writer;
    return self.launch.lines[reader] + nth * (SHORT_BLOCKS * SHORT_THREADS * 2);
}

// The elements of `T` from byte `at` on, at most eight bytes.
template <class T> DEVICE u32 elements_from(u64 at, u64 bytes) {
    u64 left = at < bytes ? bytes - at : 0;
    return (u32)((left < 8 ? left : 8) / sizeof(typename T::Stored));
}

template <class T> DEVICE Piece<T, 8> load_piece(const u8* from, u32 count) {
    Piece<T, 8> piece;
    piece.bits = 0;
    for (u32 i = 0; i < count; i++) piece.elements[i] = ((const typename T::Stored*)from)[i];
    return piece;
}

template <class T> DEVICE void store_piece(u8* into, const Piece<T, 8>& piece, u32 count) {
    for (u32 i = 0; i < count; i++) ((typename T::Stored*)into)[i] = piece.elements[i];
}

// Removes the flags of lines that this call does not write, before they are as old as a period of flags:
// a reader would take one for new.
DEVICE void wipe_unused(const ShortCall& self, u64 lines) {
    if (!begins_half(self.calls, 2)) return;
    for (u32 peer = 0; peer < self.launch.ranks; peer++) {
        u64 first = (u64)blockIdx.x * SHORT_THREADS;
        for (u64 at = threadIdx.x; at < SHORT_THREADS; at += blockDim.x) {
            u64* line = lines_of(self, peer, self.launch.me) + (first + at) * 2;
            if (first + at >= lines) store_line(line, 0, 0);
        }
    }
}

// Writes line `nth` for all other ranks, and combines those of all ranks in their order, or stores them side
// by side.
template <class T, class Op>
DEVICE u64 exchange_line(const ShortCall& self, u64 nth, u32 flag, const Piece<T, 8>& mine) {
    const ShortLaunch& launch = self.launch;
    u64 at = nth * 8;
    u32 count = elements_from<T>(at, launch.bytes);
    for (u32 hop = 1; hop < launch.ranks; hop++) {
        u32 peer = (launch.me + hop) % launch.ranks;
        store_eight(lines_of(self, peer, launch.me) + nth * 2, mine.bits, flag);
    }
    Piece<T, 8> sum, next;
    sum.bits = 0;
    for (u32 peer = 0; peer < launch.ranks; peer++) {
        next = mine;
        if (peer != launch.me) {
            const u64* line = lines_of(self, launch.me, peer) + nth * 2;
            u64 report = await_line(self, peer, line, flag, next.bits);
            if (report != OK) return report;
        }
        if (launch.gathers) {
            store_piece<T>(launch.output + (u64)peer * launch.bytes + at, next, count);
        } else if (peer == 0) {
            sum = next;
        } else {
            combine<T, Op, 8>(sum, next, count);
        }
    }
    if (!launch.gathers) store_piece<T>(launch.output + at, sum, count);
    return OK;
}

// Makes the call, each block its lines.
template <class T, class Op> DEVICE void run_short(const ShortLaunch& launch) {
    SHARED(ShortCall, self);
    u64 lines = launch.bytes == 0 ? 1 : ((u64)launch.bytes + 7) / 8;
    u64 nth = (u64)blockIdx.x * SHORT_THREADS + threadIdx.x;
    // What is loaded here is on its way at the same time.
    Piece<T, 8> mine = load_piece<T>(launch.input + nth * 8, elements_from<T>(nth * 8, launch.bytes));
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
    if (threadIdx.x < launch.ranks && blockIdx.x == 0) {
        u64 call = announcement(launch.number, launch.fingerprint);
        store_relaxed(launch.announced[threadIdx.x] + launch.me, call);
    }
    u32 flag = flag_of(mark_of(launch.fingerprint, launch.number, self.calls), self.calls);
    wipe_unused(self, lines);
    // Whoever has passed a barrier sees what the others did before it.
    if (launch.bytes == 0) release();
    u64 report = nth < lines ? exchange_line<T, Op>(self, nth, flag, mine) : (u64)OK;
    if (launch.bytes == 0) release();
    if (report != OK) self.report = report;
    __syncthreads();
    if (threadIdx.x != 0) return;
    if (self.report == OK) {
        launch.counts[blockIdx.x] = self.calls + 1;
    } else {
        give_up(launch, self.report);
    }
}
