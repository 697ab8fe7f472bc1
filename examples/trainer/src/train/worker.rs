//! All axes at once: one rank of any mesh, assembled from the files of the axes.
//!
//! What it does: from the coordinates of a rank it makes the parts of its model ([`Gpt`]): the
//! region, the attention, the feed-forward part and the vocabulary. It makes the stages of its
//! pipeline, and the store that sums its gradients. Each axis decides in its own folder what it
//! does; this file puts the axes together.
//!
//! ```text
//! rows of a batch -- dp, ep --> micro-batches -- pp: plan --> stage -- tp, cp, ep in a block
//!                                                               |
//!                  optimizer <-- dp, cp: inner store <-- ep, tp: partial sums
//! ```
//!
//! What is sharded: layers over `pp`, experts over `ep`, matrices over `tp`; rows over `dp` and
//! `ep`, positions over `cp`. Which collective runs where, and what it costs: the sum of the axes'
//! own.

use crate::data_parallel::sharding::Sharding;
use crate::expert_parallel::layer::RoutingRecord;
use crate::expert_parallel::rebalance::{ExpertMove, moves_by_load};
use crate::faults::assembly::Assembly;
use crate::model::batch::TokenBatch;
use crate::model::config::Config;
use crate::model::gpt::Gpt;
use crate::model::layout::{ModelPart, ParameterLayout};
use crate::pipeline_parallel::execute::own_activations;
use crate::pipeline_parallel::links::StageLinks;
use crate::pipeline_parallel::trace::{PassSpan, PipelineTrace};
use crate::ranks::group::RankGroup;
use crate::ranks::mesh::{MeshAxis, MeshGroups};
use crate::ranks::traffic::Traffic;
use crate::tensor::half_float::HalfFloat;
use crate::tensor::math::Real;
use crate::train::assemble::{axes, balance, norm, stages, store};
use crate::train::keeper::StateKeeper;
use crate::train::optim::Rule;
use crate::train::passes::LocalStages;
use crate::train::schedule::RateSchedule;
use crate::train::session::{StepOutcome, TrainingSession};
use crate::train::setup::Setup;
use crate::train::text::{Text, TextError};
use crate::unequal_ranks::rows::RowBalance;
use maypole::{Communicator, Result};
use std::rc::Rc;
use std::time::Instant;

/// One rank of a mesh, with its part of the model.
pub struct Worker<T> {
    /// The division of the model over ranks.
    pub setup: Setup,
    /// The groups of ranks with which this rank communicates.
    pub groups: MeshGroups,
    /// The model, its weights and its optimizer.
    pub session: TrainingSession<T>,
    /// The rows of each replica.
    balance: RowBalance,
    /// Tokens sent to each expert of each layer, from this rank's tokens, since experts were last
    /// dealt out.
    expert_load: Vec<u64>,
    /// The time after a barrier of all ranks: traces of different ranks count from here.
    epoch: Instant,
}

impl<T: Real> Worker<T> {
    /// The rank of `comm` in the mesh of `setup`, with initial weights drawn by
    /// `seed`. Collective.
    ///
    /// # Errors
    /// As the library's `split`.
    ///
    /// # Panics
    /// If [`Setup::check`] refuses the setup.
    pub fn new(
        comm: Communicator,
        config: &Config,
        setup: Setup,
        seed: u64,
        (rule, schedule): (Rule, RateSchedule),
    ) -> Result<Self> {
        let groups = MeshGroups::new(comm, setup.mesh, setup.order)?;
        let assembly = Assembly(setup.fault);
        let plan = assembly
            .schedule(setup.schedule)
            .plan(setup.mesh.size(MeshAxis::Pp), setup.micros)
            .expect("a setup is checked");
        let layout = ParameterLayout::new(config, setup.share(config, groups.place));
        let units = stages(&layout, config, &setup, &groups);
        let routing = Rc::default();
        let gpt = Gpt::new(&layout, axes(config, &setup, &groups, &routing));
        let weights = layout.initial(seed);
        let store = store(layout, weights, &setup, &groups)?;
        let mut session = TrainingSession::new(gpt, store, rule, schedule, &groups.world);
        session.norm = norm(&*session.store, &groups, assembly)?;
        session.routing = routing;
        let rank = groups.pp.rank();
        let links = StageLinks::new(&groups.pp)?;
        let take = assembly.activations(own_activations);
        session.stages = LocalStages { plan, rank, links, units, take };
        // The ranks of tp have the same losses: one of them counts.
        session.brings_loss = groups.tp.rank() == 0;
        let expert_load = vec![0; config.layers * config.experts];
        let balance = balance(&setup, &groups);
        groups.world.sum(0.0)?;
        Ok(Self { setup, groups, session, balance, expert_load, epoch: Instant::now() })
    }

    /// One step over the next batch of `rows` rows of `text`, which is in memory. Of a text on disk
    /// see [`read`](Self::read).
    ///
    /// # Errors
    /// As every collective.
    ///
    /// # Panics
    /// If the text is on disk and cannot be read any more.
    pub fn step(&mut self, text: &Text, rows: usize) -> Result<StepOutcome> {
        let start = Instant::now();
        let batches = self.read(text, rows).unwrap_or_else(|why| panic!("{why}"));
        self.step_over(&batches, rows, start)
    }

    /// This rank's part of the next batch of `rows` rows of `text`: its positions of its rows, by
    /// micro-batch. Only these rows are read, if the text is on disk.
    ///
    /// # Errors
    /// As [`Text::part`].
    pub fn read(
        &mut self,
        text: &Text,
        rows: usize,
    ) -> std::result::Result<Vec<TokenBatch>, TextError> {
        self.batches(text, self.session.step, rows)
    }

    /// One step over the micro-batches that [`read`](Self::read) has returned for `rows` rows. The
    /// step began at `start`.
    ///
    /// # Errors
    /// As every collective.
    pub fn step_over(
        &mut self,
        batches: &[TokenBatch],
        rows: usize,
        start: Instant,
    ) -> Result<StepOutcome> {
        let scale = self.session.scale.map_or(1.0, |scale| scale.factor);
        let share = scale / self.routing_groups(rows) as f64;
        let load = vec![0; self.expert_load.len()];
        self.session.routing.replace(RoutingRecord { share, load, ..RoutingRecord::default() });
        let outcome = self.session.step(batches, start)?;
        let routing = self.session.routing.borrow();
        self.expert_load.iter_mut().zip(&routing.load).for_each(|(sum, load)| *sum += load);
        drop(routing);
        self.divide_rows(outcome.work)?;
        Ok(outcome)
    }

    /// From now on keeps what it takes to go on when another rank has died: see
    /// [`survivors`](crate::train::survivors). Collective.
    ///
    /// # Errors
    /// As the shift of the optimizer's averages.
    ///
    /// # Panics
    /// If weights are divided, differ between ranks or are of 16 bits, or if the mesh has another
    /// axis than `dp`: there is no second copy of these.
    pub fn keep_states(&mut self) -> Result<()> {
        let can = self.setup.can_lose_ranks();
        can.unwrap_or_else(|why| panic!("{why}"));
        assert!(self.session.scale.is_none(), "16-bit numbers have no second copy");
        let sharded = matches!(self.setup.sharding, Sharding::Zero1 | Sharding::Zero2);
        let copies = self.groups.copies.clone();
        let TrainingSession { optimizer, store, keeper, .. } = &mut self.session;
        *keeper = Some(StateKeeper::new(optimizer, store.layout(), &copies, sharded)?);
        Ok(())
    }

    /// The rows of each replica in the next step, if it has as many as the last one; empty before
    /// the first step.
    pub fn rows(&self) -> &[usize] {
        self.balance.each()
    }

    /// The rows of a batch in which every replica has as many as this rank's had in the last step:
    /// the input of this rank's theory. 0 before the first step.
    pub fn rows_like_own(&self) -> usize {
        self.balance.all_like_own()
    }

    /// After a step in which this rank worked for `work` seconds: divides rows anew, if that is due.
    fn divide_rows(&mut self, work: f64) -> Result<()> {
        let world = &self.groups.world;
        if let Some(rows) = self.balance.observe(world, self.session.step, work)? {
            let assembly = Assembly(self.setup.fault);
            let rows = assembly.rows(world.rank(), self.balance.each(), rows);
            self.balance.adopt(rows);
        }
        Ok(())
    }

    /// Tokens that all ranks sent to each expert, layer after layer of the whole model, since the
    /// last [`rebalance`](Self::rebalance). Empty, if there are no experts. Collective.
    ///
    /// # Errors
    /// As every collective.
    pub fn load(&self) -> Result<Vec<u64>> {
        // The ranks of tp route the same tokens: one of them counts.
        let counts = self.groups.tp.rank() == 0;
        let mut load: Vec<f64> =
            self.expert_load.iter().map(|load| if counts { *load as f64 } else { 0.0 }).collect();
        self.groups.world.all_reduce(&mut load)?;
        Ok(load.into_iter().map(|load| load as u64).collect())
    }

    /// Moves experts between the ranks of `ep` by their load since the last call. Returns the moves
    /// of every layer of the whole model; none if there are no experts. Collective.
    ///
    /// # Errors
    /// As every collective.
    pub fn rebalance(&mut self) -> Result<Vec<ExpertMove>> {
        let load = self.load()?;
        self.expert_load.fill(0);
        let moves = moves_by_load(&load, self.session.gpt.config.experts, self.groups.ep.world());
        self.rearrange(&moves)?;
        Ok(moves)
    }

    /// Moves experts. All ranks call it, with the same `moves`: those of all layers of the model,
    /// also of layers on other ranks.
    ///
    /// # Errors
    /// As every collective.
    pub fn rearrange(&mut self, moves: &[ExpertMove]) -> Result<()> {
        let TrainingSession { store, optimizer, .. } = &mut self.session;
        let averages = [&mut *optimizer.first, &mut *optimizer.second];
        Assembly(self.setup.fault).move_experts(&mut **store, averages, &self.groups, moves)
    }

    /// From now on blocks keep only their input if `on` is true, else all of their activations.
    pub fn recompute(&mut self, on: bool) {
        self.session.gpt.recompute = Assembly(self.setup.fault).recompute(on);
    }

    /// Bytes of payload that this rank has sent so far, by group, as the library counts them.
    pub fn sent(&self) -> Traffic {
        let MeshGroups { ep, cp, tp, copies, world, .. } = &self.groups;
        let [ep, cp, tp, copies, world] = [ep, cp, tp, copies, world].map(RankGroup::payload);
        Traffic { pp: self.session.stages.links.payload(), ep, cp, tp, copies, world }
    }

    /// Gathers the traces of a step from all ranks of this rank's pipeline. They all call it.
    ///
    /// # Errors
    /// As the collective.
    pub fn gather_trace(&self, outcome: &StepOutcome) -> Result<PipelineTrace> {
        let trace = &outcome.trace;
        let began = outcome.start.duration_since(self.epoch).as_secs_f64();
        let since = |span: &PassSpan| PassSpan {
            start: span.start + began,
            end: span.end + began,
            ..*span
        };
        let numbers: Vec<f64> =
            trace.spans.iter().flat_map(|span| since(span).to_numbers()).collect();
        let all = self.groups.pp.gather(&numbers)?;
        let spans = all.chunks_exact(PassSpan::NUMBERS).map(PassSpan::from_numbers).collect();
        Ok(PipelineTrace { spans, ..*trace }.from_zero())
    }

    fn batches(
        &mut self,
        text: &Text,
        step: u64,
        rows: usize,
    ) -> std::result::Result<Vec<TokenBatch>, TextError> {
        let setup = &self.setup;
        let slice = self.groups.rows();
        let mine = text.part(step, rows, self.balance.range(rows), setup.micros)?;
        let rank = self.groups.cp.rank();
        let ranks = self.groups.cp.world();
        let columns = setup.division.positions(rank, ranks, self.session.gpt.config.context);
        let mut batches: Vec<TokenBatch> = mine.iter().map(|batch| batch.cut(&columns)).collect();
        let ends =
            self.session.gpt.parts.last() == Some(&ModelPart::Head) && self.groups.pp.world() > 1;
        let assembly = Assembly(setup.fault);
        assembly.batches(&mut batches, slice.of * ranks, rank, ends);
        assembly.weights(&mut batches, rows as f64 / slice.of as f64);
        Ok(batches)
    }

    /// Routing groups of a batch of `rows` rows.
    fn routing_groups(&self, rows: usize) -> usize {
        let group = self.setup.router.map_or(1, |router| router.group);
        let all = rows * self.session.gpt.config.context / group;
        let parts = self.setup.mesh.sizes(&[MeshAxis::Dp, MeshAxis::Ep, MeshAxis::Cp]);
        Assembly(self.setup.fault).routing_groups(all, parts)
    }
}

impl Worker<f32> {
    /// Begins again in 16 bits, with initial weights drawn by `seed`: see
    /// [`TrainingSession::narrow`].
    ///
    /// # Errors
    /// If the ranks cannot make memory that they share.
    pub fn narrow<H: HalfFloat>(&mut self, seed: u64) -> Result<()> {
        let setup = &self.setup;
        let groups = &self.groups;
        let weights = self.session.store.layout().initial(seed);
        let store = |layout, weights| store(layout, weights, setup, groups);
        self.session.narrow::<H>(&weights, store)?;
        self.session.stages.links.narrow::<H>();
        Ok(())
    }
}
