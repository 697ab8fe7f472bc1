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
// Every wait ends: the host may ask for that, a wait has a longest time, and a rank that waits looks
// now and then whether the awaited rank makes another call.
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

// The part of `lane` of `bytes` bytes. All parts but the last are multiples of sixteen bytes, so that a
// part begins as aligned as the whole.
DEVICE Range part(u64 bytes, u32 lanes, u32 lane) {
    u64 packs = (bytes + 15) / 16;
    u64 quotient = packs / lanes;
    u64 remainder = packs % lanes;
    u64 start = (lane * quotient + (lane < remainder ? lane : remainder)) * 16;
    u64 length = (quotient + (lane < remainder ? 1 : 0)) * 16;
    if (start >= bytes) return Range{bytes, 0};
    return Range{start, length < bytes - start ? length : bytes - start};
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

// ---- What a lane knows

enum {
    MOST_SOURCES = 16,
    MOST_RANKS = 64,
    MOST_SLOTS = 64,
    // Programs up to this are copied to the memory of the block, where they are read at once.
    SHORT_PROGRAM = 16384,
};

// A rank, as a lane knows it.
struct Peer {
    Mailbox mailbox;
    // Its publications in earlier calls.
    u64 before;
    // Publications of ours that it is known to be done with.
    u64 seen;
    // Publications of it that we are done with, if it is told at the end.
    u64 done;
};

// What one lane knows while it walks. Barriers order what its threads read and write here.
struct Lane {
    Launch launch;
    const Program* program;
    u32 lane;
    u32 lanes;
    // The number of earlier calls.
    u64 calls;
    Peer peers[MOST_RANKS];
    // By slot: the readers of what lies there.
    u64 audiences[MOST_SLOTS];
    // Why the lane gives up: a status, and above its 32 bits the rank that was awaited. Threads write
    // `waits` before a barrier and `lines` after it, while others may still read `waits`.
    u64 waits;
    u64 lines;
    // Of the fold that runs: where its sources lie, and where its result goes.
    const u8* from[MOST_SOURCES];
    u64 number[MOST_SOURCES];
    // What the writer of each source is told.
    u64 credits[MOST_SOURCES];
    u8* into;
    u8* slot;
};

// Where the part of a lane begins in a slot. Each lane has its own piece of the slot, however long the
// publication is: lanes are not in step, so one may still read what another one writes over.
DEVICE u64 piece(const Lane& self) { return self.launch.slot_bytes / self.lanes / 16 * 16; }

DEVICE u8* slot_of(const Lane& self, const Mailbox& mailbox, u64 position) {
    u64 slot = position & (self.launch.slots - 1);
    return mailbox.slots + slot * self.launch.slot_bytes + piece(self) * self.lane;
}

// The place of a counter for a lane: counters of one rank lie side by side.
DEVICE u64 counter_of(u32 rank, u32 lane, u32 lanes) { return (u64)rank * lanes + lane; }

// ---- Waiting

// True if `peer` makes another call than this rank does. A call that has not begun, or that is over,
// is not known.
DEVICE bool is_other_call(const Lane& self, u32 peer) {
    u64 told = load_relaxed(self.launch.ours.announced + peer);
    return (u32)(told >> 32) == (u32)(self.calls + 1) && (u32)told != self.launch.fingerprint;
}

// A report that names `peer`.
DEVICE u64 report_of(const Lane& self, u32 peer, u32 status) {
    u32 rank = self.launch.other == EACH ? peer : self.launch.other;
    return (u64)rank << 32 | status;
}

// What a wait for `peer` does between two looks. Zero, or a report of why the wait is given up.
struct Patience {
    u32 peer;
    u32 looks;
    u64 since;

    DEVICE u64 look(const Lane& self) {
        PAUSE();
        looks += 1;
        if (looks % 1024 != 0) return OK;
        if (load_relaxed(self.launch.abort)) return report_of(self, peer, ABORTED);
        if (is_other_call(self, peer)) return report_of(self, peer, MISMATCH);
        u64 time = now();
        if (since == 0) since = time;
        return time - since > self.launch.patience ? report_of(self, peer, TIMED_OUT) : (u64)OK;
    }
};

// Waits until `*counter`, which `peer` writes, is at least `target`. Returns what it is.
DEVICE u64 await(Lane& self, const u64* counter, u64 target, u32 peer) {
    Patience patience = {peer, 0, 0};
    for (;;) {
        u64 value = load_acquire(counter);
        if (value >= target) return value;
        u64 report = patience.look(self);
        if (report != OK) {
            self.waits = report;
            return value;
        }
    }
}

// ---- What a fold needs

DEVICE u8* memory(const Launch& launch, u32 place) {
    return place == INPUT ? launch.input : place == OUTPUT ? launch.output : launch.scratch;
}

// Says where source `at` lies, and waits for it.
DEVICE void await_source(Lane& self, const Source& source, u32 at, u32 k, Range mine) {
    const Launch& launch = self.launch;
    if (source.place != BOARD) {
        Range range = window(source.extent, launch.element, k);
        self.from[at] = memory(launch, source.place) + range.start + mine.start;
        self.number[at] = 0;
        return;
    }
    const Peer& peer = self.peers[source.peer];
    u64 position = peer.before
        + number(self.program, source.peer, source.publication, source.stage, k);
    self.from[at] = slot_of(self, peer.mailbox, position);
    self.number[at] = position + 1;
    if (launch.protocol == LOW_LATENCY) return;
    const u64* arrived = launch.ours.arrived + counter_of(source.peer, self.lane, self.lanes);
    await(self, arrived, position + 1, source.peer);
}

// Waits until `reader` is done with what lies in the slot of publication `position`.
DEVICE void await_room(Lane& self, u64 position, u32 reader) {
    u32 slots = self.launch.slots;
    bool reads = self.audiences[position & (slots - 1)] >> reader & 1;
    u64 done = position + 1 > slots ? position + 1 - slots : 0;
    if (!reads || self.peers[reader].seen >= done) return;
    const u64* consumed = self.launch.ours.consumed + counter_of(reader, self.lane, self.lanes);
    self.peers[reader].seen = await(self, consumed, done, reader);
}

// Each thread awaits one source, or one reader of the slot, of window `k` of the fold.
DEVICE void prepare(Lane& self, const Fold& fold, const Source* sources, u32 k, Range mine,
                    u64 position) {
    for (u32 at = threadIdx.x; at < fold.count; at += blockDim.x) {
        await_source(self, sources[at], at, k, mine);
    }
    for (u32 reader = threadIdx.x; reader < self.launch.ranks && fold.audience;
         reader += blockDim.x) {
        await_room(self, position, reader);
    }
    if (threadIdx.x == 0) {
        Range range = window(fold.extent, self.launch.element, k);
        bool stores = fold.into != NOWHERE;
        self.into = stores ? memory(self.launch, fold.into) + range.start + mine.start : 0;
        self.slot = fold.audience ? slot_of(self, self.launch.ours, position) : 0;
    }
}

// ---- Bytes

// `N` bytes of a source.
template <class T, int N> union Piece;
template <class T> union Piece<T, 8> {
    u64 bits;
    typename T::Stored elements[8 / sizeof(typename T::Stored)];
};
template <class T> union Piece<T, 16> {
    Sixteen bits;
    typename T::Stored elements[16 / sizeof(typename T::Stored)];
};

// The first `count` elements of `sum`, each combined with that of `next`.
template <class T, class Op, int N>
DEVICE void combine(Piece<T, N>& sum, const Piece<T, N>& next, u32 count) {
    for (u32 i = 0; i < count; i++) {
        typename T::Value a = T::load(sum.elements[i]);
        sum.elements[i] = T::store(Op::of(a, T::load(next.elements[i])));
    }
}

// Reads the eight bytes from `at` on from a line, as soon as it has arrived.
template <class T>
DEVICE u64 read_line(const Lane& self, const Source& source, u32 nth, u64 at, Piece<T, 8>& eight) {
    const u64* line = (const u64*)(self.from[nth] + at * 2);
    u32 flag = (u32)self.number[nth];
    Patience patience = {source.peer, 0, 0};
    for (;;) {
        u64 low, high;
        load_line(line, low, high);
        if ((u32)(low >> 32) == flag && (u32)(high >> 32) == flag) {
            eight.bits = (low & 0xffffffffull) | high << 32;
            return OK;
        }
        u64 report = patience.look(self);
        if (report != OK) return report;
    }
}

// Reads the `count` elements from `at` on, which fit in eight bytes.
template <class T>
DEVICE u64 read(const Lane& self, const Source& source, u32 nth, u64 at, u32 count,
                Piece<T, 8>& eight) {
    bool is_line = self.launch.protocol == LOW_LATENCY && source.place == BOARD;
    if (is_line) return read_line<T>(self, source, nth, at, eight);
    const typename T::Stored* from = (const typename T::Stored*)(self.from[nth] + at);
    for (u32 i = 0; i < count; i++) eight.elements[i] = from[i];
    return OK;
}

// Combines the bytes from `at` on of all sources, in their order, and stores the result where it
// belongs. Each thread takes eight bytes at a time, wherever they lie. `flag` marks the lines.
template <class T, class Op>
DEVICE u64 fold_eights(const Lane& self, const Fold& fold, const Source* sources, u64 at, u64 bytes,
                       u32 flag) {
    const u32 element = sizeof(typename T::Stored);
    for (at += (u64)threadIdx.x * 8; at < bytes; at += (u64)blockDim.x * 8) {
        u32 count = (u32)((bytes - at < 8 ? bytes - at : 8) / element);
        Piece<T, 8> sum, next;
        sum.bits = 0;
        next.bits = 0;
        u64 report = read<T>(self, sources[0], 0, at, count, sum);
        for (u32 nth = 1; nth < fold.count && report == OK; nth++) {
            report = read<T>(self, sources[nth], nth, at, count, next);
            combine<T, Op, 8>(sum, next, count);
        }
        if (report != OK) return report;
        if (self.into) {
            typename T::Stored* into = (typename T::Stored*)(self.into + at);
            for (u32 i = 0; i < count; i++) into[i] = sum.elements[i];
        }
        if (self.slot && self.launch.protocol == LOW_LATENCY) {
            u64 above = (u64)flag << 32;
            store_line((u64*)(self.slot + at * 2), (sum.bits & 0xffffffffull) | above,
                       sum.bits >> 32 | above);
        } else if (self.slot) {
            typename T::Stored* slot = (typename T::Stored*)(self.slot + at);
            for (u32 i = 0; i < count; i++) slot[i] = sum.elements[i];
        }
    }
    return OK;
}

// As `fold_eights`, `Rows` times sixteen bytes a thread, which are all on their way before the first
// one is needed.
template <class T, class Op, int Rows>
DEVICE void fold_rows(const Lane& self, u32 count, u64 at, u64 step) {
    Piece<T, 16> sum[Rows], next[Rows];
    const u32 elements = 16 / sizeof(typename T::Stored);
    UNROLL for (int row = 0; row < Rows; row++) {
        sum[row].bits = *(const Sixteen*)(self.from[0] + at + row * step);
    }
    for (u32 nth = 1; nth < count; nth++) {
        UNROLL for (int row = 0; row < Rows; row++) {
            next[row].bits = *(const Sixteen*)(self.from[nth] + at + row * step);
        }
        UNROLL for (int row = 0; row < Rows; row++) {
            combine<T, Op, 16>(sum[row], next[row], elements);
        }
    }
    UNROLL for (int row = 0; row < Rows; row++) {
        if (self.into) *(Sixteen*)(self.into + at + row * step) = sum[row].bits;
        if (self.slot) *(Sixteen*)(self.slot + at + row * step) = sum[row].bits;
    }
}

// True if everything that the fold reads and writes begins at a multiple of sixteen bytes.
DEVICE bool is_aligned(const Lane& self, u32 count) {
    u64 bits = (u64)self.into | (u64)self.slot;
    for (u32 nth = 0; nth < count; nth++) bits |= (u64)self.from[nth];
    return bits % 16 == 0;
}

// Combines `bytes` bytes of all sources, in their order, and stores the result where it belongs.
template <class T, class Op>
DEVICE u64 execute(const Lane& self, const Fold& fold, const Source* sources, u64 bytes, u32 flag) {
    if (self.launch.protocol == LOW_LATENCY || !is_aligned(self, fold.count)) {
        return fold_eights<T, Op>(self, fold, sources, 0, bytes, flag);
    }
    const int rows = 4;
    u64 whole = bytes / 16 * 16;
    u64 step = (u64)blockDim.x * 16;
    u64 at = (u64)threadIdx.x * 16;
    for (; at + (rows - 1) * step < whole; at += rows * step) {
        fold_rows<T, Op, rows>(self, fold.count, at, step);
    }
    for (; at < whole; at += step) fold_rows<T, Op, 1>(self, fold.count, at, step);
    return fold_eights<T, Op>(self, fold, sources, whole, bytes, flag);
}

// Makes all flags of the lane's piece of the slot older than any flag that is awaited. They have 32
// bits, so a line that was last written so many publications ago would look new.
DEVICE void wipe(const Lane& self) {
    for (u64 at = (u64)threadIdx.x * 16; at < piece(self); at += (u64)blockDim.x * 16) {
        store_line((u64*)(self.slot + at), 0, 0);
    }
}

// The number of publications of the writer of source `at` that we are done with; zero if another source
// of the fold tells more about that writer, or if the source is no publication.
DEVICE u64 credit(const Lane& self, const Fold& fold, const Source* sources, u32 at) {
    if (sources[at].place != BOARD) return 0;
    for (u32 other = 0; other < fold.count; other++) {
        bool is_alike = sources[other].place == BOARD && sources[other].peer == sources[at].peer;
        bool is_later = self.number[other] > self.number[at]
            || (self.number[other] == self.number[at] && other > at);
        if (is_alike && is_later) return 0;
    }
    return self.number[at];
}

// Tells the readers of the publication, and the writers of the sources. All threads of the block are
// done with both.
DEVICE void tell(Lane& self, const Fold& fold, const Source* sources, u64 position) {
    const Launch& launch = self.launch;
    u64 mine = counter_of(launch.me, self.lane, self.lanes);
    for (u32 reader = threadIdx.x; reader < launch.ranks; reader += blockDim.x) {
        if (launch.protocol == SIMPLE && fold.audience >> reader & 1) {
            release();
            publish(self.peers[reader].mailbox.arrived + mine, position + 1);
        }
    }
    if (threadIdx.x == 0 && fold.audience) {
        self.audiences[position & (launch.slots - 1)] = fold.audience;
    }
    for (u32 at = threadIdx.x; at < fold.count; at += blockDim.x) {
        u64 done = self.credits[at];
        if (done == 0) continue;
        Peer& writer = self.peers[sources[at].peer];
        if (launch.tells_late) {
            writer.done = done;
        } else {
            release();
            publish(writer.mailbox.consumed + mine, done);
        }
    }
}

// ---- The walk

// Executes window `k` of a fold, whose publication has number `position`.
template <class T, class Op>
DEVICE bool step(Lane& self, const Fold& fold, u32 k, u64 position) {
    const Source* sources = list<Source>(self.program, self.program->sources) + fold.first;
    Range whole = window(fold.extent, self.launch.element, k);
    Range mine = part(whole.bytes, self.lanes, self.lane);
    prepare(self, fold, sources, k, mine, position);
    __syncthreads();
    if (self.waits != OK) return false;
    // Flags of so late a publication may look like those that were written when the slot was last used.
    if (fold.audience && self.launch.protocol == LOW_LATENCY && position >> 31 != 0
        && (position & 0x7fffffff) < self.launch.slots) {
        wipe(self);
        __syncthreads();
    }
    u64 report = execute<T, Op>(self, fold, sources, mine.bytes, (u32)(position + 1));
    if (report != OK) self.lines = report;
    for (u32 at = threadIdx.x; at < fold.count; at += blockDim.x) {
        self.credits[at] = credit(self, fold, sources, at);
    }
    __syncthreads();
    if (self.lines != OK) return false;
    tell(self, fold, sources, position);
    return true;
}

// Executes all windows of all folds in the order of their clocks: window k at clock k + stage.
template <class T, class Op> DEVICE bool run(Lane& self) {
    const Program* program = self.program;
    const Fold* folds = list<Fold>(program, program->folds);
    const u32* first_of = list<u32>(program, program->first_of);
    u32 windows = program->windows;
    u32 stages = program->stages;
    u64 position = self.peers[self.launch.me].before;
    for (u32 clock = 0; stages > 0 && clock + 1 < windows + stages; clock++) {
        u32 oldest = clock + 1 > windows ? clock + 1 - windows : 0;
        u32 newest = clock < stages - 1 ? clock : stages - 1;
        for (u32 at = first_of[oldest]; at < first_of[newest + 1]; at++) {
            if (!step<T, Op>(self, folds[at], clock - folds[at].stage, position)) return false;
            position += folds[at].audience != 0;
        }
    }
    return true;
}

// Reads what the lane needs, everything at once, and tells the other ranks which call this is.
DEVICE void begin(Lane& self, const Launch& launch, u32 lanes, u64* copy) {
    u32 lane = blockIdx.x % lanes;
    const u64* counts = launch.published + (u64)lane * (launch.ranks + 1);
    if (threadIdx.x == 0) {
        self.launch = launch;
        self.lane = lane;
        self.lanes = lanes;
        self.calls = counts[launch.ranks];
        self.waits = OK;
        self.lines = OK;
        self.program = launch.bytes <= SHORT_PROGRAM ? (const Program*)copy : launch.program;
    }
    u64 call = (counts[launch.ranks] + 1) << 32 | launch.fingerprint;
    for (u32 rank = threadIdx.x; rank < launch.ranks; rank += blockDim.x) {
        Peer& peer = self.peers[rank];
        peer.mailbox = launch.mailboxes[rank];
        peer.before = counts[rank];
        peer.seen = load_acquire(launch.ours.consumed + counter_of(rank, lane, lanes));
        peer.done = 0;
        if (lane == 0) store_relaxed(peer.mailbox.announced + launch.me, call);
    }
    const u64* audiences = launch.audiences + (u64)lane * launch.slots;
    for (u32 slot = threadIdx.x; slot < launch.slots; slot += blockDim.x) {
        self.audiences[slot] = audiences[slot];
    }
    const u64* from = (const u64*)launch.program;
    for (u32 at = threadIdx.x; at < launch.bytes / 8 && launch.bytes <= SHORT_PROGRAM;
         at += blockDim.x) {
        copy[at] = from[at];
    }
    __syncthreads();
}

// Counts the publications of all ranks, and the call. Tells writers what the lane is done with, and
// makes sure that no rank made another call.
DEVICE void count(Lane& self) {
    const Launch& launch = self.launch;
    const Numbering* numberings = list<Numbering>(self.program, self.program->numberings);
    u64* counts = launch.published + (u64)self.lane * (launch.ranks + 1);
    for (u32 rank = threadIdx.x; rank < launch.ranks; rank += blockDim.x) {
        const Peer& peer = self.peers[rank];
        counts[rank] = peer.before + (u64)numberings[rank].folds * numberings[rank].windows;
        if (self.lane == 0 && is_other_call(self, rank)) {
            self.lines = report_of(self, rank, MISMATCH);
        }
        if (peer.done) {
            release();
            publish(peer.mailbox.consumed + counter_of(launch.me, self.lane, self.lanes), peer.done);
        }
    }
    u64* audiences = launch.audiences + (u64)self.lane * launch.slots;
    for (u32 slot = threadIdx.x; slot < launch.slots; slot += blockDim.x) {
        audiences[slot] = self.audiences[slot];
    }
    if (threadIdx.x == 0) counts[launch.ranks] = self.calls + 1;
}

// Tells the host why the lane gives up, and then the other lanes that it does.
DEVICE void give_up(const Lane& self) {
    u64 report = self.waits != OK ? self.waits : self.lines;
    if (load_relaxed(self.launch.report) == OK) store_relaxed(self.launch.report, report);
    release();
    store_relaxed(self.launch.abort, 1);
}

// Walks the program of launch `blockIdx.x / lanes` as lane `blockIdx.x % lanes`.
template <class T, class Op> DEVICE void walk(const Launches& launches) {
    SHARED(Lane, self);
    SHARED_WORDS(copy, SHORT_PROGRAM / 8);
    begin(self, launches.of[blockIdx.x / launches.lanes], launches.lanes, copy);
    bool done = run<T, Op>(self);
    __syncthreads();
    if (done) count(self);
    __syncthreads();
    if (threadIdx.x == 0 && (self.waits != OK || self.lines != OK)) give_up(self);
}

#ifndef EMULATED
// A module has one kernel: -DTYPE=F32 -DOPERATION=Sum -DNAME=walk_f32_sum.
KERNEL(NAME)(BY_VALUE Launches launches) { walk<TYPE, OPERATION>(launches); }
#endif
