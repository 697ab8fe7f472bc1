//! Lesson 10: combine elements in a way of your own.
//!
//! An operation has a name, which all ranks must agree on, and says whether it commutes. One that
//! does not is run only by algorithms that are *proved* to combine ranks in their order: the
//! checker derives that from their steps.

use maypole::algorithms::Algorithm;
use maypole::{Communicator, Operation};

/// `right` becomes the greatest common divisor of both, element by element.
fn gcd(left: &[u64], right: &mut [u64]) {
    for (left, right) in left.iter().zip(right) {
        let (mut a, mut b) = (*left, *right);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        *right = a;
    }
}

/// Steps `x -> a x + b`, the first and then the second; an element is a step, with `a` in its upper
/// half.
fn then(first: &[u64], second: &mut [u64]) {
    for (first, second) in first.iter().zip(second) {
        let ((a1, b1), (a2, b2)) = (halves(*first), halves(*second));
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
    let (gcd, then) = (Operation::new("gcd", true, gcd), Operation::new("then", false, then));
    let lines = Communicator::run_local(3, |mut comm| {
        let rank = comm.rank();
        let mut numbers = [[12, 35], [18, 49], [30, 77]][rank];
        comm.all_reduce_with(&mut numbers, &gcd).expect("all ranks call the same");

        // Double, add 3, triple: 3 (2 x + 3). In another order it would be something else.
        let mut steps = [[step(2, 0), step(1, 3), step(3, 0)][rank]];
        comm.all_reduce_with(&mut steps, &then).expect("all ranks call the same");
        let (a, b) = halves(steps[0]);

        comm.set_algorithm(Some(Algorithm::Ring));
        let refused = comm
            .all_reduce_with(&mut [0; 8], &then)
            .expect_err("in a ring, every chunk begins elsewhere");
        format!("{}: {numbers:?}\n{}: x -> {a} x + {b}\n{refused}", gcd.name(), then.name())
    });
    println!("{}", lines[0]);
}
