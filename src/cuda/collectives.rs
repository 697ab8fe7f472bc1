//! The collectives on buffers of a GPU: those of a [`Comm`], which start at once, and those of a [`Group`], which
//! start together.

use super::comm::Comm;
use super::group::Group;
use super::lent_call::number;
use crate::element::{DataType, Element, ReduceOp};
use crate::error::Result;
use crate::schedule::collective::Collective;
use cudarc::driver::{CudaView, CudaViewMut, DevicePtr, DevicePtrMut};
use maypole_transports::cuda::Lent;

/// A buffer of all ranks; or one of the root alone, which other ranks leave out.
macro_rules! held {
    (type all $buffer:ty) => { $buffer };
    (type root $buffer:ty) => { Option<$buffer> };
    (all $buffer:expr) => { Some($buffer) };
    (root $buffer:expr) => { $buffer };
}

/// One collective, from buffer to buffer and in place, of what the parentheses describe.
macro_rules! collective {
    (([$($by:tt)*] $this:ident, [$($of:tt)*] $send:ty => $receive:ty, [$($alone:tt)*] $data:ty)
     $name:ident $in_place:ident ($($op:ident)?) ($($root:ident)?) $reads:ident => $writes:ident,
     $collective:expr, $about:literal, $about_in_place:literal) => {
        #[doc = $about]
        ///
        /// # Errors
        /// [`Error::Invalid`](crate::Error::Invalid) if there is no such root, if the lengths do not fit, or if
        /// the elements have no such operation; else as every call.
        pub fn $name<$($of)*>(
            $($by)* $this,
            send: held!(type $reads $send),
            receive: held!(type $writes $receive)
            $(, $op: &ReduceOp)? $(, $root: i32)?
        ) -> Result<()> {
            $(let $root = number($root);)?
            let (send, receive) = (held!($reads send), held!($writes receive));
            $this.apart($collective, send, receive, [$(*$op,)? ReduceOp::Sum][0])
        }

        #[doc = $about_in_place]
        ///
        /// # Errors
        #[doc = concat!("As [`", stringify!($name), "`](Self::", stringify!($name), ").")]
        pub fn $in_place<$($alone)*>(
            $($by)* $this,
            data: $data
            $(, $op: &ReduceOp)? $(, $root: i32)?
        ) -> Result<()> {
            $(let $root = number($root);)?
            $this.in_place($collective, data, [$(*$op,)? ReduceOp::Sum][0])
        }
    };
}

macro_rules! collectives {
    ($of:tt) => {
        collective!($of all_reduce all_reduce_in_place (op) () all => all,
            Collective::AllReduce,
            "Combines the `send` (`count`) of all ranks into every `receive` (`count`).",
            "Combines the `data` (`count`) of all ranks into every rank's `data`.");
        collective!($of broadcast broadcast_in_place () (root) root => all,
            Collective::Broadcast { root },
            "Copies the root's `send` into every `receive`. Other ranks pass `None`.",
            "Copies the root's `data` into every rank's `data`.");
        collective!($of reduce reduce_in_place (op) (root) all => root,
            Collective::Reduce { root },
            "Combines every `send` into the root's `receive`. Other ranks pass `None`.",
            "Combines every `data` into the root's. That of other ranks stays.");
        collective!($of all_gather all_gather_in_place () () all => all,
            Collective::AllGather,
            "Collects every `send` (`count`), by rank, in `receive` (`world * count`).",
            "Collects the blocks of `data` (`world * count`), where the own one is.");
        collective!($of reduce_scatter reduce_scatter_in_place (op) () all => all,
            Collective::ReduceScatter,
            "Combines every `send` (`world * count`): block `r` for rank `r` (`count`).",
            "Combines every `data` (`world * count`) into the rank's block of its own.");
        collective!($of gather gather_in_place () (root) all => root,
            Collective::Gather { root },
            "Collects every `send` in the root's `receive` (`world * count`), else `None`.",
            "Collects every block in the root's `data` (`world * count`), with its own.");
        collective!($of scatter scatter_in_place () (root) root => all,
            Collective::Scatter { root },
            "Copies block `r` of the root's `send`, else `None`, to rank `r`'s `receive`.",
            "Copies block `r` of the root's `data` (`world * count`) to that of rank `r`.");
        collective!($of all_to_all all_to_all_in_place () () all => all,
            Collective::AllToAll,
            "Copies block `r` of rank `s`'s `send` to block `s` of rank `r`'s `receive`.",
            "As [`all_to_all`](Self::all_to_all) in `data`, which is copied once.");
        collective!($of scan scan_in_place (op) () all => all,
            Collective::Scan,
            "Combines the `send` of ranks 0 to this one, by rank, into `receive`.",
            "Combines the `data` of ranks 0 to this one, by rank, into this one's.");
        collective!($of exclusive_scan exclusive_scan_in_place (op) () all => all,
            Collective::ExclusiveScan,
            "Combines the `send` of the ranks before this one; rank 0 receives nothing.",
            "Combines the `data` of the ranks before this one. Rank 0's stays.");
    };
}

impl Comm {
    collectives!(
        ([&] self, [S: DevicePtr<T>, R: DevicePtrMut<T>, T: Element] &S => &mut R,
         [R: DevicePtrMut<T>, T: Element] &mut R)
    );

    /// Later work on this rank's stream begins after the work of all other ranks that precedes
    /// their call of this.
    ///
    /// # Errors
    /// As every call.
    pub fn barrier(&self) -> Result<()> {
        let (kind, none) = (DataType::U8, Lent::EMPTY);
        let call = self.lent_call(Collective::Barrier, (kind, ReduceOp::Sum), Some(none), none)?;
        self.issue(&self.stream(), &call)
    }
}

impl<'g> Group<'g> {
    collectives!(
        ([&mut] self, [T: Element] CudaView<'g, T> => CudaViewMut<'g, T>,
         [T: Element] CudaViewMut<'g, T>)
    );
}
