//! Sequence parallelism: between the divided layers, each rank of a tensor group has its part of the
//! tokens, and not a copy of all.
//!
//! Read `examples/trainer/src/tensor_parallel/sequence.rs` first, and the exercise `tensor`.

use crate::chapters::RegionEnd;
use maypole::Result;
use maypole_trainer::ranks::group::RankGroup;

/// Called at both ends of a region of divided layers, forward and backward. Outside the region `x` has
/// the vectors of this rank's part of the tokens, the `group.rank()`-th of `group.world()` equal parts;
/// inside it has those of all tokens. At the ends at which `x` leaves the inside, it has this rank's
/// terms of sums over all ranks. Returns the vectors that the next layer needs. All four cases need a
/// collective, and none of them sends as much as an all-reduce.
pub fn region(group: &RankGroup, end: RegionEnd, x: Vec<f64>) -> Result<Vec<f64>> {
    let mut x = x;
    match end {
        RegionEnd::Enter | RegionEnd::LeaveBackward => group.gather(&x),
        RegionEnd::Leave | RegionEnd::EnterBackward => {
            group.reduce_scatter(&mut x)?;
            Ok(x[group.shard().range(x.len())].to_vec())
        }
    }
}
