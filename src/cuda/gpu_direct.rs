//! Slots in the memory of GPUs of several hosts, which adapters read and write (GPUDirect): whether all ranks of a
//! group can have them. If one cannot, none has.

use super::agreed::{CALL, Found, agree_on, agreed, use_table};
use super::place::CourierWays;
use crate::comm::Communicator;
use crate::error::Result;
use cudarc::driver::CudaStream;
use maypole_transports::cuda::{PendingSlots, Shapes, SlotsOfGpus};
use std::sync::Arc;

/// Whether ranks of several hosts try to have them, equal on all; and then, whether the group must not do without
/// them. Collective.
///
/// # Errors
/// As every call.
pub(super) fn is_wanted(comm: &mut Communicator, ways: CourierWays) -> Result<Option<bool>> {
    if comm.hosts().is_one() {
        return Ok(None);
    }
    let all = comm.agree_on(CALL, &ways)?;
    let is_forced = all.contains(&CourierWays::GpuDirect);
    let is_allowed = all.iter().all(|ways| *ways == CourierWays::Auto);
    // Equal on all ranks.
    let links = &comm.engine.get().conditions.links;
    let can = links.uses_verbs(false) && !comm.is_encrypted();
    Ok((is_forced || is_allowed && can).then_some(is_forced))
}

/// Makes the slots of all ranks, or says why some rank has none, which is equal on all ranks. Collective.
///
/// # Errors
/// As every call.
pub(super) fn offered(
    comm: &mut Communicator,
    stream: &Arc<CudaStream>,
    shapes: &Shapes,
    ways: CourierWays,
) -> Result<Found<SlotsOfGpus>> {
    let me = comm.rank();
    let mine = pending(comm, stream, shapes, ways).map_err(|why| format!("rank {me}: {why}"));
    let slots = match agreed(comm, mine)? {
        Ok(slots) => slots,
        Err(why) => return Ok(Err(why)),
    };
    let offers = agree_on(comm, CALL, slots.offer())?;
    let table = use_table(comm, &offers)?;
    Ok(Ok((slots, offers, table)))
}

fn pending(
    comm: &Communicator,
    stream: &Arc<CudaStream>,
    shapes: &Shapes,
    ways: CourierWays,
) -> Found<PendingSlots> {
    let hosts: Vec<_> = (0..comm.world()).map(|rank| comm.hosts().of(rank)).collect();
    let engine = comm.engine.get();
    if matches!(ways, CourierWays::Host | CourierWays::Stream) {
        return Err("MAYPOLE_CUDA_COURIERS excludes it there".to_owned());
    }
    if let Some(why) = engine.conditions.links.verbs_refusal(false) {
        return Err(format!("no adapters join the hosts: {why}"));
    }
    if comm.is_encrypted() {
        return Err("nothing encrypts the writes of adapters, and the job is encrypted".to_owned());
    }
    if !PendingSlots::can_export(stream.context()) {
        return Err(format!(
            "the driver exports no memory of GPU {} as a dma-buf (its attribute DMA_BUF_SUPPORTED is 0)",
            stream.context().ordinal()
        ));
    }
    let made = PendingSlots::new(stream, shapes, (comm.rank(), &hosts));
    made.map_err(|error| error.to_string())
}
