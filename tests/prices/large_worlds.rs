//! Computations for hundreds and thousands of ranks take seconds. Each test keeps its limit several
//! times over, and a search within a search would not.

use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use maypole::schedule::hosts::{Boards, Hosts};
use maypole::schedule::walk::walk;
use maypole::schedule::{Placement, Schedule, Step, input, output};
use maypole::topology::StreamLinks;
use maypole::topology::rings::ring;
use maypole::tuner::pair_groups;
use maypole_pictures::draw;
use maypole_tests::common::walked::Ignored;
use std::time::Duration;

/// The result of `work`, and this thread's CPU time for it. The time in which other tests have the
/// core does not count.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let computed = || {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
    };
    let start = computed();
    let done = work();
    (done, computed() - start)
}

/// Runs `work`, which must not compute for more than `most` seconds.
#[track_caller]
fn within<T>(most: u64, work: impl FnOnce() -> T) -> T {
    let (done, took) = timed(work);
    assert!(took < Duration::from_secs(most), "it took {took:?}");
    done
}

#[test]
fn pairs_of_thousands_of_ranks_are_grouped() {
    let hosts: Vec<usize> = (0..6000).map(|rank| rank / 8).collect();
    let (boards, hosts) = (Boards::new(&hosts), Hosts::new(&hosts));
    let groups = within(3, || pair_groups(&boards, &hosts, &StreamLinks::undecided()));
    let pairs: Vec<usize> = groups.iter().map(|group| group.pairs).collect();
    assert_eq!(pairs, [750 * 28, 6000 * 5999 / 2 - 750 * 28]);
}

/// A rank has posted very many messages when it writes for the first time.
#[test]
fn a_rank_with_many_messages_under_way_is_walked() {
    const MANY: usize = 100_000;
    let sends = (0..MANY).map(|chunk| Step::Send { from: input(chunk), to: 1 });
    let copies = (0..MANY).map(|chunk| Step::Copy { from: input(chunk), into: output(chunk) });
    let receives = (0..MANY).map(|chunk| Step::Recv { into: output(chunk), from: 0 });
    let sender = Schedule::new(MANY, sends.chain(copies).collect());
    let receiver = Schedule::new(MANY, receives.collect());
    within(3, || walk(&[sender, receiver], Placement::Apart, &mut Ignored)).unwrap();
}

#[test]
fn a_ring_of_hundreds_of_ranks_is_drawn() {
    let schedules = Algorithm::Ring.schedules(Collective::AllReduce, 256).unwrap();
    let drawn = within(6, || draw::text(&schedules));
    assert!(drawn.contains("rank 255"));
}

/// Hosts of eight devices with two sockets of four, numbered through one another.
#[test]
fn a_ring_of_a_thousand_devices_is_found() {
    const DEVICES: usize = 1024;
    let place = |device: usize| device * 389 % DEVICES;
    let kind = |a: usize, b: usize| match (place(a), place(b)) {
        (a, b) if a / 4 == b / 4 => 5,
        (a, b) if a / 8 == b / 8 => 3,
        _ => 1,
    };
    let links: Vec<Vec<u64>> =
        (0..DEVICES).map(|a| (0..DEVICES).map(|b| kind(a, b)).collect()).collect();
    let found = within(4, || ring(&links));
    assert_eq!((found.order.len(), found.bottleneck), (DEVICES, Some(1)));
}
