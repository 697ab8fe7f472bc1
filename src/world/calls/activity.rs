//! The activity of one rank in one group: its calls and its waits.

use super::numbered::{IS_MESSAGE, NumberedMessages};
use super::{CallHistory, CallRecord, GroupId, GroupStatus, PendingOperation, Pulse};
use maypole_transports::lock;
use maypole_transports::turns;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The wait time before this rank first compares its call with the awaited rank's.
const FIRST_QUESTION: Duration = Duration::from_millis(150);
/// The longest time between two such queries; the interval doubles up to it.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The target of a wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WaitTarget {
    /// This rank of the group.
    Rank(usize),
    /// The members whose part of an exchange has not arrived.
    MissingMembers,
}

/// A wait that has become slow.
#[derive(Clone, Debug)]
pub struct PendingWait {
    /// The operation that waits.
    pub sequence: u64,
    /// The rank or exchange that it waits for.
    pub target: WaitTarget,
    /// The fold of the program that waits; zero outside programs.
    pub step: usize,
    /// Completed windows, and all windows.
    pub windows: (u32, u32),
    /// The start of the wait.
    pub since: Instant,
    /// A member whose part was missing at the last query.
    missing: Option<usize>,
    next_question: Instant,
    pause: Duration,
}

/// An operation that a member of the group cannot join, because the member has left.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MissedOperation {
    /// The number of the operation.
    pub sequence: u64,
    /// The call in words.
    pub call: String,
}

/// The activity of one rank in one group. The rank's calls write it; any thread may read it.
///
/// A repeated call writes only its [pulse](Self::pulse), which is one atomic store; a message
/// writes as little. A mutex protects the other state. It is locked when a rank makes a different
/// call than before, or when a wait has become slow.
#[derive(Debug, Default)]
pub struct GroupActivity {
    group: GroupId,
    pulse: Pulse,
    /// True while the rank sends or receives messages.
    in_messages: AtomicBool,
    /// Completed messages.
    messages: AtomicU64,
    /// True while a thread other than that of the calls waits for `message`.
    beside: AtomicBool,
    /// True while a background thread runs the rank's calls and the rank computes in another
    /// thread.
    background: AtomicBool,
    members: Vec<usize>,
    me: usize,
    state: Mutex<ActivityState>,
}

#[derive(Debug, Default)]
struct ActivityState {
    history: CallHistory,
    /// The message that the rank waits for.
    message: Option<String>,
    numbered: NumberedMessages,
    wait: Option<PendingWait>,
    left: bool,
    /// Members whose departure has been received.
    departed: BTreeSet<usize>,
}

impl GroupActivity {
    /// Makes the activity of the rank `members[me]` of the world in `group`, before its first call.
    pub fn new(group: GroupId, members: Vec<usize>, me: usize) -> Self {
        Self { group, members, me, ..Self::default() }
    }

    /// Returns the group.
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// Returns the number of the group, and the world rank of its rank 0. Together they are equal on all
    /// members, and different for every group.
    pub fn identity(&self) -> (GroupId, usize) {
        (self.group, self.members[0])
    }

    /// Returns the atomic word that calls write.
    #[inline(always)]
    pub fn pulse(&self) -> &Pulse {
        &self.pulse
    }

    /// Returns the members of the group: world ranks, by rank.
    pub fn members(&self) -> &[usize] {
        &self.members
    }

    /// Returns this rank, as numbered in the group.
    pub fn rank(&self) -> usize {
        self.me
    }

    /// Notes that the operations from `sequence` on are `call`.
    pub fn begin(&self, sequence: u64, call: &Arc<CallRecord>) {
        lock(&self.state).history.begin(sequence, call);
    }

    /// Notes that the rank sends or receives messages.
    #[inline(always)]
    pub fn begin_messages(&self) {
        self.in_messages.store(true, Ordering::Relaxed);
    }

    /// Notes that these `count` messages have completed.
    #[inline(always)]
    pub fn end_messages(&self, count: usize) {
        self.count_messages(count);
        self.in_messages.store(false, Ordering::Relaxed);
    }

    /// Notes that `count` messages of requests have completed.
    #[inline(always)]
    pub fn count_messages(&self, count: usize) {
        self.messages.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Notes whether a background thread runs the rank's calls.
    pub fn set_background(&self, background: bool) {
        self.background.store(background, Ordering::Relaxed);
    }

    /// Returns true while the rank is in a call, or sends or receives messages.
    pub fn is_inside(&self) -> bool {
        let inside = self.pulse.read().is_some_and(|(inside, _)| inside);
        inside || self.in_messages.load(Ordering::Relaxed) || self.beside.load(Ordering::Relaxed)
    }

    /// Returns the number of the current operation, or how many operations precede the messages
    /// that the rank sends or receives.
    pub fn sequence(&self) -> u64 {
        match self.pulse.read() {
            Some((true, sequence)) => sequence,
            _ => self.pulse.completed(),
        }
    }

    /// Notes that the rank waits for a message, after `sequence` operations.
    pub fn begin_message(&self, sequence: u64, message: String) {
        let mut state = lock(&self.state);
        state.message = Some(message);
        self.pulse.enter(sequence);
    }

    /// Notes the end of that wait.
    pub fn end_message(&self, sequence: u64) {
        let mut state = lock(&self.state);
        state.message = None;
        state.wait = None;
        self.pulse.back(sequence);
    }

    /// Notes that a thread of the rank waits for a message of `peer`, while another thread may make calls.
    pub fn begin_message_beside(&self, message: String, peer: Option<usize>) {
        lock(&self.state).message = Some(message);
        self.beside.store(true, Ordering::Relaxed);
        if let Some(peer) = peer {
            self.wait(WaitTarget::Rank(peer), 0, (0, 1), turns::now());
        }
    }

    /// Notes the end of that wait.
    pub fn end_message_beside(&self) {
        let mut state = lock(&self.state);
        state.message = None;
        state.wait = None;
        self.beside.store(false, Ordering::Relaxed);
    }

    /// The message that the rank waits for, unless another thread is in a call.
    fn message_in<'a>(&self, state: &'a ActivityState) -> Option<&'a String> {
        let calls = || self.pulse.read().is_some_and(|(inside, _)| inside);
        state.message.as_ref().filter(|_| !(self.beside.load(Ordering::Relaxed) && calls()))
    }

    /// Notes the rank's wait at `now`. Returns true when a query whether the calls match is due:
    /// after a first timeout, and then at growing intervals.
    pub fn wait(&self, target: WaitTarget, step: usize, windows: (u32, u32), now: Instant) -> bool {
        let sequence = self.pulse.read().map_or(0, |(_, sequence)| sequence);
        let mut state = lock(&self.state);
        state.wait.take_if(|wait| wait.sequence != sequence);
        let wait = state.wait.get_or_insert_with(|| PendingWait {
            sequence,
            target,
            step,
            windows,
            since: now,
            missing: None,
            next_question: now + FIRST_QUESTION,
            pause: FIRST_QUESTION,
        });
        wait.target = target;
        wait.step = step;
        wait.windows = windows;
        let due = now >= wait.next_question;
        if due {
            wait.pause = (2 * wait.pause).min(LONGEST_PAUSE);
            wait.next_question = now + wait.pause;
        }
        due
    }

    /// Returns the wait of the current operation; `None` if the rank is in no operation, or has not
    /// waited for long.
    pub fn pending_wait(&self) -> Option<PendingWait> {
        self.wait_in(&lock(&self.state)).cloned()
    }

    fn wait_in<'a>(&self, state: &'a ActivityState) -> Option<&'a PendingWait> {
        let wait = state.wait.as_ref()?;
        match self.pulse.read() {
            Some((true, sequence)) => (wait.sequence == sequence).then_some(wait),
            _ => self.beside.load(Ordering::Relaxed).then_some(wait),
        }
    }

    /// Notes that the part of `peer` is missing in the exchange of the current wait, if there is
    /// one.
    pub fn note_missing(&self, peer: usize) {
        if let Some(wait) = &mut lock(&self.state).wait {
            wait.missing = Some(peer);
        }
    }

    /// Returns the current or last call or message in words; empty before the first call.
    pub fn title(&self) -> String {
        self.title_in(&lock(&self.state))
    }

    fn title_in(&self, state: &ActivityState) -> String {
        if let Some(message) = self.message_in(state) {
            return message.clone();
        }
        if self.in_messages.load(Ordering::Relaxed) {
            return "a message to or from another rank".to_owned();
        }
        state.history.last().map_or_else(String::new, |run| run.call.call.clone())
    }

    /// Numbers an operation of the group, for [`find`](Self::find).
    pub fn number_of(sequence: u64) -> u32 {
        sequence as u32 & !IS_MESSAGE
    }

    /// Numbers a message, for [`find`](Self::find): its failure may be reported during a later
    /// call.
    pub fn number_message(&self, message: &str) -> u32 {
        lock(&self.state).numbered.push(message)
    }

    /// Returns the operation or the message that has this number, in words, and the sequence of an
    /// operation. For a number whose entry was evicted, returns the [last one](Self::title) without
    /// a sequence.
    pub fn find(&self, number: u32) -> (String, Option<u64>) {
        let state = lock(&self.state);
        let found = match number & IS_MESSAGE {
            0 => self.sequence_of(number).and_then(|sequence| {
                let call = state.history.call_at(sequence)?;
                Some((call.call.clone(), Some(sequence)))
            }),
            _ => state.numbered.find(number).map(|message| (message.to_owned(), None)),
        };
        drop(state);
        found.unwrap_or_else(|| (self.title(), None))
    }

    /// The last operation with this number.
    fn sequence_of(&self, number: u32) -> Option<u64> {
        let next = self.pulse.begun();
        next.checked_sub(u64::from((next as u32).wrapping_sub(number) & !IS_MESSAGE))
    }

    /// Returns the rank's status with the last `most` runs of its calls before operation `end`.
    /// `waits`: a thread of the rank waits for a request in the background.
    pub fn status(&self, waits: bool, end: u64, most: usize) -> GroupStatus {
        let state = lock(&self.state);
        // A message is no operation of the group.
        let in_message = self.message_in(&state).is_some();
        let begun = if in_message { self.pulse.completed() } else { self.pulse.begun() };
        GroupStatus {
            group: self.group,
            members: self.members.clone(),
            rank: self.me,
            completed: self.pulse.completed(),
            messages: self.messages.load(Ordering::Relaxed),
            pending: self.is_inside().then(|| self.pending(&state, waits)),
            recent: state.history.recent(end.min(begun), most),
            left: state.left,
        }
    }

    fn pending(&self, state: &ActivityState, waits: bool) -> PendingOperation {
        let is_message =
            self.in_messages.load(Ordering::Relaxed) || self.message_in(state).is_some();
        let call = state.history.last().filter(|_| !is_message).map(|run| &*run.call);
        let (bytes, fingerprint) = call.map_or((0, 0), |call| (call.bytes, call.fingerprint));
        let wait = self.wait_in(state);
        let (done, windows) = wait.map_or((0, 1), |wait| wait.windows);
        let waited = |wait: &PendingWait| turns::now().saturating_duration_since(wait.since);
        PendingOperation {
            sequence: self.sequence(),
            call: self.title_in(state),
            fingerprint,
            awaits: wait.and_then(|wait| match wait.target {
                WaitTarget::Rank(rank) => Some(rank),
                WaitTarget::MissingMembers => wait.missing,
            }),
            step: wait.map_or(0, |wait| wait.step),
            waiting_seconds: wait.map(|wait| waited(wait).as_secs_f64()),
            in_background: self.background.load(Ordering::Relaxed) && !waits,
            bytes,
            bytes_done: (u128::from(bytes) * u128::from(done) / u128::from(windows.max(1))) as u64,
        }
    }

    /// Returns the status with the whole history that is kept, to compare it with other ranks.
    pub fn calls(&self) -> GroupStatus {
        self.status(false, u64::MAX, usize::MAX)
    }

    /// Notes that this rank has left the group.
    pub fn leave(&self) {
        lock(&self.state).left = true;
    }

    /// Returns true if the departure of `peer` has been received.
    pub fn has_left(&self, peer: usize) -> bool {
        lock(&self.state).departed.contains(&peer)
    }

    /// Notes the departure of `peer`.
    pub fn note_departure(&self, peer: usize) {
        lock(&self.state).departed.insert(peer);
    }

    /// Returns the current operation of this rank if it waits in one that a departed peer never
    /// began. `theirs` is the peer's last report of its calls before operation `end`.
    ///
    /// A message is no operation of the group: the peer may have sent it before it left.
    pub fn missed_operation(&self, end: u64, theirs: &GroupStatus) -> Option<MissedOperation> {
        let state = lock(&self.state);
        let sequence = self.wait_in(&state).filter(|_| self.message_in(&state).is_none())?.sequence;
        let is_missed = sequence + 1 == end && theirs.told() < end;
        let call = state.history.last().map_or_else(String::new, |run| run.call.call.clone());
        is_missed.then_some(MissedOperation { sequence, call })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_beside_the_calls_hides_no_call_and_takes_none_back() {
        let activity = GroupActivity::new(GroupId::WORLD, vec![0, 1], 0);
        let call = Arc::new(CallRecord::new(1, "barrier()"));
        let recv = || activity.begin_message_beside("recv()".to_owned(), Some(1));
        let awaited = || activity.status(false, 9, 64).pending.and_then(|pending| pending.awaits);
        recv();
        assert_eq!((activity.title().as_str(), activity.is_inside()), ("recv()", true));
        assert_eq!(awaited(), Some(1));
        // A call of another thread begins and ends meanwhile.
        activity.begin(0, &call);
        activity.pulse().enter(0);
        assert_eq!((activity.title().as_str(), activity.sequence()), ("barrier()", 0));
        activity.pulse().exit(0);
        assert_eq!((activity.title().as_str(), activity.is_inside()), ("recv()", true));
        activity.end_message_beside();
        assert_eq!((activity.pulse().completed(), activity.is_inside()), (1, false));
        // A call is still running when the message ends.
        recv();
        activity.pulse().enter(1);
        activity.end_message_beside();
        assert_eq!((activity.pulse().read(), activity.is_inside()), (Some((true, 1)), true));
    }

    #[test]
    fn an_operation_that_a_member_has_left_before_is_missed() {
        let call = Arc::new(CallRecord::new(1, "barrier()"));
        let [here, gone] = [0, 1].map(|me| GroupActivity::new(GroupId::WORLD, vec![0, 1], me));
        for activity in [&here, &gone] {
            activity.begin(0, &call);
            activity.pulse().exit(0);
        }
        assert!(!gone.status(false, 2, 64).left);
        gone.leave();
        let told = gone.status(false, 2, 64);
        assert!(told.left);
        here.pulse().enter(1);
        assert_eq!(here.missed_operation(2, &told), None, "it does not wait yet");
        here.wait(WaitTarget::Rank(1), 0, (0, 1), Instant::now());
        let missed = MissedOperation { sequence: 1, call: "barrier()".to_owned() };
        assert_eq!(here.missed_operation(2, &told), Some(missed));
        // A rank that has begun the operation also completes it.
        gone.pulse().enter(1);
        assert_eq!(here.missed_operation(2, &gone.status(false, 2, 64)), None);
    }
}
