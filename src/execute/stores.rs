//! How large publications are stored: in the way in which a call takes the least time here and now.
//!
//! # The problem
//!
//! A writer fills the same few slots again and again. Its readers have read them, so an ordinary store
//! first takes the line back from another core. On some machines that goes at 2 GB/s, on others at 10.
//! A store past the caches takes nothing back and runs at 30 GB/s there; but it goes to memory, from
//! where the readers fetch it, and on other machines that is slower. In a deep ring, the readers' caches
//! have lost a slot before it is filled again; but the writer's have, too. A virtual machine that is moved
//! changes from one to the other while it runs. And where all ranks write and read at once, they share
//! the memory, so what one store takes alone says little of what a call takes.
//!
//! # The idea
//!
//! Bytes, plan and program are the same in every [way](StoreWay). So the first rank of a board measures
//! whole calls of a program, by [trials](super::trials). A word of the board tells the other ranks the way
//! of the program. A rank that reads it too early or too late stores a call in another way, which costs time
//! and nothing else. A program begins in the way to which another one changed last.

use super::{Buffers, ExecuteError, Executor, MOST_WAYS, Trials};
use crate::lower::{MAX_SOURCES, Program};
use arrayvec::ArrayVec;
use maypole_kernels::{Reducer, Region, View, ViewMut};
use maypole_transports::board::{Board, SlotClass};
use std::cell::RefCell;
use std::time::Instant;

/// Publications of a trial: several times as many as there are slots, so that what the calls before
/// left in the caches does not count.
const TRIAL: u64 = 16;
/// The same in a deep ring: twice as many as it has slots, because it is of use when all of them were
/// filled before.
const DEEP_TRIAL: u64 = 128;
/// Publications from one call that is timed to the next, outside of trials.
const WATCHED: u64 = 8;
/// Bytes that are combined before they are copied past the caches.
const BLOCK: usize = 16 << 10;

/// A way to store publications in the large slots of a rank.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum StoreWay {
    /// By ordinary stores, in as many slots as the program needs.
    #[default]
    Ordinary,
    /// By stores past the caches, in the same slots.
    PastCaches,
    /// By ordinary stores, in all slots of a deep board.
    DeepRing,
}

impl StoreWay {
    /// All of them, by number.
    pub(crate) const ALL: [Self; MOST_WAYS] = [Self::Ordinary, Self::PastCaches, Self::DeepRing];
    /// In the order in which they are tried.
    const ORDER: [u8; 3] = [Self::PastCaches as u8, Self::Ordinary as u8, Self::DeepRing as u8];

    /// The way that this rank's trials or another rank's word names.
    fn from_word(word: u8) -> Self {
        Self::ALL.into_iter().find(|way| *way as u8 == word).unwrap_or_default()
    }
}

/// The choice for one program, as the first rank of a board makes it. Empty for a program without large
/// publications.
#[derive(Debug)]
pub struct StoreChoice(Option<Box<RefCell<Trials>>>);

/// Publications in large slots of one rank, by how they were stored.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct StoreCounts {
    /// By ordinary stores.
    pub ordinary: u64,
    /// Past the caches.
    pub past_caches: u64,
    /// By ordinary stores in a deep ring of slots.
    pub deep_ring: u64,
}

impl StoreCounts {
    /// The publications since `other`, an earlier count of the same rank.
    pub(crate) fn less(self, other: Self) -> Self {
        Self {
            ordinary: self.ordinary - other.ordinary,
            past_caches: self.past_caches - other.past_caches,
            deep_ring: self.deep_ring - other.deep_ring,
        }
    }
}

impl StoreChoice {
    /// The choice for `program`: ordinary stores, until a trial says otherwise.
    pub fn new(program: &Program) -> Self {
        let most = program.totals.iter().copied().max().unwrap_or(0);
        let is_large = program.class == SlotClass::Chunk && program.registered.is_none();
        Self::of(if is_large { most } else { 0 })
    }

    /// The choice for a program of so many large publications.
    fn of(publications: u64) -> Self {
        if publications == 0 {
            return Self(None);
        }
        let calls = |of: u64| of.div_ceil(publications) as u32;
        let short = calls(TRIAL).max(2);
        let lengths = [short, short, calls(DEEP_TRIAL).max(2)];
        let trials = Trials::new(&StoreWay::ORDER, lengths, calls(WATCHED), 2);
        Self(Some(Box::new(RefCell::new(trials))))
    }

    /// True if there is a choice.
    pub fn applies(&self) -> bool {
        self.0.is_some()
    }

    /// True if there is no choice, or all ways have been tried since it has changed.
    pub fn is_known(&self) -> bool {
        self.0.as_ref().is_none_or(|trials| trials.borrow().is_known())
    }

    /// Bytes that it takes besides its own.
    pub fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |_| size_of::<RefCell<Trials>>())
    }
}

impl Executor {
    /// Executes `program` as [`run`](Self::run) does, in the way of storing that `choice` prefers.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Panics
    /// As [`run`](Self::run).
    pub fn run_choosing(
        &mut self,
        program: &Program,
        choice: &StoreChoice,
        reducer: &Reducer,
        buffers: &Buffers<'_>,
    ) -> Result<(), Box<ExecuteError>> {
        let (Some(board), Some(choice)) = (&self.board, &choice.0) else {
            return self.run(program, reducer, buffers);
        };
        let chosen = board.chosen(program.fingerprint);
        let (way, is_timed) = match self.me {
            0 => {
                let is_possible = |way| self.can_store(StoreWay::from_word(way), program);
                let mut choice = choice.borrow_mut();
                choice.prefer(self.preferred_way, is_possible(self.preferred_way));
                choice.begin(is_possible)
            }
            _ => (chosen, false),
        };
        if way != chosen {
            board.choose(program.fingerprint, way);
        }
        let way = StoreWay::from_word(way);
        let count = program.totals[self.me];
        match way {
            StoreWay::PastCaches => self.store_counts.past_caches += count,
            StoreWay::DeepRing if self.can_store(way, program) => {
                self.store_counts.deep_ring += count
            }
            _ => self.store_counts.ordinary += count,
        }
        let start = is_timed.then(Instant::now);
        let done = self.run_storing(way, program, reducer, buffers);
        if self.me == 0 {
            let mut choice = choice.borrow_mut();
            if choice.end(start.map(|start| start.elapsed())) {
                self.preferred_way = choice.way();
            }
        }
        done
    }

    /// True if this rank can store the publications of `program` in this `way`.
    pub(crate) fn can_store(&self, way: StoreWay, program: &Program) -> bool {
        let deep = self.board.as_ref().map_or(0, Board::deep_mask);
        way != StoreWay::DeepRing || self.allows_deep_ring && deep > program.mask
    }

    /// Executes `program` as [`run`](Self::run) does, and stores its large publications in this `way`, or in
    /// the ordinary one if this rank cannot.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Panics
    /// As [`run`](Self::run).
    pub(crate) fn run_storing(
        &mut self,
        way: StoreWay,
        program: &Program,
        reducer: &Reducer,
        buffers: &Buffers<'_>,
    ) -> Result<(), Box<ExecuteError>> {
        match way {
            StoreWay::PastCaches => {
                if self.scratch.is_empty() {
                    self.scratch = Region::new(BLOCK);
                }
                self.past_slots = true;
            }
            StoreWay::DeepRing if self.can_store(way, program) => {
                self.more_slots = self.board.as_ref().map_or(0, Board::deep_mask);
            }
            _ => {}
        }
        let done = self.run(program, reducer, buffers);
        (self.past_slots, self.more_slots) = (false, 0);
        done
    }

    /// How publications in the large slots of this rank were stored.
    pub fn store_counts(&self) -> StoreCounts {
        self.store_counts
    }
}

/// Combines `views`, stores the result in `into`, if that is given, and past the caches in `slot`. A
/// block of the result stays in the first cache until it is copied to the slot. `scratch` holds a block.
#[inline(never)]
pub(super) fn publish_past_caches(
    reducer: &Reducer,
    scratch: &Region,
    into: Option<ViewMut<'_>>,
    slot: ViewMut<'_>,
    views: &[View<'_>],
) {
    if let [only] = views {
        into.iter().for_each(|into| into.copy_from(*only));
        return slot.copy_past_caches(*only);
    }
    for at in (0..slot.len()).step_by(BLOCK) {
        let len = BLOCK.min(slot.len() - at);
        let block: ArrayVec<View<'_>, MAX_SOURCES> =
            views.iter().map(|view| view.slice(at, len)).collect();
        let result = match into {
            Some(into) => into.slice(at, len),
            None => scratch.view().slice(0, len),
        };
        reducer.apply(result, None, &block);
        slot.slice(at, len).copy_past_caches(result.as_view());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use StoreWay::{DeepRing, Ordinary, PastCaches};
    use std::time::Duration;

    /// What a call takes, in microseconds: by ordinary stores, past the caches, in a deep ring.
    type Costs = [u64; 3];

    const NEAR: Costs = [90, 105, 88];
    const FAR: Costs = [300, 93, 250];
    const DEEP: Costs = [90, 105, 70];

    /// One call, which takes `times` as long as on a quiet machine. Returns how it stored.
    fn call(choice: &StoreChoice, costs: Costs, times: u64) -> StoreWay {
        let state = choice.0.as_ref().unwrap();
        let (way, is_timed) = state.borrow_mut().begin(|_| true);
        let took = Duration::from_micros(costs[usize::from(way)] * times);
        state.borrow_mut().end(is_timed.then_some(took));
        StoreWay::from_word(way)
    }

    fn preferred(choice: &StoreChoice) -> StoreWay {
        choice.0.as_ref().map_or(Ordinary, |state| StoreWay::from_word(state.borrow().way()))
    }

    /// The calls until the choice is for `way`.
    fn until(choice: &StoreChoice, costs: Costs, way: StoreWay, most: u32) -> Option<u32> {
        (0..most).find(|_| {
            call(choice, costs, 1);
            preferred(choice) == way
        })
    }

    #[test]
    fn the_quickest_way_is_found_soon() {
        for publications in [1, 2, 16, 64] {
            let calls = (200 / publications).max(8) as u32;
            let of = || StoreChoice::of(publications);
            assert!(until(&of(), FAR, PastCaches, calls).is_some(), "{publications}");
            assert_eq!(until(&of(), NEAR, PastCaches, 10_000), None);
            assert_eq!(until(&of(), NEAR, DeepRing, 10_000), None);
            let slightly = until(&of(), [60, 47, 60], PastCaches, 8 * calls);
            assert!(slightly.is_some(), "{publications}");
            assert!(until(&of(), DEEP, DeepRing, 8 * calls).is_some(), "{publications}");
        }
    }

    #[test]
    fn a_program_begins_in_the_way_of_another() {
        for (is_possible, way) in [(true, DeepRing), (false, Ordinary)] {
            let choice = StoreChoice::of(16);
            let mut state = choice.0.as_ref().unwrap().borrow_mut();
            state.prefer(DeepRing as u8, is_possible);
            assert_eq!(state.begin(|_| true).0, way as u8);
            assert!(!state.end(None));
            state.prefer(PastCaches as u8, true);
            assert_eq!(state.way(), way as u8, "it keeps what it has learnt");
        }
    }

    #[test]
    fn a_board_without_a_deep_ring_has_two_ways() {
        let choice = StoreChoice::of(16);
        let state = choice.0.as_ref().unwrap();
        for _ in 0..5000 {
            let (way, is_timed) = state.borrow_mut().begin(|way| way != DeepRing as u8);
            assert_ne!(way, DeepRing as u8);
            let took = Duration::from_micros(DEEP[usize::from(way)]);
            state.borrow_mut().end(is_timed.then_some(took));
        }
    }

    #[test]
    fn a_change_of_costs_is_noticed_within_a_hundred_publications() {
        for publications in [2, 16] {
            let choice = StoreChoice::of(publications);
            assert_eq!(until(&choice, NEAR, PastCaches, 1000), None);
            let calls = 100 / publications as u32;
            let apart = until(&choice, FAR, PastCaches, calls);
            assert!(apart.is_some(), "{publications}: cores move apart");
            assert!(
                until(&choice, NEAR, Ordinary, 80 * calls).is_some(),
                "{publications}: and back"
            );
            for _ in 0..5000 {
                call(&choice, NEAR, 1);
            }
            let again = until(&choice, FAR, PastCaches, calls);
            assert!(again.is_some(), "{publications}: and apart again");
        }
    }

    /// Nothing tells that but a trial: calls in the present way take as long as before.
    #[test]
    fn a_way_that_has_become_faster_is_found() {
        let choice = StoreChoice::of(16);
        assert_eq!(until(&choice, [90, 105, 200], DeepRing, 3000), None);
        assert!(until(&choice, [90, 105, 50], DeepRing, 3000).is_some());
    }

    #[test]
    fn trials_are_rare() {
        for costs in [NEAR, FAR, DEEP] {
            let choice = StoreChoice::of(16);
            let trials =
                (0..20_000).filter(|_| call(&choice, costs, 1) != preferred(&choice)).count();
            assert!((20..=420).contains(&trials), "{trials} of 20000 calls");
        }
    }

    #[test]
    fn late_ranks_change_little() {
        let choice = StoreChoice::of(16);
        let mut wrong = 0;
        for nth in 0..20_000_u32 {
            let times = if nth.wrapping_mul(0x9E37_79B1) >> 20 & 7 == 0 { 30 } else { 1 };
            call(&choice, NEAR, times);
            wrong += u32::from(preferred(&choice) == PastCaches);
        }
        assert!(wrong < 1000, "{wrong} of 20000 calls");
    }

    #[test]
    fn a_program_without_large_publications_has_no_choice() {
        assert!(!StoreChoice::of(0).applies());
        assert!(StoreChoice::of(1).applies());
    }
}
