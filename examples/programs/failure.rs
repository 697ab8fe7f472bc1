//! A rank dies in the middle of the job. The others are told which one, and go on without it.
//!
//! ```text
//! cargo build --release --example failure
//! maypole run -n 4 --failure-grace 30 target/release/examples/failure
//! ```
//!
//! Without `--failure-grace` the launcher ends the others when a rank has failed.

use maypole::{Communicator, FailureKind, ReduceOp, Result};

const STEPS: u64 = 6;
/// The rank that dies, before which step.
const DEATH: (usize, u64) = (2, 3);

fn main() -> Result<()> {
    let mut comm = Communicator::from_env()?;
    let first_rank = comm.rank();
    let mut step = 0;
    while step < STEPS {
        if (first_rank, step) == DEATH {
            std::process::exit(7); // without a word to the others
        }
        let mut sum = [1u64, step];
        match comm.all_reduce(&mut sum, ReduceOp::Sum) {
            Ok(()) => {
                assert_eq!(sum, [comm.world() as u64, comm.world() as u64 * step]);
                step += 1;
            }
            // On every rank the kind and the culprit are the same, whichever detected the death.
            Err(error) if error.kind() == Some(FailureKind::Death) => {
                let lost = error.culprit().expect("a death has a culprit");
                println!("rank {first_rank} goes on without rank {lost}: {error}");
                comm = comm.shrink()?;
                // Some may have completed the step that failed on others: all repeat it.
                let mut common = [step];
                comm.all_reduce(&mut common, ReduceOp::Min)?;
                step = common[0];
            }
            Err(error) => return Err(error),
        }
    }
    println!("rank {first_rank} is rank {} of {} at the end", comm.rank(), comm.world());
    comm.close()
}
