//! Operations that the user brings.

use crate::comm::Communicator;
use crate::element::{Element, Loan, lend};
use crate::engine::calls::call::{CollectiveCall, Reduction};
use crate::engine::calls::counts::CallCount;
use crate::engine::settings::CallSettings;
use crate::error::Result;
use crate::schedule::collective::Collective;
use bytemuck::Pod;
use maypole_kernels::{CustomReducer, View, ViewMut};
use std::marker::PhantomData;

/// A way to combine elements that the user brings.
///
/// The function is given `left` and `right`, equally long, and makes `right[i] = left[i] op
/// right[i]`; `left` comes from lower ranks if the operation does not commute. It is called for
/// parts of the vectors and must treat every element alike. The operation must be associative, up
/// to rounding. If the function panics, the communicator fails on all ranks, and the call panics
/// with the same panic.
///
/// All ranks pass the same operation. The calls of different ranks are compared by its name and by
/// whether it commutes.
///
/// ```
/// use maypole::{Communicator, Operation};
/// let longest = Operation::new("longest", true, |left: &[i32], right: &mut [i32]| {
///     for (left, right) in left.iter().zip(right) {
///         *right = if left.abs() > right.abs() { *left } else { *right };
///     }
/// });
/// let all = Communicator::run_local(3, |mut comm| {
///     let mut x = [[2, -7, 5][comm.rank()]];
///     comm.all_reduce_with(&mut x, &longest).unwrap();
///     x
/// });
/// assert_eq!(all, [[-7]; 3]);
/// ```
#[derive(Clone, Debug)]
pub struct Operation<T> {
    name: &'static str,
    commutative: bool,
    custom: CustomReducer,
    elements: PhantomData<fn(T)>,
}

impl<T: Element> Operation<T> {
    /// The operation `right = left op right`. One that is not `commutative` runs only by algorithms
    /// that are proved to keep the order of the ranks.
    pub fn new(
        name: &'static str,
        commutative: bool,
        combine: impl Fn(&[T], &mut [T]) + Send + Sync + 'static,
    ) -> Self
    where
        T: Pod,
    {
        Self { name, commutative, custom: CustomReducer::new(combine), elements: PhantomData }
    }

    /// The name, equal on all ranks.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// True if ranks may be combined in any order.
    pub fn is_commutative(&self) -> bool {
        self.commutative
    }

    fn call(
        &self,
        settings: &CallSettings,
        collective: Collective,
        count: usize,
        in_place: bool,
    ) -> CollectiveCall {
        CollectiveCall {
            collective,
            kind: T::DATA_TYPE,
            op: Reduction::Custom { name: self.name, commutative: self.commutative },
            count: CallCount::Even(count),
            deterministic: settings.is_deterministic_for(collective),
            in_place,
        }
    }
}

impl Communicator {
    /// [`all_reduce`](Self::all_reduce) by an operation of the user's.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if `op` does not commute and the algorithm that
    /// was named does not keep the order of the ranks; else as every call.
    ///
    /// # Panics
    /// If `op` panics. The communicator has then failed.
    pub fn all_reduce_with<T: Element>(&mut self, data: &mut [T], op: &Operation<T>) -> Result<()> {
        let call = op.call(self.engine.get().settings(), Collective::AllReduce, data.len(), true);
        let mut loan = lend(data);
        let view = loan.view();
        self.engine.get_mut().call_custom(call, &op.custom, view.as_view(), view)
    }

    /// [`all_reduce_into`](Self::all_reduce_into) by an operation of the user's.
    ///
    /// # Errors
    /// As [`all_reduce_with`](Self::all_reduce_with), and [`Error::Invalid`](crate::Error::Invalid)
    /// if the lengths differ.
    ///
    /// # Panics
    /// If `op` panics. The communicator has then failed.
    pub fn all_reduce_into_with<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: &Operation<T>,
    ) -> Result<()> {
        self.check_len("all_reduce", "output", output.len(), input.len())?;
        let call = op.call(self.engine.get().settings(), Collective::AllReduce, input.len(), false);
        self.engine.get_mut().call_custom(call, &op.custom, View::of(input), lend(output).view())
    }

    /// [`reduce`](Self::reduce) by an operation of the user's.
    ///
    /// # Errors
    /// As [`all_reduce_with`](Self::all_reduce_with), and [`Error::Invalid`](crate::Error::Invalid)
    /// if there is no such root.
    ///
    /// # Panics
    /// If `op` panics. The communicator has then failed.
    pub fn reduce_with<T: Element>(
        &mut self,
        data: &mut [T],
        op: &Operation<T>,
        root: usize,
    ) -> Result<()> {
        self.check_root("reduce", root)?;
        let count = data.len();
        let at_root = self.rank() == root;
        let mut loan = lend(data);
        let view = loan.view();
        let output = if at_root { view } else { ViewMut::EMPTY };
        let call =
            op.call(self.engine.get().settings(), Collective::Reduce { root }, count, at_root);
        self.engine.get_mut().call_custom(call, &op.custom, view.as_view(), output)
    }

    /// [`reduce_into`](Self::reduce_into) by an operation of the user's.
    ///
    /// # Errors
    /// As [`reduce_with`](Self::reduce_with), and [`Error::Invalid`](crate::Error::Invalid) if the
    /// root's lengths differ.
    ///
    /// # Panics
    /// If `op` panics. The communicator has then failed.
    pub fn reduce_into_with<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: &Operation<T>,
        root: usize,
    ) -> Result<()> {
        self.check_root("reduce", root)?;
        let mut loan = self.at_root("reduce", root, output, input.len())?;
        let output = loan.as_mut().map_or(ViewMut::EMPTY, Loan::view);
        let call =
            op.call(self.engine.get().settings(), Collective::Reduce { root }, input.len(), false);
        self.engine.get_mut().call_custom(call, &op.custom, View::of(input), output)
    }

    /// [`reduce_scatter`](Self::reduce_scatter) by an operation of the user's.
    ///
    /// # Errors
    /// As [`all_reduce_with`](Self::all_reduce_with), and [`Error::Invalid`](crate::Error::Invalid)
    /// if the input has another length.
    ///
    /// # Panics
    /// If `op` panics. The communicator has then failed.
    pub fn reduce_scatter_with<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: &Operation<T>,
    ) -> Result<()> {
        self.check_len("reduce_scatter", "input", input.len(), output.len() * self.world())?;
        let call =
            op.call(self.engine.get().settings(), Collective::ReduceScatter, output.len(), false);
        self.engine.get_mut().call_custom(call, &op.custom, View::of(input), lend(output).view())
    }

    /// [`reduce_scatter_in_place`](Self::reduce_scatter_in_place) by an operation of the user's.
    ///
    /// # Errors
    /// As [`all_reduce_with`](Self::all_reduce_with), and [`Error::Invalid`](crate::Error::Invalid)
    /// if the length is no multiple of the world.
    ///
    /// # Panics
    /// If `op` panics. The communicator has then failed.
    pub fn reduce_scatter_in_place_with<T: Element>(
        &mut self,
        data: &mut [T],
        op: &Operation<T>,
    ) -> Result<()> {
        let count = self.block_count("reduce_scatter", data.len())?;
        let mut loan = lend(data);
        let (whole, mine) = self.blocks(loan.view());
        let call = op.call(self.engine.get().settings(), Collective::ReduceScatter, count, true);
        self.engine.get_mut().call_custom(call, &op.custom, whole.as_view(), mine)
    }
}
