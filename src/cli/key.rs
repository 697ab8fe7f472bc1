//! `maypole key`: makes the secret that a process needs to join a job.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;
use maypole::world::launch::JobKey;

/// Make a job key, for ranks that are not started by `maypole run`.
#[derive(clap::Args)]
pub(crate) struct KeyArgs {
    #[command(subcommand)]
    command: KeyCommand,
}

#[derive(Subcommand)]
enum KeyCommand {
    /// Write a new key to FILE, readable by you alone. Set MAYPOLE_JOB_KEY_FILE=FILE for all ranks
    /// of the job.
    New {
        /// The file to make. An existing file is never overwritten.
        file: PathBuf,
    },
}

pub(crate) fn main(args: KeyArgs) -> anyhow::Result<ExitCode> {
    let KeyCommand::New { file } = args.command;
    let key = JobKey::generate().context("cannot make a random key")?;
    key.save(&file).with_context(|| format!("cannot write a key to {}", file.display()))?;
    Ok(ExitCode::SUCCESS)
}
