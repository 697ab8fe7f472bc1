//! Tensor parallelism: two matrices are cut so that one sum joins them.
//!
//! Read `src/tensor_parallel/region.rs` first.

use crate::chapters::RegionEnd;
use maypole::Result;
use maypole_trainer::ranks::group::RankGroup;

/// Called at the four ends of a region of divided layers, with the vectors of all tokens of this
/// rank. Returns what the next layer needs. Two of the four need a collective.
pub fn region(group: &RankGroup, end: RegionEnd, x: Vec<f64>) -> Result<Vec<f64>> {
    let mut x = x;
    match end {
        RegionEnd::Leave | RegionEnd::EnterBackward => group.all_reduce(&mut x)?,
        RegionEnd::Enter | RegionEnd::LeaveBackward => {}
    }
    Ok(x)
}
