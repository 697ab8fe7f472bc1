//! A group of ranks, those along an axis of the mesh. The collectives of a step are called through
//! it.
//!
//! A [`RankGroup`] is a handle that can be cloned, because several parts of a model use the same
//! ranks. A group of one calls no collective. A [`Timeline`] records the time in blocking calls, and
//! the waits for started calls, as [`RankActivity::Wait`]: exposed communication, without overlap. The
//! time of a started call itself, on its background thread, is recorded as
//! [`RankActivity::Communication`].

use crate::ranks::memory::MemoryKind;
use crate::ranks::shard::Shard;
use crate::ranks::timeline::{RankActivity, Timeline, UnderWay};
use crate::tensor::math::{FloatElement, take};
use maypole::{
    Arena, Communicator, Element, Error, FailureKind, FirstFailure, ReduceOp, Request, Result,
};
use std::cell::RefCell;
use std::ops::DerefMut;
use std::rc::Rc;

/// The order in which the contributions of ranks are added.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum SumOrder {
    /// The fastest order. It is the same on all ranks, and depends on the number of ranks.
    #[default]
    Fast,
    /// In the order of ranks, `((rank 0 + rank 1) + rank 2) + ...`, as one process adds them one by
    /// one. This is the library's deterministic mode.
    Ranks,
}

/// A handle on the ranks of one axis.
#[derive(Clone, Debug)]
pub struct RankGroup {
    rank: usize,
    world: usize,
    order: SumOrder,
    timeline: Timeline,
    inner: Rc<RefCell<GroupState>>,
}

#[derive(Debug, Default)]
struct GroupState {
    comm: Option<Communicator>,
    calls: u64,
}

impl RankGroup {
    /// The group of the ranks of `comm`, which sums in `order`.
    pub fn new(comm: Communicator, order: SumOrder) -> Self {
        Self::noting(comm, order, Timeline::default())
    }

    /// [`new`](Self::new), with its calls noted in `timeline`.
    fn noting(mut comm: Communicator, order: SumOrder, timeline: Timeline) -> Self {
        comm.set_deterministic(order == SumOrder::Ranks);
        let rank = comm.rank();
        let world = comm.world();
        let inner = GroupState { comm: Some(comm), calls: 0 };
        Self { rank, world, order, timeline, inner: Rc::new(RefCell::new(inner)) }
    }

    /// A group of this rank alone, without a communicator.
    pub fn single() -> Self {
        Self {
            rank: 0,
            world: 1,
            order: SumOrder::Ranks,
            timeline: Timeline::default(),
            inner: Rc::default(),
        }
    }

    /// This rank, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The number of ranks in the group.
    pub fn world(&self) -> usize {
        self.world
    }

    /// This rank's part of anything that is divided over the group.
    pub fn shard(&self) -> Shard {
        Shard { index: self.rank, of: self.world }
    }

    /// Returns the timeline of the calls of this group and of the groups that were split off it.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Returns the number of this group's calls so far.
    pub fn calls(&self) -> u64 {
        self.inner.borrow().calls
    }

    /// Returns the payload bytes that this rank has sent to the others so far, as the library
    /// counts them. Waits for calls in flight.
    pub fn payload(&self) -> u64 {
        self.inner.borrow().comm.as_ref().map_or(0, |comm| comm.counters().payload())
    }

    /// Runs `call` with the group's communicator, and notes its time as waiting.
    ///
    /// # Errors
    /// As `call`.
    ///
    /// # Panics
    /// If this is the group of one, which has no communicator.
    pub fn call<R>(&self, call: impl FnOnce(&mut Communicator) -> Result<R>) -> Result<R> {
        let mut inner = self.inner.borrow_mut();
        inner.calls += 1;
        let comm = inner.comm.as_mut().expect("a group of one rank calls no collective");
        // Memory that the library keeps for later calls is not of the kind that the caller counts.
        self.timeline.record(RankActivity::Wait, || MemoryKind::Other.hold(|| call(comm)))
    }

    /// Aborts the group on all ranks with the cause `why`. Their calls fail with this error, and so do
    /// those of all groups of the same world. Returns the error of this rank.
    pub fn abort(&self, why: &str) -> Error {
        if let Some(comm) = &self.inner.borrow().comm {
            comm.abort(why);
        }
        let cause = FirstFailure::new(FailureKind::UserAbort, Some(self.rank), why);
        let (rank, operation, sequence) = (self.rank, "a step".into(), self.calls());
        Error::Aborted { rank, operation, sequence, cause }
    }

    /// Makes an arena of `bytes` bytes: memory for registered buffers, which all ranks of a host map, so
    /// that collectives read a large vector in place. All ranks call it.
    ///
    /// Ranks that share no memory, and the group of one, get an arena without memory. Its buffers
    /// are private, and every call takes them as it takes a `Vec`.
    ///
    /// # Errors
    /// As the library's [`arena`](Communicator::arena).
    pub fn arena(&self, bytes: usize) -> Result<Arena> {
        match &mut self.inner.borrow_mut().comm {
            Some(comm) => MemoryKind::Other.hold(|| comm.arena(bytes)),
            None => Ok(Arena::empty()),
        }
    }

    /// Forms a new group of the ranks of equal `color`, ordered by `key` and then by rank. All
    /// ranks call it.
    ///
    /// # Errors
    /// As the library's `split`.
    pub fn split(&self, color: usize, key: usize) -> Result<Self> {
        let alone = Self { timeline: self.timeline.clone(), ..Self::single() };
        if self.world == 1 {
            return Ok(alone);
        }
        let comm = self.call(|comm| comm.split(Some(color as u64), key as i64))?;
        let comm = comm.expect("a rank with a color is in a group");
        Ok(if comm.world() == 1 {
            alone
        } else {
            Self::noting(comm, self.order, self.timeline.clone())
        })
    }

    /// All-reduces `data`: every rank's `data` becomes the sum.
    ///
    /// # Errors
    /// As the library's.
    pub fn all_reduce<T: FloatElement>(&self, data: &mut [T]) -> Result<()> {
        if self.world == 1 {
            return Ok(());
        }
        self.call(|comm| comm.all_reduce(data, ReduceOp::Sum))
    }

    /// Reduce-scatters `data`. This rank's [`shard`](Self::shard) of `data` becomes that part of the
    /// sum; the rest of the buffer is undefined.
    ///
    /// # Errors
    /// As the library's.
    pub fn reduce_scatter<T: FloatElement>(&self, data: &mut [T]) -> Result<()> {
        if self.world == 1 {
            return Ok(());
        }
        let mine = self.shard().range(data.len());
        let counts = self.counts(data.len());
        let mut sum = vec![T::zero(); mine.len()];
        self.call(|comm| comm.reduce_scatter((&*data, &counts, &mut sum), ReduceOp::Sum))?;
        data[mine].copy_from_slice(&sum);
        Ok(())
    }

    /// Fills `data` with the parts of all ranks, in rank order. On entry this rank's part is
    /// its [`shard`](Self::shard) of `data`.
    ///
    /// # Errors
    /// As the library's.
    pub fn all_gather<T: Element>(&self, data: &mut [T]) -> Result<()> {
        if self.world == 1 {
            return Ok(());
        }
        let mine = data[self.shard().range(data.len())].to_vec();
        self.all_gather_into(&mine, data)
    }

    /// Fills `data` with the parts of all ranks, in rank order. `mine` is this rank's part, as
    /// long as this rank's [`shard`](Self::shard) of `data`.
    ///
    /// # Errors
    /// As the library's.
    pub fn all_gather_into<T: Element>(&self, mine: &[T], data: &mut [T]) -> Result<()> {
        if self.world == 1 {
            data.copy_from_slice(mine);
            return Ok(());
        }
        let counts = self.counts(data.len());
        self.call(|comm| comm.all_gather((mine, data, &counts)))
    }

    /// Returns the `input` of all ranks, in rank order. All inputs have the same length.
    ///
    /// # Errors
    /// As the library's.
    pub fn gather<T: Element>(&self, input: &[T]) -> Result<Vec<T>> {
        if self.world == 1 {
            return Ok(input.to_vec());
        }
        let mut all = input.repeat(self.world);
        self.call(|comm| comm.all_gather((input, &mut all)))?;
        Ok(all)
    }

    /// Returns the `input` of each rank, in rank order. Inputs may differ in length.
    ///
    /// # Errors
    /// As the library's.
    pub fn gather_lists<T: Element + Default>(&self, input: &[T]) -> Result<Vec<Vec<T>>> {
        let counts: Vec<usize> =
            self.gather(&[input.len() as u64])?.into_iter().map(|len| len as usize).collect();
        if self.world == 1 {
            return Ok(vec![input.to_vec()]);
        }
        let mut all = vec![T::default(); counts.iter().sum()];
        self.call(|comm| comm.all_gather((input, &mut all, &counts)))?;
        let mut rest = &all[..];
        Ok(counts.into_iter().map(|len| take(&mut rest, len).to_vec()).collect())
    }

    /// Broadcasts `bytes` of rank `root`, and returns them on every rank.
    ///
    /// # Errors
    /// As the library's.
    pub fn broadcast_bytes(&self, bytes: Vec<u8>, root: usize) -> Result<Vec<u8>> {
        if self.world == 1 {
            return Ok(bytes);
        }
        self.call(|comm| comm.broadcast_bytes(bytes, root))
    }

    /// Returns the sum of `mine` over all ranks, always added in rank order.
    ///
    /// # Errors
    /// As the library's.
    pub fn sum(&self, mine: f64) -> Result<f64> {
        Ok(self.gather(&[mine])?.into_iter().sum())
    }

    /// Starts [`all_reduce`](Self::all_reduce); [`PendingCollective::wait`] returns the result.
    ///
    /// # Errors
    /// As the library's.
    pub fn start_all_reduce<T, B>(&self, data: B) -> Result<PendingCollective<T, B>>
    where
        T: FloatElement,
        B: DerefMut<Target = [T]> + Send + 'static,
    {
        let call = |comm: &mut Communicator, data: &mut B, _: &mut Vec<T>| {
            comm.all_reduce(&mut **data, ReduceOp::Sum)
        };
        Ok(self.start(data, |_| Vec::new(), call))
    }

    /// Starts [`reduce_scatter`](Self::reduce_scatter); [`PendingCollective::wait`] returns the
    /// result.
    ///
    /// # Errors
    /// As the library's.
    pub fn start_reduce_scatter<T: FloatElement>(
        &self,
        data: Vec<T>,
    ) -> Result<PendingCollective<T>> {
        let mine = self.shard().range(data.len());
        let (counts, length) = (self.counts(data.len()), mine.len());
        let call = move |comm: &mut Communicator, data: &mut Vec<T>, sum: &mut Vec<T>| {
            comm.reduce_scatter((&*data, &counts, &mut *sum), ReduceOp::Sum)?;
            data[mine].copy_from_slice(sum);
            Ok(())
        };
        Ok(self.start(data, |_| vec![T::zero(); length], call))
    }

    /// Starts [`all_gather`](Self::all_gather); [`PendingCollective::wait`] returns the result.
    ///
    /// # Errors
    /// As the library's.
    pub fn start_all_gather<T: Element>(&self, data: Vec<T>) -> Result<PendingCollective<T>> {
        let mine = self.shard().range(data.len());
        let counts = self.counts(data.len());
        let call = move |comm: &mut Communicator, data: &mut Vec<T>, mine: &mut Vec<T>| {
            comm.all_gather((&*mine, data, &counts))
        };
        Ok(self.start(data, |data| data[mine].to_vec(), call))
    }

    /// Starts `call` on `data` and on a buffer that `part` makes of it. A group of one rank calls
    /// nothing.
    fn start<T: Send + 'static, B: Send + 'static>(
        &self,
        data: B,
        part: impl FnOnce(&B) -> Vec<T>,
        call: impl FnOnce(&mut Communicator, &mut B, &mut Vec<T>) -> Result<()> + Send + 'static,
    ) -> PendingCollective<T, B> {
        let mut inner = self.inner.borrow_mut();
        let GroupState { comm, calls } = &mut *inner;
        let timeline = self.timeline.clone();
        let Some(comm) = comm else {
            return PendingCollective { way: PendingKind::Done(data), timeline, under_way: None };
        };
        *calls += 1;
        let buffers = (part(&data), data);
        let recorded = timeline.clone();
        let request = MemoryKind::Other.hold(|| {
            comm.start(buffers, move |comm, (part, data)| {
                recorded.record(RankActivity::Communication, || call(comm, data, part))
            })
        });
        let under_way = Some(timeline.begin());
        PendingCollective { way: PendingKind::Started(request), timeline, under_way }
    }

    /// Returns the number of elements in each rank's part of `len`. A thread that runs a call later
    /// frees it, so it is not of the kind that the caller counts.
    fn counts(&self, len: usize) -> Vec<usize> {
        let part = |index| Shard { index, of: self.world }.range(len).len();
        MemoryKind::Other.hold(|| (0..self.world).map(part).collect())
    }
}

/// A collective in flight on a buffer `B`, while this rank computes.
#[derive(Debug)]
#[must_use = "`wait` returns the result"]
pub struct PendingCollective<T, B = Vec<T>> {
    way: PendingKind<T, B>,
    timeline: Timeline,
    /// None for a group of one.
    #[allow(dead_code, reason = "it counts as under way until it is dropped")]
    under_way: Option<UnderWay>,
}

#[derive(Debug)]
enum PendingKind<T, B> {
    Done(B),
    /// This rank's part, and the whole.
    Started(Request<(Vec<T>, B)>),
}

impl<T: Copy, B: DerefMut<Target = [T]>> PendingCollective<T, B> {
    /// Waits for the collective, and returns its result: all of `data`.
    ///
    /// # Errors
    /// As the library's.
    pub fn wait(self) -> Result<B> {
        let way = self.way;
        let wait = || match way {
            PendingKind::Done(data) => Ok(data),
            PendingKind::Started(request) => Ok(request.wait()?.1),
        };
        self.timeline.record(RankActivity::Wait, || MemoryKind::Other.hold(wait)) // As in `call`.
    }
}
