//! The thread that reports the status of this process's ranks: on standard error at a signal, and
//! to the launcher on request. It is started only if a variable is set.

use crate::control::Control;
use crate::world::calls::RankStatus;
use maypole_transports::signals;
use maypole_transports::sockets::{connect_abstract, same_user};
use maypole_transports::watch::Watch;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, TryLockError, Weak};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// How long the thread sleeps if nothing happens.
const SLEEP: Duration = Duration::from_secs(3600);
/// The longest time that a launcher may take to read a report.
const TELLING: Duration = Duration::from_secs(1);
const SIGNAL: u64 = 0;
const LAUNCHER: u64 = 1;

/// The report of a rank to its launcher, one line of JSON, also written to a file after a failure.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct StatusMessage {
    /// The sentence of the error if the rank has just failed; `None` in a reply to a request.
    pub error: Option<String>,
    /// The rank to look at first, as numbered in the group of the failed call.
    pub culprit: Option<usize>,
    /// True if it has failed because a deadline passed.
    pub timed_out: bool,
    /// What the rank is doing.
    pub status: RankStatus,
}

/// The ranks of this process, and their connection to the launcher.
#[derive(Default)]
struct LocalRanks {
    ranks: Vec<Weak<dyn Control>>,
    launcher: Option<UnixStream>,
    /// The process that this is about: a forked child is not the rank.
    process: u32,
    /// A thread serves the signal and the launcher.
    is_served: bool,
}

static LOCAL_RANKS: LazyLock<Mutex<LocalRanks>> = LazyLock::new(Mutex::default);

/// The longest time that a thread of this process holds the lock, and more.
const LONGEST_LOCK: Duration = Duration::from_secs(5);
/// The time between two attempts to take it.
const LOCK_PAUSE: Duration = Duration::from_millis(1);

/// The ranks of this process. `None` where the lock is held for ever: this process was forked while a
/// thread of its parent held it.
fn local_ranks() -> Option<MutexGuard<'static, LocalRanks>> {
    let deadline = Instant::now() + LONGEST_LOCK;
    let mut local = loop {
        match LOCAL_RANKS.try_lock() {
            Ok(local) => break local,
            // Every change is one assignment or insertion, so a panic leaves the value whole.
            Err(TryLockError::Poisoned(local)) => break local.into_inner(),
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
        }
    };
    let process = std::process::id();
    if local.process != process {
        // What a child has inherited is its parent's.
        *local = LocalRanks { process, ..LocalRanks::default() };
    }
    Some(local)
}

/// Tells the status of the rank of `control` when `signal` comes (the name of a signal), and to the
/// launcher that listens at the abstract socket `launcher`. The variables of a process that joins again
/// name the same.
///
/// # Errors
/// What is wrong with the name of the signal, or why the system refuses the thread.
pub(crate) fn serve(
    control: &Arc<dyn Control>,
    signal: Option<&str>,
    launcher: Option<&str>,
) -> Result<(), String> {
    if signal.is_none() && launcher.is_none() {
        return Ok(());
    }
    let mut local =
        local_ranks().ok_or("this process was forked while its parent told its own status")?;
    let is_new = !local.is_served;
    let events = signal.filter(|_| is_new).map(signal_events).transpose()?;
    let connection = launcher.filter(|_| is_new).and_then(connect);
    let copy = connection.as_ref().and_then(|connection| connection.try_clone().ok());
    if events.is_some() || connection.is_some() {
        // It waits for the lock before its first report.
        let work = move || {
            if let Err(error) = tell(events.as_ref(), connection) {
                tracing::warn!(%error, "the status of this process is not told any more");
            }
        };
        let thread = Builder::new().name("maypole-status".to_owned()).spawn(work);
        thread.map_err(|error| format!("the system cannot start a thread: {error}"))?;
    }
    local.launcher = copy.or(local.launcher.take());
    local.is_served = true;
    local.ranks.retain(|rank| rank.strong_count() > 0);
    local.ranks.push(Arc::downgrade(control));
    Ok(())
}

fn signal_events(name: &str) -> Result<UnixStream, String> {
    let number = signals::number(name).ok_or_else(|| {
        format!("'{name}' is no signal that a program can handle; name for example USR1")
    })?;
    signals::socket(number).map_err(|error| format!("{name}: {error}"))
}

/// The connection to the launcher; `None` if it is gone, or belongs to another user.
fn connect(name: &str) -> Option<UnixStream> {
    let connection = connect_abstract(name.as_bytes()).ok()?;
    let trusted = same_user(&connection).unwrap_or(false);
    let bounded = connection.set_write_timeout(Some(TELLING)).is_ok();
    (trusted && bounded).then_some(connection)
}

/// Replies until no reader is left.
fn tell(events: Option<&UnixStream>, mut launcher: Option<UnixStream>) -> io::Result<()> {
    let watch = Watch::new()?;
    if let Some(events) = events {
        watch.add(events, SIGNAL, false)?;
    }
    if let Some(launcher) = &launcher {
        watch.add(launcher, LAUNCHER, false)?;
        // The first message has the ranks of this process.
        answer();
    }
    let mut numbers = Vec::new();
    while events.is_some() || launcher.is_some() {
        watch.wait(&mut numbers, SLEEP)?;
        for number in numbers.drain(..) {
            if number == SIGNAL && events.is_some_and(signals::take) {
                print();
            }
            if number == LAUNCHER && !launcher.as_ref().is_some_and(signals::take) {
                launcher.take().iter().for_each(|launcher| watch.remove(launcher));
                if let Some(mut local) = local_ranks() {
                    local.launcher = None;
                }
            } else if number == LAUNCHER {
                answer();
            }
        }
    }
    Ok(())
}

fn statuses() -> Vec<RankStatus> {
    let Some(local) = local_ranks() else { return Vec::new() };
    let ranks: Vec<Arc<dyn Control>> = local.ranks.iter().filter_map(Weak::upgrade).collect();
    drop(local);
    ranks.iter().map(|control| control.status()).collect()
}

/// Prints all statuses to standard error, in one write.
fn print() {
    let text: String = statuses().iter().map(|status| format!("maypole: {status}\n")).collect();
    // Nothing can be reported if standard error is closed.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

fn answer() {
    for status in statuses() {
        send(&StatusMessage { error: None, culprit: None, timed_out: false, status });
    }
}

/// True if a launcher receives failures.
pub(super) fn has_launcher() -> bool {
    local_ranks().is_some_and(|local| local.launcher.is_some())
}

/// Tells the launcher, if there is one.
pub(super) fn send(message: &StatusMessage) {
    let Some(mut local) = local_ranks() else { return };
    let Some(launcher) = &mut local.launcher else { return };
    let mut line = serde_json::to_vec(message).expect("a status is plain data");
    line.push(b'\n');
    if launcher.write_all(&line).is_err() {
        local.launcher = None;
    }
}
