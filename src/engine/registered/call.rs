//! A call whose bytes may move in several ways, for which ranks may exchange the offsets of its
//! buffers.

use super::Registrations;
use super::announcement::{ANNOUNCEMENT, Announcement};
use crate::element::DataType;
use crate::engine::Engine;
use crate::engine::calls::call::ReadyCall;
use crate::engine::calls::prepared::{PreparedCall, WayKind};
use crate::engine::calls::report::CallPath;
use crate::engine::ways::{CallTurn, Datapath, StretchTime};
use crate::error::Result;
use crate::execute::record::record_call;
use crate::execute::{Buffers, ExecuteError, Executor, PeerMemory, ProcessBuffers};
use crate::lower::Program;
use arrayvec::ArrayVec;
use maypole_kernels::{BinaryOp, BuiltInReducer, Reducer, View, ViewMut, mix};
use maypole_transports::board::MAX_RANKS;
use maypole_transports::registered::Ticket;
use std::time::Instant;

type Announcements = ArrayVec<Announcement, MAX_RANKS>;

impl Engine {
    /// Runs the current call, whose bytes may move in several ways.
    #[cold]
    #[inline(never)]
    pub(crate) fn perform_choosing(&mut self, ready: ReadyCall<'_>) -> Result<()> {
        let ready = ready.scaled_in_place();
        self.calls.current_mut().path = CallPath::Staged;
        let ways = self.calls.current().ways.as_deref();
        let &(kind, ref ways) = ways.expect("a call with several ways");
        let (path, turn, start) = match self.ways.exchanges(kind, ways) {
            true => self.exchange_and_reach(ready, kind)?,
            false => {
                let turn = self.ways.begin(&kind);
                (CallPath::Staged, turn, turn.is_timed.then(Instant::now))
            }
        };
        if path == CallPath::Staged {
            let first = self.calls.current().store;
            // The first way through slots, if the call cannot go another path.
            let store = match turn.way {
                Datapath::Slots(store) => first.map(|_| store),
                Datapath::Copied | Datapath::Registered => first,
            };
            self.perform_staged(ready, store)?;
        } else {
            self.finish(ready, Ok(()))?;
            self.calls.current_mut().note_path(path);
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
        ready: ReadyCall<'_>,
        kind: WayKind,
    ) -> Result<(CallPath, CallTurn, Option<Instant>)> {
        let sequence = self.health.sequence;
        self.health.enter();
        let asking = self.registrations.asking.take();
        let mut asking = asking.expect("made with the first call that asks");
        let prepared = self.calls.current();
        let mine = announcement(&self.registrations, prepared, ready);
        let mine = Announcement { report: self.ways.report(&kind), ..mine };
        let guard = SeverOnFailure::of(&self.registrations, mine, ready);
        let (executor, ways) = (&mut self.executor, &mut self.ways);
        asking.fingerprint = mix(prepared.record.fingerprint) | 1;
        let start = Instant::now();
        let all = ask(executor, &asking, mine);
        let began = Instant::now();
        let may_register = prepared.ways.as_ref().is_some_and(|ways| ways.1.may_register);
        let done = all.and_then(|all| {
            let most = |time: fn(&StretchTime) -> u64| all.iter().map(|it| time(&it.report)).max();
            let slowest = StretchTime {
                call_ns: most(|it| it.call_ns).unwrap_or(0),
                exchange_ns: most(|it| it.exchange_ns).unwrap_or(0),
            };
            ways.exchanged(&kind, slowest, began - start);
            let turn = match may_register && all.iter().all(|it| it.is_registered) {
                true => CallTurn { way: Datapath::Registered, is_timed: false },
                false => ways.begin(&kind),
            };
            let path = path_of(&all, turn.way);
            let reaching = prepared.program(path).filter(|_| path != CallPath::Staged);
            let Some(reaching) = reaching else { return Ok((path, turn)) };
            let (buffers, peers) = (self.calls.unstaged(ready), peers(&self.registrations, &all));
            let (program, reducer) = (&reaching.program, &prepared.reducer);
            let call = (sequence, reaching.notes.as_ref());
            record_call(self.recorder.as_deref_mut(), call, |observer| {
                executor.run_registered(program, reducer, &buffers, &peers, observer)
            })?;
            Ok((path, turn))
        });
        guard.end(done.is_ok());
        self.registrations.asking = Some(asking);
        let (path, turn) = done.map_err(|failed| self.explain_program(ready.call, *failed))?;
        Ok((path, turn, turn.is_timed.then_some(began)))
    }
}

/// Exchanges announcements of buffers with all ranks by `program`, and returns theirs.
fn ask(
    executor: &mut Executor,
    program: &Program,
    mine: Announcement,
) -> std::result::Result<Announcements, Box<ExecuteError>> {
    let bytes = mine.to_bytes();
    let mut all = [0; MAX_RANKS * ANNOUNCEMENT];
    let all = &mut all[..executor.locals().len() * ANNOUNCEMENT];
    let buffers =
        Buffers { input: View::of(&bytes), output: ViewMut::of(all), scratch: ViewMut::EMPTY };
    let copies: Reducer = BuiltInReducer::new(DataType::U8, BinaryOp::Max).into();
    executor.run(program, &copies, &buffers)?;
    let (each, _) = all.as_chunks::<ANNOUNCEMENT>();
    Ok(each.iter().map(Announcement::from_bytes).collect())
}

fn announcement(
    registrations: &Registrations,
    prepared: &PreparedCall,
    ReadyCall { call, input, output, .. }: ReadyCall<'_>,
) -> Announcement {
    let serves = |path: CallPath| {
        prepared.program(path).is_some_and(|it| !call.in_place || it.program.allows_in_place())
    };
    let mine = Announcement { is_readable: serves(CallPath::Copied), ..Announcement::default() };
    let exposed = prepared.exposes();
    let buffers = [(input, exposed.0), (output.as_view(), exposed.1)];
    match buffers.map(|(view, is_exposed)| registrations.ticket_if(is_exposed, view)) {
        [Some(input), Some(output)] => Announcement {
            is_registered: serves(CallPath::Registered),
            registrations: Some([input.registration, output.registration]),
            places: [input, output].map(|ticket| (ticket.offset, ticket.len)),
            ..mine
        },
        _ if mine.is_readable => {
            Announcement { places: buffers.map(|(view, _)| place_of(view)), ..mine }
        }
        _ => mine,
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
    let reach = |rank: usize, registration: u32, (offset, len): (u64, u64)| {
        if len == 0 {
            return ViewMut::EMPTY;
        }
        let ticket = Ticket { registration, offset, len };
        let place = registrations.get(registration).and_then(|it| it.reach(rank, ticket));
        place.expect("a rank announces memory that all ranks have registered")
    };
    let memory = |(rank, it): (usize, &Announcement)| match (it.registrations, it.places) {
        (Some([of_input, of_output]), [input, output]) => PeerMemory::Mapped(Buffers {
            input: reach(rank, of_input, input).as_view(),
            output: reach(rank, of_output, output),
            scratch: ViewMut::EMPTY,
        }),
        (None, [input, output]) => {
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
