//! Two programs or two settings in turn: on a machine whose speed changes from minute to minute,
//! only measurements side by side are comparable.
//!
//! In each round both are started once. The first one begins every other round, so that neither always
//! has the warmer machine.

use super::change::Comparison;
use super::code;
use super::rows::{self, ResultRow};
use crate::output;
use crate::perf::PerfArgs;
use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsString;
use std::process::{Command, ExitCode, Stdio};

/// The options for the rounds, not for the measurement in each of them.
const OWN: [&str; 4] = ["--alternate", "--alternate-env", "--rounds", "--fail-below"];

/// Starts both programs in turn, and prints the rows in which they differ.
///
/// # Errors
///
/// If one of them cannot be started or fails.
pub(crate) fn main(args: &PerfArgs) -> Result<ExitCode> {
    let here = crate::process::this_file()?;
    let words = without_own(std::env::args_os().skip(1));
    let other = args.alternate.as_ref().unwrap_or(&here);
    let mut rounds = Vec::new();
    for round in 0..args.rounds {
        let first = || measured(Command::new(&here).args(&words));
        let second = || {
            let set = args.alternate_env.iter().map(|(name, value)| (name, value));
            measured(Command::new(other).args(&words).envs(set))
        };
        rounds.push(if round % 2 == 0 {
            let first = first()?;
            (first, second()?)
        } else {
            let second = second()?;
            (first()?, second)
        });
    }
    let mut comparison = Comparison::of_rounds(&rounds);
    ensure!(comparison.compared > 0, "the two programs have no row in common");
    let set = args.alternate_env.iter().map(|(name, value)| format!(" with {name}={value}"));
    let (other, set) = (other.display(), set.collect::<String>());
    comparison.title =
        format!("{} rounds: first {}, second {other}{set}", args.rounds, here.display());
    output::print_line(comparison.text())?;
    Ok(code(&comparison, args.fail_below))
}

/// The command line without the options of the rounds, with JSON on standard output.
fn without_own(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        let (name, value) = text.split_once('=').map_or((&*text, None), |(a, b)| (a, Some(b)));
        if OWN.contains(&name) {
            if value.is_none() {
                words.next();
            }
            continue;
        }
        kept.push(word);
    }
    kept.extend(["--json".into(), "-".into()]);
    kept
}

/// The rows that a program prints.
fn measured(command: &mut Command) -> Result<Vec<ResultRow>> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        bail!("{program} failed: {}", output.status);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let objects = rows::objects(&text).with_context(|| format!("the output of {program}"))?;
    Ok(objects.iter().filter_map(ResultRow::of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_rounds_are_left_out() {
        let line = "perf p2p --alternate old -n 2 --alternate-env A=b --rounds=3 --sizes 8";
        let kept = without_own(line.split(' ').map(OsString::from));
        assert_eq!(
            kept,
            "perf p2p -n 2 --sizes 8 --json -".split(' ').map(OsString::from).collect::<Vec<_>>()
        );
    }
}
