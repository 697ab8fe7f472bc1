//! The collectives whose counts are equal on all ranks.

use crate::comm::Communicator;
use crate::element::{Element, Loan, ReduceOp, lend};
use crate::engine::calls::call::CollectiveCall;
use crate::engine::calls::counts::CallCount;
use crate::error::{Error, Result};
use crate::schedule::collective::Collective;
use maypole_kernels::{View, ViewMut};

impl Communicator {
    /// Waits until every rank has called this.
    ///
    /// # Errors
    /// As every call: [`Error`].
    pub fn barrier(&mut self) -> Result<()> {
        self.issue::<u8>(Collective::Barrier, ReduceOp::Sum, 0, false, View::EMPTY, ViewMut::EMPTY)
    }

    /// Copies the root's `data` (`count`) into every rank's `data` (`count`).
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

    /// Combines the `data` (`count`) of all ranks into the root's `data`. Other ranks' `data` does
    /// not change.
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

    /// Combines the `input` (`count`) of all ranks into the root's `output` (`count`). Other ranks'
    /// `output` is not used and may be empty.
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

    /// Combines the `data` (`count`) of all ranks into every rank's `data`.
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

    /// Combines the `input` (`count`) of all ranks into every rank's `output` (`count`).
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

    /// Collects the `input` (`count`) of all ranks, in rank order, in the root's `output` (`world *
    /// count`). Other ranks' `output` is not used and may be empty.
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

    /// [`gather`](Self::gather) in place. The root's `data` is the whole (`world * count`), in
    /// which its own block is in place already. The `data` of any other rank is its block
    /// (`count`).
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

    /// Collects the `input` (`count`) of all ranks, in rank order, in every rank's `output`
    /// (`world * count`).
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

    /// [`all_gather`](Self::all_gather) in place. `data` is the whole (`world * count`), in which
    /// this rank's block is in place already.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the length is no multiple of the world; else as every call.
    pub fn all_gather_in_place<T: Element>(&mut self, data: &mut [T]) -> Result<()> {
        let count = self.block_count("all_gather", data.len())?;
        let mut loan = lend(data);
        let (whole, mine) = self.blocks(loan.view());
        self.issue::<T>(Collective::AllGather, ReduceOp::Sum, count, true, mine.as_view(), whole)
    }

    /// Copies block `r` of the root's `input` (`world * count`) into rank `r`'s `output` (`count`).
    /// Other ranks' `input` is not used and may be empty.
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

    /// [`scatter`](Self::scatter) in place: the root's `data` is the whole (`world * count`) and
    /// does not change; the `data` of any other rank becomes its block (`count`).
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

    /// Combines the `input` (`world * count`) of all ranks. Block `r` of the result goes into rank
    /// `r`'s `output` (`count`).
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
    /// count`) becomes the result; the rest does not change.
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

    /// Copies block `r` of rank `s`'s `input` into block `s` of rank `r`'s `output`, for all `r`
    /// and `s`. Both buffers are `world * count` long.
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

    /// [`all_to_all`](Self::all_to_all) in place: `data` is input and output. Copies `data` once.
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
    pub(crate) fn issue<T: Element>(
        &mut self,
        collective: Collective,
        op: ReduceOp,
        count: usize,
        in_place: bool,
        input: View<'_>,
        output: ViewMut<'_>,
    ) -> Result<()> {
        let call = CollectiveCall {
            collective,
            kind: T::DATA_TYPE,
            op: op.into(),
            count: CallCount::Even(count),
            deterministic: self.engine.get().settings().is_deterministic_for(collective),
            in_place,
        };
        self.run_call(call, op, input, output)
    }

    /// Runs `call`, whose input is first multiplied if `op` has a factor.
    #[inline]
    pub(crate) fn run_call(
        &mut self,
        call: CollectiveCall,
        op: ReduceOp,
        input: View<'_>,
        output: ViewMut<'_>,
    ) -> Result<()> {
        let engine = self.engine.get_mut();
        match op {
            ReduceOp::PreMulSum(factor) => engine.call_scaled(call, factor, input, output),
            _ => engine.call(call, input, output),
        }
    }

    #[inline]
    pub(crate) fn check_root(&self, operation: &'static str, root: usize) -> Result<()> {
        if root < self.world() {
            return Ok(());
        }
        Err(self
            .invalid(operation, format!("root {root} is not one of the {} ranks", self.world())))
    }

    #[inline]
    pub(crate) fn check_len(
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
    pub(crate) fn invalid(&self, operation: &'static str, why: String) -> Error {
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
        Err(self
            .invalid(operation, format!("{len} elements are not a multiple of the {world} ranks")))
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
