//! The ways of all kinds of calls of a group, as one rank keeps them.

use super::clock::StretchClock;
use super::explorer::{Account, Explorer, StretchTime};
use super::{Datapath, Ways};
use lru::LruCache;
use std::hash::Hash;
use std::num::NonZeroUsize;
use std::time::Duration;

/// Kinds that are kept. Those that were forgotten begin anew, on all ranks.
const MOST: NonZeroUsize = NonZeroUsize::new(256).unwrap();

/// The ways of the calls of a kind.
#[derive(Clone, Debug)]
pub(in crate::engine) struct CallWays {
    /// With private memory, and with registered memory of all ranks.
    pub(in crate::engine) by_memory: [Ways; 2],
    /// Large publications of a call.
    pub(in crate::engine) publications: u64,
}

impl CallWays {
    /// True if calls may run on registered memory.
    fn may_register(&self) -> bool {
        self.by_memory[1].contains(&Datapath::Registered)
    }

    /// True if there is something to choose, or to exchange.
    pub(in crate::engine) fn needs_exchanges(&self) -> bool {
        let [private, _] = &self.by_memory;
        private.len() > 1 || private.contains(&Datapath::Copied) || self.may_register()
    }
}

/// A rank's report on the stretch that has ended.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(in crate::engine) struct StretchReport {
    /// Nanoseconds of a call on this rank; zero if no stretch has ended.
    pub(in crate::engine) call_ns: u64,
    /// Nanoseconds of the last exchange.
    pub(in crate::engine) exchange_ns: u64,
}

impl StretchReport {
    /// The greater of each.
    pub(in crate::engine) fn slower(self, other: Self) -> Self {
        Self {
            call_ns: self.call_ns.max(other.call_ns),
            exchange_ns: self.exchange_ns.max(other.exchange_ns),
        }
    }
}

/// How one call moves its bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::engine) struct CallTurn {
    pub(in crate::engine) way: Datapath,
    /// This rank times the call.
    pub(in crate::engine) is_timed: bool,
}

/// The choices of a group, by the kind `K` of calls, which is equal on all ranks.
#[derive(Debug)]
pub(in crate::engine) struct WayChoices<K: Hash + Eq> {
    kinds: LruCache<K, KindState>,
    account: Account,
}

/// The choices for one kind: with private memory, and with registered memory of all ranks.
#[derive(Debug, Default)]
struct KindState {
    choices: [Option<Box<Exploring>>; 2],
    /// The choice of the last call.
    last: usize,
    exchange_ns: u64,
}

#[derive(Debug)]
struct Exploring {
    explorer: Explorer,
    clock: StretchClock,
}

impl<K: Hash + Eq> Default for WayChoices<K> {
    fn default() -> Self {
        Self { kinds: LruCache::new(MOST), account: Account::default() }
    }
}

impl<K: Hash + Eq + Copy> WayChoices<K> {
    /// A call of this `kind` begins. Returns true if the ranks exchange before it: always if it may run on
    /// registered memory.
    pub(in crate::engine) fn exchanges(&mut self, kind: K, ways: &CallWays) -> bool {
        let state = self.kinds.get_or_insert_mut(kind, KindState::default);
        let may_register = ways.may_register();
        if !may_register {
            state.last = 0;
        }
        let choice = state.choice(ways, &self.account);
        choice.clock.is_over() || may_register || choice.clock.stretch().way == Datapath::Copied
    }

    /// What this rank reports in the exchange before a call of `kind`.
    pub(in crate::engine) fn report(&mut self, kind: K) -> StretchReport {
        let state = self.state(kind);
        let exchange_ns = state.exchange_ns;
        let clock = state.last_choice().map(|choice| &choice.clock);
        let ended = clock.filter(|clock| clock.is_over());
        ended.map_or_else(StretchReport::default, |clock| StretchReport {
            call_ns: clock.call_ns(),
            exchange_ns,
        })
    }

    /// All ranks have exchanged before a call of `kind`, which took this one so long. `slowest` has the greatest
    /// reports. All ranks have passed registered memory if `is_registered`.
    pub(in crate::engine) fn exchanged(
        &mut self,
        (kind, ways): (K, &CallWays),
        slowest: StretchReport,
        took: Duration,
        is_registered: bool,
    ) {
        let state = self.kinds.get_mut(&kind).expect("a call begins first");
        state.exchange_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let StretchReport { call_ns, exchange_ns } = slowest;
        if let Some(ended) = state.last_choice_mut().filter(|choice| choice.clock.is_over()) {
            ended.end_stretch(StretchTime { call_ns, exchange_ns }, &mut self.account);
        }
        state.last = usize::from(is_registered);
        state.choice(ways, &self.account);
    }

    /// How this rank makes the call of `kind` that begins now.
    pub(in crate::engine) fn begin(&mut self, kind: K) -> CallTurn {
        let choice = self.state(kind).last_choice_mut().expect("made before the call");
        CallTurn { way: choice.clock.stretch().way, is_timed: choice.clock.begin() }
    }

    /// The call of `kind` that was timed has ended.
    pub(in crate::engine) fn end(&mut self, kind: K, took: Duration) {
        if let Some(choice) = self.state(kind).last_choice_mut() {
            choice.clock.note(took);
        }
    }

    fn state(&mut self, kind: K) -> &mut KindState {
        self.kinds.get_mut(&kind).expect("a call begins first")
    }
}

impl KindState {
    /// The choice of the last call, made anew if there is none.
    fn choice(&mut self, ways: &CallWays, account: &Account) -> &mut Exploring {
        self.choices[self.last].get_or_insert_with(|| {
            Exploring::new(ways.by_memory[self.last].clone(), ways.publications, account)
        })
    }

    fn last_choice(&self) -> Option<&Exploring> {
        self.choices[self.last].as_deref()
    }

    fn last_choice_mut(&mut self) -> Option<&mut Exploring> {
        self.choices[self.last].as_deref_mut()
    }
}

impl Exploring {
    fn new(ways: Ways, publications: u64, account: &Account) -> Box<Self> {
        let mut explorer = Explorer::new(ways, publications, account);
        let clock = StretchClock::new(explorer.first(account));
        Box::new(Self { explorer, clock })
    }

    fn end_stretch(&mut self, time: StretchTime, account: &mut Account) {
        let next = self.explorer.after(self.clock.stretch(), time, account);
        self.clock = StretchClock::new(next);
    }
}

#[cfg(test)]
#[path = "choices_tests.rs"]
mod tests;
