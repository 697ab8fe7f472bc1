//! `maypole simulate`: what collectives would cost, by a model of links.

mod cluster;

use crate::{names, sizes};
use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use maypole::schedule::simulate::{Cost, Estimate, Ports, simulate, timeline};
use maypole::schedule::trace::{self, Trace};
use maypole::schedule::{Layout, Schedule};
use serde_json::json;
use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

/// Predict how long algorithms take: a message of m bytes arrives alpha + m beta after it left, and
/// combining costs gamma a byte.
///
/// The defaults are about those of TCP on a 10 Gbit/s network. With --cluster, links are those of a
/// made-up cluster.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// broadcast, reduce, all-reduce, gather, all-gather, scatter, reduce-scatter, all-to-all or
    /// barrier.
    #[arg(value_parser = names::collective, required_unless_present_any = ["named", "cluster"])]
    collective: Option<Collective>,

    #[command(flatten)]
    lab: cluster::Options,

    /// Which algorithm [default: all that there are].
    #[arg(short, long, value_name = "NAME")]
    algorithm: Option<Algorithm>,

    /// How many ranks.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 4, conflicts_with = "cluster")]
    ranks: usize,

    /// The root of broadcast, reduce, gather and scatter.
    #[arg(short, long, value_name = "RANK", default_value_t = 0)]
    root: usize,

    /// Bytes of the whole: of the vector, or of all blocks together. With --cluster also several,
    /// 1M..1G.
    #[arg(short, long, value_name = "SIZE", default_value = "1M", value_parser = sizes::sweep)]
    bytes: sizes::Sweep,

    /// Seconds that every message is under way, however short.
    #[arg(long, value_name = "SECONDS", default_value = "20e-6", value_parser = cost, conflicts_with = "cluster")]
    alpha: f64,

    /// Seconds a byte: one over the bandwidth.
    #[arg(long, value_name = "SECONDS", default_value = "0.8e-9", value_parser = cost, conflicts_with = "cluster")]
    beta: f64,

    /// Seconds to combine a byte.
    #[arg(long, value_name = "SECONDS", default_value = "0.1e-9", value_parser = cost, conflicts_with = "cluster")]
    gamma: f64,

    /// Into how many windows every chunk is cut, so that windows overlap [default: 1, 2, 4 ... 64,
    /// whichever is fastest].
    #[arg(short, long, value_name = "N", value_parser = windows, conflicts_with = "cluster")]
    windows: Option<usize>,

    /// What messages of one rank share.
    #[arg(long, value_enum, default_value_t = Share::Single, conflicts_with = "cluster")]
    ports: Share,

    /// One JSON object a line.
    #[arg(long)]
    json: bool,

    /// Print what every rank sends, receives and combines when, by the fastest algorithm or the one
    /// named.
    #[arg(short, long, conflicts_with_all = ["json", "cluster"])]
    timeline: bool,

    /// Write the same to a file that https://ui.perfetto.dev and chrome://tracing open.
    #[arg(long, value_name = "FILE", conflicts_with = "cluster")]
    trace: Option<PathBuf>,
}

/// Characters of time in a line of the timeline.
const COLUMNS: usize = 80;

#[derive(Clone, Copy, ValueEnum)]
enum Share {
    /// One way out and one way in: a network card.
    Single,
    /// Nothing: every link has its own.
    PerLink,
}

const PROVED: &str = "the algorithms of the table are proved to complete";

/// What one algorithm comes to.
struct Prediction {
    algorithm: Algorithm,
    windows: usize,
    /// Of the rank that has most.
    steps: usize,
    estimate: Estimate,
}

pub(crate) fn main(args: Args) -> Result<ExitCode> {
    let wanted = args.wanted().context("which collective? name one")?;
    if let Some(cluster) = &args.lab.cluster {
        let (algorithm, bytes) = (args.algorithm, args.bytes.sizes());
        let question = cluster::Question {
            cluster,
            collective: wanted,
            root: args.root,
            algorithm,
            bytes,
            json: args.json,
        };
        return cluster::main(&args.lab, &question);
    }
    ensure!(args.bytes.sizes().len() == 1, "several sizes need --cluster");
    let collective = names::rooted(wanted, args.root, args.ranks)?;
    let algorithms = match args.algorithm {
        Some(algorithm) if !algorithm.supports(collective) => {
            bail!("{}", names::no_answer(algorithm, collective))
        }
        Some(algorithm) => vec![algorithm],
        None => names::algorithms_for(collective),
    };
    let mut predictions: Vec<_> =
        algorithms.into_iter().map(|one| args.predict(one, collective)).collect();
    predictions.sort_by(|a, b| a.estimate.seconds.total_cmp(&b.estimate.seconds));
    let mut out = stdout().lock();
    if args.json {
        for prediction in &predictions {
            writeln!(out, "{}", args.object(collective, prediction))?;
        }
    } else {
        write!(out, "{}", args.table(collective, &predictions))?;
    }
    if args.timeline || args.trace.is_some() {
        args.show(&args.trace_of(&predictions[0], collective), &predictions[0], &mut out)?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn predict(&self, algorithm: Algorithm, collective: Collective) -> Prediction {
        let schedules = algorithm.schedules(collective, self.ranks).expect("it has an answer");
        let steps = schedules.iter().map(|schedule| schedule.steps.len()).max().unwrap_or(0);
        let candidates = match self.windows {
            Some(windows) => vec![windows],
            None => vec![1, 2, 4, 8, 16, 32, 64],
        };
        let priced =
            candidates.into_iter().map(|windows| (windows, self.price(&schedules, windows)));
        // The first of equals: fewer windows.
        let best = priced.min_by(|(_, a), (_, b)| a.seconds.total_cmp(&b.seconds));
        let (windows, estimate) = best.expect("there are candidates");
        Prediction { algorithm, windows, steps, estimate }
    }

    fn price(&self, schedules: &[Schedule], windows: usize) -> Estimate {
        let layout = self.layout(schedules);
        simulate(schedules, &layout, 1, windows, self.cost()).expect(PROVED)
    }

    fn trace_of(&self, prediction: &Prediction, collective: Collective) -> Trace {
        let schedules =
            prediction.algorithm.schedules(collective, self.ranks).expect("it has an answer");
        let layout = self.layout(&schedules);
        timeline(&schedules, &layout, 1, prediction.windows, self.cost()).expect(PROVED).1
    }

    fn cost(&self) -> Cost {
        let ports = match self.ports {
            Share::Single => Ports::Single,
            Share::PerLink => Ports::PerLink,
        };
        Cost { alpha: self.alpha, beta: self.beta, gamma: self.gamma, ports }
    }

    fn layout(&self, schedules: &[Schedule]) -> Layout {
        Layout::even(self.whole(), schedules[0].chunks)
    }

    fn show(&self, trace: &Trace, of: &Prediction, out: &mut impl Write) -> Result<()> {
        if self.timeline {
            let lanes = trace::text(trace, COLUMNS);
            let windows = if of.windows == 1 {
                "one window".to_owned()
            } else {
                format!("{} windows", of.windows)
            };
            writeln!(
                out,
                "\n# {} in {windows}: to whom, from whom, + combining\n{lanes}",
                of.algorithm
            )?;
        }
        if let Some(path) = &self.trace {
            let written = std::fs::write(path, trace::document(trace));
            written.with_context(|| format!("cannot write --trace {}", path.display()))?;
        }
        Ok(())
    }

    fn wanted(&self) -> Option<Collective> {
        self.collective.or(self.lab.named)
    }

    /// Bytes of the whole; a barrier has none.
    fn whole(&self) -> usize {
        if self.wanted() == Some(Collective::Barrier) { 0 } else { self.bytes.first }
    }

    fn object(&self, collective: Collective, prediction: &Prediction) -> serde_json::Value {
        let Prediction { algorithm, windows, steps, estimate } = prediction;
        json!({
            "collective": collective.name(),
            "algorithm": algorithm.name(),
            "ranks": self.ranks,
            "root": collective.root(),
            "bytes": self.whole(),
            "windows": windows,
            "steps": steps,
            "seconds": estimate.seconds,
            "messages": estimate.messages,
            "bytes_sent": estimate.bytes_sent,
            "bytes_reduced": estimate.bytes_reduced,
        })
    }

    fn table(&self, collective: Collective, predictions: &[Prediction]) -> String {
        let (name, size) = (names::dashed(collective), sizes::name(self.whole()));
        let mut text = format!(
            "# {name} of {size} on {} ranks, alpha {:e} s, beta {:e} s/byte, gamma {:e} s/byte\n\
             # time: until the last rank is done; steps, sent and combined: of the rank that has most\n\
             #{:>15} {:>12} {:>8} {:>6} {:>9} {:>12} {:>14}\n",
            self.ranks,
            self.alpha,
            self.beta,
            self.gamma,
            "algorithm",
            "time(us)",
            "windows",
            "steps",
            "messages",
            "sent(B)",
            "combined(B)",
        );
        for Prediction { algorithm, windows, steps, estimate } in predictions {
            let most = |bytes: &[usize]| bytes.iter().max().copied().unwrap_or(0);
            text += &format!(
                " {:>15} {:>12.2} {windows:>8} {steps:>6} {:>9} {:>12} {:>14}\n",
                algorithm.name(),
                estimate.seconds * 1e6,
                estimate.messages,
                most(&estimate.bytes_sent),
                most(&estimate.bytes_reduced),
            );
        }
        text
    }
}

fn cost(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() && seconds >= 0.0 => Ok(seconds),
        _ => Err(format!("{text:?} is no number of seconds; write 5e-6")),
    }
}

fn windows(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(windows @ 1..=65_536) => Ok(windows),
        _ => Err("must be from 1 to 65536".to_owned()),
    }
}
