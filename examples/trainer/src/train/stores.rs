//! How the store of a rank is made: what its gradients are summed over, and in how many bits.

use crate::data_parallel::sharding::Sharding;
use crate::data_parallel::summed::{SummedEntries, SummedStore};
use crate::model::layout::ParameterLayout;
use crate::model::mixed::MixedPrecisionStore;
use crate::model::store::Store;
use crate::ranks::group::RankGroup;
use crate::ranks::mesh::{MeshAxis, MeshGroups};
use crate::tensor::half_float::HalfFloat;
use crate::tensor::math::FloatElement;
use crate::train::parallelism::Parallelism;
use maypole::Result;
use std::rc::Rc;

/// Makes the store of some weights.
pub type MakeStore<T> =
    Rc<dyn Fn(&StorePlan<T>, ParameterLayout, Vec<T>) -> Result<Box<dyn Store<T>>>>;

/// The plan of the store of a rank's weights: the groups over which each gradient is summed.
#[derive(Clone)]
pub struct StorePlan<T> {
    /// What ranks that have the same parameters divide among them.
    pub sharding: Sharding,
    /// The ranks that have the same parameters.
    pub copies: RankGroup,
    /// The groups over which some gradients are summed before that.
    pub sums: Vec<(RankGroup, SummedEntries)>,
    /// The ranks of `ep` that bring each dense parameter to the norm of the gradient.
    pub bring_dense: usize,
    /// Makes the store of these fields, or one of another kind.
    pub make: MakeStore<T>,
}

/// Rounds `weights` to 16 bits and makes a store of them by `inner`; masters and gradients stay in 32
/// bits.
///
/// # Errors
/// As `inner`.
pub fn mixed<H: HalfFloat>(
    weights: &[f32],
    inner: impl FnOnce(Vec<H>) -> Result<Box<dyn Store<H, f32>>>,
) -> Result<Box<dyn Store<f32>>> {
    let mut rounded = vec![H::zero(); weights.len()];
    H::narrow(&mut rounded, weights);
    Ok(Box::new(MixedPrecisionStore::new(inner(rounded)?, weights)))
}

impl<T: FloatElement> StorePlan<T> {
    /// The plan of a rank with these groups.
    pub fn new(setup: &Parallelism, groups: &MeshGroups) -> Self {
        let mut sums: Vec<(RankGroup, SummedEntries)> = Vec::new();
        if setup.sequence {
            sums.push((groups.tp.clone(), |entry| entry.is_partial(MeshAxis::Tp)));
        }
        sums.push((groups.ep.clone(), |entry| entry.is_partial(MeshAxis::Ep)));
        let (sharding, copies) = (setup.sharding, groups.copies.clone());
        let make: MakeStore<T> = Rc::new(|plan, layout, weights| plan.store(layout, weights));
        Self { sharding, copies, sums, bring_dense: groups.ep.world(), make }
    }

    /// The store of these fields, with weights and gradients of any kind.
    ///
    /// # Errors
    /// If the ranks cannot make memory that they share.
    pub fn store<N: FloatElement, G: FloatElement>(
        &self,
        layout: ParameterLayout,
        weights: Vec<N>,
    ) -> Result<Box<dyn Store<N, G>>> {
        Ok(self.with_sums(self.sharding.store(layout, weights, self.copies.clone())?))
    }

    /// Puts before `inner` the sums of gradients over other groups.
    pub fn with_sums<N: FloatElement, G: FloatElement>(
        &self,
        inner: Box<dyn Store<N, G>>,
    ) -> Box<dyn Store<N, G>> {
        Box::new(SummedStore::new(inner, self.sums.clone(), self.sharding))
    }
}
