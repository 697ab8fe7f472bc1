//! Memory of NVIDIA's GPUs that ranks reach: mailboxes, and the kernel that walks programs over
//! them.
//!
//! Each rank has a [`DeviceBoard`]: an arena of its own with a mailbox of each [`Shape`], and the
//! arenas of the other ranks, as its GPU reaches them. A rank of the same process passes the
//! address, after its GPU was allowed to read the other's memory. A rank of another process of the
//! host passes a handle that the driver opens. Mailboxes are allocations of our own, because memory
//! of a pool, as a user's buffers may be, cannot be shared. If some GPUs do not reach one another, the
//! mailboxes of all ranks are in memory of the host that each GPU reaches. If the ranks are on several
//! hosts, each host has a copy of them, and [couriers](Courier) carry changes between the copies.
//! Slots may be in the memory of the GPUs nevertheless, if adapters reach it ([`PendingSlots`]).

mod arena;
mod board;
mod code;
pub mod copies;
mod courier;
mod gpu_slots;
mod in_host;
mod launch;
mod layout;
mod left_boards;
mod locals;
mod memory;
mod order;
mod pending;
mod registered_segment;
mod reserved_blocks;
mod short_calls;
mod spares;
mod started;
mod use_table;
mod words;
mod workspace;

pub use arena::{Offer, ProcessName};
pub use board::DeviceBoard;
pub use code::{CodeShelf, DeviceCode, ProgramCall};
pub use courier::{Courier, CourierStream, LostLink};
pub use gpu_slots::PendingSlots;
pub use in_host::SlotsOfGpus;
pub use launch::{DeviceCall, Lent, Protocol, lend, lend_mut};
pub use layout::{Room, Shape, Shapes};
pub use left_boards::{Kept, LeftMemory, end_left_boards};
pub use order::{
    BesideCapture, CallStream, ContextWork, KeptContext, stream_aside, untracked_context,
};
pub use pending::PendingBoard;
pub use reserved_blocks::ReservedBlocks;
pub use started::GroupRank;
pub use use_table::UseTable;
pub use words::{Reason, Report, ReportWords};
pub use workspace::DeviceScratch;

/// The result of an operation on a GPU.
type Result<T, E = maypole_kernels::cuda::CudaError> = std::result::Result<T, E>;
