//! The forms of one call: the typed method, the call on bytes, and the request.

use super::lengths::Lengths;
use super::number::Number;
use maypole::schedule::collective::Collective;
use maypole::{AnySlice, AnySliceMut, Communicator, IntoBuffers, ReduceOp, Result};

/// How a call is made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Form {
    Typed,
    Erased,
    Started,
}

impl Form {
    pub const ALL: [Self; 3] = [Self::Typed, Self::Erased, Self::Started];
}

/// One call as one rank makes it.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) collective: Collective,
    pub(super) op: ReduceOp,
    pub(super) lengths: Lengths,
    pub(super) in_place: bool,
    pub(super) rank: usize,
}

impl Call {
    /// Makes the call with input `x` and output `y`, or in place in `y`.
    pub(super) fn make<T: Number>(
        self,
        form: Form,
        comm: &mut Communicator,
        x: &[T],
        y: &mut [T],
    ) -> Result<()> {
        match form {
            Form::Typed => self.typed(comm, x, y),
            Form::Erased => self.erased(comm, x, y),
            Form::Started => self.started(comm, x, y),
        }
    }

    /// Only the root of a gather or of a scatter needs the lengths of all blocks.
    fn known<'a>(&self, counts: &'a [usize]) -> &'a [usize] {
        match self.collective {
            Collective::Gather { root } | Collective::Scatter { root } if root != self.rank => &[],
            _ => counts,
        }
    }

    /// The elements from each rank, in an all-to-all of unequal blocks.
    fn receives(&self, rows: &[Vec<usize>]) -> Vec<usize> {
        rows.iter().map(|row| row[self.rank]).collect()
    }

    fn typed<T: Number>(&self, comm: &mut Communicator, x: &[T], y: &mut [T]) -> Result<()> {
        let op = self.op;
        if let Lengths::Blocks(counts) = &self.lengths {
            let counts = self.known(counts);
            return match self.collective {
                Collective::Gather { root } => comm.gather((x, y, counts), root),
                Collective::Scatter { root } => comm.scatter((x, counts, y), root),
                Collective::AllGather => comm.all_gather((x, y, counts)),
                _ => comm.reduce_scatter((x, counts, y), op),
            };
        }
        if let Lengths::Pairs(rows) = &self.lengths {
            return comm.all_to_all((x, &rows[self.rank], y, &self.receives(rows)));
        }
        match (self.collective, self.in_place) {
            (Collective::Broadcast { root }, _) => comm.broadcast(y, root),
            (Collective::Reduce { root }, true) => comm.reduce(y, op, root),
            (Collective::Reduce { root }, false) => comm.reduce((x, y), op, root),
            (Collective::AllReduce, true) => comm.all_reduce(y, op),
            (Collective::AllReduce, false) => comm.all_reduce((x, y), op),
            (Collective::Gather { root }, true) => comm.gather(y, root),
            (Collective::Gather { root }, false) => comm.gather((x, y), root),
            (Collective::AllGather, true) => comm.all_gather(y),
            (Collective::AllGather, false) => comm.all_gather((x, y)),
            (Collective::Scatter { root }, true) => comm.scatter(y, root),
            (Collective::Scatter { root }, false) => comm.scatter((x, y), root),
            (Collective::ReduceScatter, true) => comm.reduce_scatter(y, op),
            (Collective::ReduceScatter, false) => comm.reduce_scatter((x, y), op),
            (Collective::AllToAll, true) => comm.all_to_all(y),
            (Collective::AllToAll, false) => comm.all_to_all((x, y)),
            (Collective::Scan, true) => comm.scan(y, op),
            (Collective::Scan, false) => comm.scan((x, y), op),
            (Collective::ExclusiveScan, true) => comm.exclusive_scan(y, op),
            (Collective::ExclusiveScan, false) => comm.exclusive_scan((x, y), op),
            (Collective::Barrier, _) => comm.barrier(),
        }
    }

    fn erased<T: Number>(&self, comm: &mut Communicator, x: &[T], y: &mut [T]) -> Result<()> {
        // Not every byte is a bool, so the output is a copy, which begins at a multiple of 8.
        let size = size_of_val(y);
        let mut words = vec![0u64; size.div_ceil(8)];
        let output = &mut bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..size];
        output.copy_from_slice(bytemuck::cast_slice(y));
        // The root of a broadcast apart has an input, and no other rank.
        let is_root = self.collective.root() == Some(self.rank);
        let own = if is_root { y.to_vec() } else { Vec::new() };
        let input = if matches!(self.collective, Collective::Broadcast { .. }) { &own } else { x };
        let any = AnySliceMut::new(T::DATA_TYPE, output);
        let input = AnySlice::new(T::DATA_TYPE, bytemuck::cast_slice(input));
        let buffers = if self.in_place { any.into_buffers() } else { (input, any).into_buffers() };
        let done = match &self.lengths {
            Lengths::Even(_) => comm.call(self.collective, buffers, self.op),
            Lengths::Blocks(counts) => {
                let buffers = buffers.with_counts(Some(self.known(counts)), None);
                comm.call(self.collective, buffers, self.op)
            }
            Lengths::Pairs(rows) => {
                let receives = self.receives(rows);
                let buffers = buffers.with_counts(Some(&rows[self.rank]), Some(&receives));
                comm.call(self.collective, buffers, self.op)
            }
        };
        y.copy_from_slice(bytemuck::checked::cast_slice(output));
        done
    }

    fn started<T: Number>(self, comm: &mut Communicator, x: &[T], y: &mut [T]) -> Result<()> {
        let before = x.to_vec();
        let after = y.to_vec();
        let op = self.op;
        let unequal = self.lengths.differ();
        let done = match (self.collective, self.in_place || unequal) {
            (Collective::Broadcast { root }, _) => comm.start_broadcast(after, root).wait()?,
            (Collective::AllReduce, true) if !unequal => comm.start_all_reduce(after, op).wait()?,
            (Collective::AllReduce, false) => comm.start_all_reduce((before, after), op).wait()?.1,
            (Collective::AllGather, true) if !unequal => comm.start_all_gather(after).wait()?,
            (Collective::AllGather, false) => comm.start_all_gather((before, after)).wait()?.1,
            (Collective::ReduceScatter, true) if !unequal => {
                comm.start_reduce_scatter(after, op).wait()?
            }
            (Collective::ReduceScatter, false) => {
                comm.start_reduce_scatter((before, after), op).wait()?.1
            }
            (Collective::AllToAll, true) if !unequal => comm.start_all_to_all(after).wait()?,
            (Collective::AllToAll, false) => comm.start_all_to_all((before, after)).wait()?.1,
            _ => {
                let queued = comm
                    .start((before, after), move |comm, (x, y): &mut (Vec<T>, Vec<T>)| {
                        self.typed(comm, x, y)
                    });
                queued.wait()?.1
            }
        };
        y.copy_from_slice(&done);
        Ok(())
    }
}
