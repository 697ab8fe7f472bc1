//! The model, a GPT or a Llama: embedding, blocks, head, run unit by unit over a [`Store`], forward
//! and backward.
//!
//! A rank may have only some units, and may run only some of those: a stage of a pipeline is a
//! range of units, which takes and returns vectors. The forward pass keeps [`Activations`] for the
//! backward pass.

use crate::model::axes::Axes;
use crate::model::batch::TokenBatch;
use crate::model::block::{self, BlockActivations};
use crate::model::config::Config;
use crate::model::layout::{ModelPart, ParameterLayout};
use crate::model::norm::Norm;
use crate::model::queries::AttentionShape;
use crate::model::store::{Store, StorePass};
use crate::ranks::memory::MemoryKind;
use crate::tensor::attention::Heads;
use crate::tensor::device::{CpuDevice, Device};
use crate::tensor::math::{Real, take, take_mut};
use crate::tensor::packed::PackedNumbers;
use crate::tensor_parallel::column::ColumnParallelLinear;
use maypole::Result;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// The part of the model that a rank runs, without its weights.
pub struct Transformer<T> {
    /// The sizes of the whole model.
    pub config: Config,
    /// The units of this rank.
    pub parts: Vec<ModelPart>,
    /// The lengths of the tensors of each unit.
    tensors: Vec<Vec<usize>>,
    /// Heads of this rank.
    pub heads: usize,
    /// The device that computes the layers.
    pub device: Arc<dyn Device<T>>,
    /// The parts of the model that may communicate with other ranks.
    pub axes: Axes<T>,
    /// True if a block keeps only its input, and computes its other activations again before its
    /// backward pass: a third more arithmetic for less memory.
    pub recompute: bool,
}

/// The activations that the backward pass of some units needs from their forward pass.
#[derive(Debug)]
pub struct Activations<T> {
    /// The buffers of each unit, its input first: of an embedding none, of a block those of
    /// [`BlockActivations`] or its input alone, and of a head the input, the statistics of its norm, the
    /// normalised vectors, and the gradient of the logits.
    kept: Vec<Vec<PackedNumbers<T>>>,
    /// How many buffers of a block are those of its attention.
    attention: usize,
    /// The sum of the weighted losses of the batch's tokens; zero if these units have no head.
    pub loss: f64,
}

impl<T: Real> Activations<T> {
    /// Returns the bytes of all activations.
    pub fn bytes(&self) -> usize {
        self.kept.iter().flatten().map(PackedNumbers::bytes).sum()
    }

    /// True if the vectors from the previous stage are kept in the buffer in which they arrived.
    pub fn keeps_input(&self) -> bool {
        let input = self.kept.first().and_then(|unit| unit.first());
        matches!(input, Some(PackedNumbers::Whole(_)))
    }
}

impl<T: Real> Transformer<T> {
    /// A rank that has the parameters of `layout`, computes on this processor, and communicates by
    /// `axes`.
    pub fn new(layout: &ParameterLayout, axes: Axes<T>) -> Self {
        let heads = layout.share.tensor.range(layout.config.heads).len();
        let parts = layout.units.iter().map(|unit| unit.part).collect();
        Self {
            config: layout.config.clone(),
            parts,
            tensors: (0..layout.units.len()).map(|unit| layout.tensors(unit)).collect(),
            heads,
            device: Arc::new(CpuDevice),
            axes,
            recompute: false,
        }
    }

    /// Returns the number of units on this rank.
    pub fn units(&self) -> usize {
        self.parts.len()
    }

    /// Runs all units forward and backward, and adds the gradients to those of the store. The units
    /// must be the whole model or a tensor-parallel part of it. Returns the weighted loss of the
    /// batch. `last` is that of [`StorePass::Backward`].
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
        store.pass_begins(StorePass::Backward { units: 0..self.units(), last });
        self.backward(0..self.units(), store, batch, activations, Vec::new())?;
        Ok(loss)
    }

    /// Runs `units` forward. `x` is the output of the unit before, `width` numbers a token; it is
    /// empty if the first unit is the embedding. Returns the output of the last unit, empty if that
    /// is the head, and the activations for [`backward`](Self::backward).
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
        let mut activations =
            Activations { kept: Vec::with_capacity(units.len()), attention: 0, loss: 0.0 };
        store.pass_begins(StorePass::Forward { units: units.clone() });
        for unit in units {
            let p = split(&self.tensors[unit], MemoryKind::Units.hold(|| store.weights(unit))?);
            let kept = match self.parts[unit] {
                ModelPart::Embed => {
                    x = self.embed(&p, batch)?;
                    Vec::new()
                }
                ModelPart::Block(_) => {
                    let (y, kept) = self.block(&p, batch, x)?;
                    x = y;
                    activations.attention = kept.attention.len();
                    if self.recompute { vec![kept.x] } else { kept.into_list() }
                }
                ModelPart::Head => {
                    let mut head = self.logits(&p, std::mem::take(&mut x))?;
                    let [.., logits] = &mut head;
                    let targets = &batch.targets;
                    let weight = batch.weight;
                    activations.loss = self.axes.vocabulary.cross_entropy(
                        &*self.device,
                        logits,
                        targets,
                        weight,
                    )?;
                    head.into()
                }
            };
            activations.kept.push(kept.into_iter().map(|x| self.device.pack(x)).collect());
            MemoryKind::Units.hold(|| store.forward_done(unit))?;
        }
        Ok((x, activations))
    }

    /// Runs `units` backward, after a forward pass that returned `activations`. `dx` is the
    /// gradient of the last unit's output; it is empty if that unit is the head. Returns the
    /// gradient of the first unit's input, empty if that unit is the embedding.
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
            let (p, g) = MemoryKind::Units.hold(|| store.weights_and_gradients(unit))?;
            let p = split(&self.tensors[unit], p);
            let mut g = split_mut(&self.tensors[unit], g);
            let kept: Vec<_> = kept.into_iter().map(PackedNumbers::unpack).collect();
            dx = match self.parts[unit] {
                ModelPart::Embed => self.embed_backward(&mut g, batch, std::mem::take(&mut dx))?,
                ModelPart::Block(_) => {
                    let kept = match <[_; 1]>::try_from(kept) {
                        Ok([x]) => self.block(&p, batch, x)?.1,
                        Err(all) => BlockActivations::of_list(all, activations.attention),
                    };
                    self.block_backward((&p, &mut g), batch, &kept, dx)?
                }
                ModelPart::Head => self.logits_backward((&p, &mut g), &kept)?,
            };
            MemoryKind::Units.hold(|| store.backward_done(unit))?;
        }
        Ok(dx)
    }

    /// Returns the logits of every token of a batch, of this rank's part of the vocabulary. Targets
    /// are not read.
    ///
    /// # Errors
    /// As the collectives of the axes and of the store.
    pub fn predict(&mut self, store: &mut dyn Store<T>, batch: &TokenBatch) -> Result<Vec<T>> {
        let last = self.units() - 1;
        let (x, _) = self.forward(0..last, store, batch, Vec::new())?;
        let p = split(&self.tensors[last], store.weights(last)?);
        let [.., logits] = self.logits(&p, x)?;
        Ok(logits)
    }

    fn shape<'a>(&self, batch: &'a TokenBatch) -> AttentionShape<'a> {
        let size = self.config.width / self.config.heads;
        AttentionShape {
            architecture: self.config.architecture,
            heads: Heads { rows: batch.rows, heads: self.heads, size },
            positions: &batch.positions,
        }
    }

    fn block(
        &mut self,
        p: &[&[T]],
        batch: &TokenBatch,
        x: Vec<T>,
    ) -> Result<(Vec<T>, BlockActivations<T>)> {
        let shape = self.shape(batch);
        block::forward(&*self.device, &mut self.axes, shape, p, x)
    }

    fn block_backward(
        &mut self,
        weights: (&[&[T]], &mut [&mut [T]]),
        batch: &TokenBatch,
        kept: &BlockActivations<T>,
        dx: Vec<T>,
    ) -> Result<Vec<T>> {
        let shape = self.shape(batch);
        block::backward(&*self.device, &mut self.axes, shape, weights, kept, dx)
    }

    /// Returns for each token its row of the token table, summed over the ranks, plus its row of
    /// the position table if there is one.
    fn embed(&mut self, p: &[&[T]], batch: &TokenBatch) -> Result<Vec<T>> {
        let (tokens, positions) = p.split_first().expect("the embedding has a table");
        let mut x = vec![T::zero(); batch.tokens.len() * self.config.width];
        self.device.embed(&mut x, tokens, self.axes.vocabulary.first(), &batch.tokens);
        let mut x = self.axes.region.leave(x)?;
        for positions in positions {
            let mine = self.axes.region.tokens(batch.tokens.len());
            self.device.embed(&mut x, positions, 0, &batch.positions[mine]);
        }
        Ok(x)
    }

    fn embed_backward(
        &mut self,
        g: &mut [&mut [T]],
        batch: &TokenBatch,
        dx: Vec<T>,
    ) -> Result<Vec<T>> {
        let (tokens, positions) = g.split_first_mut().expect("the embedding has a table");
        for positions in positions {
            let mine = self.axes.region.tokens(batch.tokens.len());
            self.device.embed_backward(positions, 0, &batch.positions[mine], &dx);
        }
        let dx = self.axes.region.leave_backward(dx)?;
        self.device.embed_backward(tokens, self.axes.vocabulary.first(), &batch.tokens, &dx);
        Ok(Vec::new())
    }

    /// Runs the last norm and the matrix that gives logits. The matrix is column parallel: a rank
    /// gets the logits of its part of the vocabulary.
    fn logits(&mut self, p: &[&[T]], x: Vec<T>) -> Result<[Vec<T>; 4]> {
        let (norm, linear) = head(p.iter().copied());
        let (h, stats) = norm.forward(&*self.device, &x);
        let (h, logits) = linear.forward(&*self.device, &mut *self.axes.region, h)?;
        Ok([x, stats, h, logits])
    }

    fn logits_backward(
        &mut self,
        (p, g): (&[&[T]], &mut [&mut [T]]),
        kept: &[Vec<T>],
    ) -> Result<Vec<T>> {
        let [x, stats, h, dlogits] = kept else { unreachable!("forward keeps four") };
        let (norm, linear) = head(p.iter().copied());
        let (dnorm, dlinear) = head(g.iter_mut().map(|g| &mut **g));
        let region = &mut *self.axes.region;
        let dh = linear.backward(dlinear, &*self.device, region, h, dlogits)?;
        let mut dx = vec![T::zero(); x.len()];
        norm.backward(dnorm, &*self.device, &mut dx, &dh, (x, stats));
        Ok(dx)
    }
}

/// The last norm and the matrix of the head, or their gradients. Of three tensors the second is the
/// bias of the norm.
fn head<T, S: Deref<Target = [T]>>(
    mut tensors: impl ExactSizeIterator<Item = S>,
) -> (Norm<S>, ColumnParallelLinear<S>) {
    let biased = tensors.len() == 3;
    let norm = Norm::take(&mut tensors, biased);
    let inputs = norm.weight.len();
    let weight = tensors.next().expect("the head has a norm and a matrix");
    (norm, ColumnParallelLinear { weight, bias: None, inputs })
}

/// The tensors of a unit's weights.
fn split<'a, T>(lengths: &[usize], mut unit: &'a [T]) -> Vec<&'a [T]> {
    lengths.iter().map(|len| take(&mut unit, *len)).collect()
}

/// The tensors of a unit's gradients.
fn split_mut<'a, T>(lengths: &[usize], mut unit: &'a mut [T]) -> Vec<&'a mut [T]> {
    lengths.iter().map(|len| take_mut(&mut unit, *len)).collect()
}
