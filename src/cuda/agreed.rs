//! What the ranks of a group exchange while they make it, equal on all of them afterwards.

use crate::comm::Communicator;
use crate::error::Result;
use bytemuck::Pod;
use maypole_transports::cuda::{Offer, UseTable};
use maypole_transports::shm::Segment;

/// A result, or why there is none.
pub(super) type Found<T> = std::result::Result<T, String>;

/// The operation of ranks that connect.
pub(super) const CALL: &str = "cuda::Comm::new()";

/// Exchanges the bytes of `mine` among all ranks of `comm`, which make `call`. Returns those of
/// all, by rank.
///
/// # Errors
/// As every call.
pub(super) fn agree_on<T: Pod>(comm: &mut Communicator, call: &str, mine: T) -> Result<Vec<T>> {
    let told = comm.agree_on(call, &bytemuck::bytes_of(&mine).to_vec())?;
    let read = told.iter().map(|bytes| bytemuck::try_pod_read_unaligned(bytes).ok());
    read.collect::<Option<_>>().ok_or_else(|| {
        let why = "a rank tells something of another length".to_owned();
        comm.engine.get_mut().health.fail_unconnected(call.to_owned(), why)
    })
}

/// The reason of the first rank that has one, equal on all ranks. Collective.
pub(super) fn first_of(comm: &mut Communicator, mine: Option<String>) -> Result<Option<String>> {
    Ok(comm.agree_on(CALL, &mine)?.into_iter().flatten().next())
}

/// The result of this rank, unless some rank has a reason: the first of these, equal on all ranks. Collective.
pub(super) fn agreed<T>(comm: &mut Communicator, mine: Found<T>) -> Result<Found<T>> {
    Ok(first_of(comm, mine.as_ref().err().cloned())?.map_or(mine, Err))
}

/// The table of the ranks of this host that use the memory of others, if those of some host are in several
/// processes. Without it, which all ranks agree on, memory of a group is kept until the process ends.
pub(super) fn use_table(comm: &mut Communicator, offers: &[Offer]) -> Result<Option<UseTable>> {
    let hosts = comm.hosts();
    let process = |rank: usize| offers[rank].process;
    let is_alone = |rank| hosts.locals(rank).iter().all(|other| process(*other) == process(rank));
    if (0..offers.len()).all(is_alone) {
        return Ok(None);
    }
    let locals = hosts.locals(comm.rank());
    let near: Vec<_> = locals.iter().map(|rank| offers[*rank]).collect();
    let place = locals.iter().position(|rank| *rank == comm.rank()).expect("it is on its host");
    match shared_segment(comm, 0, UseTable::bytes(near.len()))? {
        Ok(segment) => Ok(Some(UseTable::new(segment, place, &near))),
        Err(why) => {
            tracing::warn!(
                "the ranks share no memory of the host ({why}), so memory of this group stays allocated \
                 until its processes end"
            );
            Ok(None)
        }
    }
}

/// A segment of the ranks of `comm` on this host, or why some rank has none, which is equal on all ranks.
/// Collective.
pub(super) fn shared_segment(
    comm: &mut Communicator,
    number: u32,
    bytes: usize,
) -> Result<Found<Segment>> {
    let ranks = comm.hosts().locals(comm.rank());
    let engine = comm.engine.get();
    let deadline = engine.limits.deadline();
    let made = engine.health.control.segment(&ranks, number, bytes, deadline);
    agreed(comm, made.map_err(|error| error.to_string()))
}
