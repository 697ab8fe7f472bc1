//! `maypole draw`: draws the steps of every rank in a collective, as text, as an SVG picture or as a
//! page to step through.

mod page;

use crate::progress::Progress;
use crate::schedules::{NamedSchedules, ScheduleArgs};
use crate::{names, output, simulate, sizes};
use anyhow::{Context, Result, ensure};
use maypole::schedule::collective::Collective;
use maypole::schedule::{Layout, Schedule};
use maypole_pictures::clocks::activities;
use maypole_pictures::draw::{self, values};
use maypole_pictures::page::{MOST_BYTES, MOST_RANKS};
use maypole_pictures::timeline;
use std::path::PathBuf;
use std::process::ExitCode;

/// Draw an algorithm: a column for each rank, a row for each round.
///
/// A cell names the chunks that a rank sends, receives or combines in a round. "in3 ->1" sends
/// input chunk 3 to rank 1. "out2 <-3" receives output chunk 2 from rank 3. "out2 +=3" receives a
/// chunk from rank 3 and combines it into output chunk 2. "out2 =in2" copies input chunk 2 to
/// output chunk 2. "tmp1" is chunk 1 of the scratch buffer.
#[derive(clap::Args)]
pub(crate) struct DrawArgs {
    #[command(flatten)]
    of: ScheduleArgs,

    /// How many ranks each host has [default: all]. Only the hierarchical algorithm depends on it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    per_host: Option<u32>,

    /// Draw no algorithm, but what the collective promises: numbers that each rank holds before and
    /// after, combined by sum. Chunk c of rank r is the digit c + 1 with r zeros behind it.
    #[arg(long, conflicts_with_all = ["algorithm", "per_host", "svg", "html", "schedule"])]
    values: bool,

    /// Write an SVG picture to FILE instead of text (`-`: standard output).
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Write a page to step through to FILE (`-`: standard output), for a browser. It loads nothing.
    #[arg(long, value_name = "FILE", conflicts_with = "svg")]
    html: Option<PathBuf>,

    /// Write the schedules to FILE, as --schedule reads them: as JSON if its name ends so, else as TOML.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["svg", "html", "values"])]
    save: Option<PathBuf>,

    /// With --html, step also through the simulator's clocks: when each rank sends, receives and
    /// combines, and what each window of a chunk holds at that time. The costs are those of
    /// `maypole simulate` unless options say otherwise.
    #[arg(long, requires = "html")]
    clock: bool,

    #[command(flatten)]
    clocks: ClockArgs,
}

/// What the clocks of a page count.
#[derive(clap::Args)]
struct ClockArgs {
    /// With --clock, bytes of the whole.
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "1M",
        value_parser = sizes::parse,
        requires = "clock"
    )]
    bytes: usize,

    /// With --clock, the number of windows that each chunk is cut into.
    #[arg(long, value_name = "N", default_value_t = 4, requires = "clock", value_parser = clap::value_parser!(u16).range(1..=64))]
    windows: u16,

    #[command(flatten)]
    costs: simulate::CostArgs,
}

pub(crate) fn main(args: DrawArgs) -> Result<ExitCode> {
    let named = match &args.of.schedule {
        Some(path) => NamedSchedules::of_file(path)?,
        None => {
            let collective = args.of.collective(names::MOST_DRAWN)?;
            if args.values {
                return draw_values(collective, args.of.ranks);
            }
            args.of_algorithm(collective)?
        }
    };
    let title = named.title();
    let (by, ranks) = (&named.by, named.schedules.len());
    let _progress = Progress::start(format_args!("drawing {by} on {ranks} ranks"));
    if let Some(path) = &args.html {
        output::save("--html", path, args.page(&named)?)?;
    } else if let Some(path) = &args.svg {
        let name = named.collective.option_name();
        output::save(
            "--svg",
            path,
            maypole_pictures::svg(&named.schedules, &format!("{name} by {by}")),
        )?;
    } else if let Some(path) = &args.save {
        named.save("--save", path)?;
    } else {
        output::print(format_args!("{title}\n\n{}", draw::text(&named.schedules)))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl DrawArgs {
    fn of_algorithm(&self, collective: Collective) -> Result<NamedSchedules> {
        let ScheduleArgs { ranks, algorithm, .. } = self.of;
        let per_host = self.per_host.map_or(ranks, |ranks| ranks as usize);
        let hosts: Vec<usize> = (0..ranks).map(|rank| rank / per_host).collect();
        NamedSchedules::of_algorithm(collective, algorithm, &hosts)
    }

    /// The page to step through.
    fn page(&self, named: &NamedSchedules) -> Result<String> {
        let schedules = &named.schedules;
        let ranks = schedules.len();
        ensure!(
            ranks <= MOST_RANKS,
            "-n {ranks}: a page of --html shows at most {MOST_RANKS} ranks side by side"
        );
        let clock = self.clock.then(|| self.clocks.clock(schedules)).transpose()?;
        let page = page::page(named.collective, &named.title(), schedules, clock.as_ref());
        let (bytes, most) = (page.len(), MOST_BYTES);
        ensure!(
            bytes <= most,
            "the page would have {bytes} bytes of at most {most}; ask for fewer ranks or --windows"
        );
        Ok(page)
    }
}

impl ClockArgs {
    /// What happens on the clocks of `schedules`.
    fn clock(&self, schedules: &[Schedule]) -> Result<page::Clock> {
        let Self { bytes, windows, costs } = *self;
        let layout = Layout::even(bytes, schedules[0].chunks);
        let cost = costs.cost();
        let stuck = "the schedules cannot be simulated";
        let run = activities(schedules, &layout, 1, usize::from(windows), cost).context(stuck)?;
        let end = run.estimate.seconds * 1e6;
        let size = sizes::name(bytes);
        let told = format!("{size} in {windows} windows, {costs}: {end:.1} us.");
        Ok(page::Clock { trace: timeline::trace(&run.activities), ends: run.ends, told })
    }
}

/// Prints the values of each rank before and after.
fn draw_values(collective: Collective, ranks: usize) -> Result<ExitCode> {
    let most = values::MOST_RANKS;
    ensure!(ranks <= most, "-n {ranks}: --values shows at most {most} ranks");
    let (name, picture) = (collective.option_name(), values::text(collective, ranks));
    output::print(format_args!("{name}, {ranks} ranks\n\n{picture}"))?;
    Ok(ExitCode::SUCCESS)
}
