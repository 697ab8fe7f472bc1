//! Tensor parallelism: two matrices are cut so that one sum after the second is enough.
//!
//! Read `examples/trainer/src/tensor_parallel/region.rs` first.

use crate::chapters::RegionEnd;
use maypole::Result;
use maypole_trainer::ranks::group::RankGroup;

/// Called at both ends of a region of divided layers, forward and backward, with the vectors of all
/// tokens on this rank. Returns the vectors that the next layer needs. Two of the four cases need a
/// collective.
pub fn region(group: &RankGroup, end: RegionEnd, x: Vec<f64>) -> Result<Vec<f64>> {
    let mut x = x;
    match end {
        RegionEnd::Leave | RegionEnd::EnterBackward => group.all_reduce(&mut x)?,
        RegionEnd::Enter | RegionEnd::LeaveBackward => {}
    }
    Ok(x)
}
