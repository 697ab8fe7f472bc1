//! Starts ranks: by a launcher, as threads of this process, or as processes started here.

use crate::options::TrainingJob;
use crate::run::rank;
use anyhow::{Context, bail, ensure};
use maypole::Communicator;
use maypole::world::launch::from_vars;
use maypole_transports::process::in_own_group;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command};
use std::thread::sleep;
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

/// Runs `job` on all ranks of its mesh.
pub(crate) fn start(job: &TrainingJob) -> anyhow::Result<()> {
    let ranks = job.setup.mesh.world();
    let mesh = job.setup.mesh;
    let (_, started) = place()?;
    ensure!(
        started == 1 || started == ranks,
        "the mesh {mesh} has {ranks} ranks, but {started} were started: \
         start {ranks} (maypole run -n {ranks}), or give a \
         --mesh of {started}, as dp={started}"
    );
    if started > 1 || ranks == 1 {
        return rank(Communicator::from_env()?, job);
    }
    if job.processes {
        return processes(ranks);
    }
    Communicator::run_local(ranks, |comm| rank(comm, job)).into_iter().collect()
}

/// Starts this program again, once a rank. The first failure of a rank ends all ranks, and so does
/// the end of this process. Must be called by the main thread: the ranks end when the thread that
/// started them ends.
fn processes(ranks: usize) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("this program has no path")?;
    // The port is held until the ranks are started, so that no other program gets it. Rank 0 tries
    // again while the port is taken.
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let mut children = Vec::new();
    for rank in 0..ranks {
        let mut command = Command::new(&program);
        command.args(std::env::args_os().skip(1));
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
    supervise(children)
}

/// Waits for all ranks. When a rank fails, stops the others.
fn supervise(mut running: Vec<Child>) -> anyhow::Result<()> {
    let mut failed = None;
    while !running.is_empty() {
        let mut still = Vec::new();
        for mut child in running {
            match child.try_wait()? {
                None => still.push(child),
                Some(status) if status.success() => {}
                Some(status) => failed = failed.or(Some(status)),
            }
        }
        running = still;
        if failed.is_some() {
            // The other ranks detect the failure themselves. Give them a moment to report it.
            sleep(Duration::from_secs(2));
            for child in &mut running {
                let _ = child.kill();
                let _ = child.wait();
            }
            running.clear();
        }
        sleep(Duration::from_millis(20));
    }
    match failed {
        None => Ok(()),
        Some(status) => bail!("a rank failed: {status}"),
    }
}
