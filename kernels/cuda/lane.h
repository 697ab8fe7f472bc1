// What a lane knows while it walks (`walk.cu`): where its part of a window lies, and how it waits for
// what a fold needs.
#pragma once
#include "numbers.h"

// ---- Where things lie

struct Range {
    u64 start;
    u64 bytes;
};

// Window `k` of so many of an extent.
DEVICE Range window(const Extent& extent, u32 windows, u32 k) {
    u64 skipped = (u64)k * extent.quotient + (k < extent.remainder ? k : extent.remainder);
    u64 packs = extent.quotient + (k < extent.remainder ? 1 : 0);
    bool is_last = k + 1 == (extent.quotient > 0 ? windows : extent.remainder);
    return Range{extent.start + skipped * 16, packs * 16 - (is_last ? extent.lacks : 0)};
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
    // Those of them that a thread loads together: the GPUs of a host.
    AT_A_TIME = 8,
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

// Of a step: where the sources of its fold lie, where its result goes, and what is told behind it.
struct StepData {
    // Places behind the last source are looked at, and nothing is read there.
    const u8* from[MOST_SOURCES + AT_A_TIME];
    u64 number[MOST_SOURCES];
    // What the writer of each source is told.
    u64 credits[MOST_SOURCES];
    u8* into;
    u8* slot;
    // Why a wait of the step is given up, by `report_of`. Movers write it before a barrier and read it
    // behind it.
    u64 waits;
    // The same for posters. Movers may write `waits` of a later step while they look.
    bool gives_up;
};

// What one lane knows while it walks. Barriers order what its threads read and write here.
struct Lane {
    Launch launch;
    const Program* program;
    u32 lane;
    // The first so many threads move bytes.
    u32 movers;
    // The number of earlier calls.
    u64 calls;
    // Marks what this call publishes, by `mark_of`.
    u32 mark;
    Peer peers[MOST_RANKS];
    // By slot: the readers of what lies there.
    u64 audiences[MOST_SLOTS];
    // Why the lane does not begin: the report of the rank's failure, if it has failed, or another walk of
    // the mailboxes has not ended.
    u64 failed;
    bool overlaps;
    // Why the lane gives up, by `report_of`.
    u64 report;
    // Of two steps in a row: some threads are in the next one already.
    StepData data[2];
};

// Where the part of a lane begins in a slot. Each lane has its own piece of the slot, however long the
// publication is: lanes are not in step, so one may still read what another one writes over.
DEVICE u64 piece(const Lane& self) { return self.launch.slot_bytes / self.launch.room / 16 * 16; }

DEVICE u8* slot_of(const Lane& self, const Mailbox& mailbox, u64 position) {
    u64 slot = position & (self.launch.slots - 1);
    return mailbox.slots + slot * self.launch.slot_bytes + piece(self) * self.lane;
}

// Bits of a mark.
enum { MARK_LOG = 16, LINE_MARK_LOG = 12 };

// What tells the publications of a call from those of another one: some bits of a hash of its
// fingerprint, its number, and the number of earlier calls in its room. Another fingerprint has the same
// mark once in 2^16, and once in 2^12 on lines, which have room for fewer bits.
DEVICE u32 mark_of(u32 fingerprint, u32 number, u64 calls) {
    u32 call = fingerprint + number * 0x9e3779b1u;
    return (u32)(((u64)call << 32 | (u32)calls) * 0x9e3779b97f4a7c15ull >> (64 - MARK_LOG));
}

// Flags repeat after 2^FLAG_LOG publications. The emulator has fewer, so that they do.
#ifndef FLAG_LOG
#define FLAG_LOG 19
#endif

// The flag of the lines of a publication whose call has this mark. It is never zero, as fresh memory is.
DEVICE u32 flag_of(u32 mark, u64 position) {
    u32 bits = mark >> (MARK_LOG - LINE_MARK_LOG);
    return 0x80000000u | bits << FLAG_LOG | (u32)(position & ((1ull << FLAG_LOG) - 1));
}

// True if a flag is that of the same publication as `wanted`, but of another call.
DEVICE bool is_of_other_call(u32 flag, u32 wanted) {
    u32 marks = ((1u << LINE_MARK_LOG) - 1) << FLAG_LOG;
    return flag != wanted && ((flag ^ wanted) & ~marks) == 0;
}

// What `arrived` is when publication `position` is in its slot.
DEVICE u64 arrival_of(const Lane& self, u64 position) {
    return (position + 1) << MARK_LOG | self.mark;
}

// True if publication `position` is the first one in its slot in another half of a period. The slot is
// wiped then, so that no flag in it is as old as a period. One that is would look new to a reader that
// looks before the publication is written.
DEVICE bool begins_half(u64 position, u32 slots) {
    u64 half = 1ull << (FLAG_LOG - 1);
    return position >= half && (position & (half - 1)) < slots;
}

// The place of a counter for a lane: counters of one rank lie side by side.
DEVICE u64 counter_of(const Launch& launch, u32 rank, u32 lane) { return (u64)rank * launch.room + lane; }

// The place in `arrived` for publication `position` of a rank.
DEVICE u64 arrived_of(const Lane& self, u32 rank, u64 position) {
    u64 slots = self.launch.slots;
    return counter_of(self.launch, rank, self.lane) * slots + (position & (slots - 1));
}

// ---- Waiting

// What a rank tells the others about call `number`. It is never zero, because no fingerprint is.
DEVICE u64 announcement(u32 number, u32 fingerprint) { return (u64)number << 32 | fingerprint; }

// True if the rank that told this makes another call `number`. A call that has not begun, or that is over,
// is not known.
DEVICE bool is_other(u64 told, u32 number, u32 fingerprint) {
    return told != 0 && (u32)(told >> 32) == number && (u32)told != fingerprint;
}

// The number of the call among those that ranks announce: that of its host for calls of all ranks, which
// may be in several rooms; in a room of two, that of the room.
DEVICE u32 number_of(const Lane& self) {
    return self.launch.other == EACH ? self.launch.number : (u32)self.calls;
}

DEVICE bool is_other_call(const Lane& self, u32 peer) {
    u64 told = load_relaxed(self.launch.ours.announced + peer);
    return is_other(told, number_of(self), self.launch.fingerprint);
}

// The rank of the group that `peer` is in its room.
DEVICE u32 rank_of(const Lane& self, u32 peer) {
    return self.launch.other == EACH ? peer : self.launch.other;
}

// A report: a `Status` in 16 bits, above it the rank that it names in 16 bits, here `peer`, and above
// these the number of the call.
DEVICE u64 report_of(const Lane& self, u32 peer, u32 status) {
    return (u64)self.launch.number << 32 | rank_of(self, peer) << 16 | status;
}

// A wait looks at more than what it awaits each so many looks.
enum { LOOKS = 1024 };

// What a wait for `peer` does between two looks. Zero, or a report of why the wait is given up.
struct Patience {
    u32 peer;
    u32 looks;
    u64 since;
    // The peer had left at the last look. What it has published before has come since then.
    bool is_gone;

    // Looks for `other` from now on.
    DEVICE void await(u32 other) {
        is_gone = is_gone && other == peer;
        peer = other;
    }

    // `Self` knows the launch: a lane, or a block of a short call.
    template <class Self> DEVICE u64 look(const Self& self) {
        PAUSE();
        looks += 1;
        if (looks % LOOKS != 0) return OK;
        if (load_relaxed(self.launch.abort)) return report_of(self, peer, ABORTED);
        if (is_other_call(self, peer)) return report_of(self, peer, MISMATCH);
        if (is_gone) return report_of(self, peer, LEFT);
        is_gone = load_relaxed(self.launch.gone) >> rank_of(self, peer) & 1;
        u64 time = now();
        if (since == 0) since = time;
        return time - since > self.launch.patience ? report_of(self, peer, TIMED_OUT) : (u64)OK;
    }
};

// Says why the rank gives up, the first time that it does. Ends its walks and calls that come later, and
// the waits of those that run.
template <class L> DEVICE void give_up(const L& launch, u64 report) {
    u64 first = set_once(launch.failed, report);
    store_relaxed(launch.report, first == OK ? report : first);
    release();
    store_relaxed(launch.abort, 1);
}

// Waits until `*counter`, which `peer` writes, is at least `target`. Returns what it is. Looks have no order
// until one finds it: one that has drops what the multiprocessor has cached, also for other kernels.
DEVICE u64 await(const Lane& self, StepData& data, const u64* counter, u64 target, u32 peer) {
    Patience patience = {peer, 0, 0, false};
    u64 value = load_acquire(counter);
    while (value < target) {
        u64 report = patience.look(self);
        if (report != OK) {
            data.waits = report;
            break;
        }
        if (load_relaxed(counter) >= target) value = load_acquire(counter);
    }
    return value;
}

// Waits until publication `position` of `peer` is in its slot. Another call's may be there instead.
DEVICE void await_arrival(const Lane& self, StepData& data, u64 position, u32 peer) {
    u64 target = arrival_of(self, position);
    const u64* arrived = self.launch.ours.arrived + arrived_of(self, peer, position);
    u64 value = await(self, data, arrived, target >> MARK_LOG << MARK_LOG, peer);
    bool has_come = value >> MARK_LOG >= target >> MARK_LOG;
    if (has_come && value != target) data.waits = report_of(self, peer, MISMATCH);
}

// ---- What a fold needs

DEVICE u8* memory(const Launch& launch, u32 place) {
    return place == INPUT ? launch.input : place == OUTPUT ? launch.output : launch.scratch;
}

// The number of the publication that brings a source, from one; zero if it is in a buffer.
DEVICE u64 publication_of(const Lane& self, const Source& source, u32 k) {
    if (source.place != BOARD) return 0;
    u32 peer = source.peer;
    return self.peers[peer].before + number(self.program, peer, source.publication, source.stage, k) + 1;
}

// Where window `k` of a source lies. Publication `number` brings it, if there is one.
DEVICE const u8* place_of(const Lane& self, const Source& source, u64 number, u32 k, Range mine) {
    if (source.place == BOARD) return slot_of(self, self.peers[source.peer].mailbox, number - 1);
    Range range = window(source.extent, self.program->windows, k);
    return memory(self.launch, source.place) + range.start + mine.start;
}

// Waits until `reader` is done with what lies in the slot of publication `position`.
DEVICE void await_room(Lane& self, StepData& data, u64 position, u32 reader) {
    u32 slots = self.launch.slots;
    bool reads = self.audiences[position & (slots - 1)] >> reader & 1;
    u64 done = position + 1 > slots ? position + 1 - slots : 0;
    if (!reads || self.peers[reader].seen >= done) return;
    const u64* consumed = self.launch.ours.consumed + counter_of(self.launch, reader, self.lane);
    self.peers[reader].seen = await(self, data, consumed, done, reader);
}

// Window `k` of a fold, whose publication has number `position`.
struct Step {
    const Fold* fold;
    const Source* sources;
    // Of the call.
    u32 nth;
    u32 k;
    u64 position;
};

// Each mover awaits one source, or one reader of the slot, of a step, of which this lane does the part
// `mine`.
DEVICE void prepare(Lane& self, StepData& data, const Step& step, Range mine) {
    const Fold& fold = *step.fold;
    for (u32 at = threadIdx.x; at < fold.count; at += self.movers) {
        const Source& source = step.sources[at];
        u64 number = publication_of(self, source, step.k);
        data.number[at] = number;
        data.from[at] = place_of(self, source, number, step.k, mine);
        bool waits = number != 0 && self.launch.protocol == SIMPLE;
        if (waits) await_arrival(self, data, number - 1, source.peer);
    }
    for (u32 reader = threadIdx.x; reader < self.launch.ranks && fold.audience;
         reader += self.movers) {
        await_room(self, data, step.position, reader);
    }
    if (threadIdx.x == 0) {
        Range range = window(fold.extent, self.program->windows, step.k);
        bool stores = fold.into != NOWHERE;
        data.into = stores ? memory(self.launch, fold.into) + range.start + mine.start : 0;
        data.slot = fold.audience ? slot_of(self, self.launch.ours, step.position) : 0;
    }
}
