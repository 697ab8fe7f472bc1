//! Hosts that are apart: every packet takes a time. The network is `tests/common/delay.c`.

use super::{Cluster, Company, ended, printed, said, wait_for};
use crate::network::{self, compile_carrier};
use crate::skip;
use maypole::tuner::saved::TableLocation;
use maypole::tuner::{CostTable, Network};
use maypole::{Communicator, ReduceOp};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

impl Cluster {
    /// Hosts between which a packet takes `delay`. `None`, and a line with the reason, where no
    /// such network can be made.
    fn apart(hosts: usize, delay: Duration, company: Company) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/common/delay.c");
        let network = compile_carrier(&source, folder.path())
            .and_then(|program| network::Network::apart(hosts, delay, &program));
        match network {
            Ok(network) => Some(Self::of(network, folder, company)),
            Err(why) => {
                skip::skipped(format!("no hosts that are apart here: {why}"));
                None
            }
        }
    }
}

/// The lines of the table that `maypole explain` prints, and the network class of rank 0.
fn explained(cluster: &Cluster, line: &str, network: Option<&str>) -> (String, String) {
    let job = cluster.job(&[0, 1, 2, 3, 4]);
    let job = network.into_iter().fold(job, |job, it| job.with(0, "MAYPOLE_NETWORK", it));
    let outputs = job.maypole(line);
    let table = printed(&outputs[0]);
    let chosen = table.lines().find(|line| line.starts_with('*')).unwrap();
    let chosen = chosen.split_whitespace().nth(1).unwrap().to_owned();
    let counted =
        said(&outputs[0]).lines().find(|it| it.contains("between hosts")).map(str::to_owned);
    (chosen, counted.unwrap_or_default())
}

/// By every run in the same way: the classes are coarse.
#[test]
fn the_network_is_measured_and_few_hops_are_chosen() {
    crate::skip::takes_turns!(4);
    let delay = Duration::from_micros(1000);
    let Some(mut cluster) = Cluster::apart(5, delay, Company::alone()) else { return };
    let line = "explain broadcast --bytes 64 --transport tcp";
    let run = |cluster: &Cluster| {
        let (chosen, counted) = explained(cluster, line, None);
        assert_eq!(chosen, "linear", "one hop");
        assert!(counted.contains("between hosts a round trip of 2.048 ms and "), "{counted}");
        counted.split_once(" ms and ").unwrap().1.to_owned()
    };
    run(&cluster);
    (0..5).for_each(|host| cluster.network.tell(&format!("rate {host} 1000")));
    let table = cluster.folder.path().join("costs");
    let job = cluster.job(&[0, 1]).with(0, "MAYPOLE_TUNE", table.to_str().unwrap());
    fs::write(&table, CostTable::BUILT_IN.to_string()).unwrap();
    job.maypole("tune --samples 3");
    let saved = TableLocation::File(table).load().unwrap();
    assert_eq!(CostTable { network: Network::default(), ..saved }, CostTable::BUILT_IN);
    assert!(saved.network.hop >= 900_000_000 && saved.network.wire >= 8_000_000, "{saved}");
    // Other tests may take the cores for a while.
    assert!((0..5).any(|_| run(&cluster).starts_with("1 Gbit/s")), "{}", run(&cluster));
    let (_, given) = explained(&cluster, line, Some("10us,1Gbit"));
    assert!(given.contains("a round trip of 0.01 ms and 1 Gbit/s"), "{given}");
    // Where a host's interface is the limit, each byte leaves it once.
    let long = "explain broadcast --bytes 16M --transport tcp";
    let (slow, _) = explained(&cluster, long, Some("2ms,1Gbit"));
    assert!(["ring", "scatter-all-gather", "double-tree"].contains(&&*slow), "{slow}");
}

/// Rank 2 dies in its 20th call, and the others continue without it.
fn survive(mut comm: Communicator) {
    assert!(comm.is_encrypted());
    for call in 0.. {
        if (call, comm.rank()) == (20, 2) {
            std::process::abort();
        }
        let mut sum = vec![1u64; 5000];
        match comm.all_reduce(&mut sum, ReduceOp::Sum) {
            Ok(()) => assert_eq!(sum, [4; 5000]),
            Err(error) => {
                println!("@lost {error}");
                break;
            }
        }
    }
    comm = comm.shrink().unwrap();
    let mut sum = vec![1u64; 5000];
    comm.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
    assert_eq!((comm.world(), sum), (3, vec![3; 5000]));
    comm.close().unwrap();
}

/// A message to each rank, and one of each, in one batch.
fn exchange(comm: &mut Communicator) {
    let (rank, world) = (comm.rank() as u64, comm.world());
    let mut received = vec![[0u64]; world];
    let sent = [rank];
    comm.group(|group| {
        for (from, place) in received.iter_mut().enumerate() {
            group.send(&sent, from, 0)?;
            group.recv(place, from, 0)?;
        }
        Ok(())
    })
    .unwrap();
    assert!(received.iter().enumerate().all(|(from, it)| *it == [from as u64]));
}

/// Runs as a rank, when a test below starts this file's program again.
#[test]
fn as_a_far_rank() {
    let Ok(calls) = std::env::var("TEST_CALLS") else { return };
    let mut comm = Communicator::from_env().unwrap();
    if calls == "survive" {
        return survive(comm);
    }
    // All ranks have joined.
    let start = Instant::now();
    if calls == "batch" {
        exchange(&mut comm);
        return println!("@first {}", start.elapsed().as_micros());
    }
    comm.barrier().unwrap();
    println!("@first {}", start.elapsed().as_micros());
    for call in 0..calls.parse().unwrap() {
        let mut sum = vec![call; 5000];
        comm.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
        assert!(sum.iter().all(|it| *it == call * comm.world() as u64));
        if call == 20 {
            println!("@running");
        }
    }
    comm.close().unwrap();
}

fn start(cluster: &Cluster, hosts: &[usize], calls: &str) -> Vec<Child> {
    start_with(cluster, hosts, &[("TEST_CALLS", calls)])
}

fn start_with(
    cluster: &Cluster,
    hosts: &[usize],
    variables: &[(&'static str, &str)],
) -> Vec<Child> {
    let ranks = (0..hosts.len()).flat_map(|rank| variables.iter().map(move |it| (rank, *it)));
    let job =
        ranks.fold(cluster.job(hosts), |job, (rank, (name, value))| job.with(rank, name, value));
    let arguments = ["--exact", "far::as_a_far_rank", "--nocapture", "--test-threads=1"];
    job.start(&std::env::current_exe().unwrap(), &arguments)
}

/// Connections that wait for one another in a chain would take three round trips a host: 420 ms.
#[test]
fn the_first_call_and_the_first_messages_dial_all_peers_at_once() {
    crate::skip::takes_turns!(4);
    let (delay, hosts) = (Duration::from_millis(10), [0, 1, 2, 3, 4, 5, 6, 7]);
    let Some(cluster) = Cluster::apart(hosts.len(), delay, Company::alone()) else { return };
    let first = |output: &std::process::Output| {
        let text = printed(output);
        let line = text.lines().find_map(|line| line.split_once("@first ")).unwrap().1.to_owned();
        Duration::from_micros(line.trim().parse().unwrap())
    };
    for calls in ["0", "batch"] {
        let longest = |_| {
            let outputs = ended(start(&cluster, &hosts, calls));
            assert!(outputs.iter().all(|output| output.status.success()), "{}", said(&outputs[0]));
            outputs.iter().map(first).max().unwrap()
        };
        // Other tests may take the cores for a while.
        let longest = (0..3).map(longest).min().unwrap();
        assert!(longest < delay * 25, "the first calls took {longest:?}: {calls}");
        assert!(longest > delay * 2, "no network has a delay of {delay:?}: {longest:?}");
    }
}

/// A cable is pulled and put back, packets are lost, and one host is farther away.
#[test]
fn a_bad_network_delays_calls_and_changes_no_result() {
    let Some(mut cluster) = Cluster::apart(4, Duration::from_millis(1), Company::shared()) else {
        return;
    };
    cluster.network.tell("delay 3 4000");
    cluster.network.tell("loss 10");
    let mut ranks = start(&cluster, &[0, 1, 1, 2, 3], "60");
    let stdout = ranks[0].stdout.take().unwrap();
    let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
    wait_for(&mut lines, "running");
    cluster.network.tell("cable 1 0");
    // Not to be correct: for so long nothing arrives.
    std::thread::sleep(Duration::from_millis(300));
    cluster.network.tell("cable 1 1");
    assert!(lines.any(|line| line.contains("test result: ok")), "rank 0 failed");
    for (rank, output) in ended(ranks).iter().enumerate() {
        assert!(output.status.success(), "rank {rank}: {}", said(output));
    }
}

#[test]
fn survivors_that_are_apart_go_on_encrypted() {
    let Some(cluster) = Cluster::apart(4, Duration::from_millis(5), Company::shared()) else {
        return;
    };
    let variables = [("TEST_CALLS", "survive"), ("MAYPOLE_ENCRYPT", "1")];
    let outputs = ended(start_with(&cluster, &[0, 1, 2, 3], &variables));
    for (rank, output) in outputs.iter().enumerate().filter(|(rank, _)| *rank != 2) {
        assert!(output.status.success(), "rank {rank}: {}", said(output));
        assert!(
            printed(output).contains("because rank 2 died"),
            "rank {rank}: {}",
            printed(output)
        );
    }
}

/// The error of the deadline names the silent rank, and the network to it.
#[test]
fn a_host_that_falls_silent_is_named_with_its_network() {
    crate::skip::takes_turns!(4);
    let Some(mut cluster) = Cluster::apart(3, Duration::from_millis(1), Company::shared()) else {
        return;
    };
    let variables = [("TEST_CALLS", "1000000"), ("MAYPOLE_TIMEOUT", "6")];
    let mut ranks = start_with(&cluster, &[0, 1, 2], &variables);
    let stdout = ranks[1].stdout.take().unwrap();
    let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
    wait_for(&mut lines, "running");
    cluster.network.tell("cable 2 0");
    for (rank, output) in ended(ranks).iter().enumerate().take(2) {
        let said = said(output);
        assert!(!output.status.success(), "rank {rank} ends well");
        let named = said.contains("rank 2") && said.contains("network to it");
        assert!(named, "rank {rank}: {said}");
    }
}
