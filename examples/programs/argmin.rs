//! A search over all ranks: each has a part of the points, and all learn which one is nearest to each query.
//!
//! ```text
//! cargo build --release --example argmin
//! maypole run -n 4 target/release/examples/argmin
//! ```

use bytemuck::{Pod, Zeroable};
use maypole::{CallBuffers, Communicator, Operation, Result};

/// The points of one rank.
const POINTS: u64 = 1000;
const QUERIES: [f64; 3] = [0.25, 0.5, 0.875];

/// A point, and how far it is from a query.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Found {
    distance: f64,
    index: u64,
}

impl Found {
    /// The nearer one. Of two at one distance it is that of the lower index, so that all orders of
    /// combination have one result.
    fn nearer(self, other: Self) -> Self {
        let order = self.distance.total_cmp(&other.distance).then(self.index.cmp(&other.index));
        if order.is_lt() { self } else { other }
    }
}

/// A point between 0 and 1. Consecutive ones are far apart.
fn point(index: u64) -> f64 {
    index as f64 * 0.618_033_988_749_894_9 % 1.0
}

fn nearest(points: std::ops::Range<u64>, query: f64) -> Found {
    let found = points.map(|index| Found { distance: (point(index) - query).abs(), index });
    found.reduce(Found::nearer).expect("a rank has points")
}

fn main() -> Result<()> {
    let mut comm = Communicator::from_env()?;
    let (rank, world) = (comm.rank() as u64, comm.world() as u64);

    // MPI's MINLOC: a function on records. It is given whole ones, and the order does not matter.
    let argmin = Operation::new("argmin", true, |left: &[Found], right: &mut [Found]| {
        left.iter().zip(right).for_each(|(left, right)| *right = left.nearer(*right));
    });
    let mut found = QUERIES.map(|query| nearest(rank * POINTS..(rank + 1) * POINTS, query));
    comm.all_reduce(CallBuffers::records(&mut found), &argmin)?;

    assert_eq!(found, QUERIES.map(|query| nearest(0..world * POINTS, query)));
    println!("rank {rank}: the nearest points are {:?}", found.map(|it| it.index));
    comm.close()
}
