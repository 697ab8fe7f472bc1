// A lowered program as bytes, and what a launch adds to it. `src/lower/device.rs` writes the program;
// its structs have the same fields in the same order. No includes: NVRTC alone compiles this.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// A chunk of a buffer in bytes, and how windows cut it: window k takes an equal number of packs of
// sixteen bytes, and the first `remainder` windows have one pack more. So all windows begin as aligned as
// the chunk. The last window that has a pack lacks `lacks` bytes of it.
struct Extent {
    u64 start;
    u64 quotient;
    u32 remainder;
    u32 lacks;
};

// Where a fold stores, and where a source lies: in a buffer of the rank, or in a slot.
enum Place : u32 { INPUT = 0, OUTPUT = 1, SCRATCH = 2, BOARD = 3, NOWHERE = 4 };

struct Source {
    Extent extent;
    u32 place;
    // In a slot: the rank that publishes it, its index among that rank's publishing folds, and the stage of
    // that fold.
    u32 peer;
    u32 publication;
    u32 stage;
};

// Combine the sources in order, into a buffer, a publication, or both.
struct Fold {
    Extent extent;
    u64 audience;
    u32 into;
    u32 stage;
    u32 first;
    u32 count;
};

// How the publications of one rank are numbered: see `Numbering` in `src/lower/program.rs`. The
// lists begin `before` and `sum` bytes behind the header.
struct Numbering {
    u32 folds;
    u32 windows;
    u32 first;
    u32 befores;
    u64 before;
    u64 sum;
    u32 sums;
    u32 unused;
};

// The program of one rank. Lists begin so many bytes behind the header.
struct Program {
    // Of the header and all lists.
    u64 bytes;
    u64 folds;
    u64 sources;
    u64 first_of;
    u64 numberings;
    u32 windows;
    u32 stages;
    u32 fold_count;
    u32 element;
    u32 ranks;
    u32 me;
};

// The memory of a rank that other ranks reach. A counter is written by one thread and never goes
// back, also not from one call to the next.
struct Mailbox {
    // `slots` slots of `slot_bytes` bytes, a power of two of them. Publication p lies in slot p % slots.
    // Each lane of the room has an equal piece of a slot, with room for its part of the longest
    // publication: twice with `LOW_LATENCY`, where a line is half flags.
    u8* slots;
    // By publisher, lane and slot: the number of the last publication of that rank in the slot, from
    // one, above the mark of its call. That rank writes it. With `LOW_LATENCY`, lines say it.
    // Otherwise a rank's own places have the bytes of its publications, for its courier.
    u64* arrived;
    // By reader and lane: publications of this rank that the reader is done with. The reader writes
    // it.
    u64* consumed;
    // By rank: the call that it makes, the number of the call above its fingerprint. That rank writes
    // it.
    u64* announced;
};

enum Protocol : u32 {
    // Data first, then a counter that says so.
    SIMPLE = 0,
    // Lines of 16 bytes: four bytes of data and four of a flag, twice. A line says by itself that
    // it has arrived.
    LOW_LATENCY = 1,
};

// How a rank's part of a launch ended. The words of `Launch::report`.
enum Status : u32 {
    OK = 0,
    // The host asked for it.
    ABORTED = 1,
    // A wait was longer than `patience`. The report names the rank that was awaited.
    TIMED_OUT = 2,
    // The rank that the report names makes another call.
    MISMATCH = 3,
    // Another walk of the same mailboxes had not ended.
    OVERLAP = 4,
    // The rank that the report names has left, and has not published what was awaited.
    LEFT = 5,
};

enum : u32 { EACH = 0xffffffffu };

// One rank's part of a launch.
struct Launch {
    const Program* program;
    // The mailbox of each rank, as this rank reaches it, and its own.
    const Mailbox* mailboxes;
    Mailbox ours;
    // By lane: by rank, its publications in earlier calls; then the number of earlier calls; then
    // whether a walk has begun and not ended. The lane counts on when its walk is done.
    u64* published;
    // By lane and slot: the readers of what lies in the slot.
    u64* audiences;
    u8* input;
    u8* output;
    u8* scratch;
    // Not zero: every wait gives up. The host writes it, and a lane that gives up.
    u32* abort;
    // In memory of the host: the report of the first lane that gave up, by `report_of`.
    u64* report;
    // In memory of the host: the ranks of the group that have left, by bits.
    u64* gone;
    // In memory of the GPU, for all mailboxes of the rank. Not zero: no walk begins. That of a lane that
    // gave up has counted nothing, so the next one would publish other bytes under the same numbers. The
    // first such lane writes its report, or the host writes anything.
    u64* failed;
    // Nanoseconds of a wait.
    u64 patience;
    u64 slot_bytes;
    u32 slots;
    u32 protocol;
    // A hash of all that the ranks must agree on.
    u32 fingerprint;
    // Of the program.
    u32 bytes;
    u32 ranks;
    u32 me;
    // The lanes of the launch, and of its mailboxes. A short call has fewer lanes than the mailboxes: those
    // from the first one on. It is the same on all ranks that meet there, and lanes count for themselves.
    u32 lanes;
    u32 room;
    // The block that is its first lane. Others follow, and behind the last block comes the first.
    u32 first;
    // Not `EACH`: reports name this rank, the only other one of a room of two.
    u32 other;
    // Not zero: no rank makes more publications in the call than it has slots. So nobody waits within
    // the call for a slot that is read in the call, and readers tell at the end what they are done with.
    u32 tells_late;
    // By which the host knows the call again in a report.
    u32 number;
};

// Instead of a place in the output: nothing is stored.
enum : u32 { UNSTORED = 0xffffffffu };
enum { MOST_SHORT_RANKS = 8, SHORT_BLOCKS = 16, SHORT_THREADS = 512 };

// The program of one rank in a call of one exchange: it publishes a part of its input for each other rank, and
// folds one publication of each, and a part of its own, in the order of the ranks.
struct ShortProgram {
    // Of each publication.
    u32 bytes;
    u32 ranks;
    u32 me;
    // By bits: a fold begins with what is of the rank. It is combined with what is before otherwise.
    u32 begins;
    // By rank: where in the input what is for it begins.
    u32 from[MOST_SHORT_RANKS];
    // By rank: where in the output the fold that ends with what is of the rank is stored, or `UNSTORED`.
    u32 into[MOST_SHORT_RANKS];
};

// One rank's part of a short call: `short.h`.
struct ShortLaunch {
    // By rank, as this rank reaches it: the lines that the others write for it, and its `announced`.
    u64* lines[MOST_SHORT_RANKS];
    u64* announced[MOST_SHORT_RANKS];
    // By block: the number of earlier calls.
    u64* counts;
    const u8* input;
    u8* output;
    // As in `Launch`.
    u32* abort;
    u64* report;
    u64* gone;
    u64* failed;
    u64 patience;
    u32 fingerprint;
    u32 number;
    ShortProgram program;
};

// What one launch of the kernel walks: the calls of several ranks, or several calls of one. A block that
// is a lane of several makes them in their order. One without ranks copies `slot_bytes` bytes.
enum { MOST_LAUNCHES = 16 };
struct Launches {
    u32 count;
    u32 unused;
    Launch of[MOST_LAUNCHES];
};
