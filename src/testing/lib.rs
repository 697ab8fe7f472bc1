//! A world for tests of programs that use `maypole`, in which all faults follow from a seed.
//!
//! # The problem
//!
//! A trainer works on the machine of its author, and hangs once a week on a cluster: a peer died in
//! the middle of a step, a message came later than another one, a link took three bytes and then
//! nothing for a while. A test that runs once does not show that, and a run that failed cannot be
//! repeated.
//!
//! # A reproducible world
//!
//! [`SimulatedWorld`] runs ranks as threads that take turns, over links that a seed controls. They
//! delay, split and hold back bytes; a rank dies in the middle of a call; a byte is corrupted. The
//! same seed gives the same run, turn by turn, so a failing seed is a test case. Time is simulated,
//! too: a timeout of five minutes passes in no time. If all ranks are blocked, the run ends with a
//! picture of the waits.
//!
//! Here a step of a trainer is tested against a peer that is dropped at some moment. At any moment,
//! each other rank has the right sum, or an error that names the rank that died:
//!
//! ```
//! use maypole_testing::SimulatedWorld;
//! use maypole::{Communicator, ReduceOp, Result};
//!
//! /// The code under test: three steps of a trainer.
//! fn train(mut comm: Communicator) -> Result<Vec<f32>> {
//!     let mut weights = vec![0.0; 1000];
//!     for step in 0..3 {
//!         let mut gradients = vec![step as f32 + comm.rank() as f32; 1000];
//!         comm.all_reduce(&mut gradients, ReduceOp::Avg)?;
//!         weights.iter_mut().zip(gradients).for_each(|(w, g)| *w -= g);
//!     }
//!     Ok(weights)
//! }
//!
//! for seed in 0..50 {
//!     let run = SimulatedWorld::new(seed).ranks(3).drop_peer(1).run(train);
//!     for (rank, outcome) in run.survivors() {
//!         match outcome {
//!             Ok(weights) => assert_eq!(weights, &[-6.0; 1000], "seed {seed}"),
//!             Err(error) => assert_eq!(error.culprit(), Some(1), "seed {seed}, rank {rank}: {error}"),
//!         }
//!     }
//! }
//! ```
//!
//! # Guarantees under faults
//!
//! * **A dropped peer.** Every call on another rank returns, with the right result or an error.
//! * **A corrupted head.** At least one rank reports an error, which fails the communicator on all
//!   ranks. No rank hangs, and nothing is written outside the buffers of the call. If the corrupted
//!   head is a request, the error may be that of a deadline.
//! * **A corrupted body.** Numbers may be wrong, and nothing else: the library trusts the checksums
//!   of the transport below. With [`corrupt_body`](SimulatedWorld::corrupt_body), a trainer can
//!   test that it detects wrong numbers.
//!
//! # Rules for the code under test
//!
//! * Ranks may share atomics and locks, but a rank must not *wait* for another one except by calls
//!   of its communicator: a rank keeps its turn while it waits elsewhere, and the other never gets
//!   one. A run in which a turn lasts 30 s prints a sentence that names the rank.
//! * The actions of a rank must follow from its arguments. A rank that reads the time, or random
//!   numbers of the system, is not reproducible.
//! * A dropped rank unwinds from within a call, without a message and without the panic hook: its
//!   values are dropped, and others see nothing of it. Tests that are compiled with
//!   `panic = "abort"` cannot drop ranks.

#![forbid(unsafe_code)]

pub mod network;
mod run;
mod watchdog;
mod world;

#[doc(inline)]
pub use network::CorruptedByte;
pub use run::{RankOutcome, SimulatedRun};
pub use world::SimulatedWorld;
