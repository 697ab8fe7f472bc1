// Long calls of ranks that share one GPU and one process: each reads the others' buffers where they are.
// A byte is moved once, and no slots are needed.
//
// A lane first tells those with its number on other ranks where its buffers are, and hears of theirs. It
// combines its part of its rank's chunk from all inputs, in rank order, tells that, and copies the other
// chunks from the outputs of their ranks when these tell the same. At the end it hears from all that
// they are done with its rank's buffers, because the program may change these then.
//
// Only buffers of others are read, none is written. A rank that gives up may get its buffers changed while
// others read them, so whoever has read looks at the end whether their rank has failed.
#pragma once
#include "short.h"

// What a lane tells one of another rank. Counters are numbers of calls, from one.
struct Words {
    const u8* input;
    const u8* output;
    // Above the mark of the call.
    u64 begun;
    u64 reduced;
    u64 done;
    u64 unused[3];
};
// `DIRECT_WORDS` of `transports/src/cuda/layout.rs`.
static_assert(sizeof(Words) == 64, "lanes have so much room for words");

// What the threads of a lane share.
struct DirectCall {
    DirectLaunch launch;
    u64 calls;
    u32 lane;
    u32 lanes;
    u64 failed;
    u64 report;
    const u8* input[MOST_SHORT_RANKS];
    const u8* output[MOST_SHORT_RANKS];
};

// What this lane of rank `from` tells rank `to`.
DEVICE Words* words_of(const DirectCall& self, u32 to, u32 from) {
    return (Words*)self.launch.words[to] + (u64)self.lane * self.launch.ranks + from;
}

// Waits until `*counter`, which `peer` writes, is at least `target`.
DEVICE bool await_word(DirectCall& self, const u64* counter, u64 target, u32 peer, u64& value) {
    value = poll(self, counter, target, peer, self.report);
    return value >= target;
}

// Exchanges addresses with the other ranks, one thread each.
DEVICE void meet(DirectCall& self) {
    const DirectLaunch& launch = self.launch;
    u32 mark = mark_of(launch.fingerprint, launch.number, self.calls);
    u64 begun = (self.calls + 1) << MARK_LOG | mark;
    u32 peer = threadIdx.x;
    if (peer < launch.ranks) {
        Words* theirs = words_of(self, peer, launch.me);
        store_relaxed((u64*)&theirs->input, (u64)launch.input);
        store_relaxed((u64*)&theirs->output, (u64)launch.output);
        if (self.lane == 0) {
            u64 call = announcement(launch.number, launch.fingerprint);
            store_relaxed(launch.announced[peer] + launch.me, call);
        }
        release();
        publish(&theirs->begun, begun);
        Words* mine = words_of(self, launch.me, peer);
        u64 value;
        if (await_word(self, &mine->begun, begun >> MARK_LOG << MARK_LOG, peer, value)) {
            if (value != begun) self.report = report_of(self, peer, MISMATCH);
            self.input[peer] = (const u8*)load_relaxed((u64*)&mine->input);
            self.output[peer] = (const u8*)load_relaxed((u64*)&mine->output);
        }
    }
    __syncthreads();
}

// Tells all ranks that this one has made its chunk, or is done. All threads of the lane are.
DEVICE void tell_all(const DirectCall& self, bool is_done) {
    if (threadIdx.x >= self.launch.ranks) return;
    Words* theirs = words_of(self, threadIdx.x, self.launch.me);
    release();
    publish(is_done ? &theirs->done : &theirs->reduced, self.calls + 1);
}

// Buffers that are read from the same offset on. The list is in the memory of the block.
struct Sources {
    const u8* const* from;
    u32 count;
    u64 offset;

    DEVICE const u8* of(u32 nth) const { return from[nth] + offset; }
};

template <class T, class Op, int Rows>
DEVICE void combine_rows(const Sources& sources, u8* into, u64 at, u64 step) {
    Piece<T, 16> sum[Rows], next[Rows];
    UNROLL for (int row = 0; row < Rows; row++) {
        sum[row].bits = *(const Sixteen*)(sources.of(0) + at + row * step);
    }
    for (u32 nth = 1; nth < sources.count; nth++) {
        UNROLL for (int row = 0; row < Rows; row++) {
            next[row].bits = *(const Sixteen*)(sources.of(nth) + at + row * step);
        }
        UNROLL for (int row = 0; row < Rows; row++) {
            combine<T, Op, 16>(sum[row], next[row], 16 / sizeof(typename T::Stored));
        }
    }
    UNROLL for (int row = 0; row < Rows; row++) *(Sixteen*)(into + at + row * step) = sum[row].bits;
}

// Combines `bytes` bytes of all sources into `into`.
template <class T, class Op> DEVICE void combine_all(const Sources& sources, u8* into, u64 bytes) {
    u64 bits = (u64)into;
    for (u32 nth = 0; nth < sources.count; nth++) bits |= (u64)sources.of(nth);
    const int rows = 8;
    u64 whole = bits % 16 == 0 ? bytes / 16 * 16 : 0;
    u64 step = (u64)blockDim.x * 16;
    u64 at = (u64)threadIdx.x * 16;
    for (; at + (rows - 1) * step < whole; at += rows * step) {
        combine_rows<T, Op, rows>(sources, into, at, step);
    }
    for (; at < whole; at += step) combine_rows<T, Op, 1>(sources, into, at, step);
    for (at = whole + (u64)threadIdx.x * 8; at < bytes; at += (u64)blockDim.x * 8) {
        u32 count = elements_from<T>(at, bytes);
        Piece<T, 8> sum = load_piece<T>(sources.of(0) + at, count);
        for (u32 nth = 1; nth < sources.count; nth++) {
            combine<T, Op, 8>(sum, load_piece<T>(sources.of(nth) + at, count), count);
        }
        store_piece<T>(into + at, sum, count);
    }
}

// The part of this lane in the chunk of `rank`.
DEVICE Range chunk_part(const DirectCall& self, u32 rank) {
    Range chunk = part(self.launch.bytes, self.launch.ranks, rank);
    Range mine = part(chunk.bytes, self.lanes, self.lane);
    return Range{chunk.start + mine.start, mine.bytes};
}

// Combines this rank's chunk of all inputs. A reduce-scatter has blocks instead of chunks, and one is its
// whole output.
template <class T, class Op> DEVICE void reduce_own(const DirectCall& self) {
    const DirectLaunch& launch = self.launch;
    bool is_block = launch.kind == REDUCE_SCATTER;
    Range mine = is_block ? part(launch.bytes, self.lanes, self.lane) : chunk_part(self, launch.me);
    u64 skipped = is_block ? launch.bytes * launch.me : 0;
    Sources sources = {self.input, launch.ranks, skipped + mine.start};
    combine_all<T, Op>(sources, launch.output + mine.start, mine.bytes);
}

// Copies bytes from `offset` on of a buffer of the list.
template <class T, class Op>
DEVICE void copy_from(const u8* const* from, u64 offset, u8* into, u64 bytes) {
    Sources source = {from, 1, offset};
    if (source.of(0) != into) combine_all<T, Op>(source, into, bytes);
}

// Copies the chunks of the other ranks when they have made them.
template <class T, class Op> DEVICE void gather_chunks(DirectCall& self) {
    const DirectLaunch& launch = self.launch;
    u32 peer = threadIdx.x;
    u64 value;
    if (peer < launch.ranks && peer != launch.me) {
        await_word(self, &words_of(self, launch.me, peer)->reduced, self.calls + 1, peer, value);
    }
    __syncthreads();
    if (self.report != OK) return;
    for (u32 hop = 1; hop < launch.ranks; hop++) {
        u32 rank = (launch.me + hop) % launch.ranks;
        Range theirs = chunk_part(self, rank);
        copy_from<T, Op>(&self.output[rank], theirs.start, launch.output + theirs.start,
                         theirs.bytes);
    }
}

// Moves the bytes of the call.
template <class T, class Op> DEVICE void move_bytes(DirectCall& self) {
    const DirectLaunch& launch = self.launch;
    Range mine = part(launch.bytes, self.lanes, self.lane);
    if (launch.kind == ALL_GATHER) {
        for (u32 hop = 0; hop < launch.ranks; hop++) {
            u32 rank = (launch.me + hop) % launch.ranks;
            u8* into = launch.output + launch.bytes * rank + mine.start;
            copy_from<T, Op>(&self.input[rank], mine.start, into, mine.bytes);
        }
        return;
    }
    if (launch.kind == BROADCAST) {
        u8* into = launch.output + mine.start;
        copy_from<T, Op>(&self.input[launch.root], mine.start, into, mine.bytes);
        return;
    }
    reduce_own<T, Op>(self);
    if (launch.kind == REDUCE_SCATTER) return;
    __syncthreads();
    tell_all(self, false);
    gather_chunks<T, Op>(self);
}

// Ends the call when all ranks are done with this one's buffers, and theirs were what they said.
DEVICE void part_from_all(DirectCall& self) {
    tell_all(self, true);
    u32 peer = threadIdx.x;
    if (peer < self.launch.ranks) {
        u64 value;
        u64* done = &words_of(self, self.launch.me, peer)->done;
        bool is_done = await_word(self, done, self.calls + 1, peer, value);
        // A rank that has given up since then may have other bytes there by now. One that has closed
        // ended this call first.
        u64 failed = is_done ? load_acquire(self.launch.fails[peer]) : (u64)OK;
        if (failed != OK && failed != CLOSED) self.report = report_of(self, peer, ABORTED);
    }
    __syncthreads();
}

template <class T, class Op> DEVICE void run_direct(const DirectLaunch& launch) {
    SHARED(DirectCall, self);
    if (threadIdx.x == 0) {
        self.launch = launch;
        self.lane = blockIdx.x;
        self.lanes = gridDim.x;
        self.failed = load_relaxed(launch.failed);
        self.calls = launch.counts[blockIdx.x];
        self.report = OK;
    }
    __syncthreads();
    if (self.failed != OK) {
        if (threadIdx.x == 0) store_relaxed(launch.report, self.failed);
        return;
    }
    meet(self);
    if (self.report == OK) move_bytes<T, Op>(self);
    __syncthreads();
    if (self.report == OK) part_from_all(self);
    if (threadIdx.x != 0) return;
    if (self.report == OK) {
        launch.counts[blockIdx.x] = self.calls + 1;
    } else {
        give_up(launch, self.report);
    }
}
