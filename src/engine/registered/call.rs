//! A call whose bytes may move in several ways, for which ranks may exchange the offsets of its
//! buffers.

use super::Registrations;
use super::announcement::{ANNOUNCEMENT, AnnouncedPlace, Announcement};
use crate::element::DataType;
use crate::engine::Engine;
use crate::engine::calls::call::ReadyCall;
use crate::engine::calls::kept::PreparedCalls;
use crate::engine::calls::prepared::{CallProgram, PreparedCall, WayKind};
use crate::engine::calls::report::CallPath;
use crate::engine::observers::Observers;
use crate::engine::ways::{CallTurn, Datapath, StretchTime};
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

type Announcements = ArrayVec<Announcement, MAX_RANKS>;

impl Engine {
    /// Runs the call at `at`, whose bytes may move in several ways.
    #[cold]
    #[inline(never)]
    pub(in crate::engine) fn perform_choosing(
        &mut self,
        at: usize,
        ready: ReadyCall<'_>,
    ) -> Result<()> {
        let ready = ready.scaled_in_place();
        self.calls.at_mut(at).path = CallPath::Staged;
        let ways = self.calls.at(at).ways.as_deref();
        let &(kind, ref ways) = ways.expect("a call with several ways");
        let (path, turn, start) = match self.ways.exchanges(kind, ways) {
            true => self.exchange_and_reach(at, ready, kind)?,
            false => {
                let turn = self.ways.begin(&kind);
                (CallPath::Staged, turn, turn.is_timed.then(Instant::now))
            }
        };
        if path == CallPath::Staged {
            let first = self.calls.at(at).store;
            // The first way through slots, if the call cannot go another path.
            let store = match turn.way {
                Datapath::Slots(store) => first.map(|_| store),
                Datapath::Copied | Datapath::Registered => first,
            };
            self.perform_staged(at, ready, store)?;
        } else {
            self.finish(at, ready, Ok(()))?;
            self.calls.at_mut(at).note_path(path);
        }
        if let Some(start) = start {
            self.ways.end(&kind, start.elapsed());
        }
        Ok(())
    }

    /// Exchanges the last stretch's duration and the places of the buffers with all ranks of the
    /// board, and runs the call if ranks reach one another's buffers. Returns its path and turn, and its
    /// beginning if it is timed.
    fn exchange_and_reach(
        &mut self,
        at: usize,
        ready: ReadyCall<'_>,
        kind: WayKind,
    ) -> Result<(CallPath, CallTurn, Option<Instant>)> {
        let asked = Instant::now();
        let sequence = self.health.sequence();
        self.health.enter();
        let asking = self.registrations.asking.take();
        let mut asking = asking.expect("made with the first call that asks");
        let mine = announcement(&self.registrations, self.calls.at(at), ready);
        let mine = Announcement { report: self.ways.report(&kind), ..mine };
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
        let began = Instant::now();
        let ways = &mut self.ways;
        let may_register = self.calls.at(at).ways.as_ref().is_some_and(|ways| ways.1.may_register);
        let done = all.and_then(|all| {
            let reports = all.iter().map(|it| it.report);
            let slowest = reports.fold(StretchTime::default(), StretchTime::slower);
            ways.exchanged(&kind, slowest, began - asked);
            let turn = match may_register && all.iter().all(|it| it.is_registered) {
                true => CallTurn { way: Datapath::Registered, is_timed: false },
                false => ways.begin(&kind),
            };
            let path = path_of(&all, turn.way);
            let program = self.calls.at(at).program(path).filter(|_| path != CallPath::Staged);
            program.map_or(Ok(()), |it| run.reach(it, &peers(&self.registrations, &all)))?;
            Ok((path, turn))
        });
        guard.end(done.is_ok());
        self.registrations.asking = Some(asking);
        let (path, turn) = done.map_err(|failed| self.explain_program(ready.call, *failed))?;
        Ok((path, turn, turn.is_timed.then_some(began)))
    }
}

/// One call that exchanges the places of buffers.
struct AskingRun<'a> {
    executor: &'a mut Executor,
    calls: &'a PreparedCalls,
    observers: Option<&'a mut Observers>,
    sequence: u64,
    at: usize,
    ready: ReadyCall<'a>,
}

impl AskingRun<'_> {
    /// Exchanges announcements of buffers with all ranks, and returns theirs.
    fn ask(
        &mut self,
        program: &mut Program,
        mine: Announcement,
    ) -> std::result::Result<Announcements, Box<ExecuteError>> {
        program.fingerprint = mix(self.calls.at(self.at).record.fingerprint) | 1;
        let bytes = mine.to_bytes();
        let mut all = [0; MAX_RANKS * ANNOUNCEMENT];
        let all = &mut all[..self.executor.locals().len() * ANNOUNCEMENT];
        let buffers =
            Buffers { input: View::of(&bytes), output: ViewMut::of(all), scratch: ViewMut::EMPTY };
        let copies: Reducer = BuiltInReducer::new(DataType::U8, BinaryOp::Max).into();
        self.executor.run(program, &copies, &buffers)?;
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
            report: StretchTime::default(),
            place: AnnouncedPlace::Registered([input, output]),
        },
        _ if is_readable => Announcement {
            is_registered: false,
            is_readable,
            report: StretchTime::default(),
            place: AnnouncedPlace::Process(buffers.map(|(view, _)| place_of(view))),
        },
        _ => Announcement::default(),
    }
}

fn place_of(view: View<'_>) -> (u64, u64) {
    (view.as_ptr().addr() as u64, view.len() as u64)
}

/// The path of a call in this `way`: through slots where not all ranks can go another.
fn path_of(all: &Announcements, way: Datapath) -> CallPath {
    match way {
        Datapath::Registered => CallPath::Registered,
        Datapath::Copied if all.iter().all(|it| it.is_readable) => CallPath::Copied,
        _ => CallPath::Staged,
    }
}

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
