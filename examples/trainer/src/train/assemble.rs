//! The parts of a rank's training, from its setup and the groups that it meets.

use crate::context_parallel::ring::{ExactRing, RingAttention};
use crate::context_parallel::ulysses::UlyssesAttention;
use crate::data_parallel::partial::{PartialSumStore, applied_to_own_tokens, dense};
use crate::expert_parallel::layer::{ExactExperts, ExpertLayer, RoutingRecord};
use crate::faults::assembly::Assembly;
use crate::model::axes::{Attention, Axes, FeedForward};
use crate::model::config::Config;
use crate::model::feed_forward;
use crate::model::layout::{LayoutEntry, ModelPart, ParameterLayout};
use crate::model::store::Store;
use crate::ranks::mesh::MeshGroups;
use crate::tensor::math::{FloatElement, Real};
use crate::tensor_parallel::region::{ParallelRegion, SingleRank, TensorParallelRegion};
use crate::tensor_parallel::vocab::{VocabParallel, Vocabulary};
use crate::train::clip::GradientNorm;
use crate::train::setup::{ContextExchange, Setup};
use crate::unequal_ranks::rows::RowBalance;
use maypole::Result;
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

/// The division of rows over the replicas of the mesh.
pub(super) fn balance(setup: &Setup, groups: &MeshGroups) -> RowBalance {
    let mesh = groups.mesh;
    let replicas = (0..mesh.world()).map(|rank| mesh.rows(mesh.place(rank)).index).collect();
    RowBalance::new(setup.rows.clone(), replicas, mesh.rank(groups.place), setup.micros)
}

/// Returns the units of each stage of a rank.
pub(super) fn stages(
    layout: &ParameterLayout,
    config: &Config,
    setup: &Setup,
    groups: &MeshGroups,
) -> Vec<Range<usize>> {
    let rank = groups.pp.rank();
    let ranks = groups.pp.world();
    let last = setup.schedule.chunks() - 1;
    let mut from = 0;
    let mut stage = |chunk: usize| {
        let layers = setup.layers(config, chunk * ranks + rank);
        let here = |part: ModelPart| match part {
            ModelPart::Embed => chunk == 0,
            ModelPart::Block(layer) => layers.contains(&layer),
            ModelPart::Head => chunk == last,
        };
        let start = from;
        from += layout.units[start..].iter().take_while(|unit| here(unit.part)).count();
        start..from
    };
    (0..=last).map(&mut stage).collect()
}

/// Returns the parts of the model that exchange with other ranks.
pub(super) fn axes<T: Real>(
    config: &Config,
    setup: &Setup,
    groups: &MeshGroups,
    routing: &Rc<RefCell<RoutingRecord>>,
) -> Axes<T> {
    let assembly = Assembly(setup.fault);
    let mut region: Box<dyn ParallelRegion<T>> = Box::new(SingleRank);
    let mut vocabulary: Box<dyn Vocabulary<T>> = Box::new(SingleRank);
    if groups.tp.world() > 1 {
        let group = groups.tp.clone();
        region = assembly.region(TensorParallelRegion { group, sequence: setup.sequence });
        let group = groups.tp.clone();
        vocabulary = assembly.vocabulary(VocabParallel { group, vocabulary: config.vocab });
    }
    let group = groups.cp.clone();
    let division = setup.division;
    let attention: Box<dyn Attention<T>> = match setup.exchange {
        _ if group.world() == 1 => Box::new(SingleRank),
        ContextExchange::Ring => assembly.ring(RingAttention { group, division, rules: ExactRing }),
        ContextExchange::Ulysses => assembly.ulysses(UlyssesAttention { group, division }),
    };
    let experts = |router| {
        let ep = groups.ep.clone();
        let tp = groups.tp.clone();
        let routing = Rc::clone(routing);
        assembly.experts(ExpertLayer { router, ep, tp, routing, rules: ExactExperts })
    };
    let feed_forward: Box<dyn FeedForward<T>> = match setup.router {
        Some(router) => experts(router),
        None => feed_forward::dense(config),
    };
    Axes { region, attention, feed_forward, vocabulary }
}

/// The store of this rank's weights, with every sum that their gradients need.
pub(super) fn store<T: FloatElement>(
    layout: ParameterLayout,
    weights: Vec<T>,
    setup: &Setup,
    groups: &MeshGroups,
) -> Result<Box<dyn Store<T>>> {
    let assembly = Assembly(setup.fault);
    let mut sums = Vec::new();
    if setup.sequence {
        sums.extend(assembly.sum_of_tokens((groups.tp.clone(), applied_to_own_tokens)));
    }
    sums.push(assembly.sum_over_experts((groups.ep.clone(), dense)));
    let sharding = assembly.sharding(setup.sharding);
    let inner = sharding.store(layout, weights, assembly.copies(groups))?;
    let right = Box::new(PartialSumStore::new(inner, sums, sharding));
    Ok(assembly.store(right, groups.copies.world()))
}

/// The norm over the mesh, or over the ranks of one replica in local SGD: a parameter is
/// counted on every rank that has the same one, and divided by the number of these ranks.
pub(super) fn norm<T: Real>(
    store: &dyn Store<T>,
    groups: &MeshGroups,
    assembly: Assembly,
) -> Result<GradientNorm> {
    let world = &groups.world;
    let model = if store.diverges() {
        world.split(groups.copies.rank(), world.rank())?
    } else {
        world.clone()
    };
    let copies = store.copies();
    let tp = groups.tp.world();
    let ep = assembly.copies_of_dense(groups.ep.world());
    let brought = |entry: &LayoutEntry| {
        let tensor = entry.cut.is_none();
        let expert = entry.expert.is_none();
        copies * if tensor { tp } else { 1 } * if expert { ep } else { 1 }
    };
    Ok(GradientNorm::new(store.layout(), model, brought))
}
