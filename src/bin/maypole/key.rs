//! `maypole key`: the secret that lets a process join a job.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;
use maypole::world::launch::JobKey;

/// Make job keys, for jobs that are not started by `maypole run`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write a new key to FILE, readable by you alone; name it to all ranks in
    /// MAYPOLE_JOB_KEY_FILE.
    New {
        /// The file to make. An existing one is never overwritten.
        file: PathBuf,
    },
}

pub(crate) fn main(args: Args) -> anyhow::Result<ExitCode> {
    let Command::New { file } = args.command;
    let key = JobKey::generate().context("cannot make a random key")?;
    key.save(&file).with_context(|| format!("cannot write a key to {}", file.display()))?;
    Ok(ExitCode::SUCCESS)
}
