//! A mistake of expert parallelism: experts that move without their router.

use crate::rebalance::{ExpertMove, move_experts};
use maypole::Result;
use maypole_trainer::model::layout::ParameterLayout;
use maypole_trainer::model::store::Store;
use maypole_trainer::ranks::mesh::MeshGroups;
use maypole_trainer::tensor::math::Real;

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
    store.all_gather_params()
}

/// The elements of routers that this rank owns: weights, then each average.
fn routers<'a, T: Real>(
    layout: &'a ParameterLayout,
    store: &'a mut dyn Store<T>,
    averages: [&'a mut [T]; 2],
) -> impl Iterator<Item = &'a mut T> {
    let mut own = Vec::new();
    let mut weights = Vec::new();
    for run in store.local_shards() {
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
