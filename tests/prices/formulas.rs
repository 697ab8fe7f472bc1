//! The simulator gives the formulas of the literature, exactly.

use maypole::algorithms::Algorithm::{
    self, Binomial, Bruck, Direct, Dissemination, DoubleTree, HalvingDoubling, Linear, OneShot,
    Pairwise, RecursiveDoubling, ReduceScatterGather, Ring, ScatterAllGather, Tree, TwoShot,
};
use maypole::schedule::collective::Collective::{
    self, AllGather, AllReduce, AllToAll, Barrier, ExclusiveScan, ReduceScatter, Scan,
};
use maypole::schedule::{Layout, Schedule, Step, input, output};
use maypole_pictures::clocks::{Cost, Ports, StepOrder, simulate, simulate_in};

/// Powers of two, so that sums are exact.
const ALPHA: f64 = 8.0;
const BETA: f64 = 0.25;
const GAMMA: f64 = 0.125;
const COST: Cost = Cost { alpha: ALPHA, beta: BETA, gamma: 0.0, ports: Ports::Single };
const REDUCING: Cost = Cost { gamma: GAMMA, ..COST };

/// Elements of the whole, four bytes each; every world here divides it.
const COUNT: usize = 5040 * 64;
const S: f64 = COUNT as f64 * 4.0;

fn schedules(algorithm: Algorithm, collective: Collective, world: usize) -> Vec<Schedule> {
    algorithm.schedules(collective, world).expect("it is in the table")
}

type Call = (Algorithm, Collective);

fn seconds(order: StepOrder, call: Call, world: usize, windows: usize, cost: Cost) -> f64 {
    let schedules = schedules(call.0, call.1, world);
    let layout = Layout::even(COUNT, schedules[0].chunks);
    simulate_in(order, &schedules, &layout, 4, windows, cost).expect("it is proved").seconds
}

/// In the order in which steps conflict, which is that of the executor.
fn price(call: Call, world: usize, windows: usize, cost: Cost) -> f64 {
    seconds(StepOrder::Conflict, call, world, windows, cost)
}

fn check(algorithm: Algorithm, collective: Collective, cost: Cost, formula: impl Fn(f64) -> f64) {
    for world in [2, 3, 4, 5, 6, 7, 8, 16] {
        let found = price((algorithm, collective), world, 1, cost);
        assert_eq!(found, formula(world as f64), "{algorithm} {collective:?}, world {world}");
    }
}

fn check_powers(call: Call, cost: Cost, formula: impl Fn(f64, f64) -> f64) {
    for levels in 1..7 {
        let world = 1 << levels;
        let formula = formula(world as f64, f64::from(levels));
        assert_eq!(price(call, world, 1, cost), formula, "{call:?}, world {world}");
    }
}

const BROADCAST: Collective = Collective::Broadcast { root: 0 };
const REDUCE: Collective = Collective::Reduce { root: 0 };
const GATHER: Collective = Collective::Gather { root: 0 };
const SCATTER: Collective = Collective::Scatter { root: 0 };

#[test]
fn ring() {
    check(Ring, AllReduce, COST, |n| 2.0 * (n - 1.0) * (ALPHA + S / n * BETA));
    check(Ring, AllReduce, REDUCING, |n| {
        2.0 * (n - 1.0) * (ALPHA + S / n * BETA) + (n - 1.0) * (S / n * GAMMA)
    });
    check(Ring, AllGather, COST, |n| (n - 1.0) * (ALPHA + S / n * BETA));
    check(Ring, ReduceScatter, REDUCING, |n| (n - 1.0) * (ALPHA + S / n * (BETA + GAMMA)));
}

#[test]
fn chains_in_windows() {
    for collective in [BROADCAST, REDUCE, Scan, ExclusiveScan] {
        for (world, windows) in [(2, 1), (3, 4), (7, 64), (16, 8), (64, 64)] {
            let (n, k) = (world as f64, windows as f64);
            let found = price((Ring, collective), world, windows, COST);
            let formula = (n - 2.0 + k) * (ALPHA + S / k * BETA);
            assert_eq!(found, formula, "{collective:?}, world {world}, {windows} windows");
        }
    }
}

#[test]
fn direct() {
    for (algorithm, collective) in [(OneShot, AllReduce), (Linear, BROADCAST), (Linear, REDUCE)] {
        check(algorithm, collective, COST, |n| ALPHA + (n - 1.0) * S * BETA);
    }
    for (algorithm, collective) in [
        (Linear, GATHER),
        (Linear, SCATTER),
        (Direct, AllGather),
        (Direct, ReduceScatter),
        (Direct, AllToAll),
    ] {
        check(algorithm, collective, COST, |n| ALPHA + (n - 1.0) * (S / n) * BETA);
    }
    check(TwoShot, AllReduce, COST, |n| 2.0 * (ALPHA + (n - 1.0) * (S / n) * BETA));
    check(Linear, REDUCE, REDUCING, |n| ALPHA + (n - 1.0) * S * BETA + S * GAMMA);
}

#[test]
fn binomial() {
    check_powers((Binomial, BROADCAST), COST, |_, lg| lg * (ALPHA + S * BETA));
    check_powers((Binomial, REDUCE), REDUCING, |_, lg| lg * (ALPHA + S * BETA + S * GAMMA));
    for collective in [GATHER, SCATTER] {
        check_powers((Binomial, collective), COST, |n, lg| lg * ALPHA + (n - 1.0) * (S / n) * BETA);
    }
}

#[test]
fn recursive_doubling() {
    let all_reduce = |_: f64, lg: f64| lg * (ALPHA + S * (BETA + GAMMA));
    check_powers((RecursiveDoubling, AllReduce), REDUCING, all_reduce);
    let all_gather = |n: f64, lg: f64| lg * ALPHA + (n - 1.0) * (S / n) * BETA;
    check_powers((RecursiveDoubling, AllGather), COST, all_gather);
    for world in [3_usize, 5, 6, 7, 12, 63] {
        let n = world as f64;
        let floor = f64::from(world.ilog2());
        let price = |collective, cost| {
            let cost = Cost { ports: Ports::PerLink, ..cost };
            price((RecursiveDoubling, collective), world, 1, cost)
        };
        let most = floor * (ALPHA + S * (BETA + GAMMA)) + 2.0 * (ALPHA + S * BETA) + S * GAMMA;
        let found = price(AllReduce, REDUCING);
        assert!(
            found <= most && found > most - ALPHA - S * (BETA + GAMMA),
            "world {world}: {found} of {most}"
        );
        let found = price(AllGather, COST);
        assert!(
            found <= (floor + 2.0) * ALPHA + 2.0 * (n - 1.0) / n * S * BETA + S / n * BETA,
            "world {world}: {found}"
        );
    }
}

#[test]
fn halving_and_doubling() {
    let half = |n: f64, lg: f64| lg * ALPHA + (n - 1.0) * (S / n) * BETA;
    check_powers((HalvingDoubling, AllReduce), COST, |n, lg| 2.0 * half(n, lg));
    check_powers((HalvingDoubling, ReduceScatter), COST, half);
    let adds = |n: f64| (n - 1.0) * (S / n) * GAMMA;
    check_powers((HalvingDoubling, AllReduce), REDUCING, |n, lg| 2.0 * half(n, lg) + adds(n));
    check_powers((HalvingDoubling, ReduceScatter), REDUCING, |n, lg| half(n, lg) + adds(n));
    for world in [3_usize, 5, 6, 7, 12, 63] {
        let cost = Cost { ports: Ports::PerLink, ..COST };
        let found = price((HalvingDoubling, AllReduce), world, 1, cost);
        let m = world.next_power_of_two() as f64 / 2.0;
        let floor = f64::from(world.ilog2());
        let most = 2.0 * half(m, floor) + 2.0 * (ALPHA + S * BETA);
        assert!(found <= most && found > 0.8 * most, "world {world}: {found} of {most}");
    }
}

#[test]
fn bruck() {
    for world in 2..=64_usize {
        let schedules = schedules(Bruck, AllGather, world);
        let layout = Layout::even(world * 16, world);
        let price = |order| simulate_in(order, &schedules, &layout, 4, 1, COST).unwrap().seconds;
        let rounds = f64::from(world.next_power_of_two().ilog2());
        assert_eq!(
            price(StepOrder::List),
            rounds * ALPHA + (world as f64 - 1.0) * 64.0 * BETA,
            "world {world}"
        );
        assert!(price(StepOrder::Conflict) <= price(StepOrder::List), "world {world}");
    }
    check_powers((Bruck, AllToAll), COST, |_, lg| lg * (ALPHA + S / 2.0 * BETA));
}

#[test]
fn scatter_and_gather() {
    let both = |n: f64, lg: f64| 2.0 * (lg * ALPHA + (n - 1.0) * (S / n) * BETA);
    check_powers((ScatterAllGather, BROADCAST), COST, both);
    check_powers((ReduceScatterGather, REDUCE), COST, both);
}

#[test]
fn scans() {
    for world in 2..=64_usize {
        let rounds = |ranks: usize| f64::from(ranks.next_power_of_two().ilog2());
        let cost = Cost { ports: Ports::PerLink, ..REDUCING };
        let price = |collective| price((RecursiveDoubling, collective), world, 1, cost);
        let unit = ALPHA + S * (BETA + GAMMA);
        let inclusive = rounds(world) * unit;
        let exclusive = ALPHA + S * BETA + rounds(world - 1) * unit;
        assert!(price(Scan) <= inclusive && price(ExclusiveScan) <= exclusive);
        // In other worlds, the message of rank 0 in the last round arrives early.
        assert!(price(Scan) == inclusive || !world.is_power_of_two(), "world {world}");
        assert!(
            price(ExclusiveScan) == exclusive || !(world - 1).is_power_of_two(),
            "world {world}"
        );
    }
}

#[test]
fn pairwise_round_by_round_and_overlapped() {
    for world in [2, 3, 4, 7, 16] {
        let n = world as f64;
        let price = |order| seconds(order, (Pairwise, ReduceScatter), world, 1, REDUCING);
        assert_eq!(price(StepOrder::List), (n - 1.0) * (ALPHA + S / n * (BETA + GAMMA)));
        assert_eq!(price(StepOrder::Conflict), ALPHA + (n - 1.0) * (S / n) * BETA + S / n * GAMMA);
        let price = |order| seconds(order, (Pairwise, AllToAll), world, 1, COST);
        assert_eq!(price(StepOrder::List), (n - 1.0) * (ALPHA + S / n * BETA));
        assert_eq!(price(StepOrder::Conflict), ALPHA + (n - 1.0) * (S / n) * BETA);
    }
}

#[test]
fn a_barrier_takes_as_many_rounds_as_it_must() {
    for world in 2..=64_usize {
        let rounds = f64::from(world.next_power_of_two().ilog2());
        for (algorithm, rounds) in [(Dissemination, rounds), (OneShot, 1.0)] {
            let schedules = schedules(algorithm, Barrier, world);
            let found = simulate(&schedules, &Layout::even(0, 1), 1, 1, COST).unwrap().seconds;
            assert_eq!(found, rounds * ALPHA, "{algorithm}, world {world}");
        }
    }
}

#[test]
fn windows_of_a_tree_overlap_in_conflict_order() {
    let cost = Cost { alpha: 0.0, beta: 64.0 / S, gamma: 0.0, ports: Ports::PerLink };
    let units = |order, windows| {
        let cost = Cost { beta: windows as f64 / S, ..cost };
        seconds(order, (Tree, AllReduce), 7, windows, cost)
    };
    assert_eq!((units(StepOrder::Conflict, 64), units(StepOrder::List, 64)), (67.0, 256.0));
    assert_eq!((units(StepOrder::Conflict, 1), units(StepOrder::List, 1)), (4.0, 4.0));
}

#[test]
fn trees_take_their_height_and_one_unit_a_window() {
    let cost = Cost { ports: Ports::PerLink, ..COST };
    for world in [2_usize, 3, 6, 7, 12, 15, 33, 64] {
        let (h, k) = (f64::from(world.ilog2()), 16.0);
        let price = |collective| price((Tree, collective), world, 16, cost);
        let unit = ALPHA + S / k * BETA;
        assert_eq!(price(AllReduce), (2.0 * h + k - 1.0) * unit, "world {world}");
        assert_eq!(price(BROADCAST), (h + k - 1.0) * unit, "world {world}");
        assert_eq!(price(REDUCE), (h + k - 1.0) * unit, "world {world}");
    }
}

/// Steps from the root to the lowest leaf of the lower one of two trees.
fn height(world: usize) -> f64 {
    let even = 1 - world % 2;
    f64::from((world - 1 - even).ilog2()) + (1 + even) as f64
}

#[test]
fn double_trees_take_their_height_and_half_a_unit_a_window() {
    let cost = Cost { ports: Ports::PerLink, ..COST };
    for world in [3_usize, 4, 6, 7, 12, 15, 33, 64] {
        let (h, k) = (height(world), 16.0);
        let price = |collective| price((DoubleTree, collective), world, 16, cost);
        let unit = ALPHA + S / (2.0 * k) * BETA;
        // Half of the links go up in one tree and down in the other. The way up is that of the tree
        // without the extra step; the last window is a little shorter than the others.
        let up = f64::from((world - 1).ilog2()) + 1.0;
        let piece = S / (2.0 * k) * BETA;
        let shared = (price(AllReduce) - (2.0 * h + k - 1.0) * unit) / piece;
        assert!((shared - (k - 2.0 * up + 1.0)).abs() < 0.02, "world {world}: {shared}");
        assert_eq!(price(BROADCAST), (h + k - 1.0) * unit, "world {world}");
        assert_eq!(price(REDUCE), (h + k - 1.0) * unit, "world {world}");
    }
}

/// Where a rank's bytes leave one after another, one tree needs 2 S b to broadcast and two trees
/// need S b, and both need the fill of the pipeline.
#[test]
fn two_trees_have_more_bandwidth_than_one() {
    for world in [7_usize, 16, 33, 64] {
        let cost = Cost { alpha: 0.0, beta: 1.0 / S, ..COST };
        let price = |algorithm, collective| price((algorithm, collective), world, 64, cost);
        for collective in [BROADCAST, REDUCE, AllReduce] {
            let one = price(Tree, collective);
            let two = price(DoubleTree, collective);
            assert!(two < 0.7 * one, "{collective:?}, world {world}: {one} and {two}");
            assert!(two < if collective == AllReduce { 2.2 } else { 1.12 }, "world {world}: {two}");
        }
    }
}

#[test]
fn sends_to_one_peer_in_a_row_are_one_message() {
    let send = |chunk| Step::Send { from: input(chunk), to: 1 };
    let take = |chunk| Step::Recv { into: output(chunk), from: 0 };
    let both = [Schedule::new(2, vec![send(0), send(1)]), Schedule::new(2, vec![take(0), take(1)])];
    let estimate = simulate(&both, &Layout::even(10, 2), 4, 1, COST).unwrap();
    assert_eq!((estimate.messages, estimate.seconds), (1, ALPHA + 40.0 * BETA));
    assert_eq!(estimate.bytes_sent, [40, 0]);
    assert_eq!(estimate.finish, [40.0 * BETA, ALPHA + 40.0 * BETA]);
}

#[test]
fn stuck_schedules_have_no_price() {
    let wait = Schedule::new(1, vec![Step::Recv { into: output(0), from: 0 }]);
    let stuck =
        simulate(&[Schedule::new(1, vec![]), wait], &Layout::even(1, 1), 1, 1, COST).unwrap_err();
    assert_eq!(stuck.waiting, [(1, 0)]);
}
