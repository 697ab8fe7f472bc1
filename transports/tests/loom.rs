//! The board's protocol under every order of events that the memory model allows, within a bound
//! on preemptions.
//!
//! The models run the very code of [`BoardProtocol`] on loom's atomics. Payloads are cells whose
//! every access loom watches, so a payload that is read while it may be written is found even
//! where the numbers come out right. Then the protocol, or its use, is broken on purpose, one
//! place at a time, and each mutant must be caught.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use maypole_transports::board::{
    BoardProtocol, BoardWords, ExpectedPublication, LINES, Publication, SharedWord, SlotClass,
};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What is broken.
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
    /// The counter claims that everything was consumed.
    CreditsIgnored,
    /// The counter is written before the payload is read.
    ConsumedEarly,
    /// The line is published before its payload is written.
    CommittedEarly,
    /// The writer never asks whether there is room.
    Unchecked,
    /// The writer asks for room in the ring of lines, not in that of data slots.
    LinesAlone,
    /// An exchange counts what the peer is still reading as consumed.
    CreditedEarly,
    /// A reader is missing from the audience.
    Unheard,
}

/// A shared word of loom's.
struct Watched {
    atomic: AtomicU64,
    acquire: Ordering,
    release: Ordering,
    /// Reads as if everything had happened.
    blind: bool,
}

impl Watched {
    fn new(acquire: Ordering, release: Ordering, blind: bool) -> Self {
        Self { atomic: AtomicU64::new(0), acquire, release, blind }
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
        Self::new(acquire, release, mutant == Mutant::CreditsIgnored)
    }
}

impl SharedWord for Watched {
    fn acquire(&self) -> u64 {
        if self.blind { u64::MAX } else { self.atomic.load(self.acquire) }
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

/// How many of a rank's lines a model uses: few objects keep loom quick.
const USED: usize = 4;

struct Memory {
    ranks: usize,
    sequences: Vec<Watched>,
    fingerprints: Vec<Watched>,
    counters: Vec<Watched>,
    payloads: Vec<UnsafeCell<u64>>,
}

#[derive(Clone)]
struct Shared(Arc<Memory>);

impl Shared {
    fn new(ranks: usize, mutant: Mutant) -> Self {
        let lines = || (0..ranks * USED).map(|_| Watched::line(mutant)).collect();
        Self(Arc::new(Memory {
            ranks,
            sequences: lines(),
            fingerprints: lines(),
            counters: (0..ranks * ranks).map(|_| Watched::counter(mutant)).collect(),
            payloads: (0..ranks * USED).map(|_| UnsafeCell::new(0)).collect(),
        }))
    }

    fn payload(&self, rank: usize, class: SlotClass, position: u64, mask: u64) -> &UnsafeCell<u64> {
        let slot = if class == SlotClass::Tiny {
            position as usize % LINES
        } else {
            (position & mask) as usize
        };
        assert!(slot < USED);
        &self.0.payloads[rank * USED + slot]
    }
}

impl BoardWords for Shared {
    type Word = Watched;
    fn sequence(&self, rank: usize, line: usize) -> &Watched {
        assert!(line < USED);
        &self.0.sequences[rank * USED + line]
    }
    fn fingerprint(&self, rank: usize, line: usize) -> &Watched {
        assert!(line < USED);
        &self.0.fingerprints[rank * USED + line]
    }
    fn consumed(&self, reader: usize, writer: usize) -> &Watched {
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
    /// Looks before a rank gives up what it waits for. Three ranks that may wait for ever are more
    /// than loom can follow.
    looks: u32,
}

/// What `rank` publishes at `position`. Different everywhere, and never what fresh memory holds.
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
            looks: u32::MAX,
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
            Mutant::Unchecked => true,
            Mutant::LinesAlone => {
                self.protocol.writable(Publication { class: SlotClass::Tiny, ..out })
            }
            _ => self.protocol.writable(out),
        }
    }

    /// Polls until `ready`; false if it takes more looks than this rank has.
    fn until(&self, mut ready: impl FnMut() -> bool) -> bool {
        for _ in 0..self.looks {
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
        let cell = self.shared.payload(self.me, self.class, out.position, self.mask);
        // SAFETY: loom checks that nobody else touches the cell meanwhile.
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
        let fingerprint = fingerprint(position);
        let from = ExpectedPublication {
            class: self.class,
            mask: self.mask,
            peer,
            position,
            fingerprint,
            len: 8,
        };
        self.until(|| {
            self.protocol.readable(from).expect("a slot is not used again before it was read")
        })
    }

    fn read(&self, peer: usize, position: u64) {
        let cell = self.shared.payload(peer, self.class, position, self.mask);
        // SAFETY: loom checks that nobody writes the cell meanwhile.
        let there = cell.with(|at| unsafe { *at });
        assert_eq!(there, content(peer, position), "what was published is what is read");
    }
}

/// A writer and a reader over a ring that goes round. Positions are `stride` apart: 64, and all
/// share a line.
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
    ring(SlotClass::Tiny, 0, LINES as u64, 3, mutant);
}

/// Two ranks that publish to each other in every call and tell nobody what they consumed: seeing
/// the peer's publication of one call proves that it finished the call before.
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

/// A writer with two readers, who read different parts of what it publishes.
fn audiences(mutant: Mutant) {
    let audiences = [0b110, 0b010, 0b110];
    let shared = Shared::new(3, mutant);
    let rank = |me| Rank { looks: 3, ..Rank::new(&shared, me, SlotClass::Small, 0, mutant) };
    let readers = [1, 2].map(|me| {
        let reader = rank(me);
        let theirs = move |position: &u64| audiences[*position as usize] >> me & 1 == 1;
        thread::spawn(move || (0..3).filter(theirs).all(|position| reader.take(0, position)))
    });
    let writer = rank(0);
    let heard =
        |audience: u64| if mutant == Mutant::Unheard { audience & !0b100 } else { audience };
    let published =
        (0..3).all(|position| writer.publish(position, heard(audiences[position as usize])));
    let read = readers.map(|reader| reader.join().expect("the reader ends"));
    assert!(published || read != [true, true], "what was read was published");
}

fn explore(model: fn(Mutant), mutant: Mutant, preemptions: usize) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || model(mutant));
}

thread_local! {
    static SILENT: Cell<bool> = const { Cell::new(false) };
}

/// Says nothing of the panics of a thread that expects one.
fn quieten() {
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

/// What was said when the mutant was caught.
fn catch(model: fn(Mutant), mutant: Mutant) -> String {
    quieten();
    SILENT.set(true);
    let end = catch_unwind(AssertUnwindSafe(|| explore(model, mutant, 2)));
    SILENT.set(false);
    let Err(panic) = end else { panic!("{mutant:?} was not caught") };
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// The mutant lets a payload be touched while its other party may touch it, or shows a line before
/// it is whole.
fn races(model: fn(Mutant), mutant: Mutant) {
    let text = catch(model, mutant);
    let expected =
        ["Causality violation", "before it was read"].iter().any(|way| text.contains(way));
    assert!(expected, "{mutant:?} was caught by something else: {text}");
}

#[test]
fn a_ring_of_one_small_slot() {
    explore(small_ring, Mutant::Nothing, 3);
}

#[test]
fn a_ring_of_two_chunk_slots() {
    explore(chunk_ring, Mutant::Nothing, 3);
}

#[test]
fn a_ring_of_one_line() {
    explore(line_ring, Mutant::Nothing, 3);
}

#[test]
fn an_exchange_that_needs_no_counters() {
    explore(exchange, Mutant::Nothing, 3);
}

#[test]
fn readers_of_different_parts() {
    explore(audiences, Mutant::Nothing, 2);
}

#[test]
fn orderings_that_are_too_weak_are_caught() {
    for model in [small_ring, chunk_ring, line_ring, audiences] {
        for mutant in [
            Mutant::CommitRelaxed,
            Mutant::ReadableRelaxed,
            Mutant::ConsumeRelaxed,
            Mutant::CounterRelaxed,
        ] {
            races(model, mutant);
        }
    }
    for mutant in [Mutant::CommitRelaxed, Mutant::ReadableRelaxed] {
        races(exchange, mutant);
    }
}

#[test]
fn payloads_out_of_turn_are_caught() {
    for model in [small_ring, chunk_ring, line_ring, audiences] {
        races(model, Mutant::ConsumedEarly);
        races(model, Mutant::CommittedEarly);
    }
}

/// Some orders of events break the payload, others the line; which is met first does not matter.
#[test]
fn writers_that_do_not_look_for_room_are_caught() {
    for model in [small_ring, chunk_ring, line_ring, audiences] {
        for mutant in [Mutant::CreditsIgnored, Mutant::Unchecked] {
            catch(model, mutant);
        }
    }
    for model in [small_ring, chunk_ring, audiences] {
        races(model, Mutant::LinesAlone);
    }
}

#[test]
fn credits_that_prove_nothing_are_caught() {
    catch(exchange, Mutant::CreditedEarly);
    catch(audiences, Mutant::Unheard);
}
