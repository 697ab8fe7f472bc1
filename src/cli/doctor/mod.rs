//! `maypole doctor`: checks everything that a job needs from this machine, and prints remedies.
//!
//! Each check makes [`Finding`]s. Pure functions parse and judge the kernel's texts; only the
//! functions called `check` read the machine.

mod accelerators;
pub(crate) mod kernel_text;
mod machine;
mod network;
mod verbs;

use std::process::ExitCode;

use serde::Serialize;
use serde_json::json;

use crate::output;

/// Check what this machine offers to a job, and say how to mend what is missing.
///
/// Each line is `ok`, `warning` (it works, but worse than it could) or `problem` (jobs will fail).
/// The exit code is 1 if there is any problem, else 0. Environment variables and limits are
/// checked too, so run this command in the same way as your ranks.
#[derive(clap::Args)]
pub(crate) struct DoctorArgs {
    /// How many ranks will run on this host [default: the number that a launcher has set, else 1].
    #[arg(short = 'n', long = "ranks", value_name = "N")]
    ranks: Option<std::num::NonZeroUsize>,

    /// Print one JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
enum Severity {
    Ok,
    Warning,
    Problem,
}

/// The result of one check.
#[derive(Debug, Eq, PartialEq, Serialize)]
struct Finding {
    #[serde(rename = "level")]
    severity: Severity,
    /// The subject of the check, in one or two words.
    what: &'static str,
    /// The state that was found.
    text: String,
    /// What the user can do about it.
    fix: Option<String>,
}

impl Finding {
    fn ok(what: &'static str, text: impl Into<String>) -> Self {
        Self { severity: Severity::Ok, what, text: text.into(), fix: None }
    }

    fn warning(what: &'static str, text: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, what, text: text.into(), fix: Some(fix.into()) }
    }

    fn problem(what: &'static str, text: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { severity: Severity::Problem, what, text: text.into(), fix: Some(fix.into()) }
    }

    /// The line of the finding, and one of its fix.
    fn lines(&self) -> String {
        let Self { severity, what, text, fix } = self;
        let fix = fix.as_ref().map(|fix| format!("{:26}fix: {fix}\n", ""));
        let severity = format!("{severity:?}").to_lowercase();
        format!("{severity:8} {what:16} {text}\n{}", fix.unwrap_or_default())
    }
}

pub(crate) fn main(args: DoctorArgs) -> anyhow::Result<ExitCode> {
    let described = maypole::world::launch::describe_env();
    let local = described.as_ref().ok().and_then(|described| described.launch.local_world);
    let ranks = args.ranks.map_or_else(|| local.unwrap_or(1), std::num::NonZeroUsize::get);
    let mut findings = vec![Finding::ok("version", env!("CARGO_PKG_VERSION"))];
    findings.extend(network::check(&described));
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    findings.extend(network::unknown(names));
    findings.extend(machine::check(ranks));
    findings.extend(accelerators::check());
    findings.extend(verbs::check());
    let worst = findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok);
    if args.json {
        let version = env!("CARGO_PKG_VERSION");
        output::print_line(json!({ "version": version, "worst": worst, "findings": findings }))?;
    } else {
        output::print(findings.iter().map(Finding::lines).collect::<String>())?;
    }
    Ok(if worst == Severity::Problem { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_the_severity_and_the_fix() {
        assert_eq!(Finding::ok("cores", "8").lines(), "ok       cores            8\n");
        assert_eq!(
            Finding::problem("key", "it is a link", "name the file").lines(),
            "problem  key              it is a link\n                          fix: name the file\n"
        );
        assert!(Severity::Problem > Severity::Warning && Severity::Warning > Severity::Ok);
    }
}
