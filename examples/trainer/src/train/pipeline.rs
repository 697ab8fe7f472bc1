//! The passes of one step: all micro-batches forward and backward through the stages of this rank.
//!
//! Every step of every mesh is this loop. A rank that has the whole model is a pipeline of one
//! stage, whose plan is "forward, backward" for one micro-batch after another; that is *gradient
//! accumulation*: a batch whose activations do not fit into memory is trained on in pieces, and the
//! update comes at the end.
//!
//! # What is sharded
//! The rows of a rank, over time. With several stages also the layers
//! ([`crate::pipeline_parallel`]).
//!
//! # Which collective runs where
//! None of its own. [`Store::pass_begins`] marks the last backward pass of the step, so that replicated
//! gradients are summed over ranks once a step, for any number of micro-batches (PyTorch calls the
//! other passes `no_sync`).
//!
//! # Cost
//! Memory: activations of the micro-batches that wait for their backward pass, instead of those of
//! the whole batch. Every token's loss was weighted by one over the tokens of the whole
//! batch, so gradients of micro-batches are added and never divided.

use crate::expert_parallel::layer::RoutingRecord;
use crate::model::batch::TokenBatch;
use crate::model::layout::ModelPart;
use crate::model::store::{Store, StorePass};
use crate::model::transformer::{Activations, Transformer};
use crate::pipeline_parallel::execute::{Stages, TakeActivations, execute};
use crate::pipeline_parallel::links::StageLinks;
use crate::pipeline_parallel::plan::{PipelinePlan, PipelineSchedule};
use crate::ranks::group::RankGroup;
use crate::ranks::memory::{MemoryKind, counted};
use crate::tensor::math::Real;
use crate::train::watch::Passes;
use maypole::Result;
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// The stages of this rank and the plan by which it runs them.
#[derive(Debug)]
pub struct Pipeline<T> {
    /// The passes of each rank of the pipeline, in order.
    pub plan: PipelinePlan,
    /// This rank's number in the pipeline.
    pub rank: usize,
    /// The ranks before and after this one.
    pub links: StageLinks<T>,
    /// The units of each stage of this rank.
    pub units: Vec<Range<usize>>,
    /// Chooses the activations that a backward pass takes: [`own_activations`], which is right.
    ///
    /// [`own_activations`]: crate::pipeline_parallel::execute::own_activations
    pub take: TakeActivations,
    /// The choices of the routers of this rank in the last step, if the model has experts.
    pub routing: Rc<RefCell<RoutingRecord>>,
    /// The tokens over which the load of experts is reckoned.
    pub group: usize,
    /// Tokens sent to each expert of each layer, from this rank's tokens, since experts were last
    /// dealt out.
    pub load: Vec<u64>,
    /// The ranks whose losses add up to that of the batch.
    pub losses: RankGroup,
    /// Bytes of activations that wait for their backward pass: none between steps.
    pub held: i64,
    /// False if another rank of `losses` has the loss of the same tokens and adds it to the sum.
    pub brings_loss: bool,
}

impl<T: Real> Pipeline<T> {
    /// Runs `batches`, the micro-batches of one step, forward and backward; gradients are added to
    /// those in `store`.
    ///
    /// # Errors
    /// As the links between stages and the collectives of the model and of the store. If the device
    /// fails, all ranks get [`maypole::Error::Aborted`] with the reason.
    ///
    /// # Panics
    /// If the plan of several stages is for another number of micro-batches.
    pub fn forward_backward(
        &mut self,
        model: &mut Transformer<T>,
        store: &mut dyn Store<T>,
        batches: &[TokenBatch],
    ) -> Result<Passes> {
        if self.plan.stages() == 1 && self.plan.micros != batches.len() {
            self.plan = single_stage(batches.len());
        }
        assert_eq!(self.plan.micros, batches.len(), "the plan says how many micro-batches run");
        // A token's weight is one over the tokens of the batch, and a group has so many tokens.
        let share = batches[0].weight * self.group as f64;
        let load = vec![0; self.load.len()];
        self.routing.replace(RoutingRecord { share, load, ..RoutingRecord::default() });
        let passes = self.passes((model, store), batches, None)?;
        let routing = self.routing.borrow();
        self.load.iter_mut().zip(&routing.load).for_each(|(sum, load)| *sum += load);
        let loss = if self.brings_loss { passes.loss + routing.loss } else { 0.0 };
        Ok(Passes { loss, ..passes })
    }

    /// Runs `batches` forward, and keeps nothing for a backward pass. Returns the sum of their weighted
    /// losses over all ranks, without auxiliary losses.
    ///
    /// # Errors
    /// As [`forward_backward`](Self::forward_backward).
    pub(super) fn judge(
        &mut self,
        model: &mut Transformer<T>,
        store: &mut dyn Store<T>,
        batches: &[TokenBatch],
    ) -> Result<f64> {
        let PipelinePlan { ranks, chunks, .. } = self.plan;
        let plan = PipelinePlan::forward(ranks, chunks, batches.len());
        self.routing.borrow_mut().coming.clear();
        let loss = self.passes((model, store), batches, Some(&plan))?.loss;
        self.losses.sum(if self.brings_loss { loss } else { 0.0 })
    }

    /// Runs `batches` by the plan of a step, or by one of `forward` passes alone. The loss of the
    /// result is that of this rank's tokens.
    fn passes(
        &mut self,
        (model, store): (&mut Transformer<T>, &mut dyn Store<T>),
        batches: &[TokenBatch],
        forward: Option<&PipelinePlan>,
    ) -> Result<Passes> {
        let (start, waited) = (Instant::now(), self.losses.timeline().waited());
        let length = message_length(model, batches);
        let device = Arc::clone(&model.device);
        let mut runner = StageRunner {
            gpt: model,
            store,
            routing: &self.routing,
            units: &self.units,
            batches,
            waiting: self.units.iter().map(|_| Vec::new()).collect(),
            take: self.take,
            keeps: forward.is_none(),
            done: vec![0; self.units.len()],
            loss: 0.0,
            held: &mut self.held,
            most: 0,
        };
        let plan = forward.unwrap_or(&self.plan);
        let trace = execute(plan, self.rank, &mut self.links, &mut runner, length, start);
        // A device that has failed is the cause of whatever failed after it.
        device.failure().map_or(Ok(()), |why| Err(self.losses.abort(&why)))?;
        let (trace, loss, activations) = (trace?, runner.loss, runner.most.max(0) as usize);
        let waited = (self.losses.timeline().waited() - waited).as_secs_f64();
        let lengths = trace.spans.iter().map(|span| span.end - span.start);
        let work = lengths.sum::<f64>() - waited;
        Ok(Passes { loss, trace, start, activations, work })
    }
}

/// The numbers of a message between stages.
fn message_length<T: Real>(model: &Transformer<T>, batches: &[TokenBatch]) -> usize {
    let tokens = model.axes.region.tokens(batches[0].tokens.len()).len();
    tokens * model.config.width
}

/// The plan of one stage: each micro-batch forward and then backward.
fn single_stage(micros: usize) -> PipelinePlan {
    let schedule = PipelineSchedule::OneForwardOneBackward;
    schedule.plan(1, micros).expect("one stage runs any number of micro-batches")
}

/// The stages of a rank while a step runs.
struct StageRunner<'a, T> {
    gpt: &'a mut Transformer<T>,
    store: &'a mut dyn Store<T>,
    routing: &'a RefCell<RoutingRecord>,
    units: &'a [Range<usize>],
    batches: &'a [TokenBatch],
    /// By stage.
    waiting: Vec<Vec<WaitingPass<T>>>,
    take: TakeActivations,
    /// True if a backward pass follows each forward pass.
    keeps: bool,
    /// By stage: backward passes done.
    done: Vec<usize>,
    loss: f64,
    /// Bytes of activations that wait.
    held: &'a mut i64,
    /// The most that `held` was.
    most: i64,
}

/// A forward pass that waits for its backward pass.
struct WaitingPass<T> {
    micro: usize,
    activations: Activations<T>,
    /// Bytes of its input, if the activations keep one that another thread has allocated.
    input: i64,
}

impl<T: Real> Stages<T> for StageRunner<'_, T> {
    fn forward(&mut self, micro: usize, chunk: usize, input: Vec<T>) -> Result<Vec<T>> {
        let units = self.units[chunk].clone();
        let batch = &self.batches[micro];
        if !self.keeps {
            let (output, activations) = self.gpt.forward(units, self.store, batch, input)?;
            self.loss += activations.loss;
            return Ok(output);
        }
        let layer =
            |part: &ModelPart| if let ModelPart::Block(layer) = part { Some(*layer) } else { None };
        self.routing.borrow_mut().coming =
            self.gpt.parts[units.clone()].iter().filter_map(layer).collect();
        let received = size_of_val(&*input) as i64;
        let before = MemoryKind::Activations.held();
        let forward = || self.gpt.forward(units, self.store, batch, input);
        let (output, activations) = MemoryKind::Activations.hold(forward)?;
        // The output leaves the rank and does not count. The input was allocated by another thread,
        // under another kind: it counts if the activations keep it. A copy of it in fewer bits has
        // been counted already.
        let left = MemoryKind::Activations.held() - before - size_of_val(&*output) as i64;
        let input = if activations.keeps_input() { received } else { 0 };
        *self.held += if counted() { left + input } else { activations.bytes() as i64 };
        self.most = self.most.max(*self.held);
        self.loss += activations.loss;
        self.waiting[chunk].push(WaitingPass { micro, activations, input });
        Ok(output)
    }

    fn backward(&mut self, micro: usize, chunk: usize, gradient: Vec<T>) -> Result<Vec<T>> {
        let waiting = &mut self.waiting[chunk];
        let micros: Vec<usize> = waiting.iter().map(|pass| pass.micro).collect();
        let own = (self.take)(&micros, micro).expect("forward comes before backward");
        let WaitingPass { activations, input, .. } = waiting.remove(own);
        self.done[chunk] += 1;
        let units = self.units[chunk].clone();
        let last = self.done[chunk] == self.batches.len();
        self.store.pass_begins(StorePass::Backward { units: units.clone(), last });
        let batch = &self.batches[micro];
        let uncounted = activations.bytes() as i64;
        let before = MemoryKind::Activations.held();
        let gradient = self.gpt.backward(units, self.store, batch, activations, gradient);
        // The measured bytes that the pass has freed, not the theoretical ones: longer-lived memory
        // still counts.
        let freed = before - MemoryKind::Activations.held();
        *self.held -= if counted() { freed + input } else { uncounted };
        gradient
    }
}
