//! `maypole verify`: proves that schedules implement their collective.

use crate::schedules::{NamedSchedules, ScheduleArgs, in_words};
use crate::{names, output};
use anyhow::{Context, Result};
use maypole::algorithms::Algorithm;
use maypole::schedule::Placement;
use maypole::schedule::collective::Collective;
use maypole::schedule::verify::{Proof, verify};
use std::process::ExitCode;

/// The exit code where a flaw was found.
const FLAW: u8 = 1;

/// Prove that schedules do what their collective promises, or name the first flaw.
///
/// The ranks are run on symbols instead of numbers, so a proof holds for all numbers, types and
/// lengths. The exit code is 1 if there is a flaw.
#[derive(clap::Args)]
pub(crate) struct VerifyArgs {
    #[arg(
        value_parser = names::collective,
        help = names::collective_help(),
        required_unless_present = "schedule",
        conflicts_with = "schedule"
    )]
    collective: Option<Collective>,

    #[command(flatten)]
    file: ScheduleArgs,

    /// The algorithm to prove [default: the first that implements the collective].
    #[arg(short, long, value_name = "NAME")]
    algorithm: Option<Algorithm>,

    /// The number of ranks.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 4)]
    ranks: usize,

    /// The root of broadcast, reduce, gather and scatter.
    #[arg(short, long, value_name = "RANK", default_value_t = 0)]
    root: usize,
}

pub(crate) fn main(args: VerifyArgs) -> Result<ExitCode> {
    let named = match &args.file.schedule {
        Some(path) => NamedSchedules::of_file(path)?,
        None => {
            let wanted = args.collective.context("no collective is named")?;
            let collective = names::rooted(wanted, args.root, args.ranks)?;
            NamedSchedules::of_algorithm(collective, args.algorithm, &vec![0; args.ranks])?
        }
    };
    let title = named.title();
    match verify(named.collective, &named.schedules, Placement::Apart) {
        Err(flaw) => {
            let flaw = in_words(&flaw, &named.schedules);
            output::print_line(format_args!("{title}: flaw\n{flaw}"))?;
            Ok(ExitCode::from(FLAW))
        }
        Ok(proof) => {
            let in_place = verify(named.collective, &named.schedules, Placement::InPlace);
            let in_place = in_place.map_or_else(
                |flaw| format!("in place: only with a copy of the input, because {flaw}"),
                |_| "in place: proved".to_owned(),
            );
            output::print_line(format_args!(
                "{title}: proved\n{in_place}{}",
                order(named.collective, proof)
            ))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// In which order contributions are combined; empty where nothing is.
fn order(collective: Collective, proof: Proof) -> &'static str {
    match (collective.reduces(), proof.keeps_rank_order, proof.left_to_right) {
        (false, ..) => "",
        (true, true, true) => "\ncombines in the order of the ranks, one after another",
        (true, true, false) => "\ncombines in the order of the ranks, in groups",
        (true, false, _) => "\ncombines in another order than that of the ranks",
    }
}
