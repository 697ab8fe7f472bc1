//! `maypole draw`: draws the steps of every rank in a collective, as text or as an SVG picture.

use crate::progress::Progress;
use crate::{names, output};
use anyhow::{Result, bail, ensure};
use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use maypole::schedule::draw::{self, values};
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
    #[arg(value_parser = names::collective, help = names::collective_help())]
    collective: Collective,

    /// The algorithm to draw [default: the first that implements the collective].
    #[arg(short, long, value_name = "NAME")]
    algorithm: Option<Algorithm>,

    /// The number of ranks.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 4)]
    ranks: usize,

    /// How many ranks each host has [default: all]. Only the hierarchical algorithm depends on it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    per_host: Option<u32>,

    /// The root of broadcast, reduce, gather and scatter.
    #[arg(short, long, value_name = "RANK", default_value_t = 0)]
    root: usize,

    /// Draw no algorithm, but what the collective promises: numbers that each rank holds before and
    /// after, combined by sum. Chunk c of rank r is the digit c + 1 with r zeros behind it.
    #[arg(long, conflicts_with_all = ["algorithm", "per_host", "svg"])]
    values: bool,

    /// Write an SVG picture to FILE instead of text (`-`: standard output).
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

pub(crate) fn main(args: DrawArgs) -> Result<ExitCode> {
    let collective = names::rooted(args.collective, args.root, args.ranks)?;
    if args.values {
        return draw_values(collective, args.ranks);
    }
    let implemented = names::algorithms_for(collective);
    let algorithm = args.algorithm.unwrap_or(implemented[0]);
    let _progress = Progress::start(format_args!("drawing {algorithm} on {} ranks", args.ranks));
    let per_host = args.per_host.map_or(args.ranks, |ranks| ranks as usize);
    let hosts: Vec<usize> = (0..args.ranks).map(|rank| rank / per_host).collect();
    let Some(schedules) = algorithm.schedules_on(collective, &hosts) else {
        bail!("{}", names::not_implemented(algorithm, collective));
    };
    let title = format!("{} by {algorithm}", names::dashed(collective));
    match args.svg {
        None => {
            let ranks = args.ranks;
            output::print(format_args!("{title}, {ranks} ranks\n\n{}", draw::text(&schedules)))?;
        }
        Some(path) => output::save("--svg", &path, draw::svg(&schedules, &title))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints what each rank holds before and after.
fn draw_values(collective: Collective, ranks: usize) -> Result<ExitCode> {
    let most = values::MOST_RANKS;
    ensure!(ranks <= most, "-n {ranks}: --values shows at most {most} ranks");
    let name = names::dashed(collective);
    let picture = values::text(collective, ranks);
    output::print(format_args!("{name}, {ranks} ranks\n\n{picture}"))?;
    Ok(ExitCode::SUCCESS)
}
