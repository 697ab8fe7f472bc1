// The steps of a walk (`walk.cu`), in their order. A step is a window of a fold.
//
// With `LOW_LATENCY` all threads of a lane make each step together: lines say by themselves that they have
// arrived. With `SIMPLE` the last warp posts and the others move bytes. A post is a fence, which takes
// about as long as the other rank needs to see the counter, and then the counter. While the posters post a
// step, the movers await the sources of the next one and move its bytes. They are never more than that ahead.
//
// Movers and posters meet at two kinds of barriers, each there twice, for steps with even and with odd
// numbers:
// - Movers wait at `READY` until all of them have what the step needs. Posters have been there, without
//   waiting, when they have posted the step before the last one: so what that step has left in `StepData`
//   may be written over.
// - Posters wait at `DONE` until all movers have moved the bytes of the step. Movers pass it.
#pragma once
#include "fold.h"

// ---- After a fold

// The number of publications of the writer of source `at` that we are done with; zero if another source
// of the fold tells more about that writer, or if no publication brings the source.
DEVICE u64 credit(const StepData& data, const Step& step, u32 at) {
    const Source* sources = step.sources;
    if (data.number[at] == 0) return 0;
    for (u32 other = 0; other < step.fold->count; other++) {
        bool is_alike = sources[other].peer == sources[at].peer;
        bool is_later = data.number[other] > data.number[at]
            || (data.number[other] == data.number[at] && other > at);
        if (is_alike && is_later) return 0;
    }
    return data.number[at];
}

// Notes what writers and readers will be told.
DEVICE void note(Lane& self, StepData& data, const Step& step) {
    for (u32 at = threadIdx.x; at < step.fold->count; at += self.movers) {
        data.credits[at] = credit(data, step, at);
    }
    if (threadIdx.x == 0 && step.fold->audience) {
        self.audiences[step.position & (self.launch.slots - 1)] = step.fold->audience;
    }
}

// Notes the bytes of this lane's publication, for the courier of the rank.
DEVICE void note_bytes(const Lane& self, const Step& step, u64 bytes) {
    if (threadIdx.x != 0 || !step.fold->audience) return;
    u64 mine = arrived_of(self, self.launch.me, step.position);
    store_relaxed(self.launch.ours.arrived + mine, bytes);
}

// Some threads of a block: those from `first` on.
struct Threads {
    u32 first;
    u32 count;

    DEVICE u32 mine() const { return threadIdx.x - first; }
};

// Tells the readers of the publication. All movers have written it.
DEVICE void tell_readers(Lane& self, const Step& step, const Threads& threads) {
    u64 arrived = arrived_of(self, self.launch.me, step.position);
    for (u32 reader = threads.mine(); reader < self.launch.ranks; reader += threads.count) {
        if (step.fold->audience >> reader & 1) {
            release();
            publish(self.peers[reader].mailbox.arrived + arrived, arrival_of(self, step.position));
        }
    }
}

// Tells the writers of the sources. All movers have read them.
DEVICE void tell_writers(Lane& self, const StepData& data, const Step& step, const Threads& threads) {
    u64 mine = counter_of(self.launch, self.launch.me, self.lane);
    for (u32 at = threads.mine(); at < step.fold->count; at += threads.count) {
        u64 done = data.credits[at];
        if (done == 0) continue;
        Peer& writer = self.peers[step.sources[at].peer];
        if (self.launch.tells_late) {
            writer.done = done;
        } else {
            release();
            publish(writer.mailbox.consumed + mine, done);
        }
    }
}

// ---- A step

// The window of a step, and this lane's part of it.
struct Parts {
    Range whole;
    Range mine;
};

DEVICE Parts parts_of(const Lane& self, const Step& step) {
    Range whole = window(step.fold->extent, self.program->windows, step.k);
    return Parts{whole, part(whole.bytes, self.launch.lanes, self.lane)};
}

// Moves the lines of a step. All threads have seen where they lie.
template <class T, class Op>
DEVICE u64 move_lines(const Lane& self, const StepData& data, const Step& step, const Parts& parts) {
    u32 flag = flag_of(self.mark, step.position);
    if (parts.whole.bytes > 0) return fold_eights<T, Op, true>(self, data, step, 0, parts.mine.bytes, flag);
    bool is_first = self.lane == 0 && threadIdx.x == 0;
    return is_first ? pass_empty_line(self, data, step, flag) : (u64)OK;
}

DEVICE bool give_up_waiting(Lane& self, const StepData& data) {
    if (threadIdx.x == 0) self.report = data.waits;
    return false;
}

// What all threads do with `LOW_LATENCY`.
template <class T, class Op> struct Together {
    DEVICE bool make(Lane& self, const Step& step) {
        StepData& data = self.data[0];
        Parts parts = parts_of(self, step);
        prepare(self, data, step, parts.mine);
        __syncthreads();
        if (data.waits != OK) return give_up_waiting(self, data);
        if (step.fold->audience && begins_half(step.position, self.launch.slots)) {
            wipe(self, data);
            __syncthreads();
        }
        u64 report = move_lines<T, Op>(self, data, step, parts);
        if (report != OK) self.report = report;
        note(self, data, step);
        __syncthreads();
        if (self.report != OK) return false;
        tell_writers(self, data, step, Threads{0, blockDim.x});
        return true;
    }

    DEVICE bool end(Lane&) { return true; }
};

// Barriers of a block besides that of all its threads, by the lowest bit of a step's number.
enum { READY = 1, DONE = 3 };

DEVICE u32 parity(u32 nth) { return nth & 1; }

// What the first threads do with `SIMPLE`.
template <class T, class Op> struct Mover {
    DEVICE bool make(Lane& self, const Step& step) {
        StepData& data = self.data[parity(step.nth)];
        Range mine = parts_of(self, step).mine;
        prepare(self, data, step, mine);
        wait_at(READY + parity(step.nth), blockDim.x);
        bool goes_on = data.waits == OK;
        if (goes_on) {
            execute<T, Op>(self, data, step, mine.bytes);
            note(self, data, step);
            note_bytes(self, step, mine.bytes);
        }
        if (threadIdx.x == 0) data.gives_up = !goes_on;
        arrive_at(DONE + parity(step.nth), blockDim.x);
        if (goes_on) return true;
        leave_barriers(self, step.nth + 1);
        return give_up_waiting(self, data);
    }

    // Posters have been at the barrier of the next step, if there is one, and no mover will be.
    DEVICE void leave_barriers(const Lane& self, u32 next) {
        u32 steps = self.program->fold_count * self.program->windows;
        if (next < steps) wait_at(READY + parity(next), blockDim.x);
    }

    DEVICE bool end(Lane&) { return true; }
};

// What the last threads do with `SIMPLE`.
struct Poster {
    // The step that is not posted yet. There is none before the first one.
    Step last;

    DEVICE bool make(Lane& self, const Step& step) {
        arrive_at(READY + parity(step.nth), blockDim.x);
        bool goes_on = end(self);
        last = step;
        return goes_on;
    }

    DEVICE bool end(Lane& self) {
        if (!last.fold) return true;
        wait_at(DONE + parity(last.nth), blockDim.x);
        const StepData& data = self.data[parity(last.nth)];
        if (data.gives_up) return false;
        Threads posters = {self.movers, POSTERS};
        tell_readers(self, last, posters);
        tell_writers(self, data, last, posters);
        return true;
    }
};

// ---- All steps

// Makes all windows of all folds in the order of their clocks: window k at clock k + stage. False if it gave
// up.
template <class Thread> DEVICE bool make_all(Lane& self, Thread thread) {
    const Program* program = self.program;
    const Fold* folds = list<Fold>(program, program->folds);
    const Source* sources = list<Source>(program, program->sources);
    const u32* first_of = list<u32>(program, program->first_of);
    u32 windows = program->windows;
    u32 stages = program->stages;
    Step step = {0, 0, 0, 0, self.peers[self.launch.me].before};
    for (u32 clock = 0; stages > 0 && clock + 1 < windows + stages; clock++) {
        u32 oldest = clock + 1 > windows ? clock + 1 - windows : 0;
        u32 newest = clock < stages - 1 ? clock : stages - 1;
        for (u32 at = first_of[oldest]; at < first_of[newest + 1]; at++) {
            step.fold = folds + at;
            step.sources = sources + step.fold->first;
            step.k = clock - step.fold->stage;
            if (!thread.make(self, step)) return false;
            step.nth += 1;
            step.position += step.fold->audience != 0;
        }
    }
    return thread.end(self);
}

template <class T, class Op> DEVICE bool run(Lane& self) {
    if (self.launch.protocol == LOW_LATENCY) return make_all(self, Together<T, Op>{});
    if (threadIdx.x < self.movers) return make_all(self, Mover<T, Op>{});
    return make_all(self, Poster{});
}
