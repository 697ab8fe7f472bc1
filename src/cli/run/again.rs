//! Starts this program again as the ranks, with its own arguments.

use super::hosts::{self, HostOptions};
use super::{Bind, Job, LaunchOptions, OutputMode, launch, restarting};
use anyhow::Result;
use std::ffi::OsString;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Starts `world` ranks: this program again, with the same arguments. Rank 0 has the streams of this
/// process.
pub(crate) fn again(world: usize, bind: Bind, grace: Duration) -> Result<ExitCode> {
    let program = crate::process::this_file()?;
    let command = |_rank| {
        let mut command = Command::new(&program);
        command.args(std::env::args_os().skip(1));
        command
    };
    Ok(launch(command, world, &LaunchOptions::of_this(bind, grace))?.code().into())
}

/// The same on other hosts, where this program is started as theirs. Lines of rank 0 are not tagged.
pub(crate) fn again_on(hosts: &HostOptions, bind: Bind, grace: Duration) -> Result<ExitCode> {
    let options = LaunchOptions::of_this(bind, grace);
    let words = std::env::args_os().skip(1);
    let words: Vec<OsString> = std::iter::once("maypole".into()).chain(words).collect();
    let run = |job: &Job<'_>| hosts::run(job, hosts, &words);
    Ok(restarting(hosts.world(), &options, None, run)?.code().into())
}

impl LaunchOptions {
    /// For ranks that are this program, of which rank 0 has the output.
    fn of_this(bind: Bind, grace: Duration) -> Self {
        Self {
            output: OutputMode::RootInherited,
            grace,
            port: None,
            bind,
            failure_grace: Duration::ZERO,
            enable_recovery: false,
            restarts: 0,
        }
    }
}
