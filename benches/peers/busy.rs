//! Processes that compute without end, as the load of a busy machine.

use anyhow::{Context, Result};
use std::hint::black_box;
use std::io::Read;
use std::process::{Child, Command, Stdio};

/// Set in a process that computes.
const COMPUTES: &str = "PEERS_COMPUTES";

/// Processes that compute until this is dropped, or this process has ended in any way.
pub(crate) struct BusyProcesses(Vec<Child>);

impl BusyProcesses {
    /// Starts `count` of them.
    pub(crate) fn start(count: usize) -> Result<Self> {
        let own = std::env::current_exe().context("cannot find this program")?;
        let start = |_| {
            let mut command = Command::new(&own);
            command.env(COMPUTES, "1").stdin(Stdio::piped()).spawn().context("cannot start a load")
        };
        (0..count).map(start).collect::<Result<_>>().map(Self)
    }
}

impl Drop for BusyProcesses {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Computes until the standard input ends, and exits, if this process was started for that.
pub(crate) fn compute_if_asked() {
    if std::env::var_os(COMPUTES).is_none() {
        return;
    }
    std::thread::spawn(|| {
        // Whatever ends the wait ends the load.
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    loop {
        black_box(0);
    }
}
