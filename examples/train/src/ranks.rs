//! Starts ranks: by a launcher, as threads of this process, or as processes started here.

use crate::options::{OnFailure, TrainingJob};
use crate::output::{self, PrintError};
use crate::run::rank;
use anyhow::{Context, bail, ensure};
use maypole::world::launch::free_port;
use maypole::world::launch::from_vars;
use maypole::{Communicator, Error};
use maypole_corpus::DataError;
use maypole_trainer::ranks::mesh::Mesh;
use maypole_trainer::train::checkpoint::CheckpointError;
use maypole_transports::process::in_own_group;
use std::io::{ErrorKind, PipeReader, Read, pipe};
use std::net::Ipv4Addr;
use std::panic::resume_unwind;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

/// The rank of this process and the number of ranks, as a launcher sets them. Without a launcher:
/// rank 0 of 1.
pub(crate) fn place() -> anyhow::Result<(usize, usize)> {
    let launch = from_vars(&|name| std::env::var(name).ok())?.launch;
    Ok((launch.rank, launch.world))
}

/// Refuses a command that runs in one process, if a launcher started several.
pub(crate) fn alone(what: &str) -> anyhow::Result<()> {
    let (_, world) = place()?;
    ensure!(
        world == 1,
        "train {what} starts its ranks itself, but a launcher started it {world} times: \
         run it without a launcher"
    );
    Ok(())
}

/// The communicator of a rank that a launcher started. It is made when it is first needed: by a
/// text that streams, or else by the training.
pub(crate) struct JoinedRanks {
    mesh: Mesh,
    joined: Option<Communicator>,
}

impl JoinedRanks {
    /// Ranks that train on `mesh`.
    pub(crate) fn new(mesh: Mesh) -> Self {
        Self { mesh, joined: None }
    }

    /// Joins the other ranks, if a launcher started several; `None` if this process starts them.
    pub(crate) fn join(&mut self) -> anyhow::Result<Option<&mut Communicator>> {
        if self.started()? > 1 && self.joined.is_none() {
            self.joined = Some(Communicator::from_env()?);
        }
        Ok(self.joined.as_mut())
    }

    /// The number of ranks that were started, if it suits the mesh.
    fn started(&self) -> anyhow::Result<usize> {
        let mesh = self.mesh;
        let ranks = mesh.world();
        let (_, started) = place()?;
        ensure!(
            started == 1 || started == ranks,
            "the mesh {mesh} has {ranks} ranks, but {started} were started: \
             start {ranks} (maypole run -n {ranks}), or give a \
             --mesh of {started}, as dp={started}"
        );
        Ok(started)
    }
}

/// Runs `job` on all ranks of its mesh.
pub(crate) fn start(job: &TrainingJob, joined: JoinedRanks) -> anyhow::Result<()> {
    let ranks = job.setup.mesh.world();
    if joined.started()? > 1 || ranks == 1 {
        return rank(joined.joined.map_or_else(Communicator::from_env, Ok)?, job);
    }
    if job.options.run.starts_processes() {
        return processes(ranks, job.on_failure);
    }
    first_cause(Communicator::run_local(ranks, |comm| rank(comm, job)))
}

/// Chooses the error to report of a run of several ranks: a cause, if a rank has one, rather than
/// an error that followed from it on other ranks.
fn first_cause(results: Vec<anyhow::Result<()>>) -> anyhow::Result<()> {
    let mut errors: Vec<anyhow::Error> = results.into_iter().filter_map(Result::err).collect();
    errors.sort_by_key(|error| match error {
        error if output::is_closed(error) => 0,
        error if !follows(error) => 1,
        _ => 2,
    });
    errors.into_iter().next().map_or(Ok(()), Err)
}

/// True if the cause of an error is, or may be, the failure of another rank.
fn follows(error: &anyhow::Error) -> bool {
    let relayed = matches!(
        error.downcast_ref(),
        Some(CheckpointError::Rank { .. } | CheckpointError::Collective(_))
    );
    let data =
        matches!(error.downcast_ref(), Some(DataError::Rank { .. } | DataError::Collective(_)));
    let other = error.downcast_ref().filter(|error| !matches!(error, Error::Invalid { .. }));
    relayed || data || other.is_some()
}

/// Starts this program again, once a rank. The first failure of a rank ends all ranks, unless the
/// others survive it (`on_failure`), and the end of this process ends all of them. The output
/// of the ranks goes through this process, so that they all end when no process reads it any more.
/// Must be called by the main thread: the ranks end when the thread that started them ends.
fn processes(ranks: usize, on_failure: OnFailure) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("the path of this program is not known")?;
    let listener =
        free_port(Ipv4Addr::LOCALHOST.into()).context("no port is free for the ranks")?;
    let port = listener.local_addr()?.port();
    drop(listener);
    let (mut printed, printer) = pipe().context("cannot make a pipe for the ranks' output")?;
    let mut children = Vec::new();
    for rank in 0..ranks {
        let mut command = Command::new(&program);
        command.args(std::env::args_os().skip(1)).stdout(printer.try_clone()?);
        for (name, value) in [("MAYPOLE_RANK", rank), ("MAYPOLE_LOCAL_RANK", rank)] {
            command.env(name, value.to_string());
        }
        for (name, value) in [("MAYPOLE_WORLD", ranks), ("MAYPOLE_LOCAL_WORLD", ranks)] {
            command.env(name, value.to_string());
        }
        command.env("MAYPOLE_ADDRESS", "127.0.0.1").env("MAYPOLE_PORT", port.to_string());
        command.env("MAYPOLE_JOB", format!("train-{}", std::process::id()));
        children.push(in_own_group(&mut command).spawn().context("a rank cannot be started")?);
    }
    // Only the ranks hold the writing end now: the pipe ends when they end.
    drop(printer);
    let unprinted = Arc::new(AtomicBool::new(false));
    let failed = Arc::clone(&unprinted);
    let relay = thread::spawn(move || {
        let relayed = relay(&mut printed);
        failed.store(relayed.is_err(), Ordering::Release);
        // The pipe stays open until the ranks are stopped: otherwise they would find it closed, and
        // report the failure of one another.
        (relayed, printed)
    });
    let ended = supervise(children, &unprinted, on_failure);
    match relay.join() {
        Ok((relayed, _)) => relayed.map_err(anyhow::Error::from).and(ended),
        Err(panic) => resume_unwind(panic),
    }
}

/// Prints the output of all ranks until all have ended, or until printing fails.
fn relay(printed: &mut PipeReader) -> Result<(), PrintError> {
    let mut bytes = [0; 8192];
    loop {
        match printed.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(count) => output::print(&bytes[..count])?,
            Err(why) if why.kind() == ErrorKind::Interrupted => {}
            Err(why) => return Err(PrintError::Failed("the pipe from the ranks".into(), why)),
        }
    }
}

/// Waits for all ranks. When a rank fails, or their output stays `unprinted`, stops the others. Ranks
/// that survive it (`on_failure`) end by themselves; if they continue, one that succeeds is enough.
fn supervise(
    mut running: Vec<Child>,
    unprinted: &AtomicBool,
    on_failure: OnFailure,
) -> anyhow::Result<()> {
    let mut failed = None;
    let mut succeeded = false;
    while !running.is_empty() {
        let mut still = Vec::new();
        for mut child in running {
            match child.try_wait()? {
                None => still.push(child),
                Some(status) if status.success() => succeeded = true,
                Some(status) => failed = failed.or(Some(status)),
            }
        }
        running = still;
        let unprinted = unprinted.load(Ordering::Acquire);
        let over = failed.is_some() && !on_failure.survives();
        if over && !unprinted {
            // The other ranks detect the failure themselves. Give them a moment to report it.
            sleep(Duration::from_secs(2));
        }
        if over || unprinted {
            stop(&mut running);
        }
        sleep(Duration::from_millis(20));
    }
    match failed {
        Some(_) if on_failure == OnFailure::Shrink && succeeded => Ok(()),
        None => Ok(()),
        Some(status) => bail!("a rank failed: {status}"),
    }
}

fn stop(running: &mut Vec<Child>) {
    for child in running.iter_mut() {
        // It may have ended by itself meanwhile.
        let _ = child.kill();
    }
    for mut child in running.drain(..) {
        let _ = child.wait();
    }
}
