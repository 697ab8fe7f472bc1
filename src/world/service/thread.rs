//! The service thread: sleeps until an event of a connection, a request of a calling thread, or a
//! deadline.

mod arrivals;
mod causes;
mod processes;

use super::coordinator::{Coordinator, Notices};
use super::direct::Callers;
use super::message::{ControlRequest, MAX_MESSAGE, Notice, StatusQuestion};
use super::state::ServiceContext;
use super::{ACCEPTOR, Acceptor, CALLER, Cause, ControlConnection, LateAnswer, SILENCE_LIMIT};
use crate::wire::decode;
use crate::world::calls::GroupStatus;
use maypole_transports::watch::Watch;
use processes::watch_processes;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

const WAKER: u64 = 0;
const CONTROL: u64 = 1 << 40;
const PROCESS: u64 = 2 << 40;

/// The most entries of this rank's history in a reply to another rank.
const RUNS_TOLD: usize = 64;

/// The interval of heartbeats.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
/// The timeout of rank 0 for confirming a failure of this rank, and of another rank for receiving
/// one from rank 0. Milliseconds are usual; a stopped process receives nothing.
const RELAY_TIME: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct ServiceThread {
    shared: Arc<ServiceContext>,
    watch: Watch,
    acceptor: Acceptor,
    /// On rank 0: the connections to all others. On others: the connection to rank 0.
    controls: BTreeMap<usize, ControlConnection>,
    /// Descriptors that report the end of the processes of this host's other ranks.
    processes: BTreeMap<usize, OwnedFd>,
    root: Option<Coordinator>,
    /// Connections of peers for requests to this rank.
    callers: Callers,
    /// On rank 0: makes the reply to a process that tries to join now.
    late_answer: Option<LateAnswer>,
    /// On rank 0: a queue of a failure and later messages for its own program, which receives them
    /// after all others.
    withheld: Vec<Notice>,
    /// The deadline after which the own program receives them in any case.
    withheld_until: Instant,
    /// On others: a failure of the world that rank 0 has not confirmed, and when it counts as silent.
    unconfirmed: Option<(Cause, Instant)>,
    next_heartbeat: Instant,
}

impl ServiceThread {
    pub(super) fn new(
        shared: Arc<ServiceContext>,
        watch: Watch,
        acceptor: Acceptor,
        controls: BTreeMap<usize, ControlConnection>,
        late_answer: Option<LateAnswer>,
    ) -> io::Result<Self> {
        watch.add(&shared.waker, WAKER, false)?;
        for (rank, control) in &controls {
            watch.add(&control.stream, CONTROL | *rank as u64, false)?;
        }
        let root = (shared.rank == 0).then(|| Coordinator::new(shared.peers.len()));
        let processes = watch_processes(&shared, &watch);
        Ok(Self {
            shared,
            watch,
            acceptor,
            controls,
            processes,
            root,
            callers: Callers::default(),
            late_answer,
            withheld: Vec::new(),
            withheld_until: Instant::now(),
            unconfirmed: None,
            next_heartbeat: Instant::now(),
        })
    }

    /// Runs until the service is stopped.
    pub(super) fn run(mut self) {
        let _closed = CloseOnDrop(Arc::clone(&self.shared));
        // Messages that arrived with the end of joining were read from the socket already, so no
        // event reports them.
        for rank in self.controls.keys().copied().collect::<Vec<_>>() {
            self.read(rank);
        }
        if self.root.is_none() && self.controls.is_empty() && !self.shared.state().stop {
            // The leader that has proposed this world has died.
            self.root_is_gone("its connection ended without a goodbye");
        }
        let mut numbers = Vec::new();
        while !self.shared.state().stop {
            let now = Instant::now();
            self.pass(now);
            self.flush();
            self.pass_causes(now);
            if let Err(error) =
                self.watch.wait(&mut numbers, self.until().saturating_duration_since(now))
            {
                tracing::error!(%error, "the service thread ends, because it cannot wait for \
                                         events");
                break;
            }
            for number in numbers.drain(..) {
                self.dispatch(number);
            }
        }
        self.finish();
    }

    fn until(&self) -> Instant {
        let others = [
            self.acceptor.deadline(),
            self.callers.deadline(),
            self.root.as_ref().and_then(Coordinator::deadline),
            (!self.withheld.is_empty()).then_some(self.withheld_until),
            self.unconfirmed.as_ref().map(|(_, until)| *until),
        ];
        others.into_iter().flatten().fold(self.next_heartbeat, Instant::min)
    }

    fn dispatch(&mut self, number: u64) {
        let rank = (number & (CONTROL - 1)) as usize;
        match number {
            WAKER => self.take_requests(),
            ACCEPTOR.. => {
                let authenticated = self.acceptor.ready(number, &self.watch);
                self.count_strangers();
                if let Some(authenticated) = authenticated {
                    self.admit(authenticated);
                }
            }
            CALLER.. => self.hear_caller(number),
            PROCESS.. => self.process_ended(rank),
            _ => self.read(rank),
        }
    }

    /// Sends the requests of calling threads.
    fn take_requests(&mut self) {
        self.shared.waker.clear();
        let requests = std::mem::take(&mut self.shared.state().requests);
        for request in requests {
            self.ask(request);
        }
    }

    /// Sends a request to rank 0, which may be this rank.
    fn ask(&mut self, request: ControlRequest) {
        if let Some(root) = &mut self.root {
            let out = root.request(0, request, Instant::now());
            self.tell(out);
        } else if let Some(control) = self.controls.get_mut(&0) {
            control.push(&request);
            if let ControlRequest::Abort(cause) = request
                && cause.group().is_none()
            {
                self.unconfirmed = Some((cause, Instant::now() + RELAY_TIME));
            }
        }
    }

    /// On rank 0: sends messages to other ranks, and to itself.
    fn tell(&mut self, out: Notices) {
        for (to, notice) in out {
            if to == self.shared.rank {
                self.hear_own(notice);
            } else if let Some(control) = self.controls.get_mut(&to) {
                control.push(&notice);
            }
        }
        if self.root.as_ref().is_some_and(Coordinator::is_alone) {
            // No other rank is left that must receive the failure first.
            for notice in std::mem::take(&mut self.withheld) {
                self.hear(notice);
            }
            self.shared.update(|state| state.farewell = true);
        }
    }

    /// Handles a message of rank 0.
    fn hear(&mut self, notice: Notice) {
        match notice {
            Notice::Heartbeat => {}
            Notice::Abort(cause) => {
                self.unconfirmed = None;
                self.shared.learn(&cause);
                self.shared.update(|state| state.telling = false);
            }
            Notice::Exchanged { round, payloads } => {
                self.shared.update(|state| state.gathered.insert(round, Ok(payloads)));
            }
            Notice::Incomplete { round, rank } => {
                self.shared.update(|state| state.gathered.insert(round, Err(rank)));
            }
            Notice::Missing { round, ranks } => {
                self.shared.update(|state| state.missing.insert(round, ranks));
            }
            Notice::Left { rank } => {
                self.shared.update(|state| state.left.insert(rank));
            }
            Notice::AskStatus { asker: to, question } => {
                let activity = self.shared.progress.activity(question.group);
                let status = activity.map(|it| it.status(false, question.end, RUNS_TOLD));
                self.ask(ControlRequest::TellStatus { to, question, status });
            }
            Notice::Status { rank, question, status } => self.compare(rank, question, status),
            // Rank 0 confirms its own goodbye immediately, but waits for those of the others.
            Notice::Farewell if self.root.is_some() => {}
            Notice::Farewell => self.shared.update(|state| state.farewell = true),
        }
    }

    /// Compares the calls of `rank` with those of this rank. Fails the world if they do not match,
    /// or if `rank` has left the group while this rank waits for it there.
    fn compare(
        &mut self,
        rank: Option<usize>,
        question: StatusQuestion,
        status: Option<GroupStatus>,
    ) {
        let activity = self.shared.progress.activity(question.group);
        if let (Some(activity), Some(rank), Some(theirs)) = (activity, rank, &status)
            && activity.members().get(theirs.rank) == Some(&rank)
        {
            activity.note_missing(theirs.rank);
            let me = self.shared.rank;
            let cause = |found| Cause::mismatch(question.group, activity.members(), me, found);
            let mismatch = activity.calls().compare(theirs).map(cause);
            let departure = || {
                activity.note_departure(theirs.rank);
                let missed = activity.missed_operation(question.end, theirs)?;
                Some(Cause::departure(rank, me, &missed))
            };
            let departure = theirs.left.then(departure).flatten();
            if let Some(cause) = mismatch.or(departure) {
                self.ask(ControlRequest::Abort(cause));
            }
        }
        self.shared.update(|state| {
            if let Some(answer) = state.questions.get_mut(&question.token) {
                *answer = Some(status);
            }
        });
    }

    fn read(&mut self, rank: usize) {
        let Some(control) = self.controls.get_mut(&rank) else { return };
        let (messages, mut ended) = control.read(MAX_MESSAGE);
        for bytes in messages {
            if self.take(rank, &bytes).is_none() {
                ended = Some("it sent bytes that are no message".to_owned());
                break;
            }
        }
        if let Some(how) = ended {
            self.ended(rank, &how);
        }
    }

    fn take(&mut self, rank: usize, bytes: &[u8]) -> Option<()> {
        if let Some(root) = &mut self.root {
            let out = root.request(rank, decode(bytes).ok()?, Instant::now());
            self.tell(out);
        } else {
            self.hear(decode(bytes).ok()?);
        }
        Some(())
    }

    /// The connection to `rank` has ended.
    fn ended(&mut self, rank: usize, how: &str) {
        if let Some(mut control) = self.controls.remove(&rank) {
            self.watch.remove(&control.stream);
            control.finish();
        }
        match &mut self.root {
            Some(root) => {
                let out = root.ended(rank, how);
                self.tell(out);
            }
            None => self.root_is_gone(how),
        }
    }

    /// Rank 0 has ended, and with it the control plane. Rank 0 leaves last, unless it dies or its
    /// goodbye times out.
    fn root_is_gone(&mut self, how: &str) {
        self.shared.update(|state| {
            let left = state.left.contains(&0) || state.leaving;
            let closed = if left { "rank 0 has left" } else { "rank 0 died" };
            // A thread that sees the end of the control plane sees the cause, too.
            if !left && state.fates.world.cause.is_none() {
                state.fates.world.learn(&Cause::death(0, how));
            }
            state.closed = Some(closed.to_owned());
        });
    }

    fn process_ended(&mut self, rank: usize) {
        if let Some(end) = self.processes.remove(&rank) {
            self.watch.remove(&end);
        }
        self.shared.update(|state| state.ended.insert(rank));
        if self.root.is_some() || rank != 0 {
            self.ask(ControlRequest::ProcessEnded { rank });
        } else {
            // Its last messages are handled first. On one host all of them have arrived.
            self.read(0);
            if self.controls.contains_key(&0) {
                self.ended(0, "its process ended");
            }
        }
    }

    /// Copies the counts of refused connections, those during joining included, and of
    /// unauthenticated ones to the status.
    fn count_strangers(&self) {
        let mut state = self.shared.state();
        state.network.refused = self.acceptor.refused;
        state.network.half_open = self.acceptor.half_open();
    }

    /// Handles the deadlines that have passed at `now`.
    fn pass(&mut self, now: Instant) {
        self.acceptor.expire(now, &self.watch);
        self.callers.expire(now, &self.watch);
        self.count_strangers();
        if let Some(root) = &mut self.root {
            let out = root.pass(now);
            self.tell(out);
        }
        if now < self.next_heartbeat {
            return;
        }
        self.next_heartbeat = now + HEARTBEAT_INTERVAL;
        let root = self.root.is_some();
        // A peer that reads nothing gets no heartbeats, so that the queue for a stopped process
        // does not grow.
        for control in self.controls.values_mut().filter(|control| control.is_idle()) {
            if root {
                control.push(&Notice::Heartbeat)
            } else {
                control.push(&ControlRequest::Heartbeat)
            }
        }
        let silent = self
            .controls
            .iter()
            .filter(|(_, control)| now.duration_since(control.heard) > SILENCE_LIMIT);
        let silent = silent.map(|(rank, _)| *rank).collect();
        self.shared.update(|state| state.network.silent = silent);
    }

    fn flush(&mut self) {
        for (rank, control) in &mut self.controls {
            if !control.is_idle() {
                control.flush(CONTROL | *rank as u64, &self.watch);
            }
        }
    }

    fn finish(&mut self) {
        self.take_requests();
        self.acceptor.close(&self.watch);
        for control in self.controls.values_mut() {
            self.watch.remove(&control.stream);
            control.finish();
        }
        for end in self.processes.values() {
            self.watch.remove(end);
        }
    }
}

/// Notes that the service thread has ended, also after a panic.
struct CloseOnDrop(Arc<ServiceContext>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        let expected = self.0.update(|state| {
            state.closed.get_or_insert_with(|| "the service has stopped".to_owned());
            state.stop
        });
        if !expected {
            self.0.state().fates.world.alarm.raise();
        }
    }
}
