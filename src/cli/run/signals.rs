//! Receives the launcher's signals as events.

use anyhow::Context;
use crossbeam_channel::Sender;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::{Handle, Signals};

use super::ranks::LaunchEvent;
use super::start_thread;

/// The signals that end the job.
pub(super) const ENDING: [i32; 4] = [SIGINT, SIGTERM, SIGQUIT, SIGHUP];

/// Receives signals until it is dropped.
pub(super) struct SignalWatch(Handle);

impl Drop for SignalWatch {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Sends an event for every signal from now on, but for `excepted`.
pub(super) fn watch(
    events: Sender<LaunchEvent>,
    excepted: Option<i32>,
) -> anyhow::Result<SignalWatch> {
    let ignored = ignored();
    // A signal that the parent process set to "ignored" stays ignored: `nohup` does so with
    // SIGHUP, and shells with SIGINT for background jobs.
    let wanted = ENDING
        .into_iter()
        .chain([SIGUSR1, SIGUSR2])
        .filter(|signal| Some(*signal) != excepted)
        .filter(|signal| ignored >> (signal - 1) & 1 == 0)
        // Where SIGCHLD is ignored, the kernel keeps no exit codes. The launcher needs them.
        .chain([SIGCHLD]);
    let mut signals = Signals::new(wanted).context("cannot install signal handlers")?;
    let handle = signals.handle();
    let forward = move || {
        for signal in signals.forever() {
            let event = match signal {
                SIGCHLD => LaunchEvent::ChildEnded,
                signal => LaunchEvent::Signal(signal),
            };
            if events.send(event).is_err() {
                break;
            }
        }
    };
    start_thread("signals", forward).context("cannot start the thread that receives signals")?;
    Ok(SignalWatch(handle))
}

/// The signals that this process inherited as ignored: signal N is bit N - 1.
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
