//! A call on the memory of GPUs.

use cudarc::driver::{CudaView, CudaViewMut, DeviceRepr};
use maypole::cuda::Comm;
use maypole::schedule::collective::Collective;
use maypole::{Element, ReduceOp, Result};

/// Starts the call with input `x` and output `y`, or in place in `y`.
pub(crate) fn issue<T: Element + DeviceRepr>(
    comm: &Comm,
    (collective, op): (Collective, ReduceOp),
    in_place: bool,
    (x, y): (&CudaView<'_, T>, &mut CudaViewMut<'_, T>),
) -> Result<()> {
    let root = collective.root().unwrap_or(0) as i32;
    match (collective, in_place) {
        (Collective::Broadcast { .. }, true) => comm.broadcast_in_place(y, root),
        (Collective::Broadcast { .. }, false) => comm.broadcast(Some(x), y, root),
        (Collective::Reduce { .. }, true) => comm.reduce_in_place(y, &op, root),
        (Collective::Reduce { .. }, false) => comm.reduce(x, Some(y), &op, root),
        (Collective::AllReduce, true) => comm.all_reduce_in_place(y, &op),
        (Collective::AllReduce, false) => comm.all_reduce(x, y, &op),
        (Collective::Gather { .. }, true) => comm.gather_in_place(y, root),
        (Collective::Gather { .. }, false) => comm.gather(x, Some(y), root),
        (Collective::AllGather, true) => comm.all_gather_in_place(y),
        (Collective::AllGather, false) => comm.all_gather(x, y),
        (Collective::Scatter { .. }, true) => comm.scatter_in_place(y, root),
        (Collective::Scatter { .. }, false) => comm.scatter(Some(x), y, root),
        (Collective::ReduceScatter, true) => comm.reduce_scatter_in_place(y, &op),
        (Collective::ReduceScatter, false) => comm.reduce_scatter(x, y, &op),
        (Collective::AllToAll, true) => comm.all_to_all_in_place(y),
        (Collective::AllToAll, false) => comm.all_to_all(x, y),
        (Collective::Scan, true) => comm.scan_in_place(y, &op),
        (Collective::Scan, false) => comm.scan(x, y, &op),
        (Collective::ExclusiveScan, true) => comm.exclusive_scan_in_place(y, &op),
        (Collective::ExclusiveScan, false) => comm.exclusive_scan(x, y, &op),
        (Collective::Barrier, _) => comm.barrier(),
    }
}
