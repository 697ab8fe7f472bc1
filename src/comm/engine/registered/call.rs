//! A call that asks all ranks whether its buffers are registered.

use super::announcement::{ANNOUNCEMENT, Announcement};
use super::{RegisteredCall, Registrations};
use crate::comm::element::DataType;
use crate::comm::engine::Engine;
use crate::comm::engine::calls::call::CollectiveCall;
use crate::comm::engine::calls::prepared::PreparedCalls;
use crate::comm::engine::observers::{Observers, run_recorded};
use crate::comm::error::Result;
use crate::execute::{Buffers, ExecuteError, Executor, NoObserver, PeerBuffers};
use crate::lower::Program;
use arrayvec::ArrayVec;
use maypole_kernels::{BinaryOp, BuiltInReducer, Reducer, Scalar, View, ViewMut, mix};
use maypole_transports::board::MAX_RANKS;
use maypole_transports::registered::Ticket;
use std::time::Instant;

/// The announcements of all ranks.
type Announcements = ArrayVec<Announcement, MAX_RANKS>;

impl Engine {
    /// Runs the current call, which may run on registered memory.
    #[cold]
    #[inline(never)]
    pub(in crate::comm::engine) fn perform_asking(
        &mut self,
        call: CollectiveCall,
        factor: Option<Scalar>,
        input: View<'_>,
        output: ViewMut<'_>,
    ) -> Result<()> {
        let start = self.observers.as_ref().map(|_| Instant::now());
        let at = self.calls.current();
        let sequence = self.health.sequence();
        self.health.enter();
        let asking = self.registrations.asking.take();
        let mut asking = asking.expect("made with the first call that asks");
        let prepared = self.calls.at(at);
        let registered = prepared.registered.as_deref().expect("the call asks");
        let mine = announcement(&self.registrations, registered, call, input, output);
        let guard = SeverOnFailure::of(&self.registrations, mine, input, output);
        let mut run = AskingRun {
            executor: &mut self.executor,
            calls: &self.calls,
            observers: self.observers.as_deref_mut(),
            sequence,
            at,
        };
        let asked = run.ask(&mut asking, registered, mine);
        let done = asked.and_then(|all| match peers(&self.registrations, &all) {
            Some(peers) => run.reach(registered, &peers, input, output).map(|()| true),
            None => run.keep_private(factor, input, output).map(|()| false),
        });
        let ran_registered = matches!(done, Ok(true));
        guard.end(done.is_ok());
        self.registrations.asking = Some(asking);
        self.finish(at, call, output, done.map(drop))?;
        self.calls.at_mut(at).note_registered(ran_registered);
        if let Some(start) = start {
            self.note_time(at, start);
        }
        Ok(())
    }
}

/// One call that asks.
struct AskingRun<'a> {
    executor: &'a mut Executor,
    calls: &'a PreparedCalls,
    observers: Option<&'a mut Observers>,
    sequence: u64,
    at: usize,
}

impl AskingRun<'_> {
    /// Tells all ranks about this rank's buffers, and returns what they tell.
    fn ask(
        &mut self,
        program: &mut Program,
        registered: &RegisteredCall,
        mine: Announcement,
    ) -> std::result::Result<Announcements, Box<ExecuteError>> {
        let fingerprint = mix(registered.program.fingerprint) | 1;
        let bytes = mine.to_bytes();
        let mut all = [0; MAX_RANKS * ANNOUNCEMENT];
        let all = &mut all[..self.executor.locals().len() * ANNOUNCEMENT];
        let buffers =
            Buffers { input: View::of(&bytes), output: ViewMut::of(all), scratch: ViewMut::EMPTY };
        let copies: Reducer = BuiltInReducer::new(DataType::U8, BinaryOp::Max).into();
        self.executor.run_as(program, fingerprint, &copies, &buffers)?;
        let (each, _) = all.as_chunks::<ANNOUNCEMENT>();
        Ok(each.iter().map(Announcement::from_bytes).collect())
    }

    /// Runs the call on registered memory.
    fn reach(
        &mut self,
        registered: &RegisteredCall,
        peers: &[PeerBuffers<'_>],
        input: View<'_>,
        output: ViewMut<'_>,
    ) -> std::result::Result<(), Box<ExecuteError>> {
        let buffers = self.calls.unstaged(input, output);
        let reducer = &self.calls.at(self.at).reducer;
        let program = &registered.program;
        let recorder = self.observers.as_mut().and_then(|observers| observers.recording());
        match (recorder, &registered.notes) {
            (Some(recorder), Some(notes)) => recorder.call(self.sequence, notes, |it| {
                self.executor.run_registered(program, reducer, &buffers, peers, it)
            }),
            _ => self.executor.run_registered(program, reducer, &buffers, peers, NoObserver),
        }
    }

    /// Runs the call as any other.
    fn keep_private(
        &mut self,
        factor: Option<Scalar>,
        input: View<'_>,
        output: ViewMut<'_>,
    ) -> std::result::Result<(), Box<ExecuteError>> {
        let buffers = self.calls.buffers(self.at, factor, input, output);
        let prepared = self.calls.at(self.at);
        let observers = self.observers.as_deref_mut();
        run_recorded(self.executor, prepared, &buffers, observers, self.sequence)
    }
}

/// The announcement of this rank.
fn announcement(
    registrations: &Registrations,
    registered: &RegisteredCall,
    call: CollectiveCall,
    input: View<'_>,
    output: ViewMut<'_>,
) -> Announcement {
    let exposed = registered.program.in_place.as_ref().map_or((false, false), |it| it.exposes);
    // Without bytes there is nothing that could lie elsewhere.
    let ticket = |view: View<'_>, is_exposed: bool| match is_exposed && !view.is_empty() {
        true => registrations.ticket_of(view),
        false => Some(Ticket::default()),
    };
    let (input, output) = (ticket(input, exposed.0), ticket(output.as_view(), exposed.1));
    match (input, output) {
        (Some(input), Some(output)) if !call.in_place || registered.allows_in_place => {
            Announcement { is_registered: true, input, output }
        }
        _ => Announcement::default(),
    }
}

/// The buffers of all ranks; `None` if the call stays private.
fn peers<'a>(
    registrations: &'a Registrations,
    all: &Announcements,
) -> Option<ArrayVec<PeerBuffers<'a>, MAX_RANKS>> {
    if !all.iter().all(|announcement| announcement.is_registered) {
        return None;
    }
    let reach = |rank: usize, ticket: Ticket| {
        if ticket.len == 0 {
            return ViewMut::EMPTY;
        }
        let registration = registrations.get(ticket.registration);
        let place = registration.and_then(|it| it.reach(rank, ticket));
        place.expect("a rank announces memory that all ranks have registered")
    };
    let buffers = |(rank, it): (usize, &Announcement)| PeerBuffers {
        input: reach(rank, it.input).as_view(),
        output: reach(rank, it.output),
    };
    Some(all.iter().enumerate().map(buffers).collect())
}

/// Cuts other ranks off from the buffers that were announced, unless the call has completed: also
/// if an operation of the user's panics.
struct SeverOnFailure<'a> {
    registrations: &'a Registrations,
    announced: bool,
    input: View<'a>,
    output: View<'a>,
}

impl<'a> SeverOnFailure<'a> {
    fn of(
        registrations: &'a Registrations,
        mine: Announcement,
        input: View<'a>,
        output: ViewMut<'a>,
    ) -> Self {
        let announced = mine.is_registered;
        Self { registrations, announced, input, output: output.as_view() }
    }

    fn end(mut self, completed: bool) {
        self.announced &= !completed;
    }
}

impl Drop for SeverOnFailure<'_> {
    fn drop(&mut self) {
        if self.announced {
            self.registrations.sever(self.input);
            self.registrations.sever(self.output);
        }
    }
}
