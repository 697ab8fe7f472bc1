//! The front door: a group of ranks that call collectives together.

mod api;
mod control;
pub mod element;
mod engine;
pub mod error;
mod requests;

use crate::comm::element::{Element, Loan, ReduceOp, lend};
use crate::comm::error::{Error, Result};
pub use crate::execute::Moved;
use crate::schedule::collective::Collective;
use crate::schedule::hosts::{Boards, Hosts};
pub use api::counters::{Counters, Sent};
pub use api::messages::Group;
pub use api::operation::Operation;
pub use api::within::Within;
pub use control::join::{Transport, UnknownTransport};
pub use control::local::Local;
use engine::Engine;
use engine::call::Call;
use engine::counts::Count;
use engine::surroundings::Surroundings;
use maypole_kernels::{View, ViewMut};
use requests::home::Home;
pub use requests::request::{Request, wait_all};
pub use requests::scope::Scope;
use std::time::Duration;

/// How long a wait for a peer lasts unless `MAYPOLE_TIMEOUT` says otherwise.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);

/// One rank's membership in a group of ranks that call collectives together.
///
/// All ranks of a communicator call the same collectives in the same order; `&mut self` makes that
/// easy to keep within a rank. A call blocks until this rank's part is done; a
/// [request](Self::start) is a call that does not. Calls that do not match are errors on every
/// rank, not hangs; so are peers that die and peers that never come (see [`Error`]).
///
/// A communicator may be sent to other threads (`Send`), but is used by one at a time (not `Sync`),
/// because the order of its calls is what ranks agree by. Threads that call collectives each on
/// their own have a communicator each: see [`duplicate`](Self::duplicate) and
/// [`split`](Self::split). Requests may be waited for in any thread.
///
/// The same calls give the same bits on every run, and all ranks of an all-reduce the same ones; in
/// which order floats are combined is the tuner's choice, unless
/// [`set_deterministic`](Self::set_deterministic) takes it away.
///
/// Counts are elements. `count` below is the length of a vector (broadcast, reduce, all-reduce) or
/// of one rank's block (all others); `world` is the number of ranks.
///
/// ```
/// use maypole::{Communicator, ReduceOp};
/// let sums = Communicator::run_local(4, |mut comm| {
///     let mut x = [comm.rank() as f32, 1.0];
///     comm.all_reduce(&mut x, ReduceOp::Sum).unwrap();
///     x
/// });
/// assert_eq!(sums, [[6.0, 4.0]; 4]);
/// ```
#[derive(Debug)]
pub struct Communicator {
    engine: Home,
    /// Where the ranks run, whatever joins them.
    hosts: Hosts,
    /// Where all ranks run, whatever group they are in.
    surroundings: Surroundings,
    left: bool,
}

impl Communicator {
    fn new(engine: Engine, hosts: Hosts) -> Self {
        Self { surroundings: engine.surroundings, engine: Home::new(engine), hosts, left: false }
    }

    /// `world` communicators of ranks that are threads of this process: each goes to a thread of
    /// its own. For tests, lessons and trainers that use threads; [`Local`] has the options.
    ///
    /// # Panics
    /// If `world` is zero.
    pub fn local(world: usize) -> Vec<Self> {
        Local::new(world).build()
    }

    /// Runs `rank` on `world` threads, each with its communicator, and gives what they returned, by
    /// rank.
    ///
    /// # Panics
    /// If `world` is zero, or with the first panic of a rank.
    pub fn run_local<T: Send>(world: usize, rank: impl Fn(Self) -> T + Sync) -> Vec<T> {
        Local::new(world).run(rank)
    }

    /// This rank, from 0 to `world - 1`.
    pub fn rank(&self) -> usize {
        self.engine.rank
    }

    /// How many ranks there are.
    pub fn world(&self) -> usize {
        self.engine.world
    }

    /// Returns the hosts that the ranks run on, whatever transport joins them.
    ///
    /// ```
    /// use maypole::{Communicator, Transport};
    /// // Two threads of this process, which share no memory.
    /// Communicator::run_local(2, |mut comm| {
    ///     let comm = comm.over(Transport::Tcp).unwrap();
    ///     assert_eq!(comm.hosts().numbers(), [0, 0]);
    ///     assert_eq!(comm.boards().numbers(), [0, 1]);
    /// });
    /// ```
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// Returns the boards that join the ranks: ranks of one board share memory, and streams join
    /// all others.
    pub fn boards(&self) -> &Boards {
        &self.engine.boards
    }

    /// Returns once every rank has called it.
    ///
    /// # Errors
    /// As every call: [`Error`].
    pub fn barrier(&mut self) -> Result<()> {
        self.issue::<u8>(Collective::Barrier, ReduceOp::Sum, 0, false, View::EMPTY, ViewMut::EMPTY)
    }

    /// The root's `data` to everybody's `data`; all of one length.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such root; else as every call.
    pub fn broadcast<T: Element>(&mut self, data: &mut [T], root: usize) -> Result<()> {
        self.check_root("broadcast", root)?;
        let mut loan = lend(data);
        let data_view = loan.view();
        let input = if self.rank() == root { data_view.as_view() } else { View::EMPTY };
        self.issue::<T>(
            Collective::Broadcast { root },
            ReduceOp::Sum,
            count::<T>(data_view),
            true,
            input,
            data_view,
        )
    }

    /// Everybody's `data` combined, in the root's `data`; all of one length. Other ranks' `data`
    /// stays as it is.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such root; else as every call.
    pub fn reduce<T: Element>(&mut self, data: &mut [T], op: ReduceOp, root: usize) -> Result<()> {
        self.check_root("reduce", root)?;
        let count = data.len();
        let at_root = self.rank() == root;
        let mut loan = lend(data);
        let view = loan.view();
        let output = if at_root { view } else { ViewMut::EMPTY };
        self.issue::<T>(Collective::Reduce { root }, op, count, at_root, view.as_view(), output)
    }

    /// Everybody's `input` combined, in the root's `output`, which is as long. Other ranks'
    /// `output` is not touched and may be empty.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such root or the root's lengths differ; else as every
    /// call.
    pub fn reduce_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: ReduceOp,
        root: usize,
    ) -> Result<()> {
        self.check_root("reduce", root)?;
        let mut loan = self.at_root("reduce", root, output, input.len())?;
        self.issue::<T>(
            Collective::Reduce { root },
            op,
            input.len(),
            false,
            View::of(input),
            loan.as_mut().map_or(ViewMut::EMPTY, Loan::view),
        )
    }

    /// Everybody's `data` combined, in everybody's `data`; all of one length.
    ///
    /// # Errors
    /// As every call.
    #[inline]
    pub fn all_reduce<T: Element>(&mut self, data: &mut [T], op: ReduceOp) -> Result<()> {
        let count = data.len();
        let mut loan = lend(data);
        let view = loan.view();
        self.issue::<T>(Collective::AllReduce, op, count, true, view.as_view(), view)
    }

    /// Everybody's `input` combined, in everybody's `output`; all of one length.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the lengths differ; else as every call.
    #[inline]
    pub fn all_reduce_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: ReduceOp,
    ) -> Result<()> {
        self.check_len("all_reduce", "output", output.len(), input.len())?;
        self.issue::<T>(
            Collective::AllReduce,
            op,
            input.len(),
            false,
            View::of(input),
            lend(output).view(),
        )
    }

    /// Everybody's `input` (`count`), in rank order, in the root's `output` (`world * count`).
    /// Other ranks' `output` is not touched and may be empty.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such root or the root's output has another length; else as
    /// every call.
    pub fn gather<T: Element>(&mut self, input: &[T], output: &mut [T], root: usize) -> Result<()> {
        self.check_root("gather", root)?;
        let mut loan = self.at_root("gather", root, output, input.len() * self.world())?;
        self.issue::<T>(
            Collective::Gather { root },
            ReduceOp::Sum,
            input.len(),
            false,
            View::of(input),
            loan.as_mut().map_or(ViewMut::EMPTY, Loan::view),
        )
    }

    /// [`gather`](Self::gather) in place: the root's `data` is the whole (`world * count`) with its
    /// own block in its place; everybody else's `data` is its block (`count`).
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such root or the root's length is no multiple of the
    /// world; else as every call.
    pub fn gather_in_place<T: Element>(&mut self, data: &mut [T], root: usize) -> Result<()> {
        self.check_root("gather", root)?;
        let collective = Collective::Gather { root };
        if self.rank() != root {
            let block = View::of(&*data);
            return self.issue::<T>(
                collective,
                ReduceOp::Sum,
                data.len(),
                false,
                block,
                ViewMut::EMPTY,
            );
        }
        let count = self.block_count("gather", data.len())?;
        let mut loan = lend(data);
        let (whole, mine) = self.blocks(loan.view());
        self.issue::<T>(collective, ReduceOp::Sum, count, true, mine.as_view(), whole)
    }

    /// Everybody's `input` (`count`), in rank order, in everybody's `output` (`world * count`).
    ///
    /// # Errors
    /// [`Error::Invalid`] if the output has another length; else as every call.
    pub fn all_gather<T: Element>(&mut self, input: &[T], output: &mut [T]) -> Result<()> {
        self.check_len("all_gather", "output", output.len(), input.len() * self.world())?;
        let count = input.len();
        let mut loan = lend(output);
        let input = View::of(input);
        self.issue::<T>(Collective::AllGather, ReduceOp::Sum, count, false, input, loan.view())
    }

    /// [`all_gather`](Self::all_gather) in place: `data` is the whole (`world * count`) with this
    /// rank's block in its place.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the length is no multiple of the world; else as every call.
    pub fn all_gather_in_place<T: Element>(&mut self, data: &mut [T]) -> Result<()> {
        let count = self.block_count("all_gather", data.len())?;
        let mut loan = lend(data);
        let (whole, mine) = self.blocks(loan.view());
        self.issue::<T>(Collective::AllGather, ReduceOp::Sum, count, true, mine.as_view(), whole)
    }

    /// Block `r` of the root's `input` (`world * count`) in rank `r`'s `output` (`count`). Other
    /// ranks' `input` is not read and may be empty.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such root or the root's input has another length; else as
    /// every call.
    pub fn scatter<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        root: usize,
    ) -> Result<()> {
        self.check_root("scatter", root)?;
        let mut whole = View::EMPTY;
        if self.rank() == root {
            self.check_len("scatter", "input", input.len(), output.len() * self.world())?;
            whole = View::of(input);
        }
        let count = output.len();
        let mut loan = lend(output);
        let output = loan.view();
        self.issue::<T>(Collective::Scatter { root }, ReduceOp::Sum, count, false, whole, output)
    }

    /// [`scatter`](Self::scatter) in place: the root's `data` is the whole (`world * count`), and
    /// its own block stays in it; everybody else's `data` becomes its block (`count`).
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such root or the root's length is no multiple of the
    /// world; else as every call.
    pub fn scatter_in_place<T: Element>(&mut self, data: &mut [T], root: usize) -> Result<()> {
        self.check_root("scatter", root)?;
        let collective = Collective::Scatter { root };
        if self.rank() != root {
            let count = data.len();
            let mut loan = lend(data);
            let block = loan.view();
            return self.issue::<T>(collective, ReduceOp::Sum, count, false, View::EMPTY, block);
        }
        let count = self.block_count("scatter", data.len())?;
        let mut loan = lend(data);
        let (whole, mine) = self.blocks(loan.view());
        self.issue::<T>(collective, ReduceOp::Sum, count, true, whole.as_view(), mine)
    }

    /// Everybody's `input` (`world * count`) combined; block `r` of the result in rank `r`'s
    /// `output` (`count`).
    ///
    /// # Errors
    /// [`Error::Invalid`] if the input has another length; else as every call.
    pub fn reduce_scatter<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: ReduceOp,
    ) -> Result<()> {
        self.check_len("reduce_scatter", "input", input.len(), output.len() * self.world())?;
        let count = output.len();
        let mut loan = lend(output);
        let input = View::of(input);
        self.issue::<T>(Collective::ReduceScatter, op, count, false, input, loan.view())
    }

    /// [`reduce_scatter`](Self::reduce_scatter) in place: this rank's block of `data` (`world *
    /// count`) becomes the result; the rest stays as it is.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the length is no multiple of the world; else as every call.
    pub fn reduce_scatter_in_place<T: Element>(
        &mut self,
        data: &mut [T],
        op: ReduceOp,
    ) -> Result<()> {
        let count = self.block_count("reduce_scatter", data.len())?;
        let mut loan = lend(data);
        let (whole, mine) = self.blocks(loan.view());
        self.issue::<T>(Collective::ReduceScatter, op, count, true, whole.as_view(), mine)
    }

    /// Block `r` of rank `s`'s `input` in block `s` of rank `r`'s `output`; both are `world *
    /// count` long.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the lengths differ or are no multiple of the world; else as every
    /// call.
    pub fn all_to_all<T: Element>(&mut self, input: &[T], output: &mut [T]) -> Result<()> {
        self.check_len("all_to_all", "output", output.len(), input.len())?;
        let count = self.block_count("all_to_all", output.len())?;
        let mut loan = lend(output);
        let input = View::of(input);
        self.issue::<T>(Collective::AllToAll, ReduceOp::Sum, count, false, input, loan.view())
    }

    /// [`all_to_all`](Self::all_to_all) with `data` for both. Costs a copy of it.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the length is no multiple of the world; else as every call.
    pub fn all_to_all_in_place<T: Element>(&mut self, data: &mut [T]) -> Result<()> {
        let count = self.block_count("all_to_all", data.len())?;
        let mut loan = lend(data);
        let whole = loan.view();
        self.issue::<T>(Collective::AllToAll, ReduceOp::Sum, count, true, whole.as_view(), whole)
    }

    #[inline]
    fn issue<T: Element>(
        &mut self,
        collective: Collective,
        op: ReduceOp,
        count: usize,
        in_place: bool,
        input: View<'_>,
        output: ViewMut<'_>,
    ) -> Result<()> {
        let (kind, count, deterministic) =
            (T::DATA_TYPE, Count::Even(count), self.engine.deterministic(collective));
        let call = Call { collective, kind, op: op.into(), count, deterministic, in_place };
        match op {
            ReduceOp::PreMulSum(factor) => self.engine.call_scaled(call, factor, input, output),
            _ => self.engine.call(call, input, output),
        }
    }

    fn check_root(&self, operation: &'static str, root: usize) -> Result<()> {
        if root < self.world() {
            return Ok(());
        }
        Err(self
            .invalid(operation, format!("root {root} is not one of the {} ranks", self.world())))
    }

    #[inline]
    fn check_len(
        &self,
        operation: &'static str,
        which: &str,
        len: usize,
        wanted: usize,
    ) -> Result<()> {
        if len == wanted {
            return Ok(());
        }
        Err(self.invalid(operation, format!("the {which} has {len} elements and needs {wanted}")))
    }

    #[cold]
    fn invalid(&self, operation: &'static str, why: String) -> Error {
        Error::Invalid { rank: self.rank(), operation, why }
    }

    /// Lends the root's output, which must have `wanted` elements. The output of other ranks is not
    /// used.
    pub(crate) fn at_root<'a, T: Element>(
        &self,
        operation: &'static str,
        root: usize,
        output: &'a mut [T],
        wanted: usize,
    ) -> Result<Option<T::Loan<'a>>> {
        if self.rank() != root {
            return Ok(None);
        }
        self.check_len(operation, "output", output.len(), wanted)?;
        Ok(Some(lend(output)))
    }

    /// The number of elements of a rank's block of `len` elements.
    #[inline]
    pub(crate) fn block_count(&self, operation: &'static str, len: usize) -> Result<usize> {
        let world = self.world();
        if len.is_multiple_of(world) {
            return Ok(len / world);
        }
        Err(self.invalid(operation, format!("{len} elements are no multiple of the {world} ranks")))
    }

    /// The whole, and this rank's block of it.
    #[inline]
    pub(crate) fn blocks<'a>(&self, whole: ViewMut<'a>) -> (ViewMut<'a>, ViewMut<'a>) {
        let bytes = whole.len() / self.world();
        (whole, whole.slice(self.rank() * bytes, bytes))
    }
}

fn count<T>(view: ViewMut<'_>) -> usize {
    view.len() / size_of::<T>()
}
