// Walks a lowered program on a GPU: the same folds, in the same order, as `src/execute/run.rs` on a
// CPU. To be read beside it.
//
// A block of threads is a lane. All lanes of a rank walk the whole program, and each does its part of
// every window: lane l takes the l-th of `lanes` equal parts. Sender and receiver of a publication cut
// it alike, and so do all folds that touch the same bytes of a rank. So a lane waits only for the lane
// with its number on another rank.
//
// A publication stays in the memory of the rank that makes it, and its readers fetch it from there.
// Counters lie where they are awaited, so a wait reads local memory only. They are numbers of
// publications that never go back, so nothing has to be reset between two calls.
//
// What is published has a mark of its call, so a rank that makes another call is noticed by whoever reads
// from it. A rank that gives up does not count what it has published, so it makes no call after that.
//
// Every wait ends: the host may ask for that, a wait has a longest time, and a rank that waits looks
// now and then whether the awaited rank makes another call.
//
// The loops have no compiler-specific hints but `machine.h`, so that a C++ compiler runs the same text
// on a CPU (`emulated/`).

#include "short.h"
#include "step.h"

// The counts of a lane: by rank, then of calls, then the lock.
DEVICE u64* counts_of(const Launch& launch, u32 lane) {
    return launch.published + (u64)lane * (launch.ranks + 2);
}

// Finds out whether the rank has failed, or another walk uses the mailboxes. One thread, which reads
// nothing else, so that the answers come together with what the others read.
DEVICE void enter(Lane& self, const Launch& launch, u32 lane) {
    u64 failed = load_relaxed(launch.failed);
    u64 taken = take(counts_of(launch, lane) + launch.ranks + 1);
    self.failed = failed;
    self.overlaps = taken != 0;
}

// Begins what other walks leave alone.
DEVICE void begin(Lane& self, const Launch& launch, u32 lane, u64* copy) {
    if (threadIdx.x == blockDim.x - 1) enter(self, launch, lane);
    if (threadIdx.x == 0) {
        self.launch = launch;
        self.lane = lane;
        self.movers = blockDim.x - (launch.protocol == SIMPLE ? POSTERS : 0);
        self.report = OK;
        for (StepData& data : self.data) data.waits = OK;
        self.program = launch.bytes <= SHORT_PROGRAM ? (const Program*)copy : launch.program;
    }
    for (u32 rank = threadIdx.x; rank < launch.ranks; rank += blockDim.x) {
        Peer& peer = self.peers[rank];
        peer.mailbox = launch.mailboxes[rank];
        peer.seen = load_acquire(launch.ours.consumed + counter_of(launch, rank, lane));
        peer.done = 0;
    }
    const u64* from = (const u64*)launch.program;
    for (u32 at = threadIdx.x; at < launch.bytes / 8 && launch.bytes <= SHORT_PROGRAM;
         at += blockDim.x) {
        copy[at] = from[at];
    }
    __syncthreads();
}

// Reads what earlier walks have counted, and tells the other ranks which call this is.
DEVICE void resume(Lane& self) {
    const Launch& launch = self.launch;
    const u64* counts = counts_of(launch, self.lane);
    u64 calls = counts[launch.ranks];
    if (threadIdx.x == 0) {
        self.calls = calls;
        u32 number = launch.other == EACH ? launch.number : 0;
        self.mark = mark_of(launch.fingerprint, number, calls);
    }
    for (u32 rank = threadIdx.x; rank < launch.ranks; rank += blockDim.x) {
        Peer& peer = self.peers[rank];
        peer.before = counts[rank];
        u32 number = launch.other == EACH ? launch.number : (u32)calls;
        u64 call = announcement(number, launch.fingerprint);
        if (self.lane == 0) store_relaxed(peer.mailbox.announced + launch.me, call);
    }
    const u64* audiences = launch.audiences + (u64)self.lane * launch.slots;
    for (u32 slot = threadIdx.x; slot < launch.slots; slot += blockDim.x) {
        self.audiences[slot] = audiences[slot];
    }
    __syncthreads();
}

// Counts the publications of all ranks, and the call, and makes sure that no rank made another call.
DEVICE void count(Lane& self) {
    const Launch& launch = self.launch;
    const Numbering* numberings = list<Numbering>(self.program, self.program->numberings);
    u64* counts = counts_of(launch, self.lane);
    for (u32 rank = threadIdx.x; rank < launch.ranks; rank += blockDim.x) {
        const Peer& peer = self.peers[rank];
        counts[rank] = peer.before + (u64)numberings[rank].folds * numberings[rank].windows;
        if (self.lane == 0 && is_other_call(self, rank)) {
            self.report = report_of(self, rank, MISMATCH);
        }
    }
    u64* audiences = launch.audiences + (u64)self.lane * launch.slots;
    for (u32 slot = threadIdx.x; slot < launch.slots; slot += blockDim.x) {
        audiences[slot] = self.audiences[slot];
    }
    if (threadIdx.x == 0) counts[launch.ranks] = self.calls + 1;
}

// Tells writers what the lane is done with, and the next walk that it may read what `count` wrote.
DEVICE void leave(const Lane& self) {
    const Launch& launch = self.launch;
    u64 mine = counter_of(launch, launch.me, self.lane);
    for (u32 rank = threadIdx.x; rank < launch.ranks; rank += blockDim.x) {
        const Peer& peer = self.peers[rank];
        if (peer.done == 0) continue;
        release();
        publish(peer.mailbox.consumed + mine, peer.done);
    }
    // Not a thread that waits for the above, if there are others.
    if (threadIdx.x == blockDim.x - 1) {
        release();
        publish(counts_of(launch, self.lane) + launch.ranks + 1, 0);
    }
}

// Tells the host why the first lane of the rank gave up. Every lane that ends without its result does so:
// the first one may not have come to it yet.
DEVICE void tell_host(const Lane& self, u64 report) { store_relaxed(self.launch.report, report); }

DEVICE void give_up(const Lane& self, u64 report) { give_up(self.launch, report); }

// Walks the program of a launch as one of its lanes.
template <class T, class Op> DEVICE void walk_as(Lane& self, const Launch& launch, u32 lane, u64* copy) {
    begin(self, launch, lane, copy);
    if (self.failed != OK) {
        if (threadIdx.x == 0) tell_host(self, self.failed);
        return;
    }
    if (self.overlaps) {
        if (threadIdx.x == 0) give_up(self, report_of(self, self.launch.me, OVERLAP));
        return;
    }
    resume(self);
    bool is_done = run<T, Op>(self);
    __syncthreads();
    if (is_done) count(self);
    __syncthreads();
    if (self.report == OK) {
        leave(self);
    } else if (threadIdx.x == 0) {
        give_up(self, self.report);
    }
}

// Copies the part of a lane of a launch without ranks.
DEVICE void copy_as(const Launch& launch, u32 lane) {
    Range mine = part(launch.slot_bytes, launch.lanes, lane);
    const u8* from = launch.input + mine.start;
    u8* into = launch.output + mine.start;
    u64 whole = ((u64)from | (u64)into) % 16 == 0 ? mine.bytes / 16 * 16 : 0;
    u64 stride = (u64)blockDim.x * 16;
    const int rows = 4;
    u64 at = (u64)threadIdx.x * 16;
    for (; at + (rows - 1) * stride < whole; at += rows * stride) {
        Sixteen row[rows];
        UNROLL for (int i = 0; i < rows; i++) row[i] = *(const Sixteen*)(from + at + i * stride);
        UNROLL for (int i = 0; i < rows; i++) *(Sixteen*)(into + at + i * stride) = row[i];
    }
    for (; at < whole; at += stride) *(Sixteen*)(into + at) = *(const Sixteen*)(from + at);
    for (at = whole + threadIdx.x; at < mine.bytes; at += blockDim.x) into[at] = from[at];
}

// Makes those of the launches that this block is a lane of. They are in one order on all ranks, so one that
// waits for another rank waits for a block that has come as far, or comes there.
template <class T, class Op> DEVICE void walk(const Launches& launches) {
    SHARED(Lane, self);
    SHARED_WORDS(copy, SHORT_PROGRAM / 8);
    for (u32 at = 0; at < launches.count; at++) {
        const Launch& launch = launches.of[at];
        u32 lane = (blockIdx.x + gridDim.x - launch.first) % gridDim.x;
        if (lane >= launch.lanes) continue;
        if (launch.ranks == 0) {
            copy_as(launch, lane);
        } else {
            walk_as<T, Op>(self, launch, lane, copy);
        }
        // What a block knows is written over for the next one.
        __syncthreads();
    }
}

#ifndef EMULATED
// A module has two kernels: -DTYPE=F32 -DOPERATION=Sum -DNAME=walk_f32_sum.
KERNEL(NAME)(BY_VALUE Launches launches) { walk<TYPE, OPERATION>(launches); }
KERNEL(short_call)(BY_VALUE ShortLaunch launch) { run_short<TYPE, OPERATION>(launch); }
#endif
