//! Collectives on the memory of NVIDIA's GPUs.
//!
//! A [`Comm`] is one rank's membership in a group whose buffers are in the memory of GPUs. Its
//! methods have the names, the arguments and the meaning of `cudarc::nccl::safe::Comm`, so a
//! program that uses that one changes its imports. What is started runs on the stream of the
//! `Comm`, after the work that is there already, and before the work that comes.
//!
//! Underneath, the calls are those of a [`Communicator`](crate::Communicator): the same schedules,
//! chosen by the same tuner with the costs of GPUs, lowered to the same folds, and walked by one
//! kernel (see `kernels/cuda/walk.cu`) instead of the executor. So results have the bits of the
//! executor, up to the bits of a NaN. The control plane of the communicator names the rank that is
//! late, that died, or that makes another call.
//!
//! | room | what |
//! |---|---|
//! | `comm` | the [`Comm`], and how it is made |
//! | `collectives`, `rooted`, `scans`, `messages` | its calls |
//! | `explain` | why calls run as they do |
//! | `exchange` | messages in launches that fit on all ranks |
//! | `rank` | what one rank keeps: mailboxes, kernels, programs |
//! | `programs` | programs in the memory of a GPU, and those that graphs keep |
//! | `plan` | which mailboxes and windows a call uses, and what things cost |
//! | `setup` | how mailboxes are made, and when there can be none |
//! | `host` | calls through the memory of the host |
//! | `watch` | the thread that hears of failures while kernels wait |

mod collectives;
mod comm;
mod exchange;
mod explain;
mod host;
mod id;
mod messages;
mod plan;
mod programs;
mod rank;
mod rooted;
mod scans;
mod setup;
mod watch;

pub use comm::Comm;
pub use explain::explain;
pub use id::Id;
pub use maypole_kernels::cuda::{Driver, Unavailable, driver};
pub use messages::Group;
