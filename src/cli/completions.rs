//! `maypole completions`: a script by which a shell completes the words of this command.

use crate::output;
use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;
use std::process::ExitCode;

/// Print a script by which a shell completes subcommands and options.
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell that reads the script.
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn main(args: CompletionsArgs) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "maypole", &mut script);
    output::print_as_is(String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
