//! Collective communication (all-reduce, all-gather and the like) between threads, processes and hosts, by algorithms
//! that are data: each is proved, drawn, timed by a simulator and executed from one list of steps.
//!
//! ```
//! use maypole::{Communicator, ReduceOp};
//!
//! // Reads rank and world from whichever launcher has started the process; without one it is alone.
//! let mut comm = Communicator::from_env()?;
//! let mut gradients = vec![comm.rank() as f32; 1024];
//! comm.all_reduce(&mut gradients, ReduceOp::Avg)?;
//! assert_eq!(gradients[0], (comm.world() - 1) as f32 / 2.0);
//! comm.close()?;
//! # Ok::<(), maypole::Error>(())
//! ```
//!
//! | for | see |
//! |---|---|
//! | calls, messages, requests, groups | [`Communicator`] |
//! | threads of one process as ranks | [`Communicator::run_local`] |
//! | launchers and their variables | [`world::launch`] |
//! | types and operations | [`element`], [`ReduceOp`] |
//! | errors, and continuing after one | [`Error`], [`Communicator::shrink`] |
//! | an algorithm of your own | [`schedule`], [`Communicator::run`] |
//! | which algorithm a call takes, and why | [`tuner`], [`Communicator::explain`] |
//! | the memory of GPUs | `cuda` (with the feature of that name) |
//!
//! # The problem
//!
//! Four processes train one model. Each has computed a gradient for every weight; before any of
//! them continues, all must have the *sum* of the four gradients. There is no central process, the
//! vectors have a hundred million elements, and the computation waits meanwhile. That is an
//! *all-reduce*, the most common of a small family of *collectives*: calls that a group of
//! processes makes together, and that return when each process holds its result
//! ([`schedule::collective`] has the table).
//!
//! The result does not determine the algorithm. Every rank could send its vector to every other
//! rank: one hop of latency, but n-1 times the bytes. The parts could go round a ring: few bytes on
//! each link, but 2 (n-1) hops. Or up a tree and down again. The best choice depends on the size,
//! on the number of ranks and on the links between them. Each algorithm has its own errors: a chunk
//! added twice, a buffer overwritten before its bytes have left, a deadlock of two ranks.
//!
//! # The idea
//!
//! Here an algorithm is a pure function from (collective, number of ranks, rank) to a
//! [`Schedule`](schedule::Schedule): a plain list of steps such as *send input chunk 3 to rank 1*
//! or *receive from rank 3 and add to output chunk 2*. A list has more than one reader:
//!
//! * the checker ([`verify`](schedule::verify)) runs all ranks on symbols and proves that each
//!   contribution arrives exactly once;
//! * the drawing (`draw` of the crate `maypole-pictures`) shows it;
//! * the simulator ([`simulate`](schedule::simulate)) runs all ranks on a model of the machine and
//!   predicts the time;
//! * lowering ([`lower`]) turns it into the program by which the executor (`execute`) moves real
//!   bytes.
//!
//! So the list that is proved, drawn and timed *is* the one that runs. A drawing has a column for
//! each rank and a row for each message latency:
//!
//! ```text
//! ring reduce_scatter, n = 4
//!      rank 0             rank 1             rank 2             rank 3
//! 0    in3 ->1            in0 ->2            in1 ->3            in2 ->0
//! 1    tmp2 =in2 +=3 ->1  tmp3 =in3 +=0 ->2  tmp0 =in0 +=1 ->3  tmp1 =in1 +=2 ->0
//! 2    tmp1 =in1 +=3 ->1  tmp2 =in2 +=0 ->2  tmp3 =in3 +=1 ->3  tmp0 =in0 +=2 ->0
//! 3    out0 =in0 +=3      out1 =in1 +=0      out2 =in2 +=1      out3 =in3 +=2
//! ```
//!
//! ```
//! use maypole::algorithms::Algorithm;
//! use maypole::schedule::collective::Collective;
//! use maypole::schedule::Placement;
//! use maypole::schedule::verify::verify;
//! use maypole::{Communicator, ReduceOp};
//!
//! // The proof of the steps above.
//! let ring = Algorithm::Ring.schedules(Collective::ReduceScatter, 4).unwrap();
//! assert!(verify(Collective::ReduceScatter, &ring, Placement::InPlace).is_ok());
//!
//! // The same steps, moving bytes between four threads.
//! let blocks = Communicator::run_local(4, |mut comm| {
//!     comm.set_algorithm(Some(Algorithm::Ring));
//!     let mut block = [0u32];
//!     comm.reduce_scatter((&[1, 10, 100, 1000], &mut block), ReduceOp::Sum).unwrap();
//!     block[0]
//! });
//! assert_eq!(blocks, [4, 40, 400, 4000]);
//! ```
//!
//! # The rooms, in reading order
//!
//! Each names only rooms above it in this table. The first seven are pure: no clock, no thread, no
//! file, no socket. Equal arguments give equal results, on every rank.
//!
//! | room | content |
//! |---|---|
//! | `labels`, `wire` | numbers of names, and the bytes of plain data that ranks send one another |
//! | [`schedule`] | steps, buffers, the law, and readers of schedules |
//! | [`algorithms`] | one page each: picture, cost, reason, code |
//! | [`lower`] | the schedules of all ranks to the program of one rank: folds, waits and slots |
//! | [`topology`] | links between ranks, and rings; [`topology::detect`] reads this machine |
//! | [`tuner`] | which algorithm for which call ([`tuner::saved`] keeps measured costs in a file) |
//! | `execute` | walks one program over boards and streams, and records a trace |
//! | [`world`] | how processes become ranks: launchers' variables, joining, the control plane |
//! | [`element`] | the types of elements, and how elements are combined |
//! | [`error`] | why a call failed |
//! | `control` | agreement, connections and failure of the ranks of a group |
//! | [`status`] | the status of a rank, for its users |
//! | `engine` | from a call to a program that runs |
//! | `requests` | asynchronous calls, and the threads that run them |
//! | [`comm`] | [`Communicator`], the front door |
//! | `cuda` | the same calls on the memory of GPUs |
//!
//! Bytes themselves are touched in two crates below, which contain no collective:
//! `maypole-transports` (boards, streams, waiting) and `maypole-kernels` (memory and arithmetic on
//! it). They contain all unsafe code.
#![forbid(unsafe_code)]

pub mod algorithms;
#[doc(hidden)]
pub mod comm;
mod control;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod element;
mod engine;
pub mod error;
#[doc(hidden)]
pub mod execute;
mod labels;
pub mod lower;
mod requests;
pub mod schedule;
pub mod status;
pub mod topology;
pub mod tuner;
mod wire;
pub mod world;

#[doc(inline)]
pub use algorithms::Algorithm;
pub use comm::faults;
#[doc(inline)]
pub use comm::{
    AbortHandle, AnyElement, AnySlice, AnySliceMut, Arena, BufferPlacement, CallBuffers, CallPath,
    Communicator, Counters, Group, IntoBuffers, IntoInput, IntoOp, IntoOutput, LastCall, Local,
    MessageHandle, Moved, Op, Operation, OwnedBuffers, ProgramCache, RegisteredBuffer, Request,
    Scope, StoreCounts, Transport, UnknownTransport, Within, wait_all, wait_any,
};
#[doc(inline)]
pub use element::{DataType, Element, Factor, ReduceOp, UnknownReduceOp, bf16, f16};
#[doc(inline)]
pub use error::{CallMismatch, Error, FailureKind, FirstFailure, MissedDeadline, RankCall, Result};
pub use maypole_kernels::with_type;
#[doc(inline)]
pub use schedule::collective::Collective;
#[doc(inline)]
pub use status::RankStatus;

#[cfg(test)]
#[path = "../tests/readers/fuzz.rs"]
mod fuzz;

/// The programs of the READMEs compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("README.md")]
mod readme {}
