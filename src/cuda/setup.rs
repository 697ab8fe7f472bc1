//! Ranks test whether their GPUs reach one another's memory, and make mailboxes there.

use super::links::{self, Introduction};
use super::options::CommOptions;
use super::plan::{self, Wanted};
use super::probe::ReachProbe;
use super::programs::MessagePrograms;
use super::rank::{Connected, DeviceRank};
use crate::comm::Communicator;
use crate::error::Result;
use bytemuck::Pod;
use cudarc::driver::CudaStream;
use maypole_kernels::packed::MOST_RANKS;
use maypole_transports::cuda::{
    BesideCapture, Offer, PendingBoard, ProcessName, ReservedBlocks, UseTable, stream_aside,
};
use std::sync::Arc;

type Found<T> = std::result::Result<T, String>;

/// The operation of ranks that connect.
const CALL: &str = "cuda::Comm::new()";

/// Lanes of a rank alone.
const LANES_ALONE: u32 = 16;

/// Why there are no mailboxes if too many groups use the GPUs.
const NO_ROOM: &str = "the groups that the processes have on some GPU have reserved all of its \
                       multiprocessors, because all blocks of all groups must run at the same time: \
                       use fewer groups, fewer blocks for each (NCCL_MAX_CTAS, maxCTAs or \
                       CommOptions::most_lanes), or fewer ranks on a GPU";

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
        comm.engine.get_mut().unconnected(call.to_owned(), why)
    })
}

/// The result of a GPU, or the error of this rank and all others.
fn on_gpu<T>(comm: &mut Communicator, done: std::result::Result<T, impl ToString>) -> Result<T> {
    done.map_err(|why| comm.engine.get_mut().fail_on_device(CALL.to_owned(), why.to_string()))
}

/// The mailboxes of all ranks of `comm`, or why there are none, which is equal on all ranks.
/// Collective.
///
/// # Errors
/// [`Error::Device`](crate::Error::Device) if a GPU has no memory for them; else as every call.
pub(super) fn connect(
    comm: &mut Communicator,
    stream: &Arc<CudaStream>,
    options: &CommOptions,
) -> Result<Found<Connected>> {
    // No capture of the program, in any thread, includes this work.
    let _beside = BesideCapture::begin();
    let mine = on_gpu(comm, Introduction::of(stream.context(), options))?;
    let all = agree_on(comm, CALL, mine)?;
    if !comm.hosts().is_one() {
        return Ok(Err("the ranks are on several hosts".to_owned()));
    }
    if comm.world() > MOST_RANKS as usize {
        return Ok(Err(format!("mailboxes serve at most {MOST_RANKS} ranks")));
    }
    let (links, refused) = links::find(comm, CALL, &all)?;
    if let Some(reason) = refused {
        return Ok(Err(through_host(reason)));
    }
    let walks = on_gpu(comm, DeviceRank::load_ahead(stream.context()))?;
    let fitting = walks.values().map(|kernels| kernels.fitting).min().unwrap_or(1);
    let fits = agree_on(comm, CALL, fitting)?;
    let gpus = all.iter().zip(fits).map(|(one, fitting)| one.gpu(&all, fitting));
    let wanted = Wanted {
        least: all.iter().map(|one| one.least).max().unwrap_or(1),
        most: all.iter().map(|one| one.most).min().unwrap_or(u32::MAX),
    };
    let lanes = match comm.world() {
        1 => Some(LANES_ALONE.min(wanted.most)),
        _ => plan::lanes(&gpus.collect::<Vec<_>>(), &links, wanted),
    };
    let Some(lanes) = lanes else { return Ok(Err(through_host(NO_ROOM.to_owned()))) };
    // Of ranks that make other groups at this moment, one may have been faster.
    let mine = all[comm.rank()];
    // The kernels of a rank alone wait for no rank.
    let reserved = if comm.world() > 1 { lanes } else { 0 };
    let places = mine.gpu(&[], fitting).places;
    let blocks = ReservedBlocks::new(mine.uuid, reserved, places);
    let blocks = blocks.ok_or_else(|| NO_ROOM.to_owned());
    let shapes = plan::shapes(lanes, wanted.least, comm.world());
    let aside = on_gpu(comm, stream_aside(stream))?;
    let messages = on_gpu(comm, MessagePrograms::new(stream))?;
    let pending = PendingBoard::new(stream, &shapes, comm.world());
    let pending = on_gpu(comm, pending)?;
    let offers = agree_on(comm, CALL, pending.offer())?;
    warn_of_time_slices(comm, &offers);
    let table = use_table(comm, &offers)?;
    let board = pending.connect(comm.rank(), &offers, table);
    let ready = board.and_then(|board| {
        let probe = ReachProbe::new(comm, &board, &aside, &offers)?;
        Ok((board, probe))
    });
    let unreached = ready.as_ref().err().map(ToString::to_string);
    let reason = unreached.or(blocks.as_ref().err().cloned());
    // No rank starts a kernel before all ranks reach its mailbox.
    let told = comm.agree_on(CALL, &reason)?;
    // Equal on all ranks.
    let mut reason = told.into_iter().flatten().next();
    let (mut board, probe) = ready.ok().unzip();
    if let (None, Some(board)) = (&reason, &mut board) {
        let kernels = &walks[&DeviceRank::byte_module()];
        let found = probe.flatten().map_or(Ok(()), |probe| probe.run(comm, board, kernels));
        reason = comm.agree_on(CALL, &found.err())?.into_iter().flatten().next();
    }
    match (board, blocks, reason) {
        (Some(board), Ok(blocks), None) => {
            let _blocks = blocks;
            Ok(Ok(Connected { board, _blocks, lanes, fitting, links, walks, messages, aside }))
        }
        (board, blocks, reason) => {
            if let Some(board) = board {
                board.leave(Box::new((blocks, walks, messages)));
            }
            Ok(Err(through_host(reason.unwrap_or_default())))
        }
    }
}

fn through_host(reason: String) -> String {
    tracing::warn!("collectives on GPUs go through the host: {reason}");
    reason
}

/// The table of ranks that use the memory of others, if the ranks are in several processes. Without it, which
/// all ranks agree on, memory of a group is kept until the process ends.
fn use_table(comm: &mut Communicator, offers: &[Offer]) -> Result<Option<UseTable>> {
    if offers.iter().all(|offer| offer.process == offers[0].process) {
        return Ok(None);
    }
    let (me, ranks) = (comm.rank(), (0..comm.world()).collect::<Vec<_>>());
    let engine = comm.engine.get();
    let deadline = engine.limits().deadline();
    let bytes = UseTable::bytes(ranks.len());
    let made = engine.health().control().segment(&ranks, 0, bytes, deadline);
    let told = comm.agree_on(CALL, &made.is_ok())?;
    if told.iter().all(|made| *made) {
        return Ok(made.ok().map(|segment| UseTable::new(segment, me, offers)));
    }
    tracing::warn!(
        "the ranks share no memory of the host, so memory of this group stays allocated until its \
         processes end"
    );
    Ok(None)
}

/// Processes that share a GPU take turns on it, so a kernel that waits for another process waits
/// for that process's time slice.
fn warn_of_time_slices(comm: &Communicator, offers: &[Offer]) {
    let here = offers[comm.rank()];
    let shares = |other: &&Offer| other.uuid == here.uuid && other.process != here.process;
    if here.process == ProcessName::current() && offers.iter().any(|other| shares(&other)) {
        tracing::warn!(
            "rank {} shares GPU {} with another process: they take turns, which is slow; make \
             ranks that share a GPU threads of one process",
            comm.rank(),
            here.ordinal
        );
    }
}
