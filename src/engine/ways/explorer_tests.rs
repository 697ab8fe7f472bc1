use super::*;
use crate::execute::StoreWay;

const DEEP: Datapath = Datapath::Slots(StoreWay::DeepRing);
const PAST: Datapath = Datapath::Slots(StoreWay::PastCaches);
const ORDINARY: Datapath = Datapath::Slots(StoreWay::Ordinary);

/// Nanoseconds of a call in a deep ring, past the caches, by ordinary stores, and by copies.
type Costs = [u64; 4];

const NEAR: Costs = [40_000, 65_000, 55_000, 130_000];
const FAR: Costs = [140_000, 56_000, 160_000, 130_000];

/// One rank's explorer, driven by the times that all ranks exchange.
struct Ranks {
    explorer: Explorer,
    account: Account,
    stretch: Stretch,
    /// Nanoseconds of all calls, and of the same calls each in the fastest way.
    time: (u64, u64),
}

impl Ranks {
    fn new(ways: &[Datapath], account: Account) -> Self {
        let mut explorer = Explorer::new(ways.iter().copied().collect(), 32, &account);
        let stretch = explorer.next_stretch(StretchTime::default(), &account);
        Self { explorer, account, stretch, time: (0, 0) }
    }

    fn four() -> Self {
        Self::new(&[DEEP, PAST, ORDINARY, Datapath::Copied], Account::default())
    }

    /// Makes the calls of a stretch, each of which takes `noise` times its costs. Returns their way.
    fn stretch(&mut self, costs: Costs, noise: f64) -> Datapath {
        let way = self.stretch.way;
        let at = [DEEP, PAST, ORDINARY, Datapath::Copied].iter().position(|it| *it == way).unwrap();
        let call_ns = (costs[at] as f64 * noise) as u64;
        let calls = u64::from(self.stretch.calls);
        let best = (*costs.iter().min().unwrap() as f64 * noise) as u64;
        self.time = (self.time.0 + call_ns * calls, self.time.1 + best * calls);
        let time = StretchTime { call_ns, exchange_ns: 500 };
        self.stretch = self.explorer.after(self.stretch, time, &mut self.account);
        way
    }

    /// Milliseconds of calls until all stretches of ten milliseconds were made in `way`.
    fn until(&mut self, way: Datapath, costs: Costs) -> u64 {
        let start = self.time.0;
        let mut since = start;
        while self.time.0 < since + 10_000_000 {
            if self.stretch(costs, 1.0) != way {
                since = self.time.0;
            }
            assert!(self.time.0 < start + 5_000_000_000, "{way:?} is never found");
        }
        (since - start) / 1_000_000
    }
}

#[test]
fn the_fastest_way_is_found_within_a_round() {
    assert!(Ranks::four().until(DEEP, NEAR) < 10);
    assert!(Ranks::four().until(PAST, FAR) < 10);
    assert!(Ranks::four().until(Datapath::Copied, [90, 90, 90, 60].map(|us| us * 1000)) < 10);
    assert!(Ranks::four().until(ORDINARY, [90, 90, 60, 80].map(|us| us * 1000)) < 10);
}

#[test]
fn calls_begin_in_a_deep_ring_and_never_by_copies() {
    assert_eq!(Ranks::four().stretch.way, DEEP);
    let copies = Ranks::new(&[Datapath::Copied, ORDINARY], Account::default());
    assert_eq!(copies.stretch.way, ORDINARY);
    let only = Ranks::new(&[Datapath::Copied], Account::default());
    assert_eq!(only.stretch.way, Datapath::Copied);
}

#[test]
fn another_kind_begins_in_the_way_that_was_found() {
    let mut first = Ranks::four();
    first.until(PAST, FAR);
    let second = Ranks::new(&[DEEP, PAST, ORDINARY], first.account);
    assert_eq!(second.explorer.present, PAST);
}

/// The machine moves the cores of a virtual machine apart, and together again.
#[test]
fn a_change_of_the_machine_is_noticed() {
    let mut ranks = Ranks::four();
    ranks.until(DEEP, NEAR);
    for _ in 0..3 {
        assert!(ranks.until(PAST, FAR) < 60);
        assert!(ranks.until(DEEP, NEAR) < 2_000, "no call is slower than before");
    }
}

/// Only a round shows it: calls in the present way take as long as before.
#[test]
fn a_way_that_has_become_faster_is_found() {
    let mut ranks = Ranks::four();
    ranks.until(DEEP, NEAR);
    assert!(ranks.until(PAST, [40_000, 20_000, 55_000, 130_000]) < 3_000);
}

#[test]
fn rounds_waste_no_more_than_their_part() {
    for costs in [NEAR, FAR, [60_000, 60_500, 61_000, 900_000]] {
        let mut ranks = Ranks::four();
        while ranks.time.0 < 20_000_000_000 {
            ranks.stretch(costs, 1.0);
        }
        let wasted = ranks.time.0 as f64 / ranks.time.1 as f64 - 1.0;
        assert!(wasted < 1.2 / BUDGET as f64, "{wasted:.4} of {costs:?}");
    }
}

/// A quarter of the stretches take up to four times their time, as on a machine with other work.
#[test]
fn noise_costs_little() {
    let mut ranks = Ranks::four();
    ranks.until(DEEP, NEAR);
    let mut random = 1u64;
    for _ in 0..20_000 {
        random = maypole_kernels::mix(random);
        let most = if random >> 32 & 3 == 0 { 3.0 } else { 0.1 };
        ranks.stretch(NEAR, 1.0 + most * (random % 1000) as f64 / 1000.0);
    }
    let wasted = ranks.time.0 as f64 / ranks.time.1 as f64 - 1.0;
    assert!(wasted < 2.0 / BUDGET as f64, "{wasted:.4}");
}

/// A round ends early for ways that take many times as long.
#[test]
fn a_way_that_is_far_slower_is_tried_once_a_round() {
    let mut ranks = Ranks::four();
    let ways: Vec<Datapath> = (0..12).map(|_| ranks.stretch(NEAR, 1.0)).collect();
    let count = |way| ways.iter().filter(|it| **it == way).count();
    assert_eq!((count(Datapath::Copied), count(PAST), count(ORDINARY)), (1, 2, 2), "{ways:?}");
}

#[test]
fn a_single_way_has_no_rounds() {
    let mut ranks = Ranks::new(&[ORDINARY], Account::default());
    for _ in 0..1000 {
        ranks.stretch(NEAR, 1.0);
        assert!(ranks.explorer.round.is_none());
    }
}

#[test]
fn an_exchange_takes_a_small_part_of_a_stretch() {
    let mut ranks = Ranks::four();
    ranks.until(DEEP, NEAR);
    for (exchange_ns, call_ns, calls) in
        [(500, 40_000, 25), (20_000, 40_000, 150), (20_000, 40_000_000, 4), (500, 10, 4096)]
    {
        let mut account = Account { credit: -1_000_000_000, ..ranks.account };
        let time = StretchTime { call_ns, exchange_ns };
        let next = ranks.explorer.after(ranks.stretch, time, &mut account);
        assert_eq!(next.calls, calls);
    }
}
