//! Lesson 10: combine elements with an operation of your own.
//!
//! An operation has a name, which must be equal on all ranks, and a flag whether it commutes. An
//! operation that does not commute runs only by algorithms that are *proved* to combine the ranks
//! in order. The checker derives this order from the steps of the schedules.

use maypole::algorithms::Algorithm;
use maypole::{Communicator, Operation};

/// `right` becomes the greatest common divisor of both, element by element.
fn gcd(left: &[u64], right: &mut [u64]) {
    for (left, right) in left.iter().zip(right) {
        *right = gcd_of_two(*left, *right);
    }
}

fn gcd_of_two(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd_of_two(b, a % b) }
}

/// `second` becomes the function that applies `first` and then `second`. An element is a function
/// `x -> a x + b`, with `a` in its upper half and `b` in its lower half.
fn then(first: &[u64], second: &mut [u64]) {
    for (first, second) in first.iter().zip(second) {
        let (a1, b1) = halves(*first);
        let (a2, b2) = halves(*second);
        *second = step(a1.wrapping_mul(a2), a2.wrapping_mul(b1).wrapping_add(b2));
    }
}

fn step(a: u32, b: u32) -> u64 {
    u64::from(a) << 32 | u64::from(b)
}

fn halves(step: u64) -> (u32, u32) {
    ((step >> 32) as u32, step as u32)
}

fn main() {
    let gcd = Operation::new("gcd", true, gcd);
    let then = Operation::new("then", false, then);
    let lines = Communicator::run_local(3, |mut comm| {
        let rank = comm.rank();
        let mut numbers = [[12, 35], [18, 49], [30, 77]][rank];
        comm.all_reduce(&mut numbers, &gcd).expect("all ranks call the same");

        // Double, add 3, triple: 3 (2 x + 3). Another order gives another result.
        let mut steps = [[step(2, 0), step(1, 3), step(3, 0)][rank]];
        comm.all_reduce(&mut steps, &then).expect("all ranks call the same");
        let (a, b) = halves(steps[0]);

        comm.set_algorithm(Some(Algorithm::Ring));
        let refused = comm
            .all_reduce(&mut [0; 8], &then)
            .expect_err("in a ring, every chunk begins at another rank");
        format!("{}: {numbers:?}\n{}: x -> {a} x + {b}\n{refused}", gcd.name(), then.name())
    });
    println!("{}", lines[0]);
}
