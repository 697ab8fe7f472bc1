//! Measures calls between hosts whose packets take time, beside Open MPI and Gloo, in alternating rounds of one run.
//!
//! ```text
//! cargo bench --bench far                                   # maypole alone
//! cargo bench --bench far -- --mpicc mpicc --mpirun mpirun --python PYTHON_WITH_TORCH
//! cargo bench --bench far -- --networks 8@1ms,8@100us/1000mbit --force ring,linear,binomial
//! cargo bench --bench far -- --processor                    # processor time of waits
//! ```
//!
//! Hosts are network namespaces, and `tests/common/delay.c` carries their packets: it needs root or unprivileged user
//! namespaces. Without these, the bench prints the reason and ends. All ranks share the clock and the cores of this machine.
//! *one* is the time of a call that all ranks begin at one time of the clock, until the last rank that must have its
//! result returns; *row* is that of a row of ten calls, divided by ten. Both are medians over the rounds; the ratio is
//! the peer's time divided by maypole's, above 1 if maypole is faster. Open MPI is told to yield, because ranks
//! outnumber the cores. `--force` measures those algorithms, too, and prints the chosen one's time over the best.
//!
//! `--processor` prints the processor time of all ranks and the time of a short all-reduce, for ranks of one host each
//! that share one core, and for ranks that have half a core by a quota of a control group.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use network::Network;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

#[path = "../../tests/common/network.rs"]
mod network;
mod processor;
mod ranks;
#[path = "../../src/cli/statistics.rs"]
mod statistics;

/// Measure calls between hosts that are apart.
#[derive(Parser)]
struct FarArgs {
    /// Networks, separated by commas: hosts, ranks of each, one-way delay, and what a host sends at most.
    #[arg(long, value_delimiter = ',', default_value = "8@1ms,16@1ms,8@100us/1000mbit,4x2@1ms")]
    networks: Vec<Cluster>,

    /// The number of rounds. Each library runs once in each round.
    #[arg(long, default_value_t = 3)]
    rounds: usize,

    /// The compiler of Open MPI.
    #[arg(long, value_name = "FILE", requires = "mpirun")]
    mpicc: Option<PathBuf>,

    /// The launcher of Open MPI.
    #[arg(long, value_name = "FILE", requires = "mpicc")]
    mpirun: Option<PathBuf>,

    /// A Python that has PyTorch, which has Gloo.
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,

    /// Algorithms to force, separated by commas.
    #[arg(long, value_delimiter = ',')]
    force: Vec<String>,

    /// Measure the processor time of waits instead.
    #[arg(long)]
    processor: bool,

    /// Passed by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Hosts that are apart, such as `4x2@1ms/1000mbit`.
#[derive(Clone, Debug)]
struct Cluster {
    name: String,
    hosts: usize,
    each: usize,
    delay: Duration,
    /// Megabits a second of a host; 0 for no limit.
    mbit: u64,
}

impl std::str::FromStr for Cluster {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let read = || {
            let (world, network) = name.split_once('@')?;
            let (hosts, each) = world.split_once('x').unwrap_or((world, "1"));
            let (delay, rate) = network.split_once('/').unwrap_or((network, "0mbit"));
            let (unit, micros) = if delay.ends_with("us") { ("us", 1) } else { ("ms", 1000) };
            let delay = delay.strip_suffix(unit)?.parse::<u64>().ok()? * micros;
            let (hosts, each) = (hosts.parse().ok()?, each.parse().ok()?);
            let mbit = rate.strip_suffix("mbit")?.parse().ok()?;
            let delay = Duration::from_micros(delay);
            (hosts > 0 && each > 0).then(|| Self {
                name: name.to_owned(),
                hosts,
                each,
                delay,
                mbit,
            })
        };
        read().ok_or_else(|| format!("{name:?} is no network such as 4x2@1ms/1000mbit"))
    }
}

/// Microseconds of a call alone and in a row, by collective and bytes.
type Times = BTreeMap<(String, usize), [f64; 2]>;

const OURS: &str = "maypole";

fn main() -> Result<ExitCode> {
    if ranks::measure_if_asked()? {
        return Ok(ExitCode::SUCCESS);
    }
    let args = FarArgs::parse();
    let folder = tempfile::tempdir()?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/common/delay.c");
    let carrier = network::compile_carrier(&source, folder.path());
    let possible = carrier.and_then(|it| Network::apart(1, Duration::ZERO, &it).map(|_| it));
    let carrier = match possible {
        Ok(carrier) => carrier,
        Err(why) => {
            eprintln!("SKIPPED: no hosts that are apart here: {why}");
            return Ok(ExitCode::SUCCESS);
        }
    };
    if args.processor {
        return processor::measure(&carrier, folder.path());
    }
    let mpi = args.mpicc.as_ref().map(|mpicc| compile(mpicc, folder.path())).transpose()?;
    for cluster in &args.networks {
        let far = Far::new(cluster, &carrier, folder.path())?;
        let mut times: BTreeMap<String, Vec<Times>> = BTreeMap::new();
        for round in 0..args.rounds {
            let mut libraries = vec![OURS.to_owned()];
            libraries.extend(mpi.is_some().then(|| "mpi".to_owned()));
            libraries.extend(args.python.is_some().then(|| "gloo".to_owned()));
            libraries.extend(args.force.iter().cloned());
            if round % 2 == 1 {
                libraries.reverse();
            }
            for library in libraries {
                eprintln!("{}, round {}: {library}", cluster.name, round + 1);
                let taken = match &*library {
                    "mpi" => far.open_mpi(args.mpirun.as_deref(), mpi.as_deref())?,
                    "gloo" => far.gloo(args.python.as_deref().context("--python")?)?,
                    OURS => far.ours(None)?,
                    forced => far.ours(Some(forced))?,
                };
                times.entry(library).or_default().push(taken);
            }
        }
        print(cluster, &times, &args.force);
    }
    Ok(ExitCode::SUCCESS)
}

fn compile(mpicc: &Path, folder: &Path) -> Result<PathBuf> {
    let program = folder.join("calls");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/far/calls.c");
    let done = Command::new(mpicc).args(["-O2", "-o"]).arg(&program).arg(source).status()?;
    ensure!(done.success(), "{} cannot compile calls.c", mpicc.display());
    Ok(program)
}

/// The key of the jobs of a run.
fn key(folder: &Path) -> Result<PathBuf> {
    let key = folder.join("key");
    if !key.exists() {
        let made =
            Command::new(env!("CARGO_BIN_EXE_maypole")).args(["key", "new"]).arg(&key).output()?;
        ensure!(made.status.success(), "no key: {made:?}");
    }
    Ok(key)
}

/// Makes the program of a command a rank.
fn join(command: &mut Command, rank: usize, world: usize, key: &Path) {
    command.env("MAYPOLE_RANK", rank.to_string()).env("MAYPOLE_WORLD", world.to_string());
    command.env("MAYPOLE_ADDRESS", network::address(0)).env("MAYPOLE_PORT", "24000");
    command.env("MAYPOLE_JOB_KEY_FILE", key).env("MAYPOLE_TUNE", "off");
}

/// Hosts with the programs that run on them.
struct Far<'a> {
    cluster: &'a Cluster,
    network: Network,
    folder: &'a Path,
    key: PathBuf,
}

impl<'a> Far<'a> {
    fn new(cluster: &'a Cluster, carrier: &Path, folder: &'a Path) -> Result<Self> {
        let network = Network::apart(cluster.hosts, cluster.delay, carrier);
        let mut network = network.map_err(anyhow::Error::msg)?;
        (0..cluster.hosts).for_each(|it| network.tell(&format!("rate {it} {}", cluster.mbit)));
        let key = key(folder)?;
        Ok(Self { cluster, network, folder, key })
    }

    /// Starts a program as each rank, and returns what rank 0 prints.
    fn on_all(&self, program: &Path, set: impl Fn(&mut Command, usize)) -> Result<String> {
        let world = self.cluster.hosts * self.cluster.each;
        let start = |rank: usize| {
            let host = rank / self.cluster.each;
            let mut command = self.network.command(host, &program.display().to_string());
            set(&mut command, rank);
            join(&mut command, rank, world, &self.key);
            let output = if rank == 0 { Stdio::piped() } else { Stdio::null() };
            command.stdin(Stdio::null()).stdout(output).spawn()
        };
        let ranks = (0..world).map(start).collect::<std::io::Result<Vec<_>>>()?;
        let mut printed = String::new();
        for (rank, child) in ranks.into_iter().enumerate() {
            let output = child.wait_with_output()?;
            ensure!(output.status.success(), "rank {rank}: {}", output.status);
            printed += &String::from_utf8_lossy(&output.stdout);
        }
        Ok(printed)
    }

    fn ours(&self, forced: Option<&str>) -> Result<Times> {
        let own = std::env::current_exe()?;
        let printed = self.on_all(&own, |command, _| {
            command.env(ranks::MEASURES, forced.unwrap_or_default());
        });
        read(&printed?)
    }

    fn gloo(&self, python: &Path) -> Result<Times> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/far/gloo.py");
        let world = (self.cluster.hosts * self.cluster.each).to_string();
        let printed = self.on_all(python, |command, rank| {
            command.arg(&script).env("RANK", rank.to_string()).env("WORLD_SIZE", &world);
            command.env("MASTER_ADDR", network::address(0)).env("MASTER_PORT", "24001");
            command.env("GLOO_SOCKET_IFNAME", "v0").env("OMP_NUM_THREADS", "1");
        });
        read(&printed?)
    }

    /// Open MPI's launcher runs on the first host, and enters the others by a script in the place of ssh.
    fn open_mpi(&self, mpirun: Option<&Path>, program: Option<&Path>) -> Result<Times> {
        let (mpirun, program) = mpirun.zip(program).context("--mpicc and --mpirun")?;
        let agent = self.folder.join("agent");
        let mut script =
            "#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\ncase $1 in\n".to_owned();
        for host in 0..self.cluster.hosts {
            let command = self.network.command(host, "sh");
            let words = std::iter::once(command.get_program()).chain(command.get_args());
            let words: Vec<_> = words.map(|word| word.to_string_lossy().into_owned()).collect();
            // Daemons with one name of a host would share a folder.
            script += &format!(
                "{}) shift; exec {} -c 'exec unshare --uts sh -c \
                 \"hostname node{host}; $0\"' \"$*\";;\n",
                network::address(host),
                words.join(" ")
            );
        }
        std::fs::write(&agent, script + "esac\n")?;
        ensure!(Command::new("chmod").arg("+x").arg(&agent).status()?.success(), "chmod");
        let each = self.cluster.each;
        let hosts: Vec<_> = (0..self.cluster.hosts)
            .map(|host| format!("{}:{each}", network::address(host)))
            .collect();
        let mut command = self.network.command(0, &mpirun.display().to_string());
        command.args([
            "--allow-run-as-root",
            "--bind-to",
            "none",
            "--mca",
            "mpi_yield_when_idle",
            "1",
        ]);
        for (name, value) in [
            ("plm_rsh_agent", agent.display().to_string()),
            // Its daemons crash where several start on one machine at the same time.
            ("rtc", "^hwloc".to_owned()),
            ("btl", "tcp,self,vader".to_owned()),
            ("pml", "ob1".to_owned()),
            ("btl_tcp_if_include", "v0".to_owned()),
            ("oob_tcp_if_include", "v0".to_owned()),
        ] {
            command.args(["--mca", name, &value]);
        }
        command.args(["--host", &hosts.join(","), "-np", &(each * hosts.len()).to_string()]);
        let output = command.arg(program).stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
        ensure!(output.status.success(), "mpirun: {}", output.status);
        read(&String::from_utf8_lossy(&output.stdout))
    }
}

/// Lines of a collective, bytes, and microseconds of a call alone and in a row.
fn read(printed: &str) -> Result<Times> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, bytes, one, row] = words[..] else { return None };
        Some(((name.to_owned(), bytes.parse().ok()?), [one.parse().ok()?, row.parse().ok()?]))
    };
    let times: Times = printed.lines().filter_map(line).collect();
    ensure!(!times.is_empty(), "no times: {printed}");
    Ok(times)
}

/// The medians of the rounds at each point, and the ratios of each peer with their geometric mean.
fn print(cluster: &Cluster, times: &BTreeMap<String, Vec<Times>>, forced: &[String]) {
    let of = |library: &str, point: &(String, usize)| {
        let rounds = times.get(library)?.iter().filter_map(|round| round.get(point));
        let rounds: Vec<_> = rounds.collect();
        let median = |at: usize| statistics::median(rounds.iter().map(|it| it[at]).collect());
        Some([median(0)?, median(1)?])
    };
    let peers: Vec<&String> =
        times.keys().filter(|name| *name != OURS && !forced.contains(name)).collect();
    println!("# {}: microseconds of a call alone, in a row; peer / maypole", cluster.name);
    let mut ratios: BTreeMap<&str, Vec<[f64; 2]>> = BTreeMap::new();
    for point in times[OURS][0].keys() {
        let Some(ours) = of(OURS, point) else { continue };
        let mut line = format!("{:>15} {:>8} {:>9.0} {:>9.0}", point.0, point.1, ours[0], ours[1]);
        for peer in &peers {
            let Some(theirs) = of(peer, point) else { continue };
            let ratio = [theirs[0] / ours[0], theirs[1] / ours[1]];
            line += &format!(
                " | {peer} {:>9.0} {:>9.0}  {:.2} {:.2}",
                theirs[0], theirs[1], ratio[0], ratio[1]
            );
            ratios.entry(peer).or_default().push(ratio);
        }
        let all = forced.iter().filter_map(|name| Some((name, of(name, point)?)));
        let best = |at: usize| {
            all.clone()
                .min_by(|a, b| a.1[at].total_cmp(&b.1[at]))
                .map(|it| (it.0, ours[at] / it.1[at]))
        };
        if let (Some(one), Some(row)) = (best(0), best(1)) {
            line +=
                &format!(" | best alone {} {:.2}, in a row {} {:.2}", one.0, one.1, row.0, row.1);
            ratios.entry("chosen / best forced").or_default().push([one.1, row.1]);
        }
        println!("{line}");
    }
    for (name, ratios) in ratios {
        let mean = |at: usize| {
            (ratios.iter().map(|it| it[at].ln()).sum::<f64>() / ratios.len() as f64).exp()
        };
        let least = |at: usize| ratios.iter().map(|it| it[at]).fold(f64::INFINITY, f64::min);
        println!(
            "# {}, {name}: geometric mean {:.2} alone, {:.2} in a row; least {:.2}, {:.2}",
            cluster.name,
            mean(0),
            mean(1),
            least(0),
            least(1)
        );
    }
}
