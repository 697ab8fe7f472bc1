//! The choice of a way for one kind of calls: a pure function of the times that all ranks have exchanged.
//!
//! Most stretches run in the *present* way. A *round* compares all ways: each gets a short stretch
//! in turn, up to three times, and its best stretch counts, because other work only adds time. Ways
//! that are much slower leave the round after the first lap. A round begins when the calls since
//! the last one have paid for it, or as soon as the duration of calls changes, which shows a change
//! of the machine.

use super::clock::{MOST_TIMED, Stretch};
use super::{Datapath, Ways};
use arrayvec::ArrayVec;

/// Stretches of each way in a round, at most.
const LAPS: usize = 3;
/// Publications that fill the caches as the way does, before those that are timed: as many as a deep ring
/// has slots.
const SETTLING: u64 = maypole_transports::board::MOST_CHUNK_SLOTS as u64;
/// A way leaves a round after so many laps, if it takes so many hundredths of the time of the best.
const TOO_SLOW: [(usize, u64); 2] = [(1, 200), (2, 120)];
/// Another way becomes the present one if it takes fewer hundredths of its time.
const BETTER: u64 = 97;
/// The machine has changed if two stretches in a row take so many hundredths of the longest
/// measured time, or of the shortest.
const CHANGED: u64 = 130;
/// The budget of rounds: one part in so many of the time of all calls.
const BUDGET: u64 = 40;
/// The most nanoseconds that calls save up for rounds.
const MOST_CREDIT: i64 = 50_000_000;
/// Calls between two rounds last so many times as long as a round.
const PAUSE: u64 = 16;
/// Stretches outside of rounds last so many times as long as the exchange before them, but not less than a
/// millisecond, nor more than twenty.
const EXCHANGES: u64 = 300;
const STRETCH_NS: [u64; 2] = [1_000_000, 20_000_000];
/// Calls of such a stretch.
const STRETCH_CALLS: [u64; 2] = [4, 4096];

/// How long the calls of a stretch took: on one rank, or on the slowest. Zero if no stretch has ended.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct StretchTime {
    /// Nanoseconds of a call.
    pub(crate) call_ns: u64,
    /// Nanoseconds of the exchange before the stretch.
    pub(crate) exchange_ns: u64,
}

/// The budget of the rounds of all kinds of a group. Equal on all ranks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    /// Nanoseconds that rounds may waste; negative after a round that was not paid for.
    credit: i64,
    /// The way that the last round chose, in which other kinds begin.
    preferred: Option<Datapath>,
}

impl Account {
    fn earn(&mut self, nanoseconds: u64) {
        let earned = i64::try_from(nanoseconds / BUDGET).unwrap_or(MOST_CREDIT);
        self.credit = self.credit.saturating_add(earned).min(MOST_CREDIT);
    }

    fn spend(&mut self, nanoseconds: u64) {
        self.credit = self.credit.saturating_sub_unsigned(nanoseconds);
    }
}

#[derive(Debug)]
pub(super) struct Explorer {
    ways: Ways,
    publications: u64,
    present: Datapath,
    round: Option<Round>,
    /// Nanoseconds of a call in the present way in the last round, and the round's cost. `None`
    /// before the first.
    known: Option<Known>,
    /// Stretches in a row that took another time than measured before.
    changed: u32,
    /// Nanoseconds of calls since the last round.
    since: u64,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    /// The least and the most that a stretch took.
    call_ns: [u64; 2],
    round_ns: u64,
    wasted_ns: u64,
}

#[derive(Debug)]
struct Round {
    /// Ways that are still compared, and which one runs now.
    left: Ways,
    at: usize,
    lap: usize,
    /// By way, nanoseconds of a call in each lap.
    times: [ArrayVec<u64, LAPS>; Datapath::NAMES.len()],
}

impl Explorer {
    /// The choice among `ways`, of which there is one at least, for calls with so many large publications.
    /// It begins with the way that the last round chose, and with copies only if there is no other way.
    pub(super) fn new(ways: Ways, publications: u64, account: &Account) -> Self {
        let preferred = account.preferred.filter(|way| ways.contains(way));
        let first = ways.iter().copied().find(|way| *way != Datapath::Copied).unwrap_or(ways[0]);
        let present = preferred.unwrap_or(first);
        Self { ways, publications, present, round: None, known: None, changed: 0, since: 0 }
    }

    /// The stretch after `done`, which took that `time` on the slowest rank.
    pub(super) fn after(
        &mut self,
        done: Stretch,
        time: StretchTime,
        account: &mut Account,
    ) -> Stretch {
        let took = time.call_ns.saturating_mul(u64::from(done.calls));
        account.earn(took);
        match &mut self.round {
            Some(round) => {
                if round.end_stretch(done, time.call_ns) {
                    self.conclude(account);
                }
            }
            None => self.watch(time.call_ns, took),
        }
        self.next_stretch(time, account)
    }

    /// Compares a stretch in the present way with its measured time.
    fn watch(&mut self, call_ns: u64, took: u64) {
        self.since = self.since.saturating_add(took);
        let Some(known) = self.known else { return };
        let is_more =
            |more: u64, less: u64| more.saturating_mul(100) > less.saturating_mul(CHANGED);
        let [least, most] = known.call_ns;
        let has_changed = is_more(call_ns, most) || is_more(least, call_ns);
        self.changed = if has_changed { self.changed + 1 } else { 0 };
    }

    /// The stretch after one that took that `time`; first of all, after none.
    pub(super) fn next_stretch(&mut self, time: StretchTime, account: &Account) -> Stretch {
        if self.round.is_none() && self.is_round_due(account) {
            self.round = Some(Round::new(&self.ways, self.present));
        }
        if let Some(round) = &self.round {
            return round.stretch(self.publications);
        }
        let length = EXCHANGES.saturating_mul(time.exchange_ns).clamp(STRETCH_NS[0], STRETCH_NS[1]);
        let calls = (length / time.call_ns.max(1)).clamp(STRETCH_CALLS[0], STRETCH_CALLS[1]) as u32;
        let every = calls.div_ceil(MOST_TIMED as u32 / 4);
        Stretch { way: self.present, calls, untimed: 0, every }
    }

    fn is_round_due(&self, account: &Account) -> bool {
        if self.ways.len() < 2 || account.credit < 0 {
            return false;
        }
        let Some(Known { round_ns, wasted_ns, .. }) = self.known else { return true };
        let is_paid = i64::try_from(wasted_ns).is_ok_and(|wasted| account.credit >= wasted);
        let has_paused = self.since >= PAUSE.saturating_mul(round_ns);
        self.changed >= 2 && self.since >= round_ns || is_paid && has_paused
    }

    fn conclude(&mut self, account: &mut Account) {
        let Some(round) = self.round.take() else { return };
        let of = |way: Datapath| least(&round.times[way.index()]);
        let best = self.ways.iter().copied().min_by_key(|way| of(*way)).unwrap_or(self.present);
        let is_better =
            u128::from(of(best)) * 100 < u128::from(of(self.present)) * u128::from(BETTER);
        if is_better {
            self.present = best;
        }
        let (round_ns, wasted_ns) = round.cost(of(best), self.publications);
        account.spend(wasted_ns);
        if matches!(self.present, Datapath::Slots(_)) {
            account.preferred = Some(self.present);
        }
        let times = &round.times[self.present.index()];
        let call_ns =
            [times.iter().min(), times.iter().max()].map(|time| time.copied().unwrap_or(0));
        self.known = Some(Known { call_ns, round_ns, wasted_ns });
        (self.changed, self.since) = (0, 0);
    }
}

impl Round {
    fn new(ways: &Ways, present: Datapath) -> Self {
        let mut left = ways.clone();
        // The present way is compared first, so that calls that end early stay in it.
        if let Some(at) = left.iter().position(|way| *way == present) {
            left[..=at].rotate_right(1);
        }
        Self { left, at: 0, lap: 0, times: Default::default() }
    }

    fn stretch(&self, publications: u64) -> Stretch {
        let way = self.left[self.at];
        let (untimed, timed) = lengths(way, publications);
        Stretch { way, calls: untimed + timed, untimed, every: 1 }
    }

    /// A stretch has ended. Returns true if the round has.
    fn end_stretch(&mut self, done: Stretch, call_ns: u64) -> bool {
        self.times[done.way.index()].push(call_ns);
        self.at += 1;
        if self.at < self.left.len() {
            return false;
        }
        (self.at, self.lap) = (0, self.lap + 1);
        let times = &self.times;
        let of = |way: &Datapath| least(&times[way.index()]);
        let best = self.left.iter().map(of).min().unwrap_or(0);
        if let Some((_, most)) = TOO_SLOW.iter().find(|(lap, _)| *lap == self.lap) {
            self.left
                .retain(|way| u128::from(of(way)) * 100 <= u128::from(best) * u128::from(*most));
        }
        self.lap == LAPS || self.left.len() == 1
    }

    /// Nanoseconds of all calls of the round, and the saving if each had taken `best`.
    fn cost(&self, best: u64, publications: u64) -> (u64, u64) {
        let mut cost = (0u64, 0u64);
        for ((way, _), times) in Datapath::NAMES.iter().zip(&self.times) {
            let (untimed, timed) = lengths(*way, publications);
            let calls = u64::from(untimed + timed);
            for time in times {
                cost.0 = cost.0.saturating_add(time.saturating_mul(calls));
                cost.1 = cost.1.saturating_add(time.saturating_sub(best).saturating_mul(calls));
            }
        }
        cost
    }
}

fn least(times: &[u64]) -> u64 {
    times.iter().copied().min().unwrap_or(u64::MAX)
}

/// Calls of a stretch of a round that are not timed, and those that are.
fn lengths(way: Datapath, publications: u64) -> (u32, u32) {
    let calls = SETTLING.div_ceil(publications.max(1)).max(1) as u32;
    match way {
        Datapath::Slots(_) => (calls, calls.max(2)),
        // No slots have to be filled, and each call takes an exchange.
        Datapath::Copied | Datapath::Registered => (1, calls.div_ceil(4).max(2)),
    }
}

#[cfg(test)]
#[path = "explorer_tests.rs"]
mod tests;
