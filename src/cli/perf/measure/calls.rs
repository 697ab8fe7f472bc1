//! The calls of a batch, for elements of each type.

use super::batch::{CallBatch, Times};
use super::overlap::{self, Beside};
use super::workload::WorkloadBuffers;
use crate::perf::benchmark::BufferPlacement;
use bytemuck::Pod;
use maypole::schedule::Schedule;
use maypole::schedule::collective::Collective;
use maypole::{Communicator, Element, IntoBuffers, ReduceOp, Result};
use maypole_transports::clock::monotonic_ns;

/// Makes the calls of a batch, or requests beside computing.
pub(super) type BatchFunction = fn(
    &mut Communicator,
    &CallKind<'_>,
    &mut WorkloadBuffers,
    &CallBatch,
    Option<Beside>,
) -> Result<Times>;

/// The function of the communicator to call.
#[derive(Clone, Copy)]
pub(crate) struct CallKind<'a> {
    pub(crate) collective: Collective,
    pub(crate) place: BufferPlacement,
    pub(crate) op: ReduceOp,
    /// The schedules of all ranks, if the call is to run them.
    pub(crate) own: Option<&'a [Schedule]>,
    /// What this rank sends to each rank, and receives from each, if blocks have unequal lengths.
    pub(crate) counts: Option<[&'a [usize]; 2]>,
}

/// Starts a request for each call, computes, and waits for the request; or only one of these.
fn run_beside<T: Element + Pod>(
    comm: &mut Communicator,
    &CallKind { collective, place, op, .. }: &CallKind<'_>,
    buffers: &mut WorkloadBuffers,
    batch: &CallBatch,
    beside: Beside,
) -> Result<Times> {
    // A request borrows nothing.
    let what = CallKind { collective, place, op, own: None, counts: None };
    let start = monotonic_ns();
    for index in 0..batch.calls {
        if !batch.begins(index) {
            continue;
        }
        if !beside.calls {
            overlap::compute(beside.turns);
            continue;
        }
        let output = if index == batch.checked { &mut buffers.once } else { &mut buffers.often };
        let owned = (buffers.input.taken(), output.taken());
        let request = comm.start(owned, move |comm, (input, output)| {
            call::<T>(comm, &what, input.as_slice(), output.as_mut_slice())
        });
        overlap::compute(beside.turns);
        (buffers.input, *output) = request.wait()?;
    }
    Ok((start, monotonic_ns()))
}

/// Makes the calls. Between the two readings of the clock there are only calls.
pub(super) fn run<T: Element + Pod>(
    comm: &mut Communicator,
    what: &CallKind<'_>,
    buffers: &mut WorkloadBuffers,
    batch: &CallBatch,
    beside: Option<Beside>,
) -> Result<Times> {
    if let Some(beside) = beside {
        return run_beside::<T>(comm, what, buffers, batch, beside);
    }
    let input: &[T] = buffers.input.as_slice();
    let often: &mut [T] = buffers.often.as_mut_slice();
    let once: &mut [T] = buffers.once.as_mut_slice();
    let start = monotonic_ns();
    for index in 0..batch.calls {
        if batch.begins(index) {
            let output = if index == batch.checked { &mut *once } else { &mut *often };
            call(comm, what, input, output)?;
        }
    }
    Ok((start, monotonic_ns()))
}

#[inline]
fn call<T: Element>(
    comm: &mut Communicator,
    what: &CallKind<'_>,
    input: &[T],
    output: &mut [T],
) -> Result<()> {
    let op = what.op;
    let buffers = match what.place {
        BufferPlacement::OutOfPlace => (input, output).into_buffers(),
        BufferPlacement::InPlace => output.into_buffers(),
    };
    let buffers = match what.counts {
        Some([sent, received]) => buffers.with_counts(Some(sent), Some(received)),
        None => buffers,
    };
    if let Some(schedules) = what.own {
        return comm.run(|rank| schedules[rank].clone(), what.collective, buffers, op);
    }
    match what.collective {
        Collective::Broadcast { root } => comm.broadcast(buffers, root),
        Collective::Reduce { root } => comm.reduce(buffers, op, root),
        Collective::AllReduce => comm.all_reduce(buffers, op),
        Collective::Gather { root } => comm.gather(buffers, root),
        Collective::AllGather => comm.all_gather(buffers),
        Collective::Scatter { root } => comm.scatter(buffers, root),
        Collective::ReduceScatter => comm.reduce_scatter(buffers, op),
        Collective::AllToAll => comm.all_to_all(buffers),
        Collective::Scan => comm.scan(buffers, op),
        Collective::ExclusiveScan => comm.exclusive_scan(buffers, op),
        Collective::Barrier => comm.barrier(),
    }
}
