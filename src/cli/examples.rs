//! The examples at the end of every `--help`. A test reads each of them as a command line.

use clap::Command;

/// A command line, and its effect.
type Example = (&'static str, &'static str);

const EXAMPLES: &[Example] = &[
    ("maypole run -n 4 -- ./program", "four ranks of a program on this host"),
    ("maypole perf", "every collective, checked and timed"),
    ("maypole perf all-reduce -n 8 -b 8 -e 64M -f 2", "one collective, in many sizes"),
    ("maypole perf all-reduce -a all --report report/", "every algorithm, as a page with plots"),
    ("maypole perf p2p -b 1 -e 1M", "latency and bandwidth between two ranks"),
    ("maypole perf latency --pairs all -n 8 --report heat/", "all pairs: slow links, odd ranks"),
    ("maypole perf all-reduce --hosts a:8,b:8", "ranks on two hosts, over ssh"),
    ("maypole perf p2p --json old.json --samples", "results to compare with later"),
    ("maypole perf p2p --compare old.json --fail-below 0.95", "exit code 3 if a row is slower"),
    ("maypole perf --alternate ./older/maypole", "two builds in turn"),
    ("maypole learn", "the exercises, and which of them are solved"),
    ("maypole draw all-reduce -a ring -n 4", "a schedule as text"),
    ("maypole draw broadcast -a ring --html ring.html", "as a page to step through"),
    ("maypole verify all-reduce -a ring -n 8", "proves a schedule"),
    ("maypole simulate all-reduce -n 8 --bytes 1M", "predicted times of every algorithm"),
    ("maypole simulate all-reduce --cluster dgx-h100", "on a machine that is not here"),
    ("maypole explain all-reduce --bytes 64K -n 4", "why an algorithm is chosen"),
    ("maypole tune", "measures what the choice is computed from, and saves it"),
    ("maypole key new job.key", "a key that the ranks of a job share"),
    ("maypole topo", "this machine"),
    ("maypole topo --cluster dgx-h100", "another one"),
    ("maypole doctor", "what this machine lacks, and what to do about it"),
    (
        "maypole completions bash",
        "a script for bash; write it to ~/.local/share/bash-completion/completions/maypole",
    ),
];

/// The lines of one subcommand.
fn of(name: &str) -> impl Iterator<Item = &'static Example> {
    EXAMPLES.iter().filter(move |(line, _)| line.split(' ').nth(1) == Some(name))
}

/// `command` with the examples at the end of the help of each subcommand.
pub(crate) fn with_examples(command: Command) -> Command {
    command.mut_subcommands(|subcommand| match text(subcommand.get_name()) {
        Some(text) => subcommand.after_help(text),
        None => subcommand,
    })
}

fn text(name: &str) -> Option<String> {
    let lines = of(name).map(|(line, what)| format!("\n  {line}\n      {what}"));
    lines.reduce(|all, line| all + &line).map(|lines| format!("Examples:{lines}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_subcommand_has_examples_that_can_be_typed() {
        let mut command = with_examples(crate::Cli::command());
        for shown in command.get_subcommands().filter(|it| !it.is_hide_set()) {
            assert!(of(shown.get_name()).next().is_some(), "{} has no example", shown.get_name());
        }
        for (line, _) in EXAMPLES {
            let read = command.clone().try_get_matches_from(line.split(' '));
            assert!(read.is_ok(), "{line}: {}", read.unwrap_err());
        }
        let help = command.find_subcommand_mut("perf").unwrap().render_long_help().to_string();
        assert!(help.contains("Examples:\n  maypole perf\n"), "{help}");
    }
}
