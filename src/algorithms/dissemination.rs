//! Dissemination: in round `i`, each rank sends a token to the rank 2^i after it, and receives one
//! from the rank 2^i before it. A token stands for all ranks whose tokens its sender has received.
//!
//! ```text
//! dissemination barrier, n = 4
//!      rank 0             rank 1             rank 2             rank 3
//! 0    in0 ->1            in0 ->2            in0 ->3            in0 ->0
//! 1    tmp0 =in0 +=3 ->2  tmp0 =in0 +=0 ->3  tmp0 =in0 +=1 ->0  tmp0 =in0 +=2 ->1
//! 2    out0 =tmp0 +=2     out0 =tmp0 +=3     out0 =tmp0 +=0     out0 =tmp0 +=1
//! ```
//!
//! **Cost**: ceil(lg n) steps for every n, no bytes: ceil(lg n) a.
//!
//! **Why**: the fewest rounds after which every rank depends on every other, without a root.
//!
//! The tokens are empty, but they are *data*: round `i` sends the token that round `i - 1`
//! received. Without this dependence, an executor could send all tokens immediately, because steps
//! that do not conflict may run in any order. (When n is no power of two, a token may count a rank
//! twice; a barrier allows that.)
//!
//! **Source**: D. Hensgen, R. Finkel, U. Manber, "Two algorithms for barrier synchronization",
//! International Journal of Parallel Programming 1988.

use crate::schedule::{Schedule, Span, Step, input, output, scratch};

pub(super) fn barrier(world: usize, rank: usize) -> Schedule {
    let rounds = world.next_power_of_two().ilog2() as usize;
    let exchange = |round| {
        let distance = 1_usize << round;
        let heard = token(round, rounds);
        let next = token(round + 1, rounds);
        [
            Step::Send { from: heard, to: (rank + distance) % world },
            Step::Copy { from: heard, into: next },
            Step::RecvReduce { into: next, from: (rank + world - distance) % world },
        ]
    };
    Schedule::new(1, (0..rounds).flat_map(exchange).collect())
}

/// The token that this rank holds before `round`.
fn token(round: usize, rounds: usize) -> Span {
    match round {
        0 => input(0),
        _ if round == rounds => output(0),
        _ => scratch(round - 1),
    }
}
