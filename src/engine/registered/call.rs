//! A call that asks all ranks where its buffers lie.

use super::Registrations;
use super::announcement::{ANNOUNCEMENT, AnnouncedPlace, Announcement};
use super::trials::CopyVote;
use crate::element::DataType;
use crate::engine::Engine;
use crate::engine::calls::call::ReadyCall;
use crate::engine::calls::choice::CallKind;
use crate::engine::calls::kept::PreparedCalls;
use crate::engine::calls::prepared::{CallProgram, PreparedCall, ReachingPrograms};
use crate::engine::calls::report::CallPath;
use crate::engine::observers::Observers;
use crate::error::Result;
use crate::execute::{
    Buffers, ExecuteError, Executor, NoObserver, PeerBuffers, PeerMemory, ProcessBuffers,
};
use crate::lower::Program;
use arrayvec::ArrayVec;
use maypole_kernels::{BinaryOp, BuiltInReducer, Reducer, View, ViewMut, mix};
use maypole_transports::board::MAX_RANKS;
use maypole_transports::registered::Ticket;
use std::time::Instant;

/// The announcements of all ranks.
type Announcements = ArrayVec<Announcement, MAX_RANKS>;

impl Engine {
    /// Runs the call at `at`, which may run on registered memory, or by copies of private memory.
    #[cold]
    #[inline(never)]
    pub(in crate::engine) fn perform_reaching(
        &mut self,
        at: usize,
        ready: ReadyCall<'_>,
    ) -> Result<()> {
        let ready = ready.scaled_in_place();
        let PreparedCall { staged, reaching, .. } = self.calls.at(at);
        let ReachingPrograms { registered, tried, .. } = reaching;
        let tried = tried.as_deref().copied();
        let asks_always = registered.is_some();
        let trials = &mut self.registrations.trials;
        let asks = tried.is_some_and(|(kind, copies_first)| trials.asks(kind, copies_first));
        let own = |(kind, _)| (kind, ready.call.in_place);
        let measured = tried.map(own).filter(|_| self.rank == 0);
        let (vote, is_timed) = match measured {
            Some(kind) if asks => trials.vote(kind, staged.stores.is_known()),
            Some(kind) => (CopyVote::default(), trials.is_watched(kind)),
            None => (CopyVote::default(), false),
        };
        let kind = tried.map(|(kind, _)| kind).filter(|_| asks);
        let start = is_timed.then(Instant::now);
        self.calls.at_mut(at).path = CallPath::Staged;
        match asks || asks_always {
            true => self.perform_asking(at, ready, kind.map(|kind| (kind, vote)))?,
            false => self.perform_staged(at, ready)?,
        }
        if let Some(kind) = measured {
            self.registrations.trials.end(kind, start.map(|start| start.elapsed()));
        }
        Ok(())
    }

    /// Asks all ranks where their buffers lie, and runs the call on the path that all can go.
    /// `tried` is what this rank votes, if rank 0 decides about copies now.
    fn perform_asking(
        &mut self,
        at: usize,
        ready: ReadyCall<'_>,
        tried: Option<(CallKind, CopyVote)>,
    ) -> Result<()> {
        let start = self.observers.as_ref().map(|_| Instant::now());
        let sequence = self.health.sequence();
        self.health.enter();
        let asking = self.registrations.asking.take();
        let mut asking = asking.expect("made with the first call that asks");
        let vote = tried.map_or_else(CopyVote::default, |(_, vote)| vote);
        let mine = announcement(&self.registrations, self.calls.at(at), ready);
        let mine = Announcement { vote, ..mine };
        let guard = SeverOnFailure::of(&self.registrations, mine, ready);
        let mut run = AskingRun {
            executor: &mut self.executor,
            calls: &self.calls,
            observers: self.observers.as_deref_mut(),
            sequence,
            at,
            ready,
        };
        let all = run.ask(&mut asking, mine);
        let done = all.and_then(|all| {
            let path = path_of(&all);
            let program = self.calls.at(at).program(path).filter(|_| path != CallPath::Staged);
            program.map_or(Ok(()), |it| run.reach(it, &peers(&self.registrations, &all)))?;
            Ok((path, all))
        });
        guard.end(done.is_ok());
        self.registrations.asking = Some(asking);
        let (path, all) = match done {
            Ok(done) => done,
            Err(failed) => return self.finish(at, ready, Err(failed)),
        };
        if let Some((kind, _)) = tried {
            self.registrations.trials.told(kind, all[0].vote, path == CallPath::Copied);
        }
        if path == CallPath::Staged {
            return self.perform_staged(at, ready);
        }
        self.finish(at, ready, Ok(()))?;
        self.calls.at_mut(at).note_path(path);
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
    ready: ReadyCall<'a>,
}

impl AskingRun<'_> {
    /// Tells all ranks about this rank's buffers, and returns what they tell.
    fn ask(
        &mut self,
        program: &mut Program,
        mine: Announcement,
    ) -> std::result::Result<Announcements, Box<ExecuteError>> {
        let fingerprint = mix(self.calls.at(self.at).record.fingerprint) | 1;
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

    /// Runs the call by a program that reaches the buffers of `peers`.
    fn reach(
        &mut self,
        reaching: &CallProgram,
        peers: &[PeerMemory<'_>],
    ) -> std::result::Result<(), Box<ExecuteError>> {
        let buffers = self.calls.unstaged(self.ready);
        let reducer = &self.calls.at(self.at).reducer;
        let program = &reaching.program;
        let recorder = self.observers.as_mut().and_then(|observers| observers.recording());
        match (recorder, &reaching.notes) {
            (Some(recorder), Some(notes)) => recorder.call(self.sequence, notes, |it| {
                self.executor.run_registered(program, reducer, &buffers, peers, it)
            }),
            _ => self.executor.run_registered(program, reducer, &buffers, peers, NoObserver),
        }
    }
}

/// The announcement of this rank.
fn announcement(
    registrations: &Registrations,
    prepared: &PreparedCall,
    ReadyCall { call, input, output, .. }: ReadyCall<'_>,
) -> Announcement {
    let serves = |path: CallPath| {
        prepared.program(path).is_some_and(|it| !call.in_place || it.allows_in_place)
    };
    let is_readable = serves(CallPath::Copied);
    let exposed = prepared.exposes();
    let buffers = [(input, exposed.0), (output.as_view(), exposed.1)];
    match buffers.map(|(view, is_exposed)| registrations.ticket_if(is_exposed, view)) {
        [Some(input), Some(output)] => Announcement {
            is_registered: serves(CallPath::Registered),
            is_readable,
            vote: CopyVote::default(),
            place: AnnouncedPlace::Registered([input, output]),
        },
        _ if is_readable => Announcement {
            is_registered: false,
            is_readable,
            vote: CopyVote::default(),
            place: AnnouncedPlace::Process(buffers.map(|(view, _)| place_of(view))),
        },
        _ => Announcement::default(),
    }
}

/// Address and length of `view`.
fn place_of(view: View<'_>) -> (u64, u64) {
    (view.as_ptr().addr() as u64, view.len() as u64)
}

/// The path that all ranks can go.
fn path_of(all: &Announcements) -> CallPath {
    if all.iter().all(|announcement| announcement.is_registered) {
        return CallPath::Registered;
    }
    match all[0].vote.copies && all.iter().all(|announcement| announcement.is_readable) {
        true => CallPath::Copied,
        false => CallPath::Staged,
    }
}

/// The buffers of all ranks.
fn peers<'a>(
    registrations: &'a Registrations,
    all: &Announcements,
) -> ArrayVec<PeerMemory<'a>, MAX_RANKS> {
    let reach = |rank: usize, ticket: Ticket| {
        if ticket.len == 0 {
            return ViewMut::EMPTY;
        }
        let registration = registrations.get(ticket.registration);
        let place = registration.and_then(|it| it.reach(rank, ticket));
        place.expect("a rank announces memory that all ranks have registered")
    };
    let memory = |(rank, it): (usize, &Announcement)| match it.place {
        AnnouncedPlace::Registered([input, output]) => PeerMemory::Mapped(PeerBuffers {
            input: reach(rank, input).as_view(),
            output: reach(rank, output),
        }),
        AnnouncedPlace::Process([input, output]) => {
            let memory = registrations.copies.memory(rank);
            PeerMemory::Process(ProcessBuffers { memory, input, output })
        }
    };
    all.iter().enumerate().map(memory).collect()
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
    fn of(registrations: &'a Registrations, mine: Announcement, ready: ReadyCall<'a>) -> Self {
        let announced = mine.is_registered || mine.is_readable;
        let (input, output) = (ready.input, ready.output.as_view());
        Self { registrations, announced, input, output }
    }

    fn end(mut self, completed: bool) {
        self.announced &= !completed;
    }
}

impl Drop for SeverOnFailure<'_> {
    fn drop(&mut self) {
        if self.announced {
            self.registrations.copies.close();
            self.registrations.sever(self.input);
            self.registrations.sever(self.output);
        }
    }
}
