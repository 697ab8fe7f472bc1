//! `maypole draw`: what every rank does in a collective, as text or as a picture.

use crate::names;
use anyhow::{Context, Result, bail};
use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use maypole::schedule::draw;
use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

/// Draw an algorithm: one column a rank, one row a round.
///
/// In a cell, "in3 ->1" sends input chunk 3 to rank 1; "out2 <-3" receives output chunk 2 from rank
/// 3; "+=3" combines what rank 3 sends; "=in2" starts as a copy; "tmp" is scratch.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// broadcast, reduce, all-reduce, gather, all-gather, scatter, reduce-scatter, all-to-all or
    /// barrier.
    #[arg(value_parser = names::collective)]
    collective: Collective,

    /// Which algorithm [default: the first that there is for the collective].
    #[arg(short, long, value_name = "NAME")]
    algorithm: Option<Algorithm>,

    /// How many ranks.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 4)]
    ranks: usize,

    /// How many of them each host has [default: all]; matters to hierarchical alone.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    per_host: Option<u32>,

    /// The root of broadcast, reduce, gather and scatter.
    #[arg(short, long, value_name = "RANK", default_value_t = 0)]
    root: usize,

    /// Write a picture to FILE instead (`-`: standard output).
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

pub(crate) fn main(args: Args) -> Result<ExitCode> {
    let collective = names::rooted(args.collective, args.root, args.ranks)?;
    let there_are = names::algorithms_for(collective);
    let algorithm = args.algorithm.unwrap_or(there_are[0]);
    let per_host = args.per_host.map_or(args.ranks, |ranks| ranks as usize);
    let hosts: Vec<usize> = (0..args.ranks).map(|rank| rank / per_host).collect();
    let Some(schedules) = algorithm.schedules_on(collective, &hosts) else {
        bail!("{}", names::no_answer(algorithm, collective));
    };
    match args.svg {
        None => {
            let title =
                format!("{} by {algorithm}, {} ranks", names::dashed(collective), args.ranks);
            write!(stdout(), "{title}\n\n{}", draw::text(&schedules))?;
        }
        Some(path) if path.as_os_str() == "-" => write!(stdout(), "{}", draw::svg(&schedules))?,
        Some(path) => std::fs::write(&path, draw::svg(&schedules))
            .with_context(|| format!("cannot write {}", path.display()))?,
    }
    Ok(ExitCode::SUCCESS)
}
