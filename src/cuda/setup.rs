//! Ranks test whether their GPUs reach one another's memory, and make mailboxes there.

use super::agreed::{CALL, Found, agree_on, first_of, shared_segment, use_table};
use super::courier::CourierThread;
use super::gpu_direct;
use super::links::{self, Introduction};
use super::options::CommOptions;
use super::place::{self, CourierWays, MailboxPlace};
use super::plan::{self, Wanted};
use super::probe::ReachProbe;
use super::programs::MessagePrograms;
use super::rails;
use super::rank::{Connected, DeviceRank};
use crate::comm::Communicator;
use crate::error::Result;
use crate::topology::DeviceLinks;
use cudarc::driver::CudaStream;
use maypole_kernels::cuda::WalkKernels;
use maypole_kernels::packed::MOST_RANKS;
use maypole_transports::cuda::{
    BesideCapture, DeviceBoard, GroupRank, PendingBoard, ReservedBlocks, Shapes, stream_aside,
};
use std::collections::HashMap;
use std::sync::Arc;

/// Lanes of a rank alone.
const LANES_ALONE: u32 = 16;

/// Why there are no mailboxes if too many groups use the GPUs.
const NO_ROOM: &str = "the groups that the processes have on some GPU have reserved all of its \
                       multiprocessors, because all blocks of all groups must run at the same time: \
                       use fewer groups, fewer blocks for each (NCCL_MAX_CTAS, maxCTAs or \
                       CommOptions::most_lanes), or fewer ranks on a GPU";

/// The result of a GPU, or the error of this rank and all others.
fn on_gpu<T>(comm: &mut Communicator, done: std::result::Result<T, impl ToString>) -> Result<T> {
    done.map_err(|why| comm.engine.get_mut().health.device_failed(CALL.to_owned(), why.to_string()))
}

/// The mailboxes of all ranks of `comm`. Collective.
///
/// # Errors
/// [`Error::Device`](crate::Error::Device) if they cannot be made, for a reason that is equal on all ranks, or if a
/// GPU has no memory for them; else as every call.
pub(super) fn connect(
    comm: &mut Communicator,
    stream: &Arc<CudaStream>,
    options: &CommOptions,
) -> Result<Connected> {
    find(comm, stream, options).and_then(|found| on_gpu(comm, found))
}

/// The mailboxes, or why there are none, which is equal on all ranks.
fn find(
    comm: &mut Communicator,
    stream: &Arc<CudaStream>,
    options: &CommOptions,
) -> Result<Found<Connected>> {
    // No capture of the program, in any thread, includes this work.
    let _beside = BesideCapture::begin();
    let mine = on_gpu(comm, Introduction::of(stream.context(), options))?;
    let all = agree_on(comm, CALL, mine)?;
    let world = comm.world();
    if world > MOST_RANKS as usize {
        return Ok(Err(format!("mailboxes serve at most {MOST_RANKS} ranks")));
    }
    let (links, refused) = links::find(comm, CALL, &all)?;
    let walks = on_gpu(comm, DeviceRank::load_ahead(stream.context()))?;
    let fitting = walks.values().map(|kernels| kernels.fitting).min().unwrap_or(1);
    let fits = agree_on(comm, CALL, fitting)?;
    let gpus: Vec<_> = all.iter().zip(fits).map(|(one, fits)| one.gpu(&all, fits)).collect();
    let bounds = Wanted {
        least: all.iter().map(|one| one.least).max().unwrap_or(1),
        most: all.iter().map(|one| one.most).min().unwrap_or(u32::MAX),
    };
    let lanes = match world {
        1 => Some(LANES_ALONE.min(bounds.most)),
        _ => plan::lanes(&gpus, &links, bounds),
    };
    let Some(lanes) = lanes else { return Ok(Err(NO_ROOM.to_owned())) };
    warn_of_time_slices(comm, &all, stream.context().ordinal());
    let wanted = all.iter().map(|one| one.wanted).max().unwrap_or_default();
    let far = (!comm.hosts().is_one()).then(|| "the ranks are on several hosts".to_owned());
    let forced = (wanted == place::HOST).then(|| "MAYPOLE_CUDA_MAILBOXES=host".to_owned());
    let ways = on_gpu(comm, place::courier_ways())?;
    let group = NewGroup { stream, all, lanes, least: bounds.least, walks, fitting, links, ways };
    // A rank alone reaches its own GPU.
    let made = match far.or(forced).or(refused).filter(|_| world > 1) {
        None => group.connect(comm, None, false)?,
        Some(reason) => Err(reason),
    };
    let mut reason = match made {
        Err(reason) if wanted != place::PEER && world > 1 => reason,
        made => return Ok(made),
    };
    if let Some(is_forced) = gpu_direct::is_wanted(comm, ways)? {
        let described = format!("{reason}; publications are in the memory of the GPUs (GPUDirect)");
        match group.connect(comm, Some(described), true)? {
            Ok(made) => return Ok(Ok(made)),
            Err(why) if is_forced => {
                return on_gpu(comm, Err(format!("MAYPOLE_CUDA_COURIERS=gpudirect: {why}")));
            }
            Err(why) => {
                let refused = "publications, too, as GPUDirect is not possible";
                reason = format!("{reason}; {refused}: {why}");
            }
        }
    }
    let made = group.connect(comm, Some(reason.clone()), false)?;
    Ok(made.map_err(|why| format!("{reason}; and mailboxes in memory of the host: {why}")))
}

/// A group whose ranks know one another's GPUs.
struct NewGroup<'a> {
    stream: &'a Arc<CudaStream>,
    /// By rank.
    all: Vec<Introduction>,
    /// Blocks of a call, at most and at least.
    lanes: u32,
    least: u32,
    walks: HashMap<String, WalkKernels>,
    /// Blocks of each kernel that a multiprocessor of this GPU has room for.
    fitting: u32,
    links: DeviceLinks,
    ways: CourierWays,
}

impl NewGroup<'_> {
    /// Makes mailboxes on the GPUs, or in memory of the host for a reason, but their slots on the GPUs if
    /// `is_direct`. Collective.
    fn connect(
        &self,
        comm: &mut Communicator,
        in_host: Option<String>,
        is_direct: bool,
    ) -> Result<Found<Connected>> {
        if let Some(reason) = &in_host {
            tracing::info!("the mailboxes of the GPUs are in memory of the host: {reason}");
        }
        let place = match in_host {
            None => MailboxPlace::Gpus,
            Some(_) if comm.hosts().is_one() => MailboxPlace::Host,
            Some(_) => MailboxPlace::Hosts,
        };
        let (stream, world, fitting) = (self.stream, comm.world(), self.fitting);
        let lanes = self.lanes.min(plan::limits(place).0);
        // Of ranks that make other groups at this moment, one may have been faster.
        let mine = self.all[comm.rank()];
        // The kernels of a rank alone wait for no rank.
        let reserved = if world > 1 { lanes } else { 0 };
        let blocks = ReservedBlocks::new(mine.uuid, reserved, mine.gpu(&[], fitting).places);
        let shapes = plan::shapes(place, lanes, self.least, &self.links);
        let shapes = Shapes { slots_on_gpus: is_direct, ..shapes };
        let walks = self.walks.clone();
        let aside = on_gpu(comm, stream_aside(stream))?;
        let messages = on_gpu(comm, MessagePrograms::new(stream))?;
        let board = match place {
            MailboxPlace::Gpus => self.on_gpus(comm, &shapes)?,
            MailboxPlace::Host | MailboxPlace::Hosts => self.in_host(comm, &shapes)?,
        };
        let courier = match &board {
            Ok(board) if place == MailboxPlace::Hosts => Some(courier(comm, board, self.ways)?),
            _ => None,
        };
        let (courier, refused) = match courier.transpose() {
            Ok(courier) => (courier, None),
            Err(why) => (None, Some(why)),
        };
        let no_room = refused.or_else(|| blocks.is_none().then(|| NO_ROOM.to_owned()));
        let kernels = &walks[&DeviceRank::byte_module()];
        let made = (board, no_room);
        let (board, reason) = self.probed(comm, made, courier.as_ref(), &aside, kernels)?;
        match (board, blocks, reason) {
            (Some(board), Some(_blocks), None) => {
                courier.iter().for_each(CourierThread::rely_on);
                let links = self.links.clone();
                Ok(Ok(Connected {
                    board,
                    place,
                    in_host,
                    courier,
                    _blocks,
                    lanes,
                    fitting,
                    links,
                    walks,
                    messages,
                    aside,
                }))
            }
            (board, _, reason) => {
                courier.into_iter().for_each(|courier| courier.end(comm.timeout()));
                // The kernels of the probe have ended, so their blocks are free for other mailboxes.
                if let Some(board) = board {
                    board.leave(Box::new((walks, messages)));
                }
                Ok(Err(reason.unwrap_or_default()))
            }
        }
    }

    /// Moves a few bytes through the mailboxes, unless there is no room. Returns them, and why all ranks do
    /// not use them, which is equal on all. Collective.
    fn probed(
        &self,
        comm: &mut Communicator,
        (board, no_room): (Found<DeviceBoard>, Option<String>),
        courier: Option<&CourierThread>,
        aside: &CudaStream,
        kernels: &WalkKernels,
    ) -> Result<(Option<DeviceBoard>, Option<String>)> {
        let ready = board.and_then(|board| {
            let probe = ReachProbe::new(&self.all, comm.rank(), &board, aside);
            probe.map(|probe| (board, probe)).map_err(|error| error.to_string())
        });
        // No rank starts a kernel before all ranks reach its mailbox.
        let mut reason = first_of(comm, ready.as_ref().err().cloned().or(no_room))?;
        let (mut board, probe) = ready.ok().unzip();
        if let (None, Some(board)) = (&reason, &mut board) {
            let found = probe.flatten().map_or(Ok(()), |probe| probe.run(comm, board, kernels));
            let me = comm.rank();
            let lost = courier.and_then(CourierThread::lost);
            let lost = lost.map(|why| format!("rank {me}: {why}"));
            reason = first_of(comm, lost.or(found.err()))?;
        }
        Ok((board, reason))
    }

    fn rank(&self, comm: &Communicator) -> GroupRank {
        GroupRank { group: self.all[0].number, rank: comm.rank(), ranks: comm.world() }
    }

    fn on_gpus(&self, comm: &mut Communicator, shapes: &Shapes) -> Result<Found<DeviceBoard>> {
        let pending = PendingBoard::new(self.stream, shapes, self.rank(comm));
        let pending = on_gpu(comm, pending)?;
        let offers = agree_on(comm, CALL, pending.offer())?;
        let table = use_table(comm, &offers)?;
        Ok(pending.connect(&offers, table).map_err(|error| error.to_string()))
    }

    fn in_host(&self, comm: &mut Communicator, shapes: &Shapes) -> Result<Found<DeviceBoard>> {
        let offered = shapes
            .slots_on_gpus
            .then(|| gpu_direct::offered(comm, self.stream, shapes, self.ways))
            .transpose()?;
        let offered = match offered.transpose() {
            Ok(offered) => offered,
            Err(why) => return Ok(Err(why)),
        };
        let segment = shared_segment(comm, 1, DeviceBoard::bytes_in_host(shapes, comm.world()))?;
        let rank = self.rank(comm);
        let board = |segment| DeviceBoard::in_host(self.stream, shapes, rank, segment, offered);
        let made = segment.and_then(|segment| board(segment).map_err(|error| error.to_string()));
        // No courier starts if some rank has no copy of the mailboxes.
        let Some(why) = first_of(comm, made.as_ref().err().cloned())? else { return Ok(made) };
        if let Ok(board) = made {
            board.leave(Box::new(()));
        }
        Ok(Err(why))
    }
}

/// The courier of this rank, at work; or why adapters do not reach the slots of some GPU, which is equal on all
/// ranks. Collective.
fn courier(
    comm: &mut Communicator,
    board: &DeviceBoard,
    ways: CourierWays,
) -> Result<Found<CourierThread>> {
    let (me, hosts) = (comm.rank(), comm.hosts());
    let far: Vec<_> = (0..comm.world()).filter(|rank| !hosts.together(*rank, me)).collect();
    let direct = ways != CourierWays::Stream;
    let engine = comm.engine.get_mut();
    let streams = engine.streams_of_device(CALL, &far)?;
    let streams = far.into_iter().zip(streams).collect();
    let (streams, ways) = match rails::all_streams(comm, CALL, board, streams, direct)? {
        Ok(made) => made,
        Err(why) => return Ok(Err(why)),
    };
    let courier = board.courier(me, streams);
    let thread = CourierThread::start(courier, comm.engine.get().device_witness(), ways);
    let thread = on_gpu(comm, thread)?;
    // Without slots on GPUs there is nothing else that the group could use.
    if !board.has_slots_on_gpus() {
        thread.rely_on();
    }
    Ok(Ok(thread))
}

/// Processes that share a GPU take turns on it, so a kernel that waits for another process waits
/// for that process's time slice.
fn warn_of_time_slices(comm: &Communicator, all: &[Introduction], ordinal: usize) {
    let here = all[comm.rank()];
    let shares = |other: &&Introduction| other.uuid == here.uuid && other.process != here.process;
    if all.iter().any(|other| shares(&other)) {
        tracing::warn!(
            "rank {} shares GPU {ordinal} with another process: they take turns, which is slow; make \
             ranks that share a GPU threads of one process",
            comm.rank()
        );
    }
}
