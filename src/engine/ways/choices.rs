//! One rank's state of the ways of all kinds of calls of a group.

use super::clock::StretchClock;
use super::explorer::{Account, Explorer, StretchTime};
use super::{Datapath, Ways};
use lru::LruCache;
use std::hash::Hash;
use std::num::NonZeroUsize;
use std::time::Duration;

/// The number of cached kinds. Evicted ones begin anew, on all ranks.
const MOST: NonZeroUsize = NonZeroUsize::new(256).unwrap();

/// The ways of the calls of a kind.
#[derive(Clone, Debug)]
pub(crate) struct CallWays {
    /// With private memory.
    pub(crate) private: Ways,
    /// Large publications of a call.
    pub(crate) publications: u64,
    /// Calls run in registered memory if all ranks have passed it.
    pub(crate) may_register: bool,
}

impl CallWays {
    /// True if there is something to choose, or to exchange.
    pub(crate) fn needs_exchanges(&self) -> bool {
        self.private.len() > 1 || self.private.contains(&Datapath::Copied) || self.may_register
    }
}

/// How one call moves its bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct CallTurn {
    pub(crate) way: Datapath,
    /// This rank times the call.
    pub(crate) is_timed: bool,
}

/// The choices of a group, by the kind `K` of calls, which is equal on all ranks.
#[derive(Debug)]
pub(crate) struct WayChoices<K: Hash + Eq> {
    kinds: LruCache<K, KindState>,
    account: Account,
}

/// The choice for one kind.
#[derive(Debug)]
struct KindState {
    explorer: Explorer,
    clock: StretchClock,
    /// Nanoseconds of the last exchange.
    exchange_ns: u64,
}

impl<K: Hash + Eq> Default for WayChoices<K> {
    fn default() -> Self {
        Self { kinds: LruCache::new(MOST), account: Account::default() }
    }
}

impl<K: Hash + Eq> WayChoices<K> {
    /// A call of this `kind` begins. Returns true if the ranks exchange before it.
    pub(crate) fn exchanges(&mut self, kind: K, ways: &CallWays) -> bool {
        let account = &self.account;
        let state = self.kinds.get_or_insert_mut(kind, || KindState::new(ways, account));
        let copies = state.clock.stretch.way == Datapath::Copied;
        state.clock.is_over() || ways.may_register || copies
    }

    /// This rank's report in the exchange before a call of `kind`.
    pub(crate) fn report(&mut self, kind: &K) -> StretchTime {
        let KindState { clock, exchange_ns, .. } = self.state(kind);
        match clock.is_over() {
            true => StretchTime { call_ns: clock.call_ns(), exchange_ns: *exchange_ns },
            false => StretchTime::default(),
        }
    }

    /// All ranks have exchanged before a call of `kind`, in the time `took` on this one. `slowest`
    /// has the greatest times that they report.
    pub(crate) fn exchanged(&mut self, kind: &K, slowest: StretchTime, took: Duration) {
        let state = self.kinds.get_mut(kind).expect("a call begins first");
        state.exchange_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        if state.clock.is_over() {
            let next = state.explorer.after(state.clock.stretch, slowest, &mut self.account);
            state.clock = StretchClock::new(next);
        }
    }

    /// How this rank makes the call of `kind` that begins now, with private memory.
    pub(crate) fn begin(&mut self, kind: &K) -> CallTurn {
        let clock = &mut self.state(kind).clock;
        CallTurn { way: clock.stretch.way, is_timed: clock.begin() }
    }

    /// The call of `kind` that was timed has ended.
    pub(crate) fn end(&mut self, kind: &K, took: Duration) {
        self.state(kind).clock.note(took);
    }

    fn state(&mut self, kind: &K) -> &mut KindState {
        self.kinds.get_mut(kind).expect("a call begins first")
    }
}

impl KindState {
    fn new(ways: &CallWays, account: &Account) -> Self {
        let mut explorer = Explorer::new(ways.private.clone(), ways.publications, account);
        let clock = StretchClock::new(explorer.next_stretch(StretchTime::default(), account));
        Self { explorer, clock, exchange_ns: 0 }
    }
}

#[cfg(test)]
#[path = "choices_tests.rs"]
mod tests;
