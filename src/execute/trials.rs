//! Which of several ways to run a call takes the least time here and now: found by trials of whole calls.
//!
//! One rank measures, and tells the others. Now and then it makes a *trial*: a few calls in another way, in
//! all ranks, of which the last half is timed. It changes the way where the median of three trials took less
//! time, or one took far less. One call in fifty is one of a trial, or fewer. A trial comes early where calls
//! have become much slower.

use arrayvec::ArrayVec;
use std::time::Duration;

/// Calls for each call of a trial, at least.
const CALLS_A_TRIAL: u32 = 50;
/// Trials that may be made early, one after the other.
const EARLY_TRIALS: u32 = 6;
/// Another way is chosen if calls take this part of the time, by the median of three trials.
const BETTER: f64 = 0.93;
/// The same, by one trial.
const MUCH_BETTER: f64 = 0.6;
/// Calls have become slower if two in a row take so many times as long as the quickest before.
const SLOWER: f64 = 1.5;
/// The most ways.
pub(crate) const MOST_WAYS: usize = 3;

/// The choice among ways, which are numbers below [`MOST_WAYS`]. The first way is 0.
#[derive(Debug)]
pub(crate) struct Trials {
    /// The order in which ways are tried.
    order: &'static [u8],
    has_begun: bool,
    way: u8,
    /// The way of the last trial.
    tried: u8,
    /// By way, calls of a trial.
    lengths: [u32; MOST_WAYS],
    /// Calls from one that is timed to the next.
    every: u32,
    /// Times as many calls as pay for a trial that are between two once all ways have been tried.
    rounds: u32,
    /// Calls left of the trial that is made now, and the quickest of its last half.
    trial: u32,
    quickest: Option<Duration>,
    /// The last calls that were timed outside of trials, oldest first.
    watched: ArrayVec<Duration, 4>,
    until_watched: u32,
    /// Such calls in a row that were slower.
    slower: u32,
    /// Calls until the next trial.
    until_trial: u32,
    /// Calls that have been made for those of trials.
    credit: u32,
    /// All ways that are possible have been tried since the way has changed.
    is_known: bool,
    /// How the calls of the last trials in each way compare with those before, oldest first.
    ratios: [ArrayVec<f64, 3>; MOST_WAYS],
}

impl Trials {
    /// The choice among the ways of `order`, by trials of as many calls as `lengths` says by way. One call
    /// in `every` is timed. Once all ways have been tried, `rounds` times as many calls as pay for a trial
    /// come after it.
    pub(crate) fn new(
        order: &'static [u8],
        lengths: [u32; MOST_WAYS],
        every: u32,
        rounds: u32,
    ) -> Self {
        Self {
            order,
            has_begun: false,
            way: 0,
            tried: order[order.len() - 1],
            lengths,
            every,
            rounds,
            trial: 0,
            quickest: None,
            watched: ArrayVec::new(),
            until_watched: 0,
            slower: 0,
            until_trial: 0,
            credit: most_credit(lengths),
            is_known: false,
            ratios: Default::default(),
        }
    }

    /// The way in which calls run but for those of trials.
    pub(crate) fn way(&self) -> u8 {
        self.way
    }

    /// True if calls run in `way` but for trials, or if it is tried now.
    pub(crate) fn uses(&self, way: u8) -> bool {
        self.way == way || self.trial > 0 && self.tried == way
    }

    /// Begins with `way`, if that is possible and this is the first call.
    pub(crate) fn prefer(&mut self, way: u8, is_possible: bool) {
        if !std::mem::replace(&mut self.has_begun, true) && is_possible {
            self.way = way;
        }
    }

    /// True if all ways have been tried since the way has changed.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known
    }

    /// Calls until a trial may begin.
    pub(crate) fn until_trial(&self) -> u32 {
        self.until_trial
    }

    /// A call begins, for which ways may be chosen that are `possible`. Returns its way, and whether it is
    /// timed. The way that calls run in is possible.
    pub(crate) fn begin(&mut self, possible: impl Fn(u8) -> bool) -> (u8, bool) {
        self.credit = (self.credit + 1).min(most_credit(self.lengths));
        let is_due = self.until_trial == 0 || self.slower >= 2;
        let may_begin = self.trial == 0 && is_due && self.watched.len() >= 2;
        let tried = may_begin.then(|| self.candidate(possible)).flatten();
        if let Some(tried) = tried.filter(|tried| self.credit >= self.cost(*tried)) {
            self.credit -= self.cost(tried);
            (self.trial, self.quickest) = (self.lengths[usize::from(tried)], None);
            self.tried = tried;
        }
        if self.trial > 0 {
            let length = self.lengths[usize::from(self.tried)];
            return (self.tried, self.trial <= length.div_ceil(2));
        }
        self.until_trial = self.until_trial.saturating_sub(1);
        let is_watched = self.until_watched == 0;
        self.until_watched = if is_watched { self.every - 1 } else { self.until_watched - 1 };
        (self.way, is_watched)
    }

    /// Calls that pay for a trial of `way`.
    fn cost(&self, way: u8) -> u32 {
        self.lengths[usize::from(way)] * CALLS_A_TRIAL
    }

    /// The way to try next: another one each time, but always the same one where calls have become
    /// slower.
    fn candidate(&self, possible: impl Fn(u8) -> bool) -> Option<u8> {
        let first = match self.slower {
            0 | 1 => self.order.iter().position(|way| *way == self.tried).map_or(0, |at| at + 1),
            _ => 0,
        };
        let ways = self.order.iter().copied().cycle().skip(first).take(self.order.len());
        ways.into_iter().find(|way| *way != self.way && possible(*way))
    }

    /// A call has ended, which took so long, if it was timed. Returns true if the way has changed.
    pub(crate) fn end(&mut self, took: Option<Duration>) -> bool {
        let before = self.way;
        if self.trial > 0 {
            self.quickest = took.into_iter().chain(self.quickest).min();
            self.trial -= 1;
            if self.trial == 0 {
                self.conclude();
            }
        } else if let Some(took) = took {
            let is_slower =
                |quickest: &Duration| took.as_secs_f64() > SLOWER * quickest.as_secs_f64();
            let slower = self.watched.iter().min().is_some_and(is_slower);
            self.slower = if slower { self.slower + 1 } else { 0 };
            push(&mut self.watched, took);
        }
        self.way != before
    }

    /// Compares the calls of the trial that has ended with those before.
    fn conclude(&mut self) {
        let before = match self.slower {
            0 | 1 => self.watched.iter().min(),
            _ => self.watched.iter().rev().take(2).min(),
        };
        let (Some(before), Some(trial)) = (before, self.quickest) else { return };
        let ratio = trial.as_secs_f64() / before.as_secs_f64();
        let ratios = &mut self.ratios[self.tried as usize];
        push(ratios, ratio);
        self.slower = 0;
        let mut sorted = ratios.clone();
        sorted.sort_by(f64::total_cmp);
        if ratio < MUCH_BETTER || sorted.get(2).is_some_and(|_| sorted[1] < BETTER) {
            self.way = self.tried;
            self.ratios.iter_mut().for_each(ArrayVec::clear);
            self.watched.clear();
        }
        // A way that has never been tried is not possible.
        let is_known = |it: &ArrayVec<_, 3>| it.is_empty() || it.is_full();
        self.is_known =
            self.ratios.iter().any(ArrayVec::is_full) && self.ratios.iter().all(is_known);
        let pause = self.rounds * self.cost(self.tried);
        self.until_trial = if self.is_known { pause } else { 4 * self.every };
    }
}

/// The most calls that count for those of trials.
fn most_credit(lengths: [u32; MOST_WAYS]) -> u32 {
    lengths.into_iter().max().unwrap_or(0) * CALLS_A_TRIAL * EARLY_TRIALS
}

/// Adds `value`, in the place of the oldest if there is no other.
fn push<T, const N: usize>(to: &mut ArrayVec<T, N>, value: T) {
    if to.is_full() {
        to.remove(0);
    }
    to.push(value);
}
