//! Whether calls copy private memory or go through slots, where both are possible: found by
//! [trials](Trials) of whole calls.
//!
//! Prices decide only how calls of a kind begin. Rank 0 measures. Before a call that may copy, all ranks
//! tell where their buffers lie, and rank 0 tells with it whether this call copies, and if not, how many
//! calls of the kind go through slots before ranks ask again. So all ranks ask in the same calls. All of
//! them count the calls of a kind alike, because the calls of a group have one order.

use crate::engine::calls::choice::CallKind;
use crate::execute::{MOST_WAYS, Trials};
use lru::LruCache;
use std::num::NonZeroUsize;
use std::time::Duration;

/// Kinds that are known at most. Of those that were forgotten, calls begin anew, on all ranks.
const MOST: NonZeroUsize = NonZeroUsize::new(256).unwrap();
/// Calls of a kind through slots before the first that asks.
const FIRST: u32 = 16;
/// How often rank 0 waits until slots are known.
const LONGEST_WAIT: u32 = 32;
/// Calls before the next that asks where some rank has memory that others cannot read.
const UNREADABLE: u32 = 10_000;
/// Calls of a trial, and from one that is timed to the next.
const TRIAL: u32 = 4;
const WATCHED: u32 = 2;
/// Calls between trials, in times of what pays for one: where copies lose, they may lose by a lot.
const ROUNDS: u32 = 8;

const SLOTS: u8 = 0;
const COPIES: u8 = 1;

/// A kind, and whether this rank calls in place.
type OwnKind = (CallKind, bool);

/// The choice for each kind of calls.
#[derive(Debug)]
pub(super) struct CopyTrials(LruCache<CallKind, KindState>);

#[derive(Debug)]
struct KindState {
    /// Calls through slots until the next that asks.
    until_asked: u32,
    /// The choice of rank 0, for calls with two buffers and for those in place, which copy less. Not all
    /// ranks need to call alike.
    trials: [Trials; 2],
    /// How often rank 0 was asked before slots were known.
    waited: u32,
}

/// What rank 0 tells before a call.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct CopyVote {
    /// The call copies, if all ranks can.
    pub(super) copies: bool,
    /// If it does not, so many more go through slots before ranks ask again.
    pub(super) calls: u32,
}

impl Default for CopyTrials {
    fn default() -> Self {
        Self(LruCache::new(MOST))
    }
}

impl CopyTrials {
    fn state(&mut self, kind: CallKind) -> &mut KindState {
        self.0.get_mut(&kind).expect("a call asks first")
    }

    /// A call of this kind begins, of which the first copy if `copies_first`. Returns true if the ranks ask.
    pub(super) fn asks(&mut self, kind: CallKind, copies_first: bool) -> bool {
        let state = self.0.get_or_insert_mut(kind, || {
            let trials = std::array::from_fn(|_| {
                let mut trials = Trials::new(&[COPIES, SLOTS], [TRIAL; MOST_WAYS], WATCHED, ROUNDS);
                trials.prefer(COPIES, copies_first);
                trials
            });
            KindState { until_asked: if copies_first { 0 } else { FIRST }, trials, waited: 0 }
        });
        let asks = state.until_asked == 0;
        state.until_asked = state.until_asked.saturating_sub(1);
        asks
    }

    /// What this rank tells if it is rank 0, and whether it is to time the call. Copies are not tried
    /// before the best way to store in slots `is_known`, or they would win against the others; but it may
    /// never be, if calls have ever new lengths.
    pub(super) fn vote(&mut self, (kind, in_place): OwnKind, is_known: bool) -> (CopyVote, bool) {
        let KindState { trials, waited, .. } = self.state(kind);
        *waited += u32::from(!is_known && *waited < LONGEST_WAIT);
        let is_known = is_known || *waited == LONGEST_WAIT;
        let (way, is_timed) = trials[usize::from(in_place)].begin(|way| way == SLOTS || is_known);
        let calls = match trials.iter().any(|trials| trials.uses(COPIES)) {
            true => 0,
            false => trials[usize::from(in_place)].until_trial().max(FIRST),
        };
        (CopyVote { copies: way == COPIES, calls }, is_timed)
    }

    /// True if rank 0 is to time a call through slots, for which ranks do not ask.
    pub(super) fn is_watched(&mut self, (kind, in_place): OwnKind) -> bool {
        self.state(kind).trials[usize::from(in_place)].begin(|way| way == SLOTS).1
    }

    /// Rank 0 has told this vote; all ranks could copy, or not.
    pub(super) fn told(&mut self, kind: CallKind, vote: CopyVote, could_copy: bool) {
        self.state(kind).until_asked = match (vote.copies, could_copy) {
            (true, true) => 0,
            (true, false) => UNREADABLE,
            (false, _) => vote.calls,
        };
    }

    /// Rank 0 has ended a call, which took so long, if it was timed.
    pub(super) fn end(&mut self, (kind, in_place): OwnKind, took: Option<Duration>) {
        self.state(kind).trials[usize::from(in_place)].end(took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::collective::Collective;

    const KIND: CallKind = (Collective::AllGather, 1 << 20, false, None);

    /// One call of two ranks, which takes so many microseconds through slots and by copies. Returns
    /// whether it copies. Panics if only one of the ranks asks.
    fn call(ranks: &mut [CopyTrials; 2], kind: CallKind, first: bool, costs: [u64; 2]) -> bool {
        call_in(ranks, (kind, false), first, costs)
    }

    fn call_in(ranks: &mut [CopyTrials; 2], own: OwnKind, first: bool, costs: [u64; 2]) -> bool {
        let kind = own.0;
        let asks = ranks.each_mut().map(|rank| rank.asks(kind, first));
        assert_eq!(asks[0], asks[1], "all ranks ask in the same calls");
        let (vote, is_timed) = match asks[0] {
            true => ranks[0].vote(own, true),
            false => {
                let trials = &ranks[0].state(kind).trials[usize::from(own.1)];
                assert!(!trials.uses(COPIES), "calls that may copy are asked for");
                (CopyVote::default(), ranks[0].is_watched(own))
            }
        };
        if asks[0] {
            ranks.iter_mut().for_each(|rank| rank.told(kind, vote, true));
        }
        let took = Duration::from_micros(costs[usize::from(vote.copies)]);
        ranks[0].end(own, is_timed.then_some(took));
        vote.copies
    }

    /// Calls until eight in a row have copied, or have not.
    fn until(ranks: &mut [CopyTrials; 2], copies: bool, costs: [u64; 2]) -> usize {
        let mut row = 0;
        for nth in 0..20_000 {
            row = if call(ranks, KIND, false, costs) == copies { row + 1 } else { 0 };
            if row == 8 {
                return nth;
            }
        }
        panic!("no change within 20000 calls");
    }

    #[test]
    fn the_faster_of_slots_and_copies_is_found_and_found_again() {
        let mut ranks = <[CopyTrials; 2]>::default();
        assert!(until(&mut ranks, true, [90, 60]) < 100);
        assert!(until(&mut ranks, false, [30, 60]) < 1000, "slots have become faster");
        assert!(until(&mut ranks, true, [300, 60]) < 5000, "copies are again");
        assert!(until(&mut ranks, false, [30, 60]) < 5000, "and slots");
        assert!(until(&mut ranks, true, [30, 15]) < 5000, "slots take as long as before");
    }

    #[test]
    fn copies_are_not_tried_before_slots_are_known() {
        let mut rank = CopyTrials::default();
        for nth in 0..1000 {
            let asks = rank.asks(KIND, false);
            let vote = asks.then(|| rank.vote((KIND, false), nth >= 300).0);
            if let Some(vote) = vote {
                rank.told(KIND, vote, true);
            } else {
                rank.is_watched((KIND, false));
            }
            rank.end((KIND, false), Some(Duration::from_micros(90)));
            assert!(nth >= 300 || !vote.is_some_and(|vote| vote.copies));
            if vote.is_some_and(|vote| vote.copies) {
                return;
            }
        }
        panic!("copies were never tried");
    }

    /// Calls of ever new lengths are of one kind, but no program of them learns how to store.
    #[test]
    fn copies_are_tried_at_last_where_slots_are_never_known() {
        let mut rank = CopyTrials::default();
        let copies = (0..2000).position(|_| {
            let asks = rank.asks(KIND, false);
            let vote = asks.then(|| rank.vote((KIND, false), false).0);
            match vote {
                Some(vote) => rank.told(KIND, vote, true),
                None => drop(rank.is_watched((KIND, false))),
            }
            rank.end((KIND, false), Some(Duration::from_micros(90)));
            vote.is_some_and(|vote| vote.copies)
        });
        assert!(copies.is_some_and(|nth| nth > 400), "{copies:?}");
    }

    /// Both forms have one count of calls until ranks ask again, but a choice each.
    #[test]
    fn calls_in_place_are_weighed_apart() {
        let mut ranks = <[CopyTrials; 2]>::default();
        let mut copies = [0, 0];
        for nth in 0..6000 {
            let in_place = nth % 3 == 0;
            let costs = if in_place { [90, 40] } else { [90, 120] };
            let copied = call_in(&mut ranks, (KIND, in_place), false, costs);
            copies[usize::from(in_place)] += usize::from(copied && nth >= 3000);
        }
        assert!(copies[0] < 100 && copies[1] > 900, "{copies:?}");
    }

    #[test]
    fn trials_are_rare_and_dear_ones_rarer() {
        for (costs, most) in [([60, 66], 120), ([60, 240], 60)] {
            let mut ranks = <[CopyTrials; 2]>::default();
            let copies = (0..10_000).filter(|_| call(&mut ranks, KIND, false, costs)).count();
            assert!((8..most).contains(&copies), "{copies} of 10000 calls");
        }
    }

    #[test]
    fn calls_that_are_cheaper_by_price_copy_from_the_first_on() {
        let mut ranks = <[CopyTrials; 2]>::default();
        assert!((0..3).all(|_| call(&mut ranks, KIND, true, [90, 60])));
        let copies = (0..1000).filter(|_| call(&mut ranks, KIND, true, [90, 60])).count();
        assert!(copies > 970, "{copies} of 1000 calls");
    }

    #[test]
    fn ranks_that_cannot_copy_are_asked_again_much_later() {
        let mut rank = CopyTrials::default();
        assert!(rank.asks(KIND, true));
        let (vote, _) = rank.vote((KIND, false), true);
        rank.told(KIND, vote, false);
        rank.end((KIND, false), None);
        assert!((0..UNREADABLE).all(|_| !rank.asks(KIND, true)));
        assert!(rank.asks(KIND, true));
    }

    /// Kinds are forgotten on all ranks at once, whatever each of them remembers else.
    #[test]
    fn ever_new_kinds_are_forgotten_alike() {
        let mut ranks = <[CopyTrials; 2]>::default();
        for nth in 0..20_000_usize {
            let kind = (Collective::AllGather, nth * nth % 701, false, None);
            call(&mut ranks, kind, nth.is_multiple_of(3), [90, 60]);
            assert!(ranks[0].0.len() <= MOST.get());
        }
    }
}
