//! How the store of a rank is made: what its gradients are summed over, and in how many bits.

use crate::data_parallel::partial::{PartialSumStore, SummedEntries, applied_to_own_tokens, dense};
use crate::data_parallel::sharding::Sharding;
use crate::model::layout::ParameterLayout;
use crate::model::mixed::MixedPrecisionStore;
use crate::model::store::Store;
use crate::ranks::group::RankGroup;
use crate::ranks::mesh::MeshGroups;
use crate::tensor::half_float::HalfFloat;
use crate::tensor::math::FloatElement;
use crate::train::setup::Setup;
use maypole::Result;

/// Makes the store of some weights.
pub type MakeStore<T> = fn(&StorePlan<T>, ParameterLayout, Vec<T>) -> Result<Box<dyn Store<T>>>;

/// How the store of a rank's weights is made: what each gradient is summed over.
#[derive(Clone, Debug)]
pub struct StorePlan<T> {
    /// What ranks that have the same parameters divide among them.
    pub sharding: Sharding,
    /// The ranks that have the same parameters.
    pub copies: RankGroup,
    /// The groups over which some gradients are summed before that.
    pub sums: Vec<(RankGroup, SummedEntries)>,
    /// The ranks of `ep` that bring each dense parameter to the norm of the gradient.
    pub bring_dense: usize,
    /// [`summed`], or the same in 16 bits.
    pub make: MakeStore<T>,
}

/// The store of `plan`, with every sum that the gradients need.
///
/// # Errors
/// If the ranks cannot make memory that they share.
pub fn summed<S, T: FloatElement>(
    plan: &StorePlan<S>,
    layout: ParameterLayout,
    weights: Vec<T>,
) -> Result<Box<dyn Store<T>>> {
    let inner = plan.sharding.store(layout, weights, plan.copies.clone())?;
    Ok(Box::new(PartialSumStore::new(inner, plan.sums.clone(), plan.sharding)))
}

/// The same with weights and gradients in 16 bits, and masters in 32.
pub(super) fn mixed<H: HalfFloat>(
    plan: &StorePlan<f32>,
    layout: ParameterLayout,
    weights: Vec<f32>,
) -> Result<Box<dyn Store<f32>>> {
    let mut rounded = vec![H::zero(); weights.len()];
    H::narrow(&mut rounded, &weights);
    Ok(Box::new(MixedPrecisionStore::new(summed(plan, layout, rounded)?, &weights)))
}

impl<T: FloatElement> StorePlan<T> {
    /// The plan of a rank with these groups.
    pub fn new(setup: &Setup, groups: &MeshGroups) -> Self {
        let mut sums: Vec<(RankGroup, SummedEntries)> = Vec::new();
        if setup.sequence {
            sums.push((groups.tp.clone(), applied_to_own_tokens));
        }
        sums.push((groups.ep.clone(), dense));
        let (sharding, copies) = (setup.sharding, groups.copies.clone());
        Self { sharding, copies, sums, bring_dense: groups.ep.world(), make: summed }
    }
}
