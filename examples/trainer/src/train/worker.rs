//! All axes at once: one rank of any mesh, assembled from the files of the axes.
//!
//! What it does: gives the model ([`Gpt`]) the gates, the attention, the feed-forward part and the
//! vocabulary of this rank's place in the mesh, its layers to a pipeline, and its gradients to the
//! sums that are due. Nothing of an axis is decided here: this file only joins.
//!
//! ```text
//! rows of a batch ---- dp, ep ----> micro-batches ---- pp: plan ----> stage ---- tp, cp, ep within a block
//!                                                                       |
//!                      optimizer <---- dp, cp: inner store <---- ep, tp: partial sums
//! ```
//!
//! What is sharded: layers over `pp`, experts over `ep`, matrices over `tp`; rows over `dp` and
//! `ep`, positions over `cp`. Which collective runs where, and what it costs: the sum of the axes'
//! own.

use crate::check::faults::Fault;
use crate::context_parallel::ring::Ring;
use crate::context_parallel::ulysses::Ulysses;
use crate::data_parallel::partial::{Partial, Terms};
use crate::expert_parallel::layer::{Experts, Ledger};
use crate::expert_parallel::rebalance::{Move, by_load, carry_out};
use crate::model::axes::{Alone, Attention, Axes, FeedForward, Gates, Vocabulary};
use crate::model::batch::Batch;
use crate::model::config::Config;
use crate::model::feed_forward::Dense;
use crate::model::gpt::{Gpt, Trail};
use crate::model::layout::{Entry, Layout, Part, Share};
use crate::model::store::Store;
use crate::pipeline_parallel::execute::{Stages, execute};
use crate::pipeline_parallel::peers::Peers;
use crate::pipeline_parallel::plan::Plan;
use crate::pipeline_parallel::trace::{Span, Trace};
use crate::ranks::group::Group;
use crate::ranks::mesh::{Axis, Groups};
use crate::ranks::traffic::Traffic;
use crate::tensor::math::{Number, Real};
use crate::tensor::precision::Half;
use crate::tensor_parallel::regions::Tensor;
use crate::tensor_parallel::vocab::Divided;
use crate::train::clip::Norm;
use crate::train::optim::Rule;
use crate::train::schedule::Schedule;
use crate::train::session::{Report, Session};
use crate::train::setup::{Exchange, Setup};
use crate::train::text::Text;
use maypole::{Communicator, Result};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Instant;

/// One rank of a mesh, with its part of the model.
pub struct Worker<T> {
    /// How the model is spread.
    pub setup: Setup,
    /// The ranks that it meets.
    pub groups: Groups,
    /// The model, its weights and its optimizer.
    pub session: Session<T>,
    /// What its routers saw in the last step.
    pub ledger: Rc<RefCell<Ledger>>,
    /// What its pipeline does: the plan of the setup, or any other of the same stages.
    pub plan: Plan,
    /// Tokens sent to each expert of each layer, from this rank's tokens, since experts were last
    /// dealt out.
    tally: Vec<u64>,
    peers: Peers<T>,
    /// The units of each of its stages.
    stages: Vec<Range<usize>>,
    /// What times are counted from: all ranks were here together.
    epoch: Instant,
}

/// What came of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Loss, norm and rate, the same on every rank; the auxiliary loss is in the loss.
    pub report: Report,
    /// What this rank's pipeline did when, in seconds since the step began here.
    pub trace: Trace,
    /// When it began, in seconds since all ranks were made.
    pub began: f64,
    /// Most bytes of activations that waited for their backward at once, those of the head not
    /// counted.
    pub activations: usize,
}

impl<T: Real> Worker<T> {
    /// The rank of `comm` in the mesh of `setup`, with the weights that `seed` says. Collective.
    ///
    /// # Errors
    /// As the library's `split`.
    ///
    /// # Panics
    /// If [`Setup::check`] has something to say.
    pub fn new(
        comm: Communicator,
        config: &Config,
        setup: Setup,
        seed: u64,
        (rule, schedule): (Rule, Schedule),
    ) -> Result<Self> {
        let groups = Groups::new(comm, setup.mesh, setup.order)?;
        let plan = setup
            .schedule
            .plan(setup.mesh.size(Axis::Pp), setup.micros)
            .expect("a setup is checked");
        let layout = Layout::new(config, share(config, &setup, &groups));
        let stages = stages(&layout, config, &setup, &groups);
        let ledger = Rc::default();
        let gpt = Gpt::new(&layout, axes(config, &setup, &groups, &ledger));
        let weights = layout.initial(seed);
        let store = store(layout, weights, &setup, &groups);
        let mut session = Session::new(gpt, store, rule, schedule, &groups.world);
        session.norm = norm(&*session.store, &groups)?;
        let peers = Peers::new(&groups.pp)?;
        let tally = vec![0; config.layers * config.experts];
        groups.world.sum(0.0)?;
        Ok(Self {
            setup,
            groups,
            session,
            ledger,
            plan,
            tally,
            peers,
            stages,
            epoch: Instant::now(),
        })
    }

    /// One step over the next batch of `rows` rows.
    ///
    /// # Errors
    /// As every collective.
    pub fn step(&mut self, text: &Text, rows: usize) -> Result<Outcome> {
        let (start, began) = (Instant::now(), self.epoch.elapsed().as_secs_f64());
        let mut batches = self.batches(text, self.session.step, rows);
        let scale = self.session.scale.map_or(1.0, |scale| scale.factor);
        batches.iter_mut().for_each(|batch| batch.weight *= scale);
        let share = scale / self.routing_groups(rows) as f64;
        *self.ledger.borrow_mut() =
            Ledger { share, load: vec![0; self.tally.len()], ..Ledger::default() };
        let Session { gpt, store, .. } = &mut self.session;
        let tokens = gpt.axes.gates.tokens(batches[0].tokens.len()).len();
        let (rank, length) = (self.groups.pp.rank(), tokens * gpt.config.width);
        let trails = self.stages.iter().map(|_| Vec::new()).collect();
        let stacked = self.setup.fault == Some(Fault::ActivationsStacked);
        let (stages, store) = (&self.stages, &mut **store);
        let done = vec![0; stages.len()];
        let ledger = &*self.ledger;
        let mut run = Run {
            gpt,
            store,
            ledger,
            stages,
            batches: &batches,
            trails,
            done,
            stacked,
            loss: 0.0,
            held: 0,
            most: 0,
        };
        let trace = execute(&self.plan, rank, &mut self.peers, &mut run, length, start)?;
        let (loss, activations) = (run.loss + self.ledger.borrow().loss, run.most);
        self.tally.iter_mut().zip(&self.ledger.borrow().load).for_each(|(sum, load)| *sum += load);
        // The ranks of tp have the same losses: one of them counts.
        let report = self.session.update(if self.groups.tp.rank() == 0 { loss } else { 0.0 })?;
        Ok(Outcome { report, trace, began, activations })
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
            self.tally.iter().map(|load| if counts { *load as f64 } else { 0.0 }).collect();
        self.groups.world.all_reduce(&mut load)?;
        Ok(load.into_iter().map(|load| load as u64).collect())
    }

    /// Deals out the experts to the ranks of `ep` anew, by their load since that was last done:
    /// where they come from and what it is for, for every layer of the whole model. Nothing, if
    /// there are no experts. Collective.
    ///
    /// # Errors
    /// As every collective.
    pub fn rebalance(&mut self) -> Result<Vec<Move>> {
        let load = self.load()?;
        self.tally.fill(0);
        let moves = by_load(&load, self.session.gpt.config.experts, self.groups.ep.world());
        self.rearrange(&moves)?;
        Ok(moves)
    }

    /// Moves experts, in layers that may be elsewhere. All ranks call it, with the same `moves`.
    ///
    /// # Errors
    /// As every collective.
    pub fn rearrange(&mut self, moves: &[Move]) -> Result<()> {
        let Session { store, optimizer, .. } = &mut self.session;
        let averages = [&mut *optimizer.first, &mut *optimizer.second];
        carry_out(&mut **store, averages, &self.groups, moves, self.setup.fault)
    }

    /// Bytes of payload that this rank has sent so far, by group, as the library counts them.
    pub fn sent(&self) -> Traffic {
        let Groups { ep, cp, tp, copies, world, .. } = &self.groups;
        let [ep, cp, tp, copies, world] = [ep, cp, tp, copies, world].map(Group::payload);
        Traffic { pp: self.peers.payload(), ep, cp, tp, copies, world }
    }

    /// What all ranks of this rank's pipeline did in a step. They all call it.
    ///
    /// # Errors
    /// As the collective.
    pub fn gather_trace(&self, outcome: &Outcome) -> Result<Trace> {
        let (trace, began) = (&outcome.trace, outcome.began);
        let since =
            |span: &Span| Span { start: span.start + began, end: span.end + began, ..*span };
        let numbers: Vec<f64> =
            trace.spans.iter().flat_map(|span| since(span).to_numbers()).collect();
        let all = self.groups.pp.gather(&numbers)?;
        let spans = all.chunks_exact(Span::NUMBERS).map(Span::from_numbers).collect();
        Ok(Trace { spans, ..*trace }.from_zero())
    }

    /// This rank's micro-batches: its rows, and of those its positions.
    fn batches(&self, text: &Text, step: u64, rows: usize) -> Vec<Batch> {
        let (setup, slice) = (&self.setup, self.groups.rows());
        let mine = text.step(step, rows, slice.of * setup.micros);
        let mine = &mine[slice.index * setup.micros..][..setup.micros];
        let (rank, ranks) = (self.groups.cp.rank(), self.groups.cp.world());
        let columns = setup.division.positions(rank, ranks, self.session.gpt.config.context);
        let mut batches: Vec<Batch> = mine.iter().map(|batch| batch.cut(&columns)).collect();
        let ends = self.session.gpt.parts.last() == Some(&Part::Head) && self.groups.pp.world() > 1;
        match setup.fault {
            Some(Fault::LocalMean) => {
                batches.iter_mut().for_each(|batch| batch.weight *= (slice.of * ranks) as f64);
            }
            Some(Fault::PlainPositions) => {
                let first = (rank * columns.len()) as u32;
                let plain = (first..first + columns.len() as u32).collect::<Vec<_>>();
                batches.iter_mut().for_each(|batch| batch.positions = plain.repeat(batch.rows));
            }
            Some(Fault::MicrosSwapped) if ends => {
                let mut targets: Vec<_> =
                    batches.iter().map(|batch| batch.targets.clone()).collect();
                targets.rotate_left(1);
                batches
                    .iter_mut()
                    .zip(targets)
                    .for_each(|(batch, targets)| batch.targets = targets);
            }
            _ => {}
        }
        batches
    }

    /// Routing groups of a batch of `rows` rows.
    fn routing_groups(&self, rows: usize) -> usize {
        let group = self.setup.router.map_or(1, |router| router.group);
        let all = rows * self.session.gpt.config.context / group;
        let parts = self.setup.mesh.sizes(&[Axis::Dp, Axis::Ep, Axis::Cp]);
        if self.setup.fault == Some(Fault::LocalBalance) { all / parts } else { all }
    }
}

impl Worker<f32> {
    /// Begins again in 16 bits, with the weights that `seed` says: see [`Session::narrow`].
    pub fn narrow<H: Half>(&mut self, seed: u64) {
        let (setup, groups, weights) =
            (&self.setup, &self.groups, self.session.store.layout().initial(seed));
        self.session.narrow::<H>(&weights, |layout, weights| store(layout, weights, setup, groups));
        self.peers.narrow::<H>();
    }
}

/// Which part of the model a place in the mesh has.
fn share(config: &Config, setup: &Setup, groups: &Groups) -> Share {
    let (rank, ranks) = (groups.pp.rank(), groups.pp.world());
    let chunks = 0..setup.schedule.chunks();
    let layers = chunks.flat_map(|chunk| setup.layers(config, chunk * ranks + rank)).collect();
    let (tensor, expert) = (groups.tp.slice(), groups.ep.slice());
    Share { tensor, expert, layers, embed: rank == 0, head: rank + 1 == ranks }
}

/// Which units are at each of a rank's stages.
fn stages(layout: &Layout, config: &Config, setup: &Setup, groups: &Groups) -> Vec<Range<usize>> {
    let (rank, ranks, last) = (groups.pp.rank(), groups.pp.world(), setup.schedule.chunks() - 1);
    let mut from = 0;
    let mut stage = |chunk: usize| {
        let layers = setup.layers(config, chunk * ranks + rank);
        let here = |part: Part| match part {
            Part::Embed => chunk == 0,
            Part::Block(layer) => layers.contains(&layer),
            Part::Head => chunk == last,
        };
        let start = from;
        from += layout.units[start..].iter().take_while(|unit| here(unit.part)).count();
        start..from
    };
    (0..=last).map(&mut stage).collect()
}

/// How this rank's part of the model meets the others'.
fn axes<T: Real>(
    config: &Config,
    setup: &Setup,
    groups: &Groups,
    ledger: &Rc<RefCell<Ledger>>,
) -> Axes<T> {
    let fault = setup.fault;
    let (mut gates, mut vocabulary): (Box<dyn Gates<T>>, Box<dyn Vocabulary<T>>) =
        (Box::new(Alone), Box::new(Alone));
    if groups.tp.world() > 1 {
        gates = Box::new(Tensor { group: groups.tp.clone(), sequence: setup.sequence, fault });
        vocabulary =
            Box::new(Divided { group: groups.tp.clone(), vocabulary: config.vocab, fault });
    }
    let (group, division) = (groups.cp.clone(), setup.division);
    let attention: Box<dyn Attention<T>> = match setup.exchange {
        _ if group.world() == 1 => Box::new(Alone),
        Exchange::Ring => Box::new(Ring { group, division, fault }),
        Exchange::Ulysses => Box::new(Ulysses { group, division, fault }),
    };
    let experts = |router| {
        let (ep, tp, ledger) = (groups.ep.clone(), groups.tp.clone(), Rc::clone(ledger));
        Box::new(Experts { router, ep, tp, ledger, fault })
    };
    let feed_forward: Box<dyn FeedForward<T>> = match setup.router {
        Some(router) => experts(router),
        None => Box::new(Dense),
    };
    Axes { gates, attention, feed_forward, vocabulary }
}

/// These weights of this place, and every sum that their gradients need.
fn store<T: Number>(
    layout: Layout,
    weights: Vec<T>,
    setup: &Setup,
    groups: &Groups,
) -> Box<dyn Store<T>> {
    let fault = setup.fault;
    let mut sums = Vec::new();
    if setup.sequence && fault != Some(Fault::NormsNotSummed) {
        sums.push((groups.tp.clone(), Terms::OfTokens));
    }
    let dense = if fault == Some(Fault::ExpertsSummed) { Terms::Everything } else { Terms::Dense };
    sums.push((groups.ep.clone(), dense));
    let copies = match fault {
        Some(Fault::GradientsAlone) => Group::alone(),
        Some(Fault::GradientsOverTensor) => groups.tp.clone(),
        _ => groups.copies.clone(),
    };
    let inner = setup.sharding.store(layout, weights, copies);
    let share = if fault == Some(Fault::GradientsAveraged) {
        1.0 / groups.copies.world() as f64
    } else {
        1.0
    };
    Box::new(Partial::new(inner, sums, setup.sharding, share))
}

/// The norm over the mesh, or over the ranks that train one model apart from others: a parameter is
/// brought by every rank that has the same one.
fn norm<T: Real>(store: &dyn Store<T>, groups: &Groups) -> Result<Norm> {
    let world = &groups.world;
    let model = if store.apart() {
        world.split(groups.copies.rank(), world.rank())?
    } else {
        world.clone()
    };
    let (copies, tp, ep) = (store.copies(), groups.tp.world(), groups.ep.world());
    let brought = |entry: &Entry| {
        let (tensor, expert) = (entry.cut.is_none(), entry.expert.is_none());
        copies * if tensor { tp } else { 1 } * if expert { ep } else { 1 }
    };
    Ok(Norm::new(store.layout(), model, brought))
}

/// A rank's stages while a step runs.
struct Run<'a, T> {
    gpt: &'a mut Gpt<T>,
    store: &'a mut dyn Store<T>,
    ledger: &'a RefCell<Ledger>,
    stages: &'a [Range<usize>],
    batches: &'a [Batch],
    /// By stage: what waits for its backward, with its micro-batch.
    trails: Vec<Vec<(usize, Trail<T>)>>,
    /// By stage: backwards done.
    done: Vec<usize>,
    /// The mistake of taking the last instead of the one that belongs to it.
    stacked: bool,
    loss: f64,
    held: usize,
    most: usize,
}

impl<T: Real> Stages<T> for Run<'_, T> {
    fn forward(&mut self, micro: usize, chunk: usize, input: Vec<T>) -> Result<Vec<T>> {
        let units = self.stages[chunk].clone();
        let layer = |part: &Part| if let Part::Block(layer) = part { Some(*layer) } else { None };
        self.ledger.borrow_mut().coming =
            self.gpt.parts[units.clone()].iter().filter_map(layer).collect();
        let (output, trail) = self.gpt.forward(units, self.store, &self.batches[micro], input)?;
        self.loss += trail.loss;
        self.held += trail.bytes();
        self.most = self.most.max(self.held);
        self.trails[chunk].push((micro, trail));
        Ok(output)
    }

    fn backward(&mut self, micro: usize, chunk: usize, gradient: Vec<T>) -> Result<Vec<T>> {
        let trails = &mut self.trails[chunk];
        let own = |(of, _): &(usize, Trail<T>)| *of == micro;
        let own =
            if self.stacked { trails.len().checked_sub(1) } else { trails.iter().position(own) };
        let (_, trail) = trails.remove(own.expect("forward comes before backward"));
        self.held -= trail.bytes();
        self.done[chunk] += 1;
        self.store.backward_begins(self.done[chunk] == self.batches.len());
        self.gpt.backward(
            self.stages[chunk].clone(),
            self.store,
            &self.batches[micro],
            trail,
            gradient,
        )
    }
}
