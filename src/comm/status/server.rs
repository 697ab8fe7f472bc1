//! The thread that tells the status of this process's ranks: on standard error when a signal comes,
//! and to the launcher when it asks. It is started only if a variable asks for it.

use super::{RankStatus, collect};
use crate::comm::control::Control;
use maypole_transports::signals::{self, SignalEvents};
use maypole_transports::sockets::{connect_abstract, same_user};
use maypole_transports::watch::Watch;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::Builder;
use std::time::Duration;

/// How long the thread sleeps if nothing happens.
const SLEEP: Duration = Duration::from_secs(3600);
/// How long a launcher may take to read what it is told.
const TELLING: Duration = Duration::from_secs(1);
const SIGNAL: u64 = 0;
const LAUNCHER: u64 = 1;

/// What a rank tells its launcher: one line of JSON.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct StatusMessage {
    /// True if the rank has just failed; false if this answers a question.
    pub failed: bool,
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
    /// The process that has the connection: a forked child is not the rank.
    process: u32,
    is_started: bool,
}

static LOCAL_RANKS: Mutex<LocalRanks> =
    Mutex::new(LocalRanks { ranks: Vec::new(), launcher: None, process: 0, is_started: false });

fn local_ranks() -> MutexGuard<'static, LocalRanks> {
    // Every change is one assignment or insertion, so a panic leaves the value whole.
    LOCAL_RANKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells the status of the rank of `control` when `signal` comes (the name of a signal), and to the
/// launcher that listens at the abstract socket `launcher`.
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
    let mut local = local_ranks();
    local.ranks.retain(|rank| rank.strong_count() > 0);
    local.ranks.push(Arc::downgrade(control));
    if std::mem::replace(&mut local.is_started, true) {
        return Ok(());
    }
    let events = signal.map(signal_events).transpose()?;
    let connection = launcher.and_then(connect);
    local.launcher = connection.as_ref().and_then(|connection| connection.try_clone().ok());
    local.process = std::process::id();
    drop(local);
    let work = move || {
        if let Err(error) = tell(events.as_ref(), connection) {
            tracing::warn!(%error, "the status of this process is not told any more");
        }
    };
    let thread = Builder::new().name("maypole-status".to_owned()).spawn(work);
    thread.map(drop).map_err(|error| format!("the system cannot start a thread: {error}"))
}

fn signal_events(name: &str) -> Result<SignalEvents, String> {
    let number = signals::number(name).ok_or_else(|| {
        format!("'{name}' is no signal that a program can handle; name for example USR1")
    })?;
    SignalEvents::new(number).map_err(|error| format!("{name}: {error}"))
}

/// The connection to the launcher; `None` if it is gone, or belongs to another user.
fn connect(name: &str) -> Option<UnixStream> {
    let connection = connect_abstract(name.as_bytes()).ok()?;
    let trusted = same_user(&connection).unwrap_or(false);
    let bounded = connection.set_write_timeout(Some(TELLING)).is_ok();
    (trusted && bounded).then_some(connection)
}

/// Answers until there is nobody left to answer.
fn tell(events: Option<&SignalEvents>, mut launcher: Option<UnixStream>) -> io::Result<()> {
    let watch = Watch::new()?;
    if let Some(events) = events {
        watch.add(events, SIGNAL, false)?;
    }
    if let Some(launcher) = &launcher {
        watch.add(launcher, LAUNCHER, false)?;
        // The first message tells the launcher which ranks this process has.
        answer();
    }
    let mut numbers = Vec::new();
    while events.is_some() || launcher.is_some() {
        watch.wait(&mut numbers, SLEEP)?;
        for number in numbers.drain(..) {
            if number == SIGNAL && events.is_some_and(SignalEvents::take) {
                print();
            }
            if number == LAUNCHER && !launcher.as_mut().is_some_and(is_asked) {
                launcher.take().iter().for_each(|launcher| watch.remove(launcher));
                local_ranks().launcher = None;
            } else if number == LAUNCHER {
                answer();
            }
        }
    }
    Ok(())
}

/// Takes the launcher's question; false if the launcher is gone.
fn is_asked(launcher: &mut UnixStream) -> bool {
    let mut questions = [0; 64];
    matches!(launcher.read(&mut questions), Ok(read) if read > 0)
}

fn statuses() -> Vec<RankStatus> {
    let ranks: Vec<Arc<dyn Control>> =
        local_ranks().ranks.iter().filter_map(Weak::upgrade).collect();
    ranks.iter().map(|control| collect::status(&**control)).collect()
}

/// Prints all statuses to standard error, in one write.
fn print() {
    let text: String = statuses().iter().map(|status| format!("maypole: {status}\n")).collect();
    // Nobody can be told if standard error is closed.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

fn answer() {
    for status in statuses() {
        send(&StatusMessage { failed: false, timed_out: false, status });
    }
}

/// True if there is a launcher to tell of a failure.
pub(super) fn has_launcher() -> bool {
    let local = local_ranks();
    local.launcher.is_some() && local.process == std::process::id()
}

/// Tells the launcher, if there is one, that a rank has failed.
pub(super) fn tell_failure(status: &RankStatus, timed_out: bool) {
    send(&StatusMessage { failed: true, timed_out, status: status.clone() });
}

fn send(message: &StatusMessage) {
    let mut local = local_ranks();
    if local.process != std::process::id() {
        return;
    }
    let Some(launcher) = &mut local.launcher else { return };
    let mut line = serde_json::to_vec(message).expect("a status is plain data");
    line.push(b'\n');
    if launcher.write_all(&line).is_err() {
        local.launcher = None;
    }
}
