//! A feed-forward part of many experts, of which each token uses a few.
//!
//! What it does: a router ([`crate::expert_parallel::router`]) chooses experts for each token. The
//! token's row is sent to the ranks of these experts ([`crate::expert_parallel::dispatch`]), which
//! return their results. A token's output is the sum of its experts' outputs, each multiplied by
//! its gate. One rank runs the same code with all experts.
//!
//! Ranks of `ep` wait for the rank with the busiest experts. The [`RoutingRecord`] counts the
//! tokens of each expert, layer by layer, and `maypole_lab::rebalance` evens out the
//! load.
//!
//! What is sharded: experts over `ep`, and each expert's matrices over `tp` as those of the dense
//! part ([`crate::tensor_parallel::region`]); the router is on every rank. Under sequence
//! parallelism tokens are gathered first, so that all ranks of `tp` make the same choices.
//!
//! Which collective runs where: the exchanges of [`crate::expert_parallel::dispatch`], and over
//! `tp` one sum of the experts' outputs forward and one of their inputs' gradients backward, of the
//! rows of this rank's experts.
//!
//! Cost: those, and routing twice: the forward pass keeps only buffers of numbers, so the backward
//! pass makes the choices and the routes again from the kept logits.

use crate::expert_parallel::dispatch::TokenRoutes;
use crate::expert_parallel::router::{Routed, Router};
use crate::model::axes::FeedForward;
use crate::model::feed_forward::{self, FeedForwardLayers};
use crate::ranks::group::RankGroup;
use crate::ranks::memory::MemoryKind;
use crate::tensor::device::Device;
use crate::tensor::math::{Real, sum_of, take, take_mut};
use crate::tensor_parallel::region::ParallelRegion;
use crate::tensor_parallel::region::TensorParallelRegion;
use maypole::Result;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// The experts of one rank.
#[derive(Clone, Debug)]
pub struct ExpertLayer {
    /// The rule by which tokens choose experts.
    pub router: Router,
    /// The ranks that have the other experts.
    pub ep: RankGroup,
    /// The ranks that have the other parts of this rank's experts.
    pub tp: RankGroup,
    /// The routing of this step: its settings, and the loads that it counted.
    pub routing: Rc<RefCell<RoutingRecord>>,
    /// The routes of the rows to the experts and back: as they are.
    pub routes: fn(TokenRoutes) -> TokenRoutes,
    /// The gradient of a gate, given the dot product of its expert's output and the gradient of the
    /// token's output: that product.
    pub gate_gradient: fn(f64) -> f64,
}

/// The settings of the routers of a rank in a step, and the loads that they counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoutingRecord {
    /// The factor of the auxiliary loss of a group: one over the groups of the whole batch, times
    /// the loss scale if there is one.
    pub share: f64,
    /// The layers whose forward passes come next and are recorded, in order. Empty when a forward
    /// pass is computed again for the backward pass.
    pub coming: VecDeque<usize>,
    /// The sum of the auxiliary losses of this rank's tokens, each multiplied by `share`.
    pub loss: f64,
    /// For each expert, the number of this rank's tokens that were sent to it: `layers * experts`
    /// numbers of the whole model, layer by layer.
    pub load: Vec<u64>,
    /// Choices that were dropped because their expert was full, in the order in which layers ran.
    pub dropped: Vec<DroppedChoice>,
    /// The number of rows that the experts of this rank computed in each pass of a layer, in the
    /// order in which the layers ran.
    pub each: Vec<usize>,
    /// The number of rows that went to other ranks, and that came from other ranks.
    pub abroad: [usize; 2],
}

/// A choice that was dropped because its expert was full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DroppedChoice {
    /// The number of the layer in the whole model.
    pub layer: usize,
    /// The number of the token among those of its micro-batch that this rank routes.
    pub token: usize,
    /// The expert.
    pub expert: usize,
}

impl ExpertLayer {
    /// A layer whose experts are divided over the ranks of the first group, and their matrices over
    /// those of the second.
    pub fn new(
        router: Router,
        (ep, tp): (RankGroup, RankGroup),
        routing: Rc<RefCell<RoutingRecord>>,
    ) -> Self {
        Self { router, ep, tp, routing, routes: |routes| routes, gate_gradient: |product| product }
    }

    fn inner(&self) -> TensorParallelRegion {
        TensorParallelRegion { group: self.tp.clone(), sequence: false }
    }

    fn find_routes<T: Real>(&self, routed: &Routed<T>) -> Result<TokenRoutes> {
        let routes = TokenRoutes::new(&self.ep, self.router.experts, &routed.choices)?;
        Ok((self.routes)(routes))
    }

    /// Adds one forward pass to the record, if it is one of the coming passes.
    fn record<T>(&self, routed: &Routed<T>, routes: &TokenRoutes) {
        let mut routing = self.routing.borrow_mut();
        let Some(layer) = routing.coming.pop_front() else { return };
        routing.loss += routed.loss * routing.share;
        let full = routed.choices.iter().filter(|choice| !choice.kept);
        routing.dropped.extend(full.map(|choice| DroppedChoice {
            layer,
            token: choice.token,
            expert: choice.expert,
        }));
        routing.each.push(routes.load.iter().sum());
        routing.abroad.iter_mut().zip(routes.abroad).for_each(|(sum, rows)| *sum += rows);
        let experts = self.router.experts;
        let load = routed.load(self.router.experts);
        routing.load[layer * experts..].iter_mut().zip(load).for_each(|(sum, load)| *sum += load);
    }
}

/// The number of buffers at the start of those kept for the backward pass: the tokens, their
/// logits, and the output of each choice. Three buffers for each expert of this rank follow.
const SHARED: usize = 3;

impl<T: Real> FeedForward<T> for ExpertLayer {
    fn forward(
        &mut self,
        device: &dyn Device<T>,
        region: &mut dyn ParallelRegion<T>,
        p: &[&[T]],
        h: Vec<T>,
    ) -> Result<(Vec<T>, Vec<Vec<T>>)> {
        let h = region.enter(h)?;
        let (router, experts) = p.split_first().expect("a layer of experts has a router");
        let width = router.len() / self.router.experts;
        let mut logits = vec![T::zero(); h.len() / width * self.router.experts];
        device.linear(&mut logits, &h, router, width);
        let routed = self.router.route(&logits);
        let routes = self.find_routes(&routed)?;
        // The record outlives the backward pass.
        MemoryKind::Other.hold(|| self.record(&routed, &routes));
        let rows =
            routes.dispatch(&self.ep, width, |nth| row(&h, routed.choices[nth].token, width))?;

        let mut outputs = Vec::with_capacity(rows.len());
        let mut kept = Vec::new();
        let mut rest = &*rows;
        for (p, load) in experts.chunks_exact(feed_forward::TENSORS).zip(&routes.load) {
            let rows = take(&mut rest, load * width).to_vec();
            let (y, inner) = FeedForwardLayers::new(p.iter().copied()).forward(device, rows);
            outputs.extend(y);
            kept.extend(inner);
        }
        let mut outputs = ParallelRegion::leave(&mut self.inner(), outputs)?;
        let mut rest = &mut *outputs;
        for (p, load) in experts.chunks_exact(feed_forward::TENSORS).zip(&routes.load) {
            let y = take_mut(&mut rest, load * width);
            if let Some(bias) = FeedForwardLayers::new(p.iter().copied()).down.bias {
                device.bias(y, bias);
            }
        }
        let outputs = routes.combine(&self.ep, width, &outputs, routed.choices.len())?;

        let mut y = vec![T::zero(); h.len()];
        for (choice, output) in routed.choices.iter().zip(outputs.chunks_exact(width)) {
            let y = &mut y[choice.token * width..][..width];
            y.iter_mut().zip(output).for_each(|(y, output)| *y += choice.gate * *output);
        }
        let mine = region.tokens(y.len() / width);
        let y = y[mine.start * width..mine.end * width].to_vec();
        Ok((y, [h, logits, outputs].into_iter().chain(kept).collect()))
    }

    fn backward(
        &mut self,
        device: &dyn Device<T>,
        region: &mut dyn ParallelRegion<T>,
        (p, g): (&[&[T]], &mut [&mut [T]]),
        kept: &[Vec<T>],
        dy: &[T],
    ) -> Result<Vec<T>> {
        let ([h, logits, outputs], inner) = kept.split_at(SHARED) else {
            unreachable!("forward keeps three buffers first")
        };
        let dy = region.leave_backward(dy.to_vec())?;
        let (router, experts) = p.split_first().expect("a layer of experts has a router");
        let (drouter, dexperts) = g.split_first_mut().expect("as many gradients as tensors");
        let width = router.len() / self.router.experts;
        let routed = self.router.route(logits);
        let routes = self.find_routes(&routed)?;

        let mut scaled = vec![T::zero(); outputs.len()];
        for (choice, scaled) in routed.choices.iter().zip(scaled.chunks_exact_mut(width)) {
            let dy = row(&dy, choice.token, width);
            scaled.iter_mut().zip(dy).for_each(|(scaled, dy)| *scaled = choice.gate * *dy);
        }
        let doutputs = routes.dispatch(&self.ep, width, |nth| row(&scaled, nth, width))?;
        let mut rest = &*doutputs;
        let mut drows = Vec::with_capacity(doutputs.len());
        let each = feed_forward::TENSORS;
        let weights = experts.chunks_exact(each).zip(dexperts.chunks_exact_mut(each));
        for (((p, g), load), kept) in weights.zip(&routes.load).zip(inner.chunks_exact(3)) {
            let dy = take(&mut rest, load * width);
            let mut gradients = FeedForwardLayers::new(g.iter_mut().map(|g| &mut **g));
            if let Some(bias) = gradients.down.bias.as_deref_mut() {
                device.bias_backward(bias, dy);
            }
            drows.extend(
                FeedForwardLayers::new(p.iter().copied()).backward(gradients, device, kept, dy),
            );
        }
        let drows = ParallelRegion::enter_backward(&mut self.inner(), drows)?;
        let drows = routes.combine(&self.ep, width, &drows, routed.choices.len())?;

        let share = self.routing.borrow().share;
        let dlogits =
            self.router.backward(&routed, &self.gates(&routed, outputs, &dy, width), share);
        let mut dh = vec![T::zero(); h.len()];
        device.linear_backward(&mut dh, drouter, &dlogits, h, router, width);
        for (choice, drow) in routed.choices.iter().zip(drows.chunks_exact(width)) {
            device.add(&mut dh[choice.token * width..][..width], drow);
        }
        let mine = region.tokens(dh.len() / width);
        Ok(dh[mine.start * width..mine.end * width].to_vec())
    }
}

impl ExpertLayer {
    /// Returns the gradient of each choice's gate, zero for dropped choices.
    fn gates<T: Real>(&self, routed: &Routed<T>, outputs: &[T], dy: &[T], width: usize) -> Vec<T> {
        let gate = |(nth, choice): (usize, &crate::expert_parallel::router::ExpertChoice<T>)| {
            let output = row(outputs, nth, width);
            let dy = row(dy, choice.token, width);
            if !choice.kept {
                return T::zero();
            }
            T::of((self.gate_gradient)(sum_of(output, dy, |output, dy| output * dy).wide()))
        };
        routed.choices.iter().enumerate().map(gate).collect()
    }
}

fn row<T>(rows: &[T], nth: usize, width: usize) -> &[T] {
    &rows[nth * width..][..width]
}
