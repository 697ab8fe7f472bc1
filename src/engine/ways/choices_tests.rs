use super::*;
use crate::execute::StoreWay;

const DEEP: Datapath = Datapath::Slots(StoreWay::DeepRing);
const PAST: Datapath = Datapath::Slots(StoreWay::PastCaches);

fn ways(others: &[Datapath]) -> CallWays {
    let private: Ways = [DEEP, PAST].into_iter().chain(others.iter().copied()).collect();
    CallWays { private, publications: 32, may_register: false }
}

/// The choices of two ranks.
#[derive(Default)]
struct Group([WayChoices<usize>; 2]);

impl Group {
    /// One call, which takes each rank so many microseconds in a way. Returns the way. Panics if the ranks
    /// differ.
    fn call(
        &mut self,
        kind: usize,
        ways: &CallWays,
        costs: impl Fn(usize, Datapath) -> u64,
    ) -> Datapath {
        let [first, second] = &mut self.0;
        let exchange = [&mut *first, &mut *second].map(|rank| rank.exchanges(kind, ways));
        assert_eq!(exchange[0], exchange[1], "all ranks exchange in the same calls");
        if exchange[0] {
            let call_ns = first.report(&kind).call_ns.max(second.report(&kind).call_ns);
            let slowest = StretchTime { call_ns, ..first.report(&kind) };
            for (rank, took) in [&mut *first, &mut *second].into_iter().zip([300, 700]) {
                rank.exchanged(&kind, slowest, Duration::from_nanos(took));
            }
        }
        let turns = [&mut *first, &mut *second].map(|rank| rank.begin(&kind));
        assert_eq!(turns[0], turns[1], "all ranks go the same way");
        for (number, rank) in [first, second].into_iter().enumerate() {
            if turns[number].is_timed {
                rank.end(&kind, Duration::from_micros(costs(number, turns[number].way)));
            }
        }
        turns[0].way
    }

    /// How many of the last thousand of these calls go by `way`.
    fn last(
        &mut self,
        kind: usize,
        ways: &CallWays,
        way: Datapath,
        costs: impl Fn(usize, Datapath) -> u64 + Copy,
    ) -> usize {
        for _ in 0..2000 {
            self.call(kind, ways, costs);
        }
        (0..1000).filter(|_| self.call(kind, ways, costs) == way).count()
    }
}

/// The root of a scatter fills slots and is done, long before its readers are.
#[test]
fn the_slowest_rank_counts() {
    let of_root = |way| if way == DEEP { 20 } else { 60 };
    let of_reader = |way| if way == DEEP { 220 } else { 70 };
    for root in [0, 1] {
        let costs = |rank, way| if rank == root { of_root(way) } else { of_reader(way) };
        let past = Group::default().last(1 << 20, &ways(&[]), PAST, costs);
        assert!(past > 900, "{past} of 1000 calls");
    }
}

#[test]
fn ranks_that_measure_other_times_go_the_same_way() {
    let mut group = Group::default();
    let mut random = 7u64;
    for nth in 0..6000 {
        random = maypole_kernels::mix(random);
        let times = [random % 500, random >> 32 & 1023];
        group.call(nth % 700, &ways(&[Datapath::Copied]), |rank, _| times[rank]);
    }
}

#[test]
fn calls_that_copy_exchange_each_time_and_are_left_if_they_are_slow() {
    let costs = |_, way| if way == Datapath::Copied { 30 } else { 90 };
    let copies = Group::default().last(1, &ways(&[Datapath::Copied]), Datapath::Copied, costs);
    assert!(copies > 900, "{copies} of 1000 calls");
    let costs = |_, way| if way == Datapath::Copied { 900 } else { 90 };
    let copies = Group::default().last(1, &ways(&[Datapath::Copied]), Datapath::Copied, costs);
    assert!(copies < 10, "{copies} of 1000 calls");
}

/// Calls that run in registered memory are no part of a stretch.
#[test]
fn calls_that_may_be_registered_exchange_each_time() {
    let mut choices = WayChoices::<usize>::default();
    let ways = CallWays { may_register: true, ..ways(&[]) };
    assert!((0..100).all(|_| choices.exchanges(1, &ways)));
    assert_eq!(choices.report(&1), StretchTime::default(), "no stretch has ended");
}

/// All ranks evict the same kinds together.
#[test]
fn ever_new_kinds_are_forgotten_alike() {
    let mut group = Group::default();
    for nth in 0..20_000_usize {
        group.call(nth * nth % 701, &ways(&[Datapath::Copied]), |_, _| 90);
        assert!(group.0[0].kinds.len() <= MOST.get());
    }
}
