//! Rebalancing: during training, experts move between ranks so that each rank has an equal share of
//! the measured load.
//!
//! What it does: all experts of a layer have the same shapes. An expert moves to another place with
//! its weights, both averages of the optimizer, and its row of the router; the expert of that place
//! moves elsewhere in the same way. The places of each rank, the layout and the format of
//! checkpoints do not change. The model computes the same function as before, but for the order of
//! sums over experts.
//!
//! ```text
//!              rank 0   rank 1
//! places        0  1     2  3
//! load          9  8     1  2       rank 0 has 17 of 20: 1.7 times the mean
//! come from     0  2     1  3       places 1 and 2 exchange their experts and rows of the router
//! load          9  1     8  2       rank 0 has 10 of 20
//! ```
//!
//! What is sharded: nothing more. Which collective runs where: one all-reduce of the loads over all ranks.
//! Then, for each layer in which experts move, once for weights and once for each average: if the
//! ranks of `dp` and `cp` own parts, an all-gather over them of the router and of the experts that
//! move; one all-to-all over `ep` of the experts that move. With `tp` a rank sends its part of each
//! expert. At the end owners send the changed weights, as after an update: under ZeRO-1 and ZeRO-2
//! an all-gather of all weights.
//!
//! Cost: with AdamW three numbers for each parameter of an expert that moves. Moves are rare, and
//! every later step is shorter. Experts move only if the load of the busiest rank is more than
//! [`WORTH`] times its load afterwards. Experts are not divided or copied, so an expert whose load
//! is greater than the mean of a rank stays so.

use crate::placement::ExpertPlacement;
use maypole::Result;
use maypole_trainer::model::layout::{ModelPart, ParameterLayout};
use maypole_trainer::model::store::Store;
use maypole_trainer::ranks::exchange::all_to_all_v;
use maypole_trainer::ranks::group::RankGroup;
use maypole_trainer::ranks::mesh::MeshGroups;
use maypole_trainer::tensor::math::{FloatElement, Real, take};
use maypole_trainer::train::trainer::Trainer;
use std::ops::Range;

/// Experts move if the load of the busiest rank is more than this multiple of its load after the
/// move.
pub const WORTH: f64 = 1.05;

/// The new places of the experts of a layer.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpertMove {
    /// The number of the layer in the whole model.
    pub layer: usize,
    /// For each place the place whose expert comes into it.
    pub from: Vec<usize>,
    /// The load of the busiest rank divided by the mean, before and after the move, by the load
    /// from which the move was decided.
    pub uneven: [f64; 2],
}

impl ExpertMove {
    /// True if any expert moves.
    pub fn any(&self) -> bool {
        self.from.iter().enumerate().any(|(place, from)| place != *from)
    }

    /// The move that undoes this one.
    #[must_use]
    pub fn back(&self) -> Self {
        let mut from = vec![0; self.from.len()];
        self.from.iter().enumerate().for_each(|(place, came)| from[*came] = place);
        Self { from, uneven: [self.uneven[1], self.uneven[0]], ..*self }
    }

    fn of(layer: usize, load: &[u64], ranks: usize) -> Self {
        let even = ExpertPlacement::even(load.len(), ranks);
        let balanced = ExpertPlacement::balanced(load, ranks);
        let [before, after] = [&even, &balanced].map(|placement| placement.imbalance(load));
        if before <= WORTH * after {
            return Self { layer, from: even.kept.concat(), uneven: [before; 2] };
        }
        Self { layer, from: balanced.moves(), uneven: [before, after] }
    }

    /// Returns the places among `all` that get another expert. These are also the places whose
    /// expert leaves.
    fn changing(&self, all: Range<usize>) -> Vec<usize> {
        all.filter(|place| self.from[*place] != *place).collect()
    }
}

/// Returns the moves that balance `load` over `ranks` ranks, one for each layer. `load` has
/// `experts` numbers for each layer.
///
/// # Panics
/// If the ranks do not divide the experts.
pub fn moves_by_load(load: &[u64], experts: usize, ranks: usize) -> Vec<ExpertMove> {
    load.chunks_exact(experts.max(1))
        .enumerate()
        .map(|(layer, load)| ExpertMove::of(layer, load, ranks))
        .collect()
}

/// Moves experts: [`move_experts`].
pub type MoveExperts<T> =
    fn(&mut dyn Store<T>, [&mut [T]; 2], &MeshGroups, &[ExpertMove]) -> Result<()>;

/// Tokens that all ranks sent to each expert, layer after layer of the whole model, since experts
/// last moved by their load. Empty, if there are no experts. Collective.
///
/// # Errors
/// As every collective.
pub fn load<T>(trainer: &Trainer<T>) -> Result<Vec<u64>> {
    // The ranks of tp route the same tokens: one of them counts.
    let counts = trainer.groups.tp.rank() == 0;
    let own = trainer.parts.pipeline.load.iter();
    let mut load: Vec<f64> = own.map(|load| if counts { *load as f64 } else { 0.0 }).collect();
    trainer.groups.world.all_reduce(&mut load)?;
    Ok(load.into_iter().map(|load| load as u64).collect())
}

/// Moves experts between the ranks of `ep` by their load since the last call. Returns the moves of
/// every layer of the whole model; none if there are no experts. Collective.
///
/// # Errors
/// As every collective.
pub fn rebalance<T: Real>(trainer: &mut Trainer<T>, by: MoveExperts<T>) -> Result<Vec<ExpertMove>> {
    let load = load(trainer)?;
    trainer.parts.pipeline.load.fill(0);
    let experts = trainer.parts.model.config.experts;
    let moves = moves_by_load(&load, experts, trainer.groups.ep.world());
    rearrange(trainer, by, &moves)?;
    Ok(moves)
}

/// Moves experts. All ranks call it, with the same `moves`: those of all layers of the model, also
/// of layers on other ranks.
///
/// # Errors
/// As every collective.
pub fn rearrange<T: Real>(
    trainer: &mut Trainer<T>,
    by: MoveExperts<T>,
    moves: &[ExpertMove],
) -> Result<()> {
    let Trainer { groups, parts, .. } = trainer;
    let optimizer = parts.update.optimizer_mut();
    let averages = [&mut *optimizer.first, &mut *optimizer.second];
    by(&mut *parts.store, averages, groups, moves)
}

/// Moves the experts of this rank's layers: their weights in `store`, and the optimizer's two
/// averages of the parameters that this rank owns. All ranks call it, with the same `moves`.
///
/// # Errors
/// As the collectives in it.
///
/// # Panics
/// If a move is for another number of experts than the model has.
pub fn move_experts<T: Real>(
    store: &mut dyn Store<T>,
    averages: [&mut [T]; 2],
    groups: &MeshGroups,
    moves: &[ExpertMove],
) -> Result<()> {
    let layout = store.layout().clone();
    let sites: Vec<LayerMove<'_>> =
        moves.iter().filter(|it| it.any()).filter_map(|it| LayerMove::new(&layout, it)).collect();
    if sites.is_empty() {
        return Ok(());
    }
    let weights = OwnedNumbers(
        store.local_shards().into_iter().map(|run| (run.offset, run.weights)).collect(),
    );
    let runs = weights.runs();
    let whole = runs.iter().map(ExactSizeIterator::len).sum::<usize>() == layout.len();
    let mut all = vec![weights];
    all.extend(averages.into_iter().filter_map(|average| OwnedNumbers::of(average, &runs)));
    for mine in &mut all {
        for site in &sites {
            let here = mine.read(&site.ranges);
            let before = if whole { here } else { groups.copies.gather_lists(&here)?.concat() };
            mine.write(&site.ranges, &site.exchange(&groups.ep, &before)?);
        }
    }
    store.all_gather_params()
}

/// A layer of this rank in which experts move.
struct LayerMove<'a> {
    order: &'a ExpertMove,
    /// The places of this rank whose experts change.
    changing: Vec<usize>,
    /// The router and then the experts in those places, in the rank's flat buffer.
    ranges: Vec<Range<usize>>,
}

impl<'a> LayerMove<'a> {
    /// Returns `None` if this rank does not have the layer.
    fn new(layout: &ParameterLayout, order: &'a ExpertMove) -> Option<Self> {
        let experts = layout.config.experts;
        assert_eq!(order.from.len(), experts, "one place for each expert");
        let unit = layout.units.iter().find(|unit| unit.part == ModelPart::Block(order.layer))?;
        let entries = &layout.entries[unit.entries.clone()];
        let changing = order.changing(layout.share.expert.range(experts));
        let router = entries.iter().find(|entry| entry.name.ends_with("router.weight"))?.range();
        let expert = |place: &usize| {
            let mut of = entries
                .iter()
                .filter(|entry| entry.expert == Some(*place))
                .map(|entry| entry.range());
            let first = of.next().expect("an expert has parameters");
            first.start..of.next_back().map_or(first.end, |last| last.end)
        };
        let ranges = std::iter::once(router).chain(changing.iter().map(expert)).collect();
        Some(Self { order, changing, ranges })
    }

    /// Returns the new numbers of `ranges` from those `before` the move.
    fn exchange<T: FloatElement>(&self, ep: &RankGroup, before: &[T]) -> Result<Vec<T>> {
        let (router, experts) = before.split_at(self.ranges[0].len());
        let mut after = self.rows(router);
        after.extend(self.experts(ep, experts)?);
        Ok(after)
    }

    /// Returns the rows of the router in the new order. Every rank has all rows.
    fn rows<T: FloatElement>(&self, router: &[T]) -> Vec<T> {
        let width = router.len() / self.order.from.len();
        self.order.from.iter().flat_map(|from| &router[from * width..][..width]).copied().collect()
    }

    /// Returns the experts that come into the changing places. `experts` are those in these places
    /// now.
    fn experts<T: FloatElement>(&self, ep: &RankGroup, experts: &[T]) -> Result<Vec<T>> {
        let from = &self.order.from;
        let changing = &self.changing;
        let each = experts.len() / changing.len().max(1);
        let rank = |place: usize| place * ep.world() / from.len();
        // Senders and receivers use the same order: by rank, then by the place that an expert
        // comes into.
        let leaving: Vec<usize> =
            (0..from.len()).filter(|place| changing.contains(&from[*place])).collect();
        let mut arriving = changing.clone();
        arriving.sort_by_key(|place| rank(from[*place]));
        let mut to = vec![0; ep.world()];
        let mut of = vec![0; ep.world()];
        leaving.iter().for_each(|place| to[rank(*place)] += each);
        arriving.iter().for_each(|place| of[rank(from[*place])] += each);
        let expert = |place: &usize| &experts[position(changing, from[*place]) * each..][..each];
        let sent: Vec<T> = leaving.iter().flat_map(expert).copied().collect();
        let got = all_to_all_v(ep, &sent, &to, &of)?;
        let expert = |place: &usize| &got[position(&arriving, *place) * each..][..each];
        Ok(changing.iter().flat_map(expert).copied().collect())
    }
}

fn position(places: &[usize], place: usize) -> usize {
    places
        .iter()
        .position(|it| *it == place)
        .expect("every place that an expert leaves gets another one")
}

/// One number for each parameter that this rank owns, as runs: the index of the run's first
/// parameter in the rank's flat buffer, and the run.
struct OwnedNumbers<'a, T>(Vec<(usize, &'a mut [T])>);

impl<'a, T: FloatElement> OwnedNumbers<'a, T> {
    /// The numbers of an `average` of the optimizer, which has them run after run. `None` if no
    /// step was done yet, or if the rule has no averages.
    fn of(average: &'a mut [T], runs: &[Range<usize>]) -> Option<Self> {
        let mut rest = average;
        if rest.is_empty() {
            return None;
        }
        let run = |run: &Range<usize>| {
            (run.start, rest.split_off_mut(..run.len()).expect("a number for each parameter"))
        };
        Some(Self(runs.iter().map(run).collect()))
    }

    fn runs(&self) -> Vec<Range<usize>> {
        self.0.iter().map(|(start, run)| *start..start + run.len()).collect()
    }

    /// Returns the numbers in `ranges` that this rank owns. The parts of a layer that ranks own are
    /// in the order of ranks, so the numbers of all ranks in rank order are the whole ranges.
    fn read(&self, ranges: &[Range<usize>]) -> Vec<T> {
        let mut numbers = Vec::new();
        for range in ranges {
            for (start, run) in &self.0 {
                if let Some(both) = overlap(range, &(*start..start + run.len())) {
                    numbers.extend_from_slice(&run[both.start - start..both.end - start]);
                }
            }
        }
        numbers
    }

    /// Writes those of `numbers`, the numbers of all `ranges`, that this rank owns.
    fn write(&mut self, ranges: &[Range<usize>], mut numbers: &[T]) {
        for range in ranges {
            let numbers = take(&mut numbers, range.len());
            for (start, run) in &mut self.0 {
                if let Some(both) = overlap(range, &(*start..*start + run.len())) {
                    let part = &numbers[both.start - range.start..both.end - range.start];
                    run[both.start - *start..both.end - *start].copy_from_slice(part);
                }
            }
        }
    }
}

fn overlap(one: &Range<usize>, other: &Range<usize>) -> Option<Range<usize>> {
    let both = one.start.max(other.start)..one.end.min(other.end);
    (both.start < both.end).then_some(both)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_moves_of_the_example_above_are_decided() {
        let layers = moves_by_load(&[9, 8, 1, 2, 5, 5, 5, 4, 0, 0, 0, 0], 4, 2);
        assert_eq!(layers[0], ExpertMove { layer: 0, from: vec![0, 2, 1, 3], uneven: [1.7, 1.0] });
        assert!(
            !layers[1].any() && layers[1].uneven == [20.0 / 19.0; 2],
            "no expert moves for a gain below WORTH"
        );
        assert!(!layers[2].any(), "no expert moves before a load is measured");
        assert!(moves_by_load(&[], 0, 1).is_empty());
    }

    #[test]
    fn a_move_and_its_inverse_change_nothing() {
        let there = ExpertMove { layer: 3, from: vec![2, 0, 3, 1], uneven: [1.5, 1.0] };
        let back = there.back();
        assert_eq!(
            there.from.iter().map(|from| back.from[*from]).collect::<Vec<_>>(),
            [0, 1, 2, 3]
        );
        assert_eq!(back.back(), there);
    }
}
