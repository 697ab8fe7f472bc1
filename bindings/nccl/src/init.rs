//! Makes and ends communicators.
//!
//! Work that waits for other ranks runs in a background thread, also while the caller blocks. So another
//! thread can abort it, and a group runs it concurrently for several ranks of one thread.

use crate::abi::{NO_COLOR, Settings, ncclComm_t, ncclConfig_t, ncclUniqueId};
use crate::address;
use crate::communicator::{self, Communicator, Engine, Made, Spot, Start, Task};
use crate::core::{self, Comm, Id};
use crate::error::{Failure, Progress};
use crate::group::{self, Job};
use crate::real::{self, RealMember};
use crate::trace::Line;
use crate::variables::{self, DebugLevel, put};
use cudarc::driver::CudaContext;
use maypole::Error;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The caller's place for the handle of a communicator.
#[derive(Clone, Copy)]
struct Place(*mut ncclComm_t);

// SAFETY: the caller keeps the place valid until the call has completed; in a group, until the group has;
// without blocking, until `ncclCommGetAsyncError` reports completion. There is no other writer.
unsafe impl Send for Place {}

impl Place {
    fn new(place: *mut ncclComm_t) -> Result<Self, Failure> {
        match place.is_null() {
            true => Err(Failure::argument("the place for the communicator is NULL")),
            false => Ok(Self(place)),
        }
    }

    fn put(self, handle: ncclComm_t) {
        // SAFETY: not NULL, and the caller keeps it valid, as above.
        unsafe { self.0.write(handle) };
    }

    /// Adds the new communicator to the trace, if the call has completed.
    fn trace(self, line: &mut Line, before: &str, progress: Progress) {
        if progress == Progress::Done && group::depth() == 0 {
            // SAFETY: not NULL, and written before.
            let made = communicator::find(unsafe { self.0.read() });
            line.details(|| match made {
                Ok(made) => format!("{before}made={}", made.number),
                Err(_) => before.trim_end_matches(',').to_owned(),
            });
        }
    }
}

/// Tags in the names of derived groups.
const SPLIT: u64 = 1;
const SHRINK: u64 = 2;

fn id_of(id: &ncclUniqueId) -> Id {
    Id::uninit(id.internal)
}

/// Validates the rank and the world of a join.
fn rank_of(rank: c_int, world: c_int) -> Result<(usize, usize), Failure> {
    match (usize::try_from(rank), usize::try_from(world)) {
        (Ok(rank), Ok(world)) if rank < world => Ok((rank, world)),
        _ => Err(Failure::argument(format!("there is no rank {rank} of {world} ranks"))),
    }
}

/// Connects to the other ranks of the group with this name.
fn meet(start: &Start, id: &Id) -> Result<Made, Failure> {
    let options = Communicator::options(&start.settings)?;
    let Start { rank, world, context, .. } = start;
    match Comm::from_rank_with(context, *rank, *world, *id, &options) {
        Ok(comm) => Ok(Made::Maypole(Box::new(comm))),
        // All ranks return this error together.
        Err(error @ Error::Device { .. }) if *world > 1 && real::is_named() => {
            RealMember::instead(start, id, error.into()).map(Made::Real)
        }
        Err(error) => Err(error.into()),
    }
}

/// Makes a communicator that is not connected yet, and the job that connects its ranks.
fn join(function: &'static str, start: Start) -> (Arc<Communicator>, Job) {
    let communicator = Communicator::joining(start);
    let own = communicator.clone();
    let work = move |task: &Task| {
        let made = own.joined(meet(&own, own.id()));
        if made.is_ok() {
            log_made(&own);
        }
        task.end(made);
    };
    let is_blocking = variables::is_blocking(&communicator.settings);
    let job =
        Job { function, communicator: communicator.clone(), is_blocking, work: Box::new(work) };
    (communicator, job)
}

/// Logs the properties of a new communicator.
fn log_made(communicator: &Communicator) {
    variables::log(DebugLevel::Info, || {
        let lanes = match communicator.comm() {
            Ok(comm) => {
                let place = comm.host_mailboxes();
                let place = place.map(|why| format!(", mailboxes in memory of the host: {why}"));
                let ways = comm.courier_ways();
                let ways = ways.map(|ways| format!(", couriers to {ways}")).unwrap_or_default();
                format!("at most {} lanes{}{ways}", comm.lanes(), place.unwrap_or_default())
            }
            Err(_) => "by NVIDIA's library".to_owned(),
        };
        format!(
            "communicator {} ({}): rank {} of {} on GPU {}, {lanes}",
            communicator.number,
            communicator.name(),
            communicator.rank,
            communicator.world,
            communicator.context.ordinal()
        )
    });
}

/// Makes this rank's communicator of the group `id`.
fn init_rank(
    line: &mut Line,
    function: &'static str,
    comm: *mut ncclComm_t,
    (rank, world): (c_int, c_int),
    id: Id,
    settings: Settings,
) -> Result<Progress, Failure> {
    line.count(usize::try_from(world).unwrap_or(0));
    line.peer(rank);
    group::noted((|| {
        let place = Place::new(comm)?;
        let (rank, world) = rank_of(rank, world)?;
        variables::log_start();
        core::preserving(|_| {
            let context = core::context(core::current_device()?)?;
            let spot = Spot::new(&id, context.ordinal());
            let start = Start { rank, world, context, settings, id, spot };
            let (communicator, job) = join(function, start);
            line.communicator(communicator.number);
            // Programs poll the handle while the ranks still connect.
            place.put(communicator.handle());
            group::run(vec![job])
        })
    })())
}

/// Makes the communicators of a group with one rank on each of these GPUs.
fn init_all(line: &mut Line, comms: *mut ncclComm_t, ordinals: &[usize]) -> Result<(), Failure> {
    let function = "ncclCommInitAll";
    variables::log_start();
    core::preserving(|_| {
        // All ranks are in this process.
        let id = Id::at("127.0.0.1")?;
        let contexts: Vec<Arc<CudaContext>> =
            ordinals.iter().map(|ordinal| core::context(*ordinal)).collect::<Result<_, _>>()?;
        let world = contexts.len();
        let mut jobs = Vec::with_capacity(world);
        for (rank, context) in contexts.into_iter().enumerate() {
            let settings = Settings { blocking: Some(true), ..Settings::default() };
            let spot = Spot::new(&id, context.ordinal());
            let start = Start { rank, world, context, settings, id, spot };
            let (communicator, job) = join(function, start);
            if rank == 0 {
                line.communicator(communicator.number);
            }
            // SAFETY: the caller passes room for as many handles as GPUs.
            Place(unsafe { comms.add(rank) }).put(communicator.handle());
            jobs.push(Job { is_blocking: true, ..job });
        }
        group::run(jobs).map(|_| ())
    })
}

/// Makes a communicator of the ranks with the same color.
fn split(
    line: &mut Line,
    comm: ncclComm_t,
    (color, key): (c_int, c_int),
    made: *mut ncclComm_t,
    config: *const ncclConfig_t,
) -> Result<Progress, Failure> {
    let parent = communicator::find(comm)?;
    line.communicator(parent.number);
    let said = format!("color={color},key={key},");
    line.details(|| said.trim_end_matches(',').to_owned());
    let place = Place::new(made)?;
    let color = match color {
        NO_COLOR => None,
        color => {
            let text = format!("there is no color {color}: use one from 0 on, or -1 for no group");
            Some(u32::try_from(color).map_err(|_| Failure::argument(text))?)
        }
    };
    // SAFETY: the caller passes NULL or settings.
    let settings = unsafe { ncclConfig_t::read(config, &parent.settings) }?;
    let options = Communicator::options(&settings)?;
    let engine = parent.engine()?;
    // Programs poll until the handle changes.
    place.put(std::ptr::null_mut());
    let number = u64::from(parent.splits.fetch_add(1, Relaxed));
    let id = parent.id().derived(&[SPLIT, number, color.map_or(u64::MAX, u64::from)]);
    let is_blocking = variables::is_blocking(&settings);
    let spot = Spot::new(&id, parent.context.ordinal());
    let own = parent.clone();
    let work = move |task: &Task| {
        let made = match &engine {
            Engine::Maypole(comm) => comm
                .split(color, key, &options)
                .map(|made| made.map(|comm| Made::Maypole(Box::new(comm))))
                .map_err(Failure::from),
            Engine::Real(real) => {
                core::on_gpu_of(&own.context, || Ok(real.split(color, key)?.map(Made::Real)))
            }
        };
        task.end_with(move || {
            let handle = match made? {
                None => std::ptr::null_mut(),
                Some(made) => {
                    let (rank, world) = made.place()?;
                    let context = own.context.clone();
                    let start = Start { rank, world, context, settings, id, spot };
                    let part = Communicator::ready(start, made);
                    log_made(&part);
                    part.handle()
                }
            };
            place.put(handle);
            Ok(())
        });
    };
    let function = "ncclCommSplit";
    let job = Job { function, communicator: parent, is_blocking, work: Box::new(work) };
    let progress = group::run(vec![job])?;
    place.trace(line, &said, progress);
    Ok(progress)
}

/// Makes a communicator without the excluded ranks, which may have exited.
fn shrink(
    line: &mut Line,
    comm: ncclComm_t,
    excluded: &[c_int],
    made: *mut ncclComm_t,
    config: *const ncclConfig_t,
    flags: c_int,
) -> Result<Progress, Failure> {
    let parent = communicator::find(comm)?;
    line.communicator(parent.number);
    let place = Place::new(made)?;
    let mut left: Vec<usize> = (0..parent.world).collect();
    for rank in excluded {
        let known = usize::try_from(*rank).ok().filter(|rank| *rank < parent.world);
        let rank = known.ok_or_else(|| {
            Failure::argument(format!("there is no rank {rank} of {} to exclude", parent.world))
        })?;
        left.retain(|other| *other != rank);
    }
    let rank = left
        .iter()
        .position(|rank| *rank == parent.rank)
        .ok_or_else(|| Failure::argument("a rank that is excluded does not call ncclCommShrink"))?;
    if !(0..=1).contains(&flags) {
        return Err(Failure::argument(format!("there are no flags {flags} of ncclCommShrink")));
    }
    // SAFETY: the caller passes NULL or settings.
    let settings = unsafe { ncclConfig_t::read(config, &parent.settings) }?;
    parent.check_ranks_known()?;
    let real = parent.real();
    if flags == 1 && real.is_none() {
        parent.revoke()?;
    }
    place.put(std::ptr::null_mut());
    // Each remaining rank computes the name of the new group. So the rendezvous needs neither the
    // excluded ranks nor the old communicator.
    let number = u64::from(parent.shrinks.fetch_add(1, Relaxed));
    let words = [SHRINK, number].into_iter().chain(left.iter().map(|rank| *rank as u64));
    let id = parent.id().derived(&words.collect::<Vec<_>>());
    let (world, context) = (left.len(), parent.context.clone());
    let is_blocking = variables::is_blocking(&settings);
    let spot = Spot::new(&id, context.ordinal());
    let start = Start { rank, world, context, settings, id, spot };
    let excluded = excluded.to_vec();
    let work = move |task: &Task| {
        let joined = match real {
            None => meet(&start, &start.id),
            Some(real) => {
                core::on_gpu_of(&start.context, || real.shrink(&excluded, flags).map(Made::Real))
            }
        };
        task.end_with(move || {
            let part = Communicator::ready(start, joined?);
            log_made(&part);
            place.put(part.handle());
            Ok(())
        });
    };
    let function = "ncclCommShrink";
    let job = Job { function, communicator: parent, is_blocking, work: Box::new(work) };
    let progress = group::run(vec![job])?;
    place.trace(line, "", progress);
    Ok(progress)
}

exported! {
    /// Makes the name of a group of ranks, which the program passes to all of them. It contains a
    /// secret key, so it is to be protected like a password.
    fn ncclGetUniqueId, pncclGetUniqueId(_line; id: *mut ncclUniqueId) {
        variables::refuse_comm_id()?;
        let made = address::new_id()?;
        let made = ncclUniqueId { internal: *made.internal() };
        // SAFETY: the caller passes a place for a name.
        unsafe { put(id, made, "the place for the name of the group") }
    }

    /// Makes this rank's communicator of the group `id`, on the current GPU. Waits until all ranks have
    /// called it.
    fn ncclCommInitRank, pncclCommInitRank(
        line;
        comm: *mut ncclComm_t,
        world: c_int,
        id: ncclUniqueId,
        rank: c_int,
    ) {
        let function = "ncclCommInitRank";
        init_rank(line, function, comm, (rank, world), id_of(&id), Settings::default())
    }

    /// `ncclCommInitRank` with settings.
    fn ncclCommInitRankConfig, pncclCommInitRankConfig(
        line;
        comm: *mut ncclComm_t,
        world: c_int,
        id: ncclUniqueId,
        rank: c_int,
        config: *mut ncclConfig_t,
    ) {
        // SAFETY: the caller passes NULL or settings.
        let settings = unsafe { ncclConfig_t::read(config, &Settings::default()) };
        let settings = group::noted(settings)?;
        let function = "ncclCommInitRankConfig";
        init_rank(line, function, comm, (rank, world), id_of(&id), settings)
    }

    /// `ncclCommInitRankConfig` with several names, of which the first counts.
    fn ncclCommInitRankScalable, pncclCommInitRankScalable(
        line;
        comm: *mut ncclComm_t,
        world: c_int,
        rank: c_int,
        names: c_int,
        ids: *mut ncclUniqueId,
        config: *mut ncclConfig_t,
    ) {
        let settings = group::noted((|| {
            if names < 1 || names > world || ids.is_null() {
                return Err(Failure::argument(format!("{names} names of the group of {world}")));
            }
            // SAFETY: the caller passes NULL or settings.
            unsafe { ncclConfig_t::read(config, &Settings::default()) }
        })())?;
        // SAFETY: the caller passes an array of names, which is not empty.
        let id = id_of(&unsafe { ids.read() });
        let function = "ncclCommInitRankScalable";
        init_rank(line, function, comm, (rank, world), id, settings)
    }

    /// Makes the communicators of a group whose ranks are GPUs of this process: `comms[r]` is that of
    /// `devices[r]`. NULL `devices` selects the first GPUs.
    fn ncclCommInitAll, pncclCommInitAll(
        line;
        comms: *mut ncclComm_t,
        count: c_int,
        devices: *const c_int,
    ) {
        group::noted((|| {
            if comms.is_null() {
                return Err(Failure::argument("the place for the communicators is NULL"));
            }
            let count = usize::try_from(count).ok().filter(|count| *count > 0);
            let count = count.ok_or_else(|| Failure::argument("a group has a GPU"))?;
            line.count(count);
            let all = core::preserving(|driver| Ok(driver.devices()))?;
            let ordinals: Vec<usize> = match devices.is_null() {
                true => (0..count).collect(),
                false => {
                    // SAFETY: the caller passes an array of `count` numbers.
                    let numbers = unsafe { std::slice::from_raw_parts(devices, count) };
                    numbers.iter().map(|gpu| usize::try_from(*gpu).unwrap_or(usize::MAX)).collect()
                }
            };
            match ordinals.iter().find(|ordinal| **ordinal >= all) {
                None => init_all(line, comms, &ordinals),
                Some(_) => Err(Failure::argument(format!(
                    "there is no such GPU: this process sees {all} of them"
                ))),
            }
        })())
    }

    /// Makes a communicator of the ranks with the same color, in the order of their keys. All ranks call
    /// it. A rank with color -1 receives NULL.
    fn ncclCommSplit, pncclCommSplit(
        line;
        comm: ncclComm_t,
        color: c_int,
        key: c_int,
        made: *mut ncclComm_t,
        config: *mut ncclConfig_t,
    ) {
        group::noted(split(line, comm, (color, key), made, config))
    }

    /// Makes a communicator without the excluded ranks, in the same order. The remaining ranks call it;
    /// the excluded ones may have exited. Flag 1 aborts the calls of `comm` first.
    fn ncclCommShrink, pncclCommShrink(
        line;
        comm: ncclComm_t,
        excluded: *mut c_int,
        count: c_int,
        made: *mut ncclComm_t,
        config: *mut ncclConfig_t,
        flags: c_int,
    ) {
        let excluded: &[c_int] = match usize::try_from(count) {
            // SAFETY: the caller passes an array of `count` ranks.
            Ok(count) if !excluded.is_null() => unsafe {
                std::slice::from_raw_parts(excluded, count)
            },
            Ok(0) => &[],
            _ => {
                let wrong = Err(Failure::argument("the ranks to exclude are NULL"));
                return group::noted(wrong);
            }
        };
        group::noted(shrink(line, comm, excluded, made, config, flags))
    }

    /// Waits until the calls of this rank have completed. After that the communicator can only be
    /// destroyed.
    fn ncclCommFinalize, pncclCommFinalize(line; comm: ncclComm_t) {
        group::noted((|| {
            let communicator = communicator::find(comm)?;
            line.communicator(communicator.number);
            let engine = communicator.start_finalize()?;
            let context = communicator.context.clone();
            let work = move |task: &Task| {
                let done = match &engine {
                    Engine::Maypole(comm) => comm.finalize().map_err(Failure::from),
                    Engine::Real(real) => core::on_gpu_of(&context, || real.finalize()),
                };
                // The caller may destroy the communicator next, so this reference is dropped before.
                drop(engine);
                task.end(done);
            };
            let function = "ncclCommFinalize";
            let is_blocking = variables::is_blocking(&communicator.settings);
            group::run(vec![Job { function, communicator, is_blocking, work: Box::new(work) }])
        })())
    }

    /// Ends the communicator when the calls of this rank have completed. Invalidates the handle. NULL is
    /// ignored.
    fn ncclCommDestroy, pncclCommDestroy(line; comm: ncclComm_t) {
        if comm.is_null() {
            return Ok(());
        }
        let communicator = communicator::remove(comm)?;
        line.communicator(communicator.number);
        core::preserving(|_| communicator.destroy())
    }

    /// Aborts the calls of this rank immediately, and ends its communicator. Does not wait for other
    /// ranks. Invalidates the handle. NULL is ignored.
    fn ncclCommAbort, pncclCommAbort(line; comm: ncclComm_t) {
        if comm.is_null() {
            return Ok(());
        }
        let communicator = communicator::remove(comm)?;
        line.communicator(communicator.number);
        core::preserving(|_| communicator.abort())
    }

    /// Aborts the calls of this rank immediately. The communicator remains: `ncclCommShrink` makes
    /// another one of it.
    fn ncclCommRevoke, pncclCommRevoke(line; comm: ncclComm_t, flags: c_int) {
        let communicator = communicator::find(comm)?;
        line.communicator(communicator.number);
        match flags {
            0 => core::preserving(|_| communicator.revoke()),
            flags => {
                let text = format!("there are no flags {flags} of ncclCommRevoke");
                Err(Failure::argument(text))
            }
        }
    }
}
