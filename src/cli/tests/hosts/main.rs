//! Ranks on two and three hosts. The hosts are network namespaces that the test makes; where it may
//! not, each test is skipped with the reason.

mod far;
#[path = "../launcher/harness.rs"]
mod harness;
mod kubernetes;
mod names;
#[path = "../../../../tests/common/network.rs"]
mod network;
#[path = "../../../../tests/common/skip.rs"]
mod skip;
mod slurm;
mod ssh;

use maypole::{Communicator, Error, ReduceOp};
use network::{Network, address, address6};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

/// The most time for an error after a host has vanished: 10 s of silence, one heartbeat, and the
/// delays of a loaded machine.
const BOUND: Duration = Duration::from_secs(30);

/// Read by every test, and written by those that measure: ranks of another would disturb theirs.
static COMPANY: RwLock<()> = RwLock::new(());

/// Whether other tests may run.
#[expect(dead_code, reason = "a guard is only held")]
enum Company {
    Shared(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

impl Company {
    fn shared() -> Self {
        Self::Shared(COMPANY.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn alone() -> Self {
        Self::Alone(COMPANY.write().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Hosts, and the secret of the jobs on them.
struct Cluster {
    network: Network,
    folder: tempfile::TempDir,
    /// Dropped after the hosts.
    _company: Company,
}

/// A job that is to be started on a cluster.
struct Job<'a> {
    cluster: &'a Cluster,
    /// The host of each rank.
    hosts: &'a [usize],
    root: String,
    variables: Vec<(usize, &'static str, String)>,
}

impl Cluster {
    /// `None`, and a line with the reason, where no network can be made.
    fn new(hosts: usize) -> Option<Self> {
        Self::joined(hosts, Company::shared())
    }

    /// As [`new`](Self::new), while no other test runs.
    fn alone(hosts: usize) -> Option<Self> {
        Self::joined(hosts, Company::alone())
    }

    fn joined(hosts: usize, company: Company) -> Option<Self> {
        let network = match Network::new(hosts) {
            Ok(network) => network,
            Err(why) => {
                skip::skipped(format!("no network namespaces here: {why}"));
                return None;
            }
        };
        Some(Self::of(network, tempfile::tempdir().unwrap(), company))
    }

    fn of(network: Network, folder: tempfile::TempDir, company: Company) -> Self {
        let cluster = Self { network, folder, _company: company };
        let made = Command::new(env!("CARGO_BIN_EXE_maypole"))
            .args(["key", "new"])
            .arg(cluster.key())
            .status()
            .unwrap();
        assert!(made.success());
        cluster
    }

    fn key(&self) -> PathBuf {
        self.folder.path().join("key")
    }

    fn job<'a>(&'a self, hosts: &'a [usize]) -> Job<'a> {
        Job { cluster: self, hosts, root: address(hosts[0]), variables: Vec::new() }
    }
}

impl Job<'_> {
    fn at(mut self, root: &str) -> Self {
        self.root = root.to_owned();
        self
    }

    fn with(mut self, rank: usize, name: &'static str, value: &str) -> Self {
        self.variables.push((rank, name, value.to_owned()));
        self
    }

    /// Starts `program` as every rank, each on its host.
    fn start(&self, program: &Path, arguments: &[&str]) -> Vec<Child> {
        let start = |rank: usize| {
            let mut command = self.command(rank, program);
            command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        (0..self.hosts.len()).map(start).collect()
    }

    fn command(&self, rank: usize, program: &Path) -> Command {
        let host = self.hosts[rank];
        let on_host: Vec<usize> =
            (0..self.hosts.len()).filter(|other| self.hosts[*other] == host).collect();
        let local = on_host.iter().position(|other| *other == rank).unwrap();
        let mut command = self.cluster.network.command(host, program.to_str().unwrap());
        command
            .env("MAYPOLE_JOB_KEY_FILE", self.cluster.key())
            .env("MAYPOLE_RANK", rank.to_string())
            .env("MAYPOLE_WORLD", self.hosts.len().to_string())
            .env("MAYPOLE_LOCAL_RANK", local.to_string())
            .env("MAYPOLE_LOCAL_WORLD", on_host.len().to_string())
            .env("MAYPOLE_ADDRESS", &self.root)
            .env("MAYPOLE_PORT", "24000")
            .env("MAYPOLE_LOG", "info")
            .env("MAYPOLE_TIMEOUT", "60")
            .env("MAYPOLE_TUNE", "off")
            .stdin(Stdio::null());
        for (_, name, value) in self.variables.iter().filter(|it| it.0 == rank) {
            command.env(name, value);
        }
        command
    }

    /// Runs `maypole` as every rank to the end; all must succeed.
    #[track_caller]
    fn maypole(&self, line: &str) -> Vec<Output> {
        let arguments: Vec<&str> = line.split(' ').collect();
        let ranks = self.start(Path::new(env!("CARGO_BIN_EXE_maypole")), &arguments);
        let outputs = ended(ranks);
        for (rank, output) in outputs.iter().enumerate() {
            assert!(output.status.success(), "{line}: rank {rank}: {}", said(output));
        }
        outputs
    }
}

fn ended(ranks: Vec<Child>) -> Vec<Output> {
    ranks.into_iter().map(|rank| rank.wait_with_output().unwrap()).collect()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The lines of `--json`.
fn rows(output: &Output) -> Vec<serde_json::Value> {
    printed(output).lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

const CALL: &str = "explain all-reduce --bytes 8 --transport tcp";

#[test]
fn ranks_say_on_which_route_they_listen_and_by_what_each_pair_talks() {
    let Some(cluster) = Cluster::new(2) else { return };
    let outputs = cluster.job(&[0, 0, 1]).maypole(CALL);
    let first = said(&outputs[0]);
    let line = "maypole: rank 0 listens at 10.231.7.1 on v0 (the route to rank 0); not used: ";
    assert!(first.contains(line), "{first}");
    assert!(first.contains("10.231.8.1 on v1"), "{first}");
    assert!(first.contains("127.0.0.1 on lo"), "{first}");
    for part in [
        "3 ranks on 2 hosts",
        "1 pairs by shm, first 0-1; CUDA: the buffers are in host memory",
        "2 pairs by tcp, first 0-2; CUDA",
        "shared memory: on another host",
    ] {
        assert!(first.contains(part), "{first}");
    }
    assert_eq!(said(&outputs[1]), "", "only the first rank of a host speaks");
    let other = said(&outputs[2]);
    assert!(other.contains("rank 2 listens at 10.231.7.2 on v0"), "{other}");
}

#[test]
fn the_interface_can_be_chosen_by_name_and_by_network() {
    let Some(cluster) = Cluster::new(2) else { return };
    for selector in ["v1", "10.231.8.0/24"] {
        let outputs = cluster.job(&[0, 1]).with(1, "MAYPOLE_INTERFACE", selector).maypole(CALL);
        let other = said(&outputs[1]);
        let line = format!("rank 1 listens at 10.231.8.2 on v1 (MAYPOLE_INTERFACE={selector})");
        assert!(other.contains(&line), "{other}");
        assert!(other.contains("10.231.7.2 on v0"), "{other}");
    }
}

#[test]
fn an_interface_that_is_not_there_is_an_error_that_lists_those_that_are() {
    crate::skip::takes_turns!(4);
    let Some(cluster) = Cluster::new(1) else { return };
    let check = |selector: &str, parts: &[&str]| {
        let job = cluster.job(&[0, 0]).with(0, "MAYPOLE_INTERFACE", selector);
        let output = job
            .command(0, Path::new(env!("CARGO_BIN_EXE_maypole")))
            .args(CALL.split(' '))
            .output()
            .unwrap();
        let error = said(&output);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(parts.iter().all(|part| error.contains(part)), "{selector}: {error}");
    };
    check("eth9", &["no interface of this host has eth9", "10.231.7.1 on v0"]);
    check("10.9.0.0/16", &["has 10.9.0.0/16", "10.231.8.1 on v1"]);
    check("v1", &["selects 10.231.8.1 on rank 0", "told that rank 0 is at 10.231.7.1"]);
    check("10.9/16/3", &["MAYPOLE_INTERFACE", "is no network"]);
}

#[test]
fn the_doctor_tells_the_interface_and_the_rejected_ones() {
    let Some(cluster) = Cluster::new(2) else { return };
    let doctor = |job: Job<'_>| {
        let program = Path::new(env!("CARGO_BIN_EXE_maypole"));
        printed(&job.command(1, program).arg("doctor").output().unwrap())
    };
    let text = doctor(cluster.job(&[0, 1]));
    let line = text.lines().find(|line| line.contains("interfaces")).unwrap().to_owned();
    assert!(line.starts_with("ok ") && line.contains("10.231.7.2 on v0 (the route"), "{line}");
    assert!(line.contains("not used: ") && line.contains("10.231.8.2 on v1"), "{line}");
    let text = doctor(cluster.job(&[0, 1]).with(1, "MAYPOLE_INTERFACE", "eth9"));
    let line = text.lines().find(|line| line.contains("interfaces")).unwrap().to_owned();
    assert!(line.starts_with("problem") && line.contains("has eth9; it has"), "{line}");
}

#[test]
fn ranks_meet_at_an_address_of_ipv6() {
    let Some(cluster) = Cluster::new(2) else { return };
    for root in [address6(0), format!("[{}]", address6(0)), format!("[{}]:24000", address6(0))] {
        let outputs = cluster.job(&[0, 1]).at(&root).maypole(CALL);
        let other = said(&outputs[1]);
        assert!(other.contains("rank 1 listens at fd00:231::2 on v0"), "{root}: {other}");
    }
}

/// Three ranks, so that two of them connect that are not rank 0.
#[test]
fn ranks_meet_at_a_link_local_address_with_its_scope() {
    let Some(cluster) = Cluster::new(3) else { return };
    let outputs = cluster.job(&[0, 1, 2]).at("fe80::231:1%v0").maypole(CALL);
    assert!(said(&outputs[2]).contains("listens at fe80::231:3 on v0"), "{}", said(&outputs[2]));
    // Without a scope in the address, each host names its own interface.
    let job = cluster.job(&[0, 1, 2]).at("fe80::231:1");
    let job = (0..3).fold(job, |job, rank| job.with(rank, "MAYPOLE_INTERFACE", "v0"));
    job.maypole(CALL);
    let program = Path::new(env!("CARGO_BIN_EXE_maypole"));
    let job = cluster.job(&[0, 1]).at("fe80::231:1");
    let output = job.command(0, program).args(CALL.split(' ')).output().unwrap();
    assert!(said(&output).contains("needs an interface"), "{}", said(&output));
}

#[test]
fn every_algorithm_is_right_across_hosts() {
    crate::skip::takes_turns!(4);
    let Some(cluster) = Cluster::new(3) else { return };
    let line = "perf all-reduce broadcast all-gather reduce-scatter barrier --algorithm all,hierarchical \
                --transport auto --sizes 8,100K --iters 1 --json -";
    let outputs = cluster.job(&[0, 0, 1, 1, 2, 2]).maypole(line);
    let rows = rows(&outputs[0]);
    assert!(rows.iter().all(|row| row["wrong"] == 0), "{rows:?}");
    let of = |collective: &str| {
        let is = |row: &&serde_json::Value| {
            row["collective"] == collective && row["algorithm"] == "hierarchical"
        };
        rows.iter().filter(is).count()
    };
    assert!(of("all_reduce") > 0 && of("barrier") > 0, "hierarchical rows ran");
    assert!(rows.iter().all(|row| row["transport"] == "shm+tcp"), "{rows:?}");
}

#[test]
fn a_slow_link_is_measured_as_one() {
    crate::skip::takes_turns!(4);
    let Some(cluster) = Cluster::alone(2) else { return };
    const RATE: u64 = 80_000_000;
    if let Err(why) = cluster.network.limit(RATE) {
        return skip::skipped(format!("no slow links here: {why}"));
    }
    let line = "perf all-reduce --transport tcp --sizes 4M --iters 2 --json -";
    let outputs = cluster.job(&[0, 1]).maypole(line);
    let rows = rows(&outputs[0]);
    assert_eq!(rows.len(), 2);
    for row in rows {
        // Two ranks: each sends as many bytes as the vector has.
        let figure = row["busbw_GBps"].as_f64().unwrap() / (RATE as f64 / 8e9);
        assert!((0.5..1.1).contains(&figure), "{figure} of the link: {row}");
        assert_eq!(row["wrong"], 0);
    }
}

/// Four hosts, of which two are joined by a slow cable of their own.
#[test]
fn a_slow_pair_is_named_in_the_matrix_of_all_pairs() {
    crate::skip::takes_turns!(4);
    let Some(cluster) = Cluster::alone(4) else { return };
    if let Err(why) = cluster.network.join_slowly(1, 2, 20_000_000) {
        return skip::skipped(format!("no slow links here: {why}"));
    }
    let line = "perf bandwidth --pairs all --transport tcp --sizes 4K --budget 20 --json -";
    let outputs = cluster.job(&[0, 1, 2, 3]).maypole(line);
    let rows = rows(&outputs[0]);
    let (matrix, pairs) = rows.split_last().unwrap();
    assert_eq!(pairs.len(), 12, "both ways of six pairs");
    assert!(pairs.iter().all(|row| row["wrong"] == 0), "{pairs:?}");
    let verdict = matrix["verdict"].as_str().unwrap();
    // Other programs may slow down a third link, but by far less.
    let listed = verdict.lines().next().unwrap().split(", ").take(3).collect::<String>();
    assert!(listed.contains("1->2 (") && listed.contains("2->1 ("), "{verdict}");
    assert_eq!(matrix["odd_ranks"], serde_json::json!([]), "{verdict}");
}

/// Runs as a rank, when the test below starts this file's program again.
#[test]
fn as_a_rank() {
    if std::env::var_os("TEST_ROLE").is_none() {
        return;
    }
    let mut comm = Communicator::from_env().unwrap();
    let mut calls = 0_u64;
    let error = loop {
        let mut sum = [calls; 1000];
        match comm.all_reduce(&mut sum, ReduceOp::Sum) {
            Ok(()) => assert_eq!(sum, [calls * comm.world() as u64; 1000]),
            Err(error) => break error,
        }
        calls += 1;
        if calls == 100 {
            println!("@running");
        }
    };
    let is_lost = matches!(error, Error::PeerLost { .. } | Error::Aborted { .. });
    println!("@lost {is_lost} culprit {:?} retryable {}", error.culprit(), error.is_retryable());
    println!("@error {error}");
}

/// Reads the lines of a rank up to the one that begins with `@` and `tag`, and returns its rest.
fn wait_for(lines: &mut impl Iterator<Item = String>, tag: &str) -> String {
    let begin = format!("@{tag}");
    let found = lines.find_map(|line| Some(line.split_once(&begin)?.1.trim().to_owned()));
    found.unwrap_or_else(|| panic!("the rank said no {tag}"))
}

#[test]
fn ranks_of_a_host_that_vanishes_are_errors_of_the_others_within_the_bound() {
    crate::skip::takes_turns!(4);
    use std::io::{BufRead, BufReader};
    let Some(cluster) = Cluster::new(3) else { return };
    // The last rank, and then rank 0, which is the centre of the control plane.
    for vanishes in [2, 0] {
        let job = cluster.job(&[0, 1, 2]);
        let job = (0..3).fold(job, |job, rank| job.with(rank, "TEST_ROLE", "rank"));
        let program = std::env::current_exe().unwrap();
        let arguments = ["--exact", "as_a_rank", "--nocapture", "--test-threads=1"];
        let mut ranks = job.start(&program, &arguments);
        let lines = |rank: &mut Child| {
            BufReader::new(rank.stdout.take().unwrap()).lines().map_while(Result::ok)
        };
        let mut outputs: Vec<_> = ranks.iter_mut().map(lines).collect();
        for output in &mut outputs {
            wait_for(output, "running");
        }
        cluster.network.unplug(vanishes);
        let start = Instant::now();
        for (rank, output) in outputs.iter_mut().enumerate() {
            let lost = wait_for(output, "lost");
            let error = wait_for(output, "error");
            assert!(start.elapsed() < BOUND, "rank {rank}: {:?}: {error}", start.elapsed());
            assert!(lost.starts_with("true"), "rank {rank}: {error}");
            if rank != vanishes {
                let named = format!("culprit Some({vanishes}) retryable true");
                assert!(lost.ends_with(&named), "rank {rank}: {lost}: {error}");
            }
        }
        for rank in ended(ranks) {
            assert!(rank.status.success(), "{}", said(&rank));
        }
        if vanishes == 2 {
            cluster.network.plug(vanishes);
        }
    }
}
