//! The model: embedding, blocks, head, run unit by unit over a [`Store`], forward and backward.
//!
//! A rank may have some units only, and run some of those only: a stage of a pipeline is a range of
//! units, into which vectors go and out of which vectors come. What the passes need of one another
//! is a [`Activations`].

use crate::model::axes::Axes;
use crate::model::batch::TokenBatch;
use crate::model::block::{self, normalise};
use crate::model::config::Config;
use crate::model::layout::{ModelPart, ParameterLayout};
use crate::model::store::Store;
use crate::tensor::attention::Heads;
use crate::tensor::device::{CpuDevice, Device};
use crate::tensor::math::{Real, take, take_mut};
use crate::tensor::norm::NormInputs;
use maypole::Result;
use std::ops::Range;
use std::sync::Arc;

/// What a rank runs: everything but the weights.
pub struct Gpt<T> {
    /// The sizes of the whole model.
    pub config: Config,
    /// What each unit of this rank is.
    pub parts: Vec<ModelPart>,
    /// Heads of this rank.
    pub heads: usize,
    /// Who computes.
    pub device: Arc<dyn Device<T>>,
    /// How it meets other ranks of the same model.
    pub axes: Axes<T>,
    /// True if a block keeps its input alone and computes the rest again before its backward pass:
    /// a third more arithmetic for less memory.
    pub recompute: bool,
}

/// What the backward pass of some units needs of their forward pass.
#[derive(Debug)]
pub struct Activations<T> {
    kept: Vec<UnitActivations<T>>,
    /// The weighted loss of the batch's tokens; zero if the head is elsewhere.
    pub loss: f64,
}

#[derive(Debug)]
enum UnitActivations<T> {
    Embed,
    Block(Box<block::BlockActivations<T>>),
    /// The input of a block that is to be computed again.
    Input(Vec<T>),
    Head(HeadActivations<T>),
}

#[derive(Debug)]
struct HeadActivations<T> {
    x: Vec<T>,
    stats: Vec<T>,
    h: Vec<T>,
    /// The gradient of the logits, if there were targets.
    logits: Vec<T>,
}

impl<T> Activations<T> {
    /// Bytes of activations, those of the head not counted.
    pub fn bytes(&self) -> usize {
        let each = |kept: &UnitActivations<T>| match kept {
            UnitActivations::Block(kept) => kept.bytes(),
            UnitActivations::Input(x) => size_of_val(&**x),
            UnitActivations::Embed | UnitActivations::Head(_) => 0,
        };
        self.kept.iter().map(each).sum()
    }
}

impl<T: Real> Gpt<T> {
    /// A rank that has what `layout` says, computes on this processor and meets others by `axes`.
    pub fn new(layout: &ParameterLayout, axes: Axes<T>) -> Self {
        let heads = layout.share.tensor.range(layout.config.heads).len();
        let parts = layout.units.iter().map(|unit| unit.part).collect();
        Self {
            config: layout.config.clone(),
            parts,
            heads,
            device: Arc::new(CpuDevice),
            axes,
            recompute: false,
        }
    }

    /// How many units this rank has.
    pub fn units(&self) -> usize {
        self.parts.len()
    }

    /// Forward and backward over all units, which must be the whole model or a tensor-parallel part
    /// of it: gradients are added to the store's. Returns the weighted loss of the batch; `last` is
    /// said to the store.
    ///
    /// # Errors
    /// As the collectives of the axes and of the store.
    pub fn train(
        &mut self,
        store: &mut dyn Store<T>,
        batch: &TokenBatch,
        last: bool,
    ) -> Result<f64> {
        let (_, activations) = self.forward(0..self.units(), store, batch, Vec::new())?;
        let loss = activations.loss;
        store.backward_begins(last);
        self.backward(0..self.units(), store, batch, activations, Vec::new())?;
        Ok(loss)
    }

    /// Runs `units` forward. `x` is what the unit before gave; nothing, if the first is the
    /// embedding. Returns what the last gave; nothing, if that is the head.
    ///
    /// # Errors
    /// As the collectives of the axes and of the store.
    pub fn forward(
        &mut self,
        units: Range<usize>,
        store: &mut dyn Store<T>,
        batch: &TokenBatch,
        mut x: Vec<T>,
    ) -> Result<(Vec<T>, Activations<T>)> {
        let mut activations = Activations { kept: Vec::with_capacity(units.len()), loss: 0.0 };
        for unit in units {
            let p = store.weights(unit)?;
            let kept = match self.parts[unit] {
                ModelPart::Embed => {
                    x = self.embed(p, batch)?;
                    UnitActivations::Embed
                }
                ModelPart::Block(_) => {
                    let (y, kept) = self.block(p, batch, x)?;
                    x = y;
                    if self.recompute {
                        UnitActivations::Input(kept.into_input())
                    } else {
                        UnitActivations::Block(Box::new(kept))
                    }
                }
                ModelPart::Head => {
                    let mut head = self.logits(p, std::mem::take(&mut x))?;
                    let targets = &batch.targets;
                    let weight = batch.weight;
                    activations.loss = self.axes.vocabulary.cross_entropy(
                        &*self.device,
                        &mut head.logits,
                        targets,
                        weight,
                    )?;
                    UnitActivations::Head(head)
                }
            };
            activations.kept.push(kept);
            store.forward_done(unit)?;
        }
        Ok((x, activations))
    }

    /// Runs `units` backward, which ran forward and left `activations`. `dx` is the gradient of
    /// what the last gave; nothing, if that is the head. Returns the gradient of what went into the
    /// first; nothing, if that is the embedding.
    ///
    /// # Errors
    /// As the collectives of the axes and of the store.
    pub fn backward(
        &mut self,
        units: Range<usize>,
        store: &mut dyn Store<T>,
        batch: &TokenBatch,
        activations: Activations<T>,
        mut dx: Vec<T>,
    ) -> Result<Vec<T>> {
        for (unit, kept) in units.zip(activations.kept).rev() {
            let (p, g) = store.weights_and_gradients(unit)?;
            dx = match kept {
                UnitActivations::Embed => self.embed_backward(g, batch, std::mem::take(&mut dx))?,
                UnitActivations::Block(kept) => self.block_backward((p, g), batch, &kept, dx)?,
                UnitActivations::Input(x) => {
                    let (_, kept) = self.block(p, batch, x)?;
                    self.block_backward((p, g), batch, &kept, dx)?
                }
                UnitActivations::Head(head) => self.logits_backward((p, g), &head)?,
            };
            store.backward_done(unit)?;
        }
        Ok(dx)
    }

    /// The logits of every token of a batch; targets are not looked at.
    ///
    /// # Errors
    /// As the collectives of the axes and of the store.
    pub fn predict(&mut self, store: &mut dyn Store<T>, batch: &TokenBatch) -> Result<Vec<T>> {
        let last = self.units() - 1;
        let (x, _) = self.forward(0..last, store, batch, Vec::new())?;
        let p = store.weights(last)?;
        Ok(self.logits(p, x)?.logits)
    }

    fn of_heads(&self, batch: &TokenBatch) -> Heads {
        Heads { rows: batch.rows, heads: self.heads, size: self.config.width / self.config.heads }
    }

    fn block(
        &mut self,
        p: &[T],
        batch: &TokenBatch,
        x: Vec<T>,
    ) -> Result<(Vec<T>, block::BlockActivations<T>)> {
        let heads = self.of_heads(batch);
        block::forward(&*self.device, &mut self.axes, heads, self.config.width, p, x)
    }

    fn block_backward(
        &mut self,
        weights: (&[T], &mut [T]),
        batch: &TokenBatch,
        kept: &block::BlockActivations<T>,
        dx: Vec<T>,
    ) -> Result<Vec<T>> {
        let heads = self.of_heads(batch);
        block::backward(&*self.device, &mut self.axes, heads, weights, kept, dx)
    }

    /// Lines of the token table, summed over those who have them, and of the position table.
    fn embed(&mut self, p: &[T], batch: &TokenBatch) -> Result<Vec<T>> {
        let (tokens, positions) = p.split_at(p.len() - self.config.context * self.config.width);
        let mut x = vec![T::zero(); batch.tokens.len() * self.config.width];
        self.device.embed(&mut x, tokens, self.axes.vocabulary.first(), &batch.tokens);
        let mut x = self.axes.region.leave(x)?;
        let mine = self.axes.region.tokens(batch.tokens.len());
        self.device.embed(&mut x, positions, 0, &batch.positions[mine]);
        Ok(x)
    }

    fn embed_backward(&mut self, g: &mut [T], batch: &TokenBatch, dx: Vec<T>) -> Result<Vec<T>> {
        let (tokens, positions) = g.split_at_mut(g.len() - self.config.context * self.config.width);
        let mine = self.axes.region.tokens(batch.tokens.len());
        self.device.embed_backward(positions, 0, &batch.positions[mine], &dx);
        let dx = self.axes.region.leave_backward(dx)?;
        self.device.embed_backward(tokens, self.axes.vocabulary.first(), &batch.tokens, &dx);
        Ok(Vec::new())
    }

    fn logits(&mut self, mut p: &[T], x: Vec<T>) -> Result<HeadActivations<T>> {
        let width = self.config.width;
        let (h, stats) = normalise(&*self.device, &x, [take(&mut p, width), take(&mut p, width)]);
        let h = self.axes.region.enter(h)?;
        let mut logits = vec![T::zero(); h.len() / width * (p.len() / width)];
        self.device.linear(&mut logits, &h, p, width);
        Ok(HeadActivations { x, stats, h, logits })
    }

    fn logits_backward(
        &mut self,
        (mut p, mut g): (&[T], &mut [T]),
        head: &HeadActivations<T>,
    ) -> Result<Vec<T>> {
        let width = self.config.width;
        let w = take(&mut p, width);
        let _ = take(&mut p, width);
        let dw = take_mut(&mut g, width);
        let db = take_mut(&mut g, width);
        let mut dh = vec![T::zero(); head.h.len()];
        self.device.linear_backward(&mut dh, g, &head.logits, &head.h, p, width);
        let dh = self.axes.region.enter_backward(dh)?;
        let mut dx = vec![T::zero(); head.x.len()];
        self.device.norm_backward(
            &mut dx,
            dw,
            db,
            &dh,
            NormInputs { x: &head.x, stats: &head.stats, w },
        );
        Ok(dx)
    }
}
