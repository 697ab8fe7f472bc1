//! Text from a trained model: the next token drawn by its probability, again and again.
//!
//! Rank 0 runs the whole model, and no rank holds it: before the forward pass of each unit all ranks
//! gather the weights of this unit, and rank 0 frees them after the pass. Each rank writes its
//! part of the unit at its offset in a buffer that is minus infinity elsewhere, and an all-reduce
//! takes the maximum of each number over ranks. Copies are equal to the bit, so the maximum is the
//! weight itself; a sum would count copies.
//!
//! * **Collective:** for each unit and token the store's all-gather of the unit and, where
//!   `pp`, `ep` or `tp` divide the model, one all-reduce (maximum) of the unit.
//! * **Cost:** the weights of the whole model cross the links for each token. Where every rank has
//!   all of them nothing is sent.

use crate::expert_parallel::layer::ExpertLayer;
use crate::model::axes::Axes;
use crate::model::batch::TokenBatch;
use crate::model::layout::{LayoutEntry, LayoutPiece, ParameterLayout};
use crate::model::store::{Store, forward_store};
use crate::model::transformer::Transformer;
use crate::ranks::group::RankGroup;
use crate::ranks::mesh::MeshAxis;
use crate::tensor::random::{RandomUse, uniform};
use crate::train::trainer::Trainer;
use maypole::{ReduceOp, Result};
use std::rc::Rc;
use std::sync::Arc;

/// The whole model of a mesh, one unit at a time. All ranks acquire the same units.
pub struct WholeModel<'a> {
    inner: &'a mut dyn Store<f32>,
    whole: ParameterLayout,
    /// For each unit of the whole model: the number of this rank's unit, if it has a part of it, and
    /// the places of the part in both.
    own: Vec<Option<(usize, Vec<LayoutPiece>)>>,
    /// All ranks, if no rank has the whole model.
    world: Option<RankGroup>,
    unit: Vec<f32>,
}

impl<'a> WholeModel<'a> {
    /// The model of which `trainer` has a part.
    pub fn of(trainer: &'a mut Trainer<f32>) -> Self {
        let divided = trainer.groups.mesh.sizes(&[MeshAxis::Pp, MeshAxis::Ep, MeshAxis::Tp]) > 1;
        let world = divided.then(|| trainer.groups.world.clone());
        let inner = &mut *trainer.parts.store;
        let layout = inner.layout();
        let whole = ParameterLayout::whole(&layout.config);
        let part = |unit: &crate::model::layout::LayoutUnit| {
            let nth = layout.units.iter().position(|own| own.part == unit.part)?;
            let own = &layout.units[nth];
            let pieces = layout.entries[own.entries.clone()].iter().flat_map(LayoutEntry::pieces);
            let within = |piece: LayoutPiece| LayoutPiece {
                local: piece.local - own.range.start,
                global: piece.global - unit.range.start,
                ..piece
            };
            Some((nth, pieces.map(within).collect()))
        };
        let own = whole.units.iter().map(part).collect();
        Self { inner, whole, own, world, unit: Vec::new() }
    }
}

impl Store<f32> for WholeModel<'_> {
    forward_store!(f32: weights_and_gradients, local_shards, all_gather_params, publish, bytes);

    fn layout(&self) -> &ParameterLayout {
        &self.whole
    }

    fn weights(&mut self, unit: usize) -> Result<&[f32]> {
        self.unit = vec![f32::NEG_INFINITY; self.whole.units[unit].range.len()];
        if let Some((own, pieces)) = &self.own[unit] {
            let weights = self.inner.weights(*own)?;
            for LayoutPiece { local, global, len } in pieces {
                let place = *global..*global + *len;
                self.unit[place].copy_from_slice(&weights[*local..*local + *len]);
            }
            self.inner.forward_done(*own)?;
        }
        if let Some(world) = &self.world {
            world.call(|comm| comm.all_reduce(&mut self.unit, ReduceOp::Max))?;
        }
        Ok(&self.unit)
    }

    fn forward_done(&mut self, _: usize) -> Result<()> {
        self.unit = Vec::new();
        Ok(())
    }
}

/// `count` tokens that follow `prompt`, on rank 0; none on other ranks. All ranks call it.
///
/// # Errors
/// As the collectives in it.
///
/// # Panics
/// If the prompt is empty.
pub fn sample(
    trainer: &mut Trainer<f32>,
    prompt: &[u32],
    count: usize,
    draw: Sampling,
) -> Result<Vec<u32>> {
    let rank = trainer.groups.world.rank();
    let (router, device) = (trainer.parallelism.router, Arc::clone(&trainer.parts.model.device));
    let mut store = WholeModel::of(trainer);
    let units = store.whole.units.len();
    if rank > 0 {
        for unit in (0..count).flat_map(|_| 0..units) {
            store.weights(unit)?;
        }
        return Ok(Vec::new());
    }
    let mut axes = Axes::single_rank(&store.whole.config);
    if let Some(router) = router {
        let alone = (RankGroup::single(), RankGroup::single());
        axes.feed_forward = Box::new(ExpertLayer::new(router, alone, Rc::default()));
    }
    let mut gpt = Transformer::new(&store.whole, axes);
    gpt.device = device;
    generate(&mut gpt, &mut store, prompt, count, draw)
}

/// The rule by which tokens are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// The divisor of logits: below 1 is more certain, 0 takes the likeliest token.
    pub temperature: f64,
    /// The seed of the draws.
    pub seed: u64,
}

/// `count` tokens that follow `prompt`. The model sees the last `context` tokens.
///
/// # Errors
/// As the collectives of the model, if it has any.
///
/// # Panics
/// If the prompt is empty.
pub fn generate(
    gpt: &mut Transformer<f32>,
    store: &mut dyn Store<f32>,
    prompt: &[u32],
    count: usize,
    draw: Sampling,
) -> Result<Vec<u32>> {
    assert!(!prompt.is_empty(), "the prompt is empty");
    let vocab = gpt.config.vocab;
    let context = gpt.config.context;
    let mut tokens = prompt.to_vec();
    for nth in 0..count {
        let seen = &tokens[tokens.len().saturating_sub(context)..];
        let positions = (0..seen.len() as u32).collect();
        let batch = TokenBatch {
            rows: 1,
            tokens: seen.to_vec(),
            targets: Vec::new(),
            positions,
            weight: 0.0,
        };
        let logits = gpt.predict(store, &batch)?;
        tokens.push(pick(&logits[logits.len() - vocab..], draw, nth as u64));
    }
    Ok(tokens.split_off(prompt.len()))
}

/// One token by its logits.
fn pick(logits: &[f32], draw: Sampling, nth: u64) -> u32 {
    let likeliest = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap_or(0);
    if draw.temperature <= 0.0 {
        return likeliest as u32;
    }
    let most = f64::from(logits[likeliest]);
    let shares: Vec<f64> =
        logits.iter().map(|z| ((f64::from(*z) - most) / draw.temperature).exp()).collect();
    let chance = uniform(RandomUse::Sample.stream(draw.seed), nth);
    let mut left = chance * shares.iter().sum::<f64>();
    let drawn = shares.iter().position(|share| {
        left -= share;
        left < 0.0
    });
    drawn.unwrap_or(likeliest) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_drawn_by_their_probability() {
        let logits = [0.0, 2f32.ln(), f32::NEG_INFINITY, 0.0];
        let mut counts = [0; 4];
        for seed in 0..4_000 {
            counts[pick(&logits, Sampling { temperature: 1.0, seed }, 3) as usize] += 1;
        }
        assert!(
            counts[2] == 0
                && (1_850..2_150).contains(&counts[1])
                && (880..1_120).contains(&counts[0]),
            "{counts:?}"
        );
        assert_eq!(pick(&logits, Sampling { temperature: 0.0, seed: 1 }, 0), 1);
    }
}
