//! `maypole simulate`: predicts the time of collectives from a model of links.

pub(crate) mod cluster;

use crate::progress::Progress;
use crate::schedules::{NamedSchedules, ScheduleArgs};
use crate::table::{Column, head, line};
use crate::{names, output, sizes};
use anyhow::{Context, Result, bail, ensure};
use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use maypole::schedule::verify::verify;
use maypole::schedule::{Layout, Placement, Schedule};
use maypole_pictures::clocks::{Cost, Estimate, Ports, activities, simulate};
use maypole_pictures::{lanes, timeline};
use serde_json::json;
use std::fmt;
use std::process::ExitCode;

/// Predict how long algorithms take.
///
/// In the model, a message of m bytes arrives alpha + m * beta seconds after it was sent, and
/// combining m bytes takes m * gamma seconds. The default values are typical of TCP on a 10 Gbit/s
/// network. With --cluster, the links are those of a described cluster.
#[derive(clap::Args)]
pub(crate) struct SimulateArgs {
    #[command(flatten)]
    of: ScheduleArgs,

    #[command(flatten)]
    lab: cluster::ClusterArgs,

    /// Bytes of the whole: of the vector, or of all ranks' blocks together. With --cluster also a range
    /// that doubles, such as 1M..1G.
    #[arg(short, long, value_name = "SIZE", default_value = "1M", value_parser = sizes::sweep)]
    bytes: sizes::Sweep,

    #[command(flatten)]
    costs: CostArgs,

    /// The number of windows that each chunk is cut into; windows overlap in time [default: the
    /// fastest of 1, 2, 4 ... 64].
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    windows: Option<u32>,

    /// Print one JSON object a line instead of the table.
    #[arg(long)]
    json: bool,

    /// Print when each rank sends, receives and combines, by the fastest algorithm (with
    /// --algorithm, by that one).
    #[arg(short, long, conflicts_with = "json")]
    timeline: bool,
}

/// What messages and bytes cost in the model.
#[derive(Clone, Copy, clap::Args)]
pub(crate) struct CostArgs {
    /// alpha, the latency: seconds that every message takes, however short.
    #[arg(long, value_name = "SECONDS", default_value = "20e-6", value_parser = cost)]
    alpha: f64,

    /// beta, seconds for each byte sent: one divided by the bandwidth.
    #[arg(long, value_name = "SECONDS", default_value = "0.8e-9", value_parser = cost)]
    beta: f64,

    /// gamma, seconds to combine a byte.
    #[arg(long, value_name = "SECONDS", default_value = "0.1e-9", value_parser = cost)]
    gamma: f64,
}

impl CostArgs {
    pub(crate) fn cost(self) -> Cost {
        let Self { alpha, beta, gamma } = self;
        Cost { alpha, beta, gamma, ports: Ports::Single }
    }
}

impl fmt::Display for CostArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { alpha, beta, gamma } = self;
        write!(f, "alpha {alpha:e} s, beta {beta:e} s/byte, gamma {gamma:e} s/byte")
    }
}

/// The most of alpha, beta and gamma. Times of all ranks together have room above it.
const MOST_SECONDS: f64 = 1e6;
/// The most events that a run of the command simulates: steps of all ranks, times windows. A few
/// million take some seconds.
const MOST_EVENTS: usize = 1 << 22;

/// Width of a timeline in characters.
const COLUMNS: usize = 80;

/// Why simulating an algorithm of the table cannot fail.
const PROVED: &str = "the checker has proved that these schedules complete";

struct SimulatedCost {
    of: NamedSchedules,
    windows: usize,
    /// Steps of the rank with the most.
    steps: usize,
    estimate: Estimate,
}

pub(crate) fn main(args: SimulateArgs) -> Result<ExitCode> {
    if let Some(path) = &args.of.schedule {
        return args.predict_file(NamedSchedules::of_file(path)?);
    }
    if let Some(name) = &args.lab.cluster {
        return cluster::main(&args, name);
    }
    ensure!(args.bytes.sizes().len() == 1, "--bytes with several sizes needs --cluster");
    let collective = args.of.collective(names::MOST_DRAWN)?;
    let algorithms = match args.of.algorithm {
        Some(algorithm) if !algorithm.supports(collective) => {
            bail!("{}", names::not_implemented(algorithm, collective))
        }
        Some(algorithm) => vec![algorithm],
        None => names::algorithms_for(collective),
    };
    let mut predictions = args.predict_all(&algorithms, collective)?;
    predictions.sort_by(|a, b| a.estimate.seconds.total_cmp(&b.estimate.seconds));
    args.report(&predictions)?;
    Ok(ExitCode::SUCCESS)
}

impl SimulateArgs {
    /// Predicts the schedules of a file, if they complete.
    fn predict_file(&self, named: NamedSchedules) -> Result<ExitCode> {
        let file = &named.by;
        verify(named.collective, &named.schedules, Placement::Apart)
            .with_context(|| format!("--schedule {file}: `maypole verify` finds a flaw"))?;
        self.report(&[self.predict(named)?])?;
        Ok(ExitCode::SUCCESS)
    }

    /// Prints predictions, and the timeline of the first.
    fn report(&self, predictions: &[SimulatedCost]) -> Result<()> {
        if self.json {
            for prediction in predictions {
                output::print_line(self.object(prediction))?;
            }
        } else {
            output::print(self.table(predictions))?;
        }
        if self.timeline {
            self.show(&predictions[0])?;
        }
        Ok(())
    }

    fn predict_all(
        &self,
        algorithms: &[Algorithm],
        collective: Collective,
    ) -> Result<Vec<SimulatedCost>> {
        let progress = Progress::start("simulating");
        let of = algorithms.len();
        let predictions = algorithms.iter().enumerate().map(|(nth, one)| {
            let (nth, ranks) = (nth + 1, self.of.ranks);
            progress.at(format_args!("simulating {one} on {ranks} ranks, {nth} of {of}"));
            let hosts = vec![0; ranks];
            self.predict(NamedSchedules::of_algorithm(collective, Some(*one), &hosts)?)
        });
        predictions.collect()
    }

    fn predict(&self, of: NamedSchedules) -> Result<SimulatedCost> {
        let NamedSchedules { collective, by, schedules } = &of;
        let (collective, ranks) = (*collective, schedules.len());
        let steps = schedules.iter().map(|schedule| schedule.steps.len()).max().unwrap_or(0);
        let all: usize = schedules.iter().map(|schedule| schedule.steps.len()).sum();
        // One window is always simulated.
        let fits = |windows: &usize| *windows == 1 || all.saturating_mul(*windows) <= MOST_EVENTS;
        let candidates = match self.windows {
            Some(windows) => {
                let windows = windows as usize;
                ensure!(
                    fits(&windows),
                    "--windows {windows}: {by} on {ranks} ranks has {all} steps, and \
                     {MOST_EVENTS} steps times windows are the most that is simulated; ask for \
                     --windows {} or fewer",
                    (MOST_EVENTS / all).max(1)
                );
                vec![windows]
            }
            None => [1, 2, 4, 8, 16, 32, 64].into_iter().filter(fits).collect(),
        };
        if self.windows.is_none() && candidates.len() < 7 {
            output::complain(format_args!(
                "note: {by} on {ranks} ranks has {all} steps: only up to {} windows were tried",
                candidates[candidates.len() - 1]
            ));
        }
        let layout = self.layout(collective, schedules);
        let cost = self.costs.cost();
        let price = |windows| simulate(schedules, &layout, 1, windows, cost).expect(PROVED);
        let priced = candidates.into_iter().map(|windows| (windows, price(windows)));
        // Of equally fast candidates the first has the fewest windows.
        let best = priced.min_by(|(_, a), (_, b)| a.seconds.total_cmp(&b.seconds));
        let (windows, estimate) = best.expect("the list of candidates is not empty");
        Ok(SimulatedCost { of, windows, steps, estimate })
    }

    fn layout(&self, collective: Collective, schedules: &[Schedule]) -> Layout {
        Layout::even(self.whole(collective), schedules[0].chunks)
    }

    /// Prints when each rank does what.
    fn show(&self, of: &SimulatedCost) -> Result<(), output::OutputError> {
        let NamedSchedules { collective, by, schedules } = &of.of;
        let layout = self.layout(*collective, schedules);
        let run = activities(schedules, &layout, 1, of.windows, self.costs.cost()).expect(PROVED);
        let lanes = lanes::text(&timeline::trace(&run.activities), COLUMNS);
        let windows = match of.windows {
            1 => "one window".to_owned(),
            windows => format!("{windows} windows"),
        };
        output::print_line(format_args!(
            "\n# timeline of {by} in {windows}; digits: the other rank, +: combining\n{lanes}"
        ))
    }

    /// Bytes of the whole; 0 for a barrier.
    fn whole(&self, collective: Collective) -> usize {
        if collective == Collective::Barrier { 0 } else { self.bytes.first }
    }

    fn object(&self, prediction: &SimulatedCost) -> serde_json::Value {
        let SimulatedCost { of, windows, steps, estimate } = prediction;
        let collective = of.collective;
        json!({
            "collective": collective.name(),
            "algorithm": of.by,
            "ranks": of.schedules.len(),
            "root": collective.root(),
            "bytes": self.whole(collective),
            "windows": windows,
            "steps": steps,
            "seconds": estimate.seconds,
            "messages": estimate.messages,
            "bytes_sent": estimate.bytes_sent,
            "bytes_reduced": estimate.bytes_reduced,
        })
    }

    fn table(&self, predictions: &[SimulatedCost]) -> String {
        let collective = predictions[0].of.collective;
        let name = collective.option_name();
        let size = sizes::name(self.whole(collective));
        let (ranks, costs) = (predictions[0].of.schedules.len(), self.costs);
        let mut text = format!(
            "# {name} of {size} on {ranks} ranks, {costs}\n\
             # time: until the last rank has finished; windows: parts that each chunk is cut into\n\
             # steps, sent, combined: of the rank with the most; messages: of all ranks together\n{}\n",
            head(COLUMNS_OF_COST)
        );
        for prediction in predictions {
            text += &line(COLUMNS_OF_COST, &self.object(prediction));
            text += "\n";
        }
        text
    }
}

const COLUMNS_OF_COST: &[Column] = &[
    ("algorithm", "", 20, "/algorithm"),
    ("time", "(us)", 12, "/seconds"),
    ("windows", "", 8, "/windows"),
    ("steps", "", 6, "/steps"),
    ("messages", "", 9, "/messages"),
    ("sent", "(B)", 12, "/bytes_sent"),
    ("combined", "(B)", 14, "/bytes_reduced"),
];

/// A cost of the command line: seconds of a message or of a byte.
fn cost(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=MOST_SECONDS).contains(&seconds) => Ok(seconds),
        Ok(seconds) if seconds > MOST_SECONDS => {
            Err(format!("{text} is more than {MOST_SECONDS:e} seconds; write for example 5e-6"))
        }
        _ => Err(format!("{text:?} is not a number of seconds; write for example 5e-6")),
    }
}
