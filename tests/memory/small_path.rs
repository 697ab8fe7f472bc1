//! A small call that is repeated allocates nothing, for every collective and kind of link.

use crate::counting::{LIVE, allocations};
use crate::spawn::World;
use maypole::{Communicator, Local, ReduceOp, Result};
use std::sync::atomic::Ordering::Relaxed;

/// A call with one element a rank. `one` has one element, `all` has one of each rank.
type SmallCall = fn(&mut Communicator, one: &mut [f32], all: &mut [f32]) -> Result<()>;

const ROOT: usize = 1;

/// Every collective, out of place and in place.
const CALLS: [(&str, SmallCall); 18] = [
    ("barrier", |comm, _, _| comm.barrier()),
    ("broadcast", |comm, one, _| comm.broadcast(one, ROOT)),
    ("reduce", |comm, one, _| comm.reduce(one, ReduceOp::Sum, ROOT)),
    ("reduce_into", |comm, one, all| comm.reduce((one, &mut all[..1]), ReduceOp::Max, ROOT)),
    ("all_reduce", |comm, one, _| comm.all_reduce(one, ReduceOp::Min)),
    ("average", |comm, one, _| comm.all_reduce(one, ReduceOp::Avg)),
    ("all_reduce_into", |comm, one, all| comm.all_reduce((one, &mut all[..1]), ReduceOp::Sum)),
    ("gather", |comm, one, all| comm.gather((one, all), ROOT)),
    ("all_gather", |comm, one, all| comm.all_gather((one, all))),
    ("all_gather_in_place", |comm, _, all| comm.all_gather(all)),
    ("scatter", |comm, one, all| comm.scatter((all, one), ROOT)),
    ("reduce_scatter", |comm, one, all| comm.reduce_scatter((all, one), ReduceOp::Sum)),
    ("reduce_scatter_in_place", |comm, _, all| comm.reduce_scatter(all, ReduceOp::Min)),
    ("all_to_all", |comm, _, all| {
        let mut other = [0.0; 8];
        let world = all.len();
        comm.all_to_all((all, &mut other[..world]))
    }),
    ("all_to_all_in_place", |comm, _, all| comm.all_to_all(all)),
    ("scan", |comm, one, _| comm.scan(one, ReduceOp::Max)),
    ("scan_into", |comm, one, all| comm.scan((one, &mut all[..1]), ReduceOp::Sum)),
    ("exclusive_scan", |comm, one, _| comm.exclusive_scan(one, ReduceOp::Max)),
];

/// Asserts that 50 calls of every collective allocate nothing, once they have been made before.
fn allocate_nothing(local: &Local, world: usize) {
    local.run(|mut comm| {
        let mut one = [1.0f32];
        let mut all = [2.0f32; 8];
        let all = &mut all[..world];
        for (name, call) in CALLS {
            (0..10).for_each(|_| call(&mut comm, &mut one, all).unwrap());
            let before = allocations();
            (0..50).for_each(|_| call(&mut comm, &mut one, all).unwrap());
            assert_eq!(allocations() - before, 0, "allocations in 50 calls of {name}");
        }
    });
    assert!(LIVE.load(Relaxed) > 0, "the counting allocator is not in use");
}

/// In a process of its own, because the harness allocates when another test ends.
#[test]
fn repeated_small_calls_allocate_nothing() {
    World::new("calls", 1).start().succeed();
}

/// The process of the test of this file.
pub(crate) fn rank_process(_: &str) {
    // Over a board, over streams, and over both.
    allocate_nothing(&Local::new(2), 2);
    allocate_nothing(&Local::new(5), 5);
    allocate_nothing(&Local::new(2).hosts(&[0, 1]), 2);
    allocate_nothing(&Local::new(3).hosts(&[0, 0, 1]), 3);
}
