//! `maypole verify`: proves that schedules implement their collective.

use crate::schedules::{self, NamedSchedules, ScheduleArgs, in_words};
use crate::{names, output};
use anyhow::Result;
use maypole::schedule::Placement;
use maypole::schedule::collective::Collective;
use maypole::schedule::verify::{Flaw, Proof, verify};
use maypole_cluster::proof::SymmetricSchedules;
use std::process::ExitCode;

/// The exit code where a flaw was found.
const FLAW: u8 = 1;

/// In a larger world, one rank's steps are followed instead of all, if those of all follow from them.
const MOST_FOLLOWED: usize = 512;
/// The order of combination where ranks combine the two sides differently.
const UNKNOWN: &str = "\nthe order of combination does not follow from the schedule of one rank";

/// Prove that schedules do what their collective promises, or name the first flaw.
///
/// The ranks are run on symbols instead of numbers, so a proof holds for all numbers, types and
/// lengths. The exit code is 1 if there is a flaw.
#[derive(clap::Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    of: ScheduleArgs,
}

pub(crate) fn main(VerifyArgs { of }: VerifyArgs) -> Result<ExitCode> {
    let named = match &of.schedule {
        Some(path) => NamedSchedules::of_file(path)?,
        None => {
            let collective = of.collective(names::MOST_RANKS)?;
            let algorithm = of.algorithm.unwrap_or(names::algorithms_for(collective)[0]);
            let alike = (of.ranks > MOST_FOLLOWED)
                .then(|| SymmetricSchedules::new(collective, algorithm, of.ranks))
                .flatten()
                .filter(|it| it.keeps_rank_order.is_some() || of.ranks > names::MOST_DRAWN);
            if let Some(alike) = alike {
                let title = schedules::title(collective, algorithm.name(), of.ranks);
                let proof = alike.prove(Placement::Apart).map_err(|flaw| flaw.to_string());
                let order = alike.keeps_rank_order.map_or(UNKNOWN, |it| order(collective, it, it));
                return report(&title, proof.map(|()| order), alike.prove(Placement::InPlace));
            }
            NamedSchedules::of_algorithm(collective, Some(algorithm), &vec![0; of.ranks])?
        }
    };
    let prove = |placement| verify(named.collective, &named.schedules, placement);
    let in_order = |it: Proof| order(named.collective, it.keeps_rank_order, it.left_to_right);
    let proof = prove(Placement::Apart).map_err(|flaw| in_words(&flaw, &named.schedules));
    let proof = proof.map(in_order);
    report(&named.title(), proof, prove(Placement::InPlace).map(|_| ()))
}

/// Prints the order of a proof, or its flaw.
fn report(
    title: &str,
    proof: Result<&str, String>,
    in_place: Result<(), Flaw>,
) -> Result<ExitCode> {
    let order = match proof {
        Ok(order) => order,
        Err(flaw) => {
            output::print_line(format_args!("{title}: flaw\n{flaw}"))?;
            return Ok(ExitCode::from(FLAW));
        }
    };
    let in_place = in_place.map_or_else(
        |flaw| format!("in place: only with a copy of the input, because {flaw}"),
        |()| "in place: proved".to_owned(),
    );
    output::print_line(format_args!("{title}: proved\n{in_place}{order}"))?;
    Ok(ExitCode::SUCCESS)
}

/// In which order contributions are combined; empty where nothing is.
fn order(collective: Collective, keeps_rank_order: bool, left_to_right: bool) -> &'static str {
    match (collective.reduces(), keeps_rank_order, left_to_right) {
        (false, ..) => "",
        (true, true, true) => "\ncombines in the order of the ranks, one after another",
        (true, true, false) => "\ncombines in the order of the ranks, in groups",
        (true, false, _) => "\ncombines in another order than that of the ranks",
    }
}
