//! Collectives on the memory of NVIDIA's GPUs.
//!
//! A [`Comm`] is one rank's membership in a group whose buffers are in the memory of GPUs. Its
//! methods have the names, the arguments and the meaning of `cudarc::nccl::safe::Comm`, so a
//! program that uses that one changes its imports. Calls run on the stream of the `Comm`, after its
//! earlier work and before its later work.
//!
//! Underneath, the calls are those of a [`Communicator`](crate::Communicator): the same schedules,
//! chosen by the same tuner with the costs of GPUs, lowered to the same folds, and walked by one
//! kernel (see `kernels/cuda/walk.cu`) instead of the executor. So results have the bits of the
//! executor, up to the bits of a NaN. The control plane of the communicator names the rank that is
//! late, that died, or that makes another call.
//!
//! # From `cudarc::nccl`
//!
//! Lesson 13 (`examples/13_from_nccl.rs`) is a program that runs on either by its imports:
//!
//! ```text
//! use cudarc::nccl::safe::{Comm, Id, ReduceOp};                   // before
//! use maypole::{ReduceOp, cuda::{Comm, Id}};                      // after
//! ```
//!
//! A test (`tests/gpu/from_nccl`) compiles every call of cudarc's `Comm`, `Group` and `Id` against both.
//! Differences:
//!
//! | | `cudarc::nccl::safe` | `maypole::cuda` |
//! |---|---|---|
//! | imports | `Comm`, `Group`, `Id`; `ReduceOp`, `NcclType` | `Comm`, `Group`, `Id`; [`ReduceOp`](crate::ReduceOp) and [`Element`](crate::Element) of the crate's root |
//! | types of elements | 8 to 64 bits, `f16`, `bf16`, `char` | the same with `i16` and `u16`, and no `char` |
//! | operations | `Sum`, `Prod`, `Max`, `Min`, `Avg` | the same, but `Prod` is called `Product`; bitwise ones, and sums with a factor |
//! | results | `NcclStatus`, `NcclError` | `()`, [`Error`](crate::Error), which names the rank and the cause |
//! | no driver, no NCCL | the first call panics | [`driver`] returns [`Unavailable`] with the reason |
//! | `Id::new` | an address that NCCL finds | an address of this host, on which rank 0 is; [`Id::at`] names another one |
//! | a dropped `Comm` | aborts its calls | waits for this rank's calls; [`Comm::close`] waits for all |
//! | a rank that dies, is late, or makes another call | the others wait indefinitely | an error on all ranks names it: [`Comm::synchronize`], [`Comm::check`] |
//! | ranks that share a GPU | refused before NCCL 2.30 | allowed |
//! | `group_start`, `group_end` | one thread calls for several GPUs | not there: one thread a rank; [`Comm::group`] is for the calls of one rank |
//! | a group | all of its calls run as one | its collectives run one after the other, then its messages concurrently |
//! | the first call with new arguments | as any other | the same; a type and operation that the process had in no call waits until kernels of the GPU have ended |
//! | not there | gather, scatter, all-to-all, scans, barrier, all-gather in place | [`Comm::gather`], [`Comm::scatter`], [`Comm::all_to_all`], [`Comm::scan`], [`Comm::barrier`] ... |
//!
//! # Rooms
//!
//! | room | what |
//! |---|---|
//! | `comm`, `options` | the [`Comm`], and how it is made |
//! | `collectives`, `messages` | its calls |
//! | `raw` | calls on memory and streams that a foreign program names |
//! | `split` | groups of some of the ranks |
//! | `abort` | aborting a rank's calls, from any thread |
//! | `lent_call` | the one path from buffers to a call |
//! | `group` | calls and messages that start together |
//! | `explain` | why calls run as they do |
//! | `exchange` | messages in launches that fit on all ranks |
//! | `rank` | one rank's state: mailboxes, kernels, programs |
//! | `prepare` | how a call gets its program on the GPU |
//! | `load` | loading kernels while calls run |
//! | `programs` | the cache of programs, and those of captured graphs |
//! | `place` | where the mailboxes are: on GPUs, or in memory of the host |
//! | `courier` | the thread that carries publications to other hosts |
//! | `plan` | the mailboxes and windows of a call, and costs |
//! | `links` | the GPUs of the ranks, and their links |
//! | `setup`, `probe` | how mailboxes are made, and why not |
//! | `leave` | how a rank leaves, and the end of its memory |
//! | `watch` | the thread that aborts waiting kernels after a failure, and reports aborted kernels |

mod abort;
mod agreed;
mod collectives;
mod comm;
mod courier;
mod exchange;
mod explain;
mod forms;
mod gpu_direct;
mod group;
mod id;
mod leave;
mod lent_call;
mod links;
mod load;
mod messages;
mod options;
mod place;
mod plan;
mod prepare;
mod probe;
mod programs;
mod rails;
mod rank;
mod raw;
mod setup;
mod split;
mod watch;

pub use abort::LocalAbortHandle;
pub use comm::Comm;
pub use exchange::DeviceMessage as RawMessage;
pub use explain::explain;
pub use group::Group;
pub use id::Id;
pub use maypole_kernels::cuda::{Driver, Unavailable, driver};
pub use maypole_transports::cuda::{KeptContext, Lent, untracked_context};
pub use options::CommOptions;
pub use programs::StartableCall;
pub use raw::{RawCall, RawOp};
