//! Runs the board's protocol in every order of events that the memory model allows, within a bound
//! on preemptions.
//!
//! The models run the code of [`BoardProtocol`] itself on loom's atomics. Loom watches every access
//! to a payload. So it finds a payload that is read while it may be written, even if the numbers
//! are right. Mutants break the protocol, or its use, on purpose, each in one place. Every mutant
//! must be caught.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use maypole_transports::board::{
    BoardProtocol, BoardWords, ExpectedPublication, Publication, SharedWord, SlotClass, lines,
};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The broken rule of a mutant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Mutant {
    Nothing,
    /// The line's sequence is stored without release.
    CommitRelaxed,
    /// The line's sequence is loaded without acquire.
    ReadableRelaxed,
    /// The reader's counter is stored without release.
    ConsumeRelaxed,
    /// The reader's counter is loaded without acquire.
    CounterRelaxed,
    /// The writer takes everything as consumed, without the counter.
    CounterIgnored,
    /// The counter is written before the payload is read.
    ConsumedEarly,
    /// The line is published before its payload is written.
    CommittedEarly,
    /// The writer never checks for room.
    RoomUnchecked,
    /// The writer checks for room in the ring of lines, not in the ring of data slots.
    DataSlotsUnchecked,
    /// The writer credits itself with a publication that the peer is still reading.
    CreditedEarly,
    /// A reader is missing from the audience.
    MissingReader,
}

/// A shared word on an atomic of loom.
struct LoomWord {
    atomic: AtomicU64,
    acquire: Ordering,
    release: Ordering,
    /// Each load returns `u64::MAX`, as if everything had been consumed.
    ignores_counter: bool,
}

impl LoomWord {
    fn new(acquire: Ordering, release: Ordering, ignores_counter: bool) -> Self {
        Self { atomic: AtomicU64::new(0), acquire, release, ignores_counter }
    }

    fn line(mutant: Mutant) -> Self {
        let acquire =
            if mutant == Mutant::ReadableRelaxed { Ordering::Relaxed } else { Ordering::Acquire };
        let release =
            if mutant == Mutant::CommitRelaxed { Ordering::Relaxed } else { Ordering::Release };
        Self::new(acquire, release, false)
    }

    fn counter(mutant: Mutant) -> Self {
        let acquire =
            if mutant == Mutant::CounterRelaxed { Ordering::Relaxed } else { Ordering::Acquire };
        let release =
            if mutant == Mutant::ConsumeRelaxed { Ordering::Relaxed } else { Ordering::Release };
        Self::new(acquire, release, mutant == Mutant::CounterIgnored)
    }
}

impl SharedWord for LoomWord {
    fn acquire(&self) -> u64 {
        if self.ignores_counter { u64::MAX } else { self.atomic.load(self.acquire) }
    }
    fn release(&self, value: u64) {
        self.atomic.store(value, self.release);
    }
    fn relaxed(&self) -> u64 {
        self.atomic.load(Ordering::Relaxed)
    }
    fn store(&self, value: u64) {
        self.atomic.store(value, Ordering::Relaxed);
    }
}

/// Lines of each rank that a model uses. Loom is quick only with few objects.
const USED_LINES: usize = 4;

struct Memory {
    ranks: usize,
    sequences: Vec<LoomWord>,
    fingerprints: Vec<LoomWord>,
    slots: Vec<LoomWord>,
    counters: Vec<LoomWord>,
    payloads: Vec<UnsafeCell<u64>>,
}

#[derive(Clone)]
struct Shared(Arc<Memory>);

impl Shared {
    fn new(ranks: usize, mutant: Mutant) -> Self {
        let lines = || (0..ranks * USED_LINES).map(|_| LoomWord::line(mutant)).collect();
        Self(Arc::new(Memory {
            ranks,
            sequences: lines(),
            fingerprints: lines(),
            slots: lines(),
            counters: (0..ranks * ranks).map(|_| LoomWord::counter(mutant)).collect(),
            payloads: (0..ranks * USED_LINES).map(|_| UnsafeCell::new(0)).collect(),
        }))
    }

    /// The payload in this slot, or in the line of this position.
    fn payload(&self, rank: usize, class: SlotClass, slot: u64) -> &UnsafeCell<u64> {
        let slot = match class {
            SlotClass::Tiny => slot as usize % self.lines(),
            _ => slot as usize,
        };
        assert!(slot < USED_LINES);
        &self.0.payloads[rank * USED_LINES + slot]
    }
}

impl BoardWords for Shared {
    type Word = LoomWord;
    fn ranks(&self) -> usize {
        self.0.ranks
    }
    fn lines(&self) -> usize {
        lines(self.0.ranks)
    }
    fn sequence(&self, rank: usize, line: usize) -> &LoomWord {
        assert!(line < USED_LINES);
        &self.0.sequences[rank * USED_LINES + line]
    }
    fn fingerprint(&self, rank: usize, line: usize) -> &LoomWord {
        assert!(line < USED_LINES);
        &self.0.fingerprints[rank * USED_LINES + line]
    }
    fn slot(&self, rank: usize, line: usize) -> &LoomWord {
        assert!(line < USED_LINES);
        &self.0.slots[rank * USED_LINES + line]
    }
    fn consumed(&self, reader: usize, writer: usize) -> &LoomWord {
        &self.0.counters[reader * self.0.ranks + writer]
    }
}

/// One rank, using the protocol as an executor does.
struct Rank {
    protocol: BoardProtocol<Shared>,
    shared: Shared,
    me: usize,
    class: SlotClass,
    mask: u64,
    mutant: Mutant,
    /// Polls before a wait aborts. Loom cannot explore three ranks with unbounded waits.
    polls: u32,
}

/// Returns the payload that `rank` publishes at `position`. All payloads differ, and none is zero.
fn content(rank: usize, position: u64) -> u64 {
    1000 * (rank as u64 + 1) + position
}

fn fingerprint(position: u64) -> u64 {
    position + 77
}

impl Rank {
    fn new(shared: &Shared, me: usize, class: SlotClass, mask: u64, mutant: Mutant) -> Self {
        Self {
            protocol: BoardProtocol::new(shared.clone(), me),
            shared: shared.clone(),
            me,
            class,
            mask,
            mutant,
            polls: u32::MAX,
        }
    }

    fn out(&self, position: u64, audience: u64) -> Publication {
        Publication {
            class: self.class,
            mask: self.mask,
            position,
            audience,
            fingerprint: fingerprint(position),
            len: 8,
        }
    }

    fn has_room(&self, out: Publication) -> bool {
        match self.mutant {
            Mutant::RoomUnchecked => true,
            Mutant::DataSlotsUnchecked => {
                self.protocol.writable(Publication { class: SlotClass::Tiny, ..out })
            }
            _ => self.protocol.writable(out),
        }
    }

    /// Polls until `ready` returns true. Returns false if that takes more polls than this rank has.
    fn until(&self, mut ready: impl FnMut() -> bool) -> bool {
        for _ in 0..self.polls {
            if ready() {
                return true;
            }
            thread::yield_now();
        }
        false
    }

    fn publish(&self, position: u64, audience: u64) -> bool {
        let out = self.out(position, audience);
        let room = self.until(|| self.has_room(out));
        if room {
            self.put(out);
        }
        room
    }

    fn put(&self, out: Publication) {
        if self.mutant == Mutant::CommittedEarly {
            self.protocol.commit(out);
        }
        let slot = if self.class == SlotClass::Tiny { !0 } else { self.mask };
        let cell = self.shared.payload(self.me, self.class, out.position & slot);
        // SAFETY: loom checks that no other thread accesses the cell meanwhile.
        cell.with_mut(|at| unsafe { *at = content(self.me, out.position) });
        if self.mutant != Mutant::CommittedEarly {
            self.protocol.commit(out);
        }
    }

    fn take(&self, peer: usize, position: u64) -> bool {
        if !self.await_line(peer, position) {
            return false;
        }
        if self.mutant == Mutant::ConsumedEarly {
            self.protocol.consume(peer, position + 1);
        }
        self.read(peer, position);
        if self.mutant != Mutant::ConsumedEarly {
            self.protocol.consume(peer, position + 1);
        }
        true
    }

    fn await_line(&self, peer: usize, position: u64) -> bool {
        let from = self.expected(peer, position);
        self.until(|| {
            self.protocol.readable(from).expect("a slot is used again before it was read")
        })
    }

    fn expected(&self, peer: usize, position: u64) -> ExpectedPublication {
        ExpectedPublication {
            class: self.class,
            peer,
            position,
            fingerprint: fingerprint(position),
            len: 8,
        }
    }

    fn read(&self, peer: usize, position: u64) {
        let slot = match self.class {
            SlotClass::Tiny => position,
            _ => self.protocol.slot_of(self.expected(peer, position)),
        };
        let cell = self.shared.payload(peer, self.class, slot);
        // SAFETY: loom checks that no thread writes the cell meanwhile.
        let there = cell.with(|at| unsafe { *at });
        assert_eq!(there, content(peer, position), "the payload that was published");
    }
}

/// A writer and a reader use each slot of a ring several times. Positions are `stride` apart; with
/// a stride of 64, all publications share a line.
fn ring(class: SlotClass, mask: u64, stride: u64, publications: u64, mutant: Mutant) {
    let shared = Shared::new(2, mutant);
    let reader = Rank::new(&shared, 1, class, mask, mutant);
    let thread =
        thread::spawn(move || assert!((0..publications).all(|nth| reader.take(0, nth * stride))));
    let writer = Rank::new(&shared, 0, class, mask, mutant);
    assert!((0..publications).all(|nth| writer.publish(nth * stride, 0b10)));
    thread.join().expect("the reader ends");
}

fn small_ring(mutant: Mutant) {
    ring(SlotClass::Small, 0, 1, 3, mutant);
}

fn chunk_ring(mutant: Mutant) {
    ring(SlotClass::Chunk, 1, 1, 4, mutant);
}

fn line_ring(mutant: Mutant) {
    ring(SlotClass::Tiny, 0, lines(2) as u64, 3, mutant);
}

/// Two ranks publish to each other in every call, and write no counters. The peer's publication of
/// one call proves that the peer finished the call before.
fn exchange(mutant: Mutant) {
    let shared = Shared::new(2, mutant);
    let mask = if mutant == Mutant::CreditedEarly { 0 } else { 1 };
    let calls = move |rank: Rank| {
        let peer = 1 - rank.me;
        for call in 0..4 {
            let out = rank.out(call, 1 << peer);
            assert!(rank.has_room(out), "two slots last for two calls");
            rank.put(out);
            assert!(rank.await_line(peer, call));
            rank.protocol.credit(peer, call + u64::from(mutant == Mutant::CreditedEarly));
            rank.read(peer, call);
        }
    };
    let other = Rank::new(&shared, 1, SlotClass::Small, mask, mutant);
    let thread = thread::spawn(move || calls(other));
    calls(Rank::new(&shared, 0, SlotClass::Small, mask, mutant));
    thread.join().expect("the peer ends");
}

/// A writer and two readers, whose publications have different audiences.
fn audiences(mutant: Mutant) {
    let audiences = [0b110, 0b010, 0b110];
    let shared = Shared::new(3, mutant);
    let rank = |me| Rank { polls: 3, ..Rank::new(&shared, me, SlotClass::Small, 0, mutant) };
    let readers = [1, 2].map(|me| {
        let reader = rank(me);
        let theirs = move |position: &u64| audiences[*position as usize] >> me & 1 == 1;
        thread::spawn(move || (0..3).filter(theirs).all(|position| reader.take(0, position)))
    });
    let writer = rank(0);
    let audience_of =
        |audience: u64| if mutant == Mutant::MissingReader { audience & !0b100 } else { audience };
    let published =
        (0..3).all(|position| writer.publish(position, audience_of(audiences[position as usize])));
    let read = readers.map(|reader| reader.join().expect("the reader ends"));
    assert!(published || read != [true, true], "readers read publications that were never written");
}

/// A rank lets a peer read its own memory in place, and writes to it again when the peer is done.
fn in_place(mutant: Mutant) {
    let shared = Shared::new(2, mutant);
    let reader = Rank::new(&shared, 1, SlotClass::Small, 0, mutant);
    let thread = thread::spawn(move || assert!(reader.take(0, 0)));
    let owner = Rank::new(&shared, 0, SlotClass::Small, 0, mutant);
    owner.put(owner.out(0, 0b10));
    assert!(owner.until(|| owner.protocol.is_consumed(0b10, 1)));
    let cell = owner.shared.payload(0, SlotClass::Small, 0);
    // SAFETY: loom checks that no other thread accesses the cell meanwhile.
    cell.with_mut(|at| unsafe { *at = 0 });
    thread.join().expect("the reader ends");
}

fn explore(model: fn(Mutant), mutant: Mutant, preemptions: usize) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || model(mutant));
}

thread_local! {
    static SILENT: Cell<bool> = const { Cell::new(false) };
}

/// Hides the panic messages of a thread that expects a panic.
fn hide_expected_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !SILENT.get() {
                hook(info);
            }
        }));
    });
}

/// Asserts that the mutant is caught. Returns the message of the panic.
fn catch(model: fn(Mutant), mutant: Mutant) -> String {
    hide_expected_panics();
    SILENT.set(true);
    let end = catch_unwind(AssertUnwindSafe(|| explore(model, mutant, 2)));
    SILENT.set(false);
    let Err(panic) = end else { panic!("{mutant:?} was not caught") };
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// Asserts that the mutant is caught because two ranks may access a payload at the same time, or
/// because a rank reads a line that is not complete.
fn assert_race(model: fn(Mutant), mutant: Mutant) {
    let text = catch(model, mutant);
    let expected = ["Causality violation", "before it was read"];
    let expected = expected.iter().any(|message| text.contains(message));
    assert!(expected, "{mutant:?} was caught by something else: {text}");
}

/// Orderings that are too weak.
const WEAK: [Mutant; 4] = [
    Mutant::CommitRelaxed,
    Mutant::ReadableRelaxed,
    Mutant::ConsumeRelaxed,
    Mutant::CounterRelaxed,
];

#[test]
fn rings_of_every_class_and_an_exchange_that_needs_no_counters() {
    for model in [small_ring, chunk_ring, line_ring, exchange] {
        explore(model, Mutant::Nothing, 3);
    }
}

#[test]
fn memory_that_a_peer_reads_in_place() {
    explore(in_place, Mutant::Nothing, 3);
    for mutant in WEAK.into_iter().chain([Mutant::ConsumedEarly, Mutant::CounterIgnored]) {
        catch(in_place, mutant);
    }
}

#[test]
fn readers_of_different_parts() {
    explore(audiences, Mutant::Nothing, 2);
}

#[test]
fn orderings_that_are_too_weak_are_caught() {
    for model in [small_ring, chunk_ring, line_ring, audiences] {
        for mutant in WEAK {
            assert_race(model, mutant);
        }
    }
    for mutant in [Mutant::CommitRelaxed, Mutant::ReadableRelaxed] {
        assert_race(exchange, mutant);
    }
}

#[test]
fn payloads_out_of_turn_are_caught() {
    for model in [small_ring, chunk_ring, line_ring, audiences] {
        assert_race(model, Mutant::ConsumedEarly);
        assert_race(model, Mutant::CommittedEarly);
    }
}

/// Some orders of events break the payload, others the line. The test accepts both.
#[test]
fn writers_that_do_not_look_for_room_are_caught() {
    for model in [small_ring, chunk_ring, line_ring, audiences] {
        for mutant in [Mutant::CounterIgnored, Mutant::RoomUnchecked] {
            catch(model, mutant);
        }
    }
    for model in [small_ring, chunk_ring, audiences] {
        assert_race(model, Mutant::DataSlotsUnchecked);
    }
}

#[test]
fn credits_that_prove_nothing_are_caught() {
    catch(exchange, Mutant::CreditedEarly);
    catch(audiences, Mutant::MissingReader);
}
