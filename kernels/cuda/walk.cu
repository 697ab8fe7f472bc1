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
// The loops have no compiler-specific hints but `machine.h`, so that a C++ compiler runs the same text
// on a CPU (`emulated/`).

#include "numbers.h"

// ---- Where things lie

struct Range {
    u64 start;
    u64 bytes;
};

// Window `k` of an extent.
DEVICE Range window(const Extent& extent, u32 element, u32 k) {
    u64 skipped = (u64)k * extent.quotient + (k < extent.remainder ? k : extent.remainder);
    u64 count = extent.quotient + (k < extent.remainder ? 1 : 0);
    return Range{extent.start + skipped * element, count * element};
}

// The part of `lane`, in elements of the window.
DEVICE Range part(u64 count, u32 lanes, u32 lane) {
    u64 quotient = count / lanes;
    u64 remainder = count % lanes;
    u64 start = lane * quotient + (lane < remainder ? lane : remainder);
    return Range{start, quotient + (lane < remainder ? 1 : 0)};
}

// The list that begins `offset` bytes behind the header.
template <class T> DEVICE const T* list(const Program* program, u64 offset) {
    return (const T*)((const u8*)program + offset);
}

DEVICE u32 below(const Numbering& numbering, const u32* before, u32 stage) {
    u32 at = stage > numbering.first ? stage - numbering.first : 0;
    return before[at < numbering.befores ? at : numbering.befores - 1];
}

DEVICE u64 until(const Numbering& numbering, const u64* sum, u32 clock) {
    u32 at = clock > numbering.first ? clock - numbering.first : 0;
    u32 last = numbering.sums - 1;
    return at <= last ? sum[at] : sum[last] + (u64)(at - last) * numbering.folds;
}

// The number of window `k` of publishing fold `nth` among the publications of its rank in this call.
DEVICE u64 number(const Program* program, u32 rank, u32 nth, u32 stage, u32 k) {
    const Numbering& numbering = list<Numbering>(program, program->numberings)[rank];
    if (numbering.windows == 1) return nth;
    const u32* before = list<u32>(program, numbering.before);
    const u64* sum = list<u64>(program, numbering.sum);
    u32 clock = k + stage;
    u32 ended = clock + 1 > numbering.windows ? clock + 1 - numbering.windows : 0;
    u32 earlier = clock > numbering.windows ? clock - numbering.windows : 0;
    return until(numbering, sum, clock) - until(numbering, sum, earlier)
        + (nth - below(numbering, before, ended));
}

// ---- Waiting

// Gives up when the host says so, or after `spin_limit` looks.
struct Patience {
    u64 looks;

    DEVICE u32 look(const Launch& launch) {
        PAUSE();
        looks += 1;
        if (looks % 1024 == 0 && load_relaxed(launch.abort)) return ABORTED;
        return launch.spin_limit && looks > launch.spin_limit ? SPUN_TOO_LONG : OK;
    }
};

// Waits until `*counter` is at least `target`.
DEVICE u32 await(const Launch& launch, const u64* counter, u64 target) {
    Patience patience = {0};
    while (load_acquire(counter) < target) {
        u32 status = patience.look(launch);
        if (status != OK) return status;
    }
    return OK;
}

// ---- A fold

enum { MOST_SOURCES = 16 };

// What one lane knows while it walks.
struct Lane {
    Launch launch;
    Program program;
    u32 lane;
    // Publications of this rank in this call.
    u64 published;
    // Why the lane gives up. One thread writes `status` before all threads read it; any thread may
    // write `line_status` while others still read `status`.
    u32 status;
    u32 line_status;
    // Of the fold that runs: where its sources lie, and where its result goes.
    const u8* from[MOST_SOURCES];
    u64 number[MOST_SOURCES];
    u32 is_line[MOST_SOURCES];
    u8* into;
    u8* slot;
    u64 position;
};

DEVICE u8* memory(const Launch& launch, u32 place) {
    return place == INPUT ? launch.input : place == OUTPUT ? launch.output : launch.scratch;
}

// Where the part of a lane begins in a slot. Each lane has its own piece of the slot, however long the
// publication is: lanes are not in step, so one may still read what another one writes over.
DEVICE u64 within_slot(const Launch& launch, u32 lane) {
    return launch.slot_bytes / launch.lanes / 16 * 16 * lane;
}

// Waits for one source and says where it lies.
DEVICE u32 await_source(Lane& self, const Source& source, u32 at, u32 k, Range mine) {
    const Launch& launch = self.launch;
    if (source.place != BOARD) {
        Range range = window(source.extent, self.program.element, k);
        self.from[at] = memory(launch, source.place) + range.start + mine.start;
        self.is_line[at] = 0;
        return OK;
    }
    u64 position = launch.published[source.peer]
        + number(launch.program, source.peer, source.publication, source.stage, k);
    const Mailbox& theirs = launch.mailboxes[source.peer];
    self.from[at] = theirs.slots + position % launch.slots * launch.slot_bytes
        + within_slot(launch, self.lane);
    self.number[at] = position + 1;
    self.is_line[at] = launch.protocol == LOW_LATENCY;
    if (launch.protocol == LOW_LATENCY) return OK;
    const Mailbox& ours = launch.mailboxes[self.program.me];
    u64* arrived = ours.arrived + (u64)source.peer * launch.lanes + self.lane;
    return await(launch, arrived, position + 1);
}

// Waits until the readers of what lies in the slot are done with it, and takes the slot.
DEVICE u32 await_room(Lane& self, const Fold& fold) {
    const Launch& launch = self.launch;
    const Mailbox& ours = launch.mailboxes[self.program.me];
    self.position = launch.published[self.program.me] + self.published;
    u64 slot = self.position % launch.slots;
    u64* audience = launch.audiences + (u64)self.lane * launch.slots + slot;
    u64 done = self.position + 1 > launch.slots ? self.position + 1 - launch.slots : 0;
    for (u32 reader = 0; reader < self.program.ranks; reader++) {
        if (*audience >> reader & 1) {
            u64* consumed = ours.consumed + (u64)reader * launch.lanes + self.lane;
            u32 status = await(launch, consumed, done);
            if (status != OK) return status;
        }
    }
    *audience = fold.audience;
    self.slot = ours.slots + slot * launch.slot_bytes
        + within_slot(launch, self.lane);
    return OK;
}

// One thread awaits all that window `k` of the fold needs.
DEVICE u32 prepare(Lane& self, const Fold& fold, const Source* sources, u32 k, Range mine) {
    for (u32 at = 0; at < fold.count; at++) {
        u32 status = await_source(self, sources[at], at, k, mine);
        if (status != OK) return status;
    }
    self.into = 0;
    if (fold.into != NOWHERE) {
        Range range = window(fold.extent, self.program.element, k);
        self.into = memory(self.launch, fold.into) + range.start + mine.start;
    }
    self.slot = 0;
    return fold.audience ? await_room(self, fold) : OK;
}

// Eight bytes of a source.
template <class T> union Eight {
    u64 bits;
    typename T::Stored elements[8 / sizeof(typename T::Stored)];
};

// Reads the eight bytes from `at` on from a line, as soon as it has arrived.
template <class T>
DEVICE u32 read_line(const Lane& self, u32 source, u64 at, Eight<T>& eight) {
    const u64* line = (const u64*)(self.from[source] + at * 2);
    u32 flag = (u32)self.number[source];
    Patience patience = {0};
    for (;;) {
        u64 low, high;
        load_line(line, low, high);
        if ((u32)(low >> 32) == flag && (u32)(high >> 32) == flag) {
            eight.bits = (low & 0xffffffffull) | high << 32;
            return OK;
        }
        u32 status = patience.look(self.launch);
        if (status != OK) return status;
    }
}

// Reads the `count` elements from `at` on, which fit in eight bytes.
template <class T>
DEVICE u32 read(const Lane& self, u32 source, u64 at, u32 count, Eight<T>& eight) {
    if (self.is_line[source]) return read_line<T>(self, source, at, eight);
    const typename T::Stored* from = (const typename T::Stored*)(self.from[source] + at);
    for (u32 i = 0; i < count; i++) eight.elements[i] = from[i];
    return OK;
}

// Combines `bytes` bytes of all sources, in their order, and stores the result where it belongs.
// Each thread takes eight bytes at a time.
template <class T, class Op>
DEVICE u32 combine(const Lane& self, const Fold& fold, u64 bytes) {
    const u32 element = sizeof(typename T::Stored);
    u64 step = (u64)blockDim.x * 8;
    for (u64 at = (u64)threadIdx.x * 8; at < bytes; at += step) {
        u32 count = (u32)((bytes - at < 8 ? bytes - at : 8) / element);
        Eight<T> sum, next;
        sum.bits = 0;
        next.bits = 0;
        u32 status = read<T>(self, 0, at, count, sum);
        for (u32 source = 1; source < fold.count && status == OK; source++) {
            status = read<T>(self, source, at, count, next);
            for (u32 i = 0; i < count; i++) {
                typename T::Value a = T::load(sum.elements[i]);
                sum.elements[i] = T::store(Op::of(a, T::load(next.elements[i])));
            }
        }
        if (status != OK) return status;
        if (self.into) {
            typename T::Stored* into = (typename T::Stored*)(self.into + at);
            for (u32 i = 0; i < count; i++) into[i] = sum.elements[i];
        }
        if (self.slot && self.launch.protocol == LOW_LATENCY) {
            u64 flag = (self.position + 1) << 32;
            store_line((u64*)(self.slot + at * 2), (sum.bits & 0xffffffffull) | flag,
                       sum.bits >> 32 | flag);
        } else if (self.slot) {
            typename T::Stored* slot = (typename T::Stored*)(self.slot + at);
            for (u32 i = 0; i < count; i++) slot[i] = sum.elements[i];
        }
    }
    return OK;
}

// Tells the readers of the publication, and the writers of the sources. All threads of the block
// are done with both.
DEVICE void tell(Lane& self, const Fold& fold, const Source* sources) {
    const Launch& launch = self.launch;
    u64 mine = (u64)self.program.me * launch.lanes + self.lane;
    for (u32 at = 0; at < fold.count; at++) {
        if (sources[at].place == BOARD) {
            store_release(launch.mailboxes[sources[at].peer].consumed + mine, self.number[at]);
        }
    }
    if (fold.audience) {
        for (u32 reader = 0; reader < self.program.ranks && launch.protocol == SIMPLE; reader++) {
            if (fold.audience >> reader & 1) {
                store_release(launch.mailboxes[reader].arrived + mine, self.position + 1);
            }
        }
        self.published += 1;
    }
}

// ---- The walk

// Executes window `k` of a fold.
template <class T, class Op> DEVICE bool step(Lane& self, const Fold& fold, u32 k) {
    const Source* sources = list<Source>(self.launch.program, self.program.sources) + fold.first;
    Range whole = window(fold.extent, self.program.element, k);
    Range mine = part(whole.bytes / self.program.element, self.launch.lanes, self.lane);
    mine.start *= self.program.element;
    mine.bytes *= self.program.element;
    if (threadIdx.x == 0) self.status = prepare(self, fold, sources, k, mine);
    __syncthreads();
    if (self.status != OK) return false;
    u32 status = combine<T, Op>(self, fold, mine.bytes);
    if (status != OK) self.line_status = status;
    __syncthreads();
    if (self.line_status != OK) return false;
    if (threadIdx.x == 0) tell(self, fold, sources);
    __syncthreads();
    return true;
}

// Walks the program of rank `blockIdx.x / lanes` as lane `blockIdx.x % lanes`: all windows of all
// folds in the order of their clocks, window k at clock k + stage.
template <class T, class Op> DEVICE void walk(const Launch* launches, u32 lanes) {
    SHARED(Lane, self);
    const Launch* launch = launches + blockIdx.x / lanes;
    if (threadIdx.x == 0) {
        self.launch = *launch;
        self.program = *launch->program;
        self.lane = blockIdx.x % lanes;
        self.published = 0;
        self.status = OK;
        self.line_status = OK;
    }
    __syncthreads();
    const Fold* folds = list<Fold>(launch->program, self.program.folds);
    const u32* first_of = list<u32>(launch->program, self.program.first_of);
    u32 windows = self.program.windows;
    u32 stages = self.program.stages;
    bool goes_on = true;
    for (u32 clock = 0; goes_on && stages > 0 && clock + 1 < windows + stages; clock++) {
        u32 oldest = clock + 1 > windows ? clock + 1 - windows : 0;
        u32 newest = clock < stages - 1 ? clock : stages - 1;
        for (u32 at = first_of[oldest]; goes_on && at < first_of[newest + 1]; at++) {
            goes_on = step<T, Op>(self, folds[at], clock - folds[at].stage);
        }
    }
    if (!goes_on && threadIdx.x == 0) {
        store_relaxed(launch->status, self.status != OK ? self.status : self.line_status);
    }
}

#ifndef EMULATED
// A module has one kernel: -DTYPE=F32 -DOPERATION=Sum -DNAME=walk_f32_sum.
KERNEL(NAME)(const Launch* launches, u32 lanes) { walk<TYPE, OPERATION>(launches, lanes); }
#endif
