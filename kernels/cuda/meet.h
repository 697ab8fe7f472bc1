// How a call begins and ends whose folds read the buffers of other ranks where they are: each byte is moved
// once, and no slots are needed.
//
// A lane first tells those with its number on other ranks where its buffers are, and hears of theirs. At the
// end it hears from all that they are done with its rank's buffers, because the program may change these then.
//
// Only buffers of others are read, none is written. The buffers of a rank that gives up may be freed or changed:
// so a lane that begins later reads none of them, and one that has read looks at the end whether their rank has
// failed.
#pragma once
#include "lane.h"

// What this lane of rank `from` tells rank `to`.
DEVICE Meeting* meeting_of(const Lane& self, u32 to, u32 from) {
    return self.peers[to].mailbox.meetings + counter_of(self.launch, from, self.lane);
}

// Exchanges addresses with the other ranks.
DEVICE void meet(Lane& self) {
    const Launch& launch = self.launch;
    u64 begun = (self.calls + 1) << MARK_LOG | self.mark;
    for (u32 rank = threadIdx.x; rank < launch.ranks; rank += blockDim.x) {
        Meeting* theirs = meeting_of(self, rank, launch.me);
        store_relaxed((u64*)&theirs->input, (u64)launch.input);
        store_relaxed((u64*)&theirs->output, (u64)launch.output);
        release();
        publish(&theirs->begun, begun);
    }
    for (u32 rank = threadIdx.x; rank < launch.ranks; rank += blockDim.x) {
        Meeting* mine = meeting_of(self, launch.me, rank);
        u64 target = begun >> MARK_LOG << MARK_LOG;
        // A rank that begins after this look waits for this one before it gives up.
        u64 failed = load_relaxed(self.peers[rank].mailbox.failed);
        u64 value = poll(self, &mine->begun, target, rank, self.report);
        if (value == begun && failed != OK) self.report = report_of(self, rank, ABORTED);
        if (value >= target && value != begun) self.report = report_of(self, rank, MISMATCH);
        self.peers[rank].input = (const u8*)load_relaxed((u64*)&mine->input);
        self.peers[rank].output = (const u8*)load_relaxed((u64*)&mine->output);
    }
    __syncthreads();
}

// Waits until all ranks are done with this one's buffers, and makes sure that theirs were what they said. All
// threads of the lane are done.
DEVICE void part_from_all(Lane& self) {
    const Launch& launch = self.launch;
    u64 calls = self.calls + 1;
    for (u32 rank = threadIdx.x; rank < launch.ranks; rank += blockDim.x) {
        release();
        publish(&meeting_of(self, rank, launch.me)->done, calls);
    }
    for (u32 rank = threadIdx.x; rank < launch.ranks; rank += blockDim.x) {
        u64 done = poll(self, &meeting_of(self, launch.me, rank)->done, calls, rank, self.report);
        // A rank that has given up since then may have other bytes there by now. One that has closed
        // ended this call first.
        u64 failed = done >= calls ? load_acquire(self.peers[rank].mailbox.failed) : (u64)OK;
        if (failed != OK && failed != CLOSED) self.report = report_of(self, rank, ABORTED);
    }
    __syncthreads();
}
