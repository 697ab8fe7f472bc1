//! The signals that the launcher gets, as events.

use std::sync::mpsc::Sender;
use std::thread;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::{Handle, Signals};

use super::ranks::Event;

/// Signals that ask the job to end.
pub(super) const ENDING: [i32; 4] = [SIGINT, SIGTERM, SIGQUIT, SIGHUP];

/// Watches until it is dropped.
pub(super) struct Watched(Handle);

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Turns every signal from now on into an event.
pub(super) fn watch(events: Sender<Event>) -> anyhow::Result<Watched> {
    let ignored = ignored();
    // What is ignored was meant to be: `nohup` does it with SIGHUP, and shells with SIGINT for jobs
    // in the background.
    let wanted = ENDING
        .into_iter()
        .chain([SIGUSR1, SIGUSR2])
        .filter(|signal| ignored >> (signal - 1) & 1 == 0);
    let mut signals = Signals::new(wanted).context("cannot watch for signals")?;
    let handle = signals.handle();
    let forward = move || {
        for signal in signals.forever() {
            if events.send(Event::Signal(signal)).is_err() {
                break;
            }
        }
    };
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(forward)
        .context("cannot start a thread")?;
    Ok(Watched(handle))
}

/// The set of signals that this process was started to ignore, signal N as bit N - 1.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
}

/// `SIGTERM`, or `signal 40` where it has no name.
pub(super) fn name(signal: i32) -> String {
    signal_hook::low_level::signal_name(signal)
        .map_or_else(|| format!("signal {signal}"), str::to_owned)
}
