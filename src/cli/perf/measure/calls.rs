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

pub(super) type BesideFunction = fn(
    &mut Communicator,
    CallKind<'static>,
    &mut WorkloadBuffers,
    &CallBatch,
    Beside,
) -> Result<Times>;
pub(super) type BatchFunction =
    fn(&mut Communicator, &CallKind<'_>, &mut WorkloadBuffers, &CallBatch) -> Result<Times>;

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

pub(super) const fn pointer<T: Element + Pod>() -> BatchFunction {
    run::<T>
}

pub(super) const fn beside_pointer<T: Element + Pod>() -> BesideFunction {
    run_beside::<T>
}

/// Starts a request for each call, computes, and waits for the request; or only one of these.
fn run_beside<T: Element + Pod>(
    comm: &mut Communicator,
    what: CallKind<'static>,
    buffers: &mut WorkloadBuffers,
    batch: &CallBatch,
    beside: Beside,
) -> Result<Times> {
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
fn run<T: Element + Pod>(
    comm: &mut Communicator,
    what: &CallKind<'_>,
    buffers: &mut WorkloadBuffers,
    batch: &CallBatch,
) -> Result<Times> {
    let rotation = buffers.rotation;
    let inputs = buffers.input.slots::<T>();
    let mut often = buffers.often.slots_mut::<T>();
    let once: &mut [T] = buffers.once.as_mut_slice();
    let start = monotonic_ns();
    for index in 0..batch.calls {
        if !batch.begins(index) {
            continue;
        }
        let slot = rotation.slot(index);
        let output = if index == batch.checked { &mut *once } else { often.get(slot) };
        call(comm, what, inputs.get(slot), output)?;
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
    if let Some(schedules) = what.own {
        let schedule = |rank: usize| schedules[rank].clone();
        return match what.place {
            BufferPlacement::OutOfPlace => comm.run(schedule, what.collective, (input, output), op),
            BufferPlacement::InPlace => comm.run(schedule, what.collective, output, op),
        };
    }
    if let Some(counts) = what.counts {
        return call_unequal(comm, what, counts, input, output);
    }
    match (what.collective, what.place) {
        (Collective::Broadcast { root }, _) => comm.broadcast(output, root),
        (Collective::Reduce { root }, BufferPlacement::OutOfPlace) => {
            comm.reduce((input, output), op, root)
        }
        (Collective::Reduce { root }, BufferPlacement::InPlace) => comm.reduce(output, op, root),
        (Collective::AllReduce, BufferPlacement::OutOfPlace) => {
            comm.all_reduce((input, output), op)
        }
        (Collective::AllReduce, BufferPlacement::InPlace) => comm.all_reduce(output, op),
        (Collective::Gather { root }, BufferPlacement::OutOfPlace) => {
            comm.gather((input, output), root)
        }
        (Collective::Gather { root }, BufferPlacement::InPlace) => comm.gather(output, root),
        (Collective::AllGather, BufferPlacement::OutOfPlace) => comm.all_gather((input, output)),
        (Collective::AllGather, BufferPlacement::InPlace) => comm.all_gather(output),
        (Collective::Scatter { root }, BufferPlacement::OutOfPlace) => {
            comm.scatter((input, output), root)
        }
        (Collective::Scatter { root }, BufferPlacement::InPlace) => comm.scatter(output, root),
        (Collective::ReduceScatter, BufferPlacement::OutOfPlace) => {
            comm.reduce_scatter((input, output), op)
        }
        (Collective::ReduceScatter, BufferPlacement::InPlace) => comm.reduce_scatter(output, op),
        (Collective::AllToAll, BufferPlacement::OutOfPlace) => comm.all_to_all((input, output)),
        (Collective::AllToAll, BufferPlacement::InPlace) => comm.all_to_all(output),
        (Collective::Scan, BufferPlacement::OutOfPlace) => comm.scan((input, output), op),
        (Collective::Scan, BufferPlacement::InPlace) => comm.scan(output, op),
        (Collective::ExclusiveScan, BufferPlacement::OutOfPlace) => {
            comm.exclusive_scan((input, output), op)
        }
        (Collective::ExclusiveScan, BufferPlacement::InPlace) => comm.exclusive_scan(output, op),
        (Collective::Barrier, _) => comm.barrier(),
    }
}

/// Calls a collective whose blocks have unequal lengths, out of place.
fn call_unequal<T: Element>(
    comm: &mut Communicator,
    what: &CallKind<'_>,
    [sent, received]: [&[usize]; 2],
    input: &[T],
    output: &mut [T],
) -> Result<()> {
    let buffers = (input, output).into_buffers().with_counts(Some(sent), Some(received));
    match what.collective {
        Collective::Gather { root } => comm.gather(buffers, root),
        Collective::Scatter { root } => comm.scatter(buffers, root),
        Collective::AllGather => comm.all_gather(buffers),
        Collective::ReduceScatter => comm.reduce_scatter(buffers, what.op),
        Collective::AllToAll => comm.all_to_all(buffers),
        _ => unreachable!("the settings allow counts for collectives with blocks alone"),
    }
}
