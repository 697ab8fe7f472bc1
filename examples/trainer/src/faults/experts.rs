//! Mistakes of expert parallelism: outputs out of order, a router that does not learn, experts that
//! move without their router.

use crate::expert_parallel::dispatch::TokenRoutes;
use crate::expert_parallel::layer::ExpertRules;
use crate::expert_parallel::rebalance::{ExpertMove, move_experts};
use crate::model::layout::ParameterLayout;
use crate::model::store::Store;
use crate::ranks::mesh::MeshGroups;
use crate::tensor::math::Real;
use maypole::Result;

/// Leaves the outputs of the experts in the order of arrival, not in that of the tokens.
#[derive(Debug)]
pub(super) struct ArrivalOrder;

impl ExpertRules for ArrivalOrder {
    fn routes(&self, mut routes: TokenRoutes) -> TokenRoutes {
        routes.returned = (0..routes.returned.len()).collect();
        routes
    }
}

/// The router learns nothing from the outputs of the experts.
#[derive(Debug)]
pub(super) struct NoGateGradient;

impl ExpertRules for NoGateGradient {
    fn gate_gradient<T: Real>(&self, _: T) -> T {
        T::zero()
    }
}

/// Moves experts as [`move_experts`] does, and leaves the rows of their routers, and the
/// optimizer's averages of these, where they were.
///
/// # Errors
/// As the collectives in it.
pub(super) fn left_behind<T: Real>(
    store: &mut dyn Store<T>,
    [first, second]: [&mut [T]; 2],
    groups: &MeshGroups,
    moves: &[ExpertMove],
) -> Result<()> {
    let layout = store.layout().clone();
    let before = routers(&layout, store, [&mut *first, &mut *second]).map(|run| *run);
    let before: Vec<T> = before.collect();
    move_experts(store, [&mut *first, &mut *second], groups, moves)?;
    routers(&layout, store, [first, second]).zip(before).for_each(|(now, before)| *now = before);
    store.share()
}

/// The elements of routers that this rank owns: weights, then each average.
fn routers<'a, T: Real>(
    layout: &'a ParameterLayout,
    store: &'a mut dyn Store<T>,
    averages: [&'a mut [T]; 2],
) -> impl Iterator<Item = &'a mut T> {
    let mut own = Vec::new();
    let mut weights = Vec::new();
    for run in store.owned() {
        own.extend(run.offset..run.offset + run.weights.len());
        weights.extend(run.weights);
    }
    let is_router = move |place: &usize| {
        let entry = layout.entries.iter().find(|entry| entry.range().contains(place));
        entry.is_some_and(|entry| entry.name.ends_with("router.weight"))
    };
    let routers: Vec<bool> = own.iter().map(is_router).collect();
    let all = weights.into_iter().zip(routers.clone());
    let averages =
        averages.into_iter().flat_map(move |average| average.iter_mut().zip(routers.clone()));
    all.chain(averages).filter_map(|(number, router)| router.then_some(number))
}
