//! Lesson 6: the same calls between processes, over TCP.
//!
//! ```text
//! cargo build --release --example 06_two_processes
//! MAYPOLE_TRANSPORT=tcp cargo run --release -- run -n 2 target/release/examples/06_two_processes
//! ```
//!
//! `from_env` reads who this process is from the variables of whatever started it: `maypole run`,
//! torchrun, mpirun, mpiexec, srun. Without a launcher it is a world of one, in which every
//! collective works too.

use maypole::{Communicator, ReduceOp, Result};
use std::time::Instant;

fn main() -> Result<()> {
    let mut comm = Communicator::from_env()?;
    let (rank, world) = (comm.rank(), comm.world());

    let mut seen = vec![0; world];
    comm.all_gather(&[std::process::id()], &mut seen)?;
    println!("I am rank {rank} of {world}; the ranks are processes {seen:?}");

    let mut gradients = vec![rank as f32 + 1.0; 1 << 20];
    comm.all_reduce(&mut gradients, ReduceOp::Avg)?;
    let expected = (world as f32 + 1.0) / 2.0;
    assert!(gradients.iter().all(|x| *x == expected));

    let (start, rounds) = (Instant::now(), 20);
    for _ in 0..rounds {
        comm.all_reduce(&mut gradients, ReduceOp::Max)?;
    }
    let each = start.elapsed() / rounds;
    if rank == 0 {
        println!(
            "average {expected}; 4 MiB all-reduced in {each:?}, as this machine happens to be today"
        );
    }
    comm.close()
}
