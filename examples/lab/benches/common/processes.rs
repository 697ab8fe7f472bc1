//! Two rank processes that train turn by turn on request, so that arms can alternate within seconds.

use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// How ranks train in a turn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Arm {
    /// Each by itself, at the same time as the other.
    Alone,
    /// Together; sums begin when the backward pass has ended.
    After,
    /// Together; sums run while the backward pass does.
    During,
    /// As `During`, with rows divided by the speed of ranks.
    BySpeed,
}

impl Arm {
    pub(super) const ALL: [Self; 4] = [Self::Alone, Self::After, Self::During, Self::BySpeed];
}

/// The measurements of one rank in a turn.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turn {
    /// Seconds of each step.
    pub(crate) steps: Vec<f64>,
    /// Seconds of all of them in which the rank waited for the other.
    pub(crate) waits: f64,
    /// Seconds of processor time of the whole process, for all of them.
    pub(crate) work: f64,
}

/// The rank processes; each waits for the order of a turn.
pub(crate) struct BenchRanks {
    ranks: Vec<Rank>,
}

struct Rank {
    child: Child,
    orders: ChildStdin,
    results: BufReader<ChildStdout>,
}

impl BenchRanks {
    /// Starts two ranks. `command` makes the command of each from its rank and the path of this
    /// program; `address` is that of rank 0.
    pub(crate) fn start(command: impl Fn(usize, &str) -> Command, address: &str) -> Result<Self> {
        let this = std::env::current_exe().context("this program has no path")?;
        let this = this.to_str().context("this program's path is no text")?;
        let mut key = [0; 32];
        File::open("/dev/urandom")?.read_exact(&mut key)?;
        let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        let start = |rank: usize| -> Result<Rank> {
            let mut command = command(rank, this);
            command
                .args(std::env::args_os().skip(1))
                .arg("--rank")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped());
            for (name, _) in std::env::vars_os()
                .filter(|(name, _)| name.to_string_lossy().starts_with("MAYPOLE_"))
            {
                command.env_remove(name);
            }
            if let Some(file) = std::env::var_os("MAYPOLE_TRACE") {
                command.env("MAYPOLE_TRACE", file);
            }
            command
                .env("MAYPOLE_RANK", rank.to_string())
                .env("MAYPOLE_WORLD", "2")
                .env("MAYPOLE_TUNE", "off");
            command
                .env("MAYPOLE_ADDRESS", address)
                .env("MAYPOLE_JOB_KEY", &key)
                .env("MAYPOLE_TIMEOUT", "60");
            command.env("MAYPOLE_JOB", format!("bench-{}", std::process::id()));
            let mut child = command.spawn().context("a rank cannot be started")?;
            let orders = child.stdin.take();
            let results = child.stdout.take();
            Ok(Rank {
                child,
                orders: orders.expect("piped"),
                results: BufReader::new(results.expect("piped")),
            })
        };
        Ok(Self { ranks: (0..2).map(start).collect::<Result<_>>()? })
    }

    /// Lets both ranks train for `steps` steps, and returns the measurements of each, by rank.
    pub(crate) fn turn(&mut self, arm: Arm, steps: usize) -> Result<[Turn; 2]> {
        for rank in &mut self.ranks {
            writeln!(rank.orders, "{} {steps}", arm as usize).context("a rank has ended")?;
        }
        let mut turns = [const { None }; 2];
        for (rank, turn) in self.ranks.iter_mut().zip(&mut turns) {
            *turn = Some(rank.read_turn(steps)?);
        }
        Ok(turns.map(|turn| turn.expect("there are two")))
    }

    /// Seconds of a step: the median of some, each as long as it took the slower rank.
    pub(crate) fn step(&mut self, arm: Arm, steps: usize) -> Result<f64> {
        let [a, b] = self.turn(arm, steps)?;
        Ok(super::median(a.steps.iter().zip(&b.steps).map(|(a, b)| a.max(*b))))
    }
}

impl Rank {
    fn read_turn(&mut self, steps: usize) -> Result<Turn> {
        let mut line = String::new();
        self.results.read_line(&mut line)?;
        let numbers: Vec<f64> =
            line.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        ensure!(numbers.len() == steps + 2, "a rank has ended: {line:?}");
        Ok(Turn { steps: numbers[2..].to_vec(), waits: numbers[0], work: numbers[1] })
    }
}

impl Drop for BenchRanks {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            // A process that has ended cannot be killed.
            let _ = rank.child.kill();
            let _ = rank.child.wait();
        }
    }
}
