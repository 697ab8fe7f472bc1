//! Calls that reach the buffers of other ranks: in registered memory, or by copies of private memory.
//!
//! All ranks make a registration together ([`make`]), and determine together whether they can copy
//! from one another ([`copies`]). Calls that may be faster so exchange the places of their buffers
//! ([`announcement`]). If all have passed registered memory, or at least memory that others can
//! read, the call may run by a program that reaches it ([`call`]); [`ways`](super::ways) chooses.
//! Which calls exchange places is equal on all ranks: those that registered memory makes faster,
//! those that copy, and the first of each stretch. The places themselves differ.

mod announcement;
mod call;
mod copies;
mod make;
mod prepare;

use crate::lower::Program;
pub(super) use copies::PrivateCopies;
use maypole_kernels::View;
use maypole_transports::registered::{Registration, Ticket};

/// The registrations of a group, as one rank has them.
#[derive(Debug, Default)]
pub(super) struct Registrations {
    /// By number, ascending. All ranks have the same numbers. Without any, no call uses registered
    /// memory.
    list: Vec<(u32, Registration)>,
    next: u32,
    /// The program that exchanges the places of buffers.
    asking: Option<Box<Program>>,
    /// Whether ranks copy from one another's private memory.
    pub(crate) copies: PrivateCopies,
}

impl Registrations {
    /// The place of `own` bytes, if they are registered.
    fn ticket_of(&self, own: View<'_>) -> Option<Ticket> {
        let place = |(number, registration): &(u32, Registration)| {
            let offset = registration.offset_of(own)?;
            Some(Ticket { registration: *number, offset, len: own.len() as u64 })
        };
        self.list.iter().find_map(place)
    }

    /// The place of `own` bytes, if they are registered or untouched.
    fn ticket_if(&self, is_exposed: bool, own: View<'_>) -> Option<Ticket> {
        // Without bytes there is nothing that could lie elsewhere.
        if is_exposed && !own.is_empty() { self.ticket_of(own) } else { Some(Ticket::default()) }
    }

    fn get(&self, number: u32) -> Option<&Registration> {
        let at = self.list.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(&self.list[at].1)
    }

    /// Cuts other ranks off from `own` bytes.
    fn sever(&self, own: View<'_>) {
        self.list.iter().for_each(|(_, registration)| registration.sever(own));
    }

    /// The numbers of registrations that this rank has no memory of any more.
    fn unused(&self) -> Vec<u32> {
        let unused = self.list.iter().filter(|(_, registration)| !registration.is_used());
        unused.map(|(number, _)| *number).collect()
    }
}
