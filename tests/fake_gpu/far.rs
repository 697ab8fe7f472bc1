//! Groups on GPUs of several hosts when the network between them fails or is slow.

use crate::fake_gpu::repository;
use crate::network::{self, Network};
use crate::raw::context;
use crate::spawn::{World, as_each_rank, say};
use crate::walks::{ready, sum};
use crate::{skip, world};
use maypole::ReduceOp;
use maypole::cuda::Comm;
use maypole::schedule::collective::Collective;
use std::time::{Duration, Instant};

crate::roles! {
    until_it_fails;
    far_apart;
}

/// The most time for an error after a host has vanished: 10 s of silence, one heartbeat, and the delays of a
/// loaded machine. Calls wait for longer.
const BOUND: Duration = Duration::from_secs(40);
const PATIENCE: Duration = Duration::from_secs(120);

/// One rank on each host of a network.
pub(crate) fn on_hosts(network: &Network, world: World, hosts: usize) -> World {
    let by = |world: World, host| {
        let command = network.command(host, "env");
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        world.by(host, &words.map(|word| word.to_str().unwrap()).collect::<Vec<_>>())
    };
    let world = (0..hosts).fold(world, by).hosts(&(0..hosts).collect::<Vec<_>>());
    world.set("MAYPOLE_ADDRESS", network::address(0)).within(PATIENCE)
}

/// Two hosts. `None`, and a line with the reason, where no network can be made.
pub(crate) fn two_hosts() -> Option<Network> {
    let network = Network::new(2);
    network.map_err(|why| skip::skipped(format!("no network namespaces here: {why}"))).ok()
}

/// Makes calls until one fails, and says so.
fn until_it_fails() {
    as_each_rank(|mut comm| {
        let stream = context(0).new_stream().unwrap();
        let (gpu, mut data) = ready(&mut comm, &stream);
        gpu.set_timeout(PATIENCE);
        say("calling", comm.rank());
        let error = loop {
            let made = gpu.all_reduce_in_place(&mut data, &ReduceOp::Min);
            if let Err(error) = made.and_then(|()| gpu.synchronize()) {
                break error;
            }
        };
        say("culprit", error.culprit().map_or(-1, |rank| rank as i64));
    });
}

#[test]
fn a_link_that_is_cut_ends_the_calls_of_both_hosts_emulated() {
    crate::skip::takes_turns!(4);
    let (Some(network), Some(world)) = (two_hosts(), world("until_it_fails", 2)) else { return };
    let mut running = on_hosts(&network, world, 2).start();
    running.wait_for("calling", &[0, 1]);
    running.listen_for(Duration::from_millis(100));
    network.unplug(1);
    let start = Instant::now();
    let ended = running.succeed();
    assert!(start.elapsed() < BOUND, "after {:?}", start.elapsed());
    // Each host alone is left of its own view.
    assert_eq!([0, 1].map(|rank| ended[rank].only("culprit")), ["1", "0"]);
}

#[test]
fn a_host_that_vanishes_ends_the_calls_of_the_others_emulated() {
    let Some(world) = world("until_it_fails", 4) else { return };
    let mut running = world.hosts(&[0, 0, 1, 1]).within(PATIENCE).start();
    running.wait_for("calling", &[0, 1, 2, 3]);
    [2, 3].iter().for_each(|rank| running.signal(*rank, "KILL"));
    let start = Instant::now();
    let ended = running.end();
    assert!(start.elapsed() < BOUND, "after {:?}", start.elapsed());
    for survivor in &ended[..2] {
        assert_eq!(survivor.code, Some(0), "{survivor:?}");
        assert!(["2", "3"].contains(&survivor.only("culprit")), "{survivor:?}");
    }
}

/// Sums, and the prices of a network that is slow.
fn far_apart() {
    as_each_rank(|mut comm| {
        sum(&mut comm, 1);
        let stream = context(0).new_stream().unwrap();
        let gpu = Comm::new(&mut comm, stream).unwrap();
        let text = gpu.explain(Collective::AllReduce, 1 << 20).to_string();
        assert!(text.contains("one of a stream, over a round trip of"), "{text}");
        comm.barrier().unwrap();
    });
}

#[test]
fn hosts_that_are_far_apart_have_the_same_bits_emulated() {
    let folder = tempfile::tempdir().unwrap();
    let program =
        network::compile_carrier(&repository().join("tests/common/delay.c"), folder.path());
    let made = program.and_then(|program| Network::apart(2, Duration::from_millis(4), &program));
    let network = match made {
        Ok(network) => network,
        Err(why) => return skip::skipped(format!("no hosts that are apart here: {why}")),
    };
    let Some(world) = world("far_apart", 2) else { return };
    for ended in on_hosts(&network, world, 2).start().succeed() {
        assert_eq!(ended.said("done").len(), 1);
    }
}
