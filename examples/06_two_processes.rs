//! Lesson 6: the same calls between processes, over TCP.
//!
//! ```text
//! cargo build --release --example 06_two_processes
//! MAYPOLE_TRANSPORT=tcp cargo run --release -- run -n 2 target/release/examples/06_two_processes
//! ```
//!
//! `from_env` reads the rank of this process from the environment variables of its launcher:
//! `maypole run`, torchrun, mpirun, mpiexec or srun. Without a launcher the world has one rank, and
//! every collective works there too.

use maypole::{Communicator, ReduceOp, Result};
use std::time::Instant;

fn main() -> Result<()> {
    let mut comm = Communicator::from_env()?;
    let rank = comm.rank();
    let world = comm.world();

    let mut seen = vec![0; world];
    comm.all_gather((&[std::process::id()], &mut seen))?;
    println!("I am rank {rank} of {world}; the ranks are processes {seen:?}");

    let mut gradients = vec![rank as f32 + 1.0; 1 << 20];
    comm.all_reduce(&mut gradients, ReduceOp::Avg)?;
    let expected = (world as f32 + 1.0) / 2.0;
    assert!(gradients.iter().all(|x| *x == expected));

    let rounds = 20;
    let start = Instant::now();
    for _ in 0..rounds {
        comm.all_reduce(&mut gradients, ReduceOp::Max)?;
    }
    let each = start.elapsed() / rounds;
    if rank == 0 {
        println!("average {expected}; one all-reduce of 4 MiB took {each:?} on this machine");
    }
    comm.close()
}
