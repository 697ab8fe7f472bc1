//! Makes the parts of a rank's training, from its setup and the groups that it meets.

use crate::context_parallel::ring::RingAttention;
use crate::context_parallel::ulysses::UlyssesAttention;
use crate::expert_parallel::layer::{ExpertLayer, RoutingRecord};
use crate::model::axes::{Attention, Axes, FeedForward};
use crate::model::config::Config;
use crate::model::feed_forward;
use crate::model::layout::{LayoutEntry, ModelPart, ParameterLayout, Placement};
use crate::model::store::Store;
use crate::model::transformer::Transformer;
use crate::pipeline_parallel::execute::own_activations;
use crate::pipeline_parallel::links::StageLinks;
use crate::ranks::mesh::{MeshAxis, MeshGroups};
use crate::tensor::half_float::HalfFloat;
use crate::tensor::math::Real;
use crate::tensor::precision::HalfPrecisionDevice;
use crate::tensor_parallel::region::{ParallelRegion, SingleRank, TensorParallelRegion};
use crate::tensor_parallel::vocab::{VocabParallel, Vocabulary};
use crate::train::clip::{Clip, GradientNorm};
use crate::train::optim::{Optimizer, Rule};
use crate::train::parallelism::{ContextExchange, Parallelism};
use crate::train::pipeline::Pipeline;
use crate::train::rows::RankRows;
use crate::train::schedule::RateSchedule;
use crate::train::stores::{StorePlan, mixed};
use crate::train::trainer::{Parts, Trainer};
use crate::train::watch::Watch;
use maypole::{Communicator, Result};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

impl<T: Real> Trainer<T> {
    /// The rank of `comm` in the mesh of `setup`, with initial weights drawn by
    /// `seed`. Collective.
    ///
    /// # Errors
    /// As the library's `split`.
    ///
    /// # Panics
    /// If [`Config::check`] refuses the model, or [`Parallelism::check_model`] the setup.
    pub fn new(
        comm: Communicator,
        config: &Config,
        setup: Parallelism,
        seed: u64,
        (rule, schedule): (Rule, RateSchedule),
    ) -> Result<Self> {
        let checked = config.check().and_then(|()| setup.check_model(config));
        checked.unwrap_or_else(|why| panic!("{why}"));
        let groups = MeshGroups::new(comm, setup.mesh, setup.order)?;
        let layout = ParameterLayout::new(config, setup.share(config, groups.place));
        let routing = Rc::default();
        let model = Transformer::new(&layout, axes(config, &setup, &groups, &routing));
        let pipeline = pipeline(&layout, config, &setup, &groups, routing)?;
        let stores = StorePlan::new(&setup, &groups);
        let weights = layout.initial(seed);
        let store = (stores.make)(&stores, layout, weights)?;
        let parts = Parts {
            rows: Box::new(RankRows::new(config, &setup, &groups)),
            model,
            pipeline,
            clip: Clip::new(norm(&*store, &groups, stores.bring_dense)?),
            store,
            update: Box::new(Optimizer::new(rule)),
            rate: schedule,
        };
        groups.world.sum(0.0)?;
        let watch = Watch::new(groups.world.timeline().clone());
        Ok(Self { parallelism: setup, groups, parts, stores, step: 0, watch, settings: None })
    }

    /// Makes the store anew, by the plan, with initial weights drawn by `seed`. Collective.
    ///
    /// # Errors
    /// If the ranks cannot make memory that they share.
    pub fn draw(&mut self, seed: u64) -> Result<()> {
        let layout = self.parts.store.layout().clone();
        let weights = layout.initial(seed);
        self.parts.store = (self.stores.make)(&self.stores, layout, weights)?;
        self.parts.clip.norm = norm(&*self.parts.store, &self.groups, self.stores.bring_dense)?;
        Ok(())
    }
}

impl Trainer<f32> {
    /// Begins again in 16 bits, with initial weights drawn by `seed`. Layers compute on the same
    /// device with rounded weights and round their results; the optimizer updates the weights in 32
    /// bits. Collective.
    ///
    /// # Errors
    /// If the ranks cannot make memory that they share.
    pub fn narrow<H: HalfFloat>(&mut self, seed: u64) -> Result<()> {
        self.stores.make = Rc::new(|plan, layout, weights| {
            mixed::<H>(&weights, |rounded| plan.store(layout, rounded))
        });
        self.draw(seed)?;
        let model = &mut self.parts.model;
        model.device = Arc::new(HalfPrecisionDevice::<H>::rounding(Arc::clone(&model.device)));
        self.parts.pipeline.links.narrow::<H>();
        Ok(())
    }
}

/// The norm over the mesh, or over the ranks of one replica in local SGD: a parameter is counted on
/// every rank that has the same one, and divided by the number of these ranks. `dense` ranks of `ep`
/// bring each parameter that belongs to no expert.
fn norm<T: Real>(store: &dyn Store<T>, groups: &MeshGroups, dense: usize) -> Result<GradientNorm> {
    let world = &groups.world;
    let model = if store.diverges() {
        world.split(groups.copies.rank(), world.rank())?
    } else {
        world.clone()
    };
    let (copies, tp) = (store.copies(), groups.tp.world());
    let brought = |entry: &LayoutEntry| {
        let equal = |(axis, ranks)| match entry.placement(axis, false)[0] {
            Placement::Replicate => ranks,
            _ => 1,
        };
        copies * [(MeshAxis::Tp, tp), (MeshAxis::Ep, dense)].map(equal).iter().product::<usize>()
    };
    Ok(GradientNorm::new(store.layout(), model, brought))
}

/// The stages of this rank, and the plan by which it runs them.
fn pipeline<T: Real>(
    layout: &ParameterLayout,
    config: &Config,
    setup: &Parallelism,
    groups: &MeshGroups,
    routing: Rc<RefCell<RoutingRecord>>,
) -> Result<Pipeline<T>> {
    let plan = setup.schedule.plan(setup.mesh.size(MeshAxis::Pp), setup.micros);
    Ok(Pipeline {
        plan: plan.expect("a setup is checked"),
        rank: groups.pp.rank(),
        links: StageLinks::new(&groups.pp)?,
        units: stages(layout, config, setup, groups),
        take: own_activations,
        routing,
        group: setup.router.map_or(1, |router| router.group),
        load: vec![0; config.layers * config.experts],
        losses: groups.world.clone(),
        // The ranks of tp have the same losses: one of them counts.
        brings_loss: groups.tp.rank() == 0,
        held: 0,
    })
}

/// Returns the units of each stage of a rank.
fn stages(
    layout: &ParameterLayout,
    config: &Config,
    setup: &Parallelism,
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
fn axes<T: Real>(
    config: &Config,
    setup: &Parallelism,
    groups: &MeshGroups,
    routing: &Rc<RefCell<RoutingRecord>>,
) -> Axes<T> {
    let mut region: Box<dyn ParallelRegion<T>> = Box::new(SingleRank);
    let mut vocabulary: Box<dyn Vocabulary<T>> = Box::new(SingleRank);
    if groups.tp.world() > 1 {
        region =
            Box::new(TensorParallelRegion { group: groups.tp.clone(), sequence: setup.sequence });
        vocabulary = Box::new(VocabParallel { group: groups.tp.clone(), vocabulary: config.vocab });
    }
    let (group, division) = (groups.cp.clone(), setup.division);
    let attention: Box<dyn Attention<T>> = match setup.exchange {
        _ if group.world() == 1 => Box::new(SingleRank),
        ContextExchange::Ring => Box::new(RingAttention::new(group, division)),
        ContextExchange::Ulysses => Box::new(UlyssesAttention { group, division }),
    };
    let feed_forward: Box<dyn FeedForward<T>> = match setup.router {
        Some(router) => {
            let (ep, tp) = (groups.ep.clone(), groups.tp.clone());
            Box::new(ExpertLayer::new(router, (ep, tp), Rc::clone(routing)))
        }
        None => feed_forward::dense(config),
    };
    Axes { region, attention, feed_forward, vocabulary }
}
