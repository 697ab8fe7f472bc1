//! Reads the status of a rank from what its calls have noted.

use super::{GroupStatus, NetworkStatus, PendingOperation, RankStatus, RecentCalls};
use crate::control::{Control, ControlSnapshot};
use crate::world::calls::GroupActivity;
use crate::world::service::Status;
use std::time::{Instant, SystemTime};

/// What the rank of `control` is doing.
pub(crate) fn status(control: &dyn Control) -> RankStatus {
    status_of(control.snapshot(), control.alarm().has_foreground_wait())
}

/// `waits`: a thread of the process waits for a request.
fn status_of(snapshot: ControlSnapshot, waits: bool) -> RankStatus {
    let ControlSnapshot { rank, world, groups, network, cause } = snapshot;
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    RankStatus {
        rank,
        world,
        process: std::process::id(),
        unix_seconds: since_1970.as_secs_f64(),
        groups: groups.iter().map(|activity| group_status(activity, waits)).collect(),
        network: NetworkStatus {
            refused: network.refused,
            half_open: network.half_open,
            left: network.left,
            silent: network.silent,
        },
        failure: cause.map(|cause| cause.text.to_string()),
    }
}

/// The status in a forked child, which is not the rank.
pub(crate) fn status_of_child(rank: usize, world: usize) -> RankStatus {
    let failure = Some("the communicator was created before fork".to_owned());
    let network = Status::default();
    let nothing = ControlSnapshot { rank, world, groups: Vec::new(), network, cause: None };
    RankStatus { failure, ..status_of(nothing, false) }
}

/// `waits`: a thread of the process waits for a request.
fn group_status(activity: &GroupActivity, waits: bool) -> GroupStatus {
    GroupStatus {
        members: activity.members().to_vec(),
        rank: activity.rank(),
        completed: activity.pulse().completed(),
        messages: activity.messages(),
        pending: pending(activity, waits),
        recent: recent(activity),
    }
}

fn pending(activity: &GroupActivity, waits: bool) -> Option<PendingOperation> {
    if !activity.is_inside() {
        return None;
    }
    let call = activity.last_call().filter(|_| !activity.is_in_message());
    let wait = activity.pending_wait();
    let bytes = call.as_ref().map_or(0, |(call, _)| call.bytes);
    let (done, windows) = wait.as_ref().map_or((0, 1), |wait| wait.windows);
    Some(PendingOperation {
        sequence: activity.sequence(),
        call: activity.title(),
        fingerprint: call.map_or(0, |(call, _)| call.fingerprint),
        awaits: activity.awaited(),
        step: wait.as_ref().map_or(0, |wait| wait.step),
        waiting_seconds: wait.map(|wait| wait.since.elapsed().as_secs_f64()),
        in_background: activity.is_in_background() && !waits,
        bytes,
        bytes_done: (u128::from(bytes) * u128::from(done) / u128::from(windows.max(1))) as u64,
    })
}

/// The calls that are remembered. The number of calls of a run follows from where the next one
/// begins.
fn recent(activity: &GroupActivity) -> Vec<RecentCalls> {
    let mut all: Vec<RecentCalls> = Vec::new();
    let now = Instant::now();
    activity.visit(|run, begun| {
        if let Some(last) = all.last_mut() {
            last.count = run.first - last.first;
        }
        all.push(RecentCalls {
            first: run.first,
            count: begun.saturating_sub(run.first),
            call: run.call.call.clone(),
            choices: run.call.choices.clone(),
            seconds_ago: now.saturating_duration_since(run.since).as_secs_f64(),
        });
    });
    // A call that is being prepared has not begun.
    all.pop_if(|last| last.count == 0);
    all
}
