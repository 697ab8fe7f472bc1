//! Registered memory of a group: making it, and the calls that run on it.
//!
//! All ranks make a registration together ([`make`]). From then on, calls that would be faster on
//! registered memory ask all ranks, call by call, whether they have passed such memory
//! ([`announcement`]). If all have, the call runs by a program that reaches it ([`call`]). Otherwise
//! it runs as any other call. Which calls ask is a fact that is equal on all ranks; where a rank's
//! buffers lie is not.

mod announcement;
mod call;
mod make;
mod prepare;

use crate::execute::record::ProgramNotes;
use crate::lower::Program;
use crate::tuner::MeasuredTime;
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

/// How a call runs if all ranks have registered its buffers.
#[derive(Debug)]
pub(crate) struct RegisteredCall {
    /// The name of the algorithm.
    algorithm: &'static str,
    program: Program,
    /// True if ranks may call with one buffer as input and output. Equal on all ranks.
    allows_in_place: bool,
    /// How often the call ran so.
    runs: u64,
    /// True if the last call ran so.
    ran_last: bool,
    /// How long such a run took while calls were timed.
    pub(super) measured: MeasuredTime,
    /// The description of the program for a recorder.
    notes: Option<Arc<ProgramNotes>>,
}

impl RegisteredCall {
    /// Bytes that it takes while it is kept.
    pub(super) fn bytes(&self) -> usize {
        let notes = self.notes.as_ref().map_or(0, |notes| notes.program.bytes());
        size_of::<Self>() + self.program.bytes() + notes
    }

    /// Bytes of scratch that its program needs.
    pub(super) fn scratch(&self) -> usize {
        self.program.scratch
    }

    /// Notes whether the last call ran on registered memory.
    pub(super) fn note_run(&mut self, ran_registered: bool) {
        self.runs += u64::from(ran_registered);
        self.ran_last = ran_registered;
    }

    /// The algorithm of the last call, if it ran on registered memory.
    pub(super) fn last(&self) -> Option<&'static str> {
        self.ran_last.then_some(self.algorithm)
    }

    /// How often the call ran on registered memory, and its program.
    pub(super) fn ran(&self) -> (u64, &Program) {
        (self.runs, &self.program)
    }
}
