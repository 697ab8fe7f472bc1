//! Calls that reach the buffers of other ranks: in registered memory, or by copies of private memory.
//!
//! All ranks make a registration together ([`make`]), and find out together whether they can copy
//! from one another ([`copies`]). Calls that would be faster so ask all ranks, call by call, where
//! their buffers lie ([`announcement`]). If all have passed registered memory, or at least memory
//! that others can read, the call runs by a program that reaches it ([`call`]). Otherwise it runs as
//! any other call. Which calls ask is a fact that is equal on all ranks; where a rank's buffers lie
//! is not.

mod announcement;
mod call;
mod copies;
mod make;
mod prepare;

use crate::engine::report::CallPath;
use crate::execute::record::ProgramNotes;
use crate::lower::Program;
use crate::tuner::MeasuredTime;
pub(super) use copies::PrivateCopies;
use maypole_kernels::View;
use maypole_transports::registered::{Registration, Ticket};
use std::sync::Arc;

/// The registrations of a group, as one rank has them.
#[derive(Debug, Default)]
pub(super) struct Registrations {
    /// By number, ascending. All ranks have the same numbers.
    list: Vec<(u32, Box<dyn Registration>)>,
    /// The number of the next one.
    next: u32,
    /// The program by which ranks tell each other about their buffers.
    asking: Option<Box<Program>>,
    /// Whether ranks copy from one another's private memory.
    pub(in crate::engine) copies: PrivateCopies,
}

impl Registrations {
    /// True if calls may ask for registered memory. Equal on all ranks.
    fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The place of `own` bytes, if they are registered.
    fn ticket_of(&self, own: View<'_>) -> Option<Ticket> {
        let place = |(number, registration): &(u32, Box<dyn Registration>)| {
            let offset = registration.offset_of(own)?;
            Some(Ticket { registration: *number, offset, len: own.len() as u64 })
        };
        self.list.iter().find_map(place)
    }

    /// The place of `own` bytes, if they are registered or nobody touches them.
    fn ticket_if(&self, is_exposed: bool, own: View<'_>) -> Option<Ticket> {
        // Without bytes there is nothing that could lie elsewhere.
        match is_exposed && !own.is_empty() {
            true => self.ticket_of(own),
            false => Some(Ticket::default()),
        }
    }

    fn get(&self, number: u32) -> Option<&dyn Registration> {
        let at = self.list.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(&*self.list[at].1)
    }

    /// Cuts other ranks off from `own` bytes.
    fn sever(&self, own: View<'_>) {
        self.list.iter().for_each(|(_, registration)| registration.sever(own));
    }

    /// Frees the memory of all registrations but those of which `is_used` returns true.
    fn retain(&mut self, is_used: impl Fn(u32) -> bool) {
        self.list.retain(|(number, _)| is_used(*number));
    }

    /// The numbers of registrations that this rank has no memory of any more.
    fn unused(&self) -> Vec<u32> {
        let unused = self.list.iter().filter(|(_, registration)| !registration.is_used());
        unused.map(|(number, _)| *number).collect()
    }
}

/// How a call runs that asks all ranks where their buffers lie, besides its program for slots and
/// streams.
#[derive(Debug, Default)]
pub(crate) struct AskingCall {
    /// For buffers that all ranks have registered.
    registered: Option<ReachingProgram>,
    /// For buffers that all ranks can at least read.
    copied: Option<ReachingProgram>,
    /// How the last call ran.
    last: CallPath,
}

/// A program that reaches other ranks' buffers.
#[derive(Debug)]
pub(crate) struct ReachingProgram {
    /// The name of the algorithm.
    pub(super) algorithm: &'static str,
    pub(super) program: Program,
    /// True if ranks may call with one buffer as input and output. Equal on all ranks.
    allows_in_place: bool,
    /// How often the call ran so.
    pub(super) runs: u64,
    /// How long such a run took while calls were timed.
    pub(super) measured: MeasuredTime,
    /// The description of the program for a recorder.
    notes: Option<Arc<ProgramNotes>>,
}

impl AskingCall {
    /// The program of each path, if the call has it.
    pub(super) fn program(&self, path: CallPath) -> Option<&ReachingProgram> {
        match path {
            CallPath::Staged => None,
            CallPath::Registered => self.registered.as_ref(),
            CallPath::Copied => self.copied.as_ref(),
        }
    }

    fn programs(&self) -> impl Iterator<Item = &ReachingProgram> {
        self.registered.iter().chain(&self.copied)
    }

    /// Bytes that it takes while it is kept.
    pub(super) fn bytes(&self) -> usize {
        let of = |it: &ReachingProgram| {
            it.program.bytes() + it.notes.as_ref().map_or(0, |notes| notes.program.bytes())
        };
        size_of::<Self>() + self.programs().map(of).sum::<usize>()
    }

    /// Bytes of scratch that its programs need.
    pub(super) fn scratch(&self) -> usize {
        self.programs().map(|it| it.program.scratch).max().unwrap_or(0)
    }

    /// Notes how the last call ran.
    pub(super) fn note_run(&mut self, path: CallPath) {
        self.last = path;
        if let Some(program) = self.ran_last() {
            program.runs += 1;
        }
    }

    /// How the last call ran.
    pub(super) fn last(&self) -> CallPath {
        self.last
    }

    /// The program of the last call, if it ran by one of these.
    pub(super) fn ran_last(&mut self) -> Option<&mut ReachingProgram> {
        match self.last {
            CallPath::Staged => None,
            CallPath::Registered => self.registered.as_mut(),
            CallPath::Copied => self.copied.as_mut(),
        }
    }

    /// Whether other ranks touch this rank's input, and its output, by any of the programs.
    fn exposes(&self) -> (bool, bool) {
        let of = |it: &ReachingProgram| {
            it.program.in_place.as_ref().map_or((false, false), |access| access.exposes)
        };
        self.programs().map(of).fold((false, false), |a, b| (a.0 | b.0, a.1 | b.1))
    }
}
